"""Old names and formats: what earlier versions wrote opens, and a user's file with old names is read."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from regard import compat
from regard.compat import VERSION, OldNameWarning, current_weight_name
from regard.config import GPTConfig, RNNConfig, load_config, resolve, to_toml
from regard.errors import UsageError
from regard.inputs.text import Tokenizer, train_tokenizer
from regard.models.families import build
from regard.storage import open_folder, unique_weights, write_identity, write_weights
from regard.tasks import load

# [model] as version 1 wrote it for every family
MODEL_1 = {
    "layers": 2,
    "width": 16,
    "heads": 2,
    "feed_forward": 24,
    "activation": "gelu_tanh",
    "gated": False,
    "pool": "first",
    "norm": "post",
    "positions": "learned",
    "theta": 10000.0,
    "buckets": 32,
    "farthest": 128,
    "dropout": 0.1,
    "cell": "lstm",
    "score": "additive",
    "reverse_source": False,
    "tie_embeddings": True,
    "scale_embeddings": True,
    "output_bias": False,
    "max_length": 64,
}
TASKS = {"gpt": "generate", "rnn": "translate"}


def run_1(family: str, **model: object) -> dict[str, object]:
    return {
        "task": {"name": TASKS[family], "many": False, "masked": 0.15},
        "data": {"train": "/a.txt"},
        "model": {**MODEL_1, "family": family, **model},
    }


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(["a b c d e f"] * 3, "bpe", 300)


def test_a_run_of_version_1_loses_the_fields_of_other_families() -> None:
    config = resolve(run_1("gpt", theta=500.0))
    assert isinstance(config.model, GPTConfig)
    assert (config.version, config.model.rope_theta, config.model.norm) == (1, 500.0, "pre")
    assert isinstance(resolve(run_1("rnn", positions="sinusoidal")).model, RNNConfig)
    again = tomllib.loads(to_toml(config))
    assert not {"cell", "norm", "theta"} & again["model"].keys()
    assert resolve(again) == config


def test_layers_of_one_side_are_layers() -> None:
    """A gpt of version 1 had decoder_layers if they were given."""
    assert resolve(run_1("gpt", decoder_layers=1)).model.depth == (0, 1)


def test_a_new_run_has_the_newest_version() -> None:
    config = resolve({"data": {"train": "/a.tsv"}})
    assert config.version == VERSION
    assert tomllib.loads(to_toml(config))["version"] == VERSION


@pytest.mark.parametrize("version", [VERSION + 1, 0, "2", True])
def test_a_version_that_cannot_be_trained(version: object) -> None:
    with pytest.raises(UsageError) as caught:
        resolve({"version": version, "data": {"train": "/a.tsv"}})
    assert caught.value.code == "E_CONFIG_VERSION"


@pytest.mark.parametrize(
    ("section", "old", "new", "value", "more"),
    [
        ("task", "many", "multi_label", True, {"task": {"name": "classify"}}),
        ("task", "masked", "mask_rate", 0.3, {"task": {"name": "fill"}}),
        ("model", "groups", "kv_heads", 2, {"task": {"name": "generate"}, "model": {"family": "llama"}}),
        ("model", "theta", "rope_theta", 5.0, {"task": {"name": "generate"}, "model": {"family": "llama"}}),
        ("model", "buckets", "relative_buckets", 8, {"model": {"family": "t5"}}),
        ("model", "farthest", "relative_max_distance", 99, {"model": {"family": "t5"}}),
    ],
)
def test_old_names_are_read_with_a_warning(
    section: str, old: str, new: str, value: object, more: dict[str, dict[str, object]]
) -> None:
    tree = {"data": {"train": "/a.tsv"}, **more}
    tree[section] = {**tree.get(section, {}), old: value}
    with pytest.warns(OldNameWarning, match=f"{section}.{new}"):
        assert getattr(getattr(resolve(tree), section), new) == value
    tree[section][new] = value
    with pytest.raises(UsageError) as caught:
        resolve(tree)
    assert caught.value.code == "E_CONFIG_FIELD"


def test_a_folder_opens_whatever_its_training_config_is(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """One new field in run.toml made a folder unopenable for inference (R10)."""
    config = resolve({**run_1("gpt"), "decode": {"top_k": 7}})
    torch.manual_seed(1)
    write_identity(tmp_path, config, tokenizer, None, 64)
    write_weights(tmp_path, config.model, unique_weights(build(config.model, len(tokenizer))))
    path = tmp_path / "run.toml"
    tree = tomllib.loads(path.read_text())
    tree["version"] = VERSION + 1
    tree["train"] |= {"lr": "high", "invented": 3}
    tree["model"]["invented"] = 1
    tree["decode"]["invented"] = 1
    tree["invented"] = {"a": 1}
    import tomli_w

    path.write_text(tomli_w.dumps(tree))
    folder = open_folder(tmp_path)
    assert (folder.decode.top_k, folder.task.name, folder.version) == (7, "generate", 1)
    with pytest.raises(UsageError):
        load_config(path)
    del tree["version"]
    path.write_text(tomli_w.dumps(tree))
    with pytest.raises(UsageError, match="invented") as caught:
        load_config(path)
    assert caught.value.code in ("E_CONFIG_FIELD", "E_CONFIG_VALUE")
    tree["decode"]["top_k"] = -1
    path.write_text(tomli_w.dumps(tree))
    with pytest.raises(UsageError, match=r"run\.toml.*decode\.top_k"):
        open_folder(tmp_path)


def test_a_config_json_of_version_1(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """It had the fields of all families, and null where there was no value."""
    config = resolve(run_1("gpt", positions="rotary"))
    torch.manual_seed(1)
    write_identity(tmp_path, config, tokenizer, None, 64)
    save_file(unique_weights(build(config.model, len(tokenizer))), tmp_path / "model.safetensors")
    (tmp_path / "run.toml").unlink()
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    del content["regard"]["version"]
    content["model_type"] = "regard"  # of a GPT with rotary positions, which is written as GPT-NeoX now
    old = {**MODEL_1, "family": "gpt", "positions": "rotary", "groups": None, "epsilon": None, "head": None}
    path.write_text(json.dumps({**content, "model": old, "architectures": ["gpt"]}))
    folder = open_folder(tmp_path)
    assert folder.config == config.model.model_copy(update={"preset": None})
    content["regard"]["version"] = 2
    path.write_text(json.dumps({**content, "model": old}))
    with pytest.raises(UsageError) as caught:
        open_folder(tmp_path)
    assert caught.value.code == "E_MODEL_CONFIG"


def test_weight_names_without_an_old_one_stay() -> None:
    assert current_weight_name("encoder.blocks.0.attention.query.weight").endswith("query.weight")


@pytest.mark.parametrize("old", compat.MODULES)
def test_an_old_module_is_the_module_of_today(old: str) -> None:
    sys.modules.pop(old, None)
    with pytest.warns(compat.OldNameWarning, match=compat.MODULES[old]):
        module = importlib.import_module(old)
    current = importlib.import_module(compat.MODULES[old])
    for name in [name for name in vars(current) if not name.startswith("_")]:
        assert getattr(module, name) is getattr(current, name)


def test_modules_inside_of_an_old_package() -> None:
    with pytest.warns(compat.OldNameWarning):
        attention = importlib.import_module("regard.model.attention")
    assert attention.visible is importlib.import_module("regard.models.attention").visible
    with pytest.raises(ModuleNotFoundError, match=r"regard\.model\.nothing"):
        importlib.import_module("regard.model.nothing")
    with pytest.raises(ModuleNotFoundError, match=r"regard\.nothing"):
        importlib.import_module("regard.nothing")


@pytest.mark.parametrize(("old", "current"), compat.PYTHON_NAMES.items())
def test_an_old_python_name_is_that_of_today(old: str, current: str) -> None:
    (module, name), (home, attribute) = (each.rsplit(".", 1) for each in (old, current))
    with pytest.warns(compat.OldNameWarning, match=attribute):
        value = getattr(importlib.import_module(module), name)
    assert value is getattr(importlib.import_module(home), attribute)
    with pytest.raises(AttributeError):
        _ = importlib.import_module(module).nothing


def test_old_attributes_of_tasks_and_traces() -> None:
    translator = load(Path(__file__).parent / "data" / "v1" / "transformer")
    with pytest.warns(compat.OldNameWarning, match="source_ids"):
        assert translator.asked([5, 6]) == translator.source_ids([5, 6])
    with pytest.warns(compat.OldNameWarning, match="scheduler"):
        assert not translator.pool(tokens=64, rows=2).busy
    with pytest.warns(compat.OldNameWarning, match="rollout_layers"):
        assert translator.trace("red cat").rolled() is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = translator.nothing
