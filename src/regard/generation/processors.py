"""Logits processors: what a hypothesis must not, must, or should rather not continue with.

As in transformers, a processor changes the logits of a step in place. It sees only the tokens of its rows, so
every model and every search can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.generation.requests import NEG_INF, ActiveRequest, BatchKey, end_tokens
from regard.inputs.text import SpecialTokens

INITIAL_TIMES = 50  # steps of 0.02 seconds: the first segment begins in the first second of a window


@dataclass(frozen=True, slots=True)
class RunningRows:
    """The rows of a running batch before a step."""

    tokens: Tensor  # [R,t], context and generated tokens, left-padded with -1
    owners: Sequence[ActiveRequest]  # of each row
    lengths: Sequence[int]  # generated tokens of each row, a forced prefix included

    def generated(self, row: int) -> list[int]:
        return self.tokens[row, self.tokens.shape[1] - self.lengths[row] :].tolist()


LogitsProcessor = Callable[[Tensor, RunningRows], None]  # changes logits [R,V] in place


@dataclass(frozen=True, slots=True)
class SuppressTokens:
    """Tokens that are never generated."""

    tokens: Tensor

    def __call__(self, logits: Tensor, rows: RunningRows) -> None:
        logits.index_fill_(1, self.tokens, NEG_INF)


@dataclass(frozen=True, slots=True)
class MinLength:
    """No end token before the minimum length."""

    ends: tuple[int, ...]

    def __call__(self, logits: Tensor, rows: RunningRows) -> None:
        lengths = zip(rows.lengths, rows.owners)
        if short := [row for row, (length, owner) in enumerate(lengths) if length < owner.min_length]:
            logits[torch.tensor(short)[:, None], list(self.ends)] = NEG_INF


@dataclass(frozen=True, slots=True)
class NoRepeatNgram:
    """No n-gram occurs twice (Paulus et al. 2018)."""

    size: int

    def __call__(self, logits: Tensor, rows: RunningRows) -> None:
        tokens = rows.tokens  # [R,t]
        length = tokens.shape[1]
        if length < self.size:
            return
        windows = tokens.unfold(1, self.size, 1)  # [R,t-n+1,n]
        last = tokens[:, length - self.size + 1 :].unsqueeze(1)  # [R,1,n-1]
        repeats = (windows[..., :-1] == last).all(dim=2) & (windows >= 0).all(dim=2)  # [R,t-n+1]
        row, place = repeats.nonzero(as_tuple=True)
        logits[row, windows[row, place, -1]] = NEG_INF


@dataclass(frozen=True, slots=True)
class BadWords:
    """Token sequences that never occur: after all but the last of one, the last is not allowed."""

    sequences: tuple[tuple[int, ...], ...]

    def __call__(self, logits: Tensor, rows: RunningRows) -> None:
        for *before, last in self.sequences:
            if len(before) <= rows.tokens.shape[1]:
                match = (rows.tokens[:, -len(before) :] == rows.tokens.new_tensor(before)).all(dim=1)  # [R]
                logits[match, last] = NEG_INF


@dataclass(frozen=True, slots=True)
class BeginSuppressTokens:
    """Tokens that no output begins with, after a forced first token or prefix if there is one."""

    tokens: tuple[int, ...]

    def __call__(self, logits: Tensor, rows: RunningRows) -> None:
        lengths = zip(rows.lengths, rows.owners)
        begins = (length == max(int(0 in owner.forced), len(owner.prefix)) for length, owner in lengths)
        if first := [row for row, is_first in enumerate(begins) if is_first]:
            logits[torch.tensor(first)[:, None], list(self.tokens)] = NEG_INF


@dataclass(frozen=True, slots=True)
class TimestampRules:
    """Times of Whisper (Radford et al. 2022, 2.3): each segment of text is between two, which never decrease.

    Tokens from `first` on are times, text is below `end`. Outputs whose prefix ends with "no timestamps" have
    none.
    """

    no_timestamps: int
    end: int

    def __call__(self, logits: Tensor, rows: RunningRows) -> None:
        for row, owner in enumerate(rows.owners):
            begin = len(owner.prefix)
            timeless = bool(begin) and owner.prefix[-1] == self.no_timestamps
            if rows.lengths[row] >= begin and not timeless:
                self.restrict(logits[row], rows.generated(row)[begin:])

    def restrict(self, logits: Tensor, text: Sequence[int]) -> None:
        """[V], in place."""
        first = self.no_timestamps + 1
        logits[self.no_timestamps] = NEG_INF
        times = [token for token in text if token >= first]
        is_time = bool(text) and text[-1] >= first
        opens = is_time and (len(text) < 2 or text[-2] >= first)  # the second of two, or the very first
        if not text:  # begins with a time of at most one second
            logits[:first] = NEG_INF
            logits[first + INITIAL_TIMES + 1 :] = NEG_INF
        elif opens:
            logits[first:] = NEG_INF
        elif is_time:  # ends a segment: the next one begins, or nothing follows
            logits[: self.end] = NEG_INF
        if times:
            logits[first : times[-1] + (not is_time or opens)] = NEG_INF
        # a time is due if all together are more probable than any word
        if bool(logits[first:].logsumexp(dim=0) > logits[:first].max()):
            logits[:first] = NEG_INF


def forbidden_phrases(logits: Tensor, rows: RunningRows) -> None:
    """No token completes a forbidden phrase of its request."""
    for row, owner in enumerate(rows.owners):
        constraint = owner.request.constraint
        if constraint is not None and constraint.forbid:
            logits[row, constraint.banned_tokens(rows.generated(row))] = NEG_INF


def word_boundary(logits: Tensor, rows: RunningRows) -> None:
    """After a prefix that ends with a whole word comes a new word, not more of the same."""
    for row, owner in enumerate(rows.owners):
        constraint = owner.request.constraint
        if constraint is not None and constraint.whole_prefix and rows.lengths[row] == len(owner.prefix):
            keep_only(logits[row], constraint.lexicon.new_word_tokens(owner.prefix))


def follow_grammar(logits: Tensor, rows: RunningRows) -> None:
    """Only tokens that the grammar of a request allows."""
    for row, owner in enumerate(rows.owners):
        grammar = owner.request.grammar
        if grammar is not None and rows.lengths[row] >= len(owner.prefix):
            keep_only(logits[row], grammar.next_tokens(rows.generated(row)[len(owner.prefix) :]))


@dataclass(frozen=True, slots=True)
class RequiredPhrases:
    """No end token before every required phrase is complete."""

    ends: tuple[int, ...]

    def __call__(self, logits: Tensor, rows: RunningRows) -> None:
        for row, owner in enumerate(rows.owners):
            constraint = owner.request.constraint
            if constraint is not None and constraint.missing(rows.generated(row)):
                logits[row, list(self.ends)] = NEG_INF


def processors(key: BatchKey, special: SpecialTokens, device: torch.device) -> list[LogitsProcessor]:
    """The processors of a running batch, in order; forced tokens come after them (see `forced_tokens`)."""
    ends = end_tokens(special)
    chosen: list[LogitsProcessor] = [
        SuppressTokens(torch.tensor(special.suppressed, dtype=torch.int64, device=device))
    ]
    if key.no_repeat_ngram:
        chosen.append(NoRepeatNgram(key.no_repeat_ngram))
    if special.bad_words:
        chosen.append(BadWords(special.bad_words))
    if special.begin_suppressed:
        chosen.append(BeginSuppressTokens(special.begin_suppressed))
    if special.no_timestamps is not None:
        chosen.append(TimestampRules(special.no_timestamps, special.end))
    chosen += [forbidden_phrases, word_boundary, MinLength(ends), follow_grammar]
    return [*chosen, RequiredPhrases(ends)] if key.kind == "phrases" else chosen


def forced_tokens(logits: Tensor, rows: RunningRows) -> list[int]:
    """Where only one token is allowed (prefix, forced first and last), log p = 0; the rows, for log Z = 0.

    So the end of an output that cannot go on by its grammar costs nothing.
    """
    forced = []
    for row, owner in enumerate(rows.owners):
        token = owner.forced.get(rows.lengths[row])
        if token is None and (grammar := owner.request.grammar) is not None:
            is_over = list(grammar.next_tokens(rows.generated(row)[len(owner.prefix) :])) == [grammar.end]
            token = grammar.end if is_over else None
        if token is not None:
            logits[row] = NEG_INF
            logits[row, token] = 0.0
            forced.append(row)
    return forced


def repetition_penalty(scores: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    """Of earlier tokens: score * penalty if it is negative, else score / penalty (Keskar et al. 2019).

    Tokens of -1 are padding.
    """
    if penalty == 1:
        return scores
    seen = torch.zeros((len(scores), scores.shape[1] + 1), dtype=torch.bool, device=scores.device)
    seen = seen.scatter_(1, tokens + 1, True)[:, 1:]  # [R,V]
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def keep_only(logits: Tensor, tokens: Sequence[int]) -> None:
    """Only these tokens are allowed; in place: [V]."""
    index = torch.tensor(tokens, dtype=torch.int64, device=logits.device)
    values = logits[index]
    logits.fill_(NEG_INF)
    logits[index] = values
