"""The choices of a completion as they are generated: text up to a stop sequence, and log p of each token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from regard.batch import collate
from regard.generation import Hypothesis
from regard.generation.generate import batches_by_length
from regard.generation.requests import first_tokens
from regard.inputs.text.detokenizer import Detokenizer
from regard.models.attention import BLOCK
from regard.models.cache import Cache
from regard.sample import Sample
from regard.server.api.completions import CompletionBody, Prompt
from regard.server.scheduler import ResultStream
from regard.tasks import Generator

MOST_NUMBERS = 1 << 26  # of one batch: rows * tokens * vocabulary


class Choice:
    """A continuation of a prompt. Each `part` has what is new since the one before."""

    def __init__(self, generator: Generator, prompt: Prompt, body: CompletionBody) -> None:
        self.tokenizer, self.prompt, self.echo = generator.tokenizer, prompt, bool(body.echo)
        self.detokenizer = Detokenizer(generator.tokenizer, prompt.ids, body.stops)
        self.ids: list[int] = []
        self.text = prompt.text if body.echo else ""  # for the next part
        self.has_logprobs = body.logprobs is not None
        self.logprobs: list[TokenLogprob] = []  # of the prompt, if it is echoed, and of `ids`
        self.sent = 0  # logprobs in earlier parts
        self.score, self.ended = 0.0, False

    def add(self, tokens: Sequence[int]) -> None:
        self.ids += tokens
        self.text += self.detokenizer.add(tokens)

    def end(self, hypothesis: Hypothesis | None) -> None:
        """After the last token; a text that reached a stop sequence has no hypothesis."""
        self.text += self.detokenizer.emit()
        if hypothesis is not None:
            self.score, self.ended = hypothesis.score, hypothesis.finished
        self.ended = self.ended or self.detokenizer.stopped

    async def read(self, stream: ResultStream) -> AsyncIterator[list[int]]:
        """Yields tokens when they are added; a stop sequence cancels the stream."""
        hypothesis = None
        async for each in stream:
            if isinstance(each, Hypothesis):
                hypothesis = each
                break
            self.add(each)
            yield each
            if self.detokenizer.stopped:
                break
        await stream.aclose()
        self.end(hypothesis)

    def set_logprobs(self, row: Sequence[TokenLogprob]) -> None:
        """From those of all tokens of prompt and text. An echoed text begins without context."""
        shown = self.prompt.shown if self.echo else []
        first = [TokenLogprob(token, None) for token in shown[:1]]
        self.logprobs = [*first, *row[len(self.prompt.ids) - len(shown[1:]) :]]

    @cached_property
    def prompt_begins(self) -> list[int]:
        """The character offset of each token of an echoed prompt."""
        if not self.echo:
            return []
        ids, shown = self.prompt.ids, self.prompt.shown
        detokenizer = Detokenizer(self.tokenizer, ids[: len(ids) - len(shown)])
        detokenizer.add(shown)
        return detokenizer.begins

    def part(self, index: int, last: bool = False) -> dict[str, Any]:
        """What is new, as a choice of OpenAI's API."""
        text, self.text = self.text, ""
        reason = ("stop" if self.ended else "length") if last else None
        logprobs = self.new_logprobs(text) if self.has_logprobs else None
        return {"index": index, "text": text, "finish_reason": reason, "logprobs": logprobs}

    def new_logprobs(self, text: str) -> dict[str, Any]:
        first, size = self.sent, len(self.prompt.text)
        begins = [*self.prompt_begins, *(size + begin for begin in self.detokenizer.begins)]
        places = self.logprobs[first : len(begins)]  # without tokens behind a stop sequence
        self.sent = max(first, len(begins))
        tokens = self.tokenizer.tokens([place.token for place in places])
        if tokens and self.echo and first == 0 and text[:1] != " ":
            tokens[0] = tokens[0].removeprefix(" ")
        return {
            "tokens": tokens,
            "token_logprobs": [place.log_p for place in places],
            "top_logprobs": [self.top(token, place) for token, place in zip(tokens, places)],
            "text_offset": begins[first:],
        }

    def top(self, token: str, place: TokenLogprob) -> dict[str, float] | None:
        """The token and the best alternatives; of tokens with equal text the more probable one."""
        if place.log_p is None:
            return None
        top = {token: place.log_p}
        for name, (_, value) in zip(self.tokenizer.tokens([each for each, _ in place.best]), place.best):
            top[name] = max(value, top.get(name, value))
        return top


@dataclass(frozen=True)
class TokenLogprob:
    """A token with its log p and the best alternatives; the first token of a text has no log p."""

    token: int
    log_p: float | None
    best: tuple[tuple[int, float], ...] = ()


def ranked(logits: Tensor, tokens: Sequence[int], count: int) -> list[TokenLogprob]:
    """The log p of tokens and of the `count` best at each position, from logits [T,V]."""
    log_p = logits.float().log_softmax(dim=-1)
    values = log_p.gather(1, torch.tensor(tokens, device=log_p.device)[:, None])[:, 0]
    best, ids = log_p.topk(min(count, log_p.shape[1]), dim=1)
    alternatives = [tuple(zip(*each)) for each in zip(ids.tolist(), best.tolist())]
    return list(map(TokenLogprob, tokens, values.tolist(), alternatives))


@torch.no_grad()
def token_logprobs(
    generator: Generator, rows: Sequence[Sequence[int]], count: int
) -> list[list[TokenLogprob]]:
    """The log-probabilities of each row of ids; the first token of a row has none."""
    result = [[TokenLogprob(row[0], None)] for row in rows]
    lengths = [len(row) - 1 for row in rows]
    for numbers in batches_by_length(lengths, max(1, MOST_NUMBERS // len(generator.tokenizer))):
        numbers = [number for number in numbers if lengths[number]]
        if not numbers:
            continue
        samples = [Sample(target=rows[n][:-1], labels=rows[n][1:]) for n in numbers]
        logits = generator.model(collate(samples, BLOCK).to(generator.device))  # [B,T,V]
        for at, number in enumerate(numbers):
            result[number] += ranked(logits[at, : lengths[number]], rows[number][1:], count)
    return result


class IncrementalLogprobs:
    """Log-probabilities of tokens as they arrive, from a second pass of the model beside the search."""

    def __init__(self, generator: Generator, prompt: Sequence[int], count: int) -> None:
        self.generator, self.prompt, self.count = generator, prompt, count
        self.state: Cache | None = None
        self.last = torch.empty(0)  # next input: [1,1]

    @torch.no_grad()
    def add(self, tokens: Sequence[int]) -> list[TokenLogprob]:
        model, result = self.generator.model, list[TokenLogprob]()
        if self.state is None:
            samples = [Sample(source=list(self.prompt))]
            self.state = model.start(collate(samples, BLOCK).to(self.generator.device))
            self.last = first_tokens(self.state, self.generator.special, self.generator.device)
        for token in tokens:
            logits, self.state = model.step(self.state, self.last)
            result += ranked(logits[0, -1:], [token], self.count)
            self.last = torch.full_like(self.last, token)
        return result
