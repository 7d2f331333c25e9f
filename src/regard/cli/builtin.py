"""The built-in model for a command without `-m`: a translator for the language of the text, or a model that
reads the kind of the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.terminal import say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.inputs.language import Detector

SAMPLE_LINES = 20  # lines from which the language is detected
CONFIDENT = 3.0  # per cent; "Hi." could be in any language, and counts as English
NONE = "give a model with -m; this installation has no built-in models"


@cache
def detector() -> Detector:
    from regard.inputs.language import Detector

    return Detector()


def preload_detector(model: object, language: str | None, texts: Iterable[str]) -> None:
    """Load the detector in a thread if it will be needed, during the import of torch."""
    from regard.inputs.language import WORDS, by_words

    if model is None and language is None and by_words("\n".join(texts), list(WORDS)) is None:
        detector().load_in_background()


def builtin_models() -> list[Path]:
    """All built-in models, translators first."""
    from regard.storage import models as builtin

    translators = list(builtin.translators().values())
    others = [name for name in builtin.names() if name not in translators]
    if not translators and not others:
        raise UsageError(NONE)
    return [builtin.PLACE / name for name in (*translators, *others)]


def builtin_translator(sample: str, language: str | None) -> Path:
    """The translator from the language of `sample`, or the one into `language`."""
    from regard.inputs.language import by_words
    from regard.storage import models as builtin

    translators = builtin.translators()
    if not translators:
        raise UsageError(NONE)
    candidates = {pair: name for pair, name in translators.items() if language in (None, pair[1])}
    if not candidates:
        targets = ", ".join(sorted(target for _, target in translators))
        raise UsageError(
            f"--language {language}: the built-in models translate into {targets}; give a model with -m"
        )
    sources = [source for source, _ in candidates]
    common = sources[0] if len(sources) == 1 else by_words(sample, sources)
    code, confidence = (common, CONFIDENT) if common else detector().choose(sample, sources)
    is_sure = confidence >= CONFIDENT
    chosen = code if is_sure else sources[0]
    name = next(name for (source, _), name in candidates.items() if source == chosen)
    say(
        f"Using the built-in model {name} (-m selects another)"
        + ("" if is_sure else "; the language of the text is uncertain (--language sets it)")
    )
    return builtin.PLACE / name  # even if the current folder contains one of that name


def builtin_for_files(task: str, files: Iterable[str]) -> Path:
    """The built-in model of a task that reads files like the first one: pictures, videos or sounds."""
    from regard.config.load import load_run_settings
    from regard.data.readers.media import SUFFIXES
    from regard.storage import models as builtin

    name = next(iter(files), "").lower()
    runs = {each: builtin.PLACE / each / "run.toml" for each in builtin.names()}
    tasks = {each: load_run_settings(run).task for each, run in runs.items() if run.is_file()}
    for model, each in tasks.items():
        if each.name == task and name.endswith(SUFFIXES.get(each.input, ("\0",))):
            say(f"Using the built-in model {model} (-m selects another)")
            return builtin.PLACE / model
    kinds = sorted({each.input for each in tasks.values() if each.name == task})
    others = f"; the built-in models of {task} read: {', '.join(kinds)}" if kinds else ""
    raise UsageError(f"give a model with -m{others}", code="E_MODEL_MISSING")


def document_sample(path: Path) -> str:
    """The first texts of a document that a built-in translator can translate."""
    from regard.config import Task
    from regard.data.formats import open_document
    from regard.storage import models as builtin

    for source, target in builtin.translators():
        try:
            units = open_document(path, Task(source=source, target=target)).units(True)
        except UsageError:  # other languages
            continue
        return "\n".join(text for unit in units[:SAMPLE_LINES] for text in unit.sources)
    return ""


def with_sample(lines: Iterable[str], count: int) -> tuple[str, Iterator[str]]:
    """The first lines as one text, and all the lines."""
    rest = iter(lines)
    first = list(islice(rest, count))
    return "\n".join(first), chain(first, rest)
