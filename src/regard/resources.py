"""Where the data files of the package lie."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent
WEB = PACKAGE / "server" / "web"  # the explorer page: index.html, style.css, js/
CARD = PACKAGE / "builtin" / "card.md.j2"  # README.md of a model folder


def task_texts() -> dict[str, dict[str, str]]:
    """For each task: the command that uses a model, a first run, and texts of the model card."""
    texts: dict[str, dict[str, str]] = read_data("tasks")
    return texts


def word_lists() -> dict[str, dict[str, str]]:
    """Words that sentence splitting and language detection know."""
    words: dict[str, dict[str, str]] = read_data("words")
    return words


@cache
def read_data(name: str) -> Any:
    return tomllib.loads((PACKAGE / "builtin" / f"{name}.toml").read_text(encoding="utf-8"))
