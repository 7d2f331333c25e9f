"""The same model in other programs, for a race: text to text with their own kernels and our tokenizer."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from regard.errors import UsageError
from regard.export.check import token_names as names
from regard.models.transformer import EncoderDecoder
from regard.storage import Folder, open_folder
from regard.storage.models import find_model

TOKENS = (
    4096  # source pieces of a batch of CTranslate2; 32 sentences, its usual size, are slower on two cores
)
SENTENCES = 32  # of a batch of transformers
PROGRAMS = {"ctranslate2": ("int8", "float32"), "transformers": ("float32",)}


def rival(program: str, precision: str, path: Path, texts: Sequence[str], beam: int) -> Callable[[], int]:
    """What writes all texts and says how many pieces that were."""
    if find_spec(program) is None:
        raise UsageError(f"--against {program}: it is not installed here")
    folder = open_folder(path)
    if not isinstance(folder.model, EncoderDecoder) or folder.task.name != "translate":
        raise UsageError(f"--against {program}: {path} is no Transformer that translates")
    if program == "ctranslate2":
        return ctranslate2(folder, precision, texts, beam)
    return transformers(folder, texts, beam)


def ctranslate2(folder: Folder, precision: str, texts: Sequence[str], beam: int) -> Callable[[], int]:
    from ctranslate2 import Translator

    from regard.export.to_ctranslate2 import write

    with tempfile.TemporaryDirectory() as place:
        write(folder, Path(place), "float32")
        model = Translator(place, compute_type=precision, intra_threads=torch.get_num_threads())
    known, said = names(folder.source), {name: id for id, name in enumerate(names(folder.target))}

    def run() -> int:
        words = [[known[piece] for piece in row] for row in folder.source.encode_batch(list(texts))]
        found = model.translate_batch(words, beam_size=beam, max_batch_size=TOKENS, batch_type="tokens")
        best = [[said[name] for name in each.hypotheses[0]] for each in found]
        for row in best:
            folder.target.decode(row)
        return sum(map(len, best))

    return run


def transformers(folder: Folder, texts: Sequence[str], beam: int) -> Callable[[], int]:
    from transformers import AutoModelForSeq2SeqLM

    model: Any = AutoModelForSeq2SeqLM.from_pretrained(find_model(folder.path), local_files_only=True).eval()
    end, pad = folder.source.end, folder.source.pad
    marks = {pad, folder.target.start, folder.target.end}

    def batch(rows: Sequence[Sequence[int]]) -> int:
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
        seen = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        with torch.no_grad():
            found = model.generate(
                ids, attention_mask=seen, num_beams=beam, do_sample=False, max_length=longest + 50
            )
        written = [[id for id in row if id not in marks] for row in found.tolist()]
        for row in written:
            folder.target.decode(row)
        return sum(map(len, written))

    def run() -> int:
        rows = sorted(([*row, end] for row in folder.source.encode_batch(list(texts))), key=len)
        return sum(batch(rows[first : first + SENTENCES]) for first in range(0, len(rows), SENTENCES))

    return run
