"""`regard data check`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.terminal import print_line, say
from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.config import Data, Task
    from regard.data.check import Checked
    from regard.data.findings import Findings

HeldOut = Annotated[
    list[Path] | None,
    typer.Option(help="Held-out data: a file, or twice for a pair of files.", show_default=False),
]


def check(
    corpus: Annotated[
        list[Path],
        typer.Argument(help="A run's TOML file; or what the task learns from: .tsv, .txt, .conll ..."),
    ],
    valid: HeldOut = None,
    test: HeldOut = None,
    task: Annotated[
        str, typer.Option(help="What is to be learned: translate, generate, fill, classify, tag, answer.")
    ] = "translate",
    many: Annotated[bool, typer.Option("--many", help="classify: any number of labels a text.")] = False,
    documents: Annotated[
        str, typer.Option(help="generate, fill: a document is a file, a paragraph or a line.")
    ] = "file",
    source: Annotated[
        str, typer.Option(help="Source language, where the format names languages.")
    ] = "source",
    target: Annotated[str, typer.Option(help="Target language.")] = "target",
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if anything is found.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Look at every line of a corpus: bytes, lengths, duplicates, training rows that are in valid or test.

    [bold]Examples[/]

      regard data check run.toml
      regard data check train.en train.de --test test.en --test test.de --strict
      regard data check reviews.tsv --task classify --valid valid.tsv
    """
    from regard.data.check import check as look
    from regard.data.check import held_out, make_findings

    wanted = {"name": task, "multi_label": many, "source": source, "target": target}
    data, of = asked({"train": corpus, "valid": valid, "test": test}, wanted, documents)
    findings = make_findings(data)
    checked = look(data, of, held_out(data, of, findings), findings, say)
    if as_json:
        print_line(json.dumps(as_data(checked), ensure_ascii=False))
    else:
        tell(findings, sum(each.pairs - len(each.dropped) for each in checked.corpora))
    if strict and findings.counts:
        raise RegardError("--strict: something was found")


def asked(
    given: Mapping[str, list[Path] | None], task: Mapping[str, object], documents: str
) -> tuple[Data, Task]:
    """What a run's file says, or what the arguments do."""
    from regard.config import load_config, resolve

    corpus = given["train"] or []
    if len(corpus) == 1 and corpus[0].suffix == ".toml":
        others = {**{f"--{name}": given[name] for name in ("valid", "test")}, **differing(task, documents)}
        if wrong := [name for name, is_given in others.items() if is_given]:
            raise UsageError(f"{', '.join(wrong)}: {corpus[0]} says all of it; leave that out")
        config = load_config(corpus[0])
    else:
        named = {name: one_corpus(paths) for name, paths in given.items() if paths}
        tree = {"data": {**named, "documents": documents}, "task": task}
        config = resolve(tree, base=Path.cwd(), where="arguments")
    return config.data, config.task


def differing(task: Mapping[str, object], documents: str) -> dict[str, bool]:
    """Which options say something else than they do by themselves."""
    usual = {"name": "translate", "multi_label": False, "source": "source", "target": "target"}
    names = {"name": "--task", "multi_label": "--many", "source": "--source", "target": "--target"}
    own = {names[field]: task[field] != value for field, value in usual.items()}
    return {**own, "--documents": documents != "file"}


def one_corpus(paths: list[Path]) -> str | list[str]:
    return str(paths[0]) if len(paths) == 1 else [str(path) for path in paths]


def as_data(checked: Checked) -> dict[str, object]:
    from regard.data.corpora import describe

    return {
        "corpora": [
            {"name": describe(each.corpus), "pairs": each.pairs, "used": each.pairs - len(each.dropped)}
            for each in checked.corpora
        ],
        "findings": checked.findings.to_json(),
    }


def tell(findings: Findings, pairs: int) -> None:
    """Each kind with its count, what becomes of it, and its first places."""
    for kind in findings.to_json():
        fate = "left out" if kind["left_out"] else "used"
        print_line(f"{kind['count']:>9,}  {kind['kind']:<18} {fate:<9} {kind['meaning']}")
        for place in findings.places[kind["kind"]]:
            print_line(f"{'':11}{place}")
        if kind["count"] > len(kind["places"]):
            print_line(f"{'':11}... and {kind['count'] - len(kind['places']):,} more")
    nothing = "" if findings.counts else "; nothing found"
    print_line(f"{pairs:,} left to learn from{nothing}")
