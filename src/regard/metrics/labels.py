"""Accuracy, precision, recall and F1 of labels (scikit-learn) and of entities (seqeval)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Scores = dict[str, Any]
Span = tuple[str, int, int]  # type, first word, last word

MAX_CONFUSION_LABELS = 100  # a larger confusion matrix is neither stored nor readable
NO_TYPE = "_"  # seqeval's type of a tag without one, such as "B"
BIOES = {"L": "E", "U": "S", "M": "I"}  # last, unit and middle of BILOU and BMES


def classification_scores(
    reference: Sequence[Sequence[str]], output: Sequence[Sequence[str]], labels: Sequence[str], many: bool
) -> Scores:
    """Accuracy, macro F1 over the labels that occur, and precision, recall, F1 of each label.

    With `many` labels a text is right if all of its labels are, and there is a micro F1; with one label
    there is a confusion matrix, references down and outputs across.
    """
    from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

    present = {label for row in (*reference, *output) for label in row}
    names = [*labels, *sorted(present - set(labels))]
    seen = [label for label in names if label in present]
    if not seen:
        empty = {"accuracy": 1.0, "f1": 0.0, "by_type": {}}
        return {**empty, "exact": 1.0, "micro_f1": 0.0} if many else empty
    gold, predicted = (_as_array(rows, seen, many) for rows in (reference, output))
    ids = range(len(seen))
    each = precision_recall_fscore_support(gold, predicted, labels=ids, average=None, zero_division=0)
    macro, micro = (
        float(f1_score(gold, predicted, labels=ids, average=average, zero_division=0))
        for average in ("macro", "micro")
    )
    accuracy = float(accuracy_score(gold, predicted))
    scores: Scores = {"accuracy": accuracy, "f1": macro, "by_type": _by_type(seen, each)}
    if many:
        return {**scores, "exact": accuracy, "micro_f1": micro}
    if len(names) <= MAX_CONFUSION_LABELS:
        scores["confusion"] = confusion([row[0] for row in reference], [row[0] for row in output], names)
    return scores


def confusion(reference: Sequence[str], output: Sequence[str], labels: Sequence[str]) -> Scores:
    """`counts[i][j]`: texts with label i that were classified as j."""
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(reference, output, labels=list(labels))
    return {"labels": list(labels), "counts": counts.tolist()}


def tagging_scores(reference: Sequence[Sequence[str]], output: Sequence[Sequence[str]]) -> Scores:
    """Precision, recall and F1 of whole entities as conlleval counts them; accuracy of words.

    An entity is right if its type, its first and its last word are.
    """
    from seqeval.metrics.sequence_labeling import accuracy_score, precision_recall_fscore_support

    gold, predicted = ([[to_bioes(tag) for tag in tags] for tags in rows] for rows in (reference, output))
    types = sorted({span[0] for rows in (gold, predicted) for tags in rows for span in spans(tags)})
    accuracy = float(accuracy_score(gold, predicted)) if any(gold) else 1.0
    if not types:
        # with no entity in the reference and none in the output F1 is 0, as in seqeval and conlleval
        return {"accuracy": accuracy, "precision": 0.0, "recall": 0.0, "f1": 0.0, "by_type": {}}
    each = precision_recall_fscore_support(gold, predicted, average=None, zero_division=0)
    total = precision_recall_fscore_support(gold, predicted, average="micro", zero_division=0)
    return {"accuracy": accuracy, **_means(total), "by_type": _by_type(types, each)}


def to_bioes(tag: str) -> str:
    """A tag as B, I, E, S or O with its type. A tag of no scheme, such as NOUN, becomes I-NOUN."""
    mark, hyphen, kind = tag.partition("-")
    if tag == "O" or mark in ("B", "I", "E", "S"):
        return tag
    return f"{BIOES[mark]}-{kind}" if hyphen and mark in BIOES else f"I-{tag}"


def spans(tags: Sequence[str]) -> list[Span]:
    """The entities of a sentence. One begins at B or S, where the type changes, and after O, E or S."""
    entities: list[Span] = []
    before, kind_before = "O", NO_TYPE
    for word, tag in enumerate(to_bioes(tag) for tag in tags):
        mark, kind = tag[0], tag[2:] or NO_TYPE
        if mark != "O":
            begins = mark in "BS" or before in "OES" or kind != kind_before
            first = word if begins else entities.pop()[1]
            entities.append((kind, first, word))
        before, kind_before = mark, kind
    return entities


def _as_array(rows: Sequence[Sequence[str]], seen: Sequence[str], many: bool) -> Any:
    """Label ids [B], or with many labels 0/1 [B,L]; at least two columns, else scikit-learn reads ids."""
    import numpy as np

    index = {label: number for number, label in enumerate(seen)}
    if not many:
        return np.array([index[row[0]] for row in rows])
    array = np.zeros((len(rows), max(2, len(seen))), dtype=int)
    for number, row in enumerate(rows):
        array[number, [index[label] for label in row]] = 1
    return array


def _means(numbers: Sequence[Any]) -> Scores:
    return {name: float(value) for name, value in zip(("precision", "recall", "f1"), numbers)}


def _by_type(names: Sequence[str], columns: Sequence[Any]) -> Scores:
    return {name: {**_means(row), "count": int(row[3])} for name, row in zip(names, zip(*columns))}
