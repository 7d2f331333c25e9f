"""Folders and checkpoints: equal to transformers, the same after saving, nothing torn ever accepted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.batch import collate
from regard.config import Config, TransformerConfig, load_config, resolve
from regard.errors import RegardError, UsageError
from regard.inputs.text import train_tokenizer
from regard.models.families import build, build_meta
from regard.models.transformer import EncoderDecoder
from regard.storage import (
    Checkpoint,
    average_weights,
    checkpoint_folder,
    checkpoint_steps,
    load_checkpoint,
    load_latest,
    load_weights_into,
    open_folder,
    prune,
    save_checkpoint,
    unique_weights,
    write_identity,
    write_weights,
)
from regard.storage.card import write_card
from regard.storage.files import write_atomically
from regard.storage.huggingface import opens_in_transformers, to_hf
from samples import random_samples

TEXTS = ["a small house stands here", "the cat sees a dog", "no dog sleeps in the house"] * 20
LEARNED = train_tokenizer(TEXTS, "bpe", 300)
RECURRENT = {"width": 16, "layers": 2, "dropout": 0.0}
MARIAN = {"width": 16, "layers": 2, "heads": 4, "feed_forward": 24, "dropout": 0.0}


def config(**model: object) -> Config:
    return resolve({"data": {"train": "phrasebook"}, "model": {**MARIAN, **model}})


def written(path: Path, seed: int = 0, separate: bool = False, **changes: object) -> EncoderDecoder:
    """A folder with a random model in it."""
    path.mkdir(exist_ok=True)
    own = config(**changes)
    torch.manual_seed(seed)
    target = train_tokenizer([text.upper() for text in TEXTS], "bpe", 290) if separate else None
    model = build(own.model, len(LEARNED), len(target) if target else None).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    write_identity(path, own, LEARNED, target, split_above=30)
    write_weights(path, own.model, unique_weights(model))
    return model


def test_a_folder_knows_its_languages_without_its_run(tmp_path):
    own = resolve(
        {"task": {"source": "en", "target": "de"}, "data": {"train": "phrasebook"}, "model": MARIAN}
    )
    write_identity(tmp_path, own, LEARNED, None, split_above=30)
    write_weights(tmp_path, own.model, unique_weights(build(own.model, len(LEARNED))))
    (tmp_path / "run.toml").unlink()
    task = open_folder(tmp_path).task
    assert (task.source, task.target) == ("en", "de")
    content = json.loads((tmp_path / "config.json").read_text())
    for wrong in ("en", ["en"], ["en", ""], ["en", 3], {"en": "de"}, None):
        content["regard"]["languages"] = wrong
        (tmp_path / "config.json").write_text(json.dumps(content))
        with pytest.raises(UsageError, match=r"regard\.languages"):
            open_folder(tmp_path)


@pytest.mark.parametrize("changes", [{}, {"activation": "gelu"}, {"encoder_layers": 3, "decoder_layers": 1}])
@pytest.mark.parametrize("separate", [False, True])
def test_transformers_opens_our_folder(tmp_path, changes, separate):
    """Interleaved waves here, half-and-half there: the permutation of the width must undo the difference."""
    from transformers import AutoModelForSeq2SeqLM

    model = written(tmp_path, separate=separate, **changes)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    batch = collate(random_samples(5, 3, vocabulary=280))
    with torch.no_grad():
        expected = theirs(
            input_ids=batch.source.ids,
            attention_mask=(batch.source.positions >= 0).long(),
            decoder_input_ids=batch.target.ids,
        ).logits
        ours = model(batch)
    seen = batch.target.positions >= 0
    torch.testing.assert_close(ours[seen], expected[seen], atol=1e-5, rtol=1e-5)


def test_transformers_gives_our_text(tmp_path):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from regard.tasks import load

    written(tmp_path)
    tokenizer, theirs = (
        AutoTokenizer.from_pretrained(tmp_path),
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path),
    )
    ours = load(tmp_path, device="cpu", threads=1)
    for text in TEXTS[:3]:
        limit = len(tokenizer(text).input_ids) + 50
        generated = theirs.generate(
            **tokenizer(text, return_tensors="pt"), max_length=None, max_new_tokens=limit
        )
        assert tokenizer.decode(generated[0], skip_special_tokens=True) == ours.translate(text, check=False)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "pre"}, {"positions": "learned"}, {"head_width": 3}, {"tie_embeddings": False}],
)
@pytest.mark.parametrize("separate", [False, True])
def test_saved_and_opened_is_the_same(tmp_path, changes, separate):
    model = written(tmp_path, separate=separate, **changes)
    folder = open_folder(tmp_path)
    assert opens_in_transformers(folder.config) == (not changes or "tie_embeddings" in changes)
    before, after = unique_weights(model), unique_weights(folder.model)
    assert before.keys() == after.keys()
    # as a file has them: Marian's channels stand in another order than those of a model that learns
    config = load_config(tmp_path / "run.toml").model
    before, after = to_hf(config, before), to_hf(folder.config, after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert (folder.target is folder.source) == (not separate)


def broken(path: Path, name: str, change) -> Path:
    written(path)
    content = json.loads((path / name).read_text())
    change(content)
    (path / name).write_text(json.dumps(content))
    return path


def test_wrong_folders_are_refused_with_the_reason(tmp_path):
    cases = {
        "no such folder": tmp_path / "nothing",
        "no config.json": tmp_path,
        "model_type": broken(tmp_path / "a", "config.json", lambda c: c.update(model_type="prophetnet")),
        "missing 'd_model'": broken(tmp_path / "b", "config.json", lambda c: c.pop("d_model")),
        "another model": broken(tmp_path / "c", "config.json", lambda c: c.update(vocab_size=7)),
        "is missing": broken(tmp_path / "d", "config.json", lambda c: c.update(encoder_layers=3)),
        "does not have|is unknown": broken(
            tmp_path / "e", "config.json", lambda c: c.update(encoder_layers=1)
        ),
        "shape": broken(
            tmp_path / "f", "config.json", lambda c: c.update(encoder_ffn_dim=8, decoder_ffn_dim=8)
        ),
        "less than or equal": broken(tmp_path / "g", "config.json", lambda c: c.update(d_model=2**40)),
    }
    for message, path in cases.items():
        with pytest.raises(UsageError, match=message):
            open_folder(path)
    torn = tmp_path / "h"
    written(torn)
    content = (torn / "model.safetensors").read_bytes()
    (torn / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        open_folder(torn)
    (torn / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="--resume"):
        open_folder(torn)
    (torn / "config.json").write_text("[" * 100_000)
    with pytest.raises(UsageError, match=r"config\.json"):
        open_folder(torn)


def test_the_tokenizer_of_another_model_is_noticed(tmp_path):
    """Equal size is not enough: other merges would give other ids and quiet nonsense."""
    written(tmp_path)
    other = train_tokenizer([text[::-1] for text in TEXTS], "bpe", len(LEARNED))
    assert len(other) == len(LEARNED)
    other.save(tmp_path / "tokenizer.json")
    with pytest.raises(UsageError, match="another model"):
        open_folder(tmp_path)


def checkpoint(value: float) -> Checkpoint:
    weights = {"w": torch.full((3,), value), "b": torch.arange(2.0)}
    return Checkpoint(weights, {"w/exp_avg": torch.ones(3)}, {"step": int(value)})


def test_checkpoints_are_whole_or_not_there(tmp_path):
    for step in (5, 10, 15):
        save_checkpoint(tmp_path, step, checkpoint(float(step)))
    assert checkpoint_steps(tmp_path) == [5, 10, 15]
    said: list[str] = []
    assert load_latest(tmp_path, said.append).state == {"step": 15} and not said
    newest = checkpoint_folder(tmp_path, 15)
    for name in ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        whole = (newest / name).read_bytes()
        for damaged in (whole[:-1], whole[: len(whole) // 2], b"", flipped(whole)):
            (newest / name).write_bytes(damaged)
            said.clear()
            assert load_latest(tmp_path, said.append).state == {"step": 10}
            assert len(said) == 1 and (name in said[0] or "manifest" in said[0])
        (newest / name).write_bytes(whole)
    (checkpoint_folder(tmp_path, 20)).mkdir()
    assert load_latest(tmp_path, said.append).state == {"step": 15}


def flipped(content: bytes) -> bytes:
    at = len(content) // 3
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_an_interrupted_save_leaves_the_old_and_no_rest(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, 5, checkpoint(5.0))
    monkeypatch.setattr("regard.storage.checkpoint.write_new", fail)
    with pytest.raises(RegardError, match="disk is full"):
        save_checkpoint(tmp_path, 10, checkpoint(10.0))
    monkeypatch.undo()
    assert load_latest(tmp_path, print).state == {"step": 5}
    save_checkpoint(tmp_path, 15, checkpoint(15.0))
    prune(tmp_path, {15})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-15"]


def fail(*arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_writing_to_a_link_replaces_the_file_behind_it(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("new")
    for name in ("link", "dangling"):
        write_atomically(tmp_path / name, b"new")
        assert (tmp_path / name).is_symlink() and (tmp_path / name).read_text() == "new"
    assert (tmp_path / "real").read_text() == (tmp_path / "new").read_text() == "new"


def test_devices_and_pipes_are_written_into_and_stay(tmp_path):
    null = Path("/dev/null")
    before = null.stat()
    write_atomically(null, b"anything")
    assert null.stat()[:3] == before[:3] and null.is_char_device()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(fifo, b"lines\n")
    assert os.read(reader, 100) == b"lines\n" and fifo.is_fifo()
    os.close(reader)
    log = tmp_path / "log"
    log.write_text("before\n")
    code = "from pathlib import Path; from regard.storage import write_atomically; "
    code += "write_atomically(Path('/dev/stdout'), b'after\\n')"
    with log.open("ab") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert log.read_text() == "before\nafter\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "log"]


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "weights"
    write_atomically(path, b"old")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RegardError, match=r"weights: the disk is full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_average_is_the_mean(tmp_path):
    folders = [save_checkpoint(tmp_path, step, checkpoint(float(step))) for step in (1, 2, 6)]
    mean = average_weights(folders)
    assert torch.equal(mean["w"], torch.full((3,), 3.0)) and torch.equal(mean["b"], torch.arange(2.0))
    other = load_checkpoint(folders[0])
    shutil.rmtree(folders[0])
    save_checkpoint(tmp_path, 1, Checkpoint({"v": other.model["w"]}, {}, {"step": 1}))
    with pytest.raises(UsageError, match="other names"):
        average_weights(folders)


def test_unknown_tensors_are_named(tmp_path):
    written(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(
        {**tensors, "model.encoder.layers.0.extra.weight": torch.ones(2)}, tmp_path / "model.safetensors"
    )
    with pytest.raises(UsageError, match=r"layers\.0\.extra\.weight"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    ("task", "model", "said"),
    [
        (
            "translate",
            {},
            ["language:\n- en\n- de\n", "Translation from en to de", "2+2 layers", "Seq2SeqLM"],
        ),
        ("translate", {"norm": "pre"}, ["library_name: regard", 'translate("a sentence")']),
        (
            "translate",
            {"family": "rnn"},
            ["library_name: regard", "A recurrent", "2+2 layers, width 16, 9 par"],
        ),
        ("generate", {"family": "gpt"}, ["language:\n- en\npipe", "2 layers", 'regard generate -m run "']),
        ("fill", {}, ["pipeline_tag: fill-mask", "library_name: transformers", "regard fill -m run"]),
        ("classify", {}, ['pipeline("text-classification", model="run")', 'load("run").classify("a text")']),
        ("tag", {}, ['pipeline("token-classification", model="run")', "4 heads"]),
        ("answer", {}, ["pipeline_tag: question-answering", "--context article.txt"]),
    ],
)
def test_the_card_says_what_the_model_is_for(tmp_path, task, model, said):
    own = resolve(
        {
            "task": {"name": task, "source": "en", "target": "de"},
            "data": {"train": "corpus.tsv"},
            "model": {**(RECURRENT if model.get("family") == "rnn" else MARIAN), **model},
        }
    )
    facts = {"data": "corpus.tsv", "steps": 7, "chosen": "the best", "command": "regard evaluate -m run"}
    write_card(tmp_path / "run", own, 9, facts, {"a|b": "1.0"}, {})
    card = (tmp_path / "run" / "README.md").read_text()
    for part in [*said, "| a\\|b | 1.0 |", "\nregard evaluate -m run\n", "| updates | 7 |"]:
        assert part in card, card
    assert card.count("---\n") == 2 and card.startswith("---\n")


def test_opened_weights_are_not_copied(tmp_path: Path) -> None:
    """A folder took twice its size to open: what was read, and the model that it was copied into."""
    shape = TransformerConfig(norm="pre", width=16, heads=2, layers=1, dropout=0.0)
    model = build(shape, 30)
    weights = {name: tensor.clone() for name, tensor in unique_weights(model).items()}
    empty = build_meta(shape, 30)
    load_weights_into(empty, weights, tmp_path)
    assert {n: p.data_ptr() for n, p in empty.named_parameters()} == {
        n: t.data_ptr() for n, t in weights.items()
    }
    assert all(p.requires_grad for p in empty.parameters())
    assert isinstance(empty, EncoderDecoder)
    assert empty.output.weight is empty.source.tokens.weight, "what is shared stays shared"
    own = unique_weights(model)
    load_weights_into(model, weights, tmp_path)
    assert all(own[name].data_ptr() != weights[name].data_ptr() for name in own), "its memory is its own"


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="Linux has it")
def test_a_file_in_shared_memory_is_an_ordinary_file() -> None:
    """/dev/shm was taken for a device: a new file there could not be written."""
    path = Path("/dev/shm") / f"regard-test-{os.getpid()}"
    try:
        write_atomically(path, b"one")
        first = path.stat().st_ino
        write_atomically(path, b"two")
        assert path.read_bytes() == b"two" and path.stat().st_ino != first
    finally:
        path.unlink(missing_ok=True)
