"""Embed texts, pictures and sounds: texts of similar meaning get vectors of similar direction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from regard.batch import Batch
from regard.config.reading import parse_json, read_bytes
from regard.errors import UsageError
from regard.generation import answers
from regard.inputs.frames import FrameReader
from regard.inputs.text import Tokenizer
from regard.sample import Sample
from regard.storage import read_json
from regard.storage.files import Json, check_files
from regard.storage.folder import BareEncoder
from regard.storage.weights import read_safetensors
from regard.tasks.encoder import TOKENS_PER_BATCH
from regard.tasks.media import frame_batches
from regard.tasks.methods import EmbedMethods
from regard.tasks.results import Embedding
from regard.tasks.task_model import TooLong, within_limit

Vector = NDArray[np.float32]


class Embedder(EmbedMethods):
    """A BERT, with or without a head, that embeds texts; a ViT or AST, that embeds pictures or sounds."""

    def __init__(self, body: BareEncoder, precision: str = "auto") -> None:
        self.path, self.model, self.config, self.body = body.path, body.model, body.config, body
        self.use_engines([body], precision)
        self.device = next(body.model.parameters()).device
        self.reads_files = not isinstance(body.input, Tokenizer)
        if self.reads_files:  # the model pools: the class token, or the mean
            self.pooling, self.width = Pooling(configured=True), body.config.width
            return
        self.tokenizer = body.source
        self.pooling = read_pooling(body.home)
        limit = min(body.config.max_length, self.pooling.longest or body.config.max_length)
        self.longest = limit - 2  # without start and end token
        self.width = self._width(body)

    def _width(self, body: BareEncoder) -> int:
        """The width of a vector; modules that do not fit together are reported here."""
        try:
            blank = torch.zeros(1, 1, body.config.width, device=self.device)
            return self.pooling(blank, torch.ones(1, 1, dtype=torch.bool, device=self.device)).shape[1]
        except RuntimeError as error:
            raise UsageError(
                f"{body.home / 'modules.json'}: its modules do not fit together or to the model's width "
                f"{body.config.width} ({str(error).splitlines()[0]})"
            ) from None

    @property
    def reader(self) -> FrameReader:
        return self.body.reader

    def _embed(self, texts: Sequence[Any], on_too_long: TooLong, first_line: int) -> list[Embedding]:
        if self.reads_files:
            return self._embed_files(texts, on_too_long, first_line)
        rows = [self.encode(each, on_too_long, number) for number, each in enumerate(texts, first_line)]
        samples = [self.sample(ids) for ids in rows if ids is not None]
        vectors = iter(answers(self.vectors_of, samples, TOKENS_PER_BATCH, self.device))
        return [
            Embedding(each, None, skipped=True, precision=self.precision)
            if ids is None
            else Embedding(
                each, next(vectors)[0].numpy(), truncated=len(ids) > self.longest, precision=self.precision
            )
            for each, ids in zip(texts, rows)
        ]

    def _embed_files(self, files: Sequence[Any], on_too_long: TooLong, first: int) -> list[Embedding]:
        results = []
        for batch in frame_batches(self.reader, files, on_too_long, first):
            samples = [each.sample for each in batch if each.frames is not None]
            vectors = iter(answers(self.model, samples, TOKENS_PER_BATCH, self.device))
            results += [
                Embedding(each.name, None, skipped=True, precision=self.precision)
                if each.frames is None
                else Embedding(
                    each.name,
                    next(vectors)[0].float().numpy(),
                    truncated=each.truncated,
                    precision=self.precision,
                )
                for each in batch
            ]
        return results

    def vectors(self, texts: Sequence[Any], on_too_long: TooLong = "truncate") -> Vector:
        """The vectors of texts or files as one array [texts, width]; the row of a skipped one is NaN."""
        return self.as_array(self.embed(list(texts), on_too_long=on_too_long))

    def as_array(self, embeddings: Sequence[Embedding]) -> Vector:
        blank = np.full(self.width, np.nan, dtype=np.float32)
        rows = [blank if each.vector is None else each.vector for each in embeddings]
        return np.stack(rows) if rows else np.empty((0, self.width), dtype=np.float32)

    def encode(self, text: str, on_too_long: TooLong, number: int) -> list[int] | None:
        """The token ids of a text, None for one to skip."""
        whole = self.pooling.prompt + text
        ids = self.tokenizer.encode(whole.lower() if self.pooling.lowercase else whole)
        return within_limit(ids, self.longest, on_too_long, number)

    def sample(self, ids: Sequence[int]) -> Sample:
        return Sample(source=[self.tokenizer.start, *ids[: self.longest], self.tokenizer.end])

    def vectors_of(self, batch: Batch) -> Tensor:
        """[B,S] -> [B,1,W]."""
        if batch.source is None:
            raise ValueError("an embedding needs a source")
        states = self.model(batch).float()  # [B,S,D]
        return self.pooling(states, batch.source.positions >= 0).unsqueeze(1)


def similarity(one: Vector, other: Vector) -> float:
    """Cosine similarity a.b / (|a| |b|); 0 if a vector is zero."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / length if length else 0.0


# --- pooling ----------------------------------------------------------------------------------------------
# Pooling of hidden states to the vector of a text, from the sentence-transformers files of a folder.
# modules.json lists the modules (Transformer, Pooling, then any of Dense and Normalize), each with a folder
# for its config.

Step = Callable[[Tensor], Tensor]  # [B,W] -> [B,W']


def first(x: Tensor, real: Tensor) -> Tensor:
    return x[:, 0]


def highest(x: Tensor, real: Tensor) -> Tensor:
    """max_s x_s, channel by channel."""
    return x.masked_fill(~real.unsqueeze(2), -torch.inf).amax(dim=1)


def mean(x: Tensor, real: Tensor) -> Tensor:
    """(sum_s x_s) / S."""
    return total(x, real) / real.sum(dim=1, keepdim=True)


def mean_by_root(x: Tensor, real: Tensor) -> Tensor:
    """(sum_s x_s) / sqrt(S)."""
    return total(x, real) / real.sum(dim=1, keepdim=True).sqrt()


def weighted_mean(x: Tensor, real: Tensor) -> Tensor:
    """(sum_s s x_s) / (sum_s s), where the first token has s = 1."""
    weights = real * torch.arange(1, real.shape[1] + 1, device=real.device)  # [B,S]
    return (weights.unsqueeze(2) * x).sum(dim=1) / weights.sum(dim=1, keepdim=True)


def last(x: Tensor, real: Tensor) -> Tensor:
    return x[torch.arange(len(x), device=x.device), real.sum(dim=1) - 1]


def total(x: Tensor, real: Tensor) -> Tensor:
    return x.masked_fill(~real.unsqueeze(2), 0.0).sum(dim=1)


# x [B,S,D], real [B,S] (not padding) -> [B,D]; several are concatenated in this order
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": first,
    "max": highest,
    "mean": mean,
    "mean_sqrt_len_tokens": mean_by_root,
    "weightedmean": weighted_mean,
    "lasttoken": last,
}
FLAGS = {  # their names in config.json
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "Identity": nn.Identity,
    "Tanh": nn.Tanh,
    "ReLU": nn.ReLU,
    "GELU": nn.GELU,
    "Sigmoid": nn.Sigmoid,
}


@dataclass(frozen=True)
class Pooling:
    """From the hidden states of a text to its vector, and how the text is preprocessed."""

    modes: tuple[str, ...] = ("mean",)
    after: tuple[Step, ...] = ()
    normalised: bool = False
    configured: bool = False  # by the folder; else the mean, which most such models were trained with
    longest: int | None = None  # tokens with start and end
    lowercase: bool = False
    prompt: str = ""  # prefix of every text

    def __call__(self, x: Tensor, real: Tensor) -> Tensor:
        """[B,S,D] -> [B,W]."""
        out = torch.cat([POOLINGS[mode](x, real) for mode in self.modes], dim=1)
        for step in self.after:
            out = step(out)
        return out

    def __str__(self) -> str:
        return " + ".join(self.modes) + (", length 1" if self.normalised else "")


def read_pooling(home: Path) -> Pooling:
    """The pooling that a folder configures; the mean over all tokens if it has no such files."""
    modes: tuple[str, ...] | None = None
    after: list[Step] = []
    normalised = False
    prompt = read_prompt(home)
    for kind, folder in modules(home):
        if kind == "Pooling" and modes is None:
            modes = read_modes(folder / "config.json", bool(prompt))
        elif kind == "Dense" and modes is not None:
            after.append(read_dense(folder))
        elif kind == "Normalize" and modes is not None:
            after.append(functional.normalize)  # x / |x|
            normalised = True
        elif kind != "Transformer" or folder != home:
            raise UsageError(
                f"{home / 'modules.json'}: the module {kind} in {folder.name} is not supported "
                "(Transformer in the folder itself, Pooling, then Dense and Normalize)"
            )
    longest, lowercase = read_preprocessing(home)
    return Pooling(
        modes or ("mean",), tuple(after), normalised, modes is not None, longest, lowercase, prompt
    )


def modules(home: Path) -> Iterator[tuple[str, Path]]:
    """The modules in order: their kind, and the folder of their config."""
    file = home / "modules.json"
    if not file.is_file():
        return
    try:
        content = parse_json(read_bytes(file).decode())
        listed = [(str(each["type"]).split(".")[-1], each["path"]) for each in content]
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise UsageError(f"{file}: cannot be read as a list of modules ({error})") from None
    for kind, part in listed:
        if not isinstance(part, str) or part in (".", "..") or set(part) & set("/\\:\0"):
            raise UsageError(
                f"{file}: the module {kind} has the path {part!r}, which is not a folder beside it"
            )
        if part and (home / part).is_dir():
            check_files(home / part)
        yield kind, home / part


def read_modes(file: Path, prompted: bool) -> tuple[str, ...]:
    content = read_json(file)
    named = content.get("pooling_mode")
    listed = [named] if isinstance(named, str) else list(named or ())
    modes = {str(mode) for mode in listed} or {FLAGS[flag] for flag in FLAGS if content.get(flag)}
    unknown = sorted(modes - POOLINGS.keys()) or sorted(
        key
        for key, value in content.items()
        if key.startswith("pooling_mode_") and value and key not in FLAGS
    )
    if unknown:
        raise UsageError(f"{file}: the pooling {unknown[0]} is not supported ({', '.join(POOLINGS)})")
    if not modes:
        raise UsageError(f"{file}: no pooling is set; set one, such as pooling_mode_mean_tokens, to true")
    if prompted and content.get("include_prompt") is False:
        raise UsageError(f"{file}: include_prompt = false is not supported")
    return tuple(mode for mode in POOLINGS if mode in modes)


def read_dense(folder: Path) -> Step:
    """act(W x + b)."""
    file = folder / "config.json"
    content = read_json(file)
    name = str(content.get("activation_function", "torch.nn.modules.activation.Tanh")).split(".")[-1]
    if name not in ACTIVATIONS:
        raise UsageError(f"{file}: activation_function {name!r} is not supported ({', '.join(ACTIVATIONS)})")
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise UsageError(f"{folder}: the module Dense has no model.safetensors, and Regard opens no pickles")
    tensors = {name: tensor.float() for name, tensor in read_safetensors(weights).items()}
    matrix, bias = tensors.pop("linear.weight", None), tensors.pop("linear.bias", None)
    shape = (content.get("out_features"), content.get("in_features"))
    if matrix is None or tensors or tuple(matrix.shape) != shape:
        raise UsageError(
            f"{weights}: must hold linear.weight of shape {list(shape)} and linear.bias, nothing else"
        )
    activation = ACTIVATIONS[name]()

    def dense(x: Tensor) -> Tensor:
        b = None if bias is None else bias.to(x.device)
        y: Tensor = activation(functional.linear(x, matrix.to(x.device), b))
        return y

    return dense


def read_preprocessing(home: Path) -> tuple[int | None, bool]:
    """(maximum length in tokens with start and end, True if texts are lowercased)."""
    file = home / "sentence_bert_config.json"
    content = read_json(file) if file.is_file() else {}
    longest = content.get("max_seq_length")
    if longest is not None and (not isinstance(longest, int) or isinstance(longest, bool) or longest < 3):
        raise UsageError(f"{file}: max_seq_length = {longest!r} is not a length (3 or more)")
    return longest, bool(content.get("do_lower_case", False))


def read_prompt(home: Path) -> str:
    """The default prompt of a folder, a prefix of every text; empty if it has none."""
    file = home / "config_sentence_transformers.json"
    content: Json = read_json(file) if file.is_file() else {}
    name, prompts = content.get("default_prompt_name"), content.get("prompts")
    if name is None:
        return ""
    if not isinstance(prompts, dict) or not isinstance(prompts.get(name), str):
        raise UsageError(f"{file}: default_prompt_name {name!r} is not among its prompts")
    return str(prompts[name])
