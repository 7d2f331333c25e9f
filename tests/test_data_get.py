"""Public data sets: complete, verified, with their licence, or not at all."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Command, Refused
from hub_server import Repository, Server, running, sha256
from regard.data import public
from regard.data.public import DataFile, PublicDataset, public_datasets

TEXT = "".join(f"line {number}\n" for number in range(5000)).encode()
OTHER = b"another text\n"
REPOSITORY, COMMIT = "datasets/someone/set", "d" * 40


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as local:
        yield local


@pytest.fixture
def small(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A catalogue of three sets, and an empty folder of corpora."""
    server.files = {"/a/train.en.gz": gzip.compress(TEXT), "/a/train.de": OTHER}
    hub_files = {
        "data/train.jsonl": b'{"en": "a", "de": "b"}\n',
        "data/test.jsonl": b"{}\n",
        "README.md": b"#",
    }
    server.repositories[REPOSITORY] = Repository({COMMIT: hub_files}, {"main": COMMIT})
    sets = (
        PublicDataset(
            "pair",
            "two files",
            "CC0",
            (
                DataFile("train.en.gz", sha256(TEXT), f"{server.address}/a/train.en.gz"),
                DataFile("train.de.gz", sha256(OTHER), f"{server.address}/a/train.de"),
            ),
        ),
        PublicDataset(
            "hubbed", "from the hub", "CC BY", hub="someone/set", patterns=("data/*.jsonl",), folder="both"
        ),
        PublicDataset(
            "copied", "only from a folder", "ask", (DataFile("x.txt", sha256(OTHER)),), folder="both"
        ),
    )
    monkeypatch.setattr(public, "public_datasets", lambda: sets)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.delenv("REGARD_DATA_MIRROR", raising=False)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "corpora"))
    return tmp_path / "corpora"


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_set_is_fetched_from_its_addresses(regard: Command, small: Path, server: Server) -> None:
    found = regard("data", "get", "pair")
    assert (found.code, found.out) == (0, "")
    assert found.err.split("\n")[0] == "pair: licence CC0"
    assert names(small) == {
        f"pair/{name}" for name in ("train.en.gz", "train.de.gz", "SHA256SUMS", "LICENCE.txt")
    }
    assert gzip.decompress((small / "pair/train.de.gz").read_bytes()) == OTHER
    assert "Licence: CC0" in (small / "pair/LICENCE.txt").read_text()
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=small / "pair", capture_output=True)
    assert checked.returncode == 0
    assert regard("data", "get", "pair", "--verify").err == "pair: 2 files verified\n"
    requests = len(server.requests)
    assert regard("data", "get", "pair").err.endswith("pair: up to date\n")
    assert len(server.requests) == requests


def test_a_damaged_file_is_found_and_brought_again(regard: Command, refused: Refused, small: Path) -> None:
    regard("data", "get", "pair")
    victim = small / "pair/train.en.gz"
    victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    assert "train.en.gz: checksum mismatch" in refused("data", "get", "pair", "--verify", code=1)
    assert regard("data", "get", "pair").err.endswith(f"pair: 1 new files in {small / 'pair'}\n")
    assert regard("data", "get", "pair", "--verify").code == 0
    victim.unlink()
    assert "train.en.gz: missing" in refused("data", "get", "pair", "--verify", code=1)


def test_a_torn_connection_is_gone_on_with(regard: Command, small: Path, server: Server) -> None:
    server.tear_after, server.reachable = 1000, 1
    broken = regard("data", "get", "pair")
    assert broken.code == 1
    assert "train.en.gz: download failed (" in broken.err and "run the command again to resume" in broken.err
    assert names(small) == {"pair/LICENCE.txt", "pair/.train.en.gz.part"}
    server.tear_after = server.reachable = None
    server.requests.clear()
    assert regard("data", "get", "pair").code == 0
    assert server.requests[0] == ("GET", "/a/train.en.gz", "bytes=1000-")
    assert gzip.decompress((small / "pair/train.en.gz").read_bytes()) == TEXT
    assert regard("data", "get", "pair", "--verify").code == 0
    assert not [name for name in names(small) if name.endswith(".part")]


def test_a_part_as_long_as_the_file_is_fetched_anew(regard: Command, small: Path, server: Server) -> None:
    (small / "pair").mkdir(parents=True)
    (small / "pair/.train.en.gz.part").write_bytes(b"x" * len(server.files["/a/train.en.gz"]))
    assert regard("data", "get", "pair").code == 0
    assert gzip.decompress((small / "pair/train.en.gz").read_bytes()) == TEXT


def test_faults_leave_nothing_under_the_name(regard: Command, small: Path, server: Server) -> None:
    server.files["/a/train.en.gz"] = gzip.compress(TEXT + b"one more\n")
    wrong = regard("data", "get", "pair")
    assert wrong.code == 1
    assert "error: train.en.gz: checksum " in wrong.err
    server.files["/a/train.en.gz"] = gzip.compress(TEXT)[:-9]
    assert "the gzip file is damaged or truncated" in regard("data", "get", "pair").err
    del server.files["/a/train.en.gz"]
    missing = regard("data", "get", "pair")
    assert "the server answered 404); run the command again to resume, or copy it" in missing.err
    assert names(small) == {"pair/LICENCE.txt"}
    server.shutdown()
    server.server_close()
    gone = regard("data", "get", "pair")
    assert (gone.code, gone.err.count("error:")) == (1, 1)
    assert "train.en.gz: download failed (" in gone.err


def test_a_set_of_the_hub(regard: Command, small: Path, server: Server) -> None:
    assert regard("data", "get", "hubbed").code == 0
    kept = {"both/data/train.jsonl", "both/data/test.jsonl", "both/SHA256SUMS", "both/LICENCE.txt"}
    assert names(small) == kept
    assert (small / "both/data/test.jsonl").read_bytes() == b"{}\n"
    text = (small / "both/LICENCE.txt").read_text()
    assert "hubbed: from the hub.\nLicence: CC BY." in text
    assert "Licence: ask." in text
    requests = len(server.requests)
    assert regard("data", "get", "hubbed").err.endswith("up to date\n")
    assert len(server.requests) == requests
    (small / "both/data/test.jsonl").write_bytes(b"[]\n")
    assert regard("data", "get", "hubbed", "--verify").code == 1
    assert regard("data", "get", "hubbed").code == 0
    assert (small / "both/data/test.jsonl").read_bytes() == b"{}\n"


def test_a_hub_that_lists_nothing_or_names_outside(regard: Command, small: Path, server: Server) -> None:
    files = server.repositories[REPOSITORY].commits[COMMIT]
    server.repositories[REPOSITORY].commits[COMMIT] = {}
    none = regard("data", "get", "hubbed")
    assert "someone/set has no file data/*.jsonl" in none.err
    assert not small.exists()
    server.repositories[REPOSITORY].commits[COMMIT] = files | {"data/../../../../x.jsonl": b"out"}
    assert regard("data", "get", "hubbed").code == 0
    assert not (small.parent / "x.jsonl").exists()


def test_what_the_hub_does_not_have(regard: Command, small: Path, server: Server) -> None:
    server.hidden = ("/api",)
    gone = regard("data", "get", "hubbed")
    assert (gone.code, gone.err.count("\n")) == (1, 2)
    assert "error: the hub has no repository someone/set: check the spelling" in gone.err
    server.hidden = (f"/{REPOSITORY}/resolve/{COMMIT}/data/test",)
    lacking = regard("data", "get", "hubbed")
    assert "error: someone/set/data/test.jsonl: download failed (" in lacking.err
    assert not (small / "both/data/test.jsonl").exists()
    server.hidden = ()
    assert regard("data", "get", "hubbed").code == 0
    assert (small / "both/data/test.jsonl").read_bytes() == b"{}\n"


def test_a_set_is_copied_from_a_folder(
    regard: Command, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = tmp_path / "mirror"
    (mirror / "pair").mkdir(parents=True)
    (mirror / "pair/train.en.gz").write_bytes(gzip.compress(TEXT, 1))  # packed otherwise, the same text
    lacking = regard("data", "get", "pair", "--from", mirror)
    assert lacking.code == 2
    assert f"{mirror} does not contain pair: pair/train.de.gz is missing" in lacking.err
    assert not small.exists()
    (mirror / "pair/train.de.gz").write_bytes(gzip.compress(OTHER))
    to = tmp_path / "elsewhere"
    assert regard("data", "get", "pair", "--from", mirror, "--to", to).code == 0
    assert (to / "pair/train.en.gz").read_bytes() == (mirror / "pair/train.en.gz").read_bytes()
    monkeypatch.setenv("REGARD_DATA_MIRROR", str(mirror))
    (mirror / "x.txt").write_bytes(OTHER)
    assert regard("data", "get", "copied").code == 0
    assert (small / "both/x.txt").read_bytes() == OTHER
    (mirror / "both/data").mkdir(parents=True)
    (mirror / "both/data/a.jsonl").write_bytes(b"{}\n")
    assert regard("data", "get", "hubbed").code == 0
    assert (small / "both/data/a.jsonl").read_bytes() == b"{}\n"
    assert "x.txt" in (small / "both/SHA256SUMS").read_text()
    monkeypatch.setenv("REGARD_DATA_MIRROR", str(tmp_path / "nowhere"))
    assert "nowhere: no such folder to copy from" in regard("data", "get", "pair").err


def test_wrong_use(refused: Refused, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 'no data set "piar"; did you mean "pair"?' in refused("data", "get", "piar")
    assert "pair is not in" in refused("data", "get", "pair", "--verify")
    monkeypatch.delenv("REGARD_DATA")
    assert "set REGARD_DATA, or give --to FOLDER" in refused("data", "get", "pair")


def test_a_set_without_address(regard: Command, small: Path) -> None:
    assert (
        "copied cannot be downloaded; copy it from a folder with --from FOLDER"
        in regard("data", "get", "copied").err
    )
    assert not small.exists()


def test_the_list_says_what_is_here(regard: Command, small: Path) -> None:
    def rows() -> dict[str, dict[str, object]]:
        return {row["name"]: row for row in map(json.loads, regard("data", "list", "--json").lines)}

    assert not any(row["here"] for row in rows().values())
    regard("data", "get", "hubbed")
    regard("data", "get", "pair")
    assert {name for name, row in rows().items() if row["here"]} == {"hubbed", "pair"}
    assert rows()["pair"]["files"] == ["data:pair/train.en.gz", "data:pair/train.de.gz"]
    shown = regard("data", "list").lines
    assert len(shown) == 4
    assert "CC BY" in next(line for line in shown if line.startswith("hubbed"))


def test_the_catalogue_is_in_order() -> None:
    """Names are unique, each set can be had somehow, every checksum is one, and says whose licence it is."""
    sets = public_datasets()
    assert len({each.name for each in sets}) == len(sets) == 13
    places = [(each.place, file.name) for each in sets for file in each.files]
    assert len(set(places)) == len(places) == 31
    for each in sets:
        assert each.files or each.hub
        assert bool(each.hub) == bool(each.patterns)
        assert each.licence
        for file in each.files:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert file.address is None or file.address.startswith("https://")


def test_the_hub_is_reached_before_anything_else_imported_its_parts() -> None:
    """`regard data get` failed in a new process: huggingface_hub does not import all its modules."""
    code = "from regard.data.hub import explain; print(explain('a/b', ValueError('torn'), 'again'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "a/b: download failed (torn); again\n"
