"""`regard explore`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.builtin import builtin_models
from regard.cli.terminal import Device, Threads, say, thread_count
from regard.errors import UsageError

Shown = Annotated[
    list[Path] | None,
    typer.Option("--model", "-m", help="A model folder or name, or several; else those of the package."),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Of 127.0.0.1; 0 takes a free one.")]


def explore(
    model: Shown = None,
    text: Annotated[str | None, typer.Argument(help="The text to begin with.")] = None,
    port: Port = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Open a page that shows every step of a model on your own text.

    The page is served by this machine to this machine; nothing leaves it.

    [bold]Examples[/]

      regard explore
      regard explore -m runs/demo "I see the small house."
      regard explore -m runs/demo -m runs/rnn --no-browser --port 8765
    """
    from regard.server import serve
    from regard.tasks import load
    from regard.tasks.traceable import Traceable

    opened = {
        name: load(path, device, thread_count(threads), "float32")
        for name, path in named(model or builtin_models()).items()
    }
    for name, task in opened.items():
        if not isinstance(task, Traceable):
            raise UsageError(f"{name}: it only gives vectors (regard embed); the page shows tasks")
    serve(opened, port, text, not no_browser, say)


def named(paths: list[Path]) -> dict[str, Path]:
    """The last part of a path as the name, or as many parts as tell it from the others."""
    given = {path.resolve(): path for path in paths}
    tails = {whole: ["/".join(whole.parts[-n:]) for n in range(1, len(whole.parts))] for whole in given}
    count = Counter(tail for own in tails.values() for tail in own)
    names = [
        next((tail for tail in tails[whole] if count[tail] == 1), f"{whole.name}-{number}")
        for number, whole in enumerate(given, start=1)
    ]
    return dict(zip(names, given.values()))
