"""Text in, its vector out: texts that mean alike have vectors that point alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.batch import Batch
from regard.errors import UsageError
from regard.generation import answers
from regard.sample import Sample
from regard.storage.body import Body
from regard.tasks.lines import TooLong
from regard.tasks.pooling import read_pooling
from regard.tasks.reader import TOKENS_PER_BATCH

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Embedding:
    text: str
    vector: Vector | None  # [W]; None of a text that was skipped
    cut: bool = False  # too long for the model, which read only the beginning
    skipped: bool = False  # too long, and not read at all, because the caller wished so


class Embedder:
    """An opened BERT, with or without a head, that gives texts their vectors."""

    def __init__(self, body: Body) -> None:
        self.path, self.model, self.tokenizer = body.path, body.model, body.tokenizer
        self.device = next(body.model.parameters()).device
        self.pooling = read_pooling(body.home)
        whole = min(body.config.max_length, self.pooling.longest or body.config.max_length)
        self.longest = whole - 2  # a start and an end
        self.width = self._width(body)

    def _width(self, body: Body) -> int:
        """Of a vector; steps that do not fit together are found here and not at the first text."""
        try:
            blank = torch.zeros(1, 1, body.config.width, device=self.device)
            return self.pooling(blank, torch.ones(1, 1, dtype=torch.bool, device=self.device)).shape[1]
        except RuntimeError as error:
            raise UsageError(
                f"{body.home / 'modules.json'}: its steps do not fit together or to the model's width "
                f"{body.config.width} ({str(error).splitlines()[0]})"
            ) from None

    @overload
    def embed(self, text: str, *, too_long: TooLong = "cut", first: int = 1) -> Embedding: ...  # type: ignore[overload-overlap]
    @overload
    def embed(self, text: Sequence[str], *, too_long: TooLong = "cut", first: int = 1) -> list[Embedding]: ...
    def embed(
        self, text: str | Sequence[str], *, too_long: TooLong = "cut", first: int = 1
    ) -> Embedding | list[Embedding]:
        """The vectors of one text or many; none depends on its neighbours.

        `too_long` is what to do with a text that the model cannot read as a whole: read its beginning (the
        result says so), skip it, or raise; `first` is the number of the first text in messages.
        """
        texts = [text] if isinstance(text, str) else list(text)
        rows = [self.read(each, too_long, number) for number, each in enumerate(texts, first)]
        samples = [self.sample(ids) for ids in rows if ids is not None]
        vectors = iter(answers(self.vectors_of, samples, TOKENS_PER_BATCH, self.device))
        results = [
            Embedding(each, None, skipped=True)
            if ids is None
            else Embedding(each, next(vectors)[0].numpy(), cut=len(ids) > self.longest)
            for each, ids in zip(texts, rows)
        ]
        return results[0] if isinstance(text, str) else results

    def vectors(self, texts: Sequence[str], too_long: TooLong = "cut") -> Vector:
        """The vectors of texts as one array [texts, width]; a row of a skipped text has no numbers (nan)."""
        return self.as_array(self.embed(list(texts), too_long=too_long))

    def as_array(self, found: Sequence[Embedding]) -> Vector:
        blank = np.full(self.width, np.nan, dtype=np.float32)
        rows = [blank if each.vector is None else each.vector for each in found]
        return np.stack(rows) if rows else np.empty((0, self.width), dtype=np.float32)

    def read(self, text: str, too_long: TooLong, number: int) -> list[int] | None:
        """The pieces of a text, None for one that is to be skipped."""
        whole = self.pooling.prompt + text
        ids = self.tokenizer.encode(whole.lower() if self.pooling.lowercase else whole)
        if len(ids) > self.longest and too_long == "error":
            raise UsageError(
                f"line {number}: the text has {len(ids)} pieces and the model reads {self.longest}; "
                "shorten it, or take --too-long cut"
            )
        return None if len(ids) > self.longest and too_long == "skip" else ids

    def sample(self, ids: Sequence[int]) -> Sample:
        return Sample(source=[self.tokenizer.start, *ids[: self.longest], self.tokenizer.end])

    def vectors_of(self, batch: Batch) -> Tensor:
        """[B,S] -> [B,1,W]."""
        if batch.source is None:
            raise ValueError("a vector needs a text")
        states = self.model(batch).float()  # [B,S,D]
        return self.pooling(states, batch.source.positions >= 0).unsqueeze(1)


def similarity(one: Vector, other: Vector) -> float:
    """The cosine of the angle between two vectors: a.b / (|a| |b|); 0 where one of them has no length."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else 0.0
