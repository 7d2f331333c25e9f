"""A made-up language and a model that speaks it, trained once for all tests in a few seconds."""

from __future__ import annotations

import io
import random
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from regard import cli
from regard.config import Config, resolve
from regard.training import report

WORDS = {  # each word has one translation, and the order of the words is reversed
    "".join((onset, vowel)): "".join((vowel.upper(), onset)) for onset in "bdfgklmn" for vowel in "aei"
}
SOURCE_WORDS = sorted(WORDS)
FINISH_REPORT = report.finish_report

# What a shell begins in the background ignores Ctrl-C, and so do its children: tests that interrupt a command
# would wait for ever. Workers of xdist collect in their main thread too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread().name == "MainThread":
    signal.signal(signal.SIGINT, signal.default_int_handler)


def toy_translation(source: str) -> str:
    return " ".join(WORDS[word] for word in reversed(source.split()))


def toy_sentences(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(SOURCE_WORDS, k=dice.randint(1, 4))) for _ in range(count)]


def write_toy_corpus(path: Path, count: int, seed: int) -> Path:
    rows = (f"{sentence}\t{toy_translation(sentence)}\n" for sentence in toy_sentences(count, seed))
    path.write_text("".join(rows), encoding="utf-8")
    return path


def toy_config(folder: Path, **train: object) -> Config:
    """A run on the toy language whose corpora lie in `folder`."""
    return resolve(
        {
            "task": {"source": "toy", "target": "TOY"},
            "data": {
                "train": str(write_toy_corpus(folder / "train.tsv", 4000, 1)),
                "valid": str(write_toy_corpus(folder / "valid.tsv", 40, 2)),
                "test": str(write_toy_corpus(folder / "test.tsv", 60, 3)),
                "leaks": "keep",  # its sentences are all one word apart
            },
            "text": {"kind": "word", "vocabulary": 400},
            "model": {
                "width": 32,
                "layers": 1,
                "heads": 2,
                "feed_forward": 64,
                "dropout": 0.0,
                "max_length": 64,
            },
            "train": {
                "steps": 400,
                "lr": 1e-2,
                "warmup": 80,
                "schedule": "linear",
                "betas": [0.9, 0.95],
                "tokens_per_batch": 512,
                "log_every": 50,
                "checkpoint_every": 200,
                "label_smoothing": 0.0,
                "threads": 1,
                **train,
            },
            "decode": {"beam": 2, "max_length": 12},  # before it has learnt, a model writes on and on
        }
    )


LONG = (  # files that take a minute, first: a worker that begins one last is waited for
    "test_page_runs", "test_learning", "test_page_export", "test_train", "test_generate", "test_page",
    "test_page_access", "test_marian", "test_lessons", "test_trace", "test_cli_train", "test_parallel",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@dataclass(frozen=True)
class Toy:
    """A trained model folder and the corpora beside it."""

    model: Path
    corpora: Path


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepared data of the tests never meets that of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_reports() -> Iterator[None]:
    """Charts would take half of the time of the tests' small trainings; tests of reports use `reports`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "finish_report", lambda folder, log: None)
        yield


@pytest.fixture
def reports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "finish_report", FINISH_REPORT)
        yield


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Toy:
    """Trained by the first process that asks; the others copy it, since some tests write beside it."""
    corpora, model = tmp_path_factory.mktemp("corpora"), tmp_path_factory.mktemp("models") / "toy"
    if worker_id == "master":
        train_toy(corpora, model)
        return Toy(model, corpora)
    shared = tmp_path_factory.getbasetemp().parent / "shared"
    with FileLock(f"{shared}.lock"):
        if not (shared / "done").exists():
            shared.mkdir()
            train_toy(shared, shared / "toy")  # whose card and report have its name
            (shared / "done").touch()
    toy_config(corpora)
    shutil.copytree(shared / "toy", model)
    return Toy(model, corpora)


def train_toy(corpora: Path, model: Path) -> None:
    from regard.training import train

    threads = torch.get_num_threads()
    try:
        train(toy_config(corpora), model)
        FINISH_REPORT(model, print)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_model(toy: Toy) -> Path:
    """The folder of a model that really translates the toy language."""
    return toy.model


@pytest.fixture
def same_threads() -> Iterator[None]:
    """Commands run in this process choose a number of threads; other tests must not see it."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        assert self.out.endswith("\n") or not self.out
        return self.out.split("\n")[:-1]


Command = Callable[..., Result]
Refused = Callable[..., str]


@pytest.fixture(name="regard")
def run_in_process(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in this process: torch is imported once for all tests. One thread: cores may be busy."""
    monkeypatch.setattr("regard.device.available_cores", lambda: [0])

    def run(*arguments: object, stdin: str | bytes = b"") -> Result:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main([str(argument) for argument in arguments])
        sys.stdout.flush()
        out, err = capsysbinary.readouterr()
        assert isinstance(caught.value.code, int)
        return Result(caught.value.code, out.decode(), err.decode())

    return run


@pytest.fixture
def refused(regard: Command) -> Refused:
    """Run a command that must fail: one sentence, no traceback, nothing on stdout."""

    def run(*arguments: object, stdin: str | bytes = b"", code: int = 2) -> str:
        result = regard(*arguments, stdin=stdin)
        assert (result.code, result.out) == (code, ""), result
        assert result.err.startswith("error: ")
        assert result.err.count("\n") == 1
        assert "Traceback" not in result.err
        return result.err.removeprefix("error: ").rstrip("\n")

    return run
