"""Write an abstract sentence in English and in German, and collect the phenomena of the German sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from recipes.phrasebook import lexicon as lx
from recipes.phrasebook.lexicon import ACCUSATIVE, DATIVE, Clause, NounPhrase, Tense
from regard.data.phrasebook import PHENOMENA

Part = lx.Nominal | lx.Fixed | lx.Prepositional | str | list["Part"] | None
_PROGRESSIVE: Final = (Tense.PRESENT_PROGRESSIVE, Tense.PAST_PROGRESSIVE)
_CASES: Final = {"subject": lx.NOMINATIVE, "recipient": DATIVE}
_BIT: Final = {name: 1 << position for position, name in enumerate(PHENOMENA)}
_GENDER, _CASE, _NUMBER, _NUMERAL = (_BIT[name] for name in ("gender", "case", "number", "numeral"))


class _Writer:
    """The words of one sentence in one language."""

    __slots__ = ("phenomena", "words")
    is_english: ClassVar[bool]
    order: ClassVar[Mapping[str, Sequence[str]]]  # the order of the parts, by kind of clause

    def __init__(self) -> None:
        self.words: list[str] = []
        self.phenomena = 0

    def text(self, sentence: lx.Sentence) -> str:
        link = sentence.link
        if link and link.fronted:
            self._link(link)
            self.words[-1] += ","
        self._main(sentence)
        if link and not link.fronted:
            if not self.is_english or link.conjunction == "but":
                self.words[-1] += ","
            self._link(link)
        line = " ".join(self.words)
        return line[0].upper() + line[1:] + ("?" if sentence.question else ".")

    def _main(self, sentence: lx.Sentence) -> None:
        raise NotImplementedError

    def _link(self, link: lx.Link) -> None:
        raise NotImplementedError

    def _noun_phrase(self, phrase: NounPhrase, case: int) -> None:
        raise NotImplementedError

    def _write(self, kind: str, clause: Clause, front: str, parts: dict[str, Part]) -> None:
        """Write `parts` and the fields of the clause in the order of `kind`, without the part in front."""
        parts[front] = None
        for slot in self.order[kind]:
            if part := parts[slot] if slot in parts else getattr(clause, slot):
                if type(part) is str:
                    self.words.append(part)
                else:
                    self._add(part, _CASES.get(slot, clause.verb.object_case))

    def _add(self, part: Part, case: int = ACCUSATIVE) -> None:
        if part is None:
            return
        if type(part) is NounPhrase:
            self._noun_phrase(part, case)
        elif type(part) is lx.Fixed:
            self.phenomena |= part.phenomena
            self.words.append(part.english if self.is_english else part.german)
        elif type(part) is lx.Pronoun:
            self.phenomena |= _CASE if case else 0
            self.words.append((part.english if self.is_english else part.german)[case])
        elif type(part) is lx.ProperName:
            self.words.append(part.name)
        elif type(part) is lx.Prepositional:
            self._prepositional(part)
        elif type(part) is lx.Pair:
            self._add(part.first, case)
            self.words.append("and" if self.is_english else "und")
            self._add(part.second, case)
        elif type(part) is list:
            for each in part:
                self._add(each)

    def _prepositional(self, part: lx.Prepositional) -> None:
        self.words.append(part.english if self.is_english else part.german)
        self._add(part.phrase, part.case)


# -- English ----------------------------------------------------------------------------------------------

_BE: Final = ("am", "are", "is", "are")  # by agreement: I, you, he, we
_WAS: Final = ("was", "were", "was", "were")
_HAVE: Final = ("have", "have", "has", "have")
_DO: Final = ("do", "do", "does", "do")


class English(_Writer):
    __slots__ = ()
    is_english = True
    order = {kind: line.split() for kind, line in lx.PATTERNS["english"]["order"].items()}

    def _main(self, sentence: lx.Sentence) -> None:
        if sentence.front == "subject":
            self._clause(sentence.clause)
        else:
            kind = "question" if sentence.question else "statement"
            self._clause(sentence.clause, kind, sentence.front, sentence.opening)

    def _link(self, link: lx.Link) -> None:
        self.words.append(link.conjunction)
        self._clause(link.clause, "infinitive" if link.clause.tense is Tense.INFINITIVE else "statement")

    def _clause(
        self, clause: Clause, kind: str = "statement", front: str = "", opening: lx.Fixed | None = None
    ) -> None:
        verb, direct = clause.verb, clause.object
        auxiliary, main = self._verb(clause, kind == "question")
        negation = "not" if clause.negated else ""
        if negation and auxiliary == "can" and kind == "statement":
            auxiliary, negation = "cannot", ""
        particle, particle_after = verb.english_particle, ""
        if type(direct) is lx.Pronoun:  # "picks up the parcel", but "picks it up"
            particle, particle_after = "", particle
        parts: dict[str, Part] = {"auxiliary": auxiliary, "not": negation, "verb": main}
        parts |= {"particle": particle, "particle_after": particle_after}
        parts |= {"preposition": verb.english_preposition, "infinitive": verb.english[0]}
        parts["front"] = {"time": clause.time, "object": direct}.get(front, opening)
        self._write(kind, clause, front, parts)

    def _verb(self, clause: Clause, is_question: bool) -> tuple[str, str]:
        """The auxiliary, or "", and the main verb."""
        forms, tense, person = clause.verb.english, clause.tense, clause.subject.agreement
        with_do = is_question or clause.negated
        if tense is Tense.PERFECT:
            return _HAVE[person], forms[3]
        if tense is Tense.MODAL and clause.modal:
            auxiliary, rest = clause.modal.english[person], clause.modal.english_rest
            if auxiliary != "-":
                return auxiliary, f"{rest} {forms[0]}".lstrip()
            want = "wants" if person == 2 and not with_do else "want"
            return _DO[person] if with_do else "", f"{want} to {forms[0]}"
        if forms[0] == "be":
            return (_WAS if tense is Tense.PAST else _BE)[person], ""
        if tense in _PROGRESSIVE:
            return (_WAS if tense is Tense.PAST_PROGRESSIVE else _BE)[person], forms[4]
        if with_do:
            return ("did" if tense is Tense.PAST else _DO[person]), forms[0]
        return "", forms[2 if tense is Tense.PAST else 1 if person == 2 else 0]

    def _noun_phrase(self, phrase: NounPhrase, case: int) -> None:
        words, start = self.words, len(self.words)
        if phrase.possessor:
            self._add(phrase.possessor)
            words[-1] += "'s"
        elif phrase.number:
            words.append(lx.ENGLISH_NUMBERS[phrase.number])
        elif phrase.determiner:
            words.append(_english_determiner(phrase))
        words.extend([adjective.english for adjective in phrase.adjectives])
        words.append(phrase.noun.english[phrase.plural])
        if words[start] == "a" and words[start + 1][0] in "aeiou":
            words[start] = "a" if words[start + 1] in ("university", "useful") else "an"
        if phrase.name:
            words[-1] += ","
            words.append(phrase.name)
        if relative := phrase.relative:
            is_subject = type(relative.clause.subject) is lx.Gap
            self._add(relative.preposition)
            words.append("that" if not relative.human else "who" if is_subject else "whom")
            self._clause(relative.clause)


def _english_determiner(phrase: NounPhrase) -> str:
    if phrase.determiner == "instrument":
        return "the"
    if phrase.determiner == "no":  # after "not"
        return "any" if phrase.plural or phrase.noun.is_mass else "a"
    return "these" if phrase.plural and phrase.determiner == "this" else phrase.determiner


# -- German -----------------------------------------------------------------------------------------------

_GERMAN: Final = lx.PATTERNS["german"]
_ENDINGS: Final = {
    name: [cell.strip("-") for row in table.split("|") for cell in row.split()]
    for name, table in _GERMAN["endings"].items()
}
# For gender * 4 + case: the determiner, and the ending of an adjective after it.
_DETERMINERS: Final = {
    english: [(stem + ending, after) for ending, after in zip(_ENDINGS[endings], _ENDINGS[adjective])]
    for english, (stem, endings, adjective) in _GERMAN["determiners"].items()
}
_INDEFINITE: Final = frozenset({"a", "no", "", "some", "many", "instrument", "how many"})
_HABEN: Final = ("habe", "hast", "hat", "haben")
_SEIN: Final = ("bin", "bist", "ist", "sind")


class German(_Writer):
    """`phenomena` has a bit for each of PHENOMENA that the sentence shows."""

    __slots__ = ()
    is_english = False
    order = {kind: line.split() for kind, line in _GERMAN["order"].items()}

    def _main(self, sentence: lx.Sentence) -> None:
        front = "" if sentence.link and sentence.link.fronted else sentence.front
        if sentence.question:
            self.phenomena |= _BIT["question"]
        elif front != "subject":
            self.phenomena |= _BIT["verb-second"]
        self._clause(sentence.clause, "main", front, sentence.opening)

    def _link(self, link: lx.Link) -> None:
        """A clause with its conjunction; after "aber" it has the order of a main clause."""
        if conjunction := _GERMAN["conjunctions"][link.conjunction]:
            self.words.append(conjunction)
        if link.conjunction == "but":
            self._clause(link.clause, "main", "subject")
            return
        if link.clause.tense is not Tense.INFINITIVE:
            self.phenomena |= _BIT["subordinate-clause"]
        self._subordinate(link.clause)

    def _subordinate(self, clause: Clause) -> None:
        """A clause whose finite verb comes last, or an infinitive clause."""
        if clause.tense is Tense.INFINITIVE:
            self._clause(clause, "infinitive")
        else:
            self.phenomena |= _BIT["verb-final"]
            self._clause(clause, "subordinate")

    def _clause(self, clause: Clause, kind: str, front: str = "", opening: lx.Fixed | None = None) -> None:
        verb, direct, given, new = clause.verb, clause.object, clause.object, None
        finite, bracket = self._verb(clause)
        if front == "subject":
            self._add(clause.subject, lx.NOMINATIVE)
            if self._relative(clause.subject):
                self.words[-1] += ","
        parts: dict[str, Part] = {"finite": finite, "bracket": bracket, "infinitive": verb.infinitive_with_zu}
        parts["finite_last"] = bracket + finite if bracket == verb.particle else f"{bracket} {finite}"
        parts["front"] = {"time": clause.time, "object": direct}.get(front, opening)
        in_progress = clause.tense in _PROGRESSIVE and "continuous" not in verb.options
        parts["progressive"] = "gerade" if in_progress else ""
        parts["governed"] = None
        if front == "object":
            given = None
        elif direct and verb.german_preposition:
            given = None
            parts["governed"] = lx.Prepositional("", verb.german_preposition, verb.object_case, direct)
        elif direct and _is_new(direct, clause, in_progress):
            given, new = None, direct
        determiner = new.determiner if type(new) is NounPhrase else "the"
        settings: list[Part] = [part for part in (clause.manner, clause.companion, clause.place) if part]
        before, after = (settings, None) if determiner in _INDEFINITE else (None, settings)
        parts |= {"object": given, "settings_before": before, "new_object": new, "settings": after}
        parts["not"] = "nicht" if clause.negated and determiner != "no" else ""
        self._write(kind, clause, front, parts)
        if clause.negated:
            self.phenomena |= _BIT["negation"]
        self._relative(direct)  # after the sentence bracket

    def _verb(self, clause: Clause) -> tuple[str, str]:
        """The finite verb and what closes the sentence bracket: particle, participle or infinitive."""
        verb, tense, person = clause.verb, clause.tense, clause.subject.agreement
        if verb.particle and verb.particle[-1] != " ":
            self.phenomena |= _BIT["separable-verb"]
        if tense is Tense.PERFECT:
            self.phenomena |= _BIT["perfect"]
            return (_SEIN if "sein" in verb.options else _HABEN)[person], verb.participle
        if tense is Tense.MODAL and clause.modal:
            self.phenomena |= _BIT["modal"]
            return clause.modal.german[person], verb.infinitive
        forms = verb.past if tense in lx.PAST_TENSES else verb.present
        return forms[person], verb.particle.rstrip()

    def _relative(self, head: lx.Nominal | None) -> bool:
        """Write the relative clause of a noun phrase and return whether it has one."""
        if type(head) is not NounPhrase or not head.relative:
            return False
        relative, gender = head.relative, 3 if head.plural else head.noun.gender
        self.phenomena |= _BIT["relative-clause"] | _GENDER
        self.words[-1] += ","
        self._add(relative.preposition)
        if relative.case == DATIVE or (relative.case == ACCUSATIVE and gender == 0):
            self.phenomena |= _CASE
        self.words.append(_ENDINGS["relative"][gender * 4 + relative.case])
        self._subordinate(relative.clause)
        return True

    def _prepositional(self, part: lx.Prepositional) -> None:
        words, start = self.words, len(self.words)
        super()._prepositional(part)
        contracted = _GERMAN["contractions"].get(" ".join(words[start : start + 2]))
        if contracted and type(part.phrase) is NounPhrase and part.phrase.determiner == "the":
            words[start : start + 2] = [contracted]

    def _noun_phrase(self, phrase: NounPhrase, case: int) -> None:
        noun, possessor, words = phrase.noun, phrase.possessor, self.words
        gender = 3 if phrase.plural else noun.gender
        key = phrase.determiner if not possessor else "" if type(possessor) is lx.ProperName else "the"
        determiner, ending = _DETERMINERS[key][gender * 4 + case]
        shown = bool(determiner or phrase.adjectives)
        self.phenomena |= _NUMBER if gender == 3 else _GENDER if shown else 0
        if case >= DATIVE or (case == ACCUSATIVE and gender == 0 and shown):
            self.phenomena |= _CASE
        if type(possessor) is lx.ProperName:
            words.append(possessor.name + "s")
        elif determiner:
            words.append(determiner)
        elif phrase.number:
            self.phenomena |= _NUMERAL
            words.append(lx.GERMAN_NUMBERS[phrase.number])
        words.extend([adjective.stem + ending for adjective in phrase.adjectives])
        words.append(noun.german[4 + case if phrase.plural else case])
        if phrase.name:
            words.append(phrase.name)
        if type(possessor) is NounPhrase:
            self._noun_phrase(possessor, lx.GENITIVE)


def _is_new(direct: lx.Nominal, clause: Clause, in_progress: bool) -> bool:
    """Whether the object follows the adverbials: it is new to the hearer, or the clause is in progress.

    "Sie liest gerade das Buch", but "Sie liest das Buch gerade nicht" and "Sie ruft mich gerade an".
    """
    if clause.recipient or type(direct) is not NounPhrase:
        return clause.recipient is not None
    is_indefinite = direct.determiner in _INDEFINITE or direct.relative is not None
    return is_indefinite or (in_progress and not clause.negated)
