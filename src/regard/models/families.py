"""A family is a short builder that hands attention, positions, norms and feed-forward to the same `Block`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.config import Model as ModelConfig
from regard.models.attention import MultiHeadAttention
from regard.models.encoder import POOLS, EncoderOnly, SentenceHead, WordHead
from regard.models.layers import (
    ACTIVATIONS,
    RESIDUALS,
    Dropout,
    FeedForward,
    GatedFeedForward,
    Linear,
    PostNorm,
    PreNorm,
    RMSNorm,
    Scaled,
)
from regard.models.positions import Learned, RelativeBias, Rotary, Sinusoidal
from regard.models.recurrent import (
    CELLS,
    LSTM,
    SCORES,
    Cell,
    Reader,
    RecurrentEncoderDecoder,
    Writer,
)
from regard.models.transformer import Block, Embedding, EncoderDecoder, LanguageModel, Stack

Writing = EncoderDecoder | LanguageModel | RecurrentEncoderDecoder  # those that say word after word
Model = Writing | EncoderOnly


def build(config: ModelConfig, source_vocabulary: int, target_vocabulary: int | None = None) -> Model:
    """A model with fresh weights. Without a target vocabulary both sides share one, and its embedding."""
    return FAMILIES[config.family](config, source_vocabulary, target_vocabulary)


def outline(config: ModelConfig, source_vocabulary: int, target_vocabulary: int | None = None) -> Model:
    """The same model as shapes alone, without memory or numbers: for weights that are read or counted."""
    with torch.device("meta"), Unfilled():
        return build(config, source_vocabulary, target_vocabulary)


class Unfilled(TorchFunctionMode):
    """Draws no numbers: on the device "meta" that would import the compiler, a second of every start."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def transformer(config: ModelConfig, source: int, target: int | None = None) -> EncoderDecoder:
    """The paper's (Vaswani et al. 2017, Figure 1)."""
    width = config.width
    waves = partial(Sinusoidal, halves=config.positions == "sinusoidal_halves")
    positions = Learned if config.positions == "learned" else waves
    parts = Parts(
        attention=partial(MultiHeadAttention, width, config.heads, config.channels),
        feed_forward=partial(FeedForward, width, config.feed_forward, ACTIVATIONS[config.activation]),
        norm=partial(nn.LayerNorm, width, eps=config.epsilon or 1e-5),
        residual=RESIDUALS[config.norm],
        dropout=config.dropout,
    )

    def embed(words: nn.Embedding) -> Embedding:
        factor = width**0.5 if config.scale_embeddings else 1.0
        return Embedding(words, positions(width, config.max_length), config.dropout, factor)

    return encoder_decoder(config, source, target, parts, parts, embed)


def t5(config: ModelConfig, source: int, target: int | None = None) -> EncoderDecoder:
    """T5 (Raffel et al. 2020): order as a bias of the scores, no biases elsewhere, scores not scaled.

    `gated` makes it version 1.1, whose output layer is its own; both sides read with one embedding anyway.
    """
    width, heads = config.width, config.heads
    forward = GatedFeedForward if config.gated else FeedForward
    parts = Parts(
        attention=partial(MultiHeadAttention, width, heads, config.channels, bias=False, scale=1.0),
        feed_forward=partial(forward, width, config.feed_forward, ACTIVATIONS[config.activation], bias=False),
        norm=partial(RMSNorm, width, eps=config.epsilon or 1e-6),
        residual=PreNorm,
        dropout=config.dropout,
        positions=partial(RelativeBias, heads, True, config.buckets, config.farthest),
    )
    embed = partial(Embedding, positions=None, dropout=config.dropout)
    one_way = partial(RelativeBias, heads, False, config.buckets, config.farthest)
    writing = replace(parts, positions=one_way)
    model = encoder_decoder(config, source, target, parts, writing, embed)
    begin_unscaled(model, config)
    if config.tie_embeddings:  # a shared matrix serves both ends: for the output it is too large by sqrt(D)
        model.decoder.last = nn.Sequential(model.decoder.last, Scaled(width**-0.5))
    return model


def encoder_decoder(
    config: ModelConfig,
    source_vocabulary: int,
    target_vocabulary: int | None,
    reading: Parts,
    writing: Parts,
    embed: Callable[[nn.Embedding], Embedding],
) -> EncoderDecoder:
    encoder_layers, decoder_layers = config.depth
    source = embed(nn.Embedding(source_vocabulary, config.width))
    shared = target_vocabulary is None and (config.tie_embeddings or config.family == "t5")
    words = source.tokens if shared else nn.Embedding(target_vocabulary or source_vocabulary, config.width)
    target = embed(words)
    output = Linear(config.width, words.num_embeddings, bias=config.output_bias)
    model = EncoderDecoder(
        source=source,
        target=target,
        encoder=reading.stack(encoder_layers),
        decoder=writing.stack(decoder_layers, cross=True),
        output=output,
    )
    initialise(model)
    if config.tie_embeddings:
        output.weight = target.tokens.weight  # paper, 3.4
    return model


def gpt(config: ModelConfig, vocabulary: int, _: int | None = None) -> LanguageModel:
    """GPT-2 (Radford et al. 2019): pre-norm, learned positions or turned keys, one matrix in and out."""
    width, rotary = config.width, config.positions == "rotary"
    parts = Parts(
        attention=partial(MultiHeadAttention, width, config.heads, config.channels),
        feed_forward=partial(FeedForward, width, config.feed_forward, ACTIVATIONS[config.activation]),
        norm=partial(nn.LayerNorm, width, eps=config.epsilon or 1e-5),
        residual=PreNorm,
        dropout=config.dropout,
        positions=partial(Rotary, config.channels, config.theta) if rotary else None,
    )
    return language_model(config, vocabulary, parts, None if rotary else Learned(width, config.max_length))


def llama(config: ModelConfig, vocabulary: int, _: int | None = None) -> LanguageModel:
    """Llama (Touvron et al. 2023): turned queries and keys, RMS norm, a gate, shared keys; no biases."""
    width = config.width
    parts = Parts(
        attention=partial(
            MultiHeadAttention, width, config.heads, config.channels, groups=config.groups, bias=False
        ),
        feed_forward=partial(GatedFeedForward, width, config.feed_forward, ACTIVATIONS[config.activation]),
        norm=partial(RMSNorm, width, eps=config.epsilon or 1e-5),
        residual=PreNorm,
        dropout=config.dropout,
        positions=partial(Rotary, config.channels, config.theta),
    )
    return language_model(config, vocabulary, parts, None)


def language_model(
    config: ModelConfig, vocabulary: int, parts: Parts, positions: Learned | None
) -> LanguageModel:
    words = nn.Embedding(vocabulary, config.width)
    output = Linear(config.width, vocabulary, bias=False)
    model = LanguageModel(Embedding(words, positions, config.dropout), parts.stack(config.depth[1]), output)
    begin_small(model, config.depth[1])
    if config.tie_embeddings:
        output.weight = words.weight
    return model


def bert(config: ModelConfig, vocabulary: int, labels: int | None = None) -> EncoderOnly:
    """BERT (Devlin et al. 2019): post-norm, learned positions, two segments, a head for the task."""
    width, norm = config.width, partial(nn.LayerNorm, config.width, eps=config.epsilon or 1e-12)
    activation = ACTIVATIONS[config.activation]
    parts = Parts(
        attention=partial(MultiHeadAttention, width, config.heads, config.channels),
        feed_forward=partial(FeedForward, width, config.feed_forward, activation),
        norm=norm,
        residual=PostNorm,
        dropout=config.dropout,
    )
    words = nn.Embedding(vocabulary, width)
    positions = Learned(width, config.max_length)
    source = Embedding(words, positions, config.dropout, segments=nn.Embedding(2, width), norm=norm())
    heads: dict[str, Callable[[], tuple[nn.Module, int]]] = {
        "words": lambda: (WordHead(width, activation, norm()), vocabulary),
        "sentence": lambda: (SentenceHead(width, config.dropout), labels or 2),
        "tokens": lambda: (Dropout(config.dropout), labels or 2),
        "span": lambda: (nn.Identity(), 2),  # the first and the last word
    }
    head, answers = heads[config.head or "words"]()
    output = Linear(width, answers)
    pool = POOLS[config.pool] if config.head == "sentence" else None
    model = EncoderOnly(source, parts.stack(config.depth[0]), head, output, pool)
    begin_small(model)
    if config.tie_embeddings and config.head in (None, "words"):
        output.weight = words.weight
    return model


@dataclass(frozen=True)
class Parts:
    """What the blocks of a stack are made of; each call makes a part with weights of its own."""

    attention: Callable[[], MultiHeadAttention]
    feed_forward: Callable[[], FeedForward | GatedFeedForward]
    norm: Callable[[], nn.Module]
    residual: type[PostNorm]
    dropout: float
    positions: Callable[[], Rotary | RelativeBias] | None = None

    def stack(self, layers: int, cross: bool = False) -> Stack:
        blocks = [
            Block(
                attention=self.attention(),
                feed_forward=self.feed_forward(),
                residual=lambda: self.residual(self.norm(), self.dropout),
                cross=self.attention() if cross else None,
            )
            for _ in range(layers)
        ]
        last = self.norm() if issubclass(self.residual, PreNorm) else nn.Identity()
        return Stack(blocks, last, self.positions() if self.positions is not None else None)


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


def begin_small(model: nn.Module, layers: int | None = None) -> None:
    """BERT's beginning, deviations of 0.02; GPT-2's: less by sqrt(2N) where 2N sub-layers add to one sum."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            ends = layers and name.endswith((".attention.output", ".feed_forward.narrow"))
            nn.init.normal_(module.weight, std=0.02 * ((2 * layers) ** -0.5 if layers and ends else 1.0))
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Learned):
            nn.init.normal_(module.table, std=0.02)


@torch.no_grad()
def begin_unscaled(model: EncoderDecoder, config: ModelConfig) -> None:
    """T5's beginning: what others divide the scores by is in its queries, and words are of unit size.

    Without it the first scores are sqrt(C) times too large: attention looks at one word, and never learns to
    look at others. What begins larger or smaller also learns so much faster or slower (`sizes`).
    """
    model.sizes = {"query.weight": config.channels**-0.5, "tokens.weight": config.width**0.5}
    for name, parameter in model.named_parameters():
        for end, size in model.sizes.items():
            if name.endswith(end):
                parameter.mul_(size)


FAMILIES: dict[str, Callable[[ModelConfig, int, int | None], Model]] = {
    "transformer": transformer,
    "rnn": recurrent,
    "bahdanau": recurrent,
    "gpt": gpt,
    "llama": llama,
    "t5": t5,
    "bert": bert,
}


def parameters(model: nn.Module) -> int:
    """How many numbers the model learns; what is shared counts once."""
    return sum(parameter.numel() for parameter in model.parameters())
