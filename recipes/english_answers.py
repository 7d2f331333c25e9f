"""Train the answering model of the package: real questions with what a larger model says, and made ones.

`python recipes/box_text.py --only english-answers --teacher MODEL` does it.

The teacher is all-MiniLM-L6-v2 fine-tuned on the same questions. With its probabilities p of each token of
the context as the first (k = 1) and the last (k = 2) of an answer (Hinton et al. 2015), and q of the student:

    loss = (1 - SOFT) * -sum_k log q_k(gold) + SOFT * sum_k -sum_s p_k(s) log q_k(s)

Questions that recipes/cloze.py made have no p, and SOFT is 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from english import log, run_recipe
from torch import Tensor

from regard.batch import Batch
from regard.config import Config, load_config
from regard.config.schema import Weighted
from regard.data import iter_examples
from regard.data.dataset import UINT32, CorpusShards, Dataset, Shard, ShardColumn, TokenIds, column
from regard.data.objectives import ExtractiveQA
from regard.data.objectives.supervised import ContextWindow
from regard.sample import Example, Sample
from regard.tasks import Answerer
from regard.training import train
from regard.training.distributed import SingleProcess
from regard.training.loss import span_cross_entropy
from regard.training.prepare import TrainingData
from regard.training.run import Run, build_model
from regard.training.stream import Stream
from regard.training.trainer import Trainer

SOFT = 0.7
LEAST = 0.5  # of the teacher's probability inside of a window, else the window counts without it
LONGEST = 384  # tokens that the teacher reads: the whole context
AT_ONCE = 500  # questions of the teacher
# how it is trained: as recipes/squad.toml, on the articles of this recipe
TEACHER = ["init.freeze=0", f"model.max_length={LONGEST}", "train.lr=3e-4", "train.steps=300"]


@dataclass(frozen=True)
class NumberedWindows(ExtractiveQA):
    """The first number of a row's target is its number, for the teacher's probabilities."""

    def sample(self, source: TokenIds, target: TokenIds, rng: Any = None) -> Sample:
        number, *places = target
        return replace(super().sample(source, places, rng), target=[number])


class Student(Trainer):
    soft: list[np.ndarray]  # [S,2] of each window, float16; empty where the teacher says nothing

    def loss(self, batch: Batch) -> Tensor:
        assert batch.labels is not None and batch.source is not None and batch.target is not None
        with torch.autocast("cpu", torch.bfloat16, enabled=self.machine.precision == "bfloat16"):
            logits = self.model.output(self.model.hidden(batch)).float()  # [B,S,2]
        positions = batch.source.positions  # [B,S]
        known = [self.soft[number] for number in batch.target.ids[:, 0].tolist()]
        p = torch.zeros_like(logits)
        for row, each in enumerate(known):
            p[row, : len(each)] = torch.from_numpy(each.astype(np.float32))
        has_p = torch.tensor([len(each) > 0 for each in known])
        log_q = logits.masked_fill(positions[..., None] < 0, -1e4).log_softmax(dim=1)
        soft = -(p * log_q).sum(dim=(1, 2))[has_p].sum()
        gold = [
            span_cross_entropy(logits[rows], batch.labels[rows], positions[rows]) if rows.any() else 0.0
            for rows in (has_p, ~has_p)
        ]
        return (1 - SOFT) * gold[0] + gold[1] + SOFT * soft


def train_answers(config: Config, folder: Path, teacher: str) -> bool:
    """Whether it came to its end; the teacher is trained first, beside it."""
    place = folder.with_name(f"{folder.name}-teacher")
    real = corpora(config)[0][0]
    answerer = train_teacher(config, place, teacher)

    def make(run: Run, data: TrainingData) -> Trainer:
        objective = data.objective
        assert isinstance(objective, ExtractiveQA)
        numbered = NumberedWindows(objective.tokenizer, objective.max_length, objective.stride)
        parts, soft = [], []
        for corpus, weight in corpora(run.config):
            examples = list(iter_examples(corpus, run.config.task))
            soft = teacher_probabilities(answerer, examples) if corpus == real else [None] * len(examples)
            windows, targets = [], []
            for example, characters in zip(examples, soft):
                for window, place in windows_of(objective, example):
                    windows.append(window.ids)
                    targets.append([len(soft), window.begins, *place])
                    soft.append(in_window(window, characters))
            known = sum(len(each) > 0 for each in soft)
            log(f"{corpus}: {len(windows):,} windows; {known:,} with the teacher's probabilities up to here")
            shard = Shard(*(ShardColumn(*column(side, UINT32)) for side in (windows, targets)))
            parts.append(CorpusShards([shard], weight))
        train = run.config.train
        stream = Stream(Dataset(parts), numbered, train.tokens_per_batch, train.seed)
        log(f"{stream.batches_per_epoch:.0f} batches an epoch")
        model = build_model(run.config, data, run.machine, run.pretrained, log)
        student = Student(run.config, folder, model, stream, data, run.machine, SingleProcess())
        student.soft = soft
        return student

    return run_recipe(config, folder, make)


def corpora(config: Config) -> list[tuple[str, float]]:
    """Each with how often its questions are read in an epoch; the first is of real questions."""
    weighted = (each if isinstance(each, Weighted) else Weighted(corpus=each) for each in config.data.train)
    return [(str(each.corpus), each.weight) for each in weighted]


def train_teacher(config: Config, place: Path, teacher: str) -> Answerer:
    if not (place / "model.safetensors").is_file():
        changes = [f"init.from={teacher}", *TEACHER]
        recipe = load_config(Path(__file__).with_name("english-answers.toml"), changes)
        data = config.data.model_copy(update={"train": corpora(config)[0][0], "test": None})
        train(recipe.model_copy(update={"data": data}), place, resume=(place / "run.toml").is_file())
    return Answerer.load(place)


def windows_of(objective: ExtractiveQA, example: Example) -> Iterator[tuple[ContextWindow, tuple[int, int]]]:
    question, _, context = example.source.partition("\n")
    for window in objective.windows(question, context):
        if (place := objective.first_answer(window, example.target)) != (0, 0):
            yield window, place


def teacher_probabilities(model: Answerer, examples: Sequence[Example]) -> list[np.ndarray | None]:
    """Of each question [characters, 2]: p of the first and the last character of the answer.

    They are kept beside the teacher.
    """
    file = Path(model.folder.path) / "probabilities.npz"
    if file.is_file():
        stored = np.load(file)
        return [stored[name] if len(stored[name]) else None for name in stored.files]
    results: list[np.ndarray | None] = []
    for start in range(0, len(examples), AT_ONCE):
        pairs = [example.source.partition("\n")[::2] for example in examples[start : start + AT_ONCE]]
        windows = [model.objective.windows(*pair) for pair in pairs]
        logits = iter(model.logits([model.objective.text(each[0]) for each in windows if len(each) == 1]))
        for (_, context), each in zip(pairs, windows):
            if len(each) != 1:
                results.append(None)  # too long for it
                continue
            window = each[0]
            p = next(logits).float().softmax(dim=0)[window.begins : -1].numpy()  # [C,2]
            characters = np.zeros((len(context), 2), dtype=np.float32)
            for (first, last), (begins, ends) in zip(window.spans, p):
                characters[first, 0] += begins
                characters[max(first, last - 1), 1] += ends
            results.append(characters)
        log(f"the teacher has answered {len(results):,} of {len(examples):,} questions")
    np.savez(file, *(np.zeros((0, 2), np.float32) if each is None else each for each in results))
    return results


def in_window(window: ContextWindow, characters: np.ndarray | None) -> np.ndarray:
    """[S,2]: the probabilities of the characters of each token, divided by their sum."""
    if characters is None:
        return np.zeros((0, 2))
    sums = np.concatenate([np.zeros((1, 2), np.float32), characters.cumsum(axis=0)])
    bounds = np.array(window.spans)  # [C,2]
    p = np.zeros((len(window.ids), 2), dtype=np.float32)
    p[window.begins : -1] = sums[bounds[:, 1]] - sums[bounds[:, 0]]
    whole = p.sum(axis=0)
    return (p / whole).astype(np.float16) if whole.min() >= LEAST else np.zeros((0, 2))
