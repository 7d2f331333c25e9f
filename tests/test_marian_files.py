"""Files of Marian: read as CTranslate2 reads them; students against their equations, byte by byte."""

from __future__ import annotations

import math
import pickle
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from torch import Tensor

from conftest import Command
from marian_folders import sides
from regard.batch import Batch, tokens
from regard.errors import UsageError
from regard.models.positions import sinusoid
from regard.storage import Folder, open_folder
from regard.storage.importing import import_folder
from regard.storage.marian.file import BYTES, FLOAT32, INT8, OPTIONS, read_model
from texts import CORPUS

Arrays = dict[str, np.ndarray[Any, Any]]
WIDTH, HEADS, FORWARD, LAYERS = 16, 2, 24, (2, 1)
OPTION: dict[str, str] = {
    "type": "transformer",
    "dim-emb": str(WIDTH),
    "transformer-heads": str(HEADS),
    "transformer-dim-ffn": str(FORWARD),
    "enc-depth": str(LAYERS[0]),
    "dec-depth": str(LAYERS[1]),
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": "2",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-preprocess": '""',
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": '""',
    "transformer-guided-alignment-layer": "last",
    "transformer-tied-layers": "[]",
    "transformer-no-projection": "false",
    "tied-embeddings-all": "true",
    "tied-embeddings-src": "false",
    "tied-embeddings": "false",
    "dec-cell": "ssru",
    "lemma-dim-emb": "0",
    "version": "v1.9.56 2021-04-28",
}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
STUDENT = {"transformer-decoder-autoreg": "rnn", "transformer-ffn-activation": "relu"}
SPM = sides("unigram")


def vocabulary() -> list[str]:
    processor = SentencePieceProcessor.from_proto(SPM[0])
    return [processor.id_to_piece(number) for number in range(len(processor))]


def arrays(options: Mapping[str, str], seed: int = 1) -> Arrays:
    """Random tensors under Marian's names."""
    random, size = np.random.default_rng(seed), len(vocabulary())
    made: Arrays = {}

    def put(name: str, *shape: int, scale: float = 0.3, mean: float = 0.0) -> None:
        made[name] = (mean + scale * random.standard_normal(shape)).astype(np.float32)

    def norm(name: str, end: str) -> None:
        put(f"{name}_ln_scale{end}", 1, WIDTH, mean=1.0)
        put(f"{name}_ln_bias{end}", 1, WIDTH)

    end = "_pre" if options["transformer-preprocess"] == "n" else ""
    for side, depth in zip(("encoder", "decoder"), LAYERS):
        for layer in range(1, depth + 1):
            place, kinds = f"{side}_l{layer}", ["self", *(["context"] if side == "decoder" else [])]
            if side == "decoder" and options["transformer-decoder-autoreg"] == "rnn":
                kinds = ["context"]
                put(f"{place}_rnn_W", WIDTH, WIDTH)
                put(f"{place}_rnn_Wf", WIDTH, WIDTH)
                put(f"{place}_rnn_bf", 1, WIDTH)
                norm(f"{place}_rnn" if end else f"{place}_rnn_ffn", end)
            for kind in kinds:
                for letter in "qkvo":
                    put(f"{place}_{kind}_W{letter}", WIDTH, WIDTH)
                    put(f"{place}_{kind}_b{letter}", 1, WIDTH)
                norm(f"{place}_{kind}_Wo", end)
            put(f"{place}_ffn_W1", WIDTH, FORWARD)
            put(f"{place}_ffn_b1", 1, FORWARD)
            put(f"{place}_ffn_W2", FORWARD, WIDTH)
            put(f"{place}_ffn_b2", 1, WIDTH)
            norm(f"{place}_ffn_ffn", end)
        if end:
            norm(f"{side}_top", "")
    tables = ["Wemb"] if options["tied-embeddings-all"] == "true" else ["encoder_Wemb", "decoder_Wemb"]
    for table in tables:
        put(table, size, WIDTH)
    if options["tied-embeddings-all"] != "true" and options["tied-embeddings"] != "true":
        put("decoder_ff_logit_out_W", WIDTH, size)
    put("decoder_ff_logit_out_b", 1, size)
    return made


def yaml_of(options: Mapping[str, str]) -> bytes:
    lines = [f"{name}: {value}" for name, value in options.items()]
    return ("\n".join([*lines, "dim-vocabs:", f"  - {len(vocabulary())}", "  - 1"]) + "\n\0").encode()


def put_npz(folder: Path, changes: Mapping[str, str] = {}) -> Arrays:
    options = {**OPTION, **changes}
    made = arrays(options)
    folder.mkdir(exist_ok=True)
    (folder / "vocab.spm").write_bytes(SPM[0])
    np.savez(folder / "model.npz", **made, **{OPTIONS: np.frombuffer(yaml_of(options), np.int8)})
    return made


def binary(made: Arrays, options: bytes, in_bytes: bool) -> bytes:
    """Version 1; matrices of bytes are transposed, and their factor follows."""
    rows: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, array in made.items():
        if in_bytes and (name == "Wemb" or ("_W" in name and array.ndim == 2 and "ln" not in name)):
            factor = np.float32(127 / np.abs(array).max())
            numbers = np.round(array * factor).astype(np.int8)
            raw = (numbers if name == "Wemb" else numbers.T).tobytes() + factor.tobytes()
            rows.append((name, INT8, array.shape, raw))
            rows.append((f"{name}_QuantMultA", FLOAT32, (1, 1), np.float32(3.0).tobytes()))
        else:
            rows.append((name, FLOAT32, array.shape, array.tobytes()))
    rows.append((OPTIONS, BYTES, (len(options),), options))
    rows = [
        (name, kind, shape, raw.ljust(-(-len(raw) // 256) * 256, b"\0")) for name, kind, shape, raw in rows
    ]
    out = struct.pack("<QQ", 1, len(rows))
    for name, kind, shape, raw in rows:
        out += struct.pack("<QQQQ", len(name) + 1, kind, len(shape), len(raw))
    out += b"".join(name.encode() + b"\0" for name, *_ in rows)
    out += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in rows)
    gap = -(len(out) + 8) % 256
    return out + struct.pack("<Q", gap) + bytes(gap) + b"".join(raw for *_, raw in rows)


def put_binary(folder: Path, changes: Mapping[str, str] = {}, in_bytes: bool = False) -> Arrays:
    options = {**OPTION, **changes}
    made = arrays(options)
    folder.mkdir(exist_ok=True)
    (folder / "vocab.ende.spm").write_bytes(SPM[0])
    (folder / "model.ende.bin").write_bytes(binary(made, yaml_of(options), in_bytes))
    return made


def logits(folder: Folder) -> Tensor:
    source, target = tokens([[5, 6, 7, 8, 9, 10, 11, 0]]), tokens([[folder.target.start, 6, 7, 8]])
    with torch.no_grad():
        return folder.model(Batch(source=source, target=target))[0]


SHAPES: dict[str, dict[str, str]] = {
    "post-norm": {},
    "pre-norm": {**PRE, "transformer-ffn-activation": "relu"},
    "two tables, tied output": {"tied-embeddings-all": "false", "tied-embeddings": "true"},
    "untied": {"tied-embeddings-all": "false"},
}


@pytest.mark.parametrize("name", SHAPES)
def test_weights_are_those_of_another_reader(name: str, tmp_path: Path) -> None:
    """CTranslate2's converter of Marian, whose result is imported, too; positions and epsilon are its own."""
    put_npz(tmp_path / "marian", SHAPES[name])
    lines = (f'"{token}": {number}' for number, token in enumerate(vocabulary()))
    (tmp_path / "vocab.yml").write_text("\n".join(lines))
    converter = ctranslate2.converters.MarianConverter(
        str(tmp_path / "marian" / "model.npz"), [str(tmp_path / "vocab.yml")] * 2
    )
    converter.convert(str(tmp_path / "ct2"))
    (tmp_path / "ct2" / "sentencepiece.model").write_bytes(SPM[0])
    import_folder(tmp_path / "ct2", tmp_path / "theirs")
    import_folder(tmp_path / "marian", tmp_path / "ours")
    ours, theirs = open_folder(tmp_path / "ours"), open_folder(tmp_path / "theirs")
    assert (ours.config.positions, theirs.config.positions) == (
        "sinusoidal_tensor2tensor",
        "sinusoidal_halves",
    )
    differing = ("positions", "epsilon", "layers", "max_length")
    same = {name: getattr(theirs.config, name) for name in differing}
    assert ours.config.model_copy(update=same) == theirs.config
    expected = theirs.model.state_dict()
    assert ours.model.state_dict().keys() == expected.keys()
    for parameter, tensor in ours.model.state_dict().items():
        torch.testing.assert_close(tensor, expected[parameter], atol=0, rtol=0)
    assert [ours.source.encode(text) for text in CORPUS] == [theirs.source.encode(text) for text in CORPUS]


# --- students, by their equations


def student(made: Arrays, source: list[int], target: list[int]) -> Tensor:
    """Logits after each target token; a target begins with zeros. One row, token by token, no masks."""
    w = {name: torch.from_numpy(array) for name, array in made.items()}
    waves = sinusoid(torch.arange(64), WIDTH, halves=True, denominator=WIDTH - 2)

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, (WIDTH,), w[f"{name}_ln_scale"][0], w[f"{name}_ln_bias"][0], 1e-9)

    def linear(x: Tensor, place: str, letter: str) -> Tensor:
        return x @ w[f"{place}_W{letter}"] + w[f"{place}_b{letter}"][0]

    def attention(x: Tensor, memory: Tensor, place: str) -> Tensor:
        q, k, v = linear(x, place, "q"), linear(memory, place, "k"), linear(memory, place, "v")
        heads = []
        for part in (slice(n * WIDTH // HEADS, (n + 1) * WIDTH // HEADS) for n in range(HEADS)):
            scores = q[:, part] @ k[:, part].T / math.sqrt(WIDTH / HEADS)
            heads.append(scores.softmax(dim=-1) @ v[:, part])
        return norm(x + linear(torch.cat(heads, dim=1), place, "o"), f"{place}_Wo")

    def forward(x: Tensor, place: str) -> Tensor:
        return norm(x + linear(linear(x, place, "1").relu(), place, "2"), f"{place}_ffn")

    x = w["Wemb"][source] * math.sqrt(WIDTH) + waves[: len(source)]
    for layer in range(1, LAYERS[0] + 1):
        x = forward(attention(x, x, f"encoder_l{layer}_self"), f"encoder_l{layer}_ffn")
    memory, before = x, torch.cat([torch.zeros(1, WIDTH), w["Wemb"][target]]) * math.sqrt(WIDTH)
    y = before + waves[: len(before)]
    for layer in range(1, LAYERS[1] + 1):
        place, state, rows = f"decoder_l{layer}", torch.zeros(WIDTH), []
        for row in y:
            gate = (row @ w[f"{place}_rnn_Wf"] + w[f"{place}_rnn_bf"][0]).sigmoid()
            state = gate * state + (1 - gate) * (row @ w[f"{place}_rnn_W"])
            rows.append(state.relu())
        y = norm(y + torch.stack(rows), f"{place}_rnn_ffn")
        y = forward(attention(y, memory, f"{place}_context"), f"{place}_ffn")
    return y @ w["Wemb"].T + w["decoder_ff_logit_out_b"][0]


def test_students_compute_their_equations(tmp_path: Path) -> None:
    made = put_binary(tmp_path / "marian", STUDENT)
    import_folder(tmp_path / "marian", tmp_path / "again")
    folder = open_folder(tmp_path / "again")
    assert folder.config.decoder_mixer == "ssru" and folder.decode.beam == 1
    assert folder.special.start == len(vocabulary()) and folder.target.unknown in folder.special.suppressed
    expected = student(made, [5, 6, 7, 8, 9, 10, 11, 0], [6, 7, 8])
    torch.testing.assert_close(logits(folder)[:, :-1], expected, atol=1e-5, rtol=1e-5)
    assert bool((logits(folder)[:, -1] < -50).all())


def test_bytes_are_read_with_their_factors(tmp_path: Path) -> None:
    made = put_binary(tmp_path / "marian", STUDENT, in_bytes=True)
    file = read_model(tmp_path / "marian" / "model.ende.bin")
    for name, array in made.items():
        error = float((file.tensors[name] - torch.from_numpy(array)).abs().max())
        assert error <= (np.abs(array).max() / 250 if "_W" in name or name == "Wemb" else 0), name
    import_folder(tmp_path / "marian", tmp_path / "again")
    rounded = {name: tensor.contiguous().numpy() for name, tensor in file.tensors.items()}
    expected = student(rounded, [5, 6, 7, 8, 9, 10, 11, 0], [6, 7, 8])
    torch.testing.assert_close(
        logits(open_folder(tmp_path / "again"))[:, :-1], expected, atol=1e-5, rtol=1e-5
    )


def test_one_file_of_several_is_named(tmp_path: Path, regard: Command) -> None:
    put_npz(tmp_path / "marian")
    put_binary(tmp_path / "marian", STUDENT)
    (tmp_path / "marian" / "vocab.ende.spm").unlink()
    (tmp_path / "marian" / "lex.50.50.ende.s2t.bin").write_bytes(struct.pack("<QQ", 0xF11A48D5013417F5, 1))
    assert refused(tmp_path / "marian", tmp_path / "out") == "E_MARIAN"
    done = regard("models", "import", tmp_path / "marian" / "model.ende.bin", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert open_folder(tmp_path / "out").config.decoder_mixer == "ssru"


# --- files from anywhere


def refused(path: Path, out: Path) -> str:
    with pytest.raises(UsageError) as caught:
        import_folder(path, out)
    assert not out.exists()
    return str(caught.value.code)


WRONG: dict[str, dict[str, str]] = {
    "a recurrent model": {"type": "s2s"},
    "trained positions": {"transformer-train-position-embeddings": "true"},
    "average attention": {"transformer-decoder-autoreg": "average-attention"},
    "another cell": {"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"},
    "three layers of feed-forward": {"transformer-ffn-depth": "3"},
    "Marian's GELU": {"transformer-ffn-activation": "gelu"},
    "another order": {"transformer-postprocess": "nda"},
    "normalized embeddings": {"transformer-postprocess-emb": "nd"},
    "shared layers": {"transformer-tied-layers": "[1, 1]"},
    "factors": {"lemma-dim-emb": "8"},
    "right to left": {"right-left": "true"},
    "text for a number": {"dim-emb": "wide"},
    "another width": {"dim-emb": "18"},
    "heads": {"transformer-heads": "5"},
    "wide": {"dim-emb": "999999999"},
    "deep": {"enc-depth": "900"},
    "deeper": {"enc-depth": "999999999"},
    "a layer too few": {"enc-depth": "1"},
    "tables": {"tied-embeddings-all": "false"},
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_regard_does_not_compute_are_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "marian"
    made = put_npz(folder)
    options = yaml_of({**OPTION, **WRONG[name]})
    np.savez(folder / "model.npz", **made, **{OPTIONS: np.frombuffer(options, np.int8)})
    assert refused(folder, tmp_path / "out") in ("E_MARIAN", "E_IMPORT")


def test_archives_that_lie_are_refused(tmp_path: Path) -> None:
    """Pickles are never read."""
    folder = tmp_path / "marian"
    made = put_npz(folder)
    good = (folder / "model.npz").read_bytes()
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (ran.touch, ())

    np.savez(folder / "model.npz", **made, evil=np.array([Evil()], dtype=object))
    assert refused(folder, tmp_path / "out") == "E_MARIAN"
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1073741824, 1024), }\n"
    contents = {
        "no array": b"hello",
        "a pickle": pickle.dumps(Evil()),
        "a huge shape": b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head,
        "a header that runs code": b"\x93NUMPY\x01\x00\x10\x00__import__('os')",
        "a bomb": bytes(64 << 20),
    }
    for name, content in contents.items():
        (folder / "model.npz").write_bytes(good)
        with zipfile.ZipFile(folder / "model.npz", "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("more.npy", content)
        assert refused(folder, tmp_path / "out") == "E_MARIAN", name
    for size in (0, 10, len(good) // 2, len(good) - 30):
        (folder / "model.npz").write_bytes(good[:size])
        assert refused(folder, tmp_path / "out") == "E_MARIAN"
    assert not ran.exists()


def test_counts_and_sizes_that_lie_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "marian"
    put_binary(folder, STUDENT, in_bytes=True)
    file = folder / "model.ende.bin"
    whole, huge = file.read_bytes(), struct.pack("<Q", 2**60)
    names = 16 + 32 * struct.unpack("<Q", whole[8:16])[0]
    changes = {
        "tensors": (8, struct.pack("<Q", 2**31)),
        "a name": (16, huge),
        "type": (24, huge),
        "axes": (32, huge),
        "bytes": (40, huge),
        "few bytes": (40, bytes(8)),
        "UTF-8": (names, b"\xff"),
    }
    for name, (place, raw) in changes.items():
        file.write_bytes(whole[:place] + raw + whole[place + len(raw) :])
        assert refused(folder, tmp_path / "out") == "E_MARIAN", name
    for size in (16, 40, names, names + 50, len(whole) - 300):
        file.write_bytes(whole[:size])
        assert refused(folder, tmp_path / "out") == "E_MARIAN", size


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused_or_read(tmp_path_factory: Any, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    kind = data.draw(st.sampled_from(["npz", "bin"]))
    if kind == "npz":
        put_npz(folder)
        file = folder / "model.npz"
    else:
        put_binary(folder, STUDENT, in_bytes=True)
        file = folder / "model.ende.bin"
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, 4000) | st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    file.write_bytes(content[: data.draw(st.none() | st.integers(0, len(content)))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numbers that become infinite
        try:
            import_folder(file, folder / "out")
        except UsageError as error:
            assert error.code in ("E_MARIAN", "E_IMPORT", "E_MODEL_WEIGHTS")
            assert not (folder / "out").exists()


def test_vocabularies_are_needed_and_fit(tmp_path: Path) -> None:
    folder = tmp_path / "marian"
    put_npz(folder)
    (folder / "vocab.spm").unlink()
    assert refused(folder, tmp_path / "out") == "E_MARIAN"
    (folder / "vocab.spm").write_bytes(SPM[1])
    assert refused(folder, tmp_path / "out") == "E_MARIAN"
    (folder / "vocab.spm").write_bytes(b"no model")
    assert refused(folder, tmp_path / "out") == "E_TOKENIZER"
