"""Translates texts through a scheduler: split as in `Translator.translate`, decoded in its batch, joined."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from regard.generation import Hypothesis
from regard.server.errors import APIError
from regard.server.requests import MOST_CHARACTERS
from regard.server.service import Call, Service
from regard.tasks import Translator
from regard.tasks.translation import Line, LineSplitter, SegmentInput, segment_inputs


@dataclass(frozen=True)
class SplitTexts:
    """The lines of texts, and their segments to translate."""

    lines: list[Line]
    counts: list[int]  # lines per text
    work: list[SegmentInput]


async def translate(
    service: Service, name: str, translator: Translator, texts: Sequence[str], call: Call, nbest: int = 1
) -> list[list[str]]:
    """The candidates of each text, best first. Each line is translated separately."""
    check_size(texts)
    options = translator.folder.decode
    if nbest > options.beam:
        options = options.model_copy(update={"beam": nbest})
    if options.context:  # sentences depend on earlier translations: not batched
        lines = [text.split("\n") for text in texts]
        flat = [line for text_lines in lines for line in text_lines]
        translations = await service.run(
            name, lambda: translator.translate_lines(flat, options, nbest), call, about(flat)
        )
        return joined(
            [[c.text for c in each.candidates] for each in translations],
            [len(text_lines) for text_lines in lines],
        )
    scheduler = service.schedulers[name]
    with scheduler.reserve((1 + options.beam) * about(texts)):
        cut = await asyncio.to_thread(split_texts, translator, texts)
        requests = translator.requests(cut.work, options)
    hypotheses = await scheduler.generate(requests, call.client, call.deadline, promised=True)
    service.metrics.add("tokens", sum(len(job.source) for job in cut.work), kind="read", model=name)
    written = sum(len(text_lines[0].tokens) for text_lines in hypotheses)
    service.metrics.add("tokens", written, kind="written", model=name)
    return await asyncio.to_thread(join_translations, translator, cut, hypotheses, nbest)


def about(texts: Sequence[str]) -> int:
    """Estimated number of tokens."""
    return sum(map(len, texts)) // 4


def check_size(texts: Sequence[str]) -> None:
    size = sum(map(len, texts))
    if size > MOST_CHARACTERS:
        raise APIError(400, f"Invalid request: request ({size}) exceeds text limit ({MOST_CHARACTERS})", "q")


def split_texts(translator: Translator, texts: Sequence[str]) -> SplitTexts:
    lines = [text.split("\n") for text in texts]
    flat = [line for text_lines in lines for line in text_lines]
    splitter = LineSplitter(
        translator.folder.source,
        translator.split_above,
        translator.longest,
        "truncate",
        translator.source_prefix,
    )
    cut = splitter.split(flat, ["auto"] * len(flat))
    return SplitTexts(cut, [len(text_lines) for text_lines in lines], segment_inputs(cut))


def join_translations(
    translator: Translator, cut: SplitTexts, hypotheses: Sequence[Sequence[Hypothesis]], nbest: int
) -> list[list[str]]:
    lines = translator.translations(cut.lines, cut.work, hypotheses, nbest)
    return joined([[each.text for each in line.candidates] for line in lines], cut.counts)


def joined(lines: Sequence[Sequence[str]], counts: Sequence[int]) -> list[list[str]]:
    """Joined lines: the k-th candidate has the k-th candidate of each line, or its last."""
    texts, at = [], 0
    for count in counts:
        text_lines = lines[at : at + count]
        at += count
        most = max(map(len, text_lines))
        texts.append(["\n".join(line[min(k, len(line) - 1)] for line in text_lines) for k in range(most)])
    return texts
