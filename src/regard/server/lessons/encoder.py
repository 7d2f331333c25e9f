"""Inside a layer: feed-forward, residual, layer norm; and layers one above the other. In the loaded model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.interpret import Trace
from regard.interpret.names import stacks
from regard.models.layers import RMSNorm
from regard.models.transformer import Stack
from regard.server.lessons.given import Given, LessonUnavailable, Values, cell, distance

NO_LAYERS = (
    "This model is recurrent: it has no feed-forward layers, residual sums or layer norms. "
    "Choose a Transformer above."
)


def stack_of(given: Given) -> tuple[Trace, str, Stack]:
    """A run of the model, and its encoder or the only stack there is."""
    by_side = stacks(given.task.folder.model)
    if not by_side:
        raise LessonUnavailable(NO_LAYERS)
    side, stack = next(iter(by_side.items()))
    return given.trace(), side, stack


def streams(trace: Trace, side: str, layers: int) -> list[Tensor]:
    """What the layers read and write: below the first, behind the first, ... each [T,D]."""
    return [trace[f"{side}.embedding.out"], *(trace[f"{side}.{layer}.out"] for layer in range(layers))]


def without_gain(x: Tensor, norm: nn.Module) -> Tensor:
    """A norm before gain and shift: (x - mean) / sqrt(variance + eps), or x / sqrt(mean(x^2) + eps)."""
    if isinstance(norm, RMSNorm):
        return F.rms_norm(x, x.shape[-1:], eps=norm.eps)
    epsilon = norm.eps if isinstance(norm, nn.LayerNorm) else 1e-5
    return F.layer_norm(x, x.shape[-1:], eps=epsilon)


@cell
def hidden(given: Given) -> Values:
    """Hidden numbers of the feed-forward networks that are 0 or less, in per cent."""
    trace, side, stack = stack_of(given)
    layers = [trace[f"{side}.{layer}.feed_forward.hidden"] for layer in range(len(stack))]
    silent = [100 * float((each <= 0).float().mean()) for each in layers]
    sizes = {"side": side, "width": trace[f"{side}.0.out"].shape[-1], "hidden": layers[0].shape[-1]}
    activation = given.task.folder.config.activation
    return {**sizes, "activation": activation, "relu": activation == "relu", "silent": silent}


@cell
def alone(given: Given) -> Values:
    """The first feed-forward network on the whole sentence, and on each word alone."""
    trace, side, stack = stack_of(given)
    normed = f"{side}.0.feed_forward.norm"  # with pre-norm it reads the normalised stream
    x = trace[normed] if normed in trace else trace[f"{side}.0.after_self"]
    x = x.to(next(given.task.folder.model.parameters()))
    network = next(iter(stack)).feed_forward
    with torch.no_grad():
        together = given(network, x[None])[0]
        one_by_one = torch.cat([given(network, row[None, None])[0] for row in x])
    return {"difference": distance(together, one_by_one)}


@cell
def residual(given: Given) -> Values:
    """|sub-layer's output| / |stream it is added to|, for attention and feed-forward of each layer."""
    trace, side, stack = stack_of(given)
    shares: dict[str, list[float]] = {"attention": [], "feed_forward": []}
    for layer, below in zip(range(len(stack)), streams(trace, side, len(stack))):
        name = f"{side}.{layer}"
        middle = trace.tensors.get(f"{name}.after_cross", trace[f"{name}.after_self"])
        parts = trace[f"{name}.self.output"], below, trace[f"{name}.feed_forward.output"], middle
        attended, stream, fed, middle = (part.norm(dim=-1) for part in parts)
        shares["attention"].append(float((attended / stream).mean()))
        shares["feed_forward"].append(float((fed / middle).mean()))
    return {**shares, "all": shares["attention"] + shares["feed_forward"]}


@cell
def norm(given: Given) -> Values:
    """Some words before the first norm, normalised, and with gain and shift."""
    trace, side, stack = stack_of(given)
    module, total = next(iter(stack)).attention_residual.norm, f"{side}.0.self.sum"
    x = trace[total] if total in trace else trace[f"{side}.embedding.out"]  # with post-norm the sum
    bare = given(without_gain, x, module)
    with torch.no_grad():
        real = given(module, x.to(next(given.task.folder.model.parameters()))).cpu()
    names = trace.tokens["source" if side == "encoder" else "target"].shown[:6]
    rows = [
        [name, *(float(f(each[place])) for each in (x, bare, real) for f in (torch.mean, torch.std))]
        for place, name in enumerate(names)
    ]
    mean_square = isinstance(module, RMSNorm)
    sizes = bare.square().mean(dim=-1).sqrt() if mean_square else bare.std(dim=-1, correction=0)
    pre = given.task.folder.config.norm == "pre"
    statistic = "root of the mean square" if mean_square else "standard deviation"
    return {
        "size": sizes.mean(),
        "statistic": statistic,
        "mean_square": mean_square,
        "pre": pre,
        "rows": rows,
    }


@cell
def depth(given: Given) -> Values:
    """The mean cosine of each word with its own embedding, at every depth."""
    trace, side, stack = stack_of(given)
    below, *above = streams(trace, side, len(stack))
    cosines = [1.0, *(float(F.cosine_similarity(below, each, dim=-1).mean()) for each in above)]
    widths = {"below": below.shape[-1], "above": trace[f"{side}.out"].shape[-1]}
    return {"side": side, "layers": len(stack), **widths, "places": range(len(cosines)), "cosines": cosines}
