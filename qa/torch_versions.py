"""Install the package beside other versions of torch and run the core tests there.

    python qa/torch_versions.py 2.6.0 2.15.0

Promise: the range of torch in pyproject.toml is one that the package works with. Each version gets a virtual
environment of its own, with everything else as in requirements.txt, and is deleted afterwards unless --keep
is given. The usual build of torch for Linux brings some 5 GB of CUDA libraries; the CPU build is smaller:
`--index URL` names an index of wheels that is searched as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ("attention", "laws", "models", "search", "engine", "packing", "train", "store")
TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis", "transformers", "httpx")
FREE = ("torch", "fsspec", "sympy", "networkx", "filelock", "setuptools")  # as torch needs them


def install(python: Path, version: str, constraints: Path, index: str | None) -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.split("==")[0].lower() not in FREE]
    constraints.write_text("\n".join(kept), encoding="utf-8")
    more = ["--extra-index-url", index] if index else []
    packages = [f"torch=={version}", *TOOLS, "-e", f"{ROOT}[hub]"]
    command = [python, "-m", "pip", "install", "--quiet", "--no-compile", *more, "-c", constraints, *packages]
    subprocess.run(command, check=True)


def run_tests(python: Path, tests: list[str]) -> str:
    """pytest's last line."""
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in tests]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # a warning of another torch about its own future is no fault of the package
    options = ["-m", "not slow", "-p", "no:cacheprovider", "-W", "default", "-q"]
    command = [python, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()[-500:]]
    print(*(line for line in lines if line.startswith(("FAILED", "ERROR"))), sep="\n")
    return lines[-1] if done.returncode == 0 else f"FAILED: {lines[-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("versions", nargs="+", help="versions of torch")
    parser.add_argument("--index", help="another index of wheels, such as that of torch's CPU builds")
    parser.add_argument("--keep", type=Path, help="folder for the environments, which are kept")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="names of tests/test_*.py")
    args = parser.parse_args()
    place = args.keep or Path(tempfile.mkdtemp(prefix="torch-versions-"))
    results = {}
    for version in args.versions:
        folder = place / version
        python = folder / "bin" / "python"
        try:
            if not python.is_file():
                subprocess.run([sys.executable, "-m", "venv", folder], check=True)
                install(python, version, folder / "constraints.txt", args.index)
            results[version] = run_tests(python, args.tests)
        except subprocess.CalledProcessError as error:
            results[version] = f"FAILED: {error}"
        finally:
            if args.keep is None:
                shutil.rmtree(folder)
        print(f"torch {version}: {results[version]}", flush=True)
    sys.exit(any(line.startswith("FAILED") for line in results.values()))


if __name__ == "__main__":
    main()
