"""A beginning in, what follows out: language models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from regard.config import Decode
from regard.config.load import searched
from regard.config.presets import DECODE_DEFAULTS
from regard.data.objectives import Continuation
from regard.data.rows.text import parts_of
from regard.errors import UsageError
from regard.generation import (
    Hypothesis,
    Lanes,
    Steppable,
    Wish,
    decode_all,
    longest_output,
    make_engine,
    score,
)
from regard.generation.score import TOKENS_PER_BATCH
from regard.generation.stream import Sliding, stream
from regard.inputs.text import Tokenizer
from regard.models import LanguageModel
from regard.sample import IGNORED, Sample
from regard.storage import Folder
from regard.tasks.traceable import Traceable
from regard.tasks.translator import decode_options
from regard.training.metrics import language

TooLongPrompt = Literal["error", "cut"]
Say = Callable[[str], None]
HALF_A_SIGN = "\ufffd"  # what bytes decode to that are no whole character, perhaps not yet


@dataclass(frozen=True)
class Written:
    """What a model wrote after a prompt; `prompt + text` is the whole."""

    prompt: str
    text: str
    tokens: tuple[int, ...]  # ids of the text
    log_probability: float  # of the text and its end, as drawn: after temperature, top-k and top-p
    finished: bool  # the model ended the text; False where the length limit cut it off


@dataclass(frozen=True)
class Scored:
    """How probable a text is, piece by piece."""

    text: str
    pieces: list[float]  # log p of each, and of the end

    @property
    def numbers(self) -> dict[str, float]:
        return together([self])


def together(scored: Iterable[Scored]) -> dict[str, float]:
    """The numbers of texts as one: log_probability, tokens, bytes, perplexity, bits_per_byte."""
    log_p, tokens, size = 0.0, 0, 0
    for each in scored:
        log_p, tokens = log_p + math.fsum(each.pieces), tokens + len(each.pieces)
        size += len(each.text.encode(errors="replace"))
    own = {"log_probability": log_p, "tokens": tokens, "bytes": size}
    return own | language(log_p, tokens, size)


class Generator(Traceable):
    """An opened language model (GPT, Llama).

    It reads `window` pieces at once. What is longer goes on from the last half of them, and so on. A model
    whose positions have no end (`rotary`) reads all that there is.
    """

    continues = True  # as far as it may, so that the longest answer is the usual one

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        if not isinstance(folder.model, LanguageModel):
            raise UsageError(f"{folder.path}: a {folder.config.family} model does not go on with a text")
        make_engine(folder.model, precision, folder.reaches)
        self.folder, self.model, self.tokenizer = folder, folder.model, folder.source
        self.device = next(folder.model.parameters()).device
        self.sliding = Sliding(self.model, self.model.longest_target or folder.config.max_length)
        self.special = folder.special
        self.window = folder.config.max_length
        told = folder.decode.model_dump(exclude_unset=True)  # what stands in the folder
        usual = DECODE_DEFAULTS["generate"] | ({} if self.special.longest is None else {"max_length": None})
        self.decode = decode_options(Decode(), {**usual, **told})

    def options(self, given: Mapping[str, object]) -> Decode:
        """The folder's [decode] with some fields replaced; a beam without `sample` asks for a search."""
        return decode_options(self.decode, searched(dict(given)))

    @overload
    def generate(self, prompt: str, **options: object) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, prompt: Sequence[str], **options: object) -> list[str]: ...
    def generate(self, prompt: str | Sequence[str], **options: object) -> str | list[str]:
        """What follows a prompt, or each of many, without the prompt itself.

        Options are those of `[decode]`: sample=True, temperature=0.8, top_p=0.9, seed=1, max_length=200 ...;
        `beam=1` is greedy, `beam=4` a search.
        """
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        texts = [found[0].text for found in self.write(prompts, self.options(options))]
        return texts[0] if isinstance(prompt, str) else texts

    def write(
        self,
        prompts: Sequence[str],
        options: Decode | None = None,
        too_long: TooLongPrompt = "error",
        say: Say = lambda text: None,
    ) -> list[list[Written]]:
        """For each prompt its `options.beam` draws or hypotheses, best first."""
        options = options or self.decode
        read = [self.read(prompt, too_long, say) for prompt in prompts]
        found = decode_all(self.pool(options.tokens_per_batch, say=say), [Wish(ids, options) for ids in read])
        return [
            [self.written(prompt, ids, each) for each in own]
            for prompt, ids, own in zip(prompts, read, found)
        ]

    def stream(self, prompt: str, **options: object) -> Iterator[str]:
        """The text of `generate` piece by piece, as it comes; never a part of a character."""
        return self.stream_one(prompt, self.options(options))

    def stream_one(
        self,
        prompt: str,
        options: Decode,
        draw: int = 0,
        too_long: TooLongPrompt = "error",
        say: Say = lambda text: None,
    ) -> Iterator[str]:
        """What is wrong with a prompt is said at once. `draw` is the number of a draw among several."""
        ids = self.read(prompt, too_long, say)
        alone = options.sample and options.beam == 1  # of several draws all come: the best one is told
        wish = Wish(ids, options, draw=draw if alone else None)
        return spelled(self.tokenizer, ids, stream(self.pool(options.tokens_per_batch), wish))

    def read(self, prompt: str, too_long: TooLongPrompt = "error", say: Say = lambda text: None) -> list[int]:
        """`<s>` and the pieces of a prompt; of one that is too long, the end if that is wished."""
        ids = [self.tokenizer.start, *self.tokenizer.encode(prompt)]
        limit = self.model.longest_target
        if limit is None or len(ids) <= limit:
            return ids
        told = f"the prompt has {len(ids)} pieces, its start included, but the model reads {limit} at once"
        if too_long == "error":
            raise UsageError(f"{told}; shorten it, or let only its end be read (--too-long cut)")
        say(f"{told}: only its end is read")
        return ids[-limit:]

    def overflows(self, length: int, options: Decode) -> bool:
        """Whether a prompt of this length may lead beyond what the model reads at once."""
        limit = self.model.longest_target
        most = longest_output(options, length, 0, None, self.special.longest)
        return limit is not None and length + most - 1 > limit  # the last piece is not read

    def pool(self, tokens: int, rows: int | None = None, say: Say = lambda text: None) -> Lanes:
        """A running batch of texts, of at most so many prompt pieces times beams, and rows."""
        return Lanes.over(self.model_for, self.special, self.device, tokens, rows, say)

    def model_for(self, wish: Wish) -> Steppable[Any]:
        return self.sliding if self.overflows(len(wish.ids), wish.options) else self.model

    def written(self, prompt: str, ids: Sequence[int], found: Hypothesis) -> Written:
        text = "".join(spelled(self.tokenizer, ids, found.tokens))
        return Written(prompt, text, found.tokens, found.log_probability, found.finished)

    def score(self, texts: Sequence[str], stride: int | None = None, end: bool = True) -> list[Scored]:
        """log p of each piece of each text, and of its end.

        A text longer than the window is read in windows that overlap, each `stride` pieces further (half of
        the window unless told): each piece counts once, with at least `window - stride` pieces before it,
        where there are so many.
        """
        stride = max(1, self.window // 2) if stride is None else stride
        if not 1 <= stride <= self.window:
            raise UsageError(
                f"a stride of {stride}: it lies between 1 and the window of {self.window} pieces"
            )
        samples = [windows(self.pieces(text, end), self.window, stride) for text in texts]
        rows = score(self.model, [each for own in samples for each in own], TOKENS_PER_BATCH, self.device)
        rest = iter(rows)
        return [
            Scored(text, [log_p for _ in own for log_p in next(rest)]) for text, own in zip(texts, samples)
        ]

    def pieces(self, text: str, end: bool) -> list[int]:
        """A document as training reads it."""
        objective = Continuation(self.tokenizer, self.window)
        ids = [
            piece for _, part, more in parts_of([(1, text)]) for piece in objective.pieces(part, bool(more))
        ]
        return ids if end else ids[:-1]


def windows(ids: Sequence[int], window: int, stride: int) -> list[Sample]:
    """A text as what a model reads at once; what an earlier window asked for is read and not asked again."""
    read, said = ids[:-1], ids[1:]
    found, asked = [], 0
    for begin in range(0, len(read), stride):
        last = min(begin + window, len(read))
        labels = [*[IGNORED] * (asked - begin), *said[asked:last]]
        found.append(Sample(target=read[begin:last], labels=labels))
        asked = last
        if last == len(read):
            break
    return found


def spelled(tokenizer: Tokenizer, prompt: Sequence[int], pieces: Iterable[int]) -> Iterator[str]:
    """The text that pieces add to a prompt, as they come; a character waits until it is whole.

    Each time only the pieces since the last whole character are decoded, with those before them, on which it
    depends whether a space stands between.
    """
    ids = list(prompt)
    first, done = 0, len(ids)  # ids[first:done] have been told, and the rest is spelt after them
    told = ""  # of the rest
    for piece in pieces:
        ids.append(piece)
        text = added(tokenizer, ids[first:], done - first)
        whole = text.rstrip(HALF_A_SIGN)
        if len(whole) > len(told):
            yield whole[len(told) :]
            told = whole
        if text == whole and text:
            first, done, told = done, len(ids), ""
    if len(rest := added(tokenizer, ids[first:], done - first)) > len(told):
        yield rest[len(told) :]


def added(tokenizer: Tokenizer, ids: Sequence[int], before: int) -> str:
    """What the ids from number `before` on add to the text of those before them."""
    begun, whole = tokenizer.decode(ids[:before]), tokenizer.decode(ids)
    return whole[len(begun) :] if whole.startswith(begun) else tokenizer.decode(ids[before:])
