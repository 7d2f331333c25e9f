"""Pictures and sounds in requests: data URLs in JSON, or the parts `file` of a form (multipart/form-data).

A form becomes the JSON object that it stands for, so that a route reads both in one way. A server never opens
one of its own files for a client.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.policy import HTTP
from typing import Any, get_args
from urllib.parse import quote

from regard.errors import UsageError
from regard.server.errors import APIError
from regard.tasks.media import DATA_URL, open_source
from regard.tasks.spec import TASKS, TaskSpec
from regard.tasks.task_model import NamedFile

MULTIPART = "multipart/form-data"
FILE_ROUTES = {f"/api/v1/{spec.name}": spec for spec in TASKS.values() if spec.takes_files} | {
    f"/v1/audio/{name}": TASKS["transcribe"] for name in ("transcriptions", "translations")
}
MOST_PARTS = 100
HEAD_BYTES = 4096  # of a part


# --- forms ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One part of a form: a field, or a file with its name."""

    name: str
    content: bytes
    file: str | None = None
    type: str = ""


def form_parts(raw: bytes, content_type: str) -> Iterator[Part]:
    """The parts of a form (RFC 7578); the body is in memory, and bounded."""
    header = EmailMessage(HTTP)
    header["Content-Type"] = content_type
    boundary = str(header.get_param("boundary", ""))
    if not re.fullmatch(r"[ -~]{1,70}", boundary):
        raise APIError(400, "the form has no boundary")
    _, *parts = (b"\r\n" + raw).split(b"\r\n--" + boundary.encode(), MOST_PARTS + 1)
    if not parts or not any(part.startswith(b"--") for part in parts):
        raise APIError(400, f"the form is truncated, or has more than {MOST_PARTS} parts")
    for part in parts:
        if part.startswith(b"--"):  # the end; what follows is ignored
            return
        head, separator, content = part.lstrip(b" \t").removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not separator or len(head) > HEAD_BYTES:
            raise APIError(400, "a part of the form has no headers, or too many")
        yield part_of(head, content)


def part_of(head: bytes, content: bytes) -> Part:
    headers = BytesHeaderParser(policy=HTTP).parsebytes(head + b"\r\n\r\n")
    disposition = headers["Content-Disposition"]
    name = disposition.params.get("name") if disposition is not None else None
    if not name:
        raise APIError(400, "a part of the form has no name")
    file = disposition.params.get("filename")
    return Part(name, content, file, headers.get_content_type() if file is not None else "")


def form_as_json(raw: bytes, content_type: str, spec: TaskSpec) -> bytes:
    """A form as the JSON object that it stands for: its files are data URLs."""
    files, fields = [], dict[str, Any]()
    for part in form_parts(raw, content_type):
        if part.name == "file":
            name = f";name={quote(part.file, safe='')}" if part.file else ""
            kind = part.type or "application/octet-stream"
            files.append(f"{DATA_URL}{kind}{name};base64,{base64.b64encode(part.content).decode()}")
        elif part.name.endswith("[]"):  # a list, as OpenAI's clients send it
            fields.setdefault(part.name[:-2], []).append(field_value(part, spec))
        else:
            fields[part.name] = field_value(part, spec)
    if files:
        fields[next(iter(spec.inputs))] = files
    return json.dumps(fields).encode()


def field_value(part: Part, spec: TaskSpec) -> Any:
    """A field as its type asks for: text, or JSON."""
    try:
        text = part.content.decode("utf-8")
        option = spec.options.get(part.name)
        is_text = option is None or str in (option.type, *get_args(option.type)) or part.name == "on_too_long"
        return text if is_text else json.loads(text)
    except (ValueError, RecursionError):
        raise APIError(400, f"{part.name}: not a value in UTF-8", part.name) from None


# --- the inputs of a model --------------------------------------------------------------------------------


def media_inputs(name: str, task: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a task: files of a model that reads files, texts of all others."""
    if not task.reads_files:
        if holds_files(inputs):
            raise APIError(400, f'model: "{name}" reads text, not files', "model", "E_MODEL_INPUT")
        return dict(inputs)
    first, *others = inputs
    values = inputs[first] if isinstance(inputs[first], list) else [inputs[first]]
    files = [file_of(each, number, task, first) for number, each in enumerate(values, 1)]
    return {first: files} | {other: inputs[other] for other in others}


def file_of(value: Any, number: int, task: Any, field: str) -> NamedFile:
    if not isinstance(value, str) or not value.startswith(DATA_URL):
        raise APIError(
            400,
            f"{field}: this model reads {task.reader.config.kind} files: send data:image/png;base64,... or a "
            "form with parts named file; the server opens no paths",
            field,
            "E_MODEL_INPUT",
        )
    try:
        file = open_source(value, number)
    except UsageError as error:
        raise APIError(400, f"{field}: {error}", field, error.code) from None
    return NamedFile(file.name, file.content, task.reader.most)


def holds_files(inputs: Mapping[str, Any]) -> bool:
    """Whether a request has data URLs."""
    values = [each for value in inputs.values() for each in (value if isinstance(value, list) else [value])]
    return any(isinstance(each, str) and each.startswith(DATA_URL) for each in values)


def without_files(content: Any) -> Any:
    """A request as it is logged: a file is its head and size."""
    if isinstance(content, str) and content.startswith(DATA_URL):
        return f"{content.partition(',')[0][:200]},... ({len(content)} characters)"
    if isinstance(content, list):
        return [without_files(each) for each in content]
    return content
