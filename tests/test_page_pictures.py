"""Pictures, sounds and captions on the page: the numbers laid over a picture are those of the trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pictures
from accessibility import violations
from browser import Site, a_browser, started  # noqa: F401 - fixtures
from regard.tasks import load

NUMBERS = "rects => rects.map(each => +each.querySelector('title').textContent.split(': ').at(-1))"


@pytest.fixture(scope="module", name="place")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("files")
    (folder / "bar.png").write_bytes(pictures.png(pictures.picture("bar", 2, 91)))
    (folder / "low.wav").write_bytes(pictures.wav(330))
    return folder


@pytest.fixture(scope="module", name="media")
def media_site() -> Iterator[Site]:
    models = {
        "picture": load(pictures.classifier(), "cpu", 1),
        "sound": load(pictures.sound_classifier(), "cpu", 1),
        "caption": load(pictures.captioner(), "cpu", 1),
    }
    site = started(models)
    yield site
    site.stop()


@pytest.fixture(name="page")
def a_page(browser: Any, media: Site) -> Iterator[Any]:
    page = browser.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(media.address)
    page.wait_for_selector("#model option", state="attached")
    yield page
    page.close()
    assert not faults


def choose(page: Any, model: str, file: Path) -> None:
    page.select_option("#model", model)
    page.wait_for_selector("#file-field:not([hidden])")
    page.set_input_files("#file", str(file))
    page.wait_for_selector(".film-map image >> nth=0")  # patches in place of tokens
    page.click("#tab-picture")
    page.wait_for_selector("main .overlay")


def laid_over(page: Any, section: str) -> Any:
    """The numbers on the last picture of a section."""
    return np.array(page.eval_on_selector_all(f"{section} .overlay:last-of-type rect", NUMBERS))


def test_weights_of_a_picture(page: Any, media: Site, place: Path) -> None:
    choose(page, "picture", place / "bar.png")
    trace = media.models["picture"].trace(str(place / "bar.png"))
    assert page.inner_text("#answer-text") == trace.output == "bar"
    first = trace.meta["input"]["first"]
    where = "encoder.0.self"
    query = len(trace.tokens["source"]) // 2
    expected = trace[f"{where}.weights"][0][query].numpy()[first:]
    assert np.abs(laid_over(page, "[aria-label='Weights on the picture']") - expected).max() <= 5e-5
    rollout = trace.rollout()[0].numpy()[first:]
    assert np.abs(laid_over(page, "[aria-label='Rollout on the picture']") - rollout).max() <= 5e-5


def test_a_place_of_the_picture_is_a_query(page: Any, media: Site, place: Path) -> None:
    choose(page, "picture", place / "bar.png")
    trace = media.models["picture"].trace(str(place / "bar.png"))
    first = trace.meta["input"]["first"]
    page.locator("[aria-label='Weights on the picture'] .overlay:last-of-type rect").nth(3).click()
    page.wait_for_function("() => location.search.includes('query=')")
    page.wait_for_selector("main .overlay")
    expected = trace["encoder.0.self.weights"][0][first + 3].numpy()[first:]
    assert np.abs(laid_over(page, "[aria-label='Weights on the picture']") - expected).max() <= 5e-5


def test_words_of_a_caption_and_where_they_looked(page: Any, media: Site, place: Path) -> None:
    choose(page, "caption", place / "bar.png")
    trace = media.models["caption"].trace(str(place / "bar.png"))
    assert page.inner_text("#answer-text") == trace.output
    words = page.locator(".words-on-picture figure")
    assert words.count() == len(trace.tokens["output"])
    first = trace.meta["input"]["first"]
    expected = trace["decoder.0.cross.weights"].mean(dim=0)[0].numpy()[first:]
    numbers = words.nth(0).locator("rect").evaluate_all(NUMBERS)
    assert np.abs(np.array(numbers) - expected).max() <= 5e-5


def test_a_sound_shows_its_spectrogram(page: Any, media: Site, place: Path) -> None:
    choose(page, "sound", place / "low.wav")
    assert page.inner_text("#answer-text") == "low"
    rows, columns = media.models["sound"].trace(str(place / "low.wav")).meta["input"]["grid"]
    assert len(laid_over(page, "[aria-label='Weights on the picture']")) == rows * columns
    cells = page.locator("[aria-label='Weights on the picture'] .overlay").last.locator("rect")
    low = cells.filter(has_text="0.00 s, mels 1-8")  # the spectrogram has low tones below
    heights = cells.evaluate_all("rects => rects.map(each => +each.getAttribute('y'))")
    assert float(low.get_attribute("y")) == max(heights) > 0


def test_a_drawing_is_read(page: Any) -> None:
    page.select_option("#model", "picture")
    page.click("#sketch-field summary")
    box = page.locator(".sketch").bounding_box()
    page.mouse.move(box["x"] + 70, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 70, box["y"] + 160, steps=4)
    page.mouse.up()
    page.wait_for_selector(".film-map image >> nth=0")
    page.click("#tab-picture")
    page.wait_for_selector("main .overlay")
    assert page.inner_text("#file-name") == "drawing 1"
    assert page.inner_text("#answer-text") == "bar"


def test_all_views_show_a_picture_and_keep_the_rules(page: Any, place: Path) -> None:
    choose(page, "picture", place / "bar.png")
    for view in ("picture", "input", "map", "attention", "heads", "stream", "output"):
        page.click(f"#tab-{view}")
        page.wait_for_selector(f"#panel[data-view='{view}']")
        assert page.inner_text("#trouble") == ""
        assert not violations(page)


def test_a_text_is_no_picture(page: Any, place: Path) -> None:
    (place / "text.png").write_text("no picture", encoding="utf-8")
    page.select_option("#model", "picture")
    page.set_input_files("#file", str(place / "text.png"))
    page.wait_for_function("() => document.querySelector('#trouble').textContent.includes('text.png')")
