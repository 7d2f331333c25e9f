"""The choices of a traced run: a token of the vocabulary, a label, or a position, by number or text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.interpret.activations import Activations, visible
from regard.interpret.interventions import TensorEdit
from regard.interpret.predictions import choice_logits, choice_texts
from regard.models.families import Model
from regard.sample import Sample


@dataclass(frozen=True)
class TracedRun:
    """What a trace keeps of its run, so that more can be computed: not part of its file."""

    open_model: Callable[[], Model]  # with plain weights
    sample: Sample
    edits: Sequence[TensorEdit] = ()
    tokenizer: Tokenizer | None = None  # of the output; None: labels or positions

    @cached_property
    def model(self) -> Model:
        return self.open_model()


@dataclass(frozen=True)
class RunActivations(Activations):
    """Activations, and the run that they are of."""

    run: TracedRun | None = field(default=None, repr=False, compare=False)  # None: read from a file


def traced_run(trace: RunActivations) -> TracedRun:
    if trace.run is None:
        raise UsageError(
            "this needs the model; a trace that was read from a file has numbers only: trace again"
        )
    return trace.run


def texts_of(trace: RunActivations, numbers: list[int]) -> dict[int, str]:
    """The texts of choices, of tokens that are not in the trace too."""
    tokenizer = traced_run(trace).tokenizer
    if tokenizer is None:
        return dict(zip(numbers, choice_texts(trace, trace, numbers)))
    return dict(zip(numbers, (visible(text) for text in tokenizer.tokens(numbers))))


def choice_number(trace: RunActivations, step: int, choice: int | str | None) -> int:
    """The number of a choice at a step: of its text the most probable one; default: what was chosen."""
    rows = choice_logits(trace)
    if not 0 <= step < len(rows):
        raise UsageError(f"step = {step}: this run has {len(rows)} steps, from 0 on")
    logits = rows[step]
    if choice is None:
        return chosen(trace, step)
    if isinstance(choice, str):
        return number_of_text(trace, logits, choice)
    if not 0 <= choice < len(logits):
        raise UsageError(f"token = {choice}: there are {len(logits)} choices, from 0 on")
    return choice


def chosen(trace: RunActivations, step: int) -> int:
    """The choice that was made at a step, else the most probable one."""
    if "output" in trace.tokens:
        return trace.tokens["output"].ids[step]
    made: dict[int, int] = dict(trace.meta.get("chosen", ()))
    if trace.meta.get("head") == "span":
        made = {end: place for place, end in trace.meta.get("chosen", ())}
    return made.get(step, int(choice_logits(trace)[step].argmax()))


def number_of_text(trace: RunActivations, logits: Tensor, text: str) -> int:
    tokenizer = traced_run(trace).tokenizer
    if tokenizer is None:
        texts = dict(enumerate(choice_texts(trace, trace, list(range(len(logits))))))
    else:
        ids = {*trace.vocabulary, *tokenizer.encode_inside(text), *tokenizer.encode_inside(f" {text}")}
        numbers = sorted(each for each in ids if each < len(logits))
        texts = dict(zip(numbers, tokenizer.tokens(numbers)))
    same = [number for number, each in texts.items() if each.strip(" ") == text.strip(" ")]
    if not same:
        raise UsageError(f'"{text}" is not one of the choices: a word of several tokens has none of its own')
    return max(same, key=lambda number: float(logits[number]))


def default_step(trace: RunActivations) -> int:
    """The first step at which the model chose something."""
    if "output" in trace.tokens:
        return max(0, int(trace.meta.get("prompt", 0)) - 1)
    is_span = trace.meta.get("head") == "span"
    return 0 if is_span else min((place for place, _ in trace.meta.get("chosen", ())), default=0)


def runner_up(trace: RunActivations, step: int, number: int) -> int:
    """The most probable choice but this one."""
    logits = choice_logits(trace)[step].clone()
    logits[number] = -torch.inf
    return int(logits.argmax())
