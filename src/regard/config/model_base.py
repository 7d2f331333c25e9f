"""What the model configs of several families have in common. Imports pydantic alone."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST = 10**12  # the largest count that a field takes
Count = Annotated[int, Field(ge=1, le=MOST)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Layers = Annotated[int, Field(ge=1, le=1000)]
Epsilon = Annotated[float, Field(gt=0)]
Activation = Literal["relu", "gelu", "gelu_tanh", "swish"]


class Section(BaseModel):
    """Frozen: a resolved config is a value that is written into the run and never changes."""

    # strict: `heads = true` is not 1 and `joint = "no"` is not a switch; a whole number may stand for a float
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, strict=True, allow_inf_nan=False
    )


Window = Annotated[
    int | None,
    Field(ge=1, le=MOST, description="each token sees so many tokens, itself included; default: all"),
]
TwoWayWindow = Annotated[
    int | None,
    Field(
        ge=1,
        le=MOST,
        description="self-attention sees tokens at a smaller distance than this; default: all",
    ),
]


class FamilyConfig(Section):
    """What all families have."""

    preset: str | None = Field(None, description="name of a preset that sets the other fields")
    family: str
    width: int = Field(512, ge=2, le=65536, description="d_model, the size of the hidden states")
    layers: Layers = Field(6, description="number of layers, N")
    dropout: Share = Field(0.1, description="on the embeddings and on the output of every sub-layer")


class TokenConfig(FamilyConfig):
    """What families that write or read tokens have."""

    tie_embeddings: bool = Field(
        True, description="output layer = target embedding (= source embedding with one vocabulary)"
    )
    max_length: int = Field(512, ge=2, le=1_000_000, description="longest sequence, in tokens")


class AttentionConfig(FamilyConfig):
    """What families of attention layers have."""

    heads: int = Field(8, ge=1, le=1024, description="number of attention heads, h")
    head_width: int | None = Field(None, ge=1, le=8192, description="d_k = d_v; default: width / heads")
    feed_forward: int = Field(
        2048, ge=1, le=1_000_000, description="d_ff, the inner size of the feed-forward"
    )

    @property
    def channels(self) -> int:
        """C, the width of one head."""
        return self.head_width or self.width // self.heads

    @model_validator(mode="after")
    def _check_heads(self) -> AttentionConfig:
        if self.head_width is None and self.width % self.heads:
            raise ValueError(
                f"model.width = {self.width} is not a multiple of model.heads = {self.heads}: "
                "change one of them or give model.head_width"
            )
        return self


class EncoderDecoderConfig(AttentionConfig, TokenConfig):
    layers: Layers = Field(6, description="number of layers in the encoder and in the decoder, N")
    encoder_layers: Layers | None = Field(None, description="default: layers")
    decoder_layers: Layers | None = Field(None, description="default: layers")
    head: ClassVar[None] = None

    @property
    def depth(self) -> tuple[int, int]:
        """Layers of the encoder and of the decoder."""
        return self.encoder_layers or self.layers, self.decoder_layers or self.layers
