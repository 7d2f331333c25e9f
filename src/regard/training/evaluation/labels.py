"""Labels of texts and of words: accuracy and F1 by scikit-learn and seqeval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.data.objectives import Classify, Tag, split_labels
from regard.generation import answers
from regard.generation.heads import label_probabilities, predicted_labels, predicted_tags
from regard.metrics.labels import classification_scores, tagging_scores
from regard.models import Model
from regard.sample import Example, Sample
from regard.training.evaluation.base import TOKENS_PER_BATCH, shown, write_rows
from regard.training.progress import Record


@dataclass(frozen=True)
class LabelEvaluation:
    objective: Classify
    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def samples(self) -> list[Sample]:
        texts = self.objective.tokenizer.encode_batch([example.source for example in self.examples])
        return [self.objective.eval_sample(ids, each.target) for ids, each in zip(texts, self.examples)]

    @property
    def references(self) -> list[list[str]]:
        return [split_labels(example.target) for example in self.examples]

    def validate(self, model: Model, device: torch.device, count: int, pick: int) -> Record:
        logits = self.logits(model, device)
        number = pick % len(self.examples)
        output = self.chosen(self.probabilities(logits[number]))
        one = shown(self.examples[number].source, ", ".join(self.references[number]), ", ".join(output))
        scores = self.scores(logits)
        return {name: scores[name] for name in ("loss", "accuracy", "f1")} | one

    def logits(self, model: Model, device: torch.device) -> Tensor:
        """[texts, labels]"""
        return torch.stack([each[0] for each in answers(model, self.samples, TOKENS_PER_BATCH, device)])

    def probabilities(self, logits: Tensor) -> Tensor:
        return label_probabilities(logits, self.objective.many)

    def scores(self, logits: Tensor) -> Record:
        gold = torch.tensor([sample.labels for sample in self.samples])
        if self.objective.many:
            loss = F.binary_cross_entropy_with_logits(logits, gold.float())
        else:
            known = gold[:, 0] >= 0
            loss = F.cross_entropy(logits[known], gold[known, 0]) if bool(known.any()) else torch.zeros(())
        outputs = [self.chosen(each) for each in self.probabilities(logits)]
        found = classification_scores(self.references, outputs, self.objective.labels, self.objective.many)
        return {"loss": float(loss), **found}

    def chosen(self, probabilities: Tensor) -> list[str]:
        return predicted_labels(probabilities, self.objective.labels, self.objective.many)

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        logits = self.logits(model, device)
        rows = (
            {
                "source": example.source,
                "reference": reference,
                "output": self.chosen(own),
                "probabilities": dict(zip(self.objective.labels, own.tolist())),
            }
            for example, reference, own in zip(self.examples, self.references, self.probabilities(logits))
        )
        write_rows(path, rows)
        return self.scores(logits)


@dataclass(frozen=True)
class TagEvaluation:
    objective: Tag
    examples: Sequence[Example]

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def cut(self) -> list[tuple[list[int], list[int | None]]]:
        return [self.objective.encode_words(example.source.split(" ")) for example in self.examples]

    @property
    def references(self) -> list[list[str]]:
        return [example.target.split(" ") for example in self.examples]

    def validate(self, model: Model, device: torch.device, count: int, pick: int) -> Record:
        loss, outputs = self.outputs(model, device)
        found = tagging_scores(self.references, outputs)
        number = pick % len(self.examples)
        one = shown(self.examples[number].source, self.examples[number].target, " ".join(outputs[number]))
        return {"loss": loss, "f1": found["f1"], "accuracy": found["accuracy"]} | one

    def outputs(self, model: Model, device: torch.device) -> tuple[float, list[list[str]]]:
        samples = [self.objective.text(ids) for ids, _ in self.cut]
        found = answers(model, samples, TOKENS_PER_BATCH, device)
        total, count = 0.0, 0
        outputs = []
        for logits, (_, first), tags in zip(found, self.cut, self.references):
            outputs.append(predicted_tags(logits, first, self.objective.labels))
            log_p = logits.log_softmax(dim=-1)
            for place, tag in zip(first, tags):
                if place is not None and tag in self.objective.number:
                    total -= float(log_p[place + 1, self.objective.number[tag]])
                    count += 1
        return total / max(1, count), outputs

    def final(self, model: Model, device: torch.device, path: Path) -> Record:
        loss, outputs = self.outputs(model, device)
        rows = (
            {"source": example.source.split(" "), "reference": reference, "output": output}
            for example, reference, output in zip(self.examples, self.references, outputs)
        )
        write_rows(path, rows)
        return {"loss": loss, **tagging_scores(self.references, outputs)}
