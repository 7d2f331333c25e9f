"""The explorer's routes: the numbers of the trace, and what they refuse."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from safetensors.torch import load as read_tensors

from regard.cli.explore import unique_names
from regard.interpret import TracedTokens, compare
from regard.interpret.interventions import KINDS as CHANGES
from regard.interpret.page import add_module
from regard.server import make_app
from regard.server.app import WEB
from regard.server.run import listen
from regard.server.traces import Traces, compare_traces, pairs, words
from traced_models import CONTEXT, KINDS, TEXT, opened_task, traced

API = "/api/v1"
JSON = {"content-type": "application/json"}
SMALL = {"decode": {"beam": 2, "max_length": 8}}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    models = {kind: opened_task(kind) for kind in KINDS}
    with TestClient(make_app(models), base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as own:
        yield own


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post(f"{API}/trace", json={"source": TEXT, **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def error_of(answer: Any, status: int = 400, code: str | None = None) -> str:
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error", "code"]
    assert code in (None, answer.json()["code"])
    text: str = answer.json()["error"]
    assert "\n" not in text
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gpt rotary"])
def test_the_route_gives_the_trace_of_every_task(client: TestClient, kind: str) -> None:
    own = {"source": KINDS[kind][3].get("text", TEXT), "model": kind}
    own |= {name: KINDS[kind][3][name] for name in ("decode", "context") if name in KINDS[kind][3]}
    told, trace = ask(client, **own), traced(kind)
    assert told["output"] == trace.output
    assert [each["name"] for each in told["tensors"]] == trace.names()
    assert {side: pieces["ids"] for side, pieces in told["tokens"].items()} == {
        side: list(pieces.ids) for side, pieces in trace.tokens.items()
    }
    bytes_ = client.get(f"{API}/trace/{told['id']}/tensors", params={"name": "logits"}).content
    assert torch.equal(read_tensors(bytes_)["logits"], trace["logits"])
    assert client.get(f"{API}/trace/{told['id']}").json() == {k: v for k, v in told.items() if k != "model"}
    for step in told["steps"]:
        shares = [word["p"] for word in step["best"]]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) < 1 + 1e-5


def test_steps_are_the_softmax_of_the_logits(client: TestClient) -> None:
    told, trace = ask(client, model="transformer", **SMALL), traced("transformer", **SMALL)
    shares = np.exp(trace["logits"].double().numpy())
    shares /= shares.sum(axis=1, keepdims=True)
    for place, (step, piece) in enumerate(zip(told["steps"], trace.tokens["output"].ids)):
        assert step["p"] == pytest.approx(shares[place, piece], abs=1e-6)
        assert step["best"][0]["p"] == pytest.approx(shares[place].max(), abs=1e-6)


def test_a_gap_tells_what_was_put_into_it(client: TestClient) -> None:
    """It told how probable the gap's own sign was, and of every other place that it had been said there."""
    told = client.post(f"{API}/trace", json={"model": "fill", "source": "the <mask> sees a house"}).json()
    gaps = [step for step in told["steps"] if step["id"] is not None]
    assert [step["shown"] for step in gaps] == ["<mask>"]
    names = {word["id"]: word["shown"] for word in gaps[0]["best"]}
    assert names[gaps[0]["id"]] in told["output"] and gaps[0]["p"] == gaps[0]["best"][0]["p"]


def test_one_head_of_shared_keys_is_that_of_its_group(client: TestClient) -> None:
    told, trace = ask(client, model="llama", decode={"beam": 1}), traced("llama")
    names = ["decoder.0.self.query", "decoder.0.self.key"]
    for head in range(4):
        found = read_tensors(
            client.get(f"{API}/trace/{told['id']}/tensors", params={"name": names, "head": head}).content
        )
        assert torch.equal(found[names[0]], trace[names[0]][head])
        assert torch.equal(found[names[1]], trace[names[1]][head // 2])


def test_thumbnails_are_the_largest_of_each_field(client: TestClient) -> None:
    told, trace = ask(client, model="transformer", **SMALL), traced("transformer", **SMALL)
    query = {"name": "*.weights", "pool": 4, "dtype": "U8"}
    found = read_tensors(client.get(f"{API}/trace/{told['id']}/tensors", params=query).content)
    assert sorted(found) == sorted(trace.names("*.weights"))
    for name, small in found.items():
        assert small.dtype == torch.uint8
        assert max(small.shape[-2:]) <= 4
        most = (trace[name].amax(dim=(1, 2)) * 255).round().to(torch.uint8)
        assert torch.equal(small.amax(dim=(1, 2)), most)


def test_a_forced_beginning_is_gone_on_from(client: TestClient) -> None:
    first = ask(client, model="transformer", **SMALL)
    ids = first["tokens"]["output"]["ids"]
    other = next(word["id"] for word in first["steps"][1]["best"] if word["id"] not in (ids[1], 1))
    told = ask(client, model="transformer", prefix=[ids[0], other], **SMALL)
    assert told["tokens"]["output"]["ids"][:2] == [ids[0], other]
    assert told["tokens"]["target"]["ids"][1:3] == [ids[0], other]
    same = ask(client, model="transformer", prefix=ids[:3], decode={"beam": 1, "max_length": 8})
    assert same["tokens"]["output"]["ids"][:3] == ids[:3]


def test_the_tree_leads_to_the_answer(client: TestClient) -> None:
    told = ask(client, model="transformer", **SMALL)
    best = [node["token"] for node in told["beam"] if node["best"]]
    assert best == told["tokens"]["output"]["ids"]
    assert {node["fate"] for node in told["beam"]} >= {"kept", "pruned"}


def test_an_intervention_reaches_the_run(client: TestClient) -> None:
    change = {"type": "zero_head", "where": "decoder.0.cross", "head": 1}
    told = ask(client, model="transformer", interventions=[change], **SMALL)
    found = read_tensors(
        client.get(f"{API}/trace/{told['id']}/tensors?name=decoder.0.cross.mixed&head=1").content
    )
    assert not found["decoder.0.cross.mixed"].any()


def test_what_a_model_has_no_part_for_is_not_offered(client: TestClient) -> None:
    """Every kind that is offered runs, every other is refused in a sentence."""
    examples: dict[str, dict[str, Any]] = {kind: {"type": kind} for kind in CHANGES}
    told = {each["name"]: each["interventions"] for each in client.get(f"{API}/models").json()["models"]}
    for kind in ("transformer", "t5", "rnn", "bahdanau", "gpt", "classify"):
        where = next(iter(told[kind]["heads"]), "decoder.0.cross")
        examples["zero_head"] |= {"where": where, "head": 0}
        examples["replace_token"] |= {"position": 1, "text": "<mask>"}
        examples["edit"] |= {"name": "logits", "position": 0, "column": 0, "value": 0}
        examples["patch"] |= {"name": "logits", "text": TEXT}
        for change in examples.values():
            body = {"source": TEXT, "model": kind, "interventions": [change]}
            if kind != "classify":
                body["decode"] = {"beam": 1, "max_length": 3}
            answer = client.post(f"{API}/trace", json=body)
            assert (answer.status_code == 200) == (change["type"] in told[kind]["types"]), (kind, change)
    assert told["transformer"]["types"] == list(CHANGES)
    assert told["rnn"]["types"] == ["replace_token", "edit", "patch"]
    assert told["transformer"]["heads"]["decoder.1.cross"] == 4
    assert [told[kind]["sides"] for kind in ("classify", "gpt")] == [["source"], ["source", "target"]]


def test_two_runs_are_compared_as_python_does(client: TestClient) -> None:
    change = {"type": "zero_head", "where": "decoder.0.cross", "head": 1}
    one = ask(client, model="transformer", **SMALL)
    two = ask(client, model="transformer", interventions=[change], **SMALL)
    wanted = compare(traced("transformer", **SMALL), traced("transformer", interventions=[change], **SMALL))
    found = client.get(f"{API}/compare", params={"before": one["id"], "after": two["id"]}).json()
    assert found["comparison"] == json.loads(json.dumps(wanted.as_json()))
    assert found["sentence"] == wanted.sentence
    assert found["sentence"].startswith("Without head 1 of decoder.0.cross: ")
    assert found["reason"] is None
    first = client.get(f"{API}/compare", params={"before": one["id"], "after": two["id"], "step": 0}).json()
    assert (first["comparison"]["step"], first["comparison"]["behind"]) == (0, "")
    back = client.get(f"{API}/compare", params={"before": two["id"], "after": one["id"]}).json()
    assert back["sentence"].startswith("Back from without head 1 of decoder.0.cross: ")


def test_runs_that_cannot_be_compared_tell_why(client: TestClient) -> None:
    one, two = ask(client, model="transformer", **SMALL), ask(client, model="classify")
    found = client.get(f"{API}/compare", params={"before": one["id"], "after": two["id"]}).json()
    assert found["comparison"] is None
    assert "different words" in found["reason"]
    assert found["sentence"].startswith('One says "')
    both = traced("transformer", **SMALL)
    renamed = replace(both, vocabulary={number: f"{text}x" for number, text in both.vocabulary.items()})
    assert "different words" in str(compare_traces(both, renamed)["reason"])  # as many words, but others
    question = opened_task("answer")
    answers = [question.trace(TEXT, context=each) for each in (CONTEXT, f"{CONTEXT} and sleeps")]
    assert "different lengths" in str(compare_traces(*answers)["reason"])
    for query, part in (("before=a", "after"), ("x=1", "before")):
        assert part in error_of(client.get(f"{API}/compare?{query}"))
    error_of(client.get(f"{API}/compare?before=a&after=b"), 410, "trace_expired")
    far = client.get(f"{API}/compare", params={"before": one["id"], "after": one["id"], "step": 999})
    assert "step = 999" in error_of(far)


def test_pieces_and_words_of_two_runs_are_paired() -> None:
    def pieces(*ids: int) -> TracedTokens:
        return TracedTokens(ids, tuple(map(str, ids)), tuple(range(len(ids))))

    assert pairs(pieces(1, 2, 3), pieces(1, 2, 3)) == [(0, 0), (1, 1), (2, 2)]
    assert pairs(pieces(1, 2, 3), pieces(9, 1, 2, 3)) == [(0, 1), (1, 2), (2, 3)]
    assert pairs(pieces(1, 2, 3), pieces(1, 7, 3)) == [(0, 0), (1, 1), (2, 2)]  # one stands for one
    assert pairs(pieces(1, 2, 3), pieces(1, 7, 8, 3)) == [(0, 0), (2, 3)]
    assert words("the old house", "the new small house") == [
        {"kind": "same", "shown": "the"},
        {"kind": "gone", "shown": "old"},
        {"kind": "new", "shown": "new small"},
        {"kind": "same", "shown": "house"},
    ]
    assert words("", "a") == [{"kind": "new", "shown": "a"}]


def test_a_replaced_target_is_compared_behind_it() -> None:
    """Before it both runs are the same; what follows is what was asked about."""
    plain = traced("transformer", **SMALL)
    change = {"type": "replace_token", "side": "target", "position": 3, "text": "<mask>"}
    found = compare(plain, traced("transformer", interventions=[change], **SMALL))
    assert found.divergences[:3] == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    assert len(found.divergences) == len(plain.tokens["target"])
    assert found.step >= 3
    assert found.divergence > 1e-6


def test_of_many_labels_each_has_its_own_share(client: TestClient) -> None:
    task = opened_task("classify")
    many = type(task)(replace(task.folder, task=task.folder.task.model_copy(update={"multi_label": True})))
    change = {"type": "drop_positions"}
    one, two = many.trace(TEXT), many.trace(TEXT, interventions=[change])
    with TestClient(make_app({"many": many}), base_url="http://127.0.0.1:8000") as own:
        best = ask(own)["steps"][0]["best"]
    p, q = (1 / (1 + np.exp(-each["logits"][0].double().numpy())) for each in (one, two))
    assert [each["p"] for each in best] == pytest.approx(sorted(p, reverse=True), abs=1e-6)
    found = compare(one, two)
    shares = {each.text: (each.before, each.after) for each in found.choices}
    assert shares["bad"] == pytest.approx((p[1], q[1]), abs=1e-6)
    apart = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert found.divergence == pytest.approx(apart.sum(), rel=1e-4)
    assert not traced("classify").meta["many"]


def test_rows_and_columns_of_tensors(client: TestClient) -> None:
    told, trace = ask(client, model="transformer", **SMALL), traced("transformer", **SMALL)
    names = ["decoder.0.out", "decoder.1.feed_forward.hidden"]
    row = read_tensors(
        client.get(f"{API}/trace/{told['id']}/tensors", params={"name": names, "row": 2}).content
    )
    assert all(torch.equal(row[name], trace[name][2:3]) for name in names)
    column = read_tensors(
        client.get(f"{API}/trace/{told['id']}/tensors", params={"name": names[1], "column": 5}).content
    )
    assert torch.equal(column[names[1]], trace[names[1]][:, 5:6])


def test_the_same_request_has_the_same_number(client: TestClient) -> None:
    assert ask(client, model="bahdanau", **SMALL)["id"] == ask(client, **SMALL, model="bahdanau")["id"]
    assert ask(client, model="bahdanau", **SMALL)["id"] != ask(client, **SMALL, model="rnn")["id"]


def test_old_traces_are_forgotten() -> None:
    kept, trace = Traces(most=2), traced("transformer", **SMALL)
    for name in "ab":
        kept.add(name, trace)
    assert kept.get("a") is trace
    kept.add("c", trace)
    assert (kept.get("b"), kept.get("a")) == (None, trace)
    small = Traces(most_bytes=1)
    for name in "abcd":
        small.add(name, trace)
    assert list(small.kept) == ["b", "c", "d"]  # a page that compares asks for three, and asked for ever


def test_models_and_pieces_are_told(client: TestClient) -> None:
    told = client.get(f"{API}/models").json()
    assert [each["name"] for each in told["models"]] == list(KINDS)
    pieces = client.post(f"{API}/tokenize", json={"text": TEXT}).json()
    tokenizer = opened_task("transformer").folder.source
    assert pieces["ids"] == tokenizer.encode(TEXT)
    assert len(pieces["shown"]) == len(pieces["words"]) == len(pieces["ids"])


WRONG = {
    "empty": ({"source": "  "}, "empty"),
    "no source": ({}, "source: field required"),
    "too long": ({"source": "a" * 20_001}, "20000 characters at most"),
    "too many words": ({"source": "cat " * 4000}, "tokens"),
    "no such model": ({"source": "a", "model": "transfomer"}, 'did you mean "transformer"'),
    "no such field": ({"source": "a", "beams": 3}, "beams: there is no such field"),
    "wide beam": (
        {"source": "a", "decode": {"beam": 500}},
        "decode.beam = 500: this server allows 16 at most",
    ),
    "no such option": ({"source": "a", "decode": {"beem": 2}}, "beem"),
    "no such head": (
        {"source": "a", "interventions": [{"type": "zero_head", "where": "decoder.0.cross", "head": 99}]},
        "head",
    ),
    "a piece that is none": ({"source": "a", "prefix": [10**9]}, "prefix"),
    "a beginning below 0": ({"source": "a", "prefix": [-1]}, "prefix"),
    "target and prefix": ({"source": "a", "target": "b", "prefix": [5]}, "not both"),
    "a target for BERT": ({"source": "a", "model": "classify", "prefix": [5]}, "generates no text"),
    "context for a translator": ({"source": "a", "context": CONTEXT}, "context"),
    "another kind": ({"source": 5}, "source"),
}


@pytest.mark.parametrize(("body", "part"), WRONG.values(), ids=WRONG)
def test_wrong_requests_are_told_in_a_sentence(client: TestClient, body: dict[str, Any], part: str) -> None:
    answer = client.post(f"{API}/trace", json=body)
    assert part in error_of(answer, 404 if "model" in body and "did you mean" in part else 400)


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 100_000, b'{"source": NaN}', b"[1]", b'"a"'])
def test_what_is_no_request(client: TestClient, raw: bytes) -> None:
    error_of(client.post(f"{API}/trace", content=raw, headers=JSON))


@pytest.mark.parametrize("text", ["a\ud800b", "\x00\x01", "‏שלום", "👩‍👩‍👧", "<script>alert(1)</script>"])
def test_strange_texts_are_traced(client: TestClient, text: str) -> None:
    raw = json.dumps({"source": text, "model": "transformer", **SMALL}).encode()
    answer = client.post(f"{API}/trace", content=raw, headers=JSON)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("", "name"),
        ("name=nonsense", "not in this trace"),
        ("name=../../etc/passwd", "not in this trace"),
        ("name=logits&dtype=U8", "use F32"),
        ("name=logits&dtype=F64", "dtype"),
        ("name=decoder.0.cross.weights&head=4", "4 heads"),
        ("name=decoder.0.cross.weights&head=-1", "head"),
        ("name=logits&pool=0", "pool"),
        ("name=decoder.0.out&row=99", "row = 99"),
        ("name=decoder.0.out&column=99", "column = 99"),
        ("name=decoder.0.out&row=-1", "row"),
        ("name=logits&other=1", "other: there is no such field"),
    ],
)
def test_wrong_tensors(client: TestClient, query: str, part: str) -> None:
    told = ask(client, model="transformer", **SMALL)
    assert part in error_of(client.get(f"{API}/trace/{told['id']}/tensors?{query}"))


def test_a_trace_that_is_gone(client: TestClient) -> None:
    for path in ("", "/tensors?name=logits", "/reading?kind=rollout", "/export?format=svg"):
        error_of(client.get(f"{API}/trace/nothing{path}"), 410, "trace_expired")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "[::1", "localhost@evil.example:80"]
)
def test_other_names_of_this_machine_are_refused(client: TestClient, host: str) -> None:
    """A page whose name was pointed to 127.0.0.1 could otherwise read what is traced here."""
    answer = client.get(f"{API}/models", headers={"host": host})
    assert error_of(answer, 403) == "this server answers only as 127.0.0.1 or localhost"


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost:8000", "[::1]:80", "LOCALHOST"])
def test_own_names_are_answered(client: TestClient, host: str) -> None:
    assert client.get(f"{API}/models", headers={"host": host}).status_code == 200


def test_other_pages_are_refused(client: TestClient) -> None:
    for own in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        answer = client.post(f"{API}/trace", json={"source": "a"}, headers=own)
        assert "its own page" in error_of(answer, 403)
    plain = client.post(f"{API}/trace", content=b'{"source": "a"}', headers={"content-type": "text/plain"})
    assert "JSON" in error_of(plain, 415)
    huge = client.post(f"{API}/trace", content=b" " * (1 << 20) + b"{}", headers=JSON)
    assert "too large" in error_of(huge, 413)


@pytest.mark.parametrize("path", ["/", "/web/style.css", "/web/js/main.js", "/api/v1/models", "/nothing"])
def test_every_answer_is_guarded(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_nothing_beside_the_page_is_served(client: TestClient) -> None:
    for path in (
        "/web/../app.py",
        "/web/%2e%2e/app.py",
        "/web/..%2fapp.py",
        "/docs",
        "/openapi.json",
        "/web/",
    ):
        error_of(client.get(path), 404)
    error_of(client.get(f"{API}/trace"), 405)


def test_the_page_is_small_and_asks_nobody_else() -> None:
    modules: dict[str, str] = {}
    add_module(WEB / "js", "main.js", modules, ())  # what a browser fetches: not the engine of a static site
    fetched = ["index.html", "style.css", "icon.svg", *(f"js/{name}" for name in modules)]
    assert sum((WEB / name).stat().st_size for name in fetched) <= 365_000
    for path in (path for path in WEB.rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn", text), path
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text
        )


def test_the_command_tells_what_is_wrong(refused: Any, tiny_model: Any) -> None:
    with listen(0) as taken:
        port = taken.getsockname()[1]
        assert "--port" in refused("explore", "-m", tiny_model, "--no-browser", "--port", port)
    assert "no such folder" in refused("explore", "-m", "nowhere", "--no-browser")


def test_an_answer_waits_for_no_acknowledgement() -> None:
    """asyncio sends at once only on what it knows to be TCP; without that each answer took 40 ms more."""
    with listen(0) as own:
        assert own.proto == socket.IPPROTO_TCP


def test_models_of_one_name_are_told_apart_without_their_whole_paths(tmp_path: Any) -> None:
    paths = [tmp_path / "a" / "demo", tmp_path / "b" / "demo", tmp_path / "rnn"]
    assert unique_names(paths) == {"a/demo": paths[0], "b/demo": paths[1], "rnn": paths[2]}


def test_the_command_serves_the_page(tiny_model: Any) -> None:
    command = [sys.executable, "-m", "regard", "explore", "-m", str(tiny_model), "ba de", "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = process.stderr.readline().split()[0]
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?text=ba\+de", address)
            with urllib.request.urlopen(address, timeout=20) as page:
                assert b"<title>Regard" in page.read()
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)
        assert "Traceback" not in process.stderr.read()
