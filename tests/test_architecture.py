"""Rules about the source that hold for ever: layers, sizes, names, words, and what is never called."""

from __future__ import annotations

import ast
import collections
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import regard

SOURCE = Path(regard.__file__).parent
FILES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
SCRIPTS = sorted((SOURCE / "server" / "web").rglob("*.js"))
RETIRED = tomllib.loads((Path(__file__).parent / "retired_words.toml").read_text(encoding="utf-8"))
ENTRY_POINTS = {SOURCE / "__init__.py", SOURCE / "__main__.py"}  # may name any package
UNPICKLE = SOURCE / "storage" / "unpickle.py"  # a process of its own that reads tensors alone
MAX_FILE, MAX_FUNCTION = 400, 70
WITHOUT_CODES = {"data", "models", "generation", "interpret", "training", "tasks", "server", "cli", "metrics"}

# A package imports only from packages with a lower number, and not from others with the same number.
LAYERS = {
    name: layer
    for layer, names in enumerate(
        [
            ["errors", "checksums", "sample", "resources", "__init__"],
            ["compat"],
            ["config"],
            ["device", "mapped", "batch", "metrics"],
            ["inputs"],
            ["data"],
            ["models"],
            ["storage", "generation"],
            ["interpret"],
            ["training", "tasks"],
            ["evaluation"],
            ["export", "server", "ray"],
            ["cli"],
        ]
    )
    for name in names
}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_packages(tree: ast.AST) -> set[str]:
    """The packages of regard that a module imports, anywhere in it."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute: regard.package.module"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names += whole if node.module == "regard" else [node.module or ""]
    ours = [name.split(".") for name in names if name.split(".")[0] == "regard"]
    return {parts[1] if len(parts) > 1 and parts[1] in LAYERS else "__init__" for parts in ours}


def identifiers(tree: ast.AST) -> list[tuple[str, int]]:
    """Every name that a module defines, with its line."""
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.append((node.name, node.lineno))
            case ast.arg():
                names.append((node.arg, node.lineno))
            case ast.Name(ctx=ast.Store()):
                names.append((node.id, node.lineno))
            case ast.Attribute(ctx=ast.Store()):
                names.append((node.attr, node.lineno))
    return names


def retired_identifiers(tree: ast.AST) -> list[str]:
    words = set(RETIRED["identifiers"])
    parts = lambda name: re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_")  # noqa: E731
    return [f"{line}: {name}" for name, line in identifiers(tree) if words & set(parts(name))]


def retired_phrases(tree: ast.AST) -> list[str]:
    strings = [
        node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [
        f"{node.lineno}: {phrase!r}"
        for node in strings
        for phrase in RETIRED["phrases"]
        if phrase in " ".join(str(node.value).lower().split())
    ]


def long_functions(script: str) -> list[str]:
    """JavaScript functions at the top level of a module that have more than MAX_FUNCTION lines."""
    lines, found, start = script.split("\n"), [], None
    for number, line in enumerate(lines, 1):
        if re.match(r"(export )?(default )?(async )?function\b|(export )?const \w+ = .*=> \{$", line):
            start = number
        if line.startswith("}") and start is not None:
            if number - start + 1 > MAX_FUNCTION:
                found.append(f"{start}: {number - start + 1} lines")
            start = None
    return found


def report(wrong: dict[Path, list[str]]) -> str:
    return "\n".join(f"{path.relative_to(SOURCE)}:{each}" for path, hits in wrong.items() for each in hits)


def test_every_package_has_its_layer() -> None:
    assert {package_of(path) for path in FILES} - {"__main__"} == set(LAYERS)


def test_a_package_imports_only_from_packages_above() -> None:
    for path, tree in FILES.items():
        if path not in ENTRY_POINTS:
            here = package_of(path)
            wrong = {
                each for each in imported_packages(tree) if each != here and LAYERS[each] >= LAYERS[here]
            }
            assert not wrong, f"{path.relative_to(SOURCE)} imports {wrong}"


def test_files_and_functions_are_short() -> None:
    wrong: dict[Path, list[str]] = collections.defaultdict(list)
    for path, tree in FILES.items():
        if path.read_text(encoding="utf-8").count("\n") > MAX_FILE:
            wrong[path].append(f" more than {MAX_FILE} lines")
        for node in ast.walk(tree):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION:
                wrong[path].append(f"{node.lineno}: {node.name}")
    for path in SCRIPTS:
        script = path.read_text(encoding="utf-8")
        wrong[path] += long_functions(script)
        if script.count("\n") > MAX_FILE:
            wrong[path].append(f" more than {MAX_FILE} lines")
    assert not any(wrong.values()), report(wrong)


def test_no_class_name_exists_twice() -> None:
    places = collections.defaultdict(list)
    for path, tree in FILES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_retired_words_do_not_come_back() -> None:
    names = {path: retired_identifiers(tree) for path, tree in FILES.items()}
    assert not any(names.values()), report(names)
    phrases = {path: retired_phrases(tree) for path, tree in FILES.items()}
    assert not any(phrases.values()), report(phrases)


def test_every_refusal_has_a_code() -> None:
    """UsageError and RegardError are raised with `code`; their subclasses have one of their own."""
    for path, tree in FILES.items():
        if package_of(path) in WITHOUT_CODES:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("UsageError", "RegardError"):
                has_code = any(keyword.arg == "code" for keyword in node.keywords)
                assert has_code, f"{path.relative_to(SOURCE)}:{node.lineno}"


def test_nothing_runs_what_a_file_says() -> None:
    """A model folder is data: no pickle, no torch.load (but of weights alone, aside), no eval."""
    for path, tree in FILES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "")}
                assert not names & {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "marshal", "shelve"}
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                weights_only = path == UNPICKLE and "weights_only=True" in ast.unparse(node)
                wrong = ("eval", "exec", "torch.load", "compile", "__import__", "os.system")
                assert called not in wrong or (called == "torch.load" and weights_only), f"{path}: {called}"


def errors_without_code(tree: ast.AST) -> list[str]:
    """Errors for users that are raised without a stable code."""
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return [
        f"{call.lineno}: {ast.unparse(call)[:60]}"
        for call in calls
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("UsageError", "RegardError", "CollectiveError", "PeerError")
        and not any(keyword.arg == "code" for keyword in call.keywords)
    ]


def test_refusals_have_a_code() -> None:
    packages = ("evaluation", "generation", "metrics", "models", "training")
    wrong = {path: errors_without_code(tree) for path, tree in FILES.items() if package_of(path) in packages}
    assert not any(wrong.values()), report(wrong)


def test_the_models_need_little_else() -> None:
    code = "import sys, regard.models.transformer; "
    code += "print(*sorted(name for name in sys.modules if name.split('.')[0] == 'regard'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) < 12, done.stdout


TRAINING = """
import sys
from pathlib import Path
from regard.config import resolve
from regard.training import train
home = Path(sys.argv[1])
for name, count in (("train", 200), ("valid", 8)):
    rows = [f"{name} {n} of {n % 7}\\tWort {n} von {n % 7}\\n" for n in range(count)]
    (home / f"{name}.tsv").write_text("".join(rows))
tree = {"data": {name: str(home / f"{name}.tsv") for name in ("train", "valid")}}
tree |= {"text": {"vocabulary": 300}, "task": {"source": "en", "target": "de"}}
tree["model"] = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16}
tree["train"] = {"steps": 1, "tokens_per_batch": 128, "validate_sentences": 2, "checkpoint_every": 1}
def look(frame, event, argument):
    if frame.f_code.co_name == "save_checkpoint" and event == "call":
        print(*sorted(name for name in sys.modules if name.split(".")[0] == "regard"))
        sys.setprofile(None)
sys.setprofile(look)
train(resolve(tree), home / "run")
"""


def test_a_training_step_needs_a_part_of_the_package(tmp_path: Path) -> None:
    """Update, validation and checkpoint of a translation model: no engine, no report, no other family, no
    readers of pictures and sounds."""
    command = [sys.executable, "-c", TRAINING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 50 < len(names := done.stdout.split()) < 88, done.stdout
    others = {"regard.models.frames", "regard.inputs.frames", "regard.data.readers.media"}
    assert not others & {*names} and "regard.data.objectives.frames" not in names


def test_the_rules_can_fail() -> None:
    tree = ast.parse("import regard.storage.files\nfrom regard import __version__\nfrom regard.data import x")
    assert imported_packages(tree) == {"storage", "__init__", "data"}
    assert retired_identifiers(
        ast.parse("told = 1\ndef never_said(x): ...\nclass FoundList: ...\nunfounded = 2")
    )
    assert len(retired_identifiers(ast.parse("told = 1\ndef never_said(x): ...\nclass FoundList: ..."))) == 3
    assert (
        len(errors_without_code(ast.parse("raise UsageError('x')\nraise UsageError('x', code='E_X')"))) == 1
    )
    assert retired_phrases(ast.parse("x = 'the first, unless\\n   told'"))
    assert long_functions("function f() {\n" + "  x;\n" * 70 + "}\n") == ["1: 72 lines"]
    assert not long_functions("const f = () => {\n  x;\n}\n")


def test_public_names_are_there() -> None:
    assert set(regard.__all__) >= {"RegardError", "Translator", "UsageError", "load"}
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = regard.nonsense


def test_tests_share_modules_and_do_not_import_one_another() -> None:
    pattern = re.compile(r"^\s*(?:from|import) test_\w+|importorskip\(.test_", re.MULTILINE)
    for path in Path(__file__).parent.glob("*.py"):
        assert not pattern.findall(path.read_text(encoding="utf-8")), path.name
