"""`regard bench serve`: what it asks, when, and what it tells."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Command, Refused
from regard.errors import UsageError
from regard.serve.driver import Question, closed, opened, question, questions_for, share, times
from regard.serve.keys import Keys, add_key
from regard.serve.link import Address
from regard.serve.run import Place
from served import Served, models, served

TEXTS = ["The cat sleeps .", "A house", "I see the small house ."]


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as own:
        yield own


def test_figures_of_a_running_server(server: Served, regard: Command, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("\n".join([*TEXTS, "", " "]), encoding="utf-8")
    common = (
        "bench",
        "serve",
        "--url",
        server.address,
        "--file",
        str(tmp_path / "texts"),
        "--seconds",
        "0.5",
    )
    told = json.loads(regard(*common, "--clients", "2", "--json").out)
    assert told["way"] == "2 clients"
    assert told["answered"] == told["asked"] > 0 == told["failed"] == told["refused"]
    assert 0 < told["p50"] <= told["p95"] <= told["p99"]
    assert told["requests_per_second"] == pytest.approx(told["answered"] / told["seconds"], rel=0.05)
    assert told["tokens_per_second"] > told["requests_per_second"], "a translation has several pieces"
    shown = regard(*common, "--rate", "8").out
    assert "8 requests a second by chance" in shown
    for word in ("p50", "p95", "p99", "requests a second", "tokens a second", "refused"):
        assert word in shown


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


def test_a_server_that_wants_a_key(regard: Command, refused: Refused, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "bench")
    with served(Place(port=0), keys=Keys(tmp_path / "keys.json")) as own:
        asked = ("bench", "serve", "--url", own.address, "--seconds", "0.2", "--clients", "1", "--json")
        assert "--key" in refused(*asked, code=1)
        assert json.loads(regard(*asked, "--key", key).out)["failed"] == 0
        assert key not in repr(Address.of(own.address, key))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ([], "either the folder"),
        (["runs/demo", "--url", "http://127.0.0.1:1"], "either the folder"),
        (["--url", "127.0.0.1:8000"], "give the address as http://"),
        (["--url", "http://127.0.0.1:99999"], "give the address as http://"),
        (["--url", "http://127.0.0.1:1/v1"], "without /v1"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(refused: Refused, options: list[str], part: str) -> None:
    assert part in refused("bench", "serve", *options)


def test_nobody_there_and_no_text(refused: Refused, tmp_path: Path) -> None:
    assert "nobody answers there" in refused("bench", "serve", "--url", "http://127.0.0.1:1", code=1)
    (tmp_path / "empty").write_text("\n \n")
    gone = refused("bench", "serve", "--url", "http://127.0.0.1:1", "--file", str(tmp_path / "empty"))
    assert "there is no text in it" in gone
    assert "did not start" in refused("bench", "serve", str(tmp_path / "nothing"), code=1)
