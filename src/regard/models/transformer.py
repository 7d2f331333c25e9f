"""The Transformer of "Attention Is All You Need": blocks, stacks, and the encoder-decoder made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.models.attention import (
    Mask,
    MultiHeadAttention,
    cross_mask,
    needs_dense_mask,
    self_mask,
    visible,
)
from regard.models.layers import Dropout, FeedForward, GatedFeedForward, Linear, PostNorm, Tap, tapped, within
from regard.models.positions import Learned, PositionTerms, RelativeBias, Rotary, Sinusoidal, apply_rotary
from regard.models.state import Past, State, fit, kv_block, round_up

KeysValues = tuple[Tensor, Tensor]  # two of [B,H,S,C]
NO_TERMS = PositionTerms()  # positions are added to the embeddings, or there are none


class TokenEmbedding(nn.Module):
    """embedding(token) * sqrt(D) + position  (paper, 3.4 and 3.5), then dropout (5.4).

    Other families omit the factor (GPT, BERT, T5), use positions inside attention (`positions` None: T5,
    Llama), add segment embeddings (`segments`: BERT) or normalise the sum (BERT).
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: Sinusoidal | Learned | None,
        dropout: float,
        factor: float = 1.0,
        segments: nn.Embedding | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.factor = factor
        self.segments = segments
        self.norm = norm
        self.dropout = Dropout(dropout)

    @property
    def limit(self) -> int | None:
        """Maximum number of positions; None if unlimited."""
        return None if self.positions is None else self.positions.limit

    def forward(
        self, ids: Tensor, positions: Tensor, tap: Tap | None = None, segments: Tensor | None = None
    ) -> Tensor:
        x = tapped(tap, "tokens", self.tokens(ids) * self.factor)  # [B,T,D]
        if self.positions is not None:
            x = x + tapped(tap, "positions", self.positions(positions))
        if self.segments is not None:
            which = torch.zeros_like(ids) if segments is None else segments
            x = x + tapped(tap, "segments", self.segments(which))
        x = tapped(tap, "sum", x)
        if self.norm is not None:
            x = self.norm(x)
        return tapped(tap, "out", self.dropout(x))


class Block(nn.Module):
    """Self-attention, in a decoder cross-attention, then feed-forward; each adds to the residual stream."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward | GatedFeedForward,
        residual: Callable[[], PostNorm],
        cross: MultiHeadAttention | None = None,
    ) -> None:
        super().__init__()
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
        past: Past | None = None,
        memory: KeysValues | None = None,
        memory_mask: Mask = None,
        tap: Tap | None = None,
        order: PositionTerms = NO_TERMS,
    ) -> Tensor:
        scope, across, feed = within(tap, "self"), within(tap, "cross"), within(tap, "feed_forward")
        x = self.attention_residual(x, lambda y: self.self_attention(y, mask, past, order, scope), scope)
        x = tapped(tap, "after_self", x)  # [B,T,D]
        if self.cross_residual is not None and memory is not None:
            x = self.cross_residual(x, lambda y: self.cross_attention(y, memory, memory_mask, across), across)
            x = tapped(tap, "after_cross", x)
        x = self.feed_forward_residual(x, lambda y: self.feed_forward(y, feed), feed)
        return tapped(tap, "out", x)

    def self_attention(
        self, x: Tensor, mask: Mask, past: Past | None, order: PositionTerms, tap: Tap | None
    ) -> Tensor:
        """Self-attention over these tokens and those in the KV cache."""
        q, k, v = self.attention.queries_keys_values(x)  # [B,H,T,C]
        if order.rotation is not None:
            q, k = apply_rotary(q, order.rotation), apply_rotary(k, order.rotation)
        if past is not None:
            k, v = past.append(k, v)  # [B,H,S,C]
        out: Tensor = self.attention(q, k, v, mask, tap, order.bias)
        return out

    def cross_attention(self, x: Tensor, memory: KeysValues, mask: Mask, tap: Tap | None) -> Tensor:
        """Cross-attention. The beams of one source are more queries on the same keys."""
        k, v = memory  # [N,H,S,C]
        queries = x.reshape(len(k), -1, x.shape[-1])  # [N*beams,T,D] -> [N,beams*T,D]
        out: Tensor = self.require_cross()(self.require_cross().queries(queries), k, v, mask, tap)
        return out.view(x.shape)

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
        self, blocks: Sequence[Block], final_norm: nn.Module, positions: Rotary | RelativeBias | None = None
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = final_norm
        self.positions = positions  # positions inside attention

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
        past: Sequence[Past] | None = None,
        memory: Sequence[KeysValues] | None = None,
        memory_mask: Mask = None,
        tap: Tap | None = None,
        order: PositionTerms = NO_TERMS,
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
            )
        return tapped(tap, "out", self.final_norm(x))


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
        mask = self_mask(target, causal=True, dense=dense)  # [B,1,T,T]
        scope = within(tap, "decoder")
        order = self.decoder.position_terms(positions, positions, scope)
        out: Tensor = self.decoder(x, mask, None, memory, across, scope, order)
        return out

    def empty_cache(self, rows: int, like: Tensor) -> dict[str, Tensor]:
        """An empty KV cache for each layer, with the positions of its tokens."""
        growing = {"positions": torch.full((rows, 0), -1, device=like.device)}
        for number, block in enumerate(self.decoder):
            none = like.new_zeros((rows, block.attention.kv_heads, 0, block.attention.channels))
            growing[f"{number}.self.key"], growing[f"{number}.self.value"] = none, none
        return growing

    @torch.no_grad()
    def step(self, state: State, tokens: Tensor, tap: Tap | None = None) -> tuple[Tensor, State]:
        """Feed T more tokens to each row: [R,T] -> logits [R,T,V] and the state after them."""
        count = torch.arange(tokens.shape[1], device=tokens.device)
        positions = state.rows["next"][:, None] + count  # [R,T]
        x, state = self.decode_step(state, tokens, positions, tap)
        return tapped(tap, "logits", self.output(x)), state

    def decode_step(
        self, state: State, tokens: Tensor, positions: Tensor, tap: Tap | None = None
    ) -> tuple[Tensor, State]:
        """Tokens at these positions, -1 where a row has none: [R,T] -> [R,T,D]."""
        count = tokens.shape[1]
        ahead = state.rows["next"] + (positions >= 0).sum(dim=1)
        state = replace(state.extend(count), rows={**state.rows, "next": ahead})
        columns = state.last(count)
        columns.write_positions(state.growing["positions"], positions)
        x = self.target(tokens, positions, within(tap, "decoder.embedding"))
        seen = state.growing["positions"]
        scope = within(tap, "decoder")
        mask, order = (
            visible(positions, seen, causal=True),
            self.decoder.position_terms(positions, seen, scope),
        )
        layers = range(len(self.decoder))
        past = [
            Past(state.growing[f"{i}.self.key"], state.growing[f"{i}.self.value"], columns) for i in layers
        ]
        memory = across = None
        if (source := state.sources.get("source.positions")) is not None:
            memory = [(state.sources[f"{i}.cross.key"], state.sources[f"{i}.cross.value"]) for i in layers]
            across = visible(positions.view(len(source), -1), source, causal=False)
        x = self.decoder(x, mask, past, memory, across, scope, order)
        return x, state


class EncoderDecoder(CausalDecoder):
    """Figure 1 of the paper: encode the source once, decode the target token by token."""

    def __init__(
        self, source: TokenEmbedding, target: TokenEmbedding, encoder: Stack, decoder: Stack, output: Linear
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
        source, target = source_and_target(batch)
        memory = self.cross_keys_values(self.encode(source, tap))
        across = cross_mask(target, source, needs_dense_mask(source.ids.device, tap, None))  # [B,1,T,S]
        return self.decode(target, memory, across, tap)

    def encode(self, source: Tokens, tap: Tap | None = None) -> Tensor:
        """[B,S] -> [B,S,D]."""
        x = self.source(source.ids, source.positions, within(tap, "encoder.embedding"))
        dense = needs_dense_mask(source.ids.device, tap, self.encoder.positions)
        mask = self_mask(source, causal=False, dense=dense)  # [B,1,S,S]
        scope = within(tap, "encoder")
        order = self.encoder.position_terms(source.positions, source.positions, scope)
        out: Tensor = self.encoder(x, mask, tap=scope, order=order)
        return out

    def cross_keys_values(self, encoded: Tensor) -> list[KeysValues]:
        """The keys and values of the source for each decoder block, computed once."""
        return [block.source_keys_values(encoded) for block in self.decoder]

    @torch.no_grad()
    def start(self, batch: Batch, beams: int = 1, tap: Tap | None = None) -> State:
        """Encode the source. Each of the N sources gets `beams` rows, which share its keys and values."""
        if batch.source is None:
            raise ValueError("an encoder-decoder needs a source")
        source = batch.source
        rows = len(source.ids) * beams
        memory = self.cross_keys_values(self.encode(source, tap))
        sources = {"source.positions": source.positions}
        for number, (k, v) in enumerate(memory):
            sources[f"{number}.cross.key"], sources[f"{number}.cross.value"] = k, v
        block = kv_block(memory[0][0].shape[-1])
        columns = round_up(source.ids.shape[1], block)
        # contiguous, because every step reads them
        sources = {name: fit(name, tensor, columns).contiguous() for name, tensor in sources.items()}
        growing = self.empty_cache(rows, memory[0][0])
        return State({"next": source.ids.new_zeros(rows)}, growing, sources, beams, block)


class LanguageModel(CausalDecoder):
    """A decoder without encoder (GPT, Llama): prompt and continuation are one sequence."""

    alignment: str | None = None  # no cross-attention
    reads_prompts = True  # the prompt is part of the target sequence

    def hidden(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        if batch.target is None:
            raise ValueError("a language model needs a text")
        return self.decode(batch.target, tap=tap)

    @torch.no_grad()
    def start(self, batch: Batch, beams: int = 1, tap: Tap | None = None) -> State:
        """Feed the prompts (`batch.source`) without their last token, which the search feeds first."""
        if batch.source is None:
            raise ValueError("a language model needs a prompt, at least the start token")
        prompt = batch.source
        lengths = (prompt.positions >= 0).sum(dim=1)  # [N]
        growing = self.empty_cache(len(lengths), self.target.tokens.weight)
        channels = growing["0.self.key"].shape[-1]
        state = State({"next": torch.zeros_like(lengths)}, growing, {}, 1, kv_block(channels))
        before = prompt.positions[:, :-1].masked_fill(prompt.positions[:, :-1] >= lengths[:, None] - 1, -1)
        if before.shape[1]:
            _, state = self.decode_step(state, prompt.ids[:, :-1], before, tap)
            state = state.aged(lengths - 1)  # rows are padded on the right: new tokens overwrite the padding
        first = prompt.ids.gather(1, lengths[:, None] - 1)[:, 0]
        state = replace(state, rows={**state.rows, "first": first})
        each = torch.arange(len(lengths), device=first.device).repeat_interleave(beams)
        return replace(state.select(each), beams=beams)


def source_and_target(batch: Batch) -> tuple[Tokens, Tokens]:
    if batch.source is None or batch.target is None:
        raise ValueError("an encoder-decoder needs a source and a target")
    return batch.source, batch.target


Embedding = TokenEmbedding  # the name in version 0.1
