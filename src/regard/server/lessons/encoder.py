"""Inside a layer: feed-forward, residual, layer norm; and layers one above the other. In the loaded model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.interpret import Trace
from regard.interpret.names import stacks
from regard.models.layers import RMSNorm
from regard.models.transformer import Block, Stack
from regard.server.lessons.content import bars, fmt, formula, lines, table, token
from regard.server.lessons.given import Given, Ledger, LessonUnavailable
from regard.server.lessons.step import ChoiceQuestion, Lesson, LessonStep, NumberQuestion

NO_LAYERS = (
    "This model is recurrent: it has no feed-forward layers, residual sums or layer norms. "
    "Choose a Transformer above."
)


def stack_of(given: Given) -> tuple[str, Stack]:
    """The encoder, or the only stack there is."""
    by_side = stacks(given.task.folder.model)
    if not by_side:
        raise LessonUnavailable(NO_LAYERS)
    return next(iter(by_side.items()))


def streams(trace: Trace, side: str, layers: int) -> list[Tensor]:
    """What the layers read and write: below the first, behind the first, ... each [T,D]."""
    return [trace[f"{side}.embedding.out"], *(trace[f"{side}.{layer}.out"] for layer in range(layers))]


def below_feed_forward(trace: Trace, side: str, layer: int) -> Tensor:
    """What a feed-forward network reads: the stream, with pre-norm normalised."""
    normed = f"{side}.{layer}.feed_forward.norm"
    return trace[normed] if normed in trace else trace[f"{side}.{layer}.after_self"]


def silent(hidden: Tensor) -> float:
    """The share of numbers that are not above 0, in per cent."""
    return 100 * float((hidden <= 0).float().mean())


def widen(given: Given, ledger: Ledger) -> LessonStep:
    side, stack = stack_of(given)
    trace = given.trace(ledger)
    hidden = [trace[f"{side}.{layer}.feed_forward.hidden"] for layer in range(len(stack))]
    width, wide = trace[f"{side}.0.out"].shape[-1], hidden[0].shape[-1]
    shares = [ledger(silent, each) for each in hidden]
    kind = given.task.folder.config.activation
    return LessonStep(
        "Feed-forward: widen, bend, narrow",
        f"We follow {token(given.sentence)} through the {side} of {token(given.name)}. After attention, "
        "every word goes through a small network of its own: it is widened, what is below 0 is bent away, "
        f"and it is narrowed again. In the paper 512 → 2048 → 512; here {width} → {wide} → {width}.",
        NumberQuestion(
            f"Of the {wide} hidden numbers in the first layer, how many per cent are 0 or less?",
            shares[0],
            12,
            0,
            "%",
        ),
        f"{shares[0]:.0f} %. "
        + (
            "ReLU is max(0, x): each word wakes only some of the hidden numbers."
            if kind == "relu"
            else f"This model bends with {kind}, a smooth relative of ReLU."
        ),
        before=formula("FFN(x) = max(0, x W₁ + b₁) W₂ + b₂"),
        after=bars(
            "Hidden numbers that are 0 or less, in per cent",
            [f"layer {n}" for n in range(len(stack))],
            shares,
            0,
        ),
    )


def same_everywhere(given: Given, ledger: Ledger) -> LessonStep:
    side, stack = stack_of(given)
    trace = given.trace(ledger)
    block = next(iter(stack))
    x = below_feed_forward(trace, side, 0).to(next(given.task.folder.model.parameters()))
    with torch.no_grad():
        together = ledger(block.feed_forward, x[None])[0]
        alone = torch.cat([ledger(block.feed_forward, row[None, None])[0] for row in x])
    apart = float((together - alone).abs().max())
    return LessonStep(
        "The same network at every place",
        "Attention mixes words. The feed-forward network does not: it has one set of weights and uses it at "
        "every place. We feed it the whole sentence at once, and then each word alone.",
        ChoiceQuestion(
            "Does a word come out different when it is alone?",
            ["yes, the neighbours matter", "no, it comes out the same"],
            1 if apart < 1e-4 else 0,
        ),
        f"The largest difference is {fmt(apart)}. Position-wise means just this.",
        after=table(
            "Output of the first layer's network",
            ["", "largest difference"],
            [["together or alone", apart]],
            8,
        ),
    )


def shares_of(trace: Trace, side: str, layers: int) -> list[list[float]]:
    """|sub-layer's output| / |stream it is added to|, for attention and feed-forward of each layer."""
    below = streams(trace, side, layers)
    rows = []
    for layer in range(layers):
        attended, fed = (trace[f"{side}.{layer}.{name}.output"] for name in ("self", "feed_forward"))
        middle = trace.tensors.get(f"{side}.{layer}.after_cross", trace[f"{side}.{layer}.after_self"])
        pairs = ((attended, below[layer]), (fed, middle))
        rows.append([float((new.norm(dim=-1) / old.norm(dim=-1)).mean()) for new, old in pairs])
    return rows


def residual(given: Given, ledger: Ledger) -> LessonStep:
    side, stack = stack_of(given)
    trace = given.trace(ledger)
    rows = ledger(shares_of, trace, side, len(stack))
    mean = sum(sum(row) for row in rows) / (2 * len(rows))
    return LessonStep(
        "Residual: added, not replaced",
        [
            "Around every sub-layer there is a short cut: what comes out is added to what went in. So a "
            "layer only has to say what should change, and the gradient always finds a way through.",
            "We compare lengths: what is added, divided by what it is added to.",
        ],
        ChoiceQuestion(
            "How large is what a sub-layer adds, on average?",
            ["less than half", "between half and the same", "longer than the stream itself"],
            0 if mean < 0.5 else 1 if mean <= 1 else 2,
        ),
        f"{mean:.2f} times the length of the stream, the mean of {2 * len(rows)} sub-layers.",
        before=formula("x + Sublayer(x)"),
        after=table(
            "Length of what is added, as a share",
            ["", "attention", "feed-forward"],
            [[f"layer {layer}", *row] for layer, row in enumerate(rows)],
            2,
        ),
    )


def before_norm(trace: Trace, side: str, block: Block) -> tuple[Tensor, nn.Module]:
    """What the first norm of a stack reads: with post-norm the sum, else the stream itself."""
    summed = f"{side}.0.self.sum"
    return trace[summed] if summed in trace else trace[f"{side}.embedding.out"], block.attention_residual.norm


def without_gain(x: Tensor, norm: nn.Module) -> Tensor:
    """A norm before gain and shift: (x - mean) / sqrt(variance + eps), or x / sqrt(mean(x^2) + eps)."""
    if isinstance(norm, RMSNorm):
        return F.rms_norm(x, x.shape[-1:], eps=norm.eps)
    epsilon = norm.eps if isinstance(norm, nn.LayerNorm) else 1e-5
    return F.layer_norm(x, x.shape[-1:], eps=epsilon)


def normed(given: Given, ledger: Ledger) -> LessonStep:
    side, stack = stack_of(given)
    trace = given.trace(ledger)
    x, norm = before_norm(trace, side, next(iter(stack)))
    bare = ledger(without_gain, x, norm)
    with torch.no_grad():
        real = ledger(norm, x.to(next(given.task.folder.model.parameters()))).cpu()
    pre = given.task.folder.config.norm == "pre"
    names = trace.tokens["source" if side == "encoder" else "target"].shown[:6]
    rows = [
        [
            name,
            *(float(value) for each in (x, bare, real) for value in (each[place].mean(), each[place].std())),
        ]
        for place, name in enumerate(names)
    ]
    mean_square = isinstance(norm, RMSNorm)
    statistic = "root of the mean square" if mean_square else "standard deviation"
    answer = float(
        bare.square().mean(dim=-1).sqrt().mean() if mean_square else bare.std(dim=-1, correction=0).mean()
    )
    return LessonStep(
        "Layer norm: every word the same size",
        [
            "Sums of many layers would grow and grow. Layer norm takes one word's numbers, "
            + (
                "and divides by their mean size"
                if mean_square
                else "subtracts their mean and divides by their spread"
            )
            + ". Then it applies a gain"
            + ("" if mean_square else " and a shift")
            + " that were learned.",
            "In the paper the norm comes after the sum (post-norm). "
            + (
                "This model has it before each sub-layer (pre-norm), which is steadier in deep stacks."
                if pre
                else "So it does in this model."
            ),
        ],
        NumberQuestion(
            f"What is the {statistic} of a word's numbers, normalised but before the gain?", answer, 0.05
        ),
        "It is 1 for every word, however large it was before.",
        before=formula(
            "x / √(mean(x²) + ε)" if mean_square else "(x − mean) / √(variance + ε) · gain + shift"
        ),
        after=table(
            "Mean and standard deviation of some words",
            ["word", "mean before", "deviation", "normalised", "deviation", "with gain", "deviation"],
            rows,
            2,
        ),
    )


def depths(trace: Trace, side: str, layers: int) -> list[float]:
    """The mean cosine of each word with its own embedding, at every depth."""
    first, *rest = streams(trace, side, layers)
    return [1.0, *(float(F.cosine_similarity(first, each, dim=-1).mean()) for each in rest)]


def stacked(given: Given, ledger: Ledger) -> LessonStep:
    side, stack = stack_of(given)
    trace = given.trace(ledger)
    layers = len(stack)
    cosines = ledger(depths, trace, side, layers)
    width = trace[f"{side}.embedding.out"].shape[-1]
    return LessonStep(
        "One layer above the other",
        [
            f"The paper stacks six such layers; this {side} has {layers}. Words are embedded only below the "
            "first. Each layer reads what the one below wrote, in the same shape.",
            f"Below the first layer every token has {width} numbers.",
        ],
        NumberQuestion("How many has it above the last?", trace[f"{side}.out"].shape[-1], 0.5, 0),
        "The same. That is why layers can be stacked. What changes is the meaning: below you see how far "
        "words move away from their embedding.",
        after=lines(
            "Cosine of a word with its own embedding (mean of all words)",
            "layers passed",
            list(range(layers + 1)),
            {"cosine": cosines},
        ),
    )


LESSONS = [
    Lesson(
        "layers",
        "Feed-forward, residual, norm: the encoder",
        "What a layer does besides attention, and layers one above the other, on your sentence.",
        (widen, same_everywhere, residual, normed, stacked),
        ("model", "text"),
    )
]
