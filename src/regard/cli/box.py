"""What is used when no model is named: the translators of the package, by the language of the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.terminal import say
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.storage.language import Detector

READ = 20  # lines that say which language a text is in
SURE = 3.0  # per cent; "Hi." is in any language, and taken as English
NONE = "name a model with -m; the package has no translator of its own here"


@cache
def detector() -> Detector:
    from regard.storage.language import Detector

    return Detector()


def expect_language(model: object, language: str | None, texts: Iterable[str]) -> None:
    """Begin to open the detector where it will be needed, beside the import of torch."""
    from regard.storage.language import WORDS, by_words

    if model is None and language is None and by_words("\n".join(texts), list(WORDS)) is None:
        detector().begin()


def own_models() -> list[Path]:
    """All models of the package, the translators first."""
    from regard.storage import builtin

    translators = list(builtin.translators().values())
    others = [name for name in builtin.names() if name not in translators]
    if not translators and not others:
        raise UsageError(NONE)
    return [builtin.PLACE / name for name in (*translators, *others)]


def own_translator(sample: str, language: str | None) -> Path:
    """The translator that reads the language of `sample`, or the one that writes `language`."""
    from regard.storage import builtin
    from regard.storage.language import by_words

    known = builtin.translators()
    if not known:
        raise UsageError(NONE)
    fitting = {pair: name for pair, name in known.items() if language in (None, pair[1])}
    if not fitting:
        written = ", ".join(sorted(target for _, target in known))
        raise UsageError(
            f"--language {language}: the package translates into {written}; name a model with -m"
        )
    sources = [source for source, _ in fitting]
    plain = sources[0] if len(sources) == 1 else by_words(sample, sources)
    code, confidence = (plain, SURE) if plain else detector().choose(sample, sources)
    chosen = code if confidence >= SURE else sources[0]
    name = next(name for (source, _), name in fitting.items() if source == chosen)
    unsure = "" if confidence >= SURE else "; the language of the text is not sure (--language)"
    say(f"model: {name}, of the package; -m names another{unsure}")
    return builtin.PLACE / name  # not a folder of that name that lies here


def document_sample(path: Path) -> str:
    """The first texts of a document that one of the translators could fill."""
    from regard.config import Task
    from regard.data.formats import open_document
    from regard.storage import builtin

    for source, target in builtin.translators():
        try:
            units = open_document(path, Task(source=source, target=target)).units(True)
        except UsageError:  # not of these languages
            continue
        return "\n".join(text for unit in units[:READ] for text in unit.sources)
    return ""


def with_sample(lines: Iterable[str], count: int) -> tuple[str, Iterator[str]]:
    """The first lines as one text, and all the lines."""
    rest = iter(lines)
    first = list(islice(rest, count))
    return "\n".join(first), chain(first, rest)
