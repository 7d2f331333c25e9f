"""The built-in corpus: hand-written pairs, one-to-one translation, size, balance, reproducibility."""

import json
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from recipes.phrasebook import LONGEST, Pair, lexicon, phrase, phrases, realise, split_of
from recipes.phrasebook.__main__ import write
from recipes.phrasebook.lexicon import (
    ADJECTIVE,
    CLASSES,
    ENGLISH_NUMBERS,
    FRAMES,
    GERMAN_NUMBERS,
    MODALS,
    NAMES,
    NOUNS,
    PETS,
    PHRASES,
    PRONOUNS,
    VERBS,
    Tense,
    Verb,
)
from regard.data import phrasebook
from regard.data.phrasebook import ARCHIVE, PHENOMENA, SIZES
from regard.errors import UsageError

PAIRS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "phrasebook_pairs.jsonl").read_text("utf-8").splitlines()
]
DRAWS = 150_000
FUNCTION_WORDS = (
    "a the this these every which some many any my your his her our not and but that because although "
    "if whether to with of in at on for about after by very too quite when why who whom what how can "
    "must should would will want allowed do yet o'clock half quarter past year euro ago day week "
    "month order taxi an up off on out back along asleep away part home breakfast "
    "cannot Python"
)


def lemmas() -> dict[str, set[str]]:
    """The English words of the lexicon, each with its inflected forms."""
    forms: dict[str, set[str]] = {}
    for noun in NOUNS.values():
        forms.setdefault(noun.english[0], set()).update(noun.english)
    for verb in (frame.verb for frames in FRAMES.values() for frame in frames):
        forms.setdefault(verb.english[0], set()).update(verb.english)
    forms["be"].update(("am", "is", "are", "were"))
    kinds = ("frequency", "perfect_adverb", "manner", "remark", "present", "past", "future", "in_city")
    words = [word for kind in kinds for fixed in PHRASES[kind] for word in fixed.english.split()]
    words += [number for number in ENGLISH_NUMBERS[1:] if "-" not in number]
    words += [name.name for name in NAMES]
    words += [word for pronoun in PRONOUNS.values() for word in pronoun.english]
    for word in (*words, *PETS, *ADJECTIVE, *FUNCTION_WORDS.split()):
        forms.setdefault(word, {word})
    for word in ("do", "day", "week", "month", "year", "euro", "want"):
        forms[word].update((word + "s", "does", "did") if word == "do" else (word + "s",))
    return forms


@pytest.fixture(scope="module")
def drawn() -> list[Pair]:
    """One long draw, of all splits and with its repetitions."""
    return [phrase(11, index) for index in range(DRAWS)]


@pytest.fixture(scope="module")
def held_out() -> list[Pair]:
    return list(phrases("test", 500))


# -- what the grammar must be able to say -----------------------------------------------------------------


def verb_key(verb: Verb) -> str:
    english = (verb.english[0], verb.english_particle, verb.english_preposition)
    return " / ".join(
        " ".join(filter(None, side)) for side in (english, (verb.infinitive, verb.german_preposition))
    )


@pytest.fixture(scope="module")
def words() -> dict[str, dict[str, Any]]:
    """What the structures of the pairs name: words of the lexicon."""
    frames = [frame.verb for kind in FRAMES.values() for frame in kind]
    return {
        "noun": NOUNS,
        "adjective": ADJECTIVE,
        "pronoun": PRONOUNS,
        "modal": MODALS,
        "verb": {verb_key(verb): verb for verb in (*VERBS.values(), *frames)},
        "tense": Tense.__members__,
    }


def structure(tree: Any, words: dict[str, dict[str, Any]]) -> Any:
    """{"noun": "book"} is a word, {"Clause": {...}} a class of the grammar with its fields."""
    if isinstance(tree, list):
        return tuple(structure(each, words) for each in tree)
    if not isinstance(tree, dict):
        return tree
    ((kind, content),) = tree.items()
    if kind in words:
        return words[kind][content]
    return getattr(lexicon, kind)(**{name: structure(each, words) for name, each in content.items()})


def test_there_are_a_hundred_hand_written_pairs() -> None:
    assert len({row["english"] for row in PAIRS}) == 100


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row["english"])
def test_realises_the_hand_written_pair(row: dict[str, Any], words: dict[str, dict[str, Any]]) -> None:
    made = realise(structure(row["structure"], words))
    assert (made.english, made.german) == (row["english"], row["german"])
    assert set(row["phenomena"]) <= set(made.phenomena)


def test_the_hand_written_pairs_cover_every_phenomenon() -> None:
    assert {name for row in PAIRS for name in row["phenomena"]} == set(PHENOMENA)


def test_numbers_put_the_unit_first_in_german() -> None:
    assert ENGLISH_NUMBERS[21] == "twenty-one" and GERMAN_NUMBERS[21] == "einundzwanzig"
    assert GERMAN_NUMBERS[16] == "sechzehn" and GERMAN_NUMBERS[17] == "siebzehn"
    assert GERMAN_NUMBERS[30] == "dreißig" and GERMAN_NUMBERS[76] == "sechsundsiebzig"


def test_every_time_of_day_has_one_form() -> None:
    times = PHRASES["clock"]
    assert len({time.english for time in times}) == len({time.german for time in times}) == 120


# -- one to one -------------------------------------------------------------------------------------------


def _assert_one_to_one(pairs: Iterable[Pair]) -> None:
    german_of: dict[str, str] = {}
    english_of: dict[str, str] = {}
    for pair in pairs:
        assert german_of.setdefault(pair.english, pair.german) == pair.german
        assert english_of.setdefault(pair.german, pair.english) == pair.english


@pytest.mark.slow
def test_both_directions_are_functions(drawn: list[Pair]) -> None:
    _assert_one_to_one(drawn)


@pytest.mark.slow
def test_both_directions_are_functions_in_a_long_draw() -> None:
    _assert_one_to_one(phrase(12, index) for index in range(300_000))


def test_no_german_noun_has_two_english_nouns() -> None:
    german = [noun.german[0] for members in CLASSES.values() for noun in members]
    assert len(set(german)) == len(german) == len(NOUNS)


@pytest.mark.slow
def test_read_has_no_simple_past(drawn: list[Pair]) -> None:
    """ "I read" would be present or past; only the progressive and the perfect tell the past."""
    for pair in drawn[:50_000]:
        if " las" in pair.german:
            assert "reading" in pair.english


@pytest.mark.slow
def test_must_is_never_negated(drawn: list[Pair]) -> None:
    assert MODALS["must"].german[2] == "muss"
    assert not any("must not" in pair.english for pair in drawn)


# -- size and balance -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_than_ten_million_pairs(drawn: list[Pair]) -> None:
    """Draws that seldom repeat come from a large population: pairs of draws over pairs that agree.

    Uneven chances make repetitions more frequent, so that this number is a lower bound.
    """
    counts = Counter(pair.english for pair in drawn)
    agreeing = sum(count * (count - 1) // 2 for count in counts.values())
    assert DRAWS - len(counts) < DRAWS // 100
    assert agreeing * 10_000_000 < DRAWS * (DRAWS - 1) // 2


@pytest.mark.slow
def test_lengths(drawn: list[Pair]) -> None:
    lengths = [len(pair.english.split()) for pair in drawn]
    assert sum(lengths) / DRAWS >= 9
    assert max(lengths) <= LONGEST


def test_phenomena_in_the_test_split(held_out: list[Pair]) -> None:
    counts = Counter(name for pair in held_out for name in pair.phenomena)
    assert set(counts) == set(PHENOMENA)
    assert min(counts.values()) >= 0.05 * len(held_out)


@pytest.mark.slow
def test_about_five_hundred_words_none_of_them_rare(drawn: list[Pair]) -> None:
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


def test_the_lexicon_has_the_words_of_the_examples() -> None:
    words = (
        "Python execute quickly Sarah walk park cat Alex she wear beautiful gold watch thinking machine would"
    )
    assert set(words.split()) | {"like", "read", "book"} <= set(lemmas())
    assert VERBS["execute"].english[1] == "executes"


# -- reading the corpus -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_sentences_are_written_properly(drawn: list[Pair]) -> None:
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


def test_the_first_sentence_never_changes() -> None:
    """A change of the grammar changes the corpus, and with it every score ever measured on it."""
    assert phrase(0, 0).english == FIRST[0]
    assert phrase(0, 0).german == FIRST[1]


FIRST = (
    "I do not look for the hotel that is quite dark.",
    "Ich suche das Hotel nicht, das ziemlich dunkel ist.",
)


@pytest.mark.parametrize(
    ("split", "count", "seed", "digest"),
    [
        ("train", 5_000, 0, "e156249b5a1912bd"),
        ("train", 1_000, 7, "7b486233c8164379"),
        ("valid", 300, 0, "83a4c80a30545d99"),
        ("test", 300, 0, "65ea83e8e4cd29ae"),
    ],
)
def test_the_corpus_never_changes(split: str, count: int, seed: int, digest: str) -> None:
    """A run that is resumed reads the same pairs; `evaluate` reads the same phenomena."""
    rows = (
        f"{pair.english}\t{pair.german}\t{' '.join(sorted(pair.phenomena))}\n"
        for pair in phrases(split, count, seed)
    )
    assert sha256("".join(rows).encode()).hexdigest()[:16] == digest


def test_count_distinct_phrases(held_out: list[Pair]) -> None:
    assert len({pair.english for pair in held_out}) == 500
    assert len({pair.german for pair in held_out}) == 500
    assert list(phrases("valid", 0)) == []


def test_splits_share_no_sentence_whatever_the_seed(held_out: list[Pair]) -> None:
    texts = {pair.english for pair in held_out}
    for seed in (0, 1):
        assert texts.isdisjoint(pair.english for pair in phrases("train", 5_000, seed))
    assert all(split_of(pair.english) == "test" for pair in held_out)


@pytest.mark.slow
def test_about_a_twentieth_is_held_out_each(drawn: list[Pair]) -> None:
    counts = Counter(split_of(pair.english) for pair in drawn[:50_000])
    assert 2_000 < counts["valid"] < 3_000 and 2_000 < counts["test"] < 3_000


def test_unknown_split() -> None:
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        phrases("dev", 1)


# -- the corpus in the package ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_grammar_writes_the_bytes_of_the_package(tmp_path: Path) -> None:
    write(tmp_path / "phrasebook.zip")
    assert (tmp_path / "phrasebook.zip").read_bytes() == ARCHIVE.read_bytes()


@pytest.mark.parametrize("split", SIZES)
def test_the_package_has_the_pairs_of_the_grammar(split: str) -> None:
    pairs = list(phrases(split, 300))
    assert list(phrasebook.phrases(split, 300)) == [(pair.english, pair.german) for pair in pairs]
    assert len(list(phrasebook.phrases(split, SIZES[split]))) == SIZES[split]
    if split == "test":
        assert list(phrasebook.phenomena(300)) == [pair.phenomena for pair in pairs]


def test_more_pairs_than_the_package_has() -> None:
    with pytest.raises(UsageError, match="200,000 pairs for train, not 200,001") as caught:
        phrasebook.phrases("train", 200_001)
    assert caught.value.code == "E_DATA_CORPUS"
