"""Translations that go wrong: copied parts, second ways, languages that a model does not read, confidence."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Command, Refused, Toy, toy_config
from regard.config import Decode
from regard.errors import UsageError
from regard.evaluation.confidence import auc, fit_confidence
from regard.generation import Hypothesis
from regard.inputs.text import train_tokenizer
from regard.inputs.text.spans import find_spans
from regard.storage import models as builtin
from regard.storage.confidence import CONFIDENCE
from regard.tasks import Translator, load
from regard.tasks.confidence import FEATURES, features, language_of
from regard.tasks.guards import Checker, is_loop, repeats
from regard.tasks.letter_case import has_capital_sentence, letter_case, may_be_name, sentence_case
from regard.tasks.masking import fragments, lost_items, repair_number, split_edges
from regard.tasks.translation import Line, SegmentInput, segment
from served import served

pytestmark = pytest.mark.usefixtures("same_threads")
ITEMS = ("http://x.org/a", "bob@x.org", "{name}", "<b>", "1,500.00", "😊", "my_file.txt", "12:30")
SMALL = train_tokenizer(["a dog is a dog ."] * 9, "bpe", 300)
FRENCH = "Je ne sais pas quoi dire à mes amis."


@pytest.fixture(scope="module")
def english() -> Translator:
    """A real model of the package."""
    return Translator.load(builtin.PLACE / "tatoeba-en-de", "cpu", threads=1)


@pytest.fixture(scope="module")
def aware(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    """A toy model that was trained with placeholder tokens."""
    from regard.training import train

    folder, rng = tmp_path_factory.mktemp("aware"), random.Random(1)
    config = toy_config(folder, steps=600)
    for split in ("train", "valid", "test"):
        rows = []
        for line in (folder / f"{split}.tsv").read_text(encoding="utf-8").splitlines():
            source, target = (side.split() for side in line.split("\t"))
            if rng.random() < 0.7:  # the toy language is written backwards
                place, item = rng.randint(0, len(source)), rng.choice(ITEMS)
                source.insert(place, item)
                target.insert(len(target) - place, item)
            rows.append(f"{' '.join(source)}\t{' '.join(target)}\n")
        (folder / f"{split}.tsv").write_text("".join(rows), encoding="utf-8")
    text = config.text.model_copy(update={"placeholders": 10})
    train(config.model_copy(update={"text": text}), folder / "run")
    return Translator.load(folder / "run", "cpu", threads=1)


# --- parts that are copied


@given(st.text())
def test_nothing_is_lost_on_the_way_to_the_model(text: str) -> None:
    assert "".join(split_edges(text)) == text
    (part,) = [segment(text)]
    cuts = [(span.start, span.end) for span in find_spans(part.text)]
    pieces = fragments(part, cuts)
    assert (
        "".join(each.before + each.text + each.after for each in pieces)
        == part.before + part.text + part.after
    )


@pytest.mark.parametrize(
    ("text", "head", "core", "tail"),
    [
        ("- Where is he?", "- ", "Where is he?", ""),
        ("-Nobody.", "-", "Nobody.", ""),
        ("  * [ ] Buy milk. 😊", "  * [ ] ", "Buy milk.", " 😊"),
        ("12. Open it.", "12. ", "Open it.", ""),
        ("<i>Who is it?</i>", "<i>", "Who is it?", "</i>"),
        ("<i>Who</i> is it?", "", "<i>Who</i> is it?", ""),
        ("-5 degrees", "", "-5 degrees", ""),
        ("😊 Hi 😊😊", "😊 ", "Hi", " 😊😊"),
    ],
)
def test_edges_of_a_line(text: str, head: str, core: str, tail: str) -> None:
    assert split_edges(text) == (head, core, tail)


def test_lost_items() -> None:
    assert lost_items("It costs 1,500.00 EUR.", "Es kostet 1.500,00 EUR.") == ()
    assert lost_items("It costs 1,500.00 EUR.", "Es kostet 1500 Uhr.") == ("1,500.00 EUR",)
    assert lost_items("I have 5 dogs.", "Ich habe fünf Hunde.") == ()
    assert lost_items("I have 5 dogs.", "Ich habe 6 Hunde.") == ("5",)
    assert lost_items("At 5 pm.", "Um 17 Uhr.") == ()
    assert lost_items("Before 5:30 p.m. on May 3.", "Vor 17.30 Uhr am 3. Mai.") == ()
    assert lost_items("Before 5:30 pm.", "Vor 30 Uhr.") == ("5:30",)
    assert lost_items("See <b>http://x.org</b>.", "Siehe <b>.") == ("http://x.org", "</b>")
    assert repair_number("1987", "Ich wurde 1978 geboren.") == "Ich wurde 1987 geboren."


def test_a_model_with_placeholders_moves_and_copies(aware: Translator) -> None:
    assert aware.objective.placeholders == 10
    lines = [f"ba de {item} fi" for item in (*ITEMS, "ftp://never.seen/9", "🇩🇪", "{{ other }}")]
    results = aware.translate_lines(lines, alignment=True)
    for line, result in zip(lines, results):
        item = line.removeprefix("ba de ").removesuffix(" fi")
        assert result.text == f"If {item} Ed Ab" and not result.lost and not result.kept
        assert result.candidates[0].alignment is not None
        assert max(word for word, _ in result.candidates[0].alignment) == len(line.split()) - 1
    assert aware.translate("⟦3⟧ ba") == "Ab ⟦3⟧"
    many = " ".join(f"ba {number}" for number in range(1000, 1015))  # more than there are tokens
    assert aware.translate_lines(many).lost == ()
    best = aware.alternatives("ba http://x.org/a de", "Ed http://x.org/a")[0]
    assert (best.word, best.text) == ("Ab", "Ed http://x.org/a Ab")
    assert aware.alternatives("ba http://x.org/a de", "Ed")[0].text == "Ed http://x.org/a Ab"
    trace = aware.trace("ba http://x.org/a de")
    assert any("⟦" in token for token in trace.tokens["source"].texts)


# --- checks and second ways


def hypothesis_of(*tokens: int) -> Hypothesis:
    return Hypothesis(tokens, -1.0, -1.0, (-0.1,) * (len(tokens) + 1), True)


def test_repetition_is_measured_against_the_source() -> None:
    assert repeats([1, 2, 3]) == 1 and repeats([1, 1, 1, 2]) == 3 and repeats([5, 1, 2, 1, 2, 1, 2]) == 3
    assert is_loop([7, 8, 9], [1, 2, 2, 2]) and not is_loop([7, 7, 7], [2, 2, 2])
    assert is_loop([7] * 100, [2] * 50) and not is_loop([7] * 100, [2] * 95)
    vocabulary = ["Haus", "mein", "Mein", "Tom", "ist", "da", "Da", "."]
    tokenizer = train_tokenizer([" ".join(vocabulary)] * 9, "word", 300)
    assert sentence_case(tokenizer, "GOOD MORNING! AM I LATE?") == "Good morning! Am I late?"
    assert sentence_case(tokenizer, "MEIN HAUS IST DA. TOM IST DA.") == "Mein Haus ist da. Tom ist da."
    assert sentence_case(tokenizer, '"TOM? - (IST. "DA"') == '"Tom? - (Ist. "Da"'
    assert sentence_case(SMALL, "A DOG. A DOG") == "a dog. a dog"


def test_what_fails_is_tried_again_and_then_kept() -> None:
    """Two segments in one further batch; the one that no way helps stays as it is."""
    parts = [segment("first part, second part"), segment("fine")]
    line = Line("first part, second part fine", parts, [[4, 5, 6], [7]])
    inputs = [SegmentInput(0, 0, [4, 5, 6]), SegmentInput(0, 1, [7])]
    checker = Checker(
        Decode(), lambda texts: [[*range(len(text.split()))] for text in texts], lambda ids: "X", SMALL
    )
    loop, good = [hypothesis_of(1, 1, 1, 1)], [hypothesis_of(3)]
    rounds = checker.rounds([line], inputs, [loop, good], list)  # type: ignore[arg-type]
    requests = next(rounds)
    assert [each.options.no_repeat_ngram for each in requests] == [2]
    requests = rounds.send([loop])  # clause by clause
    assert len(requests) == 2
    with pytest.raises(StopIteration) as end:
        rounds.send([good, loop])
    (merged,), rest, outputs = end.value.value
    assert [each.kept for each in merged.segments] == [True, False] and outputs == [good]
    assert [(each.line, each.index) for each in rest] == [(0, 1)]
    assert merged.segments[0].after == "first part, second part"


BAD = {
    "nothing": ["", "   ", "?!... ---", "12345 678", "3.14 - 2 = 1.14", "😊" * 50, "a" * 10_000],
    "odd": [
        "\x00\x01Hello my \x07friend",
        "dog " * 500,
        f"I like cats. {FRENCH}",
        "GOOD MORNING, HOW ARE YOU?",
        "Hello! 😊 How are you?",
        "See http://example.org/a?b=1 now.",
        "The price is 1,234.50 EUR (incl. 19 % VAT).",
        "xkq zzvh qpwo rtmn vbx jjqp wwzz",
        FRENCH,
    ],
}


@pytest.mark.parametrize("name", ["tatoeba-en-de", "tatoeba-de-en"])
def test_bad_input(name: str) -> None:
    model = Translator.load(builtin.PLACE / name, "cpu", threads=1)
    assert [each.text for each in model.translate_lines(BAD["nothing"])] == BAD["nothing"]
    for result in model.translate_lines(BAD["odd"]):
        ids = [model.folder.source.encode(result.source), model.folder.target.encode(result.text)]
        assert not is_loop(*ids) and len(result.text) <= 3 * len(result.source) + 60
        assert not any(span.kind in ("url", "emoji") for span in find_spans(" ".join(result.lost)))


def test_a_text_that_names_its_task_is_read_as_a_whole(toy: Toy, tmp_path: Path) -> None:
    """Of "sentiment: 5 stars" a T5 copied the number, and checked that its label had it."""
    folder = shutil.copytree(
        toy.model, tmp_path / "t5", ignore=shutil.ignore_patterns("checkpoints", "SHA256SUMS")
    )
    content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    content["task_specific_params"] = {"one": {"prefix": "ba "}, "other": {"prefix": 3}, "more": None}
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    translator = Translator.load(folder, "cpu", threads=1)
    assert translator.folder.prefixes == ("ba ",)
    named, other = translator.translate_lines(["ba http://x.org/a de", "de http://x.org/a ba"])
    assert "http://x.org/a" not in named.text and not named.kept and not named.lost
    assert "http://x.org/a" in other.text


def test_capitals_emoji_and_layout(english: Translator) -> None:
    plain, capitals = english.translate(["Good morning, how are you?", "GOOD MORNING, HOW ARE YOU?"])
    assert capitals == plain.upper()
    assert english.translate("Hello! 😊 How are you? 👩‍👩‍👧‍👦").count("😊") == 1
    bare = english.translate("Where are you going?")
    for head in ("- ", "-", "* ", "1. ", "> ", "## "):
        assert english.translate(f"{head}Where are you going?") == head + bare
    lines = ["- Where are you going?", "GOOD MORNING, HOW ARE YOU?", "Hi {name}, see www.x.org now."]
    together = english.translate_lines(lines)
    assert together == [english.translate_lines(line) for line in lines], "batch = each line alone"


@pytest.mark.parametrize(
    ("text", "form", "is_name"),
    [
        ("GOOD MORNING", str.upper, False),
        ("Good Morning", str.title, True),
        ("The Old Man Sleeps", str.title, False),
        ("Good morning", None, False),
        ("good morning", str.lower, False),
        ("morning", None, False),
        ("Berlin", None, False),  # one word tells nothing
        ("NO", None, False),
    ],
)
def test_letter_case(text: str, form: Callable[[str], str] | None, is_name: bool) -> None:
    case = letter_case(text)
    assert case is form is None or (case is not None and form is not None and case("a b") == form("a b"))
    assert form is None or may_be_name(text) == is_name


def test_a_short_title_is_read_in_sentence_case_where_that_is_likelier(english: Translator) -> None:
    title, name, plain = english.translate(["Good Morning", "New York", "Good morning"])
    assert title.casefold() == plain.casefold()
    assert name == "New York"


def test_small_letters(english: Translator) -> None:
    small, plain = english.translate(["where is the train station", "Where is the train station"])
    assert small == plain.lower()


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Don’t go.", "Don't go."),
        ("She said, “What’s that?”", 'She said, "What\'s that?"'),
        ("The\u00a0cat\u00a0sleeps.", "The cat sleeps."),
        ("The con\u00adtract is long.", "The contract is long."),
        ("I don\u2019t know Rene\u0301.", "I don't know René."),
    ],
)
def test_typographic_signs_and_spaces_are_read_as_plain_ones(
    english: Translator, text: str, plain: str
) -> None:
    assert english.translate(text) == english.translate(plain)
    assert english.translate(text, check=False) != "" and english.translate_lines([text])[0].source == text


def test_plain_signs_are_not_taken_where_they_are_clearly_less_likely() -> None:
    german = Translator.load(builtin.PLACE / "tatoeba-de-en", "cpu", threads=1)
    text, plain = "Ich weiß – ich war da.", "Ich weiß - ich war da."
    assert german.translate(text) == german.translate(text, check=False) != german.translate(plain)


def test_words_in_another_script_are_copied(english: Translator) -> None:
    for name, word in (("in Москва", "Москва"), ("in 東京", "東京"), ("with हिन्दी", "हिन्दी")):
        assert english.translate(f"I was there {name}.").count(word) == 1
    assert english.translate("Я люблю книги.") == "Я люблю книги."


def test_lines_and_cells_are_translated_one_by_one(english: Translator) -> None:
    lines = ["- Where are you?", "- At home.", "", "The old man\t3\tThe cat", "| The old man | 80 |"]
    together = english.translate("\n".join(lines))
    assert together == "\n".join(english.translate(lines))
    assert together.split("\n")[3:] == ["Der alte Mann\t3\tDie Katze", "| Der alte Mann | 80 |"]
    assert [each[:2] for each in together.split("\n")[:3]] == ["- ", "- ", ""]


def test_a_sentence_in_capitals_among_others(english: Translator) -> None:
    text = "I am fine. WHERE IS MY BOOK? Thanks."
    assert has_capital_sentence(text) and not has_capital_sentence("I work for NASA. It is big.")
    parts = english.translate(["I am fine.", "WHERE IS MY BOOK?", "Thanks."])
    assert english.translate(text) == " ".join(parts)


def test_documents(regard: Command, tmp_path: Path) -> None:
    srt = tmp_path / "a.srt"
    srt.write_text("1\n00:00:01,000 --> 00:00:02,500\n- Who is it?\n-I don't know.\n", encoding="utf-8")
    shown = regard("translate", "-m", "tatoeba-en-de", srt).out.splitlines()
    assert shown[2].startswith("- ") and shown[3].startswith("-I")
    po = tmp_path / "a.po"
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    po.write_text(head + 'msgid "&File"\nmsgstr ""\n\nmsgid "&Open the door"\nmsgstr ""\n', encoding="utf-8")
    entries = {
        entry.msgid: entry for entry in polib.pofile(regard("translate", "-m", "tatoeba-en-de", po).out)
    }
    assert entries["&Open the door"].msgstr.count("&") == 1
    assert "ililil" not in entries["&File"].msgstr


# --- languages


def test_language_of_a_text() -> None:
    assert language_of("We have been waiting for the bus.", "en") == (None, 1.0)
    assert language_of(FRENCH, "en")[0] == "fr" and language_of("我的朋友住在很远的地方", "de")[0] == "zh"
    assert language_of("你好,你好吗?", "en")[0] in ("zh", "yue")
    assert language_of("Привет", "en")[0] is not None
    assert language_of("Taxi!", "en")[0] is None and language_of(FRENCH, "mul") == (None, 1.0)


def test_another_language_is_kept_refused_or_translated(
    english: Translator, regard: Command, refused: Refused
) -> None:
    result = english.translate_lines(FRENCH)
    assert (result.text, result.language, result.kept) == (FRENCH, "fr", True)
    asked = english.translate_lines(FRENCH, other_language="refuse")
    assert (asked.text, asked.refused, asked.language) == ("", True, "fr")
    forced = english.translate_lines(FRENCH, other_language="translate")
    assert forced.text not in ("", FRENCH) and not forced.kept
    mixed = english.translate(f"I like cats. {FRENCH}")
    assert mixed.endswith(FRENCH) and not mixed.startswith("I like")
    shown = regard("translate", "-m", "tatoeba-en-de", FRENCH)
    assert shown.code == 0 and shown.lines == [FRENCH] and '"fr", not "en"' in shown.err
    lines = f"I like cats.\n{FRENCH}\n"
    shown = regard("translate", "-m", "tatoeba-en-de", "--other-language", "refuse", stdin=lines)
    assert shown.code == 1 and len(shown.lines) == 2 and shown.lines[1] == "" and "refused" in shown.err


# --- confidence


def test_features_have_names() -> None:
    assert len(features("a text", [1, 2], [hypothesis_of(3)], ["ein Text"], 1.0, False)) == len(FEATURES)
    assert auc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([0, 0, 1, 1])) == 0.875


def test_confidence_is_fitted_stored_and_used(tmp_path: Path, regard: Command, refused: Refused) -> None:
    with pytest.raises(UsageError) as error:
        load("phrasebook-transformer", "cpu", threads=1).translate("I see it.", min_confidence=0.5)
    assert error.value.code == "E_CONFIDENCE"
    folder = tmp_path / "model"
    shutil.copytree(builtin.PLACE / "tatoeba-en-de", folder)
    (folder / CONFIDENCE).unlink(missing_ok=True)
    pairs = [
        ("I like cats.", "Ich mag Katzen."),
        ("I don't know.", "Ich weiß es nicht."),
        ("Go!", "Haus Boot!"),
    ] * 8
    measured = fit_confidence(folder, pairs, [FRENCH] * 10, threads=1)
    assert measured["texts"] == 12 and {*measured["warned"]} == {"everyday", "other-language", "nonsense"}
    assert "## Confidence" in (folder / "README.md").read_text(encoding="utf-8")
    fit_confidence(folder, pairs, [FRENCH] * 10, threads=1)
    assert (folder / "README.md").read_text(encoding="utf-8").count("## Confidence") == 1
    model = load(folder, "cpu", threads=1)
    good, bad = model.translate_lines(["I like cats.", "xkq zvh qpwo"])
    assert 0 <= bad.confidence < good.confidence <= 1
    row = json.loads(regard("translate", "-m", folder, "--json", "I like cats.").out)
    assert row["confidence"] == pytest.approx(good.confidence, abs=1e-6)
    shown = regard("translate", "-m", folder, "--min-confidence", "1", "I like cats.")
    assert shown.code == 1 and shown.lines == [""]
    with served(models={"own": model}) as server:
        body = {"text": [f"I like cats. {FRENCH}", "GOOD MORNING, HOW ARE YOU?"], "model": "own"}
        answer = httpx.post(f"{server.address}/api/v1/translate", json=body, timeout=60).json()
        form = {"q": "I like cats.", "source": "en", "target": "de", "alternatives": 2}
        more = httpx.post(f"{server.address}/translate", json=form, timeout=60).json()
    assert more["translatedText"] == good.text and 1 <= len(more["alternatives"]) <= 2
    first, second = answer["results"]
    assert first["kept"] and first["confidence"] == 0 and second["text"] == model.translate(body["text"][1])
    content = json.loads((folder / CONFIDENCE).read_text(encoding="utf-8"))
    (folder / CONFIDENCE).write_text(json.dumps(content | {"bias": "x"}), encoding="utf-8")
    assert '"bias"' in refused("translate", "-m", folder, "Hi")
