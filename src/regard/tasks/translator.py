"""Text in, translation out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, overload

from regard.config import Decode, resolve
from regard.data.objectives import Pairs
from regard.errors import UsageError
from regard.generation import (
    Constraint,
    Engine,
    Ensemble,
    Hypothesis,
    Lanes,
    Lexicon,
    Mean,
    Steppable,
    Word,
    decode_all,
    make_engine,
    next_words,
    score,
    scorer,
)
from regard.generation import Wish as Wanted
from regard.generation.alignment import Links, align
from regard.models import EncoderOnly, Writing
from regard.sample import Sample
from regard.storage import Folder
from regard.tasks.context import WithContext
from regard.tasks.lines import Cutter, Job, Line, TooLong, jobs
from regard.tasks.results import Alternative, Answer, Candidate, Joiner, Translation
from regard.tasks.segments import Split, segment
from regard.tasks.traceable import Traceable
from regard.tasks.wishes import Wish, check_room, compile_wishes, constraints_of, disobeyed

Say = Callable[[str], None]
Texts = Sequence[str]
SCORED = 4096  # tokens at once, each with a number for every piece of the vocabulary


class Translator(Traceable):
    """An opened translation model, or several with the same tokenizers that speak as one."""

    def __init__(self, folder: Folder, *others: Folder, precision: str = "auto") -> None:
        self.folders = (folder, *others)
        self.folder = folder  # its tokenizers and options are those of all
        for other in others:
            check_same_tokenizers(folder, other)
        self.engines = [make_engine(writing(each), precision, each.reaches) for each in self.folders]
        means: tuple[Mean, ...] = ("probability", "log")
        self.ensembles = {mean: Ensemble(self.engines, mean) for mean in means}
        self.device = next(folder.model.parameters()).device
        source, target = folder.source, folder.target
        self.objective = Pairs(source, target, folder.config.max_length).ask
        self.special = folder.special
        self.longest = min(each.config.max_length for each in self.folders) - 1  # pieces of a source
        self.split_above = min(each.split_above for each in self.folders)
        self.joiner = Joiner(folder.target.decode, folder.target.end)
        self.before = ""  # stands before every source: the language to translate into, if the model has many

    def warm_up(self) -> None:
        """Do now what the first questions would wait for."""
        for engine in self.engines:
            if isinstance(engine, Engine):
                engine.warm_up()

    def into(self, language: str) -> Translator:
        """The same with a language to translate into (`>>fra<<`), for a model that knows several."""
        known = self.folder.source.languages
        if language not in known:
            told = f"it knows {', '.join(sorted(known))}" if known else "it names no languages"
            raise UsageError(f"{self.folder.path} cannot translate into {language!r}: {told}")
        chosen = copy(self)
        chosen.before = f">>{language}<< "
        return chosen

    @cached_property
    def lexicon(self) -> Lexicon:
        return Lexicon.of(self.folder.target)

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, text: str, *, require: Texts = (), forbid: Texts = (), **options: object
    ) -> str: ...
    @overload
    def translate(
        self, text: Texts, *, require: Texts = (), forbid: Texts = (), **options: object
    ) -> list[str]: ...
    def translate(
        self, text: str | Texts, *, require: Texts = (), forbid: Texts = (), **options: object
    ) -> str | list[str]:
        """Translate one text or many; options are those of `[decode]`: beam=5, sample=True, top_p=0.9 ...

        Every translation holds the phrases of `require` and none of `forbid`, as whole words.
        """
        lines = [text] if isinstance(text, str) else list(text)
        wishes = [Wish(tuple(require), tuple(forbid))] * len(lines) if require or forbid else None
        found = self.translate_lines(lines, decode_options(self.folder.decode, options), wishes=wishes)
        texts = [each.text for each in found]
        return texts[0] if isinstance(text, str) else texts

    def translate_lines(
        self,
        lines: Texts,
        options: Decode | None = None,
        nbest: int = 1,
        alignment: bool = False,
        split: Split = "auto",
        prefixes: Texts | None = None,
        done: Callable[[int], None] = lambda count: None,
        wishes: Sequence[Wish] | None = None,
        too_long: TooLong = "cut",
        first: int = 1,
        say: Say = lambda text: None,
    ) -> list[Translation]:
        """Translate lines with everything known about them; a prefix is what the translation begins with.

        `too_long` is what to do with a sentence that the model cannot read: cut it between words, skip its
        line (the translation is empty and says so), or raise; `first` is the number of the first line in
        messages. `say` is told when memory runs short.
        """
        options = options or self.folder.decode
        if nbest > options.beam:
            raise UsageError(f"{nbest} candidates need a beam of at least {nbest}, not {options.beam}")
        wanted = compile_wishes(self.lexicon, wishes, first) if wishes else None
        splits: list[Split] = [split] * len(lines)
        if prefixes is not None or wanted is not None:  # they belong to a line as a whole
            splits = [
                "never" if prefixes is not None or (wanted and wanted[n].require) else split
                for n in range(len(lines))
            ]
        cutter = Cutter(self.folder.source, self.split_above, self.longest, too_long, self.before)
        cut = cutter.cut(lines, splits, first)
        forced = [self.folder.target.encode(prefix) for prefix in prefixes] if prefixes is not None else None
        work = list(jobs(cut, forced))
        constraints = constraints_of(work, wanted) if wanted else None
        if constraints:
            check_room(work, constraints, options, self.model(options).longest_target, first)
        found = [each[:nbest] for each in self.search(work, cut, options, constraints, done, say)]
        answers = self.answers([job.source for job in work], found, alignment)
        placed = {(job.line, job.place): answer for job, answer in zip(work, answers)}
        return [
            self.translation(number, line, placed, nbest, alignment, wanted[number] if wanted else None)
            for number, line in enumerate(cut)
        ]

    def model(self, options: Decode) -> Steppable[Any]:
        """What decodes: the one model, or all of them."""
        return self.engines[0] if len(self.engines) == 1 else self.ensembles[options.ensemble]

    def pool(self, tokens: int, rows: int | None = None, say: Say = lambda text: None) -> Lanes:
        """A running batch of translations, of at most so many pieces times beams, and rows."""
        return Lanes.over(lambda wish: self.model(wish.options), self.special, self.device, tokens, rows, say)

    def search(
        self,
        work: Sequence[Job],
        lines: Sequence[Line],
        options: Decode,
        constraints: Sequence[Constraint] | None,
        done: Callable[[int], None],
        say: Say,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each job."""
        rules = {(job.line, job.place): rule for job, rule in zip(work, constraints or ())}

        def run(portion: Sequence[Job]) -> list[list[Hypothesis]]:
            asked = [
                Wanted(self.asked(job.source), options, job.prefix, rules.get((job.line, job.place)))
                for job in portion
            ]
            return decode_all(self.pool(options.tokens_per_batch, say=say), asked, done)

        if not options.context:
            return run(work)
        source, target = self.folder.source, self.folder.target
        context = WithContext(lines, source, target, options.context, self.longest, self.before)
        return context.run(work, run)

    def asked(self, ids: Sequence[int]) -> Sequence[int]:
        """The pieces of a sentence as the model reads them."""
        return self.objective.source(ids).source

    def answers(
        self, sources: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]], alignment: bool
    ) -> list[Answer]:
        if not alignment:
            return [[(hypothesis, None) for hypothesis in own] for own in found]
        aligned = self.align(sources, found)
        return [list(zip(own, linked)) for own, linked in zip(found, aligned)]

    def translation(
        self,
        number: int,
        line: Line,
        answers: Mapping[tuple[int, int], Answer],
        nbest: int,
        alignment: bool,
        wanted: Constraint | None,
    ) -> Translation:
        if line.skipped:
            nothing = Candidate("", alignment=[] if alignment else None, finished=False)
            return Translation(line.text, [nothing], skipped=True)
        own = [answers.get((number, place)) for place in range(len(line.parts))]
        candidates = self.joiner.join(line.parts, own, nbest, alignment)
        wrong = disobeyed(wanted, candidates[0].text) if wanted and line.spoken else ()
        return Translation(line.text, candidates, line.broken, disobeyed=wrong)

    def align(
        self, sources: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Links]]:
        """Word links for every hypothesis of every part; of several models the mean of their attention."""
        pairs = [(source, h.tokens) for source, hypotheses in zip(sources, found) for h in hypotheses]
        models = [folder.model for folder in self.folders]
        signs = 1 if self.before else 0
        rest = iter(align(models, pairs, self.folder.source, self.folder.target, signs))
        return [[next(rest) for _ in hypotheses] for hypotheses in found]

    def alternatives(
        self, source: str, prefix: str = "", count: int = 5, options: Decode | None = None
    ) -> list[Alternative]:
        """The most probable next words after the beginning of a translation, each with its best ending.

        The prefix is taken as whole words; a word may be several pieces, and alternatives differ as words.
        """
        options = options or self.folder.decode
        ids = self.folder.source.encode(self.before + source.strip())
        if len(ids) > self.longest:
            raise UsageError(f"a text of {len(ids)} pieces is too long: the model reads {self.longest}")
        begun = self.folder.target.encode(prefix.strip()) if prefix.strip() else []
        sample, model = self.objective.source(ids), self.model(options)
        words = next_words(model, sample, begun, count, self.special, self.lexicon, self.device)
        forced = [[*begun, *word.pieces] for word in words if word.pieces]
        whole = Constraint(self.lexicon, whole_prefix=True)
        asked = [Wanted(sample.source, options, each, whole) for each in forced]
        endings = iter(decode_all(self.pool(options.tokens_per_batch), asked))
        return [
            Alternative(word.text, word.log_probability, self.ending(word, prefix, endings)) for word in words
        ]

    def ending(self, word: Word, prefix: str, endings: Iterator[list[Hypothesis]]) -> Candidate:
        """The translation that goes on with a word; without one it is the prefix."""
        if not word.pieces:
            return Candidate(prefix.strip(), word.log_probability, word.log_probability)
        return self.joiner.add(Candidate(""), "", segment(""), next(endings)[0], None)

    def score(self, sources: Texts, targets: Texts, mean: Mean = "probability") -> list[list[float]]:
        """log p of each piece of each given target, and of its end."""
        if len(sources) != len(targets):
            raise UsageError(f"{len(sources)} sources and {len(targets)} targets: they come in pairs")
        left = self.folder.source.encode_batch([self.before + source for source in sources])
        right = self.folder.target.encode_batch(list(targets))
        samples: list[Sample] = [self.objective.pair(s, t) for s, t in zip(left, right)]
        voice = scorer([folder.model for folder in self.folders], mean)
        return score(voice, samples, min(self.folder.decode.tokens_per_batch, SCORED), self.device)


def writing(folder: Folder) -> Writing:
    """The folder's model, if it says word after word."""
    if isinstance(folder.model, EncoderOnly):
        raise UsageError(f"{folder.path}: a {folder.config.family} model writes no text")
    return folder.model


def check_same_tokenizers(one: Folder, other: Folder) -> None:
    for left, right in ((one.source, other.source), (one.target, other.target)):
        if left.fingerprint != right.fingerprint:
            raise UsageError(
                f"{one.path} and {other.path} have different tokenizers ({left.fingerprint}, "
                f"{right.fingerprint}): models that speak together must share theirs"
            )


def decode_options(base: Decode, options: Mapping[str, object]) -> Decode:
    """The folder's options with some replaced; a wrong name or value is an error that says so."""
    tree = {"data": {"train": "phrasebook"}, "decode": {**base.model_dump(), **options}}
    return resolve(tree, where="options").decode
