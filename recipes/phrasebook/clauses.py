"""Draw noun phrases and clauses: `patterns.toml` names the kinds of clauses and the slots of each."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from recipes.phrasebook import lexicon as lx
from recipes.phrasebook.lexicon import CLASSES, PHRASES, PRONOUNS, Clause, Fixed, NounPhrase, Tense

Item = TypeVar("Item")
_MODALS: Final = list(lx.MODALS.values())
_TIMES: Final = {Tense.PRESENT: "present", Tense.PAST: "past", Tense.MODAL: "future"}
_COUNTED_TIMES: Final = {Tense.PAST: "ago", Tense.MODAL: "ahead"}
_CONTINUOUS: Final = {Tense.PRESENT: Tense.PRESENT_PROGRESSIVE, Tense.PAST: Tense.PAST_PROGRESSIVE}
_SIMPLE: Final = {Tense.PRESENT_PROGRESSIVE: Tense.PRESENT, Tense.PAST_PROGRESSIVE: Tense.PAST}

_MANNERS: dict[str, list[Fixed]] = {}  # by the base form of the verb
for _manner in PHRASES["manner"]:
    for _base in lx.PATTERNS["manners"][_manner.english].split():
        _MANNERS.setdefault(_base, []).append(_manner)
_PLACES: dict[str, list[lx.Noun | Fixed]] = {}
for _entry in lx.PATTERNS["places"]:
    for _base in _entry["verbs"].split():
        _PLACES.setdefault(_base, []).extend(PHRASES.get(_entry["at"]) or lx.nouns(_entry["at"]))


class Sampler:
    """Draws that depend on seed and index alone: the digits of one long hash in changing bases."""

    __slots__ = ("state",)

    def __init__(self, seed: int, index: int, attempt: int = 0) -> None:
        self.state = int.from_bytes(blake2b(b"%d %d %d" % (seed, index, attempt)).digest(), "little")

    def below(self, limit: int) -> int:
        self.state, drawn = divmod(self.state, limit)
        return drawn

    def choice(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def word(self, name: str) -> str:
        """A word of the choice `name` of patterns.toml."""
        return self.choice(lx.CHOICES[name])


def fit_tense(tense: Tense, verb: lx.Verb, subject: lx.Nominal) -> Tense:
    """The tense nearest to `tense` that this verb has without ambiguity."""
    if subject.agreement == 1 and tense in lx.PAST_TENSES:
        tense = Tense.PERFECT  # "du kauftest" is correct but not said
    if "no_perfect" in verb.options and (tense is Tense.PERFECT or tense is Tense.MODAL):
        tense = Tense.PRESENT
    if "continuous" in verb.options:
        return _CONTINUOUS.get(tense, tense)
    if "stative" in verb.options:
        return _SIMPLE.get(tense, tense)
    if tense is Tense.PAST and verb.english[0] == verb.english[2]:
        return Tense.PAST_PROGRESSIVE  # "I read" and "I put" would be present as well
    return tense


class Clauses(Sampler):
    """Noun phrases, times and clauses.

    A slot of a clause is a method `slot_...` that fills in a part of the clause, or leaves it out.
    """

    __slots__ = ("objects", "placed", "timed")
    objects: Sequence[lx.Noun]  # the nouns that the verb takes
    timed: int  # the chance of a time, in percent
    placed: int  # the chance of a place or a companion

    def adjectives(self, noun: lx.Noun, percent: int) -> tuple[lx.Adjective, ...]:
        """No adjective, one, or one and a material."""
        if not noun.adjectives or not self.chance(percent):
            return ()
        first = self.choice(noun.adjectives)
        if noun.kind == "jewels" and self.chance(60):
            return first, self.choice(lx.ADJECTIVES["material"])
        return (first,)

    def thing(self, noun: lx.Noun, negated: bool = False, definite: bool = False) -> NounPhrase:
        if noun.is_mass:
            determiner = "the" if definite or self.chance(35) else "no" if negated else ""
            return NounPhrase(determiner, noun, False, self.adjectives(noun, 35))
        plural = self.chance(30) and noun.is_countable
        determiner = self.word(("plural" if plural else "singular") + ("_definite" if definite else ""))
        if negated and determiner in ("a", "some", "many", "number"):
            determiner = "no"
        adjectives = self.adjectives(noun, 40)
        if determiner == "number":
            return NounPhrase("", noun, True, adjectives, 2 + self.below(98))
        if determiner == "the" and not plural and noun.kind in lx.CHOICES["owned"] and self.chance(50):
            return NounPhrase("the", noun, False, adjectives, 0, self._owner())
        return NounPhrase(determiner, noun, plural, adjectives)

    def _owner(self) -> NounPhrase | lx.ProperName:
        if self.chance(40):
            return self.choice(lx.OWNERS)
        if self.chance(50):
            return NounPhrase(self.word("possessive"), self.choice(CLASSES["family"]))
        return NounPhrase("the", self.choice(CLASSES["people"]))

    def person(self, noun: lx.Noun | None = None, plurals: int = 20) -> NounPhrase:
        """A person as a full phrase; a member of the family has a possessor."""
        if noun is None:
            noun = self.choice(CLASSES["family" if self.chance(30) else "people"])
        plural = self.chance(plurals) and noun.is_countable
        if noun.kind == "family":
            if not plural and self.chance(25):
                return NounPhrase("the", noun, False, (), 0, self.choice(lx.OWNERS))
            return NounPhrase(self.word("possessive"), noun, plural, self.adjectives(noun, 10))
        determiner = self.word("acquaintance" if "acquaintance" in noun.notes else "stranger")
        if plural and determiner == "a":
            return NounPhrase("", noun, True, self.adjectives(noun, 40), 2 + self.below(19))
        return NounPhrase(determiner, noun, plural, self.adjectives(noun, 30))

    def subject(self) -> lx.Nominal:
        draw = self.below(100)
        if draw < 42:
            return PRONOUNS[self.word("subject")]
        if draw < 62:
            return self.choice(lx.NAMES)
        if draw < 94:
            return self.person()
        first = self.choice(lx.NAMES)
        possessive = "his" if first.pronoun == "he" else "her"
        return lx.Pair(first, NounPhrase(possessive, self.choice(CLASSES["family"])))

    def other_pronoun(self, subject: lx.Nominal) -> lx.Pronoun:
        """A pronoun for another person than the subject."""
        name = "beside_" + (subject.english[0] if type(subject) is lx.Pronoun else "any")
        return PRONOUNS[self.word(name if name in lx.CHOICES else "beside_any")]

    def same(self, subject: lx.Nominal) -> lx.Nominal:
        """The subject again, as a pronoun."""
        if type(subject) is lx.Pronoun:
            return subject if subject.english[0] != "who" else PRONOUNS["he"]
        if subject.agreement == 3:
            return PRONOUNS["they"]
        name = subject.pronoun if type(subject) is lx.ProperName else ""
        if type(subject) is NounPhrase:  # of a neuter person, grammatical and natural gender differ
            name = ("he", "she", "")[subject.noun.gender]
        return PRONOUNS[name or self.choice(("I", "we"))]

    def location(self, place: lx.Noun | Fixed) -> lx.Prepositional | Fixed:
        if type(place) is Fixed:
            return place
        assert type(place) is lx.Noun
        return lx.Prepositional(place.notes[0], place.notes[1], lx.DATIVE, self._place_phrase(place))

    def direction(self, place: lx.Noun) -> lx.Prepositional:
        english, german = place.notes[2:]
        case = lx.DATIVE if german == "zu" else lx.ACCUSATIVE
        return lx.Prepositional(english, german, case, self._place_phrase(place))

    def _place_phrase(self, noun: lx.Noun) -> NounPhrase:
        return NounPhrase(self.word("place"), noun, False, self.adjectives(noun, 25))

    def time(self, tense: Tense) -> Fixed | None:
        """A time that goes with the tense; the present progressive takes none."""
        if tense is Tense.PRESENT_PROGRESSIVE:
            return None
        if tense is Tense.PERFECT:
            return self.choice(PHRASES["perfect"])
        draw = self.below(100)
        if draw < 45 or tense is Tense.PAST_PROGRESSIVE:
            return self.choice(PHRASES["clock"])
        counted = _COUNTED_TIMES.get(tense) if draw < 57 else None
        return self.choice(PHRASES[counted or _TIMES[tense]])

    def maybe_time(self, clause: Clause, percent: int) -> Fixed | None:
        has_time = "no_perfect" not in clause.verb.options and self.chance(percent)
        return self.time(clause.tense) if has_time else None

    def start(self, subject: lx.Nominal, negated: int = 13, tense: Tense | None = None) -> Clause:
        """A clause with its tense, modal verb and polarity drawn; `fill` gives it a verb."""
        modal = None
        if tense is None:
            tense = Tense[self.word("tense")]
            modal = self.choice(_MODALS) if tense is Tense.MODAL else None
        # "must not" is not "muss nicht": "must" is never negated.
        is_negated = self.chance(negated) and modal is not lx.MODALS["must"]
        return Clause(subject, lx.VERBS["be"], tense, modal, negated=is_negated)

    def fill(self, clause: Clause, timed: int = 60, placed: int = 60) -> Clause:
        """Draw the kind of clause, the verb and the slots of this kind."""
        kind = self.word("clause")
        pattern = lx.PATTERNS["clauses"][kind]
        if "instead" in pattern and self.chance(pattern["percent"]):
            kind = pattern["instead"]
            pattern = lx.PATTERNS["clauses"][kind]
        verb, self.objects = self.choice(lx.FRAMES[kind])
        self.timed, self.placed = timed, pattern.get("placed", placed)
        clause.verb, clause.tense = verb, fit_tense(clause.tense, verb, clause.subject)
        clause.negated = clause.negated and "plain" not in pattern
        for slot in pattern["slots"]:
            getattr(self, "slot_" + slot)(clause)
        return clause

    def action(self, subject: lx.Nominal, timed: int = 60, placed: int = 60, negated: int = 13) -> Clause:
        return self.fill(self.start(subject, negated), timed, placed)

    def slot_patient(self, clause: Clause) -> None:
        """The thing or person that the action affects."""
        noun, verb = self.choice(self.objects), clause.verb
        negated = clause.negated and verb.object_case == lx.ACCUSATIVE
        if noun.kind not in lx.CHOICES["human"]:
            clause.object = self.thing(noun, negated, definite=verb.english[0] in ("know", "like", "love"))
        elif self.chance(25):
            clause.object = self.other_pronoun(clause.subject)
        else:
            someone = self.person(noun)
            if negated and (someone.determiner == "a" or someone.number):
                someone = NounPhrase("no", noun, someone.plural, someone.adjectives)
            clause.object = someone

    def slot_topic(self, clause: Clause) -> None:
        noun = self.choice(self.objects)
        is_human = noun.kind in lx.CHOICES["human"]
        clause.object = self.person(noun) if is_human else self.thing(noun, definite=True)

    def slot_recipient(self, clause: Clause) -> None:
        clause.recipient = self.other_pronoun(clause.subject) if self.chance(40) else self.person()

    def slot_performance(self, clause: Clause) -> None:
        """Instruments and games, which take no article in German."""
        determiner, kind = ("instrument", "instruments") if self.chance(50) else ("", "games")
        clause.object = NounPhrase(determiner, self.choice(CLASSES[kind]))

    def slot_adverb(self, clause: Clause) -> None:
        """ "often" and the like: not beside an amount, nor within a negation."""
        verb, tense, direct = clause.verb, clause.tense, clause.object
        determiner = direct.determiner if type(direct) is NounPhrase else "the"
        if determiner in ("some", "many") or (type(direct) is NounPhrase and direct.number):
            return
        if "no_perfect" in verb.options and verb.object_case == lx.ACCUSATIVE:
            return
        if clause.negated:
            if tense is Tense.PERFECT and determiner != "no" and self.chance(40):
                clause.adverb = PHRASES["yet"][0]
        elif tense is Tense.PERFECT:
            clause.adverb = self.choice(PHRASES["perfect_adverb"]) if self.chance(40) else None
        elif tense is Tense.PRESENT or (tense is Tense.PAST and type(direct) is not lx.Pronoun):
            clause.adverb = self.choice(PHRASES["frequency"]) if self.chance(22) else None

    def slot_manner(self, clause: Clause) -> None:
        manners, direct = _MANNERS.get(clause.verb.english[0]), clause.object
        if clause.adverb or manners is None or not self.chance(25):
            return
        if type(direct) is not NounPhrase or direct.determiner in lx.CHOICES["plural_definite"]:
            clause.manner = self.choice(manners)

    def slot_place(self, clause: Clause) -> None:
        places = _PLACES.get(clause.verb.english[0])
        if places and not clause.manner and "stative" not in clause.verb.options and self.chance(self.placed):
            clause.place = self.location(self.choice(places))

    def slot_location(self, clause: Clause) -> None:
        clause.place = self.location(self.choice(_PLACES[clause.verb.english[0]]))

    def slot_surface(self, clause: Clause) -> None:
        """A direction onto something: the accusative, where lying there takes the dative."""
        surface = NounPhrase(self.word("on_surface"), lx.NOUNS[self.word("surface")])
        clause.place = lx.Prepositional("on", "auf", lx.ACCUSATIVE, surface)

    def slot_destination(self, clause: Clause) -> None:
        clause.place = self.direction(self.choice(CLASSES["places"]))

    def slot_city(self, clause: Clause) -> None:
        clause.place = self.choice(PHRASES["to_city"])
        if not clause.companion and clause.verb.english[0] in ("travel", "drive") and self.chance(50):
            clause.companion = self.choice(PHRASES["by_vehicle"])

    def slot_companion(self, clause: Clause) -> None:
        if clause.manner or not self.chance(self.placed // 2):
            return
        partner = self.other_pronoun(clause.subject) if self.chance(20) else self.person()
        clause.companion = lx.Prepositional("with", "mit", lx.DATIVE, partner)

    def slot_cause(self, clause: Clause) -> None:
        if clause.companion or clause.verb.english[0] == "live" or not self.chance(self.placed // 6):
            return
        noun = self.choice(CLASSES["causes"])
        phrase = NounPhrase("the", noun, False, self.adjectives(noun, 30))
        clause.cause = lx.Prepositional("because of", "wegen", lx.GENITIVE, phrase)

    def slot_schedule(self, clause: Clause) -> None:
        """A time of day for what people do daily, or a cause beside an adverb."""
        if clause.adverb:
            self.slot_cause(clause)
        elif self.chance(90):
            has_clock = clause.tense not in (Tense.PERFECT, Tense.PRESENT_PROGRESSIVE)
            clause.time = self.choice(PHRASES["clock"]) if has_clock else self.time(clause.tense)

    def slot_time(self, clause: Clause) -> None:
        if not clause.adverb and not clause.cause and clause.verb.english[0] not in ("live", "stay"):
            clause.time = self.maybe_time(clause, self.timed)
