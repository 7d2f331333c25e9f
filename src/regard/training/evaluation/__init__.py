"""Evaluation on held-out text, one class a task; the trainer calls `validate` and `final`.

Modules are imported for the task at hand only: sacreBLEU, scikit-learn and seqeval are slow to import.
"""

from __future__ import annotations

from collections.abc import Sequence

from regard.compat import VERSION
from regard.config import Config, Model, Task
from regard.data import Objective
from regard.data.objectives import CausalLM, Classify, ExtractiveQA, MaskedLM, Seq2Seq, SpanCorruption, Tag
from regard.inputs.text import Tokenizer
from regard.sample import Example
from regard.training.evaluation.base import FILES, Evaluation

__all__ = ["FILES", "Evaluation", "make_evaluation", "make_objective"]


def make_objective(
    task: Task,
    model: Model,
    source: Tokenizer,
    target: Tokenizer,
    labels: Sequence[str] = (),
    version: int = VERSION,
) -> Objective:
    longest = model.max_length
    match task.name:
        case "translate":
            return Seq2Seq(source, target, longest)
        case "generate":
            return CausalLM(source, longest, across_rows=version > 1)
        case "fill" if model.family == "t5":
            return SpanCorruption(source, longest, task.mask_rate, mean_span=task.mean_span)
        case "fill":
            return MaskedLM(source, longest, task.mask_rate, whole_words=task.whole_words)
        case "classify":
            return Classify(source, longest, labels, task.multi_label)
        case "tag":
            return Tag(source, longest, labels)
        case "answer":
            return ExtractiveQA(source, longest, task.stride)


def make_evaluation(
    config: Config, objective: Objective, examples: Sequence[Example], may_refuse: bool = False
) -> Evaluation:
    """`may_refuse`: some training questions have no answer."""
    if isinstance(objective, Seq2Seq):
        from regard.training.evaluation.translation import TranslationEvaluation

        return TranslationEvaluation(config, objective, examples)
    if isinstance(objective, Classify | Tag | ExtractiveQA):
        from regard.training.evaluation.labels import AnswerEvaluation, LabelEvaluation, TagEvaluation

        if isinstance(objective, ExtractiveQA):
            return AnswerEvaluation(objective, examples, config.task.longest_answer, may_refuse)
        return (
            LabelEvaluation(objective, examples)
            if isinstance(objective, Classify)
            else TagEvaluation(objective, examples)
        )
    from regard.training.evaluation import language

    match objective:
        case CausalLM():
            return language.CausalLMEvaluation(objective, examples)
        case SpanCorruption():
            return language.SpanCorruptionEvaluation(objective, examples)
        case MaskedLM():
            return language.MaskedLMEvaluation(objective, examples)
    raise ValueError(f"no evaluation for {type(objective).__name__}")
