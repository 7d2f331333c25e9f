"""`regard.ray.map`: the results of a task as columns of a Ray dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError, UsageError, extra

if TYPE_CHECKING:
    from ray.data import Dataset


class ColumnWorker:
    """An actor that adds the columns `output`, `result` and `error` to the batches of a dataset."""

    def __init__(
        self, task: str, model: str, column: str, options: Mapping[str, Any], load: Mapping[str, Any]
    ) -> None:
        from regard.tasks import load as load_any
        from regard.tasks import load_as
        from regard.tasks.spec import TASKS

        self.spec, self.column, self.options = TASKS[task], column, options
        classes = self.spec.classes
        self.task = load_as(classes[0], model, **load) if len(classes) == 1 else load_any(model, **load)

    def __call__(self, batch: Any) -> Any:
        import pyarrow

        values = batch[self.column].to_pylist()
        texts = [(at, value) for at, value in enumerate(values) if isinstance(value, str)]
        errors: list[str | None] = [None if isinstance(value, str) else "not text" for value in values]
        results: list[Any] = [None] * len(values)
        self.fill(texts, results, errors)
        from regard.tasks.results import as_dict

        rows = [None if each is None else as_dict(each) for each in results]
        batch = batch.append_column("output", pyarrow.array([main_value(row) for row in rows], self.type))
        batch = batch.append_column(
            "result", pyarrow.array([row and json.dumps(row) for row in rows], pyarrow.string())
        )
        return batch.append_column("error", pyarrow.array(errors, pyarrow.string()))

    @property
    def type(self) -> Any:
        import pyarrow

        return pyarrow.list_(pyarrow.float32()) if self.spec.name == "embed" else pyarrow.string()

    def fill(self, texts: list[tuple[int, str]], results: list[Any], errors: list[str | None]) -> None:
        """The results of texts; one that the model refuses is found by halves."""
        if not texts:
            return
        try:
            answers = self.spec.run(self.task, [text for _, text in texts], self.options)
        except RegardError as error:
            if len(texts) == 1:
                errors[texts[0][0]] = str(error)
                return
            half = len(texts) // 2
            self.fill(texts[:half], results, errors)
            self.fill(texts[half:], results, errors)
            return
        for (at, _), answer in zip(texts, answers):
            results[at] = answer


MAIN_FIELDS = ("vector", "label", "entities", "text")  # of a result: the first that it has


def main_value(row: dict[str, Any] | None) -> Any:
    if row is None:
        return None
    value = next(row[name] for name in MAIN_FIELDS if name in row)
    return value if isinstance(value, str) or "vector" in row else json.dumps(value)


def map(
    dataset: Dataset,
    task: str,
    model: str | Path,
    column: str = "text",
    *,
    workers: int = 1,
    batch_size: int = 256,
    device: str = "auto",
    threads: int = 1,
    precision: str = "auto",
    **options: Any,
) -> Dataset:
    """The dataset with three more columns: `output` (text, label or vector), `result` (JSON) and `error`.

    `model` is a folder that every machine has, or a built-in model; `options` are those of the task's method.
    """
    with extra("ray"):
        import ray
    from regard.storage.models import find_model
    from regard.tasks.spec import TASKS

    if task not in TASKS or {"answer", "score", "caption"} & {task}:
        raise UsageError(f'"{task}" is not a task of one text', code="E_OPTION_TASK")
    valid = TASKS[task].options
    if wrong := [name for name in options if name not in valid]:
        raise UsageError(f"{wrong[0]}: no option of {task}; known: {', '.join(valid)}", code="E_OPTION_TASK")
    return dataset.map_batches(
        ColumnWorker,
        fn_constructor_args=(
            task,
            str(find_model(Path(model))),
            column,
            options,
            {"device": device, "threads": threads, "precision": precision},
        ),
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=max(1, threads),
    )
