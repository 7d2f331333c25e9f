"""Translation: loss per token, and sacreBLEU's scores of decoded text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from sacrebleu.metrics.chrf import CHRF

from regard.config import Config, Decode, Weighted
from regard.data.objectives import Seq2Seq
from regard.generation import Hypothesis
from regard.metrics.bleu import bleu_tokenization, bootstrap_intervals, text_scores
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
class TranslationEvaluation(Evaluation):
    objective: Seq2Seq
    config: Config

    @cached_property
    def samples(self) -> list[Sample]:
        return self.objective.eval_samples(self.examples)

    @property
    def references(self) -> list[str]:
        return [example.target for example in self.examples]

    @property
    def bleu_tokenize(self) -> str:
        """sacreBLEU's --tokenize."""
        return bleu_tokenization(self.config.train.bleu_tokenize, self.config.task.target)

    def validate(self, model: Model, count: int, pick: int, dist: SingleProcess = SINGLE_PROCESS) -> Record:
        """Loss on all pairs; BLEU and chrF of greedy translations of the first `count`."""
        record: Record = {"loss": mean_loss(log_probabilities(model, self.samples, dist))}
        references = self.references[:count]
        if not references:
            return record

        def translate(samples: Sequence[Sample]) -> list[str]:
            return [self.objective.target.decode(each.tokens) for each in self.best(model, samples, GREEDY)]

        texts = self.with_items(dist.map_sharded(self.samples[:count], translate))
        scores = text_scores(texts, references, self.bleu_tokenize)
        record |= {"bleu": scores.bleu, "chrf": scores.chrf, "exact": exact_share(texts, references)}
        number = pick % len(texts)
        row = {"source": self.examples[number].source, "reference": references[number]}
        return record | {"signature": scores.bleu_signature} | self.example({**row, "output": texts[number]})

    def run(self, model: Model, dist: SingleProcess = SINGLE_PROCESS) -> Scored:
        """Decoded with the settings of `[decode]`, in this process."""
        best = self.best(model, self.samples, self.config.decode)
        texts = self.with_items([self.objective.target.decode(hypothesis.tokens) for hypothesis in best])
        scores = text_scores(texts, self.references, self.bleu_tokenize)
        confidence = bootstrap_intervals(texts, self.references, self.bleu_tokenize)
        by_prefix = self.scores_by_prefix(texts)
        record = {
            **({"by_prefix": by_prefix} if by_prefix else {}),
            "loss": mean_loss(log_probabilities(model, self.samples)),
            **asdict(scores),
            "exact": exact_share(texts, self.references),
            "bleu_interval": confidence["bleu"],
            "chrf_interval": confidence["chrf"],
        }
        return record, self.rows(model, best, texts)

    def with_items(self, texts: Sequence[str]) -> list[str]:
        """Decoded texts of the first examples, with what their placeholder tokens stand for."""
        return [self.objective.unmasked(text, example.source) for text, example in zip(texts, self.examples)]

    @property
    def prefixes(self) -> list[str]:
        """The prefixes of a text-to-text mix of tasks, the longest first."""
        corpora = self.config.data.train if isinstance(self.config.data.train, list) else []
        prefixes = {part.prefix for part in corpora if isinstance(part, Weighted) and part.prefix}
        return sorted(prefixes, key=lambda prefix: (-len(prefix), prefix))

    def scores_by_prefix(self, texts: Sequence[str]) -> dict[str, Record]:
        """The scores of each task of a mix; {} if there is only one task."""
        groups: dict[str, list[int]] = {}
        for number, example in enumerate(self.examples):
            prefix = next((each for each in self.prefixes if example.source.startswith(each)), "")
            groups.setdefault(prefix, []).append(number)
        if list(groups) == [""]:
            return {}
        scores = {}
        for prefix, numbers in groups.items():
            outputs = [texts[number] for number in numbers]
            references = [self.examples[number].target for number in numbers]
            bleu = text_scores(outputs, references, self.bleu_tokenize).bleu
            exact = exact_share(outputs, references)
            scores[prefix] = {"sentences": len(numbers), "bleu": bleu, "exact": exact}
        return scores

    def best(self, model: Model, samples: Sequence[Sample], options: Decode) -> list[Hypothesis]:
        return best_hypotheses(model, (each.source for each in samples), options, self.objective.target)

    def rows(self, model: Model, best: Sequence[Hypothesis], texts: Sequence[str]) -> list[Record]:
        from regard.generation.alignment import align

        chrf = CHRF()
        source = self.objective.source
        first, behind = len(source.before), len(source.after)
        pairs = [
            (each.source_ids[first : len(each.source_ids) - behind], hypothesis.tokens)
            for each, hypothesis in zip(self.samples, best)
        ]
        alignments: list[list[tuple[int, int]]] = [[] for _ in pairs]  # a model without attention has none
        if model.alignment is not None:
            alignments = align([model], pairs, self.objective.source, self.objective.target)
        return [
            {
                "source": example.source,
                "reference": example.target,
                "output": text,
                "chrf": round(chrf.sentence_score(text, [example.target]).score, 4),
                "log_probability": hypothesis.log_probability,
                "score": hypothesis.score,
                "alignment": alignment,
            }
            for example, hypothesis, text, alignment in zip(self.examples, best, texts, alignments)
        ]


def exact_share(texts: Sequence[str], references: Sequence[str]) -> float:
    return sum(text == reference for text, reference in zip(texts, references)) / len(texts)
