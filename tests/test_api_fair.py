"""One client does not harm another: by large requests, slow sockets, unread answers, traces or lessons."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load as read_tensors

from conftest import Refused
from regard.server import explorer
from regard.server.api.native import PORTION, parts_of
from regard.server.connections import RESERVED
from regard.server.errors import APIError
from regard.server.keys import Keys, add_key
from regard.server.queue import BatchLimits
from regard.server.requests import ServerLimits, TensorQuery
from regard.server.run import ListenAddress
from regard.server.traces import CHUNK, TensorStream, Traces
from regard.tasks.spec import TASKS
from served import Served, served
from traced_models import TEXT, opened_task, traced

GERMAN = "Guten Morgen, wie geht es dir? Ich hoffe, dass bei euch alles in Ordnung ist."
BODY = {"q": TEXT, "source": "en", "target": "de"}


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Keys, dict[str, dict[str, str]]]:
    """A key file, and the headers of two clients."""
    file = tmp_path / "keys.json"
    headers = {name: {"authorization": f"Bearer {add_key(file, name)}"} for name in ("greedy", "polite")}
    return Keys(file), headers


def head_of(method: str, path: str, *lines: str) -> bytes:
    first = (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json")
    return "\r\n".join((*first, *lines)).encode() + b"\r\n"


@contextmanager
def sockets(server: Served, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Clients that have sent something and do nothing more."""
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in opened:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.settimeout(20)
            each.connect(("127.0.0.1", server.port))
            each.sendall(first)
        yield opened


# turns


def test_a_large_request_shuts_nobody_out(keys: tuple[Keys, Any]) -> None:
    """One legal request filled the queue, and all others were refused until it was done."""
    known, headers = keys
    large = {**BODY, "q": [f"{TEXT} " * 15] * 50}
    limits, bounds = BatchLimits(rows=4, queue_tokens=500), ServerLimits(request_seconds=20)
    with served(keys=known, limits=limits, bounds=bounds) as own, ThreadPoolExecutor() as pool:

        def ask(who: str, body: dict[str, Any]) -> httpx.Response:
            return httpx.post(f"{own.address}/translate", json=body, headers=headers[who], timeout=90)

        slow = pool.submit(ask, "greedy", large)
        scheduler = own.service.schedulers["transformer"]
        while not scheduler.counters()["queue"]:
            assert not slow.done()
        statuses = [ask("polite", BODY).status_code for _ in range(5)]
        assert statuses == [200] * 5
        assert not slow.done(), "they had their turns in between"
        assert ask("greedy", BODY).status_code == 429, "who has much waiting is told to wait"
        assert slow.result().status_code in (200, 503)  # done, or no time left


def test_costs_count_all_that_is_read() -> None:
    """A score was reckoned by its targets: long sources with one letter each cost nothing."""
    spec = TASKS["score"]
    inputs = {"source": ["a" * 780] * 64, "target": ["b"] * 64}
    assert spec.cost(inputs, {}) >= 64 * 780 // 4
    parts = parts_of(spec, inputs, {})
    assert all(spec.cost(part, {}) <= PORTION for _, part in parts)
    assert [text for _, part in parts for text in part["source"]] == inputs["source"]
    assert [first for first, _ in parts] == [2 * n for n in range(32)]


def test_traces_and_lessons_wait_in_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lessons took all threads of the server, without a bound: the page and traces hung."""
    go_on = threading.Event()
    monkeypatch.setattr(explorer, "lesson_json", lambda *_: {"waited": go_on.wait(60)})
    with served() as own, ThreadPoolExecutor(30) as pool:
        address = f"{own.address}/api/v1/lessons/cost"
        lessons = [pool.submit(httpx.get, address, timeout=90) for _ in range(30)]
        for path in ("/", "/web/js/main.js", "/api/v1/models", "/health/live"):
            assert httpx.get(own.address + path, timeout=20).status_code == 200
        assert httpx.post(f"{own.address}/translate", json=BODY, timeout=60).status_code == 200
        while sum(each.done() for each in lessons) < 15:  # those that are refused
            pass
        go_on.set()
        answers = [each.result() for each in lessons]
        assert {answer.status_code for answer in answers} == {200, 429}
        assert {answer.json().get("code") for answer in answers} == {None, "rate_limit_exceeded"}


def test_no_text_is_tokenized_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text held up all answers, health checks among them."""
    threads: set[str] = set()
    with served() as own:
        for task in {id(task): task for task in own.service.models.values()}.values():
            tokenizer = task.tokenizer if hasattr(task, "tokenizer") else task.folder.source
            encode = tokenizer.encode_batch

            def note(texts: Any, encode: Any = encode) -> Any:
                threads.add(threading.current_thread().name)
                return encode(texts)

            monkeypatch.setattr(tokenizer, "encode_batch", note)
        for path, body in (
            ("/translate", BODY),
            ("/v1/completions", {"model": "gpt", "prompt": TEXT, "max_tokens": 2}),
            ("/v1/completions", {"model": "transformer", "prompt": TEXT}),
            ("/v1/embeddings", {"model": "embed", "input": TEXT}),
            ("/api/v1/tokenize", {"text": TEXT}),
            ("/api/v1/trace", {"source": TEXT}),
            ("/api/v1/score", {"source": TEXT, "target": TEXT}),
            ("/api/v1/classify", {"text": TEXT}),
        ):
            assert httpx.post(own.address + path, json=body, timeout=60).status_code == 200, path
    assert threads
    assert all(name.startswith(("text", "scheduler")) for name in threads), threads


def test_clients_behind_a_proxy_are_told_apart() -> None:
    for proxies, client in (((), "127.0.0.1"), (("127.0.0.1",), "1.2.3.4")):
        with served(ListenAddress(port=0, proxies=proxies)) as own:
            headers = {"x-forwarded-for": "1.2.3.4"}
            assert httpx.post(f"{own.address}/translate", json=BODY, headers=headers, timeout=60).is_success
            assert list(own.service.schedulers["transformer"].seen) == [client]


# sockets


def test_slow_sockets_give_way(keys: tuple[Keys, Any]) -> None:
    """As many slow sockets as there is room for were a 503 for everybody, health checks among them."""
    known, headers = keys
    limits = ServerLimits(connections=20, header_seconds=60, body_seconds=60)
    slow_body = head_of("POST", "/translate", "Content-Length: 1000", "") + b"{"
    with (
        served(keys=known, bounds=limits) as own,
        sockets(own, 30, b"GET / HTTP/1.1\r\nX: "),
        sockets(own, 30, slow_body),
    ):
        for _ in range(3):
            assert httpx.get(f"{own.address}/health/live", timeout=30).status_code == 200
            answer = httpx.post(f"{own.address}/translate", json=BODY, headers=headers["polite"], timeout=60)
            assert answer.status_code == 200
        assert len(own.service.connections.open) <= 20


def test_health_is_answered_when_all_connections_are_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(explorer, "lesson_json", lambda *_: {"waited": go_on.wait(60)})
    lesson = head_of("GET", "/api/v1/lessons/cost", "")
    with served(bounds=ServerLimits(connections=2)) as own, sockets(own, 2, lesson) as busy:
        while sum(each.admitted for each in list(own.service.connections.open.values())) < len(busy):
            pass
        assert httpx.get(f"{own.address}/health/live", timeout=30).status_code == 200
        assert httpx.get(f"{own.address}/languages", timeout=30).status_code == 503
        assert RESERVED > 0
        go_on.set()
        assert [each.recv(12) for each in busy] == [b"HTTP/1.1 200"] * 2


def test_a_key_is_checked_before_the_body_is_read(keys: tuple[Keys, Any]) -> None:
    """Bodies without a key filled what may be read at once: those with a key were refused."""
    known, headers = keys
    with served(keys=known, bounds=ServerLimits(body=1 << 16, bodies=1 << 17, body_seconds=60)) as own:
        unread = head_of("POST", "/api/v1/score", "Content-Length: 60000", "")
        with sockets(own, 1, unread) as (client,):
            assert client.recv(12) == b"HTTP/1.1 401"
        half = head_of("POST", "/translate", "Content-Length: 60000", "") + b" " * 50_000
        with sockets(own, 8, half):  # the key may be in the body
            for _ in range(5):
                answer = httpx.post(
                    f"{own.address}/translate", json=BODY, headers=headers["polite"], timeout=60
                )
                assert answer.status_code == 200
            in_body = httpx.post(
                f"{own.address}/translate",
                json={**BODY, "api_key": headers["polite"]["authorization"].split()[1]},
                timeout=60,
            )
            assert in_body.status_code == 200
            wrong = httpx.post(f"{own.address}/translate", json={**BODY, "api_key": "x"}, timeout=60)
            assert (wrong.status_code, wrong.json()["code"]) == (403, "invalid_api_key")


def test_heads_are_bounded() -> None:
    """30 kB of headers in one packet passed a bound of 16; so did the extension of a chunk."""
    with served() as own:
        large = head_of("GET", "/health", f"X: {'a' * 30_000}", "")
        assert own.send(large, wait=20).startswith(b"HTTP/1.1 431")
        chunk = b"2;" + b"x" * (1 << 20) + b"\r\n{}\r\n0\r\n\r\n"
        answer = own.send(head_of("POST", "/detect", "Transfer-Encoding: chunked", "") + chunk, wait=20)
        assert not answer.startswith(b"HTTP/1.1 200")


def test_the_page_has_a_head() -> None:
    with served() as own:
        answer = httpx.head(f"{own.address}/")
        assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-type"].startswith("text/html")


# answers


def test_tensors_are_sent_without_being_held() -> None:
    """A hundred unread answers held a hundred copies of a trace."""
    traces, trace = Traces(), traced("transformer")
    traces.add("a", trace)
    for query in (
        TensorQuery(name=["*"]),
        TensorQuery(name=["*.weights"], head=1, pool=3, dtype="U8"),
        TensorQuery(name=["logits"], row=1, column=2),
    ):
        stream = TensorStream(traces, "a", query)
        parts = list(stream)
        assert sum(map(len, parts)) == stream.size
        assert max(map(len, parts[1:])) <= CHUNK
        tensors = read_tensors(b"".join(parts))
        assert list(tensors) and set(tensors) == set(stream.names)
        if query.name == ["*"]:
            assert all(torch.equal(tensors[name], trace[name]) for name in trace.names())
    parts = iter(TensorStream(traces, "a", TensorQuery(name=["*"])))
    next(parts)
    traces.kept.clear()
    with pytest.raises(APIError) as expired:
        list(parts)
    assert expired.value.code == "trace_expired"


def test_unread_answers_are_bounded() -> None:
    with served() as own:
        number = httpx.post(f"{own.address}/api/v1/trace", json={"source": TEXT}, timeout=60).json()["id"]
        path = f"/api/v1/trace/{number}/export?format=html"
        size = len(httpx.get(own.address + path, timeout=60).content)
        own.service.bounds = replace(own.service.bounds, answers=int(1.5 * size))
        request = head_of("GET", path, "")
        with sockets(own, 1, request) as (client,):
            client.recv(1)
            refused = httpx.get(own.address + path, timeout=60)
            assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
            assert own.service.unread_answers == size
        while own.service.unread_answers:
            pass
        assert len(httpx.get(own.address + path, timeout=60).content) == size


# what is asked for


def test_text_in_the_target_language_stays() -> None:
    """German to German was "translated" by the model of English."""
    with served() as own:
        body = {"q": [GERMAN, TEXT], "source": "auto", "target": "de"}
        found = httpx.post(f"{own.address}/translate", json=body, timeout=60).json()
        assert found["translatedText"] == [GERMAN, opened_task("transformer").translate(TEXT)]
        assert [each["language"] for each in found["detectedLanguage"]] == ["de", "en"]


def test_folders_called_run_and_keys(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both words were taken for commands, and the models of the package were served instead."""
    for name in ("run", "keys"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert "run" in refused("serve", "run", "--port", 0)
    assert "keys" in refused("serve", "-m", "keys", "--port", 0)
    assert "-m keys" in refused("serve", "keys")


def test_names_are_not_addresses(refused: Refused) -> None:
    """--host bound nothing: it listened on 127.0.0.1, whatever was given."""
    assert "--allow-host" in refused("serve", "--host", "a", "--host", "b")
