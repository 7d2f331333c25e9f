"""Long lines sentence by sentence, each with the preceding sentences and their translations.

A model trained on several sentences a line reads `x_{j-n} .. x_j`, and its output is forced to begin with its
own `y_{j-n} .. y_{j-1}`; only the rest, `y_j`, is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from regard.generation import Hypothesis
from regard.inputs.text import Tokenizer
from regard.tasks.lines import Line, SegmentInput

DecodeInputs = Callable[[Sequence[SegmentInput]], list[list[Hypothesis]]]


@dataclass
class ContextDecoder:
    """Decodes the first segment of every line, then the second of every line after the first, ..."""

    lines: Sequence[Line]
    source: Tokenizer
    target: Tokenizer
    sentences: int  # preceding sentences at most
    longest: int  # tokens
    source_prefix: str = ""
    translations: dict[tuple[int, int], str] = field(default_factory=dict)  # by line and segment

    def run(self, inputs: Sequence[SegmentInput], decode: DecodeInputs) -> list[list[Hypothesis]]:
        """The hypotheses of each input, in order, without their context."""
        results: dict[tuple[int, int], list[Hypothesis]] = {}
        for batch in rounds(inputs):
            hypotheses = self.decode_with_context(batch, decode)
            empty = [
                each for each, best in zip(batch, hypotheses) if not best[0].tokens and self.translations
            ]
            alone = iter(decode(empty))  # no sentence is lost if the model adds nothing to the context
            for each, best in zip(batch, hypotheses):
                best = next(alone) if each in empty else best
                results[each.line, each.index] = best
                self.translations[each.line, each.index] = self.target.decode(best[0].tokens)
        return [results[each.line, each.index] for each in inputs]

    def decode_with_context(
        self, batch: Sequence[SegmentInput], decode: DecodeInputs
    ) -> list[list[Hypothesis]]:
        extended = [self.extend(each) for each in batch]
        return [
            [self.without_context(each, len(wide.prefix) - len(short.prefix)) for each in hypotheses]
            for short, wide, hypotheses in zip(batch, extended, decode(extended))
        ]

    def extend(self, one: SegmentInput) -> SegmentInput:
        """The input with as many preceding sentences as are configured and fit."""
        before = [index for index in self.lines[one.line].translatable if index < one.index]
        for first in before[-self.sentences :]:
            text, translation = self.join(one.line, first, one.index)
            source, prefix = self.source.encode(self.source_prefix + text), self.target.encode(translation)
            if len(source) <= self.longest and len(prefix) + len(one.source) <= self.longest:
                return replace(one, source=source, prefix=prefix)
        return one

    def join(self, line: int, first: int, last: int) -> tuple[str, str]:
        """The source from one segment to another, and the translation of all but the last of them."""
        text, translation = "", ""
        for index in range(first, last):
            part = self.lines[line].segments[index]
            text += part.before + part.text + part.after
            translation += part.before + self.translations.get((line, index), "") + part.after
        return (text + self.lines[line].segments[last].text).strip(), translation.strip()

    def without_context(self, hypothesis: Hypothesis, context: int) -> Hypothesis:
        """A hypothesis without its first `context` tokens and the space after them."""
        tokens = hypothesis.tokens[context:]
        if context and tokens and self.target.token_bytes[tokens[0]] == b" ":
            context, tokens = context + 1, tokens[1:]
        log_p = hypothesis.token_log_probabilities[context:]
        return replace(hypothesis, tokens=tokens, token_log_probabilities=log_p)


def rounds(inputs: Sequence[SegmentInput]) -> list[list[SegmentInput]]:
    """The first input of every line, the second of every line, ..."""
    batches: list[list[SegmentInput]] = []
    for _, group in groupby(inputs, key=lambda each: each.line):
        for rank, each in enumerate(group):
            if rank == len(batches):
                batches.append([])
            batches[rank].append(each)
    return batches
