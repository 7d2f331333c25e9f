"""Embed texts: texts of similar meaning get vectors of similar direction."""

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
from regard.storage.encoder import BareEncoder
from regard.tasks.lines import TooLong
from regard.tasks.pooling import read_pooling
from regard.tasks.reader import TOKENS_PER_BATCH, within_limit

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Embedding:
    text: str
    vector: Vector | None  # [W]; None if the text was skipped
    cut: bool = False  # the text was too long and was truncated
    skipped: bool = False  # the text was too long, and `too_long="skip"`


class Embedder:
    """A BERT, with or without a head, that embeds texts."""

    def __init__(self, body: BareEncoder) -> None:
        self.path, self.model, self.tokenizer = body.path, body.model, body.tokenizer
        self.device = next(body.model.parameters()).device
        self.pooling = read_pooling(body.home)
        limit = min(body.config.max_length, self.pooling.longest or body.config.max_length)
        self.longest = limit - 2  # without start and end token
        self.width = self._width(body)

    def _width(self, body: BareEncoder) -> int:
        """The width of a vector; modules that do not fit together are reported here."""
        try:
            blank = torch.zeros(1, 1, body.config.width, device=self.device)
            return self.pooling(blank, torch.ones(1, 1, dtype=torch.bool, device=self.device)).shape[1]
        except RuntimeError as error:
            raise UsageError(
                f"{body.home / 'modules.json'}: its modules do not fit together or to the model's width "
                f"{body.config.width} ({str(error).splitlines()[0]})"
            ) from None

    @overload
    def embed(self, text: str, *, too_long: TooLong = "cut", first: int = 1) -> Embedding: ...  # type: ignore[overload-overlap]
    @overload
    def embed(self, text: Sequence[str], *, too_long: TooLong = "cut", first: int = 1) -> list[Embedding]: ...
    def embed(
        self, text: str | Sequence[str], *, too_long: TooLong = "cut", first: int = 1
    ) -> Embedding | list[Embedding]:
        """The vectors of one text or many; none depends on the batch.

        `too_long` says what happens to a text that is longer than the model's input: truncate it ("cut"; the
        result says so), skip it, or raise an error. `first` is the number of the first text in messages.
        """
        texts = [text] if isinstance(text, str) else list(text)
        rows = [self.encode(each, too_long, number) for number, each in enumerate(texts, first)]
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
        """The vectors of texts as one array [texts, width]; the row of a skipped text is NaN."""
        return self.as_array(self.embed(list(texts), too_long=too_long))

    def as_array(self, embeddings: Sequence[Embedding]) -> Vector:
        blank = np.full(self.width, np.nan, dtype=np.float32)
        rows = [blank if each.vector is None else each.vector for each in embeddings]
        return np.stack(rows) if rows else np.empty((0, self.width), dtype=np.float32)

    def encode(self, text: str, too_long: TooLong, number: int) -> list[int] | None:
        """The token ids of a text, None for one to skip."""
        whole = self.pooling.prompt + text
        ids = self.tokenizer.encode(whole.lower() if self.pooling.lowercase else whole)
        return within_limit(ids, self.longest, too_long, number)

    def sample(self, ids: Sequence[int]) -> Sample:
        return Sample(source=[self.tokenizer.start, *ids[: self.longest], self.tokenizer.end])

    def vectors_of(self, batch: Batch) -> Tensor:
        """[B,S] -> [B,1,W]."""
        if batch.source is None:
            raise ValueError("an embedding needs a source")
        states = self.model(batch).float()  # [B,S,D]
        return self.pooling(states, batch.source.positions >= 0).unsqueeze(1)


def similarity(one: Vector, other: Vector) -> float:
    """Cosine similarity a.b / (|a| |b|); 0 if a vector is zero."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else 0.0
