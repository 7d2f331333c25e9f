"""Accuracy, precision, recall and F1 of labels and of entities, tested equal to scikit-learn and seqeval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
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
    gold, predicted = (
        {(label, n) for n, row in enumerate(rows) for label in row} for rows in (reference, output)
    )
    present = {label for label, _ in gold | predicted}
    names = [*labels, *sorted(present - set(labels))]
    by_type = _by_type([label for label in names if label in present], gold, predicted)
    right = sum(set(one) == set(other) for one, other in zip(reference, output, strict=True))
    accuracy = right / len(reference) if by_type else 1.0
    macro = sum(each["f1"] for each in by_type.values()) / max(1, len(by_type))
    scores: Scores = {"accuracy": accuracy, "f1": macro, "by_type": by_type}
    if many:
        return {**scores, "exact": accuracy, "micro_f1": _total(gold, predicted)["f1"]}
    if by_type and len(names) <= MAX_CONFUSION_LABELS:
        scores["confusion"] = confusion([row[0] for row in reference], [row[0] for row in output], names)
    return scores


def confusion(reference: Sequence[str], output: Sequence[str], labels: Sequence[str]) -> Scores:
    """`counts[i][j]`: texts with label i that were classified as j."""
    counts = Counter(zip(reference, output, strict=True))
    return {"labels": list(labels), "counts": [[counts[one, other] for other in labels] for one in labels]}


def tagging_scores(reference: Sequence[Sequence[str]], output: Sequence[Sequence[str]]) -> Scores:
    """Precision, recall and F1 of whole entities as conlleval and seqeval count them; accuracy of words.

    An entity is right if its type, its first and its last word are. With no entity in the reference and none
    in the output F1 is 0.
    """
    gold, predicted = (
        {(kind, n, first, last) for n, tags in enumerate(rows) for kind, first, last in spans(tags)}
        for rows in (reference, output)
    )
    pairs = [pair for rows in zip(reference, output, strict=True) for pair in zip(*rows, strict=True)]
    equal = sum(to_bioes(one) == to_bioes(other) for one, other in pairs)
    types = sorted({kind for kind, *_ in gold | predicted})
    return {
        "accuracy": equal / len(pairs) if pairs else 1.0,
        **_total(gold, predicted),
        "by_type": _by_type(types, gold, predicted),
    }


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


Items = Set[tuple[Any, ...]]  # what is to be found, its type first


def _rates(right: int, gold: int, predicted: int) -> Scores:
    """Precision, recall and F1; 0 where nothing is to be found, or nothing was."""
    return {
        "precision": right / max(1, predicted),
        "recall": right / max(1, gold),
        "f1": 2 * right / max(1, gold + predicted),
    }


def _total(gold: Items, predicted: Items) -> Scores:
    return _rates(len(gold & predicted), len(gold), len(predicted))


def _by_type(names: Sequence[str], gold: Items, predicted: Items) -> Scores:
    counts = [Counter(item[0] for item in items) for items in (gold & predicted, gold, predicted)]
    return {name: {**_rates(*(each[name] for each in counts)), "count": counts[1][name]} for name in names}
