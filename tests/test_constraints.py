"""Required and forbidden phrases: against brute force over all texts, and laws of the matching itself."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import Decode
from regard.errors import UsageError
from regard.generation import SpecialTokens, decode, score
from regard.generation.constraints import (
    Constraint,
    ConstraintPhrase,
    Lexicon,
    PhraseMatcher,
    PhraseProgress,
    decode_partial,
)
from regard.inputs.text import train_tokenizer
from regard.sample import Sample
from samples import END, START, random_samples, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
CPU = torch.device("cpu")


def spelling(pieces: list[bytes]) -> Lexicon:
    """Four specials, then these pieces; a text is written with the longest that fit, after a space."""

    def encode(text: str) -> list[int]:
        rest, found = f" {text.strip()}".encode(), []
        while rest:
            piece = max((p for p in pieces if rest.startswith(p)), key=len)
            found.append(4 + pieces.index(piece))
            rest = rest[len(piece) :]
        return found

    return Lexicon([None] * 4 + pieces, encode, END)


def said(lexicon: Lexicon, tokens) -> str:
    return lexicon.bytes_of(tokens).decode(errors="replace")


def obeys(constraint: Constraint, tokens) -> bool:
    """All that is required is there in the end, and nothing forbidden at any moment."""
    text = said(constraint.lexicon, tokens)
    ways = [constraint.lexicon.text_of(tokens[:count]) for count in range(len(tokens) + 1)]
    clean = not any(phrase.is_in(way) for way in [*ways, text] for phrase in constraint.forbid)
    return clean and all(phrase.is_in(text) for phrase in constraint.require)


# What is a whole word


@pytest.mark.parametrize(
    ("phrase", "text", "there"),
    [
        ("cat", "the cat sat", True),
        ("cat", "cat", True),
        ("cat", "“cat”", True),
        ("cat", "the cats", False),
        ("cat", "bobcat", False),
        ("cat", "bobcat cat.", True),
        ("cat", "Cat", False),
        ("new york", "in new york.", True),
        ("new york", "in new yorkshire", False),
        ("caf", "cafe\u0301", False),
        ("cafe", "cafe\u0301", False),  # the accent belongs to the e
        ("x_1", "x_12", False),
        ("?", "why?!", True),
        ("猫", "我喜欢猫了", True),  # no spaces part words there
        ("C++", "C++ code", True),
    ],
)
def test_whole_words(phrase: str, text: str, there: bool) -> None:
    assert ConstraintPhrase(phrase).is_in(text) is there


# Forbidden

POOL = [
    *(b" a", b"a", b"b", b" ab", b"ab", b" ", b"a b", b"b a", b".", b"ba", b"b a."),
    *("ä".encode()[:1], "ä".encode()[1:], "ä".encode(), "ä".encode()[1:] + b"a", b"a" + "ä".encode()[:1]),
    *("“".encode()[:2], "“".encode()[2:], b"\xff", "猫".encode()),
]
PHRASES = st.sampled_from(["a", "ab", "a b", "ä", "b a", "ba", "äa", ".", "a.", "猫", "b a b"])


def test_phrases_that_a_vocabulary_cannot_spell() -> None:
    """One that exists only behind a space, and one of which nothing is left: both ended in a traceback."""
    lexicon = Lexicon([None] * 4 + [" 中".encode()], lambda text: [4] if "中" in text else [], END)
    assert lexicon.phrase("中").tokens == (4,)
    with pytest.raises(UsageError, match="drops all of this phrase"):
        lexicon.phrase("\u200b-")


@settings(deadline=None, max_examples=600)
@given(st.lists(st.sampled_from(POOL), min_size=1, max_size=8), PHRASES)
def test_what_is_banned_is_what_would_complete_the_phrase(pieces, phrase) -> None:
    """Whatever was said before: a piece is banned exactly if after it the text holds the phrase."""
    lexicon = Lexicon([None] * 4 + POOL, lambda text: [], END)
    matcher, text = PhraseMatcher(ConstraintPhrase(phrase), lexicon), b""
    for piece in pieces:
        expected = {
            n for n, p in enumerate(POOL, 4) if ConstraintPhrase(phrase).is_in(decode_partial(text + p)[0])
        }
        assert set(matcher.banned(text)) == expected
        if 4 + POOL.index(piece) in expected:
            return
        text += piece
    assert not ConstraintPhrase(phrase).is_in(text.decode(errors="replace"))


# Search against brute force


def everything(model, source, words, limit):
    """All answers with the log p of their tokens, and whether they ended; those cut off have no end."""
    found = []
    for length in range(limit + 1):
        answers = list(itertools.product(words, repeat=length))
        samples = [Sample(source, [START, *answer], [*answer, END]) for answer in answers]
        for answer, own in zip(answers, score(model, samples, 4000, CPU)):
            if length < limit:
                found.append((math.fsum(own) / (length + 1), answer, True))
            else:
                found.append((math.fsum(own[:limit]) / limit, answer, False))
    return sorted(found, reverse=True)


CASES = {
    "one": (["a"], []),
    "two": (["a", "b"], []),
    "longer": (["a b"], []),
    "nested": (["b", "a b"], []),
    "overlapping": (["ab a", "a b"], []),
    "forbid": ([], ["a"]),
    "forbid two": ([], ["ab", "b"]),
    "both": (["b"], ["a"]),
    "open letter": (["a"], ["ab"]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_wide_beam_finds_the_best_of_all_that_obey(case, seed) -> None:
    pieces, limit = [b" a", b"b", b" ab", b" b", "ä".encode()[:1], "ä".encode()[1:]], 3
    if case == "overlapping":  # one way to cut: what is half said in another way is not counted on
        pieces, limit = [b" a", b" ab", b" b"], 5
    lexicon, model = spelling(pieces), small(seed, vocabulary=4 + len(pieces))
    constraint = lexicon.constraint(*CASES[case])
    source = [4, 6, END]
    expected = [
        (answer, ended)
        for _, answer, ended in everything(model, source, range(4, 4 + len(pieces)), limit)
        if obeys(constraint, answer)
    ]
    options = Decode(beam=1000, max_length=limit, early_stopping="never")
    found = decode(model, [Sample(source=source)], options, SPECIAL, CPU, constraints=[constraint])[0]
    assert len(expected) > 1
    best = [(h.tokens, h.finished) for h in found[: len(expected)]]
    assert best[:20] == expected[:20]
    assert set(best) == set(expected)


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_required_phrases_are_there_whenever_the_length_permits(data) -> None:
    """With any beam, any order, any number of them; and each row is as if it were alone."""
    pieces = [b" a", b"b", b" ab", b" b", b" c", b"c", b"a", b".", b" "]
    lexicon, model = spelling(pieces), small(data.draw(st.integers(0, 5)), vocabulary=4 + len(pieces))
    phrases = st.lists(st.sampled_from(["a", "b", "ab", "c a", "b ac", "abc", "a."]), max_size=3, unique=True)
    constraints = []
    for _ in range(4):
        require = data.draw(phrases)
        forbid = [
            text for text in data.draw(phrases) if not any(ConstraintPhrase(text).is_in(r) for r in require)
        ]
        constraints.append(lexicon.constraint(require, forbid[:1]))
    samples = [Sample(source=s.source) for s in random_samples(4, 3, vocabulary=13)]
    tight = max(constraint.size for constraint in constraints) or 4
    options = Decode(
        beam=data.draw(st.integers(1, 5)), max_length=data.draw(st.sampled_from([tight, tight + 3, 30]))
    )
    found = decode(model, samples, options, SPECIAL, CPU, constraints=constraints)
    for sample, constraint, own in zip(samples, constraints, found):
        alone = decode(model, [sample], options, SPECIAL, CPU, constraints=[constraint])[0]
        assert alone == own
        for hypothesis in own:
            text = said(lexicon, hypothesis.tokens)
            assert not any(phrase.is_in(text) for phrase in constraint.forbid)
            if not constraint.forbid:  # together they can ask for the impossible
                assert all(phrase.is_in(text) for phrase in constraint.require)


def test_no_constraints_is_the_plain_search() -> None:
    model, samples = small(3), [Sample(source=s.source) for s in random_samples(9, 4)]
    nothing = Constraint(spelling([b" a"]))
    for beam in (1, 4):
        plain = decode(model, samples, Decode(beam=beam), SPECIAL, CPU)
        assert decode(model, samples, Decode(beam=beam), SPECIAL, CPU, constraints=[nothing] * 9) == plain


def test_sampling_never_says_what_is_forbidden_and_cannot_require() -> None:
    pieces = [b" a", b"b", b" ab", b" b", b" "]
    lexicon, model = spelling(pieces), small(2, vocabulary=9)
    samples = [Sample(source=s.source) for s in random_samples(12, 4, vocabulary=9)]
    options = Decode(beam=6, sample=True, temperature=4.0, max_length=8)
    forbidden = lexicon.constraint([], ["a", "b ab"])
    texts = [
        said(lexicon, hypothesis.tokens)
        for found in decode(model, samples, options, SPECIAL, CPU, constraints=[forbidden] * 12)
        for hypothesis in found
    ]
    assert not any(phrase.is_in(text) for text in texts for phrase in forbidden.forbid)
    assert any("b" in text for text in texts)
    with pytest.raises(UsageError, match="search"):
        decode(model, samples[:1], options, SPECIAL, CPU, constraints=[lexicon.constraint(["a"], [])])


# Phrases in real vocabularies


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character"])
@pytest.mark.parametrize("text", ["Haus", "das kleine Haus", "ä", "猫が好き", "“ja”", "x"])
def test_a_phrase_is_met_by_its_pieces(kind: str, text: str) -> None:
    """At the start of a text, behind a word, behind another phrase: its pieces make it whole words."""
    corpus = ["das Haus ist klein", "das kleine Haus", "ein Hausboot", "猫が好きです", "ja und ä"] * 3
    tokenizer = train_tokenizer(corpus, kind, 320)
    lexicon = Lexicon.of(tokenizer)
    phrase, other = lexicon.phrase(text), lexicon.phrase("klein")
    constraint = Constraint(lexicon, require=(phrase, other))
    for start in ("", "das", "ein Haus", "猫"):
        words = tokenizer.encode(start) if start else []
        while left := PhraseProgress(constraint, words).needed():
            guides = PhraseProgress(constraint, words).next_tokens()
            words = min(
                ([*words, guide] for guide in guides), key=lambda w: PhraseProgress(constraint, w).needed()
            )
            assert PhraseProgress(constraint, words).needed() == left - 1
        assert phrase.is_in(tokenizer.decode(words))
        assert "  " not in tokenizer.decode(words)
    assert lexicon.phrase(f" {text} ") == phrase
    with pytest.raises(UsageError, match="empty"):
        lexicon.phrase("  ")
