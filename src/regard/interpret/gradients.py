"""Gradient x input: how much each token's embedding adds to the log-probability of a choice."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import collate
from regard.interpret.choices import RunActivations, choice_number, traced_run
from regard.interpret.interventions import InterventionTap

INPUTS = ("encoder.embedding.tokens", "decoder.embedding.tokens", "encoder.embedding", "decoder.embedding")


@dataclass(frozen=True)
class Leaves:
    """A tap that makes the embeddings leaves of the graph."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    path: str = ""

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        full = f"{self.path}{name}"
        if full not in INPUTS:
            return tensor
        self.tensors[full] = tensor.detach().requires_grad_()
        return self.tensors[full]

    def within(self, name: str) -> Leaves:
        return Leaves(self.tensors, f"{self.path}{name}.")


def gradient_x_input(
    trace: RunActivations, step: int, token: int | str | None = None, against: int | str | None = None
) -> dict[str, Tensor]:
    """x . dy/dx of each embedding x: [S] of `source`, [T] of `target`.

    y = log p(token), or log p(token) - log p(against): where p is almost 1, the gradient of the first is 0.
    """
    run, leaves = traced_run(trace), Leaves()
    numbers = [choice_number(trace, step, each) for each in (token, against)[: 1 if against is None else 2]]
    device = next(run.model.parameters()).device
    with torch.enable_grad():
        logits = run.model(collate([run.sample]).to(device), InterventionTap(run.edits, leaves))[0]
        log_p = [log_probability(trace, logits.float(), step, number) for number in numbers]
        names = list(leaves.tensors)
        inputs = [leaves.tensors[name] for name in names]
        gradients = torch.autograd.grad(log_p[0] - sum(log_p[1:]), inputs, allow_unused=True)
    result: dict[str, Tensor] = {}
    for name, x, gradient in zip(names, inputs, gradients):
        product = torch.zeros(x.shape[1]) if gradient is None else (x * gradient)[0].sum(dim=-1)
        result["source" if name.startswith("encoder") else "target"] = product.detach().float().cpu()
    return result


def log_probability(trace: RunActivations, logits: Tensor, step: int, number: int) -> Tensor:
    """log p of a choice at a step, from the logits of the run."""
    if trace.meta.get("head") == "span":
        return logits.log_softmax(dim=0)[number, step]
    row = logits[step if len(logits) > 1 else 0]
    return F.logsigmoid(row)[number] if trace.meta.get("many") else row.log_softmax(dim=-1)[number]
