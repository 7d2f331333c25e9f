"""Drawings as lists of boxes, labels, strokes and pictures: written as SVG, or drawn as PNG."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import Any, Literal

import torch
from torch import Tensor

from regard.interpret.pieces import visible

Ink = Literal["ink", "other", "grey"]  # what is large, what is negative or chosen, what does not count
COLOURS: dict[Ink, str] = {"ink": "#2563c9", "other": "#c2570c", "grey": "#808080"}
DARK: dict[Ink, str] = {"ink": "#7fb0ff", "other": "#ffa057", "grey": "#9a9a9a"}
STYLE = (
    "svg{color:#1c1c22;font-family:system-ui,'Segoe UI','Noto Sans',sans-serif}"
    ".paper{fill:#fff}text{fill:currentColor;unicode-bidi:plaintext}.quiet{opacity:.7}"
    + "".join(f".{name}{{fill:{colour}}}.{name}-line{{stroke:{colour}}}" for name, colour in COLOURS.items())
    + "@media(prefers-color-scheme:dark){svg{color:#ececf1}.paper{fill:#17171c}"
    + "".join(f".{name}{{fill:{colour}}}.{name}-line{{stroke:{colour}}}" for name, colour in DARK.items())
    + "}"
)
DPI, LARGEST_PNG = 200, 12000  # pixels along a side


@dataclass(frozen=True)
class Box:
    """A rectangle; the stronger, the darker. `title` is shown where a pointer rests on it."""

    x: float
    y: float
    width: float
    height: float
    strength: float
    title: str = ""
    ink: Ink = "ink"

    def svg(self) -> str:
        place = f'x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}"'
        paint = f'class="{self.ink}" fill-opacity="{self.strength:.3f}"'
        if not self.title:
            return f"<rect {place} {paint}/>"
        return f"<rect {place} {paint}><title>{clean(self.title)}</title></rect>"


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = 12
    turn: float = 0  # degrees
    bold: bool = False
    quiet: bool = False

    def svg(self) -> str:
        place = f'x="{self.x:g}" y="{self.y:g}" font-size="{self.size:g}" text-anchor="{self.anchor}"'
        more = f' transform="rotate({self.turn:g} {self.x:g} {self.y:g})"' if self.turn else ""
        more += ' font-weight="600"' if self.bold else ""
        more += ' class="quiet"' if self.quiet else ""
        return f"<text {place}{more}>{clean(self.text)}</text>"


@dataclass(frozen=True)
class Stroke:
    x1: float
    y1: float
    x2: float
    y2: float
    width: float = 1
    strength: float = 1
    ink: Ink = "ink"
    title: str = ""

    def svg(self) -> str:
        place = f'x1="{self.x1:g}" y1="{self.y1:g}" x2="{self.x2:g}" y2="{self.y2:g}"'
        paint = f'class="{self.ink}-line" stroke-width="{self.width:g}" stroke-opacity="{self.strength:.3f}"'
        title = f"<title>{clean(self.title)}</title>" if self.title else ""
        return f"<line {place} {paint}>{title}</line>"


@dataclass(frozen=True)
class Picture:
    """A matrix of -1 .. 1 as pixels: for more cells than boxes are good for."""

    x: float
    y: float
    width: float
    height: float
    values: Tensor  # [rows, columns]
    title: str = ""

    def svg(self) -> str:
        place = f'x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}"'
        data = base64.b64encode(png(self.pixels())).decode()
        title = f"<title>{clean(self.title)}</title>" if self.title else ""
        return (
            f'<image {place} preserveAspectRatio="none" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{data}">{title}</image>'
        )

    def pixels(self) -> Tensor:
        """[rows, columns, 4] of bytes: the colour by the sign, its opacity by the size."""
        strength = (self.values.abs().clamp(max=1) * 255).round().to(torch.uint8)
        plus, minus = (torch.tensor(list(bytes.fromhex(COLOURS[ink][1:]))) for ink in ("ink", "other"))
        colour = torch.where((self.values >= 0)[..., None], plus, minus).to(torch.uint8)
        return torch.cat([colour, strength[..., None]], dim=-1)


Part = Box | Label | Stroke | Picture


@dataclass(frozen=True)
class Scene:
    width: float
    height: float
    title: str
    description: str
    parts: Sequence[Part]

    def svg(self) -> str:
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        inside = "".join(part.svg() for part in self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{clean(self.title)}">'
            f"<title>{clean(self.title)}</title><desc>{clean(self.description)}</desc>"
            f'<style>{STYLE}</style><rect class="paper" width="100%" height="100%"/>{inside}</svg>'
        )

    def png(self) -> bytes:
        """The same parts on matplotlib's canvas, white paper."""
        import warnings

        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
        from matplotlib.patches import Rectangle

        canvas = Canvas(figsize=(self.width / 100, self.height / 100))
        FigureCanvasAgg(canvas)
        axes = canvas.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))
        axes.axis("off")
        for part in self.parts:
            match part:
                case Box():
                    paint: dict[str, Any] = {
                        "color": COLOURS[part.ink],
                        "alpha": part.strength,
                        "linewidth": 0,
                    }
                    axes.add_patch(Rectangle((part.x, part.y), part.width, part.height, **paint))
                case Stroke():
                    ends = [part.x1, part.x2], [part.y1, part.y2]
                    width = part.width * 0.72  # points
                    axes.plot(*ends, color=COLOURS[part.ink], alpha=part.strength, linewidth=width)
                case Picture():
                    extent = (part.x, part.x + part.width, part.y + part.height, part.y)
                    axes.imshow(part.pixels().numpy(), extent=extent, aspect="auto", interpolation="nearest")
                case Label():
                    axes.text(part.x, part.y, printable(part.text), **lettering(part))
        axes.set(xlim=(0, self.width), ylim=(self.height, 0))  # pictures move them
        dots = min(DPI, LARGEST_PNG / max(self.width, self.height) * 100)
        found = BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # signs that its font does not have
            canvas.savefig(found, format="png", dpi=dots, facecolor="white")
        return found.getvalue()


def lettering(label: Label) -> dict[str, Any]:
    return {
        "fontsize": label.size * 0.72,
        "ha": {"start": "left", "middle": "center", "end": "right"}[label.anchor],
        "va": "baseline",
        "rotation": -label.turn,
        "rotation_mode": "anchor",
        "fontweight": "bold" if label.bold else "normal",
        "alpha": 0.7 if label.quiet else 1.0,
        "color": "#1c1c22",
        "parse_math": False,
    }


def clean(text: str) -> str:
    """Text inside XML: escaped, and without signs that XML cannot hold."""
    return escape(printable(text), quote=True)


def printable(text: str) -> str:
    return "\n".join(visible(line) if line.strip() else "" for line in text.split("\n"))


def png(pixels: Tensor) -> bytes:
    """[rows, columns, 4] of bytes as a PNG file."""
    rows, columns, _ = pixels.shape
    raw = b"".join(b"\0" + row.numpy().tobytes() for row in pixels)  # no filter

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)  # eight bits, red green blue opacity
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
    return start + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
