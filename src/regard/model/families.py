"""A family is a short builder that hands attention, positions, norms and feed-forward to the same `Block`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from regard.config import Model as ModelConfig
from regard.model.attention import MultiHeadAttention
from regard.model.layers import ACTIVATIONS, RESIDUALS, FeedForward, Linear
from regard.model.positions import Learned, Sinusoidal
from regard.model.recurrent import (
    CELLS,
    LSTM,
    SCORES,
    Cell,
    Reader,
    RecurrentEncoderDecoder,
    Writer,
)
from regard.model.transformer import Block, Embedding, EncoderDecoder, Stack

Model = EncoderDecoder | RecurrentEncoderDecoder


def build(config: ModelConfig, source_vocabulary: int, target_vocabulary: int | None = None) -> Model:
    """A model with fresh weights. Without a target vocabulary both sides share one, and its embedding."""
    builder = transformer if config.family == "transformer" else recurrent
    return builder(config, source_vocabulary, target_vocabulary)


def transformer(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int | None = None
) -> EncoderDecoder:
    """The paper's (Vaswani et al. 2017, Figure 1)."""
    width = config.width
    encoder_layers, decoder_layers = config.depth
    source = embedding(config, source_vocabulary)
    shared = target_vocabulary is None and config.tie_embeddings
    target = embedding(config, target_vocabulary or source_vocabulary, source.tokens if shared else None)
    output = Linear(width, target.tokens.num_embeddings, bias=False)
    model = EncoderDecoder(
        source=source,
        target=target,
        encoder=stack(config, encoder_layers, cross=False),
        decoder=stack(config, decoder_layers, cross=True),
        output=output,
    )
    initialise(model)
    if config.tie_embeddings:
        output.weight = target.tokens.weight  # paper, 3.4
    return model


def embedding(config: ModelConfig, vocabulary: int, tokens: nn.Embedding | None = None) -> Embedding:
    kind = Learned if config.positions == "learned" else Sinusoidal
    tokens = tokens or nn.Embedding(vocabulary, config.width)
    return Embedding(tokens, kind(config.width, config.max_length), config.dropout)


def stack(config: ModelConfig, layers: int, cross: bool) -> Stack:
    width = config.width
    attention = partial(MultiHeadAttention, width, config.heads, config.channels)
    blocks = [
        Block(
            attention=attention(),
            feed_forward=FeedForward(width, config.feed_forward, ACTIVATIONS[config.activation]),
            residual=partial(RESIDUALS[config.norm], width, config.dropout),
            cross=attention() if cross else None,
        )
        for _ in range(layers)
    ]
    return Stack(blocks, nn.LayerNorm(width) if config.norm == "pre" else nn.Identity())


def recurrent(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int | None = None
) -> RecurrentEncoderDecoder:
    """Sequence to sequence through one state (`rnn`), or with a look back at every step (`bahdanau`)."""
    width, looks = config.width, config.family == "bahdanau"
    source = nn.Embedding(source_vocabulary, width)
    shared = target_vocabulary is None and config.tie_embeddings
    target = source if shared else nn.Embedding(target_vocabulary or source_vocabulary, width)
    output = Linear(width, target.num_embeddings, bias=False)
    cell: Callable[[int, int], Cell] = CELLS[config.cell]
    directions = 2 if looks else 1
    reading = [[cell(width, width // directions) for _ in range(directions)] for _ in range(config.layers)]
    writing = [cell(width * (2 if looks and not number else 1), width) for number in range(config.layers)]
    state = width * writing[0].parts
    model = RecurrentEncoderDecoder(
        source=source,
        target=target,
        reader=Reader(reading, config.dropout, config.reverse_source),
        bridge=nn.Sequential(Linear(state, state), nn.Tanh()) if looks else nn.Identity(),
        writer=Writer(writing, SCORES[config.score](width) if looks else None, width, config.dropout),
        output=output,
        dropout=config.dropout,
    )
    initialise(model)
    remember_at_first(model)
    if config.tie_embeddings:
        output.weight = target.weight
    return model


def remember_at_first(model: nn.Module) -> None:
    """Forget gates begin open (bias 1), or nothing old would survive at first (Jozefowicz et al. 2015)."""
    for module in model.modules():
        if isinstance(module, LSTM):
            nn.init.ones_(module.read.bias[module.size : 2 * module.size])


def initialise(model: nn.Module) -> None:
    """Glorot for matrices; embeddings with variance 1/D, so that times sqrt(D) they are of unit size."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


def parameters(model: nn.Module) -> int:
    """How many numbers the model learns; what is shared counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
