"""The methods of models that read files; as in `methods.py`, commands and HTTP follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from regard.errors import UsageError
from regard.tasks.options import Beam, DecodeFields, NumResults
from regard.tasks.results import Caption, Transcription
from regard.tasks.task_model import Files, TaskModel, Warn, decode_fields, task_method

if TYPE_CHECKING:
    from regard.config import Decode


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


class CaptionMethods(TaskModel):
    """The methods of a `Captioner`."""

    decode_options: Callable[..., Decode]
    _caption: Callable[..., list[Caption]]

    @task_method("caption")
    def caption(
        self,
        file: Files,
        question: Annotated[
            str | None, Field(description="A question about the pictures; the result is its answer.")
        ] = None,
        num_results: NumResults = 1,
        *,
        beam: Beam = None,
        decode: DecodeFields = None,
        questions: Sequence[str] | None = None,
        first_line: int = 1,
        warn: Warn = lambda text: None,
    ) -> list[Caption]:
        """Describe pictures, or answer a question about them.

        In Python, a file is a path, bytes, an array or a data URL; `questions` are those of each file,
        `first_line` numbers the files in messages, and `warn` is called when memory runs short.
        """
        questions = [question or ""] * len(file) if questions is None else questions
        if len(questions) != len(file):
            message = f"{len(file)} files and {len(questions)} questions: they come in pairs"
            raise UsageError(message, code="E_ANSWER_PAIRS")
        options = self.decode_options(decode_fields(decode, beam=beam), num_results)
        return self._caption(file, questions, options, num_results, first_line, warn)
