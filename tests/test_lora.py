"""LoRA: adapters of peft open here, ours open there, and only adapters are trained."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

import regard
from hf_models import CLOSE, make_pipelines, saved  # noqa: F401 - a fixture
from regard.batch import Batch, collate, tokens
from regard.config import resolve
from regard.errors import UsageError
from regard.models.lora import LoRALinear
from regard.sample import Sample
from regard.storage import checkpoint_folder, open_folder
from regard.storage.adapters import ADAPTER_WEIGHTS, CONFIG
from regard.tasks import load
from regard.training.run import train
from texts import CORPUS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from peft import LoraConfig, PeftModel, get_peft_model

IDS = [5, 6, 7, 8, 9, 3]


def logits(path: Path) -> torch.Tensor:
    with torch.no_grad():
        model = open_folder(path).model
        if hasattr(model, "encoder"):
            return model(Batch(tokens([IDS]), tokens([[0, *IDS]])))[0]
        return model(collate([Sample(target=IDS)], 1))[0]


def theirs(model: torch.nn.Module) -> torch.Tensor:
    inputs: dict[str, Any] = {"input_ids": torch.tensor([IDS])}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([[0, *IDS]])
    with torch.no_grad():
        return model.eval()(**inputs).logits[0]


def open_there(path: Path, name: str) -> torch.nn.Module:
    kind = AutoModelForSeq2SeqLM if name in ("marian", "t5") else AutoModelForCausalLM
    return kind.from_pretrained(path)


ADAPTERS = {
    "llama": {"target_modules": ["q_proj", "v_proj", "down_proj"], "r": 3, "lora_alpha": 5},
    "qwen3": {"target_modules": "all-linear", "r": 2, "use_rslora": True},
    "gpt2": {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True},
    "marian": {"target_modules": ["q_proj", "k_proj", "fc1"]},
    "t5": {"target_modules": ["q", "v", "wi"], "rank_pattern": {"wi": 2}},
}


def adapted(folder: Path, name: str, base: Path, **more: Any) -> PeftModel:
    """An adapter of peft with random weights, saved."""
    torch.manual_seed(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = get_peft_model(open_there(base, name), LoraConfig(**{**ADAPTERS[name], **more}))
        for each, parameter in model.named_parameters():
            if "lora_" in each:
                parameter.data.normal_(std=0.5)
        model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_of_peft_open(name: str, pipelines: Any, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    saved(base, name, pipelines)
    model = adapted(folder, name, base)
    expected = theirs(model)
    assert not torch.allclose(expected, theirs(open_there(base, name)), atol=0.1)
    assert torch.allclose(logits(Path(f"{base}+{folder}")), expected, **CLOSE)


def test_an_adapter_names_its_base(pipelines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(Path("base"), "llama", pipelines)
    adapted(Path("adapter"), "llama", Path("base"))
    assert torch.equal(logits(Path("adapter")), logits(Path("base+adapter")))
    one, other = load("adapter", precision="float32"), load("base", precision="float32")
    assert one.generate("A man", beam=1, max_length=8) != other.generate("A man", beam=1, max_length=8)
    settings = json.loads(Path("adapter", CONFIG).read_text())
    for wrong in (
        "../base",
        str(tmp_path / "base"),
        "a/../../b",
        "C:\\base",
        "~/base",
        "",
        None,
        3,
        "x" * 2000,
    ):
        Path("adapter", CONFIG).write_text(json.dumps(settings | {"base_model_name_or_path": wrong}))
        assert refused(Path("adapter")) == "E_ADAPTER"
    Path("adapter", CONFIG).write_text(json.dumps(settings | {"base_model_name_or_path": "owner/absent"}))
    assert refused(Path("adapter")) == "E_MODEL_NOT_FOUND"
    assert refused(Path("base+base")) == "E_ADAPTER"
    assert refused(Path("base+absent")) == "E_MODEL_NOT_FOUND"


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        open_folder(path)
    return str(caught.value.code)


def test_other_adapters_are_refused(pipelines: Any, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    saved(base, "llama", pipelines)
    adapted(folder, "llama", base)
    settings, weights = json.loads((folder / CONFIG).read_text()), load_file(folder / ADAPTER_WEIGHTS)
    changes: list[dict[str, Any]] = [
        {"peft_type": "IA3"},
        {"use_dora": True},
        {"bias": "all"},
        {"modules_to_save": ["lm_head"]},
        {"alpha_pattern": {"q_proj": 3}},
        {"lora_alpha": "1"},
        {"lora_alpha": None},
        {"layer_replication": [[0, 2]]},
    ]
    for change in changes:
        (folder / CONFIG).write_text(json.dumps(settings | change))
        assert refused(Path(f"{base}+{folder}")) == "E_ADAPTER", change
    (folder / CONFIG).write_text(json.dumps(settings))
    first = next(name for name in weights if "lora_A" in name)
    broken = [
        {name: each for name, each in weights.items() if name != first},
        weights | {first: weights[first][:1]},
        weights | {first: weights[first][:, :4].contiguous()},
        weights | {first: weights[first].flatten()},
        weights | {"base_model.model.lm_head.weight": torch.zeros(2, 2)},
        {name.replace("layers.0", "layers.9"): each for name, each in weights.items()},
        {},
    ]
    for each in broken:
        save_file(each, folder / ADAPTER_WEIGHTS)
        assert refused(Path(f"{base}+{folder}")) == "E_ADAPTER", each.keys()


# --- training


def run_config(base: Path, data: Path, task: str, family: str, **lora: Any) -> Any:
    return resolve(
        {
            "task": {"name": task},
            "data": {"train": str(data), "valid": str(data), "leaks": "keep"},
            "model": {"family": family, "dropout": 0.0},
            "train": {"steps": 4, "lr": 0.05, "warmup": 1, "checkpoint_every": 2, "tokens_per_batch": 64},
            "init": {"from": str(base), "lora": lora},
        }
    )


def test_a_run_trains_adapters_alone(pipelines: Any, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "run"
    saved(base, "llama", pipelines)
    (tmp_path / "text.txt").write_text("\n\n".join(CORPUS[:20]))
    config = run_config(
        base, tmp_path / "text.txt", "generate", "llama", rank=3, alpha=6.0, on=["q", "v", "up"]
    )
    train(config, folder)
    before, after = load_file(base / "model.safetensors"), load_file(folder / "model.safetensors")
    changed = {name for name in before if not torch.allclose(before[name], after[name], atol=1e-6)}
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "v_proj", "up_proj"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there = PeftModel.from_pretrained(open_there(base, "llama"), folder / "adapter")
    whole = logits(folder)
    assert torch.allclose(theirs(there), whole, **CLOSE)
    assert torch.allclose(logits(Path(f"{base}+{folder / 'adapter'}")), whole, **CLOSE)
    assert torch.allclose(logits(checkpoint_folder(folder, 4)), whole, atol=0.5)  # which is also a model
    settings = json.loads((folder / "adapter" / CONFIG).read_text())
    assert (settings["r"], settings["lora_alpha"], settings["base_model_name_or_path"]) == (3, 6.0, str(base))
    assert not any(isinstance(each, LoRALinear) for each in open_folder(folder).model.modules())


def test_a_run_with_adapters_resumes_exactly(pipelines: Any, tmp_path: Path) -> None:
    base = tmp_path / "base"
    saved(base, "llama", pipelines)
    (tmp_path / "text.txt").write_text("\n\n".join(CORPUS[:20]))
    config = run_config(base, tmp_path / "text.txt", "generate", "llama")
    train(config, tmp_path / "whole")
    half = config.model_copy(update={"train": config.train.model_copy(update={"steps": 2})})
    train(half, tmp_path / "half")
    train(config, tmp_path / "half", resume=True)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "half"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "change",
    [
        {"init": {"lora": {}}},
        {"init": {"from": "x", "lora": {}, "freeze": 1}},
        {"init": {"from": "x", "lora": {"on": ["z"]}}},
        {"init": {"from": "x", "lora": {"rank": 0}}},
        {"init": {"from": "x", "lora": {}}, "task": {"name": "classify"}, "model": {"family": "bert"}},
        {"init": {"from": "x", "lora": {}}, "train": {"average": 2}},
    ],
)
def test_what_cannot_be_trained_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(regard.UsageError):
        resolve({"data": {"train": "a.tsv"}, **change})
