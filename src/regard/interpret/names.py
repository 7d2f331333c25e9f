"""The names of the tensors in a trace, and the model parts they belong to.

`#` is the number of a layer, from 0. Shapes: S source tokens, T target tokens, D width, H heads, G heads of
keys and values (H unless they are shared), C channels per head, R rotated pairs of them, F feed-forward,
N layers and the embedding, K best tokens, E width of one RNN direction, P*D the whole state of a cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from regard.errors import UsageError, near_miss
from regard.models.attention import MultiHeadAttention
from regard.models.encoder import EncoderOnly
from regard.models.families import Model
from regard.models.positions import Learned, Sinusoidal
from regard.models.recurrent import RecurrentEncoderDecoder
from regard.models.transformer import EncoderDecoder, Stack
from regard.resources import read_data


@dataclass(frozen=True)
class TensorName:
    pattern: str
    shape: str  # letters with spaces between
    meaning: str

    @property
    def rank(self) -> int:
        return len(self.shape.split())


TENSORS: Mapping[str, Mapping[str, tuple[str, str]]] = read_data("trace")["tensors"]
GATES: Mapping[str, str] = read_data("trace")["gates"]


def _stack(side: str, size: str) -> Iterator[TensorName]:
    for name, (shape, meaning) in TENSORS["embedding"].items():
        yield TensorName(f"{side}.embedding.{name}", shape.replace("Q", size), meaning)
    meaning = "T5, ALiBi: added to the scores for a distance"
    yield TensorName(f"{side}.positions.bias", f"H {size} {size}", meaning)
    kinds = [("self", size, size)]
    if side == "encoder":
        yield TensorName("encoder.embedding.segments", "S D", "BERT: embedding of the first or second text")
    else:
        kinds.append(("cross", "T", "S"))
        for name in ("cosine", "sine"):
            meaning = f"rotary positions (Llama): {name} of each pair's angle"
            yield TensorName(f"decoder.positions.{name}", "T R", meaning)
        for name, (shape, meaning) in TENSORS["ssru"].items():
            yield TensorName(f"decoder.#.self.{name}", shape, f"SSRU: {meaning}")
    for kind, queries, keys in kinds:
        for name, (shape, meaning) in TENSORS["attention"].items():
            letters = shape.replace("Q", queries).replace("L", keys)
            yield TensorName(f"{side}.#.{kind}.{name}", letters, meaning)
        yield TensorName(f"{side}.#.after_{kind}", f"{size} D", f"the residual stream after {kind}-attention")
    for name, (shape, meaning) in TENSORS["feed_forward"].items():
        yield TensorName(f"{side}.#.feed_forward.{name}", shape.replace("Q", size), meaning)
    yield TensorName(f"{side}.#.out", f"{size} D", "the residual stream after the layer")
    yield TensorName(f"{side}.out", f"{size} D", "after the last layer and, with pre-norm, the final norm")


def _recurrent() -> Iterator[TensorName]:
    for side, size in (("encoder", "S"), ("decoder", "T")):
        yield TensorName(f"{side}.embedding", f"{size} D", "RNN: the embedding of each token")
    for gate, meaning in GATES.items():
        for direction in ("forward", "backward"):
            yield TensorName(f"encoder.#.{direction}.{gate}", "S E", f"{meaning}; {direction} direction")
        yield TensorName(f"decoder.#.{gate}", "T D", meaning)
    yield TensorName("encoder.#.hidden", "S D", "RNN: the hidden states of a layer, both directions joined")
    yield TensorName("decoder.first", "L P", "RNN: the decoder's initial state, layer by layer")
    for name, (shape, meaning) in TENSORS["bahdanau"].items():
        yield TensorName(f"decoder.cross.{name}", shape, f"Bahdanau: {meaning}")


TABLE: tuple[TensorName, ...] = (
    *_stack("encoder", "S"),
    *_stack("decoder", "T"),
    *_recurrent(),
    TensorName("head", "O D", "BERT: the task head's transform of each token, or of the first one"),
    TensorName("logits", "O A", "one logit for each token of the vocabulary, label, or end of an answer"),
    TensorName("lens.ids", "N Q K", "logit lens: the best tokens, from the residual stream at each depth"),
    TensorName("lens.probabilities", "N Q K", "and their probabilities"),
)
PATTERNS: Mapping[str, TensorName] = {name.pattern: name for name in TABLE}
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


@cache
def lookup(name: str) -> TensorName | None:
    """The table's row for a tensor."""
    return PATTERNS.get(_NUMBER.sub("#", name))


def near_name(name: object) -> str:
    """A hint for a name that is not in the table."""
    return near_miss(_NUMBER.sub("#", str(name)), PATTERNS)


def check_shapes(shapes: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]) -> None:
    """Every name must be in the table, and a letter must mean one size in the whole trace.

    `sizes` are the letters whose size the tokens determine: S and T.
    """
    letters = dict(sizes)
    for name, shape in shapes.items():
        row = lookup(name)
        if row is None:
            raise UsageError(f'"{name}" is not the name of a traced tensor')
        if len(shape) != row.rank:
            raise UsageError(f"{name} has {len(shape)} dimensions, not {row.rank} ({row.shape})")
        for letter, size in zip(row.shape.split(), shape):
            expected = 1 if letter == "1" else letters.setdefault(letter, size)
            if size != expected:
                raise UsageError(f"{name}: {letter} is {size}, but {expected} elsewhere in the trace")


# The parts of a model by these names


@dataclass(frozen=True)
class AttentionShape:
    heads: int
    channels: int
    scale: float | None  # factor of the products q . k; None: they are not scaled


def stacks(model: Model) -> dict[str, Stack]:
    """`encoder` and `decoder`, as far as the model has them; an RNN has neither."""
    if isinstance(model, RecurrentEncoderDecoder):
        return {}
    if isinstance(model, EncoderOnly):
        return {"encoder": model.encoder}
    if isinstance(model, EncoderDecoder):
        return {"encoder": model.encoder, "decoder": model.decoder}
    return {"decoder": model.decoder}


def attentions(model: Model) -> dict[str, MultiHeadAttention]:
    """By name: `encoder.0.self`, `decoder.3.cross`."""
    modules: dict[str, MultiHeadAttention] = {}
    for side, stack in stacks(model).items():
        for number, block in enumerate(stack):
            if isinstance(block.attention, MultiHeadAttention):
                modules[f"{side}.{number}.self"] = block.attention
            if block.cross is not None:
                modules[f"{side}.{number}.cross"] = block.cross
    return modules


def attention_shapes(model: Model) -> dict[str, AttentionShape]:
    """All attentions; Bahdanau's is `decoder.cross`, with one head."""
    if isinstance(model, RecurrentEncoderDecoder):
        return {} if model.decoder.score is None else {"decoder.cross": AttentionShape(1, 1, None)}
    return {
        name: AttentionShape(each.heads, each.channels, each.channels**-0.5 if each.scale is None else None)
        for name, each in attentions(model).items()
    }


def has_positions(model: Model) -> bool:
    return any(
        isinstance(module, Sinusoidal | Learned)
        or (isinstance(module, Stack) and module.positions is not None)
        for module in model.modules()
    )


def causal_side(model: Model) -> str | None:
    """The stack with a causal mask."""
    return "decoder" if "decoder" in stacks(model) else None


def output_weight(attention: MultiHeadAttention) -> Tensor:
    """W_O as [H*C,D]."""
    return weight_and_bias(attention.output, attention.heads * attention.channels)[0]


@torch.no_grad()
def weight_and_bias(linear: nn.Module, width: int) -> tuple[Tensor, Tensor | None]:
    """W [in,out] and b of y = x W + b; of a packed layer, without a plain weight, W = y(identity) - b."""
    if isinstance(linear, nn.Linear):
        return linear.weight.detach().T, None if linear.bias is None else linear.bias.detach()
    bias: Tensor = linear(torch.zeros(1, width))
    return linear(torch.eye(width)) - bias, bias[0]


def unembedding(model: Model) -> tuple[str, Callable[[Tensor], Tensor]]:
    """The side whose residual stream becomes logits, and the map: final norm and output layer."""
    if isinstance(model, RecurrentEncoderDecoder):
        raise UsageError("a recurrent model has no residual stream")
    if not isinstance(model, EncoderOnly):
        return "decoder", lambda x: model.output(model.decoder.final_norm(x))
    return "encoder", lambda x: model.output(model.head(model.encoder.final_norm(x)))
