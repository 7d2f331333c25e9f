"""Text modifiers: laws of each, training with them as a pure function, scores on modified test sets."""

from __future__ import annotations

import json
import os
import signal
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from safetensors.numpy import load_file

import regard
from conftest import Command, Refused, Toy, toy_config
from regard.config import Config, resolve, to_toml
from regard.config.input import Modifier
from regard.data import read_examples
from regard.data.dataset import RowPool, ShardColumn, TokenColumn, offsets
from regard.data.objectives import CausalLM, MaskedLM, Seq2Seq, Tag
from regard.data.objectives.augmentation import (
    Augmentation,
    ids_of,
    modify_examples,
    modify_texts,
    text_of,
    with_texts,
)
from regard.errors import UsageError
from regard.evaluation import choose_modifiers
from regard.inputs.text import train_tokenizer
from regard.inputs.text.items import ITEMS
from regard.inputs.text.modifiers import CHANGES, item_of, modify_example, neighbours, parse_modifiers
from regard.sample import Example
from regard.training import train
from regard.training.listeners import Listener
from regard.training.prepare import Preparation, prepare_data, shards_key, tokenizers_key
from regard.training.progress import read_metrics
from regard.training.stream import Stream
from small_models import opened, small_config
from toys import task_config

NAMES = Modifier.TEXT["translate"]
NOISE = ("typos", "noise", "repeat", "spaces")
WORDS = st.lists(st.text(st.sampled_from("abcdeßéöXYZ"), min_size=1, max_size=9), min_size=1, max_size=8).map(
    " ".join
)
SENTENCES = st.builds(
    lambda words, end: words + end, WORDS, st.sampled_from(["", ".", "!", "?", ' ."', "..."])
)
SEEDS = st.integers(0, 2**32)
PAIR = Example("In May 1999 I met Tom, who had 3 dogs.", "Im Mai 1999 traf ich Tom, der 3 Hunde hatte.")


def changed(name: str, seed: int, source: str, target: str = "", task: str = "translate") -> Example:
    modifier = Modifier.model_validate({"name": name})
    return modify_example(Example(source, target), task, [modifier], np.random.default_rng(seed))


# --- laws


def test_every_name_has_a_change_and_the_other_way_round() -> None:
    assert set(CHANGES) == set(NAMES) and set(ITEMS) == set(Modifier.ITEMS)
    assert {name for names in Modifier.TEXT.values() for name in names} == set(NAMES)


@given(st.sampled_from(NAMES), SEEDS, SENTENCES, SENTENCES)
def test_a_modifier_is_a_function_of_its_generator(name: str, seed: int, source: str, target: str) -> None:
    assert changed(name, seed, source, target) == changed(name, seed, source, target)


@given(SEEDS, SENTENCES, SENTENCES)
def test_case_is_exact_on_both_sides(seed: int, source: str, target: str) -> None:
    for name, exact in (("upper", str.upper), ("lower", str.lower)):
        assert changed(name, seed, source, target) == Example(exact(source), exact(target))
        assert changed(name, seed, source, target, "classify") == Example(exact(source), target)
    words = changed("title", seed, source, target).target.split()
    assert words == [word[:1].title() + word[1:] for word in target.split()]


@given(SEEDS, WORDS, WORDS, st.sampled_from([".", "!", "?", "?!"]))
def test_end_punctuation_is_missing_or_double_on_both_sides(seed: int, one: str, two: str, end: str) -> None:
    assert changed("no_punctuation", seed, one + end, two + end) == Example(one, two)
    result = changed("double_punctuation", seed, one + end, two + end)
    ends = {result.source.removeprefix(one), result.target.removeprefix(two)}
    assert len(ends) == 1 and ends <= {2 * end, 3 * end, 4 * end}
    assert changed("double_punctuation", seed, one + end, two) == Example(one + end, two)  # both or none
    assert changed("headline", seed, one + end, two + end) == changed("title", seed, one, two)


@given(SEEDS, SENTENCES, SENTENCES, st.floats(0.01, 1))
def test_noise_changes_the_source_alone_and_little(seed: int, source: str, target: str, share: float) -> None:
    count = len(source.split())
    for name in NOISE:
        modifier = Modifier(name=name, strength=share)  # type: ignore[arg-type]
        result = modify_example(Example(source, target), "translate", [modifier], np.random.default_rng(seed))
        assert result.target == target
        if name in ("typos", "noise"):
            assert abs(len(result.source) - len(source)) <= max(1, round(share * count))
            assert len(result.source.split(" ")) == len(source.split(" "))  # so tags keep their words
    spaced = changed("spaces", seed, source, target)
    assert spaced.source.replace(" ", "") == source.replace(" ", "")


def test_typos_are_swaps_drops_doubles_and_neighbours() -> None:
    results = {changed("typos", seed, "house").source for seed in range(300)}
    assert {"ohuse", "huse", "housse", "hpuse"} <= results
    assert all(abs(len(word) - 5) <= 1 and word != "" for word in results)
    assert set(neighbours()["g"]) == set("fhtb")
    kept = "see https://example.org/a_b 12:30 {name}"
    assert all(changed("typos", seed, kept).source.split()[1:] == kept.split()[1:] for seed in range(50))


@given(st.sampled_from(Modifier.ITEMS), SEEDS, SENTENCES, SENTENCES)
def test_an_item_stands_identically_on_both_sides(name: str, seed: int, source: str, target: str) -> None:
    modifier = Modifier.model_validate({"name": name})
    item = item_of(modifier, np.random.default_rng(seed))
    assert item
    for sides in ((source, target), (PAIR.source, PAIR.target)):
        result = changed(name, seed, *sides)
        assert item in result.source and item in result.target
    assert item in changed(name, seed, source, "label", "classify").source
    assert changed(name, seed, source, "label", "classify").target == "label"


def test_an_item_takes_the_place_of_a_number_or_name_of_both_sides() -> None:
    urls = {changed("url", seed, PAIR.source, PAIR.target).source for seed in range(60)}
    assert any(text.startswith("In May 1999 I met ") and "Tom" not in text for text in urls)
    dates = [changed("date", seed, PAIR.source, PAIR.target) for seed in range(60)]
    assert any("1999" not in each.source and "1999" not in each.target for each in dates)
    assert all(each.source.startswith("In ") and each.target.startswith("Im ") for each in dates if
               "1999" not in each.source)  # fmt: skip
    only_there = [changed("url", seed, "I met Tom.", "Ich traf Maria.") for seed in range(60)]
    assert all("Tom" in each.source and "Maria" in each.target for each in only_there)
    first = [changed("url", seed, "So Was here.", "So Was da.") for seed in range(60)]
    assert all(each.source.count("So") for each in first), "the first word may be any"


@given(SEEDS, st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=20), st.floats(0, 1))
def test_a_share_of_the_texts_is_modified(seed: int, pairs: list[tuple[str, str]], share: float) -> None:
    modifiers = [Modifier(name="number", probability=share), Modifier(name="upper", probability=share)]

    def draw() -> dict[int, tuple[str, str]]:
        return modify_texts(
            len(pairs), pairs.__getitem__, "translate", modifiers, np.random.default_rng(seed)
        )

    assert draw() == draw()
    always = modify_texts(
        len(pairs), pairs.__getitem__, "translate", [Modifier(name="number")], np.random.default_rng(seed)
    )
    assert list(always) == list(range(len(pairs)))


# --- columns of ids and texts

TOKENIZER = train_tokenizer(["abc dex yz Xöß Zé", "house of cards and so on"] * 20, "bpe", 320, ("<mask>",))


@given(st.lists(st.tuples(st.lists(st.integers(0, 400), max_size=9), st.text(max_size=9)), max_size=9))
def test_ids_and_texts_of_a_column_come_back(rows: list[tuple[list[int], str]]) -> None:
    rows = [(ids, text.encode("utf-8", "replace").decode()) for ids, text in rows]
    lengths = np.array([len(ids) for ids, _ in rows], dtype=np.int64)
    flat = np.array([number for ids, _ in rows for number in ids], dtype=np.uint16)
    content, sizes = with_texts((flat, lengths), [text for _, text in rows])
    column = TokenColumn(content, offsets(sizes))
    assert [(ids_of(column[n]).tolist(), text_of(column[n])) for n in range(len(rows))] == rows
    augmentation = Augmentation(Seq2Seq(TOKENIZER, TOKENIZER), "translate", [])
    assert augmentation.token_counts(ShardColumn(content, sizes)).tolist() == lengths.tolist()


def pool_of(objective: Augmentation, rows: list[tuple[int, str, str]]) -> RowPool:
    encodings = objective.encode(rows)
    return RowPool(*(TokenColumn(ids, offsets(sizes)) for ids, sizes in (encodings.source, encodings.target)))


@settings(max_examples=40)
@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=9), SEEDS)
def test_samples_are_those_of_the_modified_texts(pairs: list[tuple[str, str]], seed: int) -> None:
    plain = Seq2Seq(TOKENIZER, TOKENIZER, 4000)
    modifiers = [Modifier(name="upper", probability=0.5), Modifier(name="email", probability=0.5)]
    objective = Augmentation(plain, "translate", modifiers)
    rows = [(number, *pair) for number, pair in enumerate(pairs)]
    layout = objective.layout(pool_of(objective, rows), np.random.default_rng(seed))
    texts = modify_texts(len(pairs), pairs.__getitem__, "translate", modifiers, np.random.default_rng(seed))
    expected = plain.eval_samples([Example(*texts.get(n, pair)) for n, pair in enumerate(pairs)])
    found = [layout.sample(number, np.random.default_rng(0)) for number in range(len(pairs))]
    assert [(list(s.source), list(s.target)) for s in found] == [(s.source, s.target) for s in expected]
    assert layout.lengths.tolist() == [[len(s.source), len(s.target)] for s in expected]  # to plan batches


def test_a_text_that_becomes_too_long_stays_as_it_is() -> None:
    text = "house of cards"
    plain = Seq2Seq(TOKENIZER, TOKENIZER, len(TOKENIZER.encode(text)) + 1)
    assert len(TOKENIZER.encode(text.upper())) > len(TOKENIZER.encode(text))
    objective = Augmentation(plain, "translate", [Modifier(name="upper")])
    layout = objective.layout(pool_of(objective, [(1, text, text), (2, "a", "b")]), np.random.default_rng(0))
    assert list(layout.sample(0, np.random.default_rng(0)).source_ids)[:-1] == TOKENIZER.encode(text)
    assert list(layout.sample(1, np.random.default_rng(0)).source_ids)[:-1] == TOKENIZER.encode("A")


@settings(max_examples=40)
@given(st.lists(SENTENCES.filter(lambda text: "  " not in text), min_size=1, max_size=5), SEEDS)
def test_every_word_keeps_its_tag(texts: list[str], seed: int) -> None:
    plain = Tag(TOKENIZER, 4000, ["O", "B-X"])
    objective = Augmentation(plain, "tag", [Modifier(name=name) for name in ("typos", "noise", "title")])  # type: ignore[arg-type]
    tags = [" ".join("B-X" if n % 2 else "O" for n in range(len(text.split(" ")))) for text in texts]
    rows = [(number, *row) for number, row in enumerate(zip(texts, tags))]
    layout = objective.layout(pool_of(objective, rows), np.random.default_rng(seed))
    for number, row in enumerate(tags):
        labels = [label for label in layout.sample(number, np.random.default_rng(0)).labels if label >= 0]
        assert labels == [["O", "B-X"].index(tag) for tag in row.split(" ")]


def test_documents_of_language_models_are_modified_unless_they_are_split() -> None:
    short, long = "house of cards", " ".join(["house of cards"] * 300)
    for plain in (CausalLM(TOKENIZER, 16), MaskedLM(TOKENIZER, 16, 0.15)):
        objective = Augmentation(plain, "generate", [Modifier(name="upper")])
        pool = pool_of(objective, [(1, short, ""), (2, long, "")])
        texts = [text_of(pool.source[number]) for number in range(len(pool))]
        assert texts[0] == short and not any(texts[1:]) and len(texts) > 2
        assert len(objective.layout(pool, np.random.default_rng(0)).lengths)
    windows = Augmentation(CausalLM(TOKENIZER, 256), "generate", [Modifier(name="upper")])
    layout = windows.layout(pool_of(windows, [(1, short, "")]), np.random.default_rng(0))
    sample = [layout.sample(number, np.random.default_rng(0)) for number in range(len(layout.lengths))]
    labels = [label for each in sample for label in each.labels]
    assert TOKENIZER.decode(labels) == short.upper()


# --- config


def config_with(task: str, modifiers: list[dict[str, Any]], **data: Any) -> Config:
    return resolve({"task": {"name": task}, "data": {"train": "x.tsv", "modifiers": modifiers, **data}})


@pytest.mark.parametrize(
    ("task", "name", "data"),
    [
        ("tag", "repeat", {}),
        ("tag", "url", {}),
        ("generate", "typos", {}),
        ("fill", "number", {}),
        ("answer", "upper", {}),
        ("translate", "flip", {}),
        ("classify", "gain", {}),
        ("translate", "upper", {"train": [{"corpus": "x.tsv", "prefix": "sum: "}]}),
        ("generate", "upper", {"pixels": {"height": 8, "width": 8}}),
    ],
)
def test_what_does_not_suit_a_task_is_refused(task: str, name: str, data: dict[str, Any]) -> None:
    fields = {"name": name, **({"strength": 3} if name == "gain" else {})}
    with pytest.raises(UsageError, match=r"data\.modifiers") as caught:
        config_with(task, [fields], **data)
    assert caught.value.code == "E_CONFIG_VALUE"


def test_strengths_have_limits_and_a_default() -> None:
    assert (
        Modifier(name="typos").strength == 0.1 and Modifier(name="typos", strength=0.5).label == "typos=0.5"
    )
    for fields in (
        {"name": "typos", "strength": 1.5},
        {"name": "typos", "strength": 0},
        {"name": "upper", "strength": 1},
    ):
        with pytest.raises(ValidationError):
            Modifier.model_validate(fields)
    config = config_with("translate", [{"name": "upper", "probability": 0.05}, {"name": "typos"}])
    assert resolve(tomllib.loads(to_toml(config))) == config
    assert [each.label for each in parse_modifiers(["upper", "typos=0.2"], "tag")] == ["upper", "typos=0.2"]
    assert [each.name for each in parse_modifiers(["all"], "tag")] == list(Modifier.TEXT["tag"])
    for names, task in (
        (["uper"], "tag"),
        (["url"], "tag"),
        (["typos=9"], "tag"),
        (["upper=1"], "tag"),
        (["upper"], "answer"),
    ):
        with pytest.raises(UsageError) as caught:
            parse_modifiers(names, task)
        assert caught.value.code == "E_MODIFIER"


def test_a_mix_of_tasks_has_no_modified_test_set(tmp_path: Path) -> None:
    mix = [{"corpus": "x.tsv", "prefix": "sum: "}]
    config = resolve({"data": {"train": mix}, "model": {"family": "t5", "width": 16, "heads": 2}})
    (tmp_path / "run.toml").write_text(to_toml(config), encoding="utf-8")
    model = opened(small_config("translate", "transformer"), torch.nn.Linear(1, 1), TOKENIZER)  # type: ignore[arg-type]
    folder = replace(model, path=tmp_path)
    assert choose_modifiers(folder, []) == []
    with pytest.raises(UsageError, match="prefixes") as caught:
        choose_modifiers(folder, ["upper"])
    assert caught.value.code == "E_MODIFIER"


# --- runs

EVERYTHING = [{"name": name, "probability": 0.2} for name in NAMES]


class StopAt(Listener):
    def __init__(self, step: int) -> None:
        self.step = step

    def record(self, record: Any) -> None:
        if record["kind"] == "train" and record["step"] == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def with_modifiers(config: Config, modifiers: list[dict[str, Any]]) -> Config:
    content = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return resolve({**content, "data": {**content["data"], "modifiers": modifiers}})


@pytest.mark.usefixtures("same_threads")
@pytest.mark.parametrize("task", ["translate", "classify", "tag", "generate", "fill"])
def test_a_resumed_run_has_the_bits_of_one_without_a_stop(task: str, tmp_path: Path) -> None:
    small = {"steps": 6, "log_every": 1, "checkpoint_every": 2, "validate_sentences": 2}
    plain = toy_config(tmp_path, **small) if task == "translate" else task_config(task, tmp_path, **small)
    modifiers = [each for each in EVERYTHING[::3] if each["name"] in Modifier.TEXT[task]]
    config = with_modifiers(plain, modifiers)
    whole = train(config, tmp_path / "whole")
    first = train(config, tmp_path / "cut", listeners=[StopAt(3)])
    assert (whole.step, first.step, first.finished) == (6, 3, False)
    assert train(None, tmp_path / "cut", resume=True).finished
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)
    (record,) = [
        each for each in read_metrics(tmp_path / "cut/metrics.jsonl") if each["kind"] == "robustness"
    ]
    assert list(record["modified"]) == ["clean", *(Modifier.model_validate(each).label for each in modifiers)]
    assert record["sentences"] == 60 and record["split"] == "test"
    assert "## Robustness" in (tmp_path / "cut/README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("same_threads")
def test_without_modifiers_nothing_is_stored_or_drawn_differently(tmp_path: Path) -> None:
    plain = toy_config(tmp_path)
    never = with_modifiers(plain, [{"name": "upper", "probability": 0.0}])
    data = [prepare_data(each, tmp_path / "run", lambda text: None) for each in (plain, never)]
    assert isinstance(data[0].objective, Seq2Seq) and isinstance(data[1].objective, Augmentation)
    assert data[0].fingerprint != data[1].fingerprint  # texts beside the ids
    assert data[0].split_above == data[1].split_above
    streams = [Stream(each.training, each.objective, 512, 1) for each in data]
    lengths = [np.sort(each.rows.lengths, axis=0).tolist() for each in streams]
    assert lengths[0] == lengths[1]

    def keys(*names: str) -> tuple[str, str]:
        config = with_modifiers(plain, [{"name": name} for name in names])
        job = Preparation(config, tmp_path / "run", lambda text: None, None, None)  # type: ignore[arg-type]
        return tokenizers_key(job), shards_key(job, data[0].tokenizers)

    assert keys()[1] != keys("upper")[1] == keys("lower", "url")[1], "the same shards for any modifiers"
    assert len({keys()[0], keys("upper")[0], keys("lower")[0]}) == 3
    assert keys("url")[0] == keys()[0], "items are not in a tokenizer"


def test_a_tokenizer_has_words_in_capitals_if_training_has(tmp_path: Path) -> None:
    config = with_modifiers(toy_config(tmp_path), [{"name": "upper", "probability": 0.5}])
    data = prepare_data(config, tmp_path / "run", lambda text: None)
    plain = prepare_data(toy_config(tmp_path), tmp_path / "other", lambda text: None)
    text = "BA DE GI"
    assert len(data.tokenizers[0].encode(text)) < len(plain.tokenizers[0].encode(text))


# --- scores on modified test sets


def test_scores_are_those_of_sacrebleu_on_the_modified_pairs(toy: Toy) -> None:
    pairs = [
        tuple(line.split("\t"))
        for line in (toy.corpora / "test.tsv").read_text(encoding="utf-8").splitlines()[:30]
    ]
    result = regard.evaluate(toy.model, pairs, modify=["lower", "typos=0.4", "number"], beam=1)
    assert list(result.modified) == ["clean", "lower", "typos=0.4", "number"]
    translator = regard.load(toy.model)
    for modifier in parse_modifiers(["lower", "typos=0.4", "number"], "translate"):
        texts = modify_examples([Example(*pair) for pair in pairs], "translate", modifier)
        outputs = translator.translate([each.source for each in texts], beam=1)
        references = [[each.target for each in texts]]
        scores = result.modified[modifier.label]
        assert scores["bleu"] == pytest.approx(BLEU().corpus_score(outputs, references).score, abs=1e-9)
        chrf = CHRF().corpus_score(outputs, references).score
        assert scores["chrf"] == pytest.approx(chrf, abs=1e-9)
        assert scores["ratio"] == pytest.approx(chrf / result["chrf"])
    assert result.modified["clean"] == {"bleu": result["bleu"], "chrf": result["chrf"]}
    lower = [(source.lower(), target.lower()) for source, target in pairs]
    assert regard.evaluate(toy.model, lower, beam=1)["bleu"] == result.modified["lower"]["bleu"]
    assert result.modified["number"]["changed"] == 30 and 0 <= result.modified["number"]["kept"] <= 1
    assert (
        regard.evaluate(toy.model, pairs, modify="lower", beam=1).modified["lower"]
        == result.modified["lower"]
    )


@pytest.mark.parametrize("task", ["classify", pytest.param("tag", marks=pytest.mark.slow)])
def test_scores_of_labels_on_modified_texts(task: str, tmp_path: Path) -> None:
    config = task_config(task, tmp_path)
    train(config, tmp_path / "run")
    result = regard.evaluate(tmp_path / "run", modify=["all"])
    assert set(result.modified) - {"clean"} == {each.label for each in parse_modifiers(["all"], task)}
    score = "accuracy" if task == "classify" else "f1"
    clean = result.modified["clean"][score]
    assert clean == result[score] and clean > 0.5, "it has learned something"
    assert config.data.test is not None
    examples = read_examples(config.data.test, config.task, "test", data=config.data)
    for name in ("lower", "upper"):
        texts = modify_examples(examples, task, Modifier.model_validate({"name": name}))
        again = regard.evaluate(tmp_path / "run", [(each.source, each.target) for each in texts])
        assert result.modified[name][score] == again[score]
        assert result.modified[name]["ratio"] == again[score] / clean
    assert result.modified["upper"][score] < clean
    assert result.modified["upper"]["changed"] == 60


def test_the_command_prints_a_table(regard: Command, refused: Refused, toy: Toy) -> None:
    shown = regard("evaluate", "-m", toy.model, "--modify", "upper", "--modify", "email")
    assert "chrF of clean" in shown.out and "items kept" in shown.out and "clean" in shown.out
    printed = json.loads(regard("evaluate", "-m", toy.model, "--modify", "upper", "--json").out)
    assert set(printed["modified"]) == {"clean", "upper"}
    assert "modified" not in json.loads(regard("evaluate", "-m", toy.model, "--json").out)
    assert "no_punctuation" in refused("evaluate", "-m", toy.model, "--modify", "shout")
