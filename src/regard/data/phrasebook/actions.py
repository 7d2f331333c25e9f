"""Clauses: somebody does something, somewhere, at some time."""

from collections.abc import Callable
from typing import Final, NamedTuple

from regard.data.phrasebook import choices
from regard.data.phrasebook.choices import Dice
from regard.data.phrasebook.nouns import CLASSES, PLACES
from regard.data.phrasebook.settings import MANNERS_OF, PLACES_OF, SURFACES
from regard.data.phrasebook.structure import (
    Case,
    Clause,
    Fixed,
    Modal,
    Nominal,
    Noun,
    NounPhrase,
    Prepositional,
    Pronoun,
    Tense,
    Verb,
)
from regard.data.phrasebook.verbs import (
    DAILY,
    GIVING,
    HELPING,
    MOTION,
    PREPOSITIONAL,
    RESTING,
    SINGLE,
    TRANSITIVE,
    TRAVEL,
)
from regard.data.phrasebook.words import (
    BY_VEHICLE,
    CLOCK_TIMES,
    FREQUENCY,
    PERFECT_ADVERBS,
    TO_CITIES,
    YET,
)


class Plan(NamedTuple):
    """What is settled before the verb is chosen."""

    subject: Nominal
    tense: Tense
    modal: Modal | None
    negated: bool = False
    timed: int = 0  # the chance of a time in percent
    placed: int = 0  # the chance of a place or a companion in percent


def plan(dice: Dice, subject: Nominal, timed: int = 60, placed: int = 60, negated: int = 13) -> Plan:
    tense, modal = choices.tense(dice)
    return Plan(subject, tense, modal, dice.chance(negated) and _deniable(modal), timed, placed)


def _deniable(modal: Modal | None) -> bool:
    """ "must not" is not "muss nicht": that one is only affirmed."""
    return modal is None or modal.english[0] != "must"


def suited(tense: Tense, verb: Verb, subject: Nominal) -> Tense:
    """The tense nearest to the wanted one that this verb has without ambiguity."""
    if subject.agreement == 1 and (tense is Tense.PAST or tense is Tense.PAST_PROGRESSIVE):
        tense = Tense.PERFECT  # "du kauftest" is correct but nobody says it
    if verb.no_perfect and (tense is Tense.PERFECT or tense is Tense.MODAL):
        tense = Tense.PRESENT
    if verb.continuous:
        return _CONTINUOUS.get(tense, tense)
    if verb.stative:
        return _SIMPLE.get(tense, tense)
    if tense is Tense.PAST and verb.english[0] == verb.english[2]:
        return Tense.PAST_PROGRESSIVE  # "I read" and "I put" would be present as well
    return tense


_CONTINUOUS: Final = {Tense.PRESENT: Tense.PRESENT_PROGRESSIVE, Tense.PAST: Tense.PAST_PROGRESSIVE}
_SIMPLE: Final = {Tense.PRESENT_PROGRESSIVE: Tense.PRESENT, Tense.PAST_PROGRESSIVE: Tense.PAST}


def _time(dice: Dice, given: Plan, tense: Tense, adverb: Fixed | None) -> Fixed | None:
    if adverb is not None or not dice.chance(given.timed):
        return None
    return choices.time(dice, tense)


def _adverb(dice: Dice, given: Plan, tense: Tense, direct: Nominal | None) -> Fixed | None:
    """ "often" and the like: not beside an amount, nor within a negation."""
    if type(direct) is NounPhrase and (direct.number or direct.determiner in ("some", "many")):
        return None
    if given.negated:
        definite = type(direct) is not NounPhrase or direct.determiner != "no"
        return YET if tense is Tense.PERFECT and definite and dice.chance(40) else None
    if tense is Tense.PERFECT:
        return dice.pick(PERFECT_ADVERBS) if dice.chance(40) else None
    if tense is Tense.PRESENT or (tense is Tense.PAST and type(direct) is not Pronoun):
        return dice.pick(FREQUENCY) if dice.chance(22) else None
    return None


def _place(dice: Dice, given: Plan, verb: Verb) -> Prepositional | Fixed | None:
    places = PLACES_OF.get(verb.english[0])
    if places is None or not dice.chance(given.placed):
        return None
    return choices.location(dice, dice.pick(places))


def _manner(dice: Dice, verb: Verb, direct: Nominal | None, percent: int = 25) -> Fixed | None:
    manners = MANNERS_OF.get(verb.english[0])
    if manners is None or not dice.chance(percent):
        return None
    return dice.pick(manners) if direct is None or _is_definite(direct) else None


def _is_definite(nominal: Nominal) -> bool:
    return type(nominal) is not NounPhrase or nominal.determiner in (
        "the",
        "this",
        "my",
        "your",
        "his",
        "her",
        "our",
    )


def _companion(dice: Dice, given: Plan) -> Prepositional | None:
    if not dice.chance(given.placed // 2):
        return None
    if dice.chance(20):
        partner: Nominal = choices.other_pronoun(dice, given.subject)
    else:
        partner = choices.person(dice)
    return Prepositional("with", "mit", Case.DATIVE, partner)


def _cause(dice: Dice, given: Plan) -> Prepositional | None:
    if not dice.chance(given.placed // 6):
        return None
    noun = dice.pick(CLASSES["causes"])
    phrase = NounPhrase("the", noun, False, choices.describe(dice, noun, 30))
    return Prepositional("because of", "wegen", Case.GENITIVE, phrase)


def patient(dice: Dice, given: Plan, noun: Noun, definite: bool = False) -> Nominal:
    """The thing or person that something is done to."""
    if noun.kind not in _HUMAN:
        return choices.thing(dice, noun, given.negated, definite)
    if dice.chance(25):
        return choices.other_pronoun(dice, given.subject)
    someone = choices.person(dice, noun)
    if given.negated and (someone.determiner == "a" or someone.number):
        return NounPhrase("no", noun, someone.plural, someone.adjectives)
    return someone


_HUMAN: Final = frozenset({"people", "family"})
_ATTITUDES: Final = frozenset({"know", "like", "love"})  # towards something that one has met


def transitive(dice: Dice, given: Plan) -> Clause:
    verb, objects = dice.pick(TRANSITIVE)
    tense = suited(given.tense, verb, given.subject)
    direct = patient(dice, given, dice.pick(objects), definite=verb.english[0] in _ATTITUDES)
    adverb = None if verb.no_perfect else _adverb(dice, given, tense, direct)
    manner = None if adverb is not None else _manner(dice, verb, direct)
    place = None if manner is not None or verb.stative else _place(dice, given, verb)
    when = None if verb.no_perfect else _time(dice, given, tense, adverb)
    return Clause(
        given.subject,
        verb,
        tense,
        given.modal,
        direct,
        adverb=adverb,
        manner=manner,
        place=place,
        time=when,
        negated=given.negated,
    )


def giving(dice: Dice, given: Plan) -> Clause:
    verb, objects = dice.pick(GIVING)
    tense = suited(given.tense, verb, given.subject)
    if dice.chance(40):
        recipient: Nominal = choices.other_pronoun(dice, given.subject)
    else:
        recipient = choices.person(dice)
    direct = choices.thing(dice, dice.pick(objects), given.negated)
    when = _time(dice, given, tense, None)
    return Clause(
        given.subject, verb, tense, given.modal, direct, recipient, time=when, negated=given.negated
    )


def helping(dice: Dice, given: Plan) -> Clause:
    verb, objects = dice.pick(HELPING)
    tense = suited(given.tense, verb, given.subject)
    direct = patient(dice, given._replace(negated=False), dice.pick(objects))
    adverb = _adverb(dice, given, tense, direct)
    manner = None if adverb is not None else _manner(dice, verb, direct)
    when = None if verb.no_perfect else _time(dice, given, tense, adverb)
    return Clause(
        given.subject,
        verb,
        tense,
        given.modal,
        direct,
        adverb=adverb,
        manner=manner,
        time=when,
        negated=given.negated,
    )


def prepositional(dice: Dice, given: Plan) -> Clause:
    verb, objects = dice.pick(PREPOSITIONAL)
    tense = suited(given.tense, verb, given.subject)
    noun = dice.pick(objects)
    if noun.kind in _HUMAN:
        direct: Nominal = choices.person(dice, noun)
    else:
        direct = choices.thing(dice, noun, False, definite=True)
    adverb = _adverb(dice, given, tense, direct)
    when = _time(dice, given, tense, adverb)
    return Clause(
        given.subject, verb, tense, given.modal, direct, adverb=adverb, time=when, negated=given.negated
    )


def resting(dice: Dice, given: Plan) -> Clause:
    verb, _ = dice.pick(RESTING)
    tense = suited(given.tense, verb, given.subject)
    adverb = _adverb(dice, given, tense, None)
    manner = None if adverb is not None else _manner(dice, verb, None)
    place = choices.location(dice, dice.pick(PLACES_OF[verb.english[0]]))
    companion = None if manner is not None else _companion(dice, given)
    cause = None if companion is not None or verb.english[0] == "live" else _cause(dice, given)
    when = None if cause is not None or verb.english[0] in _LASTING else _time(dice, given, tense, adverb)
    return Clause(
        given.subject,
        verb,
        tense,
        given.modal,
        adverb=adverb,
        manner=manner,
        companion=companion,
        place=place,
        cause=cause,
        time=when,
        negated=given.negated,
    )


_WITHOUT_CLOCK: Final = (Tense.PERFECT, Tense.PRESENT_PROGRESSIVE)
_LASTING: Final = frozenset({"live", "stay"})


def daily(dice: Dice, given: Plan) -> Clause:
    verb, _ = dice.pick(DAILY)
    tense = suited(given.tense, verb, given.subject)
    adverb = _adverb(dice, given, tense, None)
    when = None
    if adverb is None and dice.chance(90):
        when = dice.pick(CLOCK_TIMES) if tense not in _WITHOUT_CLOCK else choices.time(dice, tense)
    cause = None if adverb is None else _cause(dice, given._replace(placed=90))
    return Clause(
        given.subject, verb, tense, given.modal, adverb=adverb, cause=cause, time=when, negated=given.negated
    )


def motion(dice: Dice, given: Plan) -> Clause:
    travels = dice.chance(35)
    verb, _ = dice.pick(TRAVEL if travels else MOTION)
    tense = suited(given.tense, verb, given.subject)
    adverb = _adverb(dice, given, tense, None)
    place: Prepositional | Fixed
    companion: Prepositional | Fixed | None = _companion(dice, given)
    if travels:
        place = dice.pick(TO_CITIES)
        if companion is None and verb.english[0] in ("travel", "drive") and dice.chance(50):
            companion = dice.pick(BY_VEHICLE)
    else:
        place = choices.direction(dice, dice.pick(PLACES))
    when = _time(dice, given, tense, adverb)
    return Clause(
        given.subject,
        verb,
        tense,
        given.modal,
        adverb=adverb,
        companion=companion,
        place=place,
        time=when,
        negated=given.negated,
    )


def playing(dice: Dice, given: Plan) -> Clause:
    """Instruments and games, which German names without an article."""
    verb = SINGLE["play"]
    tense = suited(given.tense, verb, given.subject)
    if dice.chance(50):
        direct = NounPhrase("instrument", dice.pick(CLASSES["instruments"]))
    else:
        direct = NounPhrase("", dice.pick(CLASSES["games"]))
    adverb = _adverb(dice, given._replace(negated=False), tense, direct)
    companion = _companion(dice, given._replace(placed=90))
    when = _time(dice, given, tense, adverb)
    return Clause(
        given.subject, verb, tense, given.modal, direct, adverb=adverb, companion=companion, time=when
    )


def putting(dice: Dice, given: Plan) -> Clause:
    """A direction onto something: the accusative where lying there has the dative."""
    verb = SINGLE["put"]
    tense = suited(given.tense, verb, given.subject)
    direct = choices.thing(dice, dice.pick(CLASSES["things"]), False, definite=True)
    surface = NounPhrase(dice.pick(("the", "the", "this", "my", "her")), dice.pick(SURFACES))
    place = Prepositional("on", "auf", Case.ACCUSATIVE, surface)
    when = _time(dice, given, tense, None)
    return Clause(
        given.subject, verb, tense, given.modal, direct, place=place, time=when, negated=given.negated
    )


Action = Callable[[Dice, Plan], Clause]
_ACTIONS: Final[tuple[Action, ...]] = (
    (transitive,) * 20
    + (giving,) * 5
    + (helping,) * 3
    + (prepositional,) * 4
    + (resting,) * 5
    + (daily,) * 2
    + (motion,) * 4
    + (playing,)
    + (putting,)
)


def action(dice: Dice, given: Plan) -> Clause:
    return dice.pick(_ACTIONS)(dice, given)
