"""kill -9 at any moment, then --resume: the same bits as an uncut run (a sample of qa/survive/kills.py)."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from qa.survive.kills import kills, one_life, signals

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="lives are counted in /proc"),
    # newer Pythons warn of forks beside threads, and none is at work here
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def test_killed_and_resumed_is_the_same(tmp_path):
    result = kills(count=2, seed=4, work=tmp_path, updates=20)
    assert (result.n, result.failures) == (2, 0), result.wrong


def test_asked_to_stop_it_saves_and_leaves(tmp_path, monkeypatch):
    for limit in ("QUICK", "QUICKER"):  # the trial measures times
        monkeypatch.setattr(f"qa.survive.kills.{limit}", 60.0)
    result = signals(count=2, seed=2, work=tmp_path, updates=20)
    assert (result.n, result.failures) == (2, 0), result.wrong


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_before_it_has_begun_it_leaves(tmp_path, number):
    """Once a signal met the child of a trial too early, and the trial's own folder was swept away by it."""
    (tmp_path / "run.toml").write_text("[data]\n")
    for wait in range(8):

        def strike(child, marks, wait=wait):
            time.sleep(wait / 1000)
            os.kill(child, number)
            return time.monotonic()

        death = one_life(tmp_path, tmp_path / f"cut-{wait}", False, None, strike)
        # 2: it came so late that the recipe was read
        assert death.code in (130, -signal.SIGTERM, 2), death.said
        assert "Traceback" not in death.said
        assert tmp_path.is_dir()
