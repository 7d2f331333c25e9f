"""CTranslate2: its model specification filled with Regard's weights and written by its library.

The channel order is the same; the table of positions is written with the weights, unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import ctranslate2
import numpy as np
import numpy.typing as npt
import torch
from ctranslate2 import specs
from torch import Tensor, nn

from regard.config import GPTConfig, LlamaConfig, Model, T5Config, TransformerConfig
from regard.errors import UsageError
from regard.export.check import BEAM, GREEDY, Agreement, Reference, equal_share, token_names
from regard.export.sample import EncodedText, Ids
from regard.models.attention import MultiHeadAttention
from regard.models.layers import GatedFeedForward, RMSNorm, Scale
from regard.models.positions import Learned, RelativeBias, Sinusoidal, TokenEmbedding
from regard.models.transformer import Block, EncoderDecoder, LanguageModel, Stack
from regard.storage import Folder

# sinusoidal: CTranslate2's default input limit, or enough for the source and a longer target
MIN_POSITIONS, MAX_POSITIONS = 1024, 1 << 15
ACTIVATIONS = {
    "relu": specs.Activation.RELU,
    "gelu": specs.Activation.GELU,
    "gelu_tanh": specs.Activation.GELUTanh,
    "swish": specs.Activation.SWISH,
}
Spec = Any  # the library has no types


def write(folder: Folder, place: Path, precision: str) -> None:
    """Write model.bin, config.json and the vocabularies into an empty folder."""
    model, config = folder.model, folder.config
    if isinstance(model, EncoderDecoder) and isinstance(config, TransformerConfig | T5Config):
        spec = translation_spec(folder, model, config)
    elif isinstance(model, LanguageModel) and isinstance(config, GPTConfig | LlamaConfig):
        spec = language_spec(folder, model, config)
    else:
        raise ValueError(f"no specification for the family {config.family}")
    spec.config.layer_norm_epsilon = config.epsilon
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    spec.save(str(place))


def translation_spec(folder: Folder, model: EncoderDecoder, config: TransformerConfig | T5Config) -> Spec:
    refuse_parts(folder, "window", positions="alibi")
    encoder_layers, decoder_layers = config.depth
    shape = common_shape(config) | {
        "relative_attention_bias": config.positions == "relative",
        "layernorm_embedding": getattr(config, "embedding_norm", False),
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(encoder_layers, config.heads, **shape),
        specs.TransformerDecoderSpec(
            decoder_layers,
            config.heads,
            **shape,
            alignment_layer=max(0, decoder_layers - 2),  # as `EncoderDecoder.alignment`
            alignment_heads=config.heads,
        ),
    )
    set_embedding(spec.encoder, spec.encoder.embeddings[0], cast(TokenEmbedding, model.source), folder.config)
    set_stack(spec.encoder, model.encoder)
    set_decoder(spec.decoder, model, folder.config)
    spec.register_source_vocabulary(token_names(folder.source))
    spec.register_target_vocabulary(token_names(folder.target))
    set_specials(spec.config, folder)
    spec.config.decoder_start_token = token_names(folder.target)[folder.special.start]
    spec.config.add_source_eos = bool(folder.source.after)
    return spec


def language_spec(folder: Folder, model: LanguageModel, config: GPTConfig | LlamaConfig) -> Spec:
    refuse_parts(
        folder, "window", "rope_scaling", "qk_norm", "parallel", "rotary_channels", positions="alibi"
    )
    rotary = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rope_theta}
    spec = specs.TransformerDecoderModelSpec.from_config(
        config.depth[1],
        config.heads,
        **common_shape(config),
        **(rotary if config.positions == "rotary" else {}),
        num_heads_kv=config.kv_heads or config.heads,
    )
    set_decoder(spec.decoder, model, folder.config)
    spec.register_vocabulary(token_names(folder.target))
    set_specials(spec.config, folder)
    return spec


def refuse_parts(folder: Folder, *fields: str, positions: str) -> None:
    """Parts that CTranslate2 does not have, or has in another way."""
    wrong = [field for field in fields if getattr(folder.config, field, None)]
    if folder.config.positions == positions:
        wrong.append("positions")
    if wrong:
        message = f"{folder.path}: model.{wrong[0]} is not exported to CTranslate2"
        raise UsageError(message, code="E_EXPORT_FAMILY")


def common_shape(config: TransformerConfig | T5Config | GPTConfig | LlamaConfig) -> dict[str, Any]:
    """Arguments of both encoder and decoder specifications."""
    return {
        "pre_norm": config.norm == "pre",
        "activation": ACTIVATIONS[config.activation],
        "ffn_glu": config.gated,
        "rms_norm": config.rms_norm,
        "head_dim": config.channels if config.channels * config.heads != config.width else None,
    }


def set_decoder(spec: Spec, model: EncoderDecoder | LanguageModel, config: Model) -> None:
    set_embedding(spec, spec.embeddings, model.target, config)
    set_stack(spec, model.decoder)
    set_linear(spec.projection, model.output)


def set_embedding(spec: Spec, table: Spec, embedding: TokenEmbedding, config: Model) -> None:
    table.weight = numbers(embedding.tokens.weight)
    spec.scale_embeddings = float(embedding.factor)
    if isinstance(embedding.positions, Learned):
        spec.position_encodings.encodings = numbers(embedding.positions.table[embedding.positions.first :])
    elif isinstance(embedding.positions, Sinusoidal):
        count = min(max(MIN_POSITIONS, 2 * config.max_length), MAX_POSITIONS)
        spec.position_encodings.encodings = numbers(embedding.positions.waves(torch.arange(count)))
    if embedding.norm is not None:
        set_norm(spec.layernorm_embedding, embedding.norm)


def set_stack(spec: Spec, stack: Stack) -> None:
    norm = stack.final_norm
    if isinstance(norm, nn.Sequential):  # T5 with a shared output layer: norm and scale
        norm, scale = norm
        if isinstance(scale, Scale):
            spec.scale_outputs = float(scale.factor)
    if not isinstance(norm, nn.Identity):
        set_norm(spec.layer_norm, norm)
    for part, block in zip(spec.layer, stack, strict=True):
        set_block(part, block)
        if isinstance(stack.positions, RelativeBias):
            part.self_attention.relative_attention_bias = numbers(stack.positions.table.weight)
            part.self_attention.relative_attention_max_distance = np.int32(stack.positions.farthest)


def set_block(spec: Spec, block: Block) -> None:
    attention, forward = block.attention, block.feed_forward
    assert isinstance(attention, MultiHeadAttention)  # see `export_model`
    set_linear(spec.self_attention.linear[0], attention.query, attention.key, attention.value)
    finish_attention(spec.self_attention, attention, block.attention_residual.norm)
    if block.cross is not None and block.cross_residual is not None:
        set_linear(spec.attention.linear[0], block.cross.query)
        set_linear(spec.attention.linear[1], block.cross.key, block.cross.value)
        finish_attention(spec.attention, block.cross, block.cross_residual.norm)
    if isinstance(forward, GatedFeedForward):
        set_linear(spec.ffn.linear_0, forward.gate)
        set_linear(spec.ffn.linear_0_noact, forward.up)
    else:
        set_linear(spec.ffn.linear_0, forward.up)
    set_linear(spec.ffn.linear_1, forward.down)
    set_norm(spec.ffn.layer_norm, block.feed_forward_residual.norm)


def finish_attention(spec: Spec, attention: MultiHeadAttention, norm: nn.Module) -> None:
    set_linear(spec.linear[-1], attention.output)
    set_norm(spec.layer_norm, norm)
    if attention.scale is not None:
        spec.queries_scale = float(attention.scale)


def set_linear(spec: Spec, *layers: nn.Linear) -> None:
    """Layers with the same input are concatenated."""
    spec.weight = numbers(torch.cat([each.weight for each in layers]))
    if layers[0].bias is not None:
        spec.bias = numbers(torch.cat([each.bias for each in layers]))


def set_norm(spec: Spec, norm: nn.Module) -> None:
    if not isinstance(norm, nn.LayerNorm | RMSNorm):
        raise ValueError(f"no specification for {type(norm).__name__}")
    spec.gamma = numbers(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = numbers(norm.bias)


def set_specials(config: Spec, folder: Folder) -> None:
    names = token_names(folder.target)
    config.bos_token, config.eos_token = names[folder.special.start], names[folder.special.end]
    config.unk_token = folder.target.settings.get("unk_token", config.eos_token)


def numbers(tensor: Tensor) -> npt.NDArray[np.float32]:
    """A copy: CTranslate2 quantises in place."""
    array: npt.NDArray[np.float32] = tensor.detach().float().cpu().numpy().copy()
    return array


class CTranslate2Model:
    """CTranslate2 on an exported folder, for token ids."""

    def __init__(self, place: Path, folder: Folder) -> None:
        self.is_decoder_only = isinstance(folder.model, LanguageModel)
        kind = ctranslate2.Generator if self.is_decoder_only else ctranslate2.Translator
        self.model = kind(str(place), device="cpu", intra_threads=torch.get_num_threads())
        self.source, self.target = token_names(folder.source), token_names(folder.target)
        self.ids = {name: number for number, name in enumerate(self.target)}
        self.suppressed = [[self.target[number]] for number in folder.special.suppressed]

    def search(self, texts: Sequence[Ids], beam: int, limit: int, suppress: bool = True) -> list[Ids]:
        """The best hypothesis for each; lengths include the end token, as in Regard, so scores compare."""
        rows = [[self.source[number] for number in text] for text in texts]
        options: dict[str, Any] = {
            "beam_size": beam,
            "length_penalty": 1.0,
            "suppress_sequences": self.suppressed if suppress else None,
            "return_end_token": True,
            "max_batch_size": 32,
        }
        if self.is_decoder_only:
            results = self.model.generate_batch(
                rows, max_length=limit, min_length=0, include_prompt_in_result=False, **options
            )
            best = [each.sequences[0] for each in results]
        else:
            results = self.model.translate_batch(
                rows, max_decoding_length=limit, min_decoding_length=0, max_input_length=0, **options
            )
            best = [each.hypotheses[0] for each in results]
        return [[self.ids[name] for name in each] for each in best]

    def log_probabilities(self, texts: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        rows = [[self.source[number] for number in text] for text in texts]
        if self.is_decoder_only:
            scored = self.model.score_batch(rows, max_batch_size=32)
        else:
            names = [[self.target[number] for number in target] for target in targets]
            scored = self.model.score_batch(rows, names, max_batch_size=32, max_input_length=0)
        return [list(each.log_probs) for each in scored]


def check(place: Path, folder: Folder, texts: Sequence[EncodedText]) -> Agreement:
    """Compare the texts of two searches, and the log-probabilities of targets.

    CTranslate2 renormalises after suppressing tokens, Regard does not: so beams, whose scores are sums, are
    compared without suppression.
    """
    engine, reference = CTranslate2Model(place, folder), Reference(folder, texts)
    sources = reference.prompts if reference.is_decoder_only else [text.source for text in reference.texts]
    equal, greedy = {}, reference.search(GREEDY)
    for name, beam in (("greedy", GREEDY), (f"beam {BEAM}", BEAM)):
        suppress = beam == GREEDY
        expected = greedy if suppress else reference.search(beam, suppress)
        actual = engine.search(sources, beam, reference.limit, suppress)
        equal[name] = equal_share(reference.detokenize(expected), reference.detokenize(actual))
    targets = [text.target or output for text, output in zip(reference.texts, greedy)]
    actual_scores = engine.log_probabilities(sources, targets)
    scores = zip(reference.log_probabilities(targets), actual_scores, strict=True)
    differences = [abs(one - other) for rows in scores for one, other in zip(*rows, strict=True)]
    mean = sum(differences) / max(1, len(differences))
    return Agreement(len(texts), equal, max(differences, default=0.0), mean)
