"""Prompt in, continuation out: language models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

from regard.config import Decode
from regard.config.load import searched
from regard.config.schema import DECODE_DEFAULTS
from regard.data.objectives import CausalLM
from regard.data.readers.text import document_rows
from regard.errors import UsageError
from regard.generation import Hypothesis, Request, Steppable, generate, longest_output, score
from regard.generation.engine import make_engine
from regard.generation.scheduler import Scheduler
from regard.generation.score import TOKENS_PER_BATCH
from regard.generation.sliding import SlidingWindow
from regard.inputs.text import Tokenizer
from regard.metrics.language import perplexity_scores
from regard.models.transformer import LanguageModel
from regard.sample import IGNORED, Sample
from regard.storage import Folder
from regard.tasks.traceable import Traceable
from regard.tasks.translator import decode_options

TooLongPrompt = Literal["error", "cut"]
Warn = Callable[[str], None]
REPLACEMENT_CHARACTER = "\ufffd"  # of bytes that are no complete character, perhaps not yet


@dataclass(frozen=True)
class GeneratedText:
    """The continuation of a prompt; `prompt + text` is the whole."""

    prompt: str
    text: str
    tokens: tuple[int, ...]  # ids of the text
    log_probability: float  # of the text and its end, as sampled: after temperature, top-k and top-p
    finished: bool  # the model ended the text; False if the length limit truncated it


@dataclass(frozen=True)
class TextScore:
    """log p of a text, token by token."""

    text: str
    pieces: list[float]  # log p of each token, and of the end

    @property
    def numbers(self) -> dict[str, float]:
        return total_score([self])


def total_score(scores: Iterable[TextScore]) -> dict[str, float]:
    """The scores of texts as one: log_probability, tokens, bytes, perplexity, bits_per_byte."""
    log_p, tokens, size = 0.0, 0, 0
    for each in scores:
        log_p, tokens = log_p + math.fsum(each.pieces), tokens + len(each.pieces)
        size += len(each.text.encode(errors="replace"))
    totals = {"log_probability": log_p, "tokens": tokens, "bytes": size}
    return totals | perplexity_scores(log_p, tokens, size)


class Generator(Traceable):
    """An opened language model (GPT, Llama).

    It reads `window` tokens at once. A longer text continues from the last half of them, and so on. A model
    with unbounded positions (`rotary`) reads everything.
    """

    continues = True  # as far as it may, so that the longest answer is the usual one

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        if not isinstance(folder.model, LanguageModel):
            raise UsageError(f"{folder.path}: a {folder.config.family} model cannot continue a text")
        make_engine(folder.model, precision, folder.calibration)  # packs the model in place
        self.folder, self.model, self.tokenizer = folder, folder.model, folder.source
        self.device = next(folder.model.parameters()).device
        self.sliding = SlidingWindow(self.model, self.model.longest_target or folder.config.max_length)
        self.special = folder.special
        self.window = folder.config.max_length
        defaults = DECODE_DEFAULTS["generate"] | (
            {} if self.special.max_length is None else {"max_length": None}
        )
        self.decode = decode_options(Decode(), {**defaults, **folder.decode.model_dump(exclude_unset=True)})

    def options(self, given: Mapping[str, object]) -> Decode:
        """The folder's [decode] with some fields replaced; `beam` without `sample` means search."""
        return decode_options(self.decode, searched(dict(given)))

    @overload
    def generate(self, prompt: str, **options: object) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, prompt: Sequence[str], **options: object) -> list[str]: ...
    def generate(self, prompt: str | Sequence[str], **options: object) -> str | list[str]:
        """The continuation of a prompt, or of each of many, without the prompt itself.

        Options are those of `[decode]`: sample=True, temperature=0.8, top_p=0.9, seed=1, max_length=200 ...;
        `beam=1` is greedy, `beam=4` a search.
        """
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        texts = [samples[0].text for samples in self.write(prompts, self.options(options))]
        return texts[0] if isinstance(prompt, str) else texts

    def write(
        self,
        prompts: Sequence[str],
        options: Decode | None = None,
        too_long: TooLongPrompt = "error",
        warn: Warn = lambda text: None,
    ) -> list[list[GeneratedText]]:
        """For each prompt its `options.beam` draws or hypotheses, best first."""
        options = options or self.decode
        ids = [self.prompt_ids(prompt, too_long, warn) for prompt in prompts]
        requests = [Request(each, options) for each in ids]
        budget = options.tokens_per_batch
        results = generate(self.model_for, requests, self.special, self.device, budget, warn)
        return [
            [self.generated_text(prompt, each, hypothesis) for hypothesis in hypotheses]
            for prompt, each, hypotheses in zip(prompts, ids, results)
        ]

    def stream(self, prompt: str, **options: object) -> Iterator[str]:
        """The text of `generate` in parts, as it is generated; never a part of a character."""
        return self.stream_one(prompt, self.options(options))

    def stream_one(
        self,
        prompt: str,
        options: Decode,
        draw: int = 0,
        too_long: TooLongPrompt = "error",
        warn: Warn = lambda text: None,
    ) -> Iterator[str]:
        """A wrong prompt raises at once. `draw` is the index of a draw among several."""
        ids = self.prompt_ids(prompt, too_long, warn)
        is_single = options.sample and options.beam == 1  # of several draws only the best one is streamed
        request = Request(ids, options, draw=draw if is_single else None)
        scheduler = self.scheduler(options.tokens_per_batch)
        return detokenize_stream(self.tokenizer, ids, scheduler.stream(request))

    def prompt_ids(
        self, prompt: str, too_long: TooLongPrompt = "error", warn: Warn = lambda text: None
    ) -> list[int]:
        """The tokens of a prompt, after the start token if the tokenizer adds one; `cut` keeps their end."""
        ids = self.with_start(self.tokenizer.encode(prompt))
        limit = self.model.longest_target
        if limit is None or len(ids) <= limit:
            return ids
        problem = f"the prompt has {len(ids)} tokens, but the model reads {limit} at once"
        if too_long == "error":
            raise UsageError(f'{problem}; shorten it, or let only its end be read (too_long = "cut")')
        warn(f"{problem}: only its end is read")
        return ids[-limit:]

    def with_start(self, ids: Sequence[int]) -> list[int]:
        """Prompt tokens after the start token, if the tokenizer adds one or there is nothing else to read."""
        return [self.tokenizer.start, *ids] if self.tokenizer.adds_start or not ids else list(ids)

    def overflows(self, length: int, options: Decode) -> bool:
        """Whether a prompt of this length may exceed the context window."""
        limit = self.model.longest_target
        most = longest_output(options, length, 0, None, self.special.max_length)
        return limit is not None and length + most - 1 > limit  # the last token is not read

    def scheduler(self, tokens: int, rows: int | None = None, warn: Warn = lambda text: None) -> Scheduler:
        """For requests that arrive over time: at most `tokens` source tokens times beams, and `rows`, run."""
        return Scheduler(self.model_for, self.special, self.device, tokens, rows, warn=warn)

    def model_for(self, request: Request) -> Steppable[Any]:
        return self.sliding if self.overflows(len(request.ids), request.options) else self.model

    def generated_text(self, prompt: str, ids: Sequence[int], hypothesis: Hypothesis) -> GeneratedText:
        text = "".join(detokenize_stream(self.tokenizer, ids, hypothesis.tokens))
        return GeneratedText(prompt, text, hypothesis.tokens, hypothesis.log_probability, hypothesis.finished)

    def score(self, texts: Sequence[str], stride: int | None = None, end: bool = True) -> list[TextScore]:
        """log p of each token of each text, and of its end.

        A text longer than the window is read in overlapping windows, each `stride` tokens further (default:
        half of the window): each token is scored once, with at least `window - stride` tokens of context,
        where there are so many.
        """
        stride = max(1, self.window // 2) if stride is None else stride
        if not 1 <= stride <= self.window:
            raise UsageError(
                f"a stride of {stride}: it lies between 1 and the window of {self.window} tokens"
            )
        samples = [windows(self.document_ids(text, end), self.window, stride) for text in texts]
        rows = score(self.model, [each for group in samples for each in group], TOKENS_PER_BATCH, self.device)
        rest = iter(rows)
        return [
            TextScore(text, [log_p for _ in group for log_p in next(rest)])
            for text, group in zip(texts, samples)
        ]

    def document_ids(self, text: str, end: bool) -> list[int]:
        """A document as training reads it."""
        objective, rows = CausalLM(self.tokenizer, self.window), document_rows([(1, text)])
        ids = [token for _, part, target in rows for token in objective.token_ids(part, target)]
        return ids if end else ids[:-1]


def windows(ids: Sequence[int], window: int, stride: int) -> list[Sample]:
    """A text as overlapping windows; tokens that an earlier window scored are context only."""
    inputs, labels = ids[:-1], ids[1:]
    samples, scored = [], 0
    for begin in range(0, len(inputs), stride):
        last = min(begin + window, len(inputs))
        new = [*[IGNORED] * (scored - begin), *labels[scored:last]]
        samples.append(Sample(target=inputs[begin:last], labels=new))
        scored = last
        if last == len(inputs):
            break
    return samples


def detokenize_stream(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
    """The text that tokens add to a prompt, as they come; a character waits until it is complete.

    Each time only the tokens since the last complete character are decoded, with those before them, on which
    the space between depends.
    """
    ids = list(prompt)
    first, done = 0, len(ids)  # ids[first:done] are decoded; the rest is decoded after them
    text = ""  # of the rest, as far as it was returned
    for token in tokens:
        ids.append(token)
        new = added_text(tokenizer, ids[first:], done - first)
        complete = new.rstrip(REPLACEMENT_CHARACTER)
        if len(complete) > len(text):
            yield complete[len(text) :]
            text = complete
        if new == complete and new:
            first, done, text = done, len(ids), ""
    if len(rest := added_text(tokenizer, ids[first:], done - first)) > len(text):
        yield rest[len(text) :]


def added_text(tokenizer: Tokenizer, ids: Sequence[int], before: int) -> str:
    """What ids[before:] add to the text of the ids before them."""
    start, whole = tokenizer.decode(ids[:before]), tokenizer.decode(ids)
    return whole[len(start) :] if whole.startswith(start) else tokenizer.decode(ids[before:])
