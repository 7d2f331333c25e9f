"""`regard data check | get | list | cache`: check a corpus, and get public data sets by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.terminal import AsJson, json_line, print_line, print_table, say
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.data.check import Checked
    from regard.data.report import DataReport

app = typer.Typer(help="Check corpora, and download public data sets by name.", no_args_is_help=True)
To = Annotated[
    Path | None,
    typer.Option("--to", help="Folder of the data sets; default: REGARD_DATA.", show_default=False),
]
HeldOutFiles = Annotated[
    list[Path] | None,
    typer.Option(help="Held-out data: a file, or twice for a pair of files.", show_default=False),
]


@app.command("check")
def check(
    context: typer.Context,
    corpus: Annotated[
        list[Path],
        typer.Argument(help="A run's TOML file; or the training data: .tsv, .csv, .txt, .conll ..."),
    ],
    valid: HeldOutFiles = None,
    test: HeldOutFiles = None,
    task: Annotated[
        str, typer.Option(help="Task of the model: translate, generate, fill, classify, tag, answer.")
    ] = "translate",
    many: Annotated[bool, typer.Option("--many", help="classify: any number of labels a text.")] = False,
    documents: Annotated[
        str, typer.Option(help="generate, fill: a document is a file, a paragraph or a line.")
    ] = "file",
    format: Annotated[
        str, typer.Option(help="Format of all files, if their names do not tell: conll, tsv, jsonl ...")
    ] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column of a table, as in text=Review; repeatable.", show_default=False),
    ] = None,
    source: Annotated[
        str, typer.Option(help="Source language, where the format names languages.")
    ] = "source",
    target: Annotated[str, typer.Option(help="Target language.")] = "target",
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if there is any issue.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Check every line of a corpus: encoding, lengths, duplicates, training rows that are in valid or test.

    [bold]Examples[/]

      regard data check run.toml
      regard data check train.en train.de --test test.en --test test.de --strict
      regard data check reviews.tsv --task classify --valid valid.tsv
      regard data check eng.train --task tag --format conll
      regard data check reviews.csv --task classify --column text=Review --column label=Stars
    """
    from regard.config import load_config, resolve
    from regard.data.check import check as check_corpora
    from regard.data.check import make_report, read_held_out

    if len(corpus) == 1 and corpus[0].suffix == ".toml":
        options = {each: context.params[each.name] for each in context.command.params}
        given = [each.opts[0] for each, value in options.items() if value and value != each.default]
        if given := [name for name in given if name not in ("corpus", "--strict", "--json")]:
            raise UsageError(f"{', '.join(given)}: {corpus[0]} already sets this; remove the option")
        config = load_config(corpus[0])
    else:
        paths = {"train": corpus, "valid": valid, "test": test}
        settings = {"documents": documents, "format": format, "columns": parse_columns(column or [])}
        data: dict[str, Any] = {name: list(map(str, files)) for name, files in paths.items() if files}
        data |= {name: value for name, value in settings.items() if value}
        fields = {"name": task, "multi_label": many, "source": source, "target": target}
        config = resolve({"data": data, "task": fields}, base=Path.cwd(), where="arguments")
    report = make_report(config.data)
    held_out = read_held_out(config.data, config.task, report)
    checked = check_corpora(config.data, config.task, held_out, report, say)
    if as_json:
        print_line(json_line(to_json(checked)))
    else:
        print_report(report, sum(each.pairs - len(each.dropped) for each in checked.corpora))
    if strict and report.counts:
        kinds = "1 kind" if len(report.counts) == 1 else f"{len(report.counts)} kinds"
        raise RegardError(f"--strict: {kinds} of issues found, see above")


def parse_columns(options: list[str]) -> dict[str, str | int]:
    """`text=Review` names a column, `text=1` numbers it."""
    columns: dict[str, str | int] = {}
    for option in options:
        word, equals, name = option.partition("=")
        if not word or not equals or not name:
            raise UsageError(f"--column {option}: write text=NAME or text=NUMBER", code="E_DATA_COLUMNS")
        columns[word] = int(name) if name.isdecimal() else name
    return columns


def to_json(checked: Checked) -> dict[str, object]:
    from regard.data.corpora import describe

    return {
        "corpora": [
            {"name": describe(each.corpus), "pairs": each.pairs, "used": each.pairs - len(each.dropped)}
            for each in checked.corpora
        ],
        "findings": checked.report.to_json(),
    }


def print_report(report: DataReport, rows: int) -> None:
    """The count of each kind of issue, what happens to its rows, and its first places."""
    for kind in report.to_json():
        action = "left out" if kind["left_out"] else "used"
        print_line(f"{kind['count']:>9,}  {kind['kind']:<18} {action:<9} {kind['meaning']}")
        for place in report.places[kind["kind"]]:
            print_line(f"{'':11}{place}")
        if kind["count"] > len(kind["places"]):
            print_line(f"{'':11}... and {kind['count'] - len(kind['places']):,} more")
    issues = "" if report.counts else "; no issues"
    print_line(f"{rows:,} {'row' if rows == 1 else 'rows'} to learn from{issues}")


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

    from regard.data import public
    from regard.data.files import DATA_VARIABLE

    root = public.data_root(to) if to or os.environ.get(DATA_VARIABLE) else None
    rows = [(each, root is not None and public.is_present(each, root)) for each in public.public_datasets()]
    if as_json:
        for each, here in rows:
            names = [f"data:{each.place}/{file.name}" for file in each.files]
            fields = {"name": each.name, "about": each.about, "licence": each.licence, "from": each.origin}
            print_line(json_line({**fields, "here": here, "files": names}))
        return
    cells = [(each.name, "yes" if here else "", each.about, each.licence, each.origin) for each, here in rows]
    print_table(cells, ("name", "here", "what", "licence", "from"))


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
