"""The regular part of both morphologies: plurals, declension, conjugation."""

from regard.data.phrasebook.structure import Case, Verb

_INSEPARABLE = ("be", "er", "ver", "ent", "emp", "zer", "über")

# Present tense of the verbs that follow no rule: ich, du, er, wir.
_IRREGULAR_PRESENT = {
    "sein": ("bin", "bist", "ist", "sind"),
    "haben": ("habe", "hast", "hat", "haben"),
    "mögen": ("mag", "magst", "mag", "mögen"),
    "wissen": ("weiß", "weißt", "weiß", "wissen"),
}


def english_plural(noun: str) -> str:
    if noun.endswith(("s", "sh", "ch", "x")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def english_forms(principal: list[str]) -> tuple[str, str, str, str, str]:
    """All forms from `base [past participle [gerund]]`."""
    base = principal[0]
    third = "has" if base == "have" else "goes" if base == "go" else english_plural(base)
    consonant_y = base.endswith("y") and base[-2] not in "aeiou"
    regular = base + "d" if base.endswith("e") else base[:-1] + "ied" if consonant_y else base + "ed"
    past = principal[1] if len(principal) > 1 else regular
    participle = principal[2] if len(principal) > 2 else past
    stem = base[:-1] if base.endswith("e") and base != "be" else base
    gerund = principal[3] if len(principal) > 3 else stem + "ing"
    return base, third, past, participle, gerund


def german_cases(gender: int, singular: str, genitive: str, plural: str) -> tuple[str, ...]:
    weak = gender == 0 and genitive.endswith("n")
    oblique = genitive if weak else singular
    dative_plural = plural if plural.endswith(("n", "s")) else plural + "n"
    return (singular, oblique, oblique, genitive, plural, plural, dative_plural, plural)


def _stem(infinitive: str) -> str:
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _needs_e(stem: str) -> bool:
    """arbeit-e-t, öffn-e-t: the ending would otherwise be unpronounceable."""
    if stem[-1] in "mn":
        return stem.endswith("chn") or stem[-2] not in "aeiouäöülrhmn"
    return stem[-1] in "td"


def present_forms(infinitive: str, third: str) -> tuple[str, str, str, str]:
    if infinitive in _IRREGULAR_PRESENT:
        return _IRREGULAR_PRESENT[infinitive]
    stem = _stem(infinitive)
    first = stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"
    root = third[:-1]
    second = third if root.endswith(("s", "ß", "z", "x")) else root + "st"
    return first, second, third, infinitive


def past_forms(past: str) -> tuple[str, str, str, str]:
    plural = past + "n" if past.endswith("te") else past + "en"
    return past, past + "st", past, plural


def _weak_forms(infinitive: str) -> list[str]:
    stem = _stem(infinitive)
    link = "e" if _needs_e(stem) else ""
    without_ge = infinitive.startswith(_INSEPARABLE) or infinitive.endswith("ieren")
    participle = ("" if without_ge else "ge") + stem + link + "t"
    return [stem + link + "t", stem + link + "te", participle]


def make_verb(english: str, german: str, options: str = "") -> Verb:
    """A verb from its principal parts in both languages, written as in the tables of `verbs`."""
    words = english.split()
    particle = next((word[1:].replace("_", " ") for word in words if word[0] == "+"), "")
    preposition = next((word[1:].replace("_", " ") for word in words if word[0] == "/"), "")
    principal = [word for word in words if word[0] not in "+/"]
    prefix, _, infinitive = german.split()[0].rpartition("-")
    prefix = prefix.replace("_", " ")
    third, past, participle = german.split()[1:] or _weak_forms(infinitive)
    flags = options.split()
    german_preposition = next((flag[1:] for flag in flags if flag[0] == "/"), "")
    return Verb(
        english=english_forms(principal),
        english_particle=particle,
        english_preposition=preposition,
        present=present_forms(infinitive, third),
        past=past_forms(past),
        infinitive=prefix + infinitive,
        infinitive_with_zu=f"{prefix}zu{infinitive}"
        if prefix.strip() == prefix != ""
        else f"{prefix}zu {infinitive}",
        participle=prefix + participle,
        particle=prefix,
        auxiliary_sein="sein" in flags,
        german_preposition=german_preposition,
        object_case=Case.DATIVE if "dative" in flags else Case.ACCUSATIVE,
        stative="stative" in flags or "state" in flags,
        no_perfect="state" in flags,
        continuous="continuous" in flags,
    )
