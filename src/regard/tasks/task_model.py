"""What all tasks share: a model that was opened, and methods that take one text or many."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from pydantic import Field

from regard.compat import OldAttributes, current_options
from regard.errors import UsageError
from regard.tasks.results import Results

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

    from regard.generation import Hypothesis, Request
    from regard.interpret import Trace

    One: TypeAlias = "str | Path | bytes | NDArray[Any] | NamedFile"  # a text; or of models of files, a file

Split = Literal["auto", "always", "never"]
TooLong = Literal["truncate", "skip", "error"]
OtherLanguage = Literal["keep", "refuse", "translate"]
Language = Annotated[
    str | None,
    Field(
        description="Target language of a multilingual model: fra puts >>fra<< first (opus-mt); "
        "fra_Latn (NLLB), fr_XX (mBART) or fr (M2M100) is the first token of the output."
    ),
]
SourceLanguage = Annotated[
    str | None, Field(description="Language of the text, for models that name it (NLLB, mBART, M2M100).")
]
Warn = Callable[[str], None]
Texts = str | Iterable[str]  # one text, a sequence, or a column of a pandas or polars table
Files = list[Any]  # texts; or of models of files: paths, bytes, arrays or data URLs, see media.py
P = ParamSpec("P")
Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])
Result_co = TypeVar("Result_co", covariant=True)


@dataclass(frozen=True)
class NamedFile:
    """A picture or sound with a name for messages and results."""

    name: str
    content: Any  # a path, bytes or an array
    frames: int = 1  # that a model reads, for estimates


def is_one(text: object) -> bool:
    """Whether this is one text or file, not several. A column of a table is several, a picture is one."""
    kind = getattr(getattr(text, "dtype", None), "kind", "O")
    is_array = hasattr(text, "__array_interface__") and kind not in "OUS"  # of objects or strings: a column
    return is_array or isinstance(text, str | bytes | Path | NamedFile)


def as_list(text: Any) -> list[Any]:
    """One text or file, a sequence, or a column of a table as a list."""
    return [text] if is_one(text) else list(text)


def as_texts(text: str | Iterable[str], files: bool = False) -> list[str]:
    """As a list of texts; of `files`, for a model that reads pictures or sounds."""
    texts = as_list(text)
    for number, each in enumerate(texts, 1):
        if not (is_one(each) if files else isinstance(each, str)):
            kind = "the path, the bytes or the array of a file" if files else "a string"
            raise UsageError(f"text {number} is {shortened(each)}, not {kind}", code="E_TEXT_TYPE")
    return texts


def shortened(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:80]} ..."


@functools.cache
def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


class OneOrMany(Protocol[P, Result_co]):
    """A method of a text or file, with one result, or of many, with as many."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, text: One, /, *args: P.args, **options: P.kwargs
    ) -> Result_co: ...
    @overload
    def __call__(self, text: Iterable[One], /, *args: P.args, **options: P.kwargs) -> Results[Any]: ...


class TaskMethod(Generic[P, Result]):
    """A method that is written for a list of texts, and also takes one, and option names of earlier versions.

    On its class it is the plain function, whose signature describes the task.
    """

    def __init__(
        self, task: str, function: Callable[Concatenate[Any, list[str], P], Sequence[Result]]
    ) -> None:
        self.task, self.function = task, function

    @overload
    def __get__(self, model: None, owner: type[Any]) -> Callable[..., Sequence[Result]]: ...
    @overload
    def __get__(self, model: object, owner: type[Any]) -> OneOrMany[P, Result]: ...
    def __get__(self, model: object | None, owner: type[Any]) -> Any:
        if model is None:
            return self.function
        method = functools.partial(self.call, model)
        return functools.update_wrapper(method, self.function)

    def call(self, model: object, *args: Any, **options: Any) -> Any:
        options = current_options(self.task, options)
        if not args:  # the text by its name
            args = (options.pop(parameter_names(self.function)[1]),)
        text, *others = args
        texts = as_texts(text, getattr(model, "reads_files", False))
        results: Any = Results(self.function(model, texts, *others, **options))
        return results[0] if is_one(text) else results


def with_old_names(task: str) -> Callable[[Function], Function]:
    """A method that also takes option names of earlier versions."""

    def decorate(method: Function) -> Function:
        @functools.wraps(method)
        def call(model: object, *args: Any, **options: Any) -> Any:
            return method(model, *args, **current_options(task, options))

        return cast(Function, call)

    return decorate


def task_method(
    task: str,
) -> Callable[[Callable[Concatenate[Any, list[str], P], Sequence[Result]]], TaskMethod[P, Result]]:
    return lambda function: TaskMethod(task, function)


def within_limit(ids: list[int], limit: int, on_too_long: TooLong, number: int) -> list[int] | None:
    """The ids as they are, None for a text to skip; with "error" a text above the limit is refused."""
    if len(ids) > limit and on_too_long == "error":
        raise UsageError(
            f"line {number}: the text has {len(ids)} tokens and the model reads {limit}; shorten it, or "
            "let it be truncated or skipped (on too long)",
            code="E_TOO_LONG",
        )
    return None if len(ids) > limit and on_too_long == "skip" else ids


def decode_fields(decode: Mapping[str, Any] | None, **short: Any) -> dict[str, Any]:
    """Fields of `[decode]`, and those that have an argument of their name."""
    return {**(decode or {}), **{name: value for name, value in short.items() if value is not None}}


def with_decode_fields(task: str, method: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a method; all others go into its `decode`."""
    options = current_options(task, options)
    named = parameter_names(method)
    fields = {name: value for name, value in options.items() if name not in named}
    rest = {name: value for name, value in options.items() if name in named}
    return rest | ({"decode": {**(rest.get("decode") or {}), **fields}} if fields else {})


@dataclass(frozen=True)
class Deferred:
    """Texts that are ready to be decoded.

    `finish` makes the results of them from the hypotheses, or one `Deferred` more: texts to decode again.
    """

    requests: list[Request]
    finish: Callable[[Sequence[Sequence[Hypothesis]]], list[Any]]


# requests that are decoded together, round after round; in the end the results
Rounds: TypeAlias = "Generator[list[Request], Sequence[Sequence[Hypothesis]], list[Result]]"


def run_rounds(
    rounds: Rounds[Result],
    decode: Callable[[list[Request]], Any] | None,
    outputs: Sequence[Sequence[Hypothesis]] | None = None,  # of the requests of the last round
) -> list[Result]:
    """The results of rounds; without `decode` one `Deferred`, for a server to decode."""
    try:
        while True:
            requests = next(rounds) if outputs is None else rounds.send(outputs)
            if decode is None:
                return [Deferred(requests, functools.partial(run_rounds, rounds, None))]  # type: ignore[list-item]
            outputs = decode(requests)
    except StopIteration as end:
        results: list[Result] = end.value
        return results


class TaskModel(OldAttributes):
    """A model that was opened for its task."""

    precision: str  # float32, bfloat16 or int8: what "auto" became
    engines: list[Any]  # what runs the model; several models are an ensemble
    folder: Any
    device: Any  # a torch.device
    parameters: int = 0  # of a model that `load` opened
    defers: bool = False  # see `deferred`
    reads_files: bool = False  # pictures, videos or sounds, not texts
    _named_precision: bool  # False for "auto"
    _reopened: dict[str, Any]  # what `exact` has opened; shared by copies

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        device: str = "auto",
        precision: str = "auto",
        threads: int = 0,
        engine: str = "auto",
    ) -> Self:
        """Open a model folder; one of another task is refused."""
        from regard.tasks.loading import load_as

        return load_as(cls, path, device, threads, precision, engine)

    def __repr__(self) -> str:
        from regard.tasks.loading import describe

        return f"<{type(self).__name__} {describe(self)}>"

    def exact(self) -> Self:
        """The same model for scores and traces: in float32, unless a precision was named."""
        if self.precision == "float32" or self._named_precision:
            return self
        from regard.tasks.loading import reopen

        return reopen(self, self._reopened)

    def deferred(self) -> Self:
        """The same model; what it would generate is returned as one `Deferred`, for a server to decode."""
        chosen = copy(self)
        chosen.defers = True
        return chosen

    def use_engines(self, folders: Sequence[Any], precision: str) -> None:
        """Make the engines of the models, which are packed in place; several folders are an ensemble."""
        from regard.generation.engine import open_engine

        opened = [
            open_engine(each.model, precision, getattr(each, "calibration", None), each.engine, each.shared)
            for each in folders
        ]
        self.engines = [engine for engine, _ in opened]
        self.precision = "+".join(dict.fromkeys(chosen for _, chosen in opened))
        self._named_precision = precision != "auto"
        self._reopened = {}

    def warm_up(self) -> None:
        """Compile what is compiled now rather than during the first requests."""
        from regard.generation.engine import warm_up

        for engine in self.engines:
            warm_up(engine, self.blank_source())

    def blank_source(self) -> Any:
        """The shortest input: a token, or the frames of an empty picture or of silence."""
        if not self.reads_files:
            return (0,)
        import numpy as np

        return np.zeros((self.reader.most, self.reader.width), dtype=np.float32)

    @property
    def reader(self) -> Any:
        """The reader of a model that reads files; of others, an error."""
        return self.folder.reader

    def trace(
        self,
        text: str,
        target: str | None = None,
        *,
        prefix: Sequence[int] = (),
        context: str | None = None,
        decode: Mapping[str, object] | None = None,
        interventions: Sequence[Mapping[str, Any]] = (),
        only: Sequence[str] | None = None,
    ) -> Trace:
        """Record one run, every tensor by name; in float32, unless a precision was named.

        Without a target the model decodes first, with the options of `[decode]` in `decode`; then one run
        over source and output is recorded. `prefix` are token ids that the output starts with. `context` is
        the text for a question. `only` keeps the tensors of some names: ("decoder.*.cross.weights",).
        `interventions` change the run: see docs/trace.md.
        """
        from regard.tasks.tracing import trace  # not at the top: it imports the tasks that inherit from this

        return trace(self.exact(), text, target, context, decode or {}, interventions, only, prefix)

    def occlusion(
        self, text: str, target: str | None = None, *, context: str | None = None
    ) -> list[tuple[str, float]]:
        """Each word of the text with the drop in log p of the output when the word is hidden or left out."""
        from regard.tasks.tracing import occlusion

        return occlusion(self.exact(), text, target, context)
