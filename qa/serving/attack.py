"""Requests made of the server's description, odd framings, strangers, a long mixed day."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qa.serving.client import Answer, Link, Result, Server, above
from qa.serving.driver import Question, numbers, question, sentences
from qa.serving.load import ENGLISH, Pair, body

WORDS = ["", "a", "en", "de", "auto", "text", "html", "<mask>", "the <mask> sleeps", "\u2028", "\x00",
         "👩‍👩‍👧", "z" * 300, "<b>a</b>", "\ufffd", "١٢", "0", "-1", "null"]  # fmt: skip


CLIENTS = 8  # of a mixed day


class Making:
    """Values of a schema, now and then wrong ones."""

    def __init__(self, document: Mapping[str, Any], dice: random.Random, names: Sequence[str]) -> None:
        self.document, self.dice, self.names = document, dice, names

    def value(self, schema: Mapping[str, Any], field: str = "") -> Any:
        if self.dice.random() < 0.04:
            return self.dice.choice([None, -1, 2**63, 1e308, "", [], {}, True, [[]], "\ud800"])
        if "$ref" in schema:
            return self.value(self.document["components"]["schemas"][schema["$ref"].split("/")[-1]])
        if "anyOf" in schema:
            return self.value(self.dice.choice(schema["anyOf"]), field)
        if "enum" in schema or "const" in schema:
            return self.dice.choice(schema.get("enum") or [schema["const"]])
        return self.plain(schema, field)

    def plain(self, schema: Mapping[str, Any], field: str) -> Any:
        match schema.get("type"):
            case "string":
                return self.dice.choice([*self.names, ""]) if field == "model" else self.dice.choice(WORDS)
            case "integer":
                low = int(schema.get("minimum", -5))
                high = min(int(schema.get("maximum", low + 20)), low + 20)
                return self.dice.randint(low - 1, high + 1)
            case "number":
                return self.dice.uniform(schema.get("minimum", -2) - 0.1, schema.get("maximum", 2) + 0.1)
            case "boolean":
                return self.dice.random() < 0.5
            case "null":
                return None
            case "array":
                most = min(3, schema.get("maxItems", 3))
                return [self.value(schema.get("items", {})) for _ in range(self.dice.randint(0, most))]
        properties = schema.get("properties", {})
        needed = schema.get("required", [])
        chosen = [name for name in properties if self.dice.random() < (0.95 if name in needed else 0.3)]
        result = {name: self.value(properties[name], name) for name in chosen}
        if self.dice.random() < 0.05:
            result[self.dice.choice(WORDS)] = 1
        return result

    def requests(self, count: int) -> Iterator[tuple[str, str, bytes, str]]:
        """(method, path, body, kind)"""
        every = [
            (path, method, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            if path != "/api/v1/trace"
        ]
        for _ in range(count):
            path, method, operation = self.dice.choice(every)
            content = operation.get("requestBody", {}).get("content", {})
            if not content:
                yield self.dice.choice([method.upper()] * 9 + ["PUT"]), path, b"", "application/json"
                continue
            made = self.value(content["application/json"]["schema"])
            if isinstance(made, dict) and path == "/v1/completions":
                made.setdefault("max_tokens", 2)
            raw = json.dumps(made).encode()
            if self.dice.random() < 0.05:
                raw = raw[: self.dice.randint(0, len(raw))]
            yield method.upper(), path, raw, "application/json"


def framings(dice: random.Random, count: int) -> list[bytes]:
    """Requests that are no good HTTP."""
    head = b"POST /detect HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n"
    kinds = [
        head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        head + b"Content-Length: +2\r\n\r\n{}",
        head + b"Content-Length: 0x2\r\n\r\n{}",
        chunked + b"\r\nzz\r\n{}\r\n0\r\n\r\n",
        chunked + b"\r\n-1\r\n{}\r\n0\r\n\r\n",
        chunked + b"\r\n2\r\n{}XX0\r\n\r\n",
        chunked + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        head + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        head + b"X: a\x00b\r\nContent-Length: 2\r\n\r\n{}",
        head + b"X : a\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/3.0\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET  /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        chunked + b"\r\n" + b"1\r\na\r\n" * 500_000,
    ]
    return [dice.choice(kinds[:-1]) for _ in range(count - 1)] + [kinds[-1]]


async def fuzz(server: Server, seed: int, count: int, odd: int, models: Sequence[str]) -> Result:
    """What the description allows and nearly allows, and what is no HTTP: no 5xx, no silence."""
    link, dice = Link(server.port), random.Random(seed)
    document = (await link.ask("GET", "/openapi.json")).json()
    making = Making(document, dice, models)
    failures, statuses, examples = 0, dict[int, int](), list[str]()
    for method, path, raw, kind in making.requests(count):
        answer = await link.ask(method, path, raw, {"Content-Type": kind}, wait=20)
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        if problem := wrong(document, method, path, answer):
            failures += 1
            examples.append(f"{method} {path} {raw[:200]!r}: {problem}")
    refused = 0
    for raw in framings(dice, odd):
        link = Link(server.port)
        answer = await link.send(raw, wait=5)
        good = answer.status in (400, 408, 413) and answer.headers.get("connection") == "close"
        refused += good
        if not good:
            examples.append(f"{raw[:80]!r}: {answer.status}")
        link.close()
    failures += odd - refused
    if server.log is not None:
        failures += sum(
            bool(re.search(rb"[\x00-\x08\x0b-\x1f]", line)) for line in server.log.read_bytes().split(b"\n")
        )
    figure = {
        "statuses": dict(sorted(statuses.items())),
        "framings_refused": refused,
        "examples": examples[:5],
    }
    return Result("protocol", count + odd, failures, figure, seed)


def wrong(document: Mapping[str, Any], method: str, path: str, answer: Answer) -> str:
    """What is wrong with an answer, if anything: its status is not told of, or its shape."""
    if answer.status == 0:
        return "no answer"
    if answer.status >= 500 and answer.status != 503:
        return f"status {answer.status}"
    operation = document["paths"][path].get(method.lower())
    if operation is None:
        return "" if answer.status == 405 else f"status {answer.status}"
    responses = operation["responses"]
    response = responses.get(str(answer.status)) or responses.get(f"{answer.status // 100}XX")
    if response is None:
        return f"status {answer.status} is not in the description"
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if kind not in response["content"]:
        return f"content type {kind}"
    if kind == "application/json" and not fits(document, response["content"][kind]["schema"], answer.json()):
        return f"shape {answer.body[:200]!r}"
    return ""


def fits(document: Mapping[str, Any], schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value has the shape of a schema, as far as this server's own document needs it."""
    if "$ref" in schema:
        return fits(document, document["components"]["schemas"][schema["$ref"].split("/")[-1]], value)
    if "anyOf" in schema:
        return any(fits(document, each, value) for each in schema["anyOf"])
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds: dict[str, Any] = {"string": str, "integer": int, "number": (int, float), "boolean": bool,
                             "null": type(None), "array": list, "object": dict}  # fmt: skip
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(isinstance(value, kinds[each]) for each in types):
        return False
    if isinstance(value, list):
        return all(fits(document, schema.get("items", {}), each) for each in value)
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        if any(name not in value for name in schema.get("required", [])):
            return False
        if others is False and set(value) - set(properties):
            return False
        return all(fits(document, properties.get(name, others if isinstance(others, dict) else {}), each)
                   for name, each in value.items())  # fmt: skip
    return True


FORMS = (  # routes that take forms: those of files, and LibreTranslate's
    *("/translate", "/detect", "/suggest", "/translate_file"),
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    *(f"/api/v1/{task}" for task in ("caption", "classify", "embed", "transcribe")),
)


async def strangers(server: Server, seed: int, key: str) -> Result:
    """Every route of the description and the page, asked by whom it should not answer."""
    link = Link(server.port)
    bearer = {"Authorization": f"Bearer {key}"}
    document = (await link.ask("GET", "/openapi.json", headers=bearer)).json()
    routes = [(path, method.upper()) for path, methods in document["paths"].items() for method in methods]
    routes += [
        ("/", "GET"),
        ("/web/js/main.js", "GET"),
        ("/openapi.json", "GET"),
        ("/docs", "GET"),
        ("/spec", "GET"),
    ]
    cases: list[tuple[dict[str, str], tuple[int, ...]]] = [
        ({**bearer, "Host": "evil.example"}, (403,)),
        ({**bearer, "Host": "127.0.0.1.evil.example"}, (403,)),
        ({**bearer, "Origin": "https://evil.example"}, (403,)),
        ({**bearer, "Origin": "null"}, (403,)),
        ({}, (401, 403)),
        ({"Authorization": "Bearer nothing"}, (401, 403)),
        ({"Authorization": "Basic bm9ib2R5Og=="}, (401, 403)),
    ]
    failures, requests, examples = 0, 0, list[str]()
    for path, method in routes:
        for headers, wanted in cases:
            if path in ("/health", "/health/live") and "Host" not in headers and "Origin" not in headers:
                continue
            answer = await link.ask(method, path, b"{}" if method == "POST" else None, headers)
            requests += 1
            bad = answer.status not in wanted or "access-control-allow-origin" in answer.headers
            failures += bad
            if bad:
                examples.append(f"{method} {path} {headers} {answer.status}")
        if method == "POST":
            for kind in ("text/plain", "multipart/form-data; boundary=x"):
                answer = await link.ask(method, path, b"{}", {**bearer, "Content-Type": kind})
                requests += 1
                if kind != "text/plain" and path in FORMS:  # a foreign page is refused by its Origin
                    foreign = {**bearer, "Content-Type": kind, "Origin": "https://evil.example"}
                    answer = await link.ask(method, path, b"{}", foreign)
                bad = answer.status not in (415, 403)
                failures += bad
                if bad:
                    examples.append(f"{method} {path} {kind} {answer.status}")
        flight = {"Origin": "https://evil.example", "Access-Control-Request-Method": method}
        answer = await link.ask("OPTIONS", path, None, flight)
        requests += 1
        failures += answer.status != 403
    return Result(
        "foreign-pages", requests, failures, {"routes": len(routes), "examples": examples[:5]}, seed
    )


async def soak(
    server: Server,
    seed: int,
    count: int,
    models: Mapping[str, str],
    pair: Pair = ENGLISH,
    texts: Sequence[str] | None = None,
) -> Result:
    """A long mixed day with models in turn (by name, with what each does) leaves all as it was."""
    texts = list(texts or sentences(seed))
    link = Link(server.port)
    document = (await link.ask("GET", "/openapi.json")).json()
    link.close()
    first, done = max(CLIENTS, count // 10), Counter[str]()

    async def day(number: int, requests: int) -> int:
        dice = random.Random(f"{seed} {number} {requests}")
        visitor = Visitor(server, dice, document, models, pair, texts, done)
        failures = sum([await visitor.ask() for _ in range(requests)])
        visitor.link.close()
        return failures

    async def days(requests: int) -> int:
        failures = sum(await asyncio.gather(*(day(number, requests // CLIENTS) for number in range(CLIENTS))))
        await asyncio.sleep(1.5)
        return failures

    failures = await days(first)
    early, held = server.rss(), await holds(server)
    failures += await days(count - first)
    late, now = server.rss(), await holds(server)
    growth = late - early
    figure: dict[str, Any] = {"rss_growth": round(growth, 2), "rss": round(late, 1), "before": held}
    figure |= {"after": now, "asked": dict(done), "wrong_answers": failures}
    figure["missed"] = above(rss_growth=(growth, min(8.0, early / 100)))
    failures += growth > 8
    failures += any(now[name] > held[name] + 1 for name in held)
    return Result("soak", count, failures, figure, seed)


async def holds(server: Server) -> dict[str, int]:
    """Files, threads and tasks of the event loop."""
    return {**server.held(), "tasks": int((await numbers(server.address))["regard_tasks"])}


class Visitor:
    """A client that asks this and that, of each model in turn, and sometimes leaves without a word."""

    def __init__(
        self,
        server: Server,
        dice: random.Random,
        document: Mapping[str, Any],
        models: Mapping[str, str],
        pair: Pair,
        texts: Sequence[str],
        done: Counter[str],
    ) -> None:
        self.server, self.dice, self.pair, self.texts = server, dice, pair, texts
        self.models, self.done, self.turn = models, done, 0
        self.link = Link(server.port)
        self.odd = Making(document, dice, list(models)).requests(10**9)

    def usual(self) -> Question:
        """What the next model is for."""
        self.turn += 1
        name = list(self.models)[self.turn % len(self.models)]
        self.done[name] += 1
        text = self.dice.choice(self.texts)
        if self.models[name] == "translate":
            return Question("/translate", body(text, *self.pair))
        request = question(name, self.models[name], text, self.dice.randint(1, 8))
        return (
            Question(request.path, {**request.content, "stream": True})
            if "max_tokens" in request.content
            else request
        )

    async def ask(self) -> bool:
        """Whether it went wrong."""
        kind = self.dice.random()
        if kind < 0.05:
            await self.vanish(self.usual())
            return False
        if kind < 0.6:
            request = self.usual()
            answer = await self.link.ask("POST", request.path, request.content)
        else:
            method, path, raw, media = next(self.odd)
            answer = await self.link.ask(method, path, raw, {"Content-Type": media})
        return answer.status == 0 or (answer.status >= 500 and answer.status != 503)

    async def vanish(self, request: Question) -> None:
        raw = json.dumps(request.content).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        head = f"POST {request.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + raw)
        await writer.drain()
        await asyncio.sleep(self.dice.random() * 0.01)
        writer.transport.abort()
