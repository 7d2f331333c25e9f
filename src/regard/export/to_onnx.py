"""Our models as ONNX files, and ONNX Runtime on them."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import onnxscript  # noqa: F401  (torch writes ONNX through it)
import torch

from regard.batch import collate
from regard.export.check import CPU, GREEDY, Figures, Reference, share
from regard.export.graphs import Graph, graphs_of
from regard.export.sample import Pieces, Text
from regard.generation import answers
from regard.models import EncoderOnly, LanguageModel
from regard.sample import Sample
from regard.storage import Folder

LARGE = 1 << 28  # numbers: a file of ONNX's own format ends at 2 GiB, the weights then stand beside it
ROWS, BATCHES = 8, 4  # of random batches
AT_ONCE = 32
Array = npt.NDArray[Any]


def write(folder: Folder, place: Path, precision: str) -> None:
    """Write encoder.onnx and decoder.onnx, or model.onnx."""
    for graph in graphs_of(folder.model):
        write_graph(graph, place / f"{graph.name}.onnx", folder.parameters > LARGE)


def write_graph(graph: Graph, path: Path, beside: bool) -> None:
    with torch.no_grad(), quiet():
        torch.onnx.export(
            graph.module,
            tuple(example for example, _ in graph.inputs.values()),
            path,
            dynamo=True,
            verbose=False,
            external_data=beside,
            input_names=list(graph.inputs),
            output_names=[graph.output],
            dynamic_shapes=tuple(axes for _, axes in graph.inputs.values()),
        )


@contextmanager
def quiet() -> Iterator[None]:
    """The exporter tells of packages that it could use and of its own old calls: nothing for our users."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logger.setLevel(before)


class Engine:
    """ONNX Runtime on an exported folder."""

    def __init__(self, place: Path, folder: Folder) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self.files = {
            path.stem: onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            for path in sorted(place.glob("*.onnx"))
        }
        own = folder.special
        self.start, self.end, self.never = own.start, own.end, list(own.suppressed)

    def run(self, name: str, **inputs: Array) -> Array:
        found: Array = self.files[name].run(None, inputs)[0]
        return found

    def logits(self, samples: Sequence[Sample]) -> Array:
        """What `model.forward` gives for the samples as one batch."""
        batch = collate(samples)
        source, target = batch.source, batch.target
        if "encoder" in self.files and source is not None and target is not None:
            mask = as_mask(source.positions)
            states = self.run("encoder", input_ids=source.ids.numpy(), attention_mask=mask)
            return self.after(target.ids.numpy(), states, mask)
        if source is None:
            assert target is not None
            return self.run("model", input_ids=target.ids.numpy(), attention_mask=as_mask(target.positions))
        kinds = torch.zeros_like(source.ids) if source.segments is None else source.segments
        mask = as_mask(source.positions)
        return self.run(
            "model", input_ids=source.ids.numpy(), attention_mask=mask, token_type_ids=kinds.numpy()
        )

    def after(self, said: Array, states: Array, mask: Array) -> Array:
        return self.run("decoder", input_ids=said, encoder_hidden_states=states, encoder_attention_mask=mask)

    def greedy(self, prompts: Sequence[Pieces], limit: int) -> list[Pieces]:
        """The most probable piece again and again, after a source or after a prompt; without the end."""
        order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
        found: dict[int, Pieces] = {}
        for first in range(0, len(order), AT_ONCE):
            numbers = order[first : first + AT_ONCE]
            rows = [prompts[number] for number in numbers]
            write = self.translated if "encoder" in self.files else self.gone_on
            found |= zip(numbers, write(rows, limit))
        return [found[number] for number in range(len(prompts))]

    def translated(self, rows: Sequence[Pieces], limit: int) -> list[Pieces]:
        source = collate([Sample(source=row) for row in rows]).source
        assert source is not None
        mask = as_mask(source.positions)
        states = self.run("encoder", input_ids=source.ids.numpy(), attention_mask=mask)
        said = np.full((len(rows), 1), self.start)
        while said.shape[1] <= limit and not (said[:, 1:] == self.end).any(axis=1).all():
            said = np.concatenate([said, self.best(self.after(said, states, mask)[:, -1])[:, None]], axis=1)
        return [until(row, self.end) for row in said[:, 1:].tolist()]

    def gone_on(self, rows: Sequence[Pieces], limit: int) -> list[Pieces]:
        said = [list(row) for row in rows]
        open_rows = list(range(len(rows)))
        for _ in range(limit):
            logits = self.logits([Sample(target=said[number]) for number in open_rows])
            last = np.stack([logits[place, len(said[number]) - 1] for place, number in enumerate(open_rows)])
            for number, piece in zip(open_rows, self.best(last).tolist()):
                said[number].append(piece)
            open_rows = [number for number in open_rows if said[number][-1] != self.end]
            if not open_rows:
                break
        return [until(own[len(row) :], self.end) for own, row in zip(said, rows)]

    def best(self, logits: Array) -> Array:
        """[B,V] -> [B]."""
        logits = logits.copy()
        logits[:, self.never] = -np.inf
        found: Array = logits.argmax(axis=1)
        return found


def as_mask(positions: torch.Tensor) -> Array:
    found: Array = (positions >= 0).long().numpy()
    return found


def until(row: Pieces, end: int) -> Pieces:
    return row[: row.index(end)] if end in row else row


def check(place: Path, folder: Folder, texts: Sequence[Text]) -> Figures:
    """Logits of random batches of mixed lengths, and what is said of the texts."""
    engine = Engine(place, folder)
    batches = [random_batch(folder, seed) for seed in range(BATCHES)]
    gaps = np.concatenate([differences(engine, folder, batch) for batch in batches])
    if isinstance(folder.model, EncoderOnly):
        equal = {"answers": equal_answers(engine, folder, folder.model, texts)}
    else:
        reference = Reference(folder, texts)
        said = engine.greedy(reference.prompts, reference.limit)
        equal = {"greedy": share(reference.spoken(reference.search(GREEDY)), reference.spoken(said))}
    return Figures(len(texts), equal, float(gaps.max()), float(gaps.mean()))


def equal_answers(engine: Engine, folder: Folder, model: EncoderOnly, texts: Sequence[Text]) -> float:
    """The share of texts with the same labels at every place, or the same first and last word."""
    samples = [understood(folder, text) for text in texts]
    axis = 0 if folder.config.head == "span" else 1
    ours = [logits.argmax(dim=axis).tolist() for logits in answers(model, samples, 2048, CPU)]
    theirs = [engine.logits([sample])[0].argmax(axis=axis).tolist() for sample in samples]
    return share(ours, theirs)


def understood(folder: Folder, text: Text) -> Sample:
    """[start] text [end], or [start] question [end] context [end]."""
    start, end = folder.source.start, folder.source.end
    first = [start, *text.source, end]
    second = [] if text.context is None else [*text.context, end]
    return Sample(source=[*first, *second], segments=[0] * len(first) + [1] * len(second))


def random_batch(folder: Folder, seed: int) -> list[Sample]:
    """Rows of mixed lengths, so that some are padded."""
    dice, longest = random.Random(seed), min(40, folder.config.max_length - 1)

    def row(size: int) -> Pieces:
        return [dice.randrange(size) for _ in range(dice.randint(1, longest))]

    if isinstance(folder.model, LanguageModel):
        return [Sample(target=row(len(folder.target))) for _ in range(ROWS)]
    sources = [row(len(folder.source)) for _ in range(ROWS)]
    if isinstance(folder.model, EncoderOnly):
        kinds = [[dice.randrange(2) for _ in ids] for ids in sources]
        return [Sample(source=ids, segments=own) for ids, own in zip(sources, kinds)]
    return [Sample(source=ids, target=row(len(folder.target))) for ids in sources]


def differences(engine: Engine, folder: Folder, samples: Sequence[Sample]) -> Array:
    """|ours - theirs| / (1 + |ours|) of all logits that are not of padding."""
    with torch.no_grad():
        ours = folder.model(collate(samples)).numpy()
    theirs = engine.logits(samples)
    lengths = [len(sample.target) or len(sample.source) for sample in samples]
    gaps = np.abs(ours - theirs) / (1 + np.abs(ours))  # [B,T,V]
    return np.concatenate([gaps[number, :length].ravel() for number, length in enumerate(lengths)])
