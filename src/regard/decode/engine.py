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
from regard.decode.packing import ByteLinear, Packing, Reaches, choose_precision, pack_linears
from regard.decode.tree import Tree
from regard.model import EncoderDecoder, Writing
from regard.model.attention import MultiHeadAttention, cut
from regard.model.layers import FeedForward, GatedFeedForward, PreNorm
from regard.model.transformer import Block

Map = Callable[[Tensor], Tensor]
PORTION = 128  # keys


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

    def start(self, batch: Batch, beams: int = 1) -> Tree:
        """The model's state, with one thing more: what is added to the scores of the source's keys."""
        state = self.model.start(batch)
        sources = {name: t for name, t in state.sources.items() if not name.endswith("cross.key")}
        for number in range(len(self.layers)):  # as every step multiplies by them
            turned = state.sources[f"{number}.cross.key"].transpose(2, 3)
            sources[f"{number}.cross.turned"] = turned.contiguous()  # [N,H,C,S]
        sources["source.bias"] = self.bias(state.sources["source.positions"].unsqueeze(1) >= 0)  # [N,H,1,S]
        return Tree.planted(replace(state, sources=sources), beams)

    def bias(self, seen: Tensor) -> Tensor:
        """What is added to the scores of keys, for all heads: [N,T,S] -> [N,H,T,S]."""
        one = torch.zeros(seen.shape).masked_fill_(~seen, NEVER).unsqueeze(1)
        return one.expand(-1, self.heads, -1, -1).contiguous()

    @torch.no_grad()
    def step(self, state: Tree, tokens: Tensor) -> tuple[Tensor, Tree]:
        """As the model's; several tokens are fed one after the other."""
        if tokens.shape[1] == 1:
            only, state = self.step_one(state, tokens[:, 0])
            return only.unsqueeze(1), state
        logits = []
        for column in tokens.unbind(dim=1):
            one, state = self.step_one(state, column)
            logits.append(one)
        return torch.stack(logits, dim=1), state

    def step_one(self, tree: Tree, tokens: Tensor) -> tuple[Tensor, Tree]:
        """[R] -> logits [R,V] and the state after the tokens."""
        position = tree.rows["next"].unsqueeze(1)  # [R,1]
        tree = tree.extend()
        state = tree.state
        places, own, sources = tree.newest(), state.growing, state.sources
        bias = self.bias(tree.seen()).flatten(0, 1)  # [N*H,K,S]
        source_bias = sources["source.bias"].flatten(0, 1)  # [N*H,1,S]
        x: Tensor = self.model.target(tokens[:, None], position)[:, 0]  # [R,D]
        for number, layer in enumerate(self.layers):
            past = own[f"{number}.self.key"], own[f"{number}.self.value"]
            x = layer.own(x, lambda y: layer.look_back(y, *past, places, bias))  # noqa: B023
            key, value = sources[f"{number}.cross.turned"], sources[f"{number}.cross.value"]
            x = layer.across(x, lambda y: layer.look_across(y, key, value, source_bias))  # noqa: B023
            x = layer.feed(x, layer.feed_forward)
        return self.model.output(self.model.decoder.last(x)), tree


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
        self.hidden, self.narrow = hidden_of(feed_forward), feed_forward.narrow.forward

    def look_back(self, x: Tensor, key: Tensor, value: Tensor, places: Tensor, bias: Tensor) -> Tensor:
        """Self-attention of a new word of each beam over the words of its source's beams, which it joins."""
        sources, beams = len(key), len(x) // len(key)
        parts = self.all(x).view(sources, beams, 3, self.heads, -1)  # [N,K,3,H,C]
        q, k, v = parts.permute(2, 0, 3, 1, 4).contiguous().unbind(0)  # [N,H,K,C]
        for buffer, new in ((key, k), (value, v)):
            buffer.view(-1, buffer.shape[-1]).index_copy_(0, places, new.reshape(-1, buffer.shape[-1]))
        key, value = (each[:, :, : bias.shape[2]].flatten(0, 1) for each in (key, value))  # [N*H,S,C]
        return self.output(self.rows_of(mix(q.flatten(0, 1), key.transpose(1, 2), value, bias)))

    def look_across(self, x: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Cross-attention; the beams of a source are queries on the same keys: [N,H,C,S], [N,H,S,C]."""
        rows, sources = len(x), len(key)
        q = self.query(x).view(sources, rows // sources, self.heads, -1).transpose(1, 2)  # [N,H,K,C]
        z = mix(q.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1), bias)  # [N*H,K,C]
        return self.cross_output(self.rows_of(z))

    def rows_of(self, z: Tensor) -> Tensor:
        """[N*H,K,C] -> [N*K,H*C]."""
        joined, beams, channels = z.shape
        by_source = z.view(-1, self.heads, beams, channels).transpose(1, 2)
        return by_source.reshape(joined // self.heads * beams, -1)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.narrow(self.hidden(x))


def hidden_of(feed_forward: FeedForward | GatedFeedForward) -> Map:
    """The wide half of a feed-forward, its activation included."""
    widen: nn.Module = feed_forward.widen
    activation = feed_forward.activation
    if isinstance(widen, ByteLinear) and activation is F.relu:
        return widen.rectified
    return lambda x: activation(widen.forward(x))


def mix(q: Tensor, turned: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(C) + bias) v for batches of [T,C], [C,S], [S,C]; every query sees something.

    Long sums are made in portions, so that they have the same bits whatever hidden keys follow.
    """
    scale: float = q.shape[-1] ** -0.5
    p = torch.baddbmm(bias, q, turned, alpha=scale).softmax(dim=-1)
    z = torch.bmm(p[..., :PORTION], v[:, :PORTION])
    for start in range(PORTION, v.shape[1], PORTION):
        z = torch.baddbmm(z, p[..., start : start + PORTION], v[:, start : start + PORTION])
    return z


def wrapping(residual: nn.Module | None) -> Wrapping:
    norm = getattr(residual, "norm", None)
    if not isinstance(norm, nn.LayerNorm):
        raise ValueError("an engine needs residual connections with a layer norm")
    return Wrapping(norm.weight.detach(), norm.bias.detach(), norm.eps, isinstance(residual, PreNorm))
