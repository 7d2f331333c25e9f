"""Compare another engine's output with Regard's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from regard.config import Decode
from regard.data.objectives import Seq2Seq
from regard.errors import RegardError, TokenizerError
from regard.export.sample import EncodedText, Ids
from regard.generation import decode, score
from regard.generation.requests import EXTRA_LENGTH
from regard.inputs.text import SpecialTokens, Tokenizer
from regard.models.encoder import EncoderOnly
from regard.models.transformer import LanguageModel
from regard.sample import Sample
from regard.storage import Folder

GREEDY, BEAM = 1, 4
DIFFERS = "E_EXPORT_DIFFERS"
CONTINUATION = 32  # tokens that a language model generates
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Tolerance:
    """What an export must reach."""

    equal: float = 0.995  # share of equal texts, for each search
    largest: float = 1e-3  # difference of a log-probability or a logit
    mean: float = 1e-3


TOLERANCES = {  # of log-probabilities, by precision
    "float32": Tolerance(),
    "float16": Tolerance(equal=0.9, largest=float("inf"), mean=0.01),
    "int8": Tolerance(equal=0.0, largest=float("inf"), mean=0.1),
}
LOGITS = Tolerance(largest=1e-4, mean=1e-4)


@dataclass(frozen=True)
class Agreement:
    """How far another engine agrees with Regard."""

    texts: int
    equal: dict[str, float]  # share of equal texts, by search
    largest: float  # difference of a log-probability or a logit
    mean: float

    def require(self, tolerance: Tolerance, engine: str) -> None:
        search, share = min(self.equal.items(), key=lambda item: item[1])
        # one text may always differ: of two hypotheses with equal scores either may come first
        if share < min(tolerance.equal, 1 - 1 / self.texts):
            raise RegardError(
                f"the export is refused: {engine} gives Regard's text ({search}) for {share:.1%} of "
                f"{self.texts} texts, and {tolerance.equal:.1%} are needed; nothing was written",
                code=DIFFERS,
            )
        # written so that NaN fails too
        if not (self.largest <= tolerance.largest and self.mean <= tolerance.mean):
            raise RegardError(
                f"the export is refused: the numbers of {engine} differ from Regard's by up to "
                f"{self.largest:.2g}, {self.mean:.2g} on average; nothing was written",
                code=DIFFERS,
            )

    @property
    def summary(self) -> str:
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.equal.items())
        return f"{self.texts} texts, equal: {shares}; largest difference of a number {self.largest:.1g}"


def equal_share(expected: Sequence[object], actual: Sequence[object]) -> float:
    return sum(one == other for one, other in zip(expected, actual, strict=True)) / len(expected)


class Reference:
    """Regard's output for the texts of a check. The model is not packed: its weights are still needed."""

    def __init__(self, folder: Folder, texts: Sequence[EncodedText]) -> None:
        if isinstance(folder.model, EncoderOnly):
            raise ValueError("an encoder generates no text")
        self.folder, self.model = folder, folder.model
        self.is_decoder_only = isinstance(folder.model, LanguageModel)
        special = folder.special  # the other fields belong to the search, not to the model
        self.special = SpecialTokens(special.start, special.end, special.suppressed)
        self.objective = Seq2Seq(folder.source, folder.target, folder.config.max_length)
        half = max(1, min(CONTINUATION, folder.config.max_length // 2 - 1))
        if self.is_decoder_only:
            self.texts, self.limit = [replace(text, source=text.source[:half]) for text in texts], half
        else:
            self.texts = list(texts)
            limit = max(len(text.source) for text in texts) + EXTRA_LENGTH
            self.limit = min(limit, self.model.longest_target or limit)

    @property
    def prompts(self) -> list[Ids]:
        """What the model reads, with special tokens."""
        if self.is_decoder_only:
            return [prompt(self.folder.source, text.source) for text in self.texts]
        return [self.folder.source.framed(text.source) for text in self.texts]

    def search(self, beam: int, suppress: bool = True) -> list[Ids]:
        """The best hypothesis for each text, with CTranslate2's early stopping.

        `suppress` the special tokens that no text contains.
        """
        options = Decode(beam=beam, early_stopping=True, max_length=self.limit, length_penalty=1.0)
        samples = [Sample(source=prompt) for prompt in self.prompts]
        special = self.special if suppress else replace(self.special, suppressed=())
        hypotheses = decode(self.model, samples, options, special, CPU)
        return [list(each[0].tokens) for each in hypotheses]

    def log_probabilities(self, targets: Sequence[Ids]) -> list[list[float]]:
        """Of each token of each target; a language model scores its prompts."""
        if self.is_decoder_only:
            samples = [Sample(target=ids[:-1], labels=ids[1:]) for ids in self.prompts]
        else:
            samples = [self.objective.sample(text.source, ids) for text, ids in zip(self.texts, targets)]
        return score(self.model, samples, 4096, CPU)

    def detokenize(self, rows: Sequence[Ids]) -> list[str]:
        return [self.folder.target.decode(row) for row in rows]


def prompt(tokenizer: Tokenizer, ids: Ids) -> Ids:
    """A start token where the tokenizer adds one; two tokens at least, so that one can be scored."""
    return [tokenizer.start, *ids] if tokenizer.adds_start or len(ids) < 2 else ids


def token_names(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary by id."""
    names = tokenizer.names
    if len(set(names)) < len(names):
        raise TokenizerError("two tokens of the vocabulary have one name, which other engines do not support")
    return names
