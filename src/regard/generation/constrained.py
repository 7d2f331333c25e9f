"""Beam search with required phrases: each occurs in the text as whole words, in any order.

Dynamic beam allocation (Post & Vilar 2018): hypotheses compete only within a bank, the hypotheses that need
the same number of phrase tokens, and the beam is divided evenly among the banks, so that a hypothesis that
starts a phrase is not pruned in favour of one that postpones it. Hypotheses that cannot complete their
phrases within the length limit are dropped, and only complete ones may end.
"""

from __future__ import annotations

from itertools import zip_longest

import torch
from torch import Tensor

from regard.generation.constraints import Constraint, PhraseProgress
from regard.generation.processors import RunningRows
from regard.generation.requests import NEG_INF, ActiveRequest, S
from regard.generation.search import BeamSearch, Candidates, tail

Ranked = tuple[float, int]  # the total of a candidate, and its column


class ConstrainedSearch(BeamSearch[S]):
    """A beam search whose beams are divided among banks."""

    guided = 0  # G, candidates of each row that continue a phrase; they come last

    def top_tokens(self, ranking: Tensor, rows: RunningRows) -> tuple[Tensor, Tensor]:
        """The best tokens of each row, followed by those that continue a phrase."""
        best, token = super().top_tokens(ranking, rows)  # [R,k]
        guides = [
            PhraseProgress(constraint_of(owner), rows.generated(row)).next_tokens()
            for row, owner in enumerate(rows.owners)
        ]
        self.guided = max((len(guide) for guide in guides), default=0)
        table = torch.zeros((len(guides), self.guided), dtype=torch.int64)
        exists = torch.zeros((len(guides), self.guided), dtype=torch.bool)
        for row, guide in enumerate(guides):
            table[row, : len(guide)] = torch.tensor(guide, dtype=torch.int64)
            exists[row, : len(guide)] = True
        table, exists = table.to(ranking.device), exists.to(ranking.device)
        values = ranking.gather(1, table).masked_fill(~exists, NEG_INF)
        return torch.cat([best, values], dim=1), torch.cat([token, table], dim=1)  # [R,k+G]

    def shortlist(self, total: Tensor, log_p: Tensor, token: Tensor) -> Candidates:
        """All candidates; `choose` selects."""
        width = total.shape[1] // self.beams
        beam = torch.arange(total.shape[1], device=total.device).expand_as(total) // width
        return Candidates(total, log_p, token, beam)

    def choose(self, candidates: Candidates) -> tuple[Tensor, Tensor, Tensor]:
        closing = torch.zeros_like(candidates.token, dtype=torch.bool)
        kept = torch.zeros((len(self.active), self.beams), dtype=torch.int64, device=self.device)
        chosen = torch.full(kept.shape, NEG_INF, device=self.device)
        for number, active in enumerate(self.active):
            ends, banks = self.banks(candidates, number)
            complete = sorted([*ends, *banks.get(0, [])], reverse=True)[: self.beams]
            at_limit = self.steps + 1 - active.entered >= active.limit
            closed = [column for value, column in complete if at_limit or (value, column) in ends]
            closing[number, closed] = True
            going_on = allocate(banks, self.beams)
            columns, values = [column for _, column in going_on], [value for value, _ in going_on]
            kept[number, : len(going_on)] = torch.tensor(columns, device=self.device)
            chosen[number, : len(going_on)] = torch.tensor(values, device=self.device)
        return closing, chosen, kept

    def banks(self, candidates: Candidates, number: int) -> tuple[list[Ranked], dict[int, list[Ranked]]]:
        """One request's candidates: those that end, and the others by the phrase tokens they still need."""
        active = self.active[number]
        length = self.steps + 1 - active.entered
        room, is_forced = active.limit - length, length <= len(active.prefix)
        totals, tokens = candidates.total[number].tolist(), candidates.token[number].tolist()
        histories = tail(self.tokens[number], length - 1).tolist()  # [K,t]
        width = len(totals) // self.beams
        ends: list[Ranked] = []
        banks: dict[int, list[Ranked]] = {}
        seen = set()
        for column in self.promising(candidates.total[number], width):
            row, token = column // width, tokens[column]
            if totals[column] == NEG_INF or (row, token) in seen:
                continue
            seen.add((row, token))
            if token in self.ends:
                ends.append((totals[column], column))
                continue
            needed = PhraseProgress(constraint_of(active), [*histories[row], token]).needed()
            if needed <= room or is_forced:
                banks.setdefault(needed, []).append((totals[column], column))
        return ends, banks

    def promising(self, total: Tensor, width: int) -> list[int]:
        """The best candidates, the best of each beam, and all that continue a phrase."""
        best: list[int] = total.topk(min(self.width, len(total))).indices.tolist()
        for row in range(self.beams):
            best += [row * width, *range((row + 1) * width - self.guided, (row + 1) * width)]
        return best


def constraint_of(active: ActiveRequest) -> Constraint:
    if active.request.constraint is None:
        raise ValueError("a constrained search needs phrases")
    return active.request.constraint


def allocate(banks: dict[int, list[Ranked]], beams: int) -> list[Ranked]:
    """The best of each bank, the second of each, and so on until the beams are full; best first."""
    ordered = [sorted(bank, reverse=True) for _, bank in sorted(banks.items())]
    rounds = zip_longest(*ordered)
    return sorted([each for turn in rounds for each in turn if each is not None][:beams], reverse=True)
