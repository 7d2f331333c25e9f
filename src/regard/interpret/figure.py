"""A figure that was drawn: as SVG, PNG, a page of its own, or the numbers that it shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from regard.errors import UsageError
from regard.interpret.scene import Scene, clean
from regard.storage.files import write_atomically

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # nothing is fetched, nothing runs
LARGEST_TABLE = 4096  # cells
PAGE = (
    ":root{color-scheme:light dark}body{font:16px/1.4 system-ui,sans-serif;margin:1rem}"
    "figure{margin:0;overflow-x:auto}table{border-collapse:collapse;margin-top:1rem;font-size:.8rem}"
    "th,td{padding:.15rem .4rem;border:1px solid #8884;text-align:right}"
)


@dataclass(frozen=True)
class Figure:
    """`data` are the numbers shown, for JSON: `rows`, `columns` and `values` where it is a matrix."""

    scene: Scene
    data: Mapping[str, Any]

    @cached_property
    def svg(self) -> str:
        return self.scene.svg()

    @property
    def title(self) -> str:
        return self.scene.title

    @cached_property
    def html(self) -> str:
        """One page that opens from a file: no script, and nothing from anywhere else."""
        title, told = clean(self.title), clean(self.scene.description)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{title}</title><style>{PAGE}</style></head><body><main><h1>{title}</h1><p>{told}</p>"
            f"<figure>{self.svg}</figure>{self.table()}</main></body></html>\n"
        )

    def table(self) -> str:
        """The matrix as a table, if a person could read it."""
        rows, columns = self.data.get("rows"), self.data.get("columns")
        if not rows or not columns or len(rows) * len(columns) > LARGEST_TABLE:
            return ""
        head = "".join(f'<th scope="col"><bdi>{clean(name)}</bdi></th>' for name in columns)
        lines = []
        for name, values in zip(rows, self.data["values"]):
            cells = "".join(f"<td><bdi>{shown(value)}</bdi></td>" for value in values)
            lines.append(f'<tr><th scope="row"><bdi>{clean(name)}</bdi></th>{cells}</tr>')
        return (
            "<details><summary>As a table</summary><table><thead><tr><td></td>"
            f"{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></details>"
        )

    @property
    def json(self) -> str:
        return json.dumps(self.data, ensure_ascii=False, indent=1) + "\n"

    def save(self, path: str | Path) -> None:
        path = Path(path)
        makers = {
            ".svg": lambda: self.svg.encode(),
            ".html": lambda: self.html.encode(),
            ".json": lambda: self.json.encode(),
            ".png": self.scene.png,
        }
        if path.suffix.lower() not in makers:
            raise UsageError(f"{path}: a figure is written as {', '.join(makers)}")
        write_atomically(path, makers[path.suffix.lower()]())

    def _repr_html_(self) -> str:
        """For notebooks: in a frame that can neither run nor fetch anything."""
        height = min(900, int(self.scene.height) + 160)
        return (
            f'<iframe sandbox="" title="{clean(self.title)}" srcdoc="{escape(self.html, quote=True)}" '
            f'style="width:100%;height:{height}px;border:0"></iframe>'
        )


def shown(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else clean(str(value))
