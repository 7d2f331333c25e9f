"""The server as a process of this machine."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier, Timer
from types import FrameType
from typing import Any
from urllib.parse import urlencode

import uvicorn
from fastapi import FastAPI
from starlette.middleware import Middleware

from regard.device import freeze_gc
from regard.errors import UsageError
from regard.server.api.register import ROUTES, add_api
from regard.server.app import make_app
from regard.server.middleware import BodyAndKeyMiddleware, KeyPolicy, RequestLogMiddleware
from regard.server.origin_policy import HOSTS, OriginPolicy
from regard.server.protocol import EarlyRejection, protocol_for
from regard.server.service import Service
from regard.server.telemetry import redirect_loggers
from regard.tasks import Translator

HOST = "127.0.0.1"
ANYWHERE = ("0.0.0.0", "::")
TEXT_THREADS = 4
NOTICED = 0.3  # seconds in which whoever asks learns that the server will end


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


@dataclass(frozen=True)
class ListenAddress:
    """Where a server listens, and whom it answers."""

    address: str = HOST
    port: int = 8000
    hosts: tuple[str, ...] = ()  # its other names
    origins: tuple[str, ...] = ()  # other pages that may ask
    open: bool = False  # to everybody, without a key, beyond this machine


HANDOVER = 0.0005  # seconds after which a thread that computes lets the one that answers in; usually 0.005


def serve_api(service: Service, place: ListenAddress, say: Callable[[str], None]) -> None:
    """Answer programs and the page until told to end; then finish what has begun."""
    check_open(service, place)
    listening = listen(place.port, place.address)
    for task in service.models.values():
        if isinstance(task, Translator):
            task.warm_up()
    server = server_of(service, place)
    sys.setswitchinterval(HANDOVER)
    freeze_gc()
    shown = f"[{place.address}]" if ":" in place.address else place.address
    # only now: who reads the address asks at once
    say(f"http://{shown}:{listening.getsockname()[1]}/  (Ctrl-C ends it)")
    with listening:
        server.run([listening])


def check_open(service: Service, place: ListenAddress) -> None:
    if place.address not in HOSTS and service.keys is None and not place.open:
        raise UsageError(
            f"{place.address} is seen by other machines: give keys with --keys, or --insecure-no-key if "
            "everybody there may ask"
        )


def server_of(service: Service, place: ListenAddress) -> DrainingServer:
    redirect_loggers(service.log)
    bounds = service.bounds
    paths = frozenset(route.path for route in ROUTES if route.reads is not None and route.models)
    early_rejection = EarlyRejection(service, access_to(place), KEY_POLICY, paths)
    config = uvicorn.Config(
        app_of(service, place),
        http=protocol_for(bounds, early_rejection),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=max(1, round(bounds.idle_seconds)),
        timeout_graceful_shutdown=2,
    )
    return DrainingServer(config, service)


KEY_POLICY = KeyPolicy(
    keyless=frozenset(route.path for route in ROUTES if route.open),
    fields=frozenset(route.path for route in ROUTES if route.group == "LibreTranslate"),
)


def access_to(place: ListenAddress) -> OriginPolicy:
    here = {place.address.lower()} - set(ANYWHERE)
    return OriginPolicy(
        hosts=HOSTS | here | {name.lower() for name in place.hosts},
        origins=frozenset(origin.lower().rstrip("/") for origin in place.origins),
        forms=frozenset(route.path for route in ROUTES if route.form),
        bodiless=frozenset(route.path for route in ROUTES if route.reads is None),
        counted=True,
    )


def app_of(service: Service, place: ListenAddress = ListenAddress()) -> FastAPI:
    """The explorer's app with all routes, and what stands around them."""
    app = make_app(service.models, access_to(place))
    add_api(app, service)
    routes = frozenset(str(getattr(route, "path", "")) for route in app.routes)
    app.user_middleware.insert(0, Middleware(RequestLogMiddleware, service=service, routes=routes))
    app.user_middleware.append(Middleware(BodyAndKeyMiddleware, service=service, locks=KEY_POLICY))
    return app


class DrainingServer(uvicorn.Server):
    """Ends in peace: no new work, what has begun is finished, and the door stays open until then."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service, self.drain_started = service, 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_default_executor(text_threads(TEXT_THREADS))
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.service.draining:  # told twice: at once
            super().handle_exit(sig, frame)
            return
        self.service.draining, self.drain_started = True, time.monotonic()
        self.service.log("draining", in_flight=self.service.in_flight)

    async def on_tick(self, counter: int) -> bool:
        if self.service.draining:
            passed = time.monotonic() - self.drain_started
            done = not self.service.in_flight and passed >= NOTICED
            self.should_exit |= done or passed > self.service.bounds.drain_seconds
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for scheduler in self.service.schedulers.values():
            await scheduler.drain(0)  # who still waits is told
        await super().shutdown(sockets)
        self.service.close()
        self.service.log("ended")


def text_threads(count: int) -> ThreadPoolExecutor:
    """Threads that cut texts and put them together, all there from the start: a server that begins them as
    it needs them would seem to leak."""
    threads, all_there = ThreadPoolExecutor(count, "text"), Barrier(count + 1)
    for _ in range(count):
        threads.submit(all_there.wait)  # one that waits takes no other's
    all_there.wait()
    return threads


def listen(port: int, address: str = HOST) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # The protocol is named, or asyncio would not take this for TCP and let each answer wait for the client's
    # acknowledgement of its own head: 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
        listening.listen(2048)  # who comes before the server runs waits a moment, and is not refused
    except OSError as error:
        listening.close()
        raise UsageError(
            f"port {port}: {error.strerror}; give another with --port, 0 takes a free one"
        ) from None
    return listening
