"""Builders: each family passes its attention, positions, norms and feed-forward to the same `Block`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from regard.batch import FrameSize
from regard.config.model import (
    BahdanauConfig,
    BertConfig,
    FrameModelConfig,
    GPTConfig,
    LlamaConfig,
    ModelConfig,
    RNNConfig,
    T5Config,
    TransformerConfig,
)
from regard.models.attention import MultiHeadAttention
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
    Scale,
)
from regard.models.positions import (
    Alibi,
    AttentionPositions,
    Learned,
    RelativeBias,
    Rotary,
    Sinusoidal,
    TokenEmbedding,
)
from regard.models.ssru import SSRU
from regard.models.ssru import WINDOW as SSRU_WINDOW
from regard.models.transformer import Block, EncoderDecoder, LanguageModel, Stack

if TYPE_CHECKING:
    from regard.models.encoder import EncoderOnly
    from regard.models.recurrent import RecurrentEncoderDecoder

    GenerativeModel = EncoderDecoder | LanguageModel | RecurrentEncoderDecoder  # generates token by token
    Model = GenerativeModel | EncoderOnly
else:  # encoders, recurrent models and models of frames are imported when one is built
    GenerativeModel = Model = nn.Module


InputSize = int | FrameSize  # tokens in a vocabulary, or the size of frames


def build(config: ModelConfig, source_vocabulary: InputSize, target_vocabulary: int | None = None) -> Model:
    """A model with random weights. Without a target vocabulary both sides share one, and its embedding.

    For encoders `target_vocabulary` is the number of labels.
    """
    return FAMILIES[config.family](config, source_vocabulary, target_vocabulary)


def build_meta(
    config: ModelConfig, source_vocabulary: InputSize, target_vocabulary: int | None = None
) -> Model:
    """The same model on the meta device: shapes without memory, for weights that are loaded or counted."""
    with torch.device("meta"), SkipInit():
        return build(config, source_vocabulary, target_vocabulary)


class SkipInit(TorchFunctionMode):
    """Skip random initialisation: on the meta device it would import torch's compiler, which is slow."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.__name__ in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def transformer(config: TransformerConfig, source: int, target: int | None = None) -> EncoderDecoder:
    """The paper's encoder-decoder (Vaswani et al. 2017, Figure 1).

    With learned positions and a norm of the embeddings it is BART, pre-norm mBART, without that norm M2M100.
    """
    width = config.width
    waves: dict[str, Callable[..., Sinusoidal | Learned]] = {
        "sinusoidal": Sinusoidal,
        "sinusoidal_halves": partial(Sinusoidal, halves=True),
        "sinusoidal_tensor2tensor": partial(Sinusoidal, halves=True, denominator=width - 2),
        "learned": Learned,
    }
    parts = Parts(
        attention=partial(MultiHeadAttention, width, config.heads, config.channels),
        feed_forward=partial(FeedForward, width, config.feed_forward, ACTIVATIONS[config.activation]),
        norm=partial(nn.LayerNorm, width, eps=config.epsilon),
        residual=RESIDUALS[config.norm],
        dropout=config.dropout,
        positions=partial(Alibi, config.heads) if config.positions == "alibi" else None,
        window=config.window,
    )

    def embed(words: nn.Embedding) -> TokenEmbedding:
        factor = width**0.5 if config.scale_embeddings else 1.0
        make = waves.get(config.positions)  # ALiBi adds nothing here
        positions = make(width, config.max_length, config.first_position) if make else None
        norm = parts.norm() if config.embedding_norm else None
        return TokenEmbedding(words, positions, config.dropout, factor, norm=norm)

    causal = parts
    if config.decoder_mixer == "ssru":
        causal = replace(parts, mixer=partial(SSRU, width), positions=None, window=SSRU_WINDOW)
    return encoder_decoder(config, source, target, parts, causal, embed, config.output_bias)


def t5(config: T5Config, source: int, target: int | None = None) -> EncoderDecoder:
    """T5 (Raffel et al. 2020): relative position bias, no other biases, scores not scaled.

    `gated` is version 1.1, with an untied output layer; encoder and decoder share one embedding anyway.
    """
    width, heads = config.width, config.heads
    distances = config.relative_buckets, config.relative_max_distance
    forward = GatedFeedForward if config.gated else FeedForward
    parts = Parts(
        attention=partial(MultiHeadAttention, width, heads, config.channels, bias=False, scale=1.0),
        feed_forward=partial(forward, width, config.feed_forward, ACTIVATIONS[config.activation], bias=False),
        norm=partial(RMSNorm, width, eps=config.epsilon),
        residual=PreNorm,
        dropout=config.dropout,
        positions=partial(RelativeBias, heads, True, *distances),
    )
    embed = partial(TokenEmbedding, positions=None, dropout=config.dropout)
    causal = replace(parts, positions=partial(RelativeBias, heads, False, *distances))
    model = encoder_decoder(config, source, target, parts, causal, embed)
    init_t5(model, config)
    if config.tie_embeddings:  # the shared embedding is sqrt(D) times too large for the output
        model.decoder.final_norm = nn.Sequential(model.decoder.final_norm, Scale(width**-0.5))
    return model


def encoder_decoder(
    config: TransformerConfig | T5Config,
    source_vocabulary: int,
    target_vocabulary: int | None,
    encoder: Parts,
    decoder: Parts,
    embed: Callable[[nn.Embedding], TokenEmbedding],
    output_bias: bool = False,
) -> EncoderDecoder:
    encoder_layers, decoder_layers = config.depth
    source = embed(nn.Embedding(source_vocabulary, config.width))
    shared = target_vocabulary is None and (config.tie_embeddings or config.family == "t5")
    words = source.tokens if shared else nn.Embedding(target_vocabulary or source_vocabulary, config.width)
    target = embed(words)
    output = Linear(config.width, words.num_embeddings, bias=output_bias)
    model = EncoderDecoder(
        source=source,
        target=target,
        encoder=encoder.stack(encoder_layers),
        decoder=decoder.stack(decoder_layers, cross=True),
        output=output,
    )
    init_glorot(model)
    if config.tie_embeddings:
        output.weight = target.tokens.weight  # paper, 3.4
    return model


def gpt(config: GPTConfig, vocabulary: int, _: int | None = None) -> LanguageModel:
    """GPT-2 (Radford et al. 2019): pre-norm, learned or other positions, tied embeddings.

    With parallel layers, of whose heads a part rotates, it is GPT-NeoX (Pythia).
    """
    width = config.width
    inside: dict[str, Callable[[], AttentionPositions]] = {
        "rotary": partial(Rotary, config.channels, config.rope_theta, None, config.rotary_channels),
        "alibi": partial(Alibi, config.heads),
    }
    parts = Parts(
        attention=partial(MultiHeadAttention, width, config.heads, config.channels),
        feed_forward=partial(FeedForward, width, config.feed_forward, ACTIVATIONS[config.activation]),
        norm=partial(nn.LayerNorm, width, eps=config.epsilon),
        residual=PreNorm,
        dropout=config.dropout,
        positions=inside.get(config.positions),
        window=config.window,
        parallel=config.parallel,
    )
    learned = None if config.positions in inside else Learned(width, config.max_length)
    return language_model(config, vocabulary, parts, learned)


def llama(config: LlamaConfig, vocabulary: int, _: int | None = None) -> LanguageModel:
    """Llama (Touvron et al. 2023): rotary positions, RMS norm, gated feed-forward, shared keys, no biases.

    With a window it is Mistral, with biases of queries, keys and values Qwen2, with norms of queries and keys
    Qwen3, with scaled embeddings and GELU Gemma.
    """
    width, norm = config.width, partial(RMSNorm, eps=config.epsilon)
    parts = Parts(
        attention=partial(
            MultiHeadAttention,
            width,
            config.heads,
            config.channels,
            kv_heads=config.kv_heads,
            bias=config.qkv_bias,
            output_bias=False,
            head_norm=partial(norm, config.channels) if config.qk_norm else None,
        ),
        feed_forward=partial(GatedFeedForward, width, config.feed_forward, ACTIVATIONS[config.activation]),
        norm=partial(norm, width),
        residual=PreNorm,
        dropout=config.dropout,
        positions=partial(Rotary, config.channels, config.rope_theta, config.rope_scaling),
        window=config.window,
    )
    factor = width**0.5 if config.embedding_scale else 1.0
    return language_model(config, vocabulary, parts, None, factor)


def language_model(
    config: GPTConfig | LlamaConfig,
    vocabulary: int,
    parts: Parts,
    positions: Learned | None,
    factor: float = 1.0,
) -> LanguageModel:
    words = nn.Embedding(vocabulary, config.width)
    output = Linear(config.width, vocabulary, bias=False)
    model = LanguageModel(
        TokenEmbedding(words, positions, config.dropout, factor), parts.stack(config.layers), output
    )
    init_gpt2_bert(model, config.layers)
    if config.tie_embeddings:
        output.weight = words.weight
    return model


def bert(config: BertConfig, vocabulary: int, labels: int | None = None) -> EncoderOnly:
    """BERT (Devlin et al. 2019), or with a bias of the scores by distance MPNet; a head for the task."""
    from regard.models.encoder import HEAD_ACTIVATIONS, POOLS, EncoderOnly, SentenceHead, WordHead

    width, norm = config.width, partial(nn.LayerNorm, config.width, eps=config.epsilon)
    activation = ACTIVATIONS[config.activation]
    alibi = partial(Alibi, config.heads) if config.positions == "alibi" else None
    parts = Parts(
        attention=partial(MultiHeadAttention, width, config.heads, config.channels),
        feed_forward=partial(FeedForward, width, config.feed_forward, activation),
        norm=norm,
        residual=PostNorm,
        dropout=config.dropout,
        positions=partial(RelativeBias, config.heads, True) if config.relative_bias else alibi,
        window=config.window,
    )
    words = nn.Embedding(vocabulary, width)
    is_learned = config.positions == "learned"
    positions = Learned(width, config.max_length, config.first_position) if is_learned else None
    segments = nn.Embedding(config.segments, width) if config.segments else None
    source = TokenEmbedding(words, positions, config.dropout, segments=segments, norm=norm())
    between = HEAD_ACTIVATIONS[config.head_activation]
    heads: dict[str, Callable[[], tuple[nn.Module, int]]] = {
        "words": lambda: (WordHead(width, activation, norm()), vocabulary),
        "sentence": lambda: (SentenceHead(width, config.dropout, between), labels or 2),
        "tokens": lambda: (Dropout(config.dropout), labels or 2),
        "span": lambda: (nn.Identity(), 2),  # start and end of the answer
    }
    head, classes = heads[config.head]()
    output = Linear(width, classes)
    pool = POOLS[config.pool] if config.head == "sentence" else None
    model = EncoderOnly(source, parts.stack(config.layers), head, output, pool)
    init_gpt2_bert(model)
    if config.tie_embeddings and config.head == "words":
        output.weight = words.weight
    return model


@dataclass(frozen=True)
class Parts:
    """Factories for the parts of a stack's blocks; each call makes a module with new weights."""

    attention: Callable[[], MultiHeadAttention]
    feed_forward: Callable[[], FeedForward | GatedFeedForward]
    norm: Callable[[], nn.Module]
    residual: type[PostNorm]
    dropout: float
    positions: Callable[[], AttentionPositions] | None = None
    window: int | None = None
    parallel: bool = False
    mixer: Callable[[], SSRU] | None = None  # instead of self-attention

    def stack(self, layers: int, cross: bool = False) -> Stack:
        blocks = [
            Block(
                attention=(self.mixer or self.attention)(),
                feed_forward=self.feed_forward(),
                residual=lambda: self.residual(self.norm(), self.dropout),
                cross=self.attention() if cross else None,
                parallel=self.parallel,
            )
            for _ in range(layers)
        ]
        last = self.norm() if issubclass(self.residual, PreNorm) else nn.Identity()
        positions = self.positions() if self.positions is not None else None
        return Stack(blocks, last, positions, self.window)


def frame_model(config: FrameModelConfig, size: FrameSize, outputs: int | None = None) -> Model:
    """ViT, AST, Whisper, or ViT and GPT-2; `outputs` is the number of labels or the vocabulary."""
    from regard.models.frames import build_frame_model

    return build_frame_model(config, size, outputs)


def recurrent(
    config: RNNConfig | BahdanauConfig, source_vocabulary: int, target_vocabulary: int | None = None
) -> RecurrentEncoderDecoder:
    """Sequence to sequence through one state (`rnn`), or with attention at every step (`bahdanau`)."""
    from regard.models.recurrent import build_recurrent, init_forget_bias

    model = build_recurrent(config, source_vocabulary, target_vocabulary)
    init_glorot(model)
    init_forget_bias(model)
    if config.tie_embeddings:
        model.output.weight = model.target.weight
    return model


def init_glorot(model: nn.Module) -> None:
    """Glorot for matrices; embeddings N(0, 1/D), which have unit variance after scaling by sqrt(D)."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


def init_gpt2_bert(model: nn.Module, layers: int | None = None) -> None:
    """BERT init: N(0, 0.02). GPT-2 (`layers` given): residual projections scaled by 1/sqrt(2N)."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            is_residual = name.endswith((".attention.output", ".feed_forward.down"))
            nn.init.normal_(
                module.weight, std=0.02 * ((2 * layers) ** -0.5 if layers and is_residual else 1.0)
            )
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, Learned):
            nn.init.normal_(module.table, std=0.02)


@torch.no_grad()
def init_t5(model: EncoderDecoder, config: T5Config) -> None:
    """T5 init: the query weights carry the factor 1/sqrt(C) of the scores; embeddings have unit variance.

    Otherwise the first scores are sqrt(C) times too large, and attention saturates on one token. The learning
    rate of these weights is scaled by the same factors (`lr_multipliers`).
    """
    model.lr_multipliers = {"query.weight": config.channels**-0.5, "tokens.weight": config.width**0.5}
    for name, parameter in model.named_parameters():
        for end, size in model.lr_multipliers.items():
            if name.endswith(end):
                parameter.mul_(size)


def parameters(model: nn.Module) -> int:
    """Number of parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())


# family -> its builder; a new family is a new entry
FAMILIES: dict[str, Callable[[Any, Any, int | None], Model]] = {
    "transformer": transformer,
    "t5": t5,
    "rnn": recurrent,
    "bahdanau": recurrent,
    "gpt": gpt,
    "llama": llama,
    "bert": bert,
    "vit": frame_model,
    "ast": frame_model,
    "whisper": frame_model,
    "vit_gpt": frame_model,
}
