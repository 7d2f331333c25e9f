"""The sections on the held-out texts of each task: breakdowns, errors, examples."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from regard.metrics.bleu import UNSPACED, text_scores
from regard.metrics.labels import Span, spans
from regard.training.progress import Record
from regard.training.report.page import Block, case, table
from regard.training.report.run_data import RunData

MAX_LENGTHS = (5, 10, 15, 20, 30, 40, 60)  # of the buckets of the breakdown by length; one more is open
ALIGNED_WORDS = range(6, 17)  # words of a sentence whose alignment is shown
ALIGNMENTS, BEST_AND_WORST, ERRORS, CONTINUATIONS = 3, 5, 12, 8  # examples shown
MAX_LABELS = 24  # of a confusion matrix; of more labels the most frequent confusions are listed
MAX_TYPES, CONFUSIONS, WRONG_TOKENS = 60, 20, 15  # rows of tables
CONTEXT = 140  # characters of the context on either side of an answer
SENTINEL = re.compile(r"(<extra_id_\d+>)")  # T5's name of a masked span; its text follows

Section = Callable[[RunData], Iterator[Block]]


def over_texts(section: Callable[[RunData, str, list[Record]], Iterator[Block]]) -> Section:
    """A section over the rows of the test split, else of the validation split, if they were recorded."""

    def build(run: RunData) -> Iterator[Block]:
        split, rows = run.held_out()
        yield from section(run, split, rows) if rows else ["The held-out texts were not recorded."]

    return build


def error_list(unit: str, order: str, total: int, errors: Sequence[Block]) -> Iterator[Block]:
    """The first ERRORS wrong examples below a sentence that counts them."""
    limit = f"; {ERRORS} are shown" if len(errors) > ERRORS else ""
    wrong = f"{len(errors):,} of {total:,} {unit} are wrong{limit}, {order}."
    yield wrong if errors else f"None: all {total:,} {unit} are right."
    yield from errors[:ERRORS]


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def type_rows(types: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """Count, precision, recall and F1 of labels or entity types, the most frequent first."""
    ranked = sorted(types.items(), key=lambda item: -item[1]["count"])
    fields = ("precision", "recall", "f1")
    rows = [
        [name, f"{scores['count']:,}", *(percent(scores[key]) for key in fields)]
        for name, scores in ranked[:MAX_TYPES]
    ]
    rest = len(ranked) - len(rows)
    return [*rows, [f"and {rest:,} more", "", "", "", ""]] if rest else rows


# --- translate --------------------------------------------------------------------------------------------


def length_unit(language: str) -> tuple[str, Callable[[str], int]]:
    """The unit of a text's length: words, or characters in languages without spaces between words."""
    if language.lower().replace("_", "-").split("-")[0] in UNSPACED:
        return "characters", len
    return "words", lambda text: len(text.split())


def scores_by_length(rows: Sequence[Record], length: Callable[[str], int], tokenize: str) -> list[Record]:
    """BLEU and chrF by length of the source, without empty buckets."""
    buckets, low = [], 0
    for high in (*MAX_LENGTHS, None):
        bucket = [row for row in rows if low <= length(row["source"]) <= (high or math.inf)]
        if bucket:
            name = f"{max(low, 1)} to {high}" if high else f"{low} and more"
            outputs, references = ([row[side] for row in bucket] for side in ("output", "reference"))
            scores = text_scores(outputs, references, tokenize)
            buckets.append(
                {"length": name, "sentences": len(bucket), "bleu": scores.bleu, "chrf": scores.chrf}
            )
        low = (high or 0) + 1
    return buckets


@over_texts
def lengths(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    unit, length = length_unit(run.config.task.source)
    buckets = [
        [each["length"], f"{each['sentences']:,}", f"{each['bleu']:.2f}", f"{each['chrf']:.2f}"]
        for each in scores_by_length(rows, length, run.tokenization)
    ]
    yield table([f"{unit} of the source, {split} data", "sentences", "BLEU", "chrF"], buckets)


@over_texts
def sentences(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    """The worst and the best by chrF; of equal scores the longer ones first. None stands in both lists."""
    ranked = sorted(rows, key=lambda row: (row["chrf"], -len(row["source"])))
    half = min(BEST_AND_WORST, len(ranked) // 2)
    best = sorted(ranked[half:], key=lambda row: (-row["chrf"], -len(row["source"])))[:half]
    score = "the model's score is the length-normalised log-probability"
    yield f"The worst of the {split} data by chrF; {score}."
    yield from map(sentence, ranked[: half or 1])
    yield "The best, long ones first."
    yield from map(sentence, best)


def sentence(row: Record) -> Block:
    remark = f"chrF {row['chrf']:.1f}, model's score {row['score']:.2f}"
    return case([(name, row[name]) for name in ("source", "reference", "output")], remark)


def alignments(run: RunData) -> Iterator[Block]:
    """Sentences with median scores, neither long nor, if possible, short."""

    def words(row: Record) -> list[int]:
        return [len(row[side].split()) for side in ("source", "output")]

    rows = [row for row in run.held_out()[1] if row["alignment"] and max(words(row)) < ALIGNED_WORDS.stop]
    rows = [row for row in rows if min(words(row)) >= ALIGNED_WORDS.start] or rows
    if not rows:
        yield "No alignment was recorded."
        return
    start = max(0, (len(rows) - ALIGNMENTS) // 2)
    median = sorted(rows, key=lambda row: row["chrf"])[start : start + ALIGNMENTS]
    yield "Sentences with median scores: for each output word the source word with the most cross-attention."
    texts = [{side: row[side].split() for side in ("source", "output")} for row in median]
    links = [{"links": [*map(tuple, row["alignment"])]} for row in median]
    yield {"kind": "alignments", "alignments": [a | b for a, b in zip(texts, links)]}


# --- generate, fill ---------------------------------------------------------------------------------------


@over_texts
def continuations(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    yield f"Continuations of texts of the {split} data."
    for row in rows[:CONTINUATIONS]:
        yield case([("prompt", row["source"]), ("continuation", row["output"])])


@over_texts
def written_texts(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    wrong = [row for row in rows if row["output"] != row["reference"]]
    files = [("file", row["source"].rpartition("/")[2]) for row in wrong]
    texts = [[(name, row[name]) for name in ("reference", "output")] for row in wrong]
    errors = [case([file, *both]) for file, both in zip(files, texts)]
    yield from error_list("texts", "in the order of the data", len(rows), errors)


def masked_pairs(row: Record) -> list[tuple[str, str]]:
    """(reference, output) of each masked token, or of each masked span of T5."""
    if not any(SENTINEL.fullmatch(token.strip()) for token in row["reference"]):
        return [*zip(row["reference"], row["output"])]
    reference, output = spans_by_sentinel(row["reference"]), spans_by_sentinel(row["output"])
    return [(text, output.get(name, "")) for name, text in reference.items() if text]


def spans_by_sentinel(tokens: Sequence[str]) -> dict[str, str]:
    """The text after each sentinel, up to the next."""
    bare = (token.strip() if SENTINEL.fullmatch(token.strip()) else token for token in tokens)
    _, *parts = SENTINEL.split("".join(bare))
    return dict(zip(parts[::2], parts[1::2]))


@over_texts
def predictions(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    pairs = Counter(pair for row in rows for pair in masked_pairs(row))
    wrong = [(pair, count) for pair, count in pairs.most_common() if pair[0] != pair[1]]
    right = pairs.total() - sum(count for _, count in wrong)
    text = f"{right:,} of {pairs.total():,} masked tokens of the {split} data were predicted"
    yield f"{text}; the most frequent errors:" if wrong else f"{text}."
    confusions = [[*without_spaces(*pair), f"{count:,}"] for pair, count in wrong[:WRONG_TOKENS]]
    if confusions:
        yield table(["masked", "predicted", "times"], confusions, text_columns=2)


@over_texts
def masked_texts(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    """The texts with the fewest and with the most tokens predicted."""

    def share(row: Record) -> float:
        pairs = masked_pairs(row)
        return sum(reference == output for reference, output in pairs) / max(1, len(pairs))

    ranked = sorted(rows, key=lambda row: (share(row), row["log_probability"] or 0.0))
    half = min(BEST_AND_WORST, len(ranked) // 2)
    yield "Texts with the fewest tokens predicted."
    yield from map(masked_text, ranked[: half or 1])
    if half:
        yield "Texts with the most."
        yield from map(masked_text, ranked[::-1][:half])


def masked_text(row: Record) -> Block:
    pairs = masked_pairs(row)
    masked, predicted = zip(*(without_spaces(*pair) for pair in pairs)) if pairs else ((), ())
    texts = [("text", row["source"]), ("masked", " · ".join(masked)), ("predicted", " · ".join(predicted))]
    right = sum(reference == output for reference, output in pairs)
    log_p = "" if row["log_probability"] is None else f", log-probability {row['log_probability']:.2f}"
    return case(texts, f"{right} of {len(pairs)} right{log_p}")


def without_spaces(reference: str, output: str) -> tuple[str, str]:
    """Two tokens without the spaces around, unless only these differ."""
    bare = reference.strip(), output.strip() or "–"
    if bare[0] == bare[1] and reference != output:
        return reference.replace(" ", "␣"), output.replace(" ", "␣")
    return bare


# --- classify ---------------------------------------------------------------------------------------------


def labels(run: RunData) -> Iterator[Block]:
    """The confusion matrix, where a text has one label, and the scores of each label."""
    record = run.final_scores()
    if "by_type" not in record:
        yield "Not scored yet."
        return
    confusion = record.get("confusion")
    if confusion and len(confusion["labels"]) <= MAX_LABELS:
        yield "Rows are the references, columns the outputs of the model; the diagonal is right."
        yield {"kind": "matrix", "corner": "reference ↓ output →", **confusion}
    elif pairs := confusions(run.held_out()[1]):
        yield "The most frequent confusions."
        yield table(["reference", "output instead", "texts"], pairs, text_columns=2)
    yield table(["label", "texts", "precision", "recall", "F1"], type_rows(record["by_type"]))


def confusions(rows: Sequence[Record]) -> list[list[str]]:
    pairs = Counter(
        tuple(", ".join(each) or "–" for each in wrong_labels(row)) for row in rows if is_wrong(row)
    )
    return [[*names, f"{count:,}"] for names, count in pairs.most_common(CONFUSIONS)]


@over_texts
def label_errors(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    wrong = sorted((row for row in rows if is_wrong(row)), key=lambda row: -confidence(row))
    cases = [label_case(row) for row in wrong]
    return error_list(f"texts of the {split} data", "the most confident first", len(rows), cases)


def wrong_labels(row: Record) -> tuple[list[str], list[str]]:
    """(missing, added) labels of the output."""
    missing = [label for label in row["reference"] if label not in row["output"]]
    return missing, [label for label in row["output"] if label not in row["reference"]]


def is_wrong(row: Record) -> bool:
    return any(wrong_labels(row))


def confidence(row: Record) -> float:
    """The probability of an added label, else 1 - that of a missing one."""
    p, (missing, added) = row["probabilities"], wrong_labels(row)
    wrong = [p.get(label, 0.0) for label in added] or [1.0 - p.get(label, 0.0) for label in missing]
    return float(max(wrong))


def label_case(row: Record) -> Block:
    reference, output = (", ".join(row[side]) or "no label" for side in ("reference", "output"))
    names = dict.fromkeys([*row["output"], *row["reference"]])
    p = ", ".join(f"{100 * row['probabilities'].get(label, 0.0):.1f} % {label}" for label in names)
    return case([("text", row["source"]), ("reference", reference), ("output", output)], f"probability: {p}")


# --- tag --------------------------------------------------------------------------------------------------


class EntityErrors(NamedTuple):
    """The entities of a sentence. `wrong`: (reference, output) overlap, with other type or words."""

    right: list[Span]
    wrong: list[tuple[Span, Span]]
    missed: list[Span]
    spurious: list[Span]

    @property
    def errors(self) -> int:
        return len(self.wrong) + len(self.missed) + len(self.spurious)


def entity_errors(row: Record) -> EntityErrors:
    """Each wrong entity of the output is paired with the first reference that it overlaps."""
    reference, output = spans(row["reference"]), spans(row["output"])
    right = [span for span in reference if span in output]
    missed, spurious = ([span for span in side if span not in right] for side in (reference, output))
    wrong = []
    for span in list(missed):
        overlap = next((each for each in spurious if each[1] <= span[2] and span[1] <= each[2]), None)
        if overlap is not None:
            wrong.append((span, overlap))
            missed.remove(span)
            spurious.remove(overlap)
    return EntityErrors(right, wrong, missed, spurious)


def entity_types(run: RunData) -> Iterator[Block]:
    record, (_, rows) = run.final_scores(), run.held_out()
    if "by_type" not in record:
        yield "Not scored yet."
        return
    yield table(["type", "entities", "precision", "recall", "F1"], type_rows(record["by_type"]))
    if not rows:
        return
    counts: Counter[str] = Counter()
    for each in map(entity_errors, rows):
        counts.update(right=len(each.right), missed=len(each.missed), spurious=len(each.spurious))
        for reference, output in each.wrong:
            parts = ["type"] * (reference[0] != output[0]) + ["words"] * (reference[1:] != output[1:])
            counts[f"wrong {' and '.join(parts)}"] += 1
    names = ("right", "wrong type", "wrong words", "wrong type and words", "missed", "spurious")
    yield table(["entities", "count"], [[name, f"{counts[name]:,}"] for name in names])


@over_texts
def entity_list(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    pairs = sorted(((row, entity_errors(row)) for row in rows), key=lambda pair: -pair[1].errors)
    cases = [entity_case(row, entities) for row, entities in pairs if entities.errors]
    return error_list(f"sentences of the {split} data", "those with most errors first", len(rows), cases)


def entity_case(row: Record, entities: EntityErrors) -> Block:
    def name(span: Span) -> str:
        return f"{' '.join(row['source'][span[1] : span[2] + 1])} ({span[0]})"

    parts = {
        "sentence": [" ".join(row["source"])],
        "wrong": [f"{name(reference)} was tagged {name(output)}" for reference, output in entities.wrong],
        "missed": [*map(name, entities.missed)],
        "spurious": [*map(name, entities.spurious)],
        "right": [*map(name, entities.right)],
    }
    return case([(part, "; ".join(texts)) for part, texts in parts.items() if texts])


# --- answer -----------------------------------------------------------------------------------------------


@over_texts
def answers(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    """Questions with and without an answer."""
    counts = []
    for name, has_answer in (("with an answer", True), ("without an answer", False)):
        if group := [row for row in rows if bool(row["reference"]) == has_answer]:
            answered = sum(bool(row["output"]) for row in group)
            numbers = [f"{number:,}" for number in (len(group), answered, len(group) - answered)]
            exact, f1 = (percent(sum(row[key] for row in group) / len(group)) for key in ("exact", "f1"))
            counts.append([name, *numbers, exact, f1])
    head = [f"questions of the {split} data", "count", "answered", "unanswered", "exact match", "F1"]
    yield table(head, counts)


@over_texts
def answer_errors(run: RunData, split: str, rows: list[Record]) -> Iterator[Block]:
    """Answers that are not exact."""
    ranked = sorted(rows, key=lambda row: (row["f1"], -(row["score"] or 0)))
    cases = [answer_case(row) for row in ranked if not row["exact"]]
    order = "the lowest F1 first, and of these the highest score"
    return error_list(f"questions of the {split} data", order, len(rows), cases)


def answer_case(row: Record) -> Block:
    texts = [
        ("question", row["source"]),
        ("reference", " | ".join(dict.fromkeys(row["reference"])) or "no answer"),
        ("output", row["output"] or "no answer"),
        ("context", excerpt(row["context"], [*row["reference"], row["output"]])),
    ]
    score = "" if row["score"] is None else f", model's score {row['score']:.2f}"
    return case(texts, f"F1 {100 * row['f1']:.1f} %{score}")


def excerpt(context: str, answers: Sequence[str]) -> str:
    """The context around the first answer that it contains, else its beginning; whole words if possible."""
    answer = next((text for text in answers if text and text in context), "")
    place = context.find(answer)
    start, end = max(0, place - CONTEXT), min(len(context), place + len(answer) + CONTEXT)
    if start and " " in context[start:place]:
        start = context.index(" ", start, place) + 1
    if end < len(context) and " " in context[place + len(answer) : end]:
        end = context.rindex(" ", place + len(answer), end)
    return ("… " if start else "") + context[start:end] + (" …" if end < len(context) else "")


TASK_SECTIONS: dict[str, dict[str, Section]] = {
    "translate": {"Score by length": lengths, "Sentences": sentences, "Alignment": alignments},
    "generate": {"Continuations": continuations},
    "fill": {"Predictions": predictions, "Texts": masked_texts},
    "classify": {"Labels": labels, "Errors": label_errors},
    "tag": {"Entities": entity_types, "Errors": entity_list},
    "answer": {"Answers": answers, "Errors": answer_errors},
    "transcribe": {"Texts": written_texts},
    "caption": {"Texts": written_texts},
}
