"""A sweep: a base run, and the fields that its trials vary (docs/sweeps.md)."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from regard.config.load import Tree, apply_override, read_toml, resolve
from regard.config.model_base import Count, Section
from regard.config.reading import shown
from regard.config.schema import LOWER_IS_BETTER, METRICS, Config
from regard.errors import RegardError, UsageError, located

MAX_COMBINATIONS = 500  # that are tried to see whether a value is possible
Scalar = bool | int | float | str


class Range(Section):
    """`{low = 1e-4, high = 1e-2, log = true}`; whole numbers if both ends are."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = Field(None, gt=0)

    @property
    def is_whole(self) -> bool:
        return type(self.low) is int and type(self.high) is int

    @model_validator(mode="after")
    def _possible(self) -> Range:
        if not self.low < self.high:
            raise ValueError("low must be below high")
        if self.log and (self.low <= 0 or self.step is not None):
            raise ValueError("log = true needs low above 0, and no step")
        if self.is_whole and self.step is not None and type(self.step) is not int:
            raise ValueError("step of whole numbers must be one")
        return self


Choices = Annotated[list[Any], Field(min_length=1)]
Variation = Annotated[
    Annotated[Choices, Tag("choices")] | Annotated[Range, Tag("range")],
    Discriminator(lambda value: "choices" if isinstance(value, list) else "range"),
]


class SweepFile(Section):
    base: str = Field(description="TOML file of the run that is varied, relative to this file")
    fields: dict[str, Variation] = Field(
        min_length=1, description='"section.field" -> a range, or a list of values'
    )
    trials: Count | None = Field(None, description="how many; default: 20, of a grid all")
    sampler: Literal["tpe", "random", "grid"] = Field("tpe", description="how values are chosen")
    pruner: Literal["median", "hyperband", "none"] = Field(
        "median", description="when a trial is stopped early, by its validations"
    )
    metric: str | None = Field(None, description="of validations; default: train.metric of the base run")
    direction: Literal["maximize", "minimize"] | None = Field(None, description="default: by the metric")
    seed: int = Field(1, ge=0, lt=2**31, description="of the sampler")

    @field_validator("fields")
    @classmethod
    def _named(cls, fields: dict[str, Variation]) -> dict[str, Variation]:
        for name in fields:
            if len(name.split(".")) != 2:
                raise ValueError(f'"{name}" must be "section.field", in quotation marks')
        return fields

    @model_validator(mode="after")
    def _possible(self) -> SweepFile:
        for name, values in self.fields.items():
            if self.sampler == "grid" and isinstance(values, Range) and grid_values(values) is None:
                raise ValueError(f'fields."{name}": a grid needs a list, or a range with a step')
        return self


@dataclass(frozen=True)
class SweepConfig:
    file: SweepFile
    tree: Tree  # of the base run
    folder: Path  # paths of the base run are relative to it
    base: Config
    metric: str
    direction: Literal["maximize", "minimize"]
    trials: int

    @property
    def identity(self) -> Tree:
        """What a sweep that is resumed must have in common with the one that began it."""
        fields = self.file.model_dump(exclude={"base", "trials"}, exclude_none=True)
        return {**fields, "run": self.base.model_dump(mode="json", exclude_none=True)}

    def trial(self, values: Mapping[str, Any]) -> Config:
        """The run of a trial."""
        tree = copy.deepcopy(self.tree)
        for name, value in values.items():
            apply_override(tree, f"{name}={json.dumps(value)}")
        return resolve(tree, base=self.folder, where=str(self.file.base))


def load_sweep(path: Path) -> SweepConfig:
    """Read a sweep's TOML file and the base run; every value of every field is tried."""
    try:
        file = SweepFile.model_validate(read_toml(path))
    except ValidationError as error:
        detail = error.errors()[0]
        field = ".".join(str(part) for part in detail["loc"] if part not in ("choices", "range"))
        reason = str(detail.get("ctx", {}).get("error", detail["msg"]))
        place = f"{field} = {shown(detail['input'])}: " if field else ""
        raise UsageError(f"{path}: {place}{reason}", code="E_SWEEP_FIELD") from None
    source = path.parent / Path(file.base).expanduser()
    tree = read_toml(source)
    base = resolve(tree, base=source.parent, where=str(source))
    metric = file.metric or str(base.train.metric)
    if metric not in METRICS[base.task.name]:
        raise UsageError(
            f'{path}: metric = "{metric}" is not a metric of "{base.task.name}": '
            f"{', '.join(METRICS[base.task.name])}",
            code="E_SWEEP_FIELD",
        )
    if base.data.valid is None:
        raise UsageError(f"{source}: a sweep compares validations: give data.valid", code="E_SWEEP_VALID")
    direction = file.direction or ("minimize" if metric in LOWER_IS_BETTER else "maximize")
    combinations = 20
    if file.sampler == "grid":
        combinations = len(list(grid(file)))
    trials = min(file.trials or combinations, combinations if file.sampler == "grid" else 10**9)
    sweep = SweepConfig(file, tree, source.parent, base, metric, direction, trials)
    with located(path):
        check_values(sweep)
    return sweep


def grid_values(values: list[Any] | Range) -> list[Any] | None:
    """All values of a field; None if there are too many to count."""
    if isinstance(values, list):
        return values
    step = values.step or (1 if values.is_whole and not values.log else None)
    if step is None:
        return None
    count = int((values.high - values.low) / step + 1e-9) + 1
    return [values.low + number * step for number in range(count)]


def grid(file: SweepFile) -> Iterator[dict[str, Any]]:
    values = [grid_values(each) or [] for each in file.fields.values()]
    for chosen in itertools.product(*values):
        yield dict(zip(file.fields, chosen))


def check_values(sweep: SweepConfig) -> None:
    """Refuse a value with which no run is possible, whatever the other fields are."""
    ends = {
        name: values if isinstance(values, list) else [values.low, values.high]
        for name, values in sweep.file.fields.items()
    }
    for name, values in ends.items():
        others = [[(other, each) for each in ends[other]] for other in ends if other != name]
        for value in values:
            first: RegardError | None = None
            for combination in itertools.islice(itertools.product(*others), MAX_COMBINATIONS):
                try:
                    sweep.trial({name: value, **dict(combination)})
                    break
                except RegardError as error:
                    first = first or error
            else:
                assert first is not None
                raise UsageError(f'fields."{name}" = {shown(value)}: {first}', code=first.code)
