"""The static site: its engine computes what Python computes, for every family; a person uses it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, load_file

import traced_models
from accessibility import violations
from browser import a_browser  # noqa: F401 - a fixture
from qa.site import static
from regard.errors import UsageError
from regard.inputs.text import Tokenizer, train_tokenizer
from regard.inputs.text.hf import read_hf_tokenizer
from regard.inputs.text.spans import placeholder_tokens
from regard.interpret import TracedTokens, compare
from regard.interpret.activations import attention_matrix
from regard.interpret.predictions import page_json
from regard.interpret.trace import Trace
from regard.server import browser_model
from regard.server.lessons import LESSONS
from regard.server.site import about_in_browser, model_page, write_site
from regard.server.traces import compare_traces
from regard.tasks import Translator
from regard.tasks import load as open_task
from traced_models import TEXT

KINDS = {name: kind for name, kind in traced_models.KINDS.items() if name != "ssru"}  # which is refused
WITH_TARGET = [name for name in traced_models.WITH_TARGET if name in KINDS]

RUN = Path(__file__).parent / "js" / "run_site.js"
CLOSE = 1e-4
ODD = [
    "It's naïve: Straße 日本語 \u00a0 x\u2028y",
    "  two  spaces\t\n",
    "👩‍🚀 don't (U.S.) 1,000.50",
    "\ud800 <mask> </s>",
    "",
]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")


@cache
def plain(kind: str) -> Any:
    """A model as it was trained: an engine of Python packs its weights."""
    return KINDS[kind][0](replace(traced_models.small_folder(kind), engine="plain"))


def name_of(kind: str) -> str:
    return kind.replace(" ", "-")


def requests(kind: str) -> Iterator[dict[str, Any]]:
    """What is traced of a kind of model: as it is, with each intervention, with a target or a prefix."""
    own = {"text": TEXT, **KINDS[kind][3]}
    body = {"source": own.pop("text"), **own}
    writes = kind in WITH_TARGET or kind == "t5 gated"
    if writes:
        body["decode"] = {"max_length": 6, **body.get("decode", {"beam": 3})}
    yield body
    offered = about_in_browser(kind, plain(kind))["interventions"]
    where = next(iter(reversed(offered["heads"])), "")
    fields = {"zero_head": {"where": where, "head": 0}, "replace_token": {"position": 2, "text": "<unk>"}}
    changes = [{"type": each, **fields.get(each, {})} for each in offered["types"]]
    changes += [{"type": "replace_token", "side": "target", "position": 1, "text": "dog"}] if writes else []
    for change in changes:
        yield {**body, "interventions": [change]}
    if kind in WITH_TARGET:
        yield {"source": TEXT, "target": "the cat sees"}
        rules = {"no_repeat_ngram": 1, "repetition_penalty": 1.5, "min_length": 3, "length_penalty": 0.4}
        yield {**body, "prefix": [30, 40], "decode": {"max_length": 6, "beam": 2, **rules}}


@cache
def site_folder(base: Path) -> Path:
    write_site(base / "site", {name_of(kind): plain(kind) for kind in KINDS}, {}, lambda text: None)
    return base / "site"


def ask(folder: Path, work: Path, questions: list[dict[str, Any]]) -> list[bytes]:
    """The engine's answers, from Node.js."""
    work.mkdir()
    (work / "requests.json").write_text(json.dumps(questions))
    command = ["node", str(RUN), str(folder), str(work / "requests.json"), str(work)]
    subprocess.run(command, check=True, timeout=300)
    return [(work / str(number)).read_bytes() for number in range(len(questions))]


def assert_equal(trace: Trace, content: Any, tensors: dict[str, torch.Tensor], at: str) -> None:
    """Tensors within 1e-4; texts, tokens, choices and the tree of the search exactly."""
    expected = page_json(content["id"], trace)
    assert content["output"] == trace.output, at
    assert content["tokens"] == json.loads(json.dumps(expected["tokens"])), at
    assert content["attention"] == expected["attention"], at
    assert tensors.keys() == trace.tensors.keys(), at
    for name, tensor in tensors.items():
        assert tensor.shape == trace[name].shape and tensor.dtype == trace[name].dtype, f"{at}: {name}"
        if name != "lens.ids":  # equal probabilities may change places
            torch.testing.assert_close(tensor, trace[name], atol=CLOSE, rtol=CLOSE, msg=f"{at}: {name}")
    for one, other in zip(expected["steps"], content["steps"], strict=True):
        assert (one["shown"], one["id"]) == (other["shown"], other["id"]), at
        assert one["p"] == pytest.approx(other["p"], abs=CLOSE), at
    fates = [
        [(n["step"], n["parent"], n["shown"], n["fate"], n["best"]) for n in each["beam"]]
        for each in (expected, content)
    ]
    assert fates[0] == fates[1], at


@needs_node
def test_every_family_computes_what_python_computes(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    cases = [(kind, body) for kind in KINDS for body in requests(kind)]
    questions: list[dict[str, Any]] = []
    for kind, body in cases:
        questions.append({"path": "/api/v1/trace", "body": {"model": name_of(kind), **body}})
        questions.append({"path": f"/api/v1/trace/{{{len(questions) - 1}}}/tensors?name=*"})
    answers = ask(site_folder(tmp_path_factory.getbasetemp()), tmp_path / "out", questions)
    for (kind, body), content, tensors in zip(cases, answers[::2], answers[1::2], strict=True):
        given = dict(body)
        at = f"{kind}: {body}"
        assert "error" not in json.loads(content), f"{at}: {content!r}"
        assert_equal(plain(kind).trace(given.pop("source"), **given), json.loads(content), load(tensors), at)


@needs_node
def test_readings_and_comparisons_are_those_of_python(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    kinds = ("transformer", "bahdanau", "gpt", "classify", "answer")
    queries = [("weights", "0", "false"), ("weights", "mean", "true"), ("value_norm", "mean", "false")]
    questions: list[dict[str, Any]] = []
    expected: list[Any] = []
    for kind in kinds:
        one, two = list(requests(kind))[:2]
        first = len(questions)
        traces = []
        for body in (one, two):
            given = dict(body)
            traces.append(plain(kind).trace(given.pop("source"), **given))
            questions.append({"path": "/api/v1/trace", "body": {"model": name_of(kind), **body}})
        expected += [None, None]
        before, after = traces
        where = before.attentions[-1]
        for reading, head, words in queries:
            if reading == "value_norm" and f"{where}.value_norms" not in before:
                continue
            query = f"kind={reading}&where={where}&head={head}&words={words}"
            questions.append({"path": f"/api/v1/trace/{{{first}}}/reading?{query}"})
            number = head if head == "mean" else int(head)
            expected.append(attention_matrix(before, reading, where, number, words == "true"))
        if kind != "bahdanau":
            questions.append({"path": f"/api/v1/trace/{{{first}}}/reading?kind=rollout&words=true"})
            expected.append(attention_matrix(before, "rollout", words=True))
        questions.append({"path": f"/api/v1/trace/{{{first}}}/reading?kind=heads"})
        expected.append(before.head_statistics())
        questions.append({"path": f"/api/v1/compare?before={{{first}}}&after={{{first + 1}}}"})
        expected.append(json.loads(json.dumps(compare_traces(before, after))))
    for question, wanted, answer in zip(
        questions,
        expected,
        ask(site_folder(tmp_path_factory.getbasetemp()), tmp_path / "out", questions),
        strict=True,
    ):
        if wanted is None:
            continue
        if "compare" in question["path"]:
            found = json.loads(answer)
            one, two = found.pop("comparison"), wanted.pop("comparison")
            assert found == wanted
            assert one.pop("divergences") == pytest.approx(two.pop("divergences"), abs=CLOSE)
            assert one.pop("divergence") == pytest.approx(two.pop("divergence"), abs=CLOSE)
            choices = [
                [{**each, "before": 0, "after": 0} for each in some.pop("choices")] for some in (one, two)
            ]
            assert choices[0] == choices[1]
            assert one == two
        elif isinstance(wanted, dict):
            torch.testing.assert_close(load(answer), wanted, atol=CLOSE, rtol=CLOSE)
        else:
            file = tmp_path / "reading.safetensors"
            file.write_bytes(answer)
            with safe_open(file, "pt") as opened:
                about = json.loads(opened.metadata()["regard.reading"])
            assert about == json.loads(json.dumps(wanted.as_json()))
            torch.testing.assert_close(load_file(file)["values"], wanted.values, atol=CLOSE, rtol=CLOSE)


def wordpiece(folder: Path) -> Tokenizer:
    """A tokenizer that is not one of Regard's."""
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ncat\n", encoding="utf-8")
    return read_hf_tokenizer(folder)


def with_tokenizer(tokenizer: Tokenizer) -> Translator:
    """A translator whose tokenizer is of another kind."""
    config = traced_models.small_config("translate", family="transformer", max_length=160)
    model = traced_models.small_model(config, tokenizer)
    return Translator(replace(traced_models.opened(config, model, tokenizer), engine="plain"))


@needs_node
@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "character"])
def test_tokenizers_split_as_in_python(kind: str, tmp_path: Path) -> None:
    texts = [TEXT, *ODD, "größer 12.50 €", "a\u0301 ﬁ\x1c.", "…" * 9]
    tokenizer = train_tokenizer(
        [TEXT, *(each for each in texts if each.isprintable())] * 3, kind, 400, ["<mask>"]
    )
    write_site(tmp_path / "site", {"toy": with_tokenizer(tokenizer)}, {}, lambda text: None)
    questions = [{"path": "/api/v1/tokenize", "body": {"model": "toy", "text": text}} for text in texts]
    for text, answer in zip(texts, ask(tmp_path / "site", tmp_path / "out", questions), strict=True):
        ids = tokenizer.encode(text)
        tokens = TracedTokens.of(tokenizer, ids)
        assert json.loads(answer) == json.loads(json.dumps({**tokens.as_json(), "shown": tokens.shown})), text


@needs_node
def test_parts_that_are_no_language_become_placeholders(tmp_path: Path) -> None:
    """The pattern is written for Python and translated for JavaScript."""
    texts = [
        "It costs $12.50 at https://example.org/a?b=c, ok.",
        "mail a.b@c.de 50% off %s %(name)s {0} {{x}} ${home} &amp; <b>x</b>",
        f"C:\\Windows 1,234.50 10 km/h A380 snake_case call() --opt=3 @me 👩‍🚀 1️⃣ {'x' * 70}",
        "5:30 p.m. 1998 17°C /etc/fstab ./run a/b.py ⟦3⟧ 日本語 don't 12 v1.2 `code` \x1b[0m",
    ]
    tokenizer = train_tokenizer(texts * 3, "bpe", 300, placeholder_tokens(10))
    task = with_tokenizer(tokenizer)
    write_site(tmp_path / "site", {"toy": task}, {}, lambda text: None)
    questions = [{"path": "/api/v1/trace", "body": {"source": text, "target": "x"}} for text in texts]
    for text, answer in zip(texts, ask(tmp_path / "site", tmp_path / "out", questions), strict=True):
        found, expected = json.loads(answer), task.trace(text, target="x").tokens["source"]
        assert found["tokens"]["source"]["texts"] == list(expected.texts), text


# The folder


def test_a_folder_with_other_files_is_refused_and_an_earlier_site_replaced(tmp_path: Path) -> None:
    tasks = {"a/toy": plain("rnn")}  # of two folders of one name
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(UsageError) as refused:
        write_site(tmp_path / "other", tasks, {}, lambda text: None)
    assert refused.value.code == "E_OUTPUT_EXISTS"
    first = write_site(tmp_path / "site", tasks, {}, lambda text: None)
    (tmp_path / "site" / "old.txt").touch()
    assert write_site(tmp_path / "site", tasks, {}, lambda text: None) == first
    assert not (tmp_path / "site" / "old.txt").exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "site"]


def test_models_that_cannot_run_in_a_browser_are_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    berty = with_tokenizer(wordpiece(tmp_path))
    with pytest.raises(UsageError, match="berty") as refused:
        write_site(tmp_path / "site", {"berty": berty}, {}, said.append)
    assert refused.value.code == "E_SITE_MODEL"
    write_site(tmp_path / "site", {"berty": berty, "toy": plain("rnn")}, {}, said.append, skip=True)
    assert "berty" in said[0]
    monkeypatch.setattr(browser_model, "LARGEST", 1000)
    with pytest.raises(UsageError, match="toy") as refused:
        write_site(tmp_path / "site", {"toy": plain("rnn")}, {}, said.append)
    assert refused.value.code == "E_SITE_LARGE"


# In a browser


@pytest.fixture(scope="module", name="address")
def an_address(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A site in a folder of a plain file server; `toy` really translates."""
    folder = tmp_path_factory.mktemp("public")
    tasks = {"toy": open_task(tiny_model, "cpu", 1, "float32", "plain"), "bahdanau": plain("bahdanau")}
    lessons = {name: LESSONS[name] for name in ("mixing", "queries")}
    write_site(folder / "here", tasks, lessons, lambda text: None)
    with static(folder) as address:
        yield f"{address}/here/"


@pytest.fixture(name="page")
def a_page(browser: Any, address: str) -> Iterator[Any]:
    """Without any other network; what the console says is a fault."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(20_000)
    faults: list[str] = []
    context.route(
        "**", lambda route: route.continue_() if route.request.url.startswith(address) else route.abort()
    )
    page = context.new_page()
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("requestfailed", lambda request: faults.append(request.url))
    yield page
    context.close()
    assert faults == []


SHOWN = "#panel[data-view={}] h2:not(.welcome *)"
SOURCE = "ba de gi"


def test_a_person_uses_the_site(page: Any, address: str, tiny_model: Path) -> None:
    """Every view, What if, Compare and a lesson, by keys and by links; narrow, too."""
    toy = open_task(tiny_model, "cpu", 1, "float32", "plain")
    change = {"type": "zero_head", "where": "decoder.0.cross", "head": 0}
    before, after = toy.trace(SOURCE), toy.trace(SOURCE, interventions=[change])
    page.goto(f"{address}?text={SOURCE}&view=input")
    page.wait_for_selector(SHOWN.format("input"))
    assert page.inner_text("#answer-text") == before.output
    for view in ("map", "attention", "heads", "stream", "output", "compare"):
        page.keyboard.press("]")
        page.wait_for_selector(SHOWN.format(view))
        assert violations(page) == [], view
    page.goto(f"{address}?text={SOURCE}")  # the first view is the film
    page.wait_for_selector(SHOWN.format("film"))
    page.wait_for_selector(".film-map[data-step]")
    assert violations(page) == []
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{address}?text={SOURCE}&view=attention&change=zero_head:decoder.0.cross:0")
    page.wait_for_selector(SHOWN.format("attention"))
    told = page.inner_text("#what-if").replace("\u2192", "->")
    assert compare(before, after).sentence in " ".join(told.split())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.goto(f"{address}?text={SOURCE}&view=lessons")
    page.click("#panel a >> nth=1")
    page.wait_for_selector("#panel .lesson-turn")
    assert "recorded" in page.inner_text("#panel")
    assert violations(page) == []


def test_a_page_in_a_file_runs_its_model(browser: Any, tiny_model: Path, tmp_path: Path) -> None:
    """Another text and What if, without any network."""
    toy = open_task(tiny_model, "cpu", 1, "float32", "plain")
    model_page("toy", toy, SOURCE, None).save(tmp_path / "page.html")
    page = browser.new_context(offline=True).new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(SHOWN.format("film"))
    page.wait_for_selector(".film-map[data-step]")
    assert page.inner_text("#answer-text") == toy.trace(SOURCE).output
    page.fill("#text", "ka de")
    page.keyboard.press("Enter")
    after = toy.trace("ka de", interventions=[{"type": "drop_positions"}])
    page.click("#what-if summary")
    page.select_option("#what-if select", "drop_positions")
    page.click("#what-if button[type=submit]")
    page.wait_for_selector("#what-if-result")
    told = page.inner_text("#what-if-result").replace("\u2192", "->")
    assert told == compare(toy.trace("ka de"), after).sentence
    assert page.inner_text("#answer-text") == after.output
    assert faults == []
    page.context.close()


def test_what_goes_wrong_is_a_sentence(page: Any, address: str) -> None:
    page.goto(f"{address}?text={'ba ' * 400}")
    page.wait_for_selector("#trouble:has-text('too long')")
    page.goto(f"{address}?model=bahdanau&text={SOURCE}&change=zero_head:decoder.9.cross:0")
    page.wait_for_selector(SHOWN.format("film"))  # what a model does not have is left out


def test_a_browser_that_cannot_run_the_script_shows_why(browser: Any, address: str) -> None:
    """An old browser ignores a module, as one whose script is missing."""
    page = browser.new_page()
    page.route("**/page.js", lambda route: route.abort())
    page.goto(address)
    assert "web server" in page.inner_text("#trouble")
    page.close()
