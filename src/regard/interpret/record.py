"""Record one run of a model: the tensors of the forward pass, and the tree of the beam search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from regard.batch import collate
from regard.errors import UsageError
from regard.generation.search import Candidates
from regard.interpret.activations import Fate, Node
from regard.interpret.interventions import InterventionTap, TensorEdit
from regard.interpret.names import attentions, lookup, output_weight, stacks, unembedding
from regard.interpret.readings import lens, value_norms
from regard.models.attention import repeat_kv
from regard.models.encoder import EncoderOnly, WordHead
from regard.models.families import Model
from regard.models.recorder import Recorder
from regard.sample import Sample

LENS_TOKENS = 5  # best tokens of the logit lens
MAX_LENS = 40_000_000_000  # multiplications; a larger lens is computed only if `only` names it


@dataclass(frozen=True)
class NameFilter:
    """The names to record: all, or those that match patterns such as `decoder.*.cross.weights`."""

    patterns: Sequence[str] | None = None
    seen: set[str] = field(default_factory=set)

    def __call__(self, name: str) -> bool:
        """Whether to record a tensor, for itself or to compute others from it."""
        self.seen.add(name)
        derived = [f"{name}_norms"] if name.endswith(".value") else []
        if name.endswith(".out"):
            derived += ["lens.ids", "lens.probabilities"]
        return any(self.includes(each) for each in (name, *derived))

    def includes(self, name: str) -> bool:
        if self.patterns is None:
            return lookup(name) is not None
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def check(self, names: Sequence[str]) -> None:
        """A pattern that matches no tensor is an error."""
        for pattern in self.patterns or ():
            if not any(fnmatchcase(name, pattern) for name in names):
                some = sorted(self.seen)[:: max(1, len(self.seen) // 4)][:4]
                raise UsageError(
                    f'only: no tensor of this run is called "{pattern}"; some are {", ".join(some)}'
                )


@torch.no_grad()
def record(
    model: Model, sample: Sample, only: Sequence[str] | None = None, edits: Sequence[TensorEdit] = ()
) -> tuple[dict[str, Tensor], Tensor]:
    """The tensors of one sample, without batch dimension, on the CPU, in the order of the run; its logits."""
    names = NameFilter((only,) if isinstance(only, str) else only)
    recorder = Recorder(names)
    device = next(model.parameters()).device
    tap = InterventionTap(edits, recorder)
    logits: Tensor = model(collate([sample]).to(device), tap if edits else recorder)
    tap.check()
    recorded = {name: first_row(name, tensor) for name, tensor in recorder.tensors.items()}
    tensors: dict[str, Tensor] = {}
    for name, tensor in recorded.items():
        if names.includes(name):
            tensors[name] = tensor
        if name.endswith(".value") and names.includes(f"{name}_norms"):
            add_value_norms(tensors, model, name.removesuffix(".value"), tensor)
    add_lens(tensors, model, recorded, names)
    names.check(list(tensors))
    return tensors, logits[0].float().cpu()


def first_row(name: str, tensor: Tensor) -> Tensor:
    """Drop the batch dimension, and the head dimension of what all heads share; numbers as float32."""
    tensor = tensor[0].cpu()
    if name.endswith((".mask", ".positions.cosine", ".positions.sine")):
        tensor = tensor[0]  # [1,T,S], [1,T,R]
    return tensor.clone() if tensor.dtype == torch.bool else tensor.float().contiguous()


def add_value_norms(tensors: dict[str, Tensor], model: Model, where: str, value: Tensor) -> None:
    attention = attentions(model).get(where)
    if attention is None:  # Bahdanau's attention has no W_O
        return
    repeated = repeat_kv(value[None], value.new_zeros((1, attention.heads)))[0]  # [H,S,C]
    tensors[f"{where}.value_norms"] = value_norms(repeated, output_weight(attention).cpu())


def add_lens(
    tensors: dict[str, Tensor], model: Model, recorded: dict[str, Tensor], names: NameFilter
) -> None:
    """The logit lens, for models whose residual stream becomes tokens of the vocabulary.

    For a long text it costs as much as the rest of the trace: then only if `only` names it.
    """
    if not stacks(model) or not (names.includes("lens.ids") or names.includes("lens.probabilities")):
        return
    if isinstance(model, EncoderOnly) and not isinstance(model.head, WordHead):
        return
    work = sum(tensor.numel() for name, tensor in recorded.items() if name.endswith(".out"))
    if names.patterns is None and work * recorded["logits"].shape[-1] > MAX_LENS:
        return
    side, unembed = unembedding(model)
    depths = [f"{side}.embedding.out", *(f"{side}.{layer}.out" for layer in range(len(stacks(model)[side])))]
    like = next(model.parameters())
    ids, probabilities = lens([recorded[name].to(like) for name in depths], unembed, LENS_TOKENS)
    for name, tensor in (("lens.ids", ids), ("lens.probabilities", probabilities)):
        if names.includes(name):
            tensors[name] = tensor.cpu().contiguous()


class BeamTree:
    """Observes the beam search of one source: every candidate, and whether it was kept."""

    def __init__(self, text_of: Callable[[int], str]) -> None:
        self.text_of = text_of
        self.nodes: list[Node] = []
        self.beams: list[int] = []  # the node of each running beam; empty before the first step
        self.step = 0

    def __call__(self, candidates: Candidates, closing: Tensor, chosen: Tensor, kept: Tensor) -> None:
        """One step; see `BeamSearch.choose`."""
        beam_of = {
            int(column): beam
            for beam, (column, score) in enumerate(zip(kept[0].tolist(), chosen[0].tolist()))
            if score > float("-inf")
        }
        after: dict[int, int] = {}
        columns = (candidates.total, candidates.log_p, candidates.token, candidates.beam, closing)
        rows = zip(*(each[0].tolist() for each in columns))
        for column, (score, log_p, token, beam, ends) in enumerate(rows):
            if score == float("-inf"):
                continue
            fate: Fate = "finished" if ends else "kept" if column in beam_of else "pruned"
            parent = self.beams[beam] if self.beams else -1
            number = len(self.nodes)
            node = Node(number, self.step, parent, token, self.text_of(token), log_p, score, fate)
            self.nodes.append(node)
            if column in beam_of:
                after[beam_of[column]] = number
        self.beams = [after.get(beam, -1) for beam in range(len(kept[0]))]
        self.step += 1

    def with_path(self, output: Sequence[int]) -> tuple[Node, ...]:
        """The nodes; `best` marks those on the path to the output tokens, end token included."""
        path: set[int] = set()
        parent = -1
        for step, token in enumerate(output):
            key = (step, parent, token)
            node = next((n for n in self.nodes if (n.step, n.parent, n.token) == key), None)
            if node is None:
                break
            parent = node.number
            path.add(parent)
        return tuple(replace(node, best=node.number in path) for node in self.nodes)
