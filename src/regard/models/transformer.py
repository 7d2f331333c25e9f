"""The Transformer of "Attention Is All You Need": blocks, stacks, and the encoder-decoder made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from regard.batch import Batch, Frames, Tokens, Unpadding
from regard.models.attention import (
    BLOCK,
    Mask,
    MultiHeadAttention,
    can_unpad,
    cross_mask,
    is_invariant,
    kv_block,
    needs_dense_mask,
    round_up,
    self_mask,
    step_mask,
    visible,
)
from regard.models.cache import Cache, KeysValues, LayerCache, SourceCache, contiguous, with_columns
from regard.models.layers import FeedForward, GatedFeedForward, Linear, PostNorm, Tap, tapped, within
from regard.models.positions import NO_TERMS, AttentionPositions, Embedding, PositionTerms, TokenEmbedding

if TYPE_CHECKING:
    from regard.models.ssru import SSRU


class Block(nn.Module):
    """Self-attention (or SSRU), in a decoder cross-attention, then feed-forward; each adds to the stream."""

    def __init__(
        self,
        attention: MultiHeadAttention | SSRU,
        feed_forward: FeedForward | GatedFeedForward,
        residual: Callable[[], PostNorm],
        cross: MultiHeadAttention | None = None,
        parallel: bool = False,
    ) -> None:
        super().__init__()
        self.parallel = parallel  # the feed-forward reads what attention reads (GPT-NeoX)
        self.attention = attention
        self.attention_residual = residual()
        self.cross = cross
        self.cross_residual = residual() if cross is not None else None
        self.feed_forward = feed_forward
        self.feed_forward_residual = residual()

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        past: LayerCache | None = None,
        memory: KeysValues | None = None,
        memory_mask: Mask = None,
        tap: Tap | None = None,
        order: PositionTerms = NO_TERMS,
        layout: Unpadding | None = None,
    ) -> Tensor:
        first, scope, across, feed = x, *(within(tap, part) for part in ("self", "cross", "feed_forward"))
        y = self.attention_residual.enter(x, scope)
        y = self.attention.mix(y, mask, past, scope, order, layout)
        x = tapped(tap, "after_self", self.attention_residual.leave(x, y, scope))  # [B,T,D]
        if self.cross is not None and self.cross_residual is not None and memory is not None:
            q = self.cross.queries(self.cross_residual.enter(x, across))
            y = self.cross(q, *memory, memory_mask, across)
            x = tapped(tap, "after_cross", self.cross_residual.leave(x, y, across))
        y = self.feed_forward(self.feed_forward_residual.enter(first if self.parallel else x, feed), feed)
        return tapped(tap, "out", self.feed_forward_residual.leave(x, y, feed))

    def source_keys_values(self, encoded: Tensor) -> KeysValues:
        """Keys and values of the source, the same at every step: [B,S,D] -> two of [B,H,S,C]."""
        return self.require_cross().keys_values(encoded)

    def require_cross(self) -> MultiHeadAttention:
        if self.cross is None:
            raise ValueError("this block has no cross-attention")
        return self.cross


class Stack(nn.Module):
    """N blocks. Pre-norm stacks end in a LayerNorm; otherwise the residual stream stays unnormalised."""

    def __init__(
        self,
        blocks: Sequence[Block],
        final_norm: nn.Module,
        positions: AttentionPositions | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm
        self.positions, self.window = positions, window  # inside attention; tokens that it sees, None: all

    def position_terms(self, query_pos: Tensor, key_pos: Tensor, tap: Tap | None = None) -> PositionTerms:
        """Rotation or bias for all attentions of this stack: [B,T], [B,S]."""
        if self.positions is None:
            return NO_TERMS
        order: PositionTerms = self.positions(query_pos, key_pos)
        return order if tap is None else order.with_tap(tap.within("positions"))

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(cast(Iterable[Block], self.blocks))

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        past: Sequence[LayerCache] | None = None,
        memory: Sequence[KeysValues] | None = None,
        memory_mask: Mask = None,
        tap: Tap | None = None,
        order: PositionTerms = NO_TERMS,
        layout: Unpadding | None = None,
    ) -> Tensor:
        for number, block in enumerate(self):
            x = block(
                x,
                mask,
                past[number] if past else None,
                memory[number] if memory else None,
                memory_mask,
                within(tap, str(number)),
                order,
                layout,
            )
        return tapped(tap, "out", self.final_norm(x))


def encode(embedding: Embedding, stack: Stack, source: Tokens | Frames, tap: Tap | None = None) -> Tensor:
    """All positions of the source in parallel: [B,S], or frames behind the front end [B,S,D] -> [B,S,D].

    At inference on a CPU padding is not computed: its hidden states are zeros.
    """
    columns, scope = source.positions.shape[1], within(tap, "encoder")
    if isinstance(source, Frames) and is_invariant(source.positions.device, tap):
        source = source.in_blocks(BLOCK)  # a front end changes the number of columns
    positions = source.positions
    dense = needs_dense_mask(positions.device, tap, stack.positions)
    mask = self_mask(source, causal=False, dense=dense, window=stack.window)  # [B,1,S,S]
    order = stack.position_terms(positions, positions, scope)
    layout, content, segments = None, source.content, source.segments
    if can_unpad(source, tap):
        layout = Unpadding.of(positions)
        content, positions = layout.unpad(content), layout.unpad(positions)
        segments = None if segments is None else layout.unpad(segments)
    x = embedding(content, positions, within(tap, "encoder.embedding"), segments)
    x = stack(x, mask, tap=scope, order=order, layout=layout)
    return (x if layout is None else layout.pad(x))[:, :columns].contiguous()


@dataclass(frozen=True)
class StepInputs:
    """What the stack of a decoder reads in one step, besides its weights. The beams of a source are tokens of
    one row: x [N,K*T,D]."""

    x: Tensor
    mask: Tensor
    places: Tensor
    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    memory: Sequence[KeysValues] = ()
    memory_mask: Tensor | None = None
    order: PositionTerms = NO_TERMS
    width: int = 0
    layout: Unpadding | None = None
    tokens: int = 1  # T; only steps of one token are compiled

    def tensors(self) -> list[Tensor]:
        """All of them in one list, for a compiled step."""
        rotation = self.order.rotation or ()
        memory_mask = [] if self.memory_mask is None else [self.memory_mask]
        layers = [*self.keys, *self.values, *(each for pair in self.memory for each in pair)]
        return [self.x, self.mask, self.places, *rotation, *layers, *memory_mask]

    def like(self, tensors: Sequence[Tensor]) -> StepInputs:
        """The inverse of `tensors`, for inputs of the same model."""
        rest = iter(tensors)

        def take(count: int) -> list[Tensor]:
            return [next(rest) for _ in range(count)]

        x, mask, places = take(3)
        order = PositionTerms((next(rest), next(rest))) if self.order.rotation else NO_TERMS
        keys, values = take(len(self.keys)), take(len(self.values))
        memory = [(next(rest), next(rest)) for _ in self.memory]
        return StepInputs(x, mask, places, keys, values, memory, next(rest, None), order, mask.shape[-1])


class CausalDecoder(nn.Module):
    """Embedding, causal stack and output layer; generates token by token."""

    def __init__(self, target: TokenEmbedding, decoder: Stack, output: Linear) -> None:
        super().__init__()
        self.target = target
        self.decoder = decoder
        self.output = output

    @property
    def longest_target(self) -> int | None:
        """Maximum number of decoder tokens, the start token included; None if unlimited."""
        return self.target.limit

    def hidden(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """The last hidden states, the input of the output layer: [B,T,D]."""
        raise NotImplementedError

    def forward(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """Logits over the vocabulary at every target position: [B,T,V]."""
        return tapped(tap, "logits", self.output(self.hidden(batch, tap)))

    def decode(
        self,
        target: Tokens,
        memory: Sequence[KeysValues] | None = None,
        across: Mask = None,
        tap: Tap | None = None,
    ) -> Tensor:
        """All positions in parallel: [B,T] -> [B,T,D]."""
        positions = target.positions
        x = self.target(target.ids, positions, within(tap, "decoder.embedding"))
        dense = needs_dense_mask(positions.device, tap, self.decoder.positions)
        mask = self_mask(target, True, dense, self.decoder.window)  # [B,1,T,T]
        scope = within(tap, "decoder")
        order = self.decoder.position_terms(positions, positions, scope)
        out: Tensor = self.decoder(x, mask, None, memory, across, scope, order)
        return out

    @torch.no_grad()
    def step(self, cache: Cache, tokens: Tensor, tap: Tap | None = None) -> tuple[Tensor, Cache]:
        """Feed T more tokens to each row: [R,T] -> logits [R,T,V] and the cache after them."""
        inputs, cache = self.step_inputs(cache, tokens, tap)
        return tapped(tap, "logits", self.run_step(inputs, tap).view(*tokens.shape, -1)), cache

    def step_inputs(self, cache: Cache, tokens: Tensor, tap: Tap | None = None) -> tuple[StepInputs, Cache]:
        """Write the tokens [R,T] into the cache; what the stack reads."""
        count = torch.arange(tokens.shape[1], device=tokens.device)
        positions = (cache.next[:, None] + count).repeat(1, cache.beams)  # [N,K*T]
        return self.decode_inputs(cache, tokens.reshape(positions.shape), positions, tap)

    def decode_inputs(
        self, cache: Cache, tokens: Tensor, positions: Tensor, tap: Tap | None = None
    ) -> tuple[StepInputs, Cache]:
        """Tokens at these positions, -1 where a row has none: [N,K*T]."""
        cache = cache.take()
        places = cache.extend(positions)
        cache.next = cache.next + (positions[:, : positions.shape[1] // cache.beams] >= 0).sum(dim=1)
        scope, width = within(tap, "decoder"), cache.width
        x = self.target(tokens, positions, within(tap, "decoder.embedding"))
        key_positions = cache.positions[:, :width]
        mask = visible(positions, key_positions, True, self.decoder.window)  # [N,1,K*T,S]
        if (paths := cache.on_path()) is not None:
            mask = mask & paths.repeat_interleave(positions.shape[1] // cache.beams, dim=1)[:, None]
        order = self.decoder.position_terms(positions, key_positions, scope).to(x.dtype)
        memory, memory_mask = cache.memory, None
        block = next(iter(self.decoder))
        attention = block.attention
        if tap is None and positions.device.type == "cpu" and positions.shape[1] == cache.beams:
            mask = step_mask(mask, attention.heads, attention.kv_heads, x.dtype, order.bias)
            order = order.without_bias()
            if memory is not None:
                memory_mask = memory.step_mask(block.require_cross().heads, x.dtype)
        elif memory is not None:
            memory_mask = visible(positions, memory.positions, causal=False)
        layers = memory.layers if memory is not None else ()
        tokens_each = positions.shape[1] // cache.beams
        keys, values = cache.keys, cache.values
        inputs = StepInputs(
            x, mask, places, keys, values, layers, memory_mask, order, width, None, tokens_each
        )
        return inputs, cache

    def run_step(self, inputs: StepInputs, tap: Tap | None = None) -> Tensor:
        """[N,K*T,D] -> logits [N,K*T,V]."""
        logits: Tensor = self.output(self.run_stack(inputs, tap))
        return logits

    def run_stack(self, inputs: StepInputs, tap: Tap | None = None) -> Tensor:
        """[N,K*T,D] -> [N,K*T,D]; keys and values are written into the cache."""
        places, width, tokens = inputs.places, inputs.width, inputs.tokens
        past = [LayerCache(k, v, places, width, tokens) for k, v in zip(inputs.keys, inputs.values)]
        rest = inputs.memory, inputs.memory_mask, within(tap, "decoder"), inputs.order, inputs.layout
        out: Tensor = self.decoder(inputs.x, inputs.mask, past, *rest)
        return out

    def empty_cache(self, rows: int, dtype: torch.dtype | None, memory: SourceCache | None = None) -> Cache:
        attention, weight = next(iter(self.decoder)).attention, self.target.tokens.weight
        like = weight.new_empty(0, dtype=dtype or weight.dtype)
        shape = rows, attention.kv_heads, attention.channels
        return Cache.empty(len(self.decoder), like, shape, memory, self.decoder.window)


class EncoderDecoder(CausalDecoder):
    """Figure 1 of the paper: encode the source once, decode the target token by token."""

    def __init__(
        self,
        source: Embedding,
        target: TokenEmbedding,
        encoder: Stack,
        decoder: Stack,
        output: Linear,
    ) -> None:
        nn.Module.__init__(self)  # parts in the order of Figure 1: initial weights depend on it
        self.source = source
        self.target = target
        self.encoder = encoder
        self.decoder = decoder
        self.output = output
        self.lr_multipliers: dict[str, float] = {}  # of the learning rate, by the end of a parameter's name

    @property
    def alignment(self) -> str | None:
        """The tensor of a trace used for word alignment: cross-attention of the second to last layer."""
        return f"decoder.{max(0, len(self.decoder) - 2)}.cross.weights"

    def hidden(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        source, target = batch.source, batch.target
        if source is None or target is None:
            raise ValueError("an encoder-decoder needs a source and a target")
        source = self.source.front(source)
        memory = self.cross_keys_values(self.encode(source, tap))
        across = cross_mask(target, source, needs_dense_mask(target.positions.device, tap, None))  # [B,1,T,S]
        return self.decode(target, memory, across, tap)

    def encode(self, source: Tokens | Frames, tap: Tap | None = None) -> Tensor:
        """[B,S], or frames behind the front end -> [B,S,D]."""
        return encode(self.source, self.encoder, source, tap)

    def cross_keys_values(self, encoded: Tensor) -> list[KeysValues]:
        """The keys and values of the source for each decoder block, computed once."""
        return [block.source_keys_values(encoded) for block in self.decoder]

    @torch.no_grad()
    def start(
        self, batch: Batch, beams: int = 1, tap: Tap | None = None, dtype: torch.dtype | None = None
    ) -> Cache:
        """Encode the source. Each of the N sources gets `beams` rows, which share its keys and values."""
        if batch.source is None:
            raise ValueError("an encoder-decoder needs a source")
        source = self.source.front(batch.source)
        states = encode(self.source, self.encoder, source, tap)
        return self.start_encoded(Frames(states, source.positions, source.padding), beams, dtype)

    @torch.no_grad()
    def start_encoded(self, source: Frames, beams: int = 1, dtype: torch.dtype | None = None) -> Cache:
        """From the hidden states of the encoder, [N,S,D]."""
        memory = self.cross_keys_values(source.values)
        block = kv_block(memory[0][0].shape[-1])
        width = round_up(source.positions.shape[1], block)
        sources = SourceCache(source.positions, [], block).cut(width)
        for pair in memory:
            columns = (with_columns(each.to(dtype or each.dtype), width, -2) for each in pair)
            sources.layers.append(contiguous(*columns))
        return self.empty_cache(len(source.positions), dtype, sources).with_beams(beams)


class LanguageModel(CausalDecoder):
    """A decoder without encoder (GPT, Llama): prompt and continuation are one sequence."""

    alignment: str | None = None  # no cross-attention
    reads_prompts = True  # the prompt is part of the target sequence

    def hidden(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        if batch.target is None:
            raise ValueError("a language model needs a text")
        return self.decode(batch.target, tap=tap)

    @torch.no_grad()
    def start(
        self, batch: Batch, beams: int = 1, tap: Tap | None = None, cache: Cache | None = None
    ) -> Cache:
        """Feed the prompts, behind a `cache` if given, without their last token, which the search feeds."""
        prompt = batch.source
        if not isinstance(prompt, Tokens):
            raise ValueError("a language model needs a prompt, at least the start token")
        lengths = (prompt.positions >= 0).sum(dim=1)  # [N]
        cache = self.empty_cache(len(lengths), None) if cache is None else cache
        cached, fed = cache.lengths, (prompt.positions >= 0) & (prompt.positions < lengths[:, None] - 1)
        before = (prompt.positions + cached[:, None]).masked_fill(~fed, -1)  # [N,T]
        if bool((lengths > 1).any()):
            inputs, cache = self.decode_inputs(cache, prompt.ids, before, tap)
            layout = Unpadding.of(before)
            if can_unpad(prompt, tap) or bool(cached.any()):
                inputs = replace(inputs, x=layout.unpad(inputs.x), layout=layout)
            self.run_stack(inputs, tap)
            cache.truncate(cached + lengths - 1)  # new tokens overwrite the padding on the right
        cache.first = prompt.ids.gather(1, lengths[:, None] - 1)[:, 0]
        return cache.with_beams(beams)
