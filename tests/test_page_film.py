"""The film of a run: each step shows the trace's numbers, by mouse, by keyboard, and without motion."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from accessibility import violations
from browser import TEXT, Window, a_browser, a_site, a_window, started  # noqa: F401 - fixtures
from regard.resources import BUILTIN
from regard.tasks import load

CELLS = 8  # numbers of a vector that are shown


def film(window: Window, text: str = TEXT, **state: str) -> Any:
    window.open(text, view="film", **state)
    window.page.wait_for_selector(".film-map[data-step]")
    return window.page


def at_step(page: Any, number: int) -> None:
    page.wait_for_selector(f".film-map[data-step='{number}']")


def values(page: Any, selector: str, *names: str) -> np.ndarray:
    read = "(all, names) => all.map(each => names.map(name => +each.dataset[name]))"
    return np.array(page.eval_on_selector_all(selector, read, list(names))).reshape(-1, len(names))


def test_each_step_shows_the_traces_numbers(window: Window) -> None:
    """By the arrow keys, from the first step to the last; the mean of the heads, then one head."""
    trace = window.site.models["toy"].trace(TEXT)
    page = film(window, frame="1")
    count = int(page.get_attribute(".film-controls input", "max"))
    boxes = set()
    for number in range(1, count + 1):
        at_step(page, number)
        title = page.inner_text(".film-caption strong")
        active = page.get_attribute("[data-box].active", "data-box")
        boxes.add(active)
        drawn = values(page, ".stroke[data-weight]", "query", "key", "weight")
        side, box = active.split(".", 1)
        if box in ("self", "cross"):
            mean = trace[f"{side}.0.{box}.weights"].mean(dim=0).numpy()
            assert len(drawn), title
            shown = mean[drawn[:, 0].astype(int), drawn[:, 1].astype(int)]
            assert np.abs(shown - drawn[:, 2]).max() < 1e-6, title
            rows = np.unique(drawn[:, 0].astype(int))
            assert mean[rows].sum() - drawn[:, 2].sum() < 0.1 * len(rows)  # below 0.005 there is no stroke
            read = "chips => chips.map(chip => chip.querySelector('.chip-text').textContent)"
            keys = page.eval_on_selector_all(".chip.key", read)
            kind = "source" if box == "cross" or side == "encoder" else "target"
            assert keys == list(trace.tokens[kind].shown[: len(keys)]), title
            vectors = trace[f"{side}.0.after_{box}"].numpy()
            strips = values(page, f".chip.climb[data-chip^={side[0]}] .strip-cells rect", "value")
            if "whole run" not in title:
                assert len(strips)
                assert all(np.abs(vectors[:, :CELLS] - each).min() < 1e-6 for each in strips), title
        if box == "linear":
            word = int(re.search(r"query=(\d+)", page.get_attribute(".probability", "href"))[1])
            p = trace["logits"][word].double().softmax(dim=0).sort(descending=True).values.numpy()
            bars = values(page, ".probability", "p")[:, 0]
            assert np.abs(bars - p[: len(bars)]).max() < 1e-6, title
        page.keyboard.press("ArrowRight")
    assert {
        "encoder.embedding",
        "encoder.feed_forward",
        "decoder.self",
        "decoder.cross",
        "decoder.softmax",
    } <= boxes
    page.select_option("#select-strokes", "1")
    page.wait_for_function("() => location.search.includes('strokes=1')")
    drawn = values(page, ".stroke[data-weight]", "query", "key", "weight")
    head = trace["decoder.0.cross.weights"][1].numpy()
    assert np.abs(head[drawn[:, 0].astype(int), drawn[:, 1].astype(int)] - drawn[:, 2]).max() < 1e-6


def test_it_plays_to_the_end_and_every_place_of_it_leads_to_the_numbers(window: Window) -> None:
    page = film(window)
    page.wait_for_selector("[aria-label=Pause]")  # it moves by itself
    count = int(page.get_attribute(".film-controls input", "max"))
    page.select_option("#select-speed", "4")
    page.eval_on_selector(
        ".film-controls input",
        "(range, at) => { range.value = at; range.dispatchEvent(new Event('input')) }",
        count - 3,
    )
    at_step(page, count - 3)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Space")
    at_step(page, count)
    page.wait_for_selector("[aria-label=Play]")
    page.locator(".stroke[data-weight]").first.dispatch_event("click")
    page.wait_for_selector("#panel[data-view=attention] #drawer")
    page.go_back()
    at_step(page, count)
    for selector, view in (
        ("[data-box='encoder.feed_forward']", "stream"),
        ("[data-box='encoder.embedding']", "input"),
        (".chip.rest", "stream"),
        (".probability", "output"),
    ):
        page.locator(selector).first.dispatch_event("click")
        window.shown(view)
        page.go_back()
        at_step(page, count)


def test_without_motion_the_steps_are_the_same(window: Window) -> None:
    page = window.page
    page.emulate_media(reduced_motion="reduce")
    film(window)
    assert page.locator("[aria-label=Play]").count() == 1
    at_step(page, 1)
    page.set_viewport_size({"width": 360, "height": 800})
    for number in range(2, 6):
        page.click("[aria-label='One step']")
        at_step(page, number)
        assert (
            page.evaluate("document.querySelector('.film-map').getAnimations({ subtree: true }).length") == 0
        )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []


def test_the_next_token_is_sampled(window: Window) -> None:
    page = film(window, "the small", model="gpt", frame="2")
    trace = window.site.models["gpt"].trace("the small", decode={"max_length": 12})
    written = len(trace.tokens["output"].ids) - (trace.meta["prompt"] - 1)
    assert 1 <= written <= 12
    place = trace.meta["prompt"] - 1
    page.fill("#slider-temperature", "0.5")
    page.fill("#slider-top-k", "4")
    shown = values(page, "[data-sampled]", "sampled")[:, 0]
    best = (trace["logits"][place].double() / 0.5).topk(4).values.softmax(dim=0).numpy()
    assert np.abs(shown - best).max() < 1e-6
    page.get_by_role("button", name="Draw again").click()
    page.wait_for_url(re.compile("seed="))
    page.wait_for_selector("button:has-text('Start again')")
    if page.get_by_role("button", name="One more word").count():
        before = page.locator(".chapter").count()
        page.get_by_role("button", name="One more word").click()
        page.wait_for_url(re.compile("length=1"))
        page.wait_for_function(
            "count => document.querySelectorAll('.chapter').length === count", arg=before + 1
        )


@pytest.mark.parametrize("recurrent", ["rnn", "bahdanau"])
def test_recurrent_states_are_one_behind_the_other(window: Window, recurrent: str) -> None:
    page = film(window, "the small cat", model=recurrent, frame="3")
    count = window.site.models[recurrent].trace("the small cat")["encoder.embedding"].shape[0]
    assert page.locator(".stroke.state").count() in (count - 1, 2 * (count - 1))


def test_a_text_goes_to_the_model_that_reads_it_and_is_split(browser: Any) -> None:
    names = ("tatoeba-en-de", "tatoeba-de-en")
    site = started({name: load(BUILTIN / "models" / name, "cpu", 1) for name in names})
    page = browser.new_page()
    try:
        page.goto(f"{site.address}/?text=Ich habe dieses Haus noch nie gesehen.")
        page.wait_for_selector("#notice:has-text('tatoeba-de-en')")
        page.wait_for_selector(".film-map")
        assert page.input_value("#model") == "tatoeba-de-en"
        page.click("#notice button")
        page.wait_for_function("() => document.getElementById('model').value === 'tatoeba-en-de'")
        text = "I have never seen this house. " * 4 + "The dog is old."
        page.fill("#text", text)
        page.wait_for_selector("[aria-label='sentence 5: The dog is old.']")
        page.click("[aria-label='sentence 5: The dog is old.']")
        page.wait_for_selector("#answer-text:has-text('Hund')")
    finally:
        page.close()
        site.stop()
