"""Texts of a lesson: values in braces, {name.part:.2f}, and a little Markdown. Nothing is executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from regard.errors import UsageError

BRACES = re.compile(r"\{\{|\}\}|\{[^{}]*\}|[{}]")
VALUE = re.compile(r"\{([A-Za-z]\w*(?:\.\w+)*)(?::(,|,?\.\d[f%]?|token|url))?\}")
INLINE = re.compile(
    "\x02(?P<token>[^\x03]*)\x03"  # a word of the user's text, see `show`
    r"|`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|\*(?P<em>[^*\s][^*]*)\*"
    r"|\[(?P<link>[^\]]+)\]\((?P<href>(?:https?://|\?)[^()\s]*)\)"
)

MEASURES: Mapping[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "argmin": lambda values: values.index(min(values)),
    "argmax": lambda values: values.index(max(values)),
}


@dataclass(frozen=True)
class LessonText:
    """A text with its line, for errors; shown where its condition holds: "name.part" or "not name.part"."""

    text: str
    file: str
    line: int
    condition: str = ""

    def error(self, message: str, code: str) -> UsageError:
        return UsageError(f"{self.file}, line {self.line}: {message}", code=code)

    def names(self) -> set[str]:
        """The names of the values that it needs."""
        values = [
            self.value(match[0]) for match in BRACES.finditer(self.text) if match[0] not in ("{{", "}}")
        ]
        paths = [value[1] for value in values] + [self.condition.removeprefix("not ")] * bool(self.condition)
        return {path.split(".")[0] for path in paths}

    def value(self, braces: str) -> re.Match[str]:
        if (match := VALUE.fullmatch(braces)) is None:
            message = (
                f"{braces} is not a value; write {{name.part}} or {{name.part:.2f}}, and {{{{ for a brace"
            )
            raise self.error(message, "E_LESSON_VALUE")
        return match

    def look_up(self, path: str, scope: Any) -> Any:
        """The value of "name.part.0": keys of mappings, places and measures of lists, and nothing else."""
        for name in path.split("."):
            try:
                if isinstance(scope, list):
                    scope = MEASURES[name](scope) if name in MEASURES else scope[int(name)]
                else:
                    scope = scope[name]
            except (KeyError, IndexError, ValueError, TypeError):
                hint = f"; there are {', '.join(map(str, scope))}" if isinstance(scope, Mapping) else ""
                raise self.error(f"{{{path}}}: there is no {name}{hint}", "E_LESSON_VALUE") from None
        return scope

    def holds(self, scope: Any) -> bool:
        """Whether the value of its condition is not false, 0 or empty."""
        path = self.condition.removeprefix("not ")
        return not path or bool(self.look_up(path, scope)) != self.condition.startswith("not ")

    def fill(self, scope: Any) -> str:
        def shown(braces: re.Match[str]) -> str:
            if braces[0] in ("{{", "}}"):
                return braces[0][0]
            match = self.value(braces[0])
            return show(self.look_up(match[1], scope), match[2] or "")

        return BRACES.sub(shown, self.text)

    def read(self, scope: Any, default: Any) -> Any:
        """The content of a field, of the type of its default; one value in braces is that value itself."""
        match = VALUE.fullmatch(self.text)
        if match and not match[2]:
            return self.look_up(match[1], scope)
        kind, text = default if isinstance(default, type) else type(default), self.fill(scope)
        try:
            if kind is list:
                return [part.strip() for part in text.split("|")]
            return text == "yes" if kind is bool else kind(text) if kind in (int, float) else text
        except ValueError:
            raise self.error(f"{text} is not a number", "E_LESSON_FIELD") from None


def show(value: Any, spec: str) -> str:
    """A value in a sentence. Numbers: ".2f" as in Python; ".2" the same, but 3e−07 where it would be 0.00."""
    if spec == "token":
        return "\x02" + str(value).replace("\x02", "").replace("\x03", "") + "\x03"
    if spec == "url":
        return quote(str(value), safe="")
    if isinstance(value, list):
        return ", ".join(show(each, spec) for each in value)
    if not isinstance(value, int | float) or (isinstance(value, int) and not spec):
        return str(value)
    if not spec.endswith((",", "f", "%")):
        digits = int(spec.partition(".")[2] or 2)
        small = abs(value) < 0.5 * 10.0**-digits
        spec = ".0f" if value == 0 else ".0e" if small else f".{digits}f"
    return f"{value:{spec}}".replace("-", "−")


def text_json(text: str) -> str | list[str | dict[str, str]]:
    """A paragraph as JSON: in parts if there are words of the user's text, code, emphasis or links in it."""
    parts: list[str | dict[str, str]] = []
    end = 0
    for match in INLINE.finditer(text):
        marks = {name: part for name, part in match.groupdict().items() if part is not None}
        parts += [text[end : match.start()], marks]
        end = match.end()
    return [part for part in (*parts, text[end:]) if part] if parts else text
