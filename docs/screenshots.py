"""Pictures of every view of the explorer, in a wide and a narrow window, light and dark.

    python -m docs.screenshots -m runs/demo --text "I see the small house." --to pictures

Writes VIEW-WIDTH-SCHEME.png into the folder and prints their names.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from qa.browser import chromium, served
from regard.tasks import load

READY = "#panel[data-view={view}]:has(h2):not(:has(.welcome))"


def views(page: Any, address: str, text: str) -> list[str]:
    """The views that the page has, as its tabs say."""
    page.goto(f"{address}/?{urlencode({'text': text})}")
    page.wait_for_selector(READY.format(view="film"), timeout=60_000)
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
