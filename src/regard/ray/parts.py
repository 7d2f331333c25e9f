"""`regard translate --on ray`: files in, one file out, resumable.

The input is divided into parts of rows. The results of a part are one file beside the output, written at
once: each row is there once, whatever dies, and the same command continues.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from regard.errors import RegardError, UsageError, extra
from regard.ray.rows import FORMATS, Row, RowRange, expand, filesystem, read_rows, split

MAX_TRIES = 3  # of a part whose worker dies
TRY = ".try-"


class Job(Protocol):
    """Rows to lines of results: a command of a task."""

    def open(self) -> None: ...
    def __call__(self, lines: Sequence[Any], first: int) -> list[str]: ...


class PartWorker:
    """An actor: opens the model once, and writes the results of parts."""

    def __init__(self, job: Job) -> None:
        self.job = job
        job.open()

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[int]]:
        parts = [RowRange(**json.loads(text)) for text in batch["part"]]
        return {"rows": [self.run(part) for part in parts]}

    def run(self, part: RowRange) -> int:
        count_try(part)
        bad: list[tuple[int, str]] = []
        lines: list[str] = []
        rows = list(read_rows(part))
        for reason, group in groupby(rows, lambda row: row.reason):
            run = list(group)
            if reason:
                bad += [(row.number, reason) for row in run]
                lines += [self.line(row, reason) for row in run]
            else:
                lines += self.results(run, bad)
        if len(rows) > 1 and len(bad) == len(rows) and not any(row.reason for row in rows):
            raise UsageError(
                f"{part.address}: all rows from {part.first:,} on: {bad[0][1]}", code="E_BULK_ROWS"
            )
        content = {"rows": len(rows), "lines": lines, "bad": bad, "notes": self.notes()}
        write(part.output, json.dumps(content).encode())
        return len(rows)

    def results(self, rows: list[Row], bad: list[tuple[int, str]]) -> list[str]:
        """The lines of rows; one that the model refuses is found by halves."""
        try:
            lines = self.job([row.value for row in rows], rows[0].number)
        except RegardError as error:
            if len(rows) > 1:
                half = len(rows) // 2
                return self.results(rows[:half], bad) + self.results(rows[half:], bad)
            bad.append((rows[0].number, str(error)))
            return [self.line(rows[0], str(error))]
        if any(row.key is not None for row in rows):
            return [json.dumps({"key": row.key, **json.loads(line)}) for row, line in zip(rows, lines)]
        return lines

    def line(self, row: Row, reason: str) -> str:
        """In the place of the results of a row that has none."""
        if not getattr(self.job, "as_json", False):
            return ""
        key = {} if row.key is None else {"key": row.key}
        return json.dumps({**key, "line": row.number, "error": reason})

    def notes(self) -> Any:
        notes: Any = getattr(self.job, "notes", None)
        if notes is None:
            return {}
        self.job.notes = type(notes)()  # type: ignore[attr-defined]
        return asdict(notes)


def count_try(part: RowRange) -> None:
    """Ray tries for ever; rows that end every worker must not."""
    system, path = filesystem(part.output)
    tries = len(system.glob(f"{path}{TRY}*"))
    if tries >= MAX_TRIES:
        raise RegardError(
            f"{part.address}: {MAX_TRIES} workers died over the rows from {part.first:,} on; there may be "
            "too little memory for so many workers",
            code="E_RAY_WORKERS",
        )
    system.pipe_file(f"{path}{TRY}{tries + 1}", b"")


def write(address: str, content: bytes) -> None:
    """The whole file or none."""
    system, path = filesystem(address)
    if not is_local(system):
        system.pipe_file(path, content)  # an object store shows a whole object
        return
    from regard.storage import write_atomically

    write_atomically(Path(path), content)


def is_local(system: Any) -> bool:
    return "file" in ([system.protocol] if isinstance(system.protocol, str) else system.protocol)


# --- the driver


@dataclass(frozen=True)
class BulkResult:
    rows: int
    parts: int
    done_before: int  # parts
    bad: list[tuple[int, str]]  # number of the row, reason
    notes: list[dict[str, Any]]  # of the parts


def run_parts(
    job: Job,
    identity: str,
    addresses: Sequence[str],
    output: str,
    column: str = "text",
    key: str | None = None,
    workers: int = 1,
    threads: int = 0,
    rows: int = 2000,
    log: Callable[[str], None] = lambda text: None,
) -> BulkResult:
    """Run the parts that are not done yet, then join all. `identity` names all that results depend on."""
    with extra("ray"):
        import pyarrow  # noqa: F401
        import ray  # noqa: F401
    system, path = filesystem(output)
    place = f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}.parts"
    system.makedirs(place, exist_ok=True)
    parts = []
    for part in split(expand(addresses), rows, column, key):
        source, name = filesystem(part.address)
        content = json.dumps([identity, asdict(part), str(source.ukey(name))])
        digest = hashlib.sha256(content.encode()).hexdigest()[:32]
        file = system.unstrip_protocol(f"{place}/{part.first:012d}-{digest}.json")
        parts.append(replace(part, output=file))
    if not parts:
        raise UsageError(f"{', '.join(addresses)}: no row", code="E_DATA_EMPTY")
    there = {each.rpartition("/")[2] for each in system.ls(place, detail=False)}
    for name in there:
        if TRY in name:
            system.rm_file(f"{place}/{name}")
    missing = [part for part in parts if part.output.rpartition("/")[2] not in there]
    if missing:
        run_on_cluster(job, missing, workers, threads, log)
    result = join(parts, system, path, len(parts) - len(missing))
    system.rm(place, recursive=True)
    return result


def run_on_cluster(
    job: Job, parts: Sequence[RowRange], workers: int, threads: int, log: Callable[[str], None]
) -> None:
    """An actor pool of Ray Data; Ray starts a worker that died again, with its part."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray as untyped_ray

    ray: Any = untyped_ray
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    cores = max(1, threads)
    most = int(ray.cluster_resources().get("CPU", 0)) // cores
    if most < 1:
        raise UsageError(
            f"--threads {cores}: no machine of the cluster has as many cores", code="E_RAY_CORES"
        )
    ray.data.DataContext.get_current().enable_progress_bars = False
    items = [{"part": json.dumps(asdict(part))} for part in parts]
    dataset = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        PartWorker,
        fn_constructor_args=(job,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(workers, most, len(parts))),
        num_cpus=cores,
    )
    done = 0
    try:
        for each in dataset.iter_rows():
            done += each["rows"]
            log(f"{done:,} rows")
    except ray.exceptions.RayError as error:
        raise cause(error) from None


def cause(error: BaseException) -> Exception:
    """The error of Regard inside one of Ray."""
    each: BaseException | None = error
    while each is not None:
        inner = getattr(each, "cause", None)
        if isinstance(inner, RegardError):
            return inner
        if isinstance(each, RegardError):
            return each
        each = inner if isinstance(inner, BaseException) else each.__cause__
    return RegardError(f"Ray: {str(error).strip().splitlines()[-1]}", code="E_RAY")


def join(parts: Sequence[RowRange], system: Any, path: str, before: int) -> BulkResult:
    """Write all results in the order of the rows, and those that have none beside them."""
    bad: list[tuple[int, str]] = []
    notes: list[dict[str, Any]] = []

    def lines() -> Iterator[list[str]]:
        for part in parts:
            content = json.loads(filesystem(part.output)[0].cat_file(filesystem(part.output)[1]))
            if content["rows"] != part.count:
                raise RegardError(f"{part.address}: it changed meanwhile", code="E_DATA_CHANGED")
            bad.extend((number, reason) for number, reason in content["bad"])
            notes.append(content["notes"])
            yield content["lines"]

    aside = f"{path}.partial" if is_local(system) else path
    suffix = Path(path).suffix.lower()
    with system.open(aside, "wb") as file:
        WRITERS.get(FORMATS.get(suffix, "text"), write_lines)(file, lines, suffix)
    if aside != path:
        Path(aside).replace(path)
    if bad := sorted(set(bad)):
        rows = "".join(json.dumps({"row": number, "reason": reason}) + "\n" for number, reason in bad)
        system.pipe_file(f"{path}.bad.jsonl", rows.encode())
    return BulkResult(sum(part.count for part in parts), len(parts), before, bad, notes)


Lines = Callable[[], Iterator[list[str]]]


def write_lines(file: Any, lines: Lines, suffix: str) -> None:
    for portion in lines():
        file.write("".join(f"{line}\n" for line in portion).encode())


def write_csv(file: Any, lines: Lines, suffix: str) -> None:
    """Nested fields as JSON; the columns are those of the first rows and of later ones."""
    names = list(dict.fromkeys(name for portion in lines() for line in portion for name in json.loads(line)))
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    table = csv.DictWriter(text, names, delimiter="\t" if suffix == ".tsv" else ",")
    table.writeheader()
    for portion in lines():
        for line in portion:
            row = json.loads(line)
            table.writerow(
                {
                    name: json.dumps(each) if isinstance(each, list | dict) else each
                    for name, each in row.items()
                }
            )
    text.flush()
    text.detach()


def write_parquet(file: Any, lines: Lines, suffix: str) -> None:
    import pyarrow as untyped_pyarrow
    from pyarrow import parquet as untyped_parquet

    pyarrow: Any = untyped_pyarrow
    parquet: Any = untyped_parquet

    def tables(schema: Any = None) -> Iterator[Any]:
        for portion in lines():
            yield pyarrow.Table.from_pylist(list(map(json.loads, portion)), schema=schema)

    schema = pyarrow.unify_schemas([table.schema for table in tables()], promote_options="permissive")
    with parquet.ParquetWriter(file, schema) as writer:
        for table in tables(schema):
            writer.write_table(table)


WRITERS: dict[str, Callable[[Any, Lines, str], None]] = {"csv": write_csv, "parquet": write_parquet}
