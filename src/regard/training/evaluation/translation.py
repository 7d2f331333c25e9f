"""Translations: loss per token, and scores of decoded text by sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from sacrebleu.metrics.chrf import CHRF

from regard.config import Config, Decode, Weighted
from regard.data.objectives import Seq2Seq
from regard.errors import RegardError
from regard.generation import Hypothesis, decode
from regard.generation.alignment import align
from regard.inputs.text import special_tokens
from regard.metrics.bleu import bleu_tokenization, bootstrap_intervals, text_scores
from regard.models import EncoderOnly, Model
from regard.sample import Example, Sample
from regard.training.evaluation.base import log_probabilities, mean_loss, shown, write_rows
from regard.training.parallel import crew
from regard.training.progress import Record

GREEDY = Decode(beam=1)


@dataclass(frozen=True)
class TranslationEvaluation:
    config: Config
    objective: Seq2Seq
    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def samples(self) -> list[Sample]:
        sources = self.objective.source.encode_batch([example.source for example in self.examples])
        targets = self.objective.target.encode_batch([example.target for example in self.examples])
        return [self.objective.sample(left, right) for left, right in zip(sources, targets)]

    @property
    def words(self) -> str:
        """sacreBLEU's tokenisation."""
        return bleu_tokenization(self.config.train.bleu_tokenize, self.config.task.target)

    def validate(self, model: Model, device: torch.device, count: int, pick: int) -> Record:
        """Loss on all pairs; BLEU and chrF of greedy translations of the first of them."""
        record: Record = {"loss": mean_loss(log_probabilities(model, self.samples, device))}
        examples = self.examples[:count]
        if not examples:
            return record
        texts = crew().divided(
            self.samples[:count],
            lambda own: [
                self.objective.target.decode(each.tokens) for each in self.best(model, own, GREEDY, device)
            ],
        )
        references = [example.target for example in examples]
        scores = text_scores(texts, references, self.words)
        exact = sum(text == reference for text, reference in zip(texts, references)) / len(texts)
        record |= {"bleu": scores.bleu, "chrf": scores.chrf, "exact": exact}
        number = pick % len(texts)
        one = shown(examples[number].source, references[number], texts[number])
        return record | {"signature": scores.bleu_signature} | one

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        """Decoded as `[decode]` says."""
        best = self.best(model, self.samples, self.config.decode, device)
        texts = [self.objective.target.decode(hypothesis.tokens) for hypothesis in best]
        self.write(path, model, best, texts)
        references = [example.target for example in self.examples]
        scores = text_scores(texts, references, self.words)
        around = bootstrap_intervals(texts, references, self.words)
        parts = self.by_prefix(texts)
        return {
            **({"by_prefix": parts} if parts else {}),
            "loss": mean_loss(log_probabilities(model, self.samples, device)),
            "bleu": scores.bleu,
            "chrf": scores.chrf,
            "exact": sum(text == reference for text, reference in zip(texts, references)) / len(texts),
            "bleu_signature": scores.bleu_signature,
            "chrf_signature": scores.chrf_signature,
            "bleu_interval": around["bleu"],
            "chrf_interval": around["chrf"],
        }

    @property
    def prefixes(self) -> list[str]:
        """What a model of several tasks is told, the longest first."""
        listed = self.config.data.train if isinstance(self.config.data.train, list) else []
        own = {part.prefix for part in listed if isinstance(part, Weighted) and part.prefix}
        return sorted(own, key=lambda prefix: (-len(prefix), prefix))

    def by_prefix(self, texts: Sequence[str]) -> dict[str, Record]:
        """The scores of each task by itself, where there are several."""
        groups: dict[str, list[int]] = {}
        for number, example in enumerate(self.examples):
            prefix = next((each for each in self.prefixes if example.source.startswith(each)), "")
            groups.setdefault(prefix, []).append(number)
        if list(groups) == [""]:
            return {}
        found = {}
        for prefix, numbers in groups.items():
            own = [(texts[number], self.examples[number].target) for number in numbers]
            outputs, references = [pair[0] for pair in own], [pair[1] for pair in own]
            exact = sum(one == two for one, two in own) / len(own)
            bleu = text_scores(outputs, references, self.words).bleu
            found[prefix] = {"sentences": len(own), "bleu": bleu, "exact": exact}
        return found

    def best(
        self, model: Model, samples: Sequence[Sample], options: Decode, device: torch.device
    ) -> list[Hypothesis]:
        """The best hypothesis of each sample."""
        if isinstance(model, EncoderOnly):
            raise ValueError("an encoder alone writes nothing")
        sources = [Sample(source=sample.source) for sample in samples]
        found = decode(model, sources, options, special_tokens(self.objective.target), device)
        if not all(found):  # a model that diverged gives no probabilities, and so says nothing
            raise RegardError(
                "the model gives no probabilities any more, so that nothing can be decoded; begin a run "
                "with a lower train.lr or a longer train.warmup"
            )
        return [hypotheses[0] for hypotheses in found]

    def write(self, path: Path, model: Model, best: Sequence[Hypothesis], texts: Sequence[str]) -> None:
        chrf = CHRF()
        pairs = [(s.source[:-1], hypothesis.tokens) for s, hypothesis in zip(self.samples, best)]
        blind = model.alignment is None  # it never looks back
        aligned = (
            [[] for _ in pairs]
            if blind
            else align([model], pairs, self.objective.source, self.objective.target)
        )
        rows = (
            {
                "source": example.source,
                "reference": example.target,
                "output": text,
                "chrf": round(chrf.sentence_score(text, [example.target]).score, 4),
                "log_probability": hypothesis.log_probability,
                "score": hypothesis.score,
                "alignment": own,
            }
            for example, hypothesis, text, own in zip(self.examples, best, texts, aligned)
        )
        write_rows(path, rows)
