"""Speech over HTTP: OpenAI's client against a real server, the native route, and what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

import pictures
import regard
import speech
from regard.server.media import form_as_json
from regard.server.requests import LIMITS, ServerLimits
from regard.tasks.spec import TASKS
from regard.tasks.subtitles import rendered
from served import Served, served
from speech import RATE, spoken, wav

SOUND = wav(spoken("lo hi hi", seed=99))
FILE = ("notes.wav", SOUND, "audio/wav")


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {"notes": regard.load(speech.singer()), "shapes": regard.load(pictures.classifier())}


@pytest.fixture(scope="module")
def server(models: dict[str, Any]) -> Iterator[Served]:
    with served(models=models, bounds=ServerLimits(media=2 << 20)) as own:
        yield own


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="anything", max_retries=0) as own:
        yield own


@pytest.fixture(scope="module")
def web(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=30) as own:
        yield own


def test_the_client_of_openai(client: openai.OpenAI, models: dict[str, Any]) -> None:
    create = client.audio.transcriptions.create
    expected = models["notes"].transcribe(SOUND, word_times=True)
    assert create(model="notes", file=FILE).text == expected.text == "lo hi hi"
    assert create(model="notes", file=FILE, response_format="text") == "lo hi hi\n"
    plain = models["notes"].transcribe(SOUND)
    assert create(model="notes", file=FILE, response_format="srt") == rendered(plain, "srt") + "\n"
    assert create(model="notes", file=FILE, response_format="vtt") == rendered(plain, "vtt") + "\n"
    both: Any = ["word", "segment"]
    whole = create(model="notes", file=FILE, response_format="verbose_json", timestamp_granularities=both)
    assert (whole.text, float(whole.duration)) == (expected.text, expected.seconds)
    assert whole.words is not None and whole.segments is not None
    words = [(each.word, each.start, each.end) for each in whole.words]
    assert words == [(each.text, each.start, each.end) for each in expected.words]
    assert [each.text for each in whole.segments] == ["lo hi hi"]


def test_the_native_route_takes_data_urls_and_forms(web: httpx.Client, models: dict[str, Any]) -> None:
    url = f"data:audio/wav;base64,{base64.b64encode(SOUND).decode()}"
    row = web.post("/api/v1/transcribe", json={"file": url, "word_times": True}).json()["results"][0]
    assert (row["text"], len(row["words"])) == ("lo hi hi", 3)
    form = web.post("/api/v1/transcribe", files={"file": FILE}, data={"word_times": "true"}).json()
    assert form["results"][0]["words"] == row["words"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"language": "en"}, None),
        ({"prompt": "Beckett"}, "prompt"),
        ({"temperature": "hot"}, "temperature"),
        ({"stream": "true"}, "stream"),
        ({"response_format": "pdf"}, "response_format"),
        ({"timestamp_granularities[]": "word"}, "response_format"),
        ({"model": "shapes"}, "model"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_not_supported_is_refused(
    fields: dict[str, str], param: str | None, web: httpx.Client
) -> None:
    response = web.post("/v1/audio/transcriptions", files={"file": FILE}, data={"model": "notes", **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    unable = web.post("/v1/audio/translations", files={"file": FILE}, data={"model": "notes"})
    assert (unable.status_code, unable.json()["error"]["code"]) == (400, "E_SPEECH_TASK")


def test_bad_sounds_and_paths_are_refused(web: httpx.Client) -> None:
    def post(content: bytes, **more: Any) -> httpx.Response:
        return web.post("/v1/audio/transcriptions", files={"file": ("x.wav", content)}, data=more)

    assert post(b"no sound").json()["error"]["code"] == "E_AUDIO_FORMAT"
    long = wav(np.zeros((LIMITS.sound_seconds + 1) * 1000), 1000)
    assert post(long).json()["error"]["code"] == "E_AUDIO_SECONDS"
    assert post(bytes(3 << 20)).status_code == 413
    assert web.post("/v1/audio/transcriptions", data={"model": "notes"}).status_code in (400, 415)
    path = web.post("/api/v1/transcribe", json={"file": "/etc/hostname"})
    assert path.status_code == 400
    two = [("file", FILE), ("file", FILE)]
    assert web.post("/v1/audio/transcriptions", files=two).json()["error"]["param"] == "file"


def test_a_long_recording_is_transcribed_window_by_window(web: httpx.Client, models: dict[str, Any]) -> None:
    sound = wav(spoken("lo hi hi " * 8, seed=3))
    answer = web.post("/v1/audio/transcriptions", files={"file": ("long.wav", sound)}).json()
    assert answer["text"] == models["notes"].transcribe(sound).text
    quiet = web.post("/v1/audio/transcriptions", files={"file": ("quiet.wav", wav(np.zeros(RATE)))})
    assert quiet.json() == {"text": ""}


def test_names_with_brackets_are_lists() -> None:
    parts = "".join(
        f'--b\r\nContent-Disposition: form-data; name="timestamp_granularities[]"\r\n\r\n{kind}\r\n'
        for kind in ("word", "segment")
    )
    content = form_as_json(
        f"{parts}--b--\r\n".encode(), "multipart/form-data; boundary=b", TASKS["transcribe"]
    )
    assert json.loads(content) == {"timestamp_granularities": ["word", "segment"]}
