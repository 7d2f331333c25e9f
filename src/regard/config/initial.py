"""The section [init]: what a run starts from, and what of it is trained."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, field_validator

from regard.config.model_base import Section

Projection = Literal["q", "k", "v", "o", "gate", "up", "down"]


class LoRA(Section):
    """Low-rank adapters: each projection gets a trained difference (alpha / rank) B A."""

    rank: int = Field(8, ge=1, le=4096, description="rows of A, columns of B")
    alpha: float = Field(16.0, gt=0, description="the difference is scaled by alpha / rank")
    on: list[Projection] = Field(["q", "v"], min_length=1, description="projections with an adapter")


class Init(Section):
    """A pretrained model to start from, instead of random weights."""

    model: str | None = Field(
        None, alias="from", description="model folder: its weights, tokenizer and shape are used"
    )
    keep: Literal["fitting", "all"] = Field(
        "fitting", description="load the weights that fit, or fail unless all fit"
    )
    freeze: int | Literal["body"] = Field(
        0, description='number of lowest layers to freeze, with the embeddings; "body": all but the head'
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="learning rate of a layer relative to the layer above"
    )

    new_tokens: list[str] = Field(
        [],
        max_length=100_000,
        description="words to add to its vocabulary, at first the means of their tokens",
    )
    trim: bool = Field(False, description="leave out tokens of its vocabulary that do not occur in the data")
    lora: LoRA | None = Field(
        None,
        description="train low-rank adapters, and a classifier's, tagger's or answerer's head: "
        '{rank = 8, alpha = 16.0, on = ["q", "v"]}',
    )

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    @field_validator("freeze")
    @classmethod
    def _count(cls, freeze: int | str) -> int | str:
        if isinstance(freeze, int) and freeze < 0:
            raise ValueError(f'init.freeze = {freeze}: a number of layers, or "body"')
        return freeze

    def unsuitable(self, average: int) -> str:
        """Why a run cannot train adapters, "" if it can."""
        if self.model is None:
            return "init.lora adapts a pretrained model: name it in init.from"
        if self.new_tokens or self.trim:
            return "init.lora trains no embeddings: leave init.new_tokens and init.trim out"
        if self.freeze != 0:
            return "init.lora freezes everything else: leave init.freeze out"
        return "init.lora with train.average: averages of A and of B are no average" if average > 1 else ""
