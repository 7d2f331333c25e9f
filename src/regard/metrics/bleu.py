"""BLEU and chrF of generated text, by sacreBLEU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from regard.errors import UsageError

RESAMPLES = 1000  # bootstrap samples, sacreBLEU's default
# sacreBLEU tokenizers for scripts without spaces between words; none of them needs an extra package
UNSPACED = {"zh": "zh", "ja": "char", "th": "char", "km": "char", "lo": "char", "my": "char"}


@dataclass(frozen=True)
class TextScores:
    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


def text_scores(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> TextScores:
    """Corpus scores equal to those of the `sacrebleu` command; `tokenize` is its --tokenize (BLEU only)."""
    bleu, chrf = make_bleu(tokenize), CHRF()
    return TextScores(
        bleu=bleu.corpus_score(hypotheses, [references]).score,
        chrf=chrf.corpus_score(hypotheses, [references]).score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
    )


def bootstrap_intervals(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> dict[str, tuple[float, float]]:
    """(mean, half-width) of the 95 % bootstrap interval of each score, as `sacrebleu --confidence`.

    `corpus_score(n_bootstrap=...)` fails where a bootstrap sample has no match at all; a paired test of one
    system computes the same numbers.
    """
    metrics = {"bleu": make_bleu(tokenize), "chrf": CHRF()}
    test = PairedTest([("", hypotheses)], metrics, [references], test_type="bs", n_samples=RESAMPLES)
    _, columns = test()
    rows = [row for row, *_ in columns.values() if isinstance(row, Result)]  # the first column has names
    return {name: (float(row.mean or 0), float(row.ci or 0)) for name, row in zip(metrics, rows, strict=True)}


def bleu_tokenization(choice: str, language: str) -> str:
    """The name of a sacreBLEU tokenizer; `auto` follows the target language."""
    code = language.lower().replace("_", "-").split("-")[0]
    return UNSPACED.get(code, "13a") if choice == "auto" else choice


def make_bleu(tokenize: str) -> BLEU:
    """`force` silences the warning about text that looks tokenized: the user chooses the tokenizer."""
    try:
        return BLEU(tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(
            f'BLEU with the tokenisation "{tokenize}" cannot be computed: {reason}', code="E_BLEU_TOKENIZE"
        ) from None


def looks_tokenized(texts: Sequence[str]) -> bool:
    """True if most lines that end in a full stop have a space before it, as tokenizers leave it."""
    ends = [text for text in texts if text.endswith(".")]
    return len(ends) >= 20 and sum(text.endswith(" .") for text in ends) > len(ends) / 2
