"""Running text: how well a model tells what comes next, and what was hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import torch

from regard.config import Decode
from regard.data.objectives import CausalLM, MaskedLM, SpanCorruption
from regard.data.readers import RawRow
from regard.generation import answers, decode
from regard.inputs.text import Tokenizer, special_tokens
from regard.metrics.language import perplexity_scores
from regard.models import EncoderOnly, Model
from regard.sample import Example, Sample
from regard.training.evaluation.base import (
    TOKENS_PER_BATCH,
    asked,
    log_probabilities,
    mean_loss,
    shown,
    write_rows,
)
from regard.training.progress import Record

Asked = TypeVar("Asked", MaskedLM, SpanCorruption)

BEGINNING, GOES_ON = 32, 100  # pieces of a held-out text that are shown, and that the model adds
EXAMPLES = 20  # texts that a model goes on with in the end
DRAWN = Decode(beam=1, sample=True, temperature=0.8, max_length=GOES_ON)


def as_rows(examples: Sequence[Example]) -> list[RawRow]:
    return [(number, each.source, each.target) for number, each in enumerate(examples, start=1)]


@dataclass(frozen=True)
class ContinuationEvaluation:
    """Loss over all of the text in windows one after another; perplexity and bits per byte from it."""

    objective: CausalLM
    examples: Sequence[Example]

    def __len__(self) -> int:
        """Documents."""
        return sum(not example.target for example in self.examples)

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(as_rows(self.examples))

    def validate(self, model: Model, device: torch.device, count: int, pick: int) -> Record:
        record = self.scores(model, device)
        if not count:
            return record
        beginning = self.beginnings(pick + 1)[pick % max(1, len(self.beginnings(pick + 1)))]
        (output,) = self.go_on(model, [beginning], device)
        return record | shown(self.objective.tokenizer.decode(beginning), "", output)

    def scores(self, model: Model, device: torch.device) -> Record:
        log_p = log_probabilities(model, self.samples, device)
        total, pieces = sum(sum(row) for row in log_p), sum(len(row) for row in log_p)
        size = sum(len(example.source.encode()) for example in self.examples)
        return {"loss": -total / max(1, pieces), **perplexity_scores(total, pieces, size)}

    def beginnings(self, count: int) -> list[list[int]]:
        """Of the first texts, evenly spread."""
        size = min(BEGINNING, max(1, self.objective.window // 2))
        every = max(1, len(self.samples) // count)
        chosen = self.samples[::every][:count]
        return [first_text(sample)[:size] for sample in chosen]

    def go_on(self, model: Model, beginnings: Sequence[Sequence[int]], device: torch.device) -> list[str]:
        if isinstance(model, EncoderOnly):
            raise ValueError("an encoder alone writes nothing")
        tokenizer = self.objective.tokenizer
        prompts = [Sample(source=ids) for ids in beginnings]
        found = decode(model, prompts, DRAWN, special_tokens(tokenizer), device)
        return [goes_on(tokenizer, ids, own[0].tokens) for ids, own in zip(beginnings, found)]

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        beginnings = self.beginnings(EXAMPLES)
        outputs = self.go_on(model, beginnings, device)
        decode_text = self.objective.tokenizer.decode
        write_rows(path, ({"source": decode_text(b), "output": out} for b, out in zip(beginnings, outputs)))
        return self.scores(model, device)


def first_text(sample: Sample) -> list[int]:
    """The first of the texts in a window."""
    own = [piece for piece, document in zip(sample.target, sample.documents) if not document]
    return own or list(sample.target)


def goes_on(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The text that tokens add to a prompt, with the space between them if there is one."""
    before, whole = tokenizer.decode(prompt), tokenizer.decode([*prompt, *tokens])
    return whole[len(before) :] if whole.startswith(before) else tokenizer.decode(tokens)


@dataclass(frozen=True)
class HiddenEvaluation(Generic[Asked]):
    """Texts of which the same pieces are hidden at every validation."""

    objective: Asked
    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.samples)

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(as_rows(self.examples))


class HiddenWordsEvaluation(HiddenEvaluation[MaskedLM]):
    """The share of hidden pieces that are guessed."""

    def validate(self, model: Model, device: torch.device, count: int, pick: int) -> Record:
        loss, guesses = self.guess(model, device)
        number = pick % len(self.samples)
        return self.scores(loss, guesses) | shown(*(str(each) for each in self.told(number, guesses[number])))

    def guess(self, model: Model, device: torch.device) -> tuple[float, list[list[int]]]:
        """The loss, and the guess at each hidden place of each sample."""
        total, count = 0.0, 0
        guesses = []
        for sample, logits in zip(self.samples, answers(model, self.samples, TOKENS_PER_BATCH, device)):
            own = logits[asked(sample)]  # [M,V]
            gold = torch.tensor([sample.labels[place] for place in asked(sample)])
            total += float(torch.nn.functional.cross_entropy(own, gold, reduction="sum"))
            count += len(gold)
            guesses.append(own.argmax(dim=1).tolist())
        return total / max(1, count), guesses

    def scores(self, loss: float, guesses: Sequence[Sequence[int]]) -> Record:
        pairs = [
            (sample.labels[place], guess)
            for sample, own in zip(self.samples, guesses)
            for place, guess in zip(asked(sample), own)
        ]
        return {"loss": loss, "accuracy": sum(gold == guess for gold, guess in pairs) / max(1, len(pairs))}

    def told(self, number: int, guesses: Sequence[int]) -> tuple[str, list[str], list[str]]:
        """A text with its hidden pieces shown as the mask, the pieces, and the guesses."""
        sample, tokenizer = self.samples[number], self.objective.tokenizer
        places = asked(sample)
        read = list(sample.source)
        for place in places:
            read[place] = tokenizer.mask or 0
        text = "".join(tokenizer.tokens(read[1:-1])).strip()
        return text, tokenizer.tokens([sample.labels[p] for p in places]), tokenizer.tokens(guesses)

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        loss, guesses = self.guess(model, device)
        told = [self.told(number, own) for number, own in enumerate(guesses)]
        names = ("source", "reference", "output")
        write_rows(path, (dict(zip(names, each)) for each in told))
        return self.scores(loss, guesses)


class HiddenSpansEvaluation(HiddenEvaluation[SpanCorruption]):
    """The loss of what was cut out, and the share of texts of which every span is told."""

    def validate(self, model: Model, device: torch.device, count: int, pick: int) -> Record:
        record: Record = {"loss": mean_loss(log_probabilities(model, self.samples, device))}
        if not count:
            return record
        rows = self.told(model, self.samples[:count], device)
        return record | {"accuracy": right(rows)} | shown(*(str(v) for v in rows[pick % len(rows)].values()))

    def told(self, model: Model, samples: Sequence[Sample], device: torch.device) -> list[Record]:
        if isinstance(model, EncoderOnly):
            raise ValueError("an encoder alone writes nothing")
        tokenizer = self.objective.tokenizer
        sources = [Sample(source=sample.source) for sample in samples]
        found = decode(model, sources, Decode(beam=1), special_tokens(tokenizer), device)
        return [
            {
                "source": "".join(tokenizer.tokens(sample.source[:-1])).strip(),
                "reference": tokenizer.tokens(sample.labels[:-1]),
                "output": tokenizer.tokens(own[0].tokens),
            }
            for sample, own in zip(samples, found)
        ]

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        rows = self.told(model, self.samples, device)
        write_rows(path, rows)
        loss = mean_loss(log_probabilities(model, self.samples, device))
        return {"loss": loss, "accuracy": right(rows)}


def right(rows: Sequence[Record]) -> float:
    return sum(bool(row["reference"] == row["output"]) for row in rows) / max(1, len(rows))
