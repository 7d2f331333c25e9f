"""bench/load.py: the requests it sends, when, and the figures it prints."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from bench import load
from qa.serving import mix
from qa.serving.driver import Question, closed, opened, question, questions_for, share, times
from qa.serving.link import Address, Link, Reading
from regard.errors import RegardError, UsageError
from regard.server.keys import Keys, add_key
from regard.server.run import ListenAddress, text_threads
from served import Served, models, served

TEXTS = ["The cat sleeps .", "A house", "I see the small house ."]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as own:
        yield own


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    load.main([*arguments, "--json"])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_figures_of_a_running_server(
    server: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts").write_text("\n".join([*TEXTS, "", " "]), encoding="utf-8")
    common = ("--url", server.address, "--file", str(tmp_path / "texts"), "--seconds", "0.5")
    told = figures(capsys, *common, "--clients", "2")
    assert told["way"] == "2 clients"
    assert told["answered"] == told["asked"] > 0 == told["failed"] == told["refused"]
    assert 0 < told["p50"] <= told["p95"] <= told["p99"]
    assert told["requests_per_second"] == pytest.approx(told["answered"] / told["seconds"], rel=0.05)
    assert told["tokens_per_second"] > told["requests_per_second"], "a translation has several pieces"
    assert figures(capsys, *common, "--rate", "8")["way"] == "8 requests a second by chance"


def test_each_model_is_asked_for_what_it_does(server: Served) -> None:
    """A named model of any task answers what it is asked."""

    async def ask(model: str) -> list[int]:
        address = Address(server.port)
        questions = await questions_for(address, TEXTS, model, longest=3)
        load = await closed(address, questions, 1, 0.01)
        return [answer.status for answer in load.answers]

    for name in models():
        assert set(asyncio.run(ask(name))) == {200}, name
    asked = asyncio.run(questions_for(Address(server.port), ["a"]))[0]
    assert asked.path == "/translate" and asked.content["source"] != asked.content["target"]
    assert "<mask>" in question("x", "fill", "a", 1).content["text"]
    with pytest.raises(UsageError, match='no model "none"; it has'):
        asyncio.run(questions_for(Address(server.port), TEXTS, "none"))


def test_requests_come_by_chance_and_again_from_their_seed(server: Served) -> None:
    rate, seconds = 120.0, 0.5
    for seed in (1, 2):
        dice, at, count = random.Random(seed), 0.0, 0
        while at < seconds:
            at, count = at + dice.expovariate(rate), count + 1
        own = [Question("/detect", {"q": "a"})]
        load = asyncio.run(opened(Address(server.port), own, rate, seconds, seed))
        assert len(load.answers) == count
        assert {answer.status for answer in load.answers} == {200}


def test_shares_of_times() -> None:
    assert times([0.3, 0.1, 0.2]) == {"p50": 0.2, "p95": 0.3, "p99": 0.3}
    assert share([], 0.5) == 0.0
    assert share([float(each) for each in range(100)], 0.99) == 99.0


def test_a_server_that_wants_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = add_key(tmp_path / "keys.json", "bench")
    with served(ListenAddress(port=0), keys=Keys(tmp_path / "keys.json")) as own:
        options = ("--url", own.address, "--seconds", "0.2", "--clients", "1")
        with pytest.raises(RegardError, match="--key"):
            load.main([*options])
        assert figures(capsys, *options, "--key", key)["failed"] == 0
        assert key not in repr(Address.of(own.address, key))


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ([], SystemExit, "2"),
        (["-m", "runs/demo", "--url", "http://127.0.0.1:1"], SystemExit, "2"),
        (["--url", "127.0.0.1:8000"], UsageError, "give the address as http://"),
        (["--url", "http://127.0.0.1:99999"], UsageError, "give the address as http://"),
        (["--url", "http://127.0.0.1:1/v1"], UsageError, "without /v1"),
        (["--url", "http://127.0.0.1:1"], RegardError, "nobody answers there"),
        (["--url", "http://127.0.0.1:1", "--file", "/dev/null"], UsageError, "contains no text"),
        (["-m", "/no/such/model"], RegardError, "did not start"),
    ],
)
def test_wrong_use(options: list[str], error: type[BaseException], part: str) -> None:
    with pytest.raises(error, match=part):
        load.main(options)


def test_who_is_late_does_not_open_a_connection_for_each() -> None:
    """A driver that had been kept waiting sent all that was due without a look at what came back: a thousand
    requests had a thousand connections, of which the server refused most."""
    made, lost = list[asyncio.Transport](), list[object]()

    class Refusing(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast(asyncio.Transport, transport)
            made.append(self.transport)

        def data_received(self, data: bytes) -> None:
            self.transport.write(b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n")

        def connection_lost(self, error: Exception | None) -> None:
            lost.append(self)

    async def story() -> int:
        server = await asyncio.get_running_loop().create_server(Refusing, "127.0.0.1", 0)
        async with server:
            address = Address(server.sockets[0].getsockname()[1])
            load = await opened(address, [Question("/", {})], 1e6, 3e-4, 1)
            while len(lost) < len(made):
                await asyncio.sleep(0.01)
        assert {each.status for each in load.answers} == {429}
        return len(load.answers)

    assert asyncio.run(story()) > 200
    assert len(made) < 100


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_answers_are_read_however_they_are_cut(size: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nA: b:c\r\n"
    answers = {
        head + b"Content-Length: 5\r\n\r\nhello": b"hello",
        head + b"Content-Length: 0\r\n\r\n": b"",
        head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n": b"hello",
        head + b"\r\n": b"",
    }
    for raw, body in answers.items():
        reading = Reading()
        parts = [raw[at : at + size] for at in range(0, len(raw), size)]
        whole = [reading.add(part) for part in parts]
        assert whole == [False] * (len(parts) - 1) + [True]
        assert (reading.status, reading.headers["a"], reading.body) == (200, "b:c", body)
    endless = Reading()
    assert not endless.add(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhel")
    assert not endless.add(b"lo") and endless.ends_it and endless.body == b"hello"
    with pytest.raises(ValueError):
        Reading().add(b"HTTP/1.1 no\r\n\r\n")


def test_an_answer_that_ends_with_its_connection_and_one_that_never_comes() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readuntil(b"\r\n\r\n")
        if b"/whole" in first:
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello")
        elif b"/never" in first:
            await asyncio.sleep(0.5)
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")
        writer.close()

    async def story() -> list[tuple[int, bytes]]:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            link = Link(server.sockets[0].getsockname()[1])
            found = [await link.ask("GET", path, wait=0.1) for path in ("/whole", "/never", "/half")]
            link.close()
            await asyncio.sleep(0.6)
        return [(each.status, each.body) for each in found]

    assert asyncio.run(story()) == [(200, b"hello"), (0, b""), (0, b"")]


def test_a_mix_of_lengths_comes_again_from_its_seed() -> None:
    texts = mix.texts(1)
    assert texts == mix.texts(1) != mix.texts(2)
    words = sorted(len(text.split()) for text in texts)
    assert words[0] <= 2 and words[-1] > 10 * words[len(words) // 2]


def test_threads_for_texts_are_there_from_the_start() -> None:
    """They came one by one, when so many asked at once, and a day's count of threads seemed to leak."""
    with text_threads(3) as threads:
        begun = threading.active_count()
        assert len(list(threads.map(lambda number: number, range(100)))) == 100
        assert threading.active_count() == begun
        assert len(threads._threads) == 3
