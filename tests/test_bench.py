"""Benchmarks and trials run seldom, so nobody sees when the code they measure moves away from under them."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from qa.trials import TRIALS

ROOT = Path(__file__).parent.parent
PROGRAMS = [path for folder in ("bench", "qa") for path in sorted((ROOT / folder).rglob("*.py"))]
MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PROGRAMS]


@pytest.mark.parametrize(
    "name", [name for name in MODULES if not name.endswith(("__main__", "compat.calls"))]
)
def test_every_program_finds_what_it_measures(name: str) -> None:
    """bench/decoding.py went on importing a name that had moved to another file."""
    assert importlib.import_module(name).__doc__


def test_the_readme_lists_every_trial() -> None:
    readme = (ROOT / "qa" / "README.md").read_text(encoding="utf-8")
    for name, trial in TRIALS.items():
        assert f"| `{name}` | {trial.promise} | {trial.count:,} | {trial.seconds} |" in readme
    assert readme.count("\n| `") == len(TRIALS)


def test_the_readme_lists_every_benchmark() -> None:
    readme = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE))
    programs = {path.stem for path in (ROOT / "bench").glob("*.py") if "__main__" in path.read_text("utf-8")}
    assert listed == programs
    assert set(re.findall(r"python -m bench\.(\w+)", readme)) == programs
    for name in programs:
        module = importlib.import_module(f"bench.{name}")
        assert "python -m bench." + name in (module.__doc__ or ""), name


def test_a_trial_runs_by_its_name(capfd: pytest.CaptureFixture[str]) -> None:
    subprocess.run([sys.executable, ROOT / "qa", "archives"], check=True)
    result = json.loads(capfd.readouterr().out)
    assert (result["name"], result["failures"]) == ("archives", 0) and result["n"] >= 40
    assert subprocess.run([sys.executable, ROOT / "qa", "nothing"], check=False).returncode == 2
    assert "no trial is called nothing" in capfd.readouterr().err
