"""Drawings as lists of rectangles, texts, lines and bitmaps, written as SVG, PNG, HTML or JSON."""

from __future__ import annotations

import base64
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import torch
from markupsafe import Markup
from torch import Tensor

from regard.errors import UsageError
from regard.interpret.activations import visible
from regard.resources import render
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
POINTS = 0.72  # of a pixel
MAX_TABLE = 4096  # cells


@dataclass(frozen=True)
class Element:
    """An SVG element; `title` is its tooltip. matplotlib paints the PNG from the same attributes."""

    name: Literal["rect", "text", "line", "image"]
    attributes: Mapping[str, Any]
    title: str = ""
    color: Color = "blue"
    opacity: float = 1
    text: str = ""
    pixels: Tensor | None = None

    def svg(self) -> str:
        pairs = "".join(
            f' {key}="{value if isinstance(value, str) else f"{value:g}"}"'
            for key, value in self.attributes.items()
        )
        inside = (f"<title>{clean(self.title)}</title>" if self.title else "") + clean(self.text)
        return f"<{self.name}{pairs}>{inside}</{self.name}>" if inside else f"<{self.name}{pairs}/>"

    def paint(self, axes: Any) -> None:
        from matplotlib.patches import Rectangle

        given = self.attributes
        paint: dict[str, Any] = {"color": LIGHT[self.color], "alpha": self.opacity}
        x, y, width, height = (given.get(name, 0) for name in ("x", "y", "width", "height"))
        match self.name:
            case "rect":
                axes.add_patch(Rectangle((x, y), width, height, **paint, linewidth=0))
            case "line":
                ends = [given["x1"], given["x2"]], [given["y1"], given["y2"]]
                axes.plot(*ends, **paint, linewidth=given["stroke-width"] * POINTS)
            case "image":
                assert self.pixels is not None
                extent = (x, x + width, y + height, y)
                axes.imshow(self.pixels.numpy(), extent=extent, aspect="auto", interpolation="nearest")
            case "text":
                rotation = re.match(r"rotate\((\S+)", given.get("transform", ""))
                axes.text(
                    x,
                    y,
                    printable(self.text),
                    fontsize=given["font-size"] * POINTS,
                    ha={"start": "left", "middle": "center", "end": "right"}[given["text-anchor"]],
                    va="baseline",
                    rotation=-float(rotation[1]) if rotation else 0,
                    rotation_mode="anchor",
                    fontweight="bold" if "font-weight" in given else "normal",
                    alpha=self.opacity,
                    color="#1c1c22",
                    parse_math=False,
                )


def rect(
    x: float, y: float, width: float, height: float, opacity: float, title: str = "", color: Color = "blue"
) -> Element:
    size = {"x": x, "y": y, "width": width, "height": height}
    paint = {"class": color, "fill-opacity": round(opacity, 3)}
    return Element("rect", size | paint, title, color, opacity)


def text_at(
    x: float,
    y: float,
    text: str,
    anchor: Literal["start", "middle", "end"] = "start",
    size: float = 12,
    rotation: float = 0,  # degrees
    bold: bool = False,
    quiet: bool = False,
) -> Element:
    given: dict[str, Any] = {"x": x, "y": y, "font-size": size, "text-anchor": anchor}
    given |= {"class": "quiet"} if quiet else {}
    given |= {"transform": f"rotate({rotation:g} {x:g} {y:g})"} if rotation else {}
    given |= {"font-weight": "600"} if bold else {}
    return Element("text", given, opacity=0.7 if quiet else 1, text=text)


def line(
    start: tuple[float, float],
    end: tuple[float, float],
    width: float,
    opacity: float,
    color: Color = "blue",
    title: str = "",
) -> Element:
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    stroke = {"class": f"{color}-line", "stroke-width": width, "stroke-opacity": round(opacity, 3)}
    return Element("line", ends | stroke, title, color, opacity)


def bitmap(x: float, y: float, width: float, height: float, values: Tensor, title: str = "") -> Element:
    """A matrix of -1 .. 1 as pixels, for many cells: colour by the sign, opacity by the absolute value."""
    from PIL import Image

    opacity = (values.abs().clamp(max=1) * 255).round().to(torch.uint8)
    plus, minus = (torch.tensor(list(bytes.fromhex(LIGHT[name][1:]))) for name in ("blue", "orange"))
    color = torch.where((values >= 0)[..., None], plus, minus).to(torch.uint8)
    pixels = torch.cat([color, opacity[..., None]], dim=-1)  # [rows, columns, RGBA]
    file = BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "PNG")
    data = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    size = {"x": x, "y": y, "width": width, "height": height}
    fit = {"preserveAspectRatio": "none", "style": "image-rendering:pixelated", "href": data}
    return Element("image", size | fit, title, pixels=pixels)


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

        canvas = Canvas(figsize=(self.width / 100, self.height / 100))
        FigureCanvasAgg(canvas)
        axes = canvas.add_axes((0, 0, 1, 1))
        axes.axis("off")
        for element in self.elements:
            element.paint(axes)
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
        """A page without scripts that loads nothing, with the matrix as a table unless it is too large."""
        size = len(self.data.get("rows", ())) * len(self.data.get("columns", ()))
        table = self.data if 0 < size <= MAX_TABLE else None
        return render("figure.html.j2", printable, figure=self, svg=Markup(self.svg), table=table)

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


def clean(text: str) -> str:
    """Text for XML: escaped, without characters that XML cannot hold."""
    return escape(printable(text), quote=True)


def printable(text: str) -> str:
    return "\n".join(visible(line) if line.strip() else "" for line in text.split("\n"))
