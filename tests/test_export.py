"""CTranslate2 and ONNX Runtime give Regard's output, or nothing is written."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import tokenizers
import torch

import regard as package
from conftest import Command, Refused, Toy, toy_sentences
from regard.batch import collate
from regard.config import Config, resolve
from regard.errors import RegardError
from regard.export import export_model, run, to_ctranslate2
from regard.export.check import TOLERANCES, Agreement, prompt
from regard.export.run import PROMPT_LENGTH
from regard.export.sample import ENOUGH, sample_for
from regard.export.to_onnx import positions_of
from regard.inputs.text import Tokenizer, train_tokenizer
from regard.models.families import build
from regard.sample import Sample
from regard.storage import open_folder, unique_weights, write_identity, write_weights
from sampled import sampled
from small_models import small_config

TEXTS = ["the cat sees a small house", "a dog runs in the wood", "the house has a small dog"] * 9


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, "bpe", 300, ("<mask>",))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller sample, where the texts are none that matter."""
    monkeypatch.setattr("regard.export.sample.ENOUGH", 40)


def sharp(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Random weights with which choices are no near ties, and every bias counts."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    return model.eval()


def folder_of(
    path: Path,
    config: Config,
    source: Tokenizer,
    target: Tokenizer | None = None,
    labels: tuple[str, ...] = (),
) -> Path:
    path.mkdir()
    write_identity(path, config, source, target, config.model.max_length, labels)
    beside = len(labels) or (None if target is None else len(target))
    model = sharp(build(config.model, len(source), beside))
    write_weights(path, config.model, unique_weights(model))
    return path


def program_of(place: Path, text: str, changes: Mapping[str, str] = {}) -> str:
    """What the program in README.md prints for a text, in a process of its own."""
    program = re.search(r"```python\n(.*?)```", (place / "README.md").read_text(), re.DOTALL)
    assert program
    assert program[1].count("\n") <= 20
    code = program[1].replace("A sentence.", text)
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    assert "regard" not in code
    assert "torch" not in code
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


# --- CTranslate2


SHAPES = {
    "paper": ("translate", "transformer", {"layers": 2}),
    "pre-norm, learned positions": (
        "translate",
        "transformer",
        {"norm": "pre", "positions": "learned", "activation": "swish", "max_length": 80},
    ),
    "bart": (
        "translate",
        "transformer",
        {"positions": "learned", "first_position": 2, "embedding_norm": True, "max_length": 80},
    ),
    "m2m": (
        "translate",
        "transformer",
        {"positions": "sinusoidal_tensor2tensor", "first_position": 1, "norm": "pre"},
    ),
    "untied, free heads": (
        "translate",
        "transformer",
        {"head_width": 8, "tie_embeddings": False, "activation": "gelu", "encoder_layers": 2},
    ),
    "t5": ("translate", "t5", {"layers": 2}),
    "t5 v1.1": (
        "translate",
        "t5",
        {"gated": True, "activation": "gelu_tanh", "head_width": 8, "tie_embeddings": False},
    ),
    "gpt": ("generate", "gpt", {"layers": 2, "activation": "gelu_tanh"}),
    "gpt, rotary": ("generate", "gpt", {"positions": "rotary"}),
    "llama": ("generate", "llama", {"kv_heads": 1, "activation": "swish", "rope_theta": 500.0, "layers": 2}),
}


@pytest.mark.parametrize("name", sampled(SHAPES, "paper", "bart", "m2m", "untied, free heads", "t5", "llama"))
def test_ctranslate2_gives_regards_text(name: str, tmp_path: Path, tokenizer: Tokenizer, few: None) -> None:
    task, family, shape = SHAPES[name]
    config = small_config(task, family, **{"max_length": 32, **shape})
    model = folder_of(tmp_path / "model", config, tokenizer)
    done = export_model(model, "ctranslate2", tmp_path / "out")
    # untrained models: over 70 tokens one beam 4 of 40 ends in a tie that rounding decides
    assert done.agreement.equal["greedy"] == 1.0 and done.agreement.equal["beam 4"] >= 39 / 40
    assert done.agreement.largest < 1e-4
    files = {path.name for path in (tmp_path / "out").iterdir()}
    vocabulary = "shared_vocabulary.json" if task == "translate" else "vocabulary.json"
    assert files == {"model.bin", "config.json", vocabulary, "tokenizer.json", "README.md"}
    if config.model.positions == "learned":  # a program that knows where they end
        assert program_of(tmp_path / "out", "the dog")


def test_a_trained_translator_in_ctranslate2(toy: Toy, tmp_path: Path, regard: Command) -> None:
    result = regard("export", "-m", toy.model, "-f", "ctranslate2", "-o", tmp_path / "out", "--json")
    assert result.code == 0, result.err
    summary = json.loads(result.out)
    assert summary["equal"] == {"greedy": 1.0, "beam 4": 1.0}
    assert summary["texts"] == ENOUGH
    assert summary["sample"].startswith("the run's validation texts")
    translator = package.load(toy.model)
    for text in toy_sentences(2, seed=5):
        assert program_of(tmp_path / "out", text) == translator.translate(text, beam=4, early_stopping=True)


def test_two_vocabularies(tmp_path: Path, tokenizer: Tokenizer, few: None) -> None:
    other = train_tokenizer([text.upper() for text in TEXTS], "bpe", 280)
    tree = {
        "data": {"train": "nothing.tsv"},
        "text": {"joint": False},
        "model": {"width": 32, "layers": 1, "heads": 2, "feed_forward": 48, "max_length": 32},
    }
    model = folder_of(tmp_path / "model", resolve(tree), tokenizer, other)
    done = export_model(model, "ctranslate2", tmp_path / "out")
    assert done.agreement.equal == {"greedy": 1.0, "beam 4": 1.0}
    spelt = json.loads((tmp_path / "out" / "target_vocabulary.json").read_text())
    pipeline = tokenizers.Tokenizer.from_str(other.to_json())
    assert spelt == [pipeline.id_to_token(number) for number in range(len(other))]
    text = "the small dog"
    greedy = {"beam_size=4": "beam_size=1, max_decoding_length=20"}
    expected = package.load(model).translate(text, beam=1, max_length=20, check=False)
    assert program_of(tmp_path / "out", text, greedy) == expected


def test_rounded_weights(toy: Toy, tmp_path: Path, few: None) -> None:
    """int8 is another set of numbers, smaller on disk, and leaves our own weights alone."""
    whole = export_model(toy.model, "ctranslate2", tmp_path / "whole")
    small = export_model(toy.model, "ctranslate2", tmp_path / "small", precision="int8")
    assert whole.agreement.mean < 1e-5 < small.agreement.mean < TOLERANCES["int8"].mean
    assert (tmp_path / "small/model.bin").stat().st_size < 0.7 * (tmp_path / "whole/model.bin").stat().st_size
    folder = open_folder(toy.model)
    before = {name: tensor.clone() for name, tensor in folder.model.state_dict().items()}
    (tmp_path / "again").mkdir()
    to_ctranslate2.write(folder, tmp_path / "again", "int8")
    assert all(torch.equal(before[name], tensor) for name, tensor in folder.model.state_dict().items())


# --- ONNX


@pytest.mark.slow
def test_a_trained_translator_in_onnx(toy: Toy, tmp_path: Path) -> None:
    done = export_model(toy.model, "onnx", tmp_path / "out")
    assert done.agreement.equal == {"greedy": 1.0}
    assert done.agreement.largest < 1e-4
    text = toy_sentences(1, seed=6)[0]
    assert program_of(tmp_path / "out", text) == package.load(toy.model).translate(text, beam=1)


def test_a_language_model_in_onnx(tmp_path: Path, tokenizer: Tokenizer, few: None) -> None:
    config = small_config("generate", "llama", max_length=120, kv_heads=1, activation="swish")
    model = folder_of(tmp_path / "model", config, tokenizer)
    done = export_model(model, "onnx", tmp_path / "out")
    assert done.agreement.equal == {"greedy": 1.0}
    text = "the small"
    read = len(tokenizer.encode(text)) + 1
    expected = package.load(model).generate(text, beam=1, max_length=PROMPT_LENGTH + 1 - read)
    assert program_of(tmp_path / "out", text) == text + expected


@pytest.mark.slow
def test_a_tagger_in_onnx(tmp_path: Path, tokenizer: Tokenizer, few: None) -> None:
    """Padding on either side, any number of rows, and two kinds of words."""
    labels = ("O", "B-X", "I-X")
    model = folder_of(
        tmp_path / "model", small_config("tag", "bert", max_length=32), tokenizer, labels=labels
    )
    done = export_model(model, "onnx", tmp_path / "out")
    assert done.agreement.equal == {"answers": 1.0}
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    ids = np.array([[2, 9, 8, 7, 1]])
    ones = np.ones_like(ids)
    alone = session.run(None, {"input_ids": ids, "attention_mask": ones, "token_type_ids": ones})[0]
    wide, mask, kinds = (np.full((3, 9), fill) for fill in (5, 0, 1))
    wide[1, 2:7], mask[1, 2:7] = ids[0], 1
    padded = session.run(None, {"input_ids": wide, "attention_mask": mask, "token_type_ids": kinds})[0]
    np.testing.assert_allclose(padded[1, 2:7], alone[0], atol=1e-5)
    opened = open_folder(model)
    read = [tokenizer.start, *tokenizer.encode("the dog runs"), tokenizer.end]
    logits = opened.model(collate([Sample(source=read)]))[0]
    names = [labels[number] for number in logits.argmax(dim=1)]
    assert [name for _, name in ast.literal_eval(program_of(tmp_path / "out", "the dog runs"))] == names
    assert len(set(names)) > 1
    assert json.loads((tmp_path / "out" / "config.json").read_text())["labels"] == list(labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "family", "shape"),
    [
        ("translate", "transformer", {"norm": "pre", "positions": "learned", "layers": 2, "max_length": 80}),
        (
            "translate",
            "transformer",
            {"positions": "sinusoidal_tensor2tensor", "first_position": 1, "norm": "pre"},
        ),
        ("translate", "t5", {"gated": True, "activation": "gelu_tanh", "head_width": 8}),
        ("generate", "gpt", {"layers": 2}),
        ("fill", "bert", {"first_position": 1}),
        ("answer", "bert", {}),
        ("classify", "bert", {"pool": "mean"}),
    ],
)
def test_onnx_runtime_gives_regards_output(
    task: str, family: str, shape: dict[str, object], tmp_path: Path, tokenizer: Tokenizer, few: None
) -> None:
    model = folder_of(
        tmp_path / "model", small_config(task, family, **{"max_length": 32, **shape}), tokenizer
    )
    done = export_model(model, "onnx", tmp_path / "out")
    assert set(done.agreement.equal.values()) == {1.0}
    assert done.agreement.largest < 1e-4
    assert program_of(tmp_path / "out", "the dog")


def test_positions_from_a_mask() -> None:
    mask = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
    assert positions_of(mask).tolist() == [[0, 1, 2], [-1, 0, 1], [0, -1, -1], [-1, -1, -1]]


def test_prompts_begin_as_the_tokenizer_begins_them(
    tmp_path: Path, tokenizer: Tokenizer, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs and checks put a start token before every prompt, where `generate` has none (GPT-2)."""
    assert prompt(tokenizer, [5, 6]) == [tokenizer.start, 5, 6]
    monkeypatch.setattr(type(tokenizer), "adds_start", False)
    assert prompt(tokenizer, [5, 6]) == [5, 6]
    assert prompt(tokenizer, [5]) == [tokenizer.start, 5], "one token alone has nothing to be scored by"
    model = folder_of(tmp_path / "model", small_config("generate", "gpt", max_length=60), tokenizer)
    export_model(model, "ctranslate2", tmp_path / "out")
    text = "the small"
    read = len(tokenizer.encode(text))
    expected = package.load(model).generate(text, beam=1, max_length=20)
    limit = {"max_length=60": f"max_length={read + 19}"}
    assert program_of(tmp_path / "out", text, limit) == text + expected


# --- errors


def test_a_wrong_weight_is_refused(
    toy: Toy, tmp_path: Path, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: here sine and cosine of the positions are exchanged."""
    right = to_ctranslate2.set_embedding

    def exchanged(spec: Any, *rest: Any) -> None:
        right(spec, *rest)
        spec.position_encodings.encodings = spec.position_encodings.encodings[:, ::-1].copy()

    monkeypatch.setattr(to_ctranslate2, "set_embedding", exchanged)
    with pytest.raises(RegardError, match=r"refused: CTranslate2 gives Regard's text .* nothing was written"):
        export_model(toy.model, "ctranslate2", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (Agreement(200, {"greedy": 1.0, "beam 4": 0.99}, 1e-6, 1e-7), "beam 4"),
        (Agreement(200, {"greedy": 1.0}, 2e-3, 1e-7), "0.002"),
        (Agreement(200, {"greedy": 1.0}, float("nan"), float("nan")), "nan"),
    ],
)
def test_tolerances(figures: Agreement, words: str) -> None:
    Agreement(200, {"greedy": 0.995, "beam 4": 1.0}, 1e-3, 1e-4).require(TOLERANCES["float32"], "X")
    with pytest.raises(RegardError, match=words):
        figures.require(TOLERANCES["float32"], "X")


def test_no_family_that_an_engine_cannot_hold(tmp_path: Path, tokenizer: Tokenizer, refused: Refused) -> None:
    for family, task, form in (("rnn", "translate", "onnx"), ("bert", "fill", "ctranslate2")):
        model = folder_of(tmp_path / family, small_config(task, family), tokenizer)
        message = refused("export", "-m", model, "-f", form, "-o", tmp_path / "out")
        assert message == (
            f"{model}: a {family} model cannot be exported to {form}, which supports "
            f"{', '.join(run.FAMILIES[form])}"
        )
        assert not (tmp_path / "out").exists()


def test_wrong_use(toy: Toy, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    out.mkdir()
    command = ("export", "-m", toy.model, "-o")
    assert refused(*command, out, "-f", "onnx") == f"{out} already exists; choose another folder"
    out.rmdir()
    assert "written in float32" in refused(*command, out, "-f", "onnx", "--precision", "int8")
    assert "no such file" in refused(*command, out, "-f", "ctranslate2", "--sample", tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("\n")
    message = refused(*command, out, "-f", "ctranslate2", "--sample", tmp_path / "empty.txt")
    assert message == f"{tmp_path / 'empty.txt'} holds no text"
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delitem(sys.modules, "regard.export.to_ctranslate2")
    message = refused(*command, out, "-f", "ctranslate2")
    assert message == "this needs the package ctranslate2: pip install 'regard[export]'"
    assert not out.exists()


# --- the texts of the check


def test_the_texts_of_a_check(toy: Toy, tmp_path: Path, tokenizer: Tokenizer) -> None:
    default = sample_for(open_folder(toy.model), None)
    assert default.origin == "the run's validation texts and random tokens"
    assert len(default.texts) == ENOUGH
    assert sum(bool(text.target) for text in default.texts) == 40  # those of the corpus have a translation
    (tmp_path / "lines.txt").write_text("ba de\n\nfi\n" * 150)
    sample = sample_for(open_folder(toy.model), tmp_path / "lines.txt")
    assert sample.origin == "lines.txt", "a path would reveal the machine"
    assert len(sample.texts) == ENOUGH
    folder = open_folder(folder_of(tmp_path / "model", small_config("generate", "gpt"), tokenizer))
    chance = sample_for(folder, None)
    assert chance.origin == "random tokens"
    special = {*tokenizer.suppressed, tokenizer.end}
    assert special.isdisjoint(token for text in chance.texts for token in text.source)
    assert max(len(text.source) for text in chance.texts) <= folder.config.max_length - 3
