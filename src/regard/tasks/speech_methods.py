"""The methods of a model that transcribes speech; as in `methods.py`, commands and HTTP follow from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from regard.tasks.methods import Beam, DecodeFields
from regard.tasks.results import Transcription
from regard.tasks.task_model import Files, TaskModel, Warn, task_method


class TranscribeMethods(TaskModel):
    """The methods of a `Transcriber`."""

    _transcribe: Callable[..., list[Transcription]]

    @task_method("transcribe")
    def transcribe(
        self,
        file: Files,
        *,
        language: Annotated[
            str | None,
            Field(description="Language of the speech (en, de); default: detected, if the model knows many."),
        ] = None,
        task: Annotated[
            Literal["transcribe", "translate"],
            Field(description="Write what was said, or its English translation."),
        ] = "transcribe",
        timestamps: Annotated[
            bool, Field(description="Let a Whisper write the times of its segments, and follow them.")
        ] = True,
        word_times: Annotated[bool, Field(description="Add the words with their times.")] = False,
        beam: Beam = None,
        decode: DecodeFields = None,
        first_line: int = 1,
        warn: Warn = lambda text: None,
    ) -> list[Transcription]:
        """Transcribe speech.

        A file is a WAV, FLAC, OGG or MP3 of any length, which is read in windows. Times are seconds from its
        beginning. Windows without any sound are left out.

        In Python, a file is a path, its bytes, an array of samples, or a data URL.
        """
        named = {"language": language, "task": task, "timestamps": timestamps, "word_times": word_times}
        more = {"beam": beam, "decode": decode, "first_line": first_line, "warn": warn}
        return self._transcribe(file, named | more)
