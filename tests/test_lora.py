"""LoRA: adapters of peft open here, ours open there, and only adapters are trained."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

import regard
from hf_models import (  # noqa: F401 - a fixture
    CLOSE,
    bert,
    distilbert,
    make_pipelines,
    put_tokenizer,
    roberta,
    saved,
    shaken,
)
from regard.batch import Batch, collate, tokens
from regard.cli.explore import open_models
from regard.cli.serve import named_adapters
from regard.config import resolve
from regard.errors import UsageError
from regard.models.lora import LoRALinear
from regard.sample import Sample
from regard.storage import checkpoint_folder, open_folder
from regard.storage.adapters import ADAPTER_WEIGHTS, CONFIG
from regard.storage.described import describe_path
from regard.storage.folder import open_encoder
from regard.tasks import load
from regard.training.run import train
from served import served
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


# --- encoders: the head of the task is trained, and is part of the adapter

CLASSES = {
    "SEQ_CLS": ("classify", AutoModelForSequenceClassification),
    "TOKEN_CLS": ("tag", AutoModelForTokenClassification),
    "QUESTION_ANS": ("answer", AutoModelForQuestionAnswering),
}
ENCODERS = {
    "bert": (lambda: bert("BertModel"), ["query", "value", "output.dense"]),
    "masked": (lambda: bert("BertForMaskedLM"), ["query", "value"]),
    "roberta": (lambda: roberta("MaskedLM", pad_token_id=0), ["query", "key"]),  # as in the tokenizer
    "distilbert": (lambda: distilbert("MaskedLM"), ["q_lin", "v_lin"]),
}


def encoder_folder(path: Path, name: str, pipelines: Any) -> Path:
    put_tokenizer(path, "bert", pipelines["bert"])
    shaken(ENCODERS[name][0]()).save_pretrained(path)
    return path


def encoder_logits(path: Path) -> torch.Tensor:
    with torch.no_grad():
        return open_folder(path).model(collate([Sample(source=IDS)], 1))[0]


def encoder_theirs(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        out = model.eval()(input_ids=torch.tensor([IDS]))
    return torch.stack([out.start_logits, out.end_logits], -1)[0] if "start_logits" in out else out.logits[0]


def with_adapter(base: Path, kind: str, labels: int, folder: Path) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extra = {} if kind == "QUESTION_ANS" else {"num_labels": labels}
        return PeftModel.from_pretrained(CLASSES[kind][1].from_pretrained(base, **extra), folder)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("name", ENCODERS)
def test_adapters_of_encoders_open(name: str, kind: str, pipelines: Any, tmp_path: Path) -> None:
    base, folder, (task, there) = (
        encoder_folder(tmp_path / "base", name, pipelines),
        tmp_path / "a",
        CLASSES[kind],
    )
    torch.manual_seed(2)
    saves = {"SEQ_CLS": ["pre_classifier", "pooler", "classifier"], "QUESTION_ANS": ["qa_outputs"]}.get(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = there.from_pretrained(base, **({} if kind == "QUESTION_ANS" else {"num_labels": 4}))
        config = LoraConfig(task_type=kind, target_modules=ENCODERS[name][1], r=2, modules_to_save=saves)
        model = get_peft_model(whole, config)
        for each, parameter in model.named_parameters():
            if "lora_" in each:
                parameter.data.normal_(std=0.5)
        model.save_pretrained(folder)
    opened = load(f"{base}+{folder}", precision="float32")
    assert opened.folder.task.name == task
    assert opened.folder.labels == (() if task == "answer" else tuple(f"LABEL_{n}" for n in range(4)))
    expected = encoder_theirs(model)
    ours = encoder_logits(Path(f"{base}+{folder}")).reshape(expected.shape)
    assert torch.allclose(ours, expected, **CLOSE)


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("name", ENCODERS)
def test_a_run_adapts_an_encoder(name: str, kind: str, pipelines: Any, tmp_path: Path) -> None:
    base, folder, (task, there) = (
        encoder_folder(tmp_path / "base", name, pipelines),
        tmp_path / "run",
        CLASSES[kind],
    )
    file = tmp_path / f"{task}{'.tsv' if task == 'classify' else '.conll' if task == 'tag' else '.jsonl'}"
    if task == "classify":
        file.write_text("".join(f"{text}\t{'abc'[n % 3]}\n" for n, text in enumerate(CORPUS[:12])))
    elif task == "tag":
        file.write_text("\n".join("A B-X\nman O\nsees B-Y\n" for _ in range(12)))
    else:
        row = {"question": "who", "context": "A man sees", "answers": [{"text": "man", "answer_start": 2}]}
        file.write_text(f"{json.dumps(row)}\n" * 8)
    train(run_config(base, file, task, "bert", rank=3, alpha=6.0, on=["q", "up"]), folder)
    labels = len(open_folder(folder).labels)
    whole = encoder_logits(folder)
    there = encoder_theirs(with_adapter(base, kind, labels, folder / "adapter"))
    assert torch.allclose(there, whole.reshape(there.shape), **CLOSE)
    again = load(f"{base}+{folder / 'adapter'}", precision="float32")
    assert again.folder.labels == open_folder(folder).labels
    assert torch.allclose(encoder_logits(Path(f"{base}+{folder / 'adapter'}")), whole, **CLOSE)
    before = dict(open_encoder(base).model.named_parameters())
    after = dict(open_folder(folder).model.named_parameters())
    changed = {each for each in before if not torch.allclose(before[each], after[each], atol=1e-7)}
    assert {each.split(".", 3)[3] for each in changed} == {"attention.query.weight", "feed_forward.up.weight"}


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


@pytest.mark.parametrize("name", ["marian", "t5"])
def test_a_run_adapts_a_translator(name: str, pipelines: Any, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "run"
    saved(base, name, pipelines)
    (tmp_path / "pairs.tsv").write_text("".join(f"{each}\t{each[::-1]}\n" for each in CORPUS[:12]))
    family = {"marian": "transformer"}.get(name, name)
    train(run_config(base, tmp_path / "pairs.tsv", "translate", family, rank=3, on=["q", "v", "up"]), folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there = PeftModel.from_pretrained(open_there(base, name), folder / "adapter")
    assert torch.allclose(theirs(there), logits(folder), **CLOSE)
    assert not torch.allclose(logits(base), logits(folder), atol=1e-3)
    assert torch.allclose(logits(Path(f"{base}+{folder / 'adapter'}")), logits(folder), **CLOSE)


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
        {"init": {"from": "x", "lora": {}}, "train": {"average": 2}},
    ],
)
def test_what_cannot_be_trained_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(regard.UsageError):
        resolve({"data": {"train": "a.tsv"}, **change})


# --- several adapters on one base


def memory(*tasks: Any) -> int:
    """Bytes of the weights of models, each counted once."""
    storages = {}
    for task in tasks:
        model = getattr(task, "model", None) or task.body.model
        for tensor in (*model.parameters(), *model.buffers()):
            dense = tensor.to_dense() if tensor.is_mkldnn else tensor
            key = id(tensor) if tensor.is_mkldnn else tensor.untyped_storage().data_ptr()
            storages[key] = dense.numel() * dense.element_size()
    return sum(storages.values())


def test_adapters_share_the_weights_of_their_base(pipelines: Any, tmp_path: Path) -> None:
    base = tmp_path / "base"
    saved(base, "llama", pipelines)
    folders = {"one": tmp_path / "a", "other": tmp_path / "b"}
    for name, folder in folders.items():
        adapted(folder, "llama", base, target_modules=["down_proj"], r=2 if name == "one" else 3)
    opened = regard.load_adapters(base, folders)
    assert list(opened) == ["base", "one", "other"]
    texts = set()
    for name, task in opened.items():
        alone = load(base if name == "base" else f"{base}+{folders[name]}")
        text = task.generate("A man", beam=1, max_length=12)
        assert text == alone.generate("A man", beam=1, max_length=12)
        texts.add(text)
    assert len(texts) == 3
    tensors = load_file(base / "model.safetensors")
    changed = sum(each.nbytes for name, each in tensors.items() if "down_proj" in name)
    assert memory(*opened.values()) == memory(opened["base"]) + 2 * changed


def test_a_base_without_head_serves_several_tasks(pipelines: Any, tmp_path: Path) -> None:
    base = encoder_folder(tmp_path / "base", "bert", pipelines)
    folders = {}
    for kind in ("SEQ_CLS", "TOKEN_CLS"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = CLASSES[kind][1].from_pretrained(base, num_labels=3)
            config = LoraConfig(task_type=kind, target_modules=["query"])
            get_peft_model(whole, config).save_pretrained(tmp_path / kind)
        folders[CLASSES[kind][0]] = tmp_path / kind
    opened = regard.load_adapters(base, folders, precision="float32")
    assert [type(each).__name__ for each in opened.values()] == ["Embedder", "Classifier", "Tagger"]
    alone = load(f"{base}+{folders['classify']}", precision="float32")
    assert opened["classify"].classify("a man") == alone.classify("a man")
    with pytest.raises(UsageError) as caught:
        regard.load_adapters(base, {"base": folders["tag"]})
    assert caught.value.code == "E_ADAPTER"


def test_a_request_chooses_an_adapter(pipelines: Any, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    saved(base, "llama", pipelines)
    adapted(folder, "llama", base)
    opened = open_models([base], "cpu", 1, "float32", adapters=named_adapters([f"pirate={folder}"]))
    with served(models=opened) as at:
        client = openai.OpenAI(base_url=f"{at.address}/v1", api_key="any")
        names = [each.id for each in client.models.list()]
        assert names == ["base", "pirate"]
        given = {"prompt": "A man", "max_tokens": 8, "temperature": 0}
        texts = [client.completions.create(model=name, **given).choices[0].text for name in names]
    assert texts == [opened[name].generate("A man", beam=1, max_length=8) for name in names]
    assert texts[0] != texts[1]
    for wrong in (["pirate"], ["=x"], ["a=x", "a=y"]):
        with pytest.raises(UsageError) as caught:
            named_adapters(wrong)
        assert caught.value.code == "E_ADAPTER"
    with pytest.raises(UsageError) as caught:
        open_models([base, folder], "cpu", 1, "float32", adapters={"pirate": folder})
    assert caught.value.code == "E_ADAPTER"


def test_adapters_are_described(pipelines: Any, tmp_path: Path) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    saved(base, "llama", pipelines)
    adapted(folder, "llama", base)
    rows = describe_path(str(folder))
    assert rows is not None and (rows["rank"], rows["base"]) == ("3", str(base))
    count = sum(each.numel() for each in load_file(folder / ADAPTER_WEIGHTS).values())
    assert rows["parameters"] == f"{count:,}"
    assert describe_path(str(base)) is None and describe_path("no/such") is None
