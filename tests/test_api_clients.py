"""The clients that people have already, unchanged, against a real server: answers are the models' own."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

import httpx
import numpy as np
import openai
import pytest
from libretranslatepy import LibreTranslateAPI

from regard.tasks.spec import TASKS
from served import Served, models, served
from traced_models import CONTEXT, TEXT

LONG = f"{TEXT}. {CONTEXT}.\n\n  {TEXT}  \n"
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served() as own:
        yield own


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="anything", max_retries=0) as own:
        yield own


@pytest.fixture(scope="module")
def web(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=30) as own:
        yield own


def test_libretranslatepy(server: Served) -> None:
    own = LibreTranslateAPI(server.address)
    assert own.translate(TEXT, "en", "de") == models()["transformer"].translate(TEXT)
    lines = [models()["transformer"].translate(line) if line.strip() else line for line in LONG.split("\n")]
    assert own.translate(LONG, "en", "de") == "\n".join(lines)
    assert [each["code"] for each in own.languages()] == ["en", "de"]
    assert own.languages()[0] == {"code": "en", "name": "English", "targets": ["de", "en"]}
    found = own.detect("This is a long sentence in English, and nobody would take it for another language.")
    assert found[0]["language"] == "en"
    assert 50 < found[0]["confidence"] <= 100


def test_libretranslate_shapes(web: httpx.Client) -> None:
    translator = models()["transformer"]
    body = {"q": TEXT, "source": "en", "target": "de"}
    plain = web.post("/translate", json=body).json()
    assert plain == {"translatedText": translator.translate(TEXT)}
    assert web.post("/translate", data=body).json() == plain
    parts = [(name, (None, value)) for name, value in [*body.items(), ("q", "")]]
    assert web.post("/translate", files=parts).json() == {"translatedText": [plain["translatedText"], ""]}
    many = web.post("/translate", json=body | {"q": [TEXT, "", " \n", CONTEXT], "source": "auto"}).json()
    assert many["translatedText"] == [plain["translatedText"], "", " \n", translator.translate(CONTEXT)]
    assert [each["language"] for each in many["detectedLanguage"]] == ["en"] * 4
    assert many["detectedLanguage"][1]["confidence"] == 0
    more = web.post("/translate", data=body | {"alternatives": 3}).json()
    assert more["translatedText"] == plain["translatedText"]
    assert len(set(more["alternatives"]) - {more["translatedText"]}) == len(more["alternatives"]) <= 3
    assert web.post("/translate", json=body | {"target": "en"}).json() == {"translatedText": TEXT}
    assert web.get("/health").json() == {"status": "ok"}
    assert web.get("/frontend/settings").json()["language"]["source"] == {"code": "en", "name": "English"}
    assert web.post("/suggest", data=body).status_code == 403
    assert web.post("/translate_file", content=b"x").status_code == 403
    assert web.get("/translate").status_code == 405


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"target": "zz"}, "zz is not supported"),
        ({"source": "zz"}, "zz is not supported"),
        ({"source": "de", "target": "en"}, "en is not supported from de"),
        ({"format": "xml"}, "xml format is not supported"),
        ({"beam": 3}, "beam: there is no such field"),
        ({"q": ["a" * 19_000] * 3}, "Invalid request: request (57000) exceeds text limit (50000)"),
        ({"alternatives": 10_000}, "alternatives: input should be less than or equal to 8"),
    ],
)
def test_libretranslate_errors(web: httpx.Client, change: dict[str, object], error: str) -> None:
    body = {"q": TEXT, "source": "en", "target": "de", **change}
    answer = web.post("/translate", json={name: value for name, value in body.items() if value is not None})
    assert (answer.status_code, answer.json()) == (400, {"error": error, "code": "invalid_request"})


def test_markup_stays(web: httpx.Client) -> None:
    translator = models()["transformer"]
    raw = (
        f"<!DOCTYPE html><p class=x>  {TEXT} <br/>&amp; <B title='a>b'>{CONTEXT}</B ><!-- {TEXT} -->"
        f"<script>if (a < b) {{}}</script><span translate=no>{TEXT} <i>{TEXT}</i></span> "
        f"&lt;{CONTEXT}&gt;</p>"
    )
    body = {"q": raw, "source": "en", "target": "de", "format": "html"}
    found = web.post("/translate", json=body).json()["translatedText"]
    escape = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}

    def german(text: str) -> str:
        return "".join(escape.get(sign, sign) for sign in translator.translate(text))

    kept = f"<!-- {TEXT} --><script>if (a < b) {{}}</script><span translate=no>{TEXT} <i>{TEXT}</i></span> "
    begun = (
        f"<!DOCTYPE html><p class=x>  {german(TEXT)} <br/>{german('&')} <B title='a>b'>{german(CONTEXT)}</B >"
    )
    assert found.startswith(begun + kept)
    assert german(f"<{CONTEXT}>") in found[len(begun + kept) :]


def test_a_translator_completes_and_keeps_to_the_number(client: openai.OpenAI) -> None:
    """max_tokens was read and forgotten; OpenAI's own default of 16 would cut every longer sentence."""
    task = models()["transformer"]
    whole, pieces = task.translate(TEXT), task.folder.target.encode(task.translate(TEXT))
    said = client.completions.create(model="transformer", prompt=TEXT).choices[0]
    assert (said.text, said.finish_reason) == (whole, "stop")
    few = client.completions.create(model="transformer", prompt=TEXT, max_tokens=3)
    assert (few.choices[0].text, few.choices[0].finish_reason) == (
        task.folder.target.decode(pieces[:3]),
        "length",
    )
    enough = client.completions.create(model="transformer", prompt=TEXT, max_tokens=len(pieces)).choices[0]
    assert (enough.text, enough.finish_reason) == (whole, "stop")


def test_completions_are_those_of_the_model(client: openai.OpenAI) -> None:
    generator = models()["gpt"]
    found = client.completions.create(model="gpt", prompt=TEXT, max_tokens=8, temperature=0)
    assert found.choices[0].text == generator.generate(TEXT, beam=1, max_length=8)
    assert found.usage is not None
    assert found.usage.prompt_tokens == len(generator.tokenizer.encode(TEXT))
    ids = generator.tokenizer.encode(TEXT)
    again = client.completions.create(model="gpt", prompt=[ids, ids], max_tokens=8, temperature=0)
    assert [each.text for each in again.choices] == [found.choices[0].text] * 2
    drawn = client.completions.create(model="gpt", prompt=TEXT, max_tokens=8, seed=3, n=3)
    assert [each.index for each in drawn.choices] == [0, 1, 2]
    assert len({each.text for each in drawn.choices}) > 1
    assert drawn.choices[0].text == generator.generate(TEXT, sample=True, temperature=1, seed=3, max_length=8)
    same = client.completions.create(model="gpt", prompt=TEXT, max_tokens=8, seed=3, n=3)
    assert [each.text for each in same.choices] == [each.text for each in drawn.choices]


def test_a_stream_is_the_answer_in_parts(client: openai.OpenAI) -> None:
    asked = {"model": "gpt", "prompt": TEXT, "max_tokens": 12, "seed": 3, "n": 2}
    whole = client.completions.create(**asked)  # type: ignore[call-overload]
    texts, reasons, usage = ["", ""], ["", ""], None
    for event in client.completions.create(**asked, stream=True, stream_options={"include_usage": True}):  # type: ignore[call-overload]
        usage = event.usage
        for choice in event.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert texts == [each.text for each in whole.choices]
    assert reasons == [each.finish_reason for each in whole.choices]
    assert usage == whole.usage


@pytest.mark.parametrize("model", ["gpt", "llama"])
@pytest.mark.parametrize("more", [{}, {"echo": True}, {"stop": "e"}, {"max_tokens": 0, "echo": True}])
def test_a_stream_tells_the_probabilities_of_its_parts(
    web: httpx.Client, model: str, more: dict[str, object]
) -> None:
    """The parts put together are what is answered at once."""
    asked = {"model": model, "prompt": TEXT, "max_tokens": 9, "seed": 3, "n": 2, "logprobs": 2, **more}
    whole = web.post("/v1/completions", json=asked).json()["choices"]
    lines = web.post("/v1/completions", json={**asked, "stream": True}).text.split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    for choice in whole:
        parts = [own for each in events for own in each["choices"] if own["index"] == choice["index"]]
        assert "".join(own["text"] for own in parts) == choice["text"]
        lists = {name: [value for own in parts for value in own["logprobs"][name]] for name in LISTS}
        wanted = choice["logprobs"]
        assert lists["tokens"] == wanted["tokens"]
        assert lists["text_offset"] == wanted["text_offset"]
        assert lists["token_logprobs"] == pytest.approx(wanted["token_logprobs"], abs=1e-4)
        for found, best in zip(lists["top_logprobs"], wanted["top_logprobs"], strict=True):
            assert found == best if best is None else found == pytest.approx(best, abs=1e-4)


def test_stops_end_a_text(client: openai.OpenAI) -> None:
    asked = {"model": "gpt", "prompt": TEXT, "max_tokens": 12, "seed": 5}
    whole = client.completions.create(**asked).choices[0].text  # type: ignore[call-overload]
    stop = whole[len(whole) // 2 : len(whole) // 2 + 2]
    short = client.completions.create(**asked, stop=[stop, "never said"]).choices[0]  # type: ignore[call-overload]
    assert short.text == whole[: whole.index(stop)]
    assert short.finish_reason == "stop"
    events = client.completions.create(**asked, stop=stop, stream=True)  # type: ignore[call-overload]
    assert "".join(event.choices[0].text for event in events) == short.text


@pytest.mark.parametrize("echo", [False, True])
def test_offsets_are_those_of_the_text(web: httpx.Client, echo: bool) -> None:
    """Behind a stop, or with a sign of several pieces, they were one too small: the space that stands
    before a completion was not counted. And the stop's own piece was told."""
    body = {"model": "gpt", "prompt": TEXT, "max_tokens": 12, "seed": 5, "logprobs": 0, "echo": echo}
    (whole,) = web.post("/v1/completions", json=body).json()["choices"]
    stop = whole["text"][-4:-2]
    for given in ({}, {"stop": stop}):
        (found,) = web.post("/v1/completions", json=body | given).json()["choices"]
        own, text = found["logprobs"], found["text"] if echo else TEXT + found["text"]
        ends = [*own["text_offset"][1:], len(text)]
        for piece, begin, end in zip(own["tokens"], own["text_offset"], ends):
            if "<0x" not in piece and "\ufffd" not in piece:  # a piece that is whole signs
                assert piece[: end - begin] == text[begin:end]
        assert all(begin < len(text) for begin in own["text_offset"]) or not given


def test_a_choice_of_draws_that_a_stop_ended_is_the_most_probable(web: httpx.Client) -> None:
    """A draw that was stopped had the score 0, which no other reaches: the first of them was taken."""
    body = {"model": "gpt", "prompt": TEXT, "max_tokens": 8, "logprobs": 0, "stop": ["a", "e", "o", "s"]}
    places = set()
    for seed in range(4):
        asked = body | {"seed": seed, "temperature": 1.5}
        every = web.post("/v1/completions", json=asked | {"n": 6}).json()["choices"]
        (best,) = web.post("/v1/completions", json=asked | {"n": 1, "best_of": 6}).json()["choices"]
        means = [fmean(own) if (own := each["logprobs"]["token_logprobs"]) else -math.inf for each in every]
        places.add(means.index(max(means)))
        assert best["text"] == every[means.index(max(means))]["text"]
    assert places != {0}


def test_nothing_is_written_after_the_right_prompts(web: httpx.Client) -> None:
    body = {"model": "gpt", "prompt": ["the cat", "the house"], "max_tokens": 0, "echo": True, "best_of": 2}
    found = web.post("/v1/completions", json=body | {"logprobs": 1}).json()["choices"]
    assert [each["text"] for each in found] == ["the cat", "the house"]


def test_lm_eval_reads_what_direct_scoring_says(web: httpx.Client) -> None:
    """What its `local-completions` sends for log-likelihoods, and what it makes of the answer."""
    generator = models()["gpt"]
    context, ending = generator.tokenizer.encode(TEXT), generator.tokenizer.encode(f" {CONTEXT}")
    rows = [context + ending, context[:3] + ending[:2]]
    splits = [len(context), 3]
    body = {
        "model": "gpt",
        "prompt": rows,
        "temperature": 0,
        "max_tokens": 1,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }
    answer = web.post("/v1/completions", json=body).json()
    for choice, row, split in zip(sorted(answer["choices"], key=lambda own: own["index"]), rows, splits):
        log_p, best = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
        assert len(log_p) == len(best) == len(row) + 1
        assert log_p[0] is None
        assert all(best[1:])
        text = generator.tokenizer.decode(row)
        direct = list(generator.score([text], end=False)[0])
        assert len(direct) == len(row)
        assert log_p[split:-1] == pytest.approx(direct[split:], abs=1e-5)
        greedy = all(own == max(top.values()) for own, top in zip(log_p[split:-1], best[split:-1]))
        assert not greedy
        assert log_p[-1] == max(best[-1].values())  # what it wrote is what is most probable
        assert choice["text"].startswith(text)
        offsets = choice["logprobs"]["text_offset"]
        assert all(one <= two for one, two in pairwise(offsets))
        pieces = [choice["text"][a:b] for a, b in pairwise([*offsets, len(choice["text"])])]
        assert pieces == choice["logprobs"]["tokens"]


def test_the_best_of_several(client: openai.OpenAI) -> None:
    asked = {"model": "gpt", "prompt": TEXT, "max_tokens": 6, "seed": 1, "logprobs": 0}
    every = client.completions.create(**asked, n=4).choices  # type: ignore[call-overload]
    best = client.completions.create(**asked, n=1, best_of=4).choices[0].text  # type: ignore[call-overload]
    mean = [math.fsum(each.logprobs.token_logprobs) / len(each.logprobs.tokens) for each in every]
    if all(each.finish_reason == "length" for each in every):
        assert best == every[max(range(4), key=mean.__getitem__)].text
    assert best in [each.text for each in every]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -1.0}, "frequency_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"n": 10**9}, "n"),
        ({"max_tokens": 2**63}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"logprobs": 6}, "logprobs"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"functions": []}, "functions"),
        ({"prompt": [10**6]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": "a " * 200}, "prompt"),
        ({"max_tokens": 1000}, "max_tokens"),
        ({"model": "transformer", "echo": True}, "echo"),
        ({"model": "fill"}, "model"),
    ],
)
def test_what_is_not_done_is_named(client: openai.OpenAI, change: dict[str, object], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/completions", body={"model": "gpt", "prompt": "a", **change}, cast_to=object)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_models(client: openai.OpenAI) -> None:
    assert [each.id for each in client.models.list()] == list(models())
    assert client.models.retrieve("gpt").id == "gpt"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="a")
    found = client.completions.create(model="transformer", prompt=TEXT)
    assert found.choices[0].text == models()["transformer"].translate(TEXT)


def test_embeddings(client: openai.OpenAI) -> None:
    direct = models()["embed"].vectors([TEXT, CONTEXT])
    for form in ("float", "base64"):
        found = client.embeddings.create(model="embed", input=[TEXT, CONTEXT], encoding_format=form)  # type: ignore[arg-type]
        if form == "float":
            assert np.array_equal(np.array([each.embedding for each in found.data], "f4"), direct)
    usual = client.embeddings.create(model="embed", input=TEXT)
    assert np.array_equal(np.array(usual.data[0].embedding, "f4"), direct[0])
    for wrong in ({"dimensions": 5}, {"model": "gpt"}, {"input": [1, 2]}):
        with pytest.raises(openai.BadRequestError):
            client.post("/embeddings", body={"model": "embed", "input": "a", **wrong}, cast_to=object)


NATIVE = {  # the model and the request of each task
    "translate": ("transformer", {"text": [TEXT, CONTEXT], "num_results": 2, "beam": 3}),
    "generate": ("gpt", {"prompt": TEXT, "max_length": 6, "seed": 3, "num_results": 2}),
    "fill": ("t5 gated", {"text": "the <mask> sees a house", "num_results": 3}),
    "classify": ("classify", {"text": [TEXT, CONTEXT], "num_results": 2}),
    "tag": ("tag", {"text": TEXT}),
    "answer": ("answer", {"question": ["who sleeps?", "where?"], "context": CONTEXT}),
    "embed": ("embed", {"text": [TEXT, CONTEXT]}),
    "score": ("transformer", {"source": TEXT, "target": CONTEXT}),
}


@pytest.mark.parametrize("task", [name for name, spec in TASKS.items() if "file" not in spec.inputs])
def test_a_native_route_answers_as_the_method(web: httpx.Client, task: str) -> None:
    """Every task of the table has a route, with the names, defaults and results of its method."""
    model, body = NATIVE[task]
    spec = TASKS[task]
    inputs = {name: value for name, value in body.items() if name in spec.inputs}
    options = {name: value for name, value in body.items() if name in spec.options}
    direct = spec.run(models()[model], inputs, options).to_dicts()
    answer = web.post(f"/api/v1/{task}", json={"model": model, **body})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["model"], found["precision"]) == (model, "float32")
    rows = [{name: value for name, value in row.items() if name in direct[0]} for row in found["results"]]
    assert rows == direct
    other = web.post(f"/api/v1/{task}", json={"model": model, **body, "beems": 3})
    assert (other.status_code, other.json()["code"]) == (400, "invalid_request")


def test_a_large_request_is_the_sum_of_its_portions(web: httpx.Client) -> None:
    texts = [f"{TEXT} {number}" * (1 + number % 9) for number in range(64)]
    found = web.post("/api/v1/classify", json={"text": texts, "num_results": 2}).json()["results"]
    direct = models()["classify"].classify(texts, 2)
    assert [row["label"] for row in found] == [each.label for each in direct]
    assert [row["labels"][0]["probability"] for row in found] == pytest.approx(
        [each.labels[0].probability for each in direct], abs=1e-6
    )


@pytest.mark.filterwarnings("ignore::regard.compat.OldNameWarning")
def test_fields_of_earlier_versions(web: httpx.Client) -> None:
    answer = web.post("/api/v1/fill", json={"model": "fill", "text": "the <mask> sees", "top_k": 2})
    assert len(answer.json()["results"][0]["candidates"]) == 2
    assert answer.headers["warning"] == '299 - "top_k is an old name of num_results"'
    assert [guess["piece"] for guess in answer.json()["results"][0]["gaps"][0]]
    both = web.post("/api/v1/fill", json={"text": "the <mask> sees", "top_k": 2, "num_results": 2})
    assert both.status_code == 400
    scored = web.post("/api/v1/score", json={"source": TEXT, "target": CONTEXT}).json()["results"][0]
    assert scored["log_probabilities"] == scored["token_log_probabilities"]
    assert scored["pieces"] == scored["tokens"]
    assert web.post("/api/v1/classify", json={"text": TEXT}).json()["results"][0]["cut"] is False


@pytest.mark.parametrize(
    ("task", "body"),
    [
        ("score", {"target": TEXT}),
        ("score", {"source": [TEXT, TEXT], "target": [CONTEXT]}),
        ("score", {"model": "gpt", "source": TEXT, "target": CONTEXT}),
        ("fill", {"text": "no gap"}),
        ("translate", {"text": TEXT, "beam": 900}),
        ("translate", {"text": TEXT, "decode": {"max_length": 10**8}}),
        ("translate", {"text": TEXT, "num_results": 40}),
        ("generate", {"prompt": TEXT, "max_length": 10**6}),
        ("classify", {"text": ["a" * 19_000] * 3}),
        ("classify", {"text": []}),
        ("classify", {"text": TEXT, "model": "tag"}),
    ],
)
def test_a_native_request_is_refused(web: httpx.Client, task: str, body: dict[str, object]) -> None:
    answer = web.post(f"/api/v1/{task}", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"]


@pytest.mark.parametrize(
    ("texts", "words"), [([], "at least 1 item"), (["a"] * 100, "at most 64 items"), (["a", 5], "string")]
)
def test_what_is_wrong_with_a_list_is_told(web: httpx.Client, texts: list[object], words: str) -> None:
    answer = web.post("/api/v1/translate", json={"text": texts})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("text: ") and words in answer.json()["error"]


def test_health_and_limits(web: httpx.Client) -> None:
    limits = web.get("/api/v1/limits").json()
    assert limits["body"] == 1 << 20
    assert limits.keys() >= {"connections", "answers", "bodies", "desk_queue_tokens", "request_seconds"}
    assert web.get("/health/ready").json() == {"status": "ready"}
    assert web.get("/health/live").json() == {"status": "ok"}
    for path in ("/", "/health", "/health/live", "/v1/models"):
        head = web.head(path)
        assert (head.status_code, head.content) == (200, b"")
    assert web.head("/api/v1/translate").status_code == 405


def test_the_routes_are_shown_from_own_files(web: httpx.Client) -> None:
    page = web.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert named
    for address in named:
        assert address.startswith("/"), "nothing comes from elsewhere"
        assert web.get(address).status_code == 200, address
    told = web.get("/openapi.json").json()
    assert told == web.get("/spec").json()
    assert told["paths"]["/translate"]["post"]["requestBody"]["content"].keys() >= {"application/json"}
