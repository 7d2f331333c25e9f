"""Sentences of two clauses, sentences about numbers and machines, and the mixture of all kinds."""

from collections.abc import Callable
from typing import Final

from regard.data.phrasebook import choices
from regard.data.phrasebook.actions import action, plan, suited
from regard.data.phrasebook.choices import Dice
from regard.data.phrasebook.grammar import (
    brief,
    brief_in,
    feeling,
    object_first,
    open_question,
    quality,
    relative_sentence,
    statement,
    yes_no_question,
)
from regard.data.phrasebook.nouns import CLASSES, NOUNS
from regard.data.phrasebook.phenomena import NUMBER, NUMERAL
from regard.data.phrasebook.structure import (
    Case,
    Clause,
    Fixed,
    Front,
    Link,
    Name,
    Nominal,
    NounPhrase,
    Prepositional,
    Sentence,
    Tense,
)
from regard.data.phrasebook.verbs import MODALS, SINGLE
from regard.data.phrasebook.words import (
    ADJECTIVES,
    ALEX,
    CLOCK_TIMES,
    ENGLISH_NUMBERS,
    GERMAN_NUMBERS,
    MANNER,
    PET_NAMES,
    PRONOUNS,
    PYTHON,
    THING_PRONOUNS,
)

_BE: Final = SINGLE["be"]
_SAYING: Final = tuple(
    SINGLE[name] for name in ["know", "say", "believe", "hope", "think", "hear", "write", "forget"]
)
_DENIED: Final = frozenset(SINGLE[name] for name in ("know", "say", "believe"))
_INTENDING: Final = tuple(SINGLE[name] for name in ["try", "plan", "promise", "decide", "forget", "hope"])
_REPORTING_TENSES: Final = (Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.PERFECT)


def that_sentence(dice: Dice) -> Sentence:
    """ "She says that ...", "He asks whether ..." """
    acting = choices.subject(dice)
    whether = dice.chance(22)
    verb = SINGLE["ask" if dice.chance(60) else "know"] if whether else dice.pick(_SAYING)
    tense = suited(dice.pick(_REPORTING_TENSES), verb, acting)
    negated = verb is SINGLE["know"] if whether else verb in _DENIED and dice.chance(25)
    matrix = Clause(acting, verb, tense, negated=negated)
    return Sentence(matrix, link=Link("whether" if whether else "that", _event(dice, acting, tense)))


def _event(dice: Dice, acting: Nominal, outer: Tense) -> Clause:
    """What is said, known or asked; what was said in the past is told in the past."""
    throw = dice.roll(100)
    if throw < 12:
        return _departure(dice)
    if throw < 20:
        return feeling(dice, choices.subject(dice), dice.pick((Tense.PRESENT, Tense.PAST)))
    inner = choices.same(dice, acting) if throw < 45 else choices.subject(dice)
    return brief_in(dice, inner, Tense.PAST) if outer is Tense.PAST else brief(dice, inner)


def reason_sentence(dice: Dice) -> Sentence:
    """A clause with its reason, its condition, or what it happens in spite of."""
    throw = dice.roll(100)
    if throw < 20:
        return _condition(dice)
    if throw < 40:
        return _thing_reason(dice)
    acting = choices.subject(dice)
    main = brief(dice, acting)
    past = main.tense in (Tense.PAST, Tense.PAST_PROGRESSIVE)
    reason = _reason(dice, acting, Tense.PAST if past else Tense.PRESENT)
    if throw < 75:
        return Sentence(main, link=Link("because", reason))
    return Sentence(main, link=Link("although", reason, fronted=dice.chance(60)))


def _reason(dice: Dice, acting: Nominal, tense: Tense) -> Clause:
    throw = dice.roll(100)
    if throw < 20:
        verb = SINGLE[dice.pick(("rain", "snow"))]
        return Clause(PRONOUNS["it"], verb, suited(tense, verb, PRONOUNS["it"]))
    if throw < 65:
        return feeling(dice, choices.same(dice, acting), tense)
    subject = choices.same(dice, acting) if throw < 80 else choices.subject(dice)
    return brief_in(dice, subject, tense)


def _condition(dice: Dice) -> Sentence:
    """ "If it is raining tomorrow, we will stay at home." """
    acting = choices.subject(dice)
    given = plan(dice, acting, timed=30, placed=30)._replace(
        tense=Tense.MODAL, modal=MODALS[dice.pick(("can", "must", "should", "will"))], negated=False
    )
    condition = _reason(dice, acting, Tense.PRESENT)
    if condition.tense not in (Tense.PRESENT, Tense.PRESENT_PROGRESSIVE):
        condition = feeling(dice, choices.same(dice, acting), Tense.PRESENT)
    return Sentence(action(dice, given), link=Link("if", condition, fronted=dice.chance(60)))


def _thing_reason(dice: Dice) -> Sentence:
    """The pronoun of a thing has the gender of its German noun: "weil er zu teuer ist"."""
    noun = dice.pick(_BOUGHT)
    head = NounPhrase(dice.pick(("the", "this")), noun, dice.chance(30), choices.describe(dice, noun, 40))
    pronoun = THING_PRONOUNS[3 if head.plural else noun.gender]
    acting = dice.pick(_BUYERS) if dice.chance(50) else choices.person(dice)
    given = plan(dice, acting, negated=0)
    verbs, merits, negated, conjunction = dice.pick(_DEALINGS)
    verb = SINGLE[dice.pick(verbs)]
    tense = suited(given.tense, verb, acting)
    if negated and given.modal is MODALS["must"]:
        tense = Tense.PRESENT
    opinion = quality(dice, dice.pick(ADJECTIVES["merits" if merits else "faults"]))
    then = Tense.PAST if tense in _PAST else Tense.PRESENT
    if conjunction == "because":
        main = Clause(acting, verb, tense, given.modal, head, negated=negated)
        return Sentence(main, link=Link("because", Clause(pronoun, _BE, then, predicate=opinion)))
    main = Clause(acting, verb, tense, given.modal, pronoun, negated=negated)
    return Sentence(Clause(head, _BE, then, predicate=opinion), link=Link("but", main))


# What is done with a thing, whether it has a merit, whether it is not done, and how the two are linked.
_DEALINGS: Final = (
    (("buy", "use"), True, False, "because"),
    (("buy", "use", "need"), False, True, "because"),
    (("sell", "throw away"), False, False, "because"),
    (("buy", "use", "need", "repair"), False, False, "but"),
    (("buy", "use", "need"), True, True, "but"),
)
_PAST: Final = (Tense.PAST, Tense.PAST_PROGRESSIVE)
_BUYERS: Final = tuple(PRONOUNS[name] for name in ("I", "you", "we"))
_BOUGHT: Final = tuple(
    noun for name in ("clothes", "things", "devices", "vehicles") for noun in CLASSES[name]
)


def intention(dice: Dice) -> Sentence:
    """ "She is trying to call her mother", "He goes to the market in order to buy bread"."""
    acting = choices.subject(dice)
    aim = action(dice, plan(dice, acting, timed=0, placed=20, negated=0))
    while aim.verb.stative:  # nobody aims at losing or forgetting something
        aim = action(dice, plan(dice, acting, timed=0, placed=20, negated=0))
    aim = aim._replace(tense=Tense.INFINITIVE, modal=None, adverb=None, time=None)
    if dice.chance(55):
        verb = dice.pick(_INTENDING)
        tense = suited(dice.pick(_REPORTING_TENSES), verb, acting)
        return Sentence(Clause(acting, verb, tense, negated=dice.chance(6)), link=Link("to", aim))
    given = plan(dice, acting, timed=30, negated=0)
    verb = SINGLE["go"]
    tense = suited(given.tense, verb, acting)
    place = choices.direction(dice, dice.pick(CLASSES["places"]))
    when = choices.time(dice, tense) if dice.chance(20) else None
    main = Clause(acting, verb, tense, given.modal, place=place, time=when)
    return Sentence(main, link=Link("in order to", aim))


# -- numbers, qualities, machines ---------------------------------------------------------------------------


def age(dice: Dice) -> Sentence:
    number = 18 + dice.roll(82)
    subject = choices.person(dice, plurals=0)
    measure = Fixed(
        f"{ENGLISH_NUMBERS[number]} years old", f"{GERMAN_NUMBERS[number]} Jahre alt", NUMERAL | NUMBER
    )
    clause = Clause(subject, _BE, Tense.PRESENT, predicate=measure)
    if dice.chance(60):
        return Sentence(clause, link=Link("but", feeling(dice, choices.same(dice, subject), Tense.PRESENT)))
    return Sentence(Clause(choices.subject(dice), SINGLE["know"], Tense.PRESENT), link=Link("that", clause))


def price(dice: Dice) -> Sentence:
    noun = dice.pick(_BOUGHT)
    subject = NounPhrase(dice.pick(("the", "this")), noun, False, choices.describe(dice, noun, 70))
    number = 2 + dice.roll(98)
    euros = Fixed(f"{ENGLISH_NUMBERS[number]} euros", f"{GERMAN_NUMBERS[number]} Euro", NUMERAL)
    clause = Clause(subject, SINGLE["cost"], Tense.PRESENT, predicate=euros)
    if dice.chance(50):
        matrix = Clause(choices.subject(dice), SINGLE["say"], dice.pick((Tense.PRESENT, Tense.PAST)))
        matrix = matrix._replace(tense=suited(matrix.tense, matrix.verb, matrix.subject))
        return Sentence(matrix, link=Link("that", clause))
    pronoun = THING_PRONOUNS[noun.gender]
    acting = dice.pick(_BUYERS)
    verb = SINGLE[dice.pick(("buy", "sell", "use"))]
    modal = MODALS[dice.pick(("can", "should", "would like to", "want to"))]
    negated = dice.chance(30)
    wish = Clause(acting, verb, Tense.MODAL, modal, pronoun, negated=negated)
    return Sentence(clause, link=Link("but", wish))


def description(dice: Dice) -> Sentence:
    noun = dice.pick(_DESCRIBED)
    subject = choices.thing(dice, noun, definite=True)._replace(adjectives=())
    predicate = quality(dice, dice.pick(noun.adjectives))
    tense = dice.pick((Tense.PRESENT, Tense.PAST))
    clause = Clause(subject, _BE, tense, predicate=predicate, negated=dice.chance(25))
    if dice.chance(40):
        return Sentence(clause, Front.NOTHING, question=True)
    matrix = Clause(choices.subject(dice), dice.pick(_SAYING[:5]), Tense.PRESENT)
    return Sentence(matrix, link=Link("that", clause))


_DESCRIBED: Final = tuple(
    noun for noun in NOUNS.values() if noun.adjectives and noun.kind not in ("people", "family", "causes")
)


def _departure(dice: Dice) -> Clause:
    noun = dice.pick(_SCHEDULED)
    subject = NounPhrase(dice.pick(("the", "this", "our")), noun)
    tense = dice.pick((Tense.PRESENT, Tense.PAST))
    verb = SINGLE["depart" if dice.chance(50) else "arrive"]
    when = dice.pick(CLOCK_TIMES) if dice.chance(70) else choices.time(dice, tense)
    return Clause(subject, verb, tense, time=when)


_SCHEDULED: Final = tuple(NOUNS[name] for name in ("train", "bus", "ship", "tram"))


def walk(dice: Dice) -> Sentence:
    """ "Sarah was walking in the park with her cat, Alex." """
    acting = choices.subject(dice)
    tense = suited(dice.pick((Tense.PAST_PROGRESSIVE, Tense.PRESENT_PROGRESSIVE, Tense.PAST)), _WALK, acting)
    place = choices.location(dice, dice.pick(_WALKS))
    own = {"he": "his", "she": "her"}.get(acting.pronoun if type(acting) is Name else "", "")
    pet = NounPhrase(own or dice.pick(("my", "our")), NOUNS[dice.pick(("cat", "dog", "horse"))])
    pet = pet._replace(name=dice.pick(PET_NAMES[1:] if acting == ALEX else PET_NAMES))
    companion = Prepositional("with", "mit", Case.DATIVE, pet)
    return Sentence(Clause(acting, _WALK, tense, companion=companion, place=place))


_WALK: Final = SINGLE["walk"]
_WALKS: Final = tuple(
    NOUNS[name] for name in ["park", "garden", "forest", "city", "village", "beach", "lake", "river"]
)


def machine(dice: Dice) -> Sentence:
    """ "Python executes the program quickly", or somebody says so."""
    outer = dice.pick(_REPORTING_TENSES)
    tense = Tense.PAST if outer is Tense.PAST else dice.pick((Tense.PRESENT, Tense.PAST, Tense.PERFECT))
    clause = _running(dice, tense) if dice.chance(30) else _executing(dice, tense)
    if dice.chance(15):
        return Sentence(clause)
    if dice.chance(30):
        return Sentence(clause._replace(time=choices.time(dice, tense)), Front.TIME)
    acting, verb = choices.subject(dice), dice.pick(_SAYING)
    return Sentence(Clause(acting, verb, suited(outer, verb, acting)), link=Link("that", clause))


def _running(dice: Dice, tense: Tense) -> Clause:
    doing = PYTHON if dice.chance(40) else choices.thing(dice, NOUNS["program"], definite=True)
    return Clause(doing, SINGLE["execute quickly"], tense, manner=MANNER[dice.pick(("quickly", "slowly"))])


def _executing(dice: Dice, tense: Tense) -> Clause:
    noun = NOUNS[dice.pick(("machine", "computer"))]
    doing: Nominal = PYTHON
    if dice.chance(65):
        described = choices.describe(dice, noun, 60)
        doing = NounPhrase(dice.pick(("the", "this", "my", "our")), noun, dice.chance(50), described)
    manner = MANNER[dice.pick(("quickly", "slowly", "carefully"))] if dice.chance(70) else None
    direct = choices.thing(dice, dice.pick(CLASSES["programs"]), definite=True)
    return Clause(doing, SINGLE["execute"], tense, object=direct, manner=manner)


Kind = Callable[[Dice], Sentence]
KINDS: Final[tuple[Kind, ...]] = (
    (statement,) * 30
    + (object_first,) * 3
    + (yes_no_question,) * 7
    + (open_question,) * 9
    + (relative_sentence,) * 14
    + (that_sentence,) * 12
    + (reason_sentence,) * 12
    + (intention,) * 5
    + (age,) * 2
    + (price,) * 2
    + (description,) * 2
    + (walk,)
    + (machine,)
)


def sentence(dice: Dice) -> Sentence:
    return dice.pick(KINDS)(dice)
