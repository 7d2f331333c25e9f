"""Realise a structure in German, and note which phenomena occur on the way."""

from typing import Final

from regard.data.phrasebook import phenomena as seen
from regard.data.phrasebook.structure import (
    Case,
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
from regard.data.phrasebook.words import GERMAN_NUMBERS

# Endings in rows of four cases (nominative, accusative, dative, genitive) for m, f, n, plural.
_DER_ENDINGS: Final = "er en em es|e e er er|es es em es|e e en er"
_EIN_ENDINGS: Final = "- en em es|e e er er|- - em es|e e en er"
_WEAK: Final = "e en en en|e e en en|e e en en|en en en en"
_MIXED: Final = "er en en en|e e en en|es es en en|en en en en"
_STRONG: Final = "er en em en|e e er er|es es em en|e e en er"
_ARTICLE: Final = "der den dem des|die die der der|das das dem des|die die den der"
_RELATIVE: Final = "der den dem dessen|die die der deren|das das dem dessen|die die denen deren"


def _cells(table: str) -> tuple[str, ...]:
    return tuple(cell.strip("-") for row in table.split("|") for cell in row.split())


def _determiner(stem: str, endings: str, adjective: str) -> tuple[tuple[str, str], ...]:
    """For gender * 4 + case: the determiner and the ending of an adjective after it."""
    return tuple((stem + ending, after) for ending, after in zip(_cells(endings), _cells(adjective)))


_NONE: Final = "- - - -|- - - -|- - - -|- - - -"
DETERMINERS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "the": _determiner("", _ARTICLE, _WEAK),
    "this": _determiner("dies", _DER_ENDINGS, _WEAK),
    "every": _determiner("jed", _DER_ENDINGS, _WEAK),
    "which": _determiner("welch", _DER_ENDINGS, _WEAK),
    "a": _determiner("ein", _EIN_ENDINGS, _MIXED),
    "no": _determiner("kein", _EIN_ENDINGS, _MIXED),
    "my": _determiner("mein", _EIN_ENDINGS, _MIXED),
    "your": _determiner("dein", _EIN_ENDINGS, _MIXED),
    "his": _determiner("sein", _EIN_ENDINGS, _MIXED),
    "her": _determiner("ihr", _EIN_ENDINGS, _MIXED),
    "our": _determiner("unser", _EIN_ENDINGS, _MIXED),
    "": _determiner("", _NONE, _STRONG),
    "instrument": _determiner("", _NONE, _STRONG),
    "some": _determiner("einig", _DER_ENDINGS, _STRONG),
    "many": _determiner("viel", _DER_ENDINGS, _STRONG),
    "how many": _determiner("wie viel", _DER_ENDINGS, _STRONG),
}
_RELATIVE_PRONOUNS: Final = _cells(_RELATIVE)
INDEFINITE: Final = frozenset({"a", "no", "", "some", "many", "instrument", "how many"})

_CONTRACTIONS: Final = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "zu dem": "zum",
    "zu der": "zur",
    "von dem": "vom",
}
_CONJUNCTIONS: Final = {
    "that": "dass",
    "because": "weil",
    "although": "obwohl",
    "if": "wenn",
    "whether": "ob",
    "but": "aber",
    "to": "",
    "in order to": "um",
}
_HABEN: Final = ("habe", "hast", "hat", "haben")
_SEIN: Final = ("bin", "bist", "ist", "sind")
_PAST_TENSES: Final = (Tense.PAST, Tense.PAST_PROGRESSIVE)
_PROGRESSIVE: Final = (Tense.PRESENT_PROGRESSIVE, Tense.PAST_PROGRESSIVE)


class German:
    """Collects the phenomena of one sentence; `text` is the only entry."""

    __slots__ = ("phenomena",)

    def __init__(self) -> None:
        self.phenomena = 0

    def text(self, sentence: Sentence) -> str:
        clause, link = sentence.clause, sentence.link
        words: list[str] = []
        if link is not None and link.fronted:
            self._link(words, link)
            words[-1] += ","
            self.phenomena |= seen.VERB_SECOND
            self._main(words, clause, Front.NOTHING, None)
        else:
            if sentence.question:
                self.phenomena |= seen.QUESTION
            elif sentence.front is not Front.SUBJECT:
                self.phenomena |= seen.VERB_SECOND
            self._main(words, clause, sentence.front, sentence.opening)
            if link is not None:
                words[-1] += ","
                self._link(words, link)
        text = " ".join(words)
        return text[0].upper() + text[1:] + ("?" if sentence.question else ".")

    def _link(self, words: list[str], link: Link) -> None:
        """A dependent clause with its conjunction; "aber" alone keeps the order of a main clause."""
        conjunction = _CONJUNCTIONS[link.conjunction]
        if conjunction:
            words.append(conjunction)
        if link.conjunction == "but":
            self._main(words, link.clause, Front.SUBJECT, None)
            return
        if link.clause.tense is not Tense.INFINITIVE:
            self.phenomena |= seen.SUBORDINATE_CLAUSE
        self._final(words, link.clause, True)

    def _main(self, words: list[str], clause: Clause, front: Front, opening: Fixed | None) -> None:
        finite, bracket = self._verb(clause)
        if front is Front.SUBJECT:
            self._nominal(words, clause.subject, Case.NOMINATIVE)
            relative = clause.subject.relative if type(clause.subject) is NounPhrase else None
            if relative is not None:
                self._relative(words, clause.subject, relative)
                words[-1] += ","
        elif front is Front.TIME and clause.time is not None:
            self._fixed(words, clause.time)
        elif front is Front.OBJECT and clause.object is not None:
            self._nominal(words, clause.object, clause.verb.object_case)
        elif opening is not None:
            words.append(opening.german)
        words.append(finite)
        if front is not Front.SUBJECT:
            self._nominal(words, clause.subject, Case.NOMINATIVE)
        self._middle(words, clause, front)
        if bracket:
            words.append(bracket)
        self._extraposed(words, clause)

    def _final(self, words: list[str], clause: Clause, with_subject: bool) -> None:
        """A clause whose finite verb comes last, or an infinitive clause."""
        finite, bracket = self._verb(clause)
        if clause.tense is Tense.INFINITIVE:
            self._middle(words, clause, Front.SUBJECT)
            words.append(clause.verb.infinitive_with_zu)
        else:
            self.phenomena |= seen.VERB_FINAL
            if with_subject:
                self._nominal(words, clause.subject, Case.NOMINATIVE)
            self._middle(words, clause, Front.SUBJECT)
            if bracket == clause.verb.particle:
                words.append(bracket + finite)
            else:
                words.append(bracket)
                words.append(finite)
        self._extraposed(words, clause)

    def _verb(self, clause: Clause) -> tuple[str, str]:
        """The finite verb and what closes the bracket: particle, participle or infinitive."""
        verb, tense, person = clause.verb, clause.tense, clause.subject.agreement
        if verb.particle and verb.particle[-1] != " ":
            self.phenomena |= seen.SEPARABLE_VERB
        if tense is Tense.PERFECT:
            self.phenomena |= seen.PERFECT
            return (_SEIN if verb.auxiliary_sein else _HABEN)[person], verb.participle
        if tense is Tense.MODAL and clause.modal is not None:
            self.phenomena |= seen.MODAL
            return clause.modal.german[person], verb.infinitive
        forms = verb.past if tense in _PAST_TENSES else verb.present
        return forms[person], verb.particle.rstrip() if clause.tense is not Tense.INFINITIVE else ""

    def _middle(self, words: list[str], clause: Clause, front: Front) -> None:
        """What lies between the finite verb and the end of the bracket: known things first, new ones last."""
        verb, direct, recipient = clause.verb, clause.object, clause.recipient
        if front is Front.OBJECT or type(direct) is Gap:
            direct = None
        late: Nominal | None = None
        if verb.german_preposition:
            direct = None
        elif direct is not None and (recipient is not None or _is_new(direct) or _is_in_progress(clause)):
            late, direct = direct, None
        if recipient is not None:
            self._nominal(words, recipient, Case.DATIVE)
        if direct is not None:
            self._nominal(words, direct, verb.object_case)
        if clause.time is not None and front is not Front.TIME:
            self._fixed(words, clause.time)
        if clause.cause is not None:
            self._prepositional(words, clause.cause)
        if clause.tense in _PROGRESSIVE and not verb.continuous:
            words.append("gerade")
        if clause.adverb is not None:
            words.append(clause.adverb.german)
        place_first = late is not None and _is_indefinite(late)
        if place_first:
            self._settings(words, clause)
        if late is not None:
            self._nominal(words, late, verb.object_case)
        if clause.negated:
            self.phenomena |= seen.NEGATION
            if late is None or not _is_negative(late):
                words.append("nicht")
        if not place_first:
            self._settings(words, clause)
        self._complements(words, clause, front)

    def _settings(self, words: list[str], clause: Clause) -> None:
        if clause.manner is not None:
            words.append(clause.manner.german)
        if clause.companion is not None:
            self._adverbial(words, clause.companion)
        if clause.place is not None:
            self._adverbial(words, clause.place)

    def _complements(self, words: list[str], clause: Clause, front: Front) -> None:
        """The prepositional object and the predicate stand closest to the end."""
        direct = clause.object
        if clause.verb.german_preposition and direct is not None and front is not Front.OBJECT:
            phrase = Prepositional("", clause.verb.german_preposition, clause.verb.object_case, direct)
            self._prepositional(words, phrase)
        if clause.predicate is not None:
            self._fixed(words, clause.predicate)

    def _extraposed(self, words: list[str], clause: Clause) -> None:
        """A relative clause of the object follows the whole bracket."""
        direct = clause.object
        if type(direct) is NounPhrase and direct.relative is not None:
            self._relative(words, direct, direct.relative)

    def _relative(self, words: list[str], head: Nominal, relative: Relative) -> None:
        assert type(head) is NounPhrase
        self.phenomena |= seen.RELATIVE_CLAUSE | seen.GENDER
        gender = 3 if head.plural else head.noun.gender
        words[-1] += ","
        if relative.preposition is not None:
            words.append(relative.preposition.german)
        if relative.role == Case.DATIVE or (relative.role == Case.ACCUSATIVE and gender == 0):
            self.phenomena |= seen.CASE
        words.append(_RELATIVE_PRONOUNS[gender * 4 + relative.role])
        self._final(words, relative.clause, relative.role is not Case.NOMINATIVE)

    def _fixed(self, words: list[str], fixed: Fixed) -> None:
        self.phenomena |= fixed.phenomena
        words.append(fixed.german)

    def _adverbial(self, words: list[str], adverbial: Prepositional | Fixed) -> None:
        if type(adverbial) is Fixed:
            self.phenomena |= adverbial.phenomena
            words.append(adverbial.german)
        elif type(adverbial) is Prepositional:
            self._prepositional(words, adverbial)

    def _prepositional(self, words: list[str], phrase: Prepositional) -> None:
        start = len(words)
        words.append(phrase.german)
        self._nominal(words, phrase.phrase, phrase.case)
        if type(phrase.phrase) is NounPhrase and phrase.phrase.determiner == "the":
            contracted = _CONTRACTIONS.get(words[start] + " " + words[start + 1])
            if contracted is not None:
                words[start : start + 2] = [contracted]

    def _nominal(self, words: list[str], nominal: Nominal, case: int) -> None:
        if type(nominal) is NounPhrase:
            self._noun_phrase(words, nominal, case)
        elif type(nominal) is Pronoun:
            if case:
                self.phenomena |= seen.CASE
            words.append(nominal.german[case])
        elif type(nominal) is Name:
            words.append(nominal.name)
        elif type(nominal) is Pair:
            self._nominal(words, nominal.first, case)
            words.append("und")
            self._nominal(words, nominal.second, case)

    def _noun_phrase(self, words: list[str], phrase: NounPhrase, case: int) -> None:
        noun, plural, possessor = phrase.noun, phrase.plural, phrase.possessor
        gender = 3 if plural else noun.gender
        key = phrase.determiner
        if possessor is not None:
            key = "" if type(possessor) is Name else "the"
        determiner, ending = DETERMINERS[key][gender * 4 + case]
        self._note(gender, case, bool(determiner or phrase.adjectives))
        if type(possessor) is Name:
            words.append(possessor.name + "s")
        elif determiner:
            words.append(determiner)
        elif phrase.number:
            self.phenomena |= seen.NUMERAL
            words.append(GERMAN_NUMBERS[phrase.number])
        words.extend([adjective.stem + ending for adjective in phrase.adjectives])
        words.append(noun.german[4 + case if plural else case])
        if phrase.name:
            words.append(phrase.name)
        if type(possessor) is NounPhrase:
            self._noun_phrase(words, possessor, Case.GENITIVE)

    def _note(self, gender: int, case: int, shown: bool) -> None:
        if gender == 3:
            self.phenomena |= seen.NUMBER
        elif shown:
            self.phenomena |= seen.GENDER
        if case >= 2 or (case == 1 and gender == 0 and shown):
            self.phenomena |= seen.CASE


def _is_new(nominal: Nominal) -> bool:
    """Whether the hearer does not know it yet, so that it comes late in the sentence."""
    return type(nominal) is NounPhrase and (nominal.determiner in INDEFINITE or nominal.relative is not None)


def _is_indefinite(nominal: Nominal) -> bool:
    return type(nominal) is NounPhrase and nominal.determiner in INDEFINITE


def _is_in_progress(clause: Clause) -> bool:
    """ "Sie liest gerade das Buch", but "Sie liest das Buch gerade nicht" and "Sie ruft mich gerade an"."""
    if clause.tense not in _PROGRESSIVE or clause.verb.continuous or clause.negated:
        return False
    return type(clause.object) is NounPhrase


def _is_negative(nominal: Nominal) -> bool:
    return type(nominal) is NounPhrase and nominal.determiner == "no"
