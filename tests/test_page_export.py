"""What is taken home from the explorer: figures, numbers, and the whole page as a file that needs nobody."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from safetensors.torch import load as load_tensors

from browser import TEXT, Window, a_browser, a_site, a_window  # noqa: F401 - fixtures
from qa import xss
from regard.errors import UsageError
from regard.interpret import Trace
from regard.interpret import page as page_module
from regard.interpret import trace as trace_module
from regard.interpret.page import bundle, make_page
from regard.interpret.readings import entropy, mean_distance, value_weighted, word_attention
from regard.server import make_app
from sampled import sampled
from traced_models import opened_task, traced

HOSTILE = "</script><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
KINDS = ("t5", "bahdanau", "llama", "tag")


def short(kind: str) -> Trace:
    """A run of few pieces, so that its matrices are grids."""
    writes = {} if kind in ("fill", "tag") else {"decode": {"beam": 2, "max_length": 12}}
    found: Trace = traced(kind, text="the <mask> sees" if kind == "fill" else "the small cat", **writes)
    return found


# One script of several modules


def modules(folder: Path, **sources: str) -> Path:
    for name, source in sources.items():
        (folder / f"{name}.js").write_text(source, encoding="utf-8")
    return folder


def test_modules_become_one_script(tmp_path: Path) -> None:
    modules(
        tmp_path,
        main='import * as a from "./a.js";\nimport {\n  b as c,\n  D,\n} from "./b.js";\na.one(c, D);\n',
        a='import { b } from "./b.js";\nexport function one() { return b; }\n',
        b="export const b = 1;\nexport class D {}\n",
    )
    script = bundle(tmp_path, "main.js")
    assert script.index("const module_b") < script.index("const module_a") < script.index("const module_main")
    assert script.count("const module_b ") == 1
    assert "const a = module_a;" in script
    assert re.search(r"const \{\s*b: c,\s*D,\s*\} = module_b;", script)
    assert "return { b, D };" in script
    assert not re.search(r"^(?:import|export)", script, re.MULTILINE)


@pytest.mark.parametrize(
    "source",
    [
        'import x from "./b.js";',
        "export default 1;",
        "export let x = 1;",
        'await import("./b.js");',
        "'</script>'",
    ],
)
def test_forms_that_would_break_are_refused(tmp_path: Path, source: str) -> None:
    modules(tmp_path, main=source, b="")
    with pytest.raises(ValueError, match=r"main\.js"):
        bundle(tmp_path, "main.js")


def test_modules_in_a_circle_are_refused(tmp_path: Path) -> None:
    modules(tmp_path, main='import * as a from "./a.js";', a='import * as m from "./main.js";')
    with pytest.raises(ValueError, match="imports itself"):
        bundle(tmp_path, "main.js")


# The page as a file


@pytest.fixture
def alone(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a document from a file with the network cut; whatever it asks for or complains of is a fault."""
    context = browser.new_context(offline=True, accept_downloads=True)
    context.set_default_timeout(20_000)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith("file:") else faults.append(asked.url))

    def open_it(document: str, state: str = "") -> Any:
        path = tmp_path / "page.html"
        path.write_text(document, encoding="utf-8")
        page.goto(f"file://{path}{state}")
        return page

    open_it.faults = faults  # type: ignore[attr-defined]
    yield open_it
    context.close()
    assert faults == []


def grid(page: Any) -> Any:
    read = "rows => rows.map(r => [...r.querySelectorAll('[role=gridcell]')].map(c => +c.dataset.value))"
    return np.array(page.eval_on_selector_all("[role=grid] tbody tr", read))


def walk(page: Any) -> Iterator[str]:
    """Every view that the page has, shown."""
    for view in page.eval_on_selector_all("#tabs [role=tab]", "tabs => tabs.map(tab => tab.id.slice(4))"):
        page.click(f"#tab-{view}")
        page.wait_for_selector(f"#panel[data-view={view}] h2")
        yield view


@pytest.mark.parametrize("kind", sampled(KINDS, "bahdanau", "llama"))
def test_a_page_opens_from_a_file_without_network(alone: Any, kind: str) -> None:
    trace = short(kind)
    page = alone(trace.page().html)
    page.wait_for_selector("#panel[data-view] h2")
    assert page.text_content("#answer-text") == (trace.output or "(nothing)")
    seen = list(walk(page))
    assert {"input", "map", "attention", "heads", "output"} <= set(seen)
    assert "lessons" not in seen
    assert page.inner_text("#trouble") == ""


def test_a_page_in_a_file_is_whole(alone: Any) -> None:
    """Heads, arithmetic, readings, reload and back, as with a server."""
    trace = short("llama")  # keys and values serve groups of heads
    page = alone(trace.page().html, "#view=attention&where=decoder.1.self&head=3&query=2&key=1")
    page.wait_for_selector("#drawer")
    here, model = (float(page.get_attribute("#drawer", name)) for name in ("data-here", "data-model"))
    assert here == pytest.approx(model, abs=1e-6)
    assert np.abs(grid(page) - trace["decoder.1.self.weights"][3].numpy()).max() < 1e-6
    page.reload()
    page.wait_for_selector("#drawer")
    page.click("#tab-heads")
    page.wait_for_selector("#panel[data-view=heads] [role=grid]")
    page.select_option("#select-reading", "rollout")
    page.wait_for_selector("h3:has-text('through all layers')")
    assert np.abs(grid(page) - trace.rollout().numpy()).max() < 1e-6
    page.select_option("#select-reading", "value_norm")
    page.wait_for_selector("h3:has-text('head 3')")
    wanted = value_weighted(trace["decoder.1.self.weights"], trace["decoder.1.self.value_norms"])[3]
    assert np.abs(grid(page) - wanted.numpy()).max() < 1e-5
    page.select_option("#select-head", "mean")
    page.wait_for_selector("h3:has-text('mean of all heads')")
    page.select_option("#select-order", "entropy")
    page.wait_for_selector(".thumbs-cell")
    page.go_back()
    page.wait_for_selector("#panel[data-view=attention] #drawer")
    assert page.locator("#text").get_attribute("readonly") is not None


def test_a_page_of_a_long_text_shows_its_weights(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its heads were empty, though the weights are in the file; and boxes of the search were buttons."""
    trace = short("t5")
    monkeypatch.setattr(page_module, "LARGEST_READINGS", 0)
    page = alone(trace.page().html, "#view=heads&where=decoder.1.cross&head=2")
    page.wait_for_selector("#panel[data-view=heads] [role=grid]")
    assert np.abs(grid(page) - trace["decoder.1.cross.weights"][2].numpy()).max() < 1e-6
    page.select_option("#select-reading", "value_norm")
    page.wait_for_selector("#panel .wrong:has-text('the text is long')")
    page.click("#tab-output")
    page.wait_for_selector("#panel[data-view=output] .node")
    assert page.locator(".node[role=button]").count() == 0


def hostile(trace: Trace) -> Trace:
    tokens = {side: replace(own, texts=(HOSTILE,) * len(own)) for side, own in trace.tokens.items()}
    meta = {**trace.meta, "text": HOSTILE, "model": HOSTILE.replace("/", "")}
    beam = tuple(replace(node, text=HOSTILE) for node in trace.beam)
    words = dict.fromkeys(trace.vocabulary, HOSTILE)
    return replace(trace, tokens=tokens, output=HOSTILE, meta=meta, beam=beam, vocabulary=words)


def test_what_looks_like_a_program_in_a_file_is_text(alone: Any) -> None:
    page = alone(hostile(short("transformer")).page().html)
    page.wait_for_selector("#panel[data-view=film] h2")
    assert page.inner_text("#answer-text") == HOSTILE
    for view in walk(page):
        assert page.evaluate("window.ran") is None, view
        if view != "map":
            assert HOSTILE in page.locator("main").text_content(), view
    assert page.locator("img").count() == 0


def test_a_script_that_was_put_into_the_file_does_not_run(alone: Any) -> None:
    document = short("transformer").page().html.replace("</body>", f"{HOSTILE[9:]}</body>")
    page = alone(document)
    page.wait_for_selector(".film-map")
    assert page.evaluate("window.ran") is None
    assert len(alone.faults) >= 2  # the browser tells of both
    assert all("Content Security Policy" in fault for fault in alone.faults)
    alone.faults.clear()


def test_a_notebook_shows_the_page_in_a_frame(alone: Any) -> None:
    trace = short("gpt")
    shown = trace._repr_html_()
    assert shown.count("<") == 2, "all else is inside the frame's attribute"
    page = alone(f"<!doctype html><title>notebook</title>{shown}")
    frame = page.frame_locator("iframe")
    frame.locator(".film-map").wait_for()
    frame.locator("#tab-heads").click()
    frame.locator("#panel[data-view=heads] h2").wait_for()
    outside = "try { parent.document; 'open' } catch (error) { 'closed' }"
    assert page.frames[1].evaluate(outside) == "closed"


def test_a_page_that_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = short("transformer")
    monkeypatch.setitem(page_module.SETTINGS, "largest_page", 1000)
    with pytest.raises(UsageError, match=r"at most; trace a shorter text.* or write \.safetensors"):
        trace.page()
    monkeypatch.undo()
    monkeypatch.setattr(trace_module, "LARGEST_CELL", 1000)
    assert trace._repr_html_().startswith('<iframe sandbox=""')  # a figure in place of the page
    with pytest.raises(UsageError, match=r"written as \.html"):
        trace.page().save("x.svg")


def test_a_page_tells_no_path_of_this_machine() -> None:
    trace = short("transformer")
    own = replace(trace, meta={**trace.meta, "model": "/home/somebody/models/own"})
    assert "somebody" not in make_page(own).html


# What the page saves


def saved(window: Window, name: str) -> bytes:
    with window.page.expect_download() as waiting:
        role = "link" if name.startswith("Whole page") else "button"
        window.page.get_by_role(role, name=name, exact=True).click()  # type: ignore[arg-type]
    path: Path = waiting.value.path()
    return path.read_bytes()


def test_a_figure_and_its_numbers_are_saved(window: Window) -> None:
    window.open(where="decoder.0.cross", head="1")
    page = window.page
    page.click("#export summary")
    trace = window.site.models["toy"].trace(TEXT)
    wanted = trace["decoder.0.cross.weights"][1].numpy()

    drawn = ET.fromstring(saved(window, "SVG"))
    name = "{http://www.w3.org/2000/svg}"
    cells = [float(r.get("data-value", "")) for r in drawn.iter(f"{name}rect") if r.get("data-value")]
    assert np.abs(np.array(cells).reshape(wanted.shape) - wanted).max() < 1e-6
    texts = [each.text for each in drawn.iter(f"{name}text")]
    assert {*trace.query_labels("decoder.0.cross"), *trace.tokens["source"].shown} <= set(texts)
    assert drawn.find(f"{name}title") is not None
    assert not [n for e in drawn.iter() for n in e.attrib if n in ("class", "onclick")]

    size = [float(drawn.get(side, "0")) for side in ("width", "height")]
    for times, button in ((1, "PNG, once the size"), (3, "PNG, three times the size")):
        dots = saved(window, button)
        assert dots[:8] == b"\x89PNG\r\n\x1a\n"
        found = [int.from_bytes(dots[at : at + 4], "big") for at in (16, 20)]
        assert found == [int(np.ceil(side * times)) for side in size]

    rows = list(csv.reader(io.StringIO(saved(window, "CSV").decode(), newline="")))
    assert rows[0][1:] == list(trace.tokens["source"].shown)
    assert [row[0] for row in rows[1:]] == list(trace.query_labels("decoder.0.cross"))
    assert np.array_equal(np.array(rows[1:])[:, 1:].astype(np.float32), wanted)
    told = json.loads(saved(window, "JSON"))
    assert np.array_equal(np.array(told["values"], dtype=np.float32), wanted)

    page.evaluate("document.querySelector('table.heat').style.width = '9000px'")
    page.get_by_role("button", name="PNG, twice the size", exact=True).click()
    page.wait_for_selector("#exports :text('Take the SVG')")


def test_every_view_can_be_saved(window: Window) -> None:
    """Each of its figures is an SVG that can be read."""
    window.open(view="input")
    window.page.click("#export summary")
    for view in ("input", "map", "heads", "output"):
        window.show(view)
        choice = window.page.locator("#select-figure")
        count = choice.locator("option").count() or 1
        for number in range(count):
            if count > 1:
                choice.select_option(str(number))
            assert ET.fromstring(saved(window, "SVG")).tag.endswith("svg"), (view, number)


def test_the_whole_page_is_saved(window: Window) -> None:
    window.open(view="output")
    window.page.click("#export summary")
    page = saved(window, "Whole page (HTML)").decode()
    assert page.startswith("<!doctype html>")
    assert "src=" not in page.split("<body>")[0]


def test_a_formula_of_a_spreadsheet_is_text(window: Window) -> None:
    def answer(route: Any) -> None:
        real = route.fetch()
        content = real.json()
        for side in content["tokens"].values():
            side["shown"] = ['=1+1"' for _ in side["shown"]]
            side.pop("labels", None)
        route.fulfill(response=real, json=content)

    window.page.route("**/api/v1/trace", answer)
    window.open()
    window.page.click("#export summary")
    rows = list(csv.reader(io.StringIO(saved(window, "CSV").decode(), newline="")))
    assert {*rows[0][1:], *(row[0] for row in rows[1:])} == {"'=1+1\""}


# The heads, by several readings


def test_readings_of_the_heads(window: Window) -> None:
    window.open(
        "the small cat sees an unbelievably old house", model="t5", view="heads", where="encoder.1.self"
    )
    page, task = window.page, window.site.models["t5"]
    trace = task.trace("the small cat sees an unbelievably old house")
    weights = trace["encoder.1.self.weights"]
    page.get_by_label("Whole words").check()
    page.wait_for_selector(":text('Tokens are merged into words')")
    groups = trace.tokens["source"].groups
    assert np.abs(window.weights() - word_attention(weights[0], groups, groups).numpy()).max() < 1e-6
    page.get_by_label("Hide <s> and </s>").check()
    page.wait_for_selector(":text('What is hidden keeps its share')")
    words = [n for n, own in enumerate(groups) if trace.tokens["source"].words[own[0]] >= 0]
    assert (
        np.abs(window.weights() - word_attention(weights[0], groups, groups)[words][:, words].numpy()).max()
        < 1e-6
    )
    page.get_by_label("Whole words").uncheck()
    page.get_by_label("Hide <s> and </s>").uncheck()
    for order, numbers in (("entropy", entropy), ("distance", mean_distance)):
        page.select_option("#select-order", order)
        page.wait_for_selector(f":text('in the order of their {order}')")
        wanted = sorted(float(x) for n in (0, 1) for x in numbers(trace[f"encoder.{n}.self.weights"]))
        names = page.eval_on_selector_all(
            "[aria-label='The source looks at itself'] .thumb", "all => all.map(each => each.title)"
        )
        found = [float(re.search(rf"{order} ([\d.]+)", name)[1]) for name in names]  # type: ignore[index]
        assert found == pytest.approx(wanted, abs=0.006)


def test_heads_are_pinned_side_by_side(window: Window) -> None:
    window.open("the small cat", model="t5", view="heads", where="encoder.0.self")
    page = window.page
    for head in range(4):
        page.select_option("#select-head", str(head))
        page.wait_for_selector(f"h3:has-text('head {head}')")
        page.get_by_role("button", name="Pin beside others").click()
        page.wait_for_function(f"() => document.querySelectorAll('.pin').length === {head + 1}")
    page.select_option("#select-head", "mean")
    page.wait_for_selector("button:has-text('Four are pinned')[disabled]")
    page.reload()
    page.wait_for_selector(".pin")
    assert page.locator(".pin [role=grid]").count() == 4
    page.locator(".pin button[aria-label^=Unpin]").first.click()
    page.wait_for_function("() => document.querySelectorAll('.pin').length === 3")


# Routes


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(
        make_app({"t5": opened_task("t5"), "rnn": opened_task("rnn")}), "http://127.0.0.1"
    ) as own:
        yield own


def number(client: TestClient, model: str = "t5") -> str:
    answer = client.post("/api/v1/trace", json={"model": model, "source": "the small cat"})
    found: str = answer.json()["id"]
    return found


def test_the_routes_give_readings(client: TestClient) -> None:
    own, trace = number(client), opened_task("t5").trace("the small cat")
    ask = f"/api/v1/trace/{own}/reading?kind="

    def read(query: str) -> Any:
        answer = client.get(ask + query)
        assert answer.status_code == 200, answer.text
        length = int.from_bytes(answer.content[:8], "little")
        about = json.loads(json.loads(answer.content[8 : 8 + length])["__metadata__"]["regard.reading"])
        return load_tensors(answer.content), about

    tensors, about = read("weights&where=decoder.1.cross&head=1")
    assert torch.equal(tensors["values"], trace["decoder.1.cross.weights"][1])
    assert about["rows"] == list(trace.query_labels("decoder.1.cross"))
    assert about["columns"] == list(trace.tokens["source"].shown)
    tensors, about = read("rollout&words=true")
    target, source = (trace.tokens[side].groups for side in ("target", "source"))
    assert torch.allclose(tensors["values"], word_attention(trace.rollout(), target, source))
    assert [about["places"][0][n] for n in range(len(target))] == [own[0] for own in target]
    tensors, _ = read("value_norm&where=encoder.0.self")
    weighted = trace.weights("encoder.0.self", weighted=True)
    assert torch.allclose(tensors["values"], weighted.mean(dim=0))
    tensors, _ = read("heads")
    assert torch.equal(tensors["encoder.1.self.entropy"], entropy(trace["encoder.1.self.weights"]))


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("reading", "kind"),
        ("reading?kind=weight", 'did you mean "weights"'),
        ("reading?kind=weights", "there is no attention"),
        ("reading?kind=weights&where=encoder.0.self&head=9", "4 heads, 0 to 3"),
        ("reading?kind=weights&where=encoder.0.self&head=-1", "4 heads, 0 to 3"),
        ("reading?kind=heads&other=1", "no such field"),
        ("export?format=exe", "format"),
        ("export?format=svg&view=nothing", "there is no view"),
        ("export?format=png&view=attention&layer=9", "layer = 9"),
    ],
)
def test_wrong_questions_are_told_in_a_sentence(client: TestClient, query: str, part: str) -> None:
    answer = client.get(f"/api/v1/trace/{number(client)}/{query}")
    assert answer.status_code == 400
    assert part in answer.json()["error"]


def test_a_model_without_attention_has_no_rollout(client: TestClient) -> None:
    answer = client.get(f"/api/v1/trace/{number(client, 'rnn')}/reading?kind=rollout")
    assert "needs self-attention" in answer.json()["error"]


def test_the_route_exports(client: TestClient, tmp_path: Path) -> None:
    address = f"/api/v1/trace/{number(client)}/export?format="
    for kind, begins in (("html", b"<!doctype"), ("svg", b"<svg"), ("png", b"\x89PNG"), ("json", b"{")):
        answer = client.get(address + kind)
        assert answer.content.startswith(begins)
        assert answer.headers["content-disposition"] == f'attachment; filename="regard.{kind}"'
    assert json.loads(client.get(f"{address}json&view=attention&head=1").content)["head"] == 1
    path = tmp_path / "run.safetensors"
    path.write_bytes(client.get(f"{address}safetensors").content)
    assert Trace.load(path).names() == opened_task("t5").trace("the small cat").names()


# Texts that would like to be programs


@pytest.mark.parametrize("count", sampled([3, 6], 3))
def test_texts_that_would_like_to_be_programs(browser: Any, site: Any, count: int) -> None:
    """Wherever a text can stand, in every view, and in the page that is a file: qa/xss.py has more."""
    found = xss.run(browser, site.address, site.models["toy"].trace(TEXT), xss.payloads(count, 7))
    assert (found.ran, found.reports, found.requests, found.changed) == (0, 0, [], [])
    assert found.shown > 10


def test_a_program_that_ran_would_be_seen(browser: Any, site: Any) -> None:
    found = xss.Found()
    page = xss.opened(browser, found, site.address)
    page.goto(site.address)
    page.evaluate("alert(1)")
    page.evaluate("() => { const image = new Image(); image.src = 'http://evil.invalid/'; }")
    page.wait_for_timeout(100)
    page.evaluate("window.hit = 1")
    found.look(page)
    found.compare(["<b>"], "b")
    page.context.close()
    assert found.ran == 2
    assert found.reports == 1  # the policy kept the picture from being asked for
    assert found.changed == ["<b>"]
