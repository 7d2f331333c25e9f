"""Every block of README and docs runs, or says why not; pages follow from the code; links lead somewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from conftest import Command as Program
from documented import (
    PAGES,
    ROOT,
    Block,
    Command,
    blocks,
    check,
    commands,
    make_workshop,
    same_output,
    sessions,
    stand_in,
)
from regard.config import load_config, resolve
from regard.config.load import read_toml
from regard.config.sweep import load_sweep
from regard.data.corpora import check_data
from regard.data.phrasebook import phrases

NAME = lambda page: str(page.relative_to(ROOT))  # noqa: E731
BLOCKS = [block for page in PAGES for block in blocks(page)]
RUN = {page: [block for block in BLOCKS if block.page == page and block.reason is None] for page in PAGES}
KNOWN = {"sh", "console", "python", "toml", "text", "math", "ini", "nginx", "yaml", "json"}
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


# blocks


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.training.model_folder.measured_peak", lambda machine: 1e9)
        try:
            return make_workshop(tmp_path_factory.mktemp("workshop"))
        finally:
            torch.set_num_threads(threads)


@pytest.fixture
def place(
    workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_threads: None
) -> Iterator[Path]:
    """A copy of the workshop to be in; what a page writes, no other page sees."""
    own = shutil.copytree(workshop, tmp_path / "here")
    monkeypatch.chdir(own)
    yield own


@pytest.mark.parametrize("page", [page for page in PAGES if RUN[page]], ids=NAME)
def test_the_blocks_of_a_page_run_one_after_another(
    page: Path, place: Path, regard: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: dict[str, Any] = {"__name__": "__main__"}
    for block in RUN[page]:
        try:
            match block.language:
                case "sh":
                    run_shell(block, regard, monkeypatch)
                case "console":
                    run_console(block, regard)
                case "python":
                    exec(compile(block.text, block.where, "exec"), shared)
                case "toml":
                    resolve_block(block)
        except BaseException as error:  # whatever it is, the page's line must be told
            error.add_note(f"in the block at {block.where}")
            raise


def resolve_block(block: Block) -> None:
    """A run's file is what the config can be; later blocks find it under its name."""
    named = re.match(r"# (\S+\.toml)\n", block.text)
    path = Path(named[1] if named else "run.toml")
    path.write_text(block.text, encoding="utf-8")
    if path.name == "sweep.toml":
        load_sweep(path)
    else:
        resolve(read_toml(path), where=block.where)


def run_shell(block: Block, regard: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    said = ""
    for own in commands(block.text):
        for name, value in own.settings:
            monkeypatch.setenv(name, value)
        given = Path(own.read).read_text(encoding="utf-8") if own.read else said if own.piped else ""
        said = answer(own, regard, given)
        if own.write:
            Path(own.write).write_text(said, encoding="utf-8")


def run_console(block: Block, regard: Program) -> None:
    """Commands with the output that the page shows."""
    for line, shown in sessions(block.text):
        (own,) = commands(line)
        lines = answer(own, regard, "").splitlines()
        assert same_output(shown, lines), f"{line} prints\n" + "\n".join(lines)


def answer(own: Command, regard: Program, given: str) -> str:
    check(own)
    match own.words:
        case ("echo", *words):
            return " ".join(words) + "\n"
        case ("regard", "train", *arguments):
            pretend(list(arguments))
            return ""
        case ("regard", *arguments):
            result = regard(*arguments, stdin=given)
            assert result.code == 0, f"regard {' '.join(arguments)}: {result.err}"
            return result.out
    raise AssertionError(f"{' '.join(own.words)}: cannot be run here; say ```sh no-run: why")


def pretend(arguments: list[str]) -> None:
    """Instead of training: the run's file and data are checked, and a model of its kind takes its place."""
    flag = next(each for each in ("-o", "--output", "--out") if each in arguments)
    out = Path(arguments[arguments.index(flag) + 1])
    if "--resume" in arguments:
        assert out.is_dir()
        return
    changes = [arguments[at + 1] for at, word in enumerate(arguments) if word == "--set"]
    config = load_config(Path(arguments[0]), changes)
    check_data(config.data, config.task)
    model = Path(stand_in(config.task.name, config.model.family))
    if model != out:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(model, out)


SMALLER = (
    *("model.preset=transformer-tiny", "text.vocabulary=400", "decode.max_length=12"),
    *("train.steps=6", "train.checkpoint_every=3", "train.tokens_per_batch=256"),
)


def test_the_flow_of_the_readme_really_trains(place: Path, regard: Program) -> None:
    """Its own data, check, train, translate, evaluate: the commands as they stand, with a smaller model."""
    for split, count in (("train", 300), ("valid", 20), ("test", 20)):
        rows = list(phrases(split, count))
        (place / f"{split}.en").write_text("".join(f"{row.english}\n" for row in rows), encoding="utf-8")
        (place / f"{split}.de").write_text("".join(f"{row.german}\n" for row in rows), encoding="utf-8")
    shutil.rmtree(place / "runs")
    blocks_of_page = RUN[ROOT / "README.md"]
    flow = next(block for block in blocks_of_page if block.language == "sh" and "regard train" in block.text)
    resolve_block(next(block for block in blocks_of_page if block.language == "toml"))
    for own in commands(flow.text):
        if own.words[:2] == ("regard", "train"):
            result = regard(*own.words[1:], *(word for change in SMALLER for word in ("--set", change)))
            assert result.code == 0, result.err
            (folder,) = (place / "runs").iterdir()
            steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
            assert max(steps) == 6
        else:
            answer(own, regard, "")
    assert len((place / "article.de.txt").read_text(encoding="utf-8").splitlines()) == 1


def test_blocks_have_a_kind_and_those_that_do_not_run_a_reason() -> None:
    assert {block.language for block in BLOCKS} <= KNOWN
    still = [block for block in BLOCKS if block.reason is not None]
    assert all(block.reason for block in still), "say why: ```sh no-run: needs a corpus"
    counted = Counter(re.sub(r"^from .*", "code of the package", block.reason or "") for block in still)
    told = sum(block.language in ("sh", "console", "python", "toml") for block in BLOCKS)
    print(f"\n{len(still)} of {told} blocks are not run:")
    for reason, count in counted.most_common():
        print(f"{count:4} {reason}")


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.reason is not None for b in blocks(p))], ids=NAME)
def test_what_is_not_run_could_be(page: Path) -> None:
    for block in blocks(page):
        if block.reason is None:
            continue
        try:
            if block.language in ("sh", "console"):
                text = block.text
                if block.language == "console":
                    text = "\n".join(line for line, _ in sessions(text))
                for own in commands(text):
                    check(own)
            elif block.language == "python":
                compile(block.text, block.where, "exec")
            elif block.language == "toml":
                resolve_block(block)
        except BaseException as error:
            error.add_note(f"in the block at {block.where}")
            raise


@pytest.mark.parametrize(
    "wrong",
    ["regard translate --nonsense", "regard nonsense", "regard translate --beam x -m a", "make nonsense",
     'pip install "regard[nonsense]"', "python -m bench.nonsense", "nonsense", "regard serve --nonsense x",
     "python qa nonsense"],
)  # fmt: skip
def test_the_check_of_commands_can_fail(wrong: str) -> None:
    with pytest.raises(Exception, match=r"."):
        for own in commands(wrong):
            check(own)


def test_outputs_are_compared() -> None:
    lines = ["one", "two 0.5012", "three", "four"]
    assert same_output(["one", "two 0.5013", "...", "four"], lines)
    assert same_output(["...", "three", "..."], lines)
    assert not same_output(["one", "two 0.6", "..."], lines)
    assert not same_output(["one", "two 0.5012"], lines)
    assert not same_output(["...", "five"], lines)


def test_how_a_line_is_read() -> None:
    line = 'A=b echo "x | y" | regard tag -m m < in > out  # told\nmake demo && make \\\n test'
    assert list(commands(line)) == [
        Command(("echo", "x | y"), (("A", "b"),)),
        Command(("regard", "tag", "-m", "m"), read="in", write="out", piped=True),
        Command(("make", "demo")),
        Command(("make", "test")),
    ]


# pages that follow from the code


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs" / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_current(maker: ModuleType) -> None:
    for path, text in maker.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{NAME(path)}: run python docs/make.py"


def test_a_stale_source_is_noticed(maker: ModuleType) -> None:
    page = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
    assert page.count("<!-- source: ") == len(maker.MARK.findall(page)) >= 30
    stale = page.replace("products = (q * scale)", "products = (q / scale)")
    assert stale != page
    assert maker.with_sources(stale) == maker.with_sources(page)


def test_every_command_and_field_is_told(maker: ModuleType) -> None:
    import typer

    from regard.cli.main import make_app
    from regard.config import Config
    from regard.config.input import INPUTS
    from regard.config.model import CLASSES

    told = maker.commands_page()
    found = list(maker.walk(typer.main.get_command(make_app()), "regard"))
    for path, command in found:
        assert f"\n## {path}\n" in told
        section = told.split(f"\n## {path}\n")[1].split("\n## ")[0]
        assert "Example" in section, f"the help of {path} has no example"
        assert path in section.split("```sh", 1)[1], f"the example of {path} shows another command"
        for param in command.params:
            assert (
                param.name == "help"
                or param.hidden
                or all(f"`{name}`" in section for name in param.opts if name[0] == "-")
            )
    fields = maker.config_page()
    sections = [(name, info.annotation) for name, info in Config.model_fields.items()]
    sections = [each for each in sections if each[0] not in ("version", "model", "input")]
    unions = [
        (name, kind) for name, each in (("model", CLASSES), ("input", INPUTS)) for kind in each.values()
    ]
    for section, kind in [*sections, *unions]:
        own = fields.split(f"## [{section}]")[1].split("\n## ")[0]
        for name, field in kind.model_fields.items():
            assert f"| `{field.alias or name}` |" in own, f"{section}.{name}"
            assert field.description, f"{section}.{name} has no meaning"


def test_the_python_page_has_every_argument_and_field() -> None:
    import dataclasses
    import inspect

    import regard
    from regard.tasks import results
    from regard.tasks.spec import TASKS

    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    for spec in TASKS.values():
        for method in spec.methods.values():
            signatures = re.findall(rf"`{method.__name__}\(([^`]*)\)`", page)
            names = set(inspect.signature(method).parameters) - {"self"}
            shown = [set(re.findall(r"(\w+)(?:=|,|$)", each)) for each in signatures]
            assert any(names <= each for each in shown), f"{method.__qualname__}: {sorted(names)}"
    for function in (regard.load, regard.train, regard.evaluate, regard.compare):
        (signature,) = re.findall(rf"`regard\.{function.__name__}\(([^`]*)\)`", page)
        shown = {each.partition("=")[0].strip(" *") for each in signature.split(",")} - {""}
        assert set(inspect.signature(function).parameters) == shown, function.__name__
    for name, kind in vars(results).items():
        if dataclasses.is_dataclass(kind) and kind.__module__ == results.__name__:
            listed = re.search(rf"`{name}`: ((?:`\w+`,?\s*)+)", page)
            assert listed, f"{name} is not on the page"
            fields = {field.name for field in dataclasses.fields(kind)}
            names = set(re.findall(r"\w+", listed[1]))
            assert fields <= names and all(hasattr(kind, each) for each in names - fields), name


WRITTEN_PAGES = [page for page in PAGES if "Written by docs/make.py" not in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", WRITTEN_PAGES, ids=NAME)
def test_pages_have_no_retired_words(page: Path) -> None:
    retired = tomllib.loads((ROOT / "tests" / "retired_words.toml").read_text(encoding="utf-8"))
    text = without_code(page.read_text(encoding="utf-8")).lower()
    for phrase in [*retired["phrases"], *retired["pages"]]:
        assert not re.search(rf"\b{re.escape(phrase.strip())}\b", text), f"{NAME(page)}: {phrase}"


# links


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub and the site both make them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in HEADING.findall(text))
    return {re.sub(r" ", "-", heading) for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=NAME)
def test_links_lead_somewhere(page: Path) -> None:
    for plain, image in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        target = plain or image
        if re.match(r"https?://|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        to = (page.parent / name).resolve() if name else page
        assert to.exists(), f"{target}: there is no such file"
        assert to.is_relative_to(ROOT)
        assert not anchor or anchor in anchors(to), f"{target}: there is no such heading"


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        if page.is_relative_to(ROOT / "docs"):
            name = page.relative_to(ROOT / "docs").as_posix()
            assert re.search(rf": {re.escape(name)}$", contents, re.MULTILINE), name


# the site


class Requests(HTMLParser):
    """What a browser would fetch by itself for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.equations = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.equations += tag == "math"
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed") and own.get("src"):
            self.found.append(own["src"] or "")
        if tag == "link" and own.get("rel") not in ("canonical", "next", "prev", "alternate"):
            self.found.append(own.get("href") or "")


def test_the_site_builds_and_asks_no_other_host(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len([page for page in PAGES if page.is_relative_to(ROOT / "docs")])  # and 404
    equations = 0
    for page in pages:
        encoder = Requests()
        text = page.read_text(encoding="utf-8")
        encoder.feed(text)
        foreign = [each for each in encoder.found if re.match(r"(https?:)?//", each)]
        assert not foreign, f"{page.name} asks {foreign}"
        assert "no-run" not in text
        assert 'class="mermaid"' not in text  # its script would be fetched
        equations += encoder.equations
    assert equations >= 30
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", style.read_text(encoding="utf-8")), (
            style.name
        )
