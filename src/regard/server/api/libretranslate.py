"""LibreTranslate-compatible routes: `/translate`, `/languages`, `/detect` and those that its clients need."""

from __future__ import annotations

import asyncio
import html
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from regard.inputs.language import Detector
from regard.resources import read_data
from regard.server.api.native import HealthStatus, aligned, check_size, translate
from regard.server.errors import APIError, ErrorBody, responses
from regard.server.media import MULTIPART
from regard.server.origin_policy import FORM
from regard.server.requests import LIMITS, RequestBody, ResponseBody, Text
from regard.server.service import Call, Service, TheCall, TheService

LEAST = 1.0  # per cent; less probable languages are omitted
CERTAIN = 50.0  # per cent; a text that is in the target language so probably is left as it is
NAMES: dict[str, str] = read_data("languages")

Code = Annotated[str, Field(max_length=64)]


class LibreTranslateRequest(RequestBody):
    api_key: str = ""


class TranslateBody(LibreTranslateRequest):
    q: Text | Annotated[list[Text], Field(max_length=LIMITS.texts)]
    source: Code
    target: Code
    format: Code = "text"
    alternatives: int = Field(0, ge=0, le=LIMITS.choices)


class DetectBody(LibreTranslateRequest):
    q: Text


class Detected(BaseModel):
    confidence: float = Field(ge=0, le=100)
    language: str


class Translated(BaseModel):
    translatedText: str | list[str]
    detectedLanguage: Detected | list[Detected] | None = None
    alternatives: list[str] | list[list[str]] | None = None


class LanguageItem(BaseModel):
    code: str
    name: str
    targets: list[str]


class FrontendSettings(ResponseBody):
    charLimit: int = LIMITS.text_characters
    frontendTimeout: int = 500
    apiKeys: bool
    keyRequired: bool
    suggestions: bool = False
    filesTranslation: bool = False
    supportedFilesFormat: list[str] = []
    language: dict[str, Any]


router = APIRouter(tags=["LibreTranslate"], responses=responses(ErrorBody))


def form_of(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI document of a route that also takes a form."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"content": {FORM: {"schema": schema}, MULTIPART: {"schema": schema}}}}


@router.post(
    "/translate",
    summary="Translate a text or a list of texts.",
    response_model=Translated,
    response_model_exclude_none=True,
    openapi_extra=form_of(TranslateBody),
)
async def translate_texts(service: TheService, body: TranslateBody, call: TheCall) -> dict[str, Any]:
    if body.format not in ("text", "html"):
        raise APIError(400, f"{body.format} format is not supported", "format")
    texts = [body.q] if isinstance(body.q, str) else list(body.q)
    check_size(texts)
    sources = await find_sources(service, texts, body)
    translations: list[list[str]] = [[] for _ in texts]
    for source in dict.fromkeys(code for code, _ in sources):
        numbers = [number for number, (code, _) in enumerate(sources) if code == source]
        same_source = [texts[number] for number in numbers]
        answers = await candidates(service, same_source, source, body, call)
        for number, answer in zip(numbers, answers):
            translations[number] = answer
    response: dict[str, Any] = {"translatedText": [options[0] for options in translations]}
    if body.source == "auto":
        response["detectedLanguage"] = [{"confidence": share, "language": code} for code, share in sources]
    if body.alternatives:
        response["alternatives"] = [
            list(dict.fromkeys(options))[1 : body.alternatives + 1] for options in translations
        ]
    return {name: value[0] for name, value in response.items()} if isinstance(body.q, str) else response


async def find_sources(service: Service, texts: list[str], body: TranslateBody) -> list[tuple[str, float]]:
    """The source language of each text, with its confidence."""
    codes = dict.fromkeys(code for pair in service.pairs for code in pair)
    for code in (body.source, body.target):
        if code not in codes and not (code == "auto" and code == body.source):
            raise APIError(400, f"{code} is not supported", "source" if code == body.source else "target")
    if body.source != "auto":
        if body.source != body.target and (body.source, body.target) not in service.pairs:
            raise APIError(400, f"{body.target} is not supported from {body.source}", "target")
        return [(body.source, 0.0)] * len(texts)
    among = [source for source, target in service.pairs if target == body.target]
    if not among:
        raise APIError(400, f"{body.target} is not supported", "target")
    return await asyncio.to_thread(
        lambda: [detect_source(service.detector, text, among, body.target) for text in texts]
    )


def detect_source(detector: Detector, text: str, among: list[str], target: str) -> tuple[str, float]:
    """The language of a text: a source of the models or, if that is clear, the target itself."""
    code, share = detector.choose(text, [*among, target])
    return (code, share) if code != target or share >= CERTAIN else detector.choose(text, among)


async def candidates(
    service: Service, texts: list[str], source: str, body: TranslateBody, call: Call
) -> list[list[str]]:
    if source == body.target:
        return [[text] for text in texts]
    name, translator = service.pairs[source, body.target]
    nbest = body.alternatives + 1
    if body.format == "text":
        return await translate(service, name, translator, texts, call, nbest)
    documents = await asyncio.to_thread(lambda: [parts_of(text) for text in texts])
    inside = [part.text for parts in documents for part in parts if part.text]
    answers = iter(await translate(service, name, translator, inside, call, nbest) if inside else [])
    return [
        [document_of(parts, texts) for texts in aligned([next(answers) for part in parts if part.text])]
        for parts in documents
    ]


def document_of(parts: list[MarkupPart], texts: list[str]) -> str:
    rest = iter(texts)
    return "".join(part.written(next(rest)) if part.text else part.raw for part in parts)


@router.get("/languages", summary="List the languages and their targets.", response_model=list[LanguageItem])
async def languages(service: TheService) -> list[dict[str, Any]]:
    codes = dict.fromkeys(code for pair in service.pairs for code in pair)
    return [
        {
            "code": code,
            "name": NAMES.get(code, code),
            "targets": sorted({target for source, target in service.pairs if source == code} | {code}),
        }
        for code in codes
    ]


@router.post(
    "/detect",
    summary="Detect the language of a text, best first.",
    response_model=list[Detected],
    openapi_extra=form_of(DetectBody),
)
async def detect(service: TheService, body: DetectBody) -> list[dict[str, Any]]:
    sources = list(dict.fromkeys(source for source, _ in service.pairs))
    ranked = await asyncio.to_thread(service.detector.rank, body.q)
    likely = [(code, share) for code, share in ranked if share >= LEAST] or [(code, 0.0) for code in sources]
    return [{"confidence": share, "language": code} for code, share in likely]


@router.get("/health", summary="Whether the server runs.")
async def health() -> HealthStatus:
    return HealthStatus(status="ok")


@router.get("/frontend/settings", summary="Settings for the LibreTranslate web page.")
async def settings(service: TheService) -> FrontendSettings:
    pair = zip(("source", "target"), next(iter(service.pairs), ("", "")))
    language = {side: {"code": code, "name": NAMES.get(code, code)} for side, code in pair}
    has_keys = service.keys is not None
    return FrontendSettings(apiKeys=has_keys, keyRequired=has_keys, language=language)


@router.post("/suggest", summary="Always refused.")
async def no_suggestions() -> None:
    raise APIError(403, "Suggestions are disabled on this server.")


@router.post("/translate_file", summary="Always refused.")
async def no_files() -> None:
    raise APIError(403, "File translation is disabled; use the command regard translate.")


SILENT = frozenset({"script", "style", "code", "kbd", "samp", "var", "textarea", "template", "noscript"})
VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


@dataclass(frozen=True)
class MarkupPart:
    raw: str
    text: str  # to translate; empty for markup

    def written(self, translation: str) -> str:
        """The part with its translation and its original surrounding space."""
        return self.raw.replace(self.raw.strip(), html.escape(translation, quote=False), 1)


class MarkupReader(HTMLParser):
    """Records the offset of each parser event; an event spans up to the next one."""

    def __init__(self, raw: str) -> None:
        super().__init__(convert_charrefs=False)
        self.lines = [0, *accumulate(len(line) + 1 for line in raw.split("\n"))]
        self.begins: list[tuple[int, bool]] = []  # (offset, whether it is text)
        self.silent: list[str] = []  # open elements within an untranslated one
        self.feed(raw)
        self.close()

    def note(self, text: bool) -> None:
        line, column = self.getpos()
        self.begins.append((self.lines[line - 1] + column, text and not self.silent))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(False)
        kept = tag in SILENT or dict(attrs).get("translate") == "no"
        if tag not in VOID and (self.silent or kept):
            self.silent.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.note(False)

    def handle_endtag(self, tag: str) -> None:
        self.note(False)
        if tag in self.silent:
            while self.silent.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.note(True)

    def handle_comment(self, data: str) -> None:
        self.note(False)

    # the base class has other names for the argument
    handle_entityref = handle_charref = handle_data  # type: ignore[assignment]
    handle_decl = handle_pi = unknown_decl = handle_comment  # type: ignore[assignment]


def parts_of(raw: str) -> list[MarkupPart]:
    """The parts of a document in order; adjacent texts are merged."""
    begins = MarkupReader(raw).begins or [(0, False)]
    merged = [(0, begins[0][1])]
    for place, text in begins[1:]:
        if not (text and merged[-1][1]) and place > merged[-1][0]:
            merged.append((place, text))
        elif place == merged[-1][0]:
            merged[-1] = (place, text)
    ends = [place for place, _ in merged[1:]] + [len(raw)]
    parts = [(raw[place:end], text) for (place, text), end in zip(merged, ends)]
    # white space within a text is one space in HTML
    return [MarkupPart(each, " ".join(html.unescape(each).split()) if text else "") for each, text in parts]
