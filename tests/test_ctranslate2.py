"""Translators of CTranslate2 and packages of Argos Translate: as their converter wrote them, and back."""

from __future__ import annotations

import json
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Command
from hf_models import CLOSE, shaken
from marian_folders import saved, sides
from regard.batch import Batch, tokens
from regard.errors import UsageError
from regard.export import export_model, to_ctranslate2
from regard.export.check import BEAM, Agreement, Reference
from regard.export.run import write_tokenizers
from regard.export.sample import EncodedText
from regard.export.to_argos import export_argos
from regard.inputs.text import train_tokenizer
from regard.models.families import build
from regard.storage import Folder, open_folder, unique_weights, write_identity, write_weights
from regard.storage.importing import import_folder
from small_models import small_config
from texts import CORPUS

SETTINGS = ("config.json", "model.bin", "shared_vocabulary.json")


def converted(folder: Path, out: Path, quantization: str | None = None) -> Path:
    """What CTranslate2's own converter makes of a folder of transformers, with the tokenizers beside it."""
    converter = ctranslate2.converters.TransformersConverter(
        str(folder), copy_files=["source.spm", "target.spm"]
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        converter.convert(str(out), quantization=quantization)
    return out


def agreement_with(place: Path, folder: Folder, texts: Sequence[str] = CORPUS) -> Agreement:
    """Greedy and beam search and the scores of targets there and here. Their vocabulary has no <pad>."""
    special = replace(folder.special, suppressed=())
    encoded = [EncodedText(folder.source.encode(text), []) for text in texts]
    return to_ctranslate2.check(place, replace(folder, special=special), encoded)


def marian_folder(path: Path, shape: str = "usual") -> Path:
    """As Marian's: the row of the start token is zero, and it is no token of the vocabulary."""
    model = saved(path, sides(), shape, longest=160)
    with torch.no_grad():
        for table in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
            table.weight[-1] = 0.0
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marian_folder(tmp_path_factory.mktemp("marian") / "model")


@pytest.fixture(scope="module")
def package(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An .argosmodel, with files that are not read."""
    place = tmp_path_factory.mktemp("argos")
    model = converted(original, place / "ct2")
    metadata = {"package_version": "1.9", "argos_version": "1.9.0", "from_code": "en", "to_code": "de"}
    with zipfile.ZipFile(place / "en_de.argosmodel", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("translate-en_de-1_9/metadata.json", json.dumps(metadata))
        archive.writestr("translate-en_de-1_9/README.md", "# English - German\n\nLicence: CC-BY 4.0")
        archive.writestr("translate-en_de-1_9/stanza/resources.json", "{}")
        archive.write(original / "source.spm", "translate-en_de-1_9/sentencepiece.model")
        for name in SETTINGS:
            archive.write(model / name, f"translate-en_de-1_9/model/{name}")
    return place / "en_de.argosmodel"


def logits(folder: Folder) -> torch.Tensor:
    source, target = tokens([[5, 6, 7, 8, 9, 10, 11, 0]]), tokens([[folder.target.start, 6, 7, 8]])
    with torch.no_grad():
        return folder.model(Batch(source=source, target=target))[0]


# --- in


@pytest.mark.parametrize("shape", ["usual", "relu", "gelu_new", "untied"])
def test_a_translator_of_their_converter_is_the_original(shape: str, tmp_path: Path) -> None:
    one = open_folder(marian_folder(tmp_path / "marian", shape))
    import_folder(converted(tmp_path / "marian", tmp_path / "ct2"), tmp_path / "again")
    other = open_folder(tmp_path / "again")
    pad = one.target.start
    expected, actual = logits(one), logits(other)
    torch.testing.assert_close(actual[:, :pad], expected[:, :pad], **CLOSE)
    assert bool((actual[:, pad] < -90).all())  # which CTranslate2 does not have
    assert [one.source.encode(text) for text in CORPUS] == [other.source.encode(text) for text in CORPUS]
    agreement = agreement_with(tmp_path / "ct2", other)
    assert agreement.equal == {"greedy": 1.0, "beam 4": 1.0} and agreement.largest < 1e-4


@pytest.mark.parametrize(("kind", "tolerance"), [("float16", 1e-3), ("int16", 2e-3), ("int8", 2e-2)])
def test_smaller_numbers_are_read(original: Path, kind: str, tolerance: float, tmp_path: Path) -> None:
    import_folder(converted(original, tmp_path / "ct2", kind), tmp_path / "again")
    weights = open_folder(tmp_path / "again").model.state_dict()
    for name, tensor in open_folder(original).model.state_dict().items():
        error = float((weights[name][: len(tensor)] - tensor)[:-1].abs().max())
        assert error <= tolerance * max(1.0, float(tensor.abs().max())), name


EXPORTED = {
    "pre-norm": {"norm": "pre", "layers": 2, "activation": "gelu"},
    "learned, untied": {"positions": "learned", "tie_embeddings": False, "max_length": 40},
    "free heads, not scaled": {"head_width": 8, "scale_embeddings": False, "output_bias": True},
    "two vocabularies": {},  # of Marian
}


def byte_level_folder(path: Path, **shape: object) -> Path:
    """A random translator with a tokenizer of Regard."""
    config = small_config("translate", "transformer", **{"max_length": 32, **shape})
    tokenizer = train_tokenizer(list(CORPUS), "bpe", 300)
    path.mkdir()
    write_identity(path, config, tokenizer, None, 32)
    model = shaken(build(config.model, len(tokenizer)))
    write_weights(path, config.model, unique_weights(model))
    return path


@pytest.mark.parametrize("name", EXPORTED)
def test_what_was_exported_comes_back(name: str, tmp_path: Path) -> None:
    if name == "two vocabularies":
        saved(tmp_path / "model", sides(), "apart", longest=160)
    else:
        byte_level_folder(tmp_path / "model", **EXPORTED[name])
    one = open_folder(tmp_path / "model")
    (tmp_path / "ct2").mkdir()
    to_ctranslate2.write(one, tmp_path / "ct2", "float32")
    write_tokenizers(tmp_path / "ct2", one)
    import_folder(tmp_path / "ct2", tmp_path / "again")
    other = open_folder(tmp_path / "again")
    torch.testing.assert_close(logits(other), logits(one), **CLOSE)
    assert other.source.encode(CORPUS[0]) == one.source.encode(CORPUS[0])
    assert (other.special.start, other.special.end) == (one.special.start, one.special.end)


def opennmt_folder(original: Path, out: Path, **config: object) -> Path:
    """As OpenNMT-py's models: <s> begins a target and is a token, nothing ends a source."""
    converted(original, out)
    spec = json.loads((out / "config.json").read_text())
    names = json.loads((out / "shared_vocabulary.json").read_text())
    spec |= {"add_source_eos": False, "decoder_start_token": names[9], "bos_token": names[9], **config}
    (out / "config.json").write_text(json.dumps(spec))
    raw = (out / "model.bin").read_bytes()
    name = b"decoder/start_from_zero_embedding\0"
    place = raw.index(name) + len(name) + 1 + 1 + 4  # axes, type, size
    (out / "model.bin").write_bytes(raw[:place] + b"\0" + raw[place + 1 :])
    return out


def test_models_of_opennmt_end_no_source(original: Path, tmp_path: Path) -> None:
    import_folder(opennmt_folder(original, tmp_path / "ct2"), tmp_path / "again")
    folder = open_folder(tmp_path / "again")
    assert folder.source.framed([5, 6]) == [5, 6] and folder.special.start == 9
    agreement = agreement_with(tmp_path / "ct2", folder)
    assert agreement.equal == {"greedy": 1.0, "beam 4": 1.0} and agreement.largest < 1e-4
    # it stays so when it is written again
    export_model(tmp_path / "again", "ctranslate2", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["add_source_eos"] is False
    import_folder(tmp_path / "out", tmp_path / "third")
    torch.testing.assert_close(logits(open_folder(tmp_path / "third")), logits(folder), **CLOSE)


# --- Argos Translate


def argos_text(package: Path, scratch: Path, text: str) -> str:
    """What Argos Translate does with a package and a sentence."""
    with zipfile.ZipFile(package) as archive:
        archive.extractall(scratch)
    (root,) = (path for path in scratch.iterdir() if path.is_dir())
    metadata = json.loads((root / "metadata.json").read_text())
    assert {"from_code", "to_code", "package_version", "argos_version", "target_prefix"} <= metadata.keys()
    splitter = sentencepiece.SentencePieceProcessor(model_file=str(root / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(root / "model"))
    rows = [splitter.encode(text, out_type=str)]
    (result,) = translator.translate_batch(
        rows, beam_size=BEAM, max_decoding_length=40, return_end_token=True
    )
    tokens = [token for token in result.hypotheses[0] if token != "</s>"]
    return str(splitter.decode(tokens)).replace("▁", " ").strip()


def test_a_package_goes_in_and_out(package: Path, original: Path, tmp_path: Path, regard: Command) -> None:
    assert regard("models", "import", package, "-o", tmp_path / "model").code == 0
    folder = open_folder(tmp_path / "model")
    assert (folder.task.source, folder.task.target) == ("en", "de")
    assert "CC-BY 4.0" in (tmp_path / "model" / "README.md").read_text()
    expected = logits(open_folder(original))[:, :-1]
    torch.testing.assert_close(logits(folder)[:, :-1], expected, **CLOSE)
    out = tmp_path / "again.argosmodel"
    assert regard("export", "-m", tmp_path / "model", "--to", "argos", "-o", out).code == 0
    with zipfile.ZipFile(out) as archive:
        assert sorted(archive.namelist()) == [
            f"translate-en_de-1_0/{name}"
            for name in (
                "README.md",
                "metadata.json",
                *(f"model/{each}" for each in SETTINGS),
                "sentencepiece.model",
            )
        ]
    reference = Reference(folder, [EncodedText(folder.source.encode(text), []) for text in CORPUS[:3]])
    reference.limit = 40
    ours = reference.detokenize(reference.search(BEAM))
    assert [argos_text(out, tmp_path / "unpacked", text) for text in CORPUS[:3]] == ours
    import_folder(out, tmp_path / "third")
    torch.testing.assert_close(logits(open_folder(tmp_path / "third")), logits(folder), **CLOSE)


def test_only_sentencepiece_translators_become_packages(original: Path, tmp_path: Path) -> None:
    model = byte_level_folder(tmp_path / "model")
    with pytest.raises(UsageError) as caught:
        export_argos(model, tmp_path / "a.argosmodel")
    assert caught.value.code == "E_EXPORT_FAMILY"
    with pytest.raises(UsageError) as caught:
        export_argos(original, tmp_path / "a.zip")
    assert caught.value.code == "E_EXPORT_NAME"


# --- files from anywhere


def refused(path: Path, out: Path) -> str:
    with pytest.raises(UsageError) as caught:
        import_folder(path, out)
    assert not out.exists() and "regard-" not in str(caught.value)
    return str(caught.value.code)


def packed(path: Path, package: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The package with other entries."""
    with zipfile.ZipFile(package) as archive:
        entries: dict[str, Any] = {info.filename: archive.read(info) for info in archive.infolist()}
    change(entries)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            if isinstance(content, tuple):
                info.external_attr, content = content[0] << 16, content[1]
            archive.writestr(info, content)
    return path


ROOT = "translate-en_de-1_9"
LINK = (stat.S_IFLNK | 0o777, b"/etc/passwd")
CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "parent": lambda files: files.update({"../evil": b""}),
    "absolute": lambda files: files.update({"/tmp/evil": b""}),
    "backslash": lambda files: files.update({"a\\..\\..\\evil": b""}),
    "link": lambda files: files.update({f"{ROOT}/model/model.bin": LINK}),
    "linked folder": lambda files: files.update({f"{ROOT}/stanza2": LINK}),
    "bomb": lambda files: files.update({f"{ROOT}/model/model.bin": bytes(64 << 20)}),
    "no metadata": lambda files: files.pop(f"{ROOT}/metadata.json"),
    "two packages": lambda files: files.update({"other/metadata.json": b"{}"}),
    "no model": lambda files: files.pop(f"{ROOT}/model/model.bin"),
    "sentence splitter": lambda files: files.update({f"{ROOT}/metadata.json": b'{"type": "sbd"}'}),
    "languages": lambda files: files.update({f"{ROOT}/metadata.json": b'{"from_code": 1}'}),
    "prefix": lambda files: files.update({f"{ROOT}/metadata.json": b'{"target_prefix": "__de__"}'}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_packages_that_lie_are_refused(name: str, package: Path, tmp_path: Path) -> None:
    bad = packed(tmp_path / "bad.argosmodel", package, CHANGES[name])
    assert refused(bad, tmp_path / "out") == "E_ARGOS"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.argosmodel"]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_packages_are_refused_or_read(
    package: Path, tmp_path_factory: Any, data: st.DataObject
) -> None:
    content = bytearray(package.read_bytes())
    directory = content.index(b"PK\x01\x02")
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(directory, len(content) - 1) | st.integers(0, 400))] = data.draw(
            st.integers(0, 255)
        )
    place = tmp_path_factory.mktemp("damaged")
    (place / "a.argosmodel").write_bytes(content[: data.draw(st.none() | st.integers(0, len(content)))])
    try:
        import_folder(place / "a.argosmodel", place / "out")
    except UsageError as error:
        assert error.code
        assert not (place / "out").exists()


def variable(name: str, shape: tuple[int, ...], kind: int, size: int) -> bytes:
    raw = name.encode() + b"\0"
    return struct.pack(f"<H{len(raw)}sB{len(shape)}IBI", len(raw), raw, len(shape), *shape, kind, size)


WRONG: dict[str, tuple[str, Any]] = {
    "relative positions": (
        "encoder/layer_0/self_attention/relative_position_keys",
        np.zeros((3, 4), np.float32),
    ),
    "gated": ("encoder/layer_0/ffn/linear_0_noact/weight", np.zeros((3, 4), np.float32)),
    "normalized embeddings": ("encoder/layernorm_embedding/gamma", np.zeros(4, np.float32)),
    "features": ("encoder/embeddings_1/weight", np.zeros((3, 4), np.float32)),
    "alibi": ("decoder/alibi", np.int8(1)),
    "shared keys": ("decoder/multi_query_attention", np.int8(1)),
    "queries": ("decoder/layer_0/attention/queries_scale", np.float32(0.3)),
    "activation": ("decoder/activation", np.int8(6)),
    "heads": ("encoder/num_heads", np.int16(5)),
    "scale": ("encoder/scale_embeddings", np.float32(0.3)),
    "shape": ("decoder/layer_0/ffn/linear_1/weight", np.zeros((3, 4), np.float32)),
    "a layer too many": ("encoder/layer_7/ffn/layer_norm/gamma", np.zeros(4, np.float32)),
    "many layers": ("decoder/layer_100000000/ffn/layer_norm/gamma", np.zeros(4, np.float32)),
    "table": ("encoder/embeddings_0/weight", np.zeros((3, 4), np.float32)),
}
NUMBERS = {"float32": 0, "int8": 1, "int16": 2}


@pytest.mark.parametrize("name", WRONG)
def test_what_regard_does_not_compute_is_refused(name: str, original: Path, tmp_path: Path) -> None:
    """With one variable more, or another one in place of one; the message names it."""
    folder = converted(original, tmp_path / "ct2")
    raw = (folder / "model.bin").read_bytes()
    spelled, value = WRONG[name]
    content = value.tobytes()
    added = variable(spelled, value.shape, NUMBERS[str(value.dtype)], len(content)) + content
    head = 4 + 2 + len("TransformerSpec") + 1 + 4
    (count,) = struct.unpack("<I", raw[head : head + 4])
    # a later variable of the same name replaces the first
    begin = raw.rindex(b"encoder/scale_embeddings\0") + len(b"encoder/scale_embeddings\0") + 1 + 1 + 4 + 1
    changed = raw[:head] + struct.pack("<I", count + 1) + raw[head + 4 : begin] + added + raw[begin:]
    (folder / "model.bin").write_bytes(changed)
    with pytest.raises(UsageError) as caught:
        import_folder(folder, tmp_path / "out")
    assert caught.value.code == "E_IMPORT" and not (tmp_path / "out").exists()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_models_are_refused_or_read(
    package: Path, tmp_path_factory: Any, data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("damaged")
    for name in ("ct2/config.json", "ct2/model.bin", "ct2/shared_vocabulary.json"):
        (place / Path(name).name).write_bytes((package.parent / name).read_bytes())
    (place / "sentencepiece.model").write_bytes(sides()[0])
    content = bytearray((place / "model.bin").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, 3000) | st.integers(0, len(content) - 1))] = data.draw(
            st.integers(0, 255)
        )
    (place / "model.bin").write_bytes(content[: data.draw(st.none() | st.integers(0, len(content)))])
    try:
        import_folder(place, place / "out")
    except UsageError as error:
        assert error.code in ("E_IMPORT", "E_MODEL_WEIGHTS", "E_MODEL_CONFIG", "E_TOKENIZER")
        assert not (place / "out").exists()


FILES: dict[str, tuple[str, bytes | None]] = {
    "a token twice": ("shared_vocabulary.json", b'["</s>", "<unk>", "a", "a"]'),
    "no text": ("shared_vocabulary.json", b'["</s>", 7]'),
    "an object": ("shared_vocabulary.json", b"{}"),
    "few tokens": ("shared_vocabulary.json", b'["</s>", "<unk>", "a"]'),
    "no vocabulary": ("shared_vocabulary.json", None),
    "no splitter": ("source.spm", None),
    "start of sources": ("config.json", b'{"add_source_bos": true}'),
    "a token of numbers": ("config.json", b'{"eos_token": 3}'),
    "epsilon": ("config.json", b'{"layer_norm_epsilon": -1}'),
}


@pytest.mark.parametrize("name", FILES)
def test_files_that_do_not_belong_to_the_model_are_refused(name: str, original: Path, tmp_path: Path) -> None:
    folder = converted(original, tmp_path / "ct2")
    file, content = FILES[name]
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    assert refused(folder, tmp_path / "out") in ("E_IMPORT", "E_TOKENIZER")
