"""Texts through a translator's desk: cut as `Translator.translate` cuts, decoded in company, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from regard.generation import Hypothesis
from regard.server.limits import MOST_CHARACTERS
from regard.server.refusals import Refused
from regard.server.service import Call, Service
from regard.tasks import Translator
from regard.tasks.translation import Line, LineSplitter, SegmentInput, segment_inputs


@dataclass(frozen=True)
class Cut:
    """The lines of some texts, and their parts that have something to translate."""

    lines: list[Line]
    counts: list[int]  # of lines, of each text
    work: list[SegmentInput]


async def translate(
    service: Service, name: str, translator: Translator, texts: Sequence[str], call: Call, nbest: int = 1
) -> list[list[str]]:
    """The candidates of each text, best first. Lines of a text are translated each by itself."""
    check_size(texts)
    options = translator.folder.decode
    if nbest > options.beam:
        options = options.model_copy(update={"beam": nbest})
    if options.context:  # each sentence reads the translations of those before: no work for a desk
        lines = [text.split("\n") for text in texts]
        flat = [line for own in lines for line in own]
        found = await service.run(
            name, lambda: translator.translate_lines(flat, options, nbest), call, about(flat)
        )
        return joined([[c.text for c in each.candidates] for each in found], [len(own) for own in lines])
    desk = service.desks[name]
    with desk.room((1 + options.beam) * about(texts)):
        cut = await asyncio.to_thread(cut_texts, translator, texts)
        wishes = translator.requests(cut.work, options)
    hypotheses = await desk.ask(wishes, call.client, call.deadline, promised=True)
    service.metrics.add("tokens", sum(len(job.source) for job in cut.work), kind="read", model=name)
    written = sum(len(own[0].tokens) for own in hypotheses)
    service.metrics.add("tokens", written, kind="written", model=name)
    return await asyncio.to_thread(put_together, translator, cut, hypotheses, nbest)


def about(texts: Sequence[str]) -> int:
    """About how many pieces some texts have."""
    return sum(map(len, texts)) // 4


def check_size(texts: Sequence[str]) -> None:
    size = sum(map(len, texts))
    if size > MOST_CHARACTERS:
        raise Refused(400, f"Invalid request: request ({size}) exceeds text limit ({MOST_CHARACTERS})", "q")


def cut_texts(translator: Translator, texts: Sequence[str]) -> Cut:
    lines = [text.split("\n") for text in texts]
    flat = [line for own in lines for line in own]
    splitter = LineSplitter(
        translator.folder.source, translator.split_above, translator.longest, "cut", translator.source_prefix
    )
    cut = splitter.split(flat, ["auto"] * len(flat))
    return Cut(cut, [len(own) for own in lines], segment_inputs(cut))


def put_together(
    translator: Translator, cut: Cut, found: Sequence[Sequence[Hypothesis]], nbest: int
) -> list[list[str]]:
    lines = translator.translations(cut.lines, cut.work, found, nbest)
    return joined([[each.text for each in line.candidates] for line in lines], cut.counts)


def joined(lines: Sequence[Sequence[str]], counts: Sequence[int]) -> list[list[str]]:
    """Texts of lines: the k-th candidate has the k-th of each line, or its last."""
    texts, at = [], 0
    for count in counts:
        own = lines[at : at + count]
        at += count
        most = max(map(len, own))
        texts.append(["\n".join(line[min(k, len(line) - 1)] for line in own) for k in range(most)])
    return texts
