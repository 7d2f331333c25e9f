"""Our weights as a model of CTranslate2: its specification filled in memory, then written by its library.

Its order of channels is ours: the table of positions is given with the weights, as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import numpy.typing as npt
import torch
from ctranslate2 import specs
from torch import Tensor, nn

from regard.config import GPTConfig, LlamaConfig, Model, T5Config, TransformerConfig
from regard.export.check import BEAM, GREEDY, Figures, Reference, share
from regard.export.sample import Pieces, Text
from regard.export.vocabulary import names
from regard.models import EncoderDecoder, LanguageModel
from regard.models.attention import MultiHeadAttention
from regard.models.layers import GatedFeedForward, RMSNorm, Scale
from regard.models.positions import Learned, RelativeBias, Sinusoidal
from regard.models.transformer import Block, Stack, TokenEmbedding
from regard.storage import Folder

# of waves: as many as CTranslate2 reads unless told otherwise, or what a source and a longer target need
LEAST_POSITIONS, MOST_POSITIONS = 1024, 1 << 15
ACTIVATIONS = {
    "relu": specs.Activation.RELU,
    "gelu": specs.Activation.GELU,
    "gelu_tanh": specs.Activation.GELUTanh,
    "swish": specs.Activation.SWISH,
}
Spec = Any  # of a library without types


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
    encoder_layers, decoder_layers = config.depth
    shape = common_shape(config) | {"relative_attention_bias": config.positions == "relative"}
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
    set_embedding(spec.encoder, spec.encoder.embeddings[0], model.source, folder.config)
    set_stack(spec.encoder, model.encoder)
    set_writer(spec.decoder, model, folder.config)
    spec.register_source_vocabulary(names(folder.source))
    spec.register_target_vocabulary(names(folder.target))
    set_specials(spec.config, folder)
    spec.config.decoder_start_token = names(folder.target)[folder.special.start]
    spec.config.add_source_eos = True
    return spec


def language_spec(folder: Folder, model: LanguageModel, config: GPTConfig | LlamaConfig) -> Spec:
    turned = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": config.rope_theta}
    spec = specs.TransformerDecoderModelSpec.from_config(
        config.depth[1],
        config.heads,
        **common_shape(config),
        **(turned if config.positions == "rotary" else {}),
        num_heads_kv=config.kv_heads or config.heads,
    )
    set_writer(spec.decoder, model, folder.config)
    spec.register_vocabulary(names(folder.target))
    set_specials(spec.config, folder)
    return spec


def common_shape(config: TransformerConfig | T5Config | GPTConfig | LlamaConfig) -> dict[str, Any]:
    """What encoders and decoders say of themselves."""
    free = config.channels * config.heads != config.width
    return {
        "pre_norm": config.norm == "pre",
        "activation": ACTIVATIONS[config.activation],
        "ffn_glu": config.gated,
        "rms_norm": config.rms_norm,
        "head_dim": config.channels if free else None,
    }


def set_writer(spec: Spec, model: EncoderDecoder | LanguageModel, config: Model) -> None:
    set_embedding(spec, spec.embeddings, model.target, config)
    set_stack(spec, model.decoder)
    set_linear(spec.projection, model.output)


def set_embedding(spec: Spec, words: Spec, embedding: TokenEmbedding, config: Model) -> None:
    words.weight = numbers(embedding.tokens.weight)
    spec.scale_embeddings = float(embedding.factor)
    if isinstance(embedding.positions, Learned):
        spec.position_encodings.encodings = numbers(embedding.positions.table)
    elif isinstance(embedding.positions, Sinusoidal):
        count = min(max(LEAST_POSITIONS, 2 * config.max_length), MOST_POSITIONS)
        spec.position_encodings.encodings = numbers(embedding.positions.waves(torch.arange(count)))


def set_stack(spec: Spec, stack: Stack) -> None:
    last = stack.final_norm
    if isinstance(last, nn.Sequential):  # T5's norm and factor before a shared output layer
        last, scaled = last
        if isinstance(scaled, Scale):
            spec.scale_outputs = float(scaled.factor)
    if not isinstance(last, nn.Identity):
        set_norm(spec.layer_norm, last)
    for part, block in zip(spec.layer, stack, strict=True):
        set_block(part, block)
        if isinstance(stack.positions, RelativeBias):
            own = part.self_attention
            own.relative_attention_bias = numbers(stack.positions.table.weight)
            own.relative_attention_max_distance = np.int32(stack.positions.farthest)


def set_block(spec: Spec, block: Block) -> None:
    own, forward = block.attention, block.feed_forward
    set_linear(spec.self_attention.linear[0], own.query, own.key, own.value)
    finish_attention(spec.self_attention, own, block.attention_residual.norm)
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


def set_linear(spec: Spec, *maps: nn.Linear) -> None:
    """Several maps of the same input are one, the first in front."""
    spec.weight = numbers(torch.cat([each.weight for each in maps]))
    if maps[0].bias is not None:
        spec.bias = numbers(torch.cat([each.bias for each in maps]))


def set_norm(spec: Spec, norm: nn.Module) -> None:
    if not isinstance(norm, nn.LayerNorm | RMSNorm):
        raise ValueError(f"no specification for {type(norm).__name__}")
    spec.gamma = numbers(norm.weight)
    if isinstance(norm, nn.LayerNorm):
        spec.beta = numbers(norm.bias)


def set_specials(config: Spec, folder: Folder) -> None:
    known = names(folder.target)
    config.bos_token, config.eos_token = known[folder.special.start], known[folder.special.end]
    config.unk_token = folder.target.settings.get("unk_token", config.eos_token)


def numbers(tensor: Tensor) -> npt.NDArray[np.float32]:
    """A copy: CTranslate2 rounds in place."""
    found: npt.NDArray[np.float32] = tensor.detach().float().cpu().numpy().copy()
    return found


class Engine:
    """CTranslate2 on an exported folder, for pieces as numbers."""

    def __init__(self, place: Path, folder: Folder) -> None:
        alone = isinstance(folder.model, LanguageModel)
        kind = ctranslate2.Generator if alone else ctranslate2.Translator
        self.model = kind(str(place), device="cpu", intra_threads=torch.get_num_threads())
        self.alone = alone
        self.read, self.said = names(folder.source), names(folder.target)
        self.number = {name: number for number, name in enumerate(self.said)}
        self.never = [[self.said[number]] for number in folder.special.suppressed]

    def search(self, texts: Sequence[Pieces], beam: int, limit: int, banned: bool = True) -> list[Pieces]:
        """The best hypothesis for each; lengths count the end, as ours do, so scores mean the same."""
        rows = [[self.read[number] for number in text] for text in texts]
        options: dict[str, Any] = {
            "beam_size": beam,
            "length_penalty": 1.0,
            "suppress_sequences": self.never if banned else None,
            "return_end_token": True,
            "max_batch_size": 32,
        }
        if self.alone:
            found = self.model.generate_batch(
                rows, max_length=limit, min_length=0, include_prompt_in_result=False, **options
            )
            best = [each.sequences[0] for each in found]
        else:
            found = self.model.translate_batch(
                rows, max_decoding_length=limit, min_decoding_length=0, max_input_length=0, **options
            )
            best = [each.hypotheses[0] for each in found]
        return [[self.number[name] for name in each] for each in best]

    def log_probabilities(self, texts: Sequence[Pieces], targets: Sequence[Pieces]) -> list[list[float]]:
        rows = [[self.read[number] for number in text] for text in texts]
        if self.alone:
            scored = self.model.score_batch(rows, max_batch_size=32)
        else:
            said = [[self.said[number] for number in target] for target in targets]
            scored = self.model.score_batch(rows, said, max_batch_size=32, max_input_length=0)
        return [list(each.log_probs) for each in scored]


def check(place: Path, folder: Folder, texts: Sequence[Text]) -> Figures:
    """Texts of two searches, and the log-probabilities of given targets.

    The probability of pieces that may not be said goes to the others there, and to none in our search: so
    beams, whose scores are sums, are compared where all may be said.
    """
    engine, reference = Engine(place, folder), Reference(folder, texts)
    read = reference.prompts if reference.alone else [text.source for text in reference.texts]
    equal, greedy = {}, reference.search(GREEDY)
    for name, beam in (("greedy", GREEDY), (f"beam {BEAM}", BEAM)):
        banned = beam == GREEDY
        ours = greedy if banned else reference.search(beam, banned)
        theirs = engine.search(read, beam, reference.limit, banned)
        equal[name] = share(reference.spoken(ours), reference.spoken(theirs))
    targets = [text.target or own for text, own in zip(reference.texts, greedy)]
    scored = zip(reference.log_probabilities(targets), engine.log_probabilities(read, targets), strict=True)
    gaps = [abs(one - other) for rows in scored for one, other in zip(*rows, strict=True)]
    return Figures(len(texts), equal, max(gaps, default=0.0), sum(gaps) / max(1, len(gaps)))
