"""What the tasks with an encoder and a head share: classify, tag, answer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from regard.errors import UsageError
from regard.generation import answers
from regard.models import EncoderOnly
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.lines import TooLong
from regard.tasks.traceable import Traceable

TOKENS_PER_BATCH = 4096


class EncoderTask(Traceable):
    """An encoder with the head of one task."""

    head: str  # `model.head` of the models that can do the task

    def __init__(self, folder: Folder) -> None:
        if not isinstance(folder.model, EncoderOnly) or folder.config.head != self.head:
            actual = folder.config.head or folder.config.family
            raise UsageError(f'{folder.path}: this needs a model with the head "{self.head}", not "{actual}"')
        self.folder = folder
        self.model = folder.model
        self.device = next(folder.model.parameters()).device

    def logits(self, samples: Sequence[Sample]) -> list[Tensor]:
        """The logits of each sample, in order; they do not depend on the batch."""
        return answers(self.model, samples, TOKENS_PER_BATCH, self.device)


def within_limit(ids: list[int], limit: int, too_long: TooLong, number: int) -> list[int] | None:
    """The ids as they are, None for a text to skip; with "error" a text above the limit is refused."""
    if len(ids) > limit and too_long == "error":
        raise UsageError(
            f"line {number}: the text has {len(ids)} tokens and the model reads {limit}; shorten it, or "
            "truncate it (too long: cut)"
        )
    return None if len(ids) > limit and too_long == "skip" else ids
