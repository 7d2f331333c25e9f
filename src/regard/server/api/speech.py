"""Speech over HTTP: OpenAI's `/v1/audio/transcriptions` and `/v1/audio/translations`.

A recording is transcribed window by window; other clients of the model have their turn in between.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import Field

from regard.server.api.native import run_task
from regard.server.errors import APIError, OpenAIErrorBody, responses
from regard.server.requests import LIMITS, RequestBody
from regard.server.service import Call, Service, TheCall, TheService
from regard.tasks import Transcriber, Transcription
from regard.tasks.spec import TASKS
from regard.tasks.subtitles import rendered

router = APIRouter(prefix="/v1/audio", tags=["OpenAI"], responses=responses(OpenAIErrorBody))
SoundFile = Annotated[str, Field(pattern="^data:", max_length=2 * LIMITS.file_characters)]
FORMS = {
    "content": {
        "application/json": {"schema": {"type": "object"}},
        "text/plain": {"schema": {"type": "string"}},
    }
}


class SpeechBody(RequestBody):
    """A form (multipart/form-data) becomes this object; its file is a data URL."""

    file: list[SoundFile] | SoundFile
    model: str = Field("", max_length=1000)
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    prompt: str = Field("", max_length=1000, description="Not supported: it must be empty.")
    temperature: float | Annotated[str, Field(max_length=20)] = 0.0
    stream: bool | Literal["true", "false"] = False


class TranscriptionBody(SpeechBody):
    language: str | None = Field(None, max_length=20)
    timestamp_granularities: list[Literal["word", "segment"]] = Field([], max_length=2)


@router.post(
    "/transcriptions", summary="Transcribe a recording.", response_class=Response, responses={200: FORMS}
)
async def transcriptions(service: TheService, body: TranscriptionBody, call: TheCall) -> Response:
    words = "word" in body.timestamp_granularities
    if words and body.response_format != "verbose_json":
        raise APIError(400, "timestamp_granularities: needs response_format=verbose_json", "response_format")
    more = {"language": body.language or None, "word_times": words}
    return shown(await transcription(service, body, call, "transcribe", more), body, "transcribe", words)


@router.post(
    "/translations",
    summary="Translate a recording into English.",
    response_class=Response,
    responses={200: FORMS},
)
async def translations(service: TheService, body: SpeechBody, call: TheCall) -> Response:
    return shown(await transcription(service, body, call, "translate", {}), body, "translate", words=False)


async def transcription(
    service: Service, body: SpeechBody, call: Call, task: str, more: dict[str, Any]
) -> Transcription:
    if body.prompt:
        raise APIError(400, "prompt: not supported; leave it out", "prompt")
    if body.stream in (True, "true"):
        raise APIError(400, "stream: not supported; leave it out", "stream")
    if isinstance(body.file, list) and len(body.file) != 1:
        raise APIError(400, "file: send one", "file")
    spec = TASKS["transcribe"]
    name, model = service.find(body.model, Transcriber, files=True)
    options = {option.name: option.default for option in spec.options.values()} | more
    options |= {"task": task, "decode": sampling(body.temperature)}
    (result,) = await run_task(service, spec, name, model, {"file": body.file}, options, call)
    answer: Transcription = result
    return answer


def sampling(temperature: float | str) -> dict[str, Any] | None:
    try:
        value = float(temperature)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise APIError(400, "temperature: a number from 0 to 1", "temperature")
    return {"sample": True, "temperature": value} if value else None


def shown(result: Transcription, body: SpeechBody, task: str, words: bool) -> Response:
    match body.response_format:
        case "json":
            return JSONResponse({"text": result.text})
        case "verbose_json":
            return JSONResponse(verbose(result, task, words))
        case "text":
            return PlainTextResponse(f"{result.text}\n")
        case "srt" | "vtt" as form:
            return PlainTextResponse(f"{rendered(result, form)}\n")


def verbose(result: Transcription, task: str, words: bool) -> dict[str, Any]:
    segments = [
        {"id": number, "start": each.start, "end": each.end, "text": each.text}
        for number, each in enumerate(result.segments)
    ]
    content = {
        "task": task,
        "language": result.language or "",
        "duration": result.seconds,
        "text": result.text,
        "segments": segments,
    }
    spoken = [{"word": each.text, "start": each.start, "end": each.end} for each in result.words]
    return content | ({"words": spoken} if words else {})
