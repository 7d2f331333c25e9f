"""How large and how readable the package is, as figures: python -m bench.size [SRC ...] [--json]

SRC is a folder that holds `regard` (default: this checkout's src). For each: files, lines and functions of
Python, lines of JavaScript; class names that exist twice; how often retired words stand as identifiers;
modules of regard that a training step and the models load; frames of our own between `translate()` and a
matrix product.
"""

from __future__ import annotations

import ast
import collections
import os
import re
import subprocess
import sys
from pathlib import Path

from bench.rounds import arguments, show

ROOT = Path(__file__).resolve().parents[1]
RETIRED = ("told", "own", "found", "said", "asked", "begun", "known")

MODELS = """
import importlib, sys
try:
    importlib.import_module("regard.models.transformer")
except ImportError:
    importlib.import_module("regard.model.transformer")
print(sum(name.split(".")[0] == "regard" for name in sys.modules))
"""
TRAINING = """
import sys, tempfile
from pathlib import Path
from regard.config import resolve
try:
    from regard.training import train
except ImportError:
    from regard.train import train
place = tempfile.TemporaryDirectory()
pairs = Path(place.name) / "pairs.tsv"
pairs.write_text("".join(f"word {n} of {n % 7}\\tWort {n} von {n % 7}\\n" for n in range(200)))
valid = Path(place.name) / "valid.tsv"
valid.write_text("".join(f"text {n}\\tText {n}\\n" for n in range(8)))
tree = {"data": {"train": str(pairs), "valid": str(valid)}, "text": {"vocabulary": 300}}
tree["task"] = {"source": "en", "target": "de"}
tree["model"] = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16}
tree["train"] = {"steps": 1, "tokens_per_batch": 128, "validate_sentences": 2, "checkpoint_every": 1}
counted = []
def count(frame, event, argument):
    if frame.f_code.co_name == "save_checkpoint" and not counted:
        counted.append(sum(name.split(".")[0] == "regard" for name in sys.modules))
sys.setprofile(count)
train(resolve(tree), Path(place.name) / "run")
sys.setprofile(None)
print(counted[0], sum(name.split(".")[0] == "regard" for name in sys.modules))
"""
FRAMES = """
import sys, torch, regard
model = regard.load("phrasebook-transformer", precision="float32")
model.translate("I see it.", beam=1)
deepest = 0
def look(*arguments, **options):
    global deepest
    frame, count, inside = sys._getframe(1), 0, False
    while frame is not None:
        file = frame.f_code.co_filename
        if "/regard/" in file:
            count += 1
            inside = inside or frame.f_code.co_name == "translate"
        frame = frame.f_back
    if inside:
        deepest = max(deepest, count)
    return linear(*arguments, **options)
linear = torch.nn.functional.linear
torch.nn.functional.linear = look
regard.load("phrasebook-transformer", precision="float32").translate("I see it.", beam=2)
print(deepest)
"""


def run(source: Path, code: str) -> list[int]:
    """What a program prints with the package in `source`."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    return [int(each) for each in done.stdout.split()] if done.returncode == 0 else [-1]


def identifiers(tree: ast.AST) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.append(node.name)
            case ast.arg():
                names.append(node.arg)
            case ast.Name(ctx=ast.Store()):
                names.append(node.id)
            case ast.Attribute(ctx=ast.Store()):
                names.append(node.attr)
    return names


def figures(source: Path) -> dict[str, object]:
    paths = sorted((source / "regard").rglob("*.py"))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    classes = collections.Counter(
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    words = collections.Counter(
        word
        for tree in trees
        for name in identifiers(tree)
        for word in re.split(r"_+", name.lower())
        if word in RETIRED
    )
    scripts = list((source / "regard").rglob("*.js"))
    return {
        "files": len(paths),
        "lines": sum(path.read_text(encoding="utf-8").count("\n") for path in paths),
        "functions": len(functions),
        "javascript lines": sum(path.read_text(encoding="utf-8").count("\n") for path in scripts),
        "double class names": sum(count > 1 for count in classes.values()),
        "retired words as identifiers": {word: words[word] for word in RETIRED},
        "modules: models": run(source, MODELS)[0],
        "modules: training step, whole run": run(source, TRAINING),
        "frames from translate() to a product": run(source, FRAMES)[0],
    }


def code_lines(folder: Path) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in folder.rglob("*.py"))


def main() -> None:
    parser = arguments(__doc__, model=False)
    parser.add_argument("sources", type=Path, nargs="*", default=[ROOT / "src"])
    given = parser.parse_args()
    for source in given.sources:
        show({"src": str(source), **figures(source)}, given.json)
    outside = {name: code_lines(ROOT / name) for name in ("bench", "qa", "tests")}
    show({"lines outside src": outside}, given.json)


if __name__ == "__main__":
    main()
