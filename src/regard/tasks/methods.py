"""The methods of all tasks: their typed arguments describe the commands and the HTTP routes too.

An argument whose type has a pydantic `Field` is an option of the task: its name, limits, default and meaning
are those of the command's option and of the field of the request (see `spec.py`). Other keyword arguments are
for Python alone. This module imports neither torch nor a model: `regard translate --help` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, overload

from pydantic import Field

from regard.errors import UsageError
from regard.tasks.options import Beam, Choices, DecodeFields, JSONSchema, NumResults, OnTooLong
from regard.tasks.results import (
    AnswerResult,
    Classification,
    Embedding,
    Filling,
    Generation,
    Tagging,
    TextScore,
    Translation,
)
from regard.tasks.task_model import (
    Files,
    Language,
    OtherLanguage,
    SourceLanguage,
    Split,
    TaskModel,
    Texts,
    Warn,
    as_texts,
    decode_fields,
    task_method,
    with_decode_fields,
    with_old_names,
)

if TYPE_CHECKING:
    from typing import Self

    from regard.config import Decode
    from regard.generation import Mean
    from regard.tasks.translation import PhraseConstraints


# --- models that generate text ----------------------------------------------------------------------------


class TranslateMethods(TaskModel):
    """The methods of a `Translator`."""

    into: Callable[[str | None, str | None], Self]
    decode_options: Callable[..., Decode]
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
        named = with_decode_fields("translate", TranslateMethods.translate_lines, options)
        texts = [each.text for each in self.translate_lines(as_texts(text), **named)]
        return texts[0] if isinstance(text, str) else texts

    @task_method("translate")
    def translate_lines(
        self,
        text: list[str],
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
        language: Language = None,
        source_language: SourceLanguage = None,
        on_too_long: OnTooLong = "truncate",
        other_language: Annotated[
            OtherLanguage,
            Field(
                description="A text in a language that the model does not read: keep it as it is, refuse it, "
                "or translate it all the same."
            ),
        ] = "keep",
        min_confidence: Annotated[
            float | None, Field(ge=0, le=1, description="Refuse translations with a lower confidence.")
        ] = None,
        check: Annotated[
            bool,
            Field(
                description="Translate again, in another way, what repeats itself or lacks numbers, "
                "addresses or tags of the source."
            ),
        ] = True,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[PhraseConstraints] | None = None,
        first_line: int = 1,
        warn: Warn = lambda text: None,
    ) -> list[Translation]:
        """Translate lines of text.

        A sentence that is too long for the model is split between words. Numbers, addresses, tags, emoji and
        the like are copied.

        In Python, `prefixes` and `constraints` are those of each line, `first_line` numbers the lines in
        messages, `warn` is called when memory runs short, and `options` replaces all of `[decode]`.
        """
        from regard.tasks.confidence import Checks

        task = self.into(language, source_language) if language or source_language else self
        return task._translate(
            text,
            options or task.decode_options(decode_fields(decode, beam=beam), num_results),
            num_results,
            alignment,
            split,
            [prefix] * len(text) if prefix is not None else prefixes,
            (require, forbid),
            constraints,
            on_too_long,
            Checks(check, other_language, min_confidence),
            first_line,
            warn,
        )

    @task_method("score")
    def score(
        self,
        source: list[str],
        target: Texts,
        mean: Mean = "probability",
        *,
        on_too_long: OnTooLong = "error",
    ) -> list[TextScore]:
        """Score given translations: log p of each token of each target, and of its end.

        In float32, unless a precision is named.

        In Python, `mean` is how the models of an ensemble are averaged.
        """
        targets = as_texts(target)
        if len(source) != len(targets):
            message = f"{len(source)} sources and {len(targets)} targets: they come in pairs"
            raise UsageError(message, code="E_SCORE_PAIRS")
        return self.exact()._score(source, targets, mean, on_too_long)


class GenerateMethods(TaskModel):
    """The methods of a `Generator`."""

    decode_options: Callable[..., Decode]
    structure: Callable[..., tuple[Decode, Any]]
    _generate: Callable[..., list[Generation]]
    _score: Callable[..., list[TextScore]]

    @overload
    def generate(self, prompt: str, **options: Any) -> str: ...
    @overload
    def generate(self, prompt: Iterable[str], **options: Any) -> list[str]: ...
    def generate(self, prompt: str | Iterable[str], **options: Any) -> str | list[str]:
        """Continue one prompt or many: the text that follows, without the prompt.

        Options are those of `generate_texts`, and all of `[decode]`: sample=True, seed=1, max_length=200 ...;
        `beam=1` is greedy, `beam=4` a search. A prompt that is too long is an error, unless `on_too_long`
        says otherwise: a string cannot tell that its prompt was truncated.
        """
        named = with_decode_fields("generate", GenerateMethods.generate_texts, options)
        named.setdefault("on_too_long", "error")
        texts = [each.text for each in self.generate_texts(as_texts(prompt), **named)]
        return texts[0] if isinstance(prompt, str) else texts

    @task_method("generate")
    def generate_texts(
        self,
        prompt: list[str],
        options: Decode | None = None,
        num_results: NumResults = 1,
        *,
        max_length: Annotated[
            int | None, Field(ge=1, description="Maximum number of tokens; default: of the folder, else 200.")
        ] = None,
        temperature: Annotated[
            float | None,
            Field(ge=0, description="Sampling temperature; 0 is greedy; default: of the folder, else 0.8."),
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
        choices: Choices = (),
        json_schema: JSONSchema = None,
        decode: DecodeFields = None,
        on_too_long: OnTooLong = "truncate",
        warn: Warn = lambda text: None,
    ) -> list[Generation]:
        """Continue prompts, by sampling or by beam search.

        Of a prompt that is too long for the model the end is read.

        In Python, `options` replaces all of `[decode]`.
        """
        short = {"max_length": max_length, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        fields = decode_fields(decode, **short, seed=seed, beam=beam)
        options = options or self.decode_options(fields, 1 if choices else num_results)
        options, grammar = self.structure(options, choices, json_schema)
        return self._generate(prompt, options, num_results, on_too_long, warn, grammar)

    @task_method("score")
    def score(
        self,
        target: list[str],
        stride: Annotated[
            int | None,
            Field(
                ge=1, description="Step of the windows over a long text, in tokens; default: half a window."
            ),
        ] = None,
        end: Annotated[bool, Field(description="Score the end token too.")] = True,
        *,
        on_too_long: OnTooLong = "error",
    ) -> list[TextScore]:
        """Score texts: log p of each token of each text, and of its end.

        In float32, unless a precision is named. A text longer than the window is read in overlapping
        windows: each token is scored once, with at least (window - stride) tokens of context.
        """
        return self.exact()._score(target, stride, end)


class FillMethods(TaskModel):
    """The methods of a `Filler`."""

    _fill: Callable[..., list[Filling]]

    @task_method("fill")
    def fill(
        self,
        text: list[str],
        num_results: NumResults = 5,
        *,
        on_too_long: OnTooLong = "truncate",
        first_line: int = 1,
    ) -> list[Filling]:
        """Fill in the gaps of texts: <mask>, [MASK] or three underscores.

        A BERT puts one token into each gap; several gaps are predicted independently, and the best texts have
        the highest product of probabilities. A T5 writes any number of tokens, gap after gap.
        Of a text that is too long for the model the part around its gaps is read.
        """
        return self._fill(text, num_results, on_too_long, first_line)


# --- models that read texts -------------------------------------------------------------------------------


class ClassifyMethods(TaskModel):
    """The methods of a `Classifier`."""

    _classify: Callable[..., list[Classification]]

    @task_method("classify")
    def classify(
        self,
        text: Files,
        num_results: Annotated[
            int | None,
            Field(ge=1, le=1000, description="Labels for each text, best first; default: those predicted."),
        ] = None,
        *,
        on_too_long: OnTooLong = "truncate",
        first_line: int = 1,
    ) -> list[Classification]:
        """Classify texts; pictures, videos or sounds, if the model reads files.

        Of a multi-label model: all labels with p >= 0.5.
        """
        return self._classify(text, num_results, on_too_long, first_line)


class TagMethods(TaskModel):
    """The methods of a `Tagger`."""

    _tag: Callable[..., list[Tagging]]

    @task_method("tag")
    def tag(
        self, text: list[str], *, on_too_long: OnTooLong = "truncate", first_line: int = 1
    ) -> list[Tagging]:
        """Tag the words and entities of texts.

        Start and end are characters of the text, counted from 0; the end is exclusive. A sentence that is too
        long for the model is read in overlapping parts.
        """
        return self._tag(text, on_too_long, first_line)


class AnswerMethods(TaskModel):
    """The methods of an `Answerer`."""

    _answer: Callable[..., list[AnswerResult]]

    @task_method("answer")
    def answer(
        self,
        question: list[str],
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
    ) -> list[AnswerResult]:
        """Find the answers to questions in a text.

        The context is one text for all questions, or one for each. Start and end are characters of the
        context, counted from 0; the end is exclusive. The score is the margin over "no answer", which is the
        empty text. A long context is read in overlapping parts.
        """
        contexts = [context] * len(question) if isinstance(context, str) else as_texts(context)
        if len(contexts) != len(question):
            message = f"{len(question)} questions and {len(contexts)} contexts: they come in pairs"
            raise UsageError(message, code="E_ANSWER_PAIRS")
        pairs = list(zip(question, contexts))
        return self._answer(pairs, num_results, min_score, on_too_long, first_line)

    @with_old_names("answer")
    def answer_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        num_results: int = 1,
        min_score: float | None = None,
        first_line: int = 1,
    ) -> list[AnswerResult]:
        """The answers to (question, context) pairs."""
        questions, contexts = [question for question, _ in pairs], [context for _, context in pairs]
        return self.answer(questions, contexts, min_score, num_results=num_results, first_line=first_line)


class EmbedMethods(TaskModel):
    """The methods of an `Embedder`."""

    _embed: Callable[..., list[Embedding]]

    @task_method("embed")
    def embed(
        self, text: Files, *, on_too_long: OnTooLong = "truncate", first_line: int = 1
    ) -> list[Embedding]:
        """Compute the vectors of texts; of pictures, videos or sounds, if the model reads files.

        Any BERT, ViT or AST folder works. The sentence-transformers files of a BERT set the pooling; the
        default is the mean. The vector of a picture or sound is the one that the model's classifier reads.
        """
        return self._embed(text, on_too_long, first_line)
