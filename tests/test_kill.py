"""kill -9 at any moment, then --resume: the same bits as an uncut run (a short sample of bench/kills.py)."""

from __future__ import annotations

import sys

import pytest

from kills import signals, trial

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="lives are counted in /proc"),
    # newer Pythons warn of forks beside threads, and none is at work here
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


def test_killed_and_resumed_is_the_same(tmp_path):
    bar = trial(kills=2, seed=4, work=tmp_path, updates=20)
    assert (bar.n, bar.failures) == (2, 0), bar.wrong


def test_asked_to_stop_it_saves_and_leaves(tmp_path):
    bar = signals(count=2, seed=2, work=tmp_path, updates=20)
    assert (bar.n, bar.failures) == (2, 0), bar.wrong
