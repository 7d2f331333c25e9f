"""The methods of a model that describes pictures; as in `methods.py`, commands and HTTP follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from regard.errors import UsageError
from regard.tasks.methods import Beam, DecodeFields, NumResults
from regard.tasks.results import Caption
from regard.tasks.task_model import Files, TaskModel, Warn, decode_fields, task_method

if TYPE_CHECKING:
    from regard.config import Decode


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
