"""A server with small models, and a real browser before it: the fixtures `site`, `browser` and `window`.

A file of tests has them by `from browser import a_browser, a_site, a_window  # noqa: F401 - fixtures`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import uvicorn

from qa.browser import CHROMIUM, chromium
from regard.server import make_app
from regard.server.lessons import LESSONS, Lesson
from regard.server.run import listen
from regard.tasks import load
from traced_models import opened_task

TEXT = "ba de gi"
OTHERS = ("t5", "rnn", "bahdanau", "gpt", "llama", "fill", "classify", "tag")
VIEWS = ("film", "input", "map", "attention", "heads", "stream", "output", "compare")


@dataclass
class Site:
    address: str
    models: dict[str, Any]
    server: uvicorn.Server
    thread: threading.Thread

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)


def started(models: dict[str, Any], lessons: Mapping[str, Lesson] = LESSONS) -> Site:
    listening = listen(0)
    config = uvicorn.Config(make_app(models, lessons=lessons), log_level="warning", ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    return Site(f"http://127.0.0.1:{listening.getsockname()[1]}", models, server, thread)


@pytest.fixture(scope="module", name="site")
def a_site(tiny_model: Path) -> Iterator[Site]:
    """`toy` really translates; the others have random weights, one of each family and task."""
    own = started({"toy": load(tiny_model, "cpu", 1), **{kind: opened_task(kind) for kind in OTHERS}})
    yield own
    own.stop()


@pytest.fixture(scope="module", name="browser")
def a_browser() -> Iterator[Any]:
    """Where CI is set, a missing browser is a failure."""
    missing = None if Path(CHROMIUM).exists() else "there is no Chromium on this machine"
    if find_spec("playwright") is None:
        missing = "the browser's driver (playwright) is not installed"
    if missing is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    with chromium() as own:
        yield own


def as_the_page(task: Any, text: str, **more: Any) -> Any:
    """The trace that the page asks for: a language model writes 12 tokens at first."""
    if task.folder.task.name == "generate":
        more["decode"] = {"max_length": 12}
    return task.trace(text, **more)


@dataclass
class Window:
    """A page, and what it did that it should not."""

    page: Any
    site: Site
    faults: list[str] = field(default_factory=list)

    def open(self, text: str = TEXT, **state: str) -> None:
        given = {"text": text, "view": "attention", **state}
        query = "&".join(f"{name}={quote(value)}" for name, value in given.items())
        self.page.goto(f"{self.site.address}/?{query}")
        self.shown(given["view"])

    def views(self) -> list[str]:
        """The views that the page has, as its tabs say."""
        read = "tabs => tabs.map(tab => tab.id.slice('tab-'.length))"
        found: list[str] = self.page.eval_on_selector_all("#tabs [role=tab]", read)
        assert set(VIEWS) <= set(found)
        return found

    def show(self, view: str) -> None:
        """Another view of the same run, by its tab."""
        self.page.click(f"#tab-{view}")
        self.shown(view)

    def shown(self, view: str) -> None:
        self.page.wait_for_selector(f"#panel[data-view={view}] h2:not(.welcome *)", state="attached")

    def weights(self) -> Any:
        """What the grid shows, [queries, keys]; long answers take a moment to draw."""
        self.page.wait_for_selector("[role=grid] tbody tr [role=gridcell]")
        read = "rows => rows.map(r => [...r.querySelectorAll('[role=gridcell]')].map(c => +c.dataset.value))"
        return np.array(self.page.eval_on_selector_all("[role=grid] tbody tr", read))


@pytest.fixture(name="window")
def a_window(browser: Any, site: Site) -> Iterator[Window]:
    """What the console says, what goes wrong, and every request to another host is a fault."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    own = Window(context.new_page(), site)
    own.page.on("console", lambda message: own.faults.append(f"console: {message.text}"))
    own.page.on("pageerror", lambda error: own.faults.append(f"error: {error}"))
    own.page.on("dialog", lambda dialog: (own.faults.append("dialog"), dialog.dismiss()))
    own.page.on(
        "request",
        lambda asked: None if asked.url.startswith(site.address + "/") else own.faults.append(asked.url),
    )
    yield own
    context.close()
    assert own.faults == [], own.faults
