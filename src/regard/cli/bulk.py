"""`--on ray`: the rows of files on a Ray cluster."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from regard.cli.tasks import TaskCommand
from regard.cli.terminal import messages, say
from regard.cli.translate_workers import model_stamps
from regard.errors import UsageError

WHOLE = ("answer", "score", "caption")  # their rows are not one text each
NEEDS_ALL = ("similar", "npy", "constraints", "alternatives", "follow", "conll")  # fields of commands
WITHOUT_INFLUENCE = {"on", "workers", "device", "threads", "output", "files"}  # on results
TABLES = (".jsonl", ".csv", ".tsv", ".parquet")


def check_bulk(job: TaskCommand) -> None:
    """Refuse what cannot be done by parts."""
    if job.name in WHOLE:
        raise UsageError(f"--on ray: not for {job.name}", code="E_OPTION_TASK")
    if wrong := [name for name in NEEDS_ALL if getattr(job, name, None)]:
        raise UsageError(f"--{wrong[0]}: not with --on ray", code="E_OPTION_CONFLICT")
    if job.output is None or job.model is None or not job.names or "-" in job.names:
        raise UsageError(
            "--on ray needs files, a model (-m) and a file to write (-o)", code="E_OPTION_MISSING"
        )
    is_table = Path(job.output).suffix.lower() in TABLES
    job.as_json = job.as_json or is_table
    if job.key is not None and not job.as_json:
        raise UsageError("--key: with --json, or a table to write (-o out.parquet)", code="E_OPTION_CONFLICT")


def run_on_ray(job: TaskCommand) -> None:
    from regard.ray.parts import run_parts
    from regard.storage.models import find_model

    output = address(job.output)
    job.output = None
    models = job.model if isinstance(job.model, list) else [job.model]
    stamps = [[str(path), model_stamps(path)] for path in map(find_model, models)]
    values = {each.name: repr(getattr(job, each.name)) for each in fields(job) if each.init}
    influence = {name: value for name, value in values.items() if name not in WITHOUT_INFLUENCE}
    identity = json.dumps([job.name, influence, repr(job.options), job.shows_all, stamps])
    with messages().status("working") as status:
        result = run_parts(
            job,
            identity,
            [address(name) for name in job.names],
            output,
            job.column,
            job.key,
            job.workers,
            job.threads,
            job.at_once if job.name == "transcribe" else 2000,
            lambda text: status.update(text),
        )
    if result.done_before:
        say(f"{result.done_before} of {result.parts} parts were there from before")
    say(f"wrote the results of {result.rows:,} rows to {output}")
    for notes in result.notes:
        for kind, times in notes.get("count", {}).items():
            job.notes.add(kind, notes["first"][kind], times)
    job.notes.print()
    if result.bad:
        say(f"{len(result.bad):,} rows have no result: see {output}.bad.jsonl")


def address(name: Any) -> str:
    """An address whose double slash a path has lost."""
    return re.sub(r"^([a-z][a-z0-9+.-]+):/(?=[^/])", r"\1://", str(name))
