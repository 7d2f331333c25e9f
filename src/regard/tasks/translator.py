"""Text in, translation out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from regard.config import Decode, resolve
from regard.data import Sample
from regard.decode import Hypothesis, decode, make_engine, score
from regard.errors import UsageError
from regard.machine import choose_machine
from regard.store import Folder, open_folder
from regard.tasks.segments import Segment, Split, segments
from regard.trace import Links, cross_weights, links, word_weights
from regard.train.evaluate import objective, special

ALIGNED_AT_ONCE = 64
Answer = list[tuple[Hypothesis, Links | None]]  # the candidates of one part


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. `score` and `log_probability` are sums over its sentences."""

    text: str
    score: float
    log_probability: float
    alignment: Links | None = None


@dataclass(frozen=True)
class Translation:
    source: str
    candidates: list[Candidate]  # best first

    @property
    def text(self) -> str:
        return self.candidates[0].text


class Translator:
    """An opened translation model."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.engine = make_engine(folder.model)
        self.device = next(folder.model.parameters()).device
        self.objective = objective(folder.source, folder.target)
        self.special = special(folder.target)

    @overload
    def translate(self, text: str, **options: object) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Sequence[str], **options: object) -> list[str]: ...
    def translate(self, text: str | Sequence[str], **options: object) -> str | list[str]:
        """Translate one text or many; options are those of `[decode]`: beam=5, sample=True, top_p=0.9 ..."""
        lines = [text] if isinstance(text, str) else list(text)
        texts = [
            found.text for found in self.translate_lines(lines, decode_options(self.folder.decode, options))
        ]
        return texts[0] if isinstance(text, str) else texts

    def translate_lines(
        self,
        lines: Sequence[str],
        options: Decode | None = None,
        nbest: int = 1,
        alignment: bool = False,
        split: Split = "auto",
        prefixes: Sequence[str] | None = None,
        done: Callable[[int], None] = lambda count: None,
    ) -> list[Translation]:
        """Translate lines with everything known about them; a prefix is what the translation begins with."""
        options = options or self.folder.decode
        if nbest > options.beam:
            raise UsageError(f"{nbest} candidates need a beam of at least {nbest}, not {options.beam}")
        if prefixes is not None and split != "never":
            split = "never"  # a prefix belongs to the line as a whole
        cut = [self.cut(line, split) for line in lines]
        parts = [part for line in cut for part in line if part.text]
        forced = self.forced(prefixes, cut) if prefixes is not None else None
        sources = self.folder.source.encode_batch([part.text for part in parts])
        samples = [self.objective.source(ids) for ids in sources]
        found = decode(self.engine, samples, options, self.special, self.device, forced, done)
        chosen = [hypotheses[:nbest] for hypotheses in found]
        aligned = self.align(sources, chosen) if alignment else None
        answers = iter(
            [
                [(h, aligned[number][rank] if aligned else None) for rank, h in enumerate(hypotheses)]
                for number, hypotheses in enumerate(chosen)
            ]
        )
        return [Translation(line, self.join(own, answers, nbest, alignment)) for line, own in zip(lines, cut)]

    def cut(self, line: str, split: Split) -> list[Segment]:
        pieces = lambda text: len(self.folder.source.encode(text))  # noqa: E731
        return segments(line, pieces, split, self.folder.split_above, self.folder.config.max_length - 1)

    def forced(self, prefixes: Sequence[str], cut: Sequence[Sequence[Segment]]) -> list[list[int]]:
        """The prefix of each part: that of its line if it is the line's first, else none."""
        found: list[list[int]] = []
        for prefix, line in zip(prefixes, cut, strict=True):
            ids = self.folder.target.encode(prefix)
            for part in line:
                if part.text:
                    found.append(ids)
                    ids = []
        return found

    def join(
        self, line: Sequence[Segment], answers: Iterator[Answer], nbest: int, aligned: bool
    ) -> list[Candidate]:
        """Put the parts of a line back together: the k-th candidate is made of the k-th of each part."""
        own = [next(answers) if part.text else None for part in line]
        count = min((len(answer) for answer in own if answer is not None), default=1)
        return [
            self.join_one(line, [answer[k] if answer else None for answer in own], aligned)
            for k in range(min(nbest, count))
        ]

    def join_one(
        self, line: Sequence[Segment], chosen: Sequence[tuple[Hypothesis, Links | None] | None], aligned: bool
    ) -> Candidate:
        text, score, log_probability = "", 0.0, 0.0
        alignment: Links | None = [] if aligned else None
        read = ""  # the source up to here
        for part, answer in zip(line, chosen):
            read, text = read + part.before, text + part.before
            if answer is not None:
                hypothesis, own = answer
                said = self.folder.target.decode(hypothesis.tokens)
                if alignment is not None and own is not None:
                    seen, told = words_before(read, part.text), words_before(text, said)
                    alignment += [(source + seen, target + told) for source, target in own]
                score += hypothesis.score
                log_probability += hypothesis.log_probability
                text += said
            read, text = read + part.text + part.after, text + part.after
        return Candidate(text, score, log_probability, alignment)

    def align(
        self, sources: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Links]]:
        """Word links for every hypothesis of every part."""
        pairs = [(source, h.tokens) for source, hypotheses in zip(sources, found) for h in hypotheses]
        flat: list[Links] = []
        for start in range(0, len(pairs), ALIGNED_AT_ONCE):
            portion = pairs[start : start + ALIGNED_AT_ONCE]
            weights = cross_weights(self.folder.model, [self.objective.pair(s, t) for s, t in portion])
            for (source, target), table in zip(portion, weights):
                words = self.folder.source.words(source), self.folder.target.words(target)
                flat.append(links(word_weights(table, *words)))
        rest = iter(flat)
        return [[next(rest) for _ in hypotheses] for hypotheses in found]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[list[float]]:
        """log p of each piece of each given target, and of its end."""
        if len(sources) != len(targets):
            raise UsageError(f"{len(sources)} sources and {len(targets)} targets: they come in pairs")
        left = self.folder.source.encode_batch(list(sources))
        right = self.folder.target.encode_batch(list(targets))
        samples: list[Sample] = [self.objective.pair(s, t) for s, t in zip(left, right)]
        return score(self.folder.model, samples, self.folder.decode.tokens_per_batch, self.device)


def words_before(text: str, following: str) -> int:
    """The number of the first word of `following`; where a word was cut in two, it goes on in that word."""
    cut = text and following and not text[-1].isspace() and not following[0].isspace()
    return len(text.split()) - bool(cut)


def decode_options(base: Decode, options: Mapping[str, object]) -> Decode:
    """The folder's options with some replaced; a wrong name or value is an error that says so."""
    tree = {"data": {"train": "phrasebook"}, "decode": {**base.model_dump(), **options}}
    return resolve(tree, where="options").decode


def load(path: str | Path, device: str = "auto", threads: int = 0) -> Translator:
    """Open a model folder: `regard.load("runs/demo").translate("...")`."""
    machine = choose_machine(device, precision="float32", threads=threads)
    machine.use()
    return Translator(open_folder(Path(path), machine.device))
