"""Sentences: the kinds of sentence, each thrown with dice from the clauses of `actions`."""

from typing import Final

from regard.data.phrasebook import choices
from regard.data.phrasebook.actions import Plan, action, plan, suited
from regard.data.phrasebook.choices import Dice
from regard.data.phrasebook.nouns import CLASSES, NOUNS
from regard.data.phrasebook.settings import SURFACES
from regard.data.phrasebook.structure import (
    Adjective,
    Case,
    Clause,
    Fixed,
    Front,
    Gap,
    Nominal,
    Noun,
    NounPhrase,
    Prepositional,
    Pronoun,
    Relative,
    Sentence,
    Tense,
    Verb,
)
from regard.data.phrasebook.verbs import HELPING, SINGLE, TRANSITIVE
from regard.data.phrasebook.words import ADJECTIVES, PRONOUNS, REMARKS

_BE: Final = SINGLE["be"]
_DEGREES: Final = (("", ""), ("", ""), ("very ", "sehr "), ("too ", "zu "), ("quite ", "ziemlich "))


def quality(dice: Dice, adjective: Adjective) -> Fixed:
    english, german = dice.pick(_DEGREES)
    return Fixed(english + adjective.english, german + adjective.german)


def _mood(dice: Dice) -> Fixed:
    adjective = dice.pick(ADJECTIVES["state"])
    if dice.chance(60):
        return Fixed(adjective.english, adjective.german)
    return Fixed("very " + adjective.english, "sehr " + adjective.german)


def feeling(dice: Dice, subject: Nominal, tense: Tense) -> Clause:
    """Somebody is tired, happy..."""
    return Clause(subject, _BE, tense, predicate=_mood(dice), negated=dice.chance(15))


def brief(dice: Dice, subject: Nominal, negated: int = 13) -> Clause:
    """A clause short enough to stand beside another one."""
    return action(dice, plan(dice, subject, timed=25, placed=25, negated=negated))


def brief_in(dice: Dice, subject: Nominal, tense: Tense) -> Clause:
    """The same in a given tense."""
    negated = dice.chance(13)
    return action(dice, Plan(subject, tense, None, negated, timed=25, placed=25))


def statement(dice: Dice) -> Sentence:
    clause = action(dice, plan(dice, choices.subject(dice), timed=85, placed=80))
    throw = dice.roll(100)
    if clause.time is not None and throw < 45:
        return Sentence(clause, Front.TIME)
    if throw > 85 and clause.tense is not Tense.MODAL:
        return Sentence(clause, Front.OPENING, dice.pick(REMARKS))
    return Sentence(clause)


def object_first(dice: Dice) -> Sentence:
    """ "This film I have already seen": a thing in front of the verb, somebody after it."""
    while True:
        frame = dice.pick(TRANSITIVE)
        noun = dice.pick(frame.objects)
        if noun.kind not in _HUMAN and not noun.is_mass:
            break
    given = plan(dice, PRONOUNS[dice.pick(("I", "you", "he", "she", "we"))], timed=50, negated=35)
    wanted = Tense.PERFECT if given.tense in _PROGRESSIVE else given.tense
    tense = suited(wanted, frame.verb, given.subject)
    direct = NounPhrase("this", noun, noun.is_countable and dice.chance(40), choices.describe(dice, noun, 60))
    when = choices.time(dice, tense) if not frame.verb.no_perfect and dice.chance(60) else None
    clause = Clause(given.subject, frame.verb, tense, given.modal, direct, time=when, negated=given.negated)
    return Sentence(clause, Front.OBJECT)


_PROGRESSIVE: Final = (Tense.PRESENT_PROGRESSIVE, Tense.PAST_PROGRESSIVE)
_HUMAN: Final = frozenset({"people", "family", "animals"})


def yes_no_question(dice: Dice) -> Sentence:
    given = plan(dice, _asked_about(dice), timed=85, placed=80, negated=0)
    return Sentence(action(dice, _spoken(given)), Front.NOTHING, question=True)


def _asked_about(dice: Dice) -> Nominal:
    """Nobody asks others what he himself does."""
    acting = choices.subject(dice)
    return PRONOUNS["you"] if acting is PRONOUNS["I"] else acting


def _spoken(given: Plan) -> Plan:
    """Questions are asked in the tenses of speech; the German preterite belongs to reports."""
    if given.tense is Tense.PAST or given.tense is Tense.PAST_PROGRESSIVE:
        return given._replace(tense=Tense.PERFECT)
    return given


_WHY: Final = Fixed("why", "warum")
_WHEN_AND_WHY: Final = (Fixed("when", "wann"), _WHY)


def open_question(dice: Dice) -> Sentence:
    throw = dice.roll(100)
    if throw < 40:
        opening = dice.pick(_WHEN_AND_WHY)
        given = plan(dice, _asked_about(dice), timed=0, placed=80, negated=0)
        clause = action(dice, _spoken(given))
        if clause.tense is not Tense.PRESENT and clause.tense is not Tense.MODAL:
            opening = _WHY  # English does not ask for the time of a perfect, nor does "gerade" leave it open
        return Sentence(clause._replace(time=None, adverb=None), Front.OPENING, opening, True)
    if throw < 60:
        given = plan(dice, PRONOUNS["who"], timed=85, placed=80, negated=0)
        return Sentence(action(dice, _spoken(given)), Front.SUBJECT, question=True)
    return _object_question(dice)


def _object_question(dice: Dice) -> Sentence:
    """ "which book", "how many apples", "what", "whom"."""
    given = _spoken(plan(dice, _asked_about(dice), timed=85, negated=0))
    verb, objects = dice.pick(HELPING if dice.chance(10) else TRANSITIVE)
    noun = dice.pick(objects)
    if verb.no_perfect and (noun.is_mass or noun.kind in ("people", "family")):
        return yes_no_question(dice)  # "Whom do you know?" is soon exhausted
    tense = suited(given.tense, verb, given.subject)
    when = choices.time(dice, tense) if not verb.no_perfect and dice.chance(85) else None
    if noun.kind in ("people", "family"):
        german = "wem" if verb.object_case is Case.DATIVE else "wen"
        opening, direct = Fixed("whom", german), None
        front = Front.OPENING
    elif noun.is_mass or verb.english_preposition or (when is not None and dice.chance(25)):
        opening, direct, front = Fixed("what", "was"), None, Front.OPENING
    else:
        determiner = dice.pick(("which", "which", "how many") if noun.is_countable else ("which",))
        plural = determiner == "how many" or (noun.is_countable and dice.chance(30))
        direct = NounPhrase(determiner, noun, plural, choices.describe(dice, noun, 40))
        opening, front = None, Front.OBJECT
    asked: Nominal = direct if direct is not None else Gap()
    clause = Clause(given.subject, verb, tense, given.modal, asked, time=when)
    return Sentence(clause, front, opening, True)


# -- relative clauses -------------------------------------------------------------------------------------


def relative_sentence(dice: Dice) -> Sentence:
    throw = dice.roll(100)
    if throw < 40:
        return _subject_with_relative(dice)
    return _object_with_relative(dice)


def _subject_with_relative(dice: Dice) -> Sentence:
    """ "The man who bought the car is tired." """
    head = choices.person(dice, dice.pick(CLASSES["people"]), plurals=30)
    head = head._replace(determiner="the", number=0, adjectives=(), relative=person_relative(dice, head))
    if dice.chance(40):
        return Sentence(feeling(dice, head, dice.pick((Tense.PRESENT, Tense.PAST))))
    return Sentence(action(dice, plan(dice, head, timed=0, placed=0)))


def person_relative(dice: Dice, head: NounPhrase) -> Relative:
    throw = dice.roll(100)
    if throw < 50:
        # Never a pronoun as object here: "die Frau, die sie kennt" could be read both ways.
        given = plan(dice, Gap(head.agreement), timed=25, placed=25)
        return Relative(Case.NOMINATIVE, _without_pronoun(dice, action(dice, given)), True)
    acting = PRONOUNS[dice.pick(("I", "you", "he", "she", "we", "they"))]
    given = plan(dice, acting, timed=25, placed=0)
    if throw < 65:
        return Relative(Case.DATIVE, _with_whom(dice, given), True, Fixed("with", "mit"))
    verb = dice.pick(_PERSON_VERBS)
    tense = suited(given.tense, verb, acting)
    when = choices.time(dice, tense) if not verb.no_perfect and dice.chance(30) else None
    clause = Clause(acting, verb, tense, given.modal, Gap(), time=when, negated=given.negated)
    return Relative(verb.object_case, clause, True)


_PERSON_VERBS: Final = tuple(
    verb
    for verb, objects in (*TRANSITIVE, *HELPING)
    if NOUNS["neighbour"] in objects and not (verb.english_particle or verb.english_preposition)
)


def _with_whom(dice: Dice, given: Plan) -> Clause:
    verb = SINGLE["play"]
    tense = suited(given.tense, verb, given.subject)
    direct = NounPhrase("", dice.pick(CLASSES["games"]))
    when = choices.time(dice, tense) if dice.chance(40) else None
    return Clause(given.subject, verb, tense, given.modal, direct, time=when)


def _without_pronoun(dice: Dice, clause: Clause) -> Clause:
    if type(clause.object) is not Pronoun:
        return clause
    return clause._replace(object=choices.person(dice))


def _object_with_relative(dice: Dice) -> Sentence:
    """ "I have not read the book that you bought." """
    given = plan(dice, choices.subject(dice), timed=0, placed=0, negated=20)
    verb, objects = dice.pick(TRANSITIVE)
    noun = dice.pick(objects)
    human = noun.kind == "people"
    if noun.kind in ("people", "family") and not human:
        noun, human = dice.pick(CLASSES["people"]), True
    head = NounPhrase("the", noun, noun.is_countable and dice.chance(30), choices.describe(dice, noun, 20))
    relative = person_relative(dice, head) if human else _thing_relative(dice, head, verb)
    tense = suited(given.tense, verb, given.subject)
    direct = head._replace(relative=relative)
    return Sentence(Clause(given.subject, verb, tense, given.modal, direct, negated=given.negated))


def _thing_relative(dice: Dice, head: NounPhrase, outer: Verb) -> Relative:
    frames = _VERBS_OF[head.noun.english[0]]
    verb = dice.pick(frames).verb if frames else outer
    if verb is outer or dice.chance(20):
        tense = dice.pick((Tense.PRESENT, Tense.PAST))
        return Relative(Case.NOMINATIVE, _thing_state(dice, Gap(head.agreement), head.noun, tense), False)
    acting = PRONOUNS[dice.pick(("I", "you", "he", "she", "we", "they"))]
    given = plan(dice, acting, negated=20)
    tense = suited(given.tense, verb, acting)
    when = choices.time(dice, tense) if not verb.no_perfect and dice.chance(30) else None
    clause = Clause(acting, verb, tense, given.modal, Gap(), time=when, negated=given.negated)
    return Relative(Case.ACCUSATIVE, clause, False)


_PLAIN_FRAMES: Final = tuple(
    (frame, frozenset(noun.english[0] for noun in frame.objects))
    for frame in TRANSITIVE
    if not (frame.verb.english_particle or frame.verb.english_preposition)
)
_VERBS_OF: Final = {
    name: tuple(frame for frame, objects in _PLAIN_FRAMES if name in objects) for name in NOUNS
}


def _thing_state(dice: Dice, subject: Nominal, noun: Noun, tense: Tense) -> Clause:
    """A thing lies somewhere, or has a quality that no person has."""
    if noun.kind in ("things", "reading", "writing", "clothes") and dice.chance(60):
        surface = Prepositional("on", "auf", Case.DATIVE, NounPhrase("the", dice.pick(SURFACES)))
        return Clause(subject, SINGLE["lie"], tense, place=surface)
    adjectives = ADJECTIVES["faults"] if noun.kind in _MATERIAL else noun.adjectives
    return Clause(subject, _BE, tense, predicate=quality(dice, dice.pick(adjectives or ADJECTIVES["ideas"])))


_MATERIAL: Final = frozenset({"clothes", "things", "devices", "vehicles", "furniture", "jewels"})
