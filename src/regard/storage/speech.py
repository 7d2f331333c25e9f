"""The tokens that tell a model of speech what to write: languages, tasks, times (generation_config.json).

A model that Regard trained has none of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config.reading import shown
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.storage.files import Json
from regard.storage.generation import WRONG, read_generation

TASKS = ("transcribe", "translate")
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")  # before "no timestamps"; the second of English models
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")


@dataclass(frozen=True)
class SpeechTokens:
    """The output of a model begins with a language, a task, and "no timestamps" where no times are wanted."""

    languages: Mapping[str, int]  # en -> id; empty for a model of one language
    tasks: Mapping[str, int]  # transcribe, translate
    no_timestamps: int | None
    alignment_heads: tuple[tuple[int, int], ...] = ()  # (layer, head) whose weights follow the sound
    no_speech: int | None = None  # what follows the start token where nobody speaks

    def prompt(self, language: str | None, task: str, timestamps: bool) -> list[int]:
        ids = [self.languages[language]] if self.languages and language else []
        ids += [self.tasks[task]] if self.tasks else []
        return ids if timestamps or self.no_timestamps is None else [*ids, self.no_timestamps]


def speech_tokens(home: Path, content: Json, target: Tokenizer, shape: tuple[int, int]) -> SpeechTokens:
    """Of another program's folder; `shape` are the layers of the decoder and its heads."""
    file, settings = read_generation(home, content)
    size = len(target)

    def number(value: Any, name: str) -> int:
        if type(value) is not int or not 0 <= value < size:
            raise UsageError(f"{file}: {name} = {shown(value)} is not one of the {size} tokens", code=WRONG)
        return value

    def table(name: str) -> dict[str, int]:
        given = settings.get(name) or {}
        if not isinstance(given, dict):
            raise UsageError(f"{file}: {name} = {shown(given)} is not a table of token ids", code=WRONG)
        return {str(key).strip("<|>"): number(value, name) for key, value in given.items()}

    languages, tasks = table("lang_to_id"), table("task_to_id")
    if not languages and settings.get("forced_decoder_ids"):  # of the first released Whispers
        names = {name: token for token, name in enumerate(target.tokens(range(size)))}
        matches = ((_LANGUAGE.fullmatch(name), token) for name, token in names.items())
        languages = {match[1]: token for match, token in matches if match}
        tasks = {name: names[f"<|{name}|>"] for name in TASKS if f"<|{name}|>" in names}
    timeless = settings.get("no_timestamps_token_id")
    timeless = None if timeless is None else number(timeless, "no_timestamps_token_id")
    speechless = None if not timeless or target.tokens([timeless - 1])[0] not in NO_SPEECH else timeless - 1
    heads = settings.get("alignment_heads") or []
    if not isinstance(heads, list) or not all(_is_head(each, shape) for each in heads):
        message = f"{file}: alignment_heads = {shown(heads)} are not pairs of layer and head of this model"
        raise UsageError(message, code=WRONG)
    return SpeechTokens(
        languages,
        {name: token for name, token in tasks.items() if name in TASKS},
        timeless,
        tuple((layer, head) for layer, head in heads),
        speechless,
    )


def _is_head(value: object, shape: tuple[int, int]) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(type(each) is int and 0 <= each < most for each, most in zip(value, shape))
    )
