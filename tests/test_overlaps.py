"""Leaks and duplicates, compared with programs that compare every row with every other."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import overlaps
from regard.data.overlaps import HeldOutIndex, Match, repeated, row_hashes

Line = tuple[str, str]  # a text, and its letters, which are known from how the text was made
Row = tuple[Line, Line]


def brute_force(rows: list[Row], row: Row) -> Match | None:
    """The closest of all matches."""
    matches = []
    for number, other in enumerate(rows):
        exact = [own[0] == theirs[0] and own[0].strip() != "" for own, theirs in zip(row, other)]
        normal = [a or (own[1] == theirs[1] != "") for a, own, theirs in zip(exact, row, other)]
        for kind, sides in enumerate((exact, normal)):
            matches += [(False, kind, 0, number)] if all(sides) else []
            matches += [(True, kind, side, number) for side in (1, 2) if sides[side - 1]]
    if not matches:
        return None
    _, kind, side, number = min(matches)
    return Match(("exact", "normalised")[kind], ("both", "source", "target")[side], number)


@st.composite
def lines(draw: st.DrawFn) -> Line:
    words = draw(st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3))
    space = draw(st.sampled_from([" ", "  ", "; ", "\u00a0", "\n", " - "]))
    text = space.join(words) + draw(st.sampled_from(["", "", ".", "?!"]))
    return text.upper() if draw(st.booleans()) else text, "".join(words)


ROWS = st.lists(st.tuples(lines(), lines()), max_size=8)


@settings(deadline=None, max_examples=200)
@given(ROWS, ROWS)
def test_the_closest_match_of_all(rows: list[Row], train: list[Row]) -> None:
    index = HeldOutIndex([(source[0], target[0]) for source, target in rows])
    for row in train:
        assert index.find(row[0][0], row[1][0]) == brute_force(rows, row)


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("Straße", "STRASSE", "normalised"),
        ("the ﬁrst Ｗｏｒｄ", "The first word.", "normalised"),
        ("cafe\u0301", "CAFÉ", "normalised"),
        ("don’t", "Don't", "normalised"),
        ("don\u02bct", "dont", "normalised"),
        ("well-known", "well known", "normalised"),
        ("Quoi\u202f?", "quoi?", "normalised"),
        ("so\u00adft hy\u200bphen", "soft hyphen", "normalised"),
        ("« Ça va ? »", "ça va", "normalised"),
        ("snake_case", "snake case", "normalised"),
        ("我 喜欢。", "我喜欢！", "normalised"),
        ("3.5", "35.", "normalised"),
        ("a\ufe0f", "a", "normalised"),
        ("!!!", "!!!", "exact"),
        ("हिन्दी", "हनद", None),  # combining marks are part of a word
        ("!!!", "???", None),
        ("", "...", None),
        (
            "7\n\u2800\u28ff",
            "7\n\u28ff\u2800",
            None,
        ),  # pictures as text: every picture of a seven once was a leak
        ("a small dog", "a small cat", None),  # one word apart is not a copy
    ],
)
def test_texts_that_match(one: str, other: str, kind: str | None) -> None:
    match = HeldOutIndex([(other, "x")]).find(one, "y")
    assert (match and match.kind) == kind


@pytest.mark.parametrize("blank", ["", " ", "\t\u00a0", "\u3000"])
def test_white_space_matches_nothing(blank: str) -> None:
    assert HeldOutIndex([(blank, blank), (blank, "a")]).find(blank, blank) is None


def test_a_shared_side_is_found_in_other_pairs() -> None:
    index = HeldOutIndex([("c", "d"), ("a", "b"), ("a", "b"), ("a", "e")])
    assert index.find("x", "y") is None
    assert index.find("a", "b") == Match("exact", "both", 1)
    assert index.find("A", "b") == Match("normalised", "both", 1)
    assert index.find("a", "e") == Match("exact", "both", 3)
    assert index.find("a", "f") == Match("exact", "source", 1)
    assert index.find("g", "d") == Match("exact", "target", 0)
    assert index.find("C", "b") == Match("exact", "target", 1)  # exact before normalised


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 60))
def test_all_but_the_first_of_equal_rows_are_repeated(numbers: list[int], sorted_at_once: int) -> None:
    rows = [(str(number), "x") for number in numbers]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlaps, "SORTED_AT_ONCE", sorted_at_once)  # any number of buckets
        assert repeated(row_hashes(rows)).tolist() == [row in rows[:n] for n, row in enumerate(rows)]


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    argsort = np.argsort
    monkeypatch.setattr(overlaps, "SORTED_AT_ONCE", 1000)
    monkeypatch.setattr(np, "argsort", lambda array, **kw: sizes.append(len(array)) or argsort(array, **kw))
    is_repeated = repeated(row_hashes([(str(number), "") for number in range(9000)] * 2))
    assert not is_repeated[:9000].any()
    assert is_repeated[9000:].all()
    assert sum(sizes) == 18000
    assert max(sizes) <= 1000


def test_hashes_of_rows_are_blake2b_of_both_sides() -> None:
    rows = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("a\0b", "c"), ("\ud800", "ß")]
    hashes = row_hashes(rows)
    assert len(set(hashes.tolist())) == len(rows)
    expected = blake2b(b"a\xffbc", digest_size=8).digest()
    assert hashes[1] == int.from_bytes(expected, "little")
    assert len(row_hashes([])) == len(repeated(row_hashes([]))) == 0
