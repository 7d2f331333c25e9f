"""The built-in model for a command without `-m`: a translator for the language of the text, the model of
another task that reads text, or one that reads the kind of the files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from regard.cli.terminal import looks_like_path, say
from regard.errors import UsageError

SAMPLE_LINES = 20  # lines from which the language is detected
CONFIDENT = 3.0  # per cent; "Hi." could be in any language, and counts as English
CERTAIN = 50.0  # per cent
FILE_TASKS = {"transcribe": "audio", "caption": "image"}  # which read files only
NONE = "give a model with -m; this installation has no built-in models"


def preload_detector(texts: Iterable[str], is_needed: bool = True) -> None:
    """Load the detector of languages in a thread if it will be needed, during the import of torch."""
    from regard.inputs.language import COMMON, WORDS, by_words, default_detector

    if is_needed and by_words("\n".join(texts), list(WORDS), COMMON) is None:
        default_detector().load_in_background()


def builtin_models() -> list[Path]:
    """All built-in models, translators first."""
    from regard.storage import models as builtin

    translators = list(builtin.translators().values())
    others = [name for name in builtin.names() if name not in translators]
    if not translators and not others:
        raise UsageError(NONE)
    return [builtin.PLACE / name for name in (*translators, *others)]


def builtin_translator(sample: str, language: str | None) -> Path:
    """The translator from the language of `sample`, or the one into `language`; a model of several tasks if
    `sample` begins with one of its prefixes."""
    from regard.inputs.language import by_words, default_detector
    from regard.storage import models as builtin
    from regard.storage.find import pull_advice

    prefixes = builtin.prefixes() if language is None else {}
    if (model := next((prefixes[each] for each in prefixes if sample.startswith(each)), None)) is not None:
        say(f"Using the built-in model {model} (-m selects another)")
        return builtin.PLACE / model

    translators = builtin.translators()
    if not translators:
        raise UsageError(NONE)
    candidates = {pair: name for pair, name in translators.items() if language in (None, pair[1])}
    if not candidates:
        targets = ", ".join(sorted(target for _, target in translators))
        advice = pull_advice("translate", (language_of(sample), str(language)))
        message = f"--language {language}: the built-in models translate into {targets}; give a model with -m"
        raise UsageError(f"{message}{advice}", code="E_MODEL_MISSING")
    sources = [source for source, _ in candidates]
    common = sources[0] if len(sources) == 1 else by_words(sample, sources)
    code, confidence = (common, CONFIDENT) if common else default_detector().choose(sample, sources)
    is_sure = confidence >= CONFIDENT
    chosen = code if is_sure else sources[0]
    name = next(name for (source, _), name in candidates.items() if source == chosen)
    say(
        f"Using the built-in model {name} (-m selects another)"
        + ("" if is_sure else "; the language of the text is uncertain (--language sets it)")
    )
    return builtin.PLACE / name  # even if the current folder contains one of that name


def builtin_for(task: str, names: Sequence[str]) -> Path:
    """The built-in model of a task that reads text, or files if the first name is that of a picture, a video,
    a sound or a folder."""
    from regard.data.readers.media import SUFFIXES
    from regard.storage import models as builtin

    first = next(iter(names), "")
    suffixes = tuple(chain.from_iterable(SUFFIXES.values()))
    reads_files = first.lower().endswith(suffixes) or os.path.isdir(first)  # noqa: PTH112  (a text may be longer than a name)
    model = None if reads_files else builtin.of_texts(task)
    if model is None:
        return builtin_for_files(task, names)
    say(f"Using the built-in model {model} (-m selects another)")
    return builtin.PLACE / model


def builtin_for_files(task: str, files: Iterable[str]) -> Path:
    """The built-in model of a task that reads files like the first one: pictures, videos or sounds.

    Of a folder, the first file that a model reads decides; what is transcribed from stdin is a sound.
    Without one, the error contains the command that downloads a model.
    """
    from regard.config.load import load_run_settings
    from regard.data.readers.media import SUFFIXES
    from regard.storage import models as builtin

    given = next(iter(files), "")
    is_folder = os.path.isdir(given)  # noqa: PTH112  (Path.is_dir raises for a text longer than a file name)
    inside = (each.name for each in Path(given).rglob("*")) if is_folder else iter([given])
    names = [".wav"] if (task, given) == ("transcribe", "-") else [each.lower() for each in inside]
    runs = {each: builtin.PLACE / each / "run.toml" for each in builtin.names()}
    tasks = {each: load_run_settings(run).task for each, run in runs.items() if run.is_file()}
    for model, each in tasks.items():
        if each.name == task and any(name.endswith(SUFFIXES.get(each.input, ())) for name in names):
            say(f"Using the built-in model {model} (-m selects another)")
            return builtin.PLACE / model
    kinds = sorted({each.input for each in tasks.values() if each.name == task})
    read = [f"{kind} ({', '.join(SUFFIXES[kind])})" if kind in SUFFIXES else kind for kind in kinds]
    others = f"; the built-in models of {task} read {' and '.join(read)}" if read else ""
    where = f"{given}: " if given and (is_folder or looks_like_path(given)) else ""
    raise UsageError(f"{where}give a model with -m{others}{advice_for(task, given)}", code="E_MODEL_MISSING")


def advice_for(task: str, text: str) -> str:
    """The command that downloads a model for a task that reads such a text or file."""
    from regard.data.readers.media import SUFFIXES
    from regard.storage.find import pull_advice

    kinds = (each for each, suffixes in SUFFIXES.items() if text.lower().endswith(suffixes))
    kind = FILE_TASKS.get(task) or next(kinds, "text")
    language = [language_of("" if looks_like_path(text) else text)] if kind == "text" else []
    return pull_advice(task, language, kind) or f'; "regard models find {task}" lists models of the hub'


def language_of(sample: str) -> str:
    """The language of a text; English if it is uncertain."""
    from regard.inputs.language import default_detector

    ranked = default_detector().rank(sample) if sample.strip() else []
    return ranked[0][0] if ranked and ranked[0][1] >= CERTAIN else "en"


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
