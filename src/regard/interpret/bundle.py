"""The page's modules as one script, so that it can stand inside a file: browsers load no modules from file://.

Each module becomes a function that is called once and returns what it exports; an import takes from there.
This knows the forms that our own modules use, and refuses others: `import * as a from`, `import {a, b as c}
from`, and `export` before `const`, `function`, `async function` and `class`.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

IMPORT = re.compile(r'^import\s+(\*\s+as\s+(\w+)|\{([^}]*)\})\s+from\s+"([^"]+)";', re.MULTILINE)
EXPORT = re.compile(r"^export\s+(?=(?:const|class|function|async\s+function)\s+(\w+))", re.MULTILINE)
UNKNOWN = re.compile(r"^(?:import|export)\b.*$|\bimport\s*\(|\bimport\.meta\b|</script|<!--", re.MULTILINE)


def bundle(folder: Path, entry: str) -> str:
    """The modules that `entry` needs, each after those it imports."""
    parts: dict[str, str] = {}
    add(folder, entry, parts, ())
    return "".join(parts.values())


def add(folder: Path, name: str, parts: dict[str, str], above: tuple[str, ...]) -> None:
    if name in parts:
        return
    if name in above:
        raise ValueError(f"{name} imports itself by way of {above[-1]}")
    source = (folder / name).read_text(encoding="utf-8")
    for found in IMPORT.finditer(source):
        add(folder, beside(name, found[4]), parts, (*above, name))
    names = EXPORT.findall(source)
    body = IMPORT.sub(lambda found: taken(name, found), EXPORT.sub("", source))
    if wrong := UNKNOWN.search(body):
        raise ValueError(f"{name}: this form cannot be put into one script: {wrong[0]}")
    parts[name] = f"const {variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();\n"


def taken(name: str, found: re.Match[str]) -> str:
    whole = variable(beside(name, found[4]))
    if found[2]:
        return f"const {found[2]} = {whole};"
    return f"const {{{found[3].replace(' as ', ': ')}}} = {whole};"


def beside(name: str, other: str) -> str:
    """The path of `other` as the module `name` writes it: `./` or `../` in front."""
    parts: list[str] = []
    for part in (PurePosixPath(name).parent / other).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def variable(name: str) -> str:
    return f"module_{re.sub(r'[^a-z0-9]', '_', name.removesuffix('.js').lower())}"
