"""The section with the scores, and the command that computes them again."""

from __future__ import annotations

import math
import shlex
from pathlib import Path

from regard.config import Config
from regard.config.load import NAMES
from regard.data.corpora import parts
from regard.train.evaluate import RESAMPLES, bleu_tokenization, looks_tokenized
from regard.train.progress import Record
from regard.train.report.blocks import Block, Code, Paragraph, Table
from regard.train.report.facts import SETS, Facts


def scores(facts: Facts) -> list[Block]:
    found = [(name, facts.last(kind)) for kind, name in SETS.items() if facts.last(kind)]
    if not found:
        return [Paragraph("Not scored yet: the chosen model is scored when the run ends.")]
    head = ["set", "sentences", "BLEU", "chrF", "exactly right", "loss a token", "perplexity"]
    rows = [
        [
            name,
            f"{row['sentences']:,}",
            with_interval(row, "bleu"),
            with_interval(row, "chrf"),
            f"{100 * row['exact']:.1f} %",
            f"{row['loss']:.4f}",
            f"{math.exp(min(row['loss'], 700)):,.2f}",
        ]
        for name, row in found
    ]
    row = found[0][1]
    blocks: list[Block] = [Table(head, rows)]
    if "bleu_interval" in row:
        blocks.append(
            Paragraph(
                f"± is half of the 95 % interval, from {RESAMPLES:,} bootstrap samples of the sentences."
            )
        )
    blocks.append(Code([f"BLEU|{row['bleu_signature']}", f"chrF2|{row['chrf_signature']}"]))
    texts = [sentence["reference"] for kind in SETS for sentence in facts.sentences[kind]]
    if looks_tokenized(texts) and facts.tokenization not in ("none", "char"):
        blocks.append(
            Paragraph(
                "The references look tokenised already (a space before the full stop). Published scores of "
                'such text are computed without a second tokenisation: train.bleu_tokenize = "none".'
            )
        )
    if command := evaluate_command(facts.config, facts.folder.resolve().name):
        blocks += [Paragraph("To compute them again:"), Code([command])]
    return blocks


def with_interval(row: Record, key: str) -> str:
    around = row.get(f"{key}_interval")
    return f"{row[key]:.2f}" + (f" ± {around[1]:.2f}" if around else "")


def evaluate_command(config: Config, folder: str) -> str:
    """The command that computes the scores again, empty if no single one does.

    Files stand there by name alone: the folders of this machine do not go out into the world.
    """
    corpora = config.data.valid if config.data.test is None else config.data.test
    found = parts(corpora) if corpora is not None else []
    if not found or (len(found) > 1 and config.data.test is None):
        return ""
    corpus = found[0][0] if len(found) == 1 else ()  # of several the run itself knows
    names = [corpus] if isinstance(corpus, str) else corpus
    given = [part for name in names for part in ("--data", public_name(name))]
    words = bleu_tokenization(config.train.bleu_tokenize, config.task.target)
    return shlex.join(["regard", "evaluate", "-m", folder, *given, "--tokenize", words])


def public_name(corpus: str) -> str:
    return corpus if corpus.split(":")[0] in NAMES else Path(corpus).name
