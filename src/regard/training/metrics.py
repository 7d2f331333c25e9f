"""Scores of the field for every task but translation: plain values in, plain numbers out.

Shares lie between 0 and 1. The libraries are opened when a score is asked for, since they take a second.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

Scores = dict[str, Any]
Span = tuple[str, int, int]  # type, first word, last word

MOST_LABELS = 100  # a confusion matrix of more is too large to keep, and to look at
NO_TYPE = "_"  # of a tag that is a mark alone, as seqeval calls it
SAME_MARK = {"L": "E", "U": "S", "M": "I"}  # BILOU and BMES say last, unit and middle
LARGEST_EXPONENT = 700.0  # exp of more is no float


def classification(
    reference: Sequence[Sequence[str]], output: Sequence[Sequence[str]], labels: Sequence[str], many: bool
) -> Scores:
    """Accuracy, macro F1 over the labels that occur, and each label's own numbers, by scikit-learn.

    With `many` labels a text is right if all of its labels are, with a micro F1 beside; with one label
    there is a confusion matrix, references down and outputs across.
    """
    from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

    present = {label for row in (*reference, *output) for label in row}
    known = [*labels, *sorted(present - set(labels))]
    seen = [label for label in known if label in present]
    if not seen:
        return {
            "accuracy": 1.0,
            "f1": 0.0,
            "by_type": {},
            **({"exact": 1.0, "micro_f1": 0.0} if many else {}),
        }
    true, guessed = (_columns(rows, seen, many) for rows in (reference, output))
    numbers = range(len(seen))
    each = precision_recall_fscore_support(true, guessed, labels=numbers, average=None, zero_division=0)
    macro, micro = (
        float(f1_score(true, guessed, labels=numbers, average=average, zero_division=0))
        for average in ("macro", "micro")
    )
    accuracy = float(accuracy_score(true, guessed))
    found: Scores = {"accuracy": accuracy, "f1": macro, "by_type": _by_type(seen, each)}
    if many:
        return {**found, "exact": accuracy, "micro_f1": micro}
    if len(known) <= MOST_LABELS:
        found["confusion"] = confusion([row[0] for row in reference], [row[0] for row in output], known)
    return found


def confusion(reference: Sequence[str], output: Sequence[str], labels: Sequence[str]) -> Scores:
    """`counts[i][j]`: texts of label i that were called j."""
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(reference, output, labels=list(labels))
    return {"labels": list(labels), "counts": counts.tolist()}


def tagging(reference: Sequence[Sequence[str]], output: Sequence[Sequence[str]]) -> Scores:
    """Precision, recall and F1 of whole entities as conlleval counts them, by seqeval; accuracy of words.

    An entity is right if its type, its first and its last word are.
    """
    from seqeval.metrics.sequence_labeling import accuracy_score, precision_recall_fscore_support

    true, guessed = ([[in_scheme(tag) for tag in tags] for tags in rows] for rows in (reference, output))
    types = sorted({span[0] for rows in (true, guessed) for tags in rows for span in spans(tags)})
    accuracy = float(accuracy_score(true, guessed)) if any(true) else 1.0
    if not types:
        # where there is nothing to find and nothing was found, F1 is 0 as everywhere in the field
        return {"accuracy": accuracy, "precision": 0.0, "recall": 0.0, "f1": 0.0, "by_type": {}}
    each = precision_recall_fscore_support(true, guessed, average=None, zero_division=0)
    total = precision_recall_fscore_support(true, guessed, average="micro", zero_division=0)
    return {"accuracy": accuracy, **_means(total), "by_type": _by_type(types, each)}


def in_scheme(tag: str) -> str:
    """A tag as B, I, E, S or O with its type. Tags of no scheme, such as NOUN, are read as I-NOUN."""
    mark, hyphen, kind = tag.partition("-")
    if tag == "O" or mark in ("B", "I", "E", "S"):
        return tag
    return f"{SAME_MARK[mark]}-{kind}" if hyphen and mark in SAME_MARK else f"I-{tag}"


def spans(tags: Sequence[str]) -> list[Span]:
    """The entities of a sentence. One begins at B or S, where the type changes, and after O, E or S."""
    found: list[Span] = []
    before, kind_before = "O", NO_TYPE
    for number, tag in enumerate(in_scheme(tag) for tag in tags):
        mark, kind = tag[0], tag[2:] or NO_TYPE
        if mark != "O":
            begins = mark in "BS" or before in "OES" or kind != kind_before
            first = number if begins else found.pop()[1]
            found.append((kind, first, number))
        before, kind_before = mark, kind
    return found


def answering(
    references: Sequence[Sequence[str]], outputs: Sequence[str]
) -> tuple[Scores, list[tuple[int, float]]]:
    """Exact match and F1 of SQuAD 2: their means, and both for each question, best over its references.

    A question without a reference has no answer, and the empty text says so.
    """
    if len(references) != len(outputs):
        raise ValueError(f"{len(references)} questions and {len(outputs)} answers")
    each = []
    for texts, output in zip(references, outputs):
        said = answer_words(output)
        true = [words for text in texts if (words := answer_words(text))] or [[]]
        each.append((int(said in true), max(overlap(said, words) for words in true)))
    count = max(1, len(each))
    means = {"exact": sum(row[0] for row in each) / count, "f1": math.fsum(row[1] for row in each) / count}
    return means, each


def answer_words(text: str) -> list[str]:
    """Without capitals, punctuation, articles and the width of spaces, in the order of SQuAD's own script."""
    bare = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def overlap(output: Sequence[str], reference: Sequence[str]) -> float:
    """F1 = 2 P R / (P + R) = 2 common / (words + words); of two empty answers 1."""
    if not output or not reference:
        return float(output == reference)
    common = (Counter(output) & Counter(reference)).total()
    return 2 * common / (len(output) + len(reference))


def language(log_p_sum: float, tokens: int, bytes: int) -> Scores:
    """perplexity = exp(-sum log p / tokens); bits per byte = -sum log2 p / bytes, whatever the tokens are."""
    loss = -log_p_sum / max(1, tokens)
    return {
        "perplexity": math.exp(min(loss, LARGEST_EXPONENT)),
        "bits_per_byte": -log_p_sum / math.log(2) / max(1, bytes),
    }


def _columns(rows: Sequence[Sequence[str]], seen: Sequence[str], many: bool) -> Any:
    """Labels as numbers [B], or with many as a 0/1 for each [B,L]; one column alone would not be read so."""
    import numpy as np

    place = {label: number for number, label in enumerate(seen)}
    if not many:
        return np.array([place[row[0]] for row in rows])
    found = np.zeros((len(rows), max(2, len(seen))), dtype=int)
    for number, row in enumerate(rows):
        found[number, [place[label] for label in row]] = 1
    return found


def _means(numbers: Sequence[Any]) -> Scores:
    return {name: float(value) for name, value in zip(("precision", "recall", "f1"), numbers)}


def _by_type(names: Sequence[str], columns: Sequence[Any]) -> Scores:
    return {name: {**_means(row), "count": int(row[3])} for name, row in zip(names, zip(*columns))}
