"""Pieces by name, as other programs know them, and the files that make pieces of a text."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.storage import Folder, write_text
from regard.storage.folder import FRAMES


def names(tokenizer: Tokenizer) -> list[str]:
    """How each piece is spelt in the vocabulary; a row of the embedding that is no piece gets a name."""
    pipeline = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    found = [pipeline.id_to_token(number) or f"<row {number}>" for number in range(len(tokenizer))]
    if len(set(found)) < len(found):
        raise UsageError("two pieces of the vocabulary have one name: other engines cannot tell them apart")
    return found


def write_tokenizers(place: Path, folder: Folder) -> None:
    write_text(place / "tokenizer.json", folder.source.to_json(FRAMES.get(folder.config.family, "end")))
    if folder.target is not folder.source:
        write_text(place / "target_tokenizer.json", folder.target.to_json())
