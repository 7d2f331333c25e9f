"""The Transformer of "Attention Is All You Need": blocks, stacks, and the encoder-decoder made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from regard.data.batch import Batch, Tokens
from regard.model.attention import MultiHeadAttention, visible
from regard.model.layers import FeedForward, Linear, PostNorm
from regard.model.positions import Learned, Sinusoidal
from regard.model.state import Past, State, fit, round_up, steady_block
from regard.model.tap import Tap, tapped, within

KeysValues = tuple[Tensor, Tensor]  # two of [B,H,S,C]


class Embedding(nn.Module):
    """embedding(token) * sqrt(D) + position  (paper, 3.4 and 3.5), then dropout (5.4)."""

    def __init__(self, tokens: nn.Embedding, positions: Sinusoidal | Learned, dropout: float) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, positions: Tensor, tap: Tap | None = None) -> Tensor:
        words = tapped(tap, "tokens", self.tokens(ids) * self.tokens.embedding_dim**0.5)  # [B,T,D]
        order = tapped(tap, "positions", self.positions(positions))  # [B,T,D]
        return tapped(tap, "sum", self.dropout(words + order))


class Block(nn.Module):
    """Self-attention, in a decoder cross-attention, then feed-forward, each in its residual wrapping."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        feed_forward: FeedForward,
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
        mask: Tensor,
        past: Past | None = None,
        memory: KeysValues | None = None,
        memory_mask: Tensor | None = None,
        tap: Tap | None = None,
    ) -> Tensor:
        x = self.attention_residual(x, lambda y: self.look_back(y, mask, past, within(tap, "self")))
        x = tapped(tap, "after_self", x)  # [B,T,D]
        if self.cross_residual is not None and memory is not None and memory_mask is not None:
            x = self.cross_residual(
                x, lambda y: self.look_across(y, memory, memory_mask, within(tap, "cross"))
            )
            x = tapped(tap, "after_cross", x)
        x = self.feed_forward_residual(x, lambda y: self.feed_forward(y, within(tap, "feed_forward")))
        return tapped(tap, "out", x)

    def look_back(self, x: Tensor, mask: Tensor, past: Past | None, tap: Tap | None) -> Tensor:
        """Self-attention over the words of this run and, when stepping, those before."""
        q, k, v = self.attention.queries_keys_values(x)  # [B,H,T,C]
        if past is not None:
            k, v = past.append(k, v)  # [B,H,S,C]
        out: Tensor = self.attention(q, k, v, mask, tap)
        return out

    def look_across(self, x: Tensor, memory: KeysValues, mask: Tensor, tap: Tap | None) -> Tensor:
        """Cross-attention. The beams of one source stand side by side as more queries on the same keys."""
        k, v = memory  # [N,H,S,C]
        queries = x.reshape(len(k), -1, x.shape[-1])  # [N*beams,T,D] -> [N,beams*T,D]
        out: Tensor = self.crossing()(self.crossing().queries(queries), k, v, mask, tap)
        return out.view(x.shape)

    def source_keys_values(self, encoded: Tensor) -> KeysValues:
        """Of the whole source, for every step: [B,S,D] -> two of [B,H,S,C]."""
        return self.crossing().keys_values(encoded)

    def crossing(self) -> MultiHeadAttention:
        if self.cross is None:
            raise ValueError("this block has no cross-attention")
        return self.cross


class Stack(nn.Module):
    """N blocks; with pre-norm a layer norm at the end, because nobody else normalises the last sum."""

    def __init__(self, blocks: Sequence[Block], last: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.last = last

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(cast(Iterable[Block], self.blocks))

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        past: Sequence[Past] | None = None,
        memory: Sequence[KeysValues] | None = None,
        memory_mask: Tensor | None = None,
        tap: Tap | None = None,
    ) -> Tensor:
        for number, block in enumerate(self):
            x = block(
                x,
                mask,
                past[number] if past else None,
                memory[number] if memory else None,
                memory_mask,
                within(tap, str(number)),
            )
        return tapped(tap, "out", self.last(x))


class EncoderDecoder(nn.Module):
    """Figure 1 of the paper: the source goes through the encoder once, the decoder writes word after word."""

    def __init__(
        self, source: Embedding, target: Embedding, encoder: Stack, decoder: Stack, output: Linear
    ) -> None:
        super().__init__()
        self.source = source
        self.target = target
        self.encoder = encoder
        self.decoder = decoder
        self.output = output

    @property
    def longest_target(self) -> int | None:
        """Pieces that the decoder can read, its start included; None where there is no limit."""
        return self.target.positions.limit

    @property
    def alignment(self) -> str | None:
        """The tensor of a traced run that tells where each step looked: of the layer before the last."""
        return f"decoder.{max(0, len(self.decoder) - 2)}.cross.weights"

    def forward(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """Logits over the vocabulary at every target position: [B,T,V]."""
        return tapped(tap, "logits", self.output(self.hidden(batch, tap)))

    def hidden(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """What the output layer sees: [B,T,D]."""
        source, target = both_sides(batch)
        memory = self.remember(self.encode(source, tap))
        x = self.target(target.ids, target.positions, within(tap, "decoder.embedding"))  # [B,T,D]
        mask = visible(target.positions, target.positions, causal=True)  # [B,1,T,T]
        across = visible(target.positions, source.positions, causal=False)  # [B,1,T,S]
        out: Tensor = self.decoder(x, mask, None, memory, across, within(tap, "decoder"))
        return out

    def encode(self, source: Tokens, tap: Tap | None = None) -> Tensor:
        """[B,S] -> [B,S,D]."""
        x = self.source(source.ids, source.positions, within(tap, "encoder.embedding"))
        mask = visible(source.positions, source.positions, causal=False)  # [B,1,S,S]
        out: Tensor = self.encoder(x, mask, tap=within(tap, "encoder"))
        return out

    def remember(self, encoded: Tensor) -> list[KeysValues]:
        """The keys and values of the source for each decoder block, computed once."""
        return [block.source_keys_values(encoded) for block in self.decoder]

    @torch.no_grad()
    def start(self, batch: Batch, beams: int = 1) -> State:
        """Read the source. Each of the N sources gets `beams` rows, which share its keys and values."""
        if batch.source is None:
            raise ValueError("an encoder-decoder needs a source")
        source = batch.source
        rows = len(source.ids) * beams
        memory = self.remember(self.encode(source))
        growing = {"positions": source.ids.new_full((rows, 0), -1)}
        sources = {"source.positions": source.positions}
        for number, (k, v) in enumerate(memory):
            sources[f"{number}.cross.key"], sources[f"{number}.cross.value"] = k, v
            empty = k.new_zeros((rows, k.shape[1], 0, k.shape[3]))
            growing[f"{number}.self.key"], growing[f"{number}.self.value"] = empty, empty
        block = steady_block(memory[0][0].shape[-1])
        columns = round_up(source.ids.shape[1], block)
        # contiguous once here, because every step reads them
        sources = {name: fit(name, tensor, columns).contiguous() for name, tensor in sources.items()}
        return State({"next": source.ids.new_zeros(rows)}, growing, sources, beams, block)

    @torch.no_grad()
    def step(self, state: State, tokens: Tensor, tap: Tap | None = None) -> tuple[Tensor, State]:
        """Feed T more tokens to each row: [R,T] -> logits [R,T,V] and the state after them."""
        count = tokens.shape[1]
        first = state.rows["next"]
        positions = first[:, None] + torch.arange(count, device=tokens.device)  # [R,T]
        state = replace(state.extend(count), rows={"next": first + count})
        columns = slice(state.length - count, state.length)
        state.growing["positions"][:, columns] = positions
        x = self.target(tokens, positions, within(tap, "decoder.embedding"))
        mask = visible(positions, state.growing["positions"], causal=True)  # [R,1,T,S]
        source_positions = state.sources["source.positions"]
        across = visible(positions.view(len(source_positions), -1), source_positions, causal=False)
        layers = range(len(self.decoder))
        past = [
            Past(state.growing[f"{i}.self.key"], state.growing[f"{i}.self.value"], columns) for i in layers
        ]
        memory = [(state.sources[f"{i}.cross.key"], state.sources[f"{i}.cross.value"]) for i in layers]
        x = self.decoder(x, mask, past, memory, across, within(tap, "decoder"))
        return tapped(tap, "logits", self.output(x)), state


def both_sides(batch: Batch) -> tuple[Tokens, Tokens]:
    if batch.source is None or batch.target is None:
        raise ValueError("an encoder-decoder needs a source and a target")
    return batch.source, batch.target
