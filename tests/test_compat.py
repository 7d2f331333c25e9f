"""Model folders and runs of earlier versions open, answer and resume as they did when they were written."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.compat import current_weight_names
from regard.config import load_config
from regard.storage import checkpoint_folder, load_checkpoint
from regard.training import train

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "v1" / "expected.json").read_text(encoding="utf-8"))
CALLS = {
    "fill": lambda model: [model.fill("red <mask> sees")],
    "classify": lambda model: [model.classify("red cat sees dog")],
    "tag": lambda model: [model.tag("red cat sees Oslo")],
    "answer": lambda model: [model.answer("where in ?", "red cat in house tree")],
    "generate": lambda model: [model.generate("red cat", beam=1, sample=False, max_length=6)],
    "translate": lambda model: [
        model.translate("red cat sees the dog", beam=2, check=False),
        model.translate("small house", beam=1, check=False),
    ],
}


def copy_of(name: str, tmp_path: Path) -> Path:
    folder = tmp_path / name
    shutil.copytree(DATA / "v1" / name, folder)
    run = folder / "run.toml"
    run.write_text(run.read_text().replace("/v1/corpora", str(DATA / "v1" / "corpora")))
    return folder


def flat(value: Any) -> Any:
    """Results as plain JSON values, without fields that a later version added."""
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


RENAMED = {"cut": "truncated", "piece": "text"}  # fields of results that have another name today


def assert_equal(actual: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert_equal(actual[key if key in actual else RENAMED[key]], value)
    elif isinstance(expected, list) and isinstance(actual, dict):  # it was a named tuple
        assert_equal(list(actual.values()), expected)
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected):
            assert_equal(one, other)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-5)
    else:
        assert actual == expected


@pytest.mark.parametrize("place", ["", "checkpoints/step-6"])
@pytest.mark.parametrize("name", EXPECTED)
def test_a_folder_of_version_1_answers_as_it_did(name: str, place: str, tmp_path: Path) -> None:
    model = regard.load(copy_of(name, tmp_path) / place)
    answers = [flat(answer) for answer in CALLS[EXPECTED[name]["task"]](model)]
    assert_equal(answers, EXPECTED[name]["answers"][place])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_run_of_version_1_resumes_with_the_same_weights(name: str, tmp_path: Path) -> None:
    folder = copy_of(name, tmp_path)
    assert train(load_config(folder / "run.toml", ["train.steps=10"]), folder, resume=True).step == 10
    weights = load_checkpoint(checkpoint_folder(folder, 10)).model
    expected = current_weight_names(EXPECTED[name]["resumed"])
    assert weights.keys() == expected.keys()
    for key, (total, squares) in expected.items():
        tensor = weights[key].to(torch.float64)
        # not bits: another processor may add in another order; equal bits on one machine are qa/compat's
        assert float(tensor.sum()) == pytest.approx(total, abs=1e-4)
        assert float(tensor.pow(2).sum()) == pytest.approx(squares, abs=1e-4)
