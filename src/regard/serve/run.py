"""The server as a process of this machine."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable, Mapping
from threading import Timer
from typing import Any
from urllib.parse import urlencode

import uvicorn

from regard.errors import UsageError
from regard.serve.app import make_app

HOST = "127.0.0.1"


def serve(
    models: Mapping[str, Any], port: int, text: str | None, browser: bool, say: Callable[[str], None]
) -> None:
    """Serve the page until interrupted; port 0 takes a free one."""
    listening = listen(port)
    query = f"?{urlencode({'text': text})}" if text else ""
    address = f"http://{HOST}:{listening.getsockname()[1]}/{query}"
    say(f"{address}  (Ctrl-C ends it)")
    if browser:
        Timer(0.3, webbrowser.open, [address]).start()
    server = uvicorn.Server(
        uvicorn.Config(make_app(models), log_level="warning", access_log=False, server_header=False)
    )
    with listening:
        server.run([listening])


def listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # who comes before the server runs waits a moment, and is not refused
    except OSError as error:
        listening.close()
        raise UsageError(
            f"port {port}: {error.strerror}; give another with --port, 0 takes a free one"
        ) from None
    return listening
