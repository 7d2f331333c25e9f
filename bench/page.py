"""How fast the explorer is, in a real browser against the real command.

    python -m bench.page -m runs/demo --bert models/minilm --rounds 5

Prints one JSON line: seconds until the first paint and from a sentence to its attention (the best of the
rounds and their middle); for a text of as many pieces as a BERT reads, seconds until the server has answered
what the page asks for first (`processor`: of which it computed), until it is shown, and the bytes that came;
bytes of the page's own files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from qa.browser import chromium
from regard.resources import WEB
from regard.tasks import load

WORDS = [
    "a",
    "man",
    "in",
    "a",
    "blue",
    "shirt",
    "is",
    "standing",
    "on",
    "a",
    "ladder",
    "near",
    "the",
    "old",
    "house",
]
ASK = """async (text) => {
  const [area, panel] = ["text", "panel"].map(id => document.getElementById(id));
  const shown = new Promise(done => new MutationObserver((_, own) => { own.disconnect(); done(); })
    .observe(panel, { childList: true }));
  area.value = text;
  const begun = performance.now();
  document.getElementById("ask").requestSubmit();
  await shown;
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  if (!panel.querySelector("[role=grid], .large")) throw new Error("no attention is shown");
  return (performance.now() - begun) / 1000;
}"""
PAINT = """() => new Promise(done => new PerformanceObserver(list => {
  const found = list.getEntries().find(each => each.name === "first-contentful-paint");
  if (found) done(found.startTime / 1000);
}).observe({ type: "paint", buffered: true }))"""
BYTES = """() => performance.getEntriesByType("resource").filter(each => each.name.includes("/api/v1/trace"))
  .map(each => [each.transferSize, each.duration / 1000])"""


@contextmanager
def explored(folders: Sequence[Path]) -> Iterator[tuple[str, int]]:
    """The address that `regard explore` prints, and the number of its process, which ends with the block."""
    models = [word for folder in folders for word in ("-m", str(folder))]
    command = [sys.executable, "-m", "regard", "explore", *models, "--no-browser", "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert running.stdout is not None
        for line in running.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0], running.pid
                return
        raise SystemExit("the server did not start")
    finally:
        running.terminate()
        running.wait(20)


def with_labels(folder: Path, to: Path) -> Path:
    """A bare BERT as a classifier whose last layer knows nothing: the page opens tasks."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "no", "1": "yes"}}
    config |= {"label2id": {"no": 0, "yes": 1}}
    tensors = {f"bert.{name}": each for name, each in load_file(folder / "model.safetensors").items()}
    tensors |= {"classifier.weight": torch.zeros(2, config["hidden_size"]), "classifier.bias": torch.zeros(2)}
    tensors.pop("bert.embeddings.position_ids", None)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, to / name)
    (to / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, to / "model.safetensors", {"format": "pt"})
    return to


def long_text(folder: Path) -> str:
    """As many words as the model reads at once."""
    task: Any = load(folder, "cpu", 1)
    most = task.objective.longest
    words = [WORDS[n % len(WORDS)] for n in range(most)]
    while len(task.folder.source.encode(" ".join(words))) > most:
        words.pop()
    return " ".join(words)


def worked(process: int) -> float:
    """Seconds that a process has computed, of all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def told(times: Sequence[float]) -> dict[str, float]:
    return {"best": round(min(times), 3), "middle": round(statistics.median(times), 3)}


def measure(browser: Any, address: str, process: int, rounds: int) -> dict[str, Any]:
    paints, asks, works = [], [], []
    for number in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(address)
        paints.append(page.evaluate(PAINT))
        page.wait_for_selector(".welcome")
        page.wait_for_function("() => document.getElementById('model').options.length > 0")
        page.evaluate(ASK, " ".join(WORDS[:2]))  # the first run of a process is not a usual one
        before = worked(process)
        asks.append(page.evaluate(ASK, " ".join(WORDS[: 6 + number % 6]) + "." * (1 + number // 6)))
        works.append(worked(process) - before)
        context.close()
    return {"first_paint": told(paints), "sentence_to_attention": told(asks), "processor": told(works)}


def measure_long(browser: Any, address: str, process: int, text: str, rounds: int) -> dict[str, Any]:
    answers, shown, works, size = [], [], [], 0
    for number in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector(".welcome")
        page.wait_for_function("() => document.getElementById('model').options.length > 0")
        own = text.split()
        own[-1] = WORDS[number % len(WORDS)]  # another text, so that nothing is remembered
        before = worked(process)
        shown.append(page.evaluate(ASK, " ".join(own)))
        works.append(worked(process) - before)
        asked = page.evaluate(BYTES)
        answers.append(sum(seconds for _, seconds in asked))
        size = sum(came for came, _ in asked)
        context.close()
    return {"answered": told(answers), "processor": told(works), "shown": told(shown), "bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--bert", type=Path, help="A folder of a BERT without a task.")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    files = {str(path.relative_to(WEB)): path.stat().st_size for path in WEB.rglob("*") if path.is_file()}
    found: dict[str, Any] = {
        "page_bytes": sum(files.values()),
        "largest": max(files, key=lambda name: files[name]),
    }
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        with explored([given.model]) as (address, process):
            found |= measure(browser, address, process, given.rounds)
        if given.bert:
            bert = with_labels(given.bert, Path(scratch))
            text = long_text(bert)
            with explored([bert]) as (address, process):
                found["long"] = measure_long(browser, address, process, text, given.rounds)
                found["long"]["words"] = len(text.split())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
