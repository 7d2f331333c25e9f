"""Train the English encoder of the package: masked words, and the vectors of a teacher at the same time.

`python recipes/box_text.py --only english --teacher MODEL` does it.

The teacher is all-MiniLM-L6-v2 (Apache-2.0), a folder or pulled. It reads every text once; its
vectors are turned so that their first numbers say most (singular vectors of a sample), and cut to the width
of the student. The student reads the text with 15 % of its tokens masked and learns three things of it:

    loss = -log p(masked tokens) + TOKENS * mean_s (1 - cos(h_s, t_s)) + TEXT * (1 - cos(mean h, mean t))

h_s is its last hidden state at token s, t_s the teacher's at the same letters, mean h the vector of the text.
Its weights are its own, from a random start. It can be stopped at any time: the same command goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from regard.batch import Batch, collate
from regard.config import Config
from regard.data.dataset import CorpusShards, Dataset, Shard, ShardColumn, TokenIds, column, offsets
from regard.data.objectives import MaskedLM
from regard.inputs.text import Tokenizer
from regard.models.encoder import mean
from regard.models.transformer import Stack
from regard.sample import IGNORED, Sample
from regard.storage import write_json, write_text
from regard.tasks import Embedder
from regard.training.checkpoints import latest_checkpoint
from regard.training.distributed import SingleProcess
from regard.training.listeners import Listener, Listeners
from regard.training.loss import count, output_cross_entropy
from regard.training.model_folder import write_model_folder
from regard.training.prepare import TrainingData, prepare_data
from regard.training.progress import Metrics
from regard.training.run import (
    Run,
    build_model,
    locked,
    open_or_resume,
    run_updates,
    stop_on_signal,
    write_run_files,
)
from regard.training.stream import Stream
from regard.training.trainer import Trainer

LAST, MIDDLE, TEXTS, STARTS = 8.0, 4.0, 6.0, 4.0  # weights of the teacher's vectors in the loss
WHOLE = 0.5  # share of the texts without masks
MIDDLE_BLOCK = 3  # of the teacher, counted from 0
SAMPLE, MOST = 1000, 20_000  # texts and their tokens, for the main directions
TOKENS_AT_ONCE = 4096  # in a batch of the teacher
UINT32 = np.dtype(np.uint32)


def pretrain(config: Config, folder: Path, teacher: str) -> bool:
    """Whether it came to its end."""

    def make(run: Run, data: TrainingData) -> Trainer:
        assert isinstance(data.objective, MaskedLM) and isinstance(data.source, Tokenizer)
        texts = Path(str(config.data.train)).read_text(encoding="utf-8").splitlines()
        encoded = [data.source.spans(text) for text in texts]
        longest = data.objective.longest
        ids, spans = [each[0][:longest] for each in encoded], [each[1][:longest] for each in encoded]
        log(f"{len(ids):,} texts, {sum(map(len, ids)):,} tokens")
        place = folder.with_name(f"{folder.name}-teacher")
        known = Teacher(teacher, texts, spans, place, run.config.model.width)
        return make_trainer(run.config, folder, data, ids, known, run.machine)

    if finished := run_recipe(config, folder, make):
        write_pooling(folder, config.model.width, config.model.max_length)
    return finished


def run_recipe(config: Config, folder: Path, make: Callable[[Run, TrainingData], Trainer]) -> bool:
    """As `regard.training.train` with a trainer of one's own; whether it came to its end."""
    resume = (folder / "run.toml").is_file()
    with locked(folder, config, resume):
        run = open_or_resume(config, folder, resume)
        run.machine.use()
        trainer = make(run, prepare_data(run.config, folder, log, False, run.pretrained))
        if resume and (checkpoint := latest_checkpoint(folder, log)) is not None:
            trainer.restore(checkpoint)
        write_run_files(trainer)
        metrics = Metrics(folder, Listeners([Printer()]))
        metrics.rewind(trainer.progress.step)
        with stop_on_signal(trainer):
            finished = run_updates(trainer, metrics)
        if finished:
            write_model_folder(trainer, metrics)
        return finished


def log(text: str) -> None:
    print(text, flush=True)


class Printer(Listener):
    def log(self, text: str) -> None:
        log(text)

    def record(self, record: dict[str, Any]) -> None:
        log(" ".join(f"{name} {value}" for name, value in record.items() if value is not None))


# --- the teacher


@dataclass
class Teacher:
    """What the teacher says of each text. It reads a text when the student meets it first.

    Mapped files of one `place` keep it; vectors are of D numbers, the width of the student.
    """

    name: str
    texts: list[str]
    spans: list[Any]  # characters of the student's tokens, of each text
    place: Path
    width: int  # D

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        self.starts = offsets(np.array([len(each) for each in self.spans]))
        tokens, count = int(self.starts[-1]), len(self.texts)
        self.last = self.mapped("last", np.float16, (tokens, self.width))  # zeros: it has no token there
        self.middle = self.mapped("middle", np.float16, (tokens, self.width))
        self.whole = self.mapped("whole", np.float16, (count, 0))  # of the texts, in the teacher's width
        self.known = self.mapped("known", np.uint8, (count,))

    def mapped(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        shape = tuple(size or self.model.width for size in shape)
        file = self.place / f"{name}.npy"
        if not file.is_file():
            return np.lib.format.open_memmap(file, "w+", dtype, shape)
        array = np.lib.format.open_memmap(file, "r+")
        if array.shape != shape:
            raise SystemExit(f"{self.place} is of other texts: delete it")
        return array

    @cached_property
    def model(self) -> Embedder:
        model = Embedder.load(self.name)
        stack = model.model.encoder  # it would record and replay itself, without a call of its blocks
        model.model.encoder = Stack(list(stack), stack.final_norm, stack.positions)
        return model

    @cached_property
    def bases(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[teacher's width, D] for the last states, then the mean and such a matrix for the middle ones.

        The main directions of some texts, in a random rotation: so each number varies as much as the others,
        as behind the student's layer norm. Cosines after it are nearly those before. The middle states of a
        BERT have a large mean, without which their cosines would say little.
        """
        file = self.place / "bases.npz"
        if not file.is_file():
            sample = hidden_states(self.model, self.texts[:SAMPLE])
            last, middle = (np.concatenate([each[kind] for each in sample]) for kind in (0, 1))
            mean = middle.mean(axis=0)
            rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(self.width, self.width)))[0]
            last, middle = (main_directions(each, self.width) @ rotation for each in (last, middle - mean))
            np.savez(file, last=last, mean=mean, middle=middle)
        stored = np.load(file)
        return stored["last"], stored["mean"], stored["middle"]

    def read(self, rows: Sequence[int]) -> None:
        last, mean, middle = self.bases
        found = hidden_states(self.model, [self.texts[row] for row in rows])
        for row, (states, inner, whole, theirs) in zip(rows, found):
            place = slice(self.starts[row], self.starts[row + 1])
            self.last[place] = at_spans(states @ last, theirs, self.spans[row])
            self.middle[place] = at_spans((inner - mean) @ middle, theirs, self.spans[row])
            self.whole[row] = whole
            self.known[row] = 1

    def of(self, rows: list[int], length: int) -> tuple[Tensor, Tensor, Tensor]:
        """[B,S,D] of the last states, [B,S,D] of the middle ones, [B,D] of the texts.

        Zeros outside of the tokens between <s> and </s>.
        """
        if missing := [row for row in rows if not self.known[row]]:
            self.read(missing)
        results = []
        for array in (self.last, self.middle):
            tokens = np.zeros((len(rows), length, self.width), dtype=np.float32)
            for number, row in enumerate(rows):
                first, last = self.starts[row], self.starts[row + 1]
                tokens[number, 1 : 1 + last - first] = array[first:last]
            results.append(torch.from_numpy(tokens))
        whole = self.whole[rows].astype(np.float32) @ self.bases[0]
        return results[0], results[1], torch.from_numpy(whole)


def main_directions(states: np.ndarray, width: int) -> np.ndarray:
    """[teacher's width, width]"""
    scaled = states / np.linalg.norm(states, axis=1, keepdims=True)
    _, sizes, directions = np.linalg.svd(scaled[:MOST], full_matrices=False)
    log(f"{width} directions keep {(sizes[:width] ** 2).sum() / (sizes**2).sum():.1%} of the squares")
    kept: np.ndarray = directions[:width].T
    return kept


def hidden_states(
    model: Embedder, texts: Sequence[str]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, Any]]:
    """Of each text: last and middle states of its tokens [S,W], the mean of the last [W], their spans."""
    encoded = [model.tokenizer.spans(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda row: len(encoded[row][0]))
    results: dict[int, Any] = {}
    inner: list[Tensor] = []
    block = list(model.model.encoder)[MIDDLE_BLOCK]
    hook = block.register_forward_hook(lambda module, given, out: inner.append(out.float().flatten(0, 1)))
    while order:
        size = max(1, TOKENS_AT_ONCE // (2 + len(encoded[order[-1]][0])))
        rows, order = order[-size:], order[:-size]
        inner.clear()
        with torch.inference_mode():
            batch = collate([model.sample(encoded[row][0]) for row in rows], 8)
            states, real = model.model.encode_positions(batch)  # [B,S,W], [B,S]
            means = model.pooling(states.float(), real)
        middle = inner[0] if len(inner[0]) == int(real.sum()) else inner[0][real.flatten()]  # [T,W]
        pairs = zip(states[real].float().split(real.sum(1).tolist()), middle.split(real.sum(1).tolist()))
        for number, (row, (last, between)) in enumerate(zip(rows, pairs)):
            results[row] = last[1:-1].numpy(), between[1:-1].numpy(), means[number].numpy(), encoded[row][1]
    hook.remove()
    return [results[row] for row in range(len(texts))]


def at_spans(states: np.ndarray, theirs: Any, ours: Any) -> np.ndarray:
    """The mean of the states whose letters a token shares; zeros if there are none."""
    sums = np.concatenate([np.zeros((1, states.shape[1]), np.float32), states.cumsum(axis=0)])
    begins = np.array([begin for begin, _ in theirs[: len(states)]])
    ends = np.array([end for _, end in theirs[: len(states)]])
    first = np.searchsorted(ends, [begin for begin, _ in ours], side="right")  # that ends after our beginning
    last = np.searchsorted(begins, [end for _, end in ours], side="left")  # one beyond those before our end
    counts = np.maximum(last - first, 0)
    means = (sums[np.maximum(last, first)] - sums[first]) / np.maximum(counts, 1)[:, None]
    return means


# --- the student


class NumberedTexts(MaskedLM):
    """Half of the texts with masked words; a target is the number of its text, for the teacher's vectors."""

    def sample(self, source: TokenIds, target: TokenIds, rng: np.random.Generator) -> Sample:
        if rng.random() < WHOLE:
            text = [self.tokenizer.start, *source, self.tokenizer.end]
            return Sample(text, target=target, labels=[IGNORED] * len(text))
        return replace(super().sample(source, (), rng), target=target)


class Student(Trainer):
    teacher: Teacher

    def loss(self, batch: Batch) -> Tensor:
        model, labels = self.model, batch.labels
        assert labels is not None and batch.target is not None
        bfloat16 = self.machine.precision == "bfloat16"
        inner: list[Tensor] = []
        hook = list(model.encoder)[len(model.encoder) // 2].register_forward_hook(
            lambda module, given, out: inner.append(out)
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            states, real = model.encode_positions(batch)  # [B,S,D]
            hidden = model.head(states)
        hook.remove()
        dtype = torch.bfloat16 if bfloat16 else None
        words = output_cross_entropy(hidden, model.output.weight, labels, 0.0, dtype, model.output.bias)
        last, middle, texts = self.teacher.of(batch.target.ids[:, 0].tolist(), states.shape[1])
        known = last.any(dim=2)  # [B,S]
        losses = {
            "last": (LAST, 1 - cosine_similarity(states[known].float(), last[known], dim=1).mean()),
            "middle": (MIDDLE, 1 - cosine_similarity(inner[0][known].float(), middle[known], dim=1).mean()),
            "texts": (TEXTS, 1 - cosine_similarity(mean(states, real)[:, 0], texts, dim=1).mean()),
            "starts": (STARTS, 1 - cosine_similarity(states[:, 0].float(), texts, dim=1).mean()),
        }
        labelled = max(1, count(labels))  # what the trainer divides by
        if self.progress.step % 50 == 0:
            parts = ", ".join(f"{name} {loss.item():.3f}" for name, (_, loss) in losses.items())
            log(f"step {self.progress.step}: words {words.item() / labelled:.3f}, {parts}")
        return words + labelled * sum(weight * loss for weight, loss in losses.values())


def make_trainer(
    config: Config,
    folder: Path,
    data: TrainingData,
    ids: list[list[int]],
    teacher: Teacher,
    machine: Any,
) -> Student:
    objective = data.objective
    assert isinstance(objective, MaskedLM)
    numbered = NumberedTexts(objective.tokenizer, objective.max_length, objective.mask_rate)
    sides = column(ids, UINT32), column([[number] for number in range(len(ids))], UINT32)
    shard = Shard(*(ShardColumn(*side) for side in sides))
    train = config.train
    stream = Stream(Dataset([CorpusShards([shard])]), numbered, train.tokens_per_batch, train.seed)
    log(f"{stream.batches_per_epoch:.0f} batches an epoch")
    student = Student(
        config, folder, build_model(config, data, machine), stream, data, machine, SingleProcess()
    )
    student.teacher = teacher
    return student


def write_pooling(folder: Path, width: int, longest: int) -> None:
    """The files of sentence-transformers: a text's vector is the mean of its states."""
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    write_text(folder / "modules.json", json.dumps(modules, indent=2) + "\n")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    write_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True},
    )
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
