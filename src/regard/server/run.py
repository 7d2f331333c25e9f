"""Runs the explorer or the API server: socket, uvicorn, graceful shutdown."""

from __future__ import annotations

import asyncio
import errno
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

from regard.device import freeze_gc
from regard.errors import UsageError
from regard.server.app import app_of, make_app
from regard.server.connections import protocol_for
from regard.server.lessons import LESSONS, Lesson
from regard.server.origin_policy import HOSTS, OriginPolicy
from regard.server.service import Service
from regard.server.telemetry import redirect_loggers

HOST = "127.0.0.1"
ANYWHERE = ("0.0.0.0", "::")
TEXT_THREADS = 4
NOTICED = 0.3  # seconds for which a draining server still answers 503


def serve(
    models: Mapping[str, Any],
    port: int,
    text: str | None,
    browser: bool,
    say: Callable[[str], None],
    lessons: Mapping[str, Lesson] = LESSONS,
) -> None:
    """Serve the explorer until interrupted; port 0 selects a free port."""
    listening = listen(port)
    query = f"?{urlencode({'text': text})}" if text else ""
    address = f"http://{HOST}:{listening.getsockname()[1]}/{query}"
    say(f"{address}  (Ctrl-C stops it)")
    if browser:
        Timer(0.3, webbrowser.open, [address]).start()
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(models, lessons=lessons), log_level="warning", access_log=False, server_header=False
        )
    )
    with listening:
        server.run([listening])


@dataclass(frozen=True)
class ListenAddress:
    """Where the server listens, and which clients it accepts."""

    address: str = HOST
    port: int = 8000
    hosts: tuple[str, ...] = ()  # further accepted Host headers
    origins: tuple[str, ...] = ()  # allowed cross-origin pages
    open: bool = False  # accept other machines without a key
    proxies: tuple[str, ...] = ()  # addresses of proxies that may name the client


HANDOVER = 0.0005  # switch interval in seconds: the event loop preempts computing threads sooner


def serve_api(service: Service, place: ListenAddress, say: Callable[[str], None]) -> None:
    """Serve the API and the explorer until signalled; then finish running requests."""
    check_open(service, place)
    listening = listen(place.port, place.address)
    for task in service.models.values():
        task.warm_up()
    server = server_of(service, place)
    sys.setswitchinterval(HANDOVER)
    freeze_gc()
    shown = f"[{place.address}]" if ":" in place.address else place.address
    # printed last: clients may connect as soon as they read it
    say(f"http://{shown}:{listening.getsockname()[1]}/  (Ctrl-C stops it)")
    with listening:
        server.run([listening])


def check_open(service: Service, place: ListenAddress) -> None:
    if place.address not in HOSTS and service.keys is None and not place.open:
        raise UsageError(
            f"{place.address} is reachable from other machines: give keys with --keys, or "
            "--insecure-no-key to serve everyone"
        )


def server_of(service: Service, place: ListenAddress) -> DrainingServer:
    redirect_loggers(service.log)
    limits = service.bounds
    config = uvicorn.Config(
        app_of(service, access_to(place), place.proxies),
        http=protocol_for(service.connections),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # see app_of
        backlog=2048,
        h11_max_incomplete_event_size=limits.headers,
        timeout_keep_alive=max(1, round(limits.idle_seconds)),
        timeout_graceful_shutdown=2,
    )
    return DrainingServer(config, service)


def access_to(place: ListenAddress) -> OriginPolicy:
    here = {place.address.lower()} - set(ANYWHERE)
    return OriginPolicy(
        hosts=HOSTS | here | {name.lower() for name in place.hosts},
        origins=frozenset(origin.lower().rstrip("/") for origin in place.origins),
    )


class DrainingServer(uvicorn.Server):
    """Graceful shutdown: rejects new requests with 503 and finishes the running ones."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service, self.drain_started = service, 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_default_executor(text_threads(TEXT_THREADS))
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.service.draining:  # second signal: exit at once
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
        await self.service.drain()  # pending requests fail
        await super().shutdown(sockets)
        self.service.close()
        self.service.log("ended")
        self.service.log.close()


def text_threads(count: int) -> ThreadPoolExecutor:
    """A thread pool for tokenizing, with all threads started: lazy ones would look like a leak."""
    threads, all_there = ThreadPoolExecutor(count, "text"), Barrier(count + 1)
    for _ in range(count):
        threads.submit(all_there.wait)  # each waiting thread takes one task
    all_there.wait()
    return threads


def listen(port: int, address: str = HOST) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets with IPPROTO_TCP; without it responses wait 40 ms for an ACK.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address, port))
        listening.listen(2048)  # early connections wait instead of failing
    except OSError as error:
        listening.close()
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise UsageError(
                f"--host {address} is not an address of this machine; accepted names are --allow-host",
                code="E_SERVE_HOST",
            ) from None
        raise UsageError(
            f"port {port}: {error.strerror}; choose another with --port; 0 selects a free one",
            code="E_SERVE_PORT",
        ) from None
    return listening
