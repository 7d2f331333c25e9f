"""Write an abstract sentence in English and in German, and collect the phenomena of the German sentence."""

from __future__ import annotations

from typing import ClassVar, Final

from regard.data.phrasebook.lexicon import (
    ACCUSATIVE,
    DATIVE,
    ENGLISH_NUMBERS,
    GENITIVE,
    GERMAN_NUMBERS,
    NOMINATIVE,
    PATTERNS,
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
    bits,
)

_PROGRESSIVE: Final = (Tense.PRESENT_PROGRESSIVE, Tense.PAST_PROGRESSIVE)
_PAST: Final = (Tense.PAST, Tense.PAST_PROGRESSIVE)


_GENDER, _CASE, _NUMBER = bits("gender"), bits("case"), bits("number")
_VERB_SECOND, _VERB_FINAL = bits("verb-second"), bits("verb-final")
_SEPARABLE_VERB, _PERFECT, _MODAL = bits("separable-verb"), bits("perfect"), bits("modal")
_QUESTION, _NEGATION, _NUMERAL = bits("question"), bits("negation"), bits("numeral")
_RELATIVE_CLAUSE, _SUBORDINATE_CLAUSE = bits("relative-clause"), bits("subordinate-clause")


class _Writer:
    """The words of one sentence in one language; the subclasses know the order of the parts."""

    __slots__ = ("phenomena", "words")
    is_english: ClassVar[bool]
    conjunction: ClassVar[str]

    def __init__(self) -> None:
        self.words: list[str] = []
        self.phenomena = 0

    def _line(self, question: bool) -> str:
        text = " ".join(self.words)
        return text[0].upper() + text[1:] + ("?" if question else ".")

    def _add(self, part: Nominal | Fixed | Prepositional | None, case: int = ACCUSATIVE) -> None:
        if part is None:
            return
        if type(part) is NounPhrase:
            self._noun_phrase(part, case)
        elif type(part) is Fixed:
            self.phenomena |= part.phenomena
            self.words.append(part.english if self.is_english else part.german)
        elif type(part) is Pronoun:
            if case != NOMINATIVE:
                self.phenomena |= _CASE
            self.words.append((part.english if self.is_english else part.german)[case])
        elif type(part) is Name:
            self.words.append(part.name)
        elif type(part) is Prepositional:
            self._prepositional(part)
        elif type(part) is Pair:
            self._add(part.first, case)
            self.words.append(self.conjunction)
            self._add(part.second, case)

    def _prepositional(self, part: Prepositional) -> None:
        self.words.append(part.english if self.is_english else part.german)
        self._add(part.phrase, part.case)

    def _noun_phrase(self, phrase: NounPhrase, case: int) -> None:
        raise NotImplementedError


# -- English ----------------------------------------------------------------------------------------------

_BE: Final = ("am", "are", "is", "are")  # by agreement: I, you, he, we
_WAS: Final = ("was", "were", "was", "were")
_HAVE: Final = ("have", "have", "has", "have")
_DO: Final = ("do", "do", "does", "do")
_CONSONANT_SOUND: Final = frozenset({"university", "useful"})  # written with a vowel


class English(_Writer):
    __slots__ = ()
    is_english, conjunction = True, "and"

    def text(self, sentence: Sentence) -> str:
        link = sentence.link
        if link and link.fronted:
            self._link(link)
            self.words[-1] += ","
        self._main(sentence)
        if link and not link.fronted:
            if link.conjunction == "but":
                self.words[-1] += ","
            self._link(link)
        return self._line(sentence.question)

    def _link(self, link: Link) -> None:
        self.words.append(link.conjunction)
        if link.clause.tense is Tense.INFINITIVE:
            self.words.append(link.clause.verb.english[0])
        else:
            self._add(link.clause.subject, NOMINATIVE)
            self._predicate(link.clause)
        self._rest(link.clause)

    def _main(self, sentence: Sentence) -> None:
        clause, front = sentence.clause, sentence.front
        first = {"time": clause.time, "object": clause.object, "opening": sentence.opening}.get(front)
        self._add(first)
        if sentence.question and front != "subject":
            self._predicate(clause, inverted=True)
        else:
            self._add(clause.subject, NOMINATIVE)
            self._predicate(clause)
        self._rest(clause, front)

    def _predicate(self, clause: Clause, inverted: bool = False) -> None:
        """The verb with its auxiliary, "not" and the adverb; in a question the subject stands in between."""
        auxiliary, main = self._verb(clause, inverted)
        if auxiliary:
            self.words.append(auxiliary)
        if inverted:
            self._add(clause.subject, NOMINATIVE)
        if clause.negated and auxiliary == "can" and not inverted:
            self.words[-1] = "cannot"
        elif clause.negated:
            self.words.append("not")
        self._add(clause.adverb)
        if main:
            self.words.append(main)

    def _verb(self, clause: Clause, inverted: bool) -> tuple[str, str]:
        """The auxiliary, or "", and the main verb."""
        forms, tense, person, modal = (
            clause.verb.english,
            clause.tense,
            clause.subject.agreement,
            clause.modal,
        )
        with_do = inverted or clause.negated
        if tense is Tense.PERFECT:
            return _HAVE[person], forms[3]
        if tense is Tense.MODAL and modal:
            if modal.english[0] != "-":
                return modal.english[person], f"{modal.english_rest} {forms[0]}".lstrip()
            return (
                (_DO[person], f"want to {forms[0]}")
                if with_do
                else ("", f"{'wants' if person == 2 else 'want'} to {forms[0]}")
            )
        if forms[0] == "be":
            return (_WAS if tense is Tense.PAST else _BE)[person], ""
        if tense in _PROGRESSIVE:
            return (_WAS if tense is Tense.PAST_PROGRESSIVE else _BE)[person], forms[4]
        if with_do:
            return ("did" if tense is Tense.PAST else _DO[person]), forms[0]
        return "", forms[2 if tense is Tense.PAST else 1 if person == 2 else 0]

    def _rest(self, clause: Clause, front: Front = "subject") -> None:
        """Everything after the verb."""
        verb, direct = clause.verb, clause.object
        particle_last = type(direct) is Pronoun  # "picks up the parcel", "picks it up"
        if verb.english_particle and not particle_last:
            self.words.append(verb.english_particle)
        if verb.english_preposition:
            self.words.append(verb.english_preposition)
        self._add(clause.recipient)
        if front != "object":
            self._add(direct)
            if verb.english_particle and particle_last:
                self.words.append(verb.english_particle)
        self._add(clause.predicate)
        self._add(clause.manner)
        self._add(clause.place)
        self._add(clause.companion)
        self._add(clause.cause)
        if front != "time":
            self._add(clause.time)

    def _noun_phrase(self, phrase: NounPhrase, case: int) -> None:
        words, start, possessor = self.words, len(self.words), phrase.possessor
        if possessor:
            self._add(possessor)
            words[-1] += "'s"
        elif phrase.number:
            words.append(ENGLISH_NUMBERS[phrase.number])
        elif phrase.determiner:
            words.append(self._determiner(phrase))
        words.extend([adjective.english for adjective in phrase.adjectives])
        words.append(phrase.noun.english[phrase.plural])
        if (
            words[start] == "a"
            and words[start + 1][0] in "aeiou"
            and words[start + 1] not in _CONSONANT_SOUND
        ):
            words[start] = "an"
        if phrase.name:
            words[-1] += ","
            words.append(phrase.name)
        if phrase.relative:
            self._relative(phrase.relative)

    def _determiner(self, phrase: NounPhrase) -> str:
        determiner = phrase.determiner
        if determiner == "instrument":
            return "the"
        if determiner == "no":  # after "not"
            return "any" if phrase.plural or phrase.noun.is_mass else "a"
        return "these" if phrase.plural and determiner == "this" else determiner

    def _relative(self, relative: Relative) -> None:
        is_subject = type(relative.clause.subject) is Gap
        self._add(relative.preposition)
        self.words.append("that" if not relative.human else "who" if is_subject else "whom")
        self._add(relative.clause.subject, NOMINATIVE)
        self._predicate(relative.clause)
        self._rest(relative.clause)


# -- German -----------------------------------------------------------------------------------------------

_GRAMMAR: Final = PATTERNS["german"]
_ENDINGS: Final = {
    name: [cell.strip("-") for row in table.split("|") for cell in row.split()]
    for name, table in _GRAMMAR["endings"].items()
}
# For gender * 4 + case: the determiner, and the ending of an adjective after it.
_DETERMINERS: Final = {
    english: [(stem + own, after) for own, after in zip(_ENDINGS[endings], _ENDINGS[adjective])]
    for english, (stem, endings, adjective) in _GRAMMAR["determiners"].items()
}
_INDEFINITE: Final = frozenset({"a", "no", "", "some", "many", "instrument", "how many"})
_HABEN: Final = ("habe", "hast", "hat", "haben")
_SEIN: Final = ("bin", "bist", "ist", "sind")


class German(_Writer):
    """`phenomena` has a bit for each of PHENOMENA that the sentence shows."""

    __slots__ = ()
    is_english, conjunction = False, "und"

    def text(self, sentence: Sentence) -> str:
        link = sentence.link
        if link and link.fronted:
            self._link(link)
            self.words[-1] += ","
            self.phenomena |= _VERB_SECOND
            self._main(sentence.clause, "nothing")
        else:
            if sentence.question:
                self.phenomena |= _QUESTION
            elif sentence.front != "subject":
                self.phenomena |= _VERB_SECOND
            self._main(sentence.clause, sentence.front, sentence.opening)
            if link:
                self.words[-1] += ","
                self._link(link)
        return self._line(sentence.question)

    def _link(self, link: Link) -> None:
        """A clause with its conjunction; after "aber" it has the order of a main clause."""
        if conjunction := _GRAMMAR["conjunctions"][link.conjunction]:
            self.words.append(conjunction)
        if link.conjunction == "but":
            self._main(link.clause, "subject")
            return
        if link.clause.tense is not Tense.INFINITIVE:
            self.phenomena |= _SUBORDINATE_CLAUSE
        self._subordinate(link.clause)

    def _main(self, clause: Clause, front: Front, opening: Fixed | None = None) -> None:
        """A clause whose finite verb comes second, or first in a yes/no question."""
        subject = clause.subject
        finite, bracket = self._verb(clause)
        if front == "subject":
            self._add(subject, NOMINATIVE)
            if type(subject) is NounPhrase and subject.relative:
                self._relative(subject, subject.relative)
                self.words[-1] += ","
        elif front == "time":
            self._add(clause.time)
        elif front == "object":
            self._add(clause.object, clause.verb.object_case)
        else:
            self._add(opening)
        self.words.append(finite)
        if front != "subject":
            self._add(subject, NOMINATIVE)
        self._middle(clause, front)
        if bracket:
            self.words.append(bracket)
        self._extraposed(clause)

    def _subordinate(self, clause: Clause) -> None:
        """A clause whose finite verb comes last, or an infinitive clause."""
        finite, bracket = self._verb(clause)
        if clause.tense is Tense.INFINITIVE:
            self._middle(clause)
            self.words.append(clause.verb.infinitive_with_zu)
        else:
            self.phenomena |= _VERB_FINAL
            self._add(clause.subject, NOMINATIVE)
            self._middle(clause)
            self.words += [bracket + finite] if bracket == clause.verb.particle else [bracket, finite]
        self._extraposed(clause)

    def _verb(self, clause: Clause) -> tuple[str, str]:
        """The finite verb and what closes the sentence bracket: particle, participle or infinitive."""
        verb, tense, person = clause.verb, clause.tense, clause.subject.agreement
        if verb.particle and verb.particle[-1] != " ":
            self.phenomena |= _SEPARABLE_VERB
        if tense is Tense.PERFECT:
            self.phenomena |= _PERFECT
            return (_SEIN if verb.has_sein else _HABEN)[person], verb.participle
        if tense is Tense.MODAL and clause.modal:
            self.phenomena |= _MODAL
            return clause.modal.german[person], verb.infinitive
        forms = verb.past if tense in _PAST else verb.present
        return forms[person], verb.particle.rstrip()

    def _middle(self, clause: Clause, front: Front = "subject") -> None:
        """The words inside the sentence bracket: what the hearer knows comes first, what is new last."""
        verb, direct, late = clause.verb, clause.object, None
        if front == "object" or verb.german_preposition:
            direct = None
        elif direct and (clause.recipient or _is_late(clause, direct)):
            direct, late = None, direct
        self._add(clause.recipient, DATIVE)
        self._add(direct, verb.object_case)
        if front != "time":
            self._add(clause.time)
        self._add(clause.cause)
        if clause.tense in _PROGRESSIVE and not verb.is_continuous:
            self.words.append("gerade")
        self._add(clause.adverb)
        determiner = late.determiner if type(late) is NounPhrase else "the"
        if determiner in _INDEFINITE:
            self._settings(clause)
        self._add(late, verb.object_case)
        if clause.negated:
            self.phenomena |= _NEGATION
            if determiner != "no":
                self.words.append("nicht")
        if determiner not in _INDEFINITE:
            self._settings(clause)
        if verb.german_preposition and clause.object and front != "object":
            self._add(Prepositional("", verb.german_preposition, verb.object_case, clause.object))
        self._add(clause.predicate)

    def _settings(self, clause: Clause) -> None:
        self._add(clause.manner)
        self._add(clause.companion)
        self._add(clause.place)

    def _extraposed(self, clause: Clause) -> None:
        """A relative clause of the object follows the sentence bracket."""
        direct = clause.object
        if type(direct) is NounPhrase and direct.relative:
            self._relative(direct, direct.relative)

    def _relative(self, head: NounPhrase, relative: Relative) -> None:
        self.phenomena |= _RELATIVE_CLAUSE | _GENDER
        gender = 3 if head.plural else head.noun.gender
        self.words[-1] += ","
        self._add(relative.preposition)
        if relative.case == DATIVE or (relative.case == ACCUSATIVE and gender == 0):
            self.phenomena |= _CASE
        self.words.append(_ENDINGS["relative"][gender * 4 + relative.case])
        self._subordinate(relative.clause)

    def _prepositional(self, part: Prepositional) -> None:
        words, start = self.words, len(self.words)
        super()._prepositional(part)
        if type(part.phrase) is NounPhrase and part.phrase.determiner == "the":
            contracted = _GRAMMAR["contractions"].get(" ".join(words[start : start + 2]))
            if contracted:
                words[start : start + 2] = [contracted]

    def _noun_phrase(self, phrase: NounPhrase, case: int) -> None:
        noun, possessor, words = phrase.noun, phrase.possessor, self.words
        gender = 3 if phrase.plural else noun.gender
        key = phrase.determiner if not possessor else "" if type(possessor) is Name else "the"
        determiner, ending = _DETERMINERS[key][gender * 4 + case]
        shown = bool(determiner or phrase.adjectives)
        if gender == 3:
            self.phenomena |= _NUMBER
        elif shown:
            self.phenomena |= _GENDER
        if case >= DATIVE or (case == ACCUSATIVE and gender == 0 and shown):
            self.phenomena |= _CASE
        if type(possessor) is Name:
            words.append(possessor.name + "s")
        elif determiner:
            words.append(determiner)
        elif phrase.number:
            self.phenomena |= _NUMERAL
            words.append(GERMAN_NUMBERS[phrase.number])
        words.extend([adjective.stem + ending for adjective in phrase.adjectives])
        words.append(noun.german[4 + case if phrase.plural else case])
        if phrase.name:
            words.append(phrase.name)
        if type(possessor) is NounPhrase:
            self._noun_phrase(possessor, GENITIVE)


def _is_late(clause: Clause, direct: Nominal) -> bool:
    """Whether the object follows the adverbials: it is new, or the clause is in progress.

    "Sie liest gerade das Buch", but "Sie liest das Buch gerade nicht" and "Sie ruft mich gerade an".
    """
    if type(direct) is not NounPhrase:
        return False
    in_progress = clause.tense in _PROGRESSIVE and not clause.verb.is_continuous and not clause.negated
    return in_progress or direct.determiner in _INDEFINITE or direct.relative is not None
