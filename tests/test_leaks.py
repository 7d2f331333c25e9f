"""Training lines in valid or test, and repeated pairs: against plain programs that compare all with all."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import leaks as bench
from regard.data import duplicates as duplicates_module
from regard.data import leaks as leaks_module
from regard.data.duplicates import duplicates, pair_hashes
from regard.data.fingerprints import LETTER_BASE, WORD_BASE, fingerprints, without_each_word, words
from regard.data.leaks import (
    APART,
    COMMON,
    EXACT,
    NEAR,
    NORMALISED,
    SHARED_ALONE,
    SHARED_LEAST,
    SHARED_TOGETHER,
    HeldOut,
    Leak,
    compare,
)
from regard.data.phrasebook import phrases

KINDS = ["exact", "normalised", "near"]


# -- a plain program: every training pair against every held-out pair -------------------------------------


class Line(NamedTuple):
    text: str
    words: tuple[str, ...]  # known by how the text was made, not by taking it apart


Pair = tuple[Line, Line]


def distance(one: tuple[str, ...], two: tuple[str, ...]) -> int:
    """Levenshtein's, over words."""
    row = list(range(len(two) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(two, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def match(own: Line, held: Line) -> tuple[int, int] | None:
    """The kind and the number of shared words."""
    if own.text == held.text:
        return (EXACT, 0) if own.text.strip() else None
    if "".join(own.words) == "".join(held.words):
        return (NORMALISED, 0) if own.words else None
    shared = min(len(own.words), len(held.words)) - (len(own.words) == len(held.words))
    return (NEAR, shared) if distance(own.words, held.words) == 1 and shared >= SHARED_LEAST else None


def rank(own: Pair, held: Pair) -> tuple[bool, int, int] | None:
    """How good a match is, the lowest being the best: one side only?, kind, number of the side."""
    sides = [match(own[0], held[0]), match(own[1], held[1])]
    alone = [side is not None and (side[0] != NEAR or side[1] >= SHARED_ALONE) for side in sides]
    source, target = sides
    if source and target and (any(alone) or source[1] + target[1] >= SHARED_TOGETHER):
        return False, max(source[0], target[0]), 0
    if not any(alone):
        return None
    return min((True, side[0], number) for number, side in enumerate(sides, 1) if side and alone[number - 1])


def all_with_all(sets: dict[str, list[Pair]], pairs: list[Pair]) -> list[Leak]:
    found = []
    for number, pair in enumerate(pairs):
        for split, held in sets.items():
            ranks = [(ranked, line) for line, other in enumerate(held) if (ranked := rank(pair, other))]
            for (_, kind, side), line in sorted(ranks)[:1]:
                found.append(Leak(number, KINDS[kind], ["both", "source", "target"][side], split, line))
    return found


def texts(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(source.text, target.text) for source, target in pairs]


@st.composite
def corpora(draw: st.DrawFn) -> tuple[dict[str, list[Pair]], list[Pair]]:
    """Lines over two or three words that descend from a few lines by changes of a word, case and signs."""
    roots = draw(st.lists(st.lists(st.sampled_from("ab"), max_size=9), min_size=1, max_size=3))

    def line() -> Line:
        found = list(draw(st.sampled_from(roots)))
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 1, 2]))):
            place = draw(st.integers(0, len(found)))
            found[place : place + draw(st.integers(0, 1))] = draw(st.lists(st.sampled_from("ac"), max_size=1))
        space = draw(st.sampled_from([" ", " ", " ", "  ", "; ", " ! ", "\u00a0", "\n"]))
        text = space.join(found) + draw(st.sampled_from(["", "", "", ".", "?!"]))
        return Line(text.upper() if draw(st.integers(0, 5)) == 0 else text, tuple(found))

    def pairs(most: int) -> list[Pair]:
        return [(line(), line()) for _ in range(draw(st.integers(0, most)))]

    return {"valid": pairs(4), "test": pairs(4)}, pairs(8)


@settings(deadline=None, max_examples=80)
@given(corpora())
def test_found_is_what_comparing_all_with_all_finds(given_: tuple[dict[str, list[Pair]], list[Pair]]) -> None:
    sets, pairs = given_
    held = HeldOut.of({split: texts(lines) for split, lines in sets.items()})
    assert held.find(texts(pairs)) == all_with_all(sets, pairs)


def test_a_word_that_repeats_makes_no_line_common() -> None:
    """Five spellings of one line, each without any of its four equal words, once looked like twenty lines."""
    spellings = ["b b b b", "B B B B", "b  b  b  b", "B  B  B  B", "b b b b."]
    held = HeldOut.of({"test": [(spelling, "x y z") for spelling in spellings]})
    assert held.find([("b b b", "x y z")]) == [Leak(0, "near", "both", "test", 0)]


def test_the_rule_of_short_and_long_lines() -> None:
    """Near on one side alone, on both sides together, or too short to be more than chance."""
    line = [f"w{number}" for number in range(SHARED_ALONE + 1)]

    def found(source: int, target: int) -> list[Leak]:
        """Of lines that share so many words."""
        held = " ".join(line[: source + 1]), " ".join(line[: target + 1])
        return HeldOut.of({"test": [held]}).find([(f"{held[0]}x", f"y{held[1]}")])

    assert found(SHARED_ALONE, 1) == [Leak(0, "near", "source", "test", 0)]
    assert found(1, SHARED_ALONE) == [Leak(0, "near", "target", "test", 0)]
    assert found(SHARED_ALONE, SHARED_LEAST) == [Leak(0, "near", "both", "test", 0)]
    assert found(6, SHARED_TOGETHER - 6) == [Leak(0, "near", "both", "test", 0)]
    assert found(6, SHARED_TOGETHER - 7) == []


@settings(deadline=None)
@given(*[st.lists(st.sampled_from(["a", "b", "ab"]), max_size=6)] * 2)
def test_compare_is_the_distance_of_the_words(one: list[str], two: list[str]) -> None:
    kind = compare(" ".join(one), " ".join(two))
    if one == two:
        assert kind == EXACT
    elif "".join(one) == "".join(two):
        assert kind == NORMALISED
    else:
        assert (kind == NEAR) == (distance(tuple(one), tuple(two)) == 1)


# -- what is the same line and what is not ----------------------------------------------------------------

HAN = "他昨天在图书馆里读了一本很有意思的旧书"


@pytest.mark.parametrize(
    ("own", "held", "kind"),
    [
        ("Straße", "STRASSE", NORMALISED),
        ("the ﬁrst Ｗｏｒｄ", "The first word.", NORMALISED),
        ("cafe\u0301", "CAFÉ", NORMALISED),
        ("don’t", "Don't", NORMALISED),
        ("don't", "dont", NORMALISED),
        ("well-known", "well known", NORMALISED),
        ("Quoi\u202f?", "quoi?", NORMALISED),
        ("so\u00adft hy\u200bphen", "soft hyphen", NORMALISED),
        ("« Ça va ? »", "ça va", NORMALISED),
        ("snake_case", "snake case", NORMALISED),
        ("我 喜欢。", "我喜欢！", NORMALISED),
        ("हिन्दी", "हनद", APART),  # marks are part of a word
        ("!!!", "???", APART),
        ("!!!", "!!!", EXACT),
        ("3.5", "35.", NORMALISED),
        ("", "...", APART),
    ],
)
def test_lines_alike_and_apart(own: str, held: str, kind: int) -> None:
    """Found by the hashes exactly where the words say so."""
    found = HeldOut.of({"test": [(held, "x")]}).find([(own, "y")])
    assert [leak.kind for leak in found] == ([] if kind == APART else [KINDS[kind]])
    assert compare(own, held) == (NEAR if kind == APART and words(own) else kind)  # few words: near, not told


@pytest.mark.parametrize("blank", ["", " ", "\t\u00a0", "\u3000"])
def test_nothing_is_not_a_line(blank: str) -> None:
    assert HeldOut.of({"test": [(blank, blank)]}).find([(blank, blank), ("", "")]) == []


@pytest.mark.parametrize(
    "changed", [HAN.replace("昨", "今"), HAN.replace("在", ""), HAN.replace("里", "里头，")]
)
def test_where_no_spaces_are_written_a_letter_is_a_word(changed: str) -> None:
    held = HeldOut.of({"valid": [], "test": [("x", "y"), (HAN, "z")]})
    assert held.find([(changed, "w")]) == [Leak(0, "near", "source", "test", 1)]


def test_such_a_letter_counts_half() -> None:
    def found(letters: int) -> list[Leak]:
        return HeldOut.of({"test": [(HAN[:letters], "z")]}).find([("今" + HAN[1:letters], "w")])

    assert found(2 * SHARED_ALONE + 1) == [Leak(0, "near", "source", "test", 0)]
    assert found(2 * SHARED_ALONE) == []


def test_words_of_mixed_scripts() -> None:
    line = "Don't stop: well-known 3.5% Ｆｏｏ Straße 我喜欢iPhone กำลัง हिन्दी _x_ … e\u0301"
    expected = "dont stop wellknown 35 foo strasse 我 喜 欢 iphone กํ า ลั ง हिन्दी x é"
    assert words(line) == expected.split()


# -- hashes -----------------------------------------------------------------------------------------------

ANY_LINE = st.text(st.characters() | st.sampled_from("ab .'-\n我กิ\u0301ß\ud800"), max_size=12)


def mixed(number: int) -> int:
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31


def polynomial(values: list[int], base: int) -> int:
    return sum(value * base**power for power, value in enumerate(values)) % 2**64


@settings(deadline=None)
@given(st.lists(ANY_LINE, max_size=6))
@example([])
@example([""])
@example(["", "a", ""])
@example(["\n", "a\nb"])
def test_hashes_are_the_polynomials_of_letters_and_words(lines: list[str]) -> None:
    """Computed in Python's own integers, line by line: the same in any company and in any process."""
    found = fingerprints(lines)
    whole, shorter = without_each_word(found)
    start = 0
    for number, line in enumerate(lines):
        parts = [mixed(polynomial([ord(letter) for letter in word], LETTER_BASE)) for word in words(line)]
        assert found.words[found.offsets[number] : found.offsets[number + 1]].tolist() == parts
        letters = [ord(letter) for word in words(line) for letter in word]
        if letters:
            assert found.letters[number] == mixed(polynomial(letters, LETTER_BASE))
        assert whole[number] == polynomial(parts, WORD_BASE)
        for place in range(len(parts)):
            assert shorter[start + place] == polynomial(parts[:place] + parts[place + 1 :], WORD_BASE)
        start += len(parts)
    assert start == len(found.words) == len(shorter)


def test_a_collision_is_not_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the hashes of all lines equal, only true copies would be told."""
    from dataclasses import replace

    def same(lines: list[str]) -> object:
        found = fingerprints(lines)
        return replace(found, letters=np.zeros_like(found.letters), words=np.zeros_like(found.words))

    monkeypatch.setattr(leaks_module, "fingerprints", same)
    held = HeldOut.of({"test": [("one", "eins"), ("two", "zwei"), ("Three!", "drei")]})
    found = held.find([("four", "vier"), ("two", "zwei"), ("five", "eins"), ("three", "sechs")])
    assert found == [
        Leak(1, "exact", "both", "test", 1),
        Leak(2, "exact", "target", "test", 0),
        Leak(3, "normalised", "source", "test", 2),
    ]


# -- portions, splits, repetition -------------------------------------------------------------------------


def test_portion_by_portion_is_the_same_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(phrase.english, phrase.german) for phrase in phrases("train", 3000)]
    held = HeldOut.of({"valid": pairs[5:3000:7], "test": [(s.upper(), t) for s, t in pairs[3:3000:11]]})
    at_once = held.find(pairs)
    assert {(leak.kind, leak.split) for leak in at_once} >= {("exact", "valid"), ("normalised", "test")}
    found = [
        (start + leak.pair, leak.kind, leak.side, leak.split, leak.line)
        for start in range(0, 3000, 171)
        for leak in held.find(pairs[start : start + 171])
    ]
    assert found == [(leak.pair, leak.kind, leak.side, leak.split, leak.line) for leak in at_once]
    monkeypatch.setattr(leaks_module, "CHARACTERS_AT_ONCE", 999)
    assert held.find(pairs) == at_once


def test_both_splits_are_told_and_repeated_lines_once() -> None:
    held = HeldOut.of({"valid": [("a", "b")], "test": [("c", "d"), ("a", "b"), ("a", "b"), ("a", "e")]})
    assert held.find([("x", "y"), ("a", "b"), ("a", "f"), ("g", "d")]) == [
        Leak(1, "exact", "both", "valid", 0),
        Leak(1, "exact", "both", "test", 1),
        Leak(2, "exact", "source", "valid", 0),
        Leak(2, "exact", "source", "test", 1),
        Leak(3, "exact", "target", "test", 0),
    ]


def test_a_moved_word_is_two_changes() -> None:
    held = HeldOut.of({"test": [("a b c d e f g h i j", "x y z"), ("u", "v")]})
    assert held.find([("b c d a e f g h i j", "k"), ("b c d a e f g h i j", "V")]) == [
        Leak(1, "normalised", "target", "test", 1)
    ]


def test_a_pattern_that_many_held_out_lines_share_is_no_copy() -> None:
    """Else a form with a gap would match every line with every line."""
    train = [("the report of the year {} is not yet ready", "-")]

    def found(lines: int) -> list[Leak]:
        held = [(train[0][0].format(number), f"{number}") for number in range(lines)]
        return HeldOut.of({"test": held}).find([(train[0][0].format("new"), "-"), held[3]])

    exact = Leak(1, "exact", "both", "test", 3)
    assert found(COMMON) == [Leak(0, "near", "source", "test", 0), exact]
    assert found(COMMON + 1) == [exact]


@pytest.mark.parametrize("sets", [{}, {"test": []}, {"valid": [], "test": [("", "")]}])
def test_nothing_held_out_nothing_found(sets: dict[str, list[tuple[str, str]]]) -> None:
    assert HeldOut.of(sets).find([("a", "b"), ("", "")]) == []
    assert HeldOut.of({"test": [("a", "b")]}).find([]) == []


def test_planted_copies_are_found() -> None:
    """A small sample of bench/leaks.py."""
    train, test = bench.phrasebook("train", 4000), list(bench.phrasebook("test", 200))
    result = bench.trial(train, 4000, test, plants=60, seed=5)
    found = result["found"]
    assert found["exact"] == found["normalised"] == 1.0
    assert found["near"] >= 0.9
    assert result["false_alarms"] <= 0.001


# -- duplicates -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 60), st.integers(1, 9))
def test_all_but_the_first_of_equal_pairs(numbers: list[int], sorted_at_once: int, scanned: int) -> None:
    """Whatever the number of buckets."""
    pairs = [(str(number), "x") for number in numbers]
    expected = [pair in pairs[:place] for place, pair in enumerate(pairs)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates_module, "SORTED_AT_ONCE", sorted_at_once)
        patch.setattr(duplicates_module, "SCANNED_AT_ONCE", scanned)
        assert duplicates(pair_hashes(pairs)).tolist() == expected


def test_buckets_are_no_larger_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    plain = duplicates_module._repeats
    monkeypatch.setattr(duplicates_module, "SORTED_AT_ONCE", 1000)
    monkeypatch.setattr(
        duplicates_module, "_repeats", lambda hashes: sizes.append(len(hashes)) or plain(hashes)
    )
    hashes = pair_hashes([(str(number), "") for number in range(9000)] * 2)
    found = duplicates(hashes)
    assert not found[:9000].any()
    assert found[9000:].all()
    assert sum(sizes) == 18000
    assert max(sizes) <= 1000


def test_hashes_of_pairs_are_blake2b_and_know_the_sides() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("a\0b", "c"), ("\ud800", "ß")]
    found = pair_hashes(pairs)
    assert len(set(found.tolist())) == len(pairs)
    expected = blake2b(b"a\xffbc", digest_size=8).digest()
    assert found[1] == int.from_bytes(expected, "little")
    assert len(pair_hashes([])) == len(duplicates(pair_hashes([]))) == 0
