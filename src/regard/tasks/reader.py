"""What the tasks have in common that read and do not write: an encoder with a head answers about a text."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from regard.errors import UsageError
from regard.generation import answers
from regard.models import EncoderOnly
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.traceable import Traceable

TOKENS_PER_BATCH = 4096


class Reader(Traceable):
    """An opened model of one task."""

    head: str  # of the models that can do it, as `model.head` names them

    def __init__(self, folder: Folder) -> None:
        if not isinstance(folder.model, EncoderOnly) or folder.config.head != self.head:
            told = folder.config.head or folder.config.family
            raise UsageError(f'{folder.path}: this takes a model with the head "{self.head}", not "{told}"')
        self.folder = folder
        self.model = folder.model
        self.device = next(folder.model.parameters()).device

    def logits(self, samples: Sequence[Sample]) -> list[Tensor]:
        """Of each sample, in order; they do not depend on the neighbours."""
        return answers(self.model, samples, TOKENS_PER_BATCH, self.device)
