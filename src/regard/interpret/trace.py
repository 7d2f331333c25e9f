"""One run of a model as a value: every tensor by name, the pieces, the answer, the search."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors.torch import save
from torch import Tensor

from regard.config.reading import parse_json
from regard.errors import UsageError, near_miss
from regard.interpret.alignment import Links
from regard.interpret.alignment import links as links_of
from regard.interpret.beam import Fate, Node
from regard.interpret.names import check_shapes
from regard.interpret.pieces import Pieces
from regard.interpret.readings import rollout, rollout_across, value_weighted, word_attention
from regard.storage.files import write_atomically
from regard.storage.weights import open_safetensors

if TYPE_CHECKING:
    from regard.interpret.figure import Figure
    from regard.interpret.page import Page

FORMAT = 1
DRAWN = (".weights", ".probabilities", ".positions", ".bias", ".cosine")  # what figures show
LARGEST = 64 << 20  # characters of what stands beside the tensors


@dataclass(frozen=True)
class Trace:
    """What one run of a model looked like inside.

    `tokens` has the pieces of the sides that there are: `source` (what an encoder reads), `target` (what a
    decoder reads) and `output` (what it says at each place of the target). Names are told in docs/trace.md.
    """

    tensors: Mapping[str, Tensor]
    tokens: Mapping[str, Pieces]
    output: str  # the translation, what follows, the filled text, the label ...
    meta: Mapping[str, Any] = field(default_factory=dict)  # what can be written as JSON
    beam: tuple[Node, ...] = ()  # nodes of the search, if there was one
    vocabulary: Mapping[int, str] = field(default_factory=dict)  # the words that the numbers speak of

    def __getitem__(self, name: str) -> Tensor:
        found = self.tensors.get(name)
        if found is None:
            near = near_miss(name, self.tensors)
            raise UsageError(f'"{name}" is not in this trace{near}; trace.names() tells what is')
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def names(self, pattern: str = "*") -> list[str]:
        """In the order of the run; a pattern such as `decoder.*.cross.*` chooses."""
        return [name for name in self.tensors if fnmatchcase(name, pattern)]

    def word(self, number: int) -> str:
        """The text of a word of the vocabulary: those that were among the best at some place."""
        return self.vocabulary.get(number, f"<id {number}>")

    def log_probabilities(self) -> list[float]:
        """log p of each piece of the output."""
        if "output" not in self.tokens:
            raise UsageError("this model writes nothing, so there are no pieces to be probable")
        log_p = self["logits"].log_softmax(dim=-1)
        return [float(log_p[step, piece]) for step, piece in enumerate(self.tokens["output"].ids)]

    @property
    def attentions(self) -> list[str]:
        """`encoder.0.self`, `decoder.3.cross` ... whose weights are here."""
        return [name.removesuffix(".weights") for name in self.names("*.weights")]

    def weights(self, where: str, head: int | None = None, weighted: bool = False) -> Tensor:
        """[H,T,S] of an attention, or [T,S] of a head; `weighted` by what the values give."""
        if f"{where}.weights" not in self:
            known = ", ".join(self.attentions) or "none"
            raise UsageError(f'there is no attention "{where}" in this trace: it has {known}')
        found = self[f"{where}.weights"]
        if weighted:
            found = value_weighted(found, self[f"{where}.value_norms"])
        if head is None:
            return found
        if not 0 <= head < len(found):
            told = "one head, 0" if len(found) == 1 else f"{len(found)} heads, 0 to {len(found) - 1}"
            raise UsageError(f"head = {head}: {where} has {told}")
        return found[head]

    def sides(self, where: str) -> tuple[Pieces, Pieces]:
        """The pieces of an attention's queries and keys."""
        if where.endswith("cross"):
            return self.tokens["target"], self.tokens["source"]
        own = self.tokens["source" if where.startswith("encoder") else "target"]
        return own, own

    def word_weights(self, where: str, head: int | None = None) -> Tensor:
        """Attention from word to word: sub-words merged."""
        queries, keys = self.sides(where)
        return word_attention(self.weights(where, head), queries.groups, keys.groups)

    def rollout(self) -> Tensor:
        """Through all layers, [T,S]: of an encoder-decoder the shares of the source."""
        encoder, own, across = ([self.weights(name) for name in names] for names in self.rolled())
        return rollout_across(rollout(encoder), own, across)[0] if across else rollout(encoder or own)

    def rolled(self) -> tuple[list[str], list[str], list[str]]:
        """The attentions of a rollout: the encoder's, and the decoder's to itself and across."""
        across = [name for name in self.attentions if name.endswith(".cross")]
        alone = [name for name in self.attentions if name.endswith(".self")]
        encoder = [name for name in alone if name.startswith("encoder.")]
        own = [name for name in alone if name not in encoder]
        if not alone:
            raise UsageError("a rollout needs self-attention, which this trace does not have")
        whole = encoder and own == [name.replace(".cross", ".self") for name in across]
        if {"source", "target"} <= self.tokens.keys() and not (whole and across):
            raise UsageError("a rollout needs the weights of all attentions; trace without only=")
        return encoder, own, across

    def cross(self, layer: int | None = None) -> str:
        """The cross-attention to align by: of a layer, else of the one before the last."""
        found = [name for name in self.attentions if name.endswith("cross")]
        if not found:
            raise UsageError("this model has no cross-attention: there is no source to align with")
        if layer is None:
            return found[max(0, len(found) - 2)]
        if not 0 <= layer < len(found):
            raise UsageError(f"layer = {layer}: the decoder has {len(found)} with cross-attention, from 0 on")
        return found[layer]

    def alignment_weights(self, layer: int | None = None, head: int | None = None) -> Tensor:
        """[target words, source words] at the step that says the word; mean over the heads without `head`."""
        where = self.cross(layer)
        shares = self.weights(where).mean(dim=0) if head is None else self.weights(where, head)
        said, source = self.tokens["output"], self.tokens["source"]
        return word_attention(shares, word_groups(said), word_groups(source))

    def alignment(self, layer: int | None = None, head: int | None = None) -> Links:
        """(source word, target word) for each target word; `pharaoh` writes them down."""
        return links_of(self.alignment_weights(layer, head))

    def figure(
        self,
        view: str = "heads",
        layer: int | None = None,
        head: int | None = None,
        where: str | None = None,
        words: bool = False,
    ) -> Figure:
        """attention, heads, alignment, entropy, lens, positions or beam as a drawing."""
        from regard.interpret.figures import draw

        return draw(self, view, layer, head, where, words)

    def page(self) -> Page:
        """The explorer's page with this run inside, as one file that needs no server."""
        from regard.interpret.page import make_page

        return make_page(self)

    def as_json(self) -> dict[str, Any]:
        """All but the numbers: what stands beside the tensors of a file, and what a page asks for first."""
        return {
            "format": FORMAT,
            "output": self.output,
            "tensors": [
                {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
                for name, tensor in self.tensors.items()
            ],
            "tokens": {side: pieces.as_json() for side, pieces in self.tokens.items()},
            "meta": dict(self.meta),
            "beam": [node.as_json() for node in self.beam],
            "vocabulary": {str(number): text for number, text in self.vocabulary.items()},
        }

    def to_bytes(self) -> bytes:
        """A safetensors file whose metadata has the rest as JSON."""
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}  # none may share memory
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
        """A trace that was saved; whatever else a file holds is an error with its name."""
        path = Path(path)
        with open_safetensors(path) as file:
            told = file.metadata() or {}
            if "regard.trace" not in told:
                raise UsageError(f"{path}: a safetensors file, but no trace")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        try:
            return from_parts(told["regard.trace"], tensors)
        except (ValueError, UsageError) as error:
            raise UsageError(f"{path}: not a whole trace ({short(error)})") from None

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(pieces)} {side}" for side, pieces in self.tokens.items())
        return f"<Trace of {self.meta.get('family', 'a model')}: {sizes} pieces, {len(self.tensors)} tensors>"

    def _repr_html_(self) -> str:
        """For notebooks: the page, or for a long text a figure, which is small."""
        from regard.interpret.page import LARGEST_CELL, make_page

        if sum(tensor.nbytes for tensor in self.tensors.values()) <= LARGEST_CELL:
            return make_page(self)._repr_html_()
        told = f"<p>{html.escape(repr(self))}</p>"
        return self.figure("heads")._repr_html_() if self.attentions else told


def word_groups(pieces: Pieces) -> list[list[int]]:
    """The places of the pieces of each word; what belongs to none is left out."""
    return [
        [place for place, word in enumerate(pieces.words) if word == number]
        for number in sorted({word for word in pieces.words if word >= 0})
    ]


class StoredPieces(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    ids: list[int]
    texts: list[str]
    words: list[int]


class StoredTensor(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    name: str
    shape: list[int]
    dtype: str


class StoredNode(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    number: int
    step: int
    parent: int
    token: int
    text: str
    log_p: float
    score: float
    fate: Fate
    best: bool


class StoredFacts(BaseModel):
    """What is used of the meta data; there may be more."""

    model_config = ConfigDict(strict=True, extra="allow")
    family: str = ""
    head: str | None = None
    many: bool = False
    labels: list[str] = []
    prompt: int = 0


class Stored(BaseModel):
    """What a file must hold."""

    model_config = ConfigDict(strict=True, extra="forbid")
    format: int
    output: str
    tensors: list[StoredTensor]
    tokens: dict[str, StoredPieces]
    meta: dict[str, Any]
    beam: list[StoredNode]
    vocabulary: dict[str, str]


def from_parts(told: str, tensors: Mapping[str, Tensor]) -> Trace:
    """ValueError or UsageError where the parts do not fit together."""
    if len(told) > LARGEST:
        raise ValueError("what stands beside the tensors is too long")
    stored = Stored.model_validate(parse_json(told))
    StoredFacts.model_validate(stored.meta)
    if stored.format != FORMAT:
        raise ValueError(f"it has the format {stored.format}, this program reads {FORMAT}")
    for number, node in enumerate(stored.beam):
        if node.number != number or not -1 <= node.parent < number or node.step < 0:
            raise ValueError(f"node {number} of the search is out of order")
    tokens = {side: pieces_of(side, own) for side, own in stored.tokens.items()}
    known = {
        letter: len(tokens[side]) for letter, side in (("S", "source"), ("T", "target")) if side in tokens
    }
    check_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, known)
    check_numbers(tensors, tokens)
    names = [each.name for each in stored.tensors]
    if sorted(names) != sorted(tensors):
        raise ValueError("it lacks tensors that it names, or has others")
    nodes = tuple(Node(**node.model_dump()) for node in stored.beam)
    words = {int(number): text for number, text in stored.vocabulary.items()}  # ValueError: no number
    return Trace({name: tensors[name] for name in names}, tokens, stored.output, stored.meta, nodes, words)


def pieces_of(side: str, own: StoredPieces) -> Pieces:
    if side not in ("source", "target", "output") or not len(own.ids) == len(own.texts) == len(own.words):
        raise ValueError(f"the pieces of {short(side)} do not fit together")
    if any(word < -1 for word in own.words) or any(piece < 0 for piece in own.ids):
        raise ValueError(f"the pieces of {side} have numbers below 0")
    return Pieces(tuple(own.ids), tuple(own.texts), tuple(own.words))


def check_numbers(tensors: Mapping[str, Tensor], tokens: Mapping[str, Pieces]) -> None:
    """Kinds of numbers as a run writes them, and weights that have their pieces."""
    for name, tensor in tensors.items():
        kind = torch.bool if name.endswith(".mask") else torch.int64 if name == "lens.ids" else torch.float32
        if tensor.dtype != kind or 0 in tensor.shape:
            raise ValueError(f"{name} is empty or of {tensor.dtype}, not {kind}")
        if name.endswith(DRAWN) and not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds what is no number")
        if name.endswith(".weights"):
            sides = {"source"} if name.startswith("encoder") else {"target"}
            if not sides | ({"source"} if name.endswith("cross.weights") else set()) <= tokens.keys():
                raise ValueError(f"{name} has no pieces")
    if "logits" in tensors and "output" in tokens:
        rows, words = tensors["logits"].shape
        if rows != len(tokens["output"]) or max(tokens["output"].ids, default=0) >= words:
            raise ValueError("the logits do not fit the output")
    both = [len(tokens[side]) if side in tokens else 0 for side in ("target", "output")]
    if both[0] != both[1]:
        raise ValueError("target and output are of different lengths")


def short(error: object) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        error = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    text = " ".join(str(error).split())
    return text if len(text) <= 120 else f"{text[:117]}..."
