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
    """`serve keys ...` manages keys; anything else runs the server."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args[:1] in (["keys"], ["run"]) else ["run", *args])


app = typer.Typer(
    cls=Either, help="Serve models over HTTP: translation, completion and more, and the explorer."
)
keys = typer.Typer(help="Manage API keys: a file of names and salted hashes.", no_args_is_help=True)
app.add_typer(keys, name="keys")

Folders = Annotated[
    list[Path] | None,
    typer.Argument(help="Model folders or names; default: the built-in models.", metavar="DIR"),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses a free one.")]
Listen = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 = all interfaces.")]
Hosts = Annotated[list[str], typer.Option("--host", help="Accepted Host header; repeatable.")]
KeyFile = Annotated[Path | None, typer.Option("--keys", help="File of API keys that requests must have.")]
Anybody = Annotated[bool, typer.Option("--insecure-no-key", help="Listen on other interfaces without keys.")]
Origins = Annotated[
    list[str],
    typer.Option("--cors-origin", help="Allowed CORS origin, such as https://example.org; repeatable."),
]
LogText = Annotated[bool, typer.Option("--log-text", help="Write the texts of requests into the log.")]
Queue = Annotated[
    int, typer.Option(min=100, help="Maximum number of queued tokens; further requests are refused.")
]
Seconds = Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds until a request times out.")]
Body = Annotated[int, typer.Option(min=1024, max=1 << 30, help="Maximum size of a request in bytes.")]
Drain = Annotated[
    float, typer.Option(min=0, max=3600, help="Seconds to finish running requests after SIGTERM.")
]
File = Annotated[Path, typer.Argument(help="File of API keys.")]
Name = Annotated[str, typer.Argument(help="Name of the key.")]


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
    """Serve models over HTTP: the APIs of LibreTranslate and OpenAI, a native API, and the explorer.

    Concurrent requests are batched. /docs shows the routes, /api/v1/limits the
    limits. SIGTERM stops the server after the running requests. The log is JSON
    on stderr, without texts of requests.

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
    api_keys = Keys(keys) if keys is not None else None
    opened = {
        name: load(path, device, thread_count(threads), precision)
        for name, path in unique_names(folders or builtin_models()).items()
    }
    bounds = ServerLimits(body=largest_body, request_seconds=timeout, drain_seconds=drain)
    service = Service(opened, bounds, BatchLimits(queue_tokens=queue_tokens), api_keys, Log(texts=log_text))
    serve_api(service, place, say)


@keys.command("add")
def add(file: File, name: Name) -> None:
    """Create a key and print it once; the file contains only its hash.

    [bold]Example[/]

      regard serve keys add keys.json anna
    """
    from regard.server.keys import add_key

    print_line(add_key(file, name))
    say(f"Added key '{name}'; clients send it as Authorization: Bearer KEY, or as api_key")


@keys.command("list")
def list_keys(file: File) -> None:
    """List the names of the keys.

    [bold]Example[/]

      regard serve keys list keys.json
    """
    from regard.server.keys import read_keys

    for key in read_keys(file):
        print_line(f"{key.name}\t{key.created}")


@keys.command("revoke")
def revoke(file: File, name: Name) -> None:
    """Revoke a key, also for a running server.

    [bold]Example[/]

      regard serve keys revoke keys.json anna
    """
    from regard.server.keys import revoke_key

    revoke_key(file, name)
    say(f"Revoked key '{name}'")
