"""The lessons in a real browser: predict, reveal, and walk on with the keyboard alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accessibility import violations
from browser import Window, a_browser, a_site, a_window, started  # noqa: F401 - fixtures
from regard.server.lessons import LESSONS, add_lessons
from regard.server.lessons.first import GIVEN_WEIGHTS
from sampled import sampled

STEP = "#panel[data-view=lessons] .step h3, #panel[data-view=lessons] p.drawer"


def opened(window: Window, lesson: str, step: int = 1, **more: str) -> Any:
    query = "".join(f"&{name}={value}" for name, value in more.items())
    window.page.goto(f"{window.site.address}/?view=lessons&lesson={lesson}&step={step}{query}")
    window.page.wait_for_selector(STEP)
    return window.page


def focused(page: Any) -> str:
    text: str = page.evaluate("document.activeElement.textContent || document.activeElement.id")
    return text


@pytest.mark.parametrize("name", sampled(LESSONS, "queries", "learning", "cost"))
def test_a_lesson_is_walked_to_its_end_on_a_narrow_screen(window: Window, name: str) -> None:
    page = window.page
    page.set_viewport_size({"width": 360, "height": 800})
    page.emulate_media(color_scheme="dark" if list(LESSONS).index(name) % 2 else "light")
    opened(window, name, text="ba+de")
    assert LESSONS[name].title.split("√")[0] in page.inner_text("#panel h2")
    if page.locator(".step").count():
        page.wait_for_function(
            "() => !document.querySelector('.lesson-turn').innerText.includes('More steps')"
        )
    steps = page.locator("[aria-label=Step] button").count()
    for number in range(1, steps + 1):
        page.wait_for_selector(f"[aria-label=Step] [aria-pressed=true] >> text=/^{number}\\b/")
        page.click("text=Just show me")
        assert page.inner_text(".verdict").startswith("The answer: ")
        assert page.locator(".made-by code").count() >= 1
        width, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= room
        assert violations(page) == []
        if number < steps:
            page.click(".lesson-turn >> text=Next step")
    assert page.inner_text("#trouble") == ""


def test_a_number_is_predicted_then_shown(window: Window) -> None:
    page = opened(window, "mixing")
    assert page.locator(".truth").count() == 0
    shown = page.eval_on_selector_all(
        ".still td[data-value]", "cells => cells.map(cell => +cell.dataset.value)"
    )
    assert np.abs(np.array(shown).reshape(3, 3) - GIVEN_WEIGHTS.numpy()).max() < 1e-6
    page.fill("#prediction", "a lot")
    page.keyboard.press("Enter")
    assert "Type a number" in page.inner_text(".complaint")
    page.fill("#prediction", "0,5")
    page.keyboard.press("Enter")
    assert "You said 0.5. The answer: 0.80." in page.inner_text(".verdict")
    assert float(page.get_attribute(".truth", "data-value")) == pytest.approx(0.8, abs=1e-6)
    assert "0.4 · 1 + 0.4 · 0 + 0.2 · 2" in page.inner_text("#live")
    assert page.inner_text(".made-by code") == "regard.server.lessons.first.mixture"


def test_a_choice_is_made_once(window: Window) -> None:
    page = opened(window, "mixing", 3)
    page.click(".option >> text=each row")
    assert page.inner_text(".verdict").startswith("✗ Not this one. The answer: each column of A")
    page.click(".option >> text=each column", force=True)
    assert page.inner_text(".verdict").startswith("✗")
    assert page.get_attribute(".option >> nth=0", "aria-pressed") == "true"
    assert "true" in page.get_attribute(".option >> nth=1", "class")


def test_the_keyboard_alone(window: Window) -> None:
    page = window.page
    page.goto(f"{window.site.address}/?view=lessons")
    page.wait_for_selector(".lessons a")
    page.focus("#tab-lessons")
    for wanted in ("Attention as a mixture",):
        for _ in range(10):
            page.keyboard.press("Tab")
            if focused(page) == wanted:
                break
        assert focused(page) == wanted
    page.keyboard.press("Enter")
    page.wait_for_selector(STEP)
    page.wait_for_function("() => document.activeElement.id === 'step-title'")
    page.wait_for_selector("text=Next step")  # the other steps follow the first
    for _ in range(6):
        page.keyboard.press("Tab")
        if focused(page) == "prediction":
            break
    page.keyboard.type("0.8")
    page.keyboard.press("Enter")
    assert "✓ That fits." in page.inner_text(".verdict")
    for _ in range(8):
        page.keyboard.press("Tab")
        if focused(page) == "Next step":
            break
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.activeElement.textContent === 'Weights from the words themselves'")
    assert "lesson=mixing" in page.url
    assert "step=2" in page.url
    page.go_back()
    page.wait_for_selector("text=A new vector is a mixture")
    assert "✓ That fits." in page.inner_text(".verdict")


def test_answers_are_kept(window: Window) -> None:
    page = opened(window, "mixing", 3)
    page.click(".option >> text=each column")
    page.reload()
    page.wait_for_selector(".verdict")
    assert "✓ That fits." in page.inner_text(".verdict")
    assert page.inner_text("[aria-label=Step] [aria-pressed=true]") == "3 ✓"
    page.click("text=All lessons")
    assert page.inner_text(".lessons .done") == "✓ 1 of 6 steps answered"
    page.click("text=Forget my answers")
    assert page.locator(".lessons .done").count() == 0


def test_the_slider_over_checkpoints_plays(window: Window) -> None:
    page = opened(window, "learning", 2)
    page.click("text=Just show me")
    before = page.get_attribute(".lesson-slider td[data-value] >> nth=0", "data-value")
    page.click(".lesson-slider button")
    page.wait_for_function(
        f"() => document.querySelector('.lesson-slider td[data-value]').dataset.value !== '{before}'"
    )
    page.click(".lesson-slider button")
    assert violations(page) == []


def test_a_page_for_teachers(window: Window) -> None:
    page = window.page
    page.goto(f"{window.site.address}/?view=lessons&lesson=teachers")
    page.wait_for_selector(".lessons li")
    assert page.locator(".lessons li").count() == 6
    page.click(".lessons li:nth-child(2) summary")
    page.wait_for_selector(".lessons li:nth-child(2) b")
    assert "The answer: " in page.inner_text(".lessons li:nth-child(2)")
    assert violations(page) == []
    page.click(".lessons li:nth-child(2) a")
    page.wait_for_selector(STEP)


def test_a_view_leads_to_its_lesson(window: Window) -> None:
    window.open(view="heads")
    window.page.click(".to-lesson")
    window.page.wait_for_selector("#panel[data-view=lessons] .step h3")
    assert "lesson=heads&step=5" in window.page.url


def test_sizes_of_ones_choice(window: Window) -> None:
    page = opened(window, "cost", 2)
    page.fill("#size-n", "1000")
    page.fill("#size-d", "64")
    page.click("text=Use these sizes")
    page.wait_for_selector("text=With n = 1000 and d = 64")
    page.click(".option >> text=recurrent")
    assert "That fits" in page.inner_text(".verdict")
    assert "n=1000&d=64" in page.url


def test_a_text_is_only_a_text(window: Window) -> None:
    page = opened(window, "softmax", 4, text="%3Cimg+src%3Dx+onerror%3Dalert(1)%3E", model="t5")
    page.click("text=Just show me")
    assert "<img src=x onerror=alert(1)>" in page.inner_text("#panel")
    assert page.locator("#panel img").count() == 0


def test_what_a_model_lacks_is_told(window: Window) -> None:
    page = opened(window, "layers", model="rnn")
    assert "recurrent" in page.inner_text("p.drawer")


OWN = """---
title: A slider
number: 22
learn: Temperature.
---

## Choose a temperature

Low ones are **sharp**, see [Heads](?view=heads) and `softmax`.

```source regard.models.attention.scores
```

```question
ask: Which is sharper?
- [x] low
- [ ] high
```

The low one.

```slider model.choices
over: temperature
at: 0.5 | 5
show: bars
caption: Probabilities
```
"""


def test_a_run_that_arrives_late_leaves_the_lesson_as_it_is(window: Window) -> None:
    page, held = window.page, []
    page.route("**/api/v1/trace", lambda route: held.append(route))
    with page.expect_request("**/api/v1/trace"):
        page.goto(f"{window.site.address}/?view=lessons&lesson=scale&text=ba+de")
    step = page.wait_for_selector(STEP)
    (route,) = held
    route.continue_()
    page.wait_for_selector("body:not([aria-busy])")
    assert step.evaluate("element => element.isConnected")


def test_a_document_of_a_teacher(window: Window, tmp_path: Path) -> None:
    (tmp_path / "22-own.md").write_text(OWN, encoding="utf-8")
    site = started({"toy": window.site.models["toy"]}, add_lessons(tmp_path))
    page = window.page
    try:
        page.goto(f"{site.address}/?view=lessons&lesson=own&text=ba+de")
        page.wait_for_selector(STEP)
        assert "lesson 22 of 22" in page.inner_text(".lesson-way")
        assert page.inner_text(".step strong") == "sharp"
        assert "def scores(" in page.inner_text(".lesson-source pre")
        page.click(".option >> text=low")
        largest = ".lesson-slider td[data-value] >> nth=0"
        before = float(page.get_attribute(largest, "data-value"))
        page.press(".lesson-slider input", "ArrowRight")
        page.wait_for_selector(".lesson-slider output >> text=/^5$/")
        assert float(page.get_attribute(largest, "data-value")) < before
        assert violations(page) == []
        page.click(".step a >> text=Heads")
        page.wait_for_selector("#panel[data-view=heads]")
        assert "text=ba+de" in page.url
    finally:
        site.stop()
        window.faults[:] = [fault for fault in window.faults if not fault.startswith(site.address)]
