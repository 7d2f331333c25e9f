"""Scores of the tasks: equal to scikit-learn, seqeval and torchmetrics, and plain numbers."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report as seqeval_report
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.metrics.sequence_labeling import get_entities
from sklearn.metrics import accuracy_score, classification_report, f1_score
from sklearn.preprocessing import MultiLabelBinarizer
from torchmetrics.functional.text import squad

from regard.metrics import perplexity_scores
from regard.metrics.answers import squad_scores
from regard.metrics.labels import (
    MAX_CONFUSION_LABELS,
    classification_scores,
    confusion,
    spans,
    tagging_scores,
    to_bioes,
)

few = settings(max_examples=60, deadline=None)
LABELS = ["good", "bad", "so so", "<b>", "é|é"]
TYPES = ["PER", "LOC", "B-LOC", "O"]  # types that look like tags too
SCHEMES = {"IO": "I", "IOB": "BI", "IOE": "IE", "IOBES": "BIES"}


def plain(value: object) -> bool:
    """Whether JSON holds it as it is: no numpy number, no NaN."""
    return json.loads(json.dumps(value, allow_nan=False)) == value


# --- classification ---------------------------------------------------------------------------------------

one_label = st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from(LABELS)), min_size=1, max_size=30)
some_labels = st.lists(st.sampled_from(LABELS), unique=True)


@few
@given(one_label)
def test_one_label_as_scikit_learn_has_it(pairs: list[tuple[str, str]]) -> None:
    reference, output = [[true] for true, _ in pairs], [[said] for _, said in pairs]
    found = classification_scores(reference, output, LABELS[:3], many=False)  # the rest is unseen
    true, said = [row[0] for row in reference], [row[0] for row in output]
    told = classification_report(true, said, output_dict=True, zero_division=0)
    assert found["accuracy"] == pytest.approx(accuracy_score(true, said))
    assert found["f1"] == pytest.approx(f1_score(true, said, average="macro", zero_division=0))
    assert set(found["by_type"]) == set(true) | set(said)
    for label, own in found["by_type"].items():
        expected = [told[label][key] for key in ("precision", "recall", "f1-score", "support")]
        assert [own[key] for key in ("precision", "recall", "f1", "count")] == pytest.approx(expected)
    names, counts = found["confusion"]["labels"], found["confusion"]["counts"]
    assert names[:3] == LABELS[:3]
    for row, label in zip(counts, names):
        assert row == [sum((label, other) == pair for pair in pairs) for other in names]
    assert plain(found)


@few
@given(st.lists(st.tuples(some_labels, some_labels), min_size=1, max_size=20))
@example([([], [])])
@example([(["good"], []), ([], ["bad"])])
def test_many_labels_as_scikit_learn_has_them(pairs: list[tuple[list[str], list[str]]]) -> None:
    reference, output = [true for true, _ in pairs], [said for _, said in pairs]
    found = classification_scores(reference, output, LABELS, many=True)
    seen = sorted({label for pair in pairs for row in pair for label in row})
    assert found["accuracy"] == found["exact"]
    assert found["exact"] == pytest.approx(sum(set(true) == set(said) for true, said in pairs) / len(pairs))
    assert "confusion" not in found
    assert plain(found)
    if not seen:
        assert found["f1"] == found["micro_f1"] == 0
        return
    binarizer = MultiLabelBinarizer(classes=[*seen, "never"])  # one column alone would be read otherwise
    true, said = binarizer.fit_transform(reference), binarizer.transform(output)
    assert found["exact"] == pytest.approx(accuracy_score(true, said))
    own = {"labels": range(len(seen)), "zero_division": 0}
    assert found["f1"] == pytest.approx(f1_score(true, said, average="macro", **own))
    assert found["micro_f1"] == pytest.approx(f1_score(true, said, average="micro", **own))
    each = f1_score(true, said, average=None, **own)
    assert [found["by_type"][label]["f1"] for label in seen] == pytest.approx(list(each))


def test_one_label_of_which_a_text_may_have_none() -> None:
    found = classification_scores([["spam"], [], ["spam"]], [["spam"], ["spam"], []], ["spam"], many=True)
    assert found["f1"] == found["micro_f1"] == found["by_type"]["spam"]["f1"] == 0.5
    assert found["exact"] == pytest.approx(1 / 3)


def test_a_label_that_is_not_there_takes_nothing_from_the_mean() -> None:
    rows = [["good"], ["bad"]]
    assert classification_scores(rows, rows, LABELS, many=False)["f1"] == 1
    assert classification_scores(rows, rows, LABELS, many=True)["f1"] == 1


def test_the_order_of_the_labels_is_that_of_the_model() -> None:
    """References down, outputs across; labels that the model does not know come last."""
    assert confusion(["b", "b", "a"], ["a", "b", "a"], ["b", "a"]) == {
        "labels": ["b", "a"],
        "counts": [[1, 1], [0, 1]],
    }
    found = classification_scores([["new"], ["a"]], [["b"], ["a"]], ["b", "a"], many=False)
    assert found["confusion"] == {"labels": ["b", "a", "new"], "counts": [[0, 0, 0], [0, 1, 0], [1, 0, 0]]}


def test_a_confusion_matrix_of_very_many_labels_is_not_kept() -> None:
    labels = [f"label {number}" for number in range(MAX_CONFUSION_LABELS + 1)]
    rows = [[label] for label in labels]
    assert "confusion" not in classification_scores(rows, rows, labels, many=False)
    assert "confusion" in classification_scores(rows[:-1], rows[:-1], labels[:-1], many=False)


# --- tagging ----------------------------------------------------------------------------------------------


@st.composite
def sentences(draw: st.DrawFn) -> list[list[str]]:
    """Tags of one scheme in any order, most of it wrong: what a model may say."""
    marks = draw(st.sampled_from(sorted(SCHEMES.values())))
    tags = [
        "O",
        *(f"{mark}-{kind}" for mark in marks for kind in TYPES),
        *(marks if draw(st.booleans()) else ()),
    ]
    return draw(st.lists(st.lists(st.sampled_from(tags), max_size=12), min_size=1, max_size=5))


@settings(max_examples=300, deadline=None)
@given(sentences())
def test_spans_are_the_entities_of_seqeval(rows: list[list[str]]) -> None:
    for tags in rows:
        assert spans(tags) == get_entities(tags)


@few
@given(sentences(), sentences(), st.randoms(use_true_random=False))
def test_tagging_as_seqeval_has_it(rows: list[list[str]], more: list[list[str]], dice: random.Random) -> None:
    """Two sets of tags of equal shape, of which some agree."""
    pool = [tag for row in more for tag in row] or ["O"]
    output = [[tag if dice.random() < 0.6 else dice.choice(pool) for tag in row] for row in rows]
    found = tagging_scores(rows, output)
    words = [pair for true, said in zip(rows, output) for pair in zip(true, said)]
    assert plain(found)
    assert found["accuracy"] == pytest.approx(sum(a == b for a, b in words) / len(words) if words else 1.0)
    if not found["by_type"]:
        assert not [span for row in (*rows, *output) for span in spans(row)]
        assert found["f1"] == 0
        return
    told = seqeval_report(rows, output, output_dict=True, zero_division=0)
    assert found["f1"] == pytest.approx(seqeval_f1(rows, output, zero_division=0))
    for own, name in ((found, "micro avg"), *((each, kind) for kind, each in found["by_type"].items())):
        expected = [told[name][key] for key in ("precision", "recall", "f1-score")]
        assert [own[key] for key in ("precision", "recall", "f1")] == pytest.approx(expected)
    averages = {"micro avg", "macro avg", "weighted avg"}
    assert {kind: own["count"] for kind, own in found["by_type"].items()} == {
        kind: own["support"] for kind, own in told.items() if kind not in averages
    }


@few
@given(sentences())
def test_the_right_tags_are_all_right(rows: list[list[str]]) -> None:
    found = tagging_scores(rows, rows)
    entities = sum(len(spans(row)) for row in rows)
    assert found["accuracy"] == 1
    assert found["f1"] == found["precision"] == found["recall"] == float(entities > 0)
    assert sum(own["count"] for own in found["by_type"].values()) == entities


def test_other_schemes_are_read_as_what_they_mean() -> None:
    """BILOU and BMES say the same as IOBES, and tags without a scheme count by runs."""
    assert spans(["B-PER", "L-PER", "U-PER", "U-PER", "O"]) == [("PER", 0, 1), ("PER", 2, 2), ("PER", 3, 3)]
    assert spans(["B-X", "M-X", "E-X", "S-X"]) == [("X", 0, 2), ("X", 3, 3)]
    assert spans(["NOUN", "NOUN", "VERB", "."]) == [("NOUN", 0, 1), ("VERB", 2, 2), (".", 3, 3)]
    assert [to_bioes(tag) for tag in ("M", "B_X", "O-X", "", "I-O")] == [
        "I-M",
        "I-B_X",
        "I-O-X",
        "I-",
        "I-O",
    ]
    found = tagging_scores([["NOUN", "VERB"]], [["NOUN", "NOUN"]])
    assert found["accuracy"] == 0.5
    assert set(found["by_type"]) == {"NOUN", "VERB"}


def test_entities_with_the_same_words_and_another_type_are_wrong() -> None:
    found = tagging_scores([["I-PER", "I-PER", "O", "I-LOC"]], [["I-PER", "I-PER", "O", "I-ORG"]])
    assert (found["precision"], found["recall"], found["accuracy"]) == (0.5, 0.5, 0.75)
    assert found["by_type"]["ORG"] == {"precision": 0, "recall": 0, "f1": 0, "count": 0}


def test_no_sentence_and_no_entity() -> None:
    for rows in ([], [[]], [["O", "O"]]):
        found = tagging_scores(rows, rows)
        assert (found["accuracy"], found["f1"], found["by_type"]) == (1.0, 0.0, {})


def test_sentences_of_other_lengths_are_no_pair() -> None:
    with pytest.raises(ValueError, match="zip"):
        tagging_scores([["I-A", "O"]], [["I-A"]])


# --- question answering -----------------------------------------------------------------------------------

WORDS = [
    "the",
    "The",
    "a",
    "an",
    "cat",
    "Cat",
    "cats",
    "dog",
    "U.S.",
    "co-op",
    "'s",
    "—",
    "ǅ",
    "theatre",
    "1,000",
    "\t",
]
answer = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join) | st.text(max_size=8)


def normal(text: str) -> bool:
    """Whether something is left of an answer; the others are no references in SQuAD's own script."""
    (exact,) = [squad_of("", [text])[0]]
    return exact == 0


def squad_of(output: str, references: list[str]) -> tuple[float, float]:
    """torchmetrics, as shares."""
    scores = squad(
        [{"prediction_text": output, "id": "1"}],
        [{"answers": {"answer_start": [0] * len(references), "text": references}, "id": "1"}],
    )
    return float(scores["exact_match"]) / 100, float(scores["f1"]) / 100


@settings(max_examples=150, deadline=None)
@given(st.lists(answer.filter(normal), max_size=3), answer)
def test_answers_as_torchmetrics_has_them(references: list[str], output: str) -> None:
    """Best over the references; of a question without any the empty text is the one right answer."""
    scores, each = squad_scores([references], [output])
    assert each == [(scores["exact"], scores["f1"])]
    assert each[0] == pytest.approx(squad_of(output, references or [""]), abs=1e-6)
    assert plain(scores)


def test_no_answer() -> None:
    """Empty against empty is right, else wrong; a reference of which nothing is left is none."""
    _, each = squad_scores([[], [], ["cat"], [], ["the"], ["the", "cat"]], ["", "cat", "", "The!", "", ""])
    assert each == [(1, 1.0), (0, 0.0), (0, 0.0), (1, 1.0), (1, 1.0), (0, 0.0)]


def test_the_means_are_over_the_questions() -> None:
    scores, each = squad_scores([["black cat"], ["dog"], []], ["The black, black CAT", "the dog.", ""])
    assert [row[0] for row in each] == [0, 1, 1]
    assert each[0][1] == pytest.approx(2 * 2 / (3 + 2))
    assert scores == {"exact": pytest.approx(2 / 3), "f1": pytest.approx((0.8 + 1 + 1) / 3)}
    assert squad_scores([], []) == ({"exact": 0, "f1": 0}, [])
    with pytest.raises(ValueError, match="2 questions and 1 answers"):
        squad_scores([[], []], [""])


# --- language models --------------------------------------------------------------------------------------


@few
@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=20), st.integers(1, 100))
def test_perplexity_is_the_inverse_of_the_geometric_mean(probabilities: list[float], size: int) -> None:
    found = perplexity_scores(sum(math.log(p) for p in probabilities), len(probabilities), size)
    assert found["perplexity"] == pytest.approx(
        math.prod(p ** (-1 / len(probabilities)) for p in probabilities)
    )
    assert 2 ** (-found["bits_per_byte"] * size) == pytest.approx(math.prod(probabilities), rel=1e-6)


def test_a_uniform_model_of_bytes_has_eight_bits_a_byte() -> None:
    found = perplexity_scores(1000 * math.log(1 / 256), 1000, 1000)
    assert found == {"perplexity": pytest.approx(256), "bits_per_byte": pytest.approx(8)}
    assert math.isfinite(perplexity_scores(-1e9, 1, 1)["perplexity"])
    assert perplexity_scores(0.0, 0, 0) == {"perplexity": 1.0, "bits_per_byte": 0.0}
