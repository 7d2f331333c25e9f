"""ONNX: Regard's models as graphs, and ONNX Runtime on them.

A graph takes ids and masks and gives logits; batch size and lengths are free. It is traced from Regard's own
modules on their plain path, which a tap selects. Modules with data-dependent branches are replaced.
"""

from __future__ import annotations

import copy
import logging
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import onnxruntime
import onnxscript  # noqa: F401  (torch.onnx.export needs it)
import torch
from torch import Tensor, nn

from regard.batch import Batch, Tokens, collate
from regard.export.check import CPU, GREEDY, Agreement, Reference, equal_share
from regard.export.sample import EncodedText, Ids
from regard.generation import answers
from regard.models.attention import visible
from regard.models.encoder import EncoderOnly
from regard.models.families import Model as AnyModel
from regard.models.layers import Linear
from regard.models.positions import Learned, Sinusoidal, TokenEmbedding
from regard.models.transformer import EncoderDecoder, LanguageModel
from regard.sample import Sample
from regard.storage import Folder

EXTERNAL_DATA = 1 << 28  # parameters; an ONNX file is limited to 2 GiB, larger weights are stored beside it
RANDOM_ROWS, RANDOM_BATCHES = 8, 4
Axes = dict[int, str]
ROWS: Axes = {0: "batch", 1: "length"}
SOURCE: Axes = {0: "batch", 1: "source_length"}
Array = npt.NDArray[Any]
M = TypeVar("M", bound=nn.Module)


# Modules for the graphs


class PlainTap:
    """A tap that only selects the plain path."""

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        return tensor

    def within(self, name: str) -> PlainTap:
        return self


PLAIN = PlainTap()


class ComputedSinusoidal(nn.Module):
    """`Sinusoidal` without a table, for any position."""

    def __init__(self, positions: Sinusoidal) -> None:
        super().__init__()
        self.waves = positions.waves

    def forward(self, positions: Tensor) -> Tensor:
        return self.waves(positions.clamp(min=0))


class UncheckedLearned(nn.Module):
    """`Learned` without its range check, which ONNX has too."""

    def __init__(self, positions: Learned) -> None:
        super().__init__()
        self.table = nn.Parameter(positions.table.detach()[positions.first :])

    def forward(self, positions: Tensor) -> Tensor:
        return self.table[positions.clamp(min=0)]


def traceable(model: AnyModel) -> AnyModel:
    """A copy without data-dependent branches."""
    copied = copy.deepcopy(model).eval()
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Sinusoidal):
                setattr(parent, name, ComputedSinusoidal(child))
            elif isinstance(child, Learned):
                setattr(parent, name, UncheckedLearned(child))
            elif isinstance(child, Linear):
                sizes = child.in_features, child.out_features, child.bias is not None
                linear = nn.Linear(*sizes, device="meta")
                linear.weight, linear.bias = child.weight, child.bias
                setattr(parent, name, linear)
    return copied


def positions_of(mask: Tensor) -> Tensor:
    """0, 1, 2... where the mask is 1, on whichever side the padding is; -1 where it is 0."""
    return (mask.cumsum(dim=1) - 1).masked_fill(mask == 0, -1)


class ModelGraph(nn.Module, Generic[M]):
    def __init__(self, model: M) -> None:
        super().__init__()
        self.model = model


class EncoderGraph(ModelGraph[EncoderDecoder]):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B,S] -> [B,S,D]."""
        return self.model.encode(Tokens(input_ids, positions_of(attention_mask)), PLAIN)


class DecoderGraph(ModelGraph[EncoderDecoder]):
    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> Tensor:
        """All tokens so far [B,T], the encoder's states [B,S,D] -> logits [B,T,V]."""
        model = self.model
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand(input_ids.shape)
        across = visible(positions, positions_of(encoder_attention_mask), causal=False)  # [B,1,T,S]
        memory = model.cross_keys_values(encoder_hidden_states)
        logits: Tensor = model.output(model.decode(Tokens(input_ids, positions), memory, across, PLAIN))
        return logits


class LanguageModelGraph(ModelGraph[LanguageModel]):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[B,T] -> [B,T,V]."""
        return self.model.forward(Batch(target=Tokens(input_ids, positions_of(attention_mask))), PLAIN)


class EncoderOnlyGraph(ModelGraph[EncoderOnly]):
    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """[B,S] -> [B,S,V], [B,S,labels], [B,1,labels] or [B,S,2]."""
        source = Tokens(input_ids, positions_of(attention_mask), segments=token_type_ids)
        return self.model.forward(Batch(source=source), PLAIN)


@dataclass(frozen=True)
class Graph:
    """A module with its inputs by name: an example of each, and its dynamic axes."""

    name: str  # of the file
    module: nn.Module
    inputs: dict[str, tuple[Tensor, Axes]]
    output: str = "logits"


def graphs_of(model: AnyModel) -> list[Graph]:
    model = traceable(model)
    # different sizes, none of them 1, which torch would take for fixed
    ids, target = torch.zeros((3, 7), dtype=torch.int64), torch.zeros((3, 5), dtype=torch.int64)
    mask = torch.ones_like(ids)
    inputs = {"input_ids": (ids, ROWS), "attention_mask": (mask, ROWS)}
    if isinstance(model, EncoderDecoder) and isinstance(model.source, TokenEmbedding):
        states = torch.zeros((*ids.shape, model.source.tokens.embedding_dim))
        decoder_inputs = {
            "input_ids": (target, ROWS),
            "encoder_hidden_states": (states, SOURCE),
            "encoder_attention_mask": (mask, SOURCE),
        }
        return [
            Graph("encoder", EncoderGraph(model), inputs, "encoder_hidden_states"),
            Graph("decoder", DecoderGraph(model), decoder_inputs),
        ]
    if isinstance(model, LanguageModel):
        return [Graph("model", LanguageModelGraph(model), inputs)]
    if isinstance(model, EncoderOnly):
        segments = torch.zeros_like(ids)  # a new tensor: one that is passed twice becomes one input
        return [Graph("model", EncoderOnlyGraph(model), inputs | {"token_type_ids": (segments, ROWS)})]
    raise ValueError(f"no graph for {type(model).__name__}")


def write(folder: Folder, place: Path, precision: str) -> None:
    """Write encoder.onnx and decoder.onnx, or model.onnx."""
    for graph in graphs_of(folder.model):
        with torch.no_grad(), quiet():
            torch.onnx.export(
                graph.module,
                tuple(example for example, _ in graph.inputs.values()),
                place / f"{graph.name}.onnx",
                dynamo=True,
                verbose=False,
                external_data=folder.parameters > EXTERNAL_DATA,
                input_names=list(graph.inputs),
                output_names=[graph.output],
                dynamic_shapes=tuple(axes for _, axes in graph.inputs.values()),
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's notes on optional packages and deprecated calls."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(before)


# The check


class OnnxModel:
    """ONNX Runtime on an exported folder."""

    def __init__(self, place: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.sessions = {
            path.stem: onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            for path in sorted(place.glob("*.onnx"))
        }

    def run(self, name: str, **inputs: Array | Tensor) -> Array:
        arrays = {key: np.asarray(each) for key, each in inputs.items()}
        output: Array = self.sessions[name].run(None, arrays)[0]
        return output

    def logits(self, samples: Sequence[Sample]) -> Array:
        """What `model.forward` gives for the samples as one batch."""
        batch = collate(samples)
        source, target = batch.source, batch.target
        if not isinstance(source, Tokens):
            assert target is not None
            return self.run("model", input_ids=target.ids, attention_mask=mask_of(target))
        if "encoder" in self.sessions and target is not None:
            mask = mask_of(source)
            states = self.run("encoder", input_ids=source.ids, attention_mask=mask)
            memory = {"encoder_hidden_states": states, "encoder_attention_mask": mask}
            return self.run("decoder", input_ids=target.ids, **memory)
        segments = torch.zeros_like(source.ids) if source.segments is None else source.segments
        inputs = {"input_ids": source.ids, "token_type_ids": segments}
        return self.run("model", **inputs, attention_mask=mask_of(source))


def mask_of(tokens: Tokens) -> Array:
    mask: Array = (tokens.positions >= 0).long().numpy()
    return mask


def check(place: Path, folder: Folder, texts: Sequence[EncodedText]) -> Agreement:
    """Compare the logits of random batches of mixed lengths, and the output for the texts."""
    engine = OnnxModel(place)
    batches = [random_batch(folder, seed) for seed in range(RANDOM_BATCHES)]
    differences = np.concatenate([logit_differences(engine, folder, batch) for batch in batches])
    if isinstance(folder.model, EncoderOnly):
        equal = {"answers": equal_answers(engine, folder, folder.model, texts)}
    else:
        equal = {"greedy": equal_greedy(engine, Reference(folder, texts))}
    return Agreement(len(texts), equal, float(differences.max()), float(differences.mean()))


def equal_greedy(engine: OnnxModel, reference: Reference) -> float:
    """The share of texts for which greedy search gives Regard's output: each of its tokens, and the end,
    is the best one after those before it."""
    special, expected, actual = reference.special, [], []
    for prompt, output in zip(reference.prompts, reference.search(GREEDY)):
        if reference.is_decoder_only:
            sample, first = Sample(target=[*prompt, *output]), len(prompt) - 1
        else:
            sample, first = Sample(source=prompt, target=[special.start, *output][: reference.limit]), 0
        logits = engine.logits([sample])[0, first:].copy()  # [T,V]
        logits[:, list(special.suppressed)] = -np.inf
        expected.append([*output, special.end][: reference.limit])
        actual.append(logits.argmax(axis=1)[: reference.limit].tolist())
    return equal_share(expected, actual)


def equal_answers(
    engine: OnnxModel, folder: Folder, model: EncoderOnly, texts: Sequence[EncodedText]
) -> float:
    """The share of texts with the same labels at every position, or the same first and last token."""
    samples = [encoder_sample(folder, text) for text in texts]
    axis = 0 if folder.config.head == "span" else 1
    expected = [logits.argmax(dim=axis).tolist() for logits in answers(model, samples, 2048, CPU)]
    actual = [engine.logits([sample])[0].argmax(axis=axis).tolist() for sample in samples]
    return equal_share(expected, actual)


def encoder_sample(folder: Folder, text: EncodedText) -> Sample:
    """[start] text [end], or [start] question [end] context [end]."""
    end = folder.source.end
    separators = 1 if text.context is None else folder.source.separators
    first = [folder.source.start, *text.source, *[end] * separators]
    second = [] if text.context is None else [*text.context, end]
    return Sample(source=[*first, *second], segments=[0] * len(first) + [1] * len(second))


def random_batch(folder: Folder, seed: int) -> list[Sample]:
    """Rows of mixed lengths, so that some are padded."""
    rng, longest = random.Random(seed), min(40, folder.config.max_length - 1)

    def row(size: int) -> Ids:
        return [rng.randrange(size) for _ in range(rng.randint(1, longest))]

    if isinstance(folder.model, LanguageModel):
        return [Sample(target=row(len(folder.target))) for _ in range(RANDOM_ROWS)]
    sources = [row(len(folder.source)) for _ in range(RANDOM_ROWS)]
    if isinstance(folder.model, EncoderOnly):
        return [Sample(source=ids, segments=[rng.randrange(2) for _ in ids]) for ids in sources]
    return [Sample(source=ids, target=row(len(folder.target))) for ids in sources]


def logit_differences(engine: OnnxModel, folder: Folder, samples: Sequence[Sample]) -> Array:
    """|x - y| / (1 + |x|) of all logits outside the padding."""
    with torch.no_grad():
        expected = folder.model(collate(samples)).numpy()
    lengths = [len(sample.target) or len(sample.source) for sample in samples]
    differences = np.abs(expected - engine.logits(samples)) / (1 + np.abs(expected))  # [B,T,V]
    return np.concatenate([differences[row, :length].ravel() for row, length in enumerate(lengths)])
