"""A model made ready for decoding: the same `start` and `step`, with weights packed once and a lean step.

Projections that read the same words become one product: queries, keys and values of self-attention, keys and
values of cross-attention. A step of one token goes straight through the packed parts, because for small
batches the calls in between cost more than the arithmetic. The text is the model's own; only the last bits of
numbers may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data import Batch
from regard.decode.kernels import can_pack
from regard.decode.options import NEVER
from regard.decode.packing import Packing, Reaches, choose_precision, pack_linears
from regard.model import EncoderDecoder, State, Writing
from regard.model.attention import MultiHeadAttention, cut
from regard.model.layers import FeedForward, PreNorm
from regard.model.state import Past
from regard.model.transformer import Block

Map = Callable[[Tensor], Tensor]


class PackedSelf(MultiHeadAttention):
    """Self-attention whose three projections are one product."""

    def __init__(self, attention: MultiHeadAttention, packing: Packing) -> None:
        nn.Module.__init__(self)
        self.heads, self.groups = attention.heads, attention.groups
        self.channels, self.scale = attention.channels, attention.scale
        self.all = packing(attention.query, attention.key, attention.value)
        self.output = packing(attention.output)  # type: ignore[assignment]

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (cut(part, self.heads) for part in self.all(x).chunk(3, dim=-1))
        return q, k, v


class PackedCross(MultiHeadAttention):
    """Cross-attention: the words' queries, and the source's keys and values as one product."""

    def __init__(self, attention: MultiHeadAttention, packing: Packing) -> None:
        nn.Module.__init__(self)
        self.heads, self.groups = attention.heads, attention.groups
        self.channels, self.scale = attention.channels, attention.scale
        self.query = packing(attention.query)  # type: ignore[assignment]
        self.key_value = packing(attention.key, attention.value)
        self.output = packing(attention.output)  # type: ignore[assignment]

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (cut(part, self.heads) for part in self.key_value(x).chunk(2, dim=-1))
        return k, v


def pack_model(model: EncoderDecoder, packing: Packing) -> None:
    """Pack all weights in place: the model can be used from now on, not trained or saved."""
    for stack in (model.encoder, model.decoder):
        for block in stack:
            block.attention = PackedSelf(block.attention, packing)
            if block.cross is not None:
                block.cross = PackedCross(block.cross, packing)
            block.feed_forward.widen = packing(block.feed_forward.widen)  # type: ignore[assignment]
            block.feed_forward.narrow = packing(block.feed_forward.narrow)  # type: ignore[assignment]
    model.output = packing(model.output)  # type: ignore[assignment]


def make_engine(
    model: Writing, precision: str = "float32", reaches: Reaches | None = None
) -> Writing | Engine:
    """The fastest thing with the model's `start` and `step` on this machine. Packs the model in place."""
    model.eval()
    chosen = choose_precision(precision, model, reaches)
    packing = Packing(model, chosen, reaches)
    if isinstance(model, EncoderDecoder) and packable(model):
        pack_model(model, packing)
        return Engine(model)
    if chosen != "float32":
        pack_linears(model, packing)
    return model


def packable(model: EncoderDecoder) -> bool:
    """The lean step knows the paper's blocks: order in the embeddings, every head's own keys."""
    return (
        can_pack(model.output.weight)
        and model.decoder.positions is None
        and all(isinstance(block.feed_forward, FeedForward) for block in model.decoder)
        and all(block.attention.groups == block.attention.heads for block in model.decoder)
        and all(block.attention.scale is None for block in model.decoder)
    )


class Engine:
    """A packed encoder-decoder. Shapes: R rows, N sources, K = R / N beams, S keys, H heads, C channels."""

    def __init__(self, model: EncoderDecoder) -> None:
        self.model = model
        self.layers = [Layer(block) for block in model.decoder]
        self.heads = self.layers[0].heads

    @property
    def longest_target(self) -> int | None:
        return self.model.longest_target

    def start(self, batch: Batch, beams: int = 1) -> State:
        """The model's state, with one thing more: what is added to the scores of the source's keys."""
        state = self.model.start(batch, beams)
        hidden = state.sources["source.positions"] < 0  # [N,S]
        bias = (
            torch.zeros(hidden.shape).masked_fill(hidden, NEVER)[:, None, None].expand(-1, self.heads, 1, -1)
        )
        return replace(state, sources={**state.sources, "source.bias": bias.contiguous()})  # [N,H,1,S]

    @torch.no_grad()
    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """As the model's; several tokens are fed one after the other."""
        if tokens.shape[1] == 1:
            only, state = self.step_one(state, tokens[:, 0])
            return only.unsqueeze(1), state
        logits = []
        for column in tokens.unbind(dim=1):
            one, state = self.step_one(state, column)
            logits.append(one)
        return torch.stack(logits, dim=1), state

    def step_one(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """[R] -> logits [R,V] and the state after the tokens."""
        position = state.rows["next"]  # [R]
        state = replace(state.extend(1), rows={"next": position + 1})
        columns, own = state.last(1), state.growing
        columns.write_positions(own["positions"], position[:, None])
        hidden = (own["positions"] < 0) | (own["positions"] > position[:, None])  # [R,S]
        bias = torch.zeros(hidden.shape).masked_fill_(hidden, NEVER)[:, None].expand(-1, self.heads, -1)
        bias = bias.reshape(-1, 1, hidden.shape[1])  # [R*H,1,S]
        source_bias = state.sources["source.bias"].flatten(0, 1)  # [N*H,1,S]
        x: Tensor = self.model.target(tokens[:, None], position[:, None])[:, 0]  # [R,D]
        for number, layer in enumerate(self.layers):
            key, value = own[f"{number}.self.key"], own[f"{number}.self.value"]
            x = layer.own(x, lambda y: layer.look_back(y, Past(key, value, columns), bias))  # noqa: B023
            key, value = state.sources[f"{number}.cross.key"], state.sources[f"{number}.cross.value"]
            x = layer.across(x, lambda y: layer.look_across(y, key, value, source_bias))  # noqa: B023
            x = layer.feed(x, layer.feed_forward)
        return self.model.output(self.model.decoder.last(x)), state


@dataclass(frozen=True)
class Wrapping:
    """A residual connection with its layer norm, before or after."""

    weight: Tensor
    bias: Tensor
    epsilon: float
    before: bool

    def __call__(self, x: Tensor, sublayer: Map) -> Tensor:
        if self.before:
            return x + sublayer(self.norm(x))
        return self.norm(x + sublayer(x))

    def norm(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.epsilon)


class Layer:
    """The parts of one packed decoder block, as functions at hand for a step of one token."""

    def __init__(self, block: Block) -> None:
        self.heads = block.attention.heads
        self.own = wrapping(block.attention_residual)
        self.across = wrapping(block.cross_residual)
        self.feed = wrapping(block.feed_forward_residual)
        own, cross, feed_forward = block.attention, block.crossing(), block.feed_forward
        # `forward` itself: calling a module looks for hooks, which costs as much as a small product
        self.all: Map = own.all.forward  # type: ignore[union-attr]
        self.output, self.query, self.cross_output = (
            own.output.forward,
            cross.query.forward,
            cross.output.forward,
        )
        self.widen, self.narrow = feed_forward.widen.forward, feed_forward.narrow.forward
        self.activation = feed_forward.activation

    def look_back(self, x: Tensor, past: Past, bias: Tensor) -> Tensor:
        """Self-attention of one new word over the cache, which it joins."""
        rows = len(x)
        q, k, v = self.all(x).view(rows, 3, self.heads, 1, -1).unbind(1)  # [R,H,1,C]
        key, value = past.append(k, v)  # [R,H,S,C]
        z = mix(q.reshape(rows * self.heads, 1, -1), key.flatten(0, 1), value.flatten(0, 1), bias)
        return self.output(z.view(rows, -1))

    def look_across(self, x: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Cross-attention; the beams of a source are queries on the same keys: [N,H,S,C]."""
        rows, sources = len(x), len(key)
        q = self.query(x).view(sources, rows // sources, self.heads, -1).transpose(1, 2)  # [N,H,K,C]
        z = mix(q.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), bias)  # [N*H,K,C]
        z = z.view(sources, self.heads, rows // sources, -1).transpose(1, 2).reshape(rows, -1)
        return self.cross_output(z)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.narrow(self.activation(self.widen(x)))


def mix(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(C) + bias) v for batches of [T,C], [S,C], [S,C]; every query sees something."""
    scale: float = q.shape[-1] ** -0.5
    return torch.bmm(torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale).softmax(dim=-1), v)


def wrapping(residual: nn.Module | None) -> Wrapping:
    norm = getattr(residual, "norm", None)
    if not isinstance(norm, nn.LayerNorm):
        raise ValueError("an engine needs residual connections with a layer norm")
    return Wrapping(norm.weight.detach(), norm.bias.detach(), norm.eps, isinstance(residual, PreNorm))
