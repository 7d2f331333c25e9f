"""Text about pictures and sounds: error rates of transcriptions, sacreBLEU's scores of captions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from regard.config import Config, Decode
from regard.data.objectives.frames import FramesToText
from regard.data.readers import PROMPT_SEPARATOR
from regard.generation import Hypothesis
from regard.metrics.bleu import bleu_tokenization, text_scores
from regard.metrics.words import error_rates
from regard.models.families import Model
from regard.sample import Sample
from regard.training.distributed import SingleProcess
from regard.training.evaluation import (
    SINGLE_PROCESS,
    Evaluation,
    Scored,
    best_hypotheses,
    log_probabilities,
    mean_loss,
)
from regard.training.progress import Record

GREEDY = Decode(beam=1)


@dataclass(frozen=True)
class FramesToTextEvaluation(Evaluation):
    objective: FramesToText
    config: Config

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(self.examples)

    @property
    def references(self) -> list[str]:
        return [example.target.rpartition(PROMPT_SEPARATOR)[2] for example in self.examples]

    def scores(self, texts: Sequence[str], references: Sequence[str]) -> Record:
        exact = sum(text == reference for text, reference in zip(texts, references)) / max(1, len(texts))
        if self.config.task.name == "transcribe":
            return {**error_rates(references, texts), "exact": exact}
        tokenize = bleu_tokenization(self.config.train.bleu_tokenize, self.config.task.target)
        return {**asdict(text_scores(list(texts), list(references), tokenize)), "exact": exact}

    def validate(self, model: Model, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS) -> Record:
        """Loss on all rows; scores of greedy texts of the first `count`."""
        record: Record = {"loss": mean_loss(log_probabilities(model, self.samples, dist))}
        if not count:
            return record
        texts = dist.map_sharded(
            self.samples[:count], lambda part: self.texts(self.best(model, part, GREEDY))
        )
        record |= self.scores(texts, self.references[:count])
        number = pick % len(texts)
        row = {"source": self.examples[number].source, "reference": self.references[number]}
        return record | self.example({**row, "output": texts[number]})

    def run(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        """Decoded with the settings of `[decode]`, in this process."""
        best = self.best(model, self.samples, self.config.decode)
        texts = self.texts(best)
        loss = mean_loss(log_probabilities(model, self.samples))
        rows: list[Record] = [
            {
                "source": example.source,
                "reference": reference,
                "output": text,
                "log_probability": hypothesis.log_probability,
                "score": hypothesis.score,
            }
            for example, reference, text, hypothesis in zip(self.examples, self.references, texts, best)
        ]
        return {"loss": loss, **self.scores(texts, self.references)}, rows

    def best(self, model: Model, samples: Sequence[Sample], options: Decode) -> list[Hypothesis]:
        """The output begins with the question of each sample, which has no labels."""
        prefixes = [sample.target[1 : 1 + prompt_length(sample)] for sample in samples]
        sources = [sample.source for sample in samples]
        best = best_hypotheses(model, sources, options, self.objective.target, prefixes)
        return [replace(each, tokens=each.tokens[len(prefix) :]) for each, prefix in zip(best, prefixes)]

    def texts(self, best: Sequence[Hypothesis]) -> list[str]:
        return [self.objective.target.decode(hypothesis.tokens) for hypothesis in best]


def prompt_length(sample: Sample) -> int:
    return sum(label < 0 for label in sample.labels)
