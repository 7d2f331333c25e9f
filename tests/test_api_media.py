"""Pictures and sounds over HTTP: data URLs and forms, and what a server does not open."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import pictures
import regard
import understanding
from pictures import picture, png, wav
from regard.inputs.media import MediaLimits
from regard.server.errors import APIError
from regard.server.media import form_as_json, form_parts, media_inputs
from regard.server.requests import ServerLimits
from regard.tasks.spec import TASKS
from served import Served, served

BAR = png(picture("bar", 2, 700))
BOUNDS = ServerLimits(media=200_000)


def url(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    folders = {
        "texts": understanding.model("classify"),
        "shapes": pictures.classifier(),
        "tones": pictures.sound_classifier(),
        "captions": pictures.captioner(),
    }
    return {name: regard.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def server(models: dict[str, Any]) -> Iterator[Served]:
    with served(models=models, bounds=BOUNDS) as own:
        yield own


@pytest.fixture(scope="module")
def web(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.address, timeout=30) as client:
        yield client


def test_a_data_url_is_classified_as_in_python(web: httpx.Client, models: dict[str, Any]) -> None:
    found = web.post("/api/v1/classify", json={"model": "shapes", "text": [url(BAR), url(BAR)]}).json()
    assert [each["label"] for each in found["results"]] == ["bar", "bar"]
    expected = models["shapes"].classify(BAR)
    assert found["results"][0]["probabilities"] == pytest.approx(expected.probabilities)
    assert found["results"][1]["text"] == "file 2"


def test_the_model_is_chosen_by_what_is_sent(web: httpx.Client) -> None:
    assert web.post("/api/v1/classify", json={"text": "ba lala"}).json()["model"] == "texts"
    assert web.post("/api/v1/classify", json={"text": url(BAR)}).json()["model"] == "shapes"


def test_a_form_with_files(web: httpx.Client) -> None:
    files = [("file", ("bär.png", BAR, "image/png")), ("file", ("two.png", BAR, "image/png"))]
    data = {"model": "shapes", "num_results": "2"}
    found = web.post("/api/v1/classify", files=files, data=data).json()
    assert [each["text"] for each in found["results"]] == ["bär.png", "two.png"]
    assert [each["label"] for each in found["results"]] == ["bar", "bar"]
    assert len(found["results"][0]["labels"]) == 2
    sound = {"file": ("tone.wav", wav(320), "audio/wav")}
    found = web.post("/api/v1/classify", files=sound, data={"model": "tones"}).json()
    assert found["results"][0]["label"] == "low"


def test_captions_join_the_running_batch(web: httpx.Client) -> None:
    body = {"file": [url(png(picture("bar", place, 3))) for place in (1, 6)], "question": "where ?"}
    found = web.post("/api/v1/caption", json=body).json()
    assert [each["text"] for each in found["results"]] == ["left", "right"]
    form = {"file": ("b.png", BAR, "image/png")}
    found = web.post("/api/v1/caption", files=form, data={"question": "7", "beam": "1"}).json()
    assert found["results"][0]["question"] == "7"  # text, though it looks like a number
    found = web.post("/api/v1/caption", files=form).json()
    assert found["results"][0] | {"candidates": []} == {
        "file": "b.png", "text": "a bar left", "candidates": [], "question": "", "skipped": False,
        "precision": "float32",
    }  # fmt: skip


def test_the_server_opens_no_paths(web: httpx.Client, tmp_path: Path) -> None:
    (tmp_path / "bar.png").write_bytes(BAR)
    for text in (str(tmp_path / "bar.png"), "bar.png", "file:///etc/passwd", "/etc/passwd", "a text"):
        refused = web.post("/api/v1/classify", json={"model": "shapes", "text": text})
        assert refused.status_code == 400
        assert refused.json()["code"] == "E_MODEL_INPUT"
        assert "opens no paths" in refused.json()["error"]
        assert web.post("/api/v1/caption", json={"file": text}).status_code == 400


def test_a_model_of_texts_takes_no_files(web: httpx.Client) -> None:
    refused = web.post("/api/v1/classify", json={"model": "texts", "text": url(BAR)})
    assert (refused.status_code, refused.json()["code"]) == (400, "E_MODEL_INPUT")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"no picture", "E_IMAGE_FORMAT"),
        (BAR[:-40], "E_IMAGE_DAMAGED"),
        (wav(320), "E_IMAGE_FORMAT"),
        (b"", "E_IMAGE_FORMAT"),
    ],
    ids=["text", "truncated", "sound", "empty"],
)
@pytest.mark.parametrize("task", ["classify", "caption"])
def test_what_no_picture_is(web: httpx.Client, task: str, content: bytes, code: str) -> None:
    files, model = {"file": ("x.png", content, "image/png")}, {"classify": "shapes", "caption": "captions"}
    refused = web.post(f"/api/v1/{task}", files=files, data={"model": model[task]})
    assert (refused.status_code, refused.json()["code"]) == (400, code)
    assert "x.png" in refused.json()["error"]


def test_bytes_and_pixels_are_bounded(
    web: httpx.Client, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = web.post("/api/v1/classify", json={"text": url(bytes(BOUNDS.media))})
    assert large.status_code == 413
    also = web.post("/api/v1/classify", files={"file": ("x.png", bytes(BOUNDS.media), "image/png")})
    assert also.status_code == 413
    huge = io.BytesIO()
    Image.new("1", (30_000, 9_000)).save(huge, "PNG")
    assert len(huge.getvalue()) < BOUNDS.media
    refused = web.post("/api/v1/classify", files={"file": ("x.png", huge.getvalue(), "image/png")})
    assert (refused.status_code, refused.json()["code"]) == (400, "E_IMAGE_PIXELS")
    monkeypatch.setattr(models["tones"].reader, "limits", MediaLimits(seconds=1.0))
    long = {"file": ("x.wav", wav(300, seconds=3.0), "audio/wav")}
    refused = web.post("/api/v1/classify", files=long, data={"model": "tones"})
    assert refused.status_code == 400
    assert "second" in refused.json()["error"]


def test_only_servers_with_such_models_take_large_bodies() -> None:
    task = {"texts": regard.load(understanding.model("classify"))}
    with served(models=task, bounds=ServerLimits(body=1000, media=10**6)) as own:
        refused = httpx.post(f"{own.address}/api/v1/classify", json={"text": "ba " * 1000})
        assert refused.status_code == 413


def test_the_cost_is_the_number_of_frames(models: dict[str, Any]) -> None:
    inputs = media_inputs("shapes", models["shapes"], {"text": [url(BAR)] * 3})
    assert TASKS["classify"].cost(inputs, {}) == 3 * models["shapes"].reader.most == 12


def test_forms_that_are_none(web: httpx.Client) -> None:
    kind = "multipart/form-data; boundary=xyz"
    head = b'--xyz\r\nContent-Disposition: form-data; name="model"\r\n\r\nshapes'
    for body, content_type in (
        (b"", kind),
        (b"nothing", kind),
        (head, kind),  # truncated
        (head + b"\r\n--xyz--", "multipart/form-data"),
        (b"--xyz\r\n\r\nno name\r\n--xyz--", kind),
        (b"--xyz\r\nno end of the headers\r\n--xyz--", kind),
        (head.replace(b"model", b"num_results") + b"\r\n--xyz--", kind),
        (b"--xyz\r\n" + b"X: 1\r\n" * 2000 + b"\r\n\r\n\r\n--xyz--", kind),
        (head.replace(b"--xyz", b"--xyz\r\n" * 200), kind),
    ):
        refused = web.post("/api/v1/classify", content=body, headers={"content-type": content_type})
        assert refused.status_code == 400, body[:80]
        assert set(refused.json()) == {"error", "code"}
    elsewhere = web.post("/api/v1/tag", files={"file": ("x.png", BAR, "image/png")})
    assert elsewhere.status_code == 415


def test_every_byte_of_a_part_is_kept() -> None:
    content = bytes(range(256)) + b"\r\n--other\r\n\r\n--\r\n"
    request = httpx.Request("POST", "http://x", files={"file": ('a"b;c.png', content, "image/png")})
    (part,) = form_parts(request.read(), request.headers["content-type"])
    assert (part.name, part.content, part.type) == ("file", content, "image/png")
    body = json.loads(form_as_json(request.read(), request.headers["content-type"], TASKS["classify"]))
    assert base64.b64decode(body["text"][0].partition(",")[2]) == content


def test_the_log_holds_no_files(server: Served, web: httpx.Client) -> None:
    server.service.log.texts = True
    try:
        web.post("/api/v1/classify", json={"text": url(BAR)})
    finally:
        server.service.log.texts = False
    text = next(line for line in server.log.getvalue().splitlines() if "base64" in line)
    assert len(text) < 400


def test_a_part_without_a_boundary_is_an_error() -> None:
    with pytest.raises(APIError, match="boundary"):
        list(form_parts(b"", "multipart/form-data; boundary="))
