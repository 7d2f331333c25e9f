"""The content of a trace: tensors by name, tokens, output and beam search; and attention read from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Literal

from pydantic import ConfigDict
from torch import Tensor

from regard.errors import UsageError, near_miss
from regard.generation.alignment import Links, links
from regard.inputs.text import Tokenizer
from regard.interpret.readings import (
    entropy,
    mean_distance,
    rollout,
    rollout_across,
    value_weighted,
    word_attention,
)
from regard.resources import read_data

_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
FORMAT = 1  # of files
MEAN = "mean"  # in place of a head's number
CAVEATS: Mapping[str, str] = read_data("trace")["caveats"]
STRICT = ConfigDict(strict=True, extra="forbid")  # for reading files, see trace.py


# Tokens


@dataclass(frozen=True)
class TracedTokens:
    """For each token: its id, its text (with a leading space) and the number of its word, -1 for none."""

    __pydantic_config__ = STRICT
    ids: tuple[int, ...]
    texts: tuple[str, ...]
    words: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, ids: Sequence[int]) -> TracedTokens:
        return cls(tuple(ids), tuple(tokenizer.tokens(ids)), tuple(tokenizer.words(ids)))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The texts for display: without leading space, control characters replaced by symbols."""
        return tuple(visible(text) for text in self.texts)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The token positions of each word, in order; a token of no word is a group of its own."""
        groups: dict[tuple[str, int], list[int]] = {}
        for place, word in enumerate(self.words):
            groups.setdefault(("word", word) if word >= 0 else ("token", place), []).append(place)
        return tuple(tuple(places) for places in groups.values())

    @cached_property
    def group_texts(self) -> tuple[str, ...]:
        """The text of each group; WordPiece continuations lose their `##`."""

        def text(places: Sequence[int]) -> str:
            first, *rest = (self.texts[place] for place in places)
            return first + "".join(each[2:] if re.match("##.", each) else each for each in rest)

        return tuple(visible(merge_bytes(text(places))) for places in self.groups)

    @property
    def word_groups(self) -> list[tuple[int, ...]]:
        """The token positions of each word; tokens of no word are left out."""
        return [places for places in self.groups if self.words[places[0]] >= 0]

    @property
    def word_texts(self) -> list[str]:
        texts = dict(zip(self.groups, self.group_texts))
        return [texts[group] for group in self.word_groups]

    def as_json(self) -> dict[str, Any]:
        return {"ids": list(self.ids), "texts": list(self.texts), "words": list(self.words)}


def merge_bytes(text: str) -> str:
    """Decode runs of byte tokens (`<0xD7><0xA9>`) that form whole characters."""

    def decode(match: re.Match[str]) -> str:
        try:
            return bytes.fromhex(match[0].replace("<0x", "").replace(">", "")).decode()
        except UnicodeDecodeError:
            return match[0]

    return _BYTES.sub(decode, text)


def visible(text: str) -> str:
    """A text for display: symbols for control characters, and for white space that stands alone."""

    def symbol(match: re.Match[str]) -> str:
        code = ord(match[0])
        if match[0] == "\n":
            return "\u21b5"  # common fonts have this arrow, and not the symbol of a line feed
        return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"

    return _CONTROL.sub(symbol, text.strip(" ") or ("\u2423" if text else ""))  # an open box for a space


# The search

Fate = Literal["kept", "pruned", "finished"]


@dataclass(frozen=True)
class Node:
    """A token of the beam search tree. `log_p` is its log-probability, `score` the sum up to here."""

    __pydantic_config__ = STRICT
    number: int
    step: int  # from 0
    parent: int  # the number of a node; -1 for the first token
    token: int
    text: str
    log_p: float
    score: float
    fate: Fate
    best: bool = False  # on the path to the output

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


# The run


@dataclass(frozen=True)
class Activations:
    """`tokens` has up to three sides: `source` (encoder input), `target` (decoder input) and `output` (what
    the decoder predicts at each target position). docs/trace.md lists the names of the tensors."""

    tensors: Mapping[str, Tensor]
    tokens: Mapping[str, TracedTokens]
    output: str  # the translation, the continuation, the filled text, the label ...
    meta: Mapping[str, Any] = field(default_factory=dict)  # JSON values
    beam: tuple[Node, ...] = ()  # nodes of the beam search, if there was one
    vocabulary: Mapping[int, str] = field(default_factory=dict)  # texts of the token ids in the trace

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors.get(name)
        if tensor is None:
            near = near_miss(name, self.tensors)
            raise UsageError(f'"{name}" is not in this trace{near}; trace.names() lists the tensors')
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def names(self, pattern: str = "*") -> list[str]:
        """The names that match a pattern such as `decoder.*.cross.*`, in the order of the run."""
        return [name for name in self.tensors if fnmatchcase(name, pattern)]

    def word(self, number: int) -> str:
        """The text of a token id; available for the best tokens of each position."""
        return self.vocabulary.get(number, f"<id {number}>")

    def log_probabilities(self) -> list[float]:
        """log p of each output token."""
        if "output" not in self.tokens:
            raise UsageError("this model generates no text, so there are no output tokens")
        log_p = self["logits"].log_softmax(dim=-1)
        return [float(log_p[step, token]) for step, token in enumerate(self.tokens["output"].ids)]

    @property
    def attentions(self) -> list[str]:
        """The attentions whose weights are in the trace: `encoder.0.self`, `decoder.3.cross` ..."""
        return [name.removesuffix(".weights") for name in self.names("*.weights")]

    def weights(self, where: str, head: int | None = None, weighted: bool = False) -> Tensor:
        """[H,T,S] of an attention, or [T,S] of a head; `weighted` by the norms of the values."""
        if f"{where}.weights" not in self:
            names = ", ".join(self.attentions) or "none"
            raise UsageError(f'there is no attention "{where}" in this trace: it has {names}')
        weights = self[f"{where}.weights"]
        if weighted:
            weights = value_weighted(weights, self[f"{where}.value_norms"])
        if head is None:
            return weights
        if not 0 <= head < len(weights):
            raise UsageError(f"head = {head}: {where} has {head_count(len(weights))}")
        return weights[head]

    def sides(self, where: str) -> tuple[TracedTokens, TracedTokens]:
        """The tokens of an attention's queries and keys."""
        if where.endswith("cross"):
            return self.tokens["target"], self.tokens["source"]
        tokens = self.tokens["source" if where.startswith("encoder") else "target"]
        return tokens, tokens

    def word_weights(self, where: str, head: int | None = None) -> Tensor:
        """Attention from word to word: sub-words merged."""
        queries, keys = self.sides(where)
        return word_attention(self.weights(where, head), queries.groups, keys.groups)

    def rollout(self) -> Tensor:
        """Attention rollout through all layers, [T,S]; of an encoder-decoder the shares of the source."""
        encoder, decoder, cross = ([self.weights(name) for name in names] for names in self.rollout_layers())
        return rollout_across(rollout(encoder), decoder, cross)[0] if cross else rollout(encoder or decoder)

    def rollout_layers(self) -> tuple[list[str], list[str], list[str]]:
        """The attentions of a rollout: encoder self-attention, decoder self-attention, cross-attention."""
        cross = [name for name in self.attentions if name.endswith(".cross")]
        self_attentions = [name for name in self.attentions if name.endswith(".self")]
        encoder = [name for name in self_attentions if name.startswith("encoder.")]
        decoder = [name for name in self_attentions if name not in encoder]
        if not self_attentions:
            raise UsageError("a rollout needs self-attention, which this trace does not have")
        complete = encoder and cross and decoder == [name.replace(".cross", ".self") for name in cross]
        if {"source", "target"} <= self.tokens.keys() and not complete:
            raise UsageError("a rollout needs the weights of all attentions; trace without only=")
        return encoder, decoder, cross

    def attention_name(self, where: str | None = None, layer: int | None = None) -> str:
        """The attention that `where` (`decoder.3.cross`, or a kind such as `cross`) and `layer` select.

        By default the cross-attention (else self-attention) of the second-to-last layer.
        """
        names = self.attentions
        if not names:
            raise UsageError("there is no attention in this trace")
        if where in names:
            return str(where)
        kind = where or ("cross" if any(name.endswith("cross") for name in names) else "self")
        side, _, last = kind.rpartition(".")
        candidates = [name for name in names if name.endswith(last) and name.startswith(side)]
        if not candidates:
            raise UsageError(f'there is no attention "{where}" in this trace: it has {", ".join(names)}')
        if layer is None or candidates == ["decoder.cross"]:
            return candidates[max(0, len(candidates) - 2)]
        layers = {int(name.split(".")[1]): name for name in reversed(candidates)}
        if layer not in layers:
            stack, count = candidates[-1].split(".")[0], 1 + max(layers)
            raise UsageError(
                f"layer = {layer}: the {stack} has {count} layers with such attention, 0 to {count - 1}"
            )
        return layers[layer]

    def default_step(self, where: str) -> int:
        """The query that is shown if none is chosen."""
        return len(self.sides(where)[0]) // 2

    def query_labels(self, where: str) -> tuple[str, ...]:
        """The rows of an attention: of a decoder, the token a position has read and the one it writes."""
        queries = self.sides(where)[0]
        output = self.tokens.get("output")
        if where.startswith("encoder") or output is None:
            return queries.shown
        given = int(self.meta.get("prompt") or 1) - 1  # positions whose next token was given
        verbs = ("reads" if position < given else "writes" for position in range(len(queries)))
        return tuple(
            f"after {x}, {verb} {y}" for x, verb, y in zip(queries.shown, verbs, output.shown, strict=True)
        )

    def cross(self, layer: int | None = None) -> str:
        """The cross-attention for alignments: of a layer, by default of the second-to-last."""
        if not any(name.endswith("cross") for name in self.attentions):
            raise UsageError("this model has no cross-attention: there is no source to align with")
        return self.attention_name("cross", layer)

    def alignment_weights(self, layer: int | None = None, head: int | None = None) -> Tensor:
        """[target words, source words] at the step that predicts the word; mean over heads without `head`."""
        where = self.cross(layer)
        weights = self.weights(where).mean(dim=0) if head is None else self.weights(where, head)
        return word_attention(weights, self.tokens["output"].word_groups, self.tokens["source"].word_groups)

    def alignment(self, layer: int | None = None, head: int | None = None) -> Links:
        """(source word, target word) for each target word; `pharaoh` formats them."""
        return links(self.alignment_weights(layer, head))

    def head_statistics(self) -> dict[str, Tensor]:
        """[H] for each attention: entropy of its heads in bits (`.entropy`), mean distance in tokens."""
        statistics: dict[str, Tensor] = {}
        for where in self.attentions:
            weights = self.weights(where)
            statistics |= {f"{where}.entropy": entropy(weights), f"{where}.distance": mean_distance(weights)}
        return statistics

    def as_json(self) -> dict[str, Any]:
        """All but the numbers: the metadata of a file."""
        return {
            "format": FORMAT,
            "output": self.output,
            "tensors": [
                {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
                for name, tensor in self.tensors.items()
            ],
            "tokens": {side: tokens.as_json() for side, tokens in self.tokens.items()},
            "meta": dict(self.meta),
            "beam": [node.as_json() for node in self.beam],
            "vocabulary": {str(number): text for number, text in self.vocabulary.items()},
        }


def head_count(heads: int) -> str:
    return "one head, 0" if heads == 1 else f"{heads} heads, 0 to {heads - 1}"


# Attention as a matrix with labels


@dataclass(frozen=True)
class AttentionMatrix:
    """[T,S] with the texts of its rows and columns; `places` are the positions of their first tokens."""

    values: Tensor
    rows: Sequence[str]
    columns: Sequence[str]
    places: tuple[list[int], list[int]]
    special: tuple[list[int], list[int]]  # rows and columns of no word, such as the end token
    caveats: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """All but the values."""
        return {
            "rows": list(self.rows),
            "columns": list(self.columns),
            "places": list(self.places),
            "special": list(self.special),
            "honest": list(self.caveats),
        }


def attention_matrix(
    run: Activations, kind: str, where: str = "", head: int | str = MEAN, words: bool = False
) -> AttentionMatrix:
    """`weights` or `value_norm` of a head (or the mean of all), or the `rollout` of the run."""
    if kind == "rollout":
        values, cross = run.rollout(), [name for name in run.attentions if name.endswith(".cross")]
        where = cross[0] if cross else run.attentions[0]
    elif kind not in ("weights", "value_norm"):
        raise UsageError(f'there is no reading "{kind}": weights, value_norm, rollout, heads')
    elif kind == "value_norm" and f"{where}.weights" in run and f"{where}.value_norms" not in run:
        raise UsageError(f"{where}: the norms of its values are not in this trace")
    else:
        weights = run.weights(where, None if head == MEAN else int(head), kind == "value_norm")
        values = weights.mean(dim=0) if head == MEAN else weights
    caveats = [CAVEATS["mean" if kind == "weights" and head == MEAN else kind]]
    queries, keys = run.sides(where)
    rows, columns = run.query_labels(where), keys.shown
    places = list(range(len(queries))), list(range(len(keys)))
    if words:
        values = word_attention(values, queries.groups, keys.groups)
        rows, columns = queries.group_texts, keys.group_texts
        places = [group[0] for group in queries.groups], [group[0] for group in keys.groups]
        caveats.append(CAVEATS["words"])
    special = (
        [row for row, place in enumerate(places[0]) if queries.words[place] < 0],
        [column for column, place in enumerate(places[1]) if keys.words[place] < 0],
    )
    return AttentionMatrix(values, rows, columns, places, special, caveats)
