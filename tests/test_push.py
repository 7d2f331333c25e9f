"""`regard models push`: a folder becomes a commit on the hub; nothing is published or lost by surprise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Command, Refused, Toy
from hf_models import tiny_bert
from hub_server import Repository, Server, running

# of huggingface_hub, which uploads with httpx
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
NAME, TOKEN = "anna/toy", "hf_of_anna"
CARD = "---\nlicense: mit\n---\n# A toy\n"
OTHER = "a" * 40


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with running() as local:
        monkeypatch.setenv("HF_ENDPOINT", local.address)
        local.writer = TOKEN
        yield local


@pytest.fixture
def model(toy: Toy, tmp_path: Path) -> Path:
    """A run folder with a card that names a licence, and with files that are nobody's business."""
    folder = tmp_path / "toy"
    shutil.copytree(toy.model, folder)
    (folder / "README.md").write_text(CARD)
    (folder / "notes.txt").write_text("secret")
    return folder


def sent(server: Server) -> list[str]:
    return [path for method, path, _ in server.requests if method in ("POST", "PUT")]


def files_of(server: Server, name: str = NAME) -> dict[str, bytes]:
    repository = server.repositories[name]
    return repository.commits[repository.branches["main"]]


def test_pushed_and_pulled_again(regard: Command, server: Server, model: Path) -> None:
    result = regard("models", "push", model, NAME)
    assert result.code == 0, result.err
    assert result.err.endswith(f"(private): uploaded to {server.address}/{NAME}\n")
    assert server.repositories[NAME].private
    files = files_of(server)
    names = set(files) - {".gitattributes"}
    assert {"config.json", "model.safetensors", "tokenizer.json", "run.toml", "README.md"} <= names
    assert not {"notes.txt", "metrics.jsonl", "data.json", "test.jsonl", "report.html"} & names
    assert not any("checkpoints" in name for name in names)
    assert all((model / name).read_bytes() == files[name] for name in names)
    assert regard("models", "pull", NAME).code == 0
    said = regard("translate", "-m", NAME, "ba de").out
    assert said and said == regard("translate", "-m", model, "ba de").out


def test_the_same_again_sends_nothing(regard: Command, server: Server, model: Path) -> None:
    assert regard("models", "push", model, NAME).code == 0
    server.requests.clear()
    again = regard("models", "push", model, NAME, "--json")
    assert again.code == 0 and json.loads(again.out)["is_new"] is False
    assert sent(server) == []


def test_other_content_is_replaced_only_on_request(
    regard: Command, refused: Refused, server: Server, model: Path
) -> None:
    before = {"model-00001-of-00002.safetensors": b"old", "paper.pdf": b"mine", ".gitattributes": b""}
    server.repositories[NAME] = Repository({OTHER: before}, {"main": OTHER}, private=True)
    message = refused("models", "push", model, NAME)
    assert "has other content (model-00001-of-00002.safetensors, paper.pdf); --force" in message
    assert sent(server) == [] and files_of(server) == before
    assert regard("models", "push", model, NAME, "--force").code == 0
    after = files_of(server)
    assert after["paper.pdf"] == b"mine" and "model-00001-of-00002.safetensors" not in after
    assert after["config.json"] == (model / "config.json").read_bytes()
    assert server.repositories[NAME].commits[OTHER] == before  # in its history


def test_a_commit_in_between_is_not_overwritten(regard: Command, server: Server, model: Path) -> None:
    assert regard("models", "push", model, NAME).code == 0
    (model / "README.md").write_text(f"{CARD}More.\n")
    newer = {"config.json": b"{}"}

    def someone_else() -> None:
        server.repositories[NAME].commits["b" * 40] = newer
        server.repositories[NAME].branches["main"] = "b" * 40

    server.on_commit = someone_else
    result = regard("models", "push", model, NAME, "--force")
    assert result.code == 1 and "upload failed" in result.err
    assert files_of(server) == newer


def test_visibility_is_never_changed_or_guessed(
    regard: Command, refused: Refused, server: Server, model: Path
) -> None:
    assert regard("models", "push", model, NAME, "--public").code == 0
    assert not server.repositories[NAME].private
    (model / "README.md").write_text(f"{CARD}More.\n")
    server.requests.clear()
    assert "exists and is public: push with --public" in refused("models", "push", model, NAME, "--force")
    server.repositories[NAME].private = True
    assert "exists and is private" in refused("models", "push", model, NAME, "--public", "--force")
    assert sent(server) == []


@pytest.mark.parametrize(("card", "problem"), [(None, "has no README.md"), ("# A toy\n", "names no licence")])
def test_a_public_model_needs_a_card_with_a_licence(
    regard: Command, refused: Refused, server: Server, model: Path, card: str | None, problem: str
) -> None:
    (model / "README.md").unlink()
    if card is not None:
        (model / "README.md").write_text(card)
    assert problem in refused("models", "push", model, NAME, "--public")
    assert server.requests == []
    private = regard("models", "push", model, NAME)
    assert private.code == 0 and f"warning: {model}" in private.err and problem in private.err


def test_who_may_not_write(
    refused: Refused, server: Server, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.writer = "hf_of_somebody_else"
    assert "access denied (403)" in refused("models", "push", model, NAME, code=1)
    assert NAME not in server.repositories
    server.requests.clear()
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    assert 'log in with "hf auth login", or set HF_TOKEN' in refused("models", "push", model, NAME)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE is set" in refused("models", "push", model, NAME)
    assert server.requests == []


def test_only_a_model_that_opens(refused: Refused, server: Server, model: Path, tmp_path: Path) -> None:
    checkpoint = next((model / "checkpoints").iterdir())
    assert "push the folder of its run" in refused("models", "push", checkpoint, NAME)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    assert "changed since it was written" in refused("models", "push", model, NAME)
    assert "not a model folder" in refused("models", "push", tmp_path, NAME)
    for name in ("toy", f"{NAME}@v1", "a/b/c"):
        assert "owner/name" in refused("models", "push", model, name)
    assert server.requests == []


def test_an_encoder_without_a_head(regard: Command, server: Server, tmp_path: Path) -> None:
    assert regard("models", "push", tiny_bert(tmp_path / "body"), "anna/body").code == 0
    assert "vocab.txt" in files_of(server, "anna/body")
