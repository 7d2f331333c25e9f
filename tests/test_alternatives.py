"""Next words after a beginning: against all words computed one by one, and as a person asks for them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import regard as package
from conftest import Command, Refused
from regard.batch import collate
from regard.generation import SpecialTokens
from regard.generation.alternatives import next_words
from regard.generation.constraints import Lexicon
from regard.sample import Sample
from samples import END, START, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
PIECES = [b" a", b"b", b" ab", b" b", b".", b"a"]
LEXICON = Lexicon([None] * 4 + PIECES, lambda text: [], END)
CONTINUING = {4 + PIECES.index(piece) for piece in (b"b", b"a")}


def probabilities(model, source, words) -> torch.Tensor:
    """p of every token after these, teacher-forced: [V]."""
    batch = collate([Sample(source, [START, *words], [*words, END])])
    return model(batch)[0, len(words)].double().softmax(0)


@torch.no_grad()
def every_word(model, source, prefix, longest: int) -> dict[str, float]:
    """p(word) = sum over its cuts of p(pieces) * p(what follows is not glued to it)."""
    found: dict[str, float] = defaultdict(float)
    found[""] = float(probabilities(model, source, prefix)[END])
    begun = [((), 1.0)]
    for _ in range(longest):
        following = []
        for pieces, before in begun:
            p = probabilities(model, source, [*prefix, *pieces])
            for number in range(4, 4 + len(PIECES)):
                glued = number in CONTINUING and ((pieces and pieces[-1] != 8) or (not pieces and prefix))
                if bool(pieces) != bool(glued):
                    continue  # the first piece begins a word, the others go on with it
                following.append(((*pieces, number), before * float(p[number])))
            if pieces:
                over = [n for n in range(4, 10) if n not in CONTINUING or pieces[-1] == 8] + [END]
                found[LEXICON.text_of(pieces).strip()] += before * float(p[over].sum())
        begun = following
    return found


@pytest.mark.parametrize("prefix", [(), (4,), (6, 5)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_words_and_their_probabilities(seed, prefix):
    model, source = small(seed, vocabulary=10), [4, 6, END]
    expected = every_word(model, source, prefix, longest=5)
    best = sorted(expected.items(), key=lambda item: -item[1])[:3]
    found = next_words(model, Sample(source=source), prefix, 3, SPECIAL, LEXICON, torch.device("cpu"))
    assert [word.text for word in found] == [text for text, _ in best]
    for word, (_, probability) in zip(found, best):
        # rare ways to cut a word may be missing, nothing may be too much
        assert 0.9 * probability <= math.exp(word.log_probability) <= 1.001 * probability
        assert LEXICON.text_of(word.tokens).strip() == word.text


@pytest.mark.usefixtures("same_threads")
def test_alternatives_are_words_with_their_endings(tiny_model: Path) -> None:
    model = package.load(tiny_model, "cpu", 1)
    found = model.alternatives("ba de fi", "If", num_results=4)
    assert len({each.word for each in found}) == 4
    assert found[0].word == "Ed"
    assert found[0].text == model.translate("ba de fi") == "If Ed Ab"
    log_p = [each.log_probability for each in found]
    assert log_p == sorted(log_p, reverse=True)
    assert sum(map(math.exp, log_p)) <= 1.001
    for each in found:
        assert each.text.split()[:2] == ["If", each.word] if each.word else each.text == "If"
    assert model.alternatives("ba", "")[0].text == "Ab"


def test_from_the_shell(regard: Command, refused: Refused, tiny_model: Path) -> None:
    rows = [
        line.split("\t")
        for line in regard("translate", "-m", tiny_model, "--alternatives", "If", "ba de fi", "fi").lines
    ]
    assert [row[0] for row in rows] == ["1"] * 5 + ["2"] * 5
    assert rows[0][2:] == ["Ed", "If Ed Ab"]
    assert ["", "If"] in [row[2:] for row in rows[5:]]  # the translation of "fi" may end there
    options = ("--alternatives", "If ", "--num-results", 2, "--json")
    found = json.loads(regard("translate", "-m", tiny_model, *options, "ba de fi").out)
    assert list(found) == ["line", "source", "prefix", "alternatives", "precision"]
    assert [each["word"] for each in found["alternatives"]] == [row[2] for row in rows[:2]]
    assert found["alternatives"][0]["text"] == "If Ed Ab"
    assert float(rows[0][1]) == pytest.approx(found["alternatives"][0]["word_log_probability"], abs=1e-4)
    assert "too long" in refused("translate", "-m", tiny_model, "--alternatives", "If", "ba " * 99)
    message = refused(
        "translate",
        "-m",
        tiny_model,
        "--alternatives",
        "If",
        "--forbid",
        "Ed",
        "--scores",
        "--split",
        "never",
        "ba",
    )  # words that were forbidden were offered
    assert "--scores, --require, --forbid or --constraints, --split: not with --alternatives" in message
