"""What a search decodes and what it needs of a model: requests, hypotheses, the model protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeVar, cast

import torch
from torch import Tensor

from regard.batch import Batch, collate
from regard.config import Decode
from regard.errors import UsageError
from regard.inputs.text import SpecialTokens
from regard.models.attention import BLOCK, round_up
from regard.sample import Sample, Source

if TYPE_CHECKING:
    from regard.generation.constraints import Constraint
    from regard.generation.grammar import Grammar

NEG_INF = float("-inf")  # log p of a token that is not allowed, score of a key that is masked
EXTRA_LENGTH = 50  # the paper's limit: source length + 50
BEAM_STEP = 4  # constrained beam widths are multiples, so that requests with different phrases share batches


class DecodingCache(Protocol):
    """What a search needs of a model's cache."""

    @property
    def first(self) -> Tensor | None: ...  # [R]: the token to feed first, if it is not the start token
    def __len__(self) -> int: ...
    def select(self, rows: Tensor) -> Self: ...
    @classmethod
    def join(cls, caches: Sequence[Self]) -> Self: ...


S = TypeVar("S", bound=DecodingCache)


class Steppable(Protocol[S]):
    """What a search needs of a model."""

    @property
    def longest_target(self) -> int | None: ...
    def start(self, batch: Batch, beams: int = 1) -> S: ...
    def step(self, cache: S, tokens: Tensor) -> tuple[Tensor, S]: ...


@dataclass(frozen=True, slots=True)
class Hypothesis:
    tokens: tuple[int, ...]  # without start and end
    log_probability: float  # of the tokens and the end, without a forced prefix
    score: float  # for ranking: log_probability / length penalty
    token_log_probabilities: tuple[float, ...]  # one per token, and one for the end token if there is one
    finished: bool  # False if the length limit truncated it


@dataclass(frozen=True)
class BatchKey:
    """What requests must have in common to share a running batch."""

    kind: Literal["beams", "phrases", "draws"]
    beams: int = 1
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class Request:
    """One source to decode, and how."""

    ids: Source  # as the model reads them
    options: Decode
    prefix: Sequence[int] = ()  # forced first tokens of the output
    constraint: Constraint | None = None
    forced_bos: int | None = None  # the first token of the output; None: that of the model's settings
    draw: int | None = None  # the index of a single draw; None: all `options.beam` draws
    grammar: Grammar | None = None  # which tokens may follow

    @property
    def draws(self) -> Sequence[int]:
        return range(self.options.beam) if self.draw is None else [self.draw]

    @property
    def key(self) -> BatchKey:
        options, beams = self.options, self.options.beam
        phrases = self.constraint is not None and bool(self.constraint.require)
        if options.sample:
            if phrases:
                raise UsageError(
                    "required phrases need a beam search: turn decode.sample off", code="E_PHRASE_SAMPLING"
                )
            return BatchKey("draws")
        if self.constraint is not None and phrases:  # one beam per bank: 0 .. size tokens of the phrases
            beams = max(beams, round_up(self.constraint.size + 1, BEAM_STEP))
        kind: Literal["beams", "phrases"] = "phrases" if phrases else "beams"
        return BatchKey(kind, beams, options.no_repeat_ngram, options.repetition_penalty)

    @property
    def rows(self) -> int:
        """Rows of a running batch."""
        key = self.key
        return len(self.draws) if key.kind == "draws" else key.beams

    @property
    def width(self) -> int:
        """Padded source tokens."""
        return round_up(max(1, len(self.ids)), BLOCK)


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """A request in a running batch, and its hypotheses so far."""

    request: Request
    prefix: Sequence[int]
    limit: int  # maximum number of tokens, prefix included
    min_length: int  # tokens before an end token is allowed
    context: Sequence[int]  # what precedes the first token: the prompt, or the start token
    forced: Mapping[int, int]  # position -> the only token allowed there
    entered: int  # steps the search had done when the request entered
    hypotheses: list[Hypothesis] = field(default_factory=list)  # best first


def activate(model: Steppable[S], request: Request, special: SpecialTokens, step: int) -> ActiveRequest:
    """A request that enters a search at `step`."""
    prefix, length, constraint = list(request.prefix), len(request.ids), request.constraint
    forced_bos = special.forced_bos if request.forced_bos is None else request.forced_bos
    if prefix and forced_bos is not None and prefix[0] != forced_bos:
        prefix = [forced_bos, *prefix]
    reads_prompts = bool(getattr(model, "reads_prompts", False))
    readable = model.longest_target
    if readable is not None and reads_prompts:  # the prompt takes part of the context window
        readable = max(1, readable - length + 1)
    phrases = 0 if constraint is None else constraint.size
    limit = longest_output(request.options, length + phrases, len(prefix), readable, special.max_length)
    forced: dict[int, int] = {}
    if special.forced_eos is not None and not phrases:  # required phrases may still be missing at the limit
        forced[limit - 1] = special.forced_eos
    if forced_bos is not None:
        forced[0] = forced_bos
    return ActiveRequest(
        request=request,
        prefix=prefix,
        limit=limit,
        min_length=max(request.options.min_length, special.min_length - length),
        context=cast(Sequence[int], request.ids) if reads_prompts else [special.start],
        forced=forced | dict(enumerate(prefix)),
        entered=step,
    )


def end_tokens(special: SpecialTokens) -> tuple[int, ...]:
    """All tokens that end a hypothesis (`eos_token_id` may be a list)."""
    return tuple(dict.fromkeys((special.end, *special.ends)))


def longest_output(
    options: Decode, source_length: int, prefix: int, readable: int | None, whole: int | None = None
) -> int:
    """Maximum number of tokens for one request, prefix included. Independent of its batch.

    `readable` is what the decoder reads: the start token and all tokens but the last. `whole` is the default
    length of prompt and continuation together.
    """
    default = source_length + EXTRA_LENGTH if whole is None else max(1, whole - source_length)
    limit = prefix + (options.max_length or default)
    return limit if readable is None else min(limit, max(readable, prefix + 1))


def length_penalty(options: Decode, length: int) -> float:
    """length^alpha, or ((5 + length) / 6)^alpha  (Wu et al. 2016, equation 14)."""
    base = (5 + length) / 6 if options.penalty_form == "wu" else max(length, 1)
    return float(base**options.length_penalty)


def make_hypothesis(
    active: ActiveRequest, tokens: Sequence[int], log_p: Sequence[float], total: float, ends: Sequence[int]
) -> Hypothesis:
    """A hypothesis of `tokens`, of which the last may be an end token; score = total / length penalty."""
    finished = bool(tokens) and tokens[-1] in ends
    return Hypothesis(
        tokens=tuple(tokens[:-1] if finished else tokens),
        log_probability=total if active.request.options.sample else math.fsum(log_p),
        score=total / length_penalty(active.request.options, len(tokens) - len(active.prefix)),
        token_log_probabilities=tuple(log_p),
        finished=finished,
    )


def collate_requests(requests: Sequence[Request], device: torch.device) -> Batch:
    return collate([Sample(source=request.ids) for request in requests], BLOCK).to(device)


def first_tokens(cache: S, special: SpecialTokens, device: torch.device) -> Tensor:
    """The first tokens to feed: the start token, or the last token of each row's prompt. [R,1]."""
    if cache.first is not None:
        return cache.first[:, None]
    return torch.full((len(cache), 1), special.start, device=device)


def left_pad(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Token ids aligned right, -1 before the shorter rows: [R,t]."""
    longest = max((len(row) for row in rows), default=0)
    table = [[-1] * (longest - len(row)) + list(row) for row in rows]
    return torch.tensor(table, dtype=torch.int64, device=device).view(len(rows), longest)
