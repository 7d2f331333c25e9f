"""The model of a run: one class for each family, with the fields that this family has and all its defaults.

Names as in the paper's Table 3: width = d_model, feed_forward = d_ff, head_width = d_k = d_v. This module
imports pydantic alone, so that the models can import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import Field, TypeAdapter, model_validator

from regard.config.model_base import (
    MOST,
    Activation,
    AttentionConfig,
    EncoderDecoderConfig,
    Epsilon,
    FamilyConfig,
    Layers,
    Section,
    TokenConfig,
    TwoWayWindow,
    Window,
)


class TransformerConfig(EncoderDecoderConfig):
    """The encoder-decoder of Vaswani et al. 2017."""

    family: Literal["transformer"] = Field("transformer", description="the paper's encoder-decoder")
    activation: Activation = Field("relu", description="inside the feed-forward")
    norm: Literal["post", "pre"] = Field("post", description="layer norm after the sum (paper) or before")
    positions: Literal["sinusoidal", "sinusoidal_halves", "sinusoidal_tensor2tensor", "learned", "alibi"] = (
        Field(
            "sinusoidal",
            description="position embedding; sinusoidal_halves: all sines, then all cosines, as transformers "
            "has Marian's; sinusoidal_tensor2tensor: so too, with 2i / (width - 2), as M2M100 and Marian "
            "itself; alibi: attention scores less a multiple of the distance",
        )
    )
    window: TwoWayWindow = None
    first_position: int = Field(
        0, ge=0, le=1024, description="position of the first token; BART, mBART, M2M100: 2"
    )
    epsilon: Epsilon = Field(1e-5, description="of the layer norms")
    scale_embeddings: bool = Field(True, description="embeddings times sqrt(width), section 3.4 of the paper")
    embedding_norm: bool = Field(False, description="layer norm of the embeddings (BART, mBART)")
    output_bias: bool = Field(False, description="bias on the output projection")
    decoder_mixer: Literal["attention", "ssru"] = Field(
        "attention",
        description="how a decoder reads its own tokens; ssru: the recurrence of Marian's students",
    )
    gated: ClassVar[bool] = False
    rms_norm: ClassVar[bool] = False

    @model_validator(mode="after")
    def _check_width(self) -> TransformerConfig:
        if self.positions.startswith("sinusoidal") and self.width % 2:
            raise ValueError(
                f"model.width = {self.width} must be even for sinusoidal positions (sine and cosine in pairs)"
            )
        if self.positions == "sinusoidal_tensor2tensor" and self.width < 4:
            raise ValueError('model.width must be at least 4 for positions = "sinusoidal_tensor2tensor"')
        return self


class T5Config(EncoderDecoderConfig):
    """T5 (Raffel et al. 2020), version 1.1 with `gated`."""

    family: Literal["t5"] = Field("t5", description="T5")
    activation: Activation = Field("relu", description="inside the feed-forward")
    gated: bool = Field(False, description="gated feed-forward, as in version 1.1")
    positions: Literal["relative"] = Field("relative", description="bias of the attention scores by distance")
    relative_buckets: int = Field(32, ge=4, le=65536, description="number of relative-position buckets")
    relative_max_distance: int = Field(
        128, ge=4, le=1_000_000, description="distances from here on share a bucket"
    )
    epsilon: Epsilon = Field(1e-6, description="of the RMS norms")
    norm: ClassVar[Literal["pre"]] = "pre"
    rms_norm: ClassVar[bool] = True

    @model_validator(mode="after")
    def _check_distances(self) -> T5Config:
        if self.relative_max_distance <= self.relative_buckets // 2:
            raise ValueError(
                f"model.relative_max_distance = {self.relative_max_distance} must be more than half of "
                f"model.relative_buckets = {self.relative_buckets}: that half is for near distances, one each"
            )
        return self


class RopeScaling(Section):
    """Rotary angles for texts that are longer than those of the first training."""

    kind: Literal["linear", "llama3"] = Field("llama3", description="linear: all frequencies are divided")
    factor: float = Field(ge=1.0, description="what frequencies are divided by; llama3: low ones alone")
    low_factor: float = Field(1.0, gt=0, description="waves in original_length up to which all is divided")
    high_factor: float = Field(4.0, gt=0, description="waves in original_length from which on nothing is")
    original_length: int = Field(8192, ge=1, le=MOST, description="longest text of the first training")

    @model_validator(mode="after")
    def _check_order(self) -> RopeScaling:
        if self.high_factor <= self.low_factor:
            raise ValueError(f"high_factor must be more than low_factor = {self.low_factor}")
        return self


class DecoderConfig(AttentionConfig, TokenConfig):
    """What decoder-only language models have."""

    head: ClassVar[None] = None
    norm: ClassVar[Literal["pre"]] = "pre"
    positions: Literal["learned", "rotary", "alibi"]
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary angles")
    window: Window = None

    @property
    def depth(self) -> tuple[int, int]:
        return 0, self.layers

    @model_validator(mode="after")
    def _check_rotary(self) -> DecoderConfig:
        if self.positions == "rotary" and self.channels % 2:
            raise ValueError(
                f"a head of {self.channels} channels: rotary positions rotate pairs of channels, so that "
                "model.head_width (default: width / heads) must be even"
            )
        return self


class GPTConfig(DecoderConfig):
    """GPT-2 (Radford et al. 2019); with rotary positions and parallel layers GPT-NeoX."""

    family: Literal["gpt"] = Field("gpt", description="GPT-2")
    activation: Activation = Field("gelu_tanh", description="inside the feed-forward")
    positions: Literal["learned", "rotary", "alibi"] = Field(
        "learned",
        description="position embedding, rotary keys, or attention scores less a multiple of the distance",
    )
    rotary_channels: int | None = Field(
        None, ge=2, le=MOST, multiple_of=2, description="channels of a head that rotate; default: all"
    )
    parallel: bool = Field(False, description="attention and feed-forward read the same input (GPT-NeoX)")
    epsilon: Epsilon = Field(1e-5, description="of the layer norms")
    kv_heads: ClassVar[None] = None
    gated: ClassVar[bool] = False
    rms_norm: ClassVar[bool] = False


class LlamaConfig(DecoderConfig):
    """Llama (Touvron et al. 2023), and with other parts Mistral, Qwen and Gemma."""

    family: Literal["llama"] = Field("llama", description="Llama")
    kv_heads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="heads of keys and values, shared by groups of queries; default: heads",
    )
    activation: Activation = Field("swish", description="inside the gated feed-forward")
    positions: Literal["rotary"] = Field("rotary", description="rotary queries and keys")
    rope_scaling: RopeScaling | None = Field(None, description="rotary angles of longer texts")
    qkv_bias: bool = Field(False, description="biases of queries, keys and values (Qwen2)")
    qk_norm: bool = Field(False, description="RMS norm of each head's queries and keys (Qwen3)")
    embedding_scale: bool = Field(False, description="embeddings times sqrt(width) (Gemma)")
    epsilon: Epsilon = Field(1e-5, description="of the RMS norms")
    gated: ClassVar[bool] = True
    rms_norm: ClassVar[bool] = True

    @model_validator(mode="after")
    def _check_groups(self) -> LlamaConfig:
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(
                f"model.heads = {self.heads} is not a multiple of model.kv_heads = {self.kv_heads}"
            )
        return self


class BertConfig(AttentionConfig, TokenConfig):
    """BERT (Devlin et al. 2019)."""

    family: Literal["bert"] = Field("bert", description="BERT")
    activation: Activation = Field("gelu", description="inside the feed-forward")
    head: Literal["words", "sentence", "tokens", "span"] = Field(
        "words", description="what the output layer classifies; default: what the task needs"
    )
    pool: Literal["first", "mean"] = Field(
        "first", description='head = "sentence": the first position, or the mean of all'
    )
    segments: int = Field(2, ge=0, le=2, description="segment embeddings; RoBERTa has 1, DistilBERT 0")
    head_activation: Literal["tanh", "relu"] = Field(
        "tanh", description='head = "sentence": between its two layers; relu as in DistilBERT'
    )
    positions: Literal["learned", "alibi"] = Field(
        "learned", description="position embedding, or attention scores less a multiple of the distance"
    )
    first_position: int = Field(0, ge=0, le=1024, description="its row of the table; RoBERTa: 2")
    relative_bias: bool = Field(
        False, description="besides, a learned bias of the attention scores by distance, as in MPNet"
    )
    window: TwoWayWindow = None
    epsilon: Epsilon = Field(1e-12, description="of the layer norms")
    norm: ClassVar[Literal["post"]] = "post"
    gated: ClassVar[bool] = False
    rms_norm: ClassVar[bool] = False

    @property
    def depth(self) -> tuple[int, int]:
        return self.layers, 0

    @model_validator(mode="after")
    def _check_bias(self) -> BertConfig:
        if self.relative_bias and self.positions == "alibi":
            raise ValueError('model.relative_bias goes with positions = "learned" alone')
        return self


class FrameEncoderConfig(AttentionConfig):
    """What encoders of pictures and sounds have."""

    activation: Activation = Field("gelu", description="inside the feed-forward")
    epsilon: Epsilon = Field(1e-12, description="of the layer norms")
    head: ClassVar[Literal["sentence"]] = "sentence"
    norm: ClassVar[Literal["pre"]] = "pre"
    gated: ClassVar[bool] = False
    rms_norm: ClassVar[bool] = False
    tie_embeddings: ClassVar[bool] = False
    max_length: ClassVar[int] = MOST  # [input] decides how many positions there are

    @property
    def depth(self) -> tuple[int, int]:
        return self.layers, 0


class ViTConfig(FrameEncoderConfig):
    """ViT (Dosovitskiy et al. 2021), or with convolutions before it (CCT, Hassani et al. 2021)."""

    family: Literal["vit"] = Field("vit", description="ViT, an encoder of pictures")
    pool: Literal["first", "mean"] = Field("first", description="the class token, or the mean of all patches")
    positions: Literal["learned", "sinusoidal"] = Field(
        "learned", description="position embedding; sinusoidal: of rows and columns, or of times"
    )
    front: Literal["patches", "convolution"] = Field(
        "patches", description="a linear map of each patch or frame, or two convolutions with pooling"
    )

    @property
    def class_tokens(self) -> int:
        return int(self.pool == "first")


class ASTConfig(FrameEncoderConfig):
    """AST (Gong et al. 2021): a ViT over the patches of a spectrogram, with two class tokens."""

    family: Literal["ast"] = Field("ast", description="AST, an encoder of sounds")
    positions: Literal["learned"] = Field("learned", description="position embedding")
    pool: ClassVar[Literal["first_two"]] = "first_two"
    front: ClassVar[Literal["patches"]] = "patches"
    class_tokens: ClassVar[int] = 2


class FramesToTextConfig(EncoderDecoderConfig):
    """What encoder-decoders have that read frames and write text."""

    activation: Activation = Field("gelu", description="inside the feed-forward")
    epsilon: Epsilon = Field(1e-5, description="of the layer norms")
    positions: ClassVar[Literal["learned"]] = "learned"  # of the decoder
    norm: ClassVar[Literal["pre"]] = "pre"
    gated: ClassVar[bool] = False
    rms_norm: ClassVar[bool] = False
    front: ClassVar[str]
    class_tokens: ClassVar[int] = 0


class WhisperConfig(FramesToTextConfig):
    """Whisper (Radford et al. 2022): convolutions over a spectrogram, then the paper's encoder-decoder."""

    family: Literal["whisper"] = Field("whisper", description="Whisper, sound to text")
    front: ClassVar[str] = "spectrum"

    @model_validator(mode="after")
    def _check_even_width(self) -> WhisperConfig:
        if self.width % 2:
            raise ValueError(f"model.width = {self.width} must be even for sinusoidal positions")
        return self


class ViTGPTConfig(FramesToTextConfig):
    """A ViT whose patches a GPT-2 with cross-attention describes."""

    family: Literal["vit_gpt"] = Field("vit_gpt", description="ViT and GPT-2, picture to text")
    activation: Activation = Field("gelu", description="inside the feed-forward of the encoder")
    epsilon: Epsilon = Field(1e-12, description="of the layer norms of the encoder")
    decoder_epsilon: Epsilon = Field(1e-5, description="of the layer norms of the decoder")
    front: ClassVar[str] = "patches"
    class_tokens: ClassVar[int] = 1


class RecurrentConfig(TokenConfig):
    """What recurrent encoder-decoders have."""

    layers: Layers = Field(6, description="number of layers in the encoder and in the decoder")
    cell: Literal["lstm", "gru"] = Field("lstm", description="kind of cell")
    reverse_source: bool = Field(False, description="read the last word first (Sutskever et al. 2014)")
    head: ClassVar[None] = None
    norm: ClassVar[None] = None
    positions: ClassVar[None] = None

    @property
    def depth(self) -> tuple[int, int]:
        return self.layers, self.layers


class RNNConfig(RecurrentConfig):
    """Sequence to sequence through one state (Sutskever et al. 2014)."""

    family: Literal["rnn"] = Field("rnn", description="sequence to sequence through one state")


class BahdanauConfig(RecurrentConfig):
    """With attention to the source (Bahdanau et al. 2015)."""

    family: Literal["bahdanau"] = Field("bahdanau", description="RNN with attention")
    score: Literal["additive", "dot", "general"] = Field("additive", description="of the attention")

    @model_validator(mode="after")
    def _check_width(self) -> BahdanauConfig:
        if self.width % 2:
            raise ValueError(
                f"model.width = {self.width} must be even: half of it reads forwards and half backwards"
            )
        return self


FrameModelConfig = ViTConfig | ASTConfig | WhisperConfig | ViTGPTConfig  # families that read frames
ModelConfig = (
    TransformerConfig
    | RNNConfig
    | BahdanauConfig
    | GPTConfig
    | LlamaConfig
    | T5Config
    | BertConfig
    | FrameModelConfig
)
CLASSES: dict[str, type[ModelConfig]] = {
    each.model_fields["family"].default: each for each in get_args(ModelConfig)
}
FIELDS = {family: frozenset(each.model_fields) for family, each in CLASSES.items()}
AnyModelConfig = Annotated[ModelConfig, Field(discriminator="family")]
_ADAPTER: TypeAdapter[ModelConfig] = TypeAdapter(AnyModelConfig)
M = TypeVar("M", bound=FamilyConfig)


def parse_model(fields: Mapping[str, Any]) -> ModelConfig:
    """The config of the family that `family` names; fields that are None get their default."""
    given = {name: value for name, value in fields.items() if value is not None}
    return _ADAPTER.validate_python({"family": "transformer", **given})


def changed(model: M, **fields: Any) -> M:
    """A copy with other values, which are checked."""
    return type(model).model_validate({**model.model_dump(), **fields})
