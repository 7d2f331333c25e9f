"""Whether another engine says what we say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch

from regard.config import Decode
from regard.data.objectives import Seq2Seq
from regard.errors import RegardError
from regard.export.sample import Pieces, Text
from regard.generation import decode, score
from regard.generation.requests import EXTRA_LENGTH
from regard.inputs.text import SpecialTokens
from regard.models import EncoderOnly, LanguageModel
from regard.sample import Sample
from regard.storage import Folder

GREEDY, BEAM = 1, 4
GOES_ON = 32  # pieces that a language model adds to a text
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Bar:
    """What an export must reach."""

    equal: float = 0.995  # share of texts, of each search
    largest: float = 1e-3  # difference of a log-probability or a logit
    mean: float = 1e-3


BARS = {  # of log-probabilities, by precision
    "float32": Bar(),
    # rounded weights give other numbers; these are the marks of a model that still is the same one
    "float16": Bar(equal=0.9, largest=float("inf"), mean=0.01),
    "int8": Bar(equal=0.0, largest=float("inf"), mean=0.1),
}
LOGITS = Bar(largest=1e-4, mean=1e-4)


@dataclass(frozen=True)
class Figures:
    """How far another engine agrees with us."""

    texts: int
    equal: dict[str, float]  # of each search, the share of texts that are the same
    largest: float  # difference of a number of the same meaning: a log-probability or a logit
    mean: float

    def demand(self, bar: Bar, engine: str) -> None:
        worst, share = min(self.equal.items(), key=lambda item: item[1])
        # one text may always differ: of two answers of the same score either may come first
        if share < min(bar.equal, 1 - 1 / self.texts):
            raise RegardError(
                f"the export is refused: {engine} gives Regard's text ({worst}) for {share:.1%} of "
                f"{self.texts} texts, and {bar.equal:.1%} are needed; nothing was written"
            )
        # written so that NaN fails too
        if not (self.largest <= bar.largest and self.mean <= bar.mean):
            raise RegardError(
                f"the export is refused: the numbers of {engine} differ from Regard's by up to "
                f"{self.largest:.2g}, {self.mean:.2g} in the mean; nothing was written"
            )

    @property
    def told(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.equal.items())
        return f"{self.texts} texts, equal: {shares}; largest difference of a number {self.largest:.1g}"

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def share(ours: Sequence[object], theirs: Sequence[object]) -> float:
    return sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(ours)


class Reference:
    """What our own model says about the texts of a sample; unpacked, because its weights are still needed."""

    def __init__(self, folder: Folder, texts: Sequence[Text]) -> None:
        if isinstance(folder.model, EncoderOnly):
            raise ValueError("an encoder writes no text")
        self.folder, self.model = folder, folder.model
        self.alone = isinstance(folder.model, LanguageModel)
        own = folder.special  # wishes beyond these are the search's, not the model's
        self.special = SpecialTokens(own.start, own.end, own.suppressed)
        self.objective = Seq2Seq(folder.source, folder.target, folder.config.max_length)
        room = folder.config.max_length
        half = max(1, min(GOES_ON, room // 2 - 1))
        self.texts = [Text(text.source[:half], text.target) for text in texts] if self.alone else list(texts)
        longest = max(len(text.source) for text in self.texts)
        wanted = half if self.alone else longest + EXTRA_LENGTH
        reads = self.model.longest_target
        self.limit = wanted if reads is None or self.alone else min(wanted, reads)

    @property
    def prompts(self) -> list[Pieces]:
        """What is read, with the specials that belong to it."""
        start, end = self.folder.source.start, self.folder.source.end
        return [[start, *text.source] if self.alone else [*text.source, end] for text in self.texts]

    def search(self, beam: int, banned: bool = True) -> list[Pieces]:
        """The best hypothesis for each text, ending the search as CTranslate2 does.

        `banned`: what no text contains is never said.
        """
        options = Decode(beam=beam, early_stopping=True, max_length=self.limit, length_penalty=1.0)
        samples = [Sample(source=prompt) for prompt in self.prompts]
        rules = self.special if banned else replace(self.special, suppressed=())
        found = decode(self.model, samples, options, rules, CPU)
        return [list(each[0].tokens) for each in found]

    def log_probabilities(self, targets: Sequence[Pieces]) -> list[list[float]]:
        """Of each piece of each target; a language model's target is the text that it reads."""
        if self.alone:
            samples = [Sample(target=ids[:-1], labels=ids[1:]) for ids in self.prompts]
        else:
            samples = [self.objective.sample(text.source, own) for text, own in zip(self.texts, targets)]
        return score(self.model, samples, 4096, CPU)

    def spoken(self, rows: Sequence[Pieces]) -> list[str]:
        return [self.folder.target.decode(row) for row in rows]
