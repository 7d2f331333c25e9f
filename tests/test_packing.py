"""int8 and bfloat16 inference: close to float32, independent of the batch; calibration fits its weights."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from regard.batch import collate
from regard.cli.main import main
from regard.config import resolve
from regard.errors import UsageError, WeightsError
from regard.generation import decode
from regard.generation.engine import make_engine
from regard.generation.kernels import can_quantize
from regard.generation.packing import (
    Int8Linear,
    Packing,
    activation_ranges,
    choose_precision,
    pack_linears,
    scale_of,
)
from regard.sample import Sample
from regard.storage import (
    checkpoint_folder,
    checkpoint_steps,
    open_folder,
    unique_weights,
    write_checksums,
    write_weights,
)
from regard.storage.models import find_model
from regard.storage.weights import (
    CALIBRATION,
    INDEX,
    WEIGHTS,
    read_calibration,
    read_tensors,
    weight_shapes,
    weights_digest,
    write_calibration,
)
from regard.tasks import Translator, load
from regard.training import train
from traced_models import small_folder

pytestmark = pytest.mark.skipif(not can_quantize(), reason="torch multiplies no bytes on this processor")
CPU = torch.device("cpu")


def by_hand(x: torch.Tensor, linear: nn.Linear, scale: float, zero: int) -> torch.Tensor:
    """The same sum in whole numbers, one output at a time."""
    step = linear.weight.abs().amax(dim=1).double() / 127
    weights = (linear.weight.double() / step[:, None]).round().clamp(-128, 127)
    read = (x.double() / scale + zero).round().clamp(0, 255) - zero
    return read @ weights.T * scale * step + linear.bias.double()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**31))
def test_bytes_are_summed_as_by_hand(inputs, outputs, rows, seed):
    torch.manual_seed(seed)
    linear, x = nn.Linear(inputs, outputs), torch.randn(rows, inputs)
    reach = (float(x.min()), float(x.max()))
    with torch.no_grad():
        found = Int8Linear(linear.weight, linear.bias, reach)(x)
        expected = by_hand(x, linear, *scale_of(reach))
    steps = (
        scale_of(reach)[0] * linear.weight.detach().abs().max() * 2
    )  # a number on the edge may go to either side
    torch.testing.assert_close(found.double(), expected, atol=float(steps) + 1e-6, rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300), st.integers(1, 33), st.booleans(), st.integers(0, 2**31))
def test_a_row_is_the_same_among_others(inputs, rows, measured, seed):
    torch.manual_seed(seed)
    linear = nn.Linear(inputs, 24)
    x = torch.randn(rows, inputs) * torch.logspace(-2, 2, rows)[:, None]
    byte = Int8Linear(linear.weight.detach(), linear.bias.detach(), (-3.0, 3.0) if measured else None)
    together = byte(x)
    for number in range(rows):
        assert torch.equal(byte(x[number : number + 1])[0], together[number])


def test_zero_stays_zero_and_reaches_meet():
    for reach in ((-1.0, 3.0), (0.0, 5.0), (2.0, 5.0), (-4.0, -1.0), (0.0, 0.0)):
        scale, zero = scale_of(reach)
        assert 0 <= zero <= 255 and scale > 0
        assert (min(reach[0], 0) / scale + zero) >= -0.5 and (max(reach[1], 0) / scale + zero) <= 255.5


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "measured"])
def test_texts_do_not_depend_on_neighbours(tiny_model: Path, precision: str):
    """Bar: alone, in batches of any size, in any order, the words and their scores are the same."""
    folder = open_folder(tiny_model)
    dice = torch.Generator().manual_seed(3)
    rows = [torch.randint(4, len(folder.source), (3 + n % 9,), generator=dice).tolist() for n in range(24)]
    asked = [Sample(source=[*row, folder.source.end]) for row in rows]
    reaches = None
    if precision == "measured":
        pairs = [Sample(source=each.source, target=[folder.special.start, *each.source]) for each in asked]
        reaches = activation_ranges(folder.model, [collate(pairs, 1)])
    engine = make_engine(folder.model, "bfloat16" if precision == "bfloat16" else "int8", reaches)
    options = folder.decode.model_copy(update={"beam": 3, "max_length": 12})

    def said(samples: list[Sample]) -> list[tuple]:
        found = decode(engine, samples, options, folder.special, CPU)
        return [(each[0].tokens, each[0].score) for each in found]

    together = said(asked)
    assert [said([each])[0] for each in asked] == together
    assert said(asked[::-1])[::-1] == together
    assert len(set(together)) > 5


@pytest.mark.parametrize("kind", ["toy", "t5", "gpt", "llama", "rnn", "bahdanau"])
def test_every_family_in_bytes_is_near_itself(tiny_model: Path, kind: str):
    model = open_folder(tiny_model).model if kind == "toy" else small_folder(kind).model
    row = [5, 6, 7, 8]
    batch = collate([Sample(target=row) if kind in ("gpt", "llama") else Sample(source=row, target=row)], 1)
    with torch.no_grad():
        exact = model.eval()(batch)
        reaches = activation_ranges(model, [batch])
        pack_linears(model, Packing(model, "int8", reaches))
        rounded = model(batch)
    assert not torch.equal(exact, rounded)
    near = torch.nn.functional.cosine_similarity(exact.flatten(), rounded.flatten(), dim=0)
    assert float(near) > 0.98


def test_a_model_is_measured_once_and_then_decodes_in_bytes(tiny_model: Path, tmp_path: Path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (tmp_path / "texts").write_text("ba de gi\nlo me\n" * 4)
    exact = load(folder, "cpu", 1).translate(["ba de gi", "lo me ni"], check=False)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", "-m", str(folder), "--sample", str(tmp_path / "texts"), "--threads", "1"])
    assert ended.value.code == 0 and "8 texts" in capsys.readouterr().err
    content = json.loads((folder / CALIBRATION).read_text())
    assert set(content) == {"texts", "weights", "ranges"} and "output" in content["ranges"]
    assert content["weights"] == weights_digest(folder)
    measured = load(folder, "cpu", 1)
    down = measured.engines[0].model.decoder.blocks[0].feed_forward.down
    assert isinstance(down, Int8Linear) and down.scale
    assert load(folder, "cpu", 1, "float32").translate(["ba de gi", "lo me ni"], check=False) == exact
    assert (
        isinstance(measured, Translator)
        and measured.translate(["ba de gi", "lo me ni"], check=False) == exact
    )


def test_what_cannot_be_is_told(tiny_model: Path, tmp_path: Path, capsys):
    model = nn.Linear(2, 2)
    with pytest.raises(UsageError, match="float8"):
        choose_precision("float8", model, None)
    assert choose_precision("auto", model, {}) == "float32"
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    for content in ('{"ranges": [1]}', '{"reaches": {"a": [1, null]}}', '{"ranges": {"a": [2, 1]}}', "{"):
        (tmp_path / CALIBRATION).write_text(content)
        with pytest.raises(UsageError, match=CALIBRATION):
            read_calibration(tmp_path)
    write_calibration(tmp_path, {"a": (-1.0, 2.0)}, "mine")
    assert read_calibration(tmp_path) == {"a": (-1.0, 2.0)}


# --- a calibration belongs to its weights


@pytest.fixture
def calibrated(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of a trained run, calibrated."""
    shutil.copytree(tiny_model, tmp_path / "model")
    write_calibration(tmp_path / "model", {"output": (-1.0, 2.0)}, "mine")
    return tmp_path / "model"


def other_weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor + 1 for name, tensor in unique_weights(open_folder(folder).model).items()}


def test_new_weights_end_a_calibration(calibrated: Path) -> None:
    """A run that was calibrated and then resumed once decoded in int8 with the old ranges, silently."""
    assert open_folder(calibrated).calibration == {"output": (-1.0, 2.0)}
    write_weights(calibrated, open_folder(calibrated).config, other_weights(calibrated))
    write_checksums(calibrated)
    assert not (calibrated / CALIBRATION).exists()
    assert open_folder(calibrated).calibration == {}


def test_a_resumed_run_loses_its_calibration(tmp_path: Path, same_threads: None) -> None:
    (tmp_path / "pairs.tsv").write_text("ba de gi\tBa De Gi\nlo me ni\tLo Me Ni\n" * 20)
    tree = {
        "data": {"train": str(tmp_path / "pairs.tsv"), "duplicates": "keep", "leaks": "keep"},
        "text": {"kind": "character", "vocabulary": 300},
        "model": {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16},
        "train": {"steps": 1, "warmup": 1, "tokens_per_batch": 256, "device": "cpu", "threads": 1},
    }
    run = tmp_path / "run"
    train(resolve(tree), run)
    write_calibration(run, {"output": (-1.0, 2.0)}, "mine")
    before = weights_digest(run)
    tree["train"]["steps"] = 2
    train(resolve(tree), run, resume=True)
    assert weights_digest(run) != before
    assert open_folder(run).calibration == {}


def test_a_calibration_of_other_weights_is_ignored_with_a_warning(
    calibrated: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stale = (calibrated / CALIBRATION).read_bytes()
    write_weights(calibrated, open_folder(calibrated).config, other_weights(calibrated))
    write_checksums(calibrated)
    (calibrated / CALIBRATION).write_bytes(stale)
    folder = open_folder(calibrated)
    assert folder.calibration == {}
    assert choose_precision("auto", folder.model, folder.calibration) == "float32"
    (record,) = caplog.records
    assert str(calibrated / CALIBRATION) in record.getMessage() and "regard calibrate" in record.getMessage()


def test_a_checkpoint_has_its_own_calibration(calibrated: Path, tmp_path: Path, capsys) -> None:
    """It once read that of its run, and `calibrate` wrote the checkpoint's ranges into the run."""
    run = (calibrated / CALIBRATION).read_bytes()
    checkpoint = checkpoint_folder(calibrated, checkpoint_steps(calibrated)[0])
    assert open_folder(checkpoint).calibration == {}
    (tmp_path / "texts").write_text("ba de gi\nlo me\n" * 4)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", "-m", str(checkpoint), "--sample", str(tmp_path / "texts"), "--threads", "1"])
    assert ended.value.code == 0
    assert (calibrated / CALIBRATION).read_bytes() == run
    assert "output" in open_folder(checkpoint).calibration


def test_a_calibration_without_a_hash_counts_unless_the_weights_are_newer(calibrated: Path, caplog) -> None:
    """As earlier versions wrote it; a copied folder has files of about the same time."""
    path, weights = calibrated / CALIBRATION, calibrated / "model.safetensors"
    path.write_text('{"texts": "mine", "reaches": {"output": [-1.0, 2.0]}}')
    now = path.stat().st_mtime
    os.utime(weights, (now, now + 10))
    assert read_calibration(calibrated) == {"output": (-1.0, 2.0)}
    os.utime(weights, (now, now + 600))
    assert read_calibration(calibrated) == {} and len(caplog.records) == 1


@pytest.mark.parametrize("name", ["tatoeba-en-de", "tatoeba-de-en"])
def test_the_built_in_calibrations_fit_their_weights(name: str, caplog) -> None:
    folder = find_model(Path(name))
    assert json.loads((folder / CALIBRATION).read_text())["weights"] == weights_digest(folder)
    assert open_folder(folder).calibration and not caplog.records


def test_the_hash_of_weights_in_parts_follows_each_part(tmp_path: Path) -> None:
    parts = {f"model-0000{n}-of-00002.safetensors": {f"w{n}": torch.ones(n)} for n in (1, 2)}
    for name, tensors in parts.items():
        save_file(tensors, tmp_path / name)
    index = {"weight_map": {key: name for name, tensors in parts.items() for key in tensors}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    before = weights_digest(tmp_path)
    save_file({"w2": torch.zeros(2)}, tmp_path / "model-00002-of-00002.safetensors")
    assert weights_digest(tmp_path) != before


def test_weights_of_a_folder_beside_are_those_that_the_index_names(tmp_path: Path) -> None:
    """So the lower layers of models that were fine-tuned from one encoder are stored once."""
    for name in ("encoder", "tagger"):
        (tmp_path / name).mkdir()
    save_file({"body": torch.ones(2), "head": torch.ones(3)}, tmp_path / "encoder" / WEIGHTS)
    save_file({"head": torch.zeros(4)}, tmp_path / "tagger" / "own.safetensors")
    index, beside = tmp_path / "tagger" / INDEX, f"../encoder/{WEIGHTS}"
    index.write_text(json.dumps({"weight_map": {"body": beside, "head": "own.safetensors"}}))
    tensors = read_tensors(tmp_path / "tagger")
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        "body": [1, 1],
        "head": [0, 0, 0, 0],
    }
    assert sorted(weight_shapes(tmp_path / "tagger")) == [(2,), (4,)]
    (tmp_path / WEIGHTS).write_bytes((tmp_path / "encoder" / WEIGHTS).read_bytes())
    for wrong in (
        f"../{WEIGHTS}",
        f"../tagger/../{WEIGHTS}",
        f"../../{tmp_path.name}/{WEIGHTS}",
        "../encoder/x",
    ):
        index.write_text(json.dumps({"weight_map": {"body": wrong, "head": "own.safetensors"}}))
        with pytest.raises(WeightsError, match="not in the folder"):
            read_tensors(tmp_path / "tagger")


@pytest.mark.parametrize("kind", ["gpt", "llama", "t5", "rnn", "bahdanau"])
def test_every_family_decodes_in_bytes(kind: str):
    """A language model once asked its packed output layer for the device to begin on."""
    folder = small_folder(kind)
    own = make_engine(folder.model, "int8")
    options = folder.decode.model_copy(update={"beam": 2, "max_length": 6, "sample": False})
    rows = [[5, 6, 7], [8, 9, 10, 11, 12]]
    asked = [Sample(source=row) for row in rows]
    together = decode(own, asked, options, folder.special, CPU)
    alone = [decode(own, [each], options, folder.special, CPU)[0] for each in asked]
    assert [each[0].tokens for each in alone] == [each[0].tokens for each in together]
    assert all(each[0].tokens for each in together)
