"""The section with the scores, and the command that computes them again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from regard.config import Config
from regard.config.load import NAMES
from regard.data.corpora import parts
from regard.training.evaluate import RESAMPLES, bleu_tokenization, looks_tokenized
from regard.training.progress import Record
from regard.training.report.blocks import Block, Code, Paragraph, Table
from regard.training.report.facts import SETS, Facts


def scores(facts: Facts) -> list[Block]:
    found = [(name, facts.last(kind)) for kind, name in SETS.items() if facts.last(kind)]
    if not found:
        return [Paragraph("Not scored yet: the chosen model is scored when the run ends.")]
    wording = facts.wording
    columns = [each for each in wording.scores if any(each.of(record) is not None for _, record in found)]
    rows = [
        [name, f"{record.get('sentences', 0):,}", *(each.shown(record) for each in columns)]
        for name, record in found
    ]
    blocks: list[Block] = [Table(["set", wording.texts, *(each.name for each in columns)], rows)]
    blocks += REMARKS[facts.config.task.name](facts, found[0][1])
    if command := evaluate_command(facts.config, facts.folder.resolve().name):
        blocks += [Paragraph("To compute them again:"), Code([command])]
    return blocks


def of_translations(facts: Facts, row: Record) -> list[Block]:
    """Where the numbers come from: interval, signatures, and whether they are those to publish."""
    blocks: list[Block] = []
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
    return blocks


def of_guesses(facts: Facts, row: Record) -> list[Block]:
    meanings = {"t5": "texts of which every hidden span was told"}
    counted = meanings.get(facts.config.model.family, "hidden pieces that were guessed")
    return [Paragraph(f"Accuracy is the share of the {counted}.")]


def of_labels(facts: Facts, row: Record) -> list[Block]:
    macro = "Macro F1 is the mean over the labels that occur, however rare they are."
    right = "A text is right if all of its labels are. " if facts.config.task.multi_label else ""
    return [Paragraph(right + macro)]


def saying(text: str) -> Callable[[Facts, Record], list[Block]]:
    return lambda facts, record: [Paragraph(text)]


REMARKS: dict[str, Callable[[Facts, Record], list[Block]]] = {
    "translate": of_translations,
    "generate": saying("Perplexity depends on how text is cut into tokens; bits per byte do not."),
    "fill": of_guesses,
    "classify": of_labels,
    "tag": saying("An entity is right if its type, its first and its last word are, as conlleval counts."),
    "answer": saying(
        "As SQuAD's own script: without capitals, punctuation and articles, best over the references."
    ),
}


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
    option = OPTIONS.get(config.task.name)
    choice = option(config) if option else []
    return shlex.join(["regard", "evaluate", "-m", folder, *given, *choice])


def tokenize_option(config: Config) -> list[str]:
    return ["--tokenize", bleu_tokenization(config.train.bleu_tokenize, config.task.target)]


OPTIONS: dict[str, Callable[[Config], list[str]]] = {"translate": tokenize_option}


def public_name(corpus: str) -> str:
    return corpus if corpus.split(":")[0] in NAMES else Path(corpus).name
