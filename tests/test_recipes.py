"""Every recipe is a run that can begin and says what to expect; the rows of the ablation are Table 3's."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import regard as package
from conftest import Command, Toy, toy_config
from regard.config import Config, load_config, to_toml
from regard.data import read_examples
from regard.models.families import build, parameters

FOLDER = Path(__file__).parent.parent / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))
VOCABULARY = 10_000


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_right_and_says_what_to_expect(path: Path, regard: Command) -> None:
    shown = regard("config", "show", path)
    assert (shown.code, shown.err) == (0, "")
    head = path.read_text(encoding="utf-8").split("\n[", 1)[0]
    assert all(line.startswith("#") for line in head.splitlines() if line), "a comment stands first"
    assert f"recipes/{path.name}" in head, "the command that runs it"
    promised = load_config(path).recipe
    assert promised.expected, "the score, or that nobody measured it yet"
    assert re.search(r"minutes|seconds|hours|days|not measured", promised.time), "and the time"


def test_the_paper_is_what_the_paper_says() -> None:
    base, big = (load_config(FOLDER / f"wmt14-{size}.toml") for size in ("base", "big"))
    assert shape(base) == (512, 2048, 8, (6, 6), "post", 0.1)
    assert shape(big) == (1024, 4096, 16, (6, 6), "post", 0.3)
    for config, steps in ((base, 100_000), (big, 300_000)):
        train, decode = config.train, config.decode
        assert (train.steps, train.warmup, train.betas, train.epsilon) == (steps, 4000, (0.9, 0.98), 1e-9)
        assert train.tokens_per_batch * train.accumulate == 25_000
        assert (decode.beam, decode.length_penalty, decode.penalty_form) == (4, 0.6, "wu")
    assert shape(load_config(FOLDER / "iwslt14.toml")) == (256, 1024, 4, (6, 6), "pre", 0.3)


def shape(config: Config) -> tuple[object, ...]:
    model = config.model
    return model.width, model.feed_forward, model.heads, model.depth, model.norm, model.dropout


@pytest.fixture(scope="module")
def ablation() -> ModuleType:
    return recipe("ablation")


def recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_rows_change_what_they_say_and_nothing_else(ablation: ModuleType) -> None:
    base = ablation.config_of("base", 100, 1)
    seen = {base.model.model_dump_json() + base.train.model_dump_json()}
    for name, row in ablation.ROWS.items():
        own = ablation.config_of(name, 100, 1)
        changed = {
            f"{section}.{field}"
            for section in ("task", "data", "text", "model", "train", "decode")
            for field, value in getattr(own, section)
            if value != getattr(getattr(base, section), field)
        }
        assert changed == {change.split("=")[0] for change in row.changes}
        seen.add(own.model.model_dump_json() + own.train.model_dump_json())
    assert len(seen) == len(ablation.ROWS) >= 10


def test_row_a_has_the_base_size(ablation: ModuleType) -> None:
    """In row A of the table the amount of computation stays: more heads are narrower."""
    sizes = {
        name: parameters(build(ablation.config_of(name, 100, 1).model, VOCABULARY))
        for name in ("base", "heads-1", "heads-2", "heads-8", "heads-16", "key-16", "width-256")
    }
    assert {sizes[name] for name in sizes if name.startswith("heads")} == {sizes["base"]}
    assert sizes["key-16"] < sizes["base"] < sizes["width-256"]


def test_what_is_done_is_read_and_shown(ablation: ModuleType, tmp_path: Path) -> None:
    def record(folder: str, bleu: float, ended: bool) -> Path:
        place = tmp_path / folder
        place.mkdir()
        rows = [{"kind": "test", "bleu": bleu}, {"kind": "final-valid", "loss": 1.0}]
        rows += [{"kind": "run", "parameters": 7, "seconds": 60}] if ended else []
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (place / "metrics.jsonl").write_text(text + '{"kind": "tr', encoding="utf-8")  # a torn line
        return place

    assert ablation.read_result(tmp_path / "none") is None
    assert ablation.read_result(record("cut", 1.0, ended=False)) is None
    runs = [ablation.read_result(record(str(bleu), bleu, ended=True)) for bleu in (30.0, 34.0, 40.0)]
    assert runs[0].perplexity == pytest.approx(2.718281828)
    ablation.write({"base": [runs[2]], "heads-1": runs[:2]}, tmp_path, 100, [1, 2])
    told = (tmp_path / "ablation.md").read_text(encoding="utf-8")
    assert re.search(r"heads-1.*1 head, d\\_k 512: 24.9.*32\.00.*30\.00 to 34\.00", told)
    assert "<svg" in (tmp_path / "ablation.svg").read_text(encoding="utf-8")
    assert "32.00" in (tmp_path / "ablation.html").read_text(encoding="utf-8")


def test_rows_are_trained_once(
    ablation: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_threads: None
) -> None:
    """The same command goes on: what is done is read, what lacks is trained."""
    trained: list[str] = []

    def config_of(name: str, steps: int, seed: int, common: list[str]) -> Config:
        assert common == ["train.lr=1"]
        trained.append(f"{name} {seed}")
        return toy_config(tmp_path, steps=steps, warmup=1, checkpoint_every=steps, seed=seed)

    def run(*arguments: str) -> None:
        words = [
            "ablation.py",
            "--runs",
            str(tmp_path / "runs"),
            "--steps",
            "2",
            "--set",
            "train.lr=1",
            *arguments,
        ]
        monkeypatch.setattr(sys, "argv", words)
        ablation.main()

    monkeypatch.setattr(ablation, "config_of", config_of)
    monkeypatch.setattr("regard.training.model_folder.measured_peak", lambda machine: 1e9)
    run("--only", "base")
    run("--only", "base", "heads-1")
    run("--only", "base", "heads-1")
    assert trained == ["base 1", "heads-1 1"]
    told = (tmp_path / "runs" / "ablation.md").read_text(encoding="utf-8")
    assert "2 of 19 rows, 2 updates each, seeds 1" in told


def test_each_speaker_is_left_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    speakers, trained = recipe("speakers"), []

    def train(config: Config, folder: Path, resume: bool) -> SimpleNamespace:
        trained.append(Path(str(config.data.test)).name)
        assert not resume and config.train.seed == 7
        folder.mkdir(parents=True)
        record = {"kind": "test", "accuracy": 0.5 if folder.name == "jackson" else 1.0}
        (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
        return SimpleNamespace(finished=True)

    for name in ("george", "jackson"):
        (tmp_path / f"fsdd.{name}.test.tsv").touch()
    monkeypatch.setattr(speakers, "train", train)
    words = ["speakers.py", "--place", str(tmp_path), "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", [*words, "--set", "train.seed=7"])
    for _ in range(2):  # the second time nothing is left to train
        speakers.main()
        assert capsys.readouterr().out.endswith("mean 75.0%; the worst is jackson with 50.0%\n")
    assert trained == ["fsdd.george.test.tsv", "fsdd.jackson.test.tsv"]


def test_a_student_learns_what_its_teacher_says(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_threads: None
) -> None:
    """A second call translates nothing again: the teacher's portions are there."""
    distil = recipe("distil")
    config = toy_config(tmp_path, steps=2, warmup=1, checkpoint_every=2)
    (tmp_path / "small.toml").write_text(to_toml(config), encoding="utf-8")
    monkeypatch.setattr("regard.training.model_folder.measured_peak", lambda machine: 1e9)
    monkeypatch.setattr(distil, "read_examples", lambda *given: read_examples(*given)[:30])
    words = [
        "distil.py",
        str(tmp_path / "small.toml"),
        "--teacher",
        str(toy.model),
        "--out",
        str(tmp_path / "own"),
    ]
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit, match="0"):
            distil.main()
        monkeypatch.setattr(distil, "load", None)
    said = tmp_path / "own-teacher"
    sources, targets = ((said / f"{name}.txt").read_text(encoding="utf-8") for name in ("source", "target"))
    assert targets.splitlines() == package.load(toy.model).translate(sources.splitlines(), beam=5)
    learned = load_config(tmp_path / "own" / "run.toml").data.train
    assert learned == [str(said / "source.txt"), str(said / "target.txt")]
    assert (tmp_path / "own" / "model.safetensors").is_file()
