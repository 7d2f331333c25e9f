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
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from regard.sample import Sample
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

TOKENS, TEXT = 4.0, 4.0  # weights of the teacher's vectors in the loss
SAMPLE = 20_000  # of the teacher's vectors, for the singular vectors
ROWS_AT_ONCE = 4000  # what is lost at most when the teacher is interrupted
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
        vectors = teach(texts, spans, teacher, place, run.config.model.width)
        return make_trainer(run.config, folder, data, ids, vectors, run.machine)

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


@dataclass(frozen=True)
class TeacherVectors:
    """What the teacher says of every text: a vector of each token of the student, and one of the text."""

    tokens: np.ndarray  # [N,D] float16, mapped; zeros where the teacher has no token
    texts: np.ndarray  # [texts,D]
    starts: np.ndarray  # where the tokens of each text begin, and N

    def of(self, rows: list[int], length: int) -> tuple[Tensor, Tensor]:
        """[B,S,D] of the tokens between <s> and </s>, zeros elsewhere, and [B,D]."""
        tokens = np.zeros((len(rows), length, self.tokens.shape[1]), dtype=np.float32)
        for number, row in enumerate(rows):
            first, last = self.starts[row], self.starts[row + 1]
            tokens[number, 1 : 1 + last - first] = self.tokens[first:last]
        return torch.from_numpy(tokens), torch.from_numpy(self.texts[rows].astype(np.float32))


def teach(texts: list[str], spans: list[Any], teacher: str, place: Path, width: int) -> TeacherVectors:
    """Portion by portion into mapped files; `done` says how many texts are there."""
    place.mkdir(parents=True, exist_ok=True)
    starts = offsets(np.array([len(each) for each in spans]))
    shapes = {"tokens": (int(starts[-1]), width), "texts": (len(texts), width)}
    done = place / "done.txt"
    mode = "r+" if done.is_file() else "w+"
    arrays = {
        name: np.lib.format.open_memmap(
            place / f"{name}.npy", mode, np.float16, shape if mode == "w+" else None
        )
        for name, shape in shapes.items()
    }
    if any(arrays[name].shape != shape for name, shape in shapes.items()):
        raise SystemExit(f"{place} is of other texts: delete it")
    first = int(done.read_text()) if done.is_file() else 0
    if first < len(texts):
        model = Embedder.load(teacher)
        basis = main_directions(model, texts[: SAMPLE // 10], place, width)
        for start in range(first, len(texts), ROWS_AT_ONCE):
            rows = range(start, min(start + ROWS_AT_ONCE, len(texts)))
            for row, (tokens, text) in zip(
                rows, teacher_vectors(model, [texts[row] for row in rows], [spans[row] for row in rows])
            ):
                arrays["tokens"][starts[row] : starts[row + 1]] = tokens @ basis
                arrays["texts"][row] = text @ basis
            write_text(done, str(rows[-1] + 1))
            log(f"the teacher has read {rows[-1] + 1:,} of {len(texts):,} texts")
    return TeacherVectors(arrays["tokens"], arrays["texts"], starts)


def main_directions(model: Embedder, texts: list[str], place: Path, width: int) -> np.ndarray:
    """[teacher's width, width]: cosines of vectors times this are nearly those of the vectors."""
    file = place / "basis.npy"
    if not file.is_file():
        states = np.concatenate([each for each, _, _ in hidden_states(model, texts)])[:SAMPLE]
        states /= np.linalg.norm(states, axis=1, keepdims=True)
        _, sizes, directions = np.linalg.svd(states, full_matrices=False)
        log(f"{width} directions keep {(sizes[:width] ** 2).sum() / (sizes**2).sum():.1%} of the squares")
        np.save(file, directions[:width].T)
    basis: np.ndarray = np.load(file)
    return basis


def hidden_states(model: Embedder, texts: list[str]) -> list[tuple[np.ndarray, np.ndarray, Any]]:
    """Of each text: the states of its tokens [S,W], their mean with those of [CLS] and [SEP], their spans."""
    encoded = [model.tokenizer.spans(text) for text in texts]
    order = sorted(range(len(texts)), key=lambda row: len(encoded[row][0]))
    results: dict[int, tuple[np.ndarray, np.ndarray, Any]] = {}
    while order:
        size = max(1, TOKENS_AT_ONCE // (2 + len(encoded[order[-1]][0])))
        rows, order = order[-size:], order[:-size]
        with torch.inference_mode():
            batch = collate([model.sample(encoded[row][0]) for row in rows], 8)
            states = model.model(batch).float()  # [B,S,W]
            means = model.pooling(states, batch.source.positions >= 0)
        for number, row in enumerate(rows):
            inside = min(len(encoded[row][0]), model.longest)
            results[row] = states[number, 1 : 1 + inside].numpy(), means[number].numpy(), encoded[row][1]
    return [results[row] for row in range(len(texts))]


def teacher_vectors(
    model: Embedder, texts: list[str], spans: list[Any]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each text: the teacher's states at the student's tokens, and the vector of the text."""
    return [
        (at_spans(states, theirs, ours), vector)
        for (states, vector, theirs), ours in zip(hidden_states(model, texts), spans)
    ]


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
    """Masked words; the target of a sample is the number of its text, for the teacher's vectors."""

    def sample(self, source: TokenIds, target: TokenIds, rng: np.random.Generator) -> Sample:
        return replace(super().sample(source, (), rng), target=target)


class Student(Trainer):
    teacher: TeacherVectors

    def loss(self, batch: Batch) -> Tensor:
        model, labels = self.model, batch.labels
        assert labels is not None and batch.target is not None
        bfloat16 = self.machine.precision == "bfloat16"
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            states, real = model.encode_positions(batch)  # [B,S,D]
            hidden = model.head(states)
        dtype = torch.bfloat16 if bfloat16 else None
        words = output_cross_entropy(hidden, model.output.weight, labels, 0.0, dtype, model.output.bias)
        tokens, texts = self.teacher.of(batch.target.ids[:, 0].tolist(), states.shape[1])
        known = tokens.any(dim=2)  # [B,S]
        far = 1 - cosine_similarity(states[known].float(), tokens[known], dim=1).mean()
        away = 1 - cosine_similarity(mean(states, real)[:, 0], texts, dim=1).mean()
        number = self.progress.step
        if number % 50 == 0:
            each = words.item() / count(labels)
            log(f"step {number}: words {each:.3f}, tokens {far.item():.3f}, texts {away.item():.3f}")
        return words + count(labels) * (TOKENS * far + TEXT * away)  # the trainer divides by the labels


def make_trainer(
    config: Config,
    folder: Path,
    data: TrainingData,
    ids: list[list[int]],
    vectors: TeacherVectors,
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
    student.teacher = vectors
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
