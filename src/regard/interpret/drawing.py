"""Drawings as lists of rectangles, texts, lines and bitmaps, written as SVG, PNG, HTML or JSON."""

from __future__ import annotations

import base64
import json
import struct
import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from regard.errors import UsageError
from regard.interpret.activations import visible
from regard.storage.files import write_atomically

Color = Literal["blue", "orange", "grey"]
LIGHT: dict[Color, str] = {"blue": "#2563c9", "orange": "#c2570c", "grey": "#808080"}
DARK: dict[Color, str] = {"blue": "#7fb0ff", "orange": "#ffa057", "grey": "#9a9a9a"}


def _rules(colors: Mapping[Color, str]) -> str:
    return "".join(f".{name}{{fill:{value}}}.{name}-line{{stroke:{value}}}" for name, value in colors.items())


STYLE = (
    "svg{color:#1c1c22;font-family:system-ui,'Segoe UI','Noto Sans',sans-serif}"
    ".paper{fill:#fff}text{fill:currentColor;unicode-bidi:plaintext}.quiet{opacity:.7}"
    f"{_rules(LIGHT)}@media(prefers-color-scheme:dark){{svg{{color:#ececf1}}.paper{{fill:#17171c}}"
    f"{_rules(DARK)}}}"
)
DPI, MAX_PNG = 200, 12000  # pixels along a side
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # no scripts, no requests
MAX_TABLE = 4096  # cells
PAGE_STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.4 system-ui,sans-serif;margin:1rem}"
    "figure{margin:0;overflow-x:auto}table{border-collapse:collapse;margin-top:1rem;font-size:.8rem}"
    "th,td{padding:.15rem .4rem;border:1px solid #8884;text-align:right}"
)


@dataclass(frozen=True)
class Rect:
    """A filled rectangle; `title` is its tooltip."""

    x: float
    y: float
    width: float
    height: float
    opacity: float
    title: str = ""
    color: Color = "blue"

    def svg(self) -> str:
        size = {"x": self.x, "y": self.y, "width": self.width, "height": self.height}
        return tag("rect", self.title, **size, class_=self.color, fill_opacity=round(self.opacity, 3))


@dataclass(frozen=True)
class TextMark:
    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = 12
    rotation: float = 0  # degrees
    bold: bool = False
    quiet: bool = False

    def svg(self) -> str:
        more: dict[str, str] = {"class_": "quiet"} if self.quiet else {}
        if self.rotation:
            more["transform"] = f"rotate({self.rotation:g} {self.x:g} {self.y:g})"
        if self.bold:
            more["font_weight"] = "600"
        at = {"x": self.x, "y": self.y, "font_size": self.size}
        return tag("text", "", clean(self.text), **at, text_anchor=self.anchor, **more)

    def matplotlib(self) -> dict[str, Any]:
        return {
            "fontsize": self.size * 0.72,
            "ha": {"start": "left", "middle": "center", "end": "right"}[self.anchor],
            "va": "baseline",
            "rotation": -self.rotation,
            "rotation_mode": "anchor",
            "fontweight": "bold" if self.bold else "normal",
            "alpha": 0.7 if self.quiet else 1.0,
            "color": "#1c1c22",
            "parse_math": False,
        }


@dataclass(frozen=True)
class LineMark:
    x1: float
    y1: float
    x2: float
    y2: float
    width: float = 1
    opacity: float = 1
    color: Color = "blue"
    title: str = ""

    def svg(self) -> str:
        ends = {"x1": self.x1, "y1": self.y1, "x2": self.x2, "y2": self.y2}
        stroke = {"stroke_width": self.width, "stroke_opacity": round(self.opacity, 3)}
        return tag("line", self.title, **ends, class_=f"{self.color}-line", **stroke)


@dataclass(frozen=True)
class Bitmap:
    """A matrix of -1 .. 1 as pixels: for many cells."""

    x: float
    y: float
    width: float
    height: float
    values: Tensor  # [rows, columns]
    title: str = ""

    def svg(self) -> str:
        size = {"x": self.x, "y": self.y, "width": self.width, "height": self.height}
        data = f"data:image/png;base64,{base64.b64encode(encode_png(self.pixels())).decode()}"
        fit = {"preserveAspectRatio": "none", "style": "image-rendering:pixelated"}
        return tag("image", self.title, **size, **fit, href=data)

    def pixels(self) -> Tensor:
        """[rows, columns, 4] of bytes: the colour by the sign, its opacity by the absolute value."""
        opacity = (self.values.abs().clamp(max=1) * 255).round().to(torch.uint8)
        plus, minus = (torch.tensor(list(bytes.fromhex(LIGHT[name][1:]))) for name in ("blue", "orange"))
        color = torch.where((self.values >= 0)[..., None], plus, minus).to(torch.uint8)
        return torch.cat([color, opacity[..., None]], dim=-1)


Element = Rect | TextMark | LineMark | Bitmap


@dataclass(frozen=True)
class Scene:
    width: float
    height: float
    title: str
    description: str
    elements: Sequence[Element]

    def svg(self) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        inside = "".join(element.svg() for element in self.elements)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{clean(self.title)}">'
            f"<title>{clean(self.title)}</title><desc>{clean(self.description)}</desc>"
            f'<style>{STYLE}</style><rect class="paper" width="100%" height="100%"/>{inside}</svg>'
        )

    def png(self) -> bytes:
        """The same elements drawn by matplotlib, on white."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
        from matplotlib.patches import Rectangle

        canvas = Canvas(figsize=(self.width / 100, self.height / 100))
        FigureCanvasAgg(canvas)
        axes = canvas.add_axes((0, 0, 1, 1))
        axes.axis("off")
        for part in self.elements:
            match part:
                case Rect(x, y, width, height):
                    paint: dict[str, Any] = {"color": LIGHT[part.color], "alpha": part.opacity}
                    axes.add_patch(Rectangle((x, y), width, height, **paint, linewidth=0))
                case LineMark(x1, y1, x2, y2):
                    paint = {"color": LIGHT[part.color], "alpha": part.opacity}
                    axes.plot([x1, x2], [y1, y2], **paint, linewidth=part.width * 0.72)  # points
                case Bitmap(x, y, width, height):
                    extent = (x, x + width, y + height, y)
                    axes.imshow(part.pixels().numpy(), extent=extent, aspect="auto", interpolation="nearest")
                case TextMark(x, y, text):
                    axes.text(x, y, printable(text), **part.matplotlib())
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))  # last, because imshow changes them
        dpi = min(DPI, MAX_PNG / max(self.width, self.height) * 100)
        file = BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # glyphs missing from its font
            canvas.savefig(file, format="png", dpi=dpi, facecolor="white")
        return file.getvalue()


@dataclass(frozen=True)
class Figure:
    """`data` are the numbers shown, for JSON: `rows`, `columns` and `values` of a matrix."""

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
        """A page without scripts that loads nothing."""
        title, description = clean(self.title), clean(self.scene.description)
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{title}</title><style>{PAGE_STYLE}</style></head><body><main><h1>{title}</h1>"
            f"<p>{description}</p><figure>{self.svg}</figure>{self.table()}</main></body></html>\n"
        )

    def table(self) -> str:
        """The matrix as a table, unless it is too large to read."""
        rows, columns = self.data.get("rows"), self.data.get("columns")
        if not rows or not columns or len(rows) * len(columns) > MAX_TABLE:
            return ""
        head = "".join(f'<th scope="col"><bdi>{clean(name)}</bdi></th>' for name in columns)
        lines = []
        for name, values in zip(rows, self.data["values"]):
            texts = (f"{each:.4f}" if isinstance(each, float) else clean(str(each)) for each in values)
            cells = "".join(f"<td><bdi>{text}</bdi></td>" for text in texts)
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
        writers = {
            ".svg": lambda: self.svg.encode(),
            ".html": lambda: self.html.encode(),
            ".json": lambda: self.json.encode(),
            ".png": self.scene.png,
        }
        if path.suffix.lower() not in writers:
            raise UsageError(f"{path}: a figure is written as {', '.join(writers)}")
        write_atomically(path, writers[path.suffix.lower()]())

    def _repr_html_(self) -> str:
        """For notebooks: a sandboxed frame without scripts or requests."""
        height = min(900, int(self.scene.height) + 160)
        return (
            f'<iframe sandbox="" title="{clean(self.title)}" srcdoc="{escape(self.html, quote=True)}" '
            f'style="width:100%;height:{height}px;border:0"></iframe>'
        )


def tag(name: str, title: str = "", content: str = "", /, **attributes: float | str) -> str:
    """An SVG element; `title` is its tooltip. `fill_opacity` becomes fill-opacity, `class_` class."""
    pairs = "".join(
        f' {key.strip("_").replace("_", "-")}="{value if isinstance(value, str) else f"{value:g}"}"'
        for key, value in attributes.items()
    )
    inside = (f"<title>{clean(title)}</title>" if title else "") + content
    return f"<{name}{pairs}>{inside}</{name}>" if inside else f"<{name}{pairs}/>"


def clean(text: str) -> str:
    """Text for XML: escaped, without characters that XML cannot hold."""
    return escape(printable(text), quote=True)


def printable(text: str) -> str:
    return "\n".join(visible(line) if line.strip() else "" for line in text.split("\n"))


def encode_png(pixels: Tensor) -> bytes:
    """[rows, columns, 4] of bytes as a PNG file."""
    rows, columns, _ = pixels.shape
    raw = b"".join(b"\0" + row.numpy().tobytes() for row in pixels)  # no filter

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)

    header = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)  # 8 bits, RGBA
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    return start + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
