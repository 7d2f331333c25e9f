"""Direct logit attribution: a logit as the sum of what each part of the model adds.

The residual stream is a sum, and a norm is linear but for the scale, which is the run's: with it as a
constant every part of the sum has a share in the logit, and the shares add up to the logit. What a part does
by way of later parts counts as theirs. Shapes: D width, H heads, C channels per head, N parts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from regard.errors import UsageError
from regard.interpret.choices import RunActivations, choice_number, texts_of, traced_run
from regard.interpret.names import stacks, weight_and_bias
from regard.interpret.predictions import choice_logits, choice_texts
from regard.models.attention import MultiHeadAttention
from regard.models.encoder import EncoderOnly, SentenceHead, WordHead
from regard.models.families import Model
from regard.models.layers import PreNorm, RMSNorm, Scale
from regard.models.transformer import Stack

PROPOSALS = 5  # best tokens of a part
EMBEDDING = ("tokens", "positions", "segments")


@dataclass(frozen=True)
class Contribution:
    """What one part adds to a logit, or to the difference of two."""

    name: str  # a tensor of the trace, or with .bias what is added whatever the text
    head: int | None
    value: float
    proposals: tuple[tuple[str, float], ...] = ()  # the tokens whose logits it raises most


@dataclass(frozen=True)
class Contributions:
    """The parts of a logit, or of logit(token) - logit(against), in the order of the run."""

    step: int
    text: str
    against: str | None
    total: float  # of the run
    parts: tuple[Contribution, ...]

    @property
    def rest(self) -> float:
        """What the parts do not explain: rounding, and interventions in the residual stream."""
        return self.total - sum(each.value for each in self.parts)

    def largest(self, count: int) -> list[Contribution]:
        return sorted(self.parts, key=lambda each: -abs(each.value))[:count]

    def by_layer(self) -> dict[str, float]:
        """The sum of each sub-layer, `decoder.2.cross`, with its heads and biases; and of the embedding."""
        sums: dict[str, float] = {}
        for part in self.parts:
            name = sub_layer(part.name)
            sums[name] = sums.get(name, 0.0) + part.value
        return sums


def sub_layer(name: str) -> str:
    """`decoder.2.cross.norm.bias` -> `decoder.2.cross`; `decoder.embedding.tokens` -> `decoder.embedding`."""
    fields = name.split(".")
    return ".".join(fields[: 3 if len(fields) > 1 and fields[1].isdigit() else 2])


# The sum


@dataclass
class Sum:
    """A vector as a sum of parts, in float64, which linear maps with constants keep a sum."""

    names: list[tuple[str, int | None]] = field(default_factory=list)
    vectors: list[Tensor] = field(default_factory=list)  # [D] each

    def add(self, name: str, vector: Tensor, head: int | None = None) -> None:
        self.names.append((name, head))
        self.vectors.append(vector.double())

    def add_heads(self, name: str, mixed: Tensor, attention: MultiHeadAttention) -> None:
        """concat(mixed) W_O + b = sum_h mixed_h W_O^h + b: [H,C]."""
        heads, channels = mixed.shape
        weight, bias = weight_and_bias(attention.output, heads * channels)
        proposals = torch.einsum(
            "hc,hcd->hd", mixed.double(), weight.cpu().double().view(heads, channels, -1)
        )
        for head, vector in enumerate(proposals):
            self.add(name, vector, head)
        if bias is not None:
            self.add(f"{name}.bias", bias.cpu())

    def through(self, module: nn.Module, x: Tensor, name: str) -> Tensor:
        """Map the parts of x as the module does, its scale being a constant; returns its output."""
        x = x.double()
        for linear, shift in linear_steps(module, x):
            stacked = linear(torch.stack(self.vectors))
            self.vectors = list(stacked)
            x = linear(x)
            if shift is not None:
                self.add(f"{name}.bias", shift)
                x = x + shift.double()
        return x

    def plus(self, other: Sum, factor: float) -> Sum:
        """This sum, and `factor` times another with the same parts."""
        vectors = [one + factor * two for one, two in zip(self.vectors, other.vectors, strict=True)]
        return Sum(self.names, vectors)


Linear64 = Callable[[Tensor], Tensor]


def linear_steps(module: nn.Module, x: Tensor) -> Iterator[tuple[Linear64, Tensor | None]]:
    """A module at x as linear maps, each with a shift after it: [D], float64."""

    def weight(parameter: Tensor | None) -> Tensor | float:
        return 1.0 if parameter is None else parameter.detach().cpu().double()

    match module:
        case nn.Identity() | nn.Dropout():
            return
        case nn.LayerNorm():  # g (x - mean(x)) / sigma + b
            factor = weight(module.weight) / (x.var(correction=0) + module.eps).sqrt()
            shift: Tensor | None = None if module.bias is None else module.bias.detach().cpu()
            yield lambda v: (v - v.mean(dim=-1, keepdim=True)) * factor, shift
        case RMSNorm():  # g x / rms(x)
            epsilon = torch.finfo(torch.float32).eps if module.eps is None else module.eps
            scale = weight(module.weight) / (x.square().mean() + epsilon).sqrt()
            yield lambda v: v * scale, None
        case Scale():
            yield lambda v: v * module.factor, None
        case nn.Sequential():
            for each in module:
                for linear, shift in linear_steps(each, x):
                    yield linear, shift
                    x = linear(x) if shift is None else linear(x) + shift.double()
        case WordHead() | SentenceHead():
            matrix, bias = weight_and_bias(module.dense, len(x))  # W x + b
            yield lambda v: v @ matrix.cpu().double(), None if bias is None else bias.cpu()
            u = x @ matrix.cpu().double() + (0.0 if bias is None else bias.cpu().double())
            gain = torch.where(u == 0, 0.0, module.activation(u) / torch.where(u == 0, 1.0, u))
            yield lambda v: v * gain, None  # act(u) = act(u) / u times u
            if isinstance(module, WordHead):
                yield from linear_steps(module.norm, module.activation(u))
        case _:
            raise UsageError(f"a {type(module).__name__} cannot be split into contributions")


def stream(trace: RunActivations, model: Model, side: str, position: int) -> Sum:
    """The parts of the residual stream of a position after the final norm."""
    stack, parts = stacks(model)[side], Sum()

    def row(name: str) -> Tensor:
        return trace[name][..., position, :]

    for name in EMBEDDING:
        if f"{side}.embedding.{name}" in trace:
            parts.add(f"{side}.embedding.{name}", row(f"{side}.embedding.{name}"))
    embedding = model.source if side == "encoder" else model.target
    if (norm := getattr(embedding, "norm", None)) is not None:  # BERT
        parts.through(norm, row(f"{side}.embedding.sum"), f"{side}.embedding.norm")
    for number, block in enumerate(stack):
        sub_layers = (
            ("self", block.attention, block.attention_residual),
            ("cross", block.cross, block.cross_residual),
            ("feed_forward", None, block.feed_forward_residual),
        )
        for kind, attention, residual in sub_layers:
            name = f"{side}.{number}.{kind}"
            if residual is None:  # no cross-attention
                continue
            if isinstance(attention, MultiHeadAttention):
                parts.add_heads(name, row(f"{name}.mixed"), attention)
            else:
                parts.add(name, row(f"{name}.output"))
            if not isinstance(residual, PreNorm):
                parts.through(residual.norm, row(f"{name}.sum"), f"{name}.norm")
    parts.through(stack.final_norm, row(last_stream(stack, side)), f"{side}.out")
    return parts


def last_stream(stack: Stack, side: str) -> str:
    return f"{side}.{len(stack) - 1}.out"


def output_sum(trace: RunActivations, model: Model, position: int) -> Sum:
    """The parts of what the output layer reads at a row of the logits."""
    if not isinstance(model, EncoderOnly):
        return stream(trace, model, "decoder", position)
    length = len(trace["encoder.out"])
    if model.pool is None:
        parts = stream(trace, model, "encoder", position)
    else:  # pooling is a weighted sum of positions
        shares = model.pool(torch.eye(length)[None], torch.ones(1, length, dtype=torch.bool))[0, 0]
        first, *rest = shares.nonzero()[:, 0].tolist()
        parts = stream(trace, model, "encoder", first)
        parts.vectors = [vector * float(shares[first]) for vector in parts.vectors]
        for place in rest:
            parts = parts.plus(stream(trace, model, "encoder", place), float(shares[place]))
    parts.through(model.head, torch.stack(parts.vectors).sum(dim=0), "head")
    return parts


# The contributions


def contributions(
    trace: RunActivations, step: int, token: int | str | None = None, against: int | str | None = None
) -> Contributions:
    run = traced_run(trace)
    if not stacks(run.model):
        raise UsageError(
            "a recurrent model has no residual stream, so its logits are no sums of contributions"
        )
    first = choice_number(trace, step, token)
    numbers = [first] if against is None else [first, choice_number(trace, step, against)]
    names, shares, values = shares_of(trace, step, numbers)
    texts = choice_texts(trace, trace, numbers)
    value = shares[0] - shares[1] if len(numbers) > 1 else shares[0]
    logits = choice_logits(trace)[step][numbers].double()
    total = float(logits[0] - logits[1] if len(numbers) > 1 else logits[0])
    parts = tuple(
        Contribution(name, head, float(each), proposals)
        for (name, head), each, proposals in zip(names, value, values, strict=True)
    )
    return Contributions(step, texts[0], texts[1] if len(texts) > 1 else None, total, parts)


Proposals = tuple[tuple[str, float], ...]


def shares_of(
    trace: RunActivations, step: int, numbers: Sequence[int]
) -> tuple[list[tuple[str, int | None]], Tensor, list[Proposals]]:
    """The parts, their shares in the logits of these choices at a step [K,N], and what each part proposes."""
    model = traced_run(trace).model
    is_span = trace.meta.get("head") == "span"  # a choice is a position, a step a column of the logits
    position = step if len(trace["logits"]) > 1 else 0
    weight, bias = weight_and_bias(model.output, len(trace[stream_name(trace)][0]))
    weight = weight.cpu().double()  # [D,V]
    sums = [output_sum(trace, model, number) for number in numbers] if is_span else []
    if not is_span:
        sums = [output_sum(trace, model, position)]
    columns = [step] * len(numbers) if is_span else list(numbers)
    rows = [
        torch.stack(sums[at if is_span else 0].vectors) @ weight[:, column]
        for at, column in enumerate(columns)
    ]
    shares, names = torch.stack(rows), list(sums[0].names)
    proposals: list[Proposals] = [()] * len(names)
    if not is_span:
        proposals = best_choices(trace, torch.stack(sums[0].vectors), weight)
    if bias is not None:
        shares = torch.cat([shares, bias.cpu().double()[columns][:, None]], dim=1)
        names.append(("output.bias", None))
        proposals = [*proposals, ()]
    return names, shares, proposals


def stream_name(trace: RunActivations) -> str:
    return "decoder.out" if "decoder.out" in trace else "encoder.out"


def best_choices(trace: RunActivations, vectors: Tensor, weight: Tensor) -> list[Proposals]:
    """The choices whose logits each part raises most: [N,D], [D,V]. What it adds to all alike is left out."""
    logits = vectors @ weight
    best = (logits - logits.mean(dim=1, keepdim=True)).topk(min(PROPOSALS, logits.shape[1]), dim=1)
    texts = texts_of(trace, sorted(set(best.indices.flatten().tolist())))
    return [
        tuple((texts[number], value) for number, value in zip(numbers, values))
        for numbers, values in zip(best.indices.tolist(), best.values.tolist())
    ]
