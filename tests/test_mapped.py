"""Weights are mapped from their file, and what had to be copied is not in memory twice."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import UsageError
from regard.generation.engine import make_engine
from regard.mapped import is_view, release_pages
from regard.storage import open_folder, weights
from regard.storage.huggingface import MARIAN, architecture
from regard.storage.weights import read_safetensors
from small_models import small_config, small_model, written
from traced_models import tokenizer

TENSORS = {
    "matrix": torch.rand(3, 5),
    "none": torch.zeros(0, 4),
    "half": torch.rand(7).half(),
    "brain": torch.rand(3).bfloat16(),
    "ids": torch.arange(5),
    "bytes": torch.arange(3, dtype=torch.uint8),
    "one": torch.tensor(2.5),
    "flags": torch.tensor([True, False, True]),
    "precise": torch.rand(2).double(),
}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )


@pytest.mark.parametrize("tensors", [TENSORS, {}], ids=["some", "none"])
def test_all_kinds_of_tensors_are_read(tensors, tmp_path):
    save_file(tensors, tmp_path / "file.safetensors")
    assert same(read_safetensors(tmp_path / "file.safetensors"), tensors)


def test_a_file_without_order_is_read(tmp_path):
    """Other programs may put numbers of four bytes behind a single one, where no such number begins."""
    header = {
        "small": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "large": {"dtype": "F32", "shape": [2], "data_offsets": [1, 9]},
    }
    text = json.dumps(header).encode()
    content = bytes([7]) + torch.tensor([1.5, -2.0]).numpy().tobytes()
    path = tmp_path / "file.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)
    expected = {"small": torch.tensor([7], dtype=torch.uint8), "large": torch.tensor([1.5, -2.0])}
    assert same(read_safetensors(path), expected)


def test_who_changes_a_tensor_does_not_change_the_file(tmp_path):
    path = tmp_path / "file.safetensors"
    save_file({"own": torch.ones(4)}, path)
    before = path.read_bytes()
    read_safetensors(path)["own"].zero_()
    assert path.read_bytes() == before


def test_a_file_that_another_replaced_meanwhile_is_refused(tmp_path, monkeypatch):
    """A training writes its weights anew while somebody opens them: no mixture of both is ever read."""
    path = tmp_path / "file.safetensors"
    save_file({"own": torch.ones(4)}, path)

    def map_another(file):
        save_file({"own": torch.ones(4), "more": torch.ones(9)}, path)
        with path.open("rb") as new:
            return mapped(new)

    mapped = weights.map_file
    monkeypatch.setattr(weights, "map_file", map_another)
    with pytest.raises(UsageError, match="while it was read"):
        read_safetensors(path)


def test_what_was_let_go_comes_back(tmp_path):
    save_file({"own": torch.rand(1 << 16)}, tmp_path / "file.safetensors")
    mapped = read_safetensors(tmp_path / "file.safetensors")["own"]
    copy = mapped.clone()
    for tensor in (mapped, mapped[5:]):
        release_pages(tensor)
        assert torch.equal(mapped, copy)


def test_memory_that_is_of_no_file_keeps_what_it_holds(tmp_path):
    """Pages that the system takes back are empty afterwards, unless a file has them."""
    save_file({"own": torch.rand(1 << 16)}, tmp_path / "file.safetensors")
    mapped = read_safetensors(tmp_path / "file.safetensors")["own"]
    for tensor in (torch.rand(1 << 16), mapped.clone(), torch.rand(0)):
        before = tensor.clone()
        release_pages(tensor)
        assert torch.equal(tensor, before)


def test_neighbours_of_what_was_let_go_keep_what_was_written_to_them(tmp_path):
    """A weight is packed and let go; somebody had changed the one beside it, and uses it still."""
    save_file({"first": torch.rand(1 << 16), "second": torch.rand(1 << 16)}, tmp_path / "file.safetensors")
    found = read_safetensors(tmp_path / "file.safetensors")
    found["first"].fill_(1)
    found["second"].fill_(2)
    release_pages(found["first"])
    assert bool((found["second"] == 2).all()) and not bool((found["first"] == 1).all())


def test_what_was_written_to_a_tensor_in_use_stays(tmp_path):
    """Words that are also the output are packed, and looked up afterwards: with what somebody wrote there."""
    save_file({"own": torch.rand(1 << 20), "same": torch.rand(1 << 16)}, tmp_path / "file.safetensors")
    found = read_safetensors(tmp_path / "file.safetensors")
    found["own"][700_000] = 3
    before = {name: tensor.clone() for name, tensor in found.items()}
    for tensor in found.values():
        release_pages(tensor, in_use=True)
    assert same(found, before)


def test_a_marian_folder_stays_as_its_file_has_it(tmp_path):
    config = small_config("translate", "transformer")
    folder = written(tmp_path / "model", config, small_model(config, tokenizer()), tokenizer())
    opened = open_folder(folder)
    weights = [parameter.detach() for parameter in opened.model.parameters()]
    assert opened.config.positions == "sinusoidal_halves"
    assert weights and all(is_view(each, weights[0]) for each in weights)


def test_an_engine_has_what_was_written_to_a_weight(tmp_path):
    """Somebody opens a folder, changes a weight and decodes: the file's pages go, the change does not."""
    config = small_config("translate", "transformer")
    folder = written(tmp_path / "model", config, small_model(config, tokenizer()), tokenizer())
    model = open_folder(folder).model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    packed = make_engine(model).model
    assert bool((packed.decoder.blocks[0].feed_forward.up.weight == 0.5).all())
    assert bool((packed.source.tokens.weight == 0.5).all())


def test_what_had_to_be_copied_is_let_go_of(tmp_path, monkeypatch):
    """Weights in half precision, which are computed with as float32."""
    config = small_config("translate", "transformer")
    model = small_model(config, tokenizer())
    folder = written(tmp_path / "model", config, model, tokenizer())
    file, gone = folder / "model.safetensors", []
    halves = {
        name: each if name.endswith("bias") else each.half() for name, each in read_safetensors(file).items()
    }
    save_file(halves, file)
    tensors = read_safetensors(file)
    monkeypatch.setattr(architecture, "release_pages", gone.append)
    shapes = {name: each.shape for name, each in model.named_parameters()}
    found = architecture.tensors_from_hf(tensors, MARIAN.table_of(shapes, None), shapes)
    mapped = {name for name, part in found.items() if is_view(part, next(iter(tensors.values())))}
    assert mapped and all(name.endswith(".bias") for name in mapped)
    assert len(gone) == len(tensors) - len(mapped)


OPENING = """
import re, sys
from pathlib import Path
from regard.storage import open_folder

def held(name):
    return int(re.search(rf"{name}:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024

before = held("VmRSS")
folder = open_folder(Path(sys.argv[1]))
print(held("VmRSS") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell of their memory elsewhere")
def test_opening_takes_no_memory_for_the_weights(tmp_path):
    config = small_config("translate", "transformer", width=512, feed_forward=2048, layers=4, heads=8)
    folder = written(tmp_path / "model", config, small_model(config, tokenizer()), tokenizer())
    size = (folder / "model.safetensors").stat().st_size >> 20
    run = subprocess.run(
        [sys.executable, "-c", OPENING, str(folder)], capture_output=True, text=True, check=True, timeout=300
    )
    assert size > 100
    assert int(run.stdout) < 0.5 * size, "its weights are read when they are used"


def test_a_torn_file_is_refused(tmp_path):
    """It holds less than its header says."""
    path = tmp_path / "file.safetensors"
    save_file({"own": torch.rand(64)}, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UsageError, match="not a readable safetensors file"):
        read_safetensors(path)
