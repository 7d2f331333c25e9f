"""All lessons in a real browser without a network, each walked to its end, and their answers computed again.

python -m qa.lessons       # prints the questions and answers of all lessons, computed in this process
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qa.browser import chromium
from qa.result import Result
from qa.site import static
from regard.cli.builtin import builtin_models
from regard.server.lessons import LESSONS, Given, lesson_json
from regard.server.site import write_site
from regard.tasks import load

NARROW = {"width": 360, "height": 740}
Questions = dict[str, list[dict[str, Any]]]


def tasks() -> dict[str, Any]:
    return {path.name: load(path, "cpu", 1, "float32", "plain") for path in builtin_models()}


def questions(models: Mapping[str, Any]) -> Questions:
    """Of every lesson, with its example and the first model that has what it shows."""
    found: Questions = {}
    for name, lesson in LESSONS.items():
        answers = (lesson_json(lesson, Given(models, model))["steps"] for model in models)
        found[name] = next(([step["question"] for step in steps] for steps in answers if steps), [])
    return found


def walk(page: Any, name: str, steps: list[dict[str, Any]]) -> list[str]:
    """Give the right answer to each question and go on; what is wrong on the way."""
    wrong = [] if steps else [f"{name}: no model has it"]
    for number, step in enumerate(steps, 1):
        page.wait_for_selector(f"[aria-label=Step] [aria-pressed=true] >> text=/^{number}\\b/")
        question = step["question"]
        if question["kind"] == "choice":
            page.click(f"[data-option='{question['answer']}']")
        else:
            page.fill("#prediction", f"{question['answer']:.12g}")
            page.keyboard.press("Enter")
        verdict = page.inner_text(".verdict")
        if not verdict.startswith("✓"):
            wrong.append(f"{name}, step {number}: the answer {question['answer']} got {verdict!r}")
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wrong.append(f"{name}, step {number}: wider than the window")
        if number < len(steps):
            page.click(".lesson-turn >> text=Next step")
    return wrong


def walk_all(models: Mapping[str, Any], work: Path) -> list[str]:
    write_site(work / "site", models, LESSONS, lambda text: None, skip=True)
    wrong: list[str] = []
    with static(work / "site") as address, chromium() as browser:
        page = browser.new_context(viewport=NARROW).new_page()
        page.set_default_timeout(30_000)
        page.route(
            "**", lambda route: route.continue_() if route.request.url.startswith(address) else route.abort()
        )
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: wrong.append(request.url))
        for name in LESSONS:
            content = json.loads((work / f"site/data/lessons/{name}.json").read_text(encoding="utf-8"))
            page.goto(f"{address}/?view=lessons&lesson={name}&step=1")
            wrong += walk(page, name, content["steps"])
    return wrong


def trial(count: int, seed: int, work: Path) -> Result:
    """`count` processes compute all lessons; answers that differ are wrong."""
    first = json.loads(json.dumps(questions(models := tasks())))
    wrong = walk_all(models, work)
    for number in range(1, count):
        printed = subprocess.run([sys.executable, "-m", "qa.lessons"], capture_output=True, check=True).stdout
        again = json.loads(printed)
        wrong += [f"run {number + 1}, {name}: other answers" for name in first if first[name] != again[name]]
    figure = {"lessons": len(first), "questions": sum(map(len, first.values()))}
    return Result("lessons", count * len(first), len(wrong), figure, seed, {}, wrong)


if __name__ == "__main__":
    print(json.dumps(questions(tasks())))
