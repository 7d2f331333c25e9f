"""Scores of decoded text by sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import _bootstrap_resample

from regard.errors import UsageError

RESAMPLES = 1000  # of the bootstrap; sacreBLEU's own number
# scripts that put no spaces between words, and sacreBLEU's words for them that need nothing installed
UNSPACED = {"zh": "zh", "ja": "char", "th": "char", "km": "char", "lo": "char", "my": "char"}


@dataclass(frozen=True)
class TextScores:
    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str


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
