"""The explorer in a real browser: what it shows are the model's numbers, and nothing else happens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser import TEXT, VIEWS, Window, a_browser, a_site, a_window, started  # noqa: F401 - fixtures
from regard.tasks import load


def test_a_sentence_is_typed_and_its_attention_seen(window: Window) -> None:
    page = window.page
    page.goto(f"{window.site.address}/?view=attention")
    page.wait_for_selector("[role=grid]")  # of the example that the page opens with
    page.fill("#text", TEXT)
    page.wait_for_selector("[role=grid] th:has-text('ba')")
    trace = window.site.models["toy"].trace(TEXT)
    assert page.inner_text("#answer-text") == trace.output
    shown = window.weights()
    assert np.abs(shown.sum(axis=1) - 1).max() < 1e-6
    assert np.abs(shown - trace["decoder.0.cross.weights"][0].numpy()).max() < 1e-6
    assert "text=ba" in page.url


def test_each_head_shows_the_models_numbers(window: Window) -> None:
    window.open()
    trace = window.site.models["toy"].trace(TEXT)
    attentions = {
        "encoder.0.self": "Encoder, layer 0, self-attention",
        "decoder.0.self": "Decoder, layer 0, self-attention",
        "decoder.0.cross": "Decoder, layer 0, cross-attention",
    }
    for where, name in attentions.items():
        window.page.select_option("#select-attention", where)
        for head in (0, 1):
            window.page.get_by_role("button", name=f"head {head}", exact=True).click()
            window.page.wait_for_selector(f"[role=grid][aria-label^='{name}, head {head}:']")
            shown = window.weights()
            assert np.abs(shown - trace[f"{where}.weights"][head].numpy()).max() < 1e-6
            hidden = ~trace[f"{where}.mask"].numpy()
            assert (shown[hidden] == 0).all()
            assert window.page.locator("[role=grid] .masked").count() == hidden.sum()


def test_the_arithmetic_is_done_again_and_agrees(window: Window) -> None:
    window.open(where="decoder.0.cross", head="1")
    window.page.click("[data-query='2'][data-key='1']")
    drawer = window.page.locator("#drawer")
    drawer.wait_for()
    trace = window.site.models["toy"].trace(TEXT)
    q, k = (trace[f"decoder.0.cross.{name}"][1].double().numpy() for name in ("query", "key"))
    scores = q[2] @ k.T / np.sqrt(q.shape[1])
    wanted = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    assert float(drawer.get_attribute("data-here")) == pytest.approx(wanted[1], abs=1e-12)
    assert float(drawer.get_attribute("data-model")) == pytest.approx(wanted[1], abs=1e-6)
    assert "the same but for rounding" in drawer.inner_text()
    drawer.get_by_label("Close the arithmetic").click()
    drawer.wait_for(state="detached")


@pytest.mark.parametrize("kind", ["t5", "llama", "gpt", "bahdanau"])
def test_the_arithmetic_agrees_in_other_families(window: Window, kind: str) -> None:
    window.open("the small cat", model=kind, query="1", key="0")
    drawer = window.page.locator("#drawer")
    here, model = (float(drawer.get_attribute(name)) for name in ("data-here", "data-model"))
    assert here == pytest.approx(model, abs=1e-6)


def test_a_walk_by_keyboard_alone(window: Window) -> None:
    window.open(where="encoder.0.self")
    page = window.page
    page.focus("#tab-attention")
    page.keyboard.press("Tab")  # the choice of an attention, then the heads
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("[aria-label='head 1'][aria-pressed=true]")
    page.keyboard.press("Tab")  # the switch of the head
    page.keyboard.press("Tab")
    named = "document.activeElement.getAttribute('aria-label')"
    assert re.fullmatch(r"query gi, key ba, weight \d\.\d\d", page.evaluate(named))
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(named).startswith("query de, key de, weight ")
    assert page.inner_text("#live") == page.evaluate(named)
    page.keyboard.press("Enter")
    page.wait_for_selector("#drawer")
    assert page.evaluate(named).startswith("query de, key de, weight ")  # drawn anew, the place is kept
    page.keyboard.press("]")
    page.wait_for_selector("#panel[data-view=heads]")
    page.focus("#tab-heads")
    page.keyboard.press("End")
    last = window.views()[-1]
    page.wait_for_selector(f"#panel[data-view={last}]")
    assert page.evaluate("document.activeElement.id") == f"tab-{last}"


@pytest.mark.parametrize("kind", ["toy", "fill"])
def test_it_opens_where_regard_explain_does(window: Window, kind: str) -> None:
    text = {"toy": TEXT, "fill": "the <mask> sees"}.get(kind, "the small cat")
    window.open(text, model=kind)
    trace = window.site.models[kind].trace(text)
    where = trace.attention_name()
    page = window.page
    assert page.input_value("#select-attention") == where
    rows = page.eval_on_selector_all("[role=grid] tbody th", "all => all.map(each => each.textContent)")
    assert rows == list(trace.query_labels(where))
    chosen = page.get_attribute("[role=grid] tr.here [role=gridcell]", "data-query")
    assert chosen == str(trace.default_step(where))
    if kind == "toy":
        assert rows[0] == f"after {trace.tokens['target'].shown[0]}, writes {trace.tokens['output'].shown[0]}"


def test_a_run_that_the_server_no_longer_has_is_computed_again(window: Window) -> None:
    """The page knew it by a sentence of the server, which changed."""
    window.open()
    refused = []

    def forget(route: Any) -> None:
        body = {"error": "no longer here", "code": "trace_expired"}
        if not refused:
            refused.append(route.request.url)
            return route.fulfill(status=410, json=body)
        return route.continue_()

    window.page.route("**/tensors?*", forget)
    window.page.click("#tab-input")
    window.page.wait_for_selector("#panel[data-view=input] h2")
    assert refused
    assert window.page.inner_text("#trouble") == ""
    window.faults.clear()  # the console reports the status


def test_reload_and_back_keep_the_state(window: Window) -> None:
    window.open(where="decoder.0.self", head="1")
    page = window.page
    page.click("[data-query='2'][data-key='1']")
    page.wait_for_selector("#drawer")
    before = window.weights()
    page.reload()
    page.wait_for_selector("#drawer")
    assert np.array_equal(window.weights(), before)
    page.click("#tab-output")
    page.wait_for_selector("#panel[data-view=output]")
    page.go_back()
    page.wait_for_selector("#drawer")
    assert np.array_equal(window.weights(), before)


def test_back_changes_the_box_too(window: Window) -> None:
    """The cursor was in the box, which kept the newer text above the numbers of the older one."""
    window.open()
    window.page.fill("#text", "de fi")
    window.page.wait_for_url(re.compile(r"text=de(\+|%20)fi"))
    window.page.go_back()
    window.page.wait_for_function("text => document.getElementById('text').value === text", arg=TEXT)


def test_a_reading_that_is_refused_leaves_its_controls(window: Window) -> None:
    """The view went with it: there was nothing left to choose another reading with."""
    window.open("the small cat", model="bahdanau", view="heads", reading="value_norm")
    window.page.wait_for_selector("#panel .wrong")
    window.page.select_option("#select-reading", "weights")
    window.page.wait_for_selector("#panel .wrong", state="detached")
    assert window.page.inner_text("#trouble") == ""
    without_refusals(window)


def test_a_run_that_is_refused_leaves_no_other_ones_numbers(window: Window) -> None:
    """The numbers of the model before stood under the name of the one that refused the text."""
    window.open()
    window.page.select_option("#model", "fill")
    window.page.wait_for_selector("#trouble:has-text('<mask>')")
    window.page.wait_for_selector("text=Type a sentence above")
    assert window.page.locator("#answer").is_hidden()
    without_refusals(window)


def test_a_head_is_chosen_among_all(window: Window) -> None:
    window.open(view="heads")
    page = window.page
    assert page.locator(".thumb").count() == 3 * 1 * 2
    page.get_by_role("button", name="Decoder, layer 0, self-attention, head 1").click()
    page.wait_for_selector("h3:has-text('Decoder, layer 0, self-attention, head 1')")
    trace = window.site.models["toy"].trace(TEXT)
    assert np.abs(window.weights() - trace["decoder.0.self.weights"][1].numpy()).max() < 1e-6
    page.click("text=Step by step")
    page.wait_for_selector("#panel[data-view=attention] [aria-label='head 1'][aria-pressed=true]")


def test_a_word_is_forced_and_the_model_goes_on(window: Window) -> None:
    window.open(view="output", query="1")
    page = window.page
    trace = window.site.models["toy"].trace(TEXT)
    shown = page.eval_on_selector_all("[data-p]", "cells => cells.map(cell => +cell.dataset.p)")
    wanted = trace["logits"][1].double().softmax(dim=0).topk(10).values.numpy()
    assert np.abs(np.array(shown) - wanted).max() < 1e-6
    assert page.locator(".node").count() == len(trace.beam)
    assert page.locator(".node.best").count() == len(trace.tokens["output"])
    word = page.locator(".word").first
    text = word.inner_text()
    word.click()
    page.wait_for_selector("text=Undo the forced words")
    assert page.inner_text("#answer-text").split()[:2] == [trace.output.split()[0], text]
    page.click("text=Undo the forced words")
    page.wait_for_function(
        "wanted => document.getElementById('answer-text').textContent === wanted", arg=trace.output
    )


def test_the_map_leads_to_the_numbers(window: Window) -> None:
    window.open(view="map")
    window.page.get_by_role("link", name="decoder: Cross-attention").click()
    window.page.wait_for_selector("#panel[data-view=attention] [role=grid]")
    assert "decoder.0.cross" in window.page.url


HEADINGS = {
    "film": "The run as a film",
    "input": "From text to vectors",
    "map": "The model as a map",
    "attention": "Attention, step by step",
    "heads": "Heads and layers",
    "stream": "One place through all layers",
    "why": "Why this word?",
    "compare": "Compare two runs",
    "lessons": "Lessons",
}
OTHER_HEADINGS = {
    ("rnn", "attention"): "No attention in this model",
    ("rnn", "heads"): "No attention in this model",
    ("rnn", "stream"): "One step of the recurrent network",
}


@pytest.mark.parametrize("kind", ["toy", "rnn", "gpt", "fill", "classify"])
def test_every_view_of_every_model(window: Window, kind: str) -> None:
    """Other families: as pages in a file, in test_page_export.py."""
    writes = kind in ("toy", "rnn", "gpt")
    output = {"output": "The output, token by token" if writes else "What the model answers"}
    window.open("the <mask> sees" if kind == "fill" else "the small cat", view="input", model=kind)
    for view in window.views():
        window.show(view)
        assert window.page.inner_text("#trouble") == "", view
        wanted = OTHER_HEADINGS.get((kind, view)) or (HEADINGS | output)[view]
        assert window.page.text_content("#panel h2") == wanted


HOSTILE = [
    "<script>alert(1)</script>",
    "<img/src=x/onerror=alert(2)>",
    "<svg/onload=alert(3)>",
    "&lt;b&gt;",
    "שלום",
    "\u202eabc",
]


def made_hostile(told: Any) -> Any:
    """An answer of the server whose every text to show is markup."""
    if isinstance(told, dict):
        return {name: made_hostile(each) if name != "shown" else dressed(each) for name, each in told.items()}
    return [made_hostile(each) for each in told] if isinstance(told, list) else told


def dressed(shown: Any) -> Any:
    return HOSTILE[1] if isinstance(shown, str) else [HOSTILE[n % len(HOSTILE)] for n in range(len(shown))]


def test_what_looks_like_a_program_is_text(window: Window) -> None:
    """No dialog, no element, no request: the fixture would see them."""

    def answer(route: Any) -> None:
        real = route.fetch()
        route.fulfill(response=real, json={**made_hostile(real.json()), "output": HOSTILE[0]})

    window.page.route("**/api/v1/trace", answer)
    window.open(view="input", query="1", key="1")
    for view in VIEWS:
        window.show(view)
        wrong = window.page.locator(
            "body script, main img, #answer img, main svg[onload], main b:not(figcaption b)"
        )
        assert wrong.count() == 0, view
        assert window.page.inner_text("#answer-text") == HOSTILE[0]
        if view not in ("map", "heads", "compare", "lessons"):
            assert HOSTILE[1] in window.page.locator("main").text_content(), view


def test_a_strange_address_is_a_usual_page(window: Window) -> None:
    window.open(
        model="<img src=x onerror=alert(1)>", where="<b>", head="x", query="-1", key="1e9", prefix="a"
    )
    assert window.page.inner_text("#answer-text") == window.site.models["toy"].trace(TEXT).output


def test_no_window_scrolls_sideways(window: Window) -> None:
    """Nor with letters of twice the size."""
    window.open("ba de gi ka lo me ni " * 3, view="input", query="2", key="1")
    for view in window.views():
        window.show(view)
        for width, size in ((320, 100), (768, 100), (1440, 100), (1280, 200)):
            window.page.set_viewport_size({"width": width, "height": 800})
            window.page.evaluate(f"document.documentElement.style.fontSize = '{size}%'")
            extra = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert window.page.evaluate(extra) == 0, (view, width, size)


def test_a_long_text_is_a_picture(window: Window) -> None:
    window.open("the small cat sees " * 5, model="bahdanau", beam="1")
    assert window.page.locator("canvas.picture").count() >= 1
    assert window.page.locator("[role=gridcell]").count() == 0
    window.page.locator(".numbers .word").first.click()
    drawer = window.page.locator("#drawer")
    here, model = (float(drawer.get_attribute(name)) for name in ("data-here", "data-model"))
    assert here == pytest.approx(model, abs=1e-6)
    window.page.locator(".large").click(position={"x": 2, "y": 2})
    window.page.wait_for_url(re.compile("query=0&key=0"))


def test_wrong_text_is_told_on_the_page(window: Window) -> None:
    window.open()
    window.page.fill("#text", "x " * 15_000)
    window.page.wait_for_selector("#trouble:has-text('too long')")
    window.page.fill("#text", TEXT)
    window.page.wait_for_selector("#trouble", state="hidden")
    without_refusals(window)


def without_refusals(window: Window) -> None:
    """The browser tells of these itself."""
    window.faults[:] = [fault for fault in window.faults if "400" not in fault]


def test_a_server_that_stopped_is_told(browser: Any, tiny_model: Path) -> None:
    own = started({"toy": load(tiny_model, "cpu", 1)})
    page = browser.new_page()
    page.goto(f"{own.address}/?text=ba&view=attention")
    page.wait_for_selector("[role=grid]")
    own.stop()
    page.fill("#text", "ba de")
    page.wait_for_selector("#trouble:has-text('does not answer')")
    assert page.locator("[role=grid]").count() == 1  # what was there can still be read
    page.close()
