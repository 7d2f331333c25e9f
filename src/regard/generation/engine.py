"""A model made ready for decoding: the same `start` and `step`, with weights packed once and a lean step.

Projections that read the same words become one product: queries, keys and values of self-attention, keys and
values of cross-attention. A step of one token is a single call into TorchScript, because for small batches
Python's calls in between cost more than the arithmetic. The text is the model's own; only the last bits of
numbers may differ.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, collate
from regard.device import bfloat16_hardware, release_memory
from regard.generation.kernels import can_pack, scripted
from regard.generation.packing import Calibration, Packing, choose_precision, pack_linears
from regard.generation.reading import Unpad, encode_packed
from regard.generation.requests import NEG_INF
from regard.generation.tree import BeamCache
from regard.models.attention import MultiHeadAttention, split_heads
from regard.models.families import GenerativeModel
from regard.models.layers import ACTIVATIONS, FeedForward, PreNorm
from regard.models.state import State, fit, kv_block, round_up
from regard.models.transformer import Block, EncoderDecoder
from regard.sample import Sample

# Channels of a model from which on its caches are worth converting. Every product is then large enough for
# oneDNN, which leaves up to 4096 multiplications to another kernel: a sentence alone has the bits of many.
WIDE = 256
WORTH_SCRIPTING = 200  # steps: in so many, Python takes as long as the compiler
SCRIPTING = Lock()


class PackedSelf(MultiHeadAttention):
    """Self-attention whose three projections are one product."""

    def __init__(self, attention: MultiHeadAttention, packing: Packing) -> None:
        nn.Module.__init__(self)
        self.heads, self.kv_heads = attention.heads, attention.kv_heads
        self.channels, self.scale = attention.channels, attention.scale
        self.all = packing(attention.query, attention.key, attention.value)
        self.output = packing(attention.output)  # type: ignore[assignment]

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (split_heads(part, self.heads) for part in self.all(x).chunk(3, dim=-1))
        return q, k, v


class PackedCross(MultiHeadAttention):
    """Cross-attention: the words' queries, and the source's keys and values as one product."""

    def __init__(self, attention: MultiHeadAttention, packing: Packing) -> None:
        nn.Module.__init__(self)
        self.heads, self.kv_heads = attention.heads, attention.kv_heads
        self.channels, self.scale = attention.channels, attention.scale
        self.query = packing(attention.query)  # type: ignore[assignment]
        self.key_value = packing(attention.key, attention.value)
        self.output = packing(attention.output)  # type: ignore[assignment]

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        k, v = (split_heads(part, self.heads) for part in self.key_value(x).chunk(2, dim=-1))
        return k, v


def pack_model(model: EncoderDecoder, packing: Packing) -> None:
    """Pack all weights in place: the model can be used from now on, not trained or saved."""
    for stack in (model.encoder, model.decoder):
        for block in stack:
            block.attention = PackedSelf(block.attention, packing)
            if block.cross is not None:
                block.cross = PackedCross(block.cross, packing)
            layer = block.feed_forward
            relu = isinstance(layer, FeedForward) and layer.activation is ACTIVATIONS["relu"]
            layer.up = packing(layer.up, relu=relu)  # type: ignore[assignment]
            layer.down = packing(layer.down)  # type: ignore[assignment]
            if relu:  # by the product, while the numbers are at hand
                layer.activation = identity
        release_memory()  # of the weights as they were
    model.output = packing(model.output)  # type: ignore[assignment]
    release_memory()


def make_engine(
    model: GenerativeModel, precision: str = "float32", calibration: Calibration | None = None
) -> GenerativeModel | Engine:
    """The fastest thing with the model's `start` and `step` on this machine. Packs the model in place."""
    model.eval()
    chosen = choose_precision(precision, model, calibration)
    packing = Packing(model, chosen, calibration)
    if isinstance(model, EncoderDecoder) and packable(model):
        pack_model(model, packing)
        return Engine(model, chosen)
    if chosen != "float32":
        pack_linears(model, packing)
    return model


def cache_dtype(precision: str, width: int, beams: int) -> torch.dtype:
    """How keys and values are kept: in half the bytes where the rest is no more exact than that.

    Products of bfloat16 take a third of the time, but each call some 15 microseconds more: too much where
    little is multiplied. Who else is in the batch has no say, as a text may not depend on it.
    """
    worth_it = precision != "float32" and width >= WIDE and beams > 1 and bfloat16_hardware()
    return torch.bfloat16 if worth_it else torch.float32


def packable(model: EncoderDecoder) -> bool:
    """The lean step knows the paper's blocks: order in the embeddings, every head's own keys."""
    return (
        can_pack(model.output.weight)
        and model.encoder.positions is None
        and model.decoder.positions is None
        and all(isinstance(block.feed_forward, FeedForward) for block in (*model.encoder, *model.decoder))
        and all(block.attention.kv_heads == block.attention.heads for block in model.decoder)
        and all(block.attention.scale is None for block in model.decoder)
    )


class Engine:
    """A packed encoder-decoder. Shapes: R rows, N sources, K = R / N beams, S keys, H heads, C channels."""

    def __init__(self, model: EncoderDecoder, precision: str) -> None:
        self.model, self.precision = model, precision
        self.heads = next(iter(model.decoder)).attention.heads
        self.decoder: Callable[..., Tensor] = EngineDecoder(model)
        self.steps_to_script = WORTH_SCRIPTING
        numbers = range(len(model.decoder))
        self.keys = [f"{number}.self.key" for number in numbers]
        self.values = [f"{number}.self.value" for number in numbers]
        self.source_keys = [f"{number}.cross.turned" for number in numbers]
        self.source_values = [f"{number}.cross.value" for number in numbers]

    @property
    def longest_target(self) -> int | None:
        return self.model.longest_target

    @torch.no_grad()
    def start(self, batch: Batch, beams: int = 1) -> BeamCache:
        """The model's state, with one thing more: what is added to the scores of the source's keys."""
        if batch.source is None:
            raise ValueError("an encoder-decoder needs a source")
        empty = self.model.empty_cache(len(batch.source.ids), self.model.target.tokens.weight)
        channels = empty[self.keys[0]].shape[-1]
        dtype, block = cache_dtype(self.precision, self.heads * channels, beams), kv_block(channels)
        growing = {name: tensor.to(dtype) for name, tensor in empty.items() if tensor.dim() == 4}
        positions = batch.source.positions
        columns = round_up(positions.shape[1], block)
        sources = {"source.positions": fit("source.positions", positions, columns)}
        words = encode_packed(self.model, batch.source, Unpad(positions))  # [T,D]
        places = Unpad(sources["source.positions"])
        for layer, key, value in zip(self.model.decoder, self.source_keys, self.source_values):
            both: Tensor = layer.require_cross().key_value(words)  # type: ignore[operator]
            k, v = places.spread(both.to(dtype), self.heads, 2).unbind(0)  # [N,H,S,C]
            sources[key] = k.transpose(2, 3).contiguous()  # [N,H,C,S], as every step multiplies by them
            sources[value] = v.contiguous()  # [N,H,S,C]
        sources["source.bias"] = self.bias(sources["source.positions"].unsqueeze(1) >= 0)  # [N,H,1,S]
        rows = {"next": torch.zeros_like(positions[:, 0])}
        return BeamCache.init(State(rows, growing, sources, block=block), beams)

    def bias(self, seen: Tensor) -> Tensor:
        """What is added to the scores of keys, for all heads: [N,T,S] -> [N,H,T,S]."""
        one = torch.zeros(seen.shape).masked_fill_(~seen, NEG_INF).unsqueeze(1)
        return one.expand(-1, self.heads, -1, -1).contiguous()

    @torch.no_grad()
    def step(self, state: BeamCache, tokens: Tensor) -> tuple[Tensor, BeamCache]:
        """As the model's, [R,T] -> logits [R,T,V]; several tokens are fed one after the other."""
        logits = []
        for column in tokens.unbind(dim=1):
            position = state.rows["next"].unsqueeze(1)  # [R,1]
            state = state.extend()
            cache, sources = state.state.growing, state.state.sources
            x: Tensor = self.model.target(column[:, None], position)[:, 0]  # [R,D]
            one = self.current_decoder()(
                x,
                [cache[name] for name in self.keys],
                [cache[name] for name in self.values],
                state.write_positions(),
                self.bias(state.visible_columns()).flatten(0, 1),  # [N*H,K,S]
                [sources[name] for name in self.source_keys],
                [sources[name] for name in self.source_values],
                sources["source.bias"].flatten(0, 1),  # [N*H,1,S]
            )
            logits.append(one)
        return logits[0].unsqueeze(1) if len(logits) == 1 else torch.stack(logits, dim=1), state

    def warm_up(self) -> None:
        """Compile now: a server would rather wait before the first question than in the middle of one."""
        self.steps_to_script = min(self.steps_to_script, 0)
        for beams in (1, 2):  # which may be kept differently; the first steps of each are compiled further
            state = self.start(collate([Sample(source=[0])]), beams)
            for _ in range(3):
                _, state = self.step(state, torch.zeros((beams, 1), dtype=torch.int64))

    def current_decoder(self) -> Callable[..., Tensor]:
        """As Python at first: who asks for a sentence or two would wait longer for the compiler."""
        if self.steps_to_script >= 0:
            with SCRIPTING:  # several lanes come here
                if self.steps_to_script == 0:
                    self.decoder = scripted(self.decoder)  # type: ignore[arg-type]
                self.steps_to_script -= 1
        return self.decoder


class EngineDecoder(nn.Module):
    """One word of each row through all blocks, as one call; TorchScript must understand what stands here."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList([EngineLayer(block) for block in model.decoder])
        self.final_norm, self.output = model.decoder.final_norm, model.output
        # where the layer norms stand: x + sublayer(norm(x)), or norm(x + sublayer(x)) as in the paper
        self.pre = all(isinstance(block.attention_residual, PreNorm) for block in model.decoder)

    def forward(
        self,
        x: Tensor,
        keys: list[Tensor],
        values: list[Tensor],
        places: Tensor,
        bias: Tensor,
        source_keys: list[Tensor],
        source_values: list[Tensor],
        source_bias: Tensor,
    ) -> Tensor:
        """[R,D], for each block keys and values [N,H,S,C], the source's keys [N,H,C,S] -> logits [R,V]."""
        for number, layer in enumerate(self.layers):
            y = layer.self_norm(x) if self.pre else x
            q, k, v = layer.extend(layer.all(y), keys[number], values[number], places, bias.shape[2])
            y = layer.output(layer.rows_of(mix(q, k, v, bias)))
            x = x + y if self.pre else layer.self_norm(x + y)
            y = layer.cross_norm(x) if self.pre else x
            k, v = source_keys[number], source_values[number]
            q = layer.source_queries(layer.query(y), k)
            y = layer.cross_output(layer.rows_of(mix(q, k.flatten(0, 1), v.flatten(0, 1), source_bias)))
            x = x + y if self.pre else layer.cross_norm(x + y)
            y = layer.down(activate(layer.up(layer.feed_norm(x) if self.pre else x), layer.activation))
            x = x + y if self.pre else layer.feed_norm(x + y)
        logits: Tensor = self.output(self.final_norm(x))
        return logits


class EngineLayer(nn.Module):
    """The parts of a packed decoder block for a step of one token."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        attention, cross, feed_forward = block.attention, block.require_cross(), block.feed_forward
        self.heads = attention.heads
        self.self_norm = norm_of(block.attention_residual)
        self.cross_norm = norm_of(block.cross_residual)
        self.feed_norm = norm_of(block.feed_forward_residual)
        self.all: nn.Module = attention.all  # type: ignore[assignment]
        self.output, self.query, self.cross_output = attention.output, cross.query, cross.output
        self.up, self.down = feed_forward.up, feed_forward.down
        names = {**ACTIVATIONS, "identity": identity}
        self.activation = next(name for name, each in names.items() if each is feed_forward.activation)

    def extend(
        self, projected: Tensor, key: Tensor, value: Tensor, places: Tensor, length: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values of a new word of each beam join those of its source's beams, over which it attends.

        [R,3*H*C] -> queries [N*H,K,C], all keys [N*H,C,S], all values [N*H,S,C].
        """
        sources, channels = key.shape[0], key.shape[3]
        parts = projected.view(sources, -1, 3, self.heads, channels)  # [N,K,3,H,C]
        q, k, v = contiguous(parts.permute(2, 0, 3, 1, 4), key.dtype).unbind(0)  # [N,H,K,C]
        key.view(-1, channels).index_copy_(0, places, k.view(-1, channels))
        value.view(-1, channels).index_copy_(0, places, v.view(-1, channels))
        seen = key[:, :, :length].flatten(0, 1).transpose(1, 2)
        return q.flatten(0, 1), seen, value[:, :, :length].flatten(0, 1)

    def source_queries(self, projected: Tensor, key: Tensor) -> Tensor:
        """The beams of a source are queries on the same keys [N,H,C,S]: [R,H*C] -> [N*H,K,C]."""
        q = projected.to(key.dtype).view(key.shape[0], -1, self.heads, key.shape[2])  # [N,K,H,C]
        return q.transpose(1, 2).flatten(0, 1)

    def rows_of(self, z: Tensor) -> Tensor:
        """[N*H,K,C] -> [N*K,H*C]."""
        beams, channels = z.shape[1], z.shape[2]
        by_source = z.view(-1, self.heads, beams, channels).transpose(1, 2)  # [N,K,H,C]
        return contiguous(by_source, torch.float32).view(-1, self.heads * channels)


def identity(x: Tensor) -> Tensor:
    return x


def activate(x: Tensor, name: str) -> Tensor:
    """By name, as TorchScript has no functions as values."""
    if name == "identity":
        return x
    if name == "swish":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")


def norm_of(residual: nn.Module | None) -> nn.LayerNorm:
    norm = getattr(residual, "norm", None)
    if not isinstance(norm, nn.LayerNorm):
        raise ValueError("an engine needs residual connections with a layer norm")
    return norm


def contiguous(x: Tensor, dtype: torch.dtype) -> Tensor:
    """In order and in this precision, by one copy."""
    if x.dtype == dtype:
        return x.contiguous()
    return x.to(dtype, memory_format=torch.contiguous_format)


def mix(q: Tensor, turned: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(C) + bias) v for batches of [T,C], [C,S], [S,C]; every query sees something.

    Long sums are made in portions of keys, so that they have the same bits whatever hidden keys follow.
    Measured (128 heads, 4 queries of 64 channels, 144 keys, one thread; microseconds, float32 / bfloat16):
    q k^T 873 / 260, p v 544 / 215.
    """
    scale = float(q.shape[2]) ** -0.5
    if v.dtype == torch.float32:
        p = torch.baddbmm(bias, q, turned, alpha=scale).softmax(dim=-1)
        z = torch.bmm(p[:, :, :128], v[:, :128])
        for start in range(128, v.shape[1], 128):
            z = torch.baddbmm(z, p[:, :, start : start + 128], v[:, start : start + 128])
        return z
    p = torch.add(bias, torch.bmm(q, turned), alpha=scale).softmax(dim=-1).to(v.dtype)
    z = torch.bmm(p[:, :, :512], v[:, :512])
    for start in range(512, v.shape[1], 512):
        z = z.float() + torch.bmm(p[:, :, start : start + 512], v[:, start : start + 512])
    return z
