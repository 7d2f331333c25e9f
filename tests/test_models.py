"""Models of the hub: whole or absent, what was recorded, by name in every command, and never by surprise."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from conftest import Command, Refused
from frame_models import save_frame_model
from hf_models import add_sentence_transformers, byte_pairs, tiny_bert
from hub_server import Repository, Server, running, sha256
from regard.data.hub import is_plain
from regard.errors import UsageError
from regard.storage.models import find_model, pulled_models
from regard.storage.pull import pull
from small_models import small_config, small_model, written

FIRST, SECOND = "a" * 40, "b" * 40
NAME = "someone/tiny-bert"
CARD = """---
language:
- en
- de
license: apache-2.0
datasets: [one, two]
pipeline_tag: fill-mask
---
# Tiny
license: not this
"""
EXTRA = {
    "README.md": CARD.encode(),
    "LICENSE": b"Do as you like.\n",
    "pytorch_model.bin": b"a pickle",
    "tf_model.h5": b"another program's",
    "onnx/model.onnx": b"another engine's",
    "onnx/config.json": b"{}",
    "code.py": b"import os",
    "../outside.json": b"{}",
}


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a model that fills gaps."""
    return contents(tiny_bert(tmp_path_factory.mktemp("bert"), "BertForMaskedLM"))


@pytest.fixture(scope="module")
def translating(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    from regard.inputs.text import train_tokenizer

    tokenizer, config = train_tokenizer(["a few words"], "bpe", 270), small_config("translate", "transformer")
    folder = tmp_path_factory.mktemp("translating")
    return contents(written(folder, config, small_model(config, tokenizer), tokenizer))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bert: dict[str, bytes]) -> Iterator[Server]:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("regard.storage.models.PLACE", tmp_path / "package")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    with running() as local:
        monkeypatch.setenv("HF_ENDPOINT", local.address)
        local.repositories[NAME] = Repository({FIRST: {**bert, **EXTRA}}, {"main": FIRST, "v1": FIRST})
        yield local


@pytest.fixture
def place(server: Server, tmp_path: Path) -> Path:
    return tmp_path / "cache/models/someone--tiny-bert"


def ranges(server: Server, file: str) -> list[str | None]:
    """The ranges of a file that were requested."""
    return [part for method, path, part in server.requests if method == "GET" and path.endswith(f"/{file}")]


# --- pull


def test_a_model_is_pulled_and_then_known_by_its_name(
    regard: Command, server: Server, place: Path, bert: dict[str, bytes]
) -> None:
    result = regard("models", "pull", NAME)
    assert (result.code, result.out) == (0, ""), result.err
    assert result.err.endswith(f"{NAME} at {FIRST[:12]}: downloaded to {place / FIRST}\n")
    kept = {**bert, "README.md": EXTRA["README.md"], "LICENSE": EXTRA["LICENSE"]}
    found = contents(place)
    record = json.loads(found.pop(f"{FIRST}/pulled.json"))
    sums = found.pop(f"{FIRST}/SHA256SUMS").decode()
    assert all(f"{sha256(content)}  {name}\n" in sums for name, content in kept.items())
    assert found == {f"{FIRST}/{name}": content for name, content in kept.items()}
    assert record["revision"] == FIRST and record["name"] == NAME
    before = len(server.requests)
    assert "up to date in" in regard("models", "pull", NAME).err
    assert "up to date in" in regard("models", "pull", f"{NAME}@{FIRST}").err
    assert "up to date in" in regard("models", "pull", f"{NAME}@{FIRST[:8]}").err
    filled = regard("fill", "-m", NAME, "the [MASK] sat")
    assert filled.code == 0 and filled.out
    assert filled.out == regard("fill", "-m", place / FIRST, "the [MASK] sat").out
    assert filled.out == regard("fill", "-m", f"{NAME}@main", "the [MASK] sat").out
    assert len(server.requests) == before


def test_a_folder_of_the_user_comes_first(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    pull(NAME, lambda text: None)
    monkeypatch.chdir(tmp_path)
    assert find_model(Path(NAME)) == place / FIRST
    (tmp_path / NAME).mkdir(parents=True)
    assert find_model(Path(NAME)) == Path(NAME)


def test_nothing_is_fetched_without_pull(refused: Refused, server: Server) -> None:
    message = refused("translate", "-m", "Helsinki-NLP/opus-mt-en-de", "a")
    assert message == (
        "Helsinki-NLP/opus-mt-en-de: no such folder; "
        '"regard models pull Helsinki-NLP/opus-mt-en-de" downloads it if it is on the hub'
    )
    assert not server.requests


def test_every_kind_of_command(
    regard: Command, server: Server, translating: dict[str, bytes], tmp_path: Path
) -> None:
    """A folder that Regard wrote, and a body without a head that only gives vectors."""
    add_sentence_transformers(tiny_bert(tmp_path / "body"), {"pooling_mode_mean_tokens": True}, "Normalize")
    for name, files in {"opus/mt": translating, "body": contents(tmp_path / "body")}.items():
        server.repositories[name] = Repository({FIRST: files}, {"main": FIRST})
        assert regard("models", "pull", name).code == 0
    assert len(regard("translate", "-m", "opus/mt", "a few").lines) == 1
    assert (
        regard("embed", "-m", "body", "the cat").out
        == regard("embed", "-m", tmp_path / "body", "the cat").out
    )
    tasks = {row["name"]: row["task"] for row in map(json.loads, regard("models", "list", "--json").lines)}
    assert tasks == {"opus/mt": "translate", "body": "embed"}


def test_a_revision_is_a_pin_until_it_is_asked_anew(
    regard: Command, server: Server, place: Path, bert: dict[str, bytes]
) -> None:
    regard("models", "pull", NAME)
    server.repositories[NAME].commits[SECOND] = bert
    server.repositories[NAME].branches["main"] = SECOND
    assert f"{FIRST[:12]}: up to date in" in regard("models", "pull", NAME).err
    assert f"{SECOND[:12]}: downloaded" in regard("models", "pull", NAME, "--update").err
    assert find_model(Path(NAME)) == place / SECOND
    assert "up to date in" in regard("models", "pull", NAME, "--update").err
    assert f"{FIRST[:12]}: up to date in" in regard("models", "pull", f"{NAME}@v1").err
    assert find_model(Path(NAME)) == place / FIRST  # the one asked for last
    assert find_model(Path(f"{NAME}@main")) == place / SECOND
    assert find_model(Path(f"{NAME}@v1")) == find_model(Path(f"{NAME}@{FIRST}")) == place / FIRST
    with pytest.raises(UsageError, match=f"regard models pull {NAME}@v2"):
        find_model(Path(f"{NAME}@v2"))


@pytest.mark.parametrize("how", ["option", "variable"])
def test_offline_nothing_is_asked(
    regard: Command, refused: Refused, server: Server, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    regard("models", "pull", f"{NAME}@v1")
    before = len(server.requests)
    more = ["--offline"] if how == "option" else []
    monkeypatch.setenv("HF_HUB_OFFLINE", "0" if more else "1")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection"))
    assert "up to date in" in regard("models", "pull", NAME, *more).err
    assert "up to date in" in regard("models", "pull", NAME, "--update", *more).err
    message = refused("models", "pull", f"{NAME}@v2", *more)
    assert message.startswith(f"{NAME}@v2 is not on this machine, and --offline or HF_HUB_OFFLINE is set")
    assert "someone/else is not on this machine" in refused("models", "pull", "someone/else", *more)
    assert regard("fill", "-m", NAME, "the [MASK] sat").code == 0
    assert len(server.requests) == before


# --- faults of the connection


def test_a_torn_connection_is_gone_on_with(
    regard: Command, server: Server, place: Path, bert: dict[str, bytes]
) -> None:
    server.tear_after, server.torn = 4000, "model.safetensors"
    assert regard("models", "pull", NAME).code == 0
    size = len(bert["model.safetensors"])
    assert ranges(server, "model.safetensors")[:3] == [None, "bytes=4000-", "bytes=8000-"]
    assert len(ranges(server, "model.safetensors")) == -(-size // 4000)
    assert contents(place)[f"{FIRST}/model.safetensors"] == bert["model.safetensors"]


def test_what_broke_off_is_gone_on_with_later(
    regard: Command, server: Server, place: Path, bert: dict[str, bytes]
) -> None:
    server.tear_after, server.torn, server.reachable = 4000, "model.safetensors", 1
    broken = regard("models", "pull", NAME)
    assert (broken.code, broken.err.count("error:")) == (1, 1)
    assert "model.safetensors: download failed (" in broken.err
    assert broken.err.endswith("run the command again to resume\n")
    assert pulled_models() == []
    server.tear_after = server.reachable = None
    server.requests.clear()
    assert regard("models", "pull", NAME).code == 0
    assert ranges(server, "model.safetensors") == ["bytes=4000-"]
    assert ranges(server, "config.json") == []
    assert contents(place)[f"{FIRST}/model.safetensors"] == bert["model.safetensors"]


@pytest.mark.parametrize("file", ["model.safetensors", "vocab.txt"])
def test_wrong_bytes_are_not_kept(
    regard: Command, refused: Refused, server: Server, place: Path, file: str
) -> None:
    """Of the same length, so that only a checksum can tell: SHA-256 of a large file, git's of a small one."""
    content = server.repositories[NAME].commits[FIRST][file]
    server.spoiled[f"/{NAME}/{file}"] = content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]
    wrong = regard("models", "pull", NAME)
    assert wrong.code == 1
    assert f"error: {NAME}/{file}: checksum mismatch, the download was deleted" in wrong.err
    assert pulled_models() == []
    server.spoiled.clear()
    assert regard("models", "pull", NAME).code == 0
    assert (place / FIRST / file).read_bytes() == content


def test_who_may_not_read(
    regard: Command, refused: Refused, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repositories[NAME].token = "hf_secret"
    private = refused("models", "pull", NAME, code=1)
    assert f"the hub has no repository {NAME}" in private
    assert 'if it is private, log in with "hf auth login", or set HF_TOKEN' in private
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert regard("models", "pull", NAME).code == 0
    server.repositories[NAME].gated = True
    server.repositories[NAME].branches["v2"] = SECOND
    server.repositories[NAME].commits[SECOND] = server.repositories[NAME].commits[FIRST]
    gated = regard("models", "pull", f"{NAME}@v2")
    assert gated.code == 1
    assert f"{NAME} is gated: accept its terms at {server.address}/{NAME}, log in with" in gated.err


def test_a_store_elsewhere_is_not_told_the_login(
    regard: Command, server: Server, place: Path, monkeypatch: pytest.MonkeyPatch, bert: dict[str, bytes]
) -> None:
    server.repositories[NAME].token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with running() as store:
        store.files[f"/{NAME}/model.safetensors"] = bert["model.safetensors"]
        store.tear_after = 4000
        server.store = store.address.replace("127.0.0.1", "localhost")
        assert regard("models", "pull", NAME).code == 0
        assert len(store.logins) > 1 and set(store.logins) == {None}
    assert set(server.logins) == {"Bearer hf_secret"}
    assert contents(place)[f"{FIRST}/model.safetensors"] == bert["model.safetensors"]


def test_weights_in_several_files(regard: Command, server: Server, place: Path, tmp_path: Path) -> None:
    tiny_bert(tmp_path / "parts", "BertForMaskedLM", shard="8KB")
    files = contents(tmp_path / "parts")
    assert "model.safetensors.index.json" in files
    server.repositories[NAME] = Repository({FIRST: {**files, "other.safetensors": b""}}, {"main": FIRST})
    assert regard("models", "pull", NAME).code == 0
    assert contents(place / FIRST).keys() - {"pulled.json", "SHA256SUMS"} == files.keys()
    assert regard("fill", "-m", NAME, "the [MASK] sat").code == 0


def test_what_the_hub_does_not_have(refused: Refused, server: Server, place: Path) -> None:
    assert "the hub has no repository some/one: check the spelling" in refused(
        "models", "pull", "some/one", code=1
    )
    missing = refused("models", "pull", f"{NAME}@v9", code=1)
    assert missing == f"{NAME}@v9: the repository has no such revision; give a branch, a tag or a commit"
    assert not place.exists()
    server.shutdown()
    server.server_close()
    gone = refused("models", "pull", NAME, code=1)
    assert gone.startswith(f"{NAME}@main: download failed (")


@pytest.mark.parametrize("name", ["a/b/c", "/etc", "a--b", "../x", "a/b@", "a/b@../c", "-a", "a b", ""])
def test_names_that_are_none(refused: Refused, server: Server, name: str) -> None:
    assert "is not a model name" in refused("models", "pull", "--", name)
    assert not server.requests


def test_names_of_files_that_lead_elsewhere() -> None:
    assert is_plain("1_Pooling/config.json")
    for name in ("../a.json", "a/../../b", "/etc/x", "a\\b", "c:x"):
        assert not is_plain(name)


# --- what Regard cannot open


def test_what_cannot_be_opened_is_kept_only_on_request(
    regard: Command, refused: Refused, server: Server, place: Path
) -> None:
    files = server.repositories[NAME].commits[FIRST]
    files["config.json"] = json.dumps({**json.loads(files["config.json"]), "model_type": "mamba"}).encode()
    result = regard("models", "pull", NAME)
    assert result.code == 2
    assert (
        f'error: {NAME} cannot be opened: config.json: model_type "mamba" is not one that Regard opens'
        in result.err
    )
    assert result.err.endswith("it was deleted (--keep keeps it)\n")
    assert ranges(server, "model.safetensors") == []  # found out before
    assert contents(place) == {}
    kept = regard("models", "pull", NAME, "--keep")
    assert kept.code == 0
    assert 'kept, though it cannot be opened: config.json: model_type "mamba"' in kept.err
    assert "cannot be opened" in regard("models", "list").out
    assert 'model_type "mamba"' in refused("fill", "-m", NAME, "a")


def test_weights_that_do_not_fit(regard: Command, server: Server, place: Path, tmp_path: Path) -> None:
    files = server.repositories[NAME].commits[FIRST]
    files["config.json"] = json.dumps({**json.loads(files["config.json"]), "intermediate_size": 25}).encode()
    result = regard("models", "pull", NAME)
    assert result.code == 2
    assert f"error: {NAME} cannot be opened: " in result.err
    assert contents(place) == {}


def test_a_pickle_is_fetched_on_request_and_converted(
    regard: Command, refused: Refused, server: Server, place: Path, bert: dict[str, bytes], tmp_path: Path
) -> None:
    files = server.repositories[NAME].commits[FIRST]
    del files["model.safetensors"]
    message = refused("models", "pull", NAME)
    assert message.startswith(f"{NAME} has its weights only as pytorch_model.bin")
    assert f"regard models pull {NAME} --pickle" in message
    assert ranges(server, "pytorch_model.bin") == []
    refusal = regard("models", "pull", NAME, "--pickle")  # those bytes are no tensors
    assert refusal.code == 2 and "is not a file of plain tensors" in refusal.err and contents(place) == {}
    (tmp_path / "model.safetensors").write_bytes(bert["model.safetensors"])
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    files["pytorch_model.bin"] = (tmp_path / "pytorch_model.bin").read_bytes()
    assert regard("models", "pull", NAME, "--pickle").code == 0
    assert not list(place.rglob("*.bin"))  # converted: nothing opens it again
    converted = place / FIRST / "model.safetensors"
    assert converted.is_file() and regard("models", "verify", NAME).code == 0
    said = regard("fill", "-m", NAME, "the [MASK] sat", "--scores").out
    assert said == regard("fill", "-m", same_model(bert, tmp_path), "the [MASK] sat", "--scores").out
    converted.write_bytes(converted.read_bytes()[:-1] + b"!")
    assert regard("models", "verify", NAME).code == 1
    assert regard("models", "pull", NAME, "--pickle").code == regard("models", "verify", NAME).code == 0
    del files["pytorch_model.bin"]
    server.repositories[NAME].commits[SECOND] = files
    assert "has no model.safetensors" in refused("models", "pull", f"{NAME}@{SECOND}")


def same_model(files: dict[str, bytes], place: Path) -> Path:
    folder = place / "same"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_a_model_of_pictures_is_pulled_with_its_reader(
    regard: Command, server: Server, tmp_path: Path
) -> None:
    """Without preprocessor_config.json nothing says how its files are read; a change of it is noticed."""
    folder = tmp_path / "vit"
    save_frame_model(folder, "vit colours", byte_pairs())
    server.repositories["some/vit"] = Repository({FIRST: contents(folder)}, {"main": FIRST})
    assert regard("models", "pull", "some/vit").code == 0
    picture = tmp_path / "dot.png"
    Image.new("RGB", (8, 8), "red").save(picture)
    said = regard("classify", "-m", "some/vit", picture)
    assert said.code == 0 and said.out == regard("classify", "-m", folder, picture).out
    reader = tmp_path / "cache/models/some--vit" / FIRST / "preprocessor_config.json"
    reader.write_text(reader.read_text().replace("0.4", "0.6"))
    assert "changed since it was written" in regard("classify", "-m", "some/vit", picture).err


# --- list, show, verify, rm


def test_list_and_show(regard: Command, refused: Refused, server: Server, place: Path) -> None:
    assert regard("models", "list").out == ""
    regard("models", "pull", NAME)
    (row,) = map(json.loads, regard("models", "list", "--json").lines)
    size = sum(path.stat().st_size for path in (place / FIRST).iterdir())
    assert row == {
        "name": NAME,
        "task": "fill",
        "family": "bert",
        "bytes": size,
        "revision": FIRST,
        "licence": "apache-2.0",
        "path": str(place / FIRST),
    }
    head, line = regard("models", "list").lines[:2]
    assert head.split() == ["name", "task", "family", "MiB", "revision", "licence", "path"]
    assert line.split()[:3] == [NAME, "fill", "bert"]
    shown = json.loads(regard("models", "show", NAME, "--json").out)
    assert shown["languages"] == "en, de" and shown["data"] == "one, two"
    assert shown["asked for as"] == shown["branches"] == "main" and shown["revision"] == FIRST
    assert shown["vocabulary"] == "20"
    table = regard("models", "show", NAME).out
    assert "apache-2.0" in table and FIRST in table and "vocab.txt" in table
    assert "regard models pull a/b" in refused("models", "show", "a/b")


def test_models_of_the_package_are_listed(
    regard: Command, refused: Refused, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_bert(tmp_path / "package/small", "BertForMaskedLM")
    monkeypatch.setattr("regard.storage.models.PLACE", tmp_path / "package")
    (row,) = map(json.loads, regard("models", "list", "--json").lines)
    assert (row["name"], row["task"], row["revision"], row["licence"]) == ("small", "fill", None, None)
    assert find_model(Path("small")) == tmp_path / "package/small"
    assert "small is a built-in model" in refused("models", "rm", "small", "--yes")
    assert 'did you mean "small"?' in refused("fill", "-m", "smal", "a")


def test_verify_finds_what_changed_and_pull_mends_it(
    regard: Command, server: Server, place: Path, bert: dict[str, bytes]
) -> None:
    assert regard("models", "verify").err == "no pulled models\n"
    regard("models", "pull", NAME)
    assert regard("models", "verify").code == 0
    assert "files verified" in regard("models", "verify", NAME).err
    victim = place / FIRST / "model.safetensors"
    victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    assert "changed since it was written" in regard("fill", "-m", NAME, "the [MASK] sat").err
    (place / FIRST / "vocab.txt").unlink()
    found = regard("models", "verify")
    assert found.code == 1
    assert found.lines == [
        f"{victim}: checksum mismatch",
        f"{place / FIRST / 'vocab.txt'}: missing",
    ]
    assert "damaged" in regard("models", "pull", NAME, "--offline").err
    mended = regard("models", "pull", NAME)
    assert mended.code == 0, mended.err
    assert regard("models", "verify", NAME).code == 0
    assert victim.read_bytes() == bert["model.safetensors"]
    assert ranges(server, "config.json") == [None]  # what was sound was not fetched again


def test_rm_asks(regard: Command, refused: Refused, server: Server, place: Path) -> None:
    assert "is not on this machine" in refused("models", "rm", NAME)
    regard("models", "pull", NAME)
    for answer in ("", "n\n", "what?\n"):
        assert regard("models", "rm", NAME, stdin=answer).err.endswith("[y/N] not deleted\n")
    assert (place / FIRST).is_dir()
    assert f"deleted {NAME}" in regard("models", "rm", NAME, stdin="y\n").err
    assert not place.exists()
    assert pulled_models() == []
    regard("models", "pull", NAME)
    server.repositories[NAME].commits[SECOND] = server.repositories[NAME].commits[FIRST]
    regard("models", "pull", f"{NAME}@{SECOND}")
    assert regard("models", "rm", f"{NAME}@{SECOND}", "--yes").code == 0
    assert [each.commit for each in pulled_models()] == [FIRST]


def test_the_cache_of_corpora_is_not_that_of_models(regard: Command, server: Server, place: Path) -> None:
    regard("models", "pull", NAME)
    (place.parent.parent / "0123").mkdir()
    assert ": 1 prepared corpora" in regard("data", "cache", "--clear").out
    assert [each.name for each in pulled_models()] == [NAME]


def test_a_record_that_somebody_changed(refused: Refused, server: Server, place: Path) -> None:
    pull(NAME, lambda text: None)
    (place / FIRST / "pulled.json").write_text('{"files": 3}')
    assert "pulled.json: invalid" in refused("models", "list")


def test_a_model_pulled_by_version_0_1_is_found(
    regard: Command, server: Server, place: Path, bert: dict[str, bytes]
) -> None:
    """Its folder and pulled.json, as written there."""
    folder = place / SECOND
    folder.mkdir(parents=True)
    for name, content in bert.items():
        (folder / name).write_bytes(content)
    record = {
        "name": NAME,
        "revision": SECOND,
        "asked": ["main", "v0"],
        "when": "2026-01-02T03:04:05+00:00",
        "files": {name: sha256(content) for name, content in bert.items()},
    }
    (folder / "pulled.json").write_text(json.dumps(record))
    assert find_model(Path(NAME)) == find_model(Path(f"{NAME}@v0")) == folder
    assert regard("models", "verify", NAME).code == 0
    assert regard("fill", "-m", f"{NAME}@{SECOND[:7]}", "the [MASK] sat").code == 0
    assert "up to date in" in regard("models", "pull", NAME).err and not server.requests
    assert regard("models", "pull", NAME, "--update").code == 0  # main is FIRST there
    assert json.loads((folder / "pulled.json").read_text()) == {**record, "asked": ["v0"]}


def test_without_the_library_the_error_names_the_extra(
    refused: Refused, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("regard.data.hub.import_module", missing)
    assert "pip install 'regard[hub]'" in refused("models", "pull", NAME)


@pytest.mark.parametrize("commit", ["../../../x", "a" * 39, "", None])
def test_a_server_that_names_no_commit(
    refused: Refused, server: Server, tmp_path: Path, commit: str | None
) -> None:
    """The commit becomes the name of a folder."""
    files = server.repositories[NAME].commits[FIRST]
    server.repositories[NAME] = Repository({commit: files}, {"main": commit})
    assert "the server names no commit" in refused("models", "pull", NAME, code=1)
    assert not (tmp_path / "cache/models").exists()
