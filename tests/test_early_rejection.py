"""A full server refuses at its door; what it says there is what its routes would say."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from regard.server.api.register import ROUTES
from regard.server.keys import Keys, add_key
from regard.server.protocol import HELD_SECONDS, LARGEST_HELD, EarlyRejection
from regard.server.requests import ServerLimits
from regard.server.run import KEY_POLICY, ListenAddress, access_to
from served import Served, served
from traced_models import TEXT

BODY = json.dumps({"q": TEXT, "source": "en", "target": "de"}).encode()
PATHS = [route.path for route in ROUTES if route.reads is not None and route.models]
OWN = {"date", "x-request-id"}


def full(own: Served, is_full: bool = True) -> Served:
    for desk in own.service.schedulers.values():
        desk.queue_tokens = desk.limits.queue_tokens if is_full else 0
    return own


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as own:
        yield full(own)


def request(path: str = "/translate", body: bytes = BODY, *lines: str, host: str = "127.0.0.1") -> bytes:
    own = [f"Host: {host}", "Content-Type: application/json", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join([f"POST {path} HTTP/1.1", *own]).encode() + b"\r\n\r\n" + body


class Client:
    """One connection, which asks again and again."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.file = self.socket.makefile("rb")

    def answer(self) -> tuple[int, dict[str, str], Any]:
        status = int(self.file.readline().split()[1])
        lines = iter(lambda: self.file.readline().decode().strip(), "")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return status, headers, json.loads(self.file.read(int(headers["content-length"])))

    def ask(self, *parts: bytes, pause: float = 0.05) -> tuple[int, dict[str, str], Any]:
        for number, part in enumerate(parts):
            time.sleep(pause if number else 0)
            self.socket.sendall(part)
        return self.answer()


@contextmanager
def client(own: Served) -> Iterator[Client]:
    found = Client(own.port)
    try:
        yield found
    finally:
        found.file.close()
        found.socket.close()


def turned_away(own: Served) -> EarlyRejection:
    place = ListenAddress(port=0)
    return EarlyRejection(own.service, access_to(place), KEY_POLICY, frozenset(PATHS))


@pytest.mark.parametrize("path", PATHS)
def test_it_says_what_the_route_says(server: Served, path: str) -> None:
    """The same status, headers and words, on a connection that stays; a query makes a request go the usual
    way."""
    assert turned_away(server).answer(request(path))
    assert turned_away(server).answer(request(f"{path}?usual")) is None
    with client(server) as own:
        at_the_door, inside = own.ask(request(path)), own.ask(request(f"{path}?usual"))
    assert at_the_door[0] == inside[0] == 429
    assert at_the_door[1].keys() == inside[1].keys() >= OWN | {"retry-after", "content-security-policy"}
    for name in at_the_door[1].keys() - OWN:
        assert at_the_door[1][name] == inside[1][name], name
    assert at_the_door[2] == inside[2]
    assert isinstance(inside[2]["error"], dict if path.startswith("/v1/") else str)


def test_it_is_counted_and_told_as_others_are() -> None:
    with served() as own, client(full(own)) as asked:
        number = asked.ask(request("/translate", BODY, "X-Request-ID: mine-1"))[1]["x-request-id"]
        assert number == "mine-1"
        assert asked.ask(request("/translate", BODY, "X-Request-ID: a b"))[1]["x-request-id"] != "a b"
        asked.ask(request("/translate?usual"))
        while own.log.getvalue().count("\n") < 3:  # one that went the usual way is told when it is over
            time.sleep(0.01)
        first, second, third = (json.loads(line) for line in own.log.getvalue().splitlines())
        for each in (first, second, third):
            assert (each["route"], each["status"], each["method"]) == ("/translate", 429, "POST")
        assert first["id"] == "mine-1" and first.keys() == third.keys()
        told = own.service.metrics.text()
        assert 'regard_requests_total{method="POST",route="/translate",status="429"} 3' in told
        assert "regard_refused_total 3" in told
        assert {desk.counts["refused"] for desk in own.service.schedulers.values()} == {3}


def test_a_body_that_comes_behind_its_head(server: Served) -> None:
    """Most clients send the head first. A body that is slow is waited for as others are, and one that comes
    in drops does not stop that."""
    head, _, body = request().partition(b"\r\n\r\n")
    head += b"\r\n\r\n"
    with client(server) as own:
        for _ in range(3):
            assert own.ask(head, body)[0] == 429
            assert own.ask(head[:30], head[30:], body[:5], body[5:])[0] == 429
        assert own.ask(head, body[:9], body[9:], pause=2 * HELD_SECONDS)[0] == 429
        begun = time.monotonic()
        drops = [body[at : at + 1] for at in range(len(body))]
        assert own.ask(head, *drops, pause=0.6 / len(drops))[0] == 429
        assert time.monotonic() - begun > HELD_SECONDS
    large = request(body=b" " * (LARGEST_HELD + 1))
    assert turned_away(server).answer(large) and turned_away(server).answer(large[:-1]) is None
    assert turned_away(server).answer(head) == b""


def test_room_while_a_body_comes() -> None:
    """A request that was held for a refusal is answered if somebody leaves meanwhile."""
    with served() as own, client(full(own)) as asked:
        head, body = request()[: -len(BODY)], BODY
        asked.socket.sendall(head)
        time.sleep(0.05)
        full(own, False)
        asked.socket.sendall(body)
        assert asked.answer()[0] == 200
        full(own)
        assert asked.ask(request())[0] == 429
        full(own, False)
        assert asked.ask(request())[0] == 200


def test_one_behind_another(server: Served) -> None:
    """Two at once, and what is no HTTP behind a refusal, are read the usual way."""
    with client(server) as own:
        own.socket.sendall(request() + request("/v1/completions"))
        assert (own.answer()[0], own.answer()[0]) == (429, 429)
        assert own.ask(request())[0] == 429
        own.socket.sendall(b"no HTTP\r\n\r\n")
        assert own.answer()[0] == 400


ODD = {
    "another end": request("/translate", BODY, "Connection: close"),
    "a coding": request("/translate", BODY, "Transfer-Encoding: chunked"),
    "to be asked for": request("/translate", BODY, "Expect: 100-continue"),
    "two lengths": request("/translate", BODY, "Content-Length: 3"),
    "a page": request("/translate", BODY, "Origin: http://127.0.0.1"),
    "folded": request("/translate", BODY, "X: a", " b"),
    "a newline alone": request("/translate", BODY, "X: a\nY: b"),
    "a NUL": request("/translate", BODY, "X: a\x00"),
    "an odd name": request("/translate", BODY, "X : a"),
    "another host": request(host="evil.example"),
    "another kind": request().replace(b"application/json", b"text/plain"),
    "another version": request().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "another method": request().replace(b"POST", b"GET", 1),
    "no length": request().replace(b"Content-Length", b"X-Length"),
    "too large": request().replace(b"Content-Length: ", b"Content-Length: 99999999"),
    "a long head": request("/translate", BODY, f"X: {'a' * 20_000}"),
    "not for a model": request("/detect"),
    "a run": request("/api/v1/trace"),
    "nothing there": request("/nothing"),
}


@pytest.mark.parametrize("raw", ODD.values(), ids=ODD.keys())
def test_what_is_not_plain_goes_the_usual_way(server: Served, raw: bytes) -> None:
    assert turned_away(server).answer(raw) is None


def test_who_has_no_key_learns_nothing(tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "anna")
    with served(ListenAddress(port=0), keys=Keys(tmp_path / "keys.json")) as own, client(full(own)) as asked:
        inside = json.dumps({**json.loads(BODY), "api_key": key}).encode()
        bearer = f"Authorization: Bearer {key}"
        assert asked.ask(request())[0] == 403
        assert asked.ask(request("/translate", BODY, "Authorization: Bearer x"))[0] == 403
        assert asked.ask(request("/v1/completions"))[0] == 401
        assert asked.ask(request("/v1/completions", inside))[0] == 401
        assert turned_away(own).answer(request()) is None
        for good in (
            request("/translate", BODY, bearer),
            request("/translate", inside),
            request("/v1/completions", BODY, bearer),
        ):
            assert turned_away(own).answer(good)
            assert asked.ask(good)[0] == 429
        assert '"status": 429' in own.log.getvalue()
        assert key not in own.log.getvalue()
        refused = [line for line in own.log.getvalue().splitlines() if '"status": 429' in line]
        assert all(json.loads(line)["key"] == "anna" for line in refused)


def test_others_are_answered_by_a_full_server(server: Served) -> None:
    with client(server) as own:
        for path in ("/health", "/health/live", "/languages", "/api/v1/limits"):
            own.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert own.answer()[0] == 200
        assert own.ask(request("/detect", b'{"q": "This is a text."}'))[0] == 200


def test_a_server_that_ends_says_so() -> None:
    with served() as own, client(full(own)) as asked:
        own.service.draining = True
        status, headers, _ = asked.ask(request())
        assert (status, headers["connection"]) == (503, "close")
        own.service.draining = False


def test_who_is_refused_may_come_back_later() -> None:
    """The clock of a connection's first head went on behind a refusal, and would have cut the connection."""
    bounds = ServerLimits(header_seconds=0.4, idle_seconds=2)
    with served(bounds=bounds) as own, client(full(own)) as asked:
        assert asked.ask(request())[0] == 429
        time.sleep(0.8)
        assert asked.ask(request())[0] == 429
        time.sleep(3.0)

        assert asked.socket.recv(1) == b"", "idle for too long"
