"""log p of each token of a text under a language model, and the most probable tokens at each position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from regard.batch import collate
from regard.generation.generate import batches_by_length
from regard.generation.requests import first_tokens
from regard.inputs.text import Tokenizer
from regard.models.state import BLOCK, State
from regard.sample import Sample
from regard.server.api.completions import Detokenizer, Prompt
from regard.tasks import Generator

MOST_NUMBERS = 1 << 26  # of one batch: rows * tokens * vocabulary


@dataclass(frozen=True)
class TokenLogprob:
    """A token with its log p and the best alternatives; the first token of a text has no log p."""

    piece: int
    log_p: float | None
    best: tuple[tuple[int, float], ...] = ()


@torch.no_grad()
def token_logprobs(
    generator: Generator, rows: Sequence[Sequence[int]], count: int
) -> list[list[TokenLogprob]]:
    """The log-probabilities of each row of ids; the first token of a row has none."""
    result: list[list[TokenLogprob]] = [[TokenLogprob(row[0], None)] for row in rows]
    lengths = [len(row) - 1 for row in rows]
    for numbers in batches_by_length(lengths, max(1, MOST_NUMBERS // len(generator.tokenizer))):
        numbers = [number for number in numbers if lengths[number]]
        if not numbers:
            continue
        samples = [Sample(target=rows[n][:-1], labels=rows[n][1:]) for n in numbers]
        batch = collate(samples, BLOCK).to(generator.device)
        logits = generator.model(batch)
        for at, number in enumerate(numbers):
            log_p = logits[at, : lengths[number]].float().log_softmax(dim=-1)  # [T,V]
            targets = torch.tensor(rows[number][1:], device=log_p.device)
            target_log_p = log_p.gather(1, targets[:, None])[:, 0].tolist()
            values, ids = log_p.topk(min(max(count, 1), log_p.shape[1]), dim=1)
            for piece, value, best, which in zip(
                targets.tolist(), target_log_p, values.tolist(), ids.tolist()
            ):
                result[number].append(TokenLogprob(piece, value, tuple(zip(which, best))[:count]))
    return result


class IncrementalLogprobs:
    """Log-probabilities of tokens as they arrive, from a second pass of the model beside the search."""

    def __init__(self, generator: Generator, prompt: Sequence[int], count: int) -> None:
        self.generator, self.prompt, self.count = generator, prompt, count
        self.state: State | None = None
        self.last = torch.empty(0)  # next input: [1,1]

    @torch.no_grad()
    def add(self, pieces: Sequence[int]) -> list[TokenLogprob]:
        model, result = self.generator.model, list[TokenLogprob]()
        if self.state is None:
            samples = [Sample(source=list(self.prompt))]
            self.state = model.start(collate(samples, BLOCK).to(self.generator.device))
            self.last = first_tokens(self.state, self.generator.special)
        for piece in pieces:
            logits, self.state = model.step(self.state, self.last)
            log_p = logits[0, -1].float().log_softmax(dim=-1)  # [V]
            best, which = log_p.topk(min(self.count, len(log_p)))
            result.append(TokenLogprob(piece, float(log_p[piece]), tuple(zip(which.tolist(), best.tolist()))))
            self.last = torch.full_like(self.last, piece)
        return result


def prompt_begins(tokenizer: Tokenizer, prompt: Prompt) -> list[int]:
    """The character offset of each token of a prompt."""
    speller = Detokenizer(tokenizer, prompt.ids[: len(prompt.ids) - len(prompt.shown)])
    speller.add(prompt.shown)
    return speller.begins


def without_first_logprob(places: Sequence[TokenLogprob]) -> list[TokenLogprob]:
    """The first token of a text has no context, so no log p."""
    return [replace(place, log_p=None, best=()) for place in places[:1]] + list(places[1:])


def as_logprobs(
    tokenizer: Tokenizer, places: Sequence[TokenLogprob], begins: Sequence[int], bare: bool
) -> dict[str, Sequence[object]]:
    """OpenAI's logprobs object. `bare`: the text starts without a space that its first token may have."""
    pieces = tokenizer.tokens([place.piece for place in places])
    if bare and pieces:
        pieces[0] = pieces[0].removeprefix(" ")
    best: list[dict[str, float] | None] = []
    for name, place in zip(pieces, places):
        if place.log_p is None:
            best.append(None)
            continue
        names = tokenizer.tokens([piece for piece, _ in place.best])
        top = {name: place.log_p}
        for other, (_, value) in zip(names, place.best):
            top[other] = max(value, top.get(other, value))
        best.append(top)
    return {
        "tokens": pieces,
        "token_logprobs": [place.log_p for place in places],
        "top_logprobs": best,
        "text_offset": list(begins),
    }
