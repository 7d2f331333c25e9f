"""A static site in a real browser without a network: its numbers and texts equal those of `regard explain`.

Each model of the package traces sentences, half of them greedily and half with its own search; some are
changed by an intervention. The browser compares every tensor with the one that Python recorded.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

from qa.browser import chromium
from qa.result import Result
from regard.cli.builtin import builtin_models
from regard.data.phrasebook import phrases
from regard.resources import WEB
from regard.server.explorer import available_interventions
from regard.server.site import write_site
from regard.tasks import load

CLOSE = 1e-4  # the promise: the largest difference; of a changed run as a share of a tensor's largest number
NEAR = 1e-4  # scores of two hypotheses that are so close may change places
ODD = (
    "It costs 12.50 €!",
    "Straße, naïve 日本語 👩‍🚀.",
    "x" * 40,
    "I  see\ttwo  spaces.",
    "UPPER CASE \u00a0 here?",
)
ASK = """async ({name, body, number}) => {
  const {Site} = await import("/js/engine/site.js");
  const {parse} = await import("/js/safetensors.js");
  const get = async (path) => {
    const response = await fetch(path);
    if (!response.ok) throw new Error(path);
    return response;
  };
  globalThis.site ??= new Site({
    models: async () => (await get("/data/models.json")).json(),
    model: async (each) => ({
      description: await (await get(`/data/models/${each}.json`)).json(),
      weights: await (await get(`/data/models/${each}.safetensors`)).arrayBuffer(),
    }),
    lesson: async () => ({}),
  });
  const request = {method: "POST", body: JSON.stringify({model: name, ...body})};
  const response = await site.respond("/api/v1/trace", request);
  const {id, output, error, tokens, beam} = await response.json();
  if (error) return {error};
  const answer = await site.respond(`/api/v1/trace/${encodeURIComponent(id)}/tensors?name=*`);
  const here = parse(await answer.arrayBuffer());
  const there = parse(await (await get(`/expected/${number}`)).arrayBuffer());
  const missing = Object.keys(there).filter((each) => here[each]?.shape.join() !== there[each].shape.join());
  const [worst, where] = Object.keys(there).reduce((worse, each) => {
    if (missing.includes(each) || each === "lens.ids") return worse;
    const most = (f) => there[each].data.reduce((a, x, i) => Math.max(a, f(Number(x), i)), 0);
    const scale = body.interventions ? Math.max(1, most((x) => Math.abs(x))) : 1;
    const largest = most((x, i) => Math.abs(x - Number(here[each].data[i]))) / scale;
    return largest > worse[0] ? [largest, each] : worse;
  }, [0, ""]);
  const ids = Object.fromEntries(Object.entries(tokens).map(([side, each]) => [side, each.ids]));
  return {output, ids, worst, where, missing, nodes: beam.length};
}"""


class Handler(SimpleHTTPRequestHandler):
    """The site, the page's modules under /js, and what Python recorded under /expected."""

    expected: dict[int, bytes] = {}

    def do_GET(self) -> None:
        if self.path.startswith("/expected/"):
            content = self.expected[int(self.path.rpartition("/")[2])]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        super().do_GET()

    def translate_path(self, path: str) -> str:
        return str(WEB / path.lstrip("/")) if path.startswith("/js/") else super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def static(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def requests(task: Any, count: int, seed: int) -> Iterator[dict[str, Any]]:
    """What is traced: sentences of the phrasebook and odd ones, as the task reads them."""
    rng = random.Random(seed)
    folder, pairs = task.folder, list(phrases("test", 3 * count))
    types = available_interventions(folder.model)["types"]
    kinds = [each for each in ("drop_scale", "drop_positions", "unmask_future", "uniform") if each in types]
    for number in range(count):
        pair = pairs[number]
        text = pair.german if folder.task.source == "de" else pair.english
        text = rng.choice(ODD) if rng.random() < 0.1 else text
        body: dict[str, Any] = {"source": text}
        if folder.task.name == "fill":
            words = text.split(" ")
            words[rng.randrange(len(words))] = "<mask>"
            body["source"] = " ".join(words)
        elif folder.task.name == "answer":
            body |= {
                "source": f"Who does it? {text}",
                "context": f"{pairs[-1 - number].english} {pair.english}",
            }
        elif folder.task.name == "generate":
            body = {"source": " ".join(text.split(" ")[:4]), "decode": {"max_length": 24}}
        if folder.task.name in ("translate", "generate") and number % 2:
            body["decode"] = {**body.get("decode", {}), "beam": 1, "sample": False}
        if kinds and rng.random() < 0.1:
            body["interventions"] = [{"type": rng.choice(kinds)}]
        yield body


@dataclass
class Findings:
    cases: int = 0
    worst: float = 0.0
    wrong: list[str] = field(default_factory=list)
    ties: int = 0  # another hypothesis of nearly the same score

    def add(self, name: str, body: dict[str, Any], trace: Any, found: dict[str, Any]) -> None:
        self.cases += 1
        at = f"{name}: {json.dumps(body, ensure_ascii=False)}"
        if "error" in found or found["missing"]:
            self.wrong.append(f"{at}: {found.get('error') or found['missing'][:3]}")
            return
        ids = {side: list(tokens.ids) for side, tokens in trace.tokens.items()}
        if found["output"] != trace.output or found["ids"] != ids:
            if is_tie(trace):
                self.ties += 1
                return
            self.wrong.append(f"{at}: {found['output']!r}, Python {trace.output!r}")
        self.worst = max(self.worst, found["worst"])
        if not found["worst"] <= CLOSE:
            self.wrong.append(f"{at}: {found['where']} differs by {found['worst']:.1e}")


def is_tie(trace: Any) -> bool:
    """Whether two candidates of one step of the search have nearly the same score."""
    nodes = sorted(trace.beam, key=lambda node: (node.step, node.score))
    return any(a.step == b.step and b.score - a.score < NEAR for a, b in pairwise(nodes))


def trial(count: int, seed: int, work: Path, paths: list[Path] | None = None) -> Result:
    chosen = {path.name: load(path, "cpu", 1, "float32", "plain") for path in paths or builtin_models()}
    write_site(work / "site", chosen, {}, lambda text: None, skip=True)
    names = [each["name"] for each in json.loads((work / "site/data/models.json").read_text())["models"]]
    findings = {name: Findings() for name in names}
    with static(work / "site") as address, chromium() as browser:
        context = browser.new_context(bypass_csp=True)
        context.route(
            "**", lambda route: route.continue_() if route.request.url.startswith(address) else route.abort()
        )
        page = context.new_page()
        page.goto(address)
        for name in names:
            for number, body in enumerate(requests(chosen[name], count, seed)):
                given = dict(body)
                trace = chosen[name].trace(given.pop("source"), **given)
                Handler.expected = {number: trace.to_bytes()}
                found = page.evaluate(ASK, {"name": name, "body": body, "number": number})
                findings[name].add(name, body, trace, found)
    wrong = [line for each in findings.values() for line in each.wrong]
    figure = {name: f"{each.worst:.1e}, {each.ties} ties" for name, each in findings.items()}
    return Result("site", count * len(names), len(wrong), figure, seed, {}, wrong)
