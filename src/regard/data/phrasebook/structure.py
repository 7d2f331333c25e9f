"""The abstract structures that a sentence is built of, before it is realised in either language."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Tense(enum.Enum):
    """One English form and one German form each, so that a translation back is determined as well."""

    PRESENT = "reads / liest"
    PAST = "ate / aß"
    PERFECT = "has eaten / hat gegessen"
    PRESENT_PROGRESSIVE = "is reading / liest gerade"
    PAST_PROGRESSIVE = "was reading / las gerade"
    MODAL = "can read / kann lesen"
    INFINITIVE = "to read / zu lesen"


class Case(enum.IntEnum):
    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2
    GENITIVE = 3


class PlaceKind(NamedTuple):
    """The prepositions of being at a place and of going there."""

    english_at: str
    german_at: str
    english_to: str
    german_to: str


class Adjective(NamedTuple):
    english: str
    german: str  # as a predicate
    stem: str  # before an ending


_UNIQUE = frozenset({"mother", "father", "grandmother", "grandfather", "boss"})


class Noun(NamedTuple):
    english: tuple[str, str]  # singular, plural
    gender: int  # 0 masculine, 1 feminine, 2 neuter, 3 plural only
    german: tuple[str, ...]  # the four cases of the singular, then of the plural
    natural: str  # the pronoun for a person: "he", "she", or "" where grammar and nature differ
    kind: str  # the class it belongs to
    adjectives: tuple[Adjective, ...]  # those that make sense with it
    place: PlaceKind | None = None

    @property
    def is_countable(self) -> bool:
        """Whether it may be several: there is more than one boss in the world, but not in these sentences."""
        return self.kind != "places" and self.german[4] != "-" and self.english[0] not in _UNIQUE

    @property
    def is_mass(self) -> bool:
        return self.german[4] == "-"


class Fixed(NamedTuple):
    """A phrase that has no inner structure: "yesterday", "at half past three", "zu Hause"."""

    english: str
    german: str
    phenomena: int = 0


class Verb(NamedTuple):
    english: tuple[str, str, str, str, str]  # base, third person, past, participle, gerund
    english_particle: str  # "up" in "picks up"; a pronoun goes in between
    english_preposition: str  # "for" in "waits for"
    present: tuple[str, str, str, str]  # ich, du, er, wir/sie
    past: tuple[str, str, str, str]
    infinitive: str  # with the particle
    infinitive_with_zu: str
    participle: str
    particle: str  # "an" in "anrufen"
    auxiliary_sein: bool
    german_preposition: str  # "auf" in "warten auf"
    object_case: Case
    stative: bool  # has no progressive
    no_perfect: bool
    continuous: bool  # English uses the progressive where German needs no "gerade": "is wearing"


class Modal(NamedTuple):
    english: tuple[str, str, str, str]  # the auxiliary for I, you, he, we; "" when "want" needs "do"
    english_rest: str  # "like to" in "would like to"
    german: tuple[str, str, str, str]


class Pronoun(NamedTuple):
    english_subject: str
    english_object: str
    german: tuple[str, str, str]  # nominative, accusative, dative
    agreement: int  # 0 ich, 1 du, 2 er, 3 wir and sie


class Name(NamedTuple):
    name: str
    pronoun: str = ""
    agreement: int = 2


class Gap(NamedTuple):
    """The place in a relative clause or question that its pronoun has left."""

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
    case: Case
    phrase: Nominal


class Relative(NamedTuple):
    """`role` is the case of the relative pronoun; `preposition` stands before it ("with whom")."""

    role: Case
    clause: Clause
    human: bool
    preposition: Fixed | None = None


class Clause(NamedTuple):
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


class Link(NamedTuple):
    """A clause that depends on another, with its conjunction."""

    conjunction: str
    clause: Clause
    fronted: bool = False


class Front(enum.Enum):
    """What stands before the finite verb."""

    SUBJECT = "subject"
    TIME = "time"
    OBJECT = "object"
    OPENING = "opening"  # a remark ("unfortunately") or a question word
    NOTHING = "nothing"  # a yes/no question


class Sentence(NamedTuple):
    clause: Clause
    front: Front = Front.SUBJECT
    opening: Fixed | None = None
    question: bool = False
    link: Link | None = None
