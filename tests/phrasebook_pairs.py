"""A hundred sentence pairs written by hand, each with the structure that the grammar must realise as both."""

from dataclasses import replace

from regard.data.phrasebook.lexicon import (
    ACCUSATIVE,
    ADJECTIVE,
    DATIVE,
    FRAMES,
    GENITIVE,
    MODALS,
    NOMINATIVE,
    NOUNS,
    PHRASES,
    PRONOUNS,
    VERBS,
    Clause,
    Fixed,
    Front,
    Gap,
    Link,
    Nominal,
    NounPhrase,
    Pair,
    Prepositional,
    ProperName,
    Relative,
    Sentence,
    Tense,
)

PRESENT, PAST, PERFECT, INFINITIVE = Tense.PRESENT, Tense.PAST, Tense.PERFECT, Tense.INFINITIVE
IS_DOING, WAS_DOING = Tense.PRESENT_PROGRESSIVE, Tense.PAST_PROGRESSIVE
ME, YOU, HE, SHE, WE, THEY, WHO, IT = (
    PRONOUNS[name] for name in ("I", "you", "he", "she", "we", "they", "who", "it")
)
BE, WISSEN, PLAY, LIE = (VERBS[name] for name in ("be", "know", "play", "lie"))
# The verbs with an object or place, by name: "know" is "kennen" here.
ACTIONS = {
    frame.verb.name: frame.verb
    for kind in reversed(FRAMES)
    if kind != "other"
    for frame in reversed(FRAMES[kind])
}
ANTWORTEN = next(frame.verb for frame in FRAMES["helping"] if frame.verb.infinitive == "antworten")
MANNERS = {manner.english: manner for manner in PHRASES["manner"]}
PYTHON, QUICKLY, AT_HOME = ProperName("Python"), MANNERS["quickly"], PHRASES["at_home"][0]
ANNA, SARAH, PAUL, MAX = ProperName("Anna"), ProperName("Sarah"), ProperName("Paul"), ProperName("Max")


def np(words: str, possessor: NounPhrase | ProperName | None = None, **more: object) -> NounPhrase:
    """A noun phrase from "the old book" or "the old book +" (plural); "- bread" has no determiner."""
    determiner, *adjectives, last = words.removesuffix(" +").split()
    described = tuple(ADJECTIVE[word] for word in adjectives)
    key = {"-": "", "piano-the": "instrument"}.get(determiner, determiner)
    plural = words.endswith(" +")
    return NounPhrase(key, NOUNS[last], plural, described, possessor=possessor, **more)  # type: ignore[arg-type]


def count(number: int, words: str) -> NounPhrase:
    return np(f"- {words} +")._replace(number=number)


def do(subject: Nominal, verb: str, tense: Tense, obj: Nominal | None = None, **more: object) -> Clause:
    return Clause(subject, ACTIONS.get(verb) or VERBS[verb], tense, None, obj, **more)  # type: ignore[arg-type]


def may(subject: Nominal, modal: str, verb: str, obj: Nominal | None = None, **more: object) -> Clause:
    return replace(do(subject, verb, Tense.MODAL, obj, **more), modal=MODALS[modal])


def be(subject: Nominal, adjective: str, tense: Tense = PRESENT, **more: object) -> Clause:
    degree, _, name = adjective.rpartition(" ")
    german = {"": "", "very": "sehr ", "too": "zu ", "quite": "ziemlich "}[degree]
    predicate = Fixed(adjective, german + ADJECTIVE[name].german)
    return Clause(subject, BE, tense, predicate=predicate, **more)  # type: ignore[arg-type]


def at(hour: int, minute: int) -> Fixed:
    return PHRASES["clock"][(hour - 1) * 10 + (0, 5, 10, 15, 20, 30, 40, 45, 50, 55).index(minute)]


def counted(kind: str, number: int, unit: int) -> Fixed:
    """ "ago" or "ahead"; the units are days, weeks, months, years."""
    return PHRASES[kind][(number - 2) * 4 + unit]


def where(words: str) -> Prepositional:
    phrase = np(words)
    return Prepositional(*phrase.noun.notes[:2], DATIVE, phrase)


def toward(words: str) -> Prepositional:
    phrase = np(words)
    english, german = phrase.noun.notes[2:]
    return Prepositional(english, german, DATIVE if german == "zu" else ACCUSATIVE, phrase)


def on(words: str, case: int) -> Prepositional:
    return Prepositional("on", "auf", case, np(words))


def accompanied(partner: Nominal) -> Prepositional:
    return Prepositional("with", "mit", DATIVE, partner)


def who(head: str, clause: Clause, case: int = NOMINATIVE, human: bool = True) -> NounPhrase:
    return np(head)._replace(relative=Relative(case, clause, human))


def fixed(english: str, german: str) -> Fixed:
    return Fixed(english, german)


def ask(clause: Clause, front: Front = "nothing", opening: Fixed | None = None) -> Sentence:
    return Sentence(clause, front, opening, True)


def linked(clause: Clause, conjunction: str, other: Clause, fronted: bool = False) -> Sentence:
    return Sentence(clause, link=Link(conjunction, other, fronted))


def know(subject: Nominal, tense: Tense = PRESENT, negated: bool = False) -> Clause:
    return Clause(subject, WISSEN, tense, negated=negated)


def say(subject: Nominal, verb: str, tense: Tense = PRESENT) -> Clause:
    return Clause(subject, VERBS[verb], tense)


YESTERDAY, TODAY, TOMORROW = (
    fixed("yesterday", "gestern"),
    fixed("today", "heute"),
    fixed("tomorrow", "morgen"),
)
EVERY_DAY, OFTEN, NEVER = fixed("every day", "jeden Tag"), fixed("often", "oft"), fixed("never", "nie")
ALREADY, ALWAYS = fixed("already", "schon"), fixed("always", "immer")
GAP, GAPS = Gap(2), Gap(3)

Row = tuple[Sentence, str, str, set[str]]

STATEMENTS: list[Row] = [
    (
        Sentence(Clause(PYTHON, FRAMES["running"][0].verb, PRESENT, manner=QUICKLY)),
        "Python executes quickly.",
        "Python läuft schnell.",
        set(),
    ),
    (
        Sentence(
            Clause(
                PYTHON,
                VERBS["execute"],
                PRESENT,
                object=np("the new program"),
                manner=QUICKLY,
            )
        ),
        "Python executes the new program quickly.",
        "Python führt das neue Programm schnell aus.",
        {"gender", "separable-verb"},
    ),
    (
        Sentence(
            do(
                SARAH,
                "walk",
                WAS_DOING,
                place=where("the park"),
                companion=accompanied(np("her cat", name="Alex")),
            )
        ),
        "Sarah was walking in the park with her cat, Alex.",
        "Sarah ging gerade mit ihrer Katze Alex im Park spazieren.",
        {"case", "gender"},
    ),
    (
        Sentence(do(SHE, "wear", WAS_DOING, np("a beautiful gold watch"))),
        "She was wearing a beautiful gold watch.",
        "Sie trug eine schöne goldene Uhr.",
        {"gender"},
    ),
    (
        Sentence(may(ME, "would like to", "read", np("this book"))),
        "I would like to read this book.",
        "Ich möchte dieses Buch lesen.",
        {"modal", "gender"},
    ),
    (
        Sentence(do(WE, "see", PAST, np("many thinking machine +"))),
        "We saw many thinking machines.",
        "Wir sahen viele denkende Maschinen.",
        {"number"},
    ),
    (
        Sentence(do(PAUL, "buy", PAST, np("a red coat"), time=YESTERDAY)),
        "Paul bought a red coat yesterday.",
        "Paul kaufte gestern einen roten Mantel.",
        {"case", "gender"},
    ),
    (
        Sentence(do(PAUL, "buy", PAST, np("a red coat"), time=YESTERDAY), "time"),
        "Yesterday Paul bought a red coat.",
        "Gestern kaufte Paul einen roten Mantel.",
        {"verb-second"},
    ),
    (
        Sentence(do(np("the old man"), "drink", PRESENT, np("- hot coffee"), time=EVERY_DAY)),
        "The old man drinks hot coffee every day.",
        "Der alte Mann trinkt jeden Tag heißen Kaffee.",
        {"gender"},
    ),
    (
        Sentence(do(np("the child +"), "eat", PAST, np("the cherry +"), place=where("the garden"))),
        "The children ate the cherries in the garden.",
        "Die Kinder aßen die Kirschen im Garten.",
        {"number"},
    ),
    (
        Sentence(do(ME, "help", PRESENT, np("my neighbour +"))),
        "I help my neighbours.",
        "Ich helfe meinen Nachbarn.",
        {"case", "number"},
    ),
    (
        Sentence(do(HE, "give", PAST, np("a flower"), recipient=np("the friendly nurse"))),
        "He gave the friendly nurse a flower.",
        "Er gab der freundlichen Krankenschwester eine Blume.",
        {"case"},
    ),
    (
        Sentence(do(SHE, "show", PRESENT, np("her photo +"), recipient=THEY)),
        "She shows them her photos.",
        "Sie zeigt ihnen ihre Fotos.",
        {"case", "number"},
    ),
    (
        Sentence(do(WE, "follow", PAST, np("the policeman"))),
        "We followed the policeman.",
        "Wir folgten dem Polizisten.",
        {"case"},
    ),
    (
        Sentence(do(ANNA, "repair", PRESENT, np("the bicycle", np("her brother")))),
        "Anna repairs her brother's bicycle.",
        "Anna repariert das Fahrrad ihres Bruders.",
        {"case"},
    ),
    (
        Sentence(do(ME, "look for", IS_DOING, np("the new key", ANNA))),
        "I am looking for Anna's new key.",
        "Ich suche gerade Annas neuen Schlüssel.",
        {"case"},
    ),
    (
        Sentence(do(np("our aunt"), "sell", PAST, np("the big house"))),
        "Our aunt sold the big house.",
        "Unsere Tante verkaufte das große Haus.",
        {"gender"},
    ),
    (
        Sentence(do(THEY, "go", PRESENT, place=toward("the cinema"), adverb=OFTEN)),
        "They often go to the cinema.",
        "Sie gehen oft ins Kino.",
        {"gender"},
    ),
    (
        Sentence(do(THEY, "sit", PAST, place=where("the dark cellar"))),
        "They sat in the dark cellar.",
        "Sie saßen im dunklen Keller.",
        {"case"},
    ),
    (
        Sentence(Clause(ME, VERBS["put"], PRESENT, object=np("the map"), place=on("the desk", ACCUSATIVE))),
        "I put the map on the desk.",
        "Ich lege die Landkarte auf den Schreibtisch.",
        {"case"},
    ),
    (
        Sentence(Clause(np("the map"), LIE, PRESENT, place=on("the desk", DATIVE))),
        "The map lies on the desk.",
        "Die Landkarte liegt auf dem Schreibtisch.",
        {"case"},
    ),
    (
        Sentence(do(Pair(MAX, np("his niece")), "play", PRESENT, np("piano-the violin"), adverb=ALWAYS)),
        "Max and his niece always play the violin.",
        "Max und seine Nichte spielen immer Geige.",
        set(),
    ),
    (
        Sentence(do(SHE, "smile", PRESENT), "opening", fixed("perhaps", "vielleicht")),
        "Perhaps she smiles.",
        "Vielleicht lächelt sie.",
        {"verb-second"},
    ),
    (Sentence(do(ME, "smile", PRESENT, adverb=NEVER)), "I never smile.", "Ich lächle nie.", set()),
    (
        Sentence(do(np("this lawyer"), "work", PRESENT, place=fixed("in Munich", "in München"))),
        "This lawyer works in Munich.",
        "Diese Anwältin arbeitet in München.",
        {"gender"},
    ),
    (
        Sentence(
            do(
                HE,
                "wait",
                PAST,
                cause=Prepositional("because of", "wegen", GENITIVE, np("the terrible storm")),
                place=AT_HOME,
            )
        ),
        "He waited at home because of the terrible storm.",
        "Er wartete wegen des schrecklichen Sturmes zu Hause.",
        {"case"},
    ),
    (
        Sentence(
            do(
                WE,
                "travel",
                PAST,
                place=fixed("to Vienna", "nach Wien"),
                companion=fixed("by train", "mit dem Zug"),
                time=counted("ago", 3, 1),
            )
        ),
        "We travelled to Vienna by train three weeks ago.",
        "Wir reisten vor drei Wochen mit dem Zug nach Wien.",
        {"numeral"},
    ),
    (
        Sentence(do(ME, "drink", PERFECT, np("this cold milk"), time=TODAY), "object"),
        "This cold milk I have drunk today.",
        "Diese kalte Milch habe ich heute getrunken.",
        {"verb-second"},
    ),
    (
        Sentence(do(np("a tourist"), "photograph", IS_DOING, np("the old bridge"))),
        "A tourist is photographing the old bridge.",
        "Ein Tourist fotografiert gerade die alte Brücke.",
        {"gender"},
    ),
    (
        Sentence(do(np("the student +"), "talk about", PAST, np("the difficult exam"))),
        "The students talked about the difficult exam.",
        "Die Studenten sprachen über die schwierige Prüfung.",
        {"number"},
    ),
]

VERB_FORMS: list[Row] = [
    (
        Sentence(do(SHE, "call", PRESENT, np("her mother"), time=EVERY_DAY)),
        "She calls her mother every day.",
        "Sie ruft ihre Mutter jeden Tag an.",
        {"separable-verb"},
    ),
    (
        Sentence(do(SHE, "call", PERFECT, np("her mother"), adverb=ALREADY)),
        "She has already called her mother.",
        "Sie hat ihre Mutter schon angerufen.",
        {"separable-verb", "perfect"},
    ),
    (
        Sentence(may(ME, "must", "call", np("the doctor"))),
        "I must call the doctor.",
        "Ich muss den Arzt anrufen.",
        {"modal", "separable-verb", "case"},
    ),
    (
        Sentence(do(HE, "pick up", PAST, WE, time=at(6, 10))),
        "He picked us up at ten past six.",
        "Er holte uns um zehn nach sechs ab.",
        {"separable-verb", "clock"},
    ),
    (
        Sentence(do(ME, "get up", PRESENT, time=at(6, 30))),
        "I get up at half past six.",
        "Ich stehe um halb sieben auf.",
        {"separable-verb", "clock"},
    ),
    (
        Sentence(do(THEY, "get up", PERFECT, adverb=ALREADY)),
        "They have already got up.",
        "Sie sind schon aufgestanden.",
        {"perfect", "separable-verb"},
    ),
    (
        Sentence(do(np("my grandfather"), "fall asleep", PAST, time=at(8, 45)), "time"),
        "At a quarter to nine my grandfather fell asleep.",
        "Um Viertel vor neun schlief mein Großvater ein.",
        {"clock", "verb-second", "separable-verb"},
    ),
    (
        Sentence(do(YOU, "turn off", PERFECT, np("the lamp"))),
        "You have turned off the lamp.",
        "Du hast die Lampe ausgeschaltet.",
        {"perfect", "separable-verb"},
    ),
    (
        Sentence(do(np("the actor"), "take part in", PRESENT, np("the meeting"))),
        "The actor takes part in the meeting.",
        "Der Schauspieler nimmt an der Besprechung teil.",
        {"separable-verb"},
    ),
    (
        Sentence(do(SHE, "think about", PAST, np("his answer"))),
        "She thought about his answer.",
        "Sie dachte über seine Antwort nach.",
        {"separable-verb"},
    ),
    (
        Sentence(do(ME, "listen to", PRESENT, HE)),
        "I listen to him.",
        "Ich höre ihm zu.",
        {"separable-verb", "case"},
    ),
    (
        Sentence(do(HE, "prepare", PERFECT, np("the journey"))),
        "He has prepared the journey.",
        "Er hat die Reise vorbereitet.",
        {"perfect", "separable-verb"},
    ),
    (
        Sentence(do(WE, "fly", PERFECT, place=fixed("to Rome", "nach Rom"))),
        "We have flown to Rome.",
        "Wir sind nach Rom geflogen.",
        {"perfect"},
    ),
    (
        Sentence(do(ANNA, "write", PERFECT, np("a letter"), time=TODAY)),
        "Anna has written a letter today.",
        "Anna hat heute einen Brief geschrieben.",
        {"perfect", "case"},
    ),
    (
        Sentence(do(THEY, "translate", PERFECT, np("the poem +"))),
        "They have translated the poems.",
        "Sie haben die Gedichte übersetzt.",
        {"perfect", "number"},
    ),
    (
        Sentence(do(np("the cat"), "follow", PERFECT, np("the bird"))),
        "The cat has followed the bird.",
        "Die Katze ist dem Vogel gefolgt.",
        {"perfect", "case"},
    ),
    (
        Sentence(may(SHE, "can", "sing", np("this song"))),
        "She can sing this song.",
        "Sie kann dieses Lied singen.",
        {"modal"},
    ),
    (
        Sentence(may(THEY, "want to", "rent", np("a small flat"))),
        "They want to rent a small flat.",
        "Sie wollen eine kleine Wohnung mieten.",
        {"modal"},
    ),
    (
        Sentence(may(HE, "be allowed to", "stay", place=AT_HOME, time=TODAY)),
        "He is allowed to stay at home today.",
        "Er darf heute zu Hause bleiben.",
        {"modal"},
    ),
    (
        Sentence(may(YOU, "should", "thank", np("your teacher"))),
        "You should thank your teacher.",
        "Du solltest deiner Lehrerin danken.",
        {"modal", "case"},
    ),
    (
        Sentence(may(WE, "will", "visit", np("the castle"), time=TOMORROW), "time"),
        "Tomorrow we will visit the castle.",
        "Morgen werden wir das Schloss besuchen.",
        {"modal", "verb-second"},
    ),
    (
        Sentence(may(ME, "will", "come back", time=counted("ahead", 2, 1))),
        "I will come back in two weeks.",
        "Ich werde in zwei Wochen zurückkommen.",
        {"modal", "numeral"},
    ),
    (
        Sentence(do(HE, "begin with", PAST, np("the report"))),
        "He began with the report.",
        "Er fing mit dem Bericht an.",
        {"separable-verb", "case"},
    ),
    (
        Sentence(do(ME, "wait for", PERFECT, np("the bus"))),
        "I have waited for the bus.",
        "Ich habe auf den Bus gewartet.",
        {"perfect", "case"},
    ),
    (
        Sentence(do(PAUL, "answer", PERFECT, np("the question"))),
        "Paul has answered the question.",
        "Paul hat die Frage beantwortet.",
        {"perfect"},
    ),
    (
        Sentence(Clause(PAUL, ANTWORTEN, PERFECT, object=np("the judge"))),
        "Paul has answered the judge.",
        "Paul hat dem Richter geantwortet.",
        {"perfect", "case"},
    ),
]

NEGATIONS_AND_QUESTIONS: list[Row] = [
    (
        Sentence(do(ME, "know", PRESENT, np("this woman"), negated=True)),
        "I do not know this woman.",
        "Ich kenne diese Frau nicht.",
        {"negation"},
    ),
    (
        Sentence(do(SHE, "have", PRESENT, np("no car"), negated=True)),
        "She does not have a car.",
        "Sie hat kein Auto.",
        {"negation"},
    ),
    (
        Sentence(do(HE, "drink", PRESENT, np("no beer"), negated=True)),
        "He does not drink any beer.",
        "Er trinkt kein Bier.",
        {"negation"},
    ),
    (
        Sentence(do(WE, "buy", PERFECT, np("no fresh egg +"), negated=True)),
        "We have not bought any fresh eggs.",
        "Wir haben keine frischen Eier gekauft.",
        {"negation", "perfect"},
    ),
    (
        Sentence(do(ME, "read", PERFECT, np("the article"), adverb=PHRASES["yet"][0], negated=True)),
        "I have not yet read the article.",
        "Ich habe den Artikel noch nicht gelesen.",
        {"negation", "perfect"},
    ),
    (
        Sentence(do(PAUL, "sleep", PAST, place=where("the hotel"), negated=True)),
        "Paul did not sleep in the hotel.",
        "Paul schlief nicht im Hotel.",
        {"negation"},
    ),
    (
        Sentence(be(np("the room"), "very dark", negated=True)),
        "The room is not very dark.",
        "Das Zimmer ist nicht sehr dunkel.",
        {"negation", "gender"},
    ),
    (
        Sentence(may(ME, "can", "find", np("my wallet"), negated=True)),
        "I cannot find my wallet.",
        "Ich kann meinen Geldbeutel nicht finden.",
        {"negation", "modal"},
    ),
    (
        Sentence(may(SHE, "want to", "dance", negated=True)),
        "She does not want to dance.",
        "Sie will nicht tanzen.",
        {"negation", "modal"},
    ),
    (
        ask(do(YOU, "have", PRESENT, np("a question"))),
        "Do you have a question?",
        "Hast du eine Frage?",
        {"question"},
    ),
    (
        ask(do(SHE, "pick up", PERFECT, np("the parcel"), adverb=ALREADY)),
        "Has she already picked up the parcel?",
        "Hat sie das Paket schon abgeholt?",
        {"question", "perfect"},
    ),
    (
        ask(may(WE, "can", "have breakfast", place=where("the garden"))),
        "Can we have breakfast in the garden?",
        "Können wir im Garten frühstücken?",
        {"question", "modal"},
    ),
    (
        ask(be(np("the plate +"), "clean", PAST)),
        "Were the plates clean?",
        "Waren die Teller sauber?",
        {"question"},
    ),
    (
        ask(do(np("your uncle"), "live", PRESENT, place=fixed("in Paris", "in Paris"))),
        "Does your uncle live in Paris?",
        "Wohnt dein Onkel in Paris?",
        {"question"},
    ),
    (
        ask(do(WHO, "eat", PERFECT, np("my cake")), "subject"),
        "Who has eaten my cake?",
        "Wer hat meinen Kuchen gegessen?",
        {"question", "perfect"},
    ),
    (
        ask(do(YOU, "help", PRESENT, GAP), "opening", fixed("whom", "wem")),
        "Whom do you help?",
        "Wem hilfst du?",
        {"question"},
    ),
    (
        ask(do(SHE, "look for", IS_DOING, GAP), "opening", fixed("what", "was")),
        "What is she looking for?",
        "Was sucht sie gerade?",
        {"question"},
    ),
    (
        ask(may(YOU, "would like to", "try on", np("which skirt")), "object"),
        "Which skirt would you like to try on?",
        "Welchen Rock möchtest du anprobieren?",
        {"question", "modal"},
    ),
    (
        ask(do(THEY, "need", PRESENT, np("how chair +")._replace(determiner="how many")), "object"),
        "How many chairs do they need?",
        "Wie viele Stühle brauchen sie?",
        {"question", "number"},
    ),
    (
        ask(do(np("the singer"), "cry", IS_DOING), "opening", fixed("why", "warum")),
        "Why is the singer crying?",
        "Warum weint die Sängerin gerade?",
        {"question"},
    ),
    (
        ask(may(HE, "must", "go out"), "opening", fixed("when", "wann")),
        "When must he go out?",
        "Wann muss er ausgehen?",
        {"question", "modal", "separable-verb"},
    ),
]

CLAUSES: list[Row] = [
    (
        linked(know(ME), "that", do(SHE, "learn", PERFECT, np("the poem"))),
        "I know that she has learned the poem.",
        "Ich weiß, dass sie das Gedicht gelernt hat.",
        {"subordinate-clause", "verb-final", "perfect"},
    ),
    (
        linked(say(HE, "say", PAST), "that", do(np("the train"), "arrive", PAST, time=at(4, 20))),
        "He said that the train arrived at twenty past four.",
        "Er sagte, dass der Zug um zwanzig nach vier ankam.",
        {"subordinate-clause", "verb-final", "separable-verb", "clock"},
    ),
    (
        linked(say(WE, "hope"), "that", may(YOU, "can", "take part in", np("the trip"))),
        "We hope that you can take part in the trip.",
        "Wir hoffen, dass du am Ausflug teilnehmen kannst.",
        {"subordinate-clause", "modal"},
    ),
    (
        linked(know(SHE, negated=True), "whether", do(HE, "love", PRESENT, SHE)),
        "She does not know whether he loves her.",
        "Sie weiß nicht, ob er sie liebt.",
        {"subordinate-clause", "negation"},
    ),
    (
        linked(do(ANNA, "sleep", IS_DOING), "because", be(SHE, "tired")),
        "Anna is sleeping because she is tired.",
        "Anna schläft gerade, weil sie müde ist.",
        {"subordinate-clause"},
    ),
    (
        linked(
            do(ME, "buy", PRESENT, np("this coat"), negated=True),
            "because",
            be(PRONOUNS["it_m"], "too expensive"),
        ),
        "I do not buy this coat because it is too expensive.",
        "Ich kaufe diesen Mantel nicht, weil er zu teuer ist.",
        {"subordinate-clause", "negation"},
    ),
    (
        linked(be(np("the lamp"), "broken"), "but", do(ME, "need", PRESENT, PRONOUNS["it_f"])),
        "The lamp is broken, but I need it.",
        "Die Lampe ist kaputt, aber ich brauche sie.",
        {"gender"},
    ),
    (
        linked(do(WE, "dance", PRESENT), "although", Clause(IT, VERBS["rain"], IS_DOING)),
        "We dance although it is raining.",
        "Wir tanzen, obwohl es regnet.",
        {"subordinate-clause"},
    ),
    (
        linked(do(SHE, "work", PAST), "although", be(SHE, "ill", PAST), fronted=True),
        "Although she was ill, she worked.",
        "Obwohl sie krank war, arbeitete sie.",
        {"subordinate-clause", "verb-second"},
    ),
    (
        linked(
            may(WE, "will", "stay", place=AT_HOME),
            "if",
            Clause(IT, VERBS["snow"], IS_DOING),
            fronted=True,
        ),
        "If it is snowing, we will stay at home.",
        "Wenn es schneit, werden wir zu Hause bleiben.",
        {"subordinate-clause", "modal"},
    ),
    (
        linked(say(HE, "try", PAST), "to", do(HE, "call", INFINITIVE, np("his boss"))),
        "He tried to call his boss.",
        "Er versuchte, seine Chefin anzurufen.",
        {"separable-verb"},
    ),
    (
        linked(
            do(ME, "go", PRESENT, place=toward("the market")),
            "in order to",
            do(ME, "buy", INFINITIVE, np("- bread")),
        ),
        "I go to the market in order to buy bread.",
        "Ich gehe auf den Markt, um Brot zu kaufen.",
        {"case"},
    ),
    (
        Sentence(be(who("the man", do(GAP, "buy", PAST, np("our car"))), "happy")),
        "The man who bought our car is happy.",
        "Der Mann, der unser Auto kaufte, ist glücklich.",
        {"relative-clause", "verb-final"},
    ),
    (
        Sentence(do(ME, "know", PRESENT, who("the nurse", do(HE, "help", PERFECT, GAP), DATIVE))),
        "I know the nurse whom he has helped.",
        "Ich kenne die Krankenschwester, der er geholfen hat.",
        {"relative-clause", "case", "perfect"},
    ),
    (
        Sentence(
            do(SHE, "read", PERFECT, who("the novel", do(YOU, "give back", PERFECT, GAP), ACCUSATIVE, False))
        ),
        "She has read the novel that you have given back.",
        "Sie hat den Roman gelesen, den du zurückgegeben hast.",
        {"relative-clause", "perfect", "separable-verb"},
    ),
    (
        Sentence(do(WE, "clean", PRESENT, who("the window +", be(GAPS, "dirty"), human=False))),
        "We clean the windows that are dirty.",
        "Wir putzen die Fenster, die schmutzig sind.",
        {"relative-clause", "number"},
    ),
    (
        Sentence(
            be(
                np("the colleague")._replace(
                    relative=Relative(
                        DATIVE, do(ME, "play", PRESENT, np("- chess")), True, fixed("with", "mit")
                    )
                ),
                "very nervous",
            )
        ),
        "The colleague with whom I play chess is very nervous.",
        "Die Kollegin, mit der ich Schach spiele, ist sehr nervös.",
        {"relative-clause", "case"},
    ),
]

NUMBERS: list[Row] = [
    (
        Sentence(do(SHE, "buy", PAST, count(21, "apple"))),
        "She bought twenty-one apples.",
        "Sie kaufte einundzwanzig Äpfel.",
        {"numeral", "number"},
    ),
    (
        Sentence(do(ME, "find", PERFECT, count(47, "old coin"))),
        "I have found forty-seven old coins.",
        "Ich habe siebenundvierzig alte Münzen gefunden.",
        {"numeral", "perfect"},
    ),
    (
        Sentence(
            Clause(
                np("this ring"),
                VERBS["cost"],
                PRESENT,
                predicate=fixed("ninety-nine euros", "neunundneunzig Euro"),
            )
        ),
        "This ring costs ninety-nine euros.",
        "Dieser Ring kostet neunundneunzig Euro.",
        {"gender"},
    ),
    (
        Sentence(do(np("the bus"), "arrive", PRESENT, time=at(1, 0))),
        "The bus arrives at one o'clock.",
        "Der Bus kommt um ein Uhr an.",
        {"clock", "separable-verb"},
    ),
    (
        Sentence(do(HE, "wake up", PAST, time=at(12, 30)), "time"),
        "At half past twelve he woke up.",
        "Um halb eins wachte er auf.",
        {"clock", "verb-second"},
    ),
    (
        Sentence(Clause(np("our train"), VERBS["depart"], PRESENT, time=at(4, 45))),
        "Our train departs at a quarter to five.",
        "Unser Zug fährt um Viertel vor fünf ab.",
        {"clock", "separable-verb"},
    ),
]

PAIRS: list[Row] = STATEMENTS + VERB_FORMS + NEGATIONS_AND_QUESTIONS + CLAUSES + NUMBERS
