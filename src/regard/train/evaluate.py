"""How good a model is on held-out text: loss per token, and scores of decoded text by sacreBLEU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import _bootstrap_resample
from torch import nn

from regard.config import Decode
from regard.data import Example, Sample, Translation
from regard.decode import Hypothesis, Special, decode, score
from regard.errors import UsageError
from regard.text import Tokenizer

LOSS_TOKENS_PER_BATCH = 1024  # logits of so many tokens over the whole vocabulary are held at once
RESAMPLES = 1000  # of the bootstrap; sacreBLEU's own number
# scripts that put no spaces between words, and sacreBLEU's words for them that need nothing installed
UNSPACED = {"zh": "zh", "ja": "char", "th": "char", "km": "char", "lo": "char", "my": "char"}


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


def best_hypotheses(
    model: nn.Module, samples: Sequence[Sample], options: Decode, target: Tokenizer, device: torch.device
) -> list[Hypothesis]:
    """The best hypothesis of each sample."""
    sources = [Sample(source=sample.source) for sample in samples]
    found: list[list[Hypothesis]] = decode(model, sources, options, special(target), device)  # type: ignore[arg-type]
    return [hypotheses[0] for hypotheses in found]


def translate_samples(
    model: nn.Module, samples: Sequence[Sample], options: Decode, target: Tokenizer, device: torch.device
) -> list[str]:
    """The best hypothesis of each sample as text."""
    return [target.decode(best.tokens) for best in best_hypotheses(model, samples, options, target, device)]


def text_scores(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> TextScores:
    """Corpus scores as the `sacrebleu` command gives them; `tokenize` is its --tokenize and concerns BLEU."""
    bleu, chrf = make_bleu(tokenize), CHRF()
    return TextScores(
        bleu=bleu.corpus_score(hypotheses, [references]).score,
        chrf=chrf.corpus_score(hypotheses, [references]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def intervals(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> dict[str, tuple[float, float]]:
    """(mean, half-width) of the 95 % bootstrap interval of each score, as `sacrebleu --confidence`."""
    found = {}
    for name, metric in (("bleu", make_bleu(tokenize)), ("chrf", CHRF())):
        # not `corpus_score(n_bootstrap=...)`, which fails where one sample scores nothing at all
        counts = metric._extract_corpus_statistics(hypotheses, [references])
        values = sorted(float(each.score) for each in _bootstrap_resample(counts, metric, RESAMPLES)[1])
        outside = len(values) // 40  # 2.5 % at either end
        found[name] = (fmean(values), (values[-outside - 1] - values[outside]) / 2)
    return found


def bleu_tokenization(choice: str, language: str) -> str:
    """sacreBLEU's name of the tokenisation; `auto` follows the target language."""
    code = language.lower().replace("_", "-").split("-")[0]
    return UNSPACED.get(code, "13a") if choice == "auto" else choice


def make_bleu(tokenize: str) -> BLEU:
    """`force`: whether text is tokenised already is the user's choice here, and not to be warned about."""
    try:
        return BLEU(tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f'BLEU with the tokenisation "{tokenize}" cannot be computed: {reason}') from None


def looks_tokenized(texts: Sequence[str]) -> bool:
    """Whether most lines that end in a full stop have a space before it, as tokenisers leave it."""
    ends = [text for text in texts if text.endswith(".")]
    return len(ends) >= 20 and sum(text.endswith(" .") for text in ends) > len(ends) / 2
