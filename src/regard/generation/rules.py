"""What a hypothesis may not say next, or should rather not, because of what it said before.

A ban takes tokens away (their score becomes minus infinity); a penalty changes what ranks. Both see only the
tokens of a row, so every model and every search can obey them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regard.generation.options import NEVER
from regard.inputs.text import Special


@dataclass(frozen=True, slots=True)
class Rows:
    """The running rows that a rule looks at."""

    words: Tensor  # [R,w], what stood there before and what each row said, behind some -1
    said: Sequence[int]  # how many of them each row said, a forced prefix included


class Ban(Protocol):
    def __call__(self, logits: Tensor, rows: Rows) -> None:
        """Set what may not be said to minus infinity, in place: [R,V]."""


class RowBan(Protocol):
    """A ban of one source."""

    def __call__(self, logits: Tensor, said: Sequence[int]) -> None:
        """The same for one row and what it said: [V]."""


@dataclass(frozen=True, slots=True)
class NoRepeatedNgram:
    """No n tokens in a row come twice (Paulus et al. 2018): the n-1 last ones must go on in a new way."""

    size: int

    def __call__(self, logits: Tensor, rows: Rows) -> None:
        words = rows.words  # [R,t]
        length = words.shape[1]
        if length < self.size:
            return
        windows = words.unfold(1, self.size, 1)  # [R,t-n+1,n]
        last = words[:, length - self.size + 1 :].unsqueeze(1)  # [R,1,n-1]
        again = (windows[..., :-1] == last).all(dim=2) & (windows >= 0).all(dim=2)  # [R,t-n+1]
        row, place = again.nonzero(as_tuple=True)
        logits[row, windows[row, place, -1]] = NEVER


@dataclass(frozen=True, slots=True)
class ForbiddenRuns:
    """Pieces that never follow one another: after all of a run but its last, the last may not come."""

    runs: tuple[tuple[int, ...], ...]

    def __call__(self, logits: Tensor, rows: Rows) -> None:
        words = rows.words  # [R,t]
        for *before, last in self.runs:
            if len(before) <= words.shape[1]:
                met = (words[:, -len(before) :] == words.new_tensor(before)).all(dim=1)  # [R]
                logits[met, last] = NEVER


@dataclass(frozen=True, slots=True)
class NotFirst:
    """Pieces that no answer begins with; one that every answer begins with does not count."""

    pieces: tuple[int, ...]
    place: int

    def __call__(self, logits: Tensor, rows: Rows) -> None:
        if now := [row for row, count in enumerate(rows.said) if count == self.place]:
            logits[torch.tensor(now)[:, None], list(self.pieces)] = NEVER


def penalize_repeats(scores: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    """Of tokens said before: score * penalty if it is negative, else score / penalty (Keskar et al. 2019).

    Tokens of -1 are none.
    """
    if penalty == 1:
        return scores
    said = torch.zeros((len(scores), scores.shape[1] + 1), dtype=torch.bool, device=scores.device)
    said = said.scatter_(1, tokens + 1, True)[:, 1:]  # [R,V]
    return torch.where(said, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def bans_of(no_repeat_ngram: int, special: Special) -> list[Ban]:
    """The bans that the options and the model's folder ask for; usually none."""
    bans: list[Ban] = [NoRepeatedNgram(no_repeat_ngram)] if no_repeat_ngram else []
    if special.runs:
        bans.append(ForbiddenRuns(special.runs))
    if special.not_first:
        bans.append(NotFirst(special.not_first, 0 if special.first is None else 1))
    return bans
