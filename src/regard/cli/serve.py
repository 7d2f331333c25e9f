"""`regard serve`, and `regard serve keys add | list | revoke`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard.cli.explore import Lessons, Models, open_models
from regard.cli.terminal import Device, Precision, Threads, print_line, say
from regard.errors import UsageError


class ServeGroup(TyperGroup):
    """`serve keys add | list | revoke` manages keys; anything else runs the server.

    Folders called "keys" or "run" are served all the same: by -m, or where nothing else can be meant.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] == ["keys"] and len(args) == 1 and Path("keys").is_dir():
            raise UsageError(
                'keys: "regard serve -m keys" serves the folder, "regard serve keys --help" lists commands',
                code="E_SERVE_KEYS",
            )
        manages = args[:1] == ["keys"] and (args[1:2] or ["--help"])[0] in ("add", "list", "revoke", "--help")
        return super().parse_args(ctx, args if manages else ["run", *args])


app = typer.Typer(
    cls=ServeGroup, help="Serve models over HTTP: translation, completion and more, and the explorer."
)
keys = typer.Typer(help="Manage API keys: a file of names and salted hashes.", no_args_is_help=True)
app.add_typer(keys, name="keys")

Folders = Annotated[list[Path] | None, typer.Argument(help="The same as -m.", metavar="DIR", hidden=True)]
Adapters = Annotated[
    list[str],
    typer.Option(
        "--adapter",
        metavar="NAME=DIR",
        help="An adapter for the model, which requests choose by name; repeatable.",
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses a free one.")]
Host = Annotated[
    list[str],
    typer.Option("--host", help="Address to listen on; default 127.0.0.1; 0.0.0.0 = all interfaces."),
]
Listen = Annotated[str | None, typer.Option(hidden=True)]  # of earlier versions, see listen_address
AllowHost = Annotated[
    list[str], typer.Option("--allow-host", help="Accepted Host header, such as mt.example.org; repeatable.")
]
Proxies = Annotated[
    list[str],
    typer.Option(
        "--trust-proxy",
        help="Address or network of a proxy whose X-Forwarded-For names the client; repeatable.",
    ),
]
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
    model: Models = None,
    adapter: Adapters = [],  # noqa: B006
    port: Port = 8000,
    host: Host = [],  # noqa: B006
    allow_host: AllowHost = [],  # noqa: B006
    listen: Listen = None,
    trust_proxy: Proxies = [],  # noqa: B006
    keys: KeyFile = None,
    insecure_no_key: Anybody = False,
    cors_origin: Origins = [],  # noqa: B006
    log_text: LogText = False,
    queue_tokens: Queue = 20_000,
    timeout: Seconds = 30.0,
    largest_body: Body = 1 << 20,
    drain: Drain = 30.0,
    lessons: Lessons = None,
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
      regard serve -m runs/demo
      regard serve -m models/smollm2 --adapter pirate=runs/pirate/adapter --adapter poet=someone/poet
      regard serve keys add keys.json anna
      regard serve -m runs/demo -m runs/gpt --host 0.0.0.0 --allow-host mt.example.org --keys keys.json
    """
    from regard.server.keys import Keys
    from regard.server.lessons import add_lessons
    from regard.server.requests import ServerLimits
    from regard.server.run import ListenAddress, serve_api
    from regard.server.scheduler import BatchLimits
    from regard.server.service import Service
    from regard.server.telemetry import Log

    documents = add_lessons(lessons)
    address, names = listen_address(host, allow_host, listen)
    place = ListenAddress(
        address, port, tuple(names), tuple(cors_origin), insecure_no_key, tuple(trust_proxy)
    )
    for origin in cors_origin:
        if not origin.startswith(("http://", "https://")):
            raise UsageError(f"--cors-origin {origin}: give it as https://example.org")
    api_keys = Keys(keys) if keys is not None else None
    adapters = named_adapters(adapter)
    opened = open_models([*(folders or []), *(model or [])], device, threads, precision, adapters=adapters)
    bounds = ServerLimits(body=largest_body, request_seconds=timeout, drain_seconds=drain)
    limits = BatchLimits(queue_tokens=queue_tokens)
    service = Service(opened, bounds, limits, api_keys, Log(texts=log_text), lessons=documents)
    serve_api(service, place, say)


def named_adapters(given: list[str]) -> dict[str, Path]:
    """--adapter NAME=DIR, by name."""
    adapters: dict[str, Path] = {}
    for each in given:
        name, equals, folder = each.partition("=")
        if not (name.strip() and equals and folder) or name in adapters:
            raise UsageError(
                f"--adapter {each}: give NAME=DIR, each name once, such as pirate=runs/pirate/adapter",
                code="E_ADAPTER",
            )
        adapters[name] = Path(folder)
    return adapters


def listen_address(host: list[str], allow_host: list[str], listen: str | None) -> tuple[str, list[str]]:
    """The address to listen on, and the accepted Host headers.

    In earlier versions --listen was the address and --host an accepted name: with --listen it still is.
    """
    if listen is not None:
        say("--listen is an old name of --host; what --host was is --allow-host")
        return listen, [*allow_host, *host]
    if len(host) > 1:
        raise UsageError("--host: give one address; accepted names are --allow-host", code="E_SERVE_HOST")
    return (host or ["127.0.0.1"])[0], allow_host


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
