"""The page about scaling has the figures that are computed from the configs of the recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.communication import JOBS, bytes_of_update, jobs, models, seconds, slow

PAGE = (Path(__file__).parent.parent / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("table", [models, jobs, slow])
def test_the_tables_of_the_page_are_those_computed(table) -> None:
    assert "\n".join(table()) in PAGE, "run: python -m bench.communication"


def test_bytes_of_an_update() -> None:
    """By hand: four ranks, a million parameters of four bytes."""
    assert bytes_of_update(1_000_000, 4, "ddp") == pytest.approx(6e6)
    assert bytes_of_update(1_000_000, 4, "ddp", "bfloat16") == pytest.approx(3e6)
    assert bytes_of_update(1_000_000, 4, "fsdp") == pytest.approx(9e6)
    assert bytes_of_update(1_000_000, 4, "fsdp", "bfloat16") == pytest.approx(7.5e6)
    assert bytes_of_update(1_000_000, 4, "fsdp", accumulate=8) == pytest.approx(51e6)
    assert bytes_of_update(1_000_000, 1, "ddp") == 0
    assert all(update >= max(computing, sending) for computing, sending, update in map(seconds, JOBS))
