"""From a run's task to what its model is asked and how it is judged."""

from __future__ import annotations

from collections.abc import Sequence

from regard.config import Config, Model, Task
from regard.data import Objective
from regard.data.objectives import CausalLM, Classify, ExtractiveQA, MaskedLM, Seq2Seq, SpanCorruption, Tag
from regard.inputs.text import Tokenizer
from regard.sample import Example
from regard.training.evaluation.answers import AnswerEvaluation
from regard.training.evaluation.base import Evaluation
from regard.training.evaluation.labels import LabelEvaluation, TagEvaluation
from regard.training.evaluation.language import (
    ContinuationEvaluation,
    HiddenSpansEvaluation,
    HiddenWordsEvaluation,
)
from regard.training.evaluation.translation import TranslationEvaluation


def make_objective(
    task: Task, model: Model, source: Tokenizer, target: Tokenizer, labels: Sequence[str] = ()
) -> Objective:
    longest = model.max_length
    match task.name:
        case "translate":
            return Seq2Seq(source, target, longest)
        case "generate":
            return CausalLM(source, longest)
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
    match objective:
        case Seq2Seq():
            return TranslationEvaluation(config, objective, examples)
        case CausalLM():
            return ContinuationEvaluation(objective, examples)
        case SpanCorruption():
            return HiddenSpansEvaluation(objective, examples)
        case MaskedLM():
            return HiddenWordsEvaluation(objective, examples)
        case Classify():
            return LabelEvaluation(objective, examples)
        case Tag():
            return TagEvaluation(objective, examples)
        case ExtractiveQA():
            return AnswerEvaluation(objective, examples, config.task.longest_answer, may_refuse)
    raise ValueError(f"no evaluation for {type(objective).__name__}")
