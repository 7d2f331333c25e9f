"""Recurrent sequence-to-sequence models: an RNN encoder and an RNN decoder.

Without attention the decoder gets only the encoder's last state (Sutskever et al. 2014); with it every step
attends to all hidden states of the encoder (Bahdanau et al. 2015). Both have the interface of every family:
`forward`, `hidden`, `start`, `step`.

Shapes as in `attention.py`; here D is also the size of a hidden state, and the state of a cell is [B,P*D]
with P parts (an LSTM's hidden state and memory cell, a GRU's hidden state).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.config.model import BahdanauConfig, RNNConfig
from regard.models.attention import BLOCK, masked_softmax, round_up
from regard.models.cache import RecurrentCache, SourceCache, contiguous
from regard.models.layers import Dropout, Linear, Tap, at_step, tapped, within


class LSTM(nn.Module):
    """One step of an LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000):

    i, f, o = sigmoid(W x + U h + b)    g = tanh(W x + U h + b)
    c' = f * c + i * g                  h' = o * tanh(c')
    """

    parts = 2  # h and c

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.read = Linear(inputs, 4 * size)
        self.recur = Linear(size, 4 * size, bias=False)

    def forward(self, read: Tensor, state: Tensor, tap: Tap | None = None) -> Tensor:
        """`read` = W x + b: [B,4D]; the state [B,2D] before and after."""
        h, c = state.chunk(2, dim=-1)
        # in the precision of the state: rounding errors would accumulate in the memory cell
        i, f, g, o = (read + self.recur(h)).to(state.dtype).chunk(4, dim=-1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        if tap is not None:
            i, f, g, o = tap("input", i), tap("forget", f), tap("candidate", g), tap("output", o)
        c = f * c + i * g
        h = o * c.tanh()
        if tap is not None:
            h, c = tap("hidden", h), tap("memory", c)
        return torch.cat([h, c], dim=-1)


class GRU(nn.Module):
    """One step of a GRU (Cho et al. 2014; the reset gate after the product, as in torch):

    r, z = sigmoid(W x + U h + b)    n = tanh(W x + b + r * (U h + b'))    h' = (1 - z) * n + z * h
    """

    parts = 1  # h

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.read = Linear(inputs, 3 * size)
        self.recur = Linear(size, 3 * size)

    def forward(self, read: Tensor, state: Tensor, tap: Tap | None = None) -> Tensor:
        """`read` = W x + b: [B,3D]; the state [B,D] before and after."""
        x_r, x_z, x_n = read.to(state.dtype).chunk(3, dim=-1)
        h_r, h_z, h_n = self.recur(state).to(state.dtype).chunk(3, dim=-1)
        r: Tensor = (x_r + h_r).sigmoid()
        z: Tensor = (x_z + h_z).sigmoid()
        if tap is not None:
            r, z = tap("reset", r), tap("update", z)
        n: Tensor = (x_n + r * h_n).tanh()
        if tap is not None:
            n = tap("candidate", n)
        h = (1 - z) * n + z * state
        return h if tap is None else tap("hidden", h)


Cell = LSTM | GRU
CELLS: dict[str, type[LSTM] | type[GRU]] = {"lstm": LSTM, "gru": GRU}


class AdditiveScore(nn.Module):
    """e_ij = v . tanh(W s_{i-1} + U h_j)  (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = Linear(width, width, bias=False)
        self.key = Linear(width, width)
        self.value = Linear(width, 1, bias=False)

    def keys(self, encoded: Tensor) -> Tensor:
        """U h_j, the same at every step: [B,S,D]."""
        keys: Tensor = self.key(encoded)
        return keys

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """[N,K,D], [N,S,D] -> [N,K,S]."""
        both = self.query(query)[:, :, None] + keys[:, None]  # [N,K,S,D]
        e: Tensor = self.value(both.tanh()).squeeze(-1)
        return e


class DotScore(nn.Module):
    """e_ij = s_{i-1} . h_j  (Luong et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()

    def keys(self, encoded: Tensor) -> Tensor:
        return encoded

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(-1, -2)  # [N,K,S]


class GeneralScore(DotScore):
    """e_ij = s_{i-1} . (W h_j)  (Luong et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.key = Linear(width, width, bias=False)

    def keys(self, encoded: Tensor) -> Tensor:
        keys: Tensor = self.key(encoded)
        return keys


Score = AdditiveScore | DotScore
SCORES: dict[str, type[AdditiveScore] | type[DotScore]] = {
    "additive": AdditiveScore,
    "dot": DotScore,
    "general": GeneralScore,
}


@dataclass(frozen=True, slots=True)
class Memory:
    """The hidden states of the encoder as keys and values: [N,S,D]."""

    keys: Tensor
    values: Tensor
    mask: Tensor  # [N,1,S], False at padding


def run_cell(
    cell: Cell, x: Tensor, valid: Tensor, backwards: bool = False, tap: Tap | None = None
) -> tuple[Tensor, Tensor]:
    """Run a cell over sequences: [B,T,inputs], [B,T] -> hidden states [B,T,D] and the last state [B,P*D].

    Padding, at any position, leaves the state unchanged.
    """
    # W x of all positions in parallel: only the recurrence is sequential. `unbind` instead of slices: the
    # gradient of each slice would be a tensor of the full size
    read, kept = cell.read(x).unbind(1), valid[:, :, None].unbind(1)
    state = x.new_zeros((len(x), cell.parts * cell.size))
    hidden: list[Tensor] = []
    times = range(x.shape[1])
    for time in reversed(times) if backwards else times:
        state = torch.where(kept[time], cell(read[time], state, at_step(tap, time)), state)
        hidden.append(state[:, : cell.size])
    return torch.stack(hidden[::-1] if backwards else hidden, dim=1), state


class RNNEncoder(nn.Module):
    """Layers of cells in one direction, or in both with their hidden states concatenated (D/2 each)."""

    def __init__(self, layers: Sequence[Sequence[Cell]], dropout: float, reverse: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList(directions) for directions in layers)
        self.parts = layers[0][0].parts
        self.dropout = Dropout(dropout)
        self.reverse = reverse  # read the last token first (Sutskever et al. 2014, 3.3)

    def forward(self, x: Tensor, valid: Tensor, tap: Tap | None = None) -> tuple[Tensor, Tensor]:
        """[B,S,D] -> hidden states of the top layer [B,S,D], and the last state of every layer [B,L,P*D]."""
        last: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            cells = cast(Iterable[Cell], layer)
            directions = []
            for way, cell in enumerate(cells):
                backwards = self.reverse ^ bool(way)
                scope = within(tap, f"{number}.{'backward' if backwards else 'forward'}")
                directions.append(run_cell(cell, x, valid, backwards, scope))
            x = torch.cat([hidden for hidden, _ in directions], dim=-1)
            x = tapped(tap, f"{number}.hidden", self.dropout(x))
            last.append(concat_directions([state for _, state in directions], self.parts))
        return x, torch.stack(last, dim=1)


def concat_directions(states: Sequence[Tensor], parts: int) -> Tensor:
    """The states of both directions part by part: [h h', c c'] and not [h c, h' c']."""
    groups = zip(*(state.chunk(parts, dim=-1) for state in states))
    return torch.cat([part for group in groups for part in group], dim=-1)


class RNNDecoder(nn.Module):
    """A stack of cells; with a score, each step also gets a context vector by attention to the source."""

    def __init__(self, layers: Sequence[Cell], score: Score | None, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.score = score
        # Bahdanau's deep output has a maxout layer here; this is a tanh of the same three inputs
        self.readout = Linear(3 * width, width) if score is not None else None
        self.dropout = Dropout(dropout)

    def attend(self, state: Tensor, memory: Memory, tap: Tap | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """a_ij = softmax_j(e_ij), c_i = sum_j a_ij h_j: context [R,D], scores and weights [N,K,S].

        The query is the top hidden state before this step; the beams of a source share its keys.
        """
        if self.score is None:
            raise ValueError("this decoder has no attention")
        cell = cast(Cell, self.layers[-1])
        query = tapped(tap, "query", state[:, -1, : cell.size])
        scores = self.score(query.view(len(memory.keys), -1, cell.size), memory.keys)  # [N,K,S]
        scores = tapped(tap, "scores", scores)
        weights = tapped(tap, "weights", masked_softmax(scores, memory.mask))
        context = (weights @ memory.values).view(query.shape)
        return tapped(tap, "context", context), scores, weights

    def forward(
        self, word: Tensor, state: Tensor, context: Tensor | None, tap: Tap | None = None
    ) -> tuple[Tensor, Tensor]:
        """One step: a token [R,D], all states [R,L,P*D] -> hidden state [R,D], new states."""
        x = word if context is None else torch.cat([word, context], dim=-1)
        states: list[Tensor] = []
        for number, cell in enumerate(cast(Iterable[Cell], self.layers)):
            states.append(cell(cell.read(x), state[:, number], within(tap, str(number))))
            x = self.dropout(states[-1][:, : cell.size])
        if self.readout is not None and context is not None:
            x = self.dropout(self.readout(torch.cat([x, context, word], dim=-1)).tanh())
        return x, torch.stack(states, dim=1)


class RecurrentEncoderDecoder(nn.Module):
    """Encoder, bridge from its last states to the first ones of the decoder, decoder, output layer."""

    longest_target: int | None = None  # unlimited

    def __init__(
        self,
        source: nn.Embedding,
        target: nn.Embedding,
        encoder: RNNEncoder,
        bridge: nn.Module,
        decoder: RNNDecoder,
        output: Linear,
        dropout: float,
    ) -> None:
        super().__init__()
        self.source = source
        self.target = target
        self.encoder = encoder
        self.bridge = bridge
        self.decoder = decoder
        self.output = output
        self.dropout = Dropout(dropout)

    @property
    def alignment(self) -> str | None:
        """The tensor of a trace used for word alignment."""
        return "decoder.cross.weights" if self.decoder.score is not None else None

    def forward(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """Logits over the vocabulary at every target position: [B,T,V]."""
        return tapped(tap, "logits", self.output(self.hidden(batch, tap)))

    def hidden(self, batch: Batch, tap: Tap | None = None) -> Tensor:
        """The last hidden states, the input of the output layer: [B,T,D]."""
        if not isinstance(batch.source, Tokens) or batch.target is None:
            raise ValueError("a recurrent encoder-decoder needs a source and a target text")
        state, memory = self.encode(batch.source, tap)
        words = self.dropout(self.target(batch.target.ids))  # [B,T,D]
        words = tapped(tap, "decoder.embedding", words)
        hidden, _ = self.decode(words, batch.target.positions >= 0, state, memory, within(tap, "decoder"))
        return hidden

    def encode(self, source: Tokens, tap: Tap | None = None) -> tuple[Tensor, Memory | None]:
        """The first state of the decoder, and the keys and values of its attention."""
        valid = source.positions >= 0
        x = tapped(tap, "encoder.embedding", self.dropout(self.source(source.ids)))
        encoded, last = self.encoder(x, valid, within(tap, "encoder"))
        first = tapped(tap, "decoder.first", self.bridge(last))  # [B,L,P*D]
        score = self.decoder.score
        if score is None:
            return first, None
        keys = tapped(tap, "decoder.cross.key", score.keys(encoded))  # [B,S,D]
        return first, Memory(keys, tapped(tap, "decoder.cross.value", encoded), valid[:, None])

    def decode(
        self, words: Tensor, valid: Tensor, state: Tensor, memory: Memory | None, tap: Tap | None = None
    ) -> tuple[Tensor, Tensor]:
        """Token by token: [R,T,D] -> last hidden states [R,T,D], and the last state."""
        seen: list[Tensor] = []
        for time, (word, kept) in enumerate(zip(words.unbind(1), valid[:, :, None, None].unbind(1))):
            now = at_step(tap, time)
            context = None if memory is None else self.decoder.attend(state, memory, within(now, "cross"))[0]
            x, after = self.decoder(word, state, context, now)
            state = torch.where(kept, after, state)
            seen.append(x)
        return tapped(tap, "out", torch.stack(seen, dim=1)), state

    @torch.no_grad()
    def start(self, batch: Batch, beams: int = 1, tap: Tap | None = None) -> RecurrentCache:
        """Encode the source. Each of the N sources gets `beams` rows, which share its keys and values."""
        if not isinstance(batch.source, Tokens):
            raise ValueError("a recurrent encoder-decoder needs a source text")
        hidden, memory = self.encode(batch.source, tap)
        layers = [] if memory is None else [(memory.keys, memory.values)]
        sources = SourceCache(batch.source.positions, layers).cut(round_up(batch.source.ids.shape[1], BLOCK))
        sources.layers = [contiguous(*each) for each in sources.layers]
        return RecurrentCache(hidden.repeat_interleave(beams, dim=0), sources, beams)

    @torch.no_grad()
    def step(
        self, cache: RecurrentCache, tokens: Tensor, tap: Tap | None = None
    ) -> tuple[Tensor, RecurrentCache]:
        """Feed T more tokens to each row: [R,T] -> logits [R,T,V] and the cache after them."""
        memory = None
        if cache.sources.layers:
            memory = Memory(*cache.sources.layers[0], cache.sources.positions[:, None] >= 0)
        words = self.target(tokens)
        valid = torch.ones_like(tokens, dtype=torch.bool)
        hidden, last = self.decode(words, valid, cache.hidden, memory, within(tap, "decoder"))
        return tapped(tap, "logits", self.output(hidden)), replace(cache, hidden=last)


def build_recurrent(
    config: RNNConfig | BahdanauConfig, source_vocabulary: int, target_vocabulary: int | None = None
) -> RecurrentEncoderDecoder:
    """A model whose weights are not initialised."""
    width = config.width
    score = SCORES[config.score] if isinstance(config, BahdanauConfig) else None
    source = nn.Embedding(source_vocabulary, width)
    shared = target_vocabulary is None and config.tie_embeddings
    target = source if shared else nn.Embedding(target_vocabulary or source_vocabulary, width)
    output = Linear(width, target.num_embeddings, bias=False)
    cell: Callable[[int, int], Cell] = CELLS[config.cell]
    directions = 2 if score else 1
    encoder = [[cell(width, width // directions) for _ in range(directions)] for _ in range(config.layers)]
    decoder = [cell(width * (2 if score and not layer else 1), width) for layer in range(config.layers)]
    state = width * decoder[0].parts
    return RecurrentEncoderDecoder(
        source=source,
        target=target,
        encoder=RNNEncoder(encoder, config.dropout, config.reverse_source),
        bridge=nn.Sequential(Linear(state, state), nn.Tanh()) if score else nn.Identity(),
        decoder=RNNDecoder(decoder, score(width) if score else None, width, config.dropout),
        output=output,
        dropout=config.dropout,
    )


def init_forget_bias(model: nn.Module) -> None:
    """Forget gates start open, with bias 1 (Jozefowicz et al. 2015)."""
    for module in model.modules():
        if isinstance(module, LSTM):
            nn.init.ones_(module.read.bias[module.size : 2 * module.size])
