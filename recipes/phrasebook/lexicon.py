"""The abstract syntax of a sentence pair, and the lexicon: the data files beside this one.

Every English word has one German word and the reverse, so that exact match can judge a translation.

- `nouns.tsv`: all forms of the nouns: the four German cases of the singular and of the plural (`-` if mass).
  `adjectives` names a list of words.toml. `notes` are `unique` (no plural), `acquaintance` (takes "my"), or
  the prepositions of a place: English and German for being there, then for going there.
- `verbs.tsv`: all forms of the verbs. `german` is the infinitive with a hyphen after a separable particle,
  `governs` the German preposition of the object, `objects` the nouns or classes of nouns that it takes.
- `words.toml`: the closed word classes. `patterns.toml`: word order, patterns, and weights of the choices.

Importing this module reads the files.
"""

from __future__ import annotations

import csv
import enum
import tomllib
from collections.abc import Iterable
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


PAST_TENSES: Final = (Tense.PAST, Tense.PAST_PROGRESSIVE)


# -- words ------------------------------------------------------------------------------------------------


class Adjective(NamedTuple):
    english: str
    german: str  # as a predicate
    stem: str  # before an ending


class Noun(NamedTuple):
    english: tuple[str, ...]  # singular, plural
    gender: int  # 0 masculine, 1 feminine, 2 neuter, 3 plural only
    german: tuple[str, ...]  # the four cases of the singular, then of the plural
    kind: str  # the class in nouns.tsv
    adjectives: tuple[Adjective, ...]  # those that go with it
    notes: tuple[str, ...]  # of a place: English and German prepositions for being there and going there

    @property
    def is_mass(self) -> bool:
        return self.german[4] == "-"

    @property
    def is_countable(self) -> bool:
        """Whether these sentences use the plural: not of "boss", nor of a place."""
        return self.german[4] != "-" and self.kind != "places" and "unique" not in self.notes


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
    german_preposition: str  # "auf" in "warten auf"
    object_case: int
    # sein: the auxiliary of the perfect. stative: no progressive. no_perfect: no perfect, no modal verb.
    # continuous: English uses the progressive where German has no "gerade" ("is wearing").
    options: frozenset[str]

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


class ProperName(NamedTuple):
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
    possessor: NounPhrase | ProperName | None = None
    relative: Relative | None = None
    name: str = ""  # "her cat, Alex"

    @property
    def agreement(self) -> int:
        return 3 if self.plural else 2


class Pair(NamedTuple):
    first: NounPhrase | ProperName
    second: NounPhrase | ProperName
    agreement: int = 3


Nominal = NounPhrase | ProperName | Pronoun | Pair | Gap


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

_FOLDER: Final = Path(__file__).parent


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((_FOLDER / name).read_text(encoding="utf-8"))


def _rows(name: str) -> list[dict[str, str]]:
    with (_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", restval=""))


_WORDS: Final = _toml("words.toml")
PATTERNS: Final = _toml("patterns.toml")
# Lists to draw from: each word as often as its weight says.
CHOICES: Final[dict[str, list[str]]] = {
    name: choice.split() if isinstance(choice, str) else [key for key in choice for _ in range(choice[key])]
    for name, choice in (PATTERNS["sentences"] | PATTERNS["choices"]).items()
}
ENGLISH_NUMBERS, GERMAN_NUMBERS = (_WORDS["numbers"][name].split() for name in ("english", "german"))

ADJECTIVE: Final = {
    english: Adjective(english, german.split()[0], german.split()[-1])
    for english, german in _WORDS["adjectives"].items()
}
ADJECTIVES: Final = {
    name: tuple(ADJECTIVE[word] for word in words.split())
    for name, words in _WORDS["adjective_lists"].items()
}
PRONOUNS: Final = {
    name: Pronoun((forms[0], forms[1], forms[1]), tuple(forms[2:5]), int(forms[5]))
    for name, forms in ((name, line.split()) for name, line in _WORDS["pronouns"].items())
}
NAMES: Final = [
    ProperName(name, pronoun) for pronoun in ("he", "she") for name in _WORDS["names"][pronoun].split()
]
OWNERS: Final = [name for name in NAMES if name.name[-1] not in "sx"]  # the genitive adds an audible -s
PETS: Final[list[str]] = _WORDS["names"]["pets"].split()
MODALS: Final = {
    name: Modal(tuple(english.split()), rest, tuple(german.split()))
    for name, (english, rest, german) in _WORDS["modals"].items()
}


def _noun(row: dict[str, str]) -> Noun:
    return Noun(
        english=tuple(row["english"].split()),
        gender="mfnp".index(row["gender"]),
        german=tuple(row["singular"].split() + row["plural"].split()),
        kind=row["class"],
        adjectives=ADJECTIVES.get(row["adjectives"], ()),
        notes=tuple(row["notes"].split()),
    )


NOUNS: Final = {noun.english[0]: noun for noun in map(_noun, _rows("nouns.tsv"))}
CLASSES: Final[dict[str, list[Noun]]] = {}  # by the class in nouns.tsv
for _each in NOUNS.values():
    CLASSES.setdefault(_each.kind, []).append(_each)


def nouns(names: str) -> tuple[Noun, ...]:
    """The nouns of a list of nouns and classes, each once."""
    return tuple(dict.fromkeys(noun for name in names.split() for noun in CLASSES.get(name) or [NOUNS[name]]))


def _verb(row: dict[str, str]) -> Verb:
    prefix, _, infinitive = row["german"].rpartition("-")
    prefix = prefix.replace("_", " ")
    zu = "zu" if prefix.strip() == prefix != "" else "zu "  # "anzurufen", "zu rufen", "spazieren zu gehen"
    return Verb(
        english=tuple(row["english"].split()),
        english_particle=row["particle"],
        english_preposition=row["preposition"],
        present=tuple(row["present"].split()),
        past=tuple(row["past"].split()),
        infinitive=prefix + infinitive,
        infinitive_with_zu=prefix + zu + infinitive,
        participle=prefix + row["participle"],
        particle=prefix,
        german_preposition=row["governs"],
        object_case=DATIVE if row["case"] == "dative" else ACCUSATIVE,
        options=frozenset(row["options"].split()),
    )


FRAMES: Final[dict[str, list[Frame]]] = {}  # by the class in verbs.tsv
for _row in _rows("verbs.tsv"):
    FRAMES.setdefault(_row["class"], []).append(Frame(_verb(_row), nouns(_row["objects"])))
# By name. The class "other", which takes a clause ("know that"), comes last in the file and wins.
VERBS: Final = {frame.verb.name: frame.verb for frames in FRAMES.values() for frame in frames}


def bits(phenomena: str) -> int:
    return sum(1 << PHENOMENA.index(name) for name in phenomena.split())


def _phrases(kind: str, entries: Iterable[str]) -> list[Fixed]:
    pairs = (entry.partition(" = ") for entry in entries)
    shown = bits(_WORDS["phrase_phenomena"].get(kind, ""))
    return [Fixed(english, german, shown) for english, _, german in pairs]


def _clock_times() -> Iterable[str]:
    for hour in range(1, 13):
        for pattern in _WORDS["clock"].values():
            english, german = (
                side.format(hour=numbers[hour], next=numbers[hour % 12 + 1])
                for side, numbers in zip(pattern, (ENGLISH_NUMBERS, GERMAN_NUMBERS))
            )
            yield f"{english} = {german.replace('eins Uhr', 'ein Uhr')}"


def _counted_times(pattern: str, largest: int) -> Iterable[str]:
    for number in range(2, largest + 1):
        for unit in _WORDS["counted_units"]:
            yield pattern.format(en=ENGLISH_NUMBERS[number], de=GERMAN_NUMBERS[number], **unit)


PHRASES: Final = {kind: _phrases(kind, entries) for kind, entries in _WORDS["phrases"].items()}
PHRASES["clock"] = _phrases("clock", _clock_times())
for _kind, _pattern in _WORDS["counted"].items():
    PHRASES[_kind] = _phrases(_kind, _counted_times(**_pattern))
