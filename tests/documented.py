"""What the pages show: their blocks, the commands in them, and a folder in which these can be run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import typer

from qa.trials import TRIALS
from regard.cli.main import make_app
from regard.config import Config, resolve
from regard.inputs.text import train_tokenizer
from regard.models.families import build
from regard.storage import unique_weights, write_identity, write_weights
from regard.training import train
from samples import of_family

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")] + sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^( *)```([\w-]*)([^\n`]*)\n(.*?)^\1```[ \t]*$", re.MULTILINE | re.DOTALL)
SHELL_WORDS = ("regard", "echo", "python", "make", "pip")
OUTSIDE = ("ffmpeg", "docker", "install", "lm_eval", ".", "cut", "sort", "uniq")  # nothing of ours to check
INSTALLED = ("build", "joeynmt", "mkdocs", "pip", "pytest", "regard", "venv")  # by `python -m`
LOOPS = ("for", "do", "done")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    reason: str | None  # why it is not run
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        told = found[3].strip()
        reason = told.removeprefix("no-run:").strip() if told.startswith("no-run") else None
        body = textwrap.dedent(found[4])
        language = found[2] or ("sh" if is_shell(body) else "text")
        yield Block(page, text[: found.start()].count("\n") + 1, language, reason, body)


def is_shell(text: str) -> bool:
    """A fence without a language is one of commands where a line begins like one."""
    return any(line.split(" ", 1)[0] in SHELL_WORDS for line in text.splitlines())


def sessions(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines of output below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, *shown = part.rstrip("\n").split("\n")
        yield line, shown


NUMBER = re.compile(r"-?\d+\.\d+")


def same_output(shown: list[str], lines: list[str]) -> bool:
    """Whether lines are what a page shows: `...` stands for any lines, decimals may differ slightly."""
    if not shown:
        return not lines
    if shown[0] == "...":
        return any(same_output(shown[1:], lines[start:]) for start in range(len(lines) + 1))
    return bool(lines) and same_line(shown[0], lines[0]) and same_output(shown[1:], lines[1:])


def same_line(shown: str, line: str) -> bool:
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", line).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(line), strict=True)
    return all(abs(float(a) - float(b)) <= 0.02 * max(1.0, abs(float(a))) for a, b in pairs)


# commands


@dataclass(frozen=True)
class Command:
    """One program with its arguments; what stands before and after it in a pipe is another."""

    words: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()  # NAME=value before it
    read: str | None = None  # < file
    write: str | None = None  # > file
    piped: bool = False  # reads what the one before wrote


def commands(text: str) -> Iterator[Command]:
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        yield from cut(list(lexer))


def cut(words: list[str]) -> Iterator[Command]:
    own: list[str] = []
    piped = False
    for word in [*words, ";"]:
        if word in ("|", ";", "&&"):
            if own:
                yield command(own, piped)
            own, piped = [], word == "|"
        else:
            own.append(word)


def command(words: list[str], piped: bool) -> Command:
    ways: dict[str, str] = {}
    for way in ("<", ">"):
        if way in words:
            at = words.index(way)
            ways[way] = words[at + 1]
            words = words[:at] + words[at + 2 :]
    settings = []
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        name, _, value = words.pop(0).partition("=")
        settings.append((name, value))
    return Command(tuple(words), tuple(settings), ways.get("<"), ways.get(">"), piped)


def check(own: Command) -> None:
    """A command that is not run must be one that could be: its program, options and files are known."""
    match own.words:
        case ():
            return
        case ("regard", *arguments):
            parse(list(arguments))
        case ("torchrun", *words):
            assert words[words.index("-m") + 1] == "regard"
            parse(words[words.index("regard") + 1 :])
        case ("make", *targets):
            known = (ROOT / "Makefile").read_text(encoding="utf-8")
            for target in targets:
                assert "=" in target or re.search(rf"^{target}:", known, re.MULTILINE), f"make {target}"
        case ("pip", "install", *wanted):
            offered = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            for extras in re.findall(r"\[(.+?)\]", " ".join(wanted)):
                assert set(extras.split(",")) <= set(offered["optional-dependencies"]), extras
        case ("python", "-m", module, *_):
            place = ROOT / module.replace(".", "/")
            assert module.split(".")[0] in INSTALLED or place.with_suffix(".py").exists(), module
        case ("python", "qa", *words):
            for name in words[: next((at for at, word in enumerate(words) if word[0] == "-"), None)]:
                assert name in TRIALS, f"python qa {name}"
        case ("python", script, *_):
            assert (ROOT / script).exists(), script
        case (program, *_):
            assert program in (*OUTSIDE, *LOOPS, "echo"), f"{program}: what is this?"


@cache
def program() -> Any:
    return typer.main.get_command(make_app())


def parse(arguments: list[str]) -> None:
    """Read a command line as the program would; what is wrong with it is an error."""
    root = program()
    if arguments and arguments[0].startswith("-"):
        assert arguments[0] in {name for param in root.params for name in param.opts} | {"--help", "-h"}
        return
    own = root
    while getattr(own, "commands", None):
        name = arguments[0] if arguments else ""
        if name not in own.commands and "run" in own.commands:  # regard serve DIR
            name, arguments = "run", ["run", *arguments]
        assert name in own.commands, f"regard {name}: no such command"
        own, arguments = own.commands[name], arguments[1:]
    if "--help" not in arguments:
        own.make_context(own.name, arguments).close()


# a folder to run them in

PAIRS = [
    ("I see the small house.", "Ich sehe das kleine Haus."),
    ("The cat sleeps.", "Die Katze schläft."),
    ("We read an old book.", "Wir lesen ein altes Buch."),
    ("She drinks cold milk.", "Sie trinkt kalte Milch."),
    ("The garden is green today.", "Der Garten ist heute grün."),
    ("Why did he sell the blue car?", "Warum hat er das blaue Auto verkauft?"),
]
CATALOGUE = (
    'msgid ""\nmsgstr "Language: de\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'
    'msgid "Open"\nmsgstr ""\n'
)
TAGGED = "Ada\tB-PER\nLovelace\tI-PER\nlived\tO\nin\tO\nLondon\tB-LOC\n\nBo\tB-PER\nreads\tO\n"
TAGS = ("O", "B-PER", "I-PER", "B-LOC")
CONTEXT = "Ada wrote it in London."
ASKED = [("Who wrote it?", "Ada"), ("Where?", "London")]
QUESTIONS = {
    "data": [
        {
            "title": "a",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": str(number),
                            "question": question,
                            "answers": [{"text": answer, "answer_start": CONTEXT.index(answer)}],
                        }
                        for number, (question, answer) in enumerate(
                            [("Who wrote it?", "Ada"), ("Where?", "London")]
                        )
                    ],
                }
            ],
        }
    ]
}
SHAPE = {"width": 32, "heads": 4, "feed_forward": 32, "dropout": 0.0, "max_length": 96}
MODELS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {  # task, family, labels, folders
    "rnn": ("translate", "rnn", (), ("runs/rnn",)),
    "bahdanau": ("translate", "bahdanau", (), ("runs/bahdanau",)),
    "t5": ("translate", "t5", (), ("runs/t5",)),
    "gpt": ("generate", "gpt", (), ("runs/gpt", "runs/text")),
    "bert": ("fill", "bert", (), ("runs/bert", "minilm")),
    "classify": ("classify", "bert", ("bad", "good"), ("runs/reviews",)),
    "tag": ("tag", "bert", TAGS, ("runs/names",)),
    "answer": ("answer", "bert", (), ("runs/questions", "runs/squad")),
}
TRAINED = ("runs/demo", "runs/first", "runs/mine", "runs/a", "runs/b", "runs/transformer")


def write_files(place: Path) -> None:
    """What the pages' commands read, a few lines each."""
    source, target = (("".join(f"{pair[side]}\n" for pair in PAIRS)) for side in (0, 1))
    labels = "".join(f"{pair[0]}\t{'good' if number % 2 else 'bad'}\n" for number, pair in enumerate(PAIRS))
    files = {"article.txt": CONTEXT + "\n", "messages.po": CATALOGUE, "words.conll": TAGGED}
    files |= {"questions.txt": "Who wrote it?\nWhen?\n", "wishes.jsonl": '{"forbid": ["Haus"]}\n'}
    for split in ("train", "valid", "test"):
        files |= {
            f"{split}.en": source,
            f"{split}.de": target,
            f"{split}.txt": source,
            f"{split}.tsv": labels,
        }
        files |= {f"{split}.conll": TAGGED, f"{split}.json": json.dumps(QUESTIONS)}
    plain = ("other", "book", "lines", "sentences", "reviews", "beginning")
    files |= {f"{name}.txt": source for name in plain} | {"lines.txt": "The <mask> sleeps.\n"}
    for name, text in files.items():
        (place / name).write_text(text, encoding="utf-8")


def small(place: Path, task: str, family: str) -> Config:
    pairs = {split: [[str(place / f"{split}.en"), str(place / f"{split}.de")]] for split in ("train", "test")}
    return resolve(
        {
            "task": {"name": task, "source": "en", "target": "de", "stride": 8},
            "data": {**pairs, "leaks": "keep"},
            "text": {"vocabulary": 400},
            "model": of_family({**SHAPE, "layers": 4 if family == "transformer" else 1, "family": family}),
            "train": {"steps": 4, "tokens_per_batch": 256, "checkpoint_every": 1, "keep": 5, "threads": 1},
            "decode": {"max_length": 12} | ({} if task == "generate" else {"beam": 2}),
        }
    )


def make_workshop(place: Path) -> Path:
    """Corpora and a tiny model of every kind, one of them from a real run of four updates."""
    write_files(place)
    config = small(place, "translate", "transformer")
    train(config, place / TRAINED[0])
    for name in TRAINED[1:]:
        shutil.copytree(place / TRAINED[0], place / name)
    signs = ["<mask>", *(f"<extra_id_{number}>" for number in range(8))]
    tokenizer = train_tokenizer([side for pair in PAIRS for side in pair], "bpe", 400, signs)
    for task, family, labels, folders in MODELS.values():
        config = small(place, task, family)
        torch.manual_seed(1)
        model = build(config.model, len(tokenizer), len(labels) or None).eval()
        for name in folders:
            (place / name).mkdir(parents=True)
            write_identity(place / name, config, tokenizer, None, config.model.max_length, labels)
            write_weights(place / name, config.model, unique_weights(model))
    return place


def stand_in(task: str, family: str) -> str:
    """The folder of the workshop that a run of this kind would come to."""
    if family == "transformer":
        return TRAINED[0]
    return next(own[3][0] for own in MODELS.values() if own[:2] == (task, family))
