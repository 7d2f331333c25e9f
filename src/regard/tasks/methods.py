"""The methods of all tasks: their typed arguments describe the commands and the HTTP routes too.

An argument whose type has a pydantic `Field` is an option of the task: its name, limits, default and meaning
are those of the command's option and of the field of the request (see `spec.py`). Other keyword arguments are
for Python alone. This module imports neither torch nor a model: `regard translate --help` reads it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, overload

from pydantic import Field

from regard.compat import OldAttributes, current_options
from regard.errors import UsageError
from regard.tasks.results import (
    AnswerResult,
    Classification,
    Embedding,
    Filling,
    Generation,
    Results,
    Tagging,
    TextScore,
    Translation,
)

if TYPE_CHECKING:
    from typing import Self

    from regard.config import Decode
    from regard.generation import Mean
    from regard.interpret import Trace
    from regard.tasks.translation import PhraseConstraints

Split = Literal["auto", "always", "never"]
TooLong = Literal["truncate", "skip", "error"]
Warn = Callable[[str], None]
Method = TypeVar("Method", bound=Callable[..., Any])
Item = TypeVar("Item")

# the options that several tasks have
NumResults = Annotated[int, Field(ge=1, le=1000, description="Results for each text, best first.")]
OnTooLong = Annotated[
    TooLong, Field(description="A text too long for the model: read a part of it, skip it, or stop.")
]
Beam = Annotated[int | None, Field(ge=1, le=1000, description="Beam width of the search; 1 is greedy.")]
DecodeFields = Annotated[
    Mapping[str, Any] | None,
    Field(description="Any fields of the section decode, such as length_penalty: 0.6."),
]
Texts = str | Iterable[str]  # one text, a sequence, or a column of a pandas or polars table


def as_texts(text: str | Iterable[str]) -> list[str]:
    """One text, a sequence, or a column of a table as a list."""
    texts = [text] if isinstance(text, str) else list(text)
    for number, each in enumerate(texts, 1):
        if not isinstance(each, str):
            raise UsageError(f"text {number} is {each!r}, not a string", code="E_TEXT_TYPE")
    return texts


def one_or_all(text: str | Iterable[str], results: Sequence[Item]) -> Item | Results[Item]:
    """The result of a single text, or those of all."""
    return results[0] if isinstance(text, str) else Results(results)


def within_limit(ids: list[int], limit: int, on_too_long: TooLong, number: int) -> list[int] | None:
    """The ids as they are, None for a text to skip; with "error" a text above the limit is refused."""
    if len(ids) > limit and on_too_long == "error":
        raise UsageError(
            f"line {number}: the text has {len(ids)} tokens and the model reads {limit}; shorten it, or "
            "let it be truncated or skipped (on too long)",
            code="E_TOO_LONG",
        )
    return None if len(ids) > limit and on_too_long == "skip" else ids


def with_decode_fields(method: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a method; all others go into its `decode`."""
    named = set(inspect.signature(method).parameters)
    fields = {name: value for name, value in options.items() if name not in named}
    rest = {name: value for name, value in options.items() if name in named}
    return rest | ({"decode": {**(rest.get("decode") or {}), **fields}} if fields else {})


def with_old_names(task: str) -> Callable[[Method], Method]:
    """A method that also takes the option names of earlier versions."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def wrapper(self: Any, *args: Any, **options: Any) -> Any:
            return method(self, *args, **current_options(task, options))

        return wrapper  # type: ignore[return-value]

    return decorate


class TaskModel(OldAttributes):
    """A model that was opened for its task."""

    precision: str  # float32, bfloat16 or int8: what "auto" became
    folder: Any
    device: Any  # a torch.device
    parameters: int = 0  # of a model that `load` opened
    _named_precision: bool  # False for "auto"
    _reopened: dict[str, Any]  # what `exact` has opened; shared by copies

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        device: str = "auto",
        precision: str = "auto",
        threads: int = 0,
    ) -> Self:
        """Open a model folder; one of another task is refused."""
        from regard.tasks.loading import load_as

        return load_as(cls, path, device, threads, precision)

    def __repr__(self) -> str:
        from regard.tasks.loading import describe

        return f"<{type(self).__name__} {describe(self)}>"

    def exact(self) -> Self:
        """The same model for scores and traces: in float32, unless a precision was named."""
        if self.precision == "float32" or self._named_precision:
            return self
        from regard.tasks.loading import reopen

        return reopen(self, self._reopened)

    def use_precision(self, requested: str, chosen: Sequence[str]) -> None:
        """`chosen` are the precisions of the models of an ensemble."""
        self.precision = "+".join(dict.fromkeys(chosen))
        self._named_precision = requested != "auto"
        self._reopened = {}

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


# --- models that generate text ----------------------------------------------------------------------------


class TranslateMethods(TaskModel):
    """The methods of a `Translator`."""

    into: Callable[[str], Self]
    decode_options: Callable[..., Decode]
    _line_constraints: Callable[..., Sequence[PhraseConstraints] | None]
    _translate: Callable[..., list[Translation]]
    _score: Callable[..., list[TextScore]]

    @overload
    def translate(self, text: str, **options: Any) -> str: ...
    @overload
    def translate(self, text: Iterable[str], **options: Any) -> list[str]: ...
    def translate(self, text: str | Iterable[str], **options: Any) -> str | list[str]:
        """Translate one text or many to plain strings.

        Options are those of `translate_lines`, and all of `[decode]`: beam=5, sample=True, top_p=0.9 ...
        """
        named = with_decode_fields(TranslateMethods.translate_lines, options)
        texts = [each.text for each in self.translate_lines(as_texts(text), **named)]
        return texts[0] if isinstance(text, str) else texts

    @with_old_names("translate")
    def translate_lines(
        self,
        text: Texts,
        options: Decode | None = None,
        num_results: NumResults = 1,
        alignment: Annotated[bool, Field(description="Add the word alignment, source-target.")] = False,
        split: Annotated[
            Split, Field(description="Split lines into sentences; auto: only long lines.")
        ] = "auto",
        *,
        beam: Beam = None,
        decode: DecodeFields = None,
        prefix: Annotated[str | None, Field(description="What every translation begins with.")] = None,
        require: Annotated[
            Sequence[str], Field(description="Words that every translation must contain.")
        ] = (),
        forbid: Annotated[Sequence[str], Field(description="Words that no translation may contain.")] = (),
        language: Annotated[
            str | None, Field(description="Target language of a multilingual model (fra puts >>fra<< first).")
        ] = None,
        on_too_long: OnTooLong = "truncate",
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[PhraseConstraints] | None = None,
        first_line: int = 1,
        warn: Warn = lambda text: None,
    ) -> Results[Translation]:
        """Translate lines of text.

        A sentence that is too long for the model is split between words. `prefixes` and `constraints` are
        those of each line; `first_line` numbers the lines in messages; `warn` is called when memory runs
        short. `options` replaces all of `[decode]`.
        """
        lines = as_texts(text)
        task = self if language is None else self.into(language)
        return Results(
            task._translate(
                lines,
                options or task.decode_options({**(decode or {}), "beam": beam}, num_results),
                num_results,
                alignment,
                split,
                [prefix] * len(lines) if prefix is not None else prefixes,
                task._line_constraints(len(lines), require, forbid, constraints),
                on_too_long,
                first_line,
                warn,
            )
        )

    @with_old_names("score")
    def score(
        self, source: Texts, target: Texts, mean: Mean = "probability", *, on_too_long: OnTooLong = "error"
    ) -> Results[TextScore]:
        """Score given translations: log p of each token of each target, and of its end.

        In float32, unless a precision was named. `mean` is how the models of an ensemble are averaged.
        """
        sources, targets = as_texts(source), as_texts(target)
        if len(sources) != len(targets):
            message = f"{len(sources)} sources and {len(targets)} targets: they come in pairs"
            raise UsageError(message, code="E_SCORE_PAIRS")
        return Results(self.exact()._score(sources, targets, mean, on_too_long))


class GenerateMethods(TaskModel):
    """The methods of a `Generator`."""

    decode_options: Callable[..., Decode]
    _generate: Callable[..., list[Generation]]
    _score: Callable[..., list[TextScore]]

    @overload
    def generate(self, prompt: str, **options: Any) -> str: ...
    @overload
    def generate(self, prompt: Iterable[str], **options: Any) -> list[str]: ...
    def generate(self, prompt: str | Iterable[str], **options: Any) -> str | list[str]:
        """Continue one prompt or many: the text that follows, without the prompt.

        Options are those of `generate_texts`, and all of `[decode]`: sample=True, seed=1, max_length=200 ...;
        `beam=1` is greedy, `beam=4` a search.
        """
        named = with_decode_fields(GenerateMethods.generate_texts, options)
        texts = [each.text for each in self.generate_texts(as_texts(prompt), **named)]
        return texts[0] if isinstance(prompt, str) else texts

    @with_old_names("generate")
    def generate_texts(
        self,
        prompt: Texts,
        options: Decode | None = None,
        num_results: NumResults = 1,
        *,
        max_length: Annotated[
            int | None, Field(ge=1, description="Maximum number of tokens; default: of the folder, else 200.")
        ] = None,
        temperature: Annotated[
            float | None, Field(gt=0, description="Sampling temperature; default: of the folder, else 0.8.")
        ] = None,
        top_k: Annotated[
            int | None, Field(ge=0, description="Sample from the k most probable tokens; 0 = all.")
        ] = None,
        top_p: Annotated[
            float | None,
            Field(gt=0, le=1, description="Sample from the smallest set of tokens with this probability."),
        ] = None,
        seed: Annotated[
            int | None,
            Field(ge=0, lt=2**31, description="Seed of sampling; the same seed gives the same text."),
        ] = None,
        beam: Annotated[
            int | None,
            Field(
                ge=1, le=1000, description="Beam search with so many beams instead of sampling; 1 is greedy."
            ),
        ] = None,
        decode: DecodeFields = None,
        on_too_long: OnTooLong = "truncate",
        warn: Warn = lambda text: None,
    ) -> Results[Generation]:
        """Continue prompts, by sampling or by beam search.

        Of a prompt that is too long for the model the end is read. `options` replaces all of `[decode]`.
        """
        fields = {**(decode or {}), "max_length": max_length, "temperature": temperature, "top_k": top_k}
        options = options or self.decode_options(
            fields | {"top_p": top_p, "seed": seed, "beam": beam}, num_results
        )
        return Results(self._generate(as_texts(prompt), options, num_results, on_too_long, warn))

    @with_old_names("score")
    def score(
        self,
        target: Texts,
        stride: Annotated[
            int | None,
            Field(
                ge=1, description="Step of the windows over a long text, in tokens; default: half a window."
            ),
        ] = None,
        end: Annotated[bool, Field(description="Score the end token too.")] = True,
        *,
        on_too_long: OnTooLong = "error",
    ) -> Results[TextScore]:
        """Score texts: log p of each token of each text, and of its end.

        In float32, unless a precision was named. A text longer than the window is read in overlapping
        windows: each token is scored once, with at least (window - stride) tokens of context.
        """
        return Results(self.exact()._score(as_texts(target), stride, end))


class FillMethods(TaskModel):
    """The methods of a `Filler`."""

    _fill: Callable[..., list[Filling]]

    @overload
    def fill(  # type: ignore[overload-overlap]
        self, text: str, num_results: int = 5, *, on_too_long: TooLong = "truncate", first_line: int = 1
    ) -> Filling: ...
    @overload
    def fill(
        self,
        text: Iterable[str],
        num_results: int = 5,
        *,
        on_too_long: TooLong = "truncate",
        first_line: int = 1,
    ) -> Results[Filling]: ...
    @with_old_names("fill")
    def fill(
        self,
        text: Texts,
        num_results: NumResults = 5,
        *,
        on_too_long: OnTooLong = "truncate",
        first_line: int = 1,
    ) -> Filling | Results[Filling]:
        """Fill in the gaps of texts: <mask>, [MASK] or three underscores.

        A BERT puts one token into each gap; several gaps are predicted independently, and the best texts have
        the highest product of probabilities. A T5 writes any number of tokens, gap after gap.
        Of a text that is too long for the model the part around its gaps is read.
        """
        return one_or_all(text, self._fill(as_texts(text), num_results, on_too_long, first_line))


# --- models that read texts -------------------------------------------------------------------------------


class ClassifyMethods(TaskModel):
    """The methods of a `Classifier`."""

    _classify: Callable[..., list[Classification]]

    @overload
    def classify(  # type: ignore[overload-overlap]
        self,
        text: str,
        num_results: int | None = None,
        *,
        on_too_long: TooLong = "truncate",
        first_line: int = 1,
    ) -> Classification: ...
    @overload
    def classify(
        self,
        text: Iterable[str],
        num_results: int | None = None,
        *,
        on_too_long: TooLong = "truncate",
        first_line: int = 1,
    ) -> Results[Classification]: ...
    @with_old_names("classify")
    def classify(
        self,
        text: Texts,
        num_results: Annotated[
            int | None,
            Field(ge=1, le=1000, description="Labels for each text, best first; default: those predicted."),
        ] = None,
        *,
        on_too_long: OnTooLong = "truncate",
        first_line: int = 1,
    ) -> Classification | Results[Classification]:
        """Classify texts.

        Of a multi-label model: all labels with p >= 0.5.
        """
        return one_or_all(text, self._classify(as_texts(text), num_results, on_too_long, first_line))


class TagMethods(TaskModel):
    """The methods of a `Tagger`."""

    _tag: Callable[..., list[Tagging]]

    @overload
    def tag(  # type: ignore[overload-overlap]
        self, text: str, *, on_too_long: TooLong = "truncate", first_line: int = 1
    ) -> Tagging: ...
    @overload
    def tag(
        self, text: Iterable[str], *, on_too_long: TooLong = "truncate", first_line: int = 1
    ) -> Results[Tagging]: ...
    def tag(
        self, text: Texts, *, on_too_long: OnTooLong = "truncate", first_line: int = 1
    ) -> Tagging | Results[Tagging]:
        """Tag the words and entities of texts.

        Start and end are characters of the text, counted from 0; the end is exclusive. A sentence that is too
        long for the model is read in overlapping parts.
        """
        return one_or_all(text, self._tag(as_texts(text), on_too_long, first_line))


class AnswerMethods(TaskModel):
    """The methods of an `Answerer`."""

    _answer: Callable[..., list[AnswerResult]]

    @overload
    def answer(  # type: ignore[overload-overlap]
        self,
        question: str,
        context: str,
        min_score: float | None = None,
        *,
        num_results: int = 1,
        on_too_long: TooLong = "truncate",
    ) -> AnswerResult: ...
    @overload
    def answer(
        self,
        question: Iterable[str],
        context: str | Sequence[str],
        min_score: float | None = None,
        *,
        num_results: int = 1,
        on_too_long: TooLong = "truncate",
        first_line: int = 1,
    ) -> Results[AnswerResult]: ...
    @with_old_names("answer")
    def answer(
        self,
        question: Texts,
        context: Texts,
        min_score: Annotated[
            float | None,
            Field(
                ge=-1e6,
                le=1e6,
                description="Give no answer below this score; default: 0 if the training data has questions "
                "without an answer.",
            ),
        ] = None,
        *,
        num_results: NumResults = 1,
        on_too_long: OnTooLong = "truncate",
        first_line: int = 1,
    ) -> AnswerResult | Results[AnswerResult]:
        """Find the answers to questions in a text.

        The context is one text for all questions, or one for each. Start and end are characters of the
        context, counted from 0; the end is exclusive. The score is the margin over "no answer", which is the
        empty text. A long context is read in overlapping parts.
        """
        questions = as_texts(question)
        contexts = [context] * len(questions) if isinstance(context, str) else as_texts(context)
        if len(contexts) != len(questions):
            message = f"{len(questions)} questions and {len(contexts)} contexts: they come in pairs"
            raise UsageError(message, code="E_ANSWER_PAIRS")
        pairs = list(zip(questions, contexts))
        return one_or_all(question, self._answer(pairs, num_results, min_score, on_too_long, first_line))

    @with_old_names("answer")
    def answer_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        num_results: int = 1,
        min_score: float | None = None,
        first_line: int = 1,
    ) -> Results[AnswerResult]:
        """The answers to (question, context) pairs."""
        return Results(self._answer(pairs, num_results, min_score, "error", first_line))


class EmbedMethods(TaskModel):
    """The methods of an `Embedder`."""

    _embed: Callable[..., list[Embedding]]

    @overload
    def embed(  # type: ignore[overload-overlap]
        self, text: str, *, on_too_long: TooLong = "truncate", first_line: int = 1
    ) -> Embedding: ...
    @overload
    def embed(
        self, text: Iterable[str], *, on_too_long: TooLong = "truncate", first_line: int = 1
    ) -> Results[Embedding]: ...
    @with_old_names("embed")
    def embed(
        self, text: Texts, *, on_too_long: OnTooLong = "truncate", first_line: int = 1
    ) -> Embedding | Results[Embedding]:
        """Compute the vectors of texts.

        Any BERT folder works. Its sentence-transformers files set the pooling; the default is the mean.
        """
        return one_or_all(text, self._embed(as_texts(text), on_too_long, first_line))
