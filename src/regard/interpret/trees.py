"""Drawings of lines: words that belong together, and the tree of a search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from regard.interpret.beam import Node
from regard.interpret.pieces import visible
from regard.interpret.scene import Box, Label, Part, Scene, Stroke

GAP, ROW = 18, 150
FAINT = 0.05  # shares below are not drawn
STEP, LINE = 118, 30  # pixels of the tree
MOST_STEPS = 60


def alignment_scene(
    source: Sequence[str], target: Sequence[str], weights: Tensor, title: str, length: Callable[[str], float]
) -> Scene:
    """The source above, the target below, a stroke as strong as the share between two words."""
    above, below = middles(source, length), middles(target, length)
    width = max([*(x + w / 2 for x, w in above), *(x + w / 2 for x, w in below), 340]) + 16
    parts: list[Part] = [Label(12, 24, title, size=15, bold=True)]
    top, bottom = 66, 66 + ROW
    for row, shares in enumerate(weights.tolist()):
        for column, share in enumerate(shares):
            if share < FAINT:
                continue
            told = f"{visible(source[column])} - {visible(target[row])}: {share:.3f}"
            ends = above[column][0], top + 6, below[row][0], bottom - 16
            parts.append(Stroke(*ends, width=1 + 4 * share, strength=min(1.0, 0.1 + share), title=told))
    parts += [Label(x, top, word, "middle", 14) for (x, _), word in zip(above, source)]
    parts += [Label(x, bottom, word, "middle", 14) for (x, _), word in zip(below, target)]
    told = "Strokes from each target word to the source words it looked at when it was said."
    parts.append(Label(12, bottom + 34, told, size=11, quiet=True))
    return Scene(max(width, 520), bottom + 48, title, told, parts)


def middles(words: Sequence[str], length: Callable[[str], float]) -> list[tuple[float, float]]:
    """The middle and the width of each word in a line."""
    found, at = [], 16.0
    for word in words:
        width = length(word) * 1.15 + 4
        found.append((at + width / 2, width))
        at += width + GAP
    return found


def beam_scene(nodes: Sequence[Node]) -> Scene:
    """Steps from left to right, in each step the best on top; what was pruned is grey."""
    own = [node for node in nodes if node.step < MOST_STEPS]
    places: dict[int, tuple[float, float]] = {}
    ranks: dict[int, int] = {}
    for node in sorted(own, key=lambda node: (node.step, -node.score)):
        rank = ranks.get(node.step, 0)
        ranks[node.step] = rank + 1
        places[node.number] = 16 + node.step * STEP, 52 + rank * LINE
    parts: list[Part] = [Label(12, 24, "Beam search", size=15, bold=True)]
    for node in own:
        x, y = places[node.number]
        if node.parent in places:
            px, py = places[node.parent]
            ink = "ink" if node.best else "grey"
            end = px + STEP - 26, py + 11, x, y + 11
            parts.append(Stroke(*end, 2.5 if node.best else 1, 0.9 if node.best else 0.35, ink))  # type: ignore[arg-type]
    for node in own:
        x, y = places[node.number]
        text = visible(node.text)
        told = f"{text}: log p {node.log_p:.3f}, sum {node.score:.3f}, {node.fate}"
        ink = "grey" if node.fate == "pruned" else "other" if node.fate == "finished" else "ink"
        parts.append(Box(x, y, STEP - 26, 22, 0.45 if node.best else 0.16, told, ink))  # type: ignore[arg-type]
        short = text if len(text) <= 8 else f"{text[:7]}\u2026"
        parts.append(Label(x + 5, y + 15, short, size=12, bold=node.best, quiet=node.fate == "pruned"))
        parts.append(Label(x + STEP - 30, y + 15, f"{node.score:.1f}", "end", 9, quiet=True))
    width = 30 + (max(node.step for node in own) + 1) * STEP
    height = 70 + max(ranks.values()) * LINE
    told = "Each column is a step, with the sum of log p: blue goes on, orange ended, grey was pruned."
    parts.append(Label(12, height - 8, told, size=11, quiet=True))
    return Scene(max(width, 620), height + 6, "Beam search", told, parts)
