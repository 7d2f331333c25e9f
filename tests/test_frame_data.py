"""Corpora of pictures and sounds, their samples, and short runs on them."""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from frame_models import random_raw, save_frame_model
from hf_models import make_pipelines  # noqa: F401 - a fixture
from media_files import SMALL, TINY, by_class, picture_run, png, put, put_tar, wav
from regard.config import Data, Task, resolve
from regard.config.input import Modifier, parse_input
from regard.data.check import check, make_report, read_held_out
from regard.data.corpora import CorpusSpec, corpus_specs, read_rows
from regard.data.dataset import CorpusShards, Dataset, Shard, ShardColumn
from regard.data.objectives.frames import ClassifyFrames, FramesToText, as_ids, from_ids
from regard.data.readers import PROMPT_SEPARATOR
from regard.data.readers.media import media_content, media_digest
from regard.data.report import DataReport
from regard.errors import UsageError
from regard.inputs.frames import make_reader
from regard.inputs.text import train_tokenizer
from regard.sample import IGNORED, Example
from regard.storage import open_folder
from regard.storage.average import average_into
from regard.training import train
from regard.training.listeners import Listener
from regard.training.stream import Stream
from texts import CORPUS

PICTURES = Task(name="classify", input="image")
CAPTIONS = Task(name="caption", input="image")
SPEECH = Task(name="transcribe", input="audio")
READER = make_reader(parse_input(TINY))


def rows_of(spec: CorpusSpec, task: Task, report: DataReport | None = None) -> list[tuple[str, str]]:
    found = read_rows(spec, task, "train", report or DataReport())
    return [(source, target) for _, source, target in found]


def pixels(place: str) -> bytes:
    return READER.read(media_content(place)).tobytes()


# --- corpora


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_for_each_class(packed, tmp_path):
    files = {**by_class(5), "notes.txt": b"not read", "dark/list.csv": b"1,2"}
    if packed:
        corpus = put_tar(tmp_path / "all.tar", {f"data/{name}": content for name, content in files.items()})
    else:
        corpus = tmp_path / "all"
        for name, content in files.items():
            put(corpus / name, content)
    rows = rows_of(CorpusSpec(str(corpus)), PICTURES)
    assert sorted(label for _, label in rows) == ["dark"] * 3 + ["light"] * 2
    for place, label in rows:
        name = f"{label}/{place.rpartition('/')[2]}"
        assert pixels(place) == READER.read(files[name]).tobytes()


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
@pytest.mark.parametrize("where", ["beside", "tar beside", "files", "files tar"])
def test_a_table_with_a_column_of_files(kind, where, tmp_path):
    files = {f"{n}.png": png(n) for n in range(3)}
    records = [{"file": name, "text": f"number {name[0]}"} for name in files]
    if kind == "jsonl":
        lines = [json.dumps(record) for record in records]
    else:
        mark = "\t" if kind == "tsv" else ","
        lines = [mark.join(each) for each in (("file", "text"), *(tuple(row.values()) for row in records))]
    table = put(tmp_path / f"train.{kind}", "".join(f"{line}\n" for line in lines).encode())
    more = {}
    if "tar" in where:
        tar = put_tar(tmp_path / ("train.tar" if where == "tar beside" else "other.tar"), files)
        more = {} if where == "tar beside" else {"files": str(tar)}
    else:
        folder = tmp_path / "elsewhere" if where == "files" else tmp_path
        more = {"files": str(folder)} if where == "files" else {}
        for name, content in files.items():
            put(folder / name, content)
    rows = rows_of(CorpusSpec(str(table), **more), CAPTIONS)
    assert [text for _, text in rows] == ["number 0", "number 1", "number 2"]
    assert [pixels(place) for place, _ in rows] == [READER.read(each).tobytes() for each in files.values()]


def test_bytes_in_a_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = [{"bytes": png(n), "path": f"{n}.png"} for n in range(7)]
    table = arrow.table({"image": values, "label": [str(n % 2) for n in range(7)]})
    parquet.write_table(table, tmp_path / "train.parquet", row_group_size=3)
    rows = rows_of(CorpusSpec(str(tmp_path / "train.parquet")), PICTURES)
    assert [label for _, label in rows] == [str(n % 2) for n in range(7)]
    assert [pixels(place) for place, _ in rows] == [READER.read(each["bytes"]).tobytes() for each in values]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_pair_of_files_of_mnist(ending, tmp_path):
    images = np.random.default_rng(1).integers(0, 256, (4, 6, 8), dtype=np.uint8)
    heads = [b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in images.shape), b"\0\0\x08\x01\0\0\0\4"]
    bodies = [heads[0] + images.tobytes(), heads[1] + bytes([7, 0, 7, 9])]
    pack = gzip.compress if ending else bytes
    names = [f"train-images-idx3-ubyte{ending}", f"train-labels-idx1-ubyte{ending}"]
    paths = [put(tmp_path / name, pack(body)) for name, body in zip(names, bodies)]
    spec = corpus_specs([[str(path) for path in paths]], PICTURES)[0]
    rows = rows_of(spec, PICTURES)
    assert [label for _, label in rows] == ["7", "0", "7", "9"]
    for number, (place, _) in enumerate(rows):
        assert np.array_equal(media_content(place)[:, :, 0], images[number])
    put(paths[1], pack(heads[1] + b"\1"))
    with pytest.raises(UsageError, match="not an IDX file of labels"):
        rows_of(spec, PICTURES)


def test_questions_about_pictures_are_prompts(tmp_path):
    put(tmp_path / "a.png", png(1))
    lines = [{"file": "a.png", "question": "what colour", "text": "red"}, {"file": "a.png", "text": "a man"}]
    put(tmp_path / "train.jsonl", "\n".join(map(json.dumps, lines)).encode())
    rows = rows_of(CorpusSpec(str(tmp_path / "train.jsonl")), CAPTIONS)
    assert [text for _, text in rows] == [f"what colour{PROMPT_SEPARATOR}red", "a man"]
    tokenizer = train_tokenizer(CORPUS, "bpe", 300)
    objective = FramesToText(READER, tokenizer, 50)
    asked, plain = objective.eval_samples([Example(*row) for row in rows])
    question, answer = tokenizer.encode("what colour"), tokenizer.encode("red")
    assert asked.target == [tokenizer.start, *question, *answer]
    assert asked.labels == [*[IGNORED] * len(question), *answer, tokenizer.end]
    assert plain.labels == [*tokenizer.encode("a man"), tokenizer.end]
    columns = objective.encode([(1, *rows[0]), (2, *rows[1])])
    again = objective.sample(
        columns.source[0][: columns.source[1][0]], columns.target[0][: columns.target[1][0]]
    )
    assert np.array_equal(again.source, asked.source) and list(again.labels) == asked.labels


@pytest.mark.parametrize("name", ["../secret.png", "/etc/passwd", "a/../../b.png", " "])
def test_files_outside_are_refused(name, tmp_path):
    table = put(tmp_path / "train.tsv", f"file\ttext\n{name}\ttwo men\ngood.png\ttwo men\n".encode())
    report = DataReport()
    rows = rows_of(CorpusSpec(str(table)), CAPTIONS, report)
    assert [Path(place).name for place, _ in rows] == ["good.png"]
    assert {each["kind"] for each in report.to_json()} & {"malformed", "empty"}


def test_what_no_corpus_is(tmp_path):
    with pytest.raises(UsageError) as caught:
        rows_of(CorpusSpec(str(put(tmp_path / "a.txt", b"hello\n"))), CAPTIONS)
    assert caught.value.code == "E_DATA_TYPE" and "column of files" in str(caught.value)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError):
        rows_of(CorpusSpec(str(tmp_path / "folder")), CAPTIONS)


def test_equal_files_in_training_and_test_data_are_found(tmp_path):
    """By content: their names differ."""
    train_files, test_files = by_class(6), by_class(4, seed=50)
    test_files["dark/copy.png"] = train_files["dark/2.png"]
    train_files["light/twice.png"] = train_files["light/1.png"]
    for split, files in (("train", train_files), ("test", test_files)):
        for name, content in files.items():
            put(tmp_path / split / name, content)
    data = Data(train=str(tmp_path / "train"), test=str(tmp_path / "test"))
    report = make_report(data)
    checked = check(data, PICTURES, read_held_out(data, PICTURES, report), report)
    counts = {each["kind"]: each["count"] for each in report.to_json()}
    assert counts["leak-exact"] == 1 and counts["duplicate"] == 1
    assert len(checked.corpora[0].dropped) == 1 and checked.labels == ("dark", "light")
    assert media_digest(str(tmp_path / "test/dark/copy.png")) == media_digest(
        str(tmp_path / "train/dark/2.png")
    )


# --- samples


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), share=st.floats(0, 1), name=st.sampled_from(["image", "video", "audio"]))
def test_stored_integers_are_the_files(seed, share, name):
    kinds = {
        "image": TINY,
        "video": {**TINY, "kind": "video", "frames": 4},
        "audio": {"kind": "audio", "seconds": 0.1},
    }
    reader = make_reader(parse_input(kinds[name]))
    raw = random_raw(reader, seed, share)
    again = from_ids(as_ids(raw).astype(np.uint32), reader)
    assert again.dtype == raw.dtype and np.array_equal(again, raw)


AUGMENTED = [Modifier(name="shift", strength=3), Modifier(name="brightness", strength=0.5, probability=0.5)]


def test_modifiers_are_a_function_of_the_generator():
    objective = ClassifyFrames(READER, ("a", "b"), modifiers=AUGMENTED)
    raw = random_raw(READER, 1)
    one, two, other = (objective.frames(raw, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, two) and not np.array_equal(one, other)
    assert np.array_equal(objective.frames(raw), READER.frames(raw))  # held-out pictures stay as they are


def test_a_corpus_in_the_order_of_its_classes_is_mixed():
    """Few pictures fit into a pool: of blocks of 1,024 rows each pool once held one class."""
    rows, size = 4096, 8192
    labels = np.repeat([0, 1], rows // 2).astype(np.uint32)
    pixels, ones = np.zeros(rows * size, np.uint8), np.ones(rows, np.uint32)
    shard = Shard(ShardColumn(pixels, size * ones), ShardColumn(labels, ones))
    stream = Stream(Dataset([CorpusShards([shard])]), ClassifyFrames(READER, ["a", "b"]), 4096, seed=1)
    shares = [np.mean([first >= rows // 2 for _, _, first, _ in blocks.tolist()]) for blocks in stream.pools]
    assert len(shares) > 1 and all(0.2 < share < 0.8 for share in shares), shares
    firsts = sorted(first for blocks in stream.pools for first in blocks[:, 2].tolist())
    assert firsts == [*range(0, rows, 64)]


def test_masks_of_time_and_mels_know_the_patches():
    """Patches of a spectrogram stand in a grid: a mask of time changes whole columns of it."""
    reader = make_reader(parse_input({"kind": "audio", "seconds": 0.5, "mels": 16, "patch": 4}))
    raw = random_raw(reader, 3)
    for name, axis in (("time_mask", 0), ("mel_mask", 1)):
        objective = ClassifyFrames(reader, ("a", "b"), modifiers=[Modifier(name=name, strength=0.4)])
        masked = 0
        for seed in range(9):  # a mask may be empty
            changed = objective.frames(raw, np.random.default_rng(seed)) != reader.frames(raw)
            cells = changed.any(axis=1).reshape(reader.grid)
            lines = cells.any(axis=axis)
            masked += int(lines.sum())
            assert not lines.all() and (cells.sum(axis=axis)[lines] == cells.shape[axis]).all()
        assert masked


# --- runs


class StopAt(Listener):
    def __init__(self, step: int) -> None:
        self.step = step

    def record(self, record: Any) -> None:
        if record["kind"] == "train" and record["step"] == self.step:
            os.kill(os.getpid(), signal.SIGINT)


def weights_of(folder: Path) -> dict[str, Any]:
    return load_file(folder / "model.safetensors")


def test_a_resumed_run_has_the_bits_of_one_without_a_stop(tmp_path):
    """Dropout and modifiers are drawn from (seed, epoch, row), not from a generator with a state."""
    modifiers = [{"name": "shift", "strength": 2}, {"name": "flip", "probability": 0.5}]
    config = picture_run(tmp_path, data={"modifiers": modifiers})
    whole = train(config, tmp_path / "whole")
    first = train(config, tmp_path / "cut", listeners=[StopAt(3)])
    assert (whole.step, first.step, first.finished) == (6, 3, False)
    assert train(None, tmp_path / "cut", resume=True).finished
    left, right = weights_of(tmp_path / "whole"), weights_of(tmp_path / "cut")
    assert left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)
    plain = train(picture_run(tmp_path), tmp_path / "plain")
    assert plain.finished and plain.records[0]["loss"] != whole.records[0]["loss"]
    folder = open_folder(tmp_path / "whole")
    assert folder.labels == ("dark", "light") and folder.config.family == "vit"
    average_into([tmp_path / "whole"], tmp_path / "average", 1)  # with the reader of its pictures
    assert open_folder(tmp_path / "average").reader.fingerprint == folder.reader.fingerprint


def test_files_that_cannot_be_read_are_left_out_and_named(tmp_path):
    config = picture_run(tmp_path, steps=2)
    put(tmp_path / "train/dark/torn.png", png(1)[:40])
    put(tmp_path / "train/light/text.png", b"hello")
    put(tmp_path / "valid/light/empty.png", b"")
    assert train(config, tmp_path / "run").finished
    record = json.loads((tmp_path / "run" / "data.json").read_text())
    issue = next(each for each in record["findings"] if each["kind"] == "unreadable")
    assert issue["count"] == 3 and issue["left_out"]
    assert {each["split"]: each["used"] for each in record["corpora"]} == {"train": 24, "valid": 6}


def test_a_text_that_is_too_long_is_not_called_unreadable(tmp_path):
    tokenizer = train_tokenizer(CORPUS, "word", 400)
    objective = FramesToText(READER, tokenizer, 8)
    files = [put(tmp_path / name, content) for name, content in (("a.png", png(1)), ("b.png", b"torn"))]
    rows = [(1, str(files[0]), "A man"), (2, str(files[0]), " ".join(CORPUS)), (3, str(files[1]), "A man")]
    assert objective.left_out(rows) == {1: "too-long", 2: "unreadable"}
    columns = objective.encode(rows)
    assert len(columns.target[1]) == 1 and "tokens" in columns.too_long[0][1]


def test_sounds_become_text(tmp_path):
    """Sounds of different lengths, a table of them, and a model that writes: train, save, open."""
    for split, count in (("train", 12), ("valid", 3)):
        rows = ["file\ttext"]
        for n in range(count):
            name = f"{split}-{n}.wav"
            put(tmp_path / name, wav(n, 0.1 + 0.2 * (n % 2), 1000 + 300 * n))
            rows.append(f"{name}\t{'low' if n % 2 else 'high'} sound {n}")
        put(tmp_path / f"{split}.tsv", "\n".join(rows).encode())
    tree = {
        "task": {"name": "transcribe"},
        "data": {split: str(tmp_path / f"{split}.tsv") for split in ("train", "valid")},
        "input": {"kind": "audio", "seconds": 0.3, "mels": 8, "pad": False},
        "text": {"kind": "character", "vocabulary": 300},
        "model": {"family": "whisper", **SMALL, "max_length": 40},
        "train": {"steps": 3, "tokens_per_batch": 200, "threads": 1, "device": "cpu", "checkpoint_every": 3},
    }
    outcome = train(resolve(tree), tmp_path / "run")
    final = next(each for each in outcome.records if each["kind"] == "final-valid")
    assert final["word_error_rate"] >= 0 and final["sentences"] == 3
    folder = open_folder(tmp_path / "run")
    assert folder.task.name == "transcribe" and folder.reader.config.kind == "audio"
    assert folder.target.decode(folder.target.encode("low sound 7")) == "low sound 7"


def test_a_run_starts_from_a_vit_of_transformers(pipelines, tmp_path):
    theirs = save_frame_model(tmp_path / "theirs", "vit grey", pipelines["gpt2"])
    reads = {"kind": "image", "height": 8, "width": 12, "patch": 4, "channels": 1}
    model = {"family": "vit"}
    config = picture_run(tmp_path, 2, input=reads, model=model, init={"from": str(tmp_path / "theirs")})
    outcome = train(config, tmp_path / "run")
    assert outcome.finished
    folder = open_folder(tmp_path / "run")
    assert folder.config.width == theirs.config.hidden_size and folder.labels == ("dark", "light")
    before, after = load_file(tmp_path / "theirs/model.safetensors"), weights_of(tmp_path / "run")
    name = "vit.encoder.layer.0.intermediate.dense.weight"
    moved = float((before[name] - after[name]).abs().max())
    assert 0 < moved < 0.1 and before["classifier.weight"].shape != after["classifier.weight"].shape


# --- config errors

BASE: dict[str, Any] = {"task": {"name": "classify"}, "data": {"train": "x"}, "input": TINY}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"input": {**TINY, "kind": "picture"}}, r'input\.kind = "picture" is not one of image, video'),
        ({"input": {**TINY, "mels": 3}}, r'"input\.mels"'),
        ({"input": {**TINY, "patch": 5}}, "not a multiple of patch"),
        ({"input": {"kind": "image"}}, r'"input\.height" is missing'),
        ({"input": {}}, r"input\.kind"),
        ({"input": None, "model": {"family": "vit"}}, "cannot classify"),
        ({"input": None, "task": {"name": "transcribe"}}, r"describe them in \[input\]"),
        ({"task": {"name": "classify", "input": "audio"}}, "leave task.input out"),
        ({"model": {"family": "bert"}}, "use vit"),
        ({"model": {"family": "ast"}}, "use vit"),
        ({"data": {"train": "x", "modifiers": [{"name": "gain", "strength": 3}]}}, "cannot change"),
        ({"data": {"train": "x", "modifiers": [{"name": "shift", "strength": -1}]}}, r"data\.modifiers"),
        ({"data": {"train": "x", "modifiers": [{"name": "blur"}]}}, r"data\.modifiers"),
        ({"task": {"name": "generate"}}, "reads text: leave"),
        ({"input": {"kind": "audio"}, "model": {"family": "ast"}}, r"input\.patch"),
        ({"input": {"kind": "audio", "patch": 4}, "task": {"name": "transcribe"}}, r"input\.patch"),
        ({"input": {**TINY, "kind": "video"}, "model": {"front": "convolution"}}, "pictures"),
    ],
)  # fmt: skip
def test_errors_of_the_input_name_the_field(change, match):
    tree = {key: value for key, value in {**BASE, **change}.items() if value is not None}
    with pytest.raises(UsageError, match=match) as caught:
        resolve(tree)
    assert str(caught.value.code).startswith("E_CONFIG")
