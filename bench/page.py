"""How fast the explorer is in a real browser, and what tracing costs.

    python -m bench.page -m runs/demo [--bert models/minilm] [--rounds 5]

`first_paint`, `film` (the first picture of a page that was opened without a text), `first_lesson` (of a
server that has just started, hence one round) and `sentence_to_attention` are seconds in the browser (the
best of the rounds and their middle), `processor` those that the server computed; with --bert also for a text
of as many tokens as a BERT reads, and the bytes that came. `site` is a static site of the built-in models
without a cache at 10 Mbit/s: seconds from a sentence in the address to its picture, bytes before it, and
the bytes of the whole site. `tracing` is one run over source and output, traced and not (the best of the
rounds, processor time): `checks` is how often the untraced run asks whether there is a hook, `share` what
these questions take of it, `noise` how far the middle of its rounds lies above the best, and `apart` the
largest difference of their logits.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bench.rounds import arguments, show
from qa.browser import chromium
from qa.site import static
from regard.batch import collate
from regard.cli.builtin import builtin_models
from regard.cli.explore import first_small
from regard.interpret.record import record
from regard.models import layers as taps
from regard.resources import WEB
from regard.sample import Sample
from regard.server.lessons import LESSONS
from regard.server.site import write_site
from regard.tasks import load

BRANCHES = 2  # questions of each attention that are no call
FILM, LESSON = ".film-map[data-step]", "#panel[data-view=lessons] .step h3"
ATTENTION = "#panel[data-view=attention] h2:not(.welcome *)"
SLOW = {"offline": False, "latency": 40, "downloadThroughput": 10e6 / 8, "uploadThroughput": 10e6 / 8}
WORDS = (
    *("a", "man", "in", "a", "blue", "shirt", "is", "standing", "on", "a", "ladder", "near", "the", "old"),
    "house",
)
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


def best_and_middle(times: Sequence[float]) -> dict[str, float]:
    return {"best": round(min(times), 3), "middle": round(statistics.median(times), 3)}


def opened(browser: Any, address: str, ready: str) -> tuple[Any, float]:
    """A new page without a cache, and the seconds until it shows what was waited for."""
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    start = perf_counter()
    page.goto(address)
    page.wait_for_selector(ready, timeout=120_000)
    return page, perf_counter() - start


def measure(browser: Any, address: str, process: int, rounds: int) -> dict[str, Any]:
    page, lesson = opened(browser, f"{address}/?view=lessons&lesson=history", LESSON)
    page.context.close()
    paints, films, asks, works = [], [], [], []
    for number in range(rounds):
        page, seconds = opened(browser, address, FILM)
        films.append(seconds)
        paints.append(page.evaluate(PAINT))
        page.context.close()
        page, _ = opened(browser, f"{address}/?view=attention&text={WORDS[1]}", ATTENTION)
        before = worked(process)
        asks.append(page.evaluate(ASK, " ".join(WORDS[: 6 + number % 6]) + "." * (1 + number // 6)))
        works.append(worked(process) - before)
        page.context.close()
    figures = {"first_paint": paints, "film": films, "sentence_to_attention": asks, "processor": works}
    return {"first_lesson": round(lesson, 3)} | {
        name: best_and_middle(times) for name, times in figures.items()
    }


def measure_site(browser: Any, folder: Path, rounds: int) -> dict[str, Any]:
    models = {path.name: load(path, "cpu", 1, "float32", "plain") for path in first_small(builtin_models())}
    size = write_site(folder, models, LESSONS, lambda text: None, skip=True)
    pictures = []
    with static(folder) as address:
        for number in range(rounds):
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", SLOW)
            start = perf_counter()
            page.goto(f"{address}/?text={'+'.join(WORDS[: 6 + number % 6])}")
            page.wait_for_selector(FILM, timeout=120_000)
            pictures.append(perf_counter() - start)
            page.context.close()
    return {
        "picture": best_and_middle(pictures),
        "bytes_before": size.first,
        "bytes": size.whole,
        "files": size.files,
    }


def measure_long(browser: Any, address: str, process: int, text: str, rounds: int) -> dict[str, Any]:
    answers, shown, works, size = [], [], [], 0
    for number in range(rounds):
        page, _ = opened(browser, f"{address}/?view=attention&text={WORDS[1]}", ATTENTION)
        own = text.split()
        own[-1] = WORDS[number % len(WORDS)]  # another text, so that nothing is remembered
        before = worked(process)
        shown.append(page.evaluate(ASK, " ".join(own)))
        works.append(worked(process) - before)
        requests = page.evaluate(BYTES)
        answers.append(sum(seconds for _, seconds in requests))
        size = sum(came for came, _ in requests)
        page.context.close()
    return {
        "answered": best_and_middle(answers),
        "processor": best_and_middle(works),
        "shown": best_and_middle(shown),
        "bytes": size,
    }


def timed(run: Callable[[], Any], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        start = process_time()
        run()
        times.append(process_time() - start)
    return times


def checks(run: Callable[[], Any], attentions: int) -> int:
    """Calls of functions that ask for a tap, and the questions of the attentions."""
    seen = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        seen += event == "call" and frame.f_code.co_filename == taps.__file__

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen + BRANCHES * attentions


def tracing(task: Any, text: str, rounds: int) -> dict[str, float]:
    """One run over what was read and said."""
    trace = task.trace(text)
    sides = {side: trace.tokens[side].ids for side in ("source", "target") if side in trace.tokens}
    sample = Sample(**sides, labels=trace.tokens["output"].ids if "output" in trace.tokens else [])
    model = task.folder.model
    batch = collate([sample]).to(next(model.parameters()).device)
    with torch.no_grad():
        plain: Any = lambda: model(batch)  # noqa: E731
        times = timed(plain, rounds)
        count = checks(plain, len(trace.attentions))
        apart = float((plain()[0] - record(model, sample)[1]).abs().max())
    one = min(timeit.repeat(lambda: taps.tapped(None, "x", batch), number=10_000, repeat=5)) / 10_000
    best = min(times)
    return {
        "untraced": best,
        "traced": min(timed(lambda: record(model, sample), rounds)),
        "checks": count,
        "check": one,
        "share": count * one / best,
        "noise": statistics.median(times) / best - 1,
        "apart": apart,
    }


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--bert", type=Path, help="a folder of a BERT without a task")
    given = parser.parse_args()
    files = {str(path.relative_to(WEB)): path.stat().st_size for path in WEB.rglob("*") if path.is_file()}
    figures: dict[str, Any] = {
        "page_bytes": sum(files.values()),
        "largest": max(files, key=lambda name: files[name]),
    }
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        with explored([given.model]) as (address, process):
            figures |= measure(browser, address, process, given.rounds)
        figures["site"] = measure_site(browser, Path(scratch) / "site", given.rounds)
        if given.bert:
            bert = with_labels(given.bert, Path(scratch))
            text = long_text(bert)
            with explored([bert]) as (address, process):
                figures["long"] = measure_long(browser, address, process, text, given.rounds)
                figures["long"]["words"] = len(text.split())
    figures["tracing"] = tracing(load(given.model, "cpu", 1), " ".join(WORDS[:11]) + ".", 10 * given.rounds)
    show(figures, given.json)


if __name__ == "__main__":
    main()
