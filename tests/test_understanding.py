"""Classifier, Tagger and Answerer: equal to transformers, the same beside any neighbour, exact in offsets."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertTokenizerFast,
)

import regard
import understanding
from regard.batch import Batch, tokens
from regard.config import resolve, to_tree
from regard.errors import UsageError
from regard.tasks import Answerer, Classifier, Tagger, load_as
from regard.tasks.tagger import find_words, windows_of
from regard.training import train

pytestmark = pytest.mark.usefixtures("same_threads")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
LONGEST = 48
QUIET = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


# What transformers saved, with random weights: opened, it says what transformers says.


def foreign(
    folder: Path, kind: type[torch.nn.Module], labels: list[str]
) -> tuple[torch.nn.Module, BertTokenizerFast]:
    folder.mkdir()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*specials, *LETTERS, *(f"##{sign}" for sign in LETTERS), *".,?!", "ab", "##cd", "the"]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=LONGEST,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
        initializer_range=0.3,
    )
    model = kind(config).eval()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.mul_(4)  # opinions that depend on words
    model.save_pretrained(folder)
    return model, tokenizer


def sentences(count: int, seed: int, most: int = 8) -> list[str]:
    dice = random.Random(seed)
    word = lambda: "".join(dice.choices(LETTERS, k=dice.randint(1, 4)))  # noqa: E731
    return [" ".join(word() for _ in range(dice.randint(1, most))) for _ in range(count)]


def test_a_classifier_of_transformers(tmp_path: Path) -> None:
    theirs, tokenizer = foreign(tmp_path / "m", BertForSequenceClassification, ["good", "bad", "so-so"])
    ours = regard.load(tmp_path / "m")
    assert isinstance(ours, Classifier)
    texts = sentences(12, seed=1)
    found = ours.classify(texts, num_results=3)
    for text, each in zip(texts, found, strict=True):
        with torch.no_grad():
            p = theirs(**tokenizer(text, return_tensors="pt")).logits[0].softmax(dim=0)
        assert list(each.probabilities.values()) == pytest.approx(p.tolist(), abs=1e-4)
        assert [label.name for label in each.labels] == [
            ours.labels[number] for number in p.argsort(descending=True).tolist()
        ]
        assert sum(each.probabilities.values()) == pytest.approx(1)


def test_a_tagger_of_transformers(tmp_path: Path) -> None:
    theirs, tokenizer = foreign(tmp_path / "m", BertForTokenClassification, TAGS)
    ours = regard.load(tmp_path / "m")
    assert isinstance(ours, Tagger)
    rows = [text.split() for text in sentences(12, seed=2)]
    found = ours.tag_words(rows)
    for words, tags in zip(rows, found, strict=True):
        read = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            best = theirs(**read).logits[0].argmax(dim=1).tolist()
        first = [read.word_ids().index(number) for number in range(len(words))]
        assert tags == [TAGS[best[place]] for place in first]
    assert len({tag for tags in found for tag in tags}) > 2


@pytest.mark.parametrize(("longest", "windows"), [(8, 1), (60, 2)])
def test_answers_are_those_of_brute_force_over_the_logits_of_transformers(
    tmp_path: Path, longest: int, windows: int
) -> None:
    """Of contexts that fit, and of such that are read in windows."""
    theirs, tokenizer = foreign(tmp_path / "m", BertForQuestionAnswering, ["LABEL_0", "LABEL_1"])
    folder = regard.load(tmp_path / "m").folder
    stride, pieces = 9, 6
    task = folder.task.model_copy(update={"stride": stride, "longest_answer": pieces})
    ours = Answerer(replace(folder, task=task))
    contexts = [text for text in sentences(60, 4, longest) if len(text) > longest or windows == 1][:6]
    pairs = list(zip(sentences(6, seed=3, most=3), contexts, strict=True))
    seen = 0
    for (question, context), found in zip(pairs, ours.answer_pairs(pairs, num_results=7), strict=True):
        read = tokenizer(
            question,
            context,
            max_length=LONGEST,
            stride=stride,
            truncation="only_second",
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        sums: dict[tuple[int, int], float] = {}
        for number, (ids, kinds) in enumerate(zip(read["input_ids"], read["token_type_ids"])):
            places = [n for n, side in enumerate(read.sequence_ids(number)) if side == 1]
            offsets = read["offset_mapping"][number]
            with torch.no_grad():
                told = theirs(torch.tensor([ids]), token_type_ids=torch.tensor([kinds]))
            first, last = told.start_logits[0], told.end_logits[0]
            for i in places:
                for j in [place for place in places if i <= place < i + pieces]:
                    span, own = (offsets[i][0], offsets[j][1]), first[i] + last[j] - first[0] - last[0]
                    sums[span] = max(sums.get(span, -torch.inf), float(own))
        best = sorted(sums, key=lambda span: -sums[span])[:7]
        assert [(each.start, each.end) for each in found.answers] == best
        assert [each.score for each in found.answers] == pytest.approx([sums[s] for s in best], abs=1e-3)
        assert all(context[each.start : each.end] == each.text for each in found.answers)
        assert found.windows == len(read["input_ids"])
        seen = max(seen, found.windows)
    assert seen >= windows


# Models that have learned a rule follow it.


@pytest.fixture
def moods() -> Classifier:
    return load_as(Classifier, understanding.model("classify"), threads=1)


@pytest.fixture
def tagger() -> Tagger:
    return load_as(Tagger, understanding.model("tag"), threads=1)


@pytest.fixture
def answerer() -> Answerer:
    return load_as(Answerer, understanding.model("answer"), threads=1)


def test_a_text_gets_the_label_that_its_word_decides(moods: Classifier) -> None:
    dice = random.Random(7)
    pairs = [understanding.mood(dice) for _ in range(30)]
    found = moods.classify([text for text, _ in pairs])
    assert [each.label for each in found] == [label for _, label in pairs]
    assert all(len(each.labels) == 1 and not each.truncated for each in found)
    one = moods.classify("ba buhu de")
    assert (one.label, one.text) == ("sad", "ba buhu de")
    assert moods.classify("ba buhu de", num_results=2).labels[0] == one.labels[0]


def test_a_text_by_the_mean_of_its_positions(moods: Classifier, tmp_path: Path) -> None:
    """One config of ten lines on an old model, whose head looked at the first position alone."""
    run = {
        **to_tree(understanding.config(tmp_path, "classify")),
        "init": {"from": str(moods.folder.path)},
        "model": {"pool": "mean"},
    }
    run["train"] |= {"steps": 40, "warmup": 4, "lr": 1e-3}
    train(resolve(run), tmp_path / "mean")
    own = load_as(Classifier, tmp_path / "mean", threads=1)
    assert own.folder.config.pool == "mean" and moods.folder.config.pool == "first"
    assert [own.classify(text).label for text in ("ba buhu de", "lala", "fi fi fi grr")] == [
        "sad",
        "happy",
        "angry",
    ]
    told = json.loads((tmp_path / "mean" / "config.json").read_text())
    assert told.get("architectures") != ["BertForSequenceClassification"], "which looks at the first alone"
    words, model = tokens([[5, 6, 7, 8], [9, 4]]), own.folder.model
    with torch.no_grad():
        states = model.encode(Batch(source=words))
        means = torch.stack([states[0].mean(dim=0), states[1, :2].mean(dim=0)])
        expected = model.output(model.head(means[:, None]))
        torch.testing.assert_close(model(Batch(source=words)), expected)


def test_any_number_of_labels() -> None:
    many = load_as(Classifier, understanding.model("many"), threads=1)
    for text, labels in {"ba red de": {"red"}, "blue red fi": {"blue", "red"}, "ba de": set()}.items():
        found = many.classify(text)
        assert {label.name for label in found.labels} == labels
        assert {name for name, p in found.probabilities.items() if p >= 0.5} == labels
        assert len(many.classify(text, num_results=1).labels) == 1
    assert many.classify("ba de").label == ""


def test_names_are_found_where_they_stand(tagger: Tagger) -> None:
    text = "  ba Ana Smit, de\tOslo. Bo ba, Rom"
    found = tagger.tag(text)
    assert [(each.type, each.text) for each in found.entities] == [
        ("PER", "Ana Smit"),
        ("LOC", "Oslo"),
        ("PER", "Bo"),
        ("LOC", "Rom"),
    ]
    assert all(text[each.start : each.end] == each.text for each in found.entities)
    assert all(0.5 < each.score <= 1 for each in found.entities)
    assert " ".join(word.text for word in found.words) == "ba Ana Smit , de Oslo . Bo ba , Rom"
    assert found.windows == 1
    assert tagger.tag_words([["Ana", "Smit", "ba"], []]) == [["B-PER", "I-PER", "O"], []]


def test_the_answer_stands_behind_the_cue(answerer: Answerer) -> None:
    context = "ba de zu fi ga"
    found = answerer.answer("fu zu ?", context)
    assert (found.text, found.start, found.end) == ("fi", 9, 11)
    assert found.score > 0
    assert 0.5 < found.probability <= 1
    ranked = answerer.answer_pairs([("fu zu ?", context)], num_results=40)[0].answers
    assert ranked[0] == found
    assert len({(each.start, each.end) for each in ranked}) == len(ranked) == 5 + 4 + 3 + 2 + 1
    assert [each.score for each in ranked] == sorted((each.score for each in ranked), reverse=True)
    wide = answerer.answer_pairs([("fu zu ?", " ba   zu   fi  ")], num_results=20)[0].answers
    assert all(each.text == each.text.strip() == " ba   zu   fi  "[each.start : each.end] for each in wide)


def test_no_answer_is_given_where_training_had_such_questions(answerer: Answerer, tmp_path: Path) -> None:
    none = answerer.answer("fu zu ?", "ba de fi ga")
    assert (none.text, none.start, none.end, none.probability) == ("", 0, 0, 0.0)
    assert none.score < 0
    ranked = answerer.answer_pairs([("fu zu ?", "ba de fi ga")], num_results=3)[0].answers
    assert [bool(each.text) for each in ranked] == [False, True, True]
    assert answerer.answer("fu zu ?", "ba de fi ga", min_score=-1000.0).text
    assert not answerer.answer("fu zu ?", "ba zu fi ga", min_score=1000.0).text
    shutil.copytree(answerer.folder.path, tmp_path / "copy", ignore=shutil.ignore_patterns("checkpoints"))
    config = tmp_path / "copy" / "config.json"  # nobody knows any more: then it always answers
    config.write_text(config.read_text().replace('"may_refuse": true', '"may_refuse": false'))
    (tmp_path / "copy" / "SHA256SUMS").unlink()  # the change is meant
    assert load_as(Answerer, tmp_path / "copy", threads=1).answer("fu zu ?", "ba de fi ga").text


# Longer than the model.


def test_a_long_text_is_cut_skipped_or_refused(moods: Classifier) -> None:
    long = "lala " + "ba " * 60 + "buhu"
    cut, short = moods.classify([long, "ba grr"])
    assert (cut.label, cut.truncated, cut.skipped) == ("happy", True, False)
    assert cut.probabilities == pytest.approx(
        moods.classify("lala " + "ba " * 28 + "ba").probabilities, abs=1e-5
    )
    skipped, same = moods.classify([long, "ba grr"], on_too_long="skip")
    assert (skipped.labels, skipped.label, skipped.skipped, skipped.truncated) == ((), "", True, False)
    assert same.probabilities == pytest.approx(short.probabilities, abs=1e-5)
    with pytest.raises(UsageError, match=r"line 5: the text has 62 tokens and the model reads 30"):
        moods.classify(["ba", long], on_too_long="error", first_line=4)


def test_a_long_sentence_is_tagged_in_windows(tagger: Tagger) -> None:
    words = ("ba de Ana Smit fi Oslo " * 20).split()
    expected = ["O", "O", "B-PER", "I-PER", "O", "B-LOC"] * 20
    assert tagger.tag_words([words]) == [expected]
    text = " ".join(words)
    found = tagger.tag(text)
    assert found.windows > 1
    assert [word.tag for word in found.words] == expected
    assert [each.text for each in found.entities] == ["Ana Smit", "Oslo"] * 20
    assert all(text[each.start : each.end] == each.text for each in found.entities)
    assert tagger.tag("Ana Smit. " * 40).windows == 1  # each sentence alone is short
    endless = tagger.tag("ba " + "x" * 500 + " Oslo")  # one word of more pieces than the model reads
    assert [word.end for word in endless.words] == [2, 503, 508]


@QUIET
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(4, 20))
def test_windows_hold_every_word(sizes: list[int], longest: int) -> None:
    first, length = [], 0
    for size in sizes:
        first.append(length if size else None)
        length += size
    found = windows_of(length, first, longest)
    assert all(0 <= each.start < each.end <= length for each in found) or length == 0
    assert all(each.end - each.start <= longest for each in found)
    places = [place for place in first if place is not None]
    assert all(any(each.start <= place < each.end for each in found) for place in places)
    assert {each.start for each in found} <= {0, *places}
    ends = {length, *places}
    for each in found:  # a word is cut only where it is too long alone
        assert each.end in ends or not [p for p in places if each.start < p <= each.start + longest]


# Laws.


def test_a_text_does_not_depend_on_its_neighbours(
    moods: Classifier, tagger: Tagger, answerer: Answerer
) -> None:
    dice = random.Random(3)
    texts = [" ".join(understanding.noise(dice, 25)) for _ in range(12)]
    for text, each in zip(texts, moods.classify(texts)):
        assert each.probabilities == pytest.approx(moods.classify(text).probabilities, abs=1e-5)
    rows = [" ".join(word for word, _ in understanding.names(dice)) for _ in range(12)]
    for row, tagged in zip(rows, tagger.tag(rows)):
        alone = tagger.tag(row)
        assert [(e.type, e.start, e.end) for e in tagged.entities] == [
            (e.type, e.start, e.end) for e in alone.entities
        ]
        assert [w.probability for w in tagged.words] == pytest.approx(
            [w.probability for w in alone.words], abs=1e-5
        )
    pairs = [(str(q["question"]), str(q["context"])) for q in (understanding.asked(dice) for _ in range(12))]
    for pair, found in zip(pairs, answerer.answer_pairs(pairs)):
        alone_answer = answerer.answer(*pair)
        assert found.answers[0].text == alone_answer.text
        assert found.answers[0].score == pytest.approx(alone_answer.score, abs=1e-3)


SIGNS = st.text(
    st.one_of(
        st.sampled_from(list("aé'’-.,: \t\n\u00a0日本の語עבם\u0301\u200d\u200c\ufe0f👩🔬🏽हिन्दी①_0٣U.S.")),
        st.characters(),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(SIGNS)
def test_words_are_all_of_a_text_but_white_space(text: str) -> None:
    places = list(find_words(text))
    assert "".join(text[start:end] for start, end in places) == "".join(text.split())
    assert all(start < end for start, end in places)
    assert all(one[1] <= other[0] for one, other in pairwise(places))
    assert not any(sign.isspace() for start, end in places for sign in text[start:end])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ann's U.S. trip, don't!", ["Ann", "'s", "U.S.", "trip", ",", "do", "n't", "!"]),
        ("O’Brien’s German-born 2-1 l'eau", ["O’Brien", "’s", "German-born", "2-1", "l'eau"]),
        ("1,000.50 at 10:30... (x)--y", ["1,000.50", "at", "10:30", "...", "(", "x", ")", "--", "y"]),
        ("e\u0301te\u0301 हिन्दी می\u200cخواهم", ["e\u0301te\u0301", "हिन्दी", "می\u200cخواهم"]),
        ("我爱 👩\u200d🔬👍🏽❤\ufe0f!", ["我", "爱", "👩\u200d🔬", "👍🏽", "❤\ufe0f", "!"]),
        ("a.b.cd -x- 'tis", ["a", ".", "b", ".", "cd", "-", "x", "-", "'", "tis"]),
    ],
)
def test_words_as_conll_cuts_them(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in find_words(text)] == words


def test_words_of_a_hostile_text_take_no_time() -> None:
    for text in ("a." * 50_000 + "b", "a'" * 50_000, "." * 100_000, "1," * 50_000, "\u200d" * 100_000):
        assert sum(end - start for start, end in find_words(text)) == len(text)


@pytest.fixture(scope="module")
def opinionated(tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    """Random weights see entities everywhere."""
    place = tmp_path_factory.mktemp("random") / "m"
    foreign(place, BertForTokenClassification, TAGS)
    return load_as(Tagger, place, threads=1)


def test_offsets_of_any_text(opinionated: Tagger) -> None:
    seen = 0

    @settings(max_examples=60, deadline=None)
    @given(SIGNS, st.text(LETTERS, min_size=1), SIGNS)
    def check(before: str, word: str, after: str) -> None:
        nonlocal seen
        text = before + word + after
        found = opinionated.tag(text)
        assert found.text == text
        assert all(text[each.start : each.end] == each.text for each in found.entities)
        assert all(text[each.start : each.end] == each.text for each in found.words)
        assert all(one.end <= other.start for one, other in pairwise(found.entities))
        seen += len(found.entities)

    check()
    assert seen > 50


@QUIET
@given(SIGNS)
def test_offsets_of_answers_in_any_text(text: str) -> None:
    answerer = load_as(Answerer, understanding.model("answer"), threads=1)
    context = text + "zu"
    found = answerer.answer_pairs([("fu zu ?", context)], num_results=4, min_score=-1e9)[0].answers
    assert all(context[each.start : each.end] == each.text for each in found)
    assert all(each.text.strip() for each in found)
    assert len({(each.start, each.end) for each in found}) == len(found)


# What cannot be used is refused.


def test_refusals(moods: Classifier, tagger: Tagger, answerer: Answerer) -> None:
    assert moods.classify(["ba", "  "])[1].labels == ()
    with pytest.raises(UsageError, match="num_results = 0"):
        moods.classify("ba", num_results=0)
    with pytest.raises(UsageError, match="sentence 2: give a list of words"):
        tagger.tag_words([["ba"], ["ba", " "]])
    assert tagger.tag("  ").entities == ()
    assert answerer.answer(" ", "ba").text == ""
    with pytest.raises(UsageError, match="question 1: the context is empty"):
        answerer.answer("fu ?", "\n")
    with pytest.raises(UsageError, match=r"question 1: its 40 tokens leave no room .* reads 32"):
        answerer.answer("ba " * 39 + "ba", "ba de fi", on_too_long="error")
    assert answerer.answer("ba " * 39 + "ba", "ba de fi").truncated
    assert answerer.answer("ba " * 39 + "ba", "ba de fi", on_too_long="skip").skipped
    with pytest.raises(UsageError, match='a classify model; use "regard classify"'):
        load_as(Tagger, moods.folder.path)
    with pytest.raises(UsageError, match="ensembles are supported for translation only"):
        regard.load([moods.folder.path, moods.folder.path])


def test_a_checkpoint_of_a_run_can_be_used(answerer: Answerer) -> None:
    newest = max((answerer.folder.path / "checkpoints").iterdir())
    opened = regard.load(newest, threads=1)
    assert isinstance(opened, Answerer)
    assert opened.folder.may_refuse
    assert opened.answer("fu zu ?", "ba zu fi").text == "fi"
