"""Realise a structure in English."""

from typing import Final

from regard.data.phrasebook.structure import (
    Clause,
    Fixed,
    Front,
    Gap,
    Link,
    Name,
    Nominal,
    NounPhrase,
    Pair,
    Prepositional,
    Pronoun,
    Relative,
    Sentence,
    Tense,
)
from regard.data.phrasebook.words import ENGLISH_NUMBERS

_BE_PRESENT: Final = ("am", "are", "is", "are")
_BE_PAST: Final = ("was", "were", "was", "were")
_HAVE: Final = ("have", "have", "has", "have")
_DO: Final = ("do", "do", "does", "do")
_VOWELS: Final = frozenset("aeiou")
# Written with a vowel, spoken with a consonant.
_CONSONANT_SOUND: Final = frozenset({"university", "useful"})
_PLURAL_DETERMINERS: Final = {"this": "these", "a": "", "no": "any"}


def text(sentence: Sentence) -> str:
    words: list[str] = []
    link = sentence.link
    if link is not None and link.fronted:
        _link(words, link)
        words[-1] += ","
    _main(words, sentence)
    if link is not None and not link.fronted:
        if link.conjunction == "but":
            words[-1] += ","
        _link(words, link)
    line = " ".join(words)
    return line[0].upper() + line[1:] + ("?" if sentence.question else ".")


def _link(words: list[str], link: Link) -> None:
    words.append(link.conjunction)
    clause = link.clause
    if clause.tense is Tense.INFINITIVE:
        words.append(clause.verb.english[0])
    else:
        _nominal(words, clause.subject, True)
        _predicate(words, clause, False)
    _rest(words, clause, Front.SUBJECT)


def _main(words: list[str], sentence: Sentence) -> None:
    clause, front = sentence.clause, sentence.front
    if front is Front.TIME and clause.time is not None:
        words.append(clause.time.english)
    elif front is Front.OBJECT and clause.object is not None:
        _nominal(words, clause.object, False)
    elif front is Front.OPENING and sentence.opening is not None:
        words.append(sentence.opening.english)
    if sentence.question and front is not Front.SUBJECT:
        _predicate(words, clause, True)
    else:
        _nominal(words, clause.subject, True)
        _predicate(words, clause, False)
    _rest(words, clause, front)


def _predicate(words: list[str], clause: Clause, inverted: bool) -> None:
    """The verb with its auxiliary, "not" and the adverb; the subject goes in between in a question."""
    auxiliary, main = _verb(clause, inverted)
    if auxiliary:
        words.append(auxiliary)
    if inverted:
        _nominal(words, clause.subject, True)
    if clause.negated:
        if auxiliary == "can" and not inverted:
            words[-1] = "cannot"
        else:
            words.append("not")
    if clause.adverb is not None:
        words.append(clause.adverb.english)
    if main:
        words.append(main)


def _verb(clause: Clause, inverted: bool) -> tuple[str, str]:
    """The auxiliary, if there is one, and the main verb."""
    forms, tense, person = clause.verb.english, clause.tense, clause.subject.agreement
    if tense is Tense.PERFECT:
        return _HAVE[person], forms[3]
    if tense is Tense.MODAL:
        return _modal(clause, inverted)
    if forms[0] == "be":
        return (_BE_PAST if tense is Tense.PAST else _BE_PRESENT)[person], ""
    if tense is Tense.PRESENT_PROGRESSIVE:
        return _BE_PRESENT[person], forms[4]
    if tense is Tense.PAST_PROGRESSIVE:
        return _BE_PAST[person], forms[4]
    if inverted or clause.negated:
        return ("did" if tense is Tense.PAST else _DO[person]), forms[0]
    if tense is Tense.PAST:
        return "", forms[2]
    return "", forms[1] if person == 2 else forms[0]


def _modal(clause: Clause, inverted: bool) -> tuple[str, str]:
    modal, person, base = clause.modal, clause.subject.agreement, clause.verb.english[0]
    assert modal is not None
    if modal.english[0]:
        rest = modal.english_rest
        return modal.english[person], f"{rest} {base}" if rest else base
    if inverted or clause.negated:
        return _DO[person], f"want to {base}"
    return "", f"{'wants' if person == 2 else 'want'} to {base}"


def _rest(words: list[str], clause: Clause, front: Front) -> None:
    """Everything after the verb."""
    verb, direct = clause.verb, clause.object
    if verb.english_particle and type(direct) is not Pronoun:
        words.append(verb.english_particle)
    if verb.english_preposition:
        words.append(verb.english_preposition)
    if clause.recipient is not None:
        _nominal(words, clause.recipient, False)
    if direct is not None and front is not Front.OBJECT:
        _nominal(words, direct, False)
        if verb.english_particle and type(direct) is Pronoun:
            words.append(verb.english_particle)
    if clause.predicate is not None:
        words.append(clause.predicate.english)
    if clause.manner is not None:
        words.append(clause.manner.english)
    _adverbials(words, clause, front)


def _adverbials(words: list[str], clause: Clause, front: Front) -> None:
    for adverbial in (clause.place, clause.companion, clause.cause):
        if type(adverbial) is Fixed:
            words.append(adverbial.english)
        elif type(adverbial) is Prepositional:
            words.append(adverbial.english)
            _nominal(words, adverbial.phrase, False)
    if clause.time is not None and front is not Front.TIME:
        words.append(clause.time.english)


def _relative(words: list[str], relative: Relative) -> None:
    if relative.preposition is not None:
        words.append(relative.preposition.english)
    clause = relative.clause
    is_subject = type(clause.subject) is Gap
    words.append("that" if not relative.human else "who" if is_subject else "whom")
    if not is_subject:
        _nominal(words, clause.subject, True)
    _predicate(words, clause, False)
    _rest(words, clause, Front.SUBJECT)


def _nominal(words: list[str], nominal: Nominal, subject: bool) -> None:
    if type(nominal) is NounPhrase:
        _noun_phrase(words, nominal)
    elif type(nominal) is Pronoun:
        words.append(nominal.english_subject if subject else nominal.english_object)
    elif type(nominal) is Name:
        words.append(nominal.name)
    elif type(nominal) is Pair:
        _nominal(words, nominal.first, subject)
        words.append("and")
        _nominal(words, nominal.second, subject)


def _noun_phrase(words: list[str], phrase: NounPhrase) -> None:
    start = len(words)
    determiner, possessor = phrase.determiner, phrase.possessor
    if type(possessor) is Name:
        words.append(possessor.name + "'s")
    elif type(possessor) is NounPhrase:
        _noun_phrase(words, possessor)
        words[-1] += "'s"
    elif phrase.number:
        words.append(ENGLISH_NUMBERS[phrase.number])
    elif determiner:
        words.append(_determiner(determiner, phrase))
    words.extend([adjective.english for adjective in phrase.adjectives])
    words.append(phrase.noun.english[phrase.plural])
    following = words[start + 1] if words[start] == "a" else ""
    if following and following[0] in _VOWELS and following not in _CONSONANT_SOUND:
        words[start] = "an"
    if phrase.name:
        words[-1] += ","
        words.append(phrase.name)
    if phrase.relative is not None:
        _relative(words, phrase.relative)


def _determiner(determiner: str, phrase: NounPhrase) -> str:
    if determiner == "instrument":
        return "the"
    if phrase.plural:
        return _PLURAL_DETERMINERS.get(determiner, determiner)
    if determiner == "no":
        return "any" if phrase.noun.is_mass else "a"
    return determiner
