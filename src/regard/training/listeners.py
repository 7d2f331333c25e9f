"""`Listener`: who receives what a run reports: a terminal view, a tracker, a caller's object."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from regard.compat import OldNameWarning
from regard.config import Config

Record = dict[str, Any]
Ending = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class RunInfo:
    """What a listener gets when a run starts."""

    folder: Path
    config: Config
    step: int  # 0, or that of the checkpoint that the run resumes from
    stop: Callable[[], None]  # ask the run to save and end after this update, as Ctrl-C does
    records: Sequence[Record] = ()  # of a resumed run: its records up to `step`
    reported: Mapping[str, int] = field(default_factory=dict)  # kind -> last step reported before the resume


class Listener:
    """Receives what a run reports, on rank 0. A listener has any of these methods, all are optional."""

    def start(self, run: RunInfo) -> None: ...
    def log(self, text: str) -> None: ...
    def record(self, record: Record) -> None:
        """A line of metrics.jsonl, with its `kind` and `step`."""

    def end(self, ending: Ending) -> None:
        """All files of the run are written, its report too if it is finished."""


class Listeners(Listener):
    """Passes every call on to all. One that raises is reported once and dropped: it never ends a run."""

    def __init__(self, listeners: Sequence[Any]) -> None:
        self.listeners = list(listeners)

    def start(self, run: RunInfo) -> None:
        self.call("start", run)

    def log(self, text: str) -> None:
        self.call("log", text)

    def record(self, record: Record) -> None:
        self.call("record", record)

    def end(self, ending: Ending) -> None:
        self.call("end", ending)

    def call(self, method: str, *arguments: Any) -> None:
        failures = []
        for listener in list(self.listeners):
            function = getattr(listener, method, None)
            if method == "log" and function is None:  # its name in version 1
                function = getattr(listener, "say", None)
            try:
                if function is not None:
                    function(*arguments)
            except Exception as error:
                self.listeners.remove(listener)
                failures.append(
                    f"{type(listener).__name__}: {type(error).__name__}: {error}; "
                    "the run goes on without this listener"
                )
        for text in failures:
            self.log(text)


def as_listeners(listeners: object, listener: object) -> list[Any]:
    """The listeners of a call of `train`; `listener` is the argument of the time when there was one."""
    if listener is not None:
        warnings.warn("listener is an old name of listeners, a list", OldNameWarning, stacklevel=3)
    many = list(listeners) if isinstance(listeners, Sequence) else [listeners]
    return [each for each in [*many, listener] if each is not None]


def trackers(config: Config) -> list[Listener]:
    """Those of `train.track`; a package that is missing is a UsageError."""
    if not config.train.track:
        return []
    from regard.training.trackers import make_trackers

    return make_trackers(config.train.track)
