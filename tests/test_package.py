"""The package as it is shipped: what wheel and sdist hold, and that the wheel alone runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from conftest import Command
from regard.cli import doctor
from regard.config import Task
from regard.data.formats import open_document
from regard.errors import UsageError

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
KINDS = {
    ".py",
    ".typed",
    ".html",
    ".css",
    ".js",
    ".svg",
    ".json",
    ".toml",
    ".safetensors",
    ".md",
    ".txt",
    ".j2",
    ".tsv",
    ".zip",  # the phrasebook
    ".png",  # of a lesson
    ".flac",
}

RUN = """
data = {train = "pairs.tsv", valid = "pairs.tsv", leaks = "keep"}
text.vocabulary = 300
model = {width = 16, heads = 2, layers = 1, feed_forward = 16, max_length = 32}
train = {steps = 2, threads = 1}
decode = {beam = 1, max_length = 4}
"""


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=240, **options)  # type: ignore[call-overload,no-any-return]


def source_files() -> set[str]:
    """The package's files that git would keep."""
    found = run("git", "ls-files", "--cached", "--others", "--exclude-standard", "src/regard", cwd=ROOT)
    if found.returncode:
        pytest.skip("git is needed to know which files belong to the package")
    return {name.removeprefix("src/") for name in found.stdout.splitlines() if (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, built with what is installed: nothing is fetched."""
    pytest.importorskip("build", reason="build is not installed")
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    place = tmp_path_factory.mktemp("dist")
    command = ("-m", "build", "--wheel", "--sdist", "--no-isolation", "--outdir", place, ROOT)
    done = run(sys.executable, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


def test_the_version_stands_in_two_places_and_in_the_changes() -> None:
    assert PROJECT["project"]["version"] == regard.__version__
    assert f"## {regard.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_pinned_version_is_allowed() -> None:
    """requirements.txt has one version of everything that pyproject.toml asks for."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pinned = {re.split("==", line)[0].lower().replace("_", "-") for line in lines if "==" in line}
    project = PROJECT["project"]
    asked = [
        *project["dependencies"],
        *(each for own in project["optional-dependencies"].values() for each in own),
    ]
    names = {re.split(r"[<>=\[ ]", each)[0].lower().replace("_", "-") for each in asked}
    assert names - pinned <= {"regard"}


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [
        ("polib", "po", "a.po"),
        ("srt", "subtitles", "a.srt"),
    ],
)
def test_a_document_format_without_its_extra_is_refused_by_name(
    package: str, module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"regard.data.formats.{module}", raising=False)
    with pytest.raises(UsageError, match=r"regard\[documents\]") as caught:
        open_document(tmp_path / name, Task())
    assert caught.value.code == "E_EXTRA_MISSING"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    own = {name for name in names if name.startswith("regard/")}
    about = f"regard-{regard.__version__}.dist-info/"
    assert own == source_files()
    assert all(name.startswith(about) for name in names - own)
    assert {Path(name).suffix for name in own} <= KINDS
    assert {"regard/py.typed", "regard/server/web/index.html", "regard/cli/main.py"} <= own
    assert {f"{about}licenses/LICENSE", f"{about}licenses/NOTICE"} <= names


def test_the_sdist_can_be_built_and_tested_from(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    tops = {name.split("/")[0] for name in names if name}
    wanted = {"src", "tests", "bench", "qa", "recipes", "docs", "notebooks"}
    files = {"Makefile", "requirements.txt", "mkdocs.yml", "pyproject.toml", "PKG-INFO", "LICENSE", "NOTICE"}
    read = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
    assert tops - {".gitignore", "Containerfile"} == wanted | files | read
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".whl"))]
    assert {f"src/{name}" for name in source_files()} <= names


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel alone in a folder, beside what it depends on."""
    place = tmp_path_factory.mktemp("site")
    options = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", "--no-compile")
    done = run(sys.executable, "-m", "pip", "install", *options, "--target", place, wheel)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def program(installed: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The wheel's own script, with the wheel's files before all others."""
    own = {**os.environ, "PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    own["REGARD_CACHE"] = str(tmp_path / "cache")
    where = run(sys.executable, "-c", "import regard; print(regard.__file__)", cwd=tmp_path, env=own)
    assert Path(where.stdout.strip()).is_relative_to(installed)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        done = run(sys.executable, installed / "bin" / "regard", *words, cwd=tmp_path, env=own)
        assert done.returncode == 0, done.stderr
        return done

    return call


def test_the_wheel_runs_away_from_its_source(
    program: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    shown = program("--help")
    assert ("Train, run and see Transformers" in shown.stdout, shown.stderr) == (True, "")
    assert json.loads(program("doctor", "--json").stdout)["regard"] == regard.__version__


@pytest.mark.slow
def test_the_wheel_trains_translates_and_explains(
    program: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    """All that is needed is in it, the explorer's page too."""
    (tmp_path / "pairs.tsv").write_text("".join(f"a {word}\tein {word}\n" for word in "bcdefgh"))
    (tmp_path / "run.toml").write_text(RUN)
    program("train", "run.toml", "--output", "out")
    assert (tmp_path / "out" / "report.html").is_file()
    assert program("translate", "-m", "out", "a b").stdout.count("\n") == 1
    program("explain", "-m", "out", "a b", "-o", "page.html")
    assert "<script" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "expected"), [("regard tra", "train\ntranscribe\ntranslate\n"), ("regard config ch", "check\n")]
)
def test_the_shell_completes_commands(words: str, expected: str) -> None:
    asked = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    found = run(sys.executable, "-m", "regard", env={**os.environ, **asked})
    assert sorted(found.stdout.split()) == expected.split()


def test_the_shell_completes_options() -> None:
    words = "regard translate --on-"
    asked = {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "2"}
    assert run(sys.executable, "-m", "regard", env={**os.environ, **asked}).stdout.split() == [
        "--on-too-long"
    ]


# doctor


def test_the_doctor_tells_what_lacks_and_what_to_do(
    regard: Command, monkeypatch: pytest.MonkeyPatch, same_threads: None
) -> None:
    find = doctor.util.find_spec
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: None if name == "onnx" else find(name))
    monkeypatch.setattr(doctor, "available_memory", lambda: 2**30)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("regard.device.available_cores", lambda: [0, 1])
    monkeypatch.delenv("REGARD_DATA", raising=False)
    told = json.loads(regard("doctor", "--json").out)
    assert told["extra export"] == "lacks onnx"
    advice = "\n".join(told["advice"])
    for sentence in (
        "pip install 'regard[export]'",
        "REGARD_DATA",
        "OMP_NUM_THREADS = 1 ",
        "tokens_per_batch",
    ):
        assert sentence in advice
    shown = regard("doctor").out
    assert all(f"- {sentence}\n" in shown for sentence in told["advice"])
    assert re.search(r"^memory +[\d.]+ GiB, 1\.0 GiB free", shown, re.MULTILINE)


def test_the_doctor_knows_every_extra_for_users() -> None:
    offered = set(PROJECT["project"]["optional-dependencies"]) - {"test", "docs"}
    assert set(doctor.EXTRAS) == offered
    for extra, (modules, _) in doctor.EXTRAS.items():
        asked = {
            re.split(r"[<>=\[]|-skinny", each)[0]
            for each in PROJECT["project"]["optional-dependencies"][extra]
        }
        assert set(modules) == asked
