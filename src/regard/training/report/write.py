"""From a run's folder to its two pages."""

from __future__ import annotations

from pathlib import Path

from regard.storage import write_text
from regard.training.report.facts import read_facts
from regard.training.report.html import html_page
from regard.training.report.markdown import markdown_page
from regard.training.report.sections import sections

PAGES = {"report.md": markdown_page, "report.html": html_page}


def write_report(folder: Path) -> list[Path]:
    """Write `report.md` and `report.html`; of a run that still goes on, what is known so far."""
    facts = read_facts(folder)
    content = sections(facts)
    for name, page in PAGES.items():
        write_text(folder / name, page(facts.title, content))
    return [folder / name for name in PAGES]
