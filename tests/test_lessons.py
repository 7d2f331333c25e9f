"""The lessons' numbers against NumPy and torch, and the functions that they name."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient

from regard.server import make_app
from regard.server.lessons import LESSONS, first, history, learning, lesson_json, masks, scale, tokens
from regard.server.lessons import cost as costs
from regard.server.lessons import order as waves
from regard.server.lessons.encoder import without_gain
from regard.server.lessons.given import Given, adam, name_of
from regard.server.lessons.heads import machine, per_head, walk
from regard.server.lessons.projections import one_sided
from regard.server.lessons.text import LessonText, text_json
from regard.tasks import load
from traced_models import KINDS, TEXT, opened_task

API = "/api/v1/lessons"
SMALL = (
    "transformer",
    "post-norm",
    "t5",
    "rnn",
    "bahdanau",
    "gpt",
    "llama",
    "fill",
    "classify",
    "tag",
    "answer",
)
MODELS = ("transformer", "rnn", "gpt", "fill")
GIVEN = np.array([[0.4, 0.4, 0.2], [0.3, 0.6, 0.1], [0.1, 0.1, 0.8]])


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    models = {kind: opened_task(kind) for kind in SMALL}
    with TestClient(make_app(models), base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as own:
        yield own


@cache
def lesson(name: str, model: str = "transformer", **more: Any) -> dict[str, Any]:
    models = {kind: opened_task(kind) for kind in SMALL}
    return lesson_json(LESSONS[name], Given(models, model, **more))


def step(name: str, title: str, model: str = "transformer", **more: Any) -> dict[str, Any]:
    return next(each for each in lesson(name, model, **more)["steps"] if each["title"] == title)


def figure(own: dict[str, Any], caption: str) -> dict[str, Any]:
    return next(each for each in own["before"] + own["after"] if each.get("caption", "").startswith(caption))


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def found(name: str) -> Any:
    """What a dotted name stands for."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(name)


# Every lesson, in every family


WITH_ANY = [(name, model) for name in LESSONS for model in MODELS if "any" in LESSONS[name].models[:1]]
WITH_ONE = [(name, "gpt") for name in LESSONS if "any" not in LESSONS[name].models[:1]]


@pytest.mark.parametrize(("name", "model"), WITH_ANY + WITH_ONE)
def test_every_step_is_whole(name: str, model: str) -> None:
    own = lesson(name, model)
    assert bool(own["steps"]) != bool(own["missing"])
    for each in own["steps"]:
        question = each["question"]
        assert each["title"]
        assert each["text"]
        for text in (*each["text"], each["why"], *each["then"], question["text"]):
            plain = "".join(part if isinstance(part, str) else next(iter(part.values())) for part in text)
            assert plain.strip()
            assert not set(plain) & set("\x02\x03")  # the marks of a token
        if question["kind"] == "choice":
            assert len(set(question["options"])) == len(question["options"]) >= 2
            assert 0 <= question["answer"] < len(question["options"])
        else:
            assert math.isfinite(question["answer"])
            assert question["tolerance"] > 0
        assert each["functions"]
        for function in each["functions"]:
            assert callable(found(function)), function


def test_tokens_are_set_apart_from_the_text_around_them() -> None:
    text = LessonText("It says {said:token} and looks at {nothing:token}house.", "a.md", 1)
    parts = ["It says ", {"token": "das Haus"}, " and looks at ", {"token": ""}, "house."]
    assert text_json(text.fill({"said": "das \x03Haus\x02", "nothing": ""})) == parts
    assert text_json("plain") == "plain"


@pytest.mark.parametrize("model", SMALL)
@pytest.mark.parametrize("name", ["queries", "layers", "decoder", "softmax", "gpt"])
def test_each_family_has_the_lesson_or_a_reason(name: str, model: str) -> None:
    own = lesson(name, model)
    assert own["steps"] or own["missing"].endswith(".")


def test_the_ledger_names_what_ran() -> None:
    attention = machine()
    assert name_of(attention) == "regard.models.attention.MultiHeadAttention.forward"
    assert found(name_of(attention.queries)) is type(attention).queries
    assert name_of(opened_task("gpt").trace) == "regard.tasks.task_model.TaskModel.trace"


# Python executes quickly


def test_given_weights_mix_the_vectors() -> None:
    own = step("mixing", "A new vector is a mixture")
    x = np.array([[1.0, 0, 2], [0, 1, 1], [2, 1, 0]])
    z = np.array([row[1:] for row in figure(own, "The new vectors")["rows"]])
    assert np.abs(z - GIVEN @ x).max() < 1e-6
    assert np.abs(np.array(figure(own, "The given weights")["values"]) - GIVEN).max() < 1e-7
    assert own["question"]["answer"] == pytest.approx((GIVEN @ x)[0, 0], abs=1e-6)


def test_weights_without_parameters() -> None:
    own = step("mixing", "Weights from the words themselves")
    x = first.EMBEDDINGS.double().numpy()
    shares = softmax(x @ x.T)
    assert np.abs(np.array(figure(own, "The weights a")["values"]) - shares).max() < 1e-6
    z = np.array([row[1:] for row in figure(own, "The new vectors")["rows"]])
    assert np.abs(z - shares @ x).max() < 1e-6
    turned = step("mixing", "For the curious: words in rows or in columns")
    columns = np.array(figure(turned, "A in columns")["values"])
    assert np.abs(columns - softmax(x @ x.T, axis=0)).max() < 1e-6
    assert np.abs(columns.sum(axis=0) - 1).max() < 1e-6


def test_no_vectors_give_the_rows_and_the_products_say_why() -> None:
    assert first.cycle_products(torch.from_numpy(GIVEN)) == pytest.approx((0.004, 0.006), abs=1e-12)
    for seed in range(20):
        x = torch.randn(3, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        there, back = first.cycle_products((x @ x.T).softmax(dim=1))
        assert there == pytest.approx(back, rel=1e-9)
    alone, learned = step("mixing", "For the curious: let the machine search")["after"][0]["series"]
    assert alone["values"][-1] > 0.005
    assert learned["values"][-1] < 1e-4


def test_learned_queries_and_keys_give_the_rows() -> None:
    found_rows, errors = first.fit_projections(first.GIVEN_WEIGHTS, first.EMBEDDINGS)
    assert np.abs(found_rows.numpy() - GIVEN).max() < 1e-5
    assert errors[0] > 0.1
    w_q, w_k = (each.double().numpy() for each in first.solve(first.GIVEN_WEIGHTS, first.EMBEDDINGS))
    x = first.EMBEDDINGS.double().numpy()
    assert np.abs(softmax((x @ w_q) @ (x @ w_k).T / np.sqrt(3)) - GIVEN).max() < 1e-6


# Queries, keys, scale, masks


def test_one_projection_is_symmetric_and_two_are_not() -> None:
    own = step("queries", "One projection")
    products = np.array(figure(own, "Scores")["values"])
    assert np.abs(products - products.T).max() < 1e-6
    assert own["question"]["answer"] == pytest.approx(products[0, 2], abs=1e-6)
    other = np.array(figure(step("queries", "A query and a key"), "Scores")["values"])
    apart = ~np.eye(3, dtype=bool)
    wanted = np.abs(other - other.T)[apart].mean() / np.abs(other)[apart].mean()
    assert one_sided(torch.from_numpy(other)) == pytest.approx(wanted, abs=1e-9)
    assert wanted > 0.1


def test_the_models_scores_are_those_of_its_trace() -> None:
    own = step("queries", "In a model that has learned", text=TEXT)
    trace = opened_task("transformer").trace(TEXT)
    shown = np.array(figure(own, "Scores of head 0")["values"])
    wanted = trace["encoder.0.self.scores"][0].numpy()[: len(shown), : len(shown)]
    assert np.abs(shown - wanted).max() < 1e-6


@pytest.mark.parametrize("d_k", [4, 64])
@pytest.mark.parametrize("scaled", [True, False])
def test_the_gradient_of_the_softmax(d_k: int, scaled: bool) -> None:
    products = scale.random_scores(d_k, None if scaled else 1.0)
    p = softmax(products.double().numpy())
    jacobians = p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :]
    wanted = np.sqrt((jacobians**2).sum(axis=(1, 2))).mean()
    assert scale.softmax_gradient(products) == pytest.approx(wanted, abs=1e-6)
    if not scaled:
        assert scale.spread(products) == pytest.approx(math.sqrt(d_k), rel=0.1)


def test_only_the_scaled_gradient_survives() -> None:
    rows = figure(step("scale", "Large scores starve the softmax"), "The same in numbers")["rows"]
    assert rows[-1][1] < 0.25 * rows[0][1]
    assert rows[-1][2] > 0.8 * rows[0][2]


def test_claims_are_quoted_and_measured() -> None:
    timing = step("scale", "Does it save time?")
    assert "optimize computation time" in timing["claim"]
    speed = step("heads", "Do eight heads speed it up?")
    assert "speed up" in speed["claim"]
    for own in (timing, speed):
        assert all(row[-1] > 0 for row in own["after"][0]["rows"])
        assert "regard.server.lessons.given.race" in own["functions"]
    counts = [row[1] for row in speed["after"][0]["rows"]]
    assert counts[0] == counts[1] == 4 * 256 * 512 * 512 + 2 * 256 * 256 * 512


def test_masked_weights() -> None:
    own = step("masks", "Minus infinity before the softmax")
    products = np.array(figure(own, "Scores")["values"])
    hidden = np.triu(np.ones((5, 5), dtype=bool), 1)
    wanted = softmax(np.where(hidden, -np.inf, products))
    assert np.abs(np.array(figure(own, "Weights")["values"]) - wanted).max() < 1e-6
    assert own["question"]["answer"] == pytest.approx(math.e / (math.e + 1), abs=1e-6)
    assert step("masks", "Who may see whom")["question"]["answer"] == 15


def test_who_sees_the_answer_copies_it() -> None:
    honest, cheat = masks.lottery(True), masks.lottery(False)
    assert np.mean(honest[-20:]) > math.log(masks.VOCABULARY) - 0.1
    assert cheat[-1] < 0.2


def test_the_unmasked_model_has_the_log_p_of_its_trace() -> None:
    own = step("masks", "In a model that learned with a mask", text=TEXT)
    task = opened_task("transformer")
    said = task.trace(TEXT).output
    change = [{"type": "unmask_future"}]
    for column, changes in ((1, []), (2, change)):
        wanted = task.trace(TEXT, target=said, interventions=changes).log_probabilities()
        assert [row[column] for row in own["after"][0]["rows"]] == pytest.approx(wanted, abs=1e-6)


# Thinking Machines


def test_the_walk_in_numpy() -> None:
    attention, seen = machine(), {name: tensor.double().numpy() for name, tensor in walk().items()}
    weights = [
        each.weight.detach().double().numpy() for each in (attention.query, attention.key, attention.value)
    ]
    x = seen["x"]
    assert x.shape == (2, 512)
    mixed = []
    for head in range(8):
        rows = slice(64 * head, 64 * head + 64)
        q, k, v = (x @ weight[rows].T for weight in weights)
        assert np.abs(seen["q"][head] - q).max() < 1e-5
        divided = q @ k.T / 8
        assert np.abs(seen["products"][head] / 8 - divided).max() < 1e-5
        mixed.append(softmax(divided) @ v)
        assert np.abs(seen["shares"][head] - softmax(divided)).max() < 1e-6
    out = np.concatenate(mixed, axis=1) @ attention.output.weight.detach().double().numpy().T
    assert np.abs(seen["output"] - out).max() < 1e-5
    answers = {each["title"]: each["question"]["answer"] for each in lesson("heads")["steps"]}
    assert answers["1. Embed, 2. make q, k and v"] == 512 * 64
    undivided = softmax(seen["products"][0, 0])
    assert answers["3. Score, 4. divide by 8"] == pytest.approx(undivided.max(), abs=1e-6)
    assert answers["5. Softmax"] == pytest.approx(seen["shares"][0, 0, 0], abs=1e-6)
    assert answers["6. Weigh the values and add"] == pytest.approx(mixed[0][0, 0], abs=1e-5)
    assert answers["Eight heads side by side"] == 512
    assert answers["W_O adds up what the heads propose"] == 512


def test_the_proposals_of_the_heads_add_up() -> None:
    mixed, output = torch.randn(3, 4, 5), torch.randn(15, 7)
    joined = mixed.transpose(0, 1).flatten(1) @ output
    assert torch.allclose(per_head(mixed, output).sum(dim=0), joined, atol=1e-5)


# Positions


def test_waves() -> None:
    table = np.array(figure(step("positions", "Waves that tell the place"), "Places")["values"])
    place, i = np.arange(8)[:, None], np.arange(waves.WIDTH // 2)
    angle = place / 10000 ** (2 * i / waves.WIDTH)
    wanted = np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(8, -1)
    assert np.abs(table - wanted).max() < 1e-6
    products = waves.likeness(torch.arange(waves.PLACES), waves.WIDTH)
    assert float(products[3, 7]) == pytest.approx(float(products[20, 24]), abs=1e-9)
    blind, seeing = (
        step("positions", title) for title in ("A dog bites a man", "The same sentences with waves")
    )
    one, two = (np.array([row[1:] for row in each["after"][0]["rows"]]) for each in (blind, seeing))
    assert np.abs(one[0] - one[1]).max() < 1e-6
    assert np.abs(two[0] - two[1]).max() > 1e-2


# Layers, decoder, softmax: the numbers of the trace


@pytest.mark.parametrize("model", ["transformer", "post-norm", "t5", "llama"])
def test_norms_are_of_unit_size(model: str) -> None:
    own = step("layers", "Layer norm: every word the same size", model)
    assert own["question"]["answer"] == pytest.approx(1, abs=0.02)  # epsilon counts, for small numbers
    norm = torch.nn.LayerNorm(16)
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(without_gain(x, norm), norm(x), atol=1e-6)


def test_a_place_of_the_feed_forward_is_alone() -> None:
    for model in ("transformer", "t5", "llama", "fill"):
        own = step("layers", "The same network at every place", model)
        assert own["question"]["options"][own["question"]["answer"]].startswith("no")


def test_the_decoder_looks_at_the_source() -> None:
    trace = opened_task("transformer").trace(TEXT)
    own = step("decoder", "Queries from below, keys and values from the encoder", text=TEXT)
    shown = np.array(own["after"][0]["values"])
    assert np.abs(shown - trace.weights(trace.cross(), 0).numpy()).max() < 1e-6
    assert own["question"]["answer"] == len(trace.tokens["source"])
    for model in ("transformer", "bahdanau", "t5"):
        for title in ("Computed once", "Later words change nothing before them"):
            question = step("decoder", title, model)["question"]
            assert question["options"][question["answer"]].startswith("no")


def test_probabilities_are_the_softmax_of_the_logits() -> None:
    trace = opened_task("transformer").trace(TEXT)
    own = step("softmax", "From logits to probabilities", text=TEXT)
    p = np.sort(softmax(trace["logits"][0].double().numpy()))[::-1]
    assert own["question"]["answer"] == pytest.approx(p[0] / p[1], rel=1e-5)
    assert own["after"][0]["values"] == pytest.approx(p[:8].tolist(), abs=1e-6)
    assert step("softmax", "How sure is it?", text=TEXT)["question"]["answer"] == pytest.approx(
        p[:5].sum(), rel=1e-5
    )


# RNN, Bahdanau, Transformer


def test_the_old_models_are_asked_for_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.builtin, "names", list)
    own = lesson("history")
    assert own["steps"] == []
    assert "phrasebook-rnn" in own["missing"]


def test_the_bottleneck_is_the_same_for_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.builtin, "names", list)
    monkeypatch.setattr(history, "EACH", 3)
    history.sentences.cache_clear()
    history.translations.cache_clear()
    models = {f"phrasebook-{family}": opened_task(family) for family in ("rnn", "bahdanau")}
    own = lesson_json(LESSONS["history"], Given(models, "phrasebook-rnn"))
    history.sentences.cache_clear()
    state, scores, looking, _ = own["steps"]
    assert "phrasebook-transformer" in str(state["text"])
    rows = {row[0]: row[1:] for row in state["after"][0]["rows"]}
    assert rows["RNN"][0] == rows["RNN"][1] == state["question"]["answer"]
    assert rows["Bahdanau"][1] > rows["Bahdanau"][0]
    assert len(scores["after"][0]["series"]) == 2
    shares = np.array(looking["after"][1]["values"]).sum(axis=1)  # of words; the sign of the end is none
    assert shares.min() > 0
    assert shares.max() < 1 + 1e-6


# Who is “She”, and tokens


def test_she_reads_with_the_model_of_the_page_if_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.builtin, "names", list)
    for model in ("transformer", "fill"):
        own = lesson_json(LESSONS["she"], Given({model: opened_task(model)}, model))
        assert own["steps"] or own["missing"].endswith(".")


def test_merges_of_neighbours() -> None:
    words = [list("abab"), list("ab")]
    assert tokens.count_pairs(words) == {("a", "b"): 3, ("b", "a"): 1}
    assert tokens.merged(words[0], ("a", "b")) == ["ab", "ab"]
    own = step("tokens", "Where the parts come from")
    question = own["question"]
    counts = {row[0]: row[1] for row in own["before"][0]["rows"]}
    assert counts[question["options"][question["answer"]]] == max(counts.values())
    assert list(counts.values()).count(max(counts.values())) == 1  # one answer is right


# Learning, pre-training


def test_the_first_step_of_adam_has_the_length_of_the_learning_rate() -> None:
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    start = x.detach().clone()
    assert list(adam([x], 0.1, lambda: (x**4).sum(), 1)) == [98.0]
    assert torch.allclose(x.detach(), start - 0.1 * start.sign(), atol=1e-6)
    losses = list(adam([x], 0.1, lambda: (x**4).sum(), 60))
    assert losses[-1] < 0.01 * losses[0]


def test_the_record_of_learning() -> None:
    record = learning.record()
    last = list(record["steps"].values())[-1]
    assert last["output"] == " ".join(record["said"]) == " ".join(reversed(record["words"]))
    mirrored = np.fliplr(np.array(last["weights"]))
    assert (mirrored.argmax(axis=1) == np.arange(len(mirrored))).all()
    assert record["loss"]["values"][0] > math.log(learning.SPOKEN) > record["loss"]["values"][-1]


def test_checkpoints_of_a_run(tiny_model: Path) -> None:
    own = lesson_json(LESSONS["learning"], Given({"toy": load(tiny_model, "cpu", 1)}, "toy", "ba de"))
    run = own["steps"][-1]
    slider = run["after"][0]
    assert run["title"] == "Your own run"
    assert slider["kind"] == "slider"
    steps = [int(place) for place in slider["places"]]
    assert steps == sorted(steps)
    assert [figure["caption"] for figure in slider["figures"]] == [f"Checkpoint {step}" for step in steps]


def test_two_tasks_are_told_apart_by_their_prefixes() -> None:
    own = lesson_json(LESSONS["t5"], Given({"two-tasks": opened_task("t5")}, "two-tasks"))
    titles = [each["title"] for each in own["steps"]]
    assert "The same sentence with two prefixes" in titles
    assert "Without a prefix" in titles
    biases = own["steps"][-1]["after"][1]
    assert biases["caption"].startswith("Bias by distance")


def test_the_first_step_alone() -> None:
    models = {"transformer": opened_task("transformer")}
    first_step = lesson_json(LESSONS["queries"], Given(models, "transformer"), first=True)["steps"]
    assert first_step == lesson("queries")["steps"][:1]


def test_no_clock_decides() -> None:
    """Lessons with times give the same answers every time."""
    for name in ("scale", "heads", "cost"):
        again = lesson_json(LESSONS[name], Given({"transformer": opened_task("transformer")}, "transformer"))
        assert [each["question"] for each in again["steps"]] == [
            each["question"] for each in lesson(name)["steps"]
        ]


# Cost


@pytest.mark.parametrize(("n", "d"), [(50, 512), (2, 2), (1000, 64)])
def test_the_table_of_the_paper(n: int, d: int) -> None:
    attention, recurrent, convolution, near = costs.layer_costs(n, d)
    assert (attention.operations, attention.sequential, attention.path) == (n * n * d, 1, 1)
    assert (recurrent.operations, recurrent.sequential, recurrent.path) == (n * d * d, n, n)
    assert (convolution.operations, convolution.sequential) == (3 * n * d * d, 1)
    assert 3 ** (convolution.path - 1) < n <= 3**convolution.path
    assert near.operations == min(16, n) * n * d
    assert near.path == math.ceil(n / min(16, n))


def test_sizes_of_ones_choice() -> None:
    own = step("cost", "Which is cheapest?", words=1000, width=64)
    assert own["question"]["options"][own["question"]["answer"]] == "recurrent"
    clock = figure(step("cost", "With a clock", words=1000, width=64), "Milliseconds")
    assert all(value > 0 for series in clock["series"] for value in series["values"])


# The routes


def test_the_list_and_a_lesson(client: TestClient) -> None:
    names = [each["name"] for each in client.get(API).json()["lessons"]]
    assert names == list(LESSONS)
    own = client.get(f"{API}/queries", params={"model": "transformer", "text": TEXT}).json()
    assert own["text"] == TEXT
    assert own["model"] == "transformer"
    assert own["steps"][0] == step("queries", "One projection")


@pytest.mark.parametrize("text", ["a\x00b", "‏שלום", "👩‍👩‍👧", "<script>alert(1)</script>", "a"])
def test_strange_texts_have_their_lessons(client: TestClient, text: str) -> None:
    for name in ("queries", "decoder", "softmax", "layers"):
        answer = client.get(f"{API}/{name}", params={"text": text})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "part", "status"),
    [
        ("mixin", 'did you mean "mixing"', 404),
        ("mixing?model=nothing", "model", 404),
        ("mixing?other=1", "other: there is no such field", 400),
        ("cost?n=1", "n", 400),
        ("cost?n=1000000000", "n", 400),
        ("cost?d=many", "d", 400),
        (f"layers?text={'a' * 401}", "at most 400 characters", 400),
        (f"layers?text={'xq+' * 100}", "at most 64 tokens", 400),
        ("layers?text=" + "a" * 20_001, "", 431),
    ],
)
def test_wrong_requests_get_a_sentence(client: TestClient, path: str, part: str, status: int) -> None:
    answer = client.get(f"{API}/{path}")
    assert answer.status_code == status
    assert part in answer.json()["error"]


def test_every_kind_is_listed_above() -> None:
    assert set(SMALL) <= set(KINDS)
