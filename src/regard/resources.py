"""Where the data files of the package lie."""

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
BUILTIN = PACKAGE / "builtin"
WEB = PACKAGE / "server" / "web"  # the explorer page: index.html, style.css, js/
CARD = BUILTIN / "card.md.j2"  # README.md of a model folder


def task_texts() -> dict[str, dict[str, str]]:
    """For each task: the command that uses a model, a first run, and texts of the model card."""
    texts: dict[str, dict[str, str]] = read_data("tasks")
    return texts


def texts_of(task: str, kind: str) -> dict[str, str]:
    """The texts of a task with its kind of input; those of pictures and sounds may have their own."""
    texts = task_texts()
    return texts.get(f"{task}-{kind}") or texts[task]


def word_lists() -> dict[str, dict[str, str]]:
    """Words that sentence splitting and language detection know."""
    words: dict[str, dict[str, str]] = read_data("words")
    return words


@cache
def read_data(name: str) -> Any:
    return tomllib.loads((BUILTIN / f"{name}.toml").read_text(encoding="utf-8"))


def render(
    template: str, make_safe: Callable[[str], str], filters: Mapping[str, Any] | None = None, **values: Any
) -> str:
    """A template of builtin/. Every value that it prints goes through `make_safe`, then through autoescape;
    markup (`markupsafe.Markup`) stays as it is."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # here: it is slow to import
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(BUILTIN),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else make_safe(str(value)),
    )
    environment.filters |= filters or {}
    return environment.get_template(template).render(**values)
