"""Data augmentation of text: named modifiers that change a sentence, or both sides of a pair.

Each is a function of the texts, its strength and a NumPy generator. Texts are (source, target) where the
target is text that a model learns to write: case, end punctuation and items then change on both sides alike,
while typos and other noise change the source alone. Where the target is labels, texts are (source,).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from pydantic import ValidationError

from regard.config.input import Modifier
from regard.errors import UsageError, near_miss
from regard.inputs.text.items import ITEMS, Rng, below, closing
from regard.resources import read_data
from regard.sample import Example

Texts = tuple[str, ...]
Change = Callable[[Texts, float, Rng], Texts]
WRITING = ("translate", "generate", "fill")  # tasks whose target is text
ALL = "all"

_END = re.compile(r"([.!?…。！？]+)([\"'”“»’)\]]*\s*)\Z")
# A word of letters, with punctuation around it: addresses and numbers get no typos.
_WORD = re.compile(r"[(\"'„“»«‚‘¿¡-]*([^\W\d_]+(?:['’-][^\W\d_]+)*)[.,;:!?…)\"'“”«»’-]*")
_NUMBER = re.compile(r"(?<![\w.,:/-])\d+(?:[.,:]\d+)*(?![\w%/-])")
_CAPITALISED = re.compile(r"(?<=\s)[^\W\d_][^\W\d_]{2,}(?![\w'’-])")  # not the first word
_REPLACE_NUMBER = ("number", "date", "time", "money", "unit")
_REPLACE_NAME = ("email", "url", "file", "code", "placeholder", "markup")


def modify_example(example: Example, task: str, modifiers: Sequence[Modifier], rng: Rng) -> Example:
    """The example after all modifiers in their order; probabilities are the caller's."""
    texts: Texts = (example.source, example.target) if task in WRITING else (example.source,)
    for modifier in modifiers:
        texts = CHANGES[modifier.name](texts, modifier.strength, rng)
    return Example(texts[0], texts[1] if len(texts) > 1 else example.target, example.line)


def parse_modifiers(names: Sequence[str], task: str) -> list[Modifier]:
    """`upper`, `typos=0.2`, or `all` that suit a task."""
    suitable = Modifier.TEXT.get(task, ())
    modifiers = []
    for name, _, strength in (each.partition("=") for each in names):
        if name == ALL and suitable and not strength:
            modifiers += [Modifier.model_validate({"name": each}) for each in suitable]
            continue
        if name not in suitable:
            options = f"it has {', '.join((ALL, *suitable))}" if suitable else "it has none"
            message = f'"{name}" is not a modifier of texts to {task}; {options}{near_miss(name, suitable)}'
            raise UsageError(message, code="E_MODIFIER")
        try:
            fields = {"name": name, **({"strength": float(strength)} if strength else {})}
            modifiers.append(Modifier.model_validate(fields))
        except (ValidationError, ValueError):
            largest = Modifier.STRENGTHS.get(name)
            advice = f"give a number up to {min(largest, 1):g}" if largest else f'"{name}" has no strength'
            raise UsageError(f"{name}={strength}: {advice}", code="E_MODIFIER") from None
    return modifiers


def item_of(modifier: Modifier, rng: Rng) -> str | None:
    """What a modifier puts into a text with this generator; None if it has no items."""
    make = ITEMS.get(modifier.name)
    return make(rng) if make else None


# --- case and end punctuation: all sides alike


def upper(texts: Texts, strength: float, rng: Rng) -> Texts:
    return tuple(text.upper() for text in texts)


def lower(texts: Texts, strength: float, rng: Rng) -> Texts:
    return tuple(text.lower() for text in texts)


def title(texts: Texts, strength: float, rng: Rng) -> Texts:
    """The first letter of each word; the others stay as they are."""
    return tuple(re.sub(r"(?<!\S)\S", lambda match: match[0].title(), text) for text in texts)


def no_punctuation(texts: Texts, strength: float, rng: Rng) -> Texts:
    """No full stop, question or exclamation mark at the end; a text of nothing else stays as it is."""
    return tuple(_END.sub(r"\2", text).rstrip() or text for text in texts)


def double_punctuation(texts: Texts, strength: float, rng: Rng) -> Texts:
    """The end sign two to four times, on all sides or on none."""
    times = 2 + below(rng, 3)
    if not all(_END.search(text) for text in texts):
        return texts
    return tuple(_END.sub(lambda match: match[1] * times + match[2], text) for text in texts)


def headline(texts: Texts, strength: float, rng: Rng) -> Texts:
    """Title case without end punctuation."""
    return title(no_punctuation(texts, strength, rng), strength, rng)


# --- noise: the source alone


def _at_words(
    texts: Texts, strength: float, rng: Rng, change: Callable[[str, Rng], str], least: int = 1
) -> Texts:
    """Change a share of the words of the source that have `least` letters, at least one."""
    parts = re.split(r"(\s+)", texts[0])  # words and white space in turn
    matches = ((number, _WORD.fullmatch(part)) for number, part in enumerate(parts))
    words = [number for number, match in matches if match and len(match[1]) >= least]
    if not words:
        return texts
    count = min(len(words), max(1, round(strength * (len(parts) + 1) / 2)))
    for number in rng.choice(words, count, replace=False).tolist():
        parts[number] = change(parts[number], rng)
    return ("".join(parts), *texts[1:])


def typos(texts: Texts, strength: float, rng: Rng) -> Texts:
    """In each word two letters swapped, one left out, one doubled, or one of a key beside it."""
    return _at_words(texts, strength, rng, _typo, least=3)


def _typo(word: str, rng: Rng) -> str:
    pairs = [at for at in range(len(word) - 1) if word[at].isalpha() and word[at + 1].isalpha()]
    if not pairs:
        return word
    at = pairs[below(rng, len(pairs))]
    before, one, two, behind = word[:at], word[at], word[at + 1], word[at + 2 :]
    kind = below(rng, 4)
    if kind == 0 and one != two:
        return before + two + one + behind
    if kind == 1:
        return before + one + behind
    near = neighbours().get(two.lower(), "")
    if kind == 2 and near:
        key = near[below(rng, len(near))]
        return before + one + (key.upper() if two.isupper() else key) + behind
    return before + one + two + two + behind


@cache
def neighbours() -> dict[str, str]:
    """The keys beside each letter, in its row and in the rows above and below."""
    rows: list[str] = read_data("items")["keyboard"]
    near = {}
    for number, row in enumerate(rows):
        for place, letter in enumerate(row):
            others = [row[max(0, place - 1) : place], row[place + 1 : place + 2]]
            others += [rows[other][place : place + 1] for other in (number - 1, number + 1) if 0 <= other < 3]
            near[letter] = "".join(others)
    return near


def noise(texts: Texts, strength: float, rng: Rng) -> Texts:
    """A stray sign in, before or behind a word."""

    def add_sign(word: str, rng: Rng) -> str:
        signs: str = read_data("items")["noise"]
        at = below(rng, len(word) + 1)
        return word[:at] + signs[below(rng, len(signs))] + word[at:]

    return _at_words(texts, strength, rng, add_sign)


def repeat(texts: Texts, strength: float, rng: Rng) -> Texts:
    """Words twice in a row; punctuation stays behind the second."""

    def twice(word: str, rng: Rng) -> str:
        match = _WORD.fullmatch(word)
        return word if match is None else f"{word[: match.end(1)]} {word[match.start(1) :]}"

    return _at_words(texts, strength, rng, twice)


def spaces(texts: Texts, strength: float, rng: Rng) -> Texts:
    """A space too many: before a word, behind it, before its punctuation, or inside."""

    def space_out(word: str, rng: Rng) -> str:
        match = _WORD.fullmatch(word)
        end = match.end(1) if match else len(word)
        inside = 1 + below(rng, max(1, end - 1))
        return (f" {word}", f"{word} ", f"{word[:end]} {word[end:]}", f"{word[:inside]} {word[inside:]}")[
            below(rng, 4)
        ]

    return _at_words(texts, strength, rng, space_out)


# --- items: the same string on all sides


def _insert(name: str) -> Change:
    def insert(texts: Texts, strength: float, rng: Rng) -> Texts:
        item = ITEMS[name](rng)  # first: `item_of` repeats it
        return put_item(texts, name, item, rng)

    return insert


def put_item(texts: Texts, name: str, item: str, rng: Rng) -> Texts:
    """The item in place of a number or name that stands once on each side, else at the beginning or end."""
    place = shared_place(texts, name) if below(rng, 2) else None
    if place:
        behind = closing(item) if name == "markup" else ""
        return tuple(
            text[:begin] + (item + text[begin:end] + behind if behind else item) + text[end:]
            for text, (begin, end) in zip(texts, place)
        )
    if name == "markup":  # around the sentence, or an empty element at one end
        forms = (f"{item}{{}}{closing(item)}", f"{item}{closing(item)} {{}}")
        form = forms[below(rng, 2)]
        return tuple(form.replace("{}", text) for text in texts)
    way = below(rng, 4)
    if way == 0:
        return tuple(f"{item} {text}" for text in texts)
    if way == 1 and name != "emoji":
        return tuple(f"{item}: {text}" for text in texts)
    if way == 2 and all(_END.search(text) for text in texts):  # before the end sign
        return tuple(_END.sub(lambda match: f" {item}{match[0]}", text) for text in texts)
    return tuple(f"{text} {item}" for text in texts)


def shared_place(texts: Texts, name: str) -> list[tuple[int, int]] | None:
    """Where a number, or a name inside the sentence, stands that each side has once; None if none does."""
    if len(texts) < 2 or name not in (*_REPLACE_NUMBER, *_REPLACE_NAME):
        return None
    pattern = _NUMBER if name in _REPLACE_NUMBER else _CAPITALISED
    matches = [[each for each in pattern.finditer(text) if not each[0][0].islower()] for text in texts]
    for match in matches[0]:
        places = [[each.span() for each in side if each[0] == match[0]] for side in matches]
        if all(len(each) == 1 for each in places):
            return [each[0] for each in places]
    return None


CHANGES: dict[str, Change] = {
    "upper": upper,
    "lower": lower,
    "title": title,
    "headline": headline,
    "no_punctuation": no_punctuation,
    "double_punctuation": double_punctuation,
    "typos": typos,
    "noise": noise,
    "repeat": repeat,
    "spaces": spaces,
    **{name: _insert(name) for name in ITEMS},
}
