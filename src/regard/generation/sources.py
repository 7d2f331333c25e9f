"""What a search is asked for and what it asks of models: wishes, sources under way, `Steppable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self, TypeVar

import torch
from torch import Tensor

from regard.batch import Batch, collate
from regard.config import Decode
from regard.generation.forbid import ForbiddenPhrases, WordBegins
from regard.generation.options import Hypothesis, longest_output
from regard.generation.phrases import Constraint
from regard.generation.rules import RowBan
from regard.inputs.text import Special
from regard.models.state import BLOCK
from regard.sample import Sample


class Running(Protocol):
    """What a search asks of a state."""

    @property
    def rows(self) -> Mapping[str, Tensor]: ...
    def select(self, rows: Tensor) -> Self: ...
    @classmethod
    def join(cls, states: Sequence[Self]) -> Self: ...


S = TypeVar("S", bound=Running)


class Steppable(Protocol[S]):
    """What a search asks of a model."""

    @property
    def longest_target(self) -> int | None: ...
    def start(self, batch: Batch, beams: int = 1) -> S: ...
    def step(self, state: S, tokens: Tensor) -> tuple[Tensor, S]: ...


@dataclass(frozen=True)
class Wish:
    """One source to decode, and how."""

    ids: Sequence[int]  # as the model reads them
    options: Decode
    prefix: Sequence[int] = ()  # what the answer begins with
    constraint: Constraint | None = None
    draw: int | None = None  # of several draws only the one with this number

    @property
    def draws(self) -> Sequence[int]:
        """The numbers of the draws that are wanted."""
        return range(self.options.beam) if self.draw is None else [self.draw]


@dataclass(frozen=True)
class Manner:
    """What sources have in common that share a search; in all else each has its own options."""

    kind: Literal["beams", "phrases", "draws"]
    beams: int = 1
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0


@dataclass(slots=True, eq=False)
class Source:
    """A source under way, and what was found for it so far."""

    wish: Wish
    prefix: Sequence[int]
    limit: int  # pieces at most, its prefix included
    least: int  # pieces before the end may come
    before: Sequence[int]  # what stands before its first piece: the prompt, or the start
    entered: int  # how many steps the search had done when it came
    bans: list[RowBan]
    found: list[Hypothesis] = field(default_factory=list)


def enter(model: Steppable[S], wish: Wish, special: Special, clock: int) -> Source:
    """A wish as a source under way."""
    prefix, length = begun(wish.prefix, special), len(wish.ids)
    reads_prompts = bool(getattr(model, "reads_prompts", False))
    limit = model.longest_target
    if limit is not None and reads_prompts:  # a prompt takes from what the model can read
        limit = max(1, limit - length + 1)
    extra = 0 if wish.constraint is None else wish.constraint.size
    return Source(
        wish=wish,
        prefix=prefix,
        limit=longest_output(wish.options, length + extra, len(prefix), limit, special.longest),
        least=special.shortest - length,
        before=wish.ids if reads_prompts else [special.start],
        entered=clock,
        bans=own_bans(wish.constraint, prefix),
    )


def begun(prefix: Sequence[int], special: Special) -> Sequence[int]:
    """A prefix behind what every answer begins with."""
    if not prefix or special.first is None or prefix[0] == special.first:
        return prefix
    return [special.first, *prefix]


def own_bans(constraint: Constraint | None, prefix: Sequence[int]) -> list[RowBan]:
    """What one source may not say; usually nothing, and then it costs nothing."""
    if constraint is None:
        return []
    bans: list[RowBan] = [ForbiddenPhrases(constraint)] if constraint.forbid else []
    return [*bans, WordBegins(constraint, prefix)] if constraint.whole_prefix else bans


def batch_of(wishes: Sequence[Wish], device: torch.device) -> Batch:
    return collate([Sample(source=wish.ids) for wish in wishes], BLOCK).to(device)


def first_words(state: S, special: Special) -> Tensor:
    """What a search feeds first: the start, or the last word of each row's prompt. [R,1]."""
    any_row = next(iter(state.rows.values()))
    first = state.rows.get("first")
    start = torch.full((len(any_row),), special.start, device=any_row.device)
    return (start if first is None else first)[:, None]


def behind_nothing(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Rows of ids that end together, -1 before the shorter ones: [R,w]."""
    longest = max((len(row) for row in rows), default=0)
    table = [[-1] * (longest - len(row)) + list(row) for row in rows]
    return torch.tensor(table, dtype=torch.int64, device=device).view(len(rows), longest)
