"""Models of CTranslate2 as folders that Regard opens: translators, and Whisper."""

from __future__ import annotations

from pathlib import Path

from regard.storage.ctranslate2.file import MODEL as MODEL
from regard.storage.ctranslate2.file import read_variables
from regard.storage.ctranslate2.transformer import convert_transformer
from regard.storage.ctranslate2.whisper import convert_whisper
from regard.storage.files import check_inside

KINDS = {"WhisperSpec": convert_whisper, "TransformerSpec": convert_transformer}


def convert_ctranslate2(source: Path, out: Path) -> None:
    """Write the folder that has the model of the folder `source`."""
    check_inside(source / MODEL)
    kind, variables = read_variables(source / MODEL, KINDS)
    KINDS[kind](variables, source, out)
