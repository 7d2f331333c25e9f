"""Benchmarks and trials run seldom, so nobody sees when the code they measure moves away from under them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = [path for folder in ("bench", "qa") for path in sorted((ROOT / folder).rglob("*.py"))]
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PROGRAMS]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_every_program_finds_what_it_measures(name: str) -> None:
    """bench/decoding.py went on importing a name that had moved to another file."""
    assert importlib.import_module(name).__doc__
