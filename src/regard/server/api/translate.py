"""Translates texts for the routes of LibreTranslate and OpenAI, as the native route does."""

from __future__ import annotations

from collections.abc import Sequence

from regard.server.api.native import run_task
from regard.server.errors import APIError
from regard.server.requests import MOST_CHARACTERS
from regard.server.service import Call, Service
from regard.tasks import Translator
from regard.tasks.spec import TASKS


async def translate(
    service: Service,
    name: str,
    translator: Translator,
    texts: Sequence[str],
    call: Call,
    count: int = 1,
) -> list[list[str]]:
    """The candidates of each text, best first. Each line is translated separately."""
    check_size(texts)
    lines = [text.split("\n") for text in texts]
    flat = [line for text_lines in lines for line in text_lines]
    spec = TASKS["translate"]
    options = {option.name: option.default for option in spec.options.values()} | {"num_results": count}
    translations = iter(await run_task(service, spec, name, translator, {"text": flat}, options, call))
    return [joined([[c.text for c in next(translations).candidates] for _ in each]) for each in lines]


def joined(lines: Sequence[Sequence[str]]) -> list[str]:
    """Joined lines: the k-th candidate has the k-th candidate of each line, or its last."""
    most = max(map(len, lines))
    return ["\n".join(line[min(k, len(line) - 1)] for line in lines) for k in range(most)]


def check_size(texts: Sequence[str]) -> None:
    size = sum(map(len, texts))
    if size > MOST_CHARACTERS:
        raise APIError(400, f"Invalid request: request ({size}) exceeds text limit ({MOST_CHARACTERS})", "q")
