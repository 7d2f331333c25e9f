"""A running batch of bounded size, fed from a queue: who ends leaves at once, who waits takes the place.

Work that can share a search does; several searches go on side by side, one step each in turn. No threads:
`add`, `step` until not `busy`, and `cancel` in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.errors import RegardError, UsageError
from regard.generation.constrained import ConstrainedSearch, beams_for
from regard.generation.memory import attempt
from regard.generation.options import Hypothesis
from regard.generation.sample import Sampling
from regard.generation.search import BeamSearch
from regard.generation.sources import Manner, Source, Steppable, Wish
from regard.inputs.text import Special
from regard.models.state import BLOCK, round_up

Search = BeamSearch[Any] | Sampling[Any]
# Entering costs as much as a step, however few enter: their sources are read, and all caches are moved. So a
# batch under way waits until those who fit are this part of it, but only for some steps; a small batch, whose
# steps are cheap, for fewer.
WORTH_ENTERING = 2
PATIENCE = 8  # steps
ROWS_A_STEP = 8  # rows under way for which one step more may be waited


class Handle:
    """A wish in a pool, and in the end its answer."""

    def __init__(self, wish: Wish) -> None:
        self.wish, self.manner, self.rows = wish, manner_of(wish), rows_of(wish)
        self.width = round_up(max(1, len(wish.ids)), BLOCK)
        self.answer: Sequence[Hypothesis] | None = None  # best first
        self.error: Exception | None = None
        self.told = 0  # pieces that were given out by `Pool.news`

    @property
    def is_done(self) -> bool:
        return self.answer is not None or self.error is not None

    def result(self) -> list[Hypothesis]:
        if self.error is not None:
            raise self.error
        if self.answer is None:
            raise ValueError("there is no answer yet")
        return list(self.answer)


def manner_of(wish: Wish) -> Manner:
    """How a wish is decoded."""
    options, needs = wish.options, wish.constraint is not None and bool(wish.constraint.require)
    if options.sample:
        if needs:
            raise UsageError("required phrases need a search: decode.sample cannot be on with them")
        return Manner("draws")
    beams = beams_for(options, wish.constraint)
    kind: Any = "phrases" if needs else "beams"
    return Manner(kind, beams, options.no_repeat_ngram, options.repetition_penalty)


def rows_of(wish: Wish) -> int:
    """Rows that a wish takes in a running batch."""
    manner = manner_of(wish)
    return len(wish.draws) if manner.kind == "draws" else manner.beams


def open_search(model: Steppable[Any], special: Special, device: torch.device, manner: Manner) -> Search:
    """An empty search that wishes of one manner may enter."""
    if manner.kind == "draws":
        return Sampling(model, special, device)
    if manner.kind == "phrases":
        return ConstrainedSearch(model, special, device, manner)
    return BeamSearch(model, special, device, manner)


@dataclass
class Group:
    """One search with those who are in it and those who wait for it."""

    search: Search
    waiting: deque[Handle] = field(default_factory=deque)
    running: dict[Source, Handle] = field(default_factory=dict)
    waited: int = 0  # steps since somebody could have entered

    def cost(self, more: Sequence[Handle] = ()) -> int:
        """Rows times padded source pieces, of those who run and of some more."""
        handles = [*self.running.values(), *more]
        return sum(each.rows for each in handles) * max((each.width for each in handles), default=0)

    def rows(self) -> int:
        return sum(each.rows for each in self.running.values())

    def first(self, cost: int, rows: int) -> list[Handle]:
        """As many of the first ones who wait as fit; one at least, if nobody runs."""
        count, width = self.rows(), max((each.width for each in self.running.values()), default=0)
        taken: list[Handle] = []
        for handle in self.waiting:
            count, width = count + handle.rows, max(width, handle.width)
            if (count * width > cost or count > rows) and (taken or self.running):
                break
            taken.append(handle)
        return taken


class Pool:
    """`tokens` is the bound of padded source pieces times rows, `rows` that of rows.

    A search that nobody is in may always begin with one source, so that nobody waits for ever. Where memory
    runs out, what was running begins anew with half the bound, and `say` is told once.
    """

    def __init__(
        self,
        model_for: Callable[[Wish], Steppable[Any]],
        special: Special,
        device: torch.device,
        tokens: int,
        rows: int | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.model_for, self.special, self.device, self.say = model_for, special, device, say
        self.tokens = self.most_tokens = tokens
        self.most_rows = rows if rows is not None else tokens
        self.groups: dict[tuple[int, Manner], Group] = {}
        self.group_of: dict[Handle, Group] = {}
        self.failed: list[Handle] = []
        self.steps = self.moved = 0  # moved: rows that took part in the last one
        self.in_batches = False  # whether a search that is under way takes nobody more

    @property
    def busy(self) -> bool:
        return bool(self.group_of or self.failed)

    @property
    def rows(self) -> int:
        """Rows under way."""
        return sum(group.rows() for group in self.groups.values())

    @property
    def waiting(self) -> int:
        """Wishes that have not begun."""
        return sum(len(group.waiting) for group in self.groups.values())

    def add(self, wish: Wish) -> Handle:
        handle = Handle(wish)
        self.put(handle)
        return handle

    def put(self, handle: Handle) -> None:
        model = self.model_for(handle.wish)
        key = (id(model), handle.manner)  # the group holds the model, so that its id stays its own
        if key not in self.groups:
            self.groups[key] = Group(open_search(model, self.special, self.device, handle.manner))
        self.groups[key].waiting.append(handle)
        self.group_of[handle] = self.groups[key]

    def collect(self) -> None:
        """No step is under way here between two calls."""

    def cancel(self, handle: Handle) -> None:
        """Nobody waits for this any more; its rows are free at once. No harm if it is done."""
        group = self.group_of.pop(handle, None)
        if group is None:
            return
        source = next((source for source, each in group.running.items() if each is handle), None)
        if source is None:
            group.waiting.remove(handle)
        else:
            del group.running[source]
            group.search.drop(source)
        self.forget_empty()

    def news(self, handle: Handle) -> list[int]:
        """The pieces of an answer that have become certain since this was asked last."""
        said: Sequence[int] = ()
        if handle.answer is not None:
            said = handle.answer[0].tokens
        elif (group := self.group_of.get(handle)) is not None:
            said = next((group.search.said(s) for s, each in group.running.items() if each is handle), ())
        new = list(said[handle.told :])
        handle.told += len(new)
        return new

    def step(self) -> list[Handle]:
        """Let in who fits, go on by one piece, and hand out who is done."""
        self.admit()
        self.moved = self.rows
        done = self.failed
        self.failed = []
        for group in self.groups.values():
            if group.running:
                done += self.advance(group)
        self.forget_empty()
        self.steps += 1
        for handle in done:
            del self.group_of[handle]
        return done

    def forget_empty(self) -> None:
        self.groups = {key: group for key, group in self.groups.items() if group.running or group.waiting}

    def admit(self) -> None:
        """Those who wait enter; where several searches have somebody waiting, they share what is free."""
        wanting = [group for group in self.groups.values() if group.waiting]
        if not wanting:
            return
        rest = [group for group in self.groups.values() if not group.waiting]
        share = (self.tokens - sum(group.cost() for group in rest)) // len(wanting)
        rows = (self.most_rows - sum(group.rows() for group in rest)) // len(wanting)
        for group in wanting:
            taken = group.first(share, rows)
            if taken and self.is_worth_it(group, taken):
                self.enter(group, taken)

    def is_worth_it(self, group: Group, taken: Sequence[Handle]) -> bool:
        if not group.running or self.in_batches:
            return not group.running
        rows, cost = group.rows(), group.cost()
        new_rows, new_cost = sum(each.rows for each in taken), group.cost(taken) - cost
        if WORTH_ENTERING * new_rows >= rows or WORTH_ENTERING * new_cost >= cost:
            return True
        group.waited += 1
        return group.waited > min(PATIENCE, rows // ROWS_A_STEP)

    def enter(self, group: Group, taken: Sequence[Handle]) -> None:
        group.waited = 0
        for _ in taken:
            group.waiting.popleft()
        self.begin(group, taken)

    def begin(self, group: Group, taken: Sequence[Handle]) -> None:
        try:
            sources = attempt(lambda: group.search.admit([each.wish for each in taken]))
        except Exception as error:  # told to whom it concerns; the others go on
            if len(taken) == 1:
                self.fail(taken, error)
            for handle in taken if len(taken) > 1 else ():
                self.begin(group, [handle])
            return
        if sources is None:
            self.shrink(group, taken)
        else:
            group.running |= dict(zip(sources, taken))

    def advance(self, group: Group) -> list[Handle]:
        """One piece more for all of a search; those that are done."""
        try:
            sources = attempt(group.search.step)
        except Exception as error:  # the state of the search is not to be trusted any more
            self.fail(list(group.running.values()), error)
            self.begin_anew(group)
            return self.taken_failed()
        if sources is None:
            running = list(group.running.values())
            self.begin_anew(group)
            self.shrink(group, running)
            return self.taken_failed()
        done = [group.running.pop(source) for source in sources]
        for handle, source in zip(done, sources):
            handle.answer = source.found
        return done

    def begin_anew(self, group: Group) -> None:
        search = group.search
        group.running = {}
        manner = search.manner if isinstance(search, BeamSearch) else Manner("draws")
        group.search = open_search(search.model, self.special, self.device, manner)

    def recover(self) -> None:
        """Try again what once was too much for the memory."""
        self.tokens = self.most_tokens

    def shrink(self, group: Group, handles: Sequence[Handle]) -> None:
        """There was no memory for these: they wait again, and there will be fewer at once."""
        if len(handles) == 1 and self.rows == 0:
            self.fail(handles, too_large(group.cost(handles)))
            return
        cost = sum(each.cost(handles if each is group else ()) for each in self.groups.values())
        if self.tokens == self.most_tokens:
            self.say(f"out of memory with {len(handles)} sentences at once: going on with smaller batches")
        self.tokens = max(1, cost // 2)
        group.waiting.extendleft(reversed(handles))

    def fail(self, handles: Sequence[Handle], error: Exception) -> None:
        for handle in handles:
            handle.error = error
        self.failed += handles

    def taken_failed(self) -> list[Handle]:
        failed, self.failed = self.failed, []
        return failed


class TooLarge(RegardError):
    """One sentence alone was too much for the memory."""


def too_large(cost: int) -> TooLarge:
    return TooLarge(
        f"not enough memory for a single sentence ({cost} pieces times beams): "
        "take a smaller beam, or cut the line"
    )
