"""The random choices: dice, and the noun phrases and tenses thrown with them."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from regard.data.phrasebook.nouns import CLASSES
from regard.data.phrasebook.structure import (
    Adjective,
    Case,
    Fixed,
    Modal,
    Name,
    Nominal,
    Noun,
    NounPhrase,
    Pair,
    Prepositional,
    Pronoun,
    Tense,
)
from regard.data.phrasebook.verbs import MODALS
from regard.data.phrasebook.words import (
    ADJECTIVES,
    AGO,
    CLOCK_TIMES,
    FUTURE_TIMES,
    HABIT_TIMES,
    HENCE,
    NAMES,
    OWNERS,
    PAST_TIMES,
    PERFECT_TIMES,
    PRONOUNS,
)

Item = TypeVar("Item")


class Dice:
    """Throws that depend on seed and index alone: the digits of one long hash in changing bases."""

    __slots__ = ("state",)

    def __init__(self, seed: int, index: int, attempt: int = 0) -> None:
        self.state = int.from_bytes(blake2b(b"%d %d %d" % (seed, index, attempt)).digest(), "little")

    def roll(self, sides: int) -> int:
        self.state, face = divmod(self.state, sides)
        return face

    def pick(self, items: Sequence[Item]) -> Item:
        self.state, face = divmod(self.state, len(items))
        return items[face]

    def chance(self, percent: int) -> bool:
        self.state, face = divmod(self.state, 100)
        return face < percent


_POSSESSIVES: Final = ("my", "your", "his", "her", "our")
_SINGULAR: Final = ("a",) * 6 + ("the",) * 6 + ("this",) * 2 + _POSSESSIVES
_SINGULAR_DEFINITE: Final = ("the",) * 4 + ("this",) + _POSSESSIVES
_PLURAL: Final = ("number",) * 5 + ("the",) * 3 + ("this",) * 2 + ("some",) * 2 + ("many",) * 2 + _POSSESSIVES
_PLURAL_DEFINITE: Final = ("the",) * 4 + ("this",) * 2 + _POSSESSIVES
_STRANGER: Final = ("the",) * 8 + ("a",) * 2 + ("this",) * 2
_PERSON: Final = ("the",) * 8 + ("a",) * 2 + ("this",) * 2 + _POSSESSIVES
_PLACE: Final = ("the",) * 5 + ("a", "this")
_SUBJECT_PRONOUNS: Final = tuple(
    PRONOUNS[name] for name in ["I", "I", "you", "he", "he", "she", "she", "we", "they"]
)
# No second "she" beside "she", and so on; "them" is left out because German would not tell it from "her".
_OTHER_PRONOUNS: Final = {
    "I": ("you", "he", "she"),
    "you": ("I", "he", "she", "we"),
    "he": ("I", "you", "she", "we"),
    "she": ("I", "you", "he", "we"),
    "we": ("you", "he", "she"),
    "they": ("I", "you", "he", "we"),
}
_ANY_PRONOUN: Final = ("I", "you", "he", "she", "we")
_ACTIVE_TENSES: Final = (
    (Tense.PRESENT,) * 5
    + (Tense.PAST,) * 6
    + (Tense.PERFECT,) * 5
    + (Tense.PRESENT_PROGRESSIVE,) * 2
    + (Tense.PAST_PROGRESSIVE,) * 2
    + (Tense.MODAL,) * 6
)
_MODALS: Final = tuple(MODALS.values())
_PEOPLE: Final = CLASSES["people"]
_FAMILY: Final = CLASSES["family"]
_OWNED: Final = frozenset({"clothes", "things", "devices", "vehicles", "jewels", "animals"})
# Of these one says "my": a waiter or a judge is nobody's.
_ACQUAINTED: Final = frozenset(
    [
        "friend",
        "neighbour",
        "teacher",
        "doctor",
        "colleague",
        "guest",
        "customer",
        "boss",
        "lawyer",
        "student",
    ]
)


def tense(dice: Dice) -> tuple[Tense, Modal | None]:
    chosen = dice.pick(_ACTIVE_TENSES)
    return chosen, dice.pick(_MODALS) if chosen is Tense.MODAL else None


def describe(dice: Dice, noun: Noun, percent: int) -> tuple[Adjective, ...]:
    """No adjective, one, or a material after one."""
    fitting = noun.adjectives
    if not fitting or not dice.chance(percent):
        return ()
    first = dice.pick(fitting)
    if noun.kind == "jewels" and dice.chance(60):
        return first, dice.pick(ADJECTIVES["material"])
    return (first,)


def thing(dice: Dice, noun: Noun, negated: bool = False, definite: bool = False) -> NounPhrase:
    """A phrase for something that is bought, eaten, read..."""
    if noun.is_mass:
        return _mass(dice, noun, negated, definite)
    plural = dice.chance(30) and noun.is_countable
    if plural:
        determiner = dice.pick(_PLURAL_DEFINITE if definite else _PLURAL)
    else:
        determiner = dice.pick(_SINGULAR_DEFINITE if definite else _SINGULAR)
    if negated and determiner in ("a", "some", "many", "number"):
        determiner = "no"
    described = describe(dice, noun, 40)
    if determiner == "number":
        return NounPhrase("", noun, True, described, 2 + dice.roll(98))
    if determiner == "the" and not plural and noun.kind in _OWNED and dice.chance(50):
        return NounPhrase("the", noun, False, described, 0, owner(dice))
    return NounPhrase(determiner, noun, plural, described)


def _mass(dice: Dice, noun: Noun, negated: bool, definite: bool) -> NounPhrase:
    determiner = "the" if definite or dice.chance(35) else "no" if negated else ""
    return NounPhrase(determiner, noun, False, describe(dice, noun, 35))


def owner(dice: Dice) -> NounPhrase | Name:
    if dice.chance(40):
        return dice.pick(OWNERS)
    if dice.chance(50):
        return NounPhrase(dice.pick(_POSSESSIVES), dice.pick(_FAMILY))
    return NounPhrase("the", dice.pick(_PEOPLE))


def person(dice: Dice, noun: Noun | None = None, plurals: int = 20) -> NounPhrase:
    """A person as a full phrase; relatives belong to somebody."""
    if noun is None:
        noun = dice.pick(_FAMILY if dice.chance(30) else _PEOPLE)
    plural = dice.chance(plurals) and noun.is_countable
    if noun.kind == "family":
        if not plural and dice.chance(25):
            return NounPhrase("the", noun, False, (), 0, dice.pick(OWNERS))
        return NounPhrase(dice.pick(_POSSESSIVES), noun, plural, describe(dice, noun, 10))
    determiner = dice.pick(_PERSON if noun.english[0] in _ACQUAINTED else _STRANGER)
    if plural and determiner == "a":
        return NounPhrase("", noun, True, describe(dice, noun, 40), 2 + dice.roll(19))
    return NounPhrase(determiner, noun, plural, describe(dice, noun, 30))


def subject(dice: Dice) -> Nominal:
    """Somebody who acts."""
    throw = dice.roll(100)
    if throw < 42:
        return dice.pick(_SUBJECT_PRONOUNS)
    if throw < 62:
        return dice.pick(NAMES)
    if throw < 94:
        return person(dice)
    first = dice.pick(NAMES)
    return Pair(first, NounPhrase("his" if first.pronoun == "he" else "her", dice.pick(_FAMILY)))


def other_pronoun(dice: Dice, acting: Nominal) -> Pronoun:
    """A pronoun for somebody other than the subject."""
    known = _OTHER_PRONOUNS.get(acting.english_subject) if type(acting) is Pronoun else None
    return PRONOUNS[dice.pick(known or _ANY_PRONOUN)]


def same(dice: Dice, acting: Nominal) -> Nominal:
    """The subject once more, as a pronoun."""
    if type(acting) is Pronoun:
        return acting if acting.english_subject != "who" else PRONOUNS["he"]
    if acting.agreement == 3:
        return PRONOUNS["they"]
    name = (
        acting.pronoun if type(acting) is Name else acting.noun.natural if type(acting) is NounPhrase else ""
    )
    return PRONOUNS[name or dice.pick(("I", "we"))]


def place_phrase(dice: Dice, noun: Noun) -> NounPhrase:
    return NounPhrase(dice.pick(_PLACE), noun, False, describe(dice, noun, 25))


def location(dice: Dice, place: Noun | Fixed) -> Prepositional | Fixed:
    if type(place) is Fixed:
        return place
    assert type(place) is Noun and place.place is not None
    kind = place.place
    return Prepositional(kind.english_at, kind.german_at, Case.DATIVE, place_phrase(dice, place))


def direction(dice: Dice, place: Noun) -> Prepositional:
    kind = place.place
    assert kind is not None
    case = Case.DATIVE if kind.german_to == "zu" else Case.ACCUSATIVE
    return Prepositional(kind.english_to, kind.german_to, case, place_phrase(dice, place))


_TIMES: Final = {
    Tense.PRESENT: HABIT_TIMES,
    Tense.PAST: PAST_TIMES,
    Tense.PERFECT: PERFECT_TIMES,
    Tense.MODAL: FUTURE_TIMES,
}
_COUNTED_TIMES: Final = {Tense.PAST: AGO, Tense.MODAL: HENCE}


def time(dice: Dice, chosen: Tense) -> Fixed | None:
    """A time that goes with the tense; the present progressive has its time already."""
    if chosen is Tense.PRESENT_PROGRESSIVE:
        return None
    if chosen is Tense.PERFECT:
        return dice.pick(PERFECT_TIMES)
    throw = dice.roll(100)
    if throw < 45 or chosen is Tense.PAST_PROGRESSIVE:
        return dice.pick(CLOCK_TIMES)
    if throw < 57 and chosen in _COUNTED_TIMES:
        return dice.pick(_COUNTED_TIMES[chosen])
    return dice.pick(_TIMES[chosen])
