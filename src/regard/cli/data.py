"""`regard data check | get | list | cache`: check a corpus, and get public data sets by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.check import check
from regard.cli.terminal import AsJson, print_line, say, tables

app = typer.Typer(help="Check corpora, and download public data sets by name.", no_args_is_help=True)
To = Annotated[
    Path | None,
    typer.Option("--to", help="Folder of the data sets; default: REGARD_DATA.", show_default=False),
]

app.command("check")(check)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help='Name of a data set; "regard data list" shows all.')],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Copy from this folder; default: REGARD_DATA_MIRROR, else download."),
    ] = None,
    to: To = None,
    verify: Annotated[bool, typer.Option("--verify", help="Only verify the files on this machine.")] = False,
) -> None:
    """Download a public data set, verify it and show its licence; rerun to fetch missing files.

    [bold]Examples[/]

      REGARD_DATA=~/corpora regard data get multi30k
      regard data get tatoeba --from /media/copy --to ~/corpora
      regard data get multi30k --verify
    """
    from regard.data import public

    dataset = public.find_dataset(name)
    root = public.data_root(to)
    if verify:
        say(f"{name}: {public.verify(dataset, root):,} files verified")
        return
    new = public.get(dataset, root, source, say)
    say(f"{name}: {new:,} new files in {root / dataset.place}" if new else f"{name}: up to date")


@app.command("list")
def list_sets(to: To = None, as_json: AsJson = False) -> None:
    """List the public data sets, their licences, and which are on this machine.

    [bold]Examples[/]

      regard data list
      regard data list --to ~/corpora --json
    """
    import os

    from rich.table import Table

    from regard.data import public
    from regard.data.files import DATA_VARIABLE

    root = public.data_root(to) if to or os.environ.get(DATA_VARIABLE) else None
    rows = [(each, root is not None and public.is_present(each, root)) for each in public.public_datasets()]
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
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete the prepared corpora; training makes them again.")
    ] = False,
) -> None:
    """Show the folder of prepared corpora and its size.

    [bold]Examples[/]

      regard data cache
      regard data cache --clear
    """
    import shutil

    from regard.data.cache import CACHE_VARIABLE, cache_folder, entries, size

    corpora = entries()
    total = sum(size(entry) for entry in corpora)
    print_line(f"{cache_folder()}: {len(corpora):,} prepared corpora, {total / 2**20:,.1f} MiB")
    if clear:
        for entry in corpora:
            shutil.rmtree(entry)
        say("deleted")
    elif corpora:
        say(f"--clear deletes them; {CACHE_VARIABLE} sets another folder")
