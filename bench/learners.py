"""The same training in other programs, for a race: their layers and ours learn from the same batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.batch import Batch, Tokens
from regard.config import Config, Model, TransformerConfig
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.models.positions import sinusoid
from regard.sample import IGNORED
from regard.storage.huggingface import config_json, opens_in_transformers

PROGRAMS = ("transformers", "torch.nn")
PRECISIONS = ("float32", "bfloat16")  # of the products; weights are float32 in both
Update = Callable[[Sequence[Batch]], None]


def learners(
    programs: Sequence[str], config: Config, source: Tokenizer, target: Tokenizer | None, device: torch.device
) -> dict[str, Update]:
    """One update of a model of the run's shape, for each program and precision."""
    return {
        f"{program} {precision}": Learner(
            MAKERS[program](config.model, source, target).to(device), config, precision == "bfloat16"
        ).update
        for program in programs
        for precision in PRECISIONS
    }


def see_that_they_can(programs: Sequence[str], model: Model) -> None:
    """Before the work, not after it."""
    for program in programs:
        if program not in PROGRAMS:
            raise UsageError(f"--against {program}: choose among {', '.join(PROGRAMS)}")
        if model.family != "transformer":
            raise UsageError(f"--against {program}: the race is for the family transformer")
    if "transformers" in programs and find_spec("transformers") is None:
        raise UsageError("--against transformers: it is not installed here")
    if "transformers" in programs and not opens_in_transformers(model):
        raise UsageError("--against transformers: it has no model of this shape")
    if "torch.nn" in programs and not fits_torch(model):
        raise UsageError("--against torch.nn: it has no layers of this shape")


def fits_torch(model: Model) -> bool:
    return (
        isinstance(model, TransformerConfig)
        and model.positions.startswith("sinusoidal")
        and model.scale_embeddings
        and model.activation in ("relu", "gelu")
        and model.channels * model.heads == model.width
        and model.epsilon == 1e-5
    )


class Learner:
    """A loop as their documentation shows it, with the fast options: fused Adam, autocast."""

    def __init__(self, model: nn.Module, config: Config, half: bool) -> None:
        self.model, self.half, self.train = model.train(), half, config.train
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def update(self, batches: Sequence[Batch]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for batch in batches:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
                loss = self.loss(batch.to(self.device))
            (loss / len(batches)).backward()  # type: ignore[no-untyped-call]
        if self.train.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.train.clip)
        self.optimizer.step()

    def loss(self, batch: Batch) -> Tensor:
        assert batch.labels is not None
        logits, smoothing = self.model(batch.source, batch.target), self.train.label_smoothing
        return F.cross_entropy(
            logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing
        )


class Transformers(nn.Module):
    """The class of transformers that the run's own folder would be opened with."""

    def __init__(self, model: Model, source: Tokenizer, target: Tokenizer | None) -> None:
        super().__init__()
        from transformers import AutoConfig, AutoModelForSeq2SeqLM

        told = config_json(model, source, target)
        made: Any = AutoModelForSeq2SeqLM
        self.model = made.from_config(AutoConfig.for_model(**told))

    def forward(self, source: Tokens, target: Tokens) -> Tensor:
        seen = (source.positions >= 0).long()
        answer = self.model(
            input_ids=source.ids, attention_mask=seen, decoder_input_ids=target.ids, use_cache=False
        )
        logits: Tensor = answer.logits
        return logits


class TorchLayers(nn.Module):
    """torch.nn.Transformer between embeddings and the output layer, which are one matrix where ours are.

    Like ours it drops only what a sub-layer adds, and has a last norm only where the layers end without one.
    """

    def __init__(self, model: Model, source: Tokenizer, target: Tokenizer | None) -> None:
        super().__init__()
        assert isinstance(model, TransformerConfig)
        reading, writing = model.depth
        self.reads = nn.Embedding(len(source), model.width)
        joint = target is None and model.tie_embeddings
        self.writes = self.reads if joint else nn.Embedding(len(target or source), model.width)
        shape = (model.width, model.heads, model.feed_forward, model.dropout)
        how: dict[str, Any] = {"batch_first": True, "norm_first": model.norm == "pre"}
        activation = F.relu if model.activation == "relu" else F.gelu
        layer = nn.TransformerEncoderLayer(*shape, activation, **how)
        last = nn.LayerNorm(model.width) if model.norm == "pre" else None
        encoder = nn.TransformerEncoder(layer, reading, last, enable_nested_tensor=False)  # else it warns
        self.layers = nn.Transformer(
            *shape[:2], reading, writing, *shape[2:], activation, custom_encoder=encoder, **how
        )
        if model.norm == "post":
            self.layers.decoder.norm = None
        for part in self.layers.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
            elif isinstance(part, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                part.dropout = nn.Identity()  # type: ignore[assignment]  # inside the feed-forward
        self.dropout = nn.Dropout(model.dropout)
        self.output = nn.Linear(model.width, self.writes.num_embeddings, bias=model.output_bias)
        if model.tie_embeddings:
            self.output.weight = self.writes.weight
        self.register_buffer("waves", sinusoid(torch.arange(model.max_length), model.width))

    def forward(self, source: Tokens, target: Tokens) -> Tensor:
        length, device = target.ids.shape[1], target.ids.device
        ahead = nn.Transformer.generate_square_subsequent_mask(length, device, torch.bool)
        hidden, later = source.positions < 0, target.positions < 0
        stream = self.layers(
            self.embed(self.reads, source),
            self.embed(self.writes, target),
            tgt_mask=ahead,
            src_key_padding_mask=hidden,
            tgt_key_padding_mask=later,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )
        logits: Tensor = self.output(stream)
        return logits

    def embed(self, words: nn.Embedding, tokens: Tokens) -> Tensor:
        waves: Tensor = self.waves  # type: ignore[assignment]
        found: Tensor = words(tokens.ids) * words.embedding_dim**0.5 + waves[: tokens.ids.shape[1]]
        return self.dropout(found)  # type: ignore[no-any-return]


MAKERS: dict[str, Callable[[Model, Tokenizer, Tokenizer | None], nn.Module]] = {
    "transformers": Transformers,
    "torch.nn": TorchLayers,
}
