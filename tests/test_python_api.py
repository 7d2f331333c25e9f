"""`regard.train`, `regard.evaluate` and `regard.compare`: the same as the commands, with typed results."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

import regard
from conftest import Command, Toy, toy_config
from regard.compat import OldNameWarning
from regard.config import to_toml, to_tree
from regard.errors import UsageError
from regard.evaluation import EvaluationResult
from regard.storage.models import find_model

pytestmark = pytest.mark.usefixtures("same_threads")
PAIRS = [("ba", "Ab"), ("de", "WRONG")]


def test_train_takes_a_config_as_object_dictionary_or_file(tmp_path: Path) -> None:
    config = toy_config(tmp_path, steps=2, warmup=1)
    (tmp_path / "run.toml").write_text(to_toml(config))
    given = [config, to_tree(config), tmp_path / "run.toml", str(tmp_path / "run.toml")]
    outcomes = [regard.train(each, tmp_path / f"run{number}") for number, each in enumerate(given)]
    assert all(outcome.finished and outcome.step == 2 for outcome in outcomes)
    weights = {(outcome.folder / "model.safetensors").read_bytes() for outcome in outcomes}
    assert len(weights) == 1


def test_train_refuses_with_a_code(tmp_path: Path) -> None:
    config = toy_config(tmp_path, steps=2)
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    for arguments, code in (
        ((config, full), "E_RUN_FOLDER"),
        ((None, tmp_path / "none"), "E_RUN_MISSING"),
    ):
        with pytest.raises(UsageError) as refusal:
            regard.train(*arguments, resume=arguments[0] is None)
        assert refusal.value.code == code
    assert not (tmp_path / "none").exists()


def test_evaluate_is_the_command(request: pytest.FixtureRequest, toy: Toy, tmp_path: Path) -> None:
    result = regard.evaluate(toy.model)
    assert isinstance(result, EvaluationResult) and result.task == "translate"
    run: Command = request.getfixturevalue("regard")  # not as an argument: `regard` is the package here
    told = json.loads(run("evaluate", "-m", toy.model, "--json").out)
    expected = result.to_dict()
    assert {**expected, "seconds": 0} == {**told, "seconds": 0}
    assert told["inference_precision"] == result.precision == "float32"
    model = regard.load(toy.model)
    pairs = regard.evaluate(model, PAIRS, beam=1, output=tmp_path / "out")
    assert (pairs.sentences, pairs["exact"], pairs.outputs) == (2, 0.5, ["Ab", "Ed"])
    assert (tmp_path / "out").read_text() == "Ab\nEd\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"data": ["a", "b", "c"]}, "E_EVALUATE_DATA"),
        ({"tokenize": "13b"}, "E_BLEU_TOKENIZE"),
    ],
)
def test_evaluate_refuses_with_a_code(toy: Toy, arguments: dict, code: str) -> None:
    with pytest.raises(UsageError) as refusal:
        regard.evaluate(toy.model, **arguments)
    assert refusal.value.code == code


def test_a_comparison_computes_all_models_in_one_precision() -> None:
    """One copy of the same weights was calibrated, and had another score, which was not mentioned."""
    model = find_model(Path("tatoeba-en-de"))
    exact = regard.load(model, precision="float32")
    pairs = [("I see it.", "Ich sehe es."), ("Where is he?", "Wo ist er?")]
    plain = regard.compare({"a": model, "b": exact}, pairs, rounds=0, beam=1)
    assert plain.precision == "float32" and "in float32" in plain.measured
    one, two = plain.models
    assert (one.bleu, one.loss) == (two.bleu, two.loss)
    packed = regard.evaluate(model, pairs, beam=1)
    assert packed.precision == "int8", "auto, of a calibrated folder"


def test_compare_refuses_with_a_code(toy: Toy) -> None:
    for models, code in (([toy.model], "E_COMPARE_MODELS"), ([toy.model, toy.model], "E_COMPARE_MODELS")):
        with pytest.raises(UsageError) as refusal:
            regard.compare(models, PAIRS)
        assert refusal.value.code == code


def test_regard_train_stays_callable_after_an_import_of_the_old_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "regard.train", raising=False)  # of another test
    with pytest.warns(OldNameWarning):
        importlib.import_module("regard.train")
    try:
        with pytest.raises(UsageError) as refusal:
            regard.train(None, tmp_path / "none", resume=True)
        assert refusal.value.code == "E_RUN_MISSING"
    finally:
        del regard.train, sys.modules["regard.train"]
