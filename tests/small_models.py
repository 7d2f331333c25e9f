"""Models of a few words, trained in seconds without a run, and their folders."""

from __future__ import annotations

import atexit
import copy
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp

import torch
import torch.nn.functional as F

from regard.batch import collate
from regard.config import Config, Decode, Task, resolve
from regard.inputs.text import Tokenizer, special_tokens
from regard.models.families import Model, build
from regard.sample import IGNORED, Sample
from regard.storage import Folder, unique_weights, write_identity, write_weights
from samples import of_family


def kept_folder(prefix: str) -> Path:
    """A folder that lasts as long as the process, for models that several files of tests use."""
    folder = mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def small_config(task: str, family: str, max_length: int = 16, **model: object) -> Config:
    size = {"width": 32, "layers": 1, "heads": 2, "feed_forward": 64, "dropout": 0.0}
    own = {"family": family, "max_length": max_length, **size, **model}
    return resolve({"task": {"name": task}, "data": {"train": "nothing.txt"}, "model": of_family(own)})


def small_model(config: Config, tokenizer: Tokenizer, seed: int = 1, labels: int | None = None) -> Model:
    torch.manual_seed(seed)
    return build(config.model, len(tokenizer), labels).eval()


def teach(model: Model, samples: Callable[[int], Sequence[Sample]], steps: int, lr: float) -> None:
    """Adam on the samples of each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr)
    for step in range(steps):
        batch = collate(samples(step))
        assert batch.labels is not None
        loss = F.cross_entropy(model(batch).transpose(1, 2), batch.labels, ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def opened(config: Config, model: Model, tokenizer: Tokenizer, decode: Decode | None = None) -> Folder:
    """The folder that would be opened, without one on disk; its own copy of the model may be packed."""
    return Folder(
        path=Path("small"),
        task=Task(name=config.task.name),
        decode=decode or config.decode,
        config=config.model,
        model=copy.deepcopy(model).eval(),
        input=tokenizer,
        output=tokenizer,
        special=special_tokens(tokenizer),
        split_above=config.model.max_length,
    )


def written(path: Path, config: Config, model: Model, tokenizer: Tokenizer) -> Path:
    """A folder on disk."""
    path.mkdir(parents=True, exist_ok=True)
    write_identity(path, config, tokenizer, None, config.model.max_length)
    write_weights(path, config.model, unique_weights(model))
    return path
