"""`regard bench` and the races of bench/race.py: figures of real work, and wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bench import learners as learning
from bench import race, shapes
from conftest import Command, Refused, Toy
from hf_models import tiny_bert
from regard.batch import Batch, collate
from regard.config import resolve
from regard.errors import UsageError
from regard.inputs.text import train_tokenizer
from regard.sample import IGNORED
from samples import random_samples

SHAPE = {"layers": 2, "width": 32, "heads": 2, "feed_forward": 64, "dropout": 0.1, "max_length": 64}

SMALL = [
    part
    for change in ("data.train=phrasebook:300", "text.vocabulary=300", "train.tokens_per_batch=256")
    for part in ("--set", change)
]

FEW = [
    "--source",
    "6",
    "--tokens",
    "8",
    "--rounds",
    "1",
    "--threads",
    "1",
    "--precision",
    "float32",
    "--json",
    "--one-process",
]
TINY = {
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 2}),
    "llama": shapes.llama(32, 2, 4, 2, 48),
    "t5-small": ("T5ForConditionalGeneration", {"vocab_size": 300, "d_model": 32, "d_ff": 48, "d_kv": 8}),
}


def test_how_fast_a_model_translates(regard: Command, toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a b c\nb c d e\n\nc\n", encoding="utf-8")
    ways = ("--beam", "1", "--beam", "2", "--precision", "float32", "--precision", "bfloat16")
    given = ("bench", "decode", "-m", toy.model, "--file", tmp_path / "texts.txt", "--rounds", "2", *ways)
    result = regard(*given, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert [(each["precision"], each["beam"]) for each in found] == [
        ("float32", 1), ("float32", 2), ("bfloat16", 1), ("bfloat16", 2),
    ]  # fmt: skip
    for each in found:
        assert each["texts"] == 3 and each["rounds"] == 2
        assert 0 < each["slowest"] <= each["tokens_per_second"] <= each["fastest"]
        assert each["memory"] > 2**20
    table = regard(*given)
    assert table.code == 0 and "tokens per second" in table.out and "bfloat16, 2 beams" in table.out


def races(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def test_the_same_model_in_other_programs(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    """They write what Regard writes: without that it is no race."""
    race.main(["translate", "-m", str(toy.model), "--cells", "1x1", "2x2", *FEW])
    limits, *rows = races(capsys.readouterr().out)
    assert all(limits[name] > 0 for name in ("bandwidth GB/s", "float32 GFLOP/s", "bfloat16 GFLOP/s"))
    programs = ["regard float32", "ctranslate2 float32", "ctranslate2 int8"]
    programs += ["transformers float32", "transformers bfloat16"]
    assert [row["program"] for row in rows] == 2 * programs
    for row in rows:
        greedy = row["race"].endswith("1x1")
        assert 0 < row["median"] <= row["best"] and row["rounds"] == 1
        assert ("of bandwidth" in row) == greedy
        if row["program"] == "transformers float32" or (greedy and "float32" in row["program"]):
            assert row["equal texts"] == 1, row
        if row["program"] not in programs[:1]:
            assert row["ratios"]["regard float32"]["median"] > 0
    with pytest.raises(SystemExit):
        race.main(["translate", "-m", str(toy.model), "--against", "marian"])


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "name", ["llama", pytest.param("gpt2", marks=SLOW), pytest.param("t5-small", marks=SLOW)]
)
def test_a_shape_with_random_weights(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(shapes.SHAPES, name, TINY[name])
    given = ["generate", "--shapes", name, "--cache", str(tmp_path), "--cells", "1x1", *FEW]
    race.main([*given, "--against", "ctranslate2", "transformers"])
    _, *rows = races(capsys.readouterr().out)
    assert len(rows) == 5
    for row in rows:
        assert row["median"] > 0 and row["of bandwidth"] > 0
        if row["program"].endswith("float32"):
            assert row["equal texts"] == 1, row


@pytest.mark.slow
def test_the_first_steps_of_a_fresh_process(toy: Toy, capsys: pytest.CaptureFixture[str]) -> None:
    race.main(["translate", "-m", str(toy.model), "--cold", "--against", *FEW])
    (row,) = races(capsys.readouterr().out)[1:]
    assert row["median"] > 0 and row["unit"] == "steps/s"


@pytest.mark.slow
def test_a_race_of_embedders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_bert(tmp_path)
    race.main(["embed", "-m", str(tmp_path), "--count", "4", *FEW[4:]])
    _, *rows = races(capsys.readouterr().out)
    race.main(["embed", "-m", str(tmp_path), "--count", "4", "--against", *FEW[4:-1]])
    _, *apart = races(capsys.readouterr().out)  # in a process of its own
    assert [row["program"] for row in apart] == ["regard float32"] * 2
    assert {row["race"] for row in rows} == {"4 texts", "one short text"} and len(rows) == 10
    assert all(row["median"] > 0 for row in rows)
    assert all(row["least cosine"] > 0.9 for row in rows[:5])


def test_how_fast_a_size_learns(regard: Command) -> None:
    result = regard("bench", "train", "--preset", "transformer-tiny", "--updates", "2", *SMALL, "--json")
    assert result.code == 0, result.err
    (found,) = json.loads(result.out).values()
    assert found["updates"] == 2 and found["parameters"] > 100_000
    assert 0 < found["share_of_peak"] < 1
    assert found["share_of_peak"] == pytest.approx(found["flops_per_second"] / found["peak"])


@pytest.mark.slow
def test_a_race_of_learners(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["train", "--preset", "transformer-tiny", "--rounds", "2", *SMALL]
    race.main([*given, "--json", "--against", "transformers", "--against", "torch.nn"])
    rows = races(capsys.readouterr().out)
    programs = ["transformers float32", "transformers bfloat16", "torch.nn float32", "torch.nn bfloat16"]
    assert [row["program"] for row in rows] == ["regard", *programs]
    for change, program, part in (
        ("model.preset=rnn-tiny", "torch.nn", "family transformer"),
        ("model.norm=pre", "transformers", "no model of this shape"),
        ("model.positions=learned", "torch.nn", "no layers of this shape"),
        ("train.seed=1", "fairseq", "choose among transformers, torch.nn"),
    ):
        with pytest.raises(UsageError, match=part):
            race.main([*given, "--set", change, "--against", program])


@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"tie_embeddings": False, "dropout": 0.0}])
@pytest.mark.parametrize("program", learning.PROGRAMS)
def test_a_rival_learns(program: str, changes: dict[str, object]) -> None:
    """It is a fair race only if the other one is really trained: its loss falls like ours."""
    tree = {"data": {"train": "phrasebook"}, "model": {**SHAPE, **changes}, "train": {"label_smoothing": 0.0}}
    config, tokenizer = resolve(tree), train_tokenizer(["one two three"], "bpe", 300)
    if program == "transformers" and changes.get("norm") == "pre":
        pytest.skip("Marian has no such shape")
    torch.manual_seed(0)
    model = learning.MAKERS[program](config.model, tokenizer, None)
    learner = learning.Learner(model, config, half=False)
    learner.optimizer.param_groups[0]["lr"] = 3e-3
    batch = collate(random_samples(6, 4, vocabulary=len(tokenizer)))
    before = one_loss(model, batch)
    for _ in range(60):
        learner.update([batch, batch])
    assert one_loss(model, batch) < before / 2
    padded = collate(
        [
            *random_samples(6, 4, vocabulary=len(tokenizer)),
            *random_samples(1, 5, vocabulary=len(tokenizer), longest=40),
        ]
    )
    model.eval()
    wide, narrow = model(padded.source, padded.target)[:6], model(batch.source, batch.target)
    seen = batch.target.positions >= 0
    torch.testing.assert_close(wide[:, : narrow.shape[1]][seen], narrow[seen], atol=1e-4, rtol=1e-4)


def one_loss(model: torch.nn.Module, batch: Batch) -> float:
    model.eval()
    with torch.no_grad():
        logits = model(batch.source, batch.target)
    model.train()
    return float(F.cross_entropy(logits.transpose(1, 2), batch.labels, ignore_index=IGNORED))


def test_how_fast_a_run_learns(regard: Command, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(
        '[task]\nsource = "en"\ntarget = "de"\n[data]\ntrain = "phrasebook:300"\n'
        '[text]\nvocabulary = 300\n[model]\npreset = "transformer-tiny"\n[train]\ntokens_per_batch = 256\n',
        encoding="utf-8",
    )
    result = regard("bench", "train", tmp_path / "small.toml", "--updates", "2")
    assert result.code == 0, result.err
    assert "small" in result.out and "share of peak" in result.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.toml"], "nothing of it is kept"


def test_wrong_use(refused: Refused, toy: Toy, tmp_path: Path) -> None:
    assert "either a run's TOML file, or --preset" in refused("bench", "train")
    assert "transformer-huge" in refused("bench", "train", "--preset", "transformer-huge")
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    said = refused("bench", "decode", "-m", toy.model, "--file", tmp_path / "empty.txt")
    assert "contains no text" in said
    assert "bench.race translate" in refused("bench", "decode", "-m", toy.model, "--against", "ctranslate2")
    assert "bench.load" in refused("bench", "serve", "runs/demo", "--clients", "3")
