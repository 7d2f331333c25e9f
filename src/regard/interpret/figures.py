"""The views of a trace, drawn without a browser."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import UsageError, near_miss
from regard.interpret.figure import Figure
from regard.interpret.pieces import visible
from regard.interpret.readings import entropy, mean_distance, word_attention
from regard.interpret.scene import Box, Ink, Label, Part, Picture, Scene
from regard.interpret.trace import Trace, word_groups
from regard.interpret.trees import alignment_scene, beam_scene

MOST_BOXES = 64  # along a side; larger matrices become pictures
THUMBNAIL, THUMBNAIL_CELLS = 64, 32
LONGEST_LABEL = 20
LENS_COLUMNS = 40
HONEST = "Attention tells where a head looked, not why the model said a word."


def draw(
    trace: Trace, view: str, layer: int | None, head: int | None, where: str | None, words: bool
) -> Figure:
    if view not in VIEWS:
        raise UsageError(f'there is no view "{view}": {", ".join(VIEWS)}{near_miss(view, VIEWS)}')
    return VIEWS[view](trace, layer, head, where, words)


def place_of(trace: Trace, where: str | None, layer: int | None) -> str:
    """The attention that is meant: `decoder.3.cross`, or a kind such as `cross` with a layer."""
    known = trace.attentions
    if not known:
        raise UsageError("there is no attention in this trace")
    if where in known:
        return str(where)
    kind = where or ("cross" if any(name.endswith("cross") for name in known) else "self")
    side, _, last = kind.rpartition(".")
    own = [name for name in known if name.endswith(last) and name.startswith(side)]
    if not own:
        raise UsageError(f'there is no attention "{where}" in this trace: it has {", ".join(known)}')
    if layer is None or own == ["decoder.cross"]:
        return own[max(0, len(own) - 2)]
    found = [name for name in own if name.split(".")[1] == str(layer)]
    if not found:
        stack, count = own[-1].split(".")[0], 1 + max(int(name.split(".")[1]) for name in own)
        raise UsageError(
            f"layer = {layer}: the {stack} has {count} layers with such attention, 0 to {count - 1}"
        )
    return found[0]


# One attention


def attention(trace: Trace, layer: int | None, head: int | None, where: str | None, words: bool) -> Figure:
    place = place_of(trace, where, layer)
    weights = trace.weights(place, head)
    shares = weights.mean(dim=0) if head is None else weights
    queries, keys = trace.sides(place)
    rows, columns = queries.shown, keys.shown
    if words:
        shares = word_attention(shares, queries.groups, keys.groups)
        rows, columns = queries.group_texts, keys.group_texts
    which = "mean of all heads" if head is None else f"head {head}"
    title = f"{place}, {which}"
    told = f"Each row is a query and sums to 1: how it shares its look among the keys above. {HONEST}"
    data = {"view": "attention", "where": place, "head": head, "words": words}
    return matrix_figure(title, told, rows, columns, shares, data)


def matrix_figure(
    title: str,
    told: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Tensor,
    data: dict[str, Any],
    written: Sequence[Sequence[str]] | None = None,
) -> Figure:
    """A heat-map with its names; `values` of -1 .. 1, or what is `written` in the cells beside them."""
    height = 22 if max(len(rows), len(columns)) <= MOST_BOXES else 8
    width = height if written is None else 74
    left = 16 + max((length_of(name) for name in rows), default=0)
    above = 62 + (
        max((length_of(name) for name in columns), default=0) * (0.8 if written is None else 0) or 8
    )
    parts: list[Part] = [Label(12, 24, title, size=15, bold=True)]
    parts += names(rows, columns, left, above, width, height, upright=written is not None)
    parts += cells(rows, columns, values, left, above, width, height, written)
    size = (left + len(columns) * width + 60, above + len(rows) * height + 44)
    parts.append(Label(12, size[1] - 14, told.split(". ")[0] + ".", size=11, quiet=True))
    scene = Scene(max(size[0], 30 + 6.2 * len(told.split(". ")[0])), size[1], title, told, parts)
    shown = {"title": title, "rows": list(rows), "columns": list(columns)}
    return Figure(scene, {**data, **shown, "values": written or rounded(values)})


def names(
    rows: Sequence[str],
    columns: Sequence[str],
    left: float,
    above: float,
    width: float,
    height: float,
    upright: bool,
) -> list[Part]:
    """Beside rows and above columns; of very many, every so many."""
    few = max(1, -(-len(rows) // MOST_BOXES)), max(1, -(-len(columns) // MOST_BOXES))
    size = min(12, height)
    found: list[Part] = [
        Label(left - 6, above + n * height + height * 0.72, cut(name), "end", size)
        for n, name in enumerate(rows)
        if n % few[0] == 0
    ]
    for n, name in enumerate(columns):
        if n % few[1] == 0 and upright:
            found.append(Label(left + (n + 0.5) * width, above - 6, cut(name), "middle", size))
        elif n % few[1] == 0:
            found.append(Label(left + (n + 0.6) * width, above - 5, cut(name), "start", size, turn=-50))
    return found


def cells(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Tensor,
    left: float,
    above: float,
    width: float,
    height: float,
    written: Sequence[Sequence[str]] | None,
) -> list[Part]:
    if max(len(rows), len(columns)) > MOST_BOXES and written is None:
        return [Picture(left, above, len(columns) * width, len(rows) * height, values)]
    found: list[Part] = []
    for n, (row, own) in enumerate(zip(rows, values.tolist())):
        for m, (column, value) in enumerate(zip(columns, own)):
            x, y = left + m * width, above + n * height
            text = written[n][m] if written is not None else ""
            title = f"{visible(row)}, {visible(column)}: {text} {value:.4f}"
            ink: Ink = "ink" if value >= 0 else "other"
            strength = min(1.0, abs(value)) * (0.45 if text else 0.9) + 0.04  # words must stay readable
            found.append(Box(x, y, width - 1, height - 1, strength, title, ink))
            if text:
                found.append(Label(x + width / 2, y + height * 0.7, cut(text, 10), "middle", 11))
    return found


# All heads


def heads(trace: Trace, layer: int | None, head: int | None, where: str | None, words: bool) -> Figure:
    chosen = [
        name
        for name in trace.attentions
        if (layer is None or name.split(".")[1] == str(layer)) and (where is None or where in name)
    ]
    if not chosen:
        chosen = [place_of(trace, where, layer)]  # or it says what is wrong
    most = max(len(trace.weights(name)) for name in chosen)
    if head is not None and not 0 <= head < most:
        trace.weights(chosen[0], head)  # says so
    left, above, step = 130, 64, THUMBNAIL + 10
    shown = range(most) if head is None else [head]
    parts: list[Part] = [Label(12, 24, "All heads", size=15, bold=True)]
    parts += [
        Label(left + n * step + THUMBNAIL / 2, above - 8, f"head {own}", "middle", 11)
        for n, own in enumerate(shown)
    ]
    data = []
    for row, name in enumerate(chosen):
        y = above + row * step
        parts.append(Label(left - 10, y + THUMBNAIL / 2 + 4, name, "end", 11))
        weights = trace.weights(name)
        bits, far = entropy(weights), mean_distance(weights)
        for column, own in enumerate(number for number in shown if number < len(weights)):
            told = f"{name}, head {own}: entropy {bits[own]:.2f} bits, mean distance {far[own]:.1f} pieces"
            x = left + column * step
            parts.append(Box(x - 1, y - 1, THUMBNAIL + 2, THUMBNAIL + 2, 0.07, told, "grey"))
            parts.append(Picture(x, y, THUMBNAIL, THUMBNAIL, pooled(weights[own]), told))
            data.append(
                {"where": name, "head": own, "entropy": float(bits[own]), "distance": float(far[own])}
            )
    size = left + len(shown) * step + 12, above + len(chosen) * step + 12
    told = f"One small picture for each head: queries downwards, keys across, dark where it looks. {HONEST}"
    return Figure(
        Scene(max(size[0], 260), size[1], "All heads", told, parts), {"view": "heads", "heads": data}
    )


def pooled(weights: Tensor) -> Tensor:
    """The largest of each field, so that at most 32 x 32 are left; strongest 1."""
    rows, columns = (min(THUMBNAIL_CELLS, size) for size in weights.shape)
    found = F.adaptive_max_pool2d(weights[None, None], (rows, columns))[0, 0]
    return found / found.max().clamp(min=1e-9)


def entropies(trace: Trace, layer: int | None, head: int | None, where: str | None, words: bool) -> Figure:
    chosen = trace.attentions
    if not chosen:
        raise UsageError("there is no attention in this trace")
    most = max(len(trace.weights(name)) for name in chosen)
    table, written = torch.zeros(len(chosen), most), []
    for row, name in enumerate(chosen):
        weights = trace.weights(name)
        bits, far = entropy(weights), mean_distance(weights)
        table[row, : len(bits)] = bits / max(1.0, torch.tensor(weights.shape[-1]).log2().item())
        own = [f"{b:.2f} / {d:.1f}" for b, d in zip(bits.tolist(), far.tolist())]
        written.append(own + [""] * (most - len(own)))
    told = (
        "Entropy in bits (0: one key alone) and mean distance in pieces of each head. "
        "Dark heads look at many keys alike."
    )
    columns = [f"head {number}" for number in range(most)]
    return matrix_figure("Entropy / distance", told, chosen, columns, table, {"view": "entropy"}, written)


# The stream, the positions, the search


def lens(trace: Trace, layer: int | None, head: int | None, where: str | None, words: bool) -> Figure:
    if "lens.ids" not in trace:
        raise UsageError(
            "there is no logit lens in this trace: the model's stream does not become words, or the text is "
            'long and it was not asked for (only=("lens.*",))'
        )
    ids, p = trace["lens.ids"][:, :LENS_COLUMNS, 0], trace["lens.probabilities"][:, :LENS_COLUMNS, 0]
    depth = ["embedding", *(f"layer {number}" for number in range(len(ids) - 1))]
    own = trace.tokens["target" if "target" in trace.tokens else "source"].shown[:LENS_COLUMNS]
    written = [[visible(trace.word(number)) for number in row] for row in ids.tolist()]
    told = (
        "The most probable next word if the model had to speak at this depth. "
        "Only the last layer was trained to be read so."
    )
    order = list(range(len(depth)))[::-1]  # the last layer on top, as words rise through the model
    return matrix_figure(
        "Logit lens",
        told,
        [depth[n] for n in order],
        own,
        p[order],
        {"view": "lens", "probabilities": rounded(p[order])},
        [written[n] for n in order],
    )


def positions(trace: Trace, layer: int | None, head: int | None, where: str | None, words: bool) -> Figure:
    reads = "source" in trace.tokens
    side = "decoder" if not reads or (where == "decoder" and "target" in trace.tokens) else "encoder"
    pieces = trace.tokens["target" if side == "decoder" else "source"].shown
    added, bias, turn = f"{side}.embedding.positions", f"{side}.positions.bias", f"{side}.positions.cosine"
    if added in trace:
        values, told = (
            trace[added],
            "What is added to each piece's vector for its place: one column a channel.",
        )
    elif bias in trace:
        own = head or 0
        if not 0 <= own < len(trace[bias]):
            raise UsageError(f"head = {own}: there are {len(trace[bias])}, from 0 on")
        values, told = trace[bias][own], f"T5's bias of head {own}: added to the scores for a distance."
    elif turn in trace:
        values, told = trace[turn], "Cosine of the angle by which each pair of channels turns at each place."
    else:
        raise UsageError("this model has no positions: it reads word after word")
    columns = pieces if added not in trace and bias in trace else [str(n) for n in range(values.shape[1])]
    scaled = values / values.abs().max().clamp(min=1e-9)
    return matrix_figure(f"Positions of the {side}", told, pieces, columns, scaled, {"view": "positions"})


def alignment(trace: Trace, layer: int | None, head: int | None, where: str | None, words: bool) -> Figure:
    weights = trace.alignment_weights(layer, head)
    source, output = trace.tokens["source"], trace.tokens["output"]
    rows, columns = word_texts(output), word_texts(source)
    place = f"{trace.cross(layer)}, {'mean of all heads' if head is None else f'head {head}'}"
    scene = alignment_scene(columns, rows, weights, f"Word alignment ({place})", length_of)
    links = [list(pair) for pair in trace.alignment(layer, head)]
    data = {"view": "alignment", "rows": rows, "columns": columns, "values": rounded(weights), "links": links}
    return Figure(scene, data)


def word_texts(pieces: Any) -> list[str]:
    own = dict(zip(pieces.groups, pieces.group_texts))
    return [own[tuple(group)] for group in word_groups(pieces)]


def beam(trace: Trace, layer: int | None, head: int | None, where: str | None, words: bool) -> Figure:
    if not trace.beam:
        raise UsageError("no search was recorded: the output was given, drawn, or not written at all")
    scene = beam_scene(trace.beam)
    return Figure(scene, {"view": "beam", "nodes": [node.as_json() for node in trace.beam]})


def rounded(values: Tensor) -> list[list[float]]:
    return [[round(value, 6) for value in row] for row in values.tolist()]


def cut(text: str, most: int = LONGEST_LABEL) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def length_of(text: str) -> float:
    """About how wide a label is, in pixels."""
    return sum(12.5 if unicodedata.east_asian_width(sign) in "WF" else 7.8 for sign in cut(text))


Drawing = Callable[[Trace, int | None, int | None, str | None, bool], Figure]
VIEWS: dict[str, Drawing] = {
    "attention": attention,
    "heads": heads,
    "alignment": alignment,
    "entropy": entropies,
    "lens": lens,
    "positions": positions,
    "beam": beam,
}
