"""Folders made to do harm: refused in one sentence, with no code run, no memory taken, nothing else read.

`qa/hostile` has the trials; here are short samples of them, and the laws behind them.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from qa.hostile import trials as hostile
from qa.hostile.bombs import bombs
from qa.hostile.folders import INDEX, LINK, WEIGHTS, Folder, lay, mutate
from regard.config.reading import DEEPEST, parse_json, read_bytes, shown
from regard.errors import RegardError, UsageError
from regard.inputs.text.checks import check_pattern
from regard.models.families import build
from regard.storage import (
    Checkpoint,
    load_latest,
    load_weights_into,
    open_folder,
    save_checkpoint,
    unique_weights,
)
from regard.storage.checkpoint import CONTENT
from regard.storage.checksums import file_entry
from regard.storage.files import to_json
from regard.storage.weights import min_parameters, shapes_in
from regard.training.progress import progress_from_state

# a child process for each trial: newer Pythons warn of forks beside threads, and none is at work here
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module")
def folders() -> dict[str, Folder]:
    return hostile.warm_folders()


@pytest.fixture(autouse=True)
def one_thread(same_threads: None) -> None:
    torch.set_num_threads(1)


def refused(path: Path, folder: Folder) -> str:
    lay(path, folder)
    with pytest.raises(UsageError) as caught:
        open_folder(path)
    said = str(caught.value)
    assert hostile.told_in_one_line(said) and str(path) in said
    return said


def test_nothing_in_a_folder_runs(folders):
    result = hostile.code(folders, 60, seed=11)
    assert (result.n, result.failures) == (60, 0), result


def test_the_watch_sees_what_it_is_for(folders, monkeypatch):
    """Without our checks the same cases are found out: the trial can fail."""
    monkeypatch.setattr("regard.storage.folder.check_files", lambda folder: None)
    assert hostile.code(folders, 30, seed=11).failures


def test_mutations_give_our_errors_alone(folders, monkeypatch):
    monkeypatch.setattr(hostile, "LONGEST", hostile.HANGS)  # the trial measures times
    result = hostile.mutations(folders, 250, seed=11)
    assert result.failures == 0 and 0 < result.more["opened"] < 250, result


def test_crashes_and_other_errors_are_findings(folders, monkeypatch):
    def broken(path: Path) -> tuple[str, str]:
        if path.name == "1":
            os._exit(9)
        raise KeyError("other")

    monkeypatch.setattr(hostile, "attempt", broken)
    monkeypatch.setattr(hostile, "HANGS", 5.0)
    found = list(hostile.all_of(lambda first: ((str(n), folders["gpt"]) for n in range(first, 3))))
    assert [finding.outcome for finding in found] == ["KeyError", "crash", "KeyError"]


def test_bombs_are_refused_with_little_memory(folders):
    """All of them in one process that can have 64 MiB more than it has; the trial measures times."""
    listed = list(bombs(folders))
    found = list(hostile.in_child(lambda first: iter(listed), 0, hostile.little_memory))
    assert len(listed) >= 60 and all(len(b"".join(_contents(each))) < 2**20 for _, each in listed)
    assert [f.case for f in found if f.outcome != "refused"] == [] and len(found) == len(listed)


def _contents(folder: Folder) -> list[bytes]:
    return [content for content in folder.files.values() if isinstance(content, bytes)]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "run.toml"])
def test_files_larger_than_their_like_are_not_read(folders, name, tmp_path):
    lay(tmp_path / "a", folders["own" if name == "run.toml" else "gpt"])
    os.truncate(tmp_path / "a" / name, 2**40)  # holes: no disk is used
    with pytest.raises(UsageError, match=rf"{name}.* bytes are more than"):
        open_folder(tmp_path / "a")


def test_endless_vocabularies_are_not_read(folders, tmp_path):
    lay(tmp_path / "a", folders["words"])
    os.truncate(tmp_path / "a" / "vocab.txt", 2**30)
    with pytest.raises(UsageError, match=r"vocab\.txt.* bytes are more than"):
        open_folder(tmp_path / "a")
    many = folders["words"].with_file("vocab.txt", b"\n" * (2**20 + 1))
    assert "more than 1,048,576 lines" in refused(tmp_path / "b", many)


def test_links_lead_nowhere_else(folders, tmp_path):
    lay(tmp_path / "good", folders["parts"])
    for number, name in enumerate(folders["parts"].files):
        linked = folders["parts"].with_file(name, (LINK, str(tmp_path / "good" / name)))
        if name != "README.md":
            assert "leads out" in refused(tmp_path / str(number), linked)
    inside = folders["parts"].with_file("second.json", (LINK, "config.json"))
    lay(tmp_path / "inside", inside)
    assert open_folder(tmp_path / "inside").path == tmp_path / "inside"
    (tmp_path / "door").symlink_to(tmp_path / "inside")  # the folder itself may be reached by a link
    assert open_folder(tmp_path / "door").labels == ()


def test_the_cache_of_the_hub_is_a_folder_of_links(folders, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, (name, content) in enumerate(folders["gpt"].files.items()):
        (blobs / str(number)).write_bytes(content)
        (snapshot / name).symlink_to(f"../../blobs/{number}")
    assert open_folder(snapshot).task.name == "generate"
    (tmp_path / "secret").write_text("{}")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../secret")
    with pytest.raises(UsageError, match="leads out"):
        open_folder(snapshot)


def test_a_tensor_in_two_parts_is_refused(folders, tmp_path):
    first, second = sorted(name for name in folders["parts"].files if name.endswith(".safetensors"))
    twice = folders["parts"].with_file(second, folders["parts"].files[first])
    places = {name: first for name, at in twice.read(INDEX)["weight_map"].items() if at == first}
    places[next(iter(places))] = second
    said = refused(tmp_path / "a", twice.with_file(INDEX, {"weight_map": places}))
    assert "is in another part as well" in said


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), name=st.sampled_from([*CONTENT, "manifest.json"]), again=st.booleans())
def test_a_checkpoint_made_up_is_whole_or_told(seed, name, again):
    """Also where whoever changed it wrote the manifest anew."""
    with tempfile.TemporaryDirectory() as place:
        weights = {"w": torch.ones(3)}
        folder = save_checkpoint(Path(place), 5, Checkpoint(weights, weights, {"step": 5}))
        files = {each.name: each.read_bytes() for each in folder.iterdir()}
        chance = random.Random(seed)
        changed = mutate(Folder({name: files[name]}), chance).files.get(name, b"")
        (folder / name).write_bytes(changed)
        if again and name != "manifest.json":
            told = {each: file_entry(folder / each) for each in CONTENT}
            (folder / "manifest.json").write_text(to_json({"step": 5, "files": told}))
        said: list[str] = []
        found = load_latest(Path(place), said.append)
        assert (found is None) == bool(said) and all(map(hostile.told_in_one_line, said))
        assert found is None or again or changed == files[name]


@pytest.mark.parametrize("state", [{"step": "5"}, {"step": [1]}, {"other": 1}, {"step": True}])
def test_a_state_of_something_else_is_told(state, tmp_path):
    with pytest.raises(RegardError, match=r"state\.json"):
        progress_from_state(state, tmp_path)
    assert progress_from_state({"step": 5, "best_loss": None}, tmp_path).step == 5


# --- what is read is what was there


@pytest.mark.parametrize("name", ["own", "pre", "rnn", "fill", "gpt", "llama", "t5", "parts"])
def test_memory_comes_with_the_weights(folders, name, tmp_path):
    """A model built as mere shapes and filled is the one that is built at once; what is tied stays tied."""
    lay(tmp_path / "a", folders[name])
    found = open_folder(tmp_path / "a")
    assert not any(each.is_meta for each in [*found.model.parameters(), *found.model.buffers()])
    plain = build(found.config, len(found.source))
    load_weights_into(plain, unique_weights(found.model), tmp_path)
    shared = [len(set(map(id, m.parameters()))) for m in (plain, found.model)]
    assert shared[0] == shared[1] and plain.state_dict().keys() == found.model.state_dict().keys()
    for key, tensor in plain.state_dict(keep_vars=True).items():
        assert torch.equal(tensor, found.model.state_dict()[key])
    numbers = sum(each.numel() for each in plain.parameters())
    assert 0.5 * numbers < min_parameters(found.config, len(found.source)) <= numbers


def test_shapes_are_those_of_the_tensors(folders, tmp_path):
    lay(tmp_path / "a", folders["t5"])
    file = tmp_path / "a" / WEIGHTS
    assert shapes_in(file) == {name: tuple(tensor.shape) for name, tensor in load_file(file).items()}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(content=json_values, ascii_only=st.booleans())
def test_json_is_read_as_python_reads_it(content, ascii_only):
    text = json.dumps(content, ensure_ascii=ascii_only)
    if text.encode("utf-8", "ignore").decode() == text:
        assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1, "b": 2, "a": 1}', '"a" occurs twice'),
        ("[NaN]", "not a finite number"),
        ('{"a": -Infinity}', "not a finite number"),
        ("[1e999]", "not a finite number"),
        ("[" * DEEPEST + "[]" + "]" * DEEPEST, "deeper"),
        ("[" * 100_000, "deeper"),
        (r'["\ud800"]', "surrogates"),
        ("[" + "9" * 5000 + "]", "digits"),
    ],
)
def test_json_that_is_none_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        parse_json(text)
    assert parse_json("[" * (DEEPEST - 1) + "]" * (DEEPEST - 1)) is not None
    assert parse_json(r'["\ud83d\ude00"]') == ["\U0001f600"]


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UsageError, match="not an ordinary file"):
            read_bytes(path)


@given(st.text() | st.recursive(st.integers(), st.lists))
def test_what_is_shown_is_one_short_line(value):
    assert shown(value).isprintable() and len(shown(value)) <= 500


KNOWN = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "Llama 3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "spaces": r" {2,}",
    "digits": r"\p{N}{1,3}",
    "brackets": r"[\[\](){}*+]+|\(\+\)",
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_patterns_of_known_models_pass(name):
    check_pattern(KNOWN[name])
    text = "aaaa'll  1234 (*[+]\r\n\n x" * 2000
    assert tokenizers.pre_tokenizers.Split(tokenizers.Regex(KNOWN[name]), "isolated").pre_tokenize_str(text)


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a+)+$", r"(?:a|a)*b", r"(a)\1", r"(?<n>a)\k<n>", r"(?:a?){1,50}", r"a*a*a*a*b", r"x{0,999}" * 4),
        *("", "x" * 3000, "[a", "(?(1)a|b)", "(?~a)", r"((?:a*))+", 5, None),
    ],
)
def test_patterns_without_end_are_refused(pattern):
    with pytest.raises(ValueError, match="pattern"):
        check_pattern(pattern)
