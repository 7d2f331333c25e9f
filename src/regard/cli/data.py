"""`regard data check | get | list | cache`: what is wrong with a corpus, and public corpora by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.check import check
from regard.cli.terminal import AsJson, print_line, say, tables

app = typer.Typer(help="Public corpora by name, and what is wrong with your own.", no_args_is_help=True)
To = Annotated[
    Path | None, typer.Option("--to", help="The folder of corpora; else REGARD_DATA.", show_default=False)
]

app.command("check")(check)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help='A set; "regard data list" shows which there are.')],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Copy from this folder; else REGARD_DATA_MIRROR, else the net."),
    ] = None,
    to: To = None,
    verify: Annotated[bool, typer.Option("--verify", help="Only check the files that are here.")] = False,
) -> None:
    """Bring a public set here, check it, and state its licence; a second call brings what lacks.

    [bold]Examples[/]

      REGARD_DATA=~/corpora regard data get multi30k
      regard data get tatoeba --from /media/copy --to ~/corpora
      regard data get multi30k --verify
    """
    from regard.data import hub
    from regard.data.catalogue import find_set

    wanted = find_set(name)
    root = hub.data_root(to)
    if verify:
        say(f"{name}: {hub.verify(wanted, root):,} files are as they were")
        return
    new = hub.get(wanted, root, source, say)
    say(f"{name}: {new:,} new files in {root / wanted.place}" if new else f"{name}: all is here already")


@app.command("list")
def list_sets(to: To = None, as_json: AsJson = False) -> None:
    """Show the sets that can be had, their licences, and which are here.

    [bold]Examples[/]

      regard data list
      regard data list --to ~/corpora --json
    """
    import os

    from rich.table import Table

    from regard.data import hub
    from regard.data.catalogue import SETS
    from regard.data.files import DATA_VARIABLE

    root = hub.data_root(to) if to or os.environ.get(DATA_VARIABLE) else None
    rows = [(each, root is not None and hub.present(each, root)) for each in SETS]
    if as_json:
        for each, here in rows:
            names = [f"data:{each.place}/{file.name}" for file in each.files]
            fields = {"name": each.name, "about": each.about, "licence": each.licence, "from": each.origin}
            print_line(json.dumps({**fields, "here": here, "files": names}, ensure_ascii=False))
        return
    table = Table("name", "here", "what", "licence", "from", box=None, pad_edge=False)
    for each, here in rows:
        table.add_row(each.name, "yes" if here else "", each.about, each.licence, each.origin)
    tables().print(table)


@app.command("cache")
def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Delete it; what is needed is made again.")] = False,
) -> None:
    """Say where prepared corpora are kept and how much room they take.

    [bold]Examples[/]

      regard data cache
      regard data cache --clear
    """
    import shutil

    from regard.data.cache import CACHE_VARIABLE, cache_folder, entries, size

    found = entries()
    total = sum(size(entry) for entry in found)
    print_line(f"{cache_folder()}: {len(found):,} prepared corpora, {total / 2**20:,.1f} MiB")
    if clear:
        for entry in found:
            shutil.rmtree(entry)
        say("deleted")
    elif found:
        say(f"--clear deletes them; {CACHE_VARIABLE} names another folder")
