"""Picture in, text out: captions, and answers to questions about pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.config import Decode
from regard.errors import UsageError
from regard.generation import Hypothesis, Request, Steppable, generate
from regard.generation.scheduler import Scheduler
from regard.models.transformer import EncoderDecoder
from regard.storage import Folder
from regard.tasks.media import read_frames
from regard.tasks.media_methods import CaptionMethods
from regard.tasks.results import Candidate, Caption
from regard.tasks.task_model import Deferred, Warn
from regard.tasks.translation import decode_options

FILES_AT_ONCE = 64  # whose frames are in memory


class Captioner(CaptionMethods):
    """An encoder of pictures with a decoder of text. A question is what the decoder reads first."""

    reads_files = True

    def __init__(self, folder: Folder, precision: str = "auto") -> None:
        if not isinstance(folder.model, EncoderDecoder) or folder.task.input == "text":
            raise UsageError(f"{folder.path}: a {folder.config.family} model describes no pictures")
        self.folder, self.tokenizer, self.special = folder, folder.target, folder.special
        self.device = next(folder.model.parameters()).device
        self.use_engines([folder], precision)

    def decode_options(self, fields: Mapping[str, Any], num_results: int) -> Decode:
        """The folder's [decode] with some fields replaced; the beam is as wide as the results need."""
        options = decode_options(self.folder.decode, fields)
        if fields.get("beam") is None and num_results > options.beam:
            return options.model_copy(update={"beam": num_results})
        return options

    def _caption(
        self,
        files: Sequence[Any],
        questions: Sequence[str],
        options: Decode,
        num_results: int,
        first_line: int,
        warn: Warn,
    ) -> list[Caption]:
        if num_results > options.beam:
            message = f"{num_results} results need a beam of at least {num_results}, not {options.beam}"
            raise UsageError(message, code="E_BEAM")
        if len(files) > FILES_AT_ONCE and not self.defers:
            return [
                each
                for at in range(0, len(files), FILES_AT_ONCE)
                for each in self._caption(
                    files[at : at + FILES_AT_ONCE],
                    questions[at : at + FILES_AT_ONCE],
                    options,
                    num_results,
                    first_line + at,
                    warn,
                )
            ]
        prompts = [self.prompt_ids(question, at) for at, question in enumerate(questions, first_line)]
        read = [read_frames(self.reader, each, "truncate", at) for at, each in enumerate(files, first_line)]
        requests = [Request(each.sample.source, options, prompt) for each, prompt in zip(read, prompts)]

        def finish(hypotheses: Sequence[Sequence[Hypothesis]]) -> list[Caption]:
            results = []
            for file, question, prompt, best in zip(read, questions, prompts, hypotheses, strict=True):
                candidates = [self.candidate(each, len(prompt)) for each in best[:num_results]]
                text = candidates[0].text if candidates else ""
                results.append(Caption(file.name, text, candidates, question, precision=self.precision))
            return results

        if self.defers:
            return [Deferred(requests, finish)]  # type: ignore[list-item]
        budget = options.tokens_per_batch
        return finish(generate(self.model_for, requests, self.special, self.device, budget, warn))

    def prompt_ids(self, question: str, number: int) -> list[int]:
        """A question as the decoder reads it before its answer."""
        ids = self.tokenizer.encode(question) if question else []
        longest = self.engines[0].longest_target
        if longest is not None and len(ids) + 1 >= longest:
            raise UsageError(
                f"question {number}: its {len(ids)} tokens leave no room for an answer: the decoder reads "
                f"{longest}; shorten it",
                code="E_TOO_LONG",
            )
        return ids

    def candidate(self, hypothesis: Hypothesis, prompt: int) -> Candidate:
        """A hypothesis without the `prompt` tokens of the question."""
        tokens = hypothesis.tokens[prompt:]
        return Candidate(
            self.tokenizer.decode(tokens),
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.finished,
            tuple(self.tokenizer.tokens(tokens)),
            tokens,
            hypothesis.token_log_probabilities[prompt:],
        )

    def model_for(self, request: Request) -> Steppable[Any]:
        engine: Steppable[Any] = self.engines[0]
        return engine

    def scheduler(self, tokens: int, rows: int | None = None, warn: Warn = lambda text: None) -> Scheduler:
        """For requests that arrive over time: at most `tokens` frames times beams, and `rows`, run."""
        return Scheduler(self.model_for, self.special, self.device, tokens, rows, warn=warn)
