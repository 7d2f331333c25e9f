"""Translators of CTranslate2 (converted from Marian, OpenNMT and others) as folders that Regard opens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.config.model import TransformerConfig
from regard.config.reading import LARGE, parse_json, read_bytes, shown
from regard.errors import UsageError
from regard.inputs.text import Tokenizer, load_tokenizer
from regard.inputs.text.checks import read_lines
from regard.models.positions import sinusoid
from regard.storage.ctranslate2.file import MODEL, REFUSED, Variables, parts_of, scalar
from regard.storage.files import Json, check_files, read_json
from regard.storage.huggingface.architecture import TOLERANCE
from regard.storage.translator import NEVER, About, TranslatorFolder, Vocabulary, transformer_config

PADS = ("<pad>", "<blank>")
EPSILON = 1e-5
LONGEST = 512  # tokens, where positions are computed
ACTIVATIONS = {0: "relu", 1: "gelu_tanh", 2: "swish", 3: "gelu"}
# CTranslate2's modules -> ours
SIDES = {
    ("encoder", "embeddings_0"): "source.tokens",
    ("encoder", "embeddings"): "source.tokens",
    ("decoder", "embeddings"): "target.tokens",
    ("decoder", "projection"): "output",
    ("encoder", "layer_norm"): "encoder.final_norm",
    ("decoder", "layer_norm"): "decoder.final_norm",
}
LAYER = {
    **{f"self_attention.{each}": f"attention.{each}" for each in ("query", "key", "value", "output")},
    **{f"attention.{each}": f"cross.{each}" for each in ("query", "key", "value", "output")},
    "self_attention.layer_norm": "attention_residual.norm",
    "attention.layer_norm": "cross_residual.norm",
    "ffn.linear_0": "feed_forward.up",
    "ffn.linear_1": "feed_forward.down",
    "ffn.layer_norm": "feed_forward_residual.norm",
}
# settings that are read, or that change no text; all others must be off
READ = {"pre_norm", "activation", "num_heads", "scale_embeddings", "start_from_zero_embedding", "head_dim"}
HARMLESS = {
    "alignment_layer",
    "alignment_heads",
    "embeddings_merge",
    "scale_alibi",
    "alibi_use_positive_positions",
}
EOS, BOS, START = "add_source_eos", "add_source_bos", "decoder_start_token"
OLDER = {EOS: "with_source_eos", BOS: "with_source_bos"}  # variables of models without config.json
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def convert_transformer(variables: Variables, source: Path, out: Path, about: About | None = None) -> None:
    """Write the folder of a translator; `source` has its model and tokenizers."""
    path = source / MODEL
    check_files(source)
    check_settings(variables, path)
    settings = settings_of(variables, source)
    weights, origin, tables = our_weights(variables, path)
    is_tied = tie(weights)
    config = config_of(variables, weights, settings, path, tables, is_tied)
    one_table = is_tied and "target.tokens.weight" not in weights
    if (source / "tokenizer.json").is_file():
        sides = tokenizers_beside(source, settings)
    else:
        from_zero = bool(scalar(variables, "decoder/start_from_zero_embedding"))
        left, right = vocabularies = read_vocabularies(source, settings, from_zero)
        check_rows(weights, vocabularies, source)
        config = with_rows(config, weights, left, right)
        sides = read_sentencepiece_sides(source, settings, left, right, one_table or not is_tied)
    about = about or About(source.name)
    TranslatorFolder(path, config, weights, *sides, origin, about).write(out)


def check_settings(variables: Variables, path: Path) -> None:
    """Refuse what the model computes and Regard does not."""
    for name, tensor in variables.items():
        kind = name.rpartition("/")[2]
        if tensor.dim() or "/" not in name or kind in READ | HARMLESS:
            continue
        if float(tensor):
            raise UsageError(f"{path}: {shown(name)} = {float(tensor):g} is not supported", code=REFUSED)
    for kind in ("pre_norm", "activation", "scale_embeddings"):
        one, other = (scalar(variables, f"{side}/{kind}") for side in ("encoder", "decoder"))
        if one != other:
            raise UsageError(
                f"{path}: {kind} is {one} in the encoder and {other} in the decoder", code=REFUSED
            )


def settings_of(variables: Variables, source: Path) -> Json:
    """config.json, with what an older model has among its variables."""
    content = read_json(source / "config.json") if (source / "config.json").is_file() else {}
    older = {name: bool(scalar(variables, theirs)) for name, theirs in OLDER.items() if theirs in variables}
    settings = {**TOKENS, EOS: False, BOS: False, **older}
    settings |= {name: value for name, value in content.items() if value is not None}
    settings.setdefault(START, settings["bos_token"])
    for name in (*TOKENS, START):
        if not isinstance(settings[name], str):
            raise UsageError(
                f"{source / 'config.json'}: {name} = {shown(settings[name])} is no token", code=REFUSED
            )
    if settings[BOS]:
        raise UsageError(f"{source / 'config.json'}: {BOS} is not supported", code=REFUSED)
    return settings


def our_weights(variables: Variables, path: Path) -> tuple[Variables, dict[str, str], dict[str, Tensor]]:
    """The weights under our names, their names there, and the tables of positions by side."""
    weights, origin, tables = Variables(), dict[str, str](), dict[str, Tensor]()
    for side, layer, module, kind, tensor in parts_of(variables, path):
        place = f"{side}/layer_{layer}/{module.replace('.', '/')}" if layer else f"{side}/{module}"
        if module == "position_encodings" and not layer:
            tables[side] = tensor.float()
            continue
        ours = LAYER.get(module) if layer else SIDES.get((side, module))
        if ours is None or kind not in ("weight", "bias") or (layer and side not in ("encoder", "decoder")):
            raise UsageError(f"{path}: {shown(f'{place}/{kind}')} is not supported", code=REFUSED)
        name = f"{side}.blocks.{layer}.{ours}.{kind}" if layer else f"{ours}.{kind}"
        weights[name], origin[name] = tensor, f"{place}/{kind}"
    for name in ("source.tokens.weight", "target.tokens.weight", "output.weight"):
        if name not in weights or weights[name].dim() != 2:
            raise UsageError(f"{path}: the embeddings or the projection are missing", code=REFUSED)
    return weights, origin, tables


def tie(weights: Variables) -> bool:
    """Leave out the embeddings and the output layer that equal another one; whether the output layer does."""

    def equal(one: str, other: str) -> bool:
        a, b = weights[one], weights[other]
        return a.data_ptr() == b.data_ptr() or (a.shape == b.shape and torch.equal(a.float(), b.float()))

    if not equal("output.weight", "target.tokens.weight"):
        return False
    del weights["output.weight"]
    if equal("source.tokens.weight", "target.tokens.weight"):
        del weights["target.tokens.weight"]
    return True


def positions_of(tables: dict[str, Tensor], weights: Variables, path: Path) -> tuple[str, int]:
    """The kind of positions, and the longest text; learned ones are weights."""
    if tables.keys() != {"encoder", "decoder"}:
        raise UsageError(
            f"{path}: positions inside of the attention, or those of OpenNMT-tf, are not supported "
            "(there is no table position_encodings)",
            code=REFUSED,
        )
    shapes = {tuple(table.shape) for table in tables.values()}
    if any(len(shape) != 2 for shape in shapes):
        raise UsageError(f"{path}: a table of positions of shape {shapes}", code=REFUSED)
    for kind in ("sinusoidal_halves", "sinusoidal_tensor2tensor", "sinusoidal"):
        if all(is_sinusoid(table, kind) for table in tables.values()):
            return kind, min(LONGEST, *(rows for rows, _ in shapes))
    if len(shapes) > 1:
        raise UsageError(f"{path}: two tables of positions of different lengths", code=REFUSED)
    weights["source.positions.table"], weights["target.positions.table"] = (
        tables["encoder"],
        tables["decoder"],
    )
    return "learned", len(tables["decoder"])


def is_sinusoid(table: Tensor, kind: str) -> bool:
    rows, width = table.shape
    if width % 2:
        return False
    exact = width - 2 if kind == "sinusoidal_tensor2tensor" else None
    waves = sinusoid(torch.arange(rows), width, halves=kind != "sinusoidal", denominator=exact)
    return torch.allclose(table, waves, atol=TOLERANCE)


def vocabulary_files(source: Path) -> tuple[Path, Path]:
    """Of both sides; the same if they share it."""
    files: dict[str, Path] = {}
    for side in ("shared", "source", "target"):
        endings = (source / f"{side}_vocabulary{ending}" for ending in (".json", ".txt"))
        if (file := next((each for each in endings if each.is_file()), None)) is not None:
            files[side] = file
    if "shared" in files:
        return files["shared"], files["shared"]
    if not {"source", "target"} <= files.keys():
        raise UsageError(f"{source}: the vocabularies of the model are missing", code=REFUSED)
    return files["source"], files["target"]


def read_vocabularies(source: Path, settings: Json, from_zero: bool) -> tuple[Vocabulary, Vocabulary]:
    """Of both sides; the same object if they share it."""

    def read(file: Path) -> Vocabulary:
        names = read_names(file)
        pad = next((name for name in PADS if name in names), PADS[0])
        # a text begins with a row of zeros, or with a token of the vocabulary
        start = pad if from_zero else settings[START]
        roles = {"eos_token": settings["eos_token"], "unk_token": settings["unk_token"], "pad_token": pad}
        return Vocabulary.of(names, roles, start, file)

    left, right = vocabulary_files(source)
    first = read(left)
    return first, first if right == left else read(right)


def read_names(file: Path) -> list[Any]:
    if file.suffix == ".json":
        try:
            names = parse_json(read_bytes(file, LARGE).decode())
        except (OSError, ValueError) as error:
            raise UsageError(f"{file}: cannot be read as JSON ({error})", code=REFUSED) from None
        if not isinstance(names, list):
            raise UsageError(f"{file}: not a list of tokens", code=REFUSED)
        return names
    lines = read_lines(file)
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]


def config_of(
    variables: Variables,
    weights: Variables,
    settings: Json,
    path: Path,
    tables: dict[str, Tensor],
    is_tied: bool,
) -> TransformerConfig:
    def whole(name: str, default: int | None = None) -> int:
        value = scalar(variables, name)
        if value is None and default is None:
            raise UsageError(f"{path}: {name} is missing", code=REFUSED)
        return int(default or 0) if value is None else int(value)

    heads, width = (
        whole("encoder/num_heads"),
        weights[
            "target.tokens.weight" if "target.tokens.weight" in weights else "source.tokens.weight"
        ].shape[1],
    )
    if heads != whole("decoder/num_heads") or heads < 1:
        raise UsageError(f"{path}: encoder and decoder have different heads", code=REFUSED)
    activation = whole("encoder/activation", 0)
    if activation not in ACTIVATIONS:
        raise UsageError(f"{path}: activation {activation} is not supported", code=REFUSED)
    first = {side: f"{side}.blocks.0" for side in ("encoder", "decoder")}
    query = weights.get(f"{first['encoder']}.attention.query.weight")
    up = weights.get(f"{first['encoder']}.feed_forward.up.weight")
    if query is None or up is None or query.dim() != 2:
        raise UsageError(f"{path}: the encoder has no layers", code=REFUSED)
    positions, longest = positions_of(tables, weights, path)
    channels = len(query) // heads
    return transformer_config(
        path,
        width=width,
        heads=heads,
        head_width=channels if channels * heads != width else None,
        feed_forward=len(up),
        encoder_layers=layers_of(weights, "encoder", path),
        decoder_layers=layers_of(weights, "decoder", path),
        activation=ACTIVATIONS[activation],
        norm="pre" if whole("encoder/pre_norm", 1) else "post",
        positions=positions,
        max_length=longest,
        epsilon=settings.get("layer_norm_epsilon", EPSILON),
        scale_embeddings=scales_embeddings(variables, width, path),
        tie_embeddings=is_tied,
        output_bias="output.bias" in weights,
    )


def layers_of(weights: Variables, side: str, path: Path) -> int:
    layers = {name.split(".")[2] for name in weights if name.startswith(f"{side}.blocks.")}
    if layers != {str(number) for number in range(len(layers))}:
        raise UsageError(f"{path}: a layer of the {side} is missing", code=REFUSED)
    return len(layers)


def scales_embeddings(variables: Variables, width: int, path: Path) -> bool:
    """A switch, or the factor itself; older models have neither, and are scaled."""
    setting = variables.get("encoder/scale_embeddings")
    factor = scalar(variables, "encoder/scale_embeddings")
    if setting is None or factor is None:
        return True
    if setting.dtype == torch.int8:
        return bool(factor)
    if not (math.isclose(factor, 1.0) or math.isclose(factor, width**0.5, rel_tol=1e-5)):
        raise UsageError(f"{path}: embeddings times {factor:g} are not supported", code=REFUSED)
    return width != 1 and not math.isclose(factor, 1.0)


def check_rows(weights: Variables, sides: Sequence[Vocabulary], source: Path) -> None:
    for name, side in zip(("source.tokens.weight", "target.tokens.weight"), sides):
        table = weights.get(name, weights["source.tokens.weight"])
        if len(table) != side.size:
            kind = name.partition(".")[0]
            message = f"{source}: {kind} vocabulary of {side.size:,} tokens, embeddings of {len(table):,}"
            raise UsageError(message, code=REFUSED)


def with_rows(
    config: TransformerConfig, weights: Variables, left: Vocabulary, right: Vocabulary
) -> TransformerConfig:
    """Rows for the tokens that were added; none of them is ever generated."""
    bias = weights.get("output.bias", torch.zeros(right.size))
    weights["source.tokens.weight"] = left.rows(weights["source.tokens.weight"])
    for name in {"target.tokens.weight", "output.weight"} & weights.keys():
        weights[name] = right.rows(weights[name])
    if len(right.names) > right.size or config.output_bias:
        weights["output.bias"] = right.rows(bias, NEVER)
    return config.model_copy(update={"output_bias": "output.bias" in weights})


def tokenizers_beside(source: Path, settings: Json) -> tuple[Tokenizer, Tokenizer]:
    """Those that Regard has written beside an export."""
    first = load_tokenizer(source)
    other = source / "target_tokenizer.json"
    sides = first, load_tokenizer(other) if other.is_file() else first
    for tokenizer, names in zip(sides, vocabulary_files(source)):
        if tokenizer.names != read_names(names):
            raise UsageError(
                f"{names}: these are not the tokens of the tokenizer.json beside it", code=REFUSED
            )
    if sides[1].names[sides[1].start] != settings[START] or not settings[EOS]:
        raise UsageError(
            f"{source / 'config.json'}: {START} or {EOS} do not fit tokenizer.json", code=REFUSED
        )
    return sides


def read_sentencepiece_sides(
    source: Path, settings: Json, left: Vocabulary, right: Vocabulary, is_joint: bool
) -> tuple[Tokenizer, Tokenizer]:
    pairs = (("source.spm", "target.spm"), ("sentencepiece.model",) * 2)
    files = next((each for each in pairs if all((source / name).is_file() for name in each)), None)
    if files is None:
        kind = (
            " (bpe.model, tokenized by Moses, is not supported)" if (source / "bpe.model").is_file() else ""
        )
        raise UsageError(
            f"{source} has no tokenizer that Regard reads{kind}: put sentencepiece.model, or source.spm and "
            f"target.spm, beside {MODEL}",
            code=REFUSED,
        )
    more = {"separate_vocabs": left is not right or not is_joint, EOS: settings[EOS]}
    models = [read_bytes(source / name, LARGE) for name in files]
    one, other = (
        side.tokenizer(model, source / name, **more)
        for side, model, name in zip((left, right), models, files)
    )
    return one, other
