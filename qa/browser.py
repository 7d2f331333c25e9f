"""A real browser before a real server: what trials, benchmarks and screenshots of the page share."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from regard.server import make_app
from regard.server.run import listen

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
SWITCHES = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
]


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
