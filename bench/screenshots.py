"""Pictures of every view of the explorer, in a wide and a narrow window, light and dark.

    python bench/screenshots.py -m runs/demo --text "I see the small house." --to pictures

Writes VIEW-WIDTH-SCHEME.png into the folder and prints their names.
"""

from __future__ import annotations

import argparse
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import uvicorn

from regard.server import make_app
from regard.server.run import listen
from regard.tasks import load

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
READY = "#panel[data-view={view}]:has(h2):not(:has(.welcome))"


@contextmanager
def served(models: dict[str, Any]) -> Iterator[str]:
    """The address of a server that ends with the block."""
    listening = listen(0)
    server = uvicorn.Server(uvicorn.Config(make_app(models), log_level="warning", ws="none", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield browser
        browser.close()


def views(page: Any, address: str, text: str) -> list[str]:
    """The views that the page has, as its tabs say."""
    page.goto(f"{address}/?{urlencode({'text': text})}")
    page.wait_for_selector(READY.format(view="attention"), timeout=60_000)
    found: list[str] = page.eval_on_selector_all("[role=tab]", "tabs => tabs.map(tab => tab.id.slice(4))")
    return found


def shoot(
    browser: Any, address: str, text: str, folder: Path, only: list[str], state: dict[str, str]
) -> None:
    for width in (1280, 400):
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            for view in only or views(page, address, text):
                page.goto(f"{address}/?{urlencode({'text': text, 'view': view, **state})}")
                page.wait_for_selector(READY.format(view=view), timeout=60_000)
                path = folder / f"{view}-{width}-{scheme}.png"
                page.screenshot(path=path, full_page=True)
                print(path)
            context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--text", default="A man in a blue shirt is standing on a ladder.")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--view", action="append", default=[], help="Only these views.")
    parser.add_argument("--state", action="append", default=[], help="More of the address: query=2")
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    state = dict(each.split("=", 1) for each in given.state)
    with served({given.model.name: load(given.model, "cpu", 1)}) as address, chromium() as browser:
        shoot(browser, address, given.text, given.to, given.view, state)


if __name__ == "__main__":
    main()
