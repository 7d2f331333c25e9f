"""A real server with small models of every task, in a thread of the tests."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from torch import nn

from regard.models.encoder import EncoderOnly
from regard.models.layers import Linear
from regard.server.run import DrainingServer, ListenAddress, listen, server_of
from regard.server.service import Service
from regard.server.telemetry import Log
from regard.storage.folder import BareEncoder
from regard.tasks import Embedder
from traced_models import opened_task

TASKS = ["transformer", "gpt", "llama", "t5 gated", "fill", "classify", "tag", "answer"]


@cache
def models() -> Mapping[str, Any]:
    found = {kind: opened_task(kind) for kind in TASKS}
    translator = copy(found["transformer"])
    task = translator.folder.task.model_copy(update={"source": "en", "target": "de"})
    translator.folder = replace(translator.folder, task=task)
    found["transformer"] = translator
    return {**found, "embed": embedder()}


def embedder() -> Embedder:
    folder = opened_task("fill").folder
    whole = folder.model
    model = EncoderOnly(whole.source, whole.encoder, nn.Identity(), cast(Linear, nn.Identity()))
    return Embedder(BareEncoder(Path("small"), Path("small"), folder.config, folder.source, model.eval()))


@dataclass
class Served:
    port: int
    service: Service
    server: DrainingServer
    log: io.StringIO

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(self, raw: bytes, wait: float = 5.0, end: bool = False) -> bytes:
        """Raw bytes to the server, and all that comes back until it closes or says nothing more."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as own:
            own.sendall(raw)
            if end:
                own.shutdown(socket.SHUT_WR)
            return receive_all(own)


def receive_all(own: socket.socket) -> bytes:
    found = b""
    try:
        while part := own.recv(1 << 16):
            found += part
    except (TimeoutError, ConnectionError):
        pass
    return found


@contextmanager
def served(place: ListenAddress = ListenAddress(port=0), **options: Any) -> Iterator[Served]:
    log = io.StringIO()
    service = Service(**{"models": models(), "log": Log(log, True), **options})
    server, listening = server_of(service, place), listen(place.port)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Served(listening.getsockname()[1], service, server, log)
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
    assert not thread.is_alive()
