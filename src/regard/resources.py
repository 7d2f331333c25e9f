"""Where the data files of the package lie."""

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path

PACKAGE = Path(str(files("regard")))
WEB = PACKAGE / "server" / "web"  # the explorer page: index.html, style.css, js/
EXPORT_TEMPLATES = PACKAGE / "builtin" / "export.toml"  # README.md of exported models
CARD = PACKAGE / "builtin" / "card.md.j2"  # README.md of a model folder


@cache
def task_texts() -> dict[str, dict[str, str]]:
    """For each task: the command that uses a model, a first run, and texts of the model card."""
    return tomllib.loads((PACKAGE / "builtin" / "tasks.toml").read_text(encoding="utf-8"))
