"""Benchmarks run seldom, so nobody sees when the code they measure moves away from under them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHES = sorted(path.stem for path in (Path(__file__).parent.parent / "bench").glob("*.py"))


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_finds_what_it_measures(name: str) -> None:
    """bench/decoding.py went on importing a name that had moved to another file."""
    assert importlib.import_module(name).__doc__
