"""`regard serve`, and `regard serve keys add | list | revoke`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard.cli.builtin import builtin_models
from regard.cli.explore import unique_names
from regard.cli.terminal import Device, Precision, Threads, print_line, say, thread_count
from regard.errors import UsageError


class Either(TyperGroup):
    """`serve keys ...` manages keys; anything else is what to serve."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in (["keys"], ["run"]) else ["run", *args])


app = typer.Typer(
    cls=Either, help="Answer programs and the page over HTTP: translation, completion and more."
)
keys = typer.Typer(help="Who may ask: a file of named keys, kept as salted hashes.", no_args_is_help=True)
app.add_typer(keys, name="keys")

Folders = Annotated[
    list[Path] | None,
    typer.Argument(help="Model folders or names; else the package's own.", metavar="DIR"),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")]
Listen = Annotated[str, typer.Option(help="The address to listen at; 0.0.0.0 is every one of this machine.")]
Hosts = Annotated[list[str], typer.Option("--host", help="A name that clients call this server by; several.")]
KeyFile = Annotated[Path | None, typer.Option("--keys", help="The file of keys; without a key no answer.")]
Anybody = Annotated[
    bool, typer.Option("--insecure-no-key", help="Listen beyond this machine and answer everybody.")
]
Origins = Annotated[
    list[str], typer.Option("--cors-origin", help="A page that may ask, as https://example.org; several.")
]
LogText = Annotated[bool, typer.Option("--log-text", help="Write what was asked into the log.")]
Queue = Annotated[int, typer.Option(min=100, help="Pieces that may wait; what comes then is refused.")]
Seconds = Annotated[float, typer.Option(min=0.1, max=3600, help="For one answer.")]
Body = Annotated[int, typer.Option(min=1024, max=1 << 30, help="Bytes of a request at most.")]
Drain = Annotated[float, typer.Option(min=0, max=3600, help="Seconds to finish in, once told to end.")]
File = Annotated[Path, typer.Argument(help="The file of keys.")]
Name = Annotated[str, typer.Argument(help="Whose key it is.")]


@app.command("run")
def serve(
    folders: Folders = None,
    port: Port = 8000,
    listen: Listen = "127.0.0.1",
    host: Hosts = [],  # noqa: B006
    keys: KeyFile = None,
    insecure_no_key: Anybody = False,
    cors_origin: Origins = [],  # noqa: B006
    log_text: LogText = False,
    queue_tokens: Queue = 20_000,
    timeout: Seconds = 30.0,
    largest_body: Body = 1 << 20,
    drain: Drain = 30.0,
    device: Device = "auto",
    threads: Threads = 0,
    precision: Precision = "auto",
) -> None:
    """Answer programs over HTTP: LibreTranslate's routes, OpenAI's and our own; and the explorer's page.

    Requests that come together are computed together. /docs shows the routes,
    /api/v1/limits how much may be asked. SIGTERM ends it once what has begun is
    done. The log is JSON on stderr, without any text of a request.

    [bold]Examples[/]

      regard serve
      regard serve runs/demo
      regard serve keys add keys.json anna
      regard serve runs/demo runs/gpt --listen 0.0.0.0 --host mt.example.org --keys keys.json
    """
    from regard.server.keys import Keys
    from regard.server.requests import ServerLimits
    from regard.server.run import ListenAddress, serve_api
    from regard.server.service import Service
    from regard.server.service_scheduler import BatchLimits
    from regard.server.telemetry import Log
    from regard.tasks import load

    place = ListenAddress(listen, port, tuple(host), tuple(cors_origin), insecure_no_key)
    for origin in cors_origin:
        if not origin.startswith(("http://", "https://")):
            raise UsageError(f"--cors-origin {origin}: give it as https://example.org")
    known = Keys(keys) if keys is not None else None
    opened = {
        name: load(path, device, thread_count(threads), precision)
        for name, path in unique_names(folders or builtin_models()).items()
    }
    bounds = ServerLimits(body=largest_body, request_seconds=timeout, drain_seconds=drain)
    service = Service(opened, bounds, BatchLimits(queue_tokens=queue_tokens), known, Log(texts=log_text))
    serve_api(service, place, say)


@keys.command("add")
def add(file: File, name: Name) -> None:
    """Make a key and print it; it is shown once and kept nowhere.

    [bold]Example[/]

      regard serve keys add keys.json anna
    """
    from regard.server.keys import add_key

    print_line(add_key(file, name))
    say(f"{file} knows {name} now; clients send it as Authorization: Bearer KEY, or as api_key")


@keys.command("list")
def list_keys(file: File) -> None:
    """Show whose keys there are.

    [bold]Example[/]

      regard serve keys list keys.json
    """
    from regard.server.keys import read_keys

    for key in read_keys(file):
        print_line(f"{key.name}\t{key.created}")


@keys.command("revoke")
def revoke(file: File, name: Name) -> None:
    """Take a key away; a running server knows at once.

    [bold]Example[/]

      regard serve keys revoke keys.json anna
    """
    from regard.server.keys import revoke_key

    revoke_key(file, name)
    say(f"{name} may not ask any more")
