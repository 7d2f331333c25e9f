"""Gaps filled: what BERT guesses and T5 writes, and that texts are cut around a gap as training cut them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertForMaskedLM

from conftest import Command, Refused
from regard.config import Config
from regard.errors import UsageError
from regard.inputs.text import Tokenizer, load_tokenizer, train_tokenizer
from regard.models.families import Model
from regard.sample import IGNORED, Sample
from regard.tasks.filler import Filler, GapCutter, GapSpan
from small_models import opened, small_config, small_model, teach, written

pytestmark = pytest.mark.usefixtures("same_threads")
SAYS = dict(
    zip(["cat", "dog", "cow", "duck", "pig", "owl"], ["meow", "woof", "moo", "quack", "oink", "hoot"])
)
LINES = [f"the {animal} says {sound}." for animal, sound in SAYS.items()]
SIGNS = tuple(f"<extra_id_{number}>" for number in range(4))
Trained = tuple[Config, Model, Tokenizer]


@pytest.fixture(scope="module")
def bert() -> Trained:
    tokenizer = train_tokenizer(LINES, "word", 300, ["<mask>"])
    config = small_config("fill", "bert")
    model = small_model(config, tokenizer)
    mask = tokenizer.mask
    assert mask is not None

    def hidden(ids: Sequence[int], place: int) -> Sample:
        """As HiddenWords: one piece is read as the mask, and asked for."""
        read = [mask if at == place else piece for at, piece in enumerate(ids)]
        asked = [piece if at == place else IGNORED for at, piece in enumerate(ids)]
        return Sample(source=[tokenizer.start, *read, tokenizer.end], labels=[IGNORED, *asked, IGNORED])

    rows = [tokenizer.encode(line) for line in LINES]
    samples = [hidden(row, place) for row in rows for place in range(len(row))]
    teach(model, lambda step: samples, 100, 1e-2)
    return config, model, tokenizer


@pytest.fixture(scope="module")
def t5() -> Trained:
    tokenizer = train_tokenizer(LINES, "word", 300, SIGNS)
    config = small_config("fill", "t5")
    model = small_model(config, tokenizer)
    signs, end = tokenizer.sentinels, tokenizer.end

    def cut(ids: Sequence[int], places: Sequence[int], size: int) -> Sample:
        """As HiddenSpans: `the <X> says <Y> .` and `<X> cat <Y> meow <Z>`."""
        read, said, last = [], [], 0
        for sign, place in zip(signs, places):
            read += [*ids[last:place], sign]
            said += [sign, *ids[place : place + size]]
            last = place + size
        said += [signs[len(places)], end]
        return Sample([*read, *ids[last:], end], [tokenizer.start, *said[:-1]], said)

    rows = [tokenizer.encode(line) for line in LINES]
    samples = [cut(row, [place], size) for row in rows for size in (1, 2) for place in range(1, 6 - size)]
    samples += [cut(row, places, 1) for row in rows for places in ([0, 3], [2, 3], [1, 4])]
    teach(model, lambda step: samples, 400, 5e-3)
    return config, model, tokenizer


@pytest.fixture(scope="module")
def guesser(bert: Trained) -> Filler:
    return Filler(opened(*bert))


@pytest.fixture(scope="module")
def writer(t5: Trained) -> Filler:
    return Filler(opened(*t5))


# BERT


def test_a_gap_that_the_text_decides(guesser: Filler) -> None:
    for animal, sound in SAYS.items():
        found = guesser.fill(f"the {animal} says <mask>.")
        assert found.text == f"the {animal} says {sound}."
        assert found.guesses[0][0].text == sound
        assert found.candidates[0].probability == found.guesses[0][0].probability > 0.5
        assert guesser.fill(f"the <mask> says {sound}.").text == f"the {animal} says {sound}."
    assert guesser.fill("<mask> cow says moo.").text == "the cow says moo."
    assert guesser.fill("the cow says moo<mask>").text == "the cow says moo."


def test_a_gap_may_be_written_in_three_ways(guesser: Filler) -> None:
    texts = [f"the dog says {gap}." for gap in ("<mask>", "[MASK]", "___", "______")]
    found = guesser.fill(texts)
    assert [each.source for each in found] == texts
    assert {each.text for each in found} == {"the dog says woof."}


def test_guesses_are_probabilities_best_first(guesser: Filler) -> None:
    (gap,) = guesser.fill("the dog says <mask>.", num_results=1000).guesses
    silent = {*guesser.tokenizer.suppressed, guesser.tokenizer.end}
    assert len(gap) == len(guesser.tokenizer) - len(silent)
    told = [guess.probability for guess in gap]
    assert told == sorted(told, reverse=True)
    assert 0.9 < math.fsum(told) <= 1 + 1e-6


def test_several_gaps_are_guessed_each_by_itself(guesser: Filler) -> None:
    found = guesser.fill("the owl <mask> <mask>.", num_results=4)
    assert found.text == "the owl says hoot."
    pairs = [(one, two) for one in found.guesses[0] for two in found.guesses[1]]
    best = sorted((one.probability * two.probability for one, two in pairs), reverse=True)[:4]
    assert [each.probability for each in found.candidates] == pytest.approx(best)
    assert len({each.text for each in found.candidates}) == 4


def test_a_text_does_not_depend_on_its_neighbours(guesser: Filler, writer: Filler) -> None:
    texts = ["the <mask> says moo.", "the cat <mask> <mask>.", "<mask>", "the pig says <mask>."]
    for filler in (guesser, writer):
        assert filler.fill(texts) == [filler.fill(text) for text in texts]


def test_probabilities_are_those_of_transformers(bert: Trained, guesser: Filler, tmp_path: Path) -> None:
    config, model, tokenizer = bert
    theirs = BertForMaskedLM.from_pretrained(written(tmp_path, config, model, tokenizer)).eval()
    ids = [
        tokenizer.start,
        *tokenizer.encode("the"),
        tokenizer.mask,
        *tokenizer.encode("says moo."),
        tokenizer.end,
    ]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0, 2].softmax(dim=0)
    (gaps,) = guesser.guess([guesser.split_gaps("the <mask> says moo.", "")], 6)
    for span in gaps[0]:
        assert math.exp(span.log_probability) == pytest.approx(float(expected[span.ids[0]]), rel=1e-3)


# T5


def test_spans_are_written(writer: Filler) -> None:
    for animal, sound in SAYS.items():
        whole = f"the {animal} says {sound}."
        assert writer.fill(f"the {animal} says <mask>.").text == whole
        assert writer.fill(f"the {animal} <mask>.").text == whole  # two pieces in one gap
        assert writer.fill(f"the {animal} <mask> <mask>.").text == whole
    found = writer.fill("the cow <mask> <mask>.", num_results=3)
    assert [own[0].text for own in found.guesses] == ["says", "moo"]
    assert len(found.candidates) == 3
    told = [each.probability for each in found.candidates]
    assert 1 >= told[0] > 0.5
    assert found.candidates[0].text == "the cow says moo."


def test_a_sign_that_was_not_written_is_an_empty_guess(writer: Filler) -> None:
    from regard.generation import Hypothesis

    signs, words = writer.tokenizer.sentinels, writer.tokenizer.encode("cat says")
    tokens = (words[0], signs[1], *words, signs[3], words[0])
    said = Hypothesis(tokens, -6.0, -6.0, (-1.0,) * 6, finished=True)
    assert writer.spans_of(said, 3) == [
        GapSpan((), -math.inf),
        GapSpan(tuple(words), -2.0),
        GapSpan((), -math.inf),
    ]


# texts around a gap


@given(
    st.lists(
        st.sampled_from(["the", "cat", "says", "moo", ".", "(", "x1", "\u00e9t\u00e9", "'s"]), min_size=1
    ),
    st.sampled_from(["word", "bpe", "unigram"]),
    st.data(),
)
def test_a_text_is_cut_as_without_the_gap(words: list[str], kind: str, data: st.DataObject) -> None:
    """A word whose piece is taken out leaves the pieces that it had around it in the whole text."""
    tokenizer = KINDS[kind]
    place = data.draw(st.integers(0, len(words) - 1))
    text = " ".join(words)
    gap = " ".join([*words[:place], "<mask>", *words[place + 1 :]])
    found = GapCutter(tokenizer).cut(gap)
    before = tokenizer.encode(" ".join(words[:place]))
    until = tokenizer.encode(" ".join(words[: place + 1]))
    whole = tokenizer.encode(text)
    assert found.ids == [before, whole[len(until) :]]
    span = GapSpan(tuple(whole[len(before) : len(until)]), 0.0)
    assert GapCutter(tokenizer).join(found, [span]) == text


KINDS = {
    kind: train_tokenizer([*LINES, "(x1 \u00e9t\u00e9's)"], kind, 320, ["<mask>"])
    for kind in ("word", "bpe", "unigram")
}
CHARACTERS = train_tokenizer(LINES, "character", 300, ["<mask>"])


@pytest.mark.parametrize("glued", [".", "'s", "s", ")", "1", "\u00e9", "\n", "  two"])
def test_what_follows_a_gap_at_once_has_no_space(glued: str) -> None:
    for tokenizer in (*KINDS.values(), CHARACTERS):
        ids = GapCutter(tokenizer).cut(f"the <mask>{glued} cat").ids[1]
        content = b"".join(tokenizer.token_bytes[piece] or b"" for piece in ids)
        assert content.decode() == f"{glued} cat"


def test_a_character_may_be_missing() -> None:
    """No piece holds a space and more, so the space before the gap is a piece that stays."""
    cutter = GapCutter(CHARACTERS)
    found = cutter.cut("the c<mask>t says")
    assert [CHARACTERS.decode(ids) for ids in found.ids] == ["the c", "t says"]
    assert cutter.join(found, [GapSpan(tuple(CHARACTERS.encode("a")), 0.0)]) == "the cat says"
    spaced = cutter.cut("the <mask>at")
    assert CHARACTERS.decode(spaced.ids[0]) == "the "
    assert cutter.join(spaced, [GapSpan(tuple(CHARACTERS.encode("c")), 0.0)]) == "the cat"


def test_pieces_of_wordpiece(tmp_path: Path) -> None:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sleep", "."]
    (tmp_path / "vocab.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    cutter = GapCutter(tokenizer)
    found = cutter.cut("The [MASK] sleep.")
    assert found.ids == [[5], [8, 9]]
    assert cutter.join(found, [GapSpan((6,), 0.0)]) == "The cat sleep."
    assert cutter.join(cutter.cut("The cat <mask> sleep."), [GapSpan((7,), 0.0)]) == "The cats sleep."


# what cannot be filled


def test_a_text_without_a_gap(guesser: Filler) -> None:
    with pytest.raises(UsageError, match='"the cat" has no gap; write <mask> where a word is missing'):
        guesser.fill("the cat")
    assert guesser.fill("").candidates == []
    with pytest.raises(UsageError, match=r'"a{37}\.\.\." has no gap'):
        guesser.fill("a" * 100)


def test_too_much(guesser: Filler, writer: Filler) -> None:
    for filler in (guesser, writer):
        with pytest.raises(UsageError, match="the text has 15 tokens, but the model reads 14"):
            filler.fill("the " * 14 + "<mask>", on_too_long="error")
        cut = filler.fill("the " * 14 + "<mask>")
        assert cut.truncated
        assert cut.text.startswith("the " * 13)
        assert filler.fill("the " * 14 + "<mask>", on_too_long="skip").skipped
    with pytest.raises(UsageError, match="the text has 4 gaps, the model has sentinels for 3"):
        writer.fill("<mask> <mask> <mask> <mask>")


def test_another_kind_of_model_is_refused(bert: Trained) -> None:
    tokenizer = bert[2]
    for task, family in (("generate", "gpt"), ("classify", "bert"), ("translate", "transformer")):
        config = small_config(task, family)
        with pytest.raises(UsageError, match="was not trained to fill gaps"):
            Filler(opened(config, small_model(config, tokenizer), tokenizer))


# the command


@pytest.fixture(scope="module")
def folder(bert: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("models") / "bert", *bert)


def test_lines_in_lines_out(regard: Command, folder: Path, tmp_path: Path) -> None:
    lines = "the cat says <mask>.\n\nthe <mask> says moo.\n"
    expected = ["the cat says meow.", "", "the cow says moo."]
    assert regard("fill", "-m", folder, stdin=lines).lines == expected
    (tmp_path / "text").write_text(lines, encoding="utf-8")
    assert regard("fill", "-m", folder, tmp_path / "text").lines == expected
    assert regard("fill", "-m", folder, "the cat says <mask>.").lines == expected[:1]
    out = tmp_path / "out"
    assert "wrote 3 lines" in regard("fill", "-m", folder, tmp_path / "text", "-o", out).err
    assert out.read_text(encoding="utf-8").split("\n") == [*expected, ""]


def test_more_than_the_best(regard: Command, folder: Path, guesser: Filler) -> None:
    text = "the cat says <mask>."
    found = guesser.fill(text, num_results=3)
    best = found.candidates[0]
    scored = regard("fill", "-m", folder, text, "--scores").lines
    assert scored == [f"{best.probability:.4f}\t{best.text}"]
    several = regard("fill", "-m", folder, text, "--num-results", 3).lines
    assert several == [f"1 ||| {each.text} ||| {each.probability:.4f}" for each in found.candidates]
    blank, row = (
        json.loads(line) for line in regard("fill", "-m", folder, "--json", stdin=f"\n{text}").lines
    )
    assert (blank["line"], blank["source"], blank["text"]) == (1, "", "")
    assert (blank["candidates"], blank["guesses"]) == ([], [])
    assert row["line"] == 2
    assert row["text"] == best.text
    assert row["candidates"][0] == {"text": best.text, "probability": pytest.approx(best.probability)}
    assert [guess["text"] for guess in row["guesses"][0][:3]] == [guess.text for guess in found.guesses[0]]
    assert len(row["guesses"][0]) == 5


def test_help_names_every_way_to_write_a_gap(regard: Command) -> None:
    """Square brackets are markup there, and were swallowed."""
    told = regard("fill", "--help").out
    assert all(gap in told for gap in ("<mask>", "[MASK]", "three underscores"))


def test_what_is_wrong_is_said_with_its_line(refused: Refused, folder: Path) -> None:
    wrong = refused("fill", "-m", folder, stdin="the <mask>\n\nthe cat\n")
    assert wrong.startswith('line 3: "the cat" has no gap')
    assert 'use "regard fill"' in refused("generate", "-m", folder, "the")
    assert "cannot score texts" in refused("score", "-m", folder, "-")


def test_spans_by_the_command(regard: Command, t5: Trained, tmp_path: Path) -> None:
    model = written(tmp_path, *t5)
    assert regard("fill", "-m", model, "the owl <mask>.").lines == ["the owl says hoot."]
    several = regard("fill", "-m", model, "the owl <mask>.", "--num-results", 3).lines
    assert len({line.split(" ||| ")[1] for line in several}) == len(several) > 1, "each text once"
