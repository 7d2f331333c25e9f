"""Run the same calls on an earlier commit and on this code, and show every difference.

    python qa compat
    python -m qa.compat [--old a3b171c] [--work DIR] [--show NAME]

Builds a wheel of the earlier commit, installs it aside, and runs `calls.py` once with each code: commands,
Python, HTTP, folders written by version 1, a resumed run. A difference that `differences.toml` does not list
with its reason makes this fail, and so does an entry of that list that no longer occurs.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from qa.result import Result

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BASE = "a3b171c"  # the last commit of format version 1


def site_of(commit: str, work: Path) -> Path:
    """The package of a commit, built as a wheel and installed into a folder of its own."""
    site, tree = work / f"site-{commit}", work / f"tree-{commit}"
    if not site.is_dir():
        subprocess.run(
            ["git", "-C", ROOT, "worktree", "add", "--force", "--detach", tree, commit], check=True
        )
        try:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
            subprocess.run([*pip, "--target", site, tree], check=True)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True)
    return site


def results_of(site: Path, name: str, work: Path) -> dict[str, Any]:
    """What every call gave with the code in `site`."""
    folder, results = work / name, work / f"{name}.json"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    environment |= {"REGARD_CACHE": str(folder / "cache"), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, HERE / "calls.py", ROOT / "tests" / "data" / "v1", results]
    subprocess.run(command, check=True, cwd=folder, env=environment)
    found: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return found


def lines_of(value: Any) -> list[str]:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True).splitlines()


def compare(work: Path, commit: str = BASE, show: str = "") -> Result:
    """Every call with both codes; `show` is a pattern of listed differences to print too."""
    old, new = results_of(site_of(commit, work), "old", work), results_of(ROOT / "src", "new", work)
    listed = tomllib.loads((HERE / "differences.toml").read_text(encoding="utf-8"))
    reasons = {name: entry["reason"] for name, entry in listed.items()}
    used, wrong = set(), list[str]()
    differing = [name for name in old if old[name] != new[name]]
    for name in differing:
        pattern = next((each for each in reasons if fnmatch.fnmatchcase(name, each)), None)
        used.add(pattern)
        print(f"{name}: {reasons.get(pattern or '', 'NOT LISTED')}", file=sys.stderr)
        if pattern is None or (show and fnmatch.fnmatchcase(name, show)):
            lines = difflib.unified_diff(lines_of(old[name]), lines_of(new[name]), n=1)
            print("\n".join(list(lines)[:40]), file=sys.stderr)
        wrong += [f"{name}: differs and is not listed"] if pattern is None else []
    figure = {"equal": len(old) - len(differing), "listed": len(differing) - len(wrong)}
    wrong += [f"{name}: listed but equal" for name in sorted(set(reasons) - used)]
    return Result("compat", len(old), len(wrong), figure, 0, {}, wrong)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", default=BASE, help="commit to compare with")
    parser.add_argument("--work", type=Path, help="keep wheels and results here")
    parser.add_argument("--show", default="", help="also show the listed difference of this name (a pattern)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as aside:
        work = (given.work or Path(aside)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        result = compare(work, given.old, given.show)
    print(result.line(), *result.wrong, sep="\n")
    return int(result.failures > 0)


if __name__ == "__main__":
    sys.exit(main())
