"""Scores of model outputs, used by training and by the tasks: plain values in, plain numbers out.

Rates lie between 0 and 1, BLEU and chrF between 0 and 100.
"""

from __future__ import annotations

import math

MAX_EXPONENT = 700.0  # exp of more overflows a float


def perplexity_scores(log_p_sum: float, tokens: int, bytes: int) -> dict[str, float]:
    """perplexity = exp(-sum log p / tokens); bits per byte = -sum log2 p / bytes, whatever the tokenizer."""
    loss = -log_p_sum / max(1, tokens)
    return {
        "perplexity": math.exp(min(loss, MAX_EXPONENT)),
        "bits_per_byte": -log_p_sum / math.log(2) / max(1, bytes),
    }
