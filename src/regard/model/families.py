"""A family is a short builder that hands attention, positions, norms and feed-forward to the same `Block`."""

from __future__ import annotations

from functools import partial

from torch import nn

from regard.config import Model as ModelConfig
from regard.model.attention import MultiHeadAttention
from regard.model.layers import ACTIVATIONS, RESIDUALS, FeedForward, Linear
from regard.model.positions import Learned, Sinusoidal
from regard.model.transformer import Block, Embedding, EncoderDecoder, Stack


def build(
    config: ModelConfig, source_vocabulary: int, target_vocabulary: int | None = None
) -> EncoderDecoder:
    """A model with fresh weights. Without a target vocabulary both sides share one, and its embedding."""
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
