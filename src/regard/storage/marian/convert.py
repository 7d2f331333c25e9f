"""Translators of Marian as folders: Transformers, and students with SSRU decoders (Firefox, Bergamot)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from sentencepiece import SentencePieceProcessor
from torch import Tensor

from regard.config.model import TransformerConfig
from regard.config.reading import LARGE, read_bytes, shown
from regard.inputs.text.sentencepiece import to_processor
from regard.storage.files import Json, check_files, check_inside
from regard.storage.marian.file import MarianFile, read_model
from regard.storage.translator import NEVER, About, TranslatorFolder, Vocabulary, transformer_config

EPSILON = 1e-9  # of its layer norms
LONGEST = 512  # tokens
# options that change what is computed, with the values that Regard computes; "" and absent are off
SUPPORTED: Mapping[str, tuple[str, ...]] = {
    "type": ("transformer",),
    "transformer-ffn-depth": ("2",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-decoder-dim-ffn": ("0",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-ffn-activation": ("relu", "swish"),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-tied-layers": ("[]", ""),
    "lemma-dim-emb": ("0",),
}
OFF = ("train-position-embeddings", "no-projection", "rnn-projection", "pool", "no-affine", "no-bias")
ALSO_OFF = (*(f"transformer-{name}" for name in OFF), "right-left", "ulr", "output-omit-bias")
SCALES = re.compile(r"(.*_)?QuantMultA")  # ranges of activations, for products in bytes
ORDERS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}  # preprocess, postprocess, postprocess-top


def convert_marian(path: Path, out: Path) -> None:
    """Write the folder of a model; its vocabularies lie beside it."""
    check_inside(path)
    check_files(path.parent)
    file = read_model(path)
    config = config_of(file)
    models = vocabulary_files(path)
    left, right = (vocabulary_of(model) for model in models)
    joint = embedding(file, "source") == embedding(file, "target")
    weights = with_start(file, dict(our_weights(file, config)), left, right)
    is_shared = models[0] == models[1]
    settings = {"separate_vocabs": not (is_shared and (joint or not config.tie_embeddings))}
    source, target = (
        vocabulary.tokenizer(read_bytes(model, LARGE), model, **settings)
        for vocabulary, model in zip((left, right), models)
    )
    # students learned what a beam search of their teacher found: they need none
    generation: Json = {"num_beams": 1} if config.decoder_mixer == "ssru" else {}
    generation |= {"suppress_tokens": [target.unknown]}  # as Marian does by default
    TranslatorFolder(path, config, weights, source, target, {}, About(path.name), generation).write(out)


def config_of(file: MarianFile) -> TransformerConfig:
    options = file.options
    for name, values in SUPPORTED.items():
        if options.get(name, values[0]) not in values:
            raise file.refused(f"{name} = {shown(options[name])} is not supported")
    for name in ALSO_OFF:
        if options.get(name, "false") != "false":
            raise file.refused(f"{name} = {shown(options[name])} is not supported")
    mixer = "ssru" if options.get("transformer-decoder-autoreg") == "rnn" else "attention"
    if mixer == "ssru" and options.get("dec-cell") != "ssru":
        raise file.refused(f"dec-cell = {shown(options.get('dec-cell'))} is not supported")
    order = tuple(
        options.get(f"transformer-{name}", default).strip()
        for name, default in (("preprocess", ""), ("postprocess", "dan"), ("postprocess-top", ""))
    )
    if order not in ORDERS:
        raise file.refused(f"transformer-preprocess, -postprocess and -postprocess-top = {shown(order)}")

    def number(name: str) -> int:
        if not options.get(name, "").isdecimal() or len(options[name]) > 9:
            raise file.refused(f"{name} = {shown(options.get(name))} is no number")
        return int(options[name])

    return transformer_config(
        file.path,
        width=number("dim-emb"),
        heads=number("transformer-heads"),
        feed_forward=number("transformer-dim-ffn"),
        encoder_layers=number("enc-depth"),
        decoder_layers=number("dec-depth"),
        activation=options.get("transformer-ffn-activation", "swish"),
        norm=ORDERS[order],
        positions="sinusoidal_tensor2tensor",
        max_length=LONGEST,
        epsilon=EPSILON,
        decoder_mixer=mixer,
        tie_embeddings=is_on(file, "tied-embeddings-all") or is_on(file, "tied-embeddings"),
        output_bias=True,
    )


def is_on(file: MarianFile, name: str) -> bool:
    return file.options.get(name) == "true"


def embedding(file: MarianFile, side: str) -> str:
    """The name of a side's embedding."""
    if is_on(file, "tied-embeddings-all") or is_on(file, "tied-embeddings-src"):
        return "Wemb"
    return {"source": "encoder_Wemb", "target": "decoder_Wemb"}[side]


def names(config: TransformerConfig) -> Iterator[tuple[str, str]]:
    """Our modules and their names, without the layer: weights and biases follow from them."""
    attention = (("query", "q"), ("key", "k"), ("value", "v"), ("output", "o"))
    before = "_pre" if config.norm == "pre" else ""
    for side, layers in zip(("encoder", "decoder"), config.depth):
        kinds = {"attention": "self"} | ({"cross": "context"} if side == "decoder" else {})
        if side == "decoder" and config.decoder_mixer == "ssru":
            del kinds["attention"]
        for number in range(layers):
            ours, theirs = f"{side}.blocks.{number}", f"{side}_l{number + 1}"
            for kind, name in kinds.items():
                for part, letter in attention:
                    yield f"{ours}.{kind}.{part}.weight", f"{theirs}_{name}_W{letter}"
                    yield f"{ours}.{kind}.{part}.bias", f"{theirs}_{name}_b{letter}"
                yield f"{ours}.{kind}_residual.norm", f"{theirs}_{name}_Wo_ln_#{before}"
            if "attention" not in kinds:
                yield f"{ours}.attention.input.weight", f"{theirs}_rnn_W"
                yield f"{ours}.attention.forget.weight", f"{theirs}_rnn_Wf"
                yield f"{ours}.attention.forget.bias", f"{theirs}_rnn_bf"
                norm = "rnn_ln_#_pre" if before else "rnn_ffn_ln_#"
                yield f"{ours}.attention_residual.norm", f"{theirs}_{norm}"
            for part, letter in (("up", "1"), ("down", "2")):
                yield f"{ours}.feed_forward.{part}.weight", f"{theirs}_ffn_W{letter}"
                yield f"{ours}.feed_forward.{part}.bias", f"{theirs}_ffn_b{letter}"
            yield f"{ours}.feed_forward_residual.norm", f"{theirs}_ffn_ffn_ln_#{before}"
        if before:
            yield f"{side}.final_norm", f"{side}_top_ln_#"


def our_weights(file: MarianFile, config: TransformerConfig) -> Iterator[tuple[str, Tensor]]:
    """Matrices are transposed there: y = x W + b."""

    rest = {name: each for name, each in file.tensors.items() if not SCALES.fullmatch(name)}

    def tensor(name: str) -> Tensor:
        if name not in file.tensors:
            raise file.refused(f"the tensor {shown(name)} is missing")
        rest.pop(name, None)
        return file.tensors[name]

    def vector(name: str) -> Tensor:
        return tensor(name).flatten()

    def matrix(name: str) -> Tensor:
        if tensor(name).dim() != 2:
            raise file.refused(f"{shown(name)} has the shape {list(tensor(name).shape)}")
        return tensor(name)

    if max(config.depth) > len(file.tensors):
        raise file.refused(f"{config.depth} layers")
    for ours, theirs in names(config):
        if "#" in theirs:
            yield f"{ours}.weight", vector(theirs.replace("#", "scale"))
            yield f"{ours}.bias", vector(theirs.replace("#", "bias"))
        else:
            yield ours, vector(theirs) if ours.endswith("bias") else matrix(theirs).mT
    source, target = embedding(file, "source"), embedding(file, "target")
    yield "source.tokens.weight", matrix(source)
    if source != target or not config.tie_embeddings:
        yield "target.tokens.weight", matrix(target)
    if not config.tie_embeddings:
        yield "output.weight", matrix("decoder_ff_logit_out_W").mT
    yield "output.bias", vector("decoder_ff_logit_out_b")
    if rest:
        raise file.refused(f"the tensor {shown(min(rest))} is not supported")


def with_start(
    file: MarianFile, weights: dict[str, Tensor], left: Vocabulary, right: Vocabulary
) -> dict[str, Tensor]:
    """A target begins with zeros: a token with that embedding, which is never generated."""
    sizes = {"source.tokens.weight": left, "target.tokens.weight": right, "output.weight": right}
    for name, side in sizes.items():
        if name in weights and len(weights[name]) != side.size:
            rows = len(weights[name])
            raise file.refused(
                f"embeddings of {rows:,} tokens, but the vocabulary beside it has {side.size:,}"
            )
        if name in weights:
            weights[name] = side.rows(weights[name])
    weights["output.bias"] = right.rows(weights["output.bias"], NEVER)
    return weights


def vocabulary_files(path: Path) -> tuple[Path, Path]:
    """The .spm files of both sides; the same if there is one."""
    files = sorted(path.parent.glob("*.spm"))
    for pair in (("source.spm", "target.spm"), ("src*.spm", "trg*.spm"), ("*.src*.spm", "*.trg*.spm")):
        sides = [sorted(path.parent.glob(pattern)) for pattern in pair]
        if all(len(side) == 1 for side in sides):
            return sides[0][0], sides[1][0]
    if len(files) != 1:
        raise MarianFile(path, {}, {}).refused(
            f"{len(files)} vocabularies beside it: one vocab.spm, or source.spm and target.spm, are needed"
        )
    return files[0], files[0]


def vocabulary_of(path: Path) -> Vocabulary:
    processor: SentencePieceProcessor = to_processor(read_bytes(path, LARGE), str(path))
    tokens = [processor.id_to_piece(number) for number in range(len(processor))]
    roles = {"eos_token": tokens[max(0, processor.eos_id())], "unk_token": tokens[processor.unk_id()]}
    return Vocabulary.of(tokens, {**roles, "pad_token": "<pad>"}, "<pad>", path)
