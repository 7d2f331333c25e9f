"""Transcriptions as text, subtitles (.srt, .vtt) or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, get_args

from regard.tasks.results import SpokenSegment, Transcription, as_dict

TextForm = Literal["text", "srt", "vtt", "json"]
FORMS: tuple[TextForm, ...] = get_args(TextForm)


def clock(seconds: float, separator: str) -> str:
    """01:02:03,450."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 1000:02d}{separator}{rest % 1000:03d}"


def cue(segment: SpokenSegment, number: int, form: Literal["srt", "vtt"]) -> list[str]:
    """The lines of one subtitle; an arrow in the text would end its time line."""
    separator = "," if form == "srt" else "."
    times = f"{clock(segment.start, separator)} --> {clock(segment.end, separator)}"
    text = " ".join(segment.text.replace("-->", "->").split())
    if form == "vtt":
        text = text.replace("&", "&amp;").replace("<", "&lt;")
    return [*([str(number)] if form == "srt" else []), times, text, ""]


def shown_segments(result: Transcription, words: bool) -> Sequence[SpokenSegment]:
    """What is shown as one line or subtitle: segments, or words."""
    if not words:
        return result.segments
    return [SpokenSegment(word.start, word.end, word.text) for word in result.words]


def rendered(result: Transcription, form: TextForm, words: bool = False) -> str:
    """A transcription in a form, without the last newline."""
    if form == "text":
        return result.text
    if form == "json":
        return json.dumps(as_dict(result), ensure_ascii=False)
    lines = ["WEBVTT", ""] if form == "vtt" else []
    for number, segment in enumerate(shown_segments(result, words), 1):
        lines += cue(segment, number, form)
    return "\n".join(lines).rstrip("\n")
