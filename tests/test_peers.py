"""Ranks find one another, compare what they start with, and name the one that is gone (threads as ranks)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from qa.survive.parallel import free_port
from regard.errors import PeerError, RegardError, UsageError
from regard.training import peers as module
from regard.training.peers import Peers, refuse_differences

RANKS = 3
FACTS: dict[str, Any] = {"config": {"train": {"lr": 0.1, "seed": 1}}, "versions": {"regard": "1"}}


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Peers]]]:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setattr(module, "LOOK", 0.05)
    every: list[Peers] = []

    def ranks(timeout: float = 30.0) -> list[Peers]:
        for rank in range(RANKS):
            every.append(Peers(rank, RANKS, timeout, "test"))
            every[-1].interval = 0.1
        together([lambda peers=peers: peers.join(FACTS) for peers in every])
        for rank, peers in enumerate(every):
            peers.hosts = [f"node-{number}" for number in range(RANKS)]
            assert peers.rank == rank
        return every

    yield ranks
    for peers in every:
        peers.close()


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """The results or the errors of calls at the same time."""

    def result(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except RegardError as error:
            return error

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(result, calls))


@pytest.mark.parametrize(
    ("where", "value", "name"),
    [
        (("config", "train", "lr"), 0.2, "config.train.lr"),
        (("versions", "regard"), "2", "versions.regard"),
        (("data",), "other", "data"),
    ],
)
def test_a_rank_that_began_otherwise_is_named(where: tuple[str, ...], value: Any, name: str) -> None:
    import copy

    facts = [{"host": f"node-{rank}", **copy.deepcopy(FACTS)} for rank in range(RANKS)]
    refuse_differences(facts)
    place = facts[2]
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(UsageError) as caught:
        refuse_differences(facts)
    assert caught.value.code == "E_RUN_RANKS"
    assert all(part in str(caught.value) for part in ("rank 2", "node-2", name, "node-0"))


def test_all_get_the_facts_of_all_and_pass_every_meeting(start: Callable[..., list[Peers]]) -> None:
    ranks = start()
    for _ in range(5):
        assert together([peers.wait_for_all for peers in ranks]) == [None] * RANKS
    assert [peers.operations for peers in ranks] == [5] * RANKS


def test_a_missing_rank_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    with pytest.raises(PeerError) as caught:
        Peers(0, 2, 0.3, "test").join(FACTS)
    assert caught.value.code == "E_RUN_PEER" and "rank 1 of 2" in str(caught.value)


def test_a_rank_that_stops_beating_is_named_by_all_who_wait(start: Callable[..., list[Peers]]) -> None:
    """However long rank 0 works, the others wait; a rank whose count stands still for `timeout` is gone."""
    ranks = start(timeout=1.5)
    late = threading.Timer(2.0, ranks[0].wait_for_all)  # longer than the timeout, but alive
    late.start()
    assert together([ranks[1].wait_for_all, ranks[2].wait_for_all]) == [None, None]
    late.join()
    ranks[1].close()
    errors = together([ranks[0].wait_for_all, ranks[2].wait_for_all])
    for error in errors:
        assert isinstance(error, PeerError) and "rank 1 (node-1) ended" in str(error)
        assert not error.reports  # rank 0 is there to say it


def test_the_reason_of_a_rank_that_fails_reaches_the_others(start: Callable[..., list[Peers]]) -> None:
    ranks = start()
    ranks[2].publish(UsageError("/data/train.tsv: no such file", code="E_DATA_FILE"))
    ranks[2].close()
    errors = together([ranks[0].wait_for_all, ranks[1].wait_for_all])
    assert all("rank 2 (node-2): /data/train.tsv: no such file" in str(error) for error in errors)


def test_after_a_failed_operation_all_name_the_same_rank(start: Callable[..., list[Peers]]) -> None:
    """One was killed; whoever ends because of it is not to blame, and without rank 0 the next one reports."""
    ranks = start()
    ranks[0].close()
    first = ranks[1].failure()
    ranks[1].close()
    second = ranks[2].failure()
    assert all("rank 0 (node-0) ended" in str(error) for error in (first, second))
    assert (first.reports, second.reports) == (True, False)


def test_a_rank_that_hangs_is_named(start: Callable[..., list[Peers]]) -> None:
    """It is alive, but has begun fewer operations than those who waited for it."""
    ranks = start()
    for peers in ranks[:2]:
        peers.operations = 7
    time.sleep(0.2)
    error = ranks[0].failure()
    assert "rank 2 (node-2) did not take part" in str(error) and error.code == "E_RUN_PEER"
