"""A trace: one recorded run with its figures, its page and its file."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import save
from torch import Tensor

from regard.compat import OldAttributes
from regard.config.reading import parse_json
from regard.errors import UsageError
from regard.interpret.activations import FORMAT, STRICT, Node, TracedTokens
from regard.interpret.attribution import Contributions, contributions
from regard.interpret.choices import RunActivations
from regard.interpret.drawing import Figure
from regard.interpret.figures import FigureOptions, draw
from regard.interpret.gradients import gradient_x_input
from regard.interpret.names import check_shapes
from regard.interpret.page import Page, make_page
from regard.storage.files import write_atomically
from regard.storage.weights import open_safetensors

SHOWN = (".weights", ".probabilities", ".positions", ".bias", ".cosine")  # what figures show
LARGEST = 64 << 20  # characters of metadata
LARGEST_CELL = 8 << 20  # bytes of tensors; in a notebook a larger trace is shown as a figure


@dataclass(frozen=True)
class Trace(RunActivations, OldAttributes):
    """One recorded run of a model: `trace["decoder.0.cross.weights"]`, see `Activations`."""

    def contributions(
        self, step: int, token: int | str | None = None, against: int | str | None = None
    ) -> Contributions:
        """Direct logit attribution: what the embedding, each head, bias and feed-forward layer add to the
        logit of a token (default: the chosen one) at a step, or to logit(token) - logit(against)."""
        return contributions(self, step, token, against)

    def gradient_x_input(
        self, step: int, token: int | str | None = None, against: int | str | None = None
    ) -> dict[str, Tensor]:
        """x . dy/dx of each embedding x, [S] of `source`, [T] of `target`, where y = log p(token) at a step,
        or log p(token) - log p(against)."""
        return gradient_x_input(self, step, token, against)

    def figure(
        self,
        view: str = "heads",
        layer: int | None = None,
        head: int | None = None,
        where: str | None = None,
        words: bool = False,
    ) -> Figure:
        """Draw attention, heads, alignment, entropy, lens, positions or beam."""
        return draw(self, view, FigureOptions(layer, head, where, words))

    def page(self) -> Page:
        """The explorer page with this run inside, as one file that needs no server."""
        return make_page(self)

    def to_bytes(self) -> bytes:
        """A safetensors file whose metadata has the rest as JSON."""
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}  # no shared memory
        return save(tensors, {"regard.trace": json.dumps(self.as_json())})

    def save(self, path: str | Path) -> None:
        path = Path(path)
        if path.suffix != ".safetensors":
            raise UsageError(
                f"{path}: a trace is written as .safetensors; a figure as .svg, .png, .html, .json"
            )
        write_atomically(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a saved trace. Names, shapes and numbers are checked."""
        path = Path(path)
        with open_safetensors(path) as file:
            metadata = file.metadata() or {}
            if "regard.trace" not in metadata:
                raise UsageError(f"{path}: a safetensors file, but no trace")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
        try:
            return from_parts(metadata["regard.trace"], tensors)
        except (ValueError, UsageError) as error:
            raise UsageError(f"{path}: not a whole trace ({shorten(error)})") from None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(tokens)} {side}" for side, tokens in self.tokens.items())
        return f"<Trace of {self.meta.get('family', 'a model')}: {sizes} tokens, {len(self.tensors)} tensors>"

    def _repr_html_(self) -> str:
        """For notebooks: the page, or a figure if the trace is large."""
        if sum(tensor.nbytes for tensor in self.tensors.values()) <= LARGEST_CELL:
            return self.page()._repr_html_()
        text = f"<p>{html.escape(repr(self))}</p>"
        return self.figure("heads")._repr_html_() if self.attentions else text


class TensorEntry(BaseModel):
    model_config = STRICT
    name: str
    shape: list[int]
    dtype: str


class TraceMeta(BaseModel):
    """The metadata that figures and comparisons read; there may be more."""

    model_config = ConfigDict(strict=True, extra="allow")
    family: str = ""
    head: str | None = None
    many: bool = False
    labels: list[str] = []
    prompt: int = 0


class TraceFile(BaseModel):
    """The JSON of a trace file."""

    model_config = STRICT
    format: int
    output: str
    tensors: list[TensorEntry]
    tokens: dict[Literal["source", "target", "output"], TracedTokens]
    meta: dict[str, Any]
    beam: tuple[Node, ...]
    vocabulary: dict[str, str]


def from_parts(metadata: str, tensors: Mapping[str, Tensor]) -> Trace:
    """ValueError or UsageError if the parts do not fit together."""
    if len(metadata) > LARGEST:
        raise ValueError("the metadata is too long")
    parse_json(metadata)  # refuses NaN, names that stand twice and deep nesting
    stored = TraceFile.model_validate_json(metadata)
    TraceMeta.model_validate(stored.meta)
    if stored.format != FORMAT:
        raise ValueError(f"it has the format {stored.format}, this program reads {FORMAT}")
    for number, node in enumerate(stored.beam):
        if node.number != number or not -1 <= node.parent < number or node.step < 0:
            raise ValueError(f"node {number} of the search is out of order")
    tokens: dict[str, TracedTokens] = dict(stored.tokens.items())
    for side, each in tokens.items():
        if not len(each.ids) == len(each.texts) == len(each.words):
            raise ValueError(f"the tokens of {side} do not fit together")
        if min((-1, *each.words)) < -1 or min((0, *each.ids)) < 0:
            raise ValueError(f"the tokens of {side} have negative ids or words")
    sizes = {side[0].upper(): len(tokens[side]) for side in ("source", "target") if side in tokens}  # S, T
    check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, sizes)
    check_values(tensors, tokens)
    names = [each.name for each in stored.tensors]
    if sorted(names) != sorted(tensors):
        raise ValueError("its list of tensors does not match the tensors")
    vocabulary = {int(number): text for number, text in stored.vocabulary.items()}
    ordered = {name: tensors[name] for name in names}
    return Trace(ordered, tokens, stored.output, stored.meta, stored.beam, vocabulary)


def check_values(tensors: Mapping[str, Tensor], tokens: Mapping[str, TracedTokens]) -> None:
    """Dtypes as a run writes them, finite values for figures, and tokens for all weights."""
    for name, tensor in tensors.items():
        dtype = torch.bool if name.endswith(".mask") else torch.int64 if name == "lens.ids" else torch.float32
        if tensor.dtype != dtype or 0 in tensor.shape:
            raise ValueError(f"{name} is empty or of {tensor.dtype}, not {dtype}")
        if name.endswith(SHOWN) and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} has values that are not finite")
        if name.endswith(".weights"):
            sides = {"source"} if name.startswith("encoder") else {"target"}
            if not sides | ({"source"} if name.endswith("cross.weights") else set()) <= tokens.keys():
                raise ValueError(f"{name} has no tokens")
    if "logits" in tensors and "output" in tokens:
        rows, size = tensors["logits"].shape
        if rows != len(tokens["output"]) or max(tokens["output"].ids, default=0) >= size:
            raise ValueError("the logits do not fit the output")
    if len(tokens.get("target", ())) != len(tokens.get("output", ())):
        raise ValueError("target and output are of different lengths")


def shorten(error: object) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        error = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    text = " ".join(str(error).split())
    return text if len(text) <= 120 else f"{text[:117]}..."
