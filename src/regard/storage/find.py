"""`regard models find`: the models for a task and its languages. Built-in models come first, then models of
the hub that Regard opens, from a table in the package (builtin/hub_models.toml). Nothing connects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.config.load import load_run_settings
from regard.errors import UsageError
from regard.resources import read_data
from regard.storage import models as local
from regard.storage.models import folder_size, front_matter, read_info

TRANSLATE = "translate"
PIVOT = "en"  # most languages have a translator from and to it


@dataclass(frozen=True)
class Suggestion:
    """A model that serves a task."""

    name: str
    task: str
    languages: tuple[str, ...]  # that it reads; of a translator source and target; () for any
    input: str  # text, image or audio
    place: Literal["built-in", "pulled", "hub"]
    megabytes: float  # of a model of the hub, its weights
    licence: str
    about: str
    pickle: bool = False

    @property
    def command(self) -> str:
        """What makes it usable or, if it is on this machine, uses it."""
        if self.place != "hub":
            return f"regard {self.task} -m {self.name}"
        return f"regard models pull {self.name}{' --pickle' if self.pickle else ''}"


def language_code(text: str) -> str:
    """fr for fr, fr-CA, French."""
    by_name = {name.casefold(): code for code, name in read_data("languages").items()}
    return str(by_name.get(text.casefold(), text.casefold().replace("_", "-").partition("-")[0]))


def find_models(task: str, languages: Sequence[str] = ()) -> list[Suggestion]:
    """The models for a task; of a translator `languages` are source and target, else at most one."""
    wanted = tuple(map(language_code, languages))
    if task == TRANSLATE and len(wanted) != 2:
        message = 'give a source and a target language, as in "regard models find translate en fr"'
        raise UsageError(message, code="E_FIND_LANGUAGES")
    if task != TRANSLATE and len(wanted) > 1:
        raise UsageError(f'give one language, as in "regard models find {task} de"', code="E_FIND_LANGUAGES")
    rows = [row for row in (*builtin_models(task), *hub_models(task, wanted)) if serves(row, wanted)]
    if not rows:
        message = f"the table of {table_date()} has no model for {task}{in_languages(wanted)}"
        raise UsageError(message + by_way_of_english(wanted), code="E_MODEL_NOT_FOUND")
    return rows


def serves(row: Suggestion, wanted: tuple[str, ...]) -> bool:
    if row.task == TRANSLATE:
        return row.languages == wanted
    return not wanted or wanted[0] in row.languages


def builtin_models(task: str) -> Iterator[Suggestion]:
    pairs = {name: pair for pair, name in local.translators().items()}
    for name in local.names():
        path = local.PLACE / name
        info, languages = read_info(name, path), tuple(front_matter(path).get("language", []))
        if info.task == task and (task != TRANSLATE or name in pairs):
            yield Suggestion(
                name,
                task,
                pairs.get(name, languages),
                input_of(path),
                "built-in",
                round(folder_size(path) / 1e6, 1),
                info.licence,
                card_title(path),
            )


def input_of(path: Path) -> str:
    run = path / "run.toml"
    return load_run_settings(run).task.input if run.is_file() else "text"


def card_title(path: Path) -> str:
    lines = (path / "README.md").read_text(encoding="utf-8").splitlines() if front_matter(path) else []
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")


def hub_models(task: str, wanted: tuple[str, ...] = ()) -> Iterator[Suggestion]:
    """The rows of the table for a task, of a translator those for the pair; recommended ones first."""
    pulled = {each.name for each in local.pulled_models()}
    for row in read_data("hub_models")["model"]:
        if row["task"] != task:
            continue
        languages = row_languages(row, wanted)
        if languages is not None:
            name = row["name"].format(**dict(zip(("source", "target"), languages)))
            yield Suggestion(
                name,
                task,
                languages,
                row.get("input", "text"),
                "pulled" if name in pulled else "hub",
                row["mb"],
                row["licence"],
                row["about"],
                row.get("weights") == "pickle",
            )


def row_languages(row: dict[str, Any], wanted: tuple[str, ...]) -> tuple[str, ...] | None:
    """Those that a row of the table lists; of a translator the pair, None if it has it not."""
    if row["task"] != TRANSLATE:
        return tuple(row.get("languages", "").split())
    source, target = wanted
    return wanted if target in row["pairs"].get(source, "").split() else None


def by_way_of_english(wanted: tuple[str, ...]) -> str:
    """Two translators instead of one, if the table has them."""
    if len(wanted) != 2 or PIVOT in wanted:
        return ""
    steps = (wanted[0], PIVOT), (PIVOT, wanted[1])
    if not all(any(hub_models(TRANSLATE, step)) for step in steps):
        return ""
    commands = " and ".join(f'"regard models find translate {step[0]} {step[1]}"' for step in steps)
    return f"; it has models by way of English: {commands}"


def table_date() -> str:
    return str(read_data("hub_models")["date"])


def in_languages(wanted: tuple[str, ...]) -> str:
    names = [read_data("languages").get(code, code) for code in wanted]
    return f" from {names[0]} into {names[1]}" if len(names) == 2 else f" in {names[0]}" if names else ""


def pull_advice(task: str, languages: Sequence[str] = (), kind: str = "text") -> str:
    """The end of an error about a missing model: the one command that helps; "" if the table has no model."""
    wanted = tuple(map(language_code, languages))
    if task == TRANSLATE and len(wanted) != 2:
        return ""
    rows = [row for row in hub_models(task, wanted) if serves(row, wanted) and row.input == kind]
    if not rows:
        return by_way_of_english(wanted)
    best = rows[0]
    what = f"{task}{in_languages(wanted)}"
    if best.place == "pulled":
        return f'; "{best.command}" takes a model for {what} that is on this machine'
    return f'; "{best.command}" downloads one for {what} ({best.megabytes:,} MB, {best.licence})'
