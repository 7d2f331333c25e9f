"""The report of a run and its numbers: scores, operations, sentences; made from the files of a run folder."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from torch.utils.flop_counter import FlopCounterMode

from conftest import Command, Refused, Toy, toy_config
from regard.batch import collate
from regard.device import Machine
from regard.errors import UsageError
from regard.interpret import Recorder
from regard.metrics.bleu import bleu_tokenization, bootstrap_intervals, looks_tokenized, text_scores
from regard.tasks import load
from regard.training import flops, train
from regard.training.flops import forward_flops, measured_peak, training_flops
from regard.training.loss import output_cross_entropy
from regard.training.report import finish_report, write_report
from regard.training.report.page import (
    COLOURS,
    CSS,
    MAX_POINTS,
    Block,
    case,
    chart,
    charts,
    curve,
    fenced,
    html_page,
    markdown_page,
    printable,
    save,
    svg_element,
    svg_file,
    table,
)
from report_pages import HOSTILE, Page, rows_of, write_rows
from samples import random_samples, small

pytestmark = pytest.mark.usefixtures("reports")


@pytest.fixture
def folder(toy: Toy, tmp_path: Path) -> Path:
    """A copy of a finished run, to be changed."""
    return Path(shutil.copytree(toy.model, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints")))


# --- scores -----------------------------------------------------------------------------------------------

REFERENCES = [
    "Ein Mann, der lacht.",
    "zwei junge hunde spielen im schnee .",
    "Das kostet 3,50 €!",
    "我们 去 看 房子。",
    "",
    "a b c d e f",
]
OUTPUTS = [
    "Ein Mann der lacht.",
    "zwei hunde spielen im schnee .",
    "Das kostet 3,5 €.",
    "我们 看房子。",
    "x",
    "a b c d e f",
]


@pytest.mark.parametrize("tokenize", ["none", "13a", "intl", "char", "zh"])
def test_scores_are_those_of_the_sacrebleu_command(tmp_path: Path, tokenize: str) -> None:
    """Value, signature and interval, on the same two files."""
    for name, lines in (("ref", REFERENCES), ("hyp", OUTPUTS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = ["--tokenize", tokenize, "-m", "bleu", "chrf", "-w", "9", "-f", "json"]
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(tmp_path / "ref"),
        "-i",
        str(tmp_path / "hyp"),
        *options,
    ]
    plain, sure = (
        {row["name"]: row for row in json.loads(subprocess.run(each, capture_output=True, check=True).stdout)}
        for each in (command, [*command, "--confidence"])
    )
    scores, around = (
        text_scores(OUTPUTS, REFERENCES, tokenize),
        bootstrap_intervals(OUTPUTS, REFERENCES, tokenize),
    )
    assert scores.bleu == pytest.approx(plain["BLEU"]["score"], abs=1e-8)
    assert scores.chrf == pytest.approx(plain["chrF2"]["score"], abs=1e-8)
    assert (scores.bleu_signature, scores.chrf_signature) == (
        plain["BLEU"]["signature"],
        plain["chrF2"]["signature"],
    )
    for name, key in (("BLEU", "bleu"), ("chrF2", "chrf")):
        expected = sure[name]["confidence_mean"], sure[name]["confidence_var"]
        assert around[key] == pytest.approx(expected, rel=1e-5)


def test_an_interval_where_some_samples_score_nothing() -> None:
    """sacreBLEU's own mean fails there: a sample without any match is of another type than the others."""
    mean, half = bootstrap_intervals(["ab", "xy"], ["abc", "uvw"])["chrf"]
    assert 0 < mean < 100
    assert half > 0


def test_the_tokenisation_follows_the_language_unless_it_is_chosen() -> None:
    assert [bleu_tokenization("auto", code) for code in ("de", "zh", "zh-TW", "zh_Hans", "JA")] == [
        *("13a", "zh", "zh", "zh", "char")
    ]
    assert bleu_tokenization("none", "zh") == "none"


def test_text_that_is_tokenised_already_is_noticed() -> None:
    assert looks_tokenized(["ein mann lacht ."] * 30)
    assert not looks_tokenized(["Ein Mann lacht."] * 30)
    assert not looks_tokenized(["kein Punkt"] * 30)


def test_a_tokenisation_that_cannot_be_had_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**options: object) -> BLEU:
        raise RuntimeError("Please install\n\n  more")

    monkeypatch.setattr("regard.metrics.bleu.BLEU", missing)
    with pytest.raises(UsageError, match='"ja-mecab" cannot be computed: Please install more'):
        train(toy_config(tmp_path, bleu_tokenize="ja-mecab"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluate_with_a_chosen_tokenisation(
    regard: Command, refused: Refused, toy: Toy, tmp_path: Path
) -> None:
    lines = [f"{source}\t{target} , ok .\n" for source, target in (("ba", "Ab"), ("ba de", "Ed Ab"))]
    (tmp_path / "test.tsv").write_text("".join(lines))
    ask = ("evaluate", "-m", toy.model, "--data", tmp_path / "test.tsv", "--json")
    for tokenize in ("none", "char"):
        out = tmp_path / "out.txt"
        row = json.loads(regard(*ask, "--tokenize", tokenize, "-o", out).out)
        texts = out.read_text().split("\n")[:-1]
        expected = BLEU(tokenize=tokenize).corpus_score(texts, [[line[:-1].split("\t")[1] for line in lines]])
        assert row["bleu"] == expected.score
        assert f"tok:{tokenize}" in row["bleu_signature"]
    assert "13a, none" in refused(*ask, "--tokenize", "nonne")
    assert 'did you mean "none"' in refused(*ask, "--tokenize", "nonne")


# --- operations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"encoder_layers": 3, "decoder_layers": 1, "heads": 2, "head_width": 5},
        {"norm": "pre", "activation": "gelu", "tie_embeddings": False, "feed_forward": 40},
        {"family": "t5"},
        {"family": "t5", "gated": True, "tie_embeddings": False, "heads": 2, "head_width": 5},
        {"family": "rnn"},
        {"family": "rnn", "cell": "gru", "tie_embeddings": False},
        {"family": "bahdanau"},
        {"family": "bahdanau", "score": "dot", "cell": "gru"},
        {"family": "bahdanau", "score": "general"},
    ],
)
def test_operations_are_those_that_torch_counts(shape: dict) -> None:
    model = small(layers=2, **({"width": 16} | shape))
    batch = collate([replace(sample, source=sample.source[:5]) for sample in random_samples(7, longest=7)])
    assert batch.source is not None and batch.target is not None and batch.labels is not None
    rows, target = batch.target.ids.shape
    source = batch.source.ids.shape[1]
    assert source < target
    with FlopCounterMode(display=False) as counter:
        model(batch, Recorder(wanted=lambda name: False))  # plain steps, which the counter knows
    assert counter.get_total_flops() == forward_flops(model, rows, source, target, rows * target)
    with FlopCounterMode(display=False) as counter:
        output_cross_entropy(model.hidden(batch), model.output.weight, batch.labels).backward()
    # the first state of an RNN is nothing, and needs no gradient
    exact = shape.get("family") not in ("rnn", "bahdanau")
    assert counter.get_total_flops() == pytest.approx(training_flops(model, batch), rel=0 if exact else 0.03)


def test_the_peak_is_the_best_of_some_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first size runs at 1 GFLOP/s at best, the second at 2, and a third would take too long."""
    times = iter([9.0, 0.0625, 8.0, 0.5, 7.0, 9.0])
    calls: list[tuple[int, torch.dtype]] = []

    def timed(matrix: torch.Tensor) -> float:
        calls.append((len(matrix), matrix.dtype))
        return next(times)

    monkeypatch.setattr(flops, "timed_product", timed)
    monkeypatch.setattr(flops, "PEAK_SIZES", (5, 20, 4000))
    monkeypatch.setattr(flops, "PEAK_SECONDS", 3.0)
    peak = measured_peak(Machine(torch.device("cpu"), "bfloat16", 1))
    assert peak == max(2 * 5**3 / 0.0625, 2 * 20**3 / 0.5)
    assert calls == [(5, torch.bfloat16)] * 3 + [(20, torch.bfloat16)] * 3


# --- the report of a real run -----------------------------------------------------------------------------


def test_the_sentences_are_those_of_the_translator(toy: Toy) -> None:
    rows = rows_of(toy.model / "test.jsonl")
    pairs = [line.split("\t") for line in (toy.corpora / "test.tsv").read_text().split("\n")[:-1]]
    assert [(row["source"], row["reference"]) for row in rows] == [tuple(pair) for pair in pairs]
    results = load(toy.model, threads=1).translate_lines([pair[0] for pair in pairs], alignment=True)
    assert [row["output"] for row in rows] == [each.text for each in results]
    assert [[tuple(link) for link in row["alignment"]] for row in rows] == [
        each.candidates[0].alignment for each in results
    ]
    assert [row["score"] for row in rows] == pytest.approx([f.candidates[0].score for f in results], rel=1e-4)
    chrf = CHRF()
    for row in rows:
        expected = chrf.sentence_score(row["output"], [row["reference"]]).score
        assert row["chrf"] == pytest.approx(expected, abs=1e-3)


def test_the_report_says_what_sacrebleu_says(toy: Toy) -> None:
    rows = rows_of(toy.model / "test.jsonl")
    text = (toy.model / "report.md").read_text(encoding="utf-8")
    bleu, chrf = BLEU(), CHRF()
    outputs, references = [row["output"] for row in rows], [row["reference"] for row in rows]
    total = bleu.corpus_score(outputs, [references]).score, chrf.corpus_score(outputs, [references]).score
    assert re.search(rf"^\| test \| 60 \| {total[0]:.2f} ± [\d.]+ \| {total[1]:.2f} ± ", text, re.M)
    assert str(bleu.get_signature()) in text
    short = [row for row in rows if len(row["source"].split()) <= 5]
    assert len(short) == 60  # the toy language is terse: one bucket
    assert re.search(rf"^\| 1 to 5 \| 60 \| {total[0]:.2f} \| {total[1]:.2f} \|$", text, re.M)


def test_score_by_length(folder: Path) -> None:
    """Each bucket's numbers are sacreBLEU's of exactly its lines."""
    rows = rows_of(folder / "test.jsonl")
    for number, row in enumerate(rows):
        row["source"] = " ".join(["ba"] * (number % 12 + 1))
    write_rows(folder / "test.jsonl", rows)
    write_report(folder)
    text = (folder / "report.md").read_text(encoding="utf-8")
    for name, low, high in (("1 to 5", 1, 5), ("6 to 10", 6, 10), ("11 to 15", 11, 15)):
        bucket = [row for row in rows if low <= len(row["source"].split()) <= high]
        outputs, references = [row["output"] for row in bucket], [row["reference"] for row in bucket]
        bleu = BLEU().corpus_score(outputs, [references]).score
        chrf = CHRF().corpus_score(outputs, [references]).score
        assert f"| {name} | {len(bucket)} | {bleu:.2f} | {chrf:.2f} |" in text


def test_worst_and_best_are_the_ends_of_the_ranking(folder: Path) -> None:
    rows = rows_of(folder / "test.jsonl")
    for number, row in enumerate(rows):
        row["output"], row["chrf"] = f"output-{number:02}", float((number * 7) % 60)
    write_rows(folder / "test.jsonl", rows)
    write_report(folder)
    numbers = re.findall(r"output     output-(\d\d)", (folder / "report.md").read_text(encoding="utf-8"))
    assert [rows[int(number)]["chrf"] for number in numbers] == [0, 1, 2, 3, 4, 59, 58, 57, 56, 55]


def test_the_page_is_whole_and_asks_nothing_of_the_world(toy: Toy) -> None:
    text = (toy.model / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not set(page.tags) & {"script", "link", "img", "iframe", "object", "embed", "a", "base", "form"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert not re.search(r"https?:|url\(|@import|//", text)
    headings = [page.texts[n] for n, _ in enumerate(page.texts) if page.texts[n] in SECTIONS]
    assert headings == SECTIONS
    assert [attributes.get("class") for _, attributes in page.elements].count(
        "curve"
    ) == 6  # losses, scores, rate, speed


SECTIONS = [
    "Scores",
    "Curves",
    "Data",
    "Score by length",
    "Sentences",
    "Alignment",
    "Model and training",
    "Time and cost",
]


def test_hostile_text_is_shown_as_text(folder: Path) -> None:
    """Corpora, model output, file names and findings are strangers' text, in both pages."""
    rows = rows_of(folder / "test.jsonl")
    for row in rows[:40]:
        row |= {"source": HOSTILE, "reference": HOSTILE, "output": HOSTILE, "alignment": [[0, 0], [1, 99]]}
    write_rows(folder / "test.jsonl", rows)
    finding = {"kind": HOSTILE, "meaning": HOSTILE, "count": 3, "places": [{"file": HOSTILE, "line": 1}]}
    content = {"corpora": [{"split": "train", "name": HOSTILE, "pairs": 7}], "findings": [finding, {}]}
    (folder / "data.json").write_text(json.dumps(content))
    before = set(Page((folder / "report.html").read_text(encoding="utf-8")).tags)
    write_report(folder)
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert set(page.tags) <= before
    assert page.texts.count(printable(HOSTILE)) >= 6
    text = (folder / "report.md").read_text(encoding="utf-8")
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.M | re.S)
    assert "&lt;script&gt;" in outside
    assert "<" not in outside
    assert "evil" in outside and "http://" not in outside
    assert not {"\x00", "\x1b", "\u202e"} & set(text)


def html(block: Block) -> Page:
    page = html_page("title", [("", [block])])
    return Page(page[page.index("<section>") : page.index("</main>")])


def markdown(block: Block) -> list[str]:
    return markdown_page("title", [("", [block])]).split("\n")[2:-1]


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_leaves_the_page_as_it_is(one: str, two: str) -> None:
    """The elements do not depend on the text, and the text comes back out of the page."""

    def lines(text: str) -> str:
        return "\n".join(printable(line) for line in text.removesuffix("\n").split("\n"))

    page = html(case([("source", one), ("output", two)], f"remark {one}"))
    assert page.tags == ["section", "dl", "dt", "dd", "dt", "dd", "dd"]
    assert "".join(page.texts).strip("\n") == "".join(
        ["source", lines(one), "output", lines(two), printable(f"remark {one}")]
    )
    matrix = {"kind": "matrix", "labels": [one, two], "counts": [[1, 0], [2, 3]], "corner": one}
    head, row = ["div", "table", "thead", "tr"], ["tr", "th", "td", "td"]
    assert html(matrix).tags == ["section", *head, "th", "th", "th", "tbody", *row, *row]
    assert html(table(["a", "b"], [[one, two]])).tags == [
        "section",
        *head,
        "th",
        "th",
        "tbody",
        "tr",
        "td",
        "td",
    ]
    alignment = {"source": [one, two], "output": [two], "links": [(1, 0)]}
    page = html({"kind": "alignments", "alignments": [alignment]})
    cells = ["td", "th", "span", "th", "span", "tbody", "tr", "th", "td", "td", "b"]
    assert page.tags == ["section", "div", *head, *cells]


@settings(max_examples=10, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_name_leaves_the_chart_as_it_is(one: str, two: str) -> None:
    """Names of models stand in legends: no mark-up, no mathematics, no warning about missing glyphs."""
    points = [(0.0, 1.0), (1.0, 2.0)]
    plain = chart("BLEU", [curve("a", points), curve("b", points)], names=["1", "2"], over="words")
    drawing = chart("BLEU", [curve(one, points), curve(two, points)], names=["1", "2"], over="words")
    page = html(charts([drawing], ""))
    assert set(page.tags) <= set(html(charts([plain], "")).tags)
    assert "$" not in one or any("$" in text for text in page.texts)
    assert save([drawing], "png").startswith(b"\x89PNG")
    ElementTree.fromstring(svg_file(drawing))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(alphabet="`~ab<\n\r\u2028", max_size=12), min_size=1, max_size=4))
def test_no_text_leaves_its_fence(lines: list[str]) -> None:
    first, *inside, last = fenced(lines).split("\n")
    assert first == f"{last}text"
    assert len(inside) == len(lines)
    assert not any(line.lstrip(" ").startswith(last) for line in inside)


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="ab|\\*_`<>[]&\n", max_size=20))
def test_a_cell_stays_one_cell(text: str) -> None:
    rows = markdown(table(["a", "b"], [[text, "end"]]))
    matrix = markdown({"kind": "matrix", "labels": [text], "counts": [[1]], "corner": "c"})
    assert len(rows) == len(matrix) == 3
    for row in (rows[2], matrix[0], matrix[2]):
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 3


def test_curves_of_long_and_of_broken_runs() -> None:
    """Ten thousand points become few, and a loss that is not finite is ignored."""
    long = curve("loss", [(step, 1.0 + 1 / (step + 1)) for step in range(10_000)])
    broken = curve("valid", [(10, float("nan")), (20, float("inf"))])
    svg = svg_element(chart("loss", [long, broken]))
    (path,) = re.findall(r'<g class="curve">\s*<path d="([^"]*)"', svg)
    assert 10 < len(re.findall("[ML]", path)) <= MAX_POINTS
    assert "nan" not in svg and "inf" not in svg
    assert svg_element(chart("loss", [broken])) == ""
    assert "not recorded" in html_page("title", [("", [charts([chart("loss", [broken])], "")])])
    assert save([chart("loss", [broken])], "png").startswith(b"\x89PNG")


def test_a_chart_follows_the_page_and_is_the_same_in_every_call() -> None:
    css = CSS.read_text(encoding="utf-8")
    assert all(f"--{name}: {colour};" in css for name, colour in COLOURS.items())
    drawing = chart("loss", [curve("a", [(1, 2.0), (2, 3.0)]), curve("b", [(1, 2.5)])])
    svg = svg_element(drawing)
    assert svg == svg_element(drawing) and svg_file(drawing) == svg_file(drawing)
    assert save([drawing], "png") == save([drawing], "png")
    colours = set(re.findall(r"(?:fill|stroke): ([^;\"]*)", svg))
    assert all(colour == "none" or colour.startswith("var(--") for colour in colours)
    ids = [set(re.findall(r' id="([^"]*)"', svg_element({**drawing, "title": title}))) for title in "xy"]
    assert ids[0] and not ids[0] & ids[1]  # two charts of one page
    assert "loss, by update" in svg_file(drawing) and "prefers-color-scheme: dark" in svg_file(drawing)


# --- the folder alone -------------------------------------------------------------------------------------


def test_the_report_is_made_again_from_the_folder_alone(
    regard: Command, refused: Refused, folder: Path, tmp_path: Path
) -> None:
    pages = {name: (folder / name).read_text(encoding="utf-8") for name in ("report.md", "report.html")}
    moved = folder.rename(tmp_path / "toy")  # the name of the first folder is in the title
    for name in (*pages, "model.safetensors"):
        (moved / name).unlink()
    assert regard("report", moved).lines == [str(moved / name) for name in pages]
    assert pages == {name: (moved / name).read_text(encoding="utf-8") for name in pages}
    (moved / "test.jsonl").write_text('{"source": 1}\n')
    assert refused("report", moved).startswith(f"{moved / 'test.jsonl'}, line 1: ")
    assert "holds no run" in refused("report", tmp_path / "nowhere")


def test_the_report_of_a_run_that_goes_on(folder: Path) -> None:
    """Only what is there is told: no sentences, no final scores, no data."""
    lines = (folder / "metrics.jsonl").read_text().split("\n")[:-1]
    records = [line for line in lines if json.loads(line)["kind"] in ("train", "valid")]
    (folder / "metrics.jsonl").write_text("\n".join(records) + '\n{"kind": "tra')
    for name in ("test.jsonl", "valid.jsonl", "data.json", "report.md"):
        (folder / name).unlink()
    write_report(folder)
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert "not finished yet" in text
    assert "Not scored yet" in text
    assert text.count("not recorded") == 3
    Page((folder / "report.html").read_text(encoding="utf-8"))


def test_an_odd_file_does_not_fail_a_run(folder: Path) -> None:
    """The model of a run that ends is written already: what the report lacks is logged."""
    for name in ("report.md", "report.html"):
        (folder / name).unlink()
    messages: list[str] = []
    finish_report(folder, messages.append)
    assert messages == [] and (folder / "report.html").is_file()
    (folder / "data.json").write_text('{"corpora": [3]}')
    finish_report(folder, messages.append)
    assert len(messages) == 1 and f"regard report {folder}" in messages[0]
    (folder / "test.jsonl").write_text('{"source": 1}\n')
    finish_report(folder, messages.append)
    assert f"{folder / 'test.jsonl'}, line 1: " in messages[-1]


def test_a_record_of_a_run_without_its_cost(folder: Path) -> None:
    rows = [row for row in rows_of(folder / "metrics.jsonl") if row["kind"] != "run"]
    write_rows(folder / "metrics.jsonl", [*rows, {"kind": "run", "step": 3, "seconds": 1.0, "flops": 1}])
    write_report(folder)
    assert "Not recorded in this run: updating." in (folder / "report.md").read_text(encoding="utf-8")


def test_a_resumed_run_counts_once(tmp_path: Path) -> None:
    """Ended at 6 and again at 12 updates: tokens, operations and records are those of an uncut run."""
    fields = {
        "schedule": "constant",
        "warmup": 2,
        "tokens_per_batch": 64,
        "checkpoint_every": 4,
        "log_every": 4,
    }
    uncut, cut = tmp_path / "uncut", tmp_path / "cut"
    train(toy_config(tmp_path, steps=12, **fields), uncut)
    train(toy_config(tmp_path, steps=6, **fields), cut)
    train(toy_config(tmp_path, steps=12, **fields), cut, resume=True)
    whole, parts = (rows_of(folder / "metrics.jsonl") for folder in (uncut, cut))
    counted = ("step", "tokens", "flops", "epochs", "chosen", "parameters", "vocabulary")
    ends = [[row for row in rows if row["kind"] in ("run", "test", "final-valid")] for rows in (whole, parts)]
    assert [row["kind"] for row in ends[1]] == ["final-valid", "test", "run"]
    assert [ends[0][-1][key] for key in counted] == [ends[1][-1][key] for key in counted]
    assert ends[1][-1]["flops"] > 0
    assert (uncut / "test.jsonl").read_bytes() == (cut / "test.jsonl").read_bytes()
    names = ("updates", "target tokens trained on", "operations", "test", "valid")
    lines = [
        [line for line in (folder / "report.md").read_text().split("\n") if line.startswith(starts)]
        for folder in (uncut, cut)
        for starts in [tuple(f"| {name} |" for name in names)]
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) == len(names)


def test_the_card_tells_how_to_compute_its_scores(
    regard: Command, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = (toy.model / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^regard (evaluate .*)$", card, re.M)
    assert command == "evaluate -m toy --data test.tsv --tokenize 13a"
    corpus = json.loads((toy.model / "data.json").read_text())["corpora"][0]
    assert f"- train: {corpus['used']:,} of {corpus['pairs']:,} pairs used" in card
    monkeypatch.chdir(toy.corpora)
    parts = [str(toy.model) if part == "toy" else part for part in shlex.split(command)]
    row = json.loads(regard(*parts, "--json").out)
    signature = row["bleu_signature"].replace("|", "\\|")
    assert f"| test: BLEU ({signature}) | {row['bleu']:.2f} |" in card
