"""Traces of all families: names, values, readings, files, figures, the command."""

from __future__ import annotations

import ast
import json
import re
import struct
from graphlib import TopologicalSorter
from io import StringIO
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from safetensors.torch import save_file

from conftest import Command, Refused
from regard import interpret
from regard.batch import collate
from regard.cli.explain import show
from regard.errors import RegardError, UsageError
from regard.interpret import Trace, align, pharaoh
from regard.interpret import readings as read
from regard.interpret.activations import visible
from regard.interpret.names import TABLE, attentions, lookup
from regard.interpret.page import make_page
from regard.interpret.predictions import page_json
from regard.interpret.record import record
from regard.sample import Sample
from regard.tasks import Translator, decode_options, load
from traced_models import KINDS, TEXT, WITH_TARGET, opened_task, small_folder, traced

pytestmark = pytest.mark.usefixtures("same_threads")
DOCS = Path(__file__).parent.parent / "docs" / "trace.md"
SHORT = {"max_length": 6, "beam": 3}


def short(kind: str, **options: object) -> Trace:
    """A trace whose output is short: untrained models never end."""
    if kind in WITH_TARGET:
        options = {"decode": SHORT, **options}
    trace = traced(kind, **options)
    assert isinstance(trace, Trace)
    return trace


# Rows and defaults


def test_rows_of_a_decoder_are_named_by_what_is_read_and_what_is_written() -> None:
    trace = short("transformer")
    target, output = trace.tokens["target"].shown, trace.tokens["output"].shown
    wanted = tuple(f"after {read}, writes {written}" for read, written in zip(target, output))
    assert trace.query_labels("decoder.0.cross") == trace.query_labels("decoder.1.self") == wanted
    assert trace.query_labels("encoder.0.self") == trace.tokens["source"].shown
    assert page_json("x", trace)["tokens"]["target"]["labels"] == list(wanted)
    generated = short("gpt")
    verbs = [label.rsplit(" ", 2)[-2] for label in generated.query_labels("decoder.0.self")]
    prompt = int(generated.meta["prompt"])
    assert prompt > 1
    assert verbs == ["reads"] * (prompt - 1) + ["writes"] * (len(verbs) - prompt + 1)


def test_an_attention_is_chosen_by_default() -> None:
    trace = short("transformer")
    assert trace.attention_name() == "decoder.0.cross" == page_json("x", trace)["attention"]
    assert trace.attention_name("encoder.self") == "encoder.0.self"
    assert trace.attention_name("cross", 1) == trace.cross(1) == "decoder.1.cross"
    assert short("fill").attention_name() == "encoder.0.self"
    assert short("bahdanau").attention_name() == "decoder.cross"
    assert page_json("x", short("rnn"))["attention"] is None
    assert trace.default_step("decoder.0.cross") == len(trace.tokens["target"]) // 2
    for where, layer in (("cross", 2), ("decoder.cross.nothing", None), ("nothing", 0)):
        with pytest.raises(UsageError):
            trace.attention_name(where, layer)


# Names


def test_every_family_traces_and_every_name_is_documented() -> None:
    seen = set()
    for kind in KINDS:
        trace = short(kind)
        for name in trace.names():
            row = lookup(name)
            assert row is not None, name
            seen.add(row.pattern)
            assert trace[name].dim() == row.rank
    assert seen == {name.pattern for name in TABLE}, "a name that no family has, or that the table lacks"
    rows = re.findall(
        r"^\| `([^`]+)` \| `([^`]+)` \| (.+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name: (shape, meaning) for name, shape, meaning in rows} == {
        name.pattern: (name.shape, name.meaning) for name in TABLE
    }


@pytest.mark.parametrize("kind", KINDS)
def test_traced_and_untraced_logits_are_equal(kind: str) -> None:
    task, trace = opened_task(kind), short(kind)
    model, before = task.folder.model, {k: v.clone() for k, v in task.folder.model.state_dict().items()}
    ids = {side: list(pieces.ids) for side, pieces in trace.tokens.items()}
    segments: list[int] = []
    if kind == "answer":
        question = ids["source"].index(task.folder.source.end) + 1
        segments = [0] * question + [1] * (len(ids["source"]) - question)
    sample = Sample(source=ids.get("source", ()), target=ids.get("target", ()), segments=segments)
    with torch.no_grad():
        plain = model(collate([sample]))[0]
        torch.testing.assert_close(trace["logits"], plain, rtol=1e-5, atol=1e-5)
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
        exact = small_folder(kind).model.double()
        _, logits = record(exact, sample)
        torch.testing.assert_close(logits, exact(collate([sample]))[0].float(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_attention_by_numpy(kind: str) -> None:
    trace = short(kind)
    for place in trace.attentions:
        weights, scores = (trace[f"{place}.{name}"].double().numpy() for name in ("weights", "scores"))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
        if place == "decoder.cross":
            values = trace[f"{place}.value"].double().numpy()
            np.testing.assert_allclose(trace[f"{place}.context"].numpy(), weights[0] @ values, atol=1e-5)
            continue
        q, k, v = (trace[f"{place}.{name}"].double().numpy() for name in ("query", "key", "value"))
        k, v = (np.repeat(x, len(q) // len(x), axis=0) for x in (k, v))
        products = q @ k.transpose(0, 2, 1)
        expected = products if trace.meta["family"] == "t5" else products / np.sqrt(q.shape[-1])
        bias = f"{place.split('.')[0]}.positions.bias"
        if place.endswith("self") and bias in trace:
            expected = expected + trace[bias].double().numpy()
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        mask = trace[f"{place}.mask"].numpy()
        hidden = np.where(mask, expected, -np.inf)
        powers = np.exp(hidden - hidden.max(-1, keepdims=True))
        np.testing.assert_allclose(weights, powers / powers.sum(-1, keepdims=True), atol=1e-5)
        assert (weights[:, ~mask] == 0).all()
        np.testing.assert_allclose(trace[f"{place}.mixed"].numpy(), weights @ v, atol=1e-5)
        if place.startswith("decoder") and place.endswith("self"):
            window = getattr(opened_task(kind).folder.config, "window", None) or len(mask)
            causal = np.tril(np.ones_like(mask))
            assert (mask == causal & ~np.tril(causal, -window)).all()


@pytest.mark.parametrize("kind", ["transformer", "post-norm", "llama", "fill"])
def test_the_stream_adds_up(kind: str) -> None:
    trace = short(kind)
    side = "encoder" if "source" in trace.tokens else "decoder"
    parts = trace[f"{side}.embedding.tokens"].clone()
    for name in ("positions", "segments"):
        if f"{side}.embedding.{name}" in trace:
            parts += trace[f"{side}.embedding.{name}"]
    torch.testing.assert_close(trace[f"{side}.embedding.sum"], parts)
    before, after = trace[f"{side}.embedding.out"], trace[f"{side}.0.after_self"]
    added = before + trace[f"{side}.0.self.output"]
    pre = f"{side}.0.self.norm" in trace
    torch.testing.assert_close(after if pre else trace[f"{side}.0.self.sum"], added)
    if pre:
        torch.testing.assert_close(trace[f"{side}.0.out"], after + trace[f"{side}.0.feed_forward.output"])


@pytest.mark.parametrize("kind", ["rnn", "bahdanau", "rnn gru"])
def test_the_gates_of_a_cell_by_their_equations(kind: str) -> None:
    trace = short(kind)
    for cell in ("decoder.0", "encoder.1.backward" if "gru" in kind else "encoder.1.forward"):
        hidden = trace[f"{cell}.hidden"]
        if "gru" in kind:
            z, new = trace[f"{cell}.update"], trace[f"{cell}.candidate"]
            order = -1 if cell.startswith("encoder") else 1  # the last word is read first
            for one, two in list(zip(range(len(hidden)), range(1, len(hidden))))[::order]:
                last, now = (two, one) if order < 0 else (one, two)
                expected = (1 - z[now]) * new[now] + z[now] * hidden[last]
                torch.testing.assert_close(hidden[now], expected)
            continue
        memory = trace[f"{cell}.memory"]
        written = trace[f"{cell}.input"] * trace[f"{cell}.candidate"]
        torch.testing.assert_close(memory[1:], (trace[f"{cell}.forget"][1:] * memory[:-1]) + written[1:])
        torch.testing.assert_close(hidden, trace[f"{cell}.output"] * memory.tanh())


# The output, and the search


def test_trace_output_equals_translate(tiny_model: Path) -> None:
    task = load(tiny_model, "cpu", 1)
    for text in ("ba de fi", "ga"):
        trace = task.trace(text)
        assert trace.output == task.translate(text)
        forced = task.trace(text, trace.output)
        torch.testing.assert_close(forced["logits"], trace["logits"])
        best = task.translate_lines([text], alignment=True)[0].candidates[0]
        assert sum(trace.log_probabilities()) == pytest.approx(best.log_probability, abs=1e-3)
        assert trace.alignment() == best.alignment
        pair = (trace.tokens["source"].ids[:-1], trace.tokens["output"].ids[:-1])
        links = align([task.folder.model], [pair], task.folder.source, task.folder.target)[0]
        assert pharaoh(trace.alignment()) == pharaoh(links)
        assert trace.meta["interventions"] == [] and trace.beam


def test_trace_output_equals_every_task() -> None:
    from regard.tasks.tagger import find_words

    fill, spans = KINDS["fill"][3]["text"], KINDS["t5 gated"][3]["text"]
    assert short("fill").output == opened_task("fill").fill(fill).text
    assert short("t5 gated").output == opened_task("t5 gated").fill(spans).text
    assert short("classify").output == opened_task("classify").classify(TEXT).label
    tags = [word.tag for word in opened_task("tag").tag(TEXT).words]
    assert short("tag").output.split() == tags
    assert len(tags) == len(list(find_words(TEXT)))
    answer = opened_task("answer").answer(TEXT, KINDS["answer"][3]["context"])
    assert short("answer").output == answer.text
    for kind in ("gpt", "llama", "gpt rotary"):
        for options in ({"beam": 2, "max_length": 5}, {"sample": True, "seed": 4, "max_length": 5}):
            assert short(kind, decode=options).output == opened_task(kind).generate(TEXT, **options)
    for kind in ("t5", "rnn", "bahdanau", "post-norm"):
        assert short(kind).output == opened_task(kind).translate(TEXT, check=False, **SHORT)


def test_the_tree_of_a_search(tiny_model: Path) -> None:
    task = load(tiny_model, "cpu", 1)
    beam = 4
    trace = task.trace("ba de fi", decode={"beam": beam})
    nodes = trace.beam
    for node in nodes:
        parent = nodes[node.parent] if node.parent >= 0 else None
        assert node.step == (parent.step + 1 if parent else 0)
        assert node.score == pytest.approx((parent.score if parent else 0.0) + node.log_p, abs=1e-4)
        assert parent is None or parent.fate == "kept"
    steps = {node.step for node in nodes}
    assert all(sum(n.step == s and n.fate == "kept" for n in nodes) <= beam for s in steps)
    best = [node for node in nodes if node.best]
    assert [node.token for node in best] == list(trace.tokens["output"].ids)
    assert best[-1].fate == "finished"
    options = decode_options(task.folder.decode, {"beam": beam})
    hypotheses = task.translate_lines(["ba de fi"], options, num_results=beam)[0].candidates
    finished = [node.score for node in nodes if node.fate == "finished"]
    for each in hypotheses:
        assert any(abs(score - each.log_probability) < 1e-3 for score in finished)


def test_tokens_and_words() -> None:
    trace = short("transformer")
    source = trace.tokens["source"]
    assert len(source.ids) == len(source.texts) == len(source.words)
    assert source.texts[-1] == "</s>"
    assert source.words[-1] == -1
    assert "".join(source.texts[:-1]).split() == TEXT.split()
    assert list(source.group_texts) == [*TEXT.split(), "</s>"]
    assert [place for places in source.groups for place in places] == list(range(len(source)))
    foreign = short("transformer", text="cat \u05e9\u05dc\u05d5\u05dd \u4f60\u597d").tokens["source"]
    assert list(foreign.group_texts) == ["cat", "\u05e9\u05dc\u05d5\u05dd", "\u4f60\u597d", "</s>"]
    prompt = short("gpt")
    assert "source" not in prompt.tokens
    start = prompt.meta["prompt"]
    assert "".join(prompt.tokens["target"].texts[1:start]).split() == TEXT.split()


# Readings


def random_weights(seed: int, heads: int, rows: int, columns: int) -> torch.Tensor:
    return torch.randn(heads, rows, columns, generator=torch.Generator().manual_seed(seed)).mul(3).softmax(-1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.integers(1, 4), st.lists(st.integers(1, 3), min_size=1, max_size=5))
def test_merged_words_sum_to_one(seed: int, heads: int, sizes: list[int]) -> None:
    ends = np.cumsum([0, *sizes]).tolist()
    groups = [list(range(a, b)) for a, b in pairwise(ends)]
    weights = random_weights(seed, heads, ends[-1], ends[-1])
    merged = read.word_attention(weights, groups, groups).numpy()
    np.testing.assert_allclose(merged.sum(-1), 1, atol=1e-5)
    plain = weights.numpy()
    for i, queries in enumerate(groups):
        for j, keys in enumerate(groups):
            expected = plain[:, queries][:, :, keys].sum(-1).mean(-1)
            np.testing.assert_allclose(merged[:, i, j], expected, atol=1e-5)


def test_rollout_by_numpy() -> None:
    layers = [random_weights(n, 2, 5, 5) for n in range(3)]
    expected = np.eye(5)
    for weights in layers:
        expected = (0.5 * weights.mean(0).numpy() + 0.5 * np.eye(5)) @ expected
    np.testing.assert_allclose(read.rollout(layers).numpy(), expected, atol=1e-6)
    decoder = [random_weights(n, 2, 4, 4) for n in (7, 8)]
    cross = [random_weights(n, 2, 4, 5) for n in (9, 10)]
    source, target = read.rollout_across(read.rollout(layers), decoder, cross)
    # equal to one large rollout over the positions of source and target side by side
    both = np.concatenate([np.zeros((4, 5)), np.eye(4)], axis=1)
    memory = np.concatenate([expected, np.zeros((5, 4))], axis=1)
    for a, c in zip(decoder, cross):
        both = 0.5 * both + 0.5 * a.mean(0).numpy() @ both
        both = 0.5 * both + 0.5 * c.mean(0).numpy() @ memory
    np.testing.assert_allclose(torch.cat([source, target], dim=1).numpy(), both, atol=1e-6)
    np.testing.assert_allclose(both.sum(1), 1, atol=1e-6)
    for kind in ("transformer", "gpt", "fill"):
        rows = short(kind).rollout().sum(-1)
        assert bool((rows <= 1 + 1e-5).all())
        assert kind == "transformer" or torch.allclose(rows, torch.ones(len(rows)), atol=1e-5)


@pytest.mark.parametrize("kind", ["post-norm", "llama", "fill", "t5"])
def test_value_norms_by_hand(kind: str) -> None:
    """||a_ij v_j W_O|| computed vector by vector, also where a packed layer has no plain weight."""
    trace, model = short(kind), opened_task(kind).folder.model
    for place, attention in attentions(model).items():
        value = trace[f"{place}.value"].repeat_interleave(attention.heads // attention.kv_heads, dim=0)
        with torch.no_grad():
            zero = torch.zeros(1, attention.heads * attention.channels)
            bias = attention.output(zero)[0]
            for head in range(attention.heads):
                alone = zero.repeat(value.shape[1], 1).view(-1, attention.heads, attention.channels)
                alone[:, head] = value[head]
                contribution = attention.output(alone.flatten(1)) - bias  # [S,D]
                weighted = trace.weights(place, head, weighted=True)
                expected = (trace.weights(place, head)[..., None] * contribution).norm(dim=-1)
                torch.testing.assert_close(weighted, expected, rtol=1e-4, atol=1e-5)


def test_entropy_and_distance_by_numpy() -> None:
    weights = random_weights(3, 2, 4, 6)
    a = weights.double().numpy()
    np.testing.assert_allclose(read.entropy(weights).numpy(), -(a * np.log2(a)).sum(-1).mean(-1), atol=1e-5)
    far = np.abs(np.arange(4)[:, None] - np.arange(6))
    np.testing.assert_allclose(read.mean_distance(weights).numpy(), (a * far).sum(-1).mean(-1), atol=1e-5)
    one = torch.zeros(1, 2, 8)
    one[..., 3] = 1
    assert read.entropy(one).item() == 0
    assert read.entropy(torch.full((1, 2, 8), 1 / 8)).item() == pytest.approx(3)


@pytest.mark.parametrize("kind", ["transformer", "t5", "gpt", "llama", "fill"])
def test_the_last_layer_of_the_lens_is_the_output(kind: str) -> None:
    trace = short(kind)
    p = trace["logits"].softmax(dim=-1).topk(5, dim=-1)
    torch.testing.assert_close(trace["lens.probabilities"][-1], p.values, rtol=1e-4, atol=1e-5)
    assert len(trace["lens.ids"]) == 3  # the embedding and two layers
    assert all(trace.word(int(number)) != f"<id {number}>" for number in trace["lens.ids"].flatten())


def test_occlusion_is_the_change_of_log_p(tiny_model: Path) -> None:
    task = load(tiny_model, "cpu", 1)
    text, output = "ba de", task.translate("ba de")
    changes = task.occlusion(text, output)
    assert [word for word, _ in changes] == ["ba", "de"]
    assert all(change > 1 for _, change in changes), "each source word determines an output word"
    plain = task.folder.source.encode("ba de")
    hidden = [task.folder.source.suppressed[-1], plain[1], task.folder.source.end]
    ids = [*task.folder.target.encode(output), task.folder.target.end]
    read = [task.folder.target.start, *ids[:-1]]
    with torch.no_grad():
        runs = [
            task.folder.model(collate([Sample(source=source, target=read)]))[0]
            for source in ([*plain, task.folder.source.end], hidden)
        ]
    log_p = [float(x.log_softmax(-1).gather(1, torch.tensor(ids)[:, None]).sum()) for x in runs]
    assert changes[0][1] == pytest.approx(log_p[0] - log_p[1], abs=1e-3)


@pytest.mark.parametrize("kind", ["gpt", "t5 gated", "fill", "classify", "tag", "answer", "bahdanau"])
def test_occlusion_of_every_task(kind: str) -> None:
    inputs = {name: value for name, value in KINDS[kind][3].items() if name in ("text", "context")}
    changes = opened_task(kind).occlusion(inputs.pop("text", TEXT), **inputs)
    assert changes[0][0] == "the"
    assert all(np.isfinite(change) for _, change in changes)


# The file


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_holds_all_of_it(kind: str, tmp_path: Path) -> None:
    trace, file = short(kind), tmp_path / "run.safetensors"
    trace.save(file)
    again = Trace.load(file)
    assert again.names() == trace.names()
    assert all(torch.equal(again[name], trace[name]) for name in trace.names())
    assert again.as_json() == trace.as_json()
    assert (again.tokens, again.beam, again.vocabulary) == (trace.tokens, trace.beam, trace.vocabulary)
    assert again.to_bytes() == trace.to_bytes()


def rewritten(raw: bytes, change: dict[str, object]) -> bytes:
    """The file with parts of its JSON replaced."""
    size = struct.unpack("<Q", raw[:8])[0]
    head = json.loads(raw[8 : 8 + size])
    content = json.loads(head["__metadata__"]["regard.trace"])
    head["__metadata__"]["regard.trace"] = json.dumps({**content, **change})
    new = json.dumps(head).encode()
    return struct.pack("<Q", len(new)) + new + raw[8 + size :]


HOSTILE: dict[str, dict[str, object]] = {
    "format": {"format": 2},
    "extra": {"more": 1},
    "pieces": {"tokens": {"source": {"ids": [1], "texts": [], "words": [0]}}},
    "other length": {"tokens": {"source": {"ids": [1], "texts": ["a"], "words": [0]}}},
    "no pieces": {"tokens": {}},
    "side": {"tokens": {"../x": {"ids": [1], "texts": ["a"], "words": [0]}}},
    "nodes": {"beam": [{"number": 0}]},
    "circle": {
        "beam": [
            {"number": 0, "step": 0, "parent": 0, "token": 1, "text": ""}
            | {"log_p": 0.0, "score": 0.0, "fate": "kept", "best": True}
        ]
    },
    "words": {"vocabulary": {"x": "y"}},
    "output": {"output": 5},
    "tensors": {"tensors": []},
    "labels": {"meta": {"labels": 5}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_trace_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    file.write_bytes(rewritten(short("transformer").to_bytes(), HOSTILE[name]))
    with pytest.raises(UsageError, match=r"run\.safetensors: not a whole trace"):
        Trace.load(file)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_torn_file_is_an_error_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = bytearray(short("rnn gru").to_bytes())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        for _ in range(data.draw(st.integers(1, 8))):
            raw[data.draw(st.integers(0, 4000))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.mktemp("torn") / "x.safetensors"
    file.write_bytes(bytes(raw))
    try:
        Trace.load(file)  # a changed letter of a text may go unseen
    except RegardError as error:
        assert "\n" not in str(error)


def test_other_files(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "weights.safetensors")
    with pytest.raises(UsageError, match="no trace"):
        Trace.load(tmp_path / "weights.safetensors")
    with pytest.raises(UsageError, match="safetensors"):
        Trace.load(tmp_path / "nothing.safetensors")
    with pytest.raises(UsageError, match="a trace is written as"):
        short("rnn").save(tmp_path / "x.bin")


# Only some of it


def test_only_selects_tensors() -> None:
    trace = short("transformer", only=("decoder.*.cross.weights", "logits"))
    assert trace.names() == ["decoder.0.cross.weights", "decoder.1.cross.weights", "logits"]
    whole = short("transformer")
    assert all(torch.equal(trace[name], whole[name]) for name in trace.names())
    norms = short("transformer", only=("encoder.1.self.value_norms", "lens.ids"))
    assert norms.names() == ["encoder.1.self.value_norms", "lens.ids"]
    with pytest.raises(UsageError, match="no tensor of this run is called"):
        short("transformer", only=("decoder.9.*",))
    with pytest.raises(UsageError, match="is not in this trace"):
        trace["encoder.0.self.weights"]


def test_a_text_of_512_pieces() -> None:
    task = opened_task("classify", 520, 2)
    text = "cat " * 600
    text = task.folder.source.decode(task.folder.source.encode(text)[:510])
    trace = task.trace(text, only=("encoder.1.self.weights", "logits"))
    assert trace["encoder.1.self.weights"].shape == (4, 512, 512)
    figure = trace.figure("attention", head=0)
    assert len(figure.svg) < 1_500_000
    ElementTree.fromstring(figure.svg)


# Figures

STRANGE = "a<script>alert(1)</script>&\"' \x00\x1b[31m \u202eשלום مرحبا 你好 👩‍🚀 \ud83d $x^2$ \uffff"
DRAWN = [
    ("transformer", view)
    for view in ("attention", "heads", "alignment", "entropy", "lens", "positions", "beam")
] + [
    ("bahdanau", "alignment"),
    ("t5", "positions"),
    ("llama", "positions"),
    ("answer", "attention"),
    ("rnn", "beam"),
]


@pytest.mark.parametrize(("kind", "view"), DRAWN)
def test_figures_are_whole_and_harmless(kind: str, view: str, tmp_path: Path) -> None:
    trace = short(kind, text=STRANGE)
    figure = trace.figure(view)
    root = ElementTree.fromstring(figure.svg)
    assert root.tag.endswith("svg")
    assert {node.tag.rpartition("}")[2] for node in root.iter()} <= {
        *("svg", "title", "desc", "style", "rect", "text", "line", "image")
    }
    for name in ("svg", "html", "json"):
        figure.save(tmp_path / f"x.{name}")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!data:image/png)", page)
    assert "default-src 'none'" in page
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8"))["view"] == view
    shown = figure._repr_html_()
    assert shown.startswith('<iframe sandbox=""')
    assert shown.count("<") == 2, "all else is inside the frame's attribute"
    assert figure.svg == trace.figure(view).svg
    assert figure.scene.png().startswith(b"\x89PNG")


def test_a_figure_shows_the_numbers(tmp_path: Path) -> None:
    trace = short("transformer")
    figure = trace.figure("attention", layer=1, head=2)
    assert figure.data["where"] == "decoder.1.cross"
    np.testing.assert_allclose(figure.data["values"], trace["decoder.1.cross.weights"][2].numpy(), atol=1e-6)
    words = trace.figure("attention", layer=0, where="encoder.self", words=True)
    assert words.data["columns"] == [*TEXT.split(), "</s>"]
    np.testing.assert_allclose(np.sum(words.data["values"], axis=1), 1, atol=1e-5)
    figure.save(tmp_path / "x.png")
    raw = (tmp_path / "x.png").read_bytes()
    assert raw.startswith(b"\x89PNG")
    short("transformer", text=STRANGE).figure("alignment").save(tmp_path / "y.PNG")
    with pytest.raises(UsageError, match="written as"):
        figure.save(tmp_path / "x.pdf")
    assert "<bdi>" in figure.html


@pytest.mark.parametrize(
    ("kind", "view", "options", "words"),
    [
        ("transformer", "attentoin", {}, 'did you mean "attention"'),
        ("transformer", "attention", {"layer": 7}, "layer = 7: the decoder has 2 layers"),
        ("transformer", "attention", {"layer": 1, "head": 4}, "decoder.1.cross has 4 heads, 0 to 3"),
        ("transformer", "attention", {"where": "encoder.cross"}, "there is no attention"),
        ("transformer", "heads", {"head": 4}, "4 heads"),
        ("transformer", "alignment", {"layer": 2}, "layer = 2"),
        ("gpt", "alignment", {}, "no cross-attention"),
        ("classify", "alignment", {}, "no cross-attention"),
        ("rnn", "alignment", {}, "no cross-attention"),
        ("rnn", "heads", {}, "no attention"),
        ("rnn", "lens", {}, "no logit lens"),
        ("rnn", "positions", {}, "no positions"),
        ("t5", "positions", {"head": 99}, "head = 99: there are 4"),
        ("classify", "positions", {"only": ["logits"]}, "no positions"),
        ("classify", "lens", {}, "no logit lens"),
        ("gpt rotary", "beam", {"decode": {"seed": 1, "max_length": 3, "sample": True}}, "no search"),
    ],
)
def test_what_cannot_be_drawn(kind: str, view: str, options: dict[str, object], words: str) -> None:
    trace_options = {name: options[name] for name in ("decode", "only") if name in options}
    options = {name: value for name, value in options.items() if name not in trace_options}
    trace = short(kind, **trace_options)
    with pytest.raises(UsageError) as caught:
        trace.figure(view, **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "only",
    [
        ["decoder.*.weights"],
        ["encoder.*.weights", "*.cross.weights"],
        ["*.self.weights"],
        ["*.0.self.weights"],
    ],
)
def test_a_part_of_a_run_has_no_rollout(only: list[str]) -> None:
    """Some parts gave an IndexError, others the product of attentions that do not belong together."""
    trace = short("transformer", only=only)
    with pytest.raises(UsageError, match="all attentions"):
        trace.rollout()
    assert "look/rollout" not in trace.page().html


# Invalid input


@pytest.mark.parametrize("kind", ["transformer", "gpt", "fill", "classify", "tag", "answer"])
@pytest.mark.parametrize("text", ["", "  \n", "\t"])
def test_an_empty_text(kind: str, text: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        short(kind, text=text)


def test_other_bad_input() -> None:
    with pytest.raises(UsageError, match="the model reads 159"):
        short("transformer", text="cat " * 200)
    with pytest.raises(UsageError, match="generates no text"):
        short("classify", target="x")
    with pytest.raises(UsageError, match="context"):
        short("answer", context=None)
    with pytest.raises(UsageError, match="context"):
        short("transformer", context="x")
    with pytest.raises(UsageError, match="one text"):
        short("transformer", text=["a", "b"])
    with pytest.raises(UsageError, match="trace one of its models"):
        one = opened_task("rnn").folder
        Translator(one, one).trace("cat")
    assert short("gpt", text="\ud800 \x00 cat").output is not None


# The command


@pytest.mark.parametrize("kind", KINDS)
def test_the_terminal_shows_every_family(kind: str) -> None:
    trace, file = short(kind), StringIO()
    show(trace, Console(file=file, width=200), None, None, None, None)
    shown = file.getvalue()
    assert visible(trace.output) in shown
    assert ("the weights sum to 1.0000" in shown) == bool(trace.attentions)


def test_explain(regard: Command, refused: Refused, tiny_model: Path, tmp_path: Path) -> None:
    options = ("explain", "-m", tiny_model, "ba de fi")
    shown = regard(*options)
    assert shown.code == 0
    for part in ("source: 4 tokens", "decoder.0.cross, head 0", "the weights sum to 1.0000", "If Ed Ab"):
        assert part in shown.out
    for ending in ("svg", "png", "html", "json", "safetensors"):
        out = tmp_path / f"run.{ending}"
        assert regard(*options, "-o", out).code == 0
        assert out.stat().st_size > 500
    assert Trace.load(tmp_path / "run.safetensors").output == "If Ed Ab"
    changed = regard(*options, "--zero-head", "decoder.0.cross:1", "--change", '{"type": "drop_positions"}')
    assert "KL divergence" in changed.out
    drawn = regard(*options, "--view", "attention", "--head", 1, "-o", tmp_path / "a.json", "--words")
    assert drawn.code == 0
    assert json.loads((tmp_path / "a.json").read_text())["head"] == 1
    for wrong, words in (
        (("--head", 7), "2 heads, 0 to 1"),
        (("--layer", 7), "layer = 7"),
        (("--step", 70), "step = 70"),
        (("--zero-head", "decoder.5.cross:1"), "the decoder has 1 layer"),
        (("--zero-head", "decoder"), "such as decoder.3.cross:5"),
        (("--change", "{"), "not JSON"),
        (("--context", "x"), "context"),
        (("-o", tmp_path / "x.gif"), "must end with one of"),
        (("-o", tmp_path / "x.svg", "--view", "tree"), "no view"),
    ):
        assert words in refused(*options, *wrong)
    assert "empty" in refused("explain", "-m", tiny_model, " ")


# The package


def test_a_page_needs_the_web_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not installed"):
        make_page(short("rnn"), web=tmp_path / "web")


def test_the_modules_of_interpret_have_no_import_cycle() -> None:
    folder = Path(interpret.__file__).parent
    imports: dict[str, set[str]] = {
        path.stem: set() for path in folder.glob("*.py") if path.stem != "__init__"
    }
    for name, modules in imports.items():
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("regard.interpret."):
                modules.add(str(node.module).split(".")[2])
    assert list(TopologicalSorter(imports).static_order())  # CycleError names a cycle
