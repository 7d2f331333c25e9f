"""Wishes, context and limits as a person meets them: what comes out, and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import regard as package
from conftest import Command, Refused
from regard.errors import UsageError
from regard.generation import decode
from regard.tasks import PhraseConstraints, Translator, decode_options
from regard.tasks.translation import LineSplitter


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Translator:
    return package.load(tiny_model, "cpu", 1)


pytestmark = pytest.mark.usefixtures("same_threads")


# Wishes


def test_required_and_forbidden_words(model: Translator) -> None:
    plain = model.translate("ba de fi")
    assert plain == "If Ed Ab"
    assert "Ug" not in plain
    wished = model.translate("ba de fi", require=["Ag"], forbid=["Ed"])
    assert "Ag" in wished.split()
    assert "Ed" not in wished.split()
    both = model.translate(["ba", "de fi"], require=["Ik Al"])
    assert all("Ik Al" in text for text in both)
    for beam in (1, 4):
        assert "Ab" not in model.translate("ba", forbid=["Ab"], beam=beam).split()
    assert "Ab" not in model.translate("ba", forbid=["Ab"], sample=True).split()


def test_each_line_has_its_own_wishes(model: Translator) -> None:
    lines = ["ba de", "ba de", "", "ba de"]
    wishes = [
        PhraseConstraints(),
        PhraseConstraints(require=("Ik",)),
        PhraseConstraints(require=("Ik",)),
        PhraseConstraints(forbid=("Ed",)),
    ]
    together = model.translate_lines(lines, constraints=wishes)
    for line, wish, found in zip(lines, wishes, together):
        assert model.translate_lines([line], constraints=[wish])[0] == found
        assert found.unmet == ()
    assert together[0] == model.translate_lines(["ba de"])[0]
    assert "Ik" in together[1].text
    assert together[2].text == ""
    assert "Ed" not in together[3].text


@pytest.mark.parametrize(
    ("wish", "options", "words"),
    [
        (PhraseConstraints(("Ab If",), ("If",)), {}, ["line 7", '"Ab If" is required', '"If" is forbidden']),
        (PhraseConstraints((" ",)), {}, ["line 7", "empty"]),
        (PhraseConstraints(("Ab If Ed",)), {"max_length": 2}, ["line 7", "take 3 tokens", "may have 2"]),
        (PhraseConstraints(("Ab",)), {"sample": True}, ["sample"]),
    ],
)
def test_what_cannot_be_is_said_before_the_work(model: Translator, wish, options, words) -> None:
    with pytest.raises(UsageError) as caught:
        model.translate_lines(
            ["ba"], decode_options(model.folder.decode, options), constraints=[wish], first_line=7
        )
    for word in words:
        assert word in str(caught.value)
    with pytest.raises(UsageError, match="the prefix contains"):
        model.translate_lines(["ba"], prefixes=["Ab"], constraints=[PhraseConstraints(forbid=("Ab",))])


@pytest.mark.parametrize(
    ("options", "code"), [({"lenght_penalty": 1}, "E_CONFIG_FIELD"), ({"temperature": -1}, "E_CONFIG_VALUE")]
)
def test_wrong_options_are_told_as_those_of_a_config(model: Translator, options, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode_options(model.folder.decode, options)
    assert caught.value.code == code and code not in str(caught.value)


def test_wishes_from_the_shell(regard: Command, refused: Refused, tiny_model: Path, tmp_path: Path) -> None:
    own = tmp_path / "wishes.jsonl"
    own.write_text('{"require": ["Ik"]}\n\n{"forbid": ["Ab"], "require": []}\n')
    options = ("translate", "-m", tiny_model, "--constraints", own)
    found = regard(*options, stdin="ba\nba\nba\n").lines
    assert "Ik" in found[0].split()
    assert found[1] == "Ab"
    assert "Ab" not in found[2].split()
    more = regard(*options, "--forbid", "If", "--require", "Ug", stdin="fi\nfi\nfi\n").lines
    assert all("Ug" in line.split() and "If" not in line.split() for line in more)
    assert "has 3 lines, the text has more" in refused(*options, stdin="ba\n" * 4)
    late = regard(*options, stdin="ba\n")
    assert late.code == 2
    assert "has 3 lines, the text 1" in late.err
    for content, words in (
        ("{", "not JSON"),
        ("[]", "write an object"),
        ('{"reqire": []}', "write an object"),
        ('{"require": "x"}', "a list of texts"),
        ('{"require": [1]}', "a list of texts"),
    ):
        own.write_text(content)
        message = refused(*options, stdin="ba")
        assert f"{own}, line 1" in message
        assert words in message


# Limits


def test_what_was_cut_is_said_once(regard: Command, refused: Refused, tiny_model: Path) -> None:
    long = " ".join(["ba"] * 100)
    text = f"ba\n{long}\nde\n{long}\n"
    options = ("translate", "-m", tiny_model, "--no-check")
    result = regard(*options, "--json", stdin=text)
    rows = [json.loads(line) for line in result.lines]
    assert [row["split"] for row in rows] == [False, True, False, True]
    assert result.err == (
        "2 lines, the first is 2: split between words, because a sentence is too long for the model "
        "(--on-too-long)\n"
    )
    skipped = regard(*options, "--on-too-long", "skip", stdin=text)
    assert skipped.lines == ["Ab", "", "Ed", ""]
    assert skipped.err == "2 lines, the first is 2: skipped: a sentence is too long for the model\n"
    row = json.loads(regard(*options, "--on-too-long", "skip", "--json", stdin=long).out)
    assert row["skipped"] is True
    assert row["candidates"][0]["finished"] is False
    message = refused(*options, "--on-too-long", "error", stdin=text)
    assert message.startswith("line 2: a sentence has more than the 63 tokens")


def test_an_unfinished_translation_is_marked(regard: Command, tiny_model: Path) -> None:
    result = regard("translate", "-m", tiny_model, "--set", "max_length=2", "--json", "ba", "ba de fi ga")
    rows = [json.loads(line) for line in result.lines]
    assert [row["candidates"][0]["finished"] for row in rows] == [True, False]
    assert result.err == "line 2: cut off at the length limit (decode.max_length)\n"
    assert len(rows[1]["candidates"][0]["tokens"]) == 2


def test_short_lines_are_tokenised_once(model: Translator) -> None:
    class Counting:
        """A tokenizer that counts what it is given."""

        given = 0

        def encode(self, text: str) -> list[int]:
            self.given += 1
            return model.folder.source.encode(text)

        def encode_batch(self, texts: list[str]) -> list[list[int]]:
            self.given += len(texts)
            return model.folder.source.encode_batch(texts)

    tokenizer = Counting()
    lines = ["ba de", " fi ", "", "ga"]
    cut = LineSplitter(tokenizer, above=10, longest=63).split(lines, ["auto"] * 4)  # type: ignore[arg-type]
    assert tokenizer.given == 4
    assert [line.sources for line in cut] == [[model.folder.source.encode(line.strip())] for line in lines]
    assert ["".join(p.before + p.text + p.after for p in line.segments) for line in cut] == lines


# Context


def by_hand(model: Translator, sentences: list[str], context: int) -> list[str]:
    """Each sentence with those before it, made to begin with what was said for them."""
    options = decode_options(model.folder.decode, {"beam": 2, "max_length": 5})
    said: list[str] = []
    for number in range(len(sentences)):
        first = max(0, number - context)
        source = model.folder.source.encode(" ".join(sentences[first : number + 1]))
        prefix = model.folder.target.encode(" ".join(said[first:])) if first < number else []
        sample = model.objective.source_sample(source)
        found = decode(model.engines[0], [sample], options, model.special, model.device, [prefix])[0][0]
        new = found.tokens[len(prefix) :]
        said.append(model.folder.target.decode(new) or model.translate(sentences[number], beam=2))
    return said


@pytest.mark.parametrize("context", [1, 2])
def test_context_is_read_and_not_repeated(model: Translator, context: int) -> None:
    sentences = ["Ba de.", "Fi ga ka.", "Le.", "Mi na."]
    options = decode_options(model.folder.decode, {"beam": 2, "context": context, "max_length": 5})
    line = " ".join(sentences)
    expected = by_hand(model, sentences, context)
    assert expected != by_hand(model, sentences, 0), "the context must make a difference"
    found = model.translate_lines([line, "ba", ""], options, split="always", num_results=2, alignment=True)
    assert found[0].text == " ".join(expected)
    assert found[1].text == "Ab"
    assert found[2].text == ""
    best = found[0].candidates[0]
    assert len(best.tokens) == len(best.token_log_probabilities)
    assert sum(best.token_log_probabilities) == pytest.approx(best.log_probability, abs=1e-4)
    assert {target for _, target in best.alignment or []} <= set(range(len(best.text.split())))


def test_context_gives_way_where_it_does_not_fit(model: Translator) -> None:
    """Thirty sentences with all before them are more than the model reads; the nearest ones are kept."""
    options = decode_options(model.folder.decode, {"beam": 1, "context": 99, "max_length": 6})
    line = " ".join(["Ba de fi ga."] * 30)
    found = model.translate_lines([line], options)[0]
    assert not found.split
    assert len(found.text) > 30
