"""Beam search with required phrases: each must stand in the text as whole words, in any order.

Dynamic beam allocation (Post & Vilar 2018): hypotheses compete only with those that still need as many
pieces of the phrases (a bank), and the beam is shared out evenly among the banks, so that none that has begun
to obey is pushed out by one that puts it off. What can no longer obey within the length limit is dropped, and
the end is open only to what obeys: each answer holds all phrases whenever the length permits.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

import torch
from torch import Tensor

from regard.config import Decode
from regard.generation.options import NEVER
from regard.generation.phrases import Constraint
from regard.generation.progress import Progress
from regard.generation.search import BeamSearch, Candidates, tail
from regard.generation.sources import Manner, S, Source, Steppable
from regard.inputs.text import Special

Ranked = tuple[float, int]  # the total of a candidate, and its column
BEAMS_TOGETHER = 4  # widths come in steps, so that few sources with different phrases share few batches


def beams_for(options: Decode, constraint: Constraint | None) -> int:
    """A beam for each bank at least: the phrases' pieces, and none of them."""
    if constraint is None or not constraint.require:
        return options.beam
    return max(options.beam, -(-(constraint.size + 1) // BEAMS_TOGETHER) * BEAMS_TOGETHER)


class ConstrainedSearch(BeamSearch[S]):
    """A beam search whose beams are shared out among banks."""

    def __init__(self, model: Steppable[S], special: Special, device: torch.device, manner: Manner) -> None:
        # at the limit no end is forced upon what does not hold every phrase
        super().__init__(model, replace(special, last=None), device, manner)
        self.may_stick = True

    def forbid(self, logits: Tensor) -> None:
        """As always, and the end for those that do not hold every phrase yet."""
        super().forbid(logits)
        self.histories: list[list[list[int]]] = [
            tail(self.words[number], self.clock - source.entered).tolist()
            for number, source in enumerate(self.alive)
        ]  # [N,K,t]
        self.progress = [
            Progress(constraint_of(source), words)
            for source, beams in zip(self.alive, self.histories)
            for words in beams
        ]  # of each row
        waiting = [row for row, progress in enumerate(self.progress) if progress.missing]
        logits[waiting, self.special.end] = NEVER

    def pick(self, ranking: Tensor) -> tuple[Tensor, Tensor]:
        """The best tokens of each row, and behind them those that would go on with a phrase."""
        best, token = super().pick(ranking)  # [R,k]
        guides = [progress.guides() for progress in self.progress]
        self.guided = max((len(guide) for guide in guides), default=0)  # G
        table = torch.zeros((len(guides), self.guided), dtype=torch.int64)
        there = torch.zeros((len(guides), self.guided), dtype=torch.bool)
        for row, guide in enumerate(guides):
            table[row, : len(guide)] = torch.tensor(guide, dtype=torch.int64)
            there[row, : len(guide)] = True
        table, there = table.to(ranking.device), there.to(ranking.device)
        values = ranking.gather(1, table).masked_fill(~there, NEVER)
        return torch.cat([best, values], dim=1), torch.cat([token, table], dim=1)  # [R,k+G]

    def shortlist(self, total: Tensor, own: Tensor, token: Tensor) -> Candidates:
        """All of them; which are looked at is decided in `choose`."""
        width = total.shape[1] // self.beams
        beam = torch.arange(total.shape[1], device=total.device).expand_as(total) // width
        return Candidates(total, own, token, beam)

    def choose(self, found: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        closing = torch.zeros_like(found.token, dtype=torch.bool)
        kept = torch.zeros((len(self.alive), self.beams), dtype=torch.int64, device=self.device)
        chosen = torch.full(kept.shape, NEVER, device=self.device)
        for number, source in enumerate(self.alive):
            ends, banks = self.banks(found, number)
            met = sorted([*ends, *banks.get(0, [])], reverse=True)[: self.beams]
            at_limit = self.clock + 1 - source.entered >= source.limit
            over = [column for value, column in met if at_limit or (value, column) in ends]
            closing[number, over] = True
            going_on = share_out(banks, self.beams)
            kept[number, : len(going_on)] = torch.tensor(
                [column for _, column in going_on], device=self.device
            )
            chosen[number, : len(going_on)] = torch.tensor(
                [value for value, _ in going_on], device=self.device
            )
        return closing, chosen, kept

    def banks(self, found: Candidates, number: int) -> tuple[list[Ranked], dict[int, list[Ranked]]]:
        """One source's candidates: those that end, and the rest by the pieces that they still need."""
        source = self.alive[number]
        length = self.clock + 1 - source.entered
        room, forced = source.limit - length, length <= len(source.prefix)
        totals, tokens = found.total[number].tolist(), found.token[number].tolist()
        width = len(totals) // self.beams
        ends: list[Ranked] = []
        banks: dict[int, list[Ranked]] = {}
        seen = set()
        for column in self.worth_a_look(found.total[number], width):
            row, token = column // width, tokens[column]
            if totals[column] == NEVER or (row, token) in seen:
                continue
            seen.add((row, token))
            if token == self.special.end:
                ends.append((totals[column], column))
                continue
            words = [*self.histories[number][row], token]
            missing = Progress(constraint_of(source), words).needed()
            if missing <= room or forced:
                banks.setdefault(missing, []).append((totals[column], column))
        return ends, banks

    def worth_a_look(self, total: Tensor, width: int) -> list[int]:
        """The 2K best, the best of each beam, and all that go on with a phrase."""
        best: list[int] = total.topk(min(2 * self.beams, len(total))).indices.tolist()
        for row in range(self.beams):
            best += [row * width, *range((row + 1) * width - self.guided, (row + 1) * width)]
        return best


def constraint_of(source: Source) -> Constraint:
    if source.wish.constraint is None:
        raise ValueError("a search with phrases needs some")
    return source.wish.constraint


def share_out(banks: dict[int, list[Ranked]], beams: int) -> list[Ranked]:
    """The best of each bank, the second of each, and so on until the beams are full; best first."""
    ordered = [sorted(bank, reverse=True) for _, bank in sorted(banks.items())]
    rounds = zip_longest(*ordered)
    return sorted([each for turn in rounds for each in turn if each is not None][:beams], reverse=True)
