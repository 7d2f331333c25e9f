"""The recipes of the package's English models: a teacher's words at those of a student, questions, sizes."""

from __future__ import annotations

import random
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import load
from regard.data.objectives.supervised import ContextWindow
from regard.storage import models as builtin

RECIPES = Path(__file__).parent.parent / "recipes"
MODULES = ("english", "cloze", "english_answers", "english_sentiment", "phrases")
LARGEST = 45_000_000  # bytes of all built-in models
PARAGRAPH = (
    "The bridge was opened by Anna Schmidt in 1897. It connects the old town with Norwich, and 2,400 people "
    "cross it every day. In winter, the stones of the bridge are covered by a thin layer of ice."
)


@pytest.fixture(scope="module")
def recipe() -> Any:
    sys.path.insert(0, str(RECIPES))
    modules = {name: import_module(name) for name in MODULES}
    yield modules.__getitem__
    sys.path.remove(str(RECIPES))


def cuts(places: list[int]) -> list[tuple[int, int]]:
    """Spans of letters between sorted places."""
    return list(pairwise(places))


places = st.lists(st.integers(0, 30), min_size=2, unique=True).map(sorted)


@given(theirs=places, ours=places, data=st.randoms(use_true_random=False))
def test_a_token_has_the_mean_of_the_states_whose_letters_it_shares(
    recipe: Any, theirs: list[int], ours: list[int], data: random.Random
) -> None:
    states = np.array([[data.random(), data.random()] for _ in cuts(theirs)], dtype=np.float32)
    found = recipe("english").at_spans(states, cuts(theirs), cuts(ours))
    for (begin, end), mean in zip(cuts(ours), found, strict=True):
        shared = [state for state, (first, last) in zip(states, cuts(theirs)) if first < end and last > begin]
        np.testing.assert_allclose(mean, np.mean(shared, axis=0) if shared else 0.0, atol=1e-5)


def test_the_answer_of_a_made_question_stands_in_the_text(recipe: Any) -> None:
    cloze, dice = recipe("cloze"), random.Random(1)
    found = [each for _ in range(400) if (each := cloze.question(PARAGRAPH, dice))]
    answers = {each["answers"][0]["text"] for each in found}
    assert {"Anna Schmidt", "1897", "Norwich", "2,400 people"} <= answers
    for each in found:
        place = each["answers"][0]
        assert PARAGRAPH[place["answer_start"] :].startswith(place["text"])
        assert each["question"].endswith("?") and place["text"] not in each["question"]


def test_the_teachers_probabilities_of_letters_become_those_of_tokens(recipe: Any) -> None:
    window = ContextWindow([2, 7, 1, 8, 9, 1], 3, [(0, 4), (5, 9)])  # <s> question </s> two words </s>
    letters = np.zeros((9, 2), dtype=np.float32)
    letters[5, 0], letters[0, 0], letters[8, 1] = 0.6, 0.2, 0.9  # begins at the second word, ends there
    p = recipe("english_answers").in_window(window, letters)
    np.testing.assert_allclose(p[:, 0], [0, 0, 0, 0.25, 0.75, 0], atol=1e-3)
    np.testing.assert_allclose(p[:, 1], [0, 0, 0, 0, 1, 0], atol=1e-3)
    letters[8, 1] = 0.3  # most of it lies outside of this window: it counts without the teacher
    assert len(recipe("english_answers").in_window(window, letters)) == 0


def test_a_text_has_the_teachers_probability_and_another_its_label(recipe: Any) -> None:
    tokenizer = load("english-sentiment").objective.tokenizer
    known = tokenizer.encode("it lacks charm")
    soft = recipe("english_sentiment").SoftLabels(
        tokenizer, 256, ["negative", "positive"], p={tuple(known): 42}, smoothing=0.1
    )
    other = tokenizer.encode("it has charm")
    assert [soft.sample(*row).labels for row in ((known, [1]), (other, [1]), (other, [0]))] == [
        [42],
        [950],
        [50],
    ]


def test_remarks_are_made_of_the_words_of_one_sign(recipe: Any, tmp_path: Path) -> None:
    phrases, dice = recipe("phrases"), random.Random(1)
    for part in ("adj", "adv", "noun", "verb"):
        (tmp_path / f"index.{part}").write_text(
            "  1 a head line\nbad n 1\nfine n 1\nround n 1\ntwo_words n 1\n"
        )
    words = phrases.make_words(tmp_path, {"bad": -2.5, "fine": 1.9, "round": 0.1}, ["bad fine round"])
    assert words["a"].signed == (["bad"], ["fine"]) and words["a"].all == ["bad", "fine", "round"]
    made = list(phrases.make_phrases(words, 200, dice))
    assert all("{" not in text and "two_words" not in text for text in made)
    signs = [{sign for sign in ("bad", "fine") if sign in text.lower()} for text in made]
    assert sum(len(each) == 1 for each in signs) > 100
    variants = " ".join(phrases.make_variant("It is round", words, dice) for _ in range(20)).split()
    assert {"It", "is", "bad", "fine"} <= set(variants) <= {"It", "is", "bad", "fine", "round"}


def test_the_built_in_models_stay_small() -> None:
    assert sum(file.stat().st_size for file in builtin.PLACE.rglob("*") if file.is_file()) < LARGEST
