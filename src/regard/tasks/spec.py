"""One description of each task, read from its typed method: for commands, HTTP routes and the reference.

`TASKS["classify"]` has the inputs and options of `Classifier.classify` with limits, defaults and meaning, a
pydantic model of a request, and the type of a result. Neither torch nor a model is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator
from pydantic.fields import FieldInfo

from regard.compat import current_options
from regard.errors import UsageError
from regard.tasks import media_methods, methods, results
from regard.tasks.task_model import Files, NamedFile, Texts, as_list

Inputs = Sequence[str] | Mapping[str, str | Sequence[str]]
BYTES_PER_TOKEN = 4  # an estimate
USUAL_BEAM, USUAL_LENGTH = 4, 200  # of translations and of generated texts, where none is named
USUAL_CAPTION = 30  # tokens
FOR_CHECKERS = ("Decode", "Mean", "PhraseConstraints")  # types that only type checkers import
INPUTS = {
    "text": "The text, or a list of texts.",
    "prompt": "The beginning of a text, or a list of them.",
    "question": "The question, or a list of questions.",
    "file": "The picture or sound, or a list of them: data:image/png;base64,...",
    "context": "The text that contains the answers.",
    "source": "The source text, or a list of them; only for models that translate.",
    "target": "The text to score, or a list of texts; of models that translate: the translation.",
}


@dataclass(frozen=True)
class Option:
    """A keyword argument of a task's method."""

    name: str
    type: Any  # without its Field
    default: Any
    field: FieldInfo

    @property
    def description(self) -> str:
        return self.field.description or ""

    def limit(self, kind: str) -> Any:
        """The limit `ge`, `gt`, `le` or `lt`; None if there is none."""
        return next((getattr(each, kind) for each in self.field.metadata if hasattr(each, kind)), None)


@dataclass(frozen=True)
class TaskSpec:
    """A task: its methods, one for each class of models that can do it."""

    name: str
    methods: Mapping[str, Callable[..., Any]]  # class name -> method
    result: type[Any]

    @property
    def summary(self) -> str:
        return self.description.split("\n\n")[0]

    @cached_property
    def description(self) -> str:
        """What the task does; paragraphs of the method's docstring that are for Python alone are left out."""
        parts = inspect.cleandoc(next(iter(self.methods.values())).__doc__ or "").split("\n\n")
        return "\n\n".join(part for part in parts if not part.startswith("In Python"))

    @property
    def classes(self) -> tuple[type[Any], ...]:
        """The classes of models that can do the task (imports torch)."""
        from regard import tasks

        return tuple(getattr(tasks, name) for name in self.methods)

    @property
    def method(self) -> str:
        """The name of the method."""
        return next(iter(self.methods.values())).__name__

    @cached_property
    def inputs(self) -> dict[str, bool]:
        """The texts that the task takes; True for those that all its models need."""
        names = [
            [name for name, each in parameters(method).items() if each in (list[str], Files, Texts)]
            for method in self.methods.values()
        ]
        return {name: all(name in each for each in names) for some in names for name in some}

    @cached_property
    def takes_files(self) -> bool:
        """Whether a model of this task may read pictures or sounds."""
        return any(Files in parameters(method).values() for method in self.methods.values())

    @cached_property
    def options(self) -> dict[str, Option]:
        options: dict[str, Option] = {}
        for method in self.methods.values():
            defaults = inspect.signature(method).parameters
            for name, each in parameters(method).items():
                if get_origin(each) is not Annotated:
                    continue
                kind, *metadata = get_args(each)
                field = next(one for one in metadata if isinstance(one, FieldInfo))
                options.setdefault(name, Option(name, kind, defaults[name].default, field))
        return options

    def request_model(
        self,
        base: type[BaseModel] = BaseModel,
        max_texts: int | None = None,
        max_characters: int | None = None,
        max_file: int | None = None,
    ) -> type[BaseModel]:
        """A request of this task; unknown fields are refused, names of earlier versions are accepted.

        A file is a data URL of at most `max_file` characters.
        """
        text = Annotated[str, Field(max_length=max_characters)]
        file = Annotated[str, Field(pattern="^data:", max_length=max_file)]
        fields: dict[str, Any] = {}
        for name, needed in self.inputs.items():
            one = text if not self.takes_files else file if name == "file" else text | file
            many = one | Annotated[list[one], Field(min_length=1, max_length=max_texts)]  # type: ignore[valid-type]
            kind = text if name == "context" else many
            field = Field(... if needed else None, description=INPUTS[name])
            fields[name] = (kind if needed else kind | None, field)
        for option in self.options.values():
            default = list(option.default) if isinstance(option.default, tuple) else option.default
            fields[option.name] = (Annotated[option.type, option.field], default)

        def rename(cls: type[BaseModel], content: Any) -> Any:
            return current_options(self.name, content) if isinstance(content, dict) else content

        return create_model(
            f"{self.name.capitalize()}Request",
            __base__=type("Request", (base,), {"model_config": ConfigDict(extra="forbid")}),
            __validators__={"rename": model_validator(mode="before")(rename)},  # type: ignore[dict-item]
            **fields,
        )

    def split(self, request: BaseModel) -> tuple[dict[str, Any], dict[str, Any]]:
        """The inputs and the options of a request."""
        values = {name: getattr(request, name) for name in (*self.inputs, *self.options)}
        inputs = {name: values[name] for name in self.inputs if values[name] is not None}
        return inputs, {name: values[name] for name in self.options}

    def run(
        self, task: Any, texts: Inputs, options: Mapping[str, Any], **others: Any
    ) -> results.Results[Any]:
        """The results of all texts: a list of them, or inputs by name."""
        method = getattr(task, self.method)
        inputs = self.named(texts)
        valid = set(inspect.signature(getattr(type(task), self.method)).parameters)
        given = {name: value for name, value in options.items() if value != self.options[name].default}
        if wrong := [name for name in (*inputs, *given) if name not in valid]:
            raise UsageError(
                f"{wrong[0]}: not for a {type(task).__name__}; leave it out", code="E_OPTION_TASK"
            )
        if missing := [name for name in self.inputs if name in valid and name not in inputs]:
            raise UsageError(f"{missing[0]}: needed by a {type(task).__name__}", code="E_INPUT_MISSING")
        first, *rest = [name for name in self.inputs if name in inputs]
        answer: results.Results[Any] = method(
            inputs[first], **{name: inputs[name] for name in rest}, **given, **others
        )
        return answer

    def named(self, texts: Inputs) -> dict[str, Any]:
        """Inputs by name; `context` is one text."""
        inputs = dict(texts) if isinstance(texts, Mapping) else {next(iter(self.inputs)): texts}
        return {
            name: value if name == "context" and isinstance(value, str) else as_list(value)
            for name, value in inputs.items()
        }

    def cost(self, texts: Inputs, options: Mapping[str, Any]) -> int:
        """The estimated number of tokens that the model reads and writes."""
        inputs = self.named(texts)
        count = max((len(each) for each in inputs.values() if not isinstance(each, str)), default=1)
        read = sum(
            token_estimate(each) * count if isinstance(each, str) else sum(map(token_estimate, each))
            for each in inputs.values()
        )
        choices = options.get("choices") or ()
        rows = max(options.get("num_results") or 1, options.get("beam") or 1, len(choices))
        if self.name == "translate":
            return read + read * max(rows, options.get("beam") or USUAL_BEAM)
        if self.name == "caption":
            return read + count * max(rows, USUAL_BEAM) * USUAL_CAPTION
        if self.name == "generate":
            longest = max(map(token_estimate, choices), default=0)
            return read + count * rows * (longest or options.get("max_length") or USUAL_LENGTH)
        return read


def token_estimate(text: Any) -> int:
    """Of a text by its length; of a file by its frames."""
    if not isinstance(text, str):
        return text.frames if isinstance(text, NamedFile) else 1
    return len(text.encode(errors="replace")) // BYTES_PER_TOKEN + 1


def parameters(method: Callable[..., Any]) -> dict[str, Any]:
    """The types of a method's parameters."""
    types = get_type_hints(method, localns=dict.fromkeys(FOR_CHECKERS, Any), include_extras=True)
    return {name: kind for name, kind in types.items() if name != "return"}


TASKS: dict[str, TaskSpec] = {
    each.name: each
    for each in (
        TaskSpec("translate", {"Translator": methods.TranslateMethods.translate_lines}, results.Translation),
        TaskSpec("generate", {"Generator": methods.GenerateMethods.generate_texts}, results.Generation),
        TaskSpec("caption", {"Captioner": media_methods.CaptionMethods.caption}, results.Caption),
        TaskSpec("fill", {"Filler": methods.FillMethods.fill}, results.Filling),
        TaskSpec("classify", {"Classifier": methods.ClassifyMethods.classify}, results.Classification),
        TaskSpec("tag", {"Tagger": methods.TagMethods.tag}, results.Tagging),
        TaskSpec("answer", {"Answerer": methods.AnswerMethods.answer}, results.AnswerResult),
        TaskSpec(
            "transcribe",
            {"Transcriber": media_methods.TranscribeMethods.transcribe},
            results.Transcription,
        ),
        TaskSpec("embed", {"Embedder": methods.EmbedMethods.embed}, results.Embedding),
        TaskSpec(
            "score",
            {"Translator": methods.TranslateMethods.score, "Generator": methods.GenerateMethods.score},
            results.TextScore,
        ),
    )
}
