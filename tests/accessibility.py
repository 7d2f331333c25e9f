"""axe-core's rules of accessibility, on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import axe_playwright_python

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
RUN = """async (tags) => {
  const wanted = { runOnly: { type: "tag", values: tags }, resultTypes: ["violations"] };
  const told = node => node.target + " " + node.failureSummary;
  const { violations } = await axe.run(document, wanted);
  return violations.map(each => each.id + ": " + each.nodes.map(told).slice(0, 3).join(" | "));
}"""


def violations(page: Any) -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found: list[str] = page.evaluate(RUN, TAGS)
    return found
