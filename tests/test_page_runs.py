"""Changed runs, the stream, and two runs side by side: what the page says is what Python says."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from browser import TEXT, Window, a_browser, a_site, a_window, as_the_page  # noqa: F401 - fixtures
from regard.interpret import TraceComparison, compare
from regard.interpret.choices import runner_up
from regard.interpret.predictions import ProbabilityChange
from sampled import sampled

CHANGES: dict[str, dict[str, Any]] = {
    "zero_head:decoder.0.cross:1": {"type": "zero_head", "where": "decoder.0.cross", "head": 1},
    "uniform": {"type": "uniform"},
    "uniform:decoder.0.cross:0": {"type": "uniform", "where": "decoder.0.cross", "head": 0},
    "drop_scale": {"type": "drop_scale"},
    "drop_scale:encoder.0.self": {"type": "drop_scale", "where": "encoder.0.self"},
    "drop_positions": {"type": "drop_positions"},
    "drop_positions:encoder": {"type": "drop_positions", "side": "encoder"},
    "unmask_future": {"type": "unmask_future"},
    "replace_token:source:1:ka": {"type": "replace_token", "side": "source", "position": 1, "text": "ka"},
    "replace_token:target:1:Ak": {"type": "replace_token", "side": "target", "position": 1, "text": "Ak"},
}


def values(window: Window, attribute: str, inside: str = "main") -> Any:
    """The numbers that elements hold beside their text."""
    read = f"own => own.map(each => +each.getAttribute('{attribute}'))"
    return np.array(window.page.eval_on_selector_all(f"{inside} [{attribute}]", read))


def shown(found: TraceComparison) -> str:
    """A comparison's sentence as the page has it."""
    return found.sentence.replace(" -> ", " → ")


def brief(task: Any, change: dict[str, Any]) -> tuple[str, Any]:
    """A text of which the changed model does not talk on for ever: long answers are drawn, not written."""
    for text in (TEXT, "ba de", "de gi ba", "gi ba de ka", "ka de ba"):
        changed = task.trace(text, interventions=[change])
        if changed["decoder.0.cross.weights"].shape[1] <= 30:
            return text, changed
    raise AssertionError("the toy loops under this change whatever it reads")


def wait(window: Window, text: str, where: str = "#what-if-result") -> None:
    window.page.wait_for_function(
        "([where, text]) => document.querySelector(where)?.textContent === text", arg=[where, text]
    )


@pytest.mark.parametrize(
    "word", sampled(CHANGES, "uniform:decoder.0.cross:0", "unmask_future", "replace_token:source:1:ka")
)
def test_a_change_is_told_as_python_tells_it(window: Window, word: str) -> None:
    """The address holds it; the numbers recomputed under it are those of the changed model."""
    task = window.site.models["toy"]
    text, changed = brief(task, CHANGES[word])
    plain = task.trace(text)
    window.open(text, change=word, where="decoder.0.cross", head="0", query="1", key="1")
    assert window.page.inner_text("#what-if-result") == shown(compare(plain, changed))
    assert window.page.inner_text("#answer-text") == changed.output
    assert np.abs(window.weights() - changed["decoder.0.cross.weights"][0].numpy()).max() < 1e-6
    drawer = window.page.locator("#drawer")
    here, model = (float(drawer.get_attribute(name)) for name in ("data-here", "data-model"))
    assert here == pytest.approx(model, abs=1e-6)
    assert "the same but for rounding" in drawer.inner_text()


def most_changed(told: TraceComparison) -> list[ProbabilityChange]:
    return sorted(told.choices, key=lambda each: -abs(each.after - each.before))


@pytest.mark.parametrize("kind", ["t5", "bahdanau"])
def test_the_arithmetic_of_changed_families(window: Window, kind: str) -> None:
    window.open("the small cat", model=kind, change="uniform", query="2", key="0")
    drawer = window.page.locator("#drawer")
    here, model = (float(drawer.get_attribute(name)) for name in ("data-here", "data-model"))
    assert here == pytest.approx(model, abs=1e-6)
    where = {"t5": "decoder.1.cross", "bahdanau": "decoder.cross"}[kind]
    row = window.site.models[kind].trace("the small cat", interventions=[{"type": "uniform"}])[
        f"{where}.weights"
    ][0, 2]
    assert here == pytest.approx(1 / int((row > 0).sum()), abs=1e-9)  # all visible keys alike


def test_a_head_is_switched_off_and_on(window: Window) -> None:
    window.open(where="decoder.0.cross", head="1")
    page, task = window.page, window.site.models["toy"]
    assert page.locator("#what-if-result").count() == 0
    page.click("text=Switch head 1 off")
    changed = task.trace(TEXT, interventions=[CHANGES["zero_head:decoder.0.cross:1"]])
    wait(window, shown(compare(task.trace(TEXT), changed)))
    assert "zeros in its place" in page.locator("main").inner_text()
    assert "change=zero_head" in page.url
    page.reload()
    page.wait_for_selector("#what-if-result")
    page.click("text=Switch head 1 on again")
    page.wait_for_selector("#what-if-result", state="detached")
    page.go_back()
    page.wait_for_selector("#what-if-result")
    page.get_by_role("button", name="Take back: without head 1 of decoder.0.cross").click()
    page.wait_for_selector("#what-if-result", state="detached")


def test_changes_are_made_by_keyboard_in_every_view(window: Window) -> None:
    window.open(view="output")
    page, task = window.page, window.site.models["toy"]
    page.focus("#what-if summary")
    page.keyboard.press("Enter")
    page.focus("#change-type")
    page.select_option("#change-type", "replace_token")
    assert page.evaluate("document.activeElement.id") == "change-type"
    page.keyboard.press("Tab")
    page.select_option("#change-position", "source:2")
    page.keyboard.press("Tab")
    page.keyboard.type("ka: lo;")  # what separates changes in the address is a text like any other
    page.keyboard.press("Enter")
    change = {"type": "replace_token", "side": "source", "position": 2, "text": "ka: lo;"}
    changed = task.trace(TEXT, interventions=[change])
    wait(window, shown(compare(task.trace(TEXT), changed)))
    told = compare(task.trace(TEXT), changed)
    both = [p for each in most_changed(told) for p in (each.before, each.after)]
    assert np.abs(values(window, "data-share", "#what-if") - np.array(both)).max() < 1e-6
    for view in window.views():
        if view != "lessons":
            window.show(view)
            assert page.inner_text("#what-if-result") == shown(told)
    page.reload()
    wait(window, shown(told))
    page.click("text=Undo the changes")
    page.wait_for_selector("#what-if-result", state="detached")


def test_only_what_the_model_has_is_offered(window: Window) -> None:
    wanted = {
        "rnn": ["replace_token", "edit", "patch"],
        "bahdanau": ["zero_head", "uniform", "replace_token", "edit", "patch"],
        "t5": ["zero_head", "uniform", "drop_positions", "unmask_future", "replace_token", "edit", "patch"],
        "tag": ["zero_head", "uniform", "drop_scale", "drop_positions", "replace_token", "edit", "patch"],
    }
    for kind, types in wanted.items():
        window.open("the small cat", model=kind, view="input", change="drop_scale;unmask_future")
        read = "options => options.map(option => option.value)"
        assert window.page.eval_on_selector_all("#change-type option", read) == types
        fits = "drop_scale" in types or "unmask_future" in types
        assert window.page.locator(".change").count() == fits  # what a link has for another model is left out


@pytest.mark.parametrize("kind", ["gpt", "classify", "fill"])
def test_other_tasks_are_changed_too(window: Window, kind: str) -> None:
    text = "the <mask> sees" if kind == "fill" else "the small cat"
    change = {"type": "replace_token", "side": "source", "position": 1, "text": "<mask>"}
    window.open(text, model=kind, view="output", change="replace_token:source:1:<mask>")
    task = window.site.models[kind]
    told = compare(as_the_page(task, text), as_the_page(task, text, interventions=[change]))
    assert window.page.inner_text("#what-if-result") == shown(told)


def test_a_change_that_is_refused_is_told_and_left_out(window: Window) -> None:
    window.open(change="replace_token:source:99:ka")
    assert "position = 99" in window.page.inner_text("#trouble")
    assert window.page.inner_text("#answer-text") == window.site.models["toy"].trace(TEXT).output
    window.page.get_by_role("button", name="Take back").click()
    window.page.wait_for_selector("#trouble", state="hidden")
    window.faults[:] = [fault for fault in window.faults if "400" not in fault]


def test_strange_changes_are_none(window: Window) -> None:
    for word in (
        "nonsense",
        "zero_head:<b>:1",
        "zero_head:decoder.0.cross:9",
        "uniform::x",
        "%:%",
        "constructor",
        ";;:",
    ):
        window.open(change=word, other_change=word, neuron=word)
        assert window.page.inner_text("#trouble") == "", word
        assert window.page.locator(".change").count() == 0, word


# The stream


@pytest.mark.parametrize(("side", "place"), [("target", 2), ("source", 1)])
def test_the_stream_shows_the_models_numbers(window: Window, side: str, place: int) -> None:
    window.open(view="stream", side=side, query=str(place))
    trace = window.site.models["toy"].trace(TEXT)
    stack = "encoder" if side == "source" else "decoder"
    stream, wanted = trace[f"{stack}.embedding.out"][place], []
    parts = {"self": "after_self", "cross": "after_cross", "feed_forward": "out"}
    pre = f"{stack}.0.self.norm" in trace
    norms: list[float] = []
    for part, after in parts.items():
        if f"{stack}.0.{part}.output" not in trace:
            continue
        wanted.append(float(trace[f"{stack}.0.{part}.output"][place].norm() / stream.norm()))
        around = (
            (stream, trace[f"{stack}.0.{part}.norm"][place])
            if pre
            else (
                trace[f"{stack}.0.{part}.sum"][place],
                trace[f"{stack}.0.{after}"][place],
            )
        )
        norms += [float(number) for x in around for number in (x.mean(), x.var(correction=0))]
        stream = trace[f"{stack}.0.{after}"][place]
    assert values(window, "data-share") == pytest.approx(wanted, rel=1e-5)
    assert values(window, "data-value")[: len(norms)] == pytest.approx(norms, abs=1e-5)


def test_a_neuron_is_lit_by_tokens(window: Window) -> None:
    window.open(view="stream", side="target", query="2")
    page, hidden = window.page, window.site.models["toy"].trace(TEXT)["decoder.0.feed_forward.hidden"]
    best = int(hidden[2].abs().argmax())
    page.locator(".neuron-row .choice").first.click()
    page.wait_for_selector(f"#neuron h3:has-text('Neuron {best} of layer 0')")
    assert values(window, "data-lit") == pytest.approx(hidden[:, best].numpy(), abs=1e-6)
    page.get_by_role("button", name="go to place 1").click()
    page.wait_for_url("**query=1**")
    assert f"neuron=0.{best}" in page.url
    page.get_by_label("Close the neuron").click()
    page.wait_for_selector("#neuron", state="detached")


@pytest.mark.parametrize(
    ("kind", "text"), [("toy", TEXT), ("gpt", "the small cat"), ("fill", "the <mask> sees")]
)
def test_the_lens_reads_every_layer_and_place(window: Window, kind: str, text: str) -> None:
    window.open(text, view="stream", model=kind, query="1")
    trace = as_the_page(window.site.models[kind], text)
    best = values(window, "data-p", ".lens")
    wanted = trace["lens.probabilities"][:, :40, 0]  # of a long text the places around the chosen one
    assert best == pytest.approx(wanted.flatten().numpy(), abs=1e-6)
    page = window.page
    page.locator(".lens [role=gridcell]").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#live").startswith("layer 0, place 0, ")
    page.keyboard.press("Enter")
    page.wait_for_url("**query=0**")


def test_a_recurrent_network_shows_its_gates(window: Window) -> None:
    trace = window.site.models["bahdanau"].trace("the small cat")
    window.open("the small cat", view="stream", model="bahdanau", side="target", query="2")
    gates = [
        trace[f"decoder.{layer}.{gate}"][2].mean()
        for layer in (0, 1)
        for gate in ("input", "forget", "output")
    ]
    assert values(window, "data-gate") == pytest.approx(np.array(gates), abs=1e-6)
    assert "no residual stream" in window.page.locator("main").inner_text()
    window.page.locator(".neuron-row .choice").first.click()
    window.page.wait_for_selector("#neuron")


@pytest.mark.parametrize("kind", sampled(["t5", "rnn", "gpt", "tag"], "rnn", "tag"))
def test_both_sides_of_every_model(window: Window, kind: str) -> None:
    text = "the small cat"
    for side in ("source", "target"):  # where there is but one, it is taken
        window.open(text, view="stream", model=kind, side=side, query="1", neuron="1.3", beam="1")
        assert window.page.locator("#neuron [data-lit]").count() > 0
    if kind == "tag":
        assert "becomes labels" in window.page.locator("main").inner_text()


# Two runs


def test_two_texts_side_by_side(window: Window) -> None:
    other = "ba ka gi"
    task = window.site.models["toy"]
    one, two = task.trace(TEXT), task.trace(other)
    window.open(view="compare", where="encoder.0.self", head="1")
    page = window.page
    assert page.get_by_role("button", name="B without head 1 of encoder.0.self").count() == 1
    page.fill("#other-text", other)
    page.keyboard.press("Enter")
    told = compare(one, two)
    wait(window, shown(told), "#compared")
    assert values(window, "data-divergence") == pytest.approx(np.array(told.divergences), abs=1e-9)
    both = [p for each in most_changed(told) for p in (each.before, each.after)]
    assert values(window, "data-share") == pytest.approx(np.array(both), abs=1e-9)
    apart = two["encoder.0.self.weights"][1] - one["encoder.0.self.weights"][1]  # of as many pieces
    assert values(window, "data-difference") == pytest.approx(apart.flatten().numpy(), abs=1e-6)
    assert page.locator(".difference del").all_inner_texts() == ["Ed"]
    assert page.locator(".difference ins").all_inner_texts() == ["Ak"]
    page.reload()
    wait(window, shown(told), "#compared")


def test_a_place_and_a_head_are_chosen_in_both(window: Window) -> None:
    """The second text has a piece more: places of the same pieces belong together."""
    window.open(view="compare", where="encoder.0.self", other_text="ka ba de gi")
    page = window.page
    second = page.get_by_role("grid", name="B: Encoder")
    second.locator("[data-query='2'][data-key='3']").click()
    page.wait_for_selector("[aria-label^='B: '] [data-query='2'][data-key='3'][aria-selected=true]")
    assert "query=1&key=2" in page.url
    chosen = "cells => cells.map(cell => [cell.dataset.query, cell.dataset.key].join())"
    assert page.eval_on_selector_all("[aria-label^='A: '] [aria-selected=true]", chosen) == ["1,2"]
    assert page.locator("[aria-label^='B − A'] [aria-selected=true]").count() == 1
    page.get_by_label("head 1").click()
    page.wait_for_selector("figcaption:has-text('head 1')")
    assert page.locator("figcaption:has-text('head 1')").count() == 2


def test_a_change_in_the_second_run(window: Window) -> None:
    window.open(view="compare", other_change="zero_head:decoder.0.cross:1", query="0")
    task = window.site.models["toy"]
    changed = task.trace(TEXT, interventions=[CHANGES["zero_head:decoder.0.cross:1"]])
    assert window.page.inner_text("#compared") == shown(compare(task.trace(TEXT), changed, 0))
    assert window.page.locator("#what-if-result").count() == 0  # the first is as it was
    window.page.get_by_role("button", name="Take back").click()
    window.page.wait_for_selector("text=What should be different in B?")


def test_another_model_with_other_words(window: Window) -> None:
    window.open(
        "the small cat", view="compare", model="t5", other_model="bahdanau", where="decoder.1.cross", beam="1"
    )
    page = window.page
    models = [window.site.models[kind] for kind in ("t5", "bahdanau")]
    runs = [task.trace("the small cat", decode={"beam": 1}) for task in models]
    assert page.inner_text("#compared") == shown(compare(*runs))
    assert page.locator(".both-heads figure").count() == 3  # Bahdanau's one head beside a head of T5
    window.open("the small cat", view="compare", model="t5", other_model="rnn")
    assert "B has no such attention" in page.locator("main").inner_text()
    window.open(view="compare", other_model="rnn")
    assert "no common scale" in page.locator("main").inner_text()


def test_what_is_wrong_with_the_second_run_is_told_beside_it(window: Window) -> None:
    window.open(view="compare", other_change="replace_token:source:99:ka")
    assert "position = 99" in window.page.inner_text("[role=alert].wrong")
    window.page.get_by_role("button", name="Take back").click()
    window.page.wait_for_selector("text=What should be different in B?")
    window.faults[:] = [fault for fault in window.faults if "400" not in fault]


# Why


def test_the_parts_of_a_logit_are_those_of_python(window: Window) -> None:
    window.open(view="why", query="1")
    page, trace = window.page, window.site.models["toy"].trace(TEXT)
    number = trace.tokens["output"].ids[1]
    found = trace.contributions(1, number, runner_up(trace, 1, number))
    assert float(page.get_attribute("[data-total]", "data-total")) == pytest.approx(found.total, abs=1e-4)
    assert values(window, "data-share") == pytest.approx(np.array([*found.by_layer().values()]), abs=1e-4)
    gradients = trace.gradient_x_input(1, number, runner_up(trace, 1, number))
    expected = [*gradients["source"].tolist(), *gradients["target"][:2].tolist()]
    assert values(window, "data-gradient") == pytest.approx(np.array(expected), abs=1e-4)
    page.select_option("#select-compared-with", "none")
    page.wait_for_selector("text=, as a sum of parts")
    alone = trace.contributions(1).total
    assert float(page.get_attribute("[data-total]", "data-total")) == pytest.approx(alone, abs=1e-4)
    page.get_by_role("button", name="residual stream").click()
    page.wait_for_selector(".term-note:not([hidden])")
    page.get_by_label(
        re.compile(r"^Decoder, layer 0, cross-attention, head 1: .*, see where it looks$")
    ).click()
    page.wait_for_selector("[aria-label='head 1'][aria-pressed=true]")
    assert "where=decoder.0.cross" in page.url


def test_a_number_is_edited_where_it_is_seen(window: Window) -> None:
    window.open(view="stream", side="target", query="1")
    page, task = window.page, window.site.models["toy"]
    page.click(".edit-number summary")
    page.select_option("#edit-row", "what 0 cross-attention adds")
    page.fill("#edit-column", "3")
    page.fill("#edit-value", "-2.5")
    page.keyboard.press("Enter")
    edit = {"type": "edit", "name": "decoder.0.cross.output", "position": 1, "column": 3, "value": -2.5}
    changed = task.trace(TEXT, interventions=[edit])
    wait(window, shown(compare(task.trace(TEXT), changed)))
    assert float(changed["decoder.0.cross.output"][1, 3]) == -2.5


@pytest.mark.parametrize("width", [320, 400])
def test_narrow_windows(window: Window, width: int) -> None:
    window.page.set_viewport_size({"width": width, "height": 800})
    for state in ({"view": "stream", "neuron": "0.1"}, {"view": "compare", "other_text": "ba ka gi ka"}):
        window.open(change="drop_scale;uniform:decoder.0.cross:1", query="1", key="1", **state)
        window.page.click("#what-if summary")
        extra = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert window.page.evaluate(extra) == 0, state
