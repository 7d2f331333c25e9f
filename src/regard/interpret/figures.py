"""The figures of a trace."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import UsageError, near_miss
from regard.interpret.activations import MEAN, Activations, Node, attention_matrix, visible
from regard.interpret.drawing import Color, Element, Figure, Scene, bitmap, line, rect, text_at
from regard.interpret.predictions import max_pool
from regard.interpret.readings import entropy, mean_distance

MAX_CELLS = 64  # along a side; larger matrices become bitmaps
THUMBNAIL, THUMBNAIL_CELLS = 64, 32
LABEL_LENGTH = 32  # characters
LENS_COLUMNS = 40
WORD_GAP, ALIGNMENT_HEIGHT = 18, 150  # pixels
MIN_WEIGHT = 0.05  # smaller alignment weights are not drawn
STEP_WIDTH, NODE_HEIGHT, MAX_STEPS = 118, 30, 60  # beam search
CAVEAT = "Attention shows where a head attends, not why the model predicts a token."


@dataclass(frozen=True)
class FigureOptions:
    layer: int | None = None
    head: int | None = None
    where: str | None = None
    words: bool = False

    @property
    def head_name(self) -> str:
        return "mean of all heads" if self.head is None else f"head {self.head}"


def draw(run: Activations, view: str, options: FigureOptions) -> Figure:
    if view not in VIEWS:
        raise UsageError(f'there is no view "{view}": {", ".join(VIEWS)}{near_miss(view, VIEWS)}')
    return VIEWS[view](run, options)


# Matrices


def attention(run: Activations, options: FigureOptions) -> Figure:
    where = run.attention_name(options.where, options.layer)
    head = MEAN if options.head is None else options.head
    view = attention_matrix(run, "weights", where, head, options.words)
    description = f"Each row is a query; its weights over the keys sum to 1. {CAVEAT}"
    data = {"view": "attention", "where": where, "head": options.head, "words": options.words}
    title = f"{where}, {options.head_name}"
    return matrix_figure(title, description, view.rows, view.columns, view.values, data)


def matrix_figure(
    title: str,
    description: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Tensor,
    data: dict[str, Any],
    texts: Sequence[Sequence[str]] | None = None,
) -> Figure:
    """A heat map of -1 .. 1 with labels; `texts` are written into the cells."""
    height = 22 if max(len(rows), len(columns)) <= MAX_CELLS else 8
    width = height if texts is None else 74
    left = 16 + max(map(text_width, rows), default=0.0)
    label_height = max(map(text_width, columns), default=0.0) * 0.8 if texts is None else 0.0
    top = 62 + (label_height or 8)
    parts: list[Element] = [text_at(12, 24, title, size=15, bold=True)]
    size, row_gap, column_gap = min(12, height), -(-len(rows) // MAX_CELLS), -(-len(columns) // MAX_CELLS)
    for n, name in enumerate(rows):
        if n % row_gap == 0:  # of very many, some
            parts.append(text_at(left - 6, top + (n + 0.72) * height, shorten(name), "end", size))
    for n, name in enumerate(columns):
        if n % column_gap == 0 and texts is not None:
            parts.append(text_at(left + (n + 0.5) * width, top - 6, shorten(name), "middle", size))
        elif n % column_gap == 0:
            parts.append(text_at(left + (n + 0.6) * width, top - 5, shorten(name), size=size, rotation=-50))
    if max(len(rows), len(columns)) > MAX_CELLS and texts is None:
        parts.append(bitmap(left, top, len(columns) * width, len(rows) * height, values))
    else:
        parts += cells(rows, columns, values, (left, top, width, height), texts)
    right, bottom = left + len(columns) * width + 60, top + len(rows) * height + 44
    caption = description.split(". ")[0].rstrip(".") + "."
    parts.append(text_at(12, bottom - 14, caption, size=11, quiet=True))
    scene = Scene(max(right, 30 + 6.2 * len(caption)), bottom, title, description, parts)
    labels = {"title": title, "rows": list(rows), "columns": list(columns)}
    return Figure(scene, {**data, **labels, "values": texts or rounded(values)})


def cells(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Tensor,
    grid: tuple[float, float, float, float],
    texts: Sequence[Sequence[str]] | None,
) -> list[Element]:
    left, top, width, height = grid  # and of a cell
    parts: list[Element] = []
    for n, (row, row_values) in enumerate(zip(rows, values.tolist())):
        for m, (column, value) in enumerate(zip(columns, row_values)):
            x, y = left + m * width, top + n * height
            text = texts[n][m] if texts is not None else ""
            title = f"{visible(row)}, {visible(column)}: {text} {value:.4f}"
            opacity = min(1.0, abs(value)) * (0.45 if text else 0.9) + 0.04  # texts must stay readable
            color: Color = "blue" if value >= 0 else "orange"
            parts.append(rect(x, y, width - 1, height - 1, opacity, title, color))
            if text:
                parts.append(text_at(x + width / 2, y + height * 0.7, shorten(text, 10), "middle", 11))
    return parts


def entropies(run: Activations, options: FigureOptions) -> Figure:
    names = run.attentions
    if not names:
        raise UsageError("there is no attention in this trace")
    heads = max(len(run.weights(name)) for name in names)
    table, texts = torch.zeros(len(names), heads), []
    for row, name in enumerate(names):
        weights = run.weights(name)
        bits, distance = entropy(weights), mean_distance(weights)
        table[row, : len(bits)] = bits / max(1.0, torch.tensor(weights.shape[-1]).log2().item())
        written = [f"{b:.2f} / {d:.1f}" for b, d in zip(bits.tolist(), distance.tolist())]
        texts.append(written + [""] * (heads - len(written)))
    description = (
        "Entropy in bits (0: one key) and mean distance in tokens of each head. "
        "Dark: nearly uniform attention."
    )
    columns = [f"head {number}" for number in range(heads)]
    data = {"view": "entropy"}
    return matrix_figure("Entropy / distance", description, names, columns, table, data, texts)


def lens(run: Activations, options: FigureOptions) -> Figure:
    if "lens.ids" not in run:
        raise UsageError(
            "there is no logit lens in this trace: the model predicts no tokens of the vocabulary, or the "
            'text is long and the lens was not requested (only=("lens.*",))'
        )
    ids, p = run["lens.ids"][:, :LENS_COLUMNS, 0], run["lens.probabilities"][:, :LENS_COLUMNS, 0]
    p = p.flip(0)  # the last layer on top
    rows = [*(f"layer {number}" for number in reversed(range(len(ids) - 1))), "embedding"]
    columns = run.tokens["target" if "target" in run.tokens else "source"].shown[:LENS_COLUMNS]
    texts = [[visible(run.word(number)) for number in row] for row in ids.flip(0).tolist()]
    description = (
        "The most probable token if the output layer read the residual stream at this depth. "
        "Only the last layer is trained for this."
    )
    data = {"view": "lens", "probabilities": rounded(p)}
    return matrix_figure("Logit lens", description, rows, columns, p, data, texts)


def positions(run: Activations, options: FigureOptions) -> Figure:
    encodes = "source" in run.tokens
    side = "decoder" if not encodes or (options.where == "decoder" and "target" in run.tokens) else "encoder"
    tokens = run.tokens["target" if side == "decoder" else "source"].shown
    added, bias, cosine = (
        f"{side}.{name}" for name in ("embedding.positions", "positions.bias", "positions.cosine")
    )
    columns: Sequence[str] = ()
    if added in run:
        values, description = run[added], "The position embedding of each token: one column per channel."
    elif bias in run:
        head = options.head or 0
        if not 0 <= head < len(run[bias]):
            raise UsageError(f"head = {head}: there are {len(run[bias])}, from 0 on")
        values, columns = run[bias][head], tokens
        description = f"T5's bias of head {head}: added to the scores for a distance."
    elif cosine in run:
        values = run[cosine]
        description = "Cosine of the angle by which each pair of channels is rotated at each position."
    else:
        raise UsageError("this model has no positions: it is recurrent, or they are not in the trace")
    columns = columns or [str(n) for n in range(values.shape[1])]
    scaled = values / values.abs().max().clamp(min=1e-9)
    title, data = f"Positions of the {side}", {"view": "positions"}
    return matrix_figure(title, description, tokens, columns, scaled, data)


# All heads


def heads(run: Activations, options: FigureOptions) -> Figure:
    layer, head, where = options.layer, options.head, options.where
    names = [
        name
        for name in run.attentions
        if (layer is None or name.split(".")[1] == str(layer)) and (where is None or where in name)
    ]
    if not names:
        names = [run.attention_name(where, layer)]  # or its error
    most = max(len(run.weights(name)) for name in names)
    if head is not None and not 0 <= head < most:
        run.weights(names[0], head)  # raises
    left, top, step = 130, 64, THUMBNAIL + 10
    numbers = range(most) if head is None else [head]
    parts: list[Element] = [text_at(12, 24, "All heads", size=15, bold=True)]
    for n, number in enumerate(numbers):
        parts.append(text_at(left + n * step + THUMBNAIL / 2, top - 8, f"head {number}", "middle", 11))
    data = []
    for row, name in enumerate(names):
        y = top + row * step
        parts.append(text_at(left - 10, y + THUMBNAIL / 2 + 4, name, "end", 11))
        weights = run.weights(name)
        bits, distance = entropy(weights), mean_distance(weights)
        for n, number in enumerate(number for number in numbers if number < len(weights)):
            b, d = float(bits[number]), float(distance[number])
            title = f"{name}, head {number}: entropy {b:.2f} bits, mean distance {d:.1f} tokens"
            small = max_pool(weights[number], THUMBNAIL_CELLS)
            x = left + n * step
            parts.append(rect(x - 1, y - 1, THUMBNAIL + 2, THUMBNAIL + 2, 0.07, title, "grey"))
            parts.append(bitmap(x, y, THUMBNAIL, THUMBNAIL, small / small.max().clamp(min=1e-9), title))
            data.append({"where": name, "head": number, "entropy": b, "distance": d})
    width, height = max(left + len(numbers) * step + 12, 260), top + len(names) * step + 12
    description = f"One picture per head: queries downwards, keys across, dark for large weights. {CAVEAT}"
    scene = Scene(width, height, "All heads", description, parts)
    return Figure(scene, {"view": "heads", "heads": data})


# Alignment and search


def alignment(run: Activations, options: FigureOptions) -> Figure:
    weights = run.alignment_weights(options.layer, options.head)
    target, source = run.tokens["output"].word_texts, run.tokens["source"].word_texts
    title = f"Word alignment ({run.cross(options.layer)}, {options.head_name})"
    links = [list(pair) for pair in run.alignment(options.layer, options.head)]
    matrix = {"rows": target, "columns": source, "values": rounded(weights)}
    scene = alignment_scene(source, target, weights, title)
    return Figure(scene, {"view": "alignment", **matrix, "links": links})


def alignment_scene(source: Sequence[str], target: Sequence[str], weights: Tensor, title: str) -> Scene:
    """The source above, the target below, lines between two words as strong as the weight."""
    above, below = word_centers(source), word_centers(target)
    width = max([*(x + w / 2 for x, w in (*above, *below)), 340]) + 16
    parts: list[Element] = [text_at(12, 24, title, size=15, bold=True)]
    top, bottom = 66, 66 + ALIGNMENT_HEIGHT
    for row, row_weights in enumerate(weights.tolist()):
        for column, weight in enumerate(row_weights):
            if weight >= MIN_WEIGHT:
                text = f"{visible(source[column])} - {visible(target[row])}: {weight:.3f}"
                ends = (above[column][0], top + 6), (below[row][0], bottom - 16)
                parts.append(line(*ends, 1 + 4 * weight, min(1.0, 0.1 + weight), title=text))
    parts += [text_at(x, top, word, "middle", 14) for (x, _), word in zip(above, source)]
    parts += [text_at(x, bottom, word, "middle", 14) for (x, _), word in zip(below, target)]
    description = "Lines from each target word to the source words attended to when it was predicted."
    parts.append(text_at(12, bottom + 34, description, size=11, quiet=True))
    return Scene(max(width, 520), bottom + 48, title, description, parts)


def word_centers(words: Sequence[str]) -> list[tuple[float, float]]:
    """The centre and the width of each word in a line."""
    centers, left = [], 16.0
    for word in words:
        width = text_width(word) * 1.15 + 4
        centers.append((left + width / 2, width))
        left += width + WORD_GAP
    return centers


def beam(run: Activations, options: FigureOptions) -> Figure:
    if not run.beam:
        raise UsageError("no search was recorded: the output was given or sampled, or there is none")
    return Figure(beam_scene(run.beam), {"view": "beam", "nodes": [node.as_json() for node in run.beam]})


def beam_scene(nodes: Sequence[Node]) -> Scene:
    """Steps from left to right, the best of each step on top; pruned nodes are grey."""
    nodes = [node for node in nodes if node.step < MAX_STEPS]
    corners: dict[int, tuple[float, float]] = {}
    ranks: dict[int, int] = {}
    for node in sorted(nodes, key=lambda node: (node.step, -node.score)):
        rank = ranks[node.step] = ranks.get(node.step, -1) + 1
        corners[node.number] = 16 + node.step * STEP_WIDTH, 52 + rank * NODE_HEIGHT
    parts: list[Element] = [text_at(12, 24, "Beam search", size=15, bold=True)]
    for node in nodes:
        if node.parent in corners:
            (x, y), (px, py) = corners[node.number], corners[node.parent]
            style: tuple[float, float, Color] = (2.5, 0.9, "blue") if node.best else (1, 0.35, "grey")
            parts.append(line((px + STEP_WIDTH - 26, py + 11), (x, y + 11), *style))
    colors: dict[str, Color] = {"kept": "blue", "finished": "orange", "pruned": "grey"}
    for node in nodes:
        x, y = corners[node.number]
        text, pruned = visible(node.text), node.fate == "pruned"
        title = f"{text}: log p {node.log_p:.3f}, sum {node.score:.3f}, {node.fate}"
        opacity = 0.45 if node.best else 0.16
        parts.append(rect(x, y, STEP_WIDTH - 26, 22, opacity, title, colors[node.fate]))
        parts.append(text_at(x + 5, y + 15, shorten(text, 8), bold=node.best, quiet=pruned))
        parts.append(text_at(x + STEP_WIDTH - 30, y + 15, f"{node.score:.1f}", "end", 9, quiet=True))
    width = 30 + (max(ranks) + 1) * STEP_WIDTH
    height = 70 + (max(ranks.values()) + 1) * NODE_HEIGHT
    description = "One column per step, with the sum of log p: blue is kept, orange finished, grey pruned."
    parts.append(text_at(12, height - 8, description, size=11, quiet=True))
    return Scene(max(width, 620), height + 6, "Beam search", description, parts)


def rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, 6) for value in row] for row in values.tolist()]


def shorten(text: str, most: int = LABEL_LENGTH) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def text_width(text: str) -> float:
    """The approximate width of a label in pixels."""
    return sum(12.5 if unicodedata.east_asian_width(sign) in "WF" else 7.8 for sign in shorten(text))


VIEWS: dict[str, Callable[[Activations, FigureOptions], Figure]] = {
    "attention": attention,
    "heads": heads,
    "alignment": alignment,
    "entropy": entropies,
    "lens": lens,
    "positions": positions,
    "beam": beam,
}
