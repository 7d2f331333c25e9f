"""The whole vocabulary in one view: every English lemma with its word forms, and the verbs by name."""

from typing import Final

from regard.data.phrasebook.nouns import NOUNS
from regard.data.phrasebook.structure import Verb
from regard.data.phrasebook.verbs import FRAMES, SINGLE
from regard.data.phrasebook.words import (
    ADJECTIVE,
    CITIES,
    ENGLISH_NUMBERS,
    FREQUENCY,
    FUTURE_TIMES,
    HABIT_TIMES,
    MANNERS,
    NAMES,
    PAST_TIMES,
    PERFECT_ADVERBS,
    PET_NAMES,
    PRONOUNS,
    PYTHON,
    REMARKS,
)

_FUNCTION_WORDS = (
    "a the this these every which some many any my your his her our not and but that because although "
    "if whether to with of in at on for about after by very too quite when why who whom what how can "
    "must should would will want allowed do yet o'clock half quarter past year euro ago day week "
    "month order taxi an up off on out back along asleep away part home breakfast "
    "cannot"
)


def verb_name(verb: Verb) -> str:
    """ "pick up", "wait for"."""
    return " ".join(
        part for part in (verb.english[0], verb.english_particle, verb.english_preposition) if part
    )


VERBS: Final[dict[str, Verb]] = {
    **SINGLE,
    **{verb_name(frame.verb): frame.verb for frame in reversed(FRAMES)},
}


def lemmas() -> dict[str, frozenset[str]]:
    """The English words, each with its inflected forms."""
    forms: dict[str, set[str]] = {}
    for noun in NOUNS.values():
        forms.setdefault(noun.english[0], set()).update(noun.english)
    for verb in (*SINGLE.values(), *(frame.verb for frame in FRAMES)):
        forms.setdefault(verb.english[0], set()).update(verb.english)
    forms["be"].update(("am", "is", "are", "were"))
    listed = (*FREQUENCY, *PERFECT_ADVERBS, *MANNERS, *REMARKS, *HABIT_TIMES, *PAST_TIMES, *FUTURE_TIMES)
    words = [word for fixed in listed for word in fixed.english.split()]
    words += [number for number in ENGLISH_NUMBERS[1:] if "-" not in number]
    words += [name.name for name in (*NAMES, PYTHON)] + [names[0] for names in CITIES]
    words += [word for pronoun in PRONOUNS.values() for word in pronoun[:2]]
    for word in (*words, *PET_NAMES, *ADJECTIVE, *_FUNCTION_WORDS.split()):
        forms.setdefault(word, {word})
    for word in ("do", "day", "week", "month", "year", "euro", "want"):
        forms[word].update((word + "s", "does", "did") if word == "do" else (word + "s",))
    return {lemma: frozenset(spelled) for lemma, spelled in forms.items()}
