"""What `regard evaluate` does for every task but translation: the scores of a run's end, computed again."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.terminal import messages, say, tables
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.config import Config, Corpora
    from regard.sample import Example
    from regard.storage import Folder

NAMED = 5  # labels that a message names


def judge(folder: Folder, corpora: Corpora, output: Path | None) -> dict[str, Any]:
    """The scores of a model on corpora; each text with the model's answer is written to `output`."""
    from regard.data import read_examples
    from regard.data.findings import Refused
    from regard.training.evaluation import make_evaluation, make_objective
    from regard.training.prepare import drop_too_long

    config = config_of(folder)
    objective = make_objective(folder.task, folder.config, folder.source, folder.target, folder.labels)
    findings = Refused()
    examples = read_examples(corpora, folder.task, "test", findings, config.data.documents)
    if empty := findings.counts["empty"]:
        say(f"left out {empty:,} without a text (the first: {findings.places['empty'][0]})")
    tell_unknown(folder, examples)
    examples = drop_too_long(examples, objective, config, "test", say)
    if not examples:
        raise UsageError(f"nothing is left to score: the model reads {folder.config.max_length} pieces")
    evaluation = make_evaluation(config, objective, examples, folder.may_refuse)
    device = next(folder.model.parameters()).device
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as place, messages().status(f"scoring {len(evaluation):,} texts"):
        found = evaluation.final(folder.model, device, output or Path(place) / "test.jsonl")
    seconds = time.perf_counter() - began
    return {"task": folder.task.name, "sentences": len(evaluation), **found, "seconds": seconds}


def config_of(folder: Folder) -> Config:
    """That of the run, else what follows from the folder's task and shape."""
    from regard.config import load_config, resolve
    from regard.storage.folder import run_of

    stored = (run_of(folder.path) or folder.path) / "run.toml"
    if stored.is_file():
        return load_config(stored)
    made = resolve({"task": folder.task.model_dump(), "data": {"train": "-"}})
    return made.model_copy(update={"model": folder.config})


def tell_unknown(folder: Folder, examples: list[Example]) -> None:
    """Labels that training never saw cannot be guessed: such texts count as errors, and are told."""
    from regard.data.objectives.labels import split_labels

    if folder.task.name not in ("classify", "tag"):
        return
    tags = folder.task.name == "tag"
    known, strange, count = set(folder.labels), dict[str, None](), 0
    for example in examples:
        own = example.target.split(" ") if tags else split_labels(example.target)
        new = [label for label in own if label not in known]
        strange |= dict.fromkeys(new)
        count += bool(new)
    if count:
        unit, label = ("sentence", "tag") if tags else ("text", "label")
        has = f"1 {unit} has" if count == 1 else f"{count:,} {unit}s have"
        names = ", ".join([*list(strange)[:NAMED], *(["..."] if len(strange) > NAMED else [])])
        say(f"{has} a {label} that this model does not know, which counts as an error: {names}")


def show_scores(row: dict[str, Any]) -> None:
    """The scores in the words of the report, and those of each label or type."""
    from rich.table import Table

    from regard.training.report.tasks import TASKS
    from regard.training.report.words import by_type_rows, clock

    wording = TASKS[row["task"]]
    table = Table(box=None, show_header=False, pad_edge=False)
    for measure in wording.scores:
        if measure.of(row) is not None:
            table.add_row(measure.name, measure.shown(row))
    table.add_row(wording.texts, f"{row['sentences']:,}")
    table.add_row("time", clock(row["seconds"]))
    tables().print(table)
    if row.get("by_type"):
        types = Table(box=None, pad_edge=False)
        for name in ("", "count", "precision", "recall", "F1"):
            types.add_column(name, justify="left" if not name else "right")
        for own in by_type_rows(row["by_type"]):
            types.add_row(*(cell.replace("[", r"\[") for cell in own))
        tables().print()
        tables().print(types)
