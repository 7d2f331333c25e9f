"""`regard models pull | list | show | rm | verify`: models of the hub, and what is known of those here."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.terminal import AsJson, messages, print_line, say, tables
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.storage.facts import Facts

app = typer.Typer(help="Models of the hub: bring, see, check and delete them.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="owner/name, or owner/name@revision.", metavar="NAME[@REVISION]")]


@app.command("pull")
def pull(
    name: Name,
    offline: Annotated[
        bool, typer.Option("--offline", help="No connection: what is here, or an error. As HF_HUB_OFFLINE=1.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Ask the hub what the branch is now, and bring that.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep it though Regard cannot open it.")] = False,
    pickle: Annotated[
        bool, typer.Option("--pickle", help='Bring weights that are a pickle, for "regard import".')
    ] = False,
) -> None:
    """Bring a model here; from then on every command takes its name.

    The commit is written down with a checksum of every file. The same name asks nobody again, and what
    breaks off is gone on with. Only files that Regard reads are fetched.

    [bold]Examples[/]

      regard models pull Helsinki-NLP/opus-mt-en-de
      regard translate -m Helsinki-NLP/opus-mt-en-de "A small house."
      regard models pull sentence-transformers/all-MiniLM-L6-v2@main --update
    """
    from regard.storage.pull import pull as bring

    with messages().status(f"pulling {name}"):
        found, new = bring(name, say, offline, update, keep, pickle)
    here = f"{found.name} at {found.revision[:12]}"
    say(f"{here}: {'new' if new else 'here already'} in {found.path}")
    if pickle and new:
        say(f'"regard import {found.path} OUT" makes of it a folder that can be opened')


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """Show the models that were pulled, and those of the package.

    [bold]Examples[/]

      regard models list
      regard models list --json
    """
    from rich.table import Table

    from regard.storage.facts import all_facts

    found = all_facts()
    if as_json:
        for each in found:
            print_line(json.dumps(as_object(each), ensure_ascii=False))
        return
    if not found:
        say('none yet; "regard models pull owner/name" brings one of the hub')
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "task", "family", "MiB", "revision", "licence", "path"):
        table.add_column(column, justify="right" if column == "MiB" else "left", overflow="fold")
    for each in found:
        size = f"{each.size / 2**20:,.1f}"
        task = "cannot be opened" if each.why_not else each.task
        licence, path = each.licence or "not stated", str(each.path)
        table.add_row(*plain(each.name, task, each.family, size, each.revision[:12], licence, path))
    tables().print(table)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A pulled model, one of the package, or a folder.")],
    as_json: AsJson = False,
) -> None:
    """Show what is known of a model: its task, size, languages, licence, revision and files.

    [bold]Examples[/]

      regard models show Helsinki-NLP/opus-mt-en-de
      regard models show runs/demo --json
    """
    from rich.table import Table

    from regard.storage.facts import card, facts_of

    found = facts_of(name)
    told = card(found)
    if as_json:
        print_line(json.dumps({**told, **as_object(found)}, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for key, value in told.items():
        table.add_row(*plain(key, value))
    tables().print(table)


@app.command("rm")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a pulled model; without a revision, all that were pulled of it.

    [bold]Example[/]

      regard models rm Helsinki-NLP/opus-mt-en-de --yes
    """
    from regard.storage import models

    wanted = models.parse(name)
    models.find_or_refuse(name)
    found = [each for each in models.commits(models.home(wanted.name)) if each.answers(wanted.revision)]
    size = sum(models.size(each.path) for each in found) / 2**20
    which = ", ".join(each.revision[:12] for each in found)
    if not yes:
        messages().print(f"delete {wanted.name} ({which}; {size:,.1f} MiB)? [y/N] ", end="")
        if (sys.stdin.readline() if sys.stdin else "").strip().lower() not in ("y", "yes"):
            say("kept")
            return
    for each in found:
        models.remove(each)
    say(f"deleted {wanted.name} ({which})")


@app.command("verify")
def verify(
    name: Annotated[str | None, typer.Argument(help="A pulled model; else all.", show_default=False)] = None,
) -> None:
    """Check every file of what was pulled against its checksum.

    [bold]Examples[/]

      regard models verify
      regard models verify Helsinki-NLP/opus-mt-en-de
    """
    from regard.storage import models

    found = [models.find_or_refuse(name)] if name else models.here()
    wrong = 0
    for each in found:
        faults = list(models.faults(each))
        wrong += bool(faults)
        for file, fault in faults:
            print_line(f"{each.path / file} {fault}")
        if not faults:
            say(f"{each.name} at {each.revision[:12]}: {len(each.files):,} files are as they were")
    if wrong:
        raise RegardError(
            f'{wrong} of {len(found)} models are not what was pulled; "regard models pull NAME@REVISION" '
            "brings the damaged files again"
        )
    if not found:
        say("nothing was pulled yet")


def as_object(found: Facts) -> dict[str, Any]:
    row = {
        "name": found.name,
        "task": found.task,
        "family": found.family,
        "bytes": found.size,
        "revision": found.revision or None,
        "licence": found.licence or None,
        "path": str(found.path),
    }
    return row | ({"cannot be opened": found.why_not} if found.why_not else {})


def plain(*cells: str) -> list[Any]:
    """Cells as they are: a card may hold what would be a colour."""
    from rich.text import Text

    return [Text(cell) for cell in cells]
