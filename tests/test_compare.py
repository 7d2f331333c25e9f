"""Several models on one test set, and the times of layers: `regard compare`, bench/layers.py."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.layers import ATTENTION, TORCH, Time, crossing
from conftest import SOURCE_WORDS, Command, Refused, Toy, toy_config, toy_translation
from regard.config import RNNConfig, Text, load_config
from regard.errors import UsageError
from regard.evaluation.comparison import model_names, time_rounds
from regard.models.families import build, parameters
from regard.training import train
from regard.training.report.page import chart, curve, svg_element

RECIPES = Path(__file__).parent.parent / "recipes"
pytestmark = pytest.mark.usefixtures("same_threads")


@pytest.fixture(scope="session")
def rnn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of another family and with another tokenizer, hardly trained."""
    folder = tmp_path_factory.mktemp("rnn")
    config = toy_config(folder, steps=3, warmup=1)
    changes = {
        "text": Text(kind="character", vocabulary=400),
        "model": RNNConfig(width=16, layers=1, dropout=0.0, max_length=128),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.device.available_cores", lambda: [0])
        train(config.model_copy(update=changes), folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of all lengths up to 24 words, each length twice."""
    dice = random.Random(5)
    sources = [" ".join(dice.choices(SOURCE_WORDS, k=1 + number // 2)) for number in range(48)]
    path = tmp_path_factory.mktemp("long") / "test.tsv"
    path.write_text("".join(f"{source}\t{toy_translation(source)}\n" for source in sources))
    return path


def compare(regard: Command, *arguments: object) -> dict:
    (line,) = regard("compare", *arguments, "--json").lines
    return json.loads(line)


# --- the numbers ------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_other_commands(
    regard: Command, toy: Toy, rnn: Path, corpus: Path
) -> None:
    """Scores as `evaluate` has them with the same beam, the loss as `score`, the rest as the run told."""
    result = compare(regard, "-m", toy.model, "-m", rnn, "--data", corpus, "--rounds", 2, "--beam", 3)
    assert (result["source"], result["target"], result["sentences"], result["unit"]) == (
        "toy",
        "TOY",
        48,
        "words",
    )
    assert "beam 3" in result["measured"]
    assert [each["family"] for each in result["models"]] == ["transformer", "rnn"]
    for folder, model in zip((toy.model, rnn), result["models"]):
        expected = json.loads(
            regard("evaluate", "-m", folder, "--data", corpus, "--beam", 3, "--json").lines[0]
        )
        assert (model["bleu"], model["chrf"]) == (expected["bleu"], expected["chrf"])
        run = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().split("\n")[:-1]][-1]
        assert (model["parameters"], model["updates"]) == (run["parameters"], run["step"])
        rows = [json.loads(line) for line in regard("score", "-m", folder, corpus, "--json").lines]
        nats = -math.fsum(row["log_probability"] for row in rows)
        assert model["loss"] == pytest.approx(nats / sum(len(row["tokens"]) for row in rows))
        assert model["perplexity"] == pytest.approx(math.exp(model["loss"]))
        size = sum(len(line.split("\t")[1]) for line in corpus.read_text().split("\n")[:-1])
        assert model["bits_per_byte"] == pytest.approx(nats / math.log(2) / size)
        assert model["tokens_per_second"] > 0 and model["sentences_per_second"] > 0
        assert len(model["rounds"]) == 2


def test_every_sentence_is_in_one_length(regard: Command, toy: Toy, rnn: Path, corpus: Path) -> None:
    result = compare(regard, "-m", toy.model, "-m", rnn, "--data", corpus, "--rounds", 0, "--beam", 1)
    for model in result["models"]:
        assert [(each["length"], each["sentences"]) for each in model["lengths"]] == [
            ("1 to 5", 10),
            ("6 to 10", 10),
            ("11 to 15", 10),
            ("16 to 20", 10),
            ("21 to 30", 8),
        ]
        assert model["tokens_per_second"] is None
    trained = result["models"][0]["lengths"]
    assert trained[0]["chrf"] > trained[-1]["chrf"]  # it saw no sentence of more than four words
    assert "not measured" in result["measured"]


def test_the_first_models_own_test_set_and_search(regard: Command, toy: Toy, rnn: Path) -> None:
    result = compare(regard, "-m", toy.model, "-m", rnn, "--rounds", 0)
    assert result["sentences"] == 60
    assert result["measured"].startswith("All searched with beam 2")


def test_a_checkpoint_is_a_model_too(regard: Command, toy: Toy) -> None:
    steps = sorted((toy.model / "checkpoints").iterdir())
    result = compare(regard, "-m", toy.model, "-m", steps[0], "--rounds", 0, "--beam", 1)
    names = [each["model"] for each in result["models"]]
    assert names == ["toy", steps[0].name]
    assert f"step-{result['models'][1]['updates']}" == steps[0].name


def test_losses_are_over_the_pairs_that_all_can_read(
    regard: Command, toy: Toy, rnn: Path, corpus: Path, tmp_path: Path
) -> None:
    """One more pair is too long for one of the two: it is translated all the same, but in no one's loss."""
    ask = ("-m", toy.model, "-m", rnn, "--rounds", 0, "--beam", 1)
    pair = [" ".join(words * 43) for words in (["ba"], ["Ab"])]  # 128 characters with its end is one too many
    wide = tmp_path / "wide.tsv"
    wide.write_text(corpus.read_text() + "\t".join(pair) + "\n")
    result, more = compare(regard, *ask, "--data", corpus), compare(regard, *ask, "--data", wide)
    assert (result["sentences"], more["sentences"]) == (48, 49)
    assert "too long" not in result["measured"]
    assert "the 48 pairs that none of the models finds too long" in more["measured"]
    for before, after in zip(result["models"], more["models"]):
        assert after["loss"] == pytest.approx(before["loss"])


def test_in_each_round_all_take_their_turn() -> None:
    calls: list[str] = []

    def runner(name: str, tokens: int):
        return lambda: calls.append(name) or (2, tokens)

    result = time_rounds({"a": runner("a", 10), "b": runner("b", 20), "c": runner("c", 30)}, rounds=8)
    turns = [calls[start : start + 3] for start in range(0, 24, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1
    assert {name: len(speeds) for name, speeds in result.items()} == {"a": 8, "b": 8, "c": 8}
    for speeds, tokens in zip(result.values(), (10, 20, 30)):
        assert [t / s for s, t in speeds] == pytest.approx([tokens / 2] * 8)


# --- names ------------------------------------------------------------------------------------------------

PARTS = st.lists(st.sampled_from(["runs", "a", "b", "rnn"]), min_size=1, max_size=4)


@given(st.lists(PARTS, min_size=2, max_size=5, unique_by=tuple))
def test_names_are_distinct_and_no_longer_than_they_must_be(paths: list[list[str]]) -> None:
    whole = [["/", *parts] for parts in paths]
    for name, path in zip(model_names([Path(*parts) for parts in whole]), whole):
        size = next(size for size in range(1, 6) if "/".join(path[-size:]) == name)
        others = [other for other in whole if other != path]
        assert all(other[-size:] != path[-size:] for other in others)
        assert size == 1 or any(other[1 - size :] == path[1 - size :] for other in others)


def test_names_of_folders_and_checkpoints(tmp_path: Path) -> None:
    assert model_names([tmp_path / "a" / "rnn", tmp_path / "big"]) == ["rnn", "big"]
    assert model_names([tmp_path / "a" / "rnn", tmp_path / "b" / "rnn"]) == ["a/rnn", "b/rnn"]
    steps = [tmp_path / run / "checkpoints" / "step-20" for run in ("a", "b")]
    assert model_names(steps) == ["a/step-20", "b/step-20"]
    with pytest.raises(UsageError, match="given twice"):
        model_names([tmp_path / "a", tmp_path / "b" / ".." / "a"])


# --- pages ------------------------------------------------------------------------------------------------


def test_table_pages_and_pictures(regard: Command, toy: Toy, rnn: Path, corpus: Path, tmp_path: Path) -> None:
    hostile = Path(shutil.copytree(rnn, tmp_path / "<b>[red]x"))
    files = [tmp_path / f"out.{kind}" for kind in ("html", "md", "png", "svg")]
    outputs = [part for path in files for part in ("-o", path)]
    result = regard("compare", "-m", toy.model, "-m", hostile, "--data", corpus, "--rounds", 1, *outputs)
    assert result.code == 0, result.err
    for words in ("<b>[red]x", "transformer", "21 to 30", "different tokens", "tok:13a"):
        assert words in result.out
    page = files[0].read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import|//|<script|<img|<b>", page)
    assert page.count('class="curve"') == 2
    assert "&lt;b&gt;[red]x" in page
    assert "prefers-color-scheme: dark" in page
    text = files[1].read_text(encoding="utf-8")
    assert "![BLEU, by words of the source](out.svg)" in text
    assert re.search(r"^\| 21 to 30 \| 8 \| [\d.]+ \| [\d.]+ \|$", text, re.M)
    assert files[2].read_bytes().startswith(b"\x89PNG")
    picture = ElementTree.fromstring(files[3].read_text(encoding="utf-8"))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    paths = picture.findall(".//{*}g[@class='curve']/{*}path")
    points = [len(re.findall("[ML]", path.get("d") or "")) for path in paths]
    assert points == [4, 4], "eight sentences are too few for a point"


def test_a_chart_of_many_names_has_room_for_all() -> None:
    curves = [curve(f"a model with a long name {number}", [(0.0, 1.0), (1.0, 2.0)]) for number in range(7)]
    svg = ElementTree.fromstring(
        svg_element(chart("BLEU", curves, over="words", names=["1–5", "6+"])).replace("xlink:", "")
    )
    texts = [(element.get("x"), element.get("y")) for element in svg.iter("text")]
    assert len(texts) == len(set(texts))
    names = {element.text for element in svg.iter("text")}
    assert {"1–5", "6+", *(each["name"] for each in curves)} <= names
    width, height = map(float, (svg.get("viewBox") or "").split()[2:])
    for element in svg.iter("text"):
        assert 0 <= float(element.get("x") or 0) <= width
        assert 0 <= float(element.get("y") or 0) <= height


# --- what cannot be compared ------------------------------------------------------------------------------


def test_what_cannot_be_compared_is_said_in_a_sentence(
    refused: Refused, toy: Toy, rnn: Path, tmp_path: Path
) -> None:
    ask = ("compare", "-m", toy.model, "-m")
    assert "at least two models" in refused("compare", "-m", toy.model)
    assert "given twice" in refused(*ask, toy.model)
    assert "no such folder" in refused(*ask, tmp_path / "nowhere")
    assert ".html, .md, .svg, .png" in refused(*ask, rnn, "-o", tmp_path / "x.pdf")
    assert "is a folder" in refused(*ask, rnn, "-o", tmp_path)
    assert "one corpus, or a source file" in refused(*ask, rnn, *["--data", "x"] * 3)
    (tmp_path / "empty.tsv").write_text("")
    assert "empty" in refused(*ask, rnn, "--data", tmp_path / "empty.tsv")
    other = Path(shutil.copytree(rnn, tmp_path / "other"))
    text = (other / "run.toml").read_text(encoding="utf-8")
    (other / "run.toml").write_text(text.replace('target = "TOY"', 'target = "fr"'), encoding="utf-8")
    (other / "SHA256SUMS").unlink()  # the change is meant
    message = refused(*ask, other)
    assert "toy to TOY" in message and "toy to fr" in message and "no common test set" in message


def test_a_folder_that_names_no_languages_is_compared(
    regard: Command, toy: Toy, rnn: Path, corpus: Path, tmp_path: Path
) -> None:
    """As a model of others, that says nothing of what it was trained for."""
    bare = Path(shutil.copytree(rnn, tmp_path / "bare"))
    for name in ("run.toml", "metrics.jsonl"):
        (bare / name).unlink()
    result = compare(regard, "-m", bare, "-m", toy.model, "--data", corpus, "--rounds", 0, "--beam", 1)
    assert (result["source"], result["target"]) == ("toy", "TOY")
    assert [each["updates"] for each in result["models"]] == [None, 400]


# --- three models of equal size, and the times of layers --------------------------------------------------


def test_the_recipes_to_be_compared_are_of_equal_size_and_batches() -> None:
    configs = [load_config(RECIPES / f"multi30k-{name}.toml") for name in ("rnn", "bahdanau", "transformer")]
    assert [config.model.family for config in configs] == ["rnn", "bahdanau", "transformer"]
    sizes = [parameters(build(config.model, config.text.vocabulary)) for config in configs]
    assert max(sizes) / min(sizes) < 1.05
    for config in configs:
        assert config.data == configs[0].data
        assert config.text == configs[0].text
        assert config.decode == configs[0].decode
        for field in ("steps", "tokens_per_batch", "accumulate", "seed", "label_smoothing", "average"):
            assert getattr(config.train, field) == getattr(configs[0].train, field)


def times(layer: str, cost: dict[int, float]) -> list[Time]:
    return [Time(layer, "one", False, 64, n, 1, ms, ms, ms) for n, ms in cost.items()]


@given(st.floats(40.0, 900.0), st.floats(0.01, 100.0))
def test_curves_cross_where_their_costs_are_equal(width: float, scale: float) -> None:
    """n^2 d against n d^2: at n = d."""
    lengths = [32, 64, 128, 256, 512, 1024]
    attention = times(ATTENTION, {n: scale * n * n * width for n in lengths})
    recurrent = times(TORCH, {n: scale * n * width * width for n in lengths})
    text = crossing(attention + recurrent, ATTENTION, TORCH)
    (n,) = re.findall(r"^faster up to n = ([\d,]+)$", text)
    assert float(n.replace(",", "")) == pytest.approx(width, abs=0.51)
    assert crossing(recurrent + attention, TORCH, ATTENTION).startswith(
        "faster at 1,024, the longest, and not"
    )


def test_curves_that_do_not_cross() -> None:
    slow, fast = {32: 2.0, 64: 8.0}, {32: 1.0, 64: 2.0}
    assert crossing(times("a", slow) + times("b", fast), "a", "b") == "slower at every length"
    assert crossing(times("a", fast) + times("b", slow), "a", "b") == "faster up to 64, the longest"
