"""What a server bears: keys, strangers, bodies without end, slow and vanishing clients, and its own end."""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from conftest import Command, Refused
from regard.errors import UsageError
from regard.server import explorer, run
from regard.server.app import app_of
from regard.server.keys import Keys, add_key, read_keys, revoke_key, secret_in
from regard.server.requests import ServerLimits
from regard.server.run import ListenAddress, check_open
from regard.server.scheduler import ServiceScheduler
from regard.server.service import Service
from regard.tasks import Translator
from served import Served, models, receive_all, served
from traced_models import TEXT

QUICK = ServerLimits(body=1 << 16, header_seconds=0.5, body_seconds=0.6, write_seconds=0.5, idle_seconds=1)
BODY = {"q": TEXT, "source": "en", "target": "de"}
KIND = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(bounds=QUICK) as own:
        yield own


def post(path: str, body: bytes, *headers: str, host: str = "127.0.0.1") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(raw: bytes) -> int:
    assert raw.startswith(b"HTTP/1.1 "), raw
    return int(raw[9:12])


# bodies and framing


def test_a_body_is_bounded_while_it_comes(server: Served) -> None:
    huge = post("/translate", b"x" * 1000, f"Content-Length: {1 << 30}")
    assert status(server.send(huge)) == 413
    chunk = b"%x\r\n%b\r\n" % (1 << 14, b"a" * (1 << 14))
    endless = post("/translate", chunk * 6, "Transfer-Encoding: chunked")
    answer = server.send(endless)
    assert status(answer) == 413
    assert b"65536 bytes at most" in answer
    small = json.dumps(BODY).encode()
    chunked = post("/translate", b"%x\r\n%b\r\n0\r\n\r\n" % (len(small), small), "Transfer-Encoding: chunked")
    assert status(server.send(chunked, wait=2)) == 200


@pytest.mark.parametrize(
    "raw",
    {
        "both lengths": post("/detect", b"0\r\n\r\n", "Content-Length: 5", "Transfer-Encoding: chunked"),
        "two lengths": post("/detect", b"{}", "Content-Length: 2", "Content-Length: 3"),
        "no length": post("/detect", b"{}", "Content-Length: two"),
        "minus": post("/detect", b"{}", "Content-Length: -2"),
        "a bad chunk": post("/detect", b"zz\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        "another coding": post("/detect", b"{}", "Transfer-Encoding: gzip"),
        "a NUL": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00b\r\n\r\n",
        "no host": b"GET /health HTTP/1.1\r\n\r\n",
        "two hosts": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "another version": b"GET /health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        "large headers": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        "many chunks": post("/detect", b"1\r\na\r\n" * 9000, "Transfer-Encoding: chunked"),
    }.items(),
    ids=lambda pair: pair[0],
)
def test_odd_framing_is_refused_and_closed(server: Served, raw: tuple[str, bytes]) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as own:
        own.sendall(raw[1])
        answer = receive_all(own)
        assert status(answer) in (400, 408, 413, 431), answer
        own.settimeout(5)
        with suppress(ConnectionError):
            assert own.recv(1) == b""


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[" * 60_000, b'{"q": ' * 900 + b"1" + b"}" * 900, b"\xff\xfe", b"[]", b'"a"', b"null",
     b"NaN", b'{"q": 1e999, "source": "en", "target": "de"}', b'{"q": ' + b"9" * 5000 + b"}"],
    ids=range(11),
)  # fmt: skip
@pytest.mark.parametrize("path", ["/translate", "/v1/completions", "/api/v1/fill", "/api/v1/trace"])
def test_what_is_no_json_is_a_400(server: Served, path: str, raw: bytes) -> None:
    answer = httpx.post(server.address + path, content=raw, headers=KIND)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]


def test_strange_texts_are_answered(server: Served) -> None:
    for text in ("a\ud800b", "\x00\x01", "\u2028", "👩‍👩‍👧", "‏שלום"):
        raw = json.dumps(BODY | {"q": text}).encode()
        answer = httpx.post(f"{server.address}/translate", content=raw, headers=KIND)
        assert answer.status_code == 200, answer.text
        assert isinstance(answer.json()["translatedText"], str)


# slow and vanishing clients


@pytest.mark.parametrize(
    ("first", "drip"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\n", b"X: y\r\n"),
        (post("/detect", b"", "Content-Length: 5000"), b" "),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b""),
    ],
    ids=["nothing", "headers", "body", "no further request"],
)
@pytest.mark.timeout(60)  # the server closes the connection; else this would not end
def test_slow_clients_are_cut(server: Served, first: bytes, drip: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client, suppress(ConnectionError):
        client.settimeout(0.1)
        client.sendall(first)
        while True:
            client.sendall(drip)
            with suppress(TimeoutError):
                if not client.recv(1000):
                    break


def test_who_reads_on_is_not_cut(server: Served) -> None:
    """An answer that takes longer than a client may leave it unread was cut, though the client read on."""
    with httpx.Client(base_url=server.address, timeout=30) as web:
        number = web.post("/api/v1/trace", json={"model": "transformer", "source": TEXT}).json()["id"]
        size = len(web.get(f"/api/v1/trace/{number}/export", params={"format": "html"}).content)
    head = f"GET /api/v1/trace/{number}/export?format=html HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    found, pause = 0, 4 * QUICK.write_seconds / (size / (1 << 16))  # four times as long in all
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        own.connect(("127.0.0.1", server.port))
        own.sendall(head.encode())
        while found < size and (part := own.recv(1 << 16)):
            found += len(part)
            time.sleep(pause * len(part) / (1 << 16))
    assert found >= size


def test_bodies_that_come_are_counted_while_they_come() -> None:
    """They were counted when they had come, so that hundreds of halves filled the memory together."""
    with served(bounds=replace(QUICK, body_seconds=10, bodies=1 << 17)) as own:
        half = post("/translate", b"x" * 60_000, "Content-Length: 65536")
        held = [socket.create_connection(("127.0.0.1", own.port)) for _ in range(3)]
        for each in held:
            each.sendall(half)
        found = [status(each.recv(100)) for each in held if select.select([each], [], [], 2)[0]]
        assert found == [503]
        for each in held:
            each.close()


def test_a_trace_is_bounded(server: Served) -> None:
    """One request kept a server busy for days, another took all memory."""
    for own in (
        {"decode": {"max_length": 10**8}},
        {"decode": {"min_length": 10**8}},
        {"target": "a " * 9000},
    ):
        body = {"model": "transformer", "source": "the cat", **own}
        answer = httpx.post(f"{server.address}/api/v1/trace", json=body, timeout=30)
        assert answer.status_code == 400 and re.search("at most|too long", answer.json()["error"])


def test_several_choices_find_room_together(server: Served) -> None:
    """The parts of one request stood in each other's way: a server with nothing to do refused it."""
    limits = replace(server.service.limits, rows=2, queue_tokens=100)
    with served(limits=limits) as own:
        body = {"model": "gpt", "prompt": [TEXT] * 8, "max_tokens": 20, "seed": 1}
        for more in ({"stop": "never said"}, {"stream": True}):
            answer = httpx.post(f"{own.address}/v1/completions", json=body | more, timeout=60)
            assert answer.status_code == 200
            assert '"error"' not in answer.text


def test_a_server_whose_models_cannot_be_looked_into() -> None:
    with served(models={"embed": models()["embed"]}) as own:
        answer = httpx.get(f"{own.address}/api/v1/lessons/cost", timeout=30)
        assert answer.status_code == 400 and "that can be traced" in answer.json()["error"]


def test_what_nobody_expected_is_counted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an answer had no number, no guard's headers, and was counted as a client that had gone."""
    with served() as own:
        monkeypatch.setattr(explorer, "TensorStream", lambda *_: 1 / 0)
        number = httpx.post(f"{own.address}/api/v1/trace", json={"source": "the cat"}, timeout=30).json()[
            "id"
        ]
        answer = httpx.get(f"{own.address}/api/v1/trace/{number}/tensors?name=logits")
        assert answer.status_code == 500 and answer.headers["x-request-id"]
        while own.service.in_flight:  # its line is written when it is over
            time.sleep(0.01)
        time.sleep(0.05)
        assert '"status": 500' in own.log.getvalue() and "ZeroDivisionError" in own.log.getvalue()


def test_who_goes_away_stops_costing(server: Served) -> None:
    body = {"model": "llama", "prompt": "a", "max_tokens": 1000, "temperature": 1}
    for stream in (False, True):
        raw = json.dumps(body | {"stream": stream}).encode()
        with socket.create_connection(("127.0.0.1", server.port)) as own:
            own.sendall(post("/v1/completions", raw, f"Content-Length: {len(raw)}"))
            if stream:
                own.recv(10)
            time.sleep(0.1)
        until = time.monotonic() + 10
        while server.service.in_flight and time.monotonic() < until:
            time.sleep(0.02)
        assert server.service.in_flight == 0
        assert httpx.post(f"{server.address}/translate", json=BODY, timeout=10).status_code == 200


def test_too_much_is_refused_with_a_time(server: Served) -> None:
    limits = replace(server.service.limits, rows=4, queue_tokens=300)
    with served(limits=limits) as own:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(f"{own.address}/translate", json=BODY | {"q": [TEXT] * 3}, timeout=60))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = {answer.status_code for answer in answers}
        assert found == {200, 429}
        for answer in answers:
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.json()["error"].startswith("Slowdown")


def test_a_full_server_reads_nothing_that_is_for_a_model(server: Served) -> None:
    """Ten times as many requests as could be done were each read and understood before they were refused,
    in the time of those who were answered."""
    with served() as own:
        for scheduler in own.service.schedulers.values():
            scheduler.queue.tokens["127.0.0.1"] = scheduler.limits.queue_tokens
        answer = httpx.post(f"{own.address}/translate", content=b"no JSON", headers=KIND, timeout=10)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        found = httpx.post(f"{own.address}/detect", json={"q": "This is a text."}, timeout=10)
        assert found.status_code == 200
        next(iter(own.service.schedulers.values())).queue.tokens.clear()  # now one of them has room
        answer = httpx.post(f"{own.address}/translate", content=b"no JSON", headers=KIND, timeout=10)
        assert answer.status_code == 400


# strangers and keys


def test_every_route_is_closed_to_strangers(tmp_path: Path) -> None:
    """The list of routes is the app's own: what is added is looked at too."""
    keys = tmp_path / "keys.json"
    key = add_key(keys, "anna")
    with served(ListenAddress(port=0, origins=("https://friend.example",)), keys=Keys(keys)) as own:
        app = app_of(own.service)
        paths = {re.sub(r"{\w+}", "x", path) for path in app.openapi()["paths"]}
        paths |= {"/", "/docs", "/spec", "/openapi.json", "/web/js/main.js", "/nothing"}
        with httpx.Client(base_url=own.address, timeout=30) as web:
            for path in sorted(paths):
                for method in ("GET", "POST"):
                    check_strangers(web, method, path, key)
        told = LibreTranslateAPI(own.address, key)
        assert told.translate(TEXT, "en", "de") == models()["transformer"].translate(TEXT)
        assert told.languages()
        own.service.log("a line")
        assert key not in own.log.getvalue()
        assert '"key": "anna"' in own.log.getvalue()


def check_strangers(web: httpx.Client, method: str, path: str, key: str) -> None:
    bearer = {"authorization": f"Bearer {key}"}
    for own in ({"host": "evil.example"}, {"origin": "https://friend.example.evil.example"}):
        answer = web.request(method, path, headers=bearer | KIND | own, content=b"{}")
        assert answer.status_code == 403, (path, own)
        assert "access-control-allow-origin" not in answer.headers
    answer = web.request(method, path, headers=KIND, content=b"{}")
    if path in ("/health", "/health/live"):
        assert answer.status_code == (200 if method == "GET" else 405)
    else:
        assert answer.status_code in (401, 403), (method, path, answer.status_code)
    friend = web.request("OPTIONS", path, headers={"origin": "https://friend.example"})
    assert friend.status_code == 204
    assert friend.headers["access-control-allow-origin"] == "https://friend.example"
    assert "access-control-allow-credentials" not in friend.headers


def test_keys_come_and_go_without_a_new_start(tmp_path: Path, regard: Command, refused: Refused) -> None:
    file = tmp_path / "keys.json"
    key = regard("serve", "keys", "add", file, "anna").out.strip()
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o77 == 0
    keys = Keys(file)
    assert (keys.owner(key), keys.owner("x"), keys.owner(""), keys.owner(None)) == ("anna", None, None, None)
    other = add_key(file, "bert")
    assert keys.owner(other) == "bert"
    assert regard("serve", "keys", "list", file).lines[0].startswith("anna\t")
    assert "already" in refused("serve", "keys", "add", file, "anna")
    revoke_key(file, "anna")
    assert (keys.owner(key), keys.owner(other)) == (None, "bert")
    assert 'has no key "anna"' in refused("serve", "keys", "revoke", file, "anna")
    file.write_text("{")
    assert keys.owner(other) is None
    file.unlink()
    assert keys.owner(other) is None
    for text in ("[]", '{"keys": [1]}', "\x00"):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"keys\.json"):
            read_keys(file)
    assert secret_in("Basic !") is None
    assert secret_in("bearer  a ") == "a"


def test_beyond_this_machine_a_key_is_needed() -> None:
    service = Service(models())
    with pytest.raises(UsageError, match="insecure-no-key"):
        check_open(service, ListenAddress("0.0.0.0"))
    check_open(service, ListenAddress("0.0.0.0", open=True))
    check_open(service, ListenAddress("::1"))
    service.close()


def test_a_server_tells_its_address_when_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked at once waited beyond its deadline, while models were compiled and routes were made."""
    service, traces, told = Service(models()), list[object](), list[str]()

    def look(*_: object) -> SimpleNamespace:
        assert not told
        own = [task for task in service.models.values() if isinstance(task, Translator)]
        traces.extend(engine.traced for task in own for engine in task.engines)
        return SimpleNamespace(run=lambda sockets: None)

    for name, other in (("server_of", look), ("freeze_gc", lambda: None)):
        monkeypatch.setattr(run, name, other)
    monkeypatch.setattr(run.sys, "setswitchinterval", lambda seconds: None)
    run.serve_api(service, ListenAddress(port=0), told.append)
    assert told and traces and all(traces)
    service.close()


def test_other_names_are_answered_if_told() -> None:
    with served(ListenAddress(port=0, hosts=("mt.example.org",))) as own:
        for name, wanted in (("mt.example.org", 200), ("MT.example.org:80", 200), ("example.org", 403)):
            assert httpx.get(f"{own.address}/languages", headers={"host": name}).status_code == wanted


def test_nothing_of_this_machine_is_told(server: Served) -> None:
    answers = [
        httpx.post(f"{server.address}/api/v1/answer", json={"question": "a " * 200, "context": "b"}),
        httpx.post(f"{server.address}/api/v1/fill", json={"text": "no gap"}),
        httpx.get(f"{server.address}/api/v1/models"),
        httpx.get(f"{server.address}/web/../../app.py"),
        httpx.get(f"{server.address}/metrics"),
        httpx.post(f"{server.address}/api/v1/trace", json={"source": "the cat"}),
    ]
    for answer in answers:
        assert not re.search(r"/work|/home|/tmp|site-packages|\.py\b", answer.text), answer.text


# seeing it run, and its end


def test_numbers_and_lines() -> None:
    with served() as own:
        own.service.log.texts = False
        secret = "unbelievably secret words"
        httpx.post(f"{own.address}/translate", json=BODY | {"q": secret}, headers={"x-request-id": "mine-1"})
        odd = httpx.get(f"{own.address}/nothing/{secret}", headers={"x-request-id": "a b"})
        assert odd.headers["x-request-id"] != "a b"
        numbers = httpx.get(f"{own.address}/metrics")
        assert numbers.headers["content-type"].startswith("text/plain")
        lines = [json.loads(line) for line in own.log.getvalue().splitlines()]
        text = own.log.getvalue()
    assert "unbelievably" not in text
    assert lines[0]["id"] == "mine-1"
    assert (lines[0]["route"], lines[0]["status"]) == ("/translate", 200)
    assert (lines[1]["route"], lines[1]["status"]) == ("other", 404)
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+')
    told = [line for line in numbers.text.splitlines() if not line.startswith("#")]
    assert all(sample.fullmatch(line) for line in told), told
    assert 'regard_requests_total{method="POST",route="/translate",status="200"} 1' in told
    assert any(line.startswith("gen_ai_server_request_duration_seconds_bucket") for line in told)


def test_the_end_is_calm() -> None:
    with served() as own:
        found: list[Any] = []
        body = {"model": "llama", "prompt": "a", "max_tokens": 200, "temperature": 0, "stop": "never said"}

        def ask() -> None:
            found.append(httpx.post(f"{own.address}/v1/completions", json=body, timeout=30))

        thread = threading.Thread(target=ask)
        thread.start()
        while not own.service.in_flight:
            time.sleep(0.005)
        own.server.handle_exit(15, None)
        assert httpx.get(f"{own.address}/health/ready").status_code == 503
        assert httpx.get(f"{own.address}/health/live").status_code == 200
        late = httpx.post(f"{own.address}/translate", json=BODY)
        assert (late.status_code, late.headers["retry-after"]) == (503, "5")
        thread.join(30)
        assert found[0].status_code == 200
        until = time.monotonic() + 5
        while not own.server.should_exit and time.monotonic() < until:
            time.sleep(0.02)
        assert own.server.should_exit


def test_who_waits_longer_than_the_end_does_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """They had a 500 in plain text from below the app, which no client tries again."""
    run_step = ServiceScheduler.run_step
    monkeypatch.setattr(
        ServiceScheduler, "run_step", lambda scheduler: (time.sleep(0.05), run_step(scheduler))
    )
    with served(bounds=replace(QUICK, drain_seconds=0.3)) as own:
        found: list[httpx.Response] = []
        body = {"model": "llama", "prompt": "a", "n": 8, "max_tokens": 1000, "temperature": 1}
        ask = lambda: found.append(httpx.post(f"{own.address}/v1/completions", json=body, timeout=60))  # noqa: E731
        thread = threading.Thread(target=ask)
        thread.start()
        while not own.service.in_flight:
            time.sleep(0.005)
        own.server.handle_exit(15, None)
        thread.join(30)
        assert found[0].status_code == 503
        assert "shut down before this was done" in found[0].json()["error"]["message"]


def test_a_signal_handler_may_log_while_a_line_is_logged() -> None:
    """That of SIGTERM logs; inside `Queue.put` of its own thread it once waited for ever."""
    program = """
import signal, sys, threading
from regard.server.telemetry import Log
log = Log()
signal.signal(signal.SIGALRM, lambda *_: log("signal"))
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
for number in range(20000):
    log("line", number=number)
signal.setitimer(signal.ITIMER_REAL, 0)
log.close()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n")
