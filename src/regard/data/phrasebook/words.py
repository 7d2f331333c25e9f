"""The closed classes: adjectives, adverbs, names, pronouns, times, numbers."""

from typing import Final

from regard.data.phrasebook.phenomena import CASE, CLOCK, GENDER, NUMBER, NUMERAL
from regard.data.phrasebook.structure import Adjective, Fixed, Name, Pronoun

PRONOUNS: Final[dict[str, Pronoun]] = {
    "I": Pronoun("I", "me", ("ich", "mich", "mir"), 0),
    "you": Pronoun("you", "you", ("du", "dich", "dir"), 1),
    "he": Pronoun("he", "him", ("er", "ihn", "ihm"), 2),
    "she": Pronoun("she", "her", ("sie", "sie", "ihr"), 2),
    "we": Pronoun("we", "us", ("wir", "uns", "uns"), 3),
    "they": Pronoun("they", "them", ("sie", "sie", "ihnen"), 3),
    "who": Pronoun("who", "whom", ("wer", "wen", "wem"), 2),
    "it": Pronoun("it", "it", ("es", "es", "ihm"), 2),
}
# What "it" is called in German follows the gender of the thing: masculine, feminine, neuter; then the plural.
THING_PRONOUNS: Final = (
    Pronoun("it", "it", ("er", "ihn", "ihm"), 2),
    Pronoun("it", "it", ("sie", "sie", "ihr"), 2),
    PRONOUNS["it"],
    Pronoun("they", "them", ("sie", "sie", "ihnen"), 3),
)

_MEN = "Alex Paul Peter Max Thomas Felix Jonas Lukas David Martin Daniel Simon"
_WOMEN = "Sarah Anna Maria Lena Julia Emma Laura Sophie Clara Nina Eva Helen"
NAMES: Final = tuple(Name(name, "he") for name in _MEN.split()) + tuple(
    Name(name, "she") for name in _WOMEN.split()
)
# A name in -s or -x has no genitive ending that could be heard.
OWNERS: Final = tuple(name for name in NAMES if name.name[-1] not in "sx")
PYTHON: Final = Name("Python")
PET_NAMES: Final = ("Alex", "Bella", "Luna", "Rocky")
ALEX: Final = NAMES[0]

# `english german [stem]`, by what they can be said of.
_ADJECTIVES: dict[str, str] = {
    "people": """
young jung; old alt; friendly freundlich; famous berühmt; clever klug; polite höflich; strict streng;
kind nett; brave mutig; lazy faul
""",
    "state": """
tired müde müd; happy glücklich; sad traurig; ill krank; hungry hungrig; thirsty durstig; angry wütend;
busy beschäftigt; nervous nervös; satisfied zufrieden; excited aufgeregt; healthy gesund;
surprised überrascht; proud stolz; worried besorgt; lonely einsam
""",
    "animals": """
old alt; young jung; small klein; big groß; wild wild; black schwarz; white weiß; brown braun
""",
    "fruit": "fresh frisch; big groß; small klein; delicious lecker; cheap billig",
    "food": "fresh frisch; delicious lecker; expensive teuer teur; cheap billig; good gut",
    "drinks": "cold kalt; hot heiß; warm warm; sweet süß; good gut",
    "reading": """
interesting interessant; boring langweilig; long lang; short kurz; new neu; old alt; exciting spannend;
funny lustig
""",
    "clothes": """
new neu; red rot; blue blau; green grün; yellow gelb; black schwarz; white weiß; grey grau;
beautiful schön; warm warm; expensive teuer teur; cheap billig; elegant elegant
""",
    "things": """
new neu; old alt; beautiful schön; big groß; small klein; heavy schwer; red rot; blue blau; cheap billig;
green grün; expensive teuer teur; strange seltsam; useful nützlich; modern modern
""",
    "ideas": """
important wichtig; difficult schwierig; simple einfach; good gut; strange seltsam;
interesting interessant; new neu; short kurz; dangerous gefährlich
""",
    "events": """
important wichtig; long lang; short kurz; interesting interessant; boring langweilig; difficult schwierig
""",
    "places": """
big groß; small klein; old alt; new neu; quiet ruhig; beautiful schön; dark dunkel dunkl;
famous berühmt; clean sauber
""",
    "faults": """
broken kaputt; dirty schmutzig; expensive teuer teur; heavy schwer; wet nass; ugly hässlich; old alt
""",
    "merits": "useful nützlich; cheap billig; light leicht; modern modern; beautiful schön; new neu",
    "songs": """
beautiful schön; old alt; new neu; sad traurig; funny lustig; long lang; famous berühmt
""",
    "causes": "terrible schrecklich; loud laut; strong stark",
    "material": "gold golden; silver silbern",
    "machines": "thinking denkend; new neu; modern modern; fast schnell; expensive teuer teur",
    "programs": "new neu; short kurz; long lang; simple einfach; useful nützlich",
}


def _adjective(entry: str) -> Adjective:
    english, german, *stem = entry.split()
    return Adjective(english, german, stem[0] if stem else german)


ADJECTIVES: Final[dict[str, tuple[Adjective, ...]]] = {
    name: tuple(_adjective(entry) for entry in table.split(";")) for name, table in _ADJECTIVES.items()
}
ADJECTIVE: Final = {adjective.english: adjective for members in ADJECTIVES.values() for adjective in members}


def _fixed(table: str, phenomena: int = 0) -> tuple[Fixed, ...]:
    pairs = (entry.partition("=") for entry in table.split(";"))
    return tuple(Fixed(english.strip(), german.strip(), phenomena) for english, _, german in pairs)


FREQUENCY: Final = _fixed(
    "often=oft; always=immer; sometimes=manchmal; rarely=selten; usually=meistens; never=nie"
)
PERFECT_ADVERBS: Final = _fixed("already=schon; never=nie; often=oft; finally=endlich")
YET: Final = Fixed("yet", "noch")
MANNERS: Final = _fixed(
    "quickly=schnell; slowly=langsam; carefully=vorsichtig; quietly=leise; patiently=geduldig;"
    "secretly=heimlich; happily=fröhlich"
)
MANNER: Final = {manner.english: manner for manner in MANNERS}
REMARKS: Final = _fixed("unfortunately=leider; perhaps=vielleicht; luckily=zum Glück; of course=natürlich")
AT_HOME: Final = Fixed("at home", "zu Hause")
_CITY_TABLE = (
    "Berlin Hamburg London Paris Vienna=Wien Rome=Rom Munich=München Italy=Italien "
    "France=Frankreich Spain=Spanien Japan Canada=Kanada"
)
CITIES: Final = tuple(city.split("=") for city in _CITY_TABLE.split())
IN_CITIES: Final = tuple(Fixed("in " + names[0], "in " + names[-1]) for names in CITIES)
TO_CITIES: Final = tuple(Fixed("to " + names[0], "nach " + names[-1]) for names in CITIES)
BY_VEHICLE: Final = _fixed(
    "by train=mit dem Zug; by bus=mit dem Bus; by car=mit dem Auto; by tram=mit der Straßenbahn;"
    "by taxi=mit dem Taxi",
    GENDER | CASE,
)

_DAYS = (
    "Monday Montag Tuesday Dienstag Wednesday Mittwoch Thursday Donnerstag Friday Freitag Saturday Samstag"
)
_MONTHS = "January Januar March März April April May Mai June Juni July Juli August August October Oktober"
_SEASONS = "spring Frühling summer Sommer autumn Herbst winter Winter"


def _calendar(english: str, german: str, words: str) -> tuple[Fixed, ...]:
    names = (words).split()
    return tuple(Fixed(f"{english} {en}", f"{german} {de}") for en, de in zip(names[::2], names[1::2]))


_DATES = _calendar("on", "am", _DAYS + " Sunday Sonntag") + _calendar("in", "im", _SEASONS)
_MONTHLY = _calendar("in", "im", _MONTHS + " December Dezember")
HABIT_TIMES: Final = (
    *_fixed("every day=jeden Tag; every week=jede Woche; in the morning=am Morgen; in the evening=am Abend"),
    *_fixed("every year=jedes Jahr; today=heute; at night=in der Nacht"),
    *_calendar("in", "im", _SEASONS),
)
PAST_TIMES: Final = (
    *_fixed("yesterday=gestern; last week=letzte Woche; last year=letztes Jahr; last night=letzte Nacht"),
    *_fixed("last month=letzten Monat; yesterday evening=gestern Abend"),
    *_DATES,
    *_MONTHLY,
)
FUTURE_TIMES: Final = (
    *_fixed(
        "tomorrow=morgen; today=heute; next week=nächste Woche; next year=nächstes Jahr;"
        "this evening=heute Abend"
    ),
    *_fixed("next month=nächsten Monat; tomorrow evening=morgen Abend; now=jetzt"),
    *_DATES,
    *_MONTHLY,
)
PERFECT_TIMES: Final = _fixed("today=heute; this week=diese Woche; this year=dieses Jahr")

_ENGLISH_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_GERMAN_UNITS = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
    "fünfzehn sechzehn siebzehn achtzehn neunzehn"
)
_ENGLISH_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GERMAN_TENS = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


def _english_number(number: int) -> str:
    if number < 20:
        return _ENGLISH_UNITS.split()[number]
    tens, unit = _ENGLISH_TENS[number // 10 - 2], number % 10
    return f"{tens}-{_ENGLISH_UNITS.split()[unit]}" if unit else tens


def _german_number(number: int) -> str:
    if number < 20:
        return _GERMAN_UNITS.split()[number]
    tens, unit = _GERMAN_TENS[number // 10 - 2], number % 10
    return f"{'ein' if unit == 1 else _GERMAN_UNITS.split()[unit]}und{tens}" if unit else tens


ENGLISH_NUMBERS: Final = tuple(_english_number(number) for number in range(100))
GERMAN_NUMBERS: Final = tuple(_german_number(number) for number in range(100))


def clock(hour: int, minute: int) -> Fixed:
    """The time of day without its preposition; past half an hour it is told by the next hour."""
    english, german = ENGLISH_NUMBERS, GERMAN_NUMBERS
    following = hour % 12 + 1
    if minute == 0:
        return Fixed(f"{english[hour]} o'clock", f"{'ein' if hour == 1 else german[hour]} Uhr", CLOCK)
    if minute == 30:
        return Fixed(f"half past {english[hour]}", f"halb {german[following]}", CLOCK)
    past = minute < 30
    distance = minute if past else 60 - minute
    named = hour if past else following
    english_distance = "a quarter" if distance == 15 else english[distance]
    german_distance = "Viertel" if distance == 15 else german[distance]
    return Fixed(
        f"{english_distance} {'past' if past else 'to'} {english[named]}",
        f"{german_distance} {'nach' if past else 'vor'} {german[named]}",
        CLOCK,
    )


_CLOCKS = tuple(
    clock(hour, minute) for hour in range(1, 13) for minute in (0, 5, 10, 15, 20, 30, 40, 45, 50, 55)
)
CLOCK_TIMES: Final = tuple(Fixed("at " + time.english, "um " + time.german, CLOCK) for time in _CLOCKS)
_COUNTED = NUMERAL | NUMBER | CASE
_UNITS = (("days", "Tagen"), ("weeks", "Wochen"), ("months", "Monaten"), ("years", "Jahren"))


def ago(number: int, unit: int) -> Fixed:
    english, german = _UNITS[unit]
    return Fixed(
        f"{ENGLISH_NUMBERS[number]} {english} ago", f"vor {GERMAN_NUMBERS[number]} {german}", _COUNTED
    )


def hence(number: int, unit: int) -> Fixed:
    english, german = _UNITS[unit]
    return Fixed(f"in {ENGLISH_NUMBERS[number]} {english}", f"in {GERMAN_NUMBERS[number]} {german}", _COUNTED)


AGO: Final = tuple(ago(number, unit) for number in range(2, 31) for unit in range(4))
HENCE: Final = tuple(hence(number, unit) for number in range(2, 13) for unit in range(4))
