"""One run of a model, recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from regard.batch import collate
from regard.errors import UsageError
from regard.interpret.interventions import Change, Intervening
from regard.interpret.names import described
from regard.interpret.parts import attentions, output_weight, reader, stacks
from regard.interpret.readings import lens, value_norms
from regard.interpret.recorder import Recorder
from regard.models import EncoderOnly, Model
from regard.models.attention import repeat_kv
from regard.models.encoder import WordHead
from regard.sample import Sample

BEST_WORDS = 5  # of the logit lens
LARGEST_LENS = 40_000_000_000  # multiplications; for more it must be asked for (only)


@dataclass(frozen=True)
class Wanted:
    """Which names are kept: all, or those of some patterns such as `decoder.*.cross.weights`."""

    patterns: Sequence[str] | None = None
    seen: set[str] = field(default_factory=set)

    def __call__(self, name: str) -> bool:
        """Whether a tensor is recorded, for itself or for what is made of it."""
        self.seen.add(name)
        made = [f"{name}_norms"] if name.endswith(".value") else []
        if name.endswith(".out"):
            made += ["lens.ids", "lens.probabilities"]
        return any(self.kept(each) for each in (name, *made))

    def kept(self, name: str) -> bool:
        if self.patterns is None:
            return described(name) is not None
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    def check(self, found: Sequence[str]) -> None:
        """A pattern without a tensor is a mistake; the nearest names are told."""
        for pattern in self.patterns or ():
            if not any(fnmatchcase(name, pattern) for name in found):
                some = sorted(self.seen)[:: max(1, len(self.seen) // 4)][:4]
                raise UsageError(
                    f'only: no tensor of this run is called "{pattern}"; some are {", ".join(some)}'
                )


@torch.no_grad()
def record(
    model: Model, sample: Sample, only: Sequence[str] | None = None, changes: Sequence[Change] = ()
) -> tuple[dict[str, Tensor], Tensor]:
    """The tensors of one sample, without a row dimension, on the CPU, in the order of the run; its logits."""
    if isinstance(only, str):
        only = (only,)
    wanted = Wanted(only)
    recorder = Recorder(wanted)
    device = next(model.parameters()).device
    tap = Intervening(changes, recorder) if changes else recorder
    logits: Tensor = model(collate([sample]).to(device), tap)
    tensors = {name: alone(name, tensor) for name, tensor in recorder.tensors.items()}
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if wanted.kept(name):
            found[name] = tensor
        if name.endswith(".value") and wanted.kept(f"{name}_norms"):
            add_norms(found, model, name.removesuffix(".value"), tensor)
    add_lens(found, model, tensors, wanted)
    wanted.check(list(found))
    return found, logits[0].float().cpu()


def alone(name: str, tensor: Tensor) -> Tensor:
    """The only row, and of a mask, which all heads share, the only head; numbers as float32."""
    tensor = tensor[0].cpu()
    if name.endswith((".mask", ".positions.cosine", ".positions.sine")):
        tensor = tensor[0]  # [1,T,S], [1,T,R]
    return tensor.clone() if tensor.dtype == torch.bool else tensor.float().contiguous()


def add_norms(found: dict[str, Tensor], model: Model, where: str, value: Tensor) -> None:
    attention = attentions(model).get(where)
    if attention is None:  # Bahdanau's contexts go through no W_O
        return
    every = repeat_kv(value[None], value.new_zeros((1, attention.heads)))[0]  # [H,S,C]
    found[f"{where}.value_norms"] = value_norms(every, output_weight(attention).cpu())


def add_lens(found: dict[str, Tensor], model: Model, tensors: dict[str, Tensor], wanted: Wanted) -> None:
    """The stream at each depth as words; only of models whose stream becomes words.

    Of a long text it is as much work as all else together: then only if it is asked for.
    """
    if not stacks(model) or not (wanted.kept("lens.ids") or wanted.kept("lens.probabilities")):
        return
    side, read = reader(model)
    like = next(model.parameters())
    work = sum(tensor.numel() for name, tensor in tensors.items() if name.endswith(".out"))
    if wanted.patterns is None and work * tensors["logits"].shape[-1] > LARGEST_LENS:
        return
    if isinstance(model, EncoderOnly) and not isinstance(model.head, WordHead):
        return
    depth = len(stacks(model)[side])
    names = [f"{side}.embedding.out", *(f"{side}.{layer}.out" for layer in range(depth))]
    ids, probabilities = lens([tensors[name].to(like) for name in names], read, BEST_WORDS)
    for name, tensor in (("lens.ids", ids), ("lens.probabilities", probabilities)):
        if wanted.kept(name):
            found[name] = tensor.cpu().contiguous()
