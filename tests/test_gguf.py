"""GGUF files: read as transformers and the `gguf` package read them, written as both read them again."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize
from tokenizers import normalizers
from transformers import AutoModelForCausalLM, AutoTokenizer

from chats import CHATML, chat_folder
from ggufs import gguf_bytes, shapes
from hf_models import (  # noqa: F401 - a fixture
    CLOSE,
    byte_pairs,
    llama,
    make_pipelines,
    put_tokenizer,
    saved,
)
from regard.batch import collate
from regard.errors import UsageError
from regard.export.to_gguf import FILE, write
from regard.inputs.text import load_tokenizer
from regard.sample import Sample
from regard.storage import Folder, open_folder
from regard.storage.described import describe_path
from regard.storage.gguf.header import read_header
from regard.storage.importing import import_folder
from regard.tasks import Generator
from texts import CORPUS, NASTY

IDS = [5, 6, 7, 8, 9, 3, 4, 11, 12]
NAMES = ["llama", "llama tied", "llama 3", "llama linear", "mistral", "qwen2", "qwen3", "gemma"]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
STRESS = [*NASTY, *CORPUS[:6], "3.14159 it's  1234\n\n  b", "naïve 漢字 🙂 e\u0301"]


def logits(folder: Folder) -> torch.Tensor:
    with torch.no_grad():
        return folder.model(collate([Sample(target=IDS)], 1))[0]


# --- out and in again


@pytest.fixture(scope="module", params=NAMES)
def exported(request: pytest.FixtureRequest, pipelines: Any, tmp_path_factory: Any) -> tuple[Path, Path]:
    """A folder of transformers, and the file that was written of it."""
    folder, place = tmp_path_factory.mktemp("folder"), tmp_path_factory.mktemp("gguf")
    if request.param == "llama 3":
        llama(head_dim=16, rope_parameters=LLAMA3).save_pretrained(folder)
        put_tokenizer(folder, "llama", pipelines["llama"])
    else:
        saved(folder, request.param, pipelines)
    write(open_folder(folder), place, "float32")
    return folder, place / FILE


def test_a_model_comes_back(exported: tuple[Path, Path], tmp_path: Path) -> None:
    folder, file = exported
    import_folder(file, tmp_path / "again")
    one, other = open_folder(folder), open_folder(tmp_path / "again")
    assert torch.allclose(logits(one), logits(other), **CLOSE)
    assert one.config.model_copy(update={"dropout": 0.0}) == other.config
    assert (one.special.start, one.special.end) == (other.special.start, other.special.end)
    assert one.source.adds_start == other.source.adds_start


def test_transformers_reads_the_same(exported: tuple[Path, Path], tmp_path: Path) -> None:
    """Where it reads what llama.cpp reads: not the 1 of Gemma's norms, Qwen3's head width, scaled positions.

    It puts no space before a text that begins with one, llama.cpp and SentencePiece do.
    """
    folder, file = exported
    config = open_folder(folder).config
    if config.embedding_scale or config.rope_scaling or config.window or config.qk_norm:
        pytest.skip("transformers reads this type in another way than llama.cpp")
    transformers.utils.logging.set_verbosity_error()
    theirs = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=FILE).eval()
    import_folder(file, tmp_path / "again")
    with torch.no_grad():
        assert torch.allclose(
            theirs(torch.tensor([IDS])).logits[0], logits(open_folder(tmp_path / "again")), **CLOSE
        )
    tokenizer, ours = (
        AutoTokenizer.from_pretrained(file.parent, gguf_file=FILE),
        load_tokenizer(tmp_path / "again"),
    )
    for text in (each for each in STRESS if each[:1] not in (" ", "▁") and "s>" not in each):
        assert ours.encode(text) == tokenizer(text, add_special_tokens=False)["input_ids"]
        assert ours.decode(ours.encode(text)) == tokenizer.decode(ours.encode(text))


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_the_command_checks_what_it_wrote(tmp_path: Path, precision: str) -> None:
    from regard.export import export_model

    folder = chat_folder(tmp_path / "chat", width=32)
    export_model(folder, "gguf", tmp_path / "out", precision)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["README.md", FILE]
    import_folder(tmp_path / "out" / FILE, tmp_path / "again")
    one, other = (
        Generator.load(folder, precision="float32"),
        Generator.load(tmp_path / "again", precision="float32"),
    )
    for text in STRESS:
        assert one.tokenizer.encode(text) == other.tokenizer.encode(text)
        assert one.chat_ids([{"role": "user", "content": text}]) == other.chat_ids(
            [{"role": "user", "content": text}]
        )
    assert other.tokenizer.settings["chat_template"] == CHATML
    kinds = {each.tensor_type.name for each in GGUFReader(tmp_path / "out" / FILE).tensors}
    assert kinds == {"float16": {"F16", "F32"}, "int8": {"Q8_0", "F32"}}[precision]


@pytest.mark.parametrize("cut", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_ways_to_cut_texts_come_back(cut: str, tmp_path: Path) -> None:
    from regard.storage.gguf.vocabulary import CUTS

    folder = chat_folder(tmp_path / "chat")
    pipeline = byte_pairs()
    pipeline.pre_tokenizer = CUTS[cut]()
    if cut == "qwen2":
        pipeline.normalizer = normalizers.NFC()
    put_tokenizer(folder, "gpt2", pipeline)
    (tmp_path / "out").mkdir()
    write(open_folder(folder), tmp_path / "out", "float32")
    assert read_header(tmp_path / "out" / FILE).metadata["tokenizer.ggml.pre"] == cut
    import_folder(tmp_path / "out" / FILE, tmp_path / "again")
    one, other = load_tokenizer(folder), load_tokenizer(tmp_path / "again")
    assert [one.encode(text) for text in STRESS] == [other.encode(text) for text in STRESS]


# --- all quantisations


def readable() -> list[str]:
    skipped = ("Q8_1", "Q8_K", "I8", "I16", "I32", "I64", "F64", "Q1_0")
    return [kind.name for kind in GGMLQuantizationType if kind.name not in skipped]


@pytest.mark.parametrize("name", readable())
def test_numbers_are_those_of_the_gguf_package(name: str, tmp_path: Path) -> None:
    kind = GGMLQuantizationType[name]
    block, size = GGML_QUANT_SIZES[kind]
    writer = GGUFWriter(tmp_path / "a.gguf", "llama")
    if name in ("F32", "F16"):
        numbers = np.random.default_rng(1).standard_normal((3, 64)).astype(name.lower().replace("f", "float"))
        writer.add_tensor("a", numbers)
    else:
        raw = np.random.default_rng(1).integers(0, 60, (3, 512 // block * size), dtype=np.uint8)
        writer.add_tensor("a", raw, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tensor,) = GGUFReader(tmp_path / "a.gguf").tensors
    expected = dequantize(tensor.data, kind)
    assert np.array_equal(
        read_header(tmp_path / "a.gguf").read("a").float().numpy(), expected, equal_nan=True
    )


# --- files from anywhere


def refused(path: Path, out: Path) -> str:
    with pytest.raises(UsageError) as caught:
        import_folder(path, out)
    assert not out.exists()
    return str(caught.value.code)


WRONG: dict[str, dict[str, Any]] = {
    "architecture": {"general.architecture": "mamba"},
    "heads": {"llama.attention.head_count": 0},
    "no width": {"llama.embedding_length": None},
    "text for a number": {"llama.block_count": "1"},
    "layers": {"llama.block_count": 1_000_000},
    "half rotary": {"llama.rope.dimension_count": 4},
    "yarn": {"llama.rope.scaling.type": "yarn"},
    "experts": {"llama.expert_count": 8},
    "kind of tokenizer": {"tokenizer.ggml.model": "bert"},
    "cut": {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "tekken"},
    "twice": {"tokenizer.ggml.tokens": ["a"] * 265},
    "few types": {"tokenizer.ggml.token_type": [1, 2, 3]},
    "few scores": {"tokenizer.ggml.scores": [1.0]},
    "many tokens": {"tokenizer.ggml.tokens": [f"t{n}" for n in range(999)]},
    "long token": {"tokenizer.ggml.tokens": ["<unk>", "a" * 5000, *(f"t{n}" for n in range(263))]},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    gguf_bytes(tmp_path / "a.gguf", WRONG[name])
    assert refused(tmp_path / "a.gguf", tmp_path / "out") in (
        "E_GGUF",
        "E_MODEL_CONFIG",
        "E_MODEL_WEIGHTS",
        "E_TOKENIZER",
    )


def test_counts_and_sizes_that_lie_are_refused_before_memory_is_taken(tmp_path: Path) -> None:
    whole = gguf_bytes(tmp_path / "a.gguf")
    import_folder(tmp_path / "a.gguf", tmp_path / "good")
    tokens = whole.index(b"tokenizer.ggml.tokens") + 21  # the type, the type of values, their number
    tensor = whole.index(b"token_embd.weight") + 17  # axes, shape, type, place
    huge = struct.pack("<Q", 2**60)
    changes = {
        "magic": (0, b"GGML"),
        "version": (4, b"\x09"),
        "tensors": (8, huge),
        "entries": (16, huge),
        "a name": (24, huge),
        "a list": (tokens + 8, huge),
        "lists in lists": (tokens + 4, struct.pack("<I", 9)),
        "axes": (tensor, struct.pack("<I", 2**31)),
        "a row": (tensor + 4, huge),
        "no row": (tensor + 4, bytes(8)),
        "half a block": (tensor + 4, struct.pack("<Q", 7)),
        "type": (tensor + 20, struct.pack("<I", 999)),
        "place": (tensor + 24, huge),
        "overlap": (tensor + 24, struct.pack("<Q", 64)),
    }
    for name, (place, raw) in changes.items():
        (tmp_path / "b.gguf").write_bytes(whole[:place] + raw + whole[place + len(raw) :])
        assert refused(tmp_path / "b.gguf", tmp_path / "out") == "E_GGUF", name
    for size in (0, 3, 20, 30, tokens, tensor + 8, len(whole) - 40):
        (tmp_path / "b.gguf").write_bytes(whole[:size])
        assert refused(tmp_path / "b.gguf", tmp_path / "out") == "E_GGUF", size
    assert len(read_header(tmp_path / "a.gguf").tensors) == len(shapes())


def test_a_file_is_described(tmp_path: Path) -> None:
    folder = chat_folder(tmp_path / "chat")
    (tmp_path / "out").mkdir()
    write(open_folder(folder), tmp_path / "out", "float16")
    rows = describe_path(str(tmp_path / "out" / FILE))
    assert rows is not None and (rows["family"], rows["context"]) == ("llama", "256")
    assert rows["precision"].split(", ")[0] == "F16"
    count = sum(parameter.numel() for parameter in open_folder(folder).model.parameters())
    assert rows["parameters"] == f"{count:,}"
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 40)
    with pytest.raises(UsageError) as caught:
        describe_path(str(tmp_path / "bad.gguf"))
    assert caught.value.code == "E_GGUF"
