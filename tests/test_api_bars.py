"""Short samples of the trials of a server (qa/serving), over a model that really translates."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import toy_sentences
from qa.serving import attack, batch_invariance, bounds, leaving
from qa.serving import load as loads
from qa.serving.client import Link, Result, Server
from regard.server.keys import Keys, add_key
from regard.server.requests import ServerLimits
from regard.server.run import ListenAddress
from regard.tasks import Translator, load
from served import models, served

PAIR = ("toy", "TOY")
TEXTS = toy_sentences(40, 9)
QUICK = ServerLimits(header_seconds=0.4, body_seconds=0.5, idle_seconds=1, write_seconds=0.5)


@pytest.fixture(scope="module")
def toy_translator(tiny_model: Path) -> Translator:
    found: Translator = load(tiny_model, threads=1)
    return found


@pytest.fixture(scope="module")
def server(toy_translator: Translator) -> Iterator[Server]:
    opened = {"toy": toy_translator, "gpt": models()["gpt"], "fill": models()["fill"]}
    with served(models=opened, bounds=QUICK) as own:
        yield Server(own.port)


def check(result: Result) -> None:
    assert result.failures == 0, result.line()
    assert result.n > 0


def test_overload(toy_translator: Translator) -> None:
    """More than can be done is refused with a time, and nothing else goes wrong.

    With the usual deadlines: these clients share a process with the server, and when it is overloaded they
    are late with their own requests.
    """
    with served(models={"toy": toy_translator}) as own:
        result = asyncio.run(loads.overload(Server(own.port), 1, 1.2, PAIR, TEXTS))
    # 0: a client that was too late with its own request; the trial of qa has them in another process
    assert result.n > 0 and set(result.figure["other"]) <= {0}, result.line()


def test_input_limits(server: Server) -> None:
    result = asyncio.run(bounds.limits(server, 1, 40, "gpt", PAIR, huge=1 << 23))
    check(result)
    assert set(result.figure["statuses"]) <= {200, 400, 404, 413}


def test_cancel(server: Server) -> None:
    """Who leaves while waiting or reading a stream. A busy machine may take its time."""
    check(asyncio.run(leaving.cancel(server, 1, 20, PAIR, TEXTS, "gpt", patience=60)))


def test_deadline(toy_translator: Translator) -> None:
    """Who has no time left is told so, and the work for it ends."""
    with served(models={"toy": toy_translator}, bounds=ServerLimits(request_seconds=0.005)) as own:
        check(asyncio.run(leaving.deadline(Server(own.port), 1, 2, 0.005, PAIR, TEXTS, patience=60)))


def test_slow_clients(server: Server) -> None:
    """The server closes their connections before they give up."""
    check(asyncio.run(leaving.slow(server, 1, 10, 60.0, PAIR, TEXTS, most=59.0)))


def test_soak(server: Server) -> None:
    """Too short to see memory grow: nothing is left open."""
    models = {"toy": "translate", "gpt": "generate", "fill": "fill"}
    result = asyncio.run(attack.soak(server, 1, 80, models, PAIR, TEXTS))
    assert set(result.figure["asked"]) == set(models) and result.figure["wrong_answers"] == 0
    assert result.figure["after"]["fd"] <= result.figure["before"]["fd"] + 2, result.line()


def test_protocol_fuzzing(server: Server) -> None:
    check(asyncio.run(attack.fuzz(server, 1, 120, 19, ["toy", "gpt", "fill"])))


def test_the_same_in_company(server: Server, toy_translator: Translator) -> None:
    """Equal to what the model says without a server."""
    n, failures, said = asyncio.run(batch_invariance.served(server, 1, 40, PAIR, TEXTS))
    assert n > 40 and failures == 0
    assert said == toy_translator.translate(TEXTS)

    async def ask() -> list[str]:
        link = Link(server.port)
        found = await link.ask("POST", "/translate", {**loads.body("", *PAIR), "q": TEXTS})
        link.close()
        texts: list[str] = found.json()["translatedText"]
        return texts

    assert asyncio.run(ask()) == toy_translator.translate(TEXTS)


@pytest.mark.slow  # twenty seconds
@pytest.mark.usefixtures("same_threads")
def test_scores_are_the_same_in_company(tiny_model: Path) -> None:
    """Bit by bit; the control, without what makes sums steady, must differ."""
    n, failures, figure = batch_invariance.engine(str(tiny_model), 1, 12, TEXTS[:12])
    assert n == 72 and failures == 0, figure
    assert figure["control"]["scores"] > 0


def test_foreign_pages(toy_translator: Translator, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "bar")
    with served(
        ListenAddress(port=0), models={"toy": toy_translator}, keys=Keys(tmp_path / "keys.json")
    ) as own:
        check(asyncio.run(attack.strangers(Server(own.port), 1, key)))


def test_drain(tiny_model: Path) -> None:
    """With a process of its own: SIGTERM under load."""
    make = bounds.fresh([str(tiny_model)], "--threads", "1")
    check(asyncio.run(bounds.drain(make, 1, 1, PAIR, TEXTS, notice=30)))
