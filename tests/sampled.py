"""Cases of which `make test` takes some and `make test-hard` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """All cases; those that are not among the quick ones are marked slow."""
    every = list(cases)
    assert set(quick) <= set(every), "a quick case that is none"
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in every]
