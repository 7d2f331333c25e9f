"""`regard explore`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.builtin import builtin_models
from regard.cli.terminal import Device, Precision, Threads, say, thread_count
from regard.errors import UsageError

Models = Annotated[
    list[Path] | None,
    typer.Option("--model", "-m", help="A model folder or name; repeatable; default: the built-in models."),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 selects a free one.")]


def explore(
    model: Models = None,
    text: Annotated[str | None, typer.Argument(help="The text to show first.")] = None,
    port: Port = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    device: Device = "auto",
    threads: Threads = 0,
    precision: Precision = "auto",
) -> None:
    """Open a web page that shows every step of a model on your text.

    The server listens on this machine only; no data leaves it.

    [bold]Examples[/]

      regard explore
      regard explore -m runs/demo "I see the small house."
      regard explore -m runs/demo -m runs/rnn --no-browser --port 8765
    """
    from regard.server import serve
    from regard.tasks import load
    from regard.tasks.task_model import TaskModel

    tasks = {
        name: load(path, device, thread_count(threads), "float32" if precision == "auto" else precision)
        for name, path in unique_names(model or builtin_models()).items()
    }
    for name, task in tasks.items():
        if not isinstance(task, TaskModel):
            raise UsageError(f"{name}: the page does not show embedding models (see regard embed)")
    serve(tasks, port, text, not no_browser, say)


def unique_names(paths: list[Path]) -> dict[str, Path]:
    """The last part of each path, or as many parts as distinguish it from the others."""
    resolved = {path.resolve(): path for path in paths}
    tails = {path: ["/".join(path.parts[-n:]) for n in range(1, len(path.parts))] for path in resolved}
    count = Counter(tail for each in tails.values() for tail in each)
    names = [
        next((tail for tail in tails[path] if count[tail] == 1), f"{path.name}-{number}")
        for number, path in enumerate(resolved, start=1)
    ]
    return dict(zip(names, resolved.values()))
