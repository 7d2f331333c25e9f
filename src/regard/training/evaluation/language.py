"""Running text: causal language models (perplexity), masked tokens (BERT) and corrupted spans (T5)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from regard.config import Decode
from regard.data.objectives import CausalLM, MaskedLM, SpanCorruption
from regard.data.readers import RawRow
from regard.generation.score import TOKENS_PER_BATCH, map_logits
from regard.inputs.text import Tokenizer
from regard.metrics import perplexity_scores
from regard.models.families import Model
from regard.sample import Example, Sample
from regard.training.distributed import SingleProcess
from regard.training.evaluation import (
    SINGLE_PROCESS,
    Evaluation,
    Scored,
    best_hypotheses,
    device_of,
    labelled_positions,
    log_probabilities,
    mean_loss,
)
from regard.training.progress import Record

PROMPT_TOKENS, NEW_TOKENS = 32, 100  # of a continuation that is shown
CONTINUATIONS = 20  # written at the end of a run
SAMPLING = Decode(beam=1, sample=True, temperature=0.8, max_length=NEW_TOKENS)


def as_rows(examples: Sequence[Example]) -> list[RawRow]:
    return [(number, each.source, each.target) for number, each in enumerate(examples, start=1)]


class CausalLMEvaluation(Evaluation):
    """Loss over all of the text in consecutive windows; perplexity and bits per byte follow from it."""

    objective: CausalLM

    def __len__(self) -> int:
        """Documents."""
        return sum(not example.target for example in self.examples)

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(as_rows(self.examples))

    def validate(self, model: Model, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS) -> Record:
        record = self.scores(model, dist)
        if not count:
            return record
        prompts = self.prompts(pick + 1)
        (row,) = self.continuations(model, [prompts[pick % max(1, len(prompts))]])
        return record | self.example({**row, "reference": ""})

    def run(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        rows = self.continuations(model, self.prompts(CONTINUATIONS))
        return self.scores(model, dist), rows

    def scores(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Record:
        log_p = log_probabilities(model, self.samples, dist)
        total, tokens = sum(sum(row) for row in log_p), sum(len(row) for row in log_p)
        size = sum(len(example.source.encode()) for example in self.examples)
        return {"loss": -total / max(1, tokens), **perplexity_scores(total, tokens, size)}

    def prompts(self, count: int) -> list[list[int]]:
        """The first tokens of `count` texts, evenly spread."""
        size = min(PROMPT_TOKENS, max(1, self.objective.window // 2))
        every = max(1, len(self.samples) // count)
        chosen = self.samples[::every][:count]
        return [first_text(sample)[:size] for sample in chosen]

    def continuations(self, model: Model, prompts: Sequence[Sequence[int]]) -> list[Record]:
        tokenizer = self.objective.tokenizer
        best = best_hypotheses(model, prompts, SAMPLING, tokenizer)
        return [
            {"source": tokenizer.decode(ids), "output": continuation_text(tokenizer, ids, each.tokens)}
            for ids, each in zip(prompts, best)
        ]


def first_text(sample: Sample) -> list[int]:
    """Tokens of the first document in a window."""
    tokens = [token for token, document in zip(sample.target, sample.documents) if not document]
    return tokens or list(sample.target)


def continuation_text(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The text that tokens add to a prompt, with the space between them if there is one."""
    before, full = tokenizer.decode(prompt), tokenizer.decode([*prompt, *tokens])
    return full[len(before) :] if full.startswith(before) else tokenizer.decode(tokens)


class MaskedEvaluation(Evaluation):
    """Texts with the same masked tokens at every validation."""

    objective: MaskedLM | SpanCorruption

    def __len__(self) -> int:
        return len(self.samples)

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(as_rows(self.examples))


class MaskedLMEvaluation(MaskedEvaluation):
    """Loss and accuracy at the masked positions."""

    validated = ("loss", "accuracy")

    def run(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        loss, outputs = self.predict(model, dist)
        gold = [sample.labels[position] for sample in self.samples for position in labelled_positions(sample)]
        right = sum(label == token for label, token in zip(gold, (t for row in outputs for t in row)))
        rows = [self.row(number, tokens) for number, tokens in enumerate(outputs)]
        return {"loss": loss, "accuracy": right / max(1, len(gold))}, rows

    def predict(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> tuple[float, list[list[int]]]:
        """Mean loss, and the most probable token at each masked position of each sample."""

        def predict(samples: Sequence[Sample]) -> list[tuple[float, list[int]]]:
            def masked_only(number: int, logits: Tensor) -> tuple[float, list[int]]:
                positions = labelled_positions(samples[number])
                masked = logits[positions]  # [M,V]: the rest of [S,V] is not kept
                gold = torch.tensor([samples[number].labels[position] for position in positions])
                loss = torch.nn.functional.cross_entropy(masked, gold, reduction="sum")
                return float(loss), masked.argmax(dim=1).tolist()

            return map_logits(model, samples, masked_only, TOKENS_PER_BATCH, device_of(model))

        results = dist.map_sharded(self.samples, predict)
        total, count = sum(loss for loss, _ in results), sum(len(tokens) for _, tokens in results)
        return total / max(1, count), [tokens for _, tokens in results]

    def row(self, number: int, output: Sequence[int]) -> Record:
        """A text with its masked tokens shown as the mask, these tokens, and the predicted ones."""
        sample, tokenizer = self.samples[number], self.objective.tokenizer
        positions = labelled_positions(sample)
        source = list(sample.source)
        for position in positions:
            source[position] = tokenizer.mask or 0
        return {
            "source": "".join(tokenizer.tokens(source[1:-1])).strip(),
            "reference": tokenizer.tokens([sample.labels[position] for position in positions]),
            "output": tokenizer.tokens(output),
        }


class SpanCorruptionEvaluation(MaskedEvaluation):
    """Loss of the removed spans, and the share of texts of which every span is generated correctly."""

    def validate(self, model: Model, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS) -> Record:
        record: Record = {"loss": mean_loss(log_probabilities(model, self.samples, dist))}
        if not count:
            return record
        rows = dist.map_sharded(self.samples[:count], lambda part: self.generate(model, part))
        return record | {"accuracy": accuracy(rows)} | self.example(rows[pick % len(rows)])

    def run(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        rows = dist.map_sharded(self.samples, lambda part: self.generate(model, part))
        loss = mean_loss(log_probabilities(model, self.samples, dist))
        return {"loss": loss, "accuracy": accuracy(rows)}, rows

    def generate(self, model: Model, samples: Sequence[Sample]) -> list[Record]:
        tokenizer = self.objective.tokenizer
        best = best_hypotheses(model, (each.source_ids for each in samples), Decode(beam=1), tokenizer)
        return [
            {
                "source": "".join(tokenizer.tokens(sample.source_ids[:-1])).strip(),
                "reference": tokenizer.tokens(sample.labels[:-1]),
                "output": tokenizer.tokens(hypothesis.tokens),
            }
            for sample, hypothesis in zip(samples, best)
        ]


def accuracy(rows: Sequence[Record]) -> float:
    return sum(bool(row["reference"] == row["output"]) for row in rows) / max(1, len(rows))
