"""The house rules, read off the source: who imports whom, how long things are, what is never called."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import regard

SOURCE = Path(regard.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
UNPICKLE = SOURCE / "storage" / "unpickle.py"  # a process of its own, which reads tensors alone
DOORS = {SOURCE / "__init__.py", SOURCE / "__main__.py"}  # the outermost door may name any room

# A room imports only from rooms with a lower number; neighbours with the same number never do.
FLOORS = {
    name: floor
    for floor, names in enumerate(
        [
            ["errors", "sample", "resources", "__init__"],
            ["compat"],
            ["config"],
            ["device", "mapped", "batch", "metrics"],
            ["inputs"],
            ["data"],
            ["models"],
            ["storage", "generation"],
            ["interpret"],
            ["training", "tasks"],
            ["export", "server"],
            ["cli"],
        ]
    )
    for name in names
}
NAME = lambda path: str(path.relative_to(SOURCE))  # noqa: E731
LONGEST_FILE, LONGEST_FUNCTION = 400, 70


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST) -> set[str]:
    """The rooms of this package that a module imports, anywhere in it."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute: regard.room.module"
            names += (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "regard" else []
            )
            names += [node.module or ""] if node.module != "regard" else []
    own = [name.split(".") for name in names if name.split(".")[0] == "regard"]
    return {parts[1] if len(parts) > 1 and parts[1] in FLOORS else "__init__" for parts in own}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def test_every_room_has_its_floor() -> None:
    assert {room(path) for path in FILES} - {"__main__"} == set(FLOORS) - {"builtin"}  # data, no code


@pytest.mark.parametrize("path", [path for path in FILES if path not in DOORS], ids=NAME)
def test_a_room_imports_only_from_rooms_above(path: Path) -> None:
    own = room(path)
    wrong = {other for other in imported_rooms(parse(path)) if other != own and FLOORS[other] >= FLOORS[own]}
    assert not wrong, f"{path.relative_to(SOURCE)} imports {wrong}"


def test_the_rule_can_fail() -> None:
    tree = ast.parse(
        "import regard.storage.files\nfrom regard import __version__\nfrom regard.generation import x"
    )
    assert imported_rooms(tree) == {"storage", "__init__", "generation"}


@pytest.mark.parametrize("path", FILES, ids=NAME)
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_FILE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", FILES, ids=NAME)
def test_nothing_runs_what_a_file_says(path: Path) -> None:
    """A model folder is data: no pickle, no torch.load (but of weights alone, aside), no eval."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", "")}
            assert not names & {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "marshal", "shelve"}
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            allowed = called == "torch.load" and path == UNPICKLE and "weights_only=True" in ast.unparse(node)
            wrong = ("eval", "exec", "torch.load", "compile", "__import__", "os.system")
            assert allowed or called not in wrong, called


def test_what_the_package_promises_is_there() -> None:
    assert set(regard.__all__) >= {"RegardError", "Translator", "UsageError", "load"}
    for name in regard.__all__:
        assert getattr(regard, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = regard.nonsense
