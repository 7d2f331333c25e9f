"""Running text: causal language models (perplexity), masked tokens (BERT) and corrupted spans (T5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor

from regard.config import Decode
from regard.data.objectives import CausalLM, MaskedLM, SpanCorruption
from regard.data.readers import RawRow
from regard.generation import decode
from regard.generation.score import TOKENS_PER_BATCH, map_logits
from regard.inputs.text import Tokenizer, special_tokens
from regard.metrics.language import perplexity_scores
from regard.models.encoder import EncoderOnly
from regard.models.families import Model
from regard.sample import Example, Sample
from regard.training.distributed import SingleProcess
from regard.training.evaluation.base import (
    SINGLE_PROCESS,
    example_record,
    labelled_positions,
    log_probabilities,
    mean_loss,
    write_rows,
)
from regard.training.progress import Record

Masking = TypeVar("Masking", MaskedLM, SpanCorruption)

PROMPT_TOKENS, NEW_TOKENS = 32, 100  # of a continuation that is shown
CONTINUATIONS = 20  # written at the end of a run
SAMPLING = Decode(beam=1, sample=True, temperature=0.8, max_length=NEW_TOKENS)


def as_rows(examples: Sequence[Example]) -> list[RawRow]:
    return [(number, each.source, each.target) for number, each in enumerate(examples, start=1)]


@dataclass(frozen=True)
class CausalLMEvaluation:
    """Loss over all of the text in consecutive windows; perplexity and bits per byte follow from it."""

    objective: CausalLM
    examples: Sequence[Example]

    def __len__(self) -> int:
        """Documents."""
        return sum(not example.target for example in self.examples)

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(as_rows(self.examples))

    def validate(
        self, model: Model, device: torch.device, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS
    ) -> Record:
        record = self.scores(model, device, dist)
        if not count:
            return record
        prompts = self.prompts(pick + 1)
        prompt = prompts[pick % max(1, len(prompts))]
        (output,) = self.continuations(model, [prompt], device)
        return record | example_record(self.objective.tokenizer.decode(prompt), "", output)

    def scores(self, model: Model, device: torch.device, dist: SingleProcess = SINGLE_PROCESS) -> Record:
        log_p = log_probabilities(model, self.samples, device, dist)
        total, tokens = sum(sum(row) for row in log_p), sum(len(row) for row in log_p)
        size = sum(len(example.source.encode()) for example in self.examples)
        return {"loss": -total / max(1, tokens), **perplexity_scores(total, tokens, size)}

    def prompts(self, count: int) -> list[list[int]]:
        """The first tokens of `count` texts, evenly spread."""
        size = min(PROMPT_TOKENS, max(1, self.objective.window // 2))
        every = max(1, len(self.samples) // count)
        chosen = self.samples[::every][:count]
        return [first_text(sample)[:size] for sample in chosen]

    def continuations(
        self, model: Model, prompts: Sequence[Sequence[int]], device: torch.device
    ) -> list[str]:
        if isinstance(model, EncoderOnly):
            raise ValueError("an encoder-only model generates no text")
        tokenizer = self.objective.tokenizer
        samples = [Sample(source=ids) for ids in prompts]
        results = decode(model, samples, SAMPLING, special_tokens(tokenizer), device)
        return [
            continuation_text(tokenizer, ids, hypotheses[0].tokens)
            for ids, hypotheses in zip(prompts, results)
        ]

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        prompts = self.prompts(CONTINUATIONS)
        outputs = self.continuations(model, prompts, device)
        decode_text = self.objective.tokenizer.decode
        write_rows(path, ({"source": decode_text(ids), "output": out} for ids, out in zip(prompts, outputs)))
        return self.scores(model, device)


def first_text(sample: Sample) -> list[int]:
    """Tokens of the first document in a window."""
    tokens = [token for token, document in zip(sample.target, sample.documents) if not document]
    return tokens or list(sample.target)


def continuation_text(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The text that tokens add to a prompt, with the space between them if there is one."""
    before, full = tokenizer.decode(prompt), tokenizer.decode([*prompt, *tokens])
    return full[len(before) :] if full.startswith(before) else tokenizer.decode(tokens)


@dataclass(frozen=True)
class MaskedEvaluation(Generic[Masking]):
    """Texts with the same masked tokens at every validation."""

    objective: Masking
    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.samples)

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(as_rows(self.examples))


class MaskedLMEvaluation(MaskedEvaluation[MaskedLM]):
    """Loss and accuracy at the masked positions."""

    def validate(
        self, model: Model, device: torch.device, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS
    ) -> Record:
        loss, outputs = self.predict(model, device, dist)
        number = pick % len(self.samples)
        example = self.texts(number, outputs[number])
        return self.scores(loss, outputs) | example_record(*(str(each) for each in example))

    def predict(
        self, model: Model, device: torch.device, dist: SingleProcess = SINGLE_PROCESS
    ) -> tuple[float, list[list[int]]]:
        """Mean loss, and the most probable token at each masked position of each sample."""

        def predict(samples: Sequence[Sample]) -> list[tuple[float, list[int]]]:
            def masked_only(number: int, logits: Tensor) -> tuple[float, list[int]]:
                positions = labelled_positions(samples[number])
                masked = logits[positions]  # [M,V]: the rest of [S,V] is not kept
                gold = torch.tensor([samples[number].labels[position] for position in positions])
                loss = torch.nn.functional.cross_entropy(masked, gold, reduction="sum")
                return float(loss), masked.argmax(dim=1).tolist()

            return map_logits(model, samples, masked_only, TOKENS_PER_BATCH, device)

        results = dist.map_sharded(self.samples, predict)
        total, count = sum(loss for loss, _ in results), sum(len(tokens) for _, tokens in results)
        return total / max(1, count), [tokens for _, tokens in results]

    def scores(self, loss: float, outputs: Sequence[Sequence[int]]) -> Record:
        pairs = [
            (sample.labels[position], token)
            for sample, tokens in zip(self.samples, outputs)
            for position, token in zip(labelled_positions(sample), tokens)
        ]
        return {"loss": loss, "accuracy": sum(gold == token for gold, token in pairs) / max(1, len(pairs))}

    def texts(self, number: int, output: Sequence[int]) -> tuple[str, list[str], list[str]]:
        """A text with its masked tokens shown as the mask, these tokens, and the predicted ones."""
        sample, tokenizer = self.samples[number], self.objective.tokenizer
        positions = labelled_positions(sample)
        source = list(sample.source)
        for position in positions:
            source[position] = tokenizer.mask or 0
        text = "".join(tokenizer.tokens(source[1:-1])).strip()
        return text, tokenizer.tokens([sample.labels[p] for p in positions]), tokenizer.tokens(output)

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        loss, outputs = self.predict(model, device)
        texts = [self.texts(number, tokens) for number, tokens in enumerate(outputs)]
        write_rows(path, (dict(zip(("source", "reference", "output"), each)) for each in texts))
        return self.scores(loss, outputs)


class SpanCorruptionEvaluation(MaskedEvaluation[SpanCorruption]):
    """Loss of the removed spans, and the share of texts of which every span is generated correctly."""

    def validate(
        self, model: Model, device: torch.device, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS
    ) -> Record:
        record: Record = {"loss": mean_loss(log_probabilities(model, self.samples, device, dist))}
        if not count:
            return record
        rows = dist.map_sharded(self.samples[:count], lambda part: self.generate(model, part, device))
        example = rows[pick % len(rows)]
        return record | {"accuracy": accuracy(rows)} | example_record(*(str(v) for v in example.values()))

    def generate(self, model: Model, samples: Sequence[Sample], device: torch.device) -> list[Record]:
        if isinstance(model, EncoderOnly):
            raise ValueError("an encoder-only model generates no text")
        tokenizer = self.objective.tokenizer
        sources = [Sample(source=sample.source) for sample in samples]
        results = decode(model, sources, Decode(beam=1), special_tokens(tokenizer), device)
        return [
            {
                "source": "".join(tokenizer.tokens(sample.source[:-1])).strip(),
                "reference": tokenizer.tokens(sample.labels[:-1]),
                "output": tokenizer.tokens(hypotheses[0].tokens),
            }
            for sample, hypotheses in zip(samples, results)
        ]

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        rows = self.generate(model, self.samples, device)
        write_rows(path, rows)
        loss = mean_loss(log_probabilities(model, self.samples, device))
        return {"loss": loss, "accuracy": accuracy(rows)}


def accuracy(rows: Sequence[Record]) -> float:
    return sum(bool(row["reference"] == row["output"]) for row in rows) / max(1, len(rows))
