"""How good a model is on held-out text: loss per token, and scores of decoded text by sacreBLEU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from torch import nn

from regard.config import Decode
from regard.data import Example, Sample, Translation
from regard.decode import Hypothesis, Special, decode, score
from regard.text import Tokenizer

LOSS_TOKENS_PER_BATCH = 4096


@dataclass(frozen=True)
class Held:
    """Held-out examples, as text and as samples."""

    examples: Sequence[Example]
    samples: Sequence[Sample]

    def first(self, count: int) -> Held:
        return Held(self.examples[:count], self.samples[:count])


@dataclass(frozen=True)
class TextScores:
    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


def hold(examples: Sequence[Example], source: Tokenizer, target: Tokenizer) -> Held:
    ask = objective(source, target)
    sources = source.encode_batch([example.source for example in examples])
    targets = target.encode_batch([example.target for example in examples])
    return Held(examples, [ask.pair(left, right) for left, right in zip(sources, targets)])


def objective(source: Tokenizer, target: Tokenizer) -> Translation:
    return Translation(start=target.start, source_end=source.end, target_end=target.end)


def special(target: Tokenizer) -> Special:
    return Special(start=target.start, end=target.end, forbidden=target.never_said)


def held_out_loss(model: nn.Module, held: Held, device: torch.device) -> float:
    """Mean of -log p over all target tokens, without smoothing; its exponential is the perplexity."""
    log_p = score(model, held.samples, LOSS_TOKENS_PER_BATCH, device)
    return -math.fsum(math.fsum(row) for row in log_p) / max(1, sum(len(row) for row in log_p))


def translate_samples(
    model: nn.Module,
    samples: Sequence[Sample],
    options: Decode,
    target: Tokenizer,
    device: torch.device,
    done: Callable[[int], None] = lambda count: None,
) -> list[str]:
    """The best hypothesis of each sample as text."""
    sources = [Sample(source=sample.source) for sample in samples]
    found: list[list[Hypothesis]] = decode(model, sources, options, special(target), device, done=done)  # type: ignore[arg-type]
    return [target.decode(hypotheses[0].tokens) for hypotheses in found]


def text_scores(hypotheses: Sequence[str], references: Sequence[str]) -> TextScores:
    bleu, chrf = BLEU(), CHRF()
    return TextScores(
        bleu=bleu.corpus_score(hypotheses, [references]).score,
        chrf=chrf.corpus_score(hypotheses, [references]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )
