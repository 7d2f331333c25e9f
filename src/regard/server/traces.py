"""Recent traces of the explorer: their parts as bytes (tensors, readings, exports), and two compared."""

from __future__ import annotations

import hashlib
import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from difflib import SequenceMatcher
from threading import Lock
from typing import Any, Literal

import torch
from pydantic import Field
from safetensors.torch import save
from torch import Tensor

from regard.errors import UsageError, near_miss
from regard.interpret import Trace, TracedTokens, compare
from regard.interpret.activations import attention_matrix, visible
from regard.interpret.predictions import end, max_pool
from regard.server.errors import APIError, unknown_model
from regard.server.requests import LIMITS, QueryString, TensorQuery, TraceBody, check_decode
from regard.tasks import Embedder
from regard.tasks.media import DATA_URL
from regard.tasks.task_model import TaskModel

CHUNK = 64 << 10  # bytes of a tensor that are sent at once
MOST = 16  # traces
FRAME_TOKENS = 2000  # the cost of a picture or sound, for admission
MOST_BYTES = 1 << 30


class Traces:
    """An LRU cache in memory, bounded by count and bytes."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.kept: OrderedDict[str, Trace] = OrderedDict()
        self.lock = Lock()

    def get(self, number: str) -> Trace | None:
        with self.lock:
            if number in self.kept:
                self.kept.move_to_end(number)
            return self.kept.get(number)

    def require(self, number: str) -> Trace:
        trace = self.get(number)
        if trace is None:
            raise APIError(410, "this trace is no longer cached; request it again", code="trace_expired")
        return trace

    def add(self, number: str, trace: Trace) -> None:
        with self.lock:
            self.kept[number] = trace
            # a comparison needs two, an intervention one more: keep three of any size
            while len(self.kept) > self.most or (len(self.kept) > 3 and self.bytes() > self.most_bytes):
                self.kept.popitem(last=False)

    def bytes(self) -> int:
        return sum(t.nbytes for trace in self.kept.values() for t in trace.tensors.values())


class Explorer:
    """The models that can be traced, and the recent traces."""

    def __init__(self, models: Mapping[str, Any]) -> None:
        self.models: dict[str, Any] = {
            name: task
            for name, task in models.items()
            if isinstance(task, TaskModel) and not isinstance(task, Embedder)
        }
        self.traces = Traces()

    def find(self, name: str) -> tuple[str, Any]:
        name = name or next(iter(self.models), "")
        if name not in self.models:
            raise unknown_model(name, self.models)
        return name, self.models[name]

    def trace(self, number: str, name: str, body: TraceBody) -> Trace:
        """The trace of a request, from the cache if it is there."""
        if (kept := self.traces.get(number)) is not None:
            return kept
        task = self.models[name]
        result: Trace = task.trace(
            body.source,
            body.target,
            prefix=body.prefix,
            context=body.context,
            decode=check_decode(body.decode, task.folder.config.max_length),
            interventions=body.interventions,
        )
        result = replace(result, meta={**result.meta, "model": name})  # no local path
        self.traces.add(number, result)
        return result


def trace_tokens(task: Any, body: TraceBody) -> int:
    """Tokens that a trace reads and writes; a target that is too long is an error.

    Attention grows with the square of the length, and computed positions have no limit.
    """
    folder = task.folder
    patches = [str(each.get("text")) for each in body.interventions if each.get("type") == "patch"]
    if folder.task.input != "text":
        if not all(each.startswith(DATA_URL) for each in (body.source, *patches)):
            # a server opens no files for its clients
            raise APIError(400, "source: this model reads files; send one as a data URL", "source")
        return FRAME_TOKENS * (1 + len(patches))
    if max(map(len, (body.source, *patches))) > LIMITS.text_characters:
        message = f"the text is too long: {LIMITS.text_characters} characters at most"
        raise APIError(400, message, "source")
    read = [len(folder.source.encode(each)) for each in (body.source, *patches)]
    source, target = sum(read), len(folder.target.encode(body.target or ""))
    most = folder.config.max_length
    if target > most:
        raise UsageError(f"target: {target} tokens are too long, at most {most} are allowed")
    return source + (target or source) * int(body.decode.get("beam", folder.decode.beam) or 1)


def number_of(body: TraceBody) -> str:
    """The id of a trace: equal requests share it, so reloading a page computes nothing."""
    key = json.dumps(body.model_dump(mode="json"), sort_keys=True)  # independent of the order of fields
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:24]


SHARES = (".weights", ".probabilities", ".mask")  # values between 0 and 1
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class TensorStream:
    """A safetensors file of some tensors of a trace, computed and sent part by part.

    It holds one tensor at a time, not the trace: a client that does not read keeps no trace in memory.
    """

    def __init__(
        self, traces: Traces, number: str, query: TensorQuery, meta: dict[str, str] | None = None
    ) -> None:
        self.traces, self.number, self.query = traces, number, query
        trace = traces.require(number)
        self.names = chosen(trace, query.name)
        header: dict[str, Any] = {"__metadata__": meta} if meta else {}
        size = 0
        for name in self.names:
            shape_only = part(trace, name, query, "meta")  # nothing is computed
            end = size + shape_only.nbytes
            header[name] = {
                "dtype": DTYPES[shape_only.dtype],
                "shape": list(shape_only.shape),
                "data_offsets": [size, end],
            }
            size = end
        raw = json.dumps(header).encode()
        raw += b" " * (-len(raw) % 8)
        self.header = struct.pack("<Q", len(raw)) + raw
        self.size = len(self.header) + size

    def __iter__(self) -> Iterator[bytes]:
        yield self.header
        for name in self.names:
            tensor = part(self.traces.require(self.number), name, self.query)
            data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
            for at in range(0, len(data), CHUNK):
                yield data[at : at + CHUNK].tobytes()


def chosen(trace: Trace, patterns: list[str]) -> list[str]:
    names: dict[str, None] = {}
    for pattern in patterns:
        matches = trace.names(pattern) if "*" in pattern else []
        if not matches:
            _ = trace[pattern]  # raises, naming the nearest
        names |= dict.fromkeys(matches or [pattern])
    return list(names)


def part(trace: Trace, name: str, query: TensorQuery, device: str = "cpu") -> Tensor:
    """The part of a tensor that a query selects; on "meta" its shape alone."""
    tensor = trace[name].to(device)
    if query.head is not None and tensor.dim() == 3:
        tensor = of_head(trace, name, tensor, query.head)
    if query.row is not None:
        tensor = one_of(name, tensor, "row", query.row, -2)
    if query.column is not None:
        tensor = one_of(name, tensor, "column", query.column, -1)
    if query.pool is not None:
        tensor = max_pool(tensor, query.pool)
    return in_bytes(name, tensor) if query.dtype == "U8" else tensor


def one_of(name: str, tensor: Tensor, what: str, number: int, dimension: int) -> Tensor:
    """One row or column; keeps its dimension, so that both can be selected together."""
    if tensor.dim() < 2 or number >= tensor.shape[dimension]:
        size = tensor.shape[dimension] if tensor.dim() > 1 else 0
        raise UsageError(f"{what} = {number}: {name} has {size}, from 0 on")
    return tensor.narrow(dimension, number, 1)


def of_head(trace: Trace, name: str, tensor: Tensor, head: int) -> Tensor:
    """The slice of a head; with grouped-query attention, keys and values of its group."""
    queries = f"{name.rpartition('.')[0]}.query"
    heads = len(trace[queries]) if queries in trace and trace[queries].dim() == 3 else len(tensor)
    if head >= heads:
        raise UsageError(f"head = {head}: {name} has {heads} heads, from 0 on")
    return tensor[head * len(tensor) // heads]


def in_bytes(name: str, tensor: Tensor) -> Tensor:
    if not name.endswith(SHARES):
        raise UsageError(f"{name}: only weights, probabilities and masks can be sent as U8; use F32")
    return (tensor.float() * 255).round().clamp(0, 255).to(torch.uint8)


class ReadingQuery(QueryString):
    kind: str
    where: str = ""
    head: int | Literal["mean"] = "mean"
    words: bool = False
    step: int = Field(0, ge=0)  # of contributions and gradient, as the next two: numbers of choices
    token: int | None = None
    against: int | None = None


Reading = tuple[dict[str, Tensor], dict[str, Any]]  # tensors by name, and the rest as JSON


def one_look(trace: Trace, query: ReadingQuery) -> Reading:
    view = attention_matrix(trace, query.kind, query.where, query.head, query.words)
    return {"values": view.values}, view.as_json()


def contributions(trace: Trace, query: ReadingQuery) -> Reading:
    result = trace.contributions(query.step, query.token, query.against)
    values = torch.tensor([part.value for part in result.parts])
    return {"values": values}, asdict(result) | {"rest": result.rest}


READINGS: dict[str, Callable[[Trace, ReadingQuery], Reading]] = {
    "weights": one_look,
    "value_norm": one_look,
    "rollout": one_look,
    "heads": lambda trace, _: (trace.head_statistics(), {}),
    "contributions": contributions,
    "gradient": lambda trace, q: (trace.gradient_x_input(q.step, q.token, q.against), {}),
}


def reading_bytes(trace: Trace, query: ReadingQuery) -> bytes:
    """A safetensors file; its metadata holds the rest under `regard.reading`."""
    if query.kind not in READINGS:
        raise UsageError(
            f'kind: there is no "{query.kind}" among {", ".join(READINGS)}{near_miss(query.kind, READINGS)}'
        )
    tensors, about = READINGS[query.kind](trace, query)
    return save(
        {name: tensor.contiguous().clone() for name, tensor in tensors.items()},
        {"regard.reading": json.dumps(about)},
    )


MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
    "safetensors": "application/octet-stream",
}


class ExportQuery(QueryString):
    """`view` and the following select the figure of svg, png and json."""

    format: Literal["html", "svg", "png", "json", "safetensors"]
    view: str = "heads"
    layer: int | None = Field(None, ge=0)
    head: int | None = Field(None, ge=0)
    where: str | None = None
    words: bool = False


def exported(trace: Trace, query: ExportQuery) -> bytes:
    if query.format == "html":
        return trace.page().html.encode()
    figure = trace.figure(query.view, query.layer, query.head, query.where, query.words)
    match query.format:
        case "svg":
            return figure.svg.encode()
        case "png":
            return figure.scene.png()
    return figure.json.encode()


def compare_traces(before: Trace, after: Trace, step: int | None = None) -> dict[str, Any]:
    """How the second run differs. If the output distributions are not comparable, `reason` says why and only
    the output words are compared."""
    reason = incomparable_reason(before, after)
    comparison = None if reason else compare(before, after, step)
    return {
        "comparison": None if comparison is None else comparison.as_json(),
        "reason": reason,
        "sentence": output_sentence(before, after) if comparison is None else comparison.sentence,
        "words": words(before.output, after.output),
        "pairs": {
            side: pairs(before.tokens[side], after.tokens[side])
            for side in ("source", "target")
            if side in before.tokens and side in after.tokens
        },
    }


def incomparable_reason(before: Trace, after: Trace) -> str | None:
    """Why the output distributions of two runs are not comparable; None if they are."""
    different = (
        "The two models choose among different words, so that their probabilities have no common scale."
    )
    if "logits" not in before or "logits" not in after:
        return "One of the runs recorded no logits."
    if any(before.meta.get(name) != after.meta.get(name) for name in ("head", "labels", "many")):
        return different
    if before.meta.get("head") == "span":
        same = before["logits"].shape == after["logits"].shape
        return None if same else "The answers are places of texts of different lengths."
    if before["logits"].shape[-1] != after["logits"].shape[-1]:
        return different
    shared = before.vocabulary.keys() & after.vocabulary.keys()
    return None if all(before.vocabulary[each] == after.vocabulary[each] for each in shared) else different


def output_sentence(before: Trace, after: Trace) -> str:
    if before.output == after.output:
        return f'Both say "{visible(before.output)}"{end(before.output)}'
    return f'One says "{visible(before.output)}", the other "{visible(after.output)}"{end(after.output)}'


def words(before: str, after: str) -> list[dict[str, Any]]:
    """A word diff of two outputs: [{"kind": "same" | "gone" | "new", "shown": text}]."""
    one, two = before.split(), after.split()
    result: list[dict[str, Any]] = []
    for kind, a, b, c, d in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        if kind == "equal":
            result.append({"kind": "same", "shown": visible(" ".join(one[a:b]))})
            continue
        for name, part in (("gone", one[a:b]), ("new", two[c:d])):
            if part:
                result.append({"kind": name, "shown": visible(" ".join(part))})
    return result


def pairs(before: TracedTokens, after: TracedTokens) -> list[tuple[int, int]]:
    """Aligned positions: equal tokens, and runs of equal length between them."""
    result: list[tuple[int, int]] = []
    for kind, a, b, c, d in SequenceMatcher(None, before.ids, after.ids, autojunk=False).get_opcodes():
        if kind == "equal" or b - a == d - c:
            result.extend(zip(range(a, b), range(c, d)))
    return result
