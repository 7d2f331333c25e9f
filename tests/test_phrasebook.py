"""The built-in corpus: hand-written pairs, one-to-one translation, size, balance, reproducibility."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice

import pytest

import phrasebook_pairs
from regard.data.phrasebook import (
    LONGEST,
    PHENOMENA,
    Phrase,
    phrase,
    phrases,
    realise,
    split_of,
)
from regard.data.phrasebook.lexicon import lemmas
from regard.data.phrasebook.nouns import CLASSES, NOUNS
from regard.data.phrasebook.structure import Sentence
from regard.data.phrasebook.verbs import MODALS, SINGLE
from regard.data.phrasebook.words import CLOCK_TIMES, ENGLISH_NUMBERS, GERMAN_NUMBERS

DRAWS = 150_000


@pytest.fixture(scope="module")
def drawn() -> list[Phrase]:
    """One long draw, of all splits and with its repetitions."""
    return [phrase(11, index) for index in range(DRAWS)]


@pytest.fixture(scope="module")
def held_out() -> list[Phrase]:
    return list(phrases("test", 500))


# -- what the grammar must be able to say -----------------------------------------------------------------


def test_there_are_a_hundred_hand_written_pairs() -> None:
    assert len({english for _, english, _, _ in phrasebook_pairs.PAIRS}) == 100


@pytest.mark.parametrize("row", phrasebook_pairs.PAIRS, ids=lambda row: row[1])
def test_realises_the_hand_written_pair(row: tuple[Sentence, str, str, set[str]]) -> None:
    structure, english, german, phenomena = row
    made = realise(structure)
    assert (made.english, made.german) == (english, german)
    assert phenomena <= made.phenomena


def test_the_hand_written_pairs_cover_every_phenomenon() -> None:
    assert set().union(*(row[3] for row in phrasebook_pairs.PAIRS)) == set(PHENOMENA)


def test_numbers_put_the_unit_first_in_german() -> None:
    assert ENGLISH_NUMBERS[21] == "twenty-one" and GERMAN_NUMBERS[21] == "einundzwanzig"
    assert GERMAN_NUMBERS[16] == "sechzehn" and GERMAN_NUMBERS[17] == "siebzehn"
    assert GERMAN_NUMBERS[30] == "dreißig" and GERMAN_NUMBERS[76] == "sechsundsiebzig"


def test_every_time_of_day_is_told_in_one_way() -> None:
    assert len({time.english for time in CLOCK_TIMES}) == len({time.german for time in CLOCK_TIMES}) == 120


# -- one to one -------------------------------------------------------------------------------------------


def _assert_one_to_one(pairs: Iterable[Phrase]) -> None:
    german_of: dict[str, str] = {}
    english_of: dict[str, str] = {}
    for pair in pairs:
        assert german_of.setdefault(pair.english, pair.german) == pair.german
        assert english_of.setdefault(pair.german, pair.english) == pair.english


def test_both_directions_are_functions(drawn: list[Phrase]) -> None:
    _assert_one_to_one(drawn)


@pytest.mark.slow
def test_both_directions_are_functions_in_a_long_draw() -> None:
    _assert_one_to_one(phrase(12, index) for index in range(300_000))


def test_no_german_noun_has_two_english_nouns() -> None:
    german = [noun.german[0] for members in CLASSES.values() for noun in members]
    assert len(set(german)) == len(german) == len(NOUNS)


def test_read_has_no_simple_past(drawn: list[Phrase]) -> None:
    """ "I read" would be present or past; only the progressive and the perfect tell the past."""
    for pair in drawn[:50_000]:
        if " las" in pair.german:
            assert "reading" in pair.english


def test_must_is_never_denied(drawn: list[Phrase]) -> None:
    assert MODALS["must"].german[2] == "muss"
    assert not any("must not" in pair.english for pair in drawn)


# -- size and balance -------------------------------------------------------------------------------------


def test_more_than_ten_million_pairs(drawn: list[Phrase]) -> None:
    """Draws that seldom repeat come from a large population: pairs of draws over pairs that agree.

    Uneven chances make repetitions more frequent, so that this number is a lower bound.
    """
    counts = Counter(pair.english for pair in drawn)
    agreeing = sum(count * (count - 1) // 2 for count in counts.values())
    assert DRAWS - len(counts) < DRAWS // 100
    assert agreeing * 10_000_000 < DRAWS * (DRAWS - 1) // 2


def test_lengths(drawn: list[Phrase]) -> None:
    lengths = [len(pair.english.split()) for pair in drawn]
    assert sum(lengths) / DRAWS >= 9
    assert max(lengths) <= LONGEST


def test_phenomena_in_the_test_split(held_out: list[Phrase]) -> None:
    counts = Counter(name for pair in held_out for name in pair.phenomena)
    assert set(counts) == set(PHENOMENA)
    assert min(counts.values()) >= 0.05 * len(held_out)


def test_about_five_hundred_words_none_of_them_rare(drawn: list[Phrase]) -> None:
    words = Counter(
        word.strip(",.?").removesuffix("'s").lower()
        for pair in islice(drawn, 100_000)
        for word in pair.english.replace("-", " ").split()
    )
    known = lemmas()
    assert 450 <= len(known) <= 650
    frequency = {lemma: sum(words[form.lower()] for form in forms) for lemma, forms in known.items()}
    assert {lemma: count for lemma, count in frequency.items() if count < 30} == {}
    assert set(words) <= {form.lower() for forms in known.values() for form in forms}


def test_the_words_of_the_examples_are_known() -> None:
    words = (
        "Python execute quickly Sarah walk park cat Alex she wear beautiful gold watch thinking machine would"
    )
    assert set(words.split()) | {"like", "read", "book"} <= set(lemmas())
    assert SINGLE["execute"].english[1] == "executes"


# -- reading the corpus -----------------------------------------------------------------------------------


def test_sentences_are_written_properly(drawn: list[Phrase]) -> None:
    for pair in drawn[:20_000]:
        for text in (pair.english, pair.german):
            assert text[0].isupper() and text[-1] in ".?" and "  " not in text
            assert " ," not in text and ",," not in text
        assert pair.english[-1] == pair.german[-1]


def test_a_phrase_depends_on_seed_and_index_alone() -> None:
    assert phrase(3, 5) == phrase(3, 5)
    assert phrase(3, 5) != phrase(4, 5)
    expected = [
        pair for pair in (phrase(3, index) for index in range(300)) if split_of(pair.english) == "train"
    ]
    assert list(phrases("train", 200, seed=3)) == list(dict.fromkeys(expected))[:200]


def test_a_first_sentence_stays_what_it_was() -> None:
    """A change of the grammar changes the corpus, and with it every score ever measured on it."""
    assert phrase(0, 0).english == FIRST[0]
    assert phrase(0, 0).german == FIRST[1]


FIRST = (
    "I do not look for the hotel that is quite dark.",
    "Ich suche das Hotel nicht, das ziemlich dunkel ist.",
)


def test_exactly_as_many_distinct_phrases_as_asked_for(held_out: list[Phrase]) -> None:
    assert len({pair.english for pair in held_out}) == 500
    assert len({pair.german for pair in held_out}) == 500
    assert list(phrases("valid", 0)) == []


def test_splits_share_no_sentence_whatever_the_seed(held_out: list[Phrase]) -> None:
    texts = {pair.english for pair in held_out}
    for seed in (0, 1):
        assert texts.isdisjoint(pair.english for pair in phrases("train", 5_000, seed))
    assert all(split_of(pair.english) == "test" for pair in held_out)


def test_about_a_twentieth_is_held_out_each(drawn: list[Phrase]) -> None:
    counts = Counter(split_of(pair.english) for pair in drawn[:50_000])
    assert 2_000 < counts["valid"] < 3_000 and 2_000 < counts["test"] < 3_000


def test_unknown_split() -> None:
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        phrases("dev", 1)
