"""A model as the page's own engine reads it (web/js/engine): its parts, their weights, and its tokenizer.

The engine knows parts (attention, norms, positions, cells), not families: what a family is made of is read
from the modules of the opened model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard import __version__
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.inputs.text.byte_level import ByteLevelTokenizer
from regard.inputs.text.spans import ANY, SPAN
from regard.interpret.names import attention_shapes
from regard.models.attention import MultiHeadAttention
from regard.models.encoder import EncoderOnly, SentenceHead, WordHead
from regard.models.layers import (
    ACTIVATIONS,
    Dropout,
    FeedForward,
    GatedFeedForward,
    Linear,
    PostNorm,
    PreNorm,
    RMSNorm,
    Scale,
)
from regard.models.positions import (
    Alibi,
    Learned,
    RelativeBias,
    Rotary,
    Sinusoidal,
    TokenEmbedding,
)
from regard.models.recurrent import GRU, LSTM, AdditiveScore, Cell, DotScore, RecurrentEncoderDecoder
from regard.models.transformer import Block, CausalDecoder, EncoderDecoder, Stack
from regard.tasks import Answerer, Filler, Generator
from regard.tasks.translator import Translator

PYTHON_SPACE = r"\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # what \s is in Python
LARGEST = 40 << 20  # bytes of weights as they are sent
LARGEST_IN_FILE = 16 << 20  # in a page that is one file
# The interventions of web/js/engine/edits.js. It cannot change single numbers or run a second text.
INTERVENTIONS = (
    "zero_head",
    "uniform",
    "drop_scale",
    "drop_positions",
    "unmask_future",
    "replace_token",
)
Part = Any  # JSON values; a weight is {"tensor": name}
HEAD_ACTIVATIONS = {torch.tanh: "tanh", torch.relu: "relu"} | {act: name for name, act in ACTIVATIONS.items()}


@dataclass(frozen=True)
class BrowserModel:
    """What the engine needs of a model: its description and its weights."""

    about: Mapping[str, Any]
    weights: Mapping[str, Tensor]

    @property
    def size(self) -> int:
        """Bytes of the weights."""
        return sum(weight.nbytes for weight in self.weights.values())


def browser_model(
    name: str, task: Any, interventions: Mapping[str, Any], largest: int | None = None
) -> BrowserModel:
    """A model that the engine cannot run is an error. `interventions`: what the page offers."""
    folder = task.folder
    if folder.task.input != "text":
        raise UsageError(
            f"{name}: a static page runs models of text; this one reads files", code="E_SITE_MODEL"
        )
    for tokenizer in (folder.source, folder.target):
        if not isinstance(tokenizer, ByteLevelTokenizer):
            raise UsageError(
                f"{name}: a static page has the tokenizers that Regard trains; this model has another",
                code="E_SITE_MODEL",
            )
    parts = ModelParts(folder.model)
    kind, described = parts.model(folder.model)
    about = {
        "name": name,
        "kind": kind,
        "parts": described,
        "tokenizer": tokenizer_json(folder.source),
        "target": None if folder.target is folder.source else tokenizer_json(folder.target),
        "interventions": interventions,
        "versions": {"regard": __version__, "torch": torch.__version__},
        **settings(task),
    }
    weights = {name: smallest(weight.detach()) for name, weight in parts.weights.items()}
    model = BrowserModel(about, weights)
    most = LARGEST if largest is None else largest
    if model.size > most:
        sizes = f"{model.size / 1e6:.0f} MB; a page runs models of up to {most / 1e6:.0f} MB"
        raise UsageError(f"{name}: its weights take {sizes}", code="E_SITE_LARGE")
    return model


def smallest(weight: Tensor) -> Tensor:
    """float16 where it holds the same numbers, else float32."""
    wide = weight.float().cpu().contiguous()
    half = wide.half()
    return half if bool((half.float() == wide).all()) else wide


def settings(task: Any) -> dict[str, Any]:
    """What the task adds to its model: limits, options, labels."""
    folder, config = task.folder, task.folder.config
    special, scales = (
        vars_of(folder.special),
        {each.scale for each in attention_shapes(folder.model).values()},
    )
    target = None if isinstance(folder.model, EncoderOnly) else folder.model.longest_target
    if isinstance(task, Translator) and task.source_ids([0]) != [0, folder.source.end]:
        message = f"{folder.path}: a static page puts only the end token around a text"
        raise UsageError(message, code="E_SITE_MODEL")
    placeholders = task.objective.placeholders if isinstance(task, Translator) else 0
    limits = {"translate": 1, "generate": 0}.get(folder.task.name, 2)
    decode = task.decode if isinstance(task, Generator) else folder.decode
    content = decode.model_dump(mode="json")
    if isinstance(task, Filler):
        content |= {"beam": 5, "sample": False}
    return {
        "task": folder.task.name,
        "family": config.family,
        "head": config.head,
        "many": folder.task.multi_label,
        "labels": list(folder.labels),
        "config": config.model_dump(mode="json"),
        "special": special,
        "decode": content,
        "prefix": task.source_prefix if isinstance(task, Translator) else "",
        "longest": config.max_length - limits,
        "max_length": config.max_length,
        "longest_target": target,
        "scale": next(iter(scales - {None}), 1.0),
        "spaced": task.cutter.spaced if isinstance(task, Filler) else False,
        "may_refuse": folder.may_refuse,
        "longest_answer": folder.task.longest_answer if isinstance(task, Answerer) else 0,
        "spans": {"any": js_pattern(ANY), "span": js_pattern(SPAN)} if placeholders else None,
        "placeholders": placeholders,
    }


def js_pattern(pattern: re.Pattern[str]) -> str:
    """A pattern of Python as JavaScript reads it with the flag u: letters and digits of all scripts, no
    possessive repeats (they only save time here)."""
    word, digit, space = r"\p{L}\p{N}_", r"\p{Nd}", PYTHON_SPACE
    inside = False  # a class in brackets
    parts = []
    for part in re.findall(r"\\U[0-9A-Fa-f]{8}|\\.|\(\?P<|[*+}]\+|.", pattern.pattern, re.DOTALL):
        if part in ("[", "]"):
            inside = part == "["
        elif part in (r"\w", r"\d", r"\s"):
            signs = {"w": word, "d": digit, "s": space}[part[1]]
            part = signs if inside else f"[{signs}]"
        elif part in (r"\S", r"\b"):
            part = (
                f"[^{space}]" if part == r"\S" else f"(?:(?<=[{word}])(?![{word}])|(?<![{word}])(?=[{word}]))"
            )
        elif part.startswith(r"\U"):
            part = rf"\u{{{part[2:].lstrip('0')}}}"
        elif part == "(?P<":
            part = "(?<"
        elif len(part) == 2 and part[1] == "+" and not inside:
            part = part[0]
        elif part in ('\\"', r"\'", r"\-", r"\#"):
            part = part if part == r"\-" and inside else part[1]
        parts.append(part)
    return "".join(parts)


def vars_of(special: Any) -> dict[str, Any]:
    return {name: getattr(special, name) for name in special.__dataclass_fields__}


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of a tokenizer, without what other programs need."""
    content = json.loads(tokenizer.to_json())
    model, names = content["model"], [""] * len(tokenizer)
    vocabulary = ((name, number) for number, (name, _) in enumerate(model["vocab"]))
    for name, number in vocabulary if model["type"] == "Unigram" else model["vocab"].items():
        names[number] = name
    for each in content["added_tokens"]:
        names[each["id"]] = each["content"]
    merges = [each if isinstance(each, str) else " ".join(each) for each in model.get("merges", [])]
    return {
        "model": model["type"],
        "names": names,
        "merges": merges,
        "scores": [score for _, score in model["vocab"]] if model["type"] == "Unigram" else [],
        "ignore_merges": bool(model.get("ignore_merges")),
        "whole": content["normalizer"] is None,
        "added": sorted(each["id"] for each in content["added_tokens"]),
        "placeholders": list(tokenizer.placeholders),
        "start": tokenizer.start,
        "end": tokenizer.end,
        "mask": tokenizer.mask,
        "unknown": tokenizer.unknown,
        "sentinels": list(tokenizer.sentinels),
        "suppressed": list(tokenizer.suppressed),
        "separators": tokenizer.separators,
        "adds_start": tokenizer.adds_start,
    }


class ModelParts:
    """Describes modules; `weights` are those that were named, tied ones once."""

    def __init__(self, model: nn.Module) -> None:
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}
        self.weights: dict[str, Tensor] = {}

    def weight(self, parameter: Tensor | None) -> Part:
        if parameter is None:
            return None
        name = self.names[id(parameter)]
        self.weights[name] = parameter
        return {"tensor": name}

    def model(self, model: Any) -> tuple[str, Part]:
        match model:
            case EncoderDecoder():
                encoder = {"source": self.part(model.source), "encoder": self.part(model.encoder)}
                return "decoder", encoder | self.decoder(model)
            case CausalDecoder():
                return "decoder", self.decoder(model)
            case RecurrentEncoderDecoder():
                return "recurrent", self.recurrent(model)
        names = ("source", "encoder", "head", "output")
        pool = None if model.pool is None else model.pool.__name__
        return "encoder", {"pool": pool, **{name: self.part(getattr(model, name)) for name in names}}

    def decoder(self, model: CausalDecoder) -> dict[str, Part]:
        return {name: self.part(getattr(model, name)) for name in ("target", "decoder", "output")}

    def part(self, module: Any) -> Part:
        """A module as JSON."""
        if module is None or isinstance(module, nn.Identity | Dropout):
            return None
        for kind, describe in DESCRIBE.items():
            if isinstance(module, kind):
                return describe(self, module)
        raise UsageError(f"a static page does not know {type(module).__name__}", code="E_SITE_MODEL")

    def linear(self, module: Linear) -> Part:
        return {"weight": self.weight(module.weight), "bias": self.weight(module.bias)}

    def norm(self, module: nn.LayerNorm | RMSNorm) -> Part:
        kind = "rms" if isinstance(module, RMSNorm) else "layer"
        bias = self.weight(getattr(module, "bias", None))
        return {"kind": kind, "weight": self.weight(module.weight), "bias": bias, "epsilon": module.eps}

    def scaled(self, module: nn.Sequential) -> Part:
        """A norm and a factor (T5), or Bahdanau's bridge: a linear map and tanh."""
        first, second = module
        described: dict[str, Part] = self.part(first)
        return described | ({"factor": second.factor} if isinstance(second, Scale) else {})

    def embedding(self, module: TokenEmbedding) -> Part:
        segments = None if module.segments is None else self.weight(module.segments.weight)
        return {
            "tokens": self.weight(module.tokens.weight),
            "factor": module.factor,
            "positions": self.part(module.positions),
            "segments": segments,
            "norm": self.part(module.norm),
        }

    def sinusoidal(self, module: Sinusoidal) -> Part:
        sizes = {name: getattr(module, name) for name in ("width", "first", "halves", "denominator")}
        return {"kind": "sinusoidal", **sizes}

    def learned(self, module: Learned) -> Part:
        return {"kind": "learned", "table": self.weight(module.table), "first": module.first}

    def rotary(self, module: Rotary) -> Part:
        return {"kind": "rotary", "frequencies": module.frequencies(torch.device("cpu")).tolist()}

    def relative(self, module: RelativeBias) -> Part:
        sizes = {name: getattr(module, name) for name in ("both_ways", "buckets", "farthest")}
        return {"kind": "relative", "table": self.weight(module.table.weight), **sizes}

    def alibi(self, module: Alibi) -> Part:
        return {"kind": "alibi", "slopes": module.slopes.tolist()}

    def attention(self, module: MultiHeadAttention) -> Part:
        layers = ("query", "key", "value", "output", "query_norm", "key_norm")
        scale = module.channels**-0.5 if module.scale is None else module.scale
        described = {name: self.part(getattr(module, name)) for name in layers}
        return {"heads": module.heads, "kv_heads": module.kv_heads, "scale": scale, **described}

    def feed_forward(self, module: FeedForward | GatedFeedForward) -> Part:
        gate = self.part(module.gate) if isinstance(module, GatedFeedForward) else None
        rest = {"up": self.part(module.up), "down": self.part(module.down)}
        return {"activation": HEAD_ACTIVATIONS[module.activation], "gate": gate, **rest}

    def residual(self, module: PostNorm) -> Part:
        return {"placement": "pre" if isinstance(module, PreNorm) else "post", "norm": self.part(module.norm)}

    def block(self, module: Block) -> Part:
        parts = ("attention", "cross", "feed_forward")
        names = [*parts, *(f"{part}_residual" for part in parts)]
        return {"parallel": module.parallel, **{name: self.part(getattr(module, name)) for name in names}}

    def stack(self, module: Stack) -> Part:
        return {
            "blocks": [self.part(block) for block in module],
            "final_norm": self.part(module.final_norm),
            "positions": self.part(module.positions),
            "window": module.window,
        }

    def head(self, module: WordHead | SentenceHead) -> Part:
        norm = self.part(getattr(module, "norm", None))
        activation = HEAD_ACTIVATIONS[module.activation]
        return {"dense": self.part(module.dense), "activation": activation, "norm": norm}

    def cell(self, module: LSTM | GRU) -> Part:
        kind = "lstm" if isinstance(module, LSTM) else "gru"
        layers = {"read": self.part(module.read), "recur": self.part(module.recur)}
        return {"kind": kind, "size": module.size, "parts": module.parts, **layers}

    def score(self, module: AdditiveScore | DotScore) -> Part:
        if isinstance(module, AdditiveScore):
            layers = {name: self.part(getattr(module, name)) for name in ("query", "key", "value")}
            return {"kind": "additive", **layers}
        return {"kind": "dot", "key": self.part(getattr(module, "key", None))}

    def recurrent(self, model: RecurrentEncoderDecoder) -> Part:
        encoder = cast(Iterable[Iterable[Cell]], model.encoder.layers)
        layers = [[self.part(cell) for cell in directions] for directions in encoder]
        return {
            "source": self.weight(model.source.weight),
            "target": self.weight(model.target.weight),
            "encoder": {"layers": layers, "reverse": model.encoder.reverse},
            "bridge": self.part(model.bridge),
            "layers": [self.part(cell) for cell in model.decoder.layers],
            "score": self.part(model.decoder.score),
            "readout": self.part(model.decoder.readout),
            "output": self.part(model.output),
        }


DESCRIBE: dict[Any, Callable[[ModelParts, Any], Part]] = {
    Linear: ModelParts.linear,
    nn.LayerNorm | RMSNorm: ModelParts.norm,
    nn.Sequential: ModelParts.scaled,
    TokenEmbedding: ModelParts.embedding,
    Sinusoidal: ModelParts.sinusoidal,
    Learned: ModelParts.learned,
    Rotary: ModelParts.rotary,
    RelativeBias: ModelParts.relative,
    Alibi: ModelParts.alibi,
    MultiHeadAttention: ModelParts.attention,
    FeedForward | GatedFeedForward: ModelParts.feed_forward,
    PostNorm: ModelParts.residual,
    Block: ModelParts.block,
    Stack: ModelParts.stack,
    WordHead | SentenceHead: ModelParts.head,
    LSTM | GRU: ModelParts.cell,
    AdditiveScore | DotScore: ModelParts.score,
}
