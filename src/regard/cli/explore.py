"""`regard explore`: the page, from a server on this machine or as a static site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.builtin import builtin_models
from regard.cli.terminal import Device, Precision, Threads, say, thread_count
from regard.errors import UsageError

Models = Annotated[
    list[Path] | None,
    typer.Option("--model", "-m", help="A model folder or name; repeatable; default: the built-in models."),
]
Lessons = Annotated[
    Path | None, typer.Option(metavar="DIR", help="A folder of lessons (NN-name.md) to add to the page.")
]
Site = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Write the page as a static site into this folder; models run in the browser."
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 selects a free one.")]

SITE_MODEL = "phrasebook-transformer"  # with which a site of the built-in models opens


def explore(
    model: Models = None,
    text: Annotated[str | None, typer.Argument(help="The text to show first.")] = None,
    port: Port = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    lessons: Lessons = None,
    site: Site = None,
    device: Device = "auto",
    threads: Threads = 0,
    precision: Precision = "auto",
) -> None:
    """Open a web page that shows every step of a model on your text.

    The server listens on this machine only; no data leaves it. With [bold]--site[/] the page is
    written as a folder that any web server shows; its models run in the browser.

    [bold]Examples[/]

      regard explore
      regard explore -m runs/demo "I see the small house."
      regard explore -m runs/demo -m runs/rnn --no-browser --port 8765
      regard explore --lessons lessons/
      regard explore --site public
    """
    from regard.server import serve
    from regard.server.lessons import add_lessons
    from regard.server.site import write_site
    from regard.tasks import Embedder

    documents = add_lessons(lessons)
    if site is not None:
        check_site_options(text, port, no_browser, precision)
        tasks = open_models(model or first_small(builtin_models()), "cpu", threads, "float32", "plain")
        size = write_site(site, tasks, documents, say, skip=not model)
        first, whole = size.first / 1e6, size.whole / 1e6
        say(f"wrote {site}: {size.files} files, {whole:.1f} MB; {first:.1f} MB before the first picture")
        return
    tasks = open_models(model, device, threads, "float32" if precision == "auto" else precision)
    for name, task in tasks.items():
        if isinstance(task, Embedder):
            raise UsageError(f"{name}: the page does not show embedding models (see regard embed)")
    serve(tasks, port, text, not no_browser, say, documents)


def check_site_options(text: str | None, port: int, no_browser: bool, precision: str) -> None:
    """Options of the server have no effect on a site."""
    if text is not None or port or no_browser or precision not in ("auto", "float32"):
        raise UsageError(
            "--site: no server is started; leave TEXT, --port, --no-browser and --precision out",
            code="E_OPTION_OUTPUT",
        )


def first_small(paths: list[Path]) -> list[Path]:
    """The built-in models, the one first with which a site opens: it is fetched in a second."""
    return sorted(paths, key=lambda path: path.name != SITE_MODEL)


def open_models(
    paths: list[Path] | None,
    device: str,
    threads: int,
    precision: str,
    engine: str = "auto",
    adapters: Mapping[str, Path] = {},
) -> dict[str, Any]:
    """Models by name; without paths the built-in ones. Adapters are put on the only one."""
    from regard.tasks import load, load_adapters

    named = unique_names(paths or builtin_models())
    count = thread_count(threads)
    if adapters:
        if len(named) > 1:
            raise UsageError(
                f"--adapter needs one model, not {len(named)}; -m BASE+ADAPTER is another way",
                code="E_ADAPTER",
            )
        return load_adapters(next(iter(named.values())), adapters, device, count, precision, engine)
    return {name: load(path, device, count, precision, engine) for name, path in named.items()}


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
