"""Items that are no language: numbers, dates, addresses, code words, emoji, made at random.

Each generator is a function of a NumPy generator alone; its tables are in builtin/items.toml. An item has the
same form in all languages, so that it stands on both sides of a pair of sentences.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from regard.resources import read_data

Rng = np.random.Generator


@cache
def table(name: str) -> tuple[str, ...]:
    """A list of builtin/items.toml."""
    return tuple(read_data("items")[name].split())


def pick(name: str, rng: Rng) -> str:
    entries = table(name)
    return entries[int(rng.integers(len(entries)))]


def one_of(rng: Rng, *choices: str) -> str:
    return choices[int(rng.integers(len(choices)))]


def below(rng: Rng, limit: int) -> int:
    return int(rng.integers(limit))


def grouped(rng: Rng, digits: int) -> str:
    """A whole number with thousands as in English or German: 12,500 or 12.500."""
    return f"{1000 + below(rng, 10**digits):,}".replace(",", one_of(rng, ",", "."))


def amount(rng: Rng) -> str:
    """A price: 5, 12.50, 12,50, 12,500.00 or 12.500,00."""
    whole, cents = below(rng, 10 ** (1 + below(rng, 5))), f"{below(rng, 100):02}"
    english = one_of(rng, f"{whole}", f"{whole}.{cents}", f"{whole:,}.{cents}")
    swap = str.maketrans(",.", ".,")
    return english.translate(swap) if below(rng, 2) else english


def number(rng: Rng) -> str:
    whole = str(below(rng, 10 ** (1 + below(rng, 6))))
    part = str(1 + below(rng, 999))
    match below(rng, 6):
        case 0:
            return grouped(rng, 4 + below(rng, 4))
        case 1:
            return f"{whole}{one_of(rng, '.', ',')}{part}"
        case 2:
            return f"{below(rng, 101)}{one_of(rng, '%', ' %')}"
        case 3:
            return f"{one_of(rng, '-', '+', '#')}{whole}"
        case _:
            return whole


def date(rng: Rng) -> str:
    year, month, day = 1900 + below(rng, 150), 1 + below(rng, 12), 1 + below(rng, 28)
    return one_of(
        rng, f"{year}-{month:02}-{day:02}", f"{day:02}.{month:02}.{year}", f"{day}.{month}.{year}",
        f"{month}/{day}/{year}", f"{day:02}/{month:02}/{year % 100:02}",
    )  # fmt: skip


def time(rng: Rng) -> str:
    hour, minute, second = below(rng, 24), f"{below(rng, 60):02}", f"{below(rng, 60):02}"
    return one_of(rng, f"{hour}:{minute}", f"{hour:02}:{minute}", f"{hour:02}:{minute}:{second}")


def money(rng: Rng) -> str:
    value, sign, code = amount(rng), pick("signs", rng), pick("currencies", rng)
    return one_of(rng, f"{sign}{value}", f"{value} {sign}", f"{code} {value}", f"{value} {code}")


def unit(rng: Rng) -> str:
    value = one_of(rng, str(below(rng, 1000)), f"{below(rng, 100)}.{below(rng, 10)}")
    return f"{value}{one_of(rng, ' ', '')}{pick('units', rng)}"


def host(rng: Rng) -> str:
    domain, word = pick("domains", rng), pick("words", rng)
    return one_of(rng, domain, f"{word}.{domain}", f"{word}-{pick('words', rng)}.{pick('tops', rng)}")


def email(rng: Rng) -> str:
    one, two = pick("people", rng), pick("people", rng)
    user = one_of(rng, one, f"{one}.{two}", f"{one}_{two}", f"{one}{below(rng, 100)}")
    return f"{user}@{host(rng)}"


def url(rng: Rng) -> str:
    start, path = one_of(rng, "https://", "http://", "www.", ""), pick("words", rng)
    query = f"?{pick('code', rng)}={below(rng, 1000)}"
    tail = one_of(rng, "", f"/{path}", f"/{path}/{pick('words', rng)}", f"/{path}{query}", f"/{path}.html")
    return f"{start}{host(rng)}{tail}"


def file(rng: Rng) -> str:
    one, two, three = (pick("words", rng) for _ in range(3))
    stem = one_of(rng, one, f"{one}_{two}", f"IMG_{below(rng, 10000):04}")
    folder = one_of(rng, "", "", f"/home/{pick('people', rng)}/", f"{three}/", f"C:\\{three}\\")
    return f"{folder}{stem}.{pick('endings', rng)}"


def code(rng: Rng) -> str:
    one, two = pick("code", rng), pick("code", rng)
    return one_of(
        rng, f"{one}_{two}", f"{one}{two.capitalize()}", f"{one}_{two}()", f"{one}.{two}()",
        f"--{one}-{two}", f"`{one} {two}`",
    )  # fmt: skip


def emoji(rng: Rng) -> str:
    return pick("emoji", rng) * (1 + below(rng, 2) * below(rng, 3))


def markup(rng: Rng) -> str:
    """The opening tag; `closing` gives the other."""
    name = pick("markup", rng)
    attribute = one_of(rng, "", "", f' id="{pick("code", rng)}"', f' class="{pick("words", rng)}"')
    return f"<{name}{attribute}>"


def closing(tag: str) -> str:
    return f"</{tag[1:-1].split()[0]}>"


def placeholder(rng: Rng) -> str:
    name, count = pick("code", rng), below(rng, 10)
    return one_of(
        rng, f"{{{name}}}", f"{{{{{name}}}}}", f"{{{count}}}", "%s", "%d", f"%({name})s", f"${name}",
        f"%{1 + count}$s", f"${{{name}}}", f"<{name}>",
    )  # fmt: skip


ITEMS: dict[str, Callable[[Rng], str]] = {
    "number": number,
    "date": date,
    "time": time,
    "money": money,
    "unit": unit,
    "email": email,
    "url": url,
    "file": file,
    "code": code,
    "emoji": emoji,
    "markup": markup,
    "placeholder": placeholder,
}
