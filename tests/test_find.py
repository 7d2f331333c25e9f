"""`regard models find`: a model for a task and a language, without a connection; errors name one."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import get_args

import pytest

from conftest import Command, Refused
from hf_models import tiny_bert
from regard.cli.models import FindTask
from regard.resources import read_data
from regard.storage.find import find_models, language_code, pull_advice
from regard.storage.models import as_hub_name
from regard.tasks.spec import TASKS

ROWS = read_data("hub_models")["model"]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without pulled models and without a network; two built-in models."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("regard.storage.models.PLACE", tmp_path / "package")
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection"))
    card = "---\nlanguage: en\nlicense: mit\n---\n\n# Names in English\n"
    (tiny_bert(tmp_path / "package/names", "BertForTokenClassification") / "README.md").write_text(card)
    return tmp_path


def find(regard: Command, *arguments: str) -> list[dict[str, object]]:
    result = regard("models", "find", *arguments, "--json")
    assert result.code == 0, result.err
    return [json.loads(line) for line in result.lines]


# --- the table


def test_the_table_is_well_formed() -> None:
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", read_data("hub_models")["date"])
    assert {row["task"] for row in ROWS} == set(get_args(FindTask)) <= set(TASKS)
    for row in ROWS:
        names = {row["name"].format(source="en", target="fr"), row["name"]}
        assert as_hub_name(min(names, key=len)) is not None
        assert set(row) <= {
            "name", "task", "input", "languages", "pairs", "mb", "licence", "weights", "about"
        }  # fmt: skip
        assert ("pairs" in row) == (row["task"] == "translate") and row["mb"] > 0 and row["licence"]
        assert row.get("weights", "pickle") == "pickle" and row.get("input", "audio") in ("audio", "image")


def test_every_row_is_found() -> None:
    for row in ROWS:
        for source, targets in row.get("pairs", {}).items():
            for target in targets.split():
                assert source != target
                name = row["name"].format(source=source, target=target)
                assert name in [each.name for each in find_models("translate", (source, target))]
        for code in row.get("languages", "").split():
            assert row["name"] in [each.name for each in find_models(row["task"], [code])]


# --- the command


def test_a_pair_of_languages(regard: Command) -> None:
    first = find(regard, "translate", "en", "fr")[0]
    assert first["name"] == "Helsinki-NLP/opus-mt-en-fr" and first["place"] == "hub"
    assert first["command"] == "regard models pull Helsinki-NLP/opus-mt-en-fr --pickle"
    assert find(regard, "translate", "English", "fr-CA")[0] == first
    table = regard("models", "find", "translate", "en", "fr")
    assert "Helsinki-NLP/opus-mt-en-fr" in table.out and "--pickle" in table.out
    assert read_data("hub_models")["date"] in table.err


def test_built_in_models_come_first_and_pulled_ones_are_not_pulled_again(
    regard: Command, machine: Path
) -> None:
    rows = find(regard, "tag", "en")
    assert [rows[0]["name"], rows[0]["place"], rows[0]["about"]] == ["names", "built-in", "Names in English"]
    assert rows[0]["command"] == "regard tag -m names"
    assert [row["place"] for row in rows[1:]] == ["hub"] * (len(rows) - 1) and len(rows) > 1
    assert "names" not in [row["name"] for row in find(regard, "tag", "de")]
    pulled = machine / "cache/models/dslim--bert-base-NER" / ("a" * 40)
    tiny_bert(pulled, "BertForTokenClassification")
    record = {"name": "dslim/bert-base-NER", "asked": ["main"], "when": "2026-01-02", "files": {}}
    (pulled / "pulled.json").write_text(json.dumps(record))
    commands = {row["name"]: row["command"] for row in find(regard, "tag", "en")}
    assert commands["dslim/bert-base-NER"] == "regard tag -m dslim/bert-base-NER"
    assert regard(*str(commands["dslim/bert-base-NER"]).split()[1:], "the cat").code == 0


def test_what_the_table_lacks(refused: Refused) -> None:
    assert "has no model for tag in Zulu" in refused("models", "find", "tag", "zu")
    way = refused("models", "find", "translate", "hi", "eo")
    assert '"regard models find translate hi en" and "regard models find translate en eo"' in way
    assert "translate en fr" in refused("models", "find", "translate", "en")
    assert "give one language" in refused("models", "find", "tag", "en", "de")
    assert "translate" in refused("models", "find", "tranlate", "en", "de")


def test_languages_by_name_and_region() -> None:
    assert [language_code(each) for each in ("de", "German", "GERMAN", "pt_BR", "haw")] == [
        "de", "de", "de", "pt", "haw"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["models", "find", ""], {"translate", "tag", "transcribe"}),
        (["models", "find", "translate", "f"], {"fi", "fr"}),
        (["models", "find", "tag", ""], {"de", "ru"}),
        (["models", "pu"], {"pull", "push"}),
    ],
)
def test_the_shell_completes(
    words: list[str],
    offered: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from regard.cli.main import main

    monkeypatch.setenv("_REGARD_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(["regard", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit):
        main([])
    assert offered <= set(capsys.readouterr().out.split())


# --- errors that name the command


@pytest.mark.parametrize(
    ("command", "model"),
    [
        (["classify", "J'ai beaucoup aimé ce film, il est magnifique."], "nlptown/"),
        (["classify", "photo.png"], "google/vit"),
        (["classify", "dog.wav"], "MIT/ast"),
        (["tag", "Angela Merkel wohnt schon seit vielen Jahren in Berlin."], "Davlan/"),
        (["fill", "The [MASK] sat on the mat."], "google-bert/bert-base-uncased"),
        (["transcribe", "talk.mp3"], "openai/whisper-base"),
        (["caption", "photo.jpg"], "nlpconnect/"),
        (["generate", "Once upon a time there was"], "HuggingFaceTB/"),
        (["embed", "A small house."], "sentence-transformers/all-MiniLM-L6-v2"),
    ],
)
def test_a_missing_model_ends_in_the_command_that_helps(
    refused: Refused, command: list[str], model: str
) -> None:
    message = refused(*command)
    assert "give a model with -m" in message
    (pull,) = re.findall(r'"(regard models pull \S+(?: --pickle)?)" downloads one', message)
    assert pull.split()[3].startswith(model)


def test_a_missing_pair_ends_in_the_command_that_helps(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = {("en", "de"): "toy-en-de"}
    monkeypatch.setattr("regard.storage.models.translators", lambda: pairs)
    message = refused("translate", "I would like to read this book.", "--language", "fr")
    assert '"regard models pull Helsinki-NLP/opus-mt-en-fr --pickle" downloads one' in message
    message = refused("translate", "Ich möchte dieses Buch gerne einmal lesen.", "--language", "fr")
    assert '"regard models pull Helsinki-NLP/opus-mt-de-fr --pickle" downloads one' in message
    assert pull_advice("translate", ("en", "tlh")) == ""
