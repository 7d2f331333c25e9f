"""Draw sentences: `patterns.toml` has the weights of the kinds; each kind is a method `sentence_...`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from recipes.phrasebook import lexicon as lx
from recipes.phrasebook.clauses import Clauses, fit_tense
from recipes.phrasebook.lexicon import PRONOUNS, VERBS, Clause, Fixed, Link, NounPhrase, Sentence, Tense

PRESENT, PAST, PERFECT = Tense.PRESENT, Tense.PAST, Tense.PERFECT
_TRANSITIVE, _HELPING = lx.FRAMES["transitive"], lx.FRAMES["helping"]
_NEAR: Final = (PRESENT, PAST)
_MANNERS: Final = {manner.english: manner for manner in lx.PHRASES["manner"]}
_BOUGHT: Final = lx.nouns("clothes things devices vehicles")
_DESCRIBED: Final = [
    noun for noun in lx.NOUNS.values() if noun.adjectives and noun.kind not in ("people", "family", "causes")
]
# The verbs of relative clauses have no particle or preposition, which would stand alone in English.
_SIMPLE: Final = [
    frame
    for frame in _TRANSITIVE + _HELPING
    if not (frame.verb.english_particle or frame.verb.english_preposition)
]
_PERSON_VERBS: Final = [frame.verb for frame in _SIMPLE if lx.NOUNS["neighbour"] in frame.objects]
_THING_VERBS: Final = {
    name: [frame.verb for frame in _SIMPLE if noun in frame.objects and frame in _TRANSITIVE]
    for name, noun in lx.NOUNS.items()
}


class Sentences(Clauses):
    __slots__ = ()

    def sentence(self) -> Sentence:
        kind = "any"
        while kind in lx.PATTERNS["sentences"]:
            kind = self.word(kind)
        draw: Callable[[], Sentence] = getattr(self, "sentence_" + kind)
        return draw()

    # -- parts of sentences -------------------------------------------------------------------------------

    def _quality(self, adjective: lx.Adjective) -> Fixed:
        english, german, _ = self.choice(lx.PHRASES["degree"])
        return Fixed(f"{english} {adjective.english}".lstrip(), f"{german} {adjective.german}".lstrip())

    def _be(self, subject: lx.Nominal, tense: Tense, predicate: Fixed, negated: bool = False) -> Clause:
        return Clause(subject, VERBS["be"], tense, predicate=predicate, negated=negated)

    def _feeling(self, subject: lx.Nominal, tense: Tense) -> Clause:
        """A person is tired, happy..."""
        adjective = self.choice(lx.ADJECTIVES["state"])
        english, german = ("", "") if self.chance(60) else ("very ", "sehr ")
        predicate = Fixed(english + adjective.english, german + adjective.german)
        return self._be(subject, tense, predicate, self.chance(15))

    def _brief(self, subject: lx.Nominal, tense: Tense | None = None) -> Clause:
        """A clause short enough to stand beside another one."""
        return self.fill(self.start(subject, tense=tense), timed=25, placed=25)

    def _report(self, subject: lx.Nominal, verb: lx.Verb, tense: Tense, clause: Clause) -> Sentence:
        """ "She says that ..." """
        return Sentence(Clause(subject, verb, fit_tense(tense, verb, subject)), link=Link("that", clause))

    def _with_verb(self, clause: Clause, verb: lx.Verb, direct: lx.Nominal | None = None) -> Clause:
        clause.verb, clause.tense = verb, fit_tense(clause.tense, verb, clause.subject)
        clause.object = direct
        return clause

    # -- statements and questions -------------------------------------------------------------------------

    def sentence_statement(self) -> Sentence:
        clause = self.action(self.subject(), timed=85, placed=80)
        draw = self.below(100)
        if clause.time and draw < 45:
            return Sentence(clause, "time")
        if draw > 85 and clause.tense is not Tense.MODAL:
            return Sentence(clause, "opening", self.choice(lx.PHRASES["remark"]))
        return Sentence(clause)

    def sentence_object_first(self) -> Sentence:
        """ "This film I have already seen." """
        noun = None
        while noun is None or noun.is_mass or noun.kind in ("people", "family", "animals"):
            verb, objects = self.choice(_TRANSITIVE)
            noun = self.choice(objects)
        clause = self.start(PRONOUNS[self.word("topic_subject")], negated=35)
        if clause.tense in (Tense.PRESENT_PROGRESSIVE, Tense.PAST_PROGRESSIVE):
            clause.tense = PERFECT
        plural = noun.is_countable and self.chance(40)
        self._with_verb(clause, verb, NounPhrase("this", noun, plural, self.adjectives(noun, 60)))
        clause.time = self.maybe_time(clause, 60)
        return Sentence(clause, "object")

    def _start_question(self, subject: lx.Nominal | None = None) -> Clause:
        """A clause in a tense of speech; the German preterite belongs to reports."""
        subject = subject or self.subject()
        clause = self.start(PRONOUNS["you"] if subject is PRONOUNS["I"] else subject, negated=0)
        clause.tense = PERFECT if clause.tense in lx.PAST_TENSES else clause.tense
        return clause

    def sentence_yes_no_question(self) -> Sentence:
        return Sentence(self.fill(self._start_question(), timed=85, placed=80), "nothing", question=True)

    def sentence_adverb_question(self) -> Sentence:
        opening = self.choice((Fixed("when", "wann"), Fixed("why", "warum")))
        clause = self.fill(self._start_question(), timed=0, placed=80)
        if clause.tense is not PRESENT and clause.tense is not Tense.MODAL:
            opening = Fixed("why", "warum")  # "when" does not go with a perfect, nor with "gerade"
        clause.time = clause.adverb = None
        return Sentence(clause, "opening", opening, True)

    def sentence_subject_question(self) -> Sentence:
        clause = self.fill(self._start_question(PRONOUNS["who"]), timed=85, placed=80)
        return Sentence(clause, "subject", question=True)

    def sentence_object_question(self) -> Sentence:
        """ "which book", "how many apples", "what", "whom"."""
        clause = self._start_question()
        verb, objects = self.choice(_HELPING if self.chance(10) else _TRANSITIVE)
        noun = self.choice(objects)
        human = noun.kind in lx.CHOICES["human"]
        if "no_perfect" in verb.options and (noun.is_mass or human):
            return self.sentence_yes_no_question()  # there are few questions like "Whom do you know?"
        self._with_verb(clause, verb, lx.Gap())
        clause.time = self.maybe_time(clause, 85)
        if human:
            opening = Fixed("whom", "wem" if verb.object_case == lx.DATIVE else "wen")
            return Sentence(clause, "opening", opening, True)
        if noun.is_mass or verb.english_preposition or (clause.time and self.chance(25)):
            return Sentence(clause, "opening", Fixed("what", "was"), True)
        determiner = self.choice(("which", "which", "how many")) if noun.is_countable else "which"
        plural = determiner == "how many" or (noun.is_countable and self.chance(30))
        clause.object = NounPhrase(determiner, noun, plural, self.adjectives(noun, 40))
        return Sentence(clause, "object", question=True)

    # -- relative clauses ---------------------------------------------------------------------------------

    def sentence_subject_with_relative(self) -> Sentence:
        """ "The man who bought the car is tired." """
        person = self.person(self.choice(lx.CLASSES["people"]), plurals=30)
        head = NounPhrase("the", person.noun, person.plural, relative=self._person_relative(person))
        if self.chance(40):
            return Sentence(self._feeling(head, self.choice(_NEAR)))
        return Sentence(self.action(head, timed=0, placed=0))

    def sentence_object_with_relative(self) -> Sentence:
        """ "I have not read the book that you bought." """
        clause = self.start(self.subject(), negated=20)
        verb, objects = self.choice(_TRANSITIVE)
        noun = self.choice(objects)
        if noun.kind == "family":
            noun = self.choice(lx.CLASSES["people"])
        plural = noun.is_countable and self.chance(30)
        head = NounPhrase("the", noun, plural, self.adjectives(noun, 20))
        human = noun.kind == "people"
        relative = self._person_relative(head) if human else self._thing_relative(head, verb)
        return Sentence(self._with_verb(clause, verb, head._replace(relative=relative)))

    def _person_relative(self, head: NounPhrase) -> lx.Relative:
        draw = self.below(100)
        if draw < 50:
            clause = self.action(lx.Gap(head.agreement), timed=25, placed=25)
            if type(clause.object) is lx.Pronoun:  # "die Frau, die sie kennt" is ambiguous
                clause.object = self.person()
            return lx.Relative(lx.NOMINATIVE, clause, True)
        clause = self.start(PRONOUNS[self.word("relative_subject")])
        if draw < 65:
            self._with_verb(clause, VERBS["play"], NounPhrase("", self.choice(lx.CLASSES["games"])))
            clause.time, clause.negated = self.maybe_time(clause, 40), False
            return lx.Relative(lx.DATIVE, clause, True, Fixed("with", "mit"))
        self._with_verb(clause, self.choice(_PERSON_VERBS), lx.Gap())
        clause.time = self.maybe_time(clause, 30)
        return lx.Relative(clause.verb.object_case, clause, True)

    def _thing_relative(self, head: NounPhrase, outer: lx.Verb) -> lx.Relative:
        verbs = _THING_VERBS[head.noun.english[0]]
        verb = self.choice(verbs) if verbs else outer
        if verb is outer or self.chance(20):
            clause = self._thing_state(lx.Gap(head.agreement), head.noun, self.choice(_NEAR))
            return lx.Relative(lx.NOMINATIVE, clause, False)
        clause = self.start(PRONOUNS[self.word("relative_subject")], negated=20)
        self._with_verb(clause, verb, lx.Gap())
        clause.time = self.maybe_time(clause, 30)
        return lx.Relative(lx.ACCUSATIVE, clause, False)

    def _thing_state(self, subject: lx.Nominal, noun: lx.Noun, tense: Tense) -> Clause:
        """A thing lies somewhere, or has a quality that no person has."""
        if noun.kind in lx.CHOICES["lying"] and self.chance(60):
            surface = NounPhrase("the", lx.NOUNS[self.word("surface")])
            place = lx.Prepositional("on", "auf", lx.DATIVE, surface)
            return Clause(subject, VERBS["lie"], tense, place=place)
        is_material = noun.kind in lx.CHOICES["material"]
        adjectives = lx.ADJECTIVES["faults"] if is_material else noun.adjectives or lx.ADJECTIVES["ideas"]
        return self._be(subject, tense, self._quality(self.choice(adjectives)))

    # -- two clauses --------------------------------------------------------------------------------------

    def sentence_report(self) -> Sentence:
        """ "She says that ...", "He asks whether ..." """
        subject = self.subject()
        whether = self.chance(22)
        verb = VERBS[self.word("question_verb" if whether else "report_verb")]
        tense = fit_tense(Tense[self.word("report_tense")], verb, subject)
        negated = verb.name == "know"
        if not whether:
            negated = verb.name in lx.CHOICES["negatable_verb"] and self.chance(25)
        main = Clause(subject, verb, tense, negated=negated)
        return Sentence(main, link=Link("whether" if whether else "that", self._event(subject, tense)))

    def _event(self, subject: lx.Nominal, outer: Tense) -> Clause:
        """The content of a report; after a past tense it is in the past."""
        draw = self.below(100)
        if draw < 12:
            return self._departure()
        if draw < 20:
            return self._feeling(self.subject(), self.choice(_NEAR))
        inner = self.same(subject) if draw < 45 else self.subject()
        return self._brief(inner, PAST if outer is PAST else None)

    def _departure(self) -> Clause:
        noun = lx.NOUNS[self.word("scheduled")]
        subject = NounPhrase(self.choice(("the", "this", "our")), noun)
        tense = self.choice(_NEAR)
        verb = VERBS["depart" if self.chance(50) else "arrive"]
        time = self.choice(lx.PHRASES["clock"]) if self.chance(70) else self.time(tense)
        return Clause(subject, verb, tense, time=time)

    def sentence_because(self, conjunction: str = "because", fronted: int = 0) -> Sentence:
        main = self._brief(self.subject())
        reason = self._reason(main.subject, PAST if main.tense in lx.PAST_TENSES else PRESENT)
        return Sentence(main, link=Link(conjunction, reason, bool(fronted) and self.chance(fronted)))

    def sentence_although(self) -> Sentence:
        return self.sentence_because("although", fronted=60)

    def _reason(self, subject: lx.Nominal, tense: Tense) -> Clause:
        draw = self.below(100)
        if draw < 20:
            verb = VERBS[self.choice(("rain", "snow"))]
            return Clause(PRONOUNS["it"], verb, fit_tense(tense, verb, PRONOUNS["it"]))
        if draw < 65:
            return self._feeling(self.same(subject), tense)
        return self._brief(self.same(subject) if draw < 80 else self.subject(), tense)

    def sentence_condition(self) -> Sentence:
        """ "If it is raining tomorrow, we will stay at home." """
        main = self.start(self.subject())
        main.tense, main.negated = Tense.MODAL, False
        main.modal = lx.MODALS[self.word("condition_modal")]
        condition = self._reason(main.subject, PRESENT)
        if condition.tense not in (PRESENT, Tense.PRESENT_PROGRESSIVE):
            condition = self._feeling(self.same(main.subject), PRESENT)
        self.fill(main, timed=30, placed=30)
        return Sentence(main, link=Link("if", condition, fronted=self.chance(60)))

    def sentence_thing_reason(self) -> Sentence:
        """The pronoun of a thing has the gender of its German noun: "weil er zu teuer ist"."""
        noun = self.choice(_BOUGHT)
        head = NounPhrase(self.choice(("the", "this")), noun, self.chance(30), self.adjectives(noun, 40))
        pronoun = PRONOUNS["it_" + ("p" if head.plural else "mfn"[noun.gender])]
        buyer = PRONOUNS[self.word("buyer")] if self.chance(50) else self.person()
        main = self.start(buyer, negated=0)
        dealing = self.choice(lx.PATTERNS["dealings"])
        self._with_verb(main, VERBS[self.choice(dealing["verbs"])])
        main.negated = dealing["negated"]
        if main.negated and main.modal is lx.MODALS["must"]:
            main.tense = PRESENT
        opinion = self._quality(self.choice(lx.ADJECTIVES[dealing["adjectives"]]))
        because = dealing["conjunction"] == "because"
        main.object = head if because else pronoun
        tense = PAST if main.tense in lx.PAST_TENSES else PRESENT
        state = self._be(pronoun if because else head, tense, opinion)
        outer, inner = (main, state) if because else (state, main)
        return Sentence(outer, link=Link(dealing["conjunction"], inner))

    def sentence_intention(self) -> Sentence:
        """ "She is trying to call her mother", "He goes to the market in order to buy bread"."""
        subject = self.subject()
        aim = self.action(subject, timed=0, placed=20, negated=0)
        while "stative" in aim.verb.options:  # one does not try to lose or to forget something
            aim = self.action(subject, timed=0, placed=20, negated=0)
        aim.tense, aim.adverb, aim.time = Tense.INFINITIVE, None, None
        if self.chance(55):
            verb = VERBS[self.word("intention_verb")]
            tense = fit_tense(Tense[self.word("report_tense")], verb, subject)
            return Sentence(Clause(subject, verb, tense, negated=self.chance(6)), link=Link("to", aim))
        main = self._with_verb(self.start(subject, negated=0), VERBS["go"])
        main.place = self.direction(self.choice(lx.CLASSES["places"]))
        main.time = self.maybe_time(main, 20)
        return Sentence(main, link=Link("in order to", aim))

    # -- numbers, qualities, pets, programs ---------------------------------------------------------------

    def _measure(self, least: int, english: str, german: str, phenomena: str) -> Fixed:
        number = least + self.below(100 - least)
        english, german = f"{lx.ENGLISH_NUMBERS[number]} {english}", f"{lx.GERMAN_NUMBERS[number]} {german}"
        return Fixed(english, german, lx.bits(phenomena))

    def sentence_age(self) -> Sentence:
        years = self._measure(18, "years old", "Jahre alt", "numeral number")
        subject = self.person(plurals=0)
        clause = self._be(subject, PRESENT, years)
        if self.chance(60):
            return Sentence(clause, link=Link("but", self._feeling(self.same(subject), PRESENT)))
        return self._report(self.subject(), VERBS["know"], PRESENT, clause)

    def sentence_price(self) -> Sentence:
        noun = self.choice(_BOUGHT)
        subject = NounPhrase(self.choice(("the", "this")), noun, False, self.adjectives(noun, 70))
        euros = self._measure(2, "euros", "Euro", "numeral")
        clause = Clause(subject, VERBS["cost"], PRESENT, predicate=euros)
        if self.chance(50):
            return self._report(self.subject(), VERBS["say"], self.choice(_NEAR), clause)
        buyer = PRONOUNS[self.word("buyer")]
        verb = VERBS[self.choice(("buy", "sell", "use"))]
        modal = lx.MODALS[self.choice(("can", "should", "would like to", "want to"))]
        pronoun = PRONOUNS["it_" + "mfn"[noun.gender]]
        contrast = Clause(buyer, verb, Tense.MODAL, modal, pronoun, negated=self.chance(30))
        return Sentence(clause, link=Link("but", contrast))

    def sentence_description(self) -> Sentence:
        noun = self.choice(_DESCRIBED)
        subject = self.thing(noun, definite=True)._replace(adjectives=())
        predicate = self._quality(self.choice(noun.adjectives))
        clause = self._be(subject, self.choice(_NEAR), predicate, self.chance(25))
        if self.chance(40):
            return Sentence(clause, "nothing", question=True)
        return self._report(self.subject(), VERBS[self.word("opinion_verb")], PRESENT, clause)

    def sentence_walk(self) -> Sentence:
        """ "Sarah was walking in the park with her cat, Alex." """
        subject, verb = self.subject(), VERBS["walk"]
        tense = self.choice((Tense.PAST_PROGRESSIVE, Tense.PRESENT_PROGRESSIVE, PAST))
        place = self.location(lx.NOUNS[self.word("walking")])
        pronoun = subject.pronoun if type(subject) is lx.ProperName else ""
        determiner = {"he": "his", "she": "her"}.get(pronoun) or self.choice(("my", "our"))
        noun = lx.NOUNS[self.word("pet")]
        name = self.choice(lx.PETS[1:] if subject == lx.NAMES[0] else lx.PETS)
        pet = lx.Prepositional("with", "mit", lx.DATIVE, NounPhrase(determiner, noun, name=name))
        return Sentence(Clause(subject, verb, fit_tense(tense, verb, subject), companion=pet, place=place))

    def sentence_machine(self) -> Sentence:
        """ "Python executes the program quickly", alone or in a report."""
        outer = Tense[self.word("report_tense")]
        tense = PAST if outer is PAST else self.choice((PRESENT, PAST, PERFECT))
        clause = self._running(tense) if self.chance(30) else self._executing(tense)
        if self.chance(15):
            return Sentence(clause)
        if self.chance(30):
            clause.time = self.time(tense)
            return Sentence(clause, "time")
        return self._report(self.subject(), VERBS[self.word("report_verb")], outer, clause)

    def _running(self, tense: Tense) -> Clause:
        named = self.chance(40)
        program = lx.ProperName("Python") if named else self.thing(lx.NOUNS["program"], definite=True)
        manner = _MANNERS[self.choice(("quickly", "slowly"))]
        return Clause(program, lx.FRAMES["running"][0].verb, tense, manner=manner)

    def _executing(self, tense: Tense) -> Clause:
        noun = lx.NOUNS[self.word("computing")]
        subject: lx.Nominal = lx.ProperName("Python")
        if self.chance(65):
            adjectives = self.adjectives(noun, 60)
            subject = NounPhrase(self.choice(("the", "this", "my", "our")), noun, self.chance(50), adjectives)
        manner = _MANNERS[self.choice(("quickly", "slowly", "carefully"))] if self.chance(70) else None
        direct = self.thing(self.choice(lx.CLASSES["programs"]), definite=True)
        return Clause(subject, VERBS["execute"], tense, object=direct, manner=manner)
