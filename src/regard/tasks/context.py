"""Long lines sentence by sentence, each with the sentences before it and what was said for them.

A model that was trained on several sentences a line reads `x_{j-n} .. x_j` and is made to begin with its own
`y_{j-n} .. y_{j-1}`; only what follows, `y_j`, is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from regard.generation import Hypothesis
from regard.inputs.text import Tokenizer
from regard.tasks.lines import Job, Line

Search = Callable[[Sequence[Job]], list[list[Hypothesis]]]


class WithContext:
    """Decodes the first part of every line, then the second of every line with the first before it, ..."""

    def __init__(
        self,
        lines: Sequence[Line],
        source: Tokenizer,
        target: Tokenizer,
        sentences: int,
        longest: int,
        before: str = "",  # every source: the sign of a language
    ) -> None:
        self.lines, self.source, self.target = lines, source, target
        self.sentences, self.longest, self.before = sentences, longest, before
        self.said: dict[tuple[int, int], str] = {}  # what each part of each line became

    def run(self, work: Sequence[Job], search: Search) -> list[list[Hypothesis]]:
        """The hypotheses of each job, in order, without their context."""
        found: dict[tuple[int, int], list[Hypothesis]] = {}
        for together in rounds(work):
            answers = self.read_on(together, search)
            silent = [job for job, own in zip(together, answers) if not own[0].tokens and self.said]
            alone = iter(search(silent))  # a model that has nothing to add shall not lose a sentence
            for job, own in zip(together, answers):
                best = next(alone) if job in silent else own
                found[job.line, job.place] = best
                self.said[job.line, job.place] = self.target.decode(best[0].tokens)
        return [found[job.line, job.place] for job in work]

    def read_on(self, together: Sequence[Job], search: Search) -> list[list[Hypothesis]]:
        """What jobs give behind their context."""
        wide = [self.widen(job) for job in together]
        return [
            [self.narrow(each, len(widened.prefix) - len(job.prefix)) for each in hypotheses]
            for job, widened, hypotheses in zip(together, wide, search(wide))
        ]

    def widen(self, job: Job) -> Job:
        """The job with as many of the sentences before it as are wanted and fit."""
        before = [place for place in self.lines[job.line].spoken if place < job.place]
        for first in before[-self.sentences :]:
            text, said = self.joined(job.line, first, job.place)
            source, prefix = self.source.encode(self.before + text), self.target.encode(said)
            if len(source) <= self.longest and len(prefix) + len(job.source) <= self.longest:
                return replace(job, source=source, prefix=prefix)
        return job

    def joined(self, line: int, first: int, last: int) -> tuple[str, str]:
        """The source from one part to another, and what was said for all but the last of them."""
        text, said = "", ""
        for place in range(first, last):
            part = self.lines[line].parts[place]
            text += part.before + part.text + part.after
            said += part.before + self.said.get((line, place), "") + part.after
        return (text + self.lines[line].parts[last].text).strip(), said.strip()

    def narrow(self, hypothesis: Hypothesis, context: int) -> Hypothesis:
        """A hypothesis without the `context` pieces before it, nor the space that parts it from them."""
        tokens = hypothesis.tokens[context:]
        if context and tokens and self.target.content[tokens[0]] == b" ":
            context, tokens = context + 1, tokens[1:]
        details = hypothesis.token_log_probabilities[context:]
        return replace(hypothesis, tokens=tokens, token_log_probabilities=details)


def rounds(work: Sequence[Job]) -> list[list[Job]]:
    """The first job of every line, the second of every line, ..."""
    found: list[list[Job]] = []
    for _, own in groupby(work, key=lambda job: job.line):
        for rank, job in enumerate(own):
            if rank == len(found):
                found.append([])
            found[rank].append(job)
    return found
