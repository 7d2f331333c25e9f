"""log p of each piece of a text under a language model, and the most probable ones at each place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from regard.batch import collate
from regard.generation.generate import batches_by_length
from regard.generation.requests import first_tokens
from regard.inputs.text import Tokenizer
from regard.models import State
from regard.models.state import BLOCK
from regard.sample import Sample
from regard.server.api.completion_schema import Prompt
from regard.server.api.detokenizer import Detokenizer
from regard.tasks import Generator

MOST_NUMBERS = 1 << 26  # of one run: rows times pieces times vocabulary


@dataclass(frozen=True)
class TokenLogprob:
    """One piece with its log p, and the best ones there; of the first piece of a text nothing is known."""

    piece: int
    log_p: float | None
    best: tuple[tuple[int, float], ...] = ()


@torch.no_grad()
def token_logprobs(
    generator: Generator, rows: Sequence[Sequence[int]], count: int
) -> list[list[TokenLogprob]]:
    """For each row of ids the places of its pieces; the first is read and not asked for."""
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
    """The places of pieces as they come: the text is read once more beside the search, step by step."""

    def __init__(self, generator: Generator, prompt: Sequence[int], count: int) -> None:
        self.generator, self.prompt, self.count = generator, prompt, count
        self.state: State | None = None
        self.last = torch.empty(0)  # what is fed next: [1,1]

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
    """At which character of a prompt each of its pieces begins."""
    speller = Detokenizer(tokenizer, prompt.ids[: len(prompt.ids) - len(prompt.shown)])
    speller.add(prompt.shown)
    return speller.begins


def without_first_logprob(places: Sequence[TokenLogprob]) -> list[TokenLogprob]:
    """Before the first piece of a text nothing was read."""
    return [replace(place, log_p=None, best=()) for place in places[:1]] + list(places[1:])


def as_logprobs(
    tokenizer: Tokenizer, places: Sequence[TokenLogprob], begins: Sequence[int], bare: bool
) -> dict[str, Sequence[object]]:
    """OpenAI's lists. `bare`: a text begins here without a space, which its first piece may have."""
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
