"""The explorer for everybody: rules of accessibility, large letters, no motion, forced colours, paper."""

from __future__ import annotations

import pytest

from accessibility import violations
from browser import TEXT, Window, a_browser, a_site, a_window  # noqa: F401 - fixtures
from sampled import sampled


def test_the_rules_can_be_broken(window: Window) -> None:
    window.open()
    window.page.evaluate("document.getElementById('answer-text').style.color = '#ddd'")
    window.page.evaluate("document.getElementById('select-attention').labels[0].remove()")
    assert sorted(each.split(":")[0] for each in violations(window.page)) == ["color-contrast", "select-name"]


@pytest.mark.parametrize("scheme", sampled(["light", "dark"], "light"))
def test_no_view_breaks_a_rule(window: Window, scheme: str) -> None:
    page = window.page
    page.emulate_media(color_scheme=scheme)
    page.goto(window.site.address)
    window.shown("film")
    page.fill("#text", "")
    page.wait_for_selector("text=Type a sentence above")
    assert violations(page) == []
    window.open(view="input", query="1", key="1", where="decoder.0.self")
    page.click("#export summary")
    for view in window.views():
        window.show(view)
        assert violations(page) == [], view


@pytest.mark.parametrize("scheme", sampled(["light", "dark"], "dark"))
def test_no_state_breaks_a_rule(window: Window, scheme: str) -> None:
    """Long texts as pictures, readings, pinned heads, a search tree, something wrong."""
    page = window.page
    page.emulate_media(color_scheme=scheme)
    window.open("the small cat sees " * 5, model="bahdanau", beam="1", query="1", key="1")
    assert violations(page) == [], "a long text"
    window.open(
        "the small cat",
        model="t5",
        view="heads",
        pins="encoder.0.self:1,encoder.0.self:2",
        sort="entropy",
        reading="value_norm",
        words="1",
    )
    assert violations(page) == [], "pinned"
    window.open("the small cat", model="tag", view="output")
    assert violations(page) == [], "tags"
    page.fill("#text", "x " * 15_000)
    page.wait_for_selector("#trouble:has-text('too long')")
    assert violations(page) == [], "trouble"
    window.faults.clear()  # the browser itself tells of the status 400


def test_nothing_moves_for_those_who_do_not_want_it(window: Window) -> None:
    longest = """() => Math.max(...[...document.querySelectorAll("*")].map(each => {
      const style = getComputedStyle(each);
      const lasting = `${style.transitionDuration},${style.animationDuration}`;
      return Math.max(...lasting.split(",").map(parseFloat));
    }))"""
    window.open()
    assert window.page.evaluate(longest) > 0
    window.page.emulate_media(reduced_motion="reduce")
    assert window.page.evaluate(longest) == 0


def test_numbers_keep_their_colours_among_forced_ones(window: Window) -> None:
    window.open(query="1", key="1")
    page = window.page
    read = "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
    before = page.eval_on_selector_all("[role=gridcell]:not(.masked)", read)
    page.emulate_media(forced_colors="active")
    assert page.eval_on_selector_all("[role=gridcell]:not(.masked)", read) == before
    chosen = "getComputedStyle(document.querySelector('[aria-pressed=true]')).borderTopColor"
    other = "getComputedStyle(document.querySelector('[aria-pressed=false]')).borderTopColor"
    assert page.evaluate(chosen) != page.evaluate(other)  # what is chosen can still be told


def test_paper_has_the_figure_and_its_words(window: Window) -> None:
    window.open("ba de gi ka lo me ni " * 2, view="input", query="1", key="1")
    page = window.page
    for view in window.views():
        page.emulate_media(media="screen")
        window.show(view)
        page.emulate_media(media="print")
        for hidden in ("form", "#tabs", "#export"):
            assert not page.is_visible(hidden), (view, hidden)
        assert page.is_visible("#panel h2"), view
        assert page.is_visible("#answer-text"), view
        cut = """() => [...document.querySelectorAll("#panel .scroll")].filter(each =>
            each.clientWidth && getComputedStyle(each).overflow !== "visible").length"""
        assert page.evaluate(cut) == 0, view
        assert (
            page.evaluate(
                "[...document.querySelectorAll('#panel select')].filter(e => e.checkVisibility()).length"
            )
            == 0
        )
    assert page.inner_text("#asked") == "ba de gi ka lo me ni " * 2
