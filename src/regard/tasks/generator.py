"""Prompt in, continuation out: language models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from regard.config import Decode
from regard.config.load import searched
from regard.config.schema import DECODE_DEFAULTS
from regard.data.objectives import CausalLM
from regard.data.readers.text import document_rows
from regard.errors import UsageError
from regard.generation import Hypothesis, Request, Steppable, generate, longest_output, score
from regard.generation.grammar import ChoiceTrie, Grammar, SchemaGrammar
from regard.generation.prefixes import with_prefixes
from regard.generation.scheduler import Scheduler
from regard.generation.score import TOKENS_PER_BATCH
from regard.generation.sliding import SlidingWindow
from regard.inputs.text.detokenizer import detokenize_stream
from regard.models.transformer import LanguageModel
from regard.sample import IGNORED, Sample
from regard.storage import Folder
from regard.tasks.chat import ChatMethods
from regard.tasks.methods import GenerateMethods
from regard.tasks.results import GeneratedText, Generation, TextScore
from regard.tasks.task_model import Deferred, TooLong, Warn
from regard.tasks.translation import decode_options

# of a search that finds every output that a grammar allows, with its log-probability as its score
EXHAUSTIVE = {
    "sample": False,
    "length_penalty": 0.0,
    "min_length": 0,
    "no_repeat_ngram": 0,
    "repetition_penalty": 1.0,
    "early_stopping": False,
}


class Generator(GenerateMethods, ChatMethods):
    """An opened language model (GPT, Llama).

    It reads `window` tokens at once. A longer text continues from the last half of them, and so on. A model
    with unbounded positions (`rotary`) reads everything.
    """

    continues = True  # as far as it may, so that the longest answer is the usual one

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        if not isinstance(folder.model, LanguageModel):
            raise UsageError(f"{folder.path}: a {folder.config.family} model cannot continue a text")
        self.device = next(folder.model.parameters()).device
        self.folder, self.model, self.tokenizer = folder, folder.model, folder.source
        self.use_engines([folder], precision)
        self.sliding = SlidingWindow(self.engines[0], self.model.longest_target or folder.config.max_length)
        self.special = folder.special
        self.window = folder.config.max_length
        defaults = DECODE_DEFAULTS["generate"] | (
            {} if self.special.max_length is None else {"max_length": None}
        )
        self.decode = decode_options(Decode(), {**defaults, **folder.decode.model_dump(exclude_unset=True)})

    def options(self, given: Mapping[str, object]) -> Decode:
        """The folder's [decode] with some fields replaced; `beam` without `sample` means search."""
        return decode_options(self.decode, searched(dict(given)))

    def decode_options(self, fields: Mapping[str, Any], num_results: int) -> Decode:
        """As `options`, with a beam as wide as the results need."""
        options = self.options({name: value for name, value in fields.items() if value is not None})
        if options.sample:
            return options.model_copy(update={"beam": max(num_results, options.beam)})
        if num_results > options.beam:
            message = f"{num_results} results of a search need a beam of at least {num_results}"
            raise UsageError(f"{message}, not {options.beam}", code="E_BEAM")
        return options

    def _generate(
        self,
        prompts: Sequence[str],
        options: Decode,
        num_results: int,
        on_too_long: TooLong,
        warn: Warn,
        grammar: Grammar | None = None,
    ) -> list[Generation]:
        whole = [self.with_start(self.tokenizer.encode(prompt)) for prompt in prompts]
        limit = self.model.longest_target
        long = [limit is not None and len(ids) > limit for ids in whole]
        skipped = [each and on_too_long == "skip" for each in long]
        read = [prompt for prompt, skip in zip(prompts, skipped) if not skip]
        ids = [self.prompt_ids(prompt, on_too_long, warn) for prompt in read]
        requests = [Request(each, options, grammar=grammar) for each in ids]

        def finish(hypotheses: Sequence[Sequence[Hypothesis]]) -> list[Generation]:
            if grammar is not None and grammar.error:
                raise UsageError(grammar.error, code="E_JSON_SCHEMA")
            texts = iter(self.generated_texts(ids, hypotheses))
            if isinstance(grammar, ChoiceTrie):
                texts = map(with_probabilities, texts)
            results = []
            for prompt, skip, cut in zip(prompts, skipped, long):
                candidates = [] if skip else next(texts)[:num_results]
                best = candidates[0].text if candidates else ""
                results.append(Generation(prompt, best, candidates, cut and not skip, skip, self.precision))
            return results

        if self.defers:
            return [Deferred(requests, finish)]  # type: ignore[list-item]
        return finish(self.decode_requests(requests, options, warn))

    def structure(
        self, options: Decode, choices: Sequence[str] | None, json_schema: Mapping[str, Any] | None
    ) -> tuple[Decode, Grammar | None]:
        """The grammar of an output, and the options with it: of choices all are found and compared."""
        if choices and json_schema is not None:
            raise UsageError("choices and json_schema exclude one another; give one", code="E_CHOICES")
        if choices:
            trie = ChoiceTrie.of(self.tokenizer, choices, self.special.end)
            room = {"beam": trie.count, "max_length": trie.longest + 1}
            return options.model_copy(update=EXHAUSTIVE | room), trie
        if json_schema is None:
            return options, None
        return options, SchemaGrammar.of(self.tokenizer, json_schema, self.special.end)

    def write(
        self,
        prompts: Sequence[str],
        options: Decode | None = None,
        on_too_long: TooLong = "error",
        warn: Warn = lambda text: None,
    ) -> list[list[GeneratedText]]:
        """For each prompt its `options.beam` samples or hypotheses, best first."""
        options = options or self.decode
        ids = [self.prompt_ids(prompt, on_too_long, warn) for prompt in prompts]
        requests = [Request(each, options) for each in ids]
        return self.generated_texts(ids, self.decode_requests(requests, options, warn))

    def decode_requests(
        self, requests: Sequence[Request], options: Decode, warn: Warn
    ) -> list[list[Hypothesis]]:
        budget = options.tokens_per_batch
        return generate(self.model_for, requests, self.special, self.device, budget, warn)

    def generated_texts(
        self, ids: Sequence[Sequence[int]], results: Sequence[Sequence[Hypothesis]]
    ) -> list[list[GeneratedText]]:
        return [
            [self.generated_text(each, hypothesis) for hypothesis in hypotheses]
            for each, hypotheses in zip(ids, results)
        ]

    def stream(self, prompt: str, **options: object) -> Iterator[str]:
        """The text of `generate` in parts, as it is generated; never a part of a character."""
        return self.stream_one(prompt, self.options(options))

    def stream_one(
        self,
        prompt: str,
        options: Decode,
        draw: int = 0,
        on_too_long: TooLong = "error",
        warn: Warn = lambda text: None,
    ) -> Iterator[str]:
        """A wrong prompt raises at once. `draw` is the index of a draw among several."""
        ids = self.prompt_ids(prompt, on_too_long, warn)
        is_single = options.sample and options.beam == 1  # of several draws only the best one is streamed
        request = Request(ids, options, draw=draw if is_single else None)
        scheduler = self.scheduler(options.tokens_per_batch)
        return detokenize_stream(self.tokenizer, ids, scheduler.stream(request))

    def prompt_ids(
        self, prompt: str, on_too_long: TooLong = "error", warn: Warn = lambda text: None
    ) -> list[int]:
        """The tokens of a prompt after the start token, if the tokenizer adds one."""
        ids = self.with_start(self.tokenizer.encode(prompt))
        limit = self.model.longest_target
        if limit is None or len(ids) <= limit:
            return ids
        problem = f"the prompt has {len(ids)} tokens, but the model reads {limit} at once"
        if on_too_long == "error":
            message = f"{problem}; shorten it, or let only its end be read (on too long: truncate)"
            raise UsageError(message, code="E_TOO_LONG")
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
        """For requests that arrive over time: at most `tokens` source tokens times beams, and `rows`, run.

        The beginnings of their prompts are kept.
        """
        return Scheduler(self.arriving_model_for, self.special, self.device, tokens, rows, warn=warn)

    def model_for(self, request: Request) -> Steppable[Any]:
        return self.sliding if self.overflows(len(request.ids), request.options) else self.engines[0]

    def arriving_model_for(self, request: Request) -> Steppable[Any]:
        engine = self.model_for(request)
        return self.prefixes if engine is self.engines[0] else engine

    @cached_property
    def prefixes(self) -> Any:
        """The engine, which keeps the beginnings of prompts."""
        return with_prefixes(self.engines[0])

    def generated_text(self, ids: Sequence[int], hypothesis: Hypothesis) -> GeneratedText:
        text = "".join(detokenize_stream(self.tokenizer, ids, hypothesis.tokens))
        tokens = tuple(self.tokenizer.tokens(hypothesis.tokens))
        return GeneratedText(text, hypothesis.log_probability, hypothesis.finished, tokens, hypothesis.tokens)

    def _score(self, texts: Sequence[str], stride: int | None, end: bool) -> list[TextScore]:
        stride = max(1, self.window // 2) if stride is None else stride
        if not 1 <= stride <= self.window:
            raise UsageError(
                f"a stride of {stride}: it lies between 1 and the window of {self.window} tokens"
            )
        documents = [self.document_ids(text, end) for text in texts]
        samples = [windows(ids, self.window, stride) for ids in documents]
        rows = score(self.model, [each for group in samples for each in group], TOKENS_PER_BATCH, self.device)
        rest = iter(rows)
        return [
            TextScore.of(
                text,
                self.tokenizer.tokens(ids[1:]),
                [log_p for _ in group for log_p in next(rest)],
                precision=self.precision,
            )
            for text, ids, group in zip(texts, documents, samples)
        ]

    def document_ids(self, text: str, end: bool) -> list[int]:
        """A document as training reads it."""
        objective, rows = CausalLM(self.tokenizer, self.window), document_rows([(1, text)])
        ids = [token for _, part, target in rows for token in objective.token_ids(part, target)]
        return ids if end else ids[:-1]


def with_probabilities(texts: Sequence[GeneratedText]) -> list[GeneratedText]:
    """Choices with their share of the probability of all."""
    total = logsumexp([each.log_probability for each in texts])
    return [replace(each, probability=math.exp(each.log_probability - total)) for each in texts]


def logsumexp(values: Sequence[float]) -> float:
    highest = max(values, default=0.0)
    return highest + math.log(math.fsum(math.exp(each - highest) for each in values)) if values else 0.0


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
