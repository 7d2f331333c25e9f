"""The abstract syntax of a sentence pair, and the lexicon, read from `regard/builtin/phrasebook`.

`nouns.tsv` and `verbs.tsv` list all forms of a word. Every English word has one German word and the reverse,
so that exact match can judge a translation. `words.toml` has the closed word classes, `patterns.toml` the
patterns and weights of the choices. Importing this module reads the files.
"""

from __future__ import annotations

import csv
import enum
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from regard.data.phrasebook import PHENOMENA

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)  # an index into the German forms of a noun or pronoun
Front = Literal["subject", "time", "object", "opening", "nothing"]  # what precedes the German finite verb


class Tense(enum.Enum):
    """One English form and one German form each, so that both directions are determined."""

    PRESENT = "reads / liest"
    PAST = "ate / aß"
    PERFECT = "has eaten / hat gegessen"
    PRESENT_PROGRESSIVE = "is reading / liest gerade"
    PAST_PROGRESSIVE = "was reading / las gerade"
    MODAL = "can read / kann lesen"
    INFINITIVE = "to read / zu lesen"


# -- words ------------------------------------------------------------------------------------------------


class Adjective(NamedTuple):
    english: str
    german: str  # as a predicate
    stem: str  # before an ending


class Noun(NamedTuple):
    english: tuple[str, str]  # singular, plural
    gender: int  # 0 masculine, 1 feminine, 2 neuter, 3 plural only
    german: tuple[str, ...]  # the four cases of the singular, then of the plural
    pronoun: str  # "he", "she", or "" where grammatical and natural gender differ
    kind: str  # the class in nouns.tsv
    adjectives: tuple[Adjective, ...]  # those that go with it
    notes: tuple[str, ...]  # of a place: English and German prepositions for being there and going there
    is_mass: bool
    is_countable: bool  # may be plural in these sentences: not "boss", not a place


class Fixed(NamedTuple):
    """A phrase without inner structure: "yesterday", "at half past three"."""

    english: str
    german: str
    phenomena: int = 0  # bits in the order of PHENOMENA


class Verb(NamedTuple):
    english: tuple[str, ...]  # base, third person, past, participle, gerund
    english_particle: str  # "up" in "picks up"; a pronoun stands in between
    english_preposition: str  # "for" in "waits for"
    present: tuple[str, ...]  # ich, du, er, wir
    past: tuple[str, ...]
    infinitive: str  # with the particle
    infinitive_with_zu: str
    participle: str
    particle: str  # "an" in "anrufen"
    has_sein: bool  # the auxiliary of the perfect
    german_preposition: str  # "auf" in "warten auf"
    object_case: int
    is_stative: bool  # has no progressive
    no_perfect: bool
    is_continuous: bool  # English uses the progressive where German has no "gerade": "is wearing"

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.english[0], self.english_particle, self.english_preposition)))


class Frame(NamedTuple):
    verb: Verb
    objects: tuple[Noun, ...]


class Modal(NamedTuple):
    english: tuple[str, ...]  # the auxiliary for I, you, he, we; "-" for "want", which takes "do"
    english_rest: str  # "like to" in "would like to"
    german: tuple[str, ...]


class Pronoun(NamedTuple):
    english: tuple[str, ...]  # nominative, accusative, dative
    german: tuple[str, ...]
    agreement: int  # 0 ich, 1 du, 2 er, 3 wir and sie


class Name(NamedTuple):
    name: str
    pronoun: str = ""
    agreement: int = 2


# -- phrases and clauses ----------------------------------------------------------------------------------


class Gap(NamedTuple):
    """The position in a relative clause or question that its pronoun has left."""

    agreement: int = 2


class NounPhrase(NamedTuple):
    determiner: str
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    number: int = 0
    possessor: NounPhrase | Name | None = None
    relative: Relative | None = None
    name: str = ""  # "her cat, Alex"

    @property
    def agreement(self) -> int:
        return 3 if self.plural else 2


class Pair(NamedTuple):
    first: NounPhrase | Name
    second: NounPhrase | Name
    agreement: int = 3


Nominal = NounPhrase | Name | Pronoun | Pair | Gap


class Prepositional(NamedTuple):
    english: str
    german: str
    case: int
    phrase: Nominal


@dataclass(slots=True)
class Clause:
    subject: Nominal
    verb: Verb
    tense: Tense
    modal: Modal | None = None
    object: Nominal | None = None
    recipient: Nominal | None = None
    adverb: Fixed | None = None  # in the middle of the sentence: "often"
    manner: Fixed | None = None
    companion: Prepositional | Fixed | None = None
    place: Prepositional | Fixed | None = None
    cause: Prepositional | None = None
    time: Fixed | None = None
    predicate: Fixed | None = None
    negated: bool = False


class Relative(NamedTuple):
    case: int  # of the relative pronoun
    clause: Clause
    human: bool
    preposition: Fixed | None = None  # "with" in "with whom"


class Link(NamedTuple):
    """A conjunction and its clause."""

    conjunction: str
    clause: Clause
    fronted: bool = False


class Sentence(NamedTuple):
    clause: Clause
    front: Front = "subject"
    opening: Fixed | None = None  # a remark ("unfortunately") or a question word
    question: bool = False
    link: Link | None = None


# -- the files --------------------------------------------------------------------------------------------

_FOLDER: Final = Path(__file__).parents[2] / "builtin" / "phrasebook"


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))


def _rows(name: str) -> list[dict[str, str]]:
    with (_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", restval=""))


def weighted(weights: Mapping[str, int]) -> tuple[str, ...]:
    """Each key as often as its weight says."""
    return tuple(key for key, weight in weights.items() for _ in range(weight))


def bits(phenomena: str) -> int:
    return sum(1 << PHENOMENA.index(name) for name in phenomena.split())


_WORDS: Final = _toml("words.toml")
PATTERNS: Final = _toml("patterns.toml")
ENGLISH_NUMBERS, GERMAN_NUMBERS = (_WORDS["numbers"][name].split() for name in ("english", "german"))

ADJECTIVE: Final = {
    english: Adjective(english, german.split()[0], german.split()[-1])
    for english, german in _WORDS["adjectives"].items()
}
ADJECTIVES: Final = {
    kind: tuple(ADJECTIVE[name] for name in names.split())
    for kind, names in _WORDS["adjective_classes"].items()
}
PRONOUNS: Final = {
    name: Pronoun((forms[0], forms[1], forms[1]), tuple(forms[2:5]), int(forms[5]))
    for name, forms in ((name, line.split()) for name, line in _WORDS["pronouns"].items())
}
# By the gender of the German noun, then the plural.
THING_PRONOUNS: Final = tuple(
    PRONOUNS["it_" + name] for name in ("masculine", "feminine", "neuter", "plural")
)
NAMES: Final = tuple(
    Name(name, pronoun) for pronoun in ("he", "she") for name in _WORDS["names"][pronoun].split()
)
OWNERS: Final = tuple(name for name in NAMES if name.name[-1] not in "sx")  # without an audible genitive -s
PETS: Final[list[str]] = _WORDS["names"]["pets"].split()
MODALS: Final = {
    name: Modal(tuple(english.split()), rest, tuple(german.split()))
    for name, (english, rest, german) in _WORDS["modals"].items()
}


def _noun(row: dict[str, str]) -> Noun:
    english, kind, gender, plural = (
        row["english"],
        row["class"],
        "mfnp".index(row["gender"]),
        row["german_plural"],
    )
    notes = tuple(row["notes"].split())
    other = "machines" if english in PATTERNS["nouns"]["computing"].split() else kind
    return Noun(
        english=(english, row["plural"]),
        gender=gender,
        german=(row["german"], row["accusative"], row["accusative"], row["genitive"])
        + (plural, plural, row["dative_plural"], plural),
        pronoun=("he", "she", "", "")[gender],
        kind=kind,
        adjectives=ADJECTIVES.get(_WORDS["adjectives_as"].get(other, other), ()),
        notes=notes,
        is_mass=plural == "-",
        is_countable=plural != "-" and kind != "places" and "unique" not in notes,
    )


NOUNS: Final = {row["english"]: _noun(row) for row in _rows("nouns.tsv")}
CLASSES: Final[dict[str, tuple[Noun, ...]]] = {
    kind: tuple(noun for noun in NOUNS.values() if noun.kind == kind)
    for kind in dict.fromkeys(noun.kind for noun in NOUNS.values())
}


def nouns(names: str) -> tuple[Noun, ...]:
    """The nouns of a list of nouns and classes, each once."""
    return tuple(
        dict.fromkeys(noun for name in names.split() for noun in CLASSES.get(name) or (NOUNS[name],))
    )


def _verb(row: dict[str, str]) -> Verb:
    prefix, _, infinitive = row["german"].rpartition("-")
    prefix, options = prefix.replace("_", " "), row["options"].split()
    return Verb(
        english=tuple(row["english"].split()),
        english_particle=row["particle"],
        english_preposition=row["preposition"],
        present=tuple(row["present"].split()),
        past=tuple(row["past"].split()),
        infinitive=prefix + infinitive,
        infinitive_with_zu=f"{prefix}zu{infinitive}"
        if prefix.strip() == prefix != ""
        else f"{prefix}zu {infinitive}",
        participle=prefix + row["participle"],
        particle=prefix,
        has_sein="sein" in options,
        german_preposition=next((option[1:] for option in options if option[0] == "/"), ""),
        object_case=DATIVE if "dative" in options else ACCUSATIVE,
        is_stative="stative" in options or "state" in options,
        no_perfect="state" in options,
        is_continuous="continuous" in options,
    )


FRAMES: Final[dict[str, list[Frame]]] = {}  # by the class in verbs.tsv
for _row in _rows("verbs.tsv"):
    FRAMES.setdefault(_row["class"], []).append(Frame(_verb(_row), nouns(_row["objects"])))
# By name; of several verbs with one name, the one that takes a clause ("know that"), else the first.
VERBS: Final = {
    frame.verb.name: frame.verb for frames in reversed(FRAMES.values()) for frame in reversed(frames)
} | {frame.verb.name: frame.verb for frame in FRAMES["other"]}


def _phrases(entries: Iterable[str], kind: str) -> tuple[Fixed, ...]:
    pairs = (entry.partition(" = ") for entry in entries)
    shown = bits(_WORDS["phrase_phenomena"].get(kind, ""))
    return tuple(Fixed(english, german, shown) for english, _, german in pairs)


def _clock_times() -> Iterable[str]:
    for hour in range(1, 13):
        for english, german in _WORDS["clock"].values():
            later = hour % 12 + 1
            german = german.format(hour=GERMAN_NUMBERS[hour], next=GERMAN_NUMBERS[later])
            english = english.format(hour=ENGLISH_NUMBERS[hour], next=ENGLISH_NUMBERS[later])
            yield f"{english} = {german.replace('eins Uhr', 'ein Uhr')}"


def _counted_times(kind: str) -> Iterable[str]:
    english, german, largest = _WORDS["counted"][kind]
    for number in range(2, largest + 1):
        for unit in _WORDS["counted"]["units"]:
            one, _, other = unit.partition(" = ")
            line = english.format(number=ENGLISH_NUMBERS[number], unit=one)
            yield f"{line} = {german.format(number=GERMAN_NUMBERS[number], unit=other)}"


PHRASES: Final[dict[str, tuple[Fixed, ...]]] = {
    **{kind: _phrases(entries, kind) for kind, entries in _WORDS["phrases"].items()},
    "clock": _phrases(_clock_times(), "clock"),
    **{kind: _phrases(_counted_times(kind), kind) for kind in ("ago", "ahead")},
}
