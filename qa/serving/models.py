"""Small models beside the one that is measured: one that writes without end, and one that fills gaps."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.config import resolve
from regard.data.phrasebook import phrases
from regard.inputs.text import train_tokenizer
from regard.models.families import build
from regard.storage import unique_weights, write_identity, write_weights

WRITER, FILLER = "writer", "filler"
KINDS = {WRITER: ("generate", "gpt"), FILLER: ("fill", "bert")}


def make(place: Path, seed: int) -> list[str]:
    """Their folders. They have learnt nothing: what they say does not matter, and the writer seldom ends."""
    texts = [each.english for each in phrases("test", 500)]
    tokenizer = train_tokenizer(texts, "bpe", 600, ["<mask>"])
    for name, (task, family) in KINDS.items():
        shape = {"family": family, "width": 64, "layers": 2, "heads": 4, "feed_forward": 128}
        config = resolve(
            {
                "task": {"name": task, "source": "en"},
                "data": {"train": "phrasebook"},
                "model": {**shape, "max_length": 512},
            }
        )
        torch.manual_seed(seed)
        model = build(config.model, len(tokenizer), None).eval()
        (place / name).mkdir()
        write_identity(place / name, config, tokenizer, None, config.model.max_length)
        write_weights(place / name, config.model, unique_weights(model))
    return [str(place / name) for name in KINDS]
