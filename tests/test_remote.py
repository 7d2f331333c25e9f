"""Corpora at addresses of fsspec: fetched once, checked, fetched again when they change."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from regard.config import resolve
from regard.data import remote
from regard.data.cache import cache_folder, entries
from regard.data.corpora import check_data, read_examples
from regard.data.files import find
from regard.errors import UsageError
from regard.sample import Example

ROWS = "a\tb\nc\td\n"


@pytest.fixture(autouse=True)
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    remote.fetch.cache_clear()
    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/train.tsv", ROWS.encode())
    yield memory
    memory.rm("/bucket", recursive=True)
    remote.fetch.cache_clear()


def examples(address: str) -> list[Example]:
    data = resolve({"data": {"train": address}})
    check_data(data.data, data.task)
    return read_examples(data.data.train, data.task, "train")


def test_rows_are_those_of_a_local_file(tmp_path, storage):
    (tmp_path / "train.tsv").write_text(ROWS)
    expected = examples(str(tmp_path / "train.tsv"))
    assert len(expected) == 2
    assert examples("memory://bucket/train.tsv") == examples(f"file://{tmp_path}/train.tsv") == expected
    assert find(f"file://{tmp_path}/train.tsv") == tmp_path / "train.tsv"  # not copied
    assert entries() == []  # it is no prepared corpus


def test_a_file_is_fetched_once_and_again_when_it_changes_or_is_damaged(storage, monkeypatch):
    fetched = []
    plain = remote.download
    monkeypatch.setattr(remote, "download", lambda *given: fetched.append(given[2]) or plain(*given))
    address = "memory://bucket/train.tsv"
    for _ in range(2):
        first = find(address)
        remote.fetch.cache_clear()  # as another process
    assert len(fetched) == 1 and first.is_relative_to(cache_folder())
    first.write_text("a\tX\nc\td\n")
    assert find(address).read_text() == ROWS and len(fetched) == 2
    remote.fetch.cache_clear()
    storage.pipe("/bucket/train.tsv", b"e\tf\n")
    assert find(address).read_text() == "e\tf\n" and len(fetched) == 3


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("memory://bucket/none.tsv", "E_DATA_REMOTE"),
        ("nosuch://bucket/train.tsv", "E_DATA_REMOTE"),
    ],
)
def test_what_cannot_be_fetched_is_named(address, code):
    with pytest.raises(UsageError) as caught:
        examples(address)
    assert caught.value.code == code and str(caught.value).startswith(address)


def test_a_transfer_that_ends_early_is_refused(storage, monkeypatch):
    info = type(storage).info
    monkeypatch.setattr(
        type(storage), "info", lambda self, path, **more: info(self, path, **more) | {"size": 1000}
    )
    with pytest.raises(UsageError, match="8 of 1,000 bytes") as caught:
        find("memory://bucket/train.tsv")
    assert caught.value.code == "E_DATA_REMOTE"
    assert not [path for path in cache_folder().rglob("*") if path.is_file()]


def test_a_storage_whose_package_is_missing_is_named(monkeypatch):
    def without(address):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec.core, "url_to_fs", without)
    with pytest.raises(UsageError, match="s3fs") as caught:
        examples("s3://bucket/train.tsv")
    assert caught.value.code == "E_EXTRA_MISSING"
