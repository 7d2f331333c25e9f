"""Text in, translation out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from regard.config import Decode
from regard.data.objectives import Seq2Seq
from regard.errors import UsageError, located
from regard.generation import Hypothesis, Request, Steppable, generate, score
from regard.generation.alignment import Links, align
from regard.generation.alternatives import NextWord, next_words
from regard.generation.constraints import Constraint, Lexicon
from regard.generation.ensemble import Ensemble, Mean, scorer
from regard.generation.scheduler import Scheduler
from regard.inputs.text.languages import UNKNOWN, both_between, find
from regard.models.encoder import EncoderOnly
from regard.models.families import GenerativeModel
from regard.storage import Folder
from regard.tasks.confidence import FEATURES, Checks, features
from regard.tasks.guards import Checker, Decoded
from regard.tasks.masking import LinePreparation, PreparedLine, lost_items, unmask_candidate
from regard.tasks.methods import TranslateMethods
from regard.tasks.results import Alternative, Candidate, TextScore, Translation
from regard.tasks.task_model import Rounds, Split, TooLong, Warn, run_rounds, with_old_names, within_limit
from regard.tasks.translation import (
    AlignedHypotheses,
    ContextDecoder,
    Line,
    LineSplitter,
    PhraseConstraints,
    SegmentInput,
    check_constraints,
    compile_constraints,
    decode_options,
    join_segments,
    segment,
    segment_inputs,
    violated,
)

Texts = Sequence[str]
SCORE_TOKENS = 4096  # tokens at once, each with logits over the whole vocabulary


class Translator(TranslateMethods):
    """An opened translation model, or an ensemble of several with the same tokenizers."""

    def __init__(self, folder: Folder, *others: Folder, precision: str = "auto") -> None:
        self.folders = (folder, *others)
        self.folder = folder  # its tokenizers and options apply to all
        for other in others:
            check_same_tokenizers(folder, other)
        for each in self.folders:
            generative_model(each)  # or refused
        self.use_engines(self.folders, precision)
        means: tuple[Mean, ...] = ("probability", "log")
        self.ensembles = {mean: Ensemble(self.engines, mean) for mean in means}
        self.device = next(folder.model.parameters()).device
        self.special = folder.special
        self.use_tokenizers()
        self.split_above = min(each.split_above for each in self.folders)
        fitted = folder.confidence
        self.confidence = fitted if fitted and tuple(fitted.features) == FEATURES else None  # of this version
        self.source_prefix = ""  # before every source: the target language of a multilingual model
        self.languages: tuple[str | None, str | None] = None, None  # target and source that were chosen

    def use_tokenizers(self) -> None:
        """Those of the folder, for this target language."""
        source, target = self.folder.source, self.folder.target
        shortest = min(each.config.max_length for each in self.folders)
        self.objective = Seq2Seq(source, target, shortest)
        self.longest = self.objective.longest  # tokens of a source

    def into(self, language: str | None, source: str | None = None) -> Translator:
        """The same model with a target language, and a source language, if it is multilingual.

        Some models read the target language in front of the source (`>>fra<<`), others have tokens for both.
        """
        chosen, tokenizers = copy(self), (self.folder.source, self.folder.target)
        chosen.languages = language, source
        with located(self.folder.path):
            if tokenizers[1].language_tokens:
                left, right = both_between(tokenizers, source, language)
                chosen.folder = replace(self.folder, input=left, output=right)
                chosen.use_tokenizers()
                if right.first is not None:
                    chosen.special = replace(self.special, forced_bos=right.first)
                return chosen
            languages = {code: number for number, code in enumerate(tokenizers[0].languages)}
            if source is not None or not languages:
                raise UsageError("it has no tokens for languages", code=UNKNOWN)
            find(languages, str(language))
        chosen.source_prefix = f">>{language}<< "
        return chosen

    def check_language(self) -> None:
        """A model with tokens for languages needs to know into which it translates."""
        tokens = self.folder.target.language_tokens
        if tokens and self.special.forced_bos is None and self.special.start not in tokens.values():
            raise UsageError(
                f"{self.folder.path} translates into {len(tokens)} languages: name one as `language` "
                f"({', '.join(sorted(tokens)[:3])} ...), and that of the text as `source_language`",
                code=UNKNOWN,
            )

    @cached_property
    def lexicon(self) -> Lexicon:
        return Lexicon.of(self.folder.target)

    def decode_options(self, fields: Mapping[str, Any], num_results: int) -> Decode:
        """The folder's [decode] with some fields replaced; the beam is as wide as the results need."""
        options = decode_options(self.folder.decode, fields)
        if fields.get("beam") is None and num_results > options.beam:
            return options.model_copy(update={"beam": num_results})
        return options

    def _translate(
        self,
        lines: Texts,
        options: Decode,
        num_results: int,
        alignment: bool,
        split: Split,
        prefixes: Texts | None,
        phrases: tuple[Texts, Texts],  # that all translations must and must not contain
        constraints: Sequence[PhraseConstraints] | None,  # of each line
        on_too_long: TooLong,
        checks: Checks,
        first_line: int,
        warn: Warn,
    ) -> list[Translation]:
        self.check_language()
        self.check_options(options, num_results, checks)
        if any(phrases):
            always = PhraseConstraints(*map(tuple, phrases))
            constraints = [always + each for each in constraints or [PhraseConstraints()] * len(lines)]
        compiled = compile_constraints(self.lexicon, constraints, first_line) if constraints else None
        # a prefix, required phrases and the name of a task belong to the line as a whole
        whole = [prefixes is not None or line.startswith(self.folder.prefixes) for line in lines]
        for number, constraint in enumerate(compiled or ()):
            whole[number] = whole[number] or bool(constraint.require)
        splitter = LineSplitter(
            self.folder.source, self.split_above, self.longest, on_too_long, self.source_prefix
        )
        preparation = LinePreparation(
            splitter,
            self.objective.placeholders,
            self.folder.task.source,
            checks.other_language,
            bool(self.confidence),
        )
        prepared = preparation.run(lines, split, whole, first_line)
        split_lines = [each.line for each in prepared]
        forced = [self.folder.target.encode(prefix) for prefix in prefixes] if prefixes is not None else None
        inputs = segment_inputs(split_lines, forced, compiled)
        check_constraints(inputs, options, self.model(options).longest_target, first_line)
        decode = partial(
            generate,
            self.model_for,
            special=self.special,
            device=self.device,
            tokens_per_batch=options.tokens_per_batch,
            warn=warn,
        )

        def rounds() -> Rounds[Translation]:
            outputs = yield ([] if options.context else self.requests(inputs, options))
            last: Decoded = split_lines, inputs, outputs
            if options.context:  # sentences depend on the translations of earlier ones
                context = ContextDecoder(
                    split_lines,
                    self.folder.source,
                    self.folder.target,
                    options.context,
                    self.longest,
                    self.source_prefix,
                )
                run = context.run(inputs, lambda some: decode(self.requests(some, options)))
                last = split_lines, inputs, run
            elif checks.check and not options.sample:
                checker = self.checker(options, splitter, whole)
                last = yield from checker.rounds(*last, lambda some: self.requests(some, options))
            return self.translations(prepared, *last, num_results, alignment, compiled, checks)

        return run_rounds(rounds(), None if self.defers else decode)

    def checker(self, options: Decode, splitter: LineSplitter, whole: Sequence[bool]) -> Checker:
        source, target = self.folder.source, self.folder.target
        tokens = frozenset(target.placeholders)
        return Checker(options, splitter.encode, target.decode, source, tokens, whole)

    def check_options(self, options: Decode, num_results: int, checks: Checks) -> None:
        if num_results > options.beam:
            raise UsageError(
                f"{num_results} results need a beam of at least {num_results}, not {options.beam}",
                code="E_BEAM",
            )
        if checks.min_confidence is not None and self.confidence is None:
            raise UsageError(
                f"{self.folder.path} has no confidence.json, so its translations have no confidence; "
                '"regard calibrate" with pairs of texts makes it',
                code="E_CONFIDENCE",
            )

    def model(self, options: Decode) -> Steppable[Any]:
        """What decodes: the one model, or the ensemble."""
        return self.engines[0] if len(self.engines) == 1 else self.ensembles[options.ensemble]

    def model_for(self, request: Request) -> Steppable[Any]:
        return self.model(request.options)

    def scheduler(self, tokens: int, rows: int | None = None, warn: Warn = lambda text: None) -> Scheduler:
        """For requests that arrive over time: at most `tokens` source tokens times beams, and `rows`, run."""
        return Scheduler(self.model_for, self.special, self.device, tokens, rows, warn=warn)

    def requests(self, inputs: Sequence[SegmentInput], options: Decode) -> list[Request]:
        first = self.special.forced_bos  # of one request: those of a server have several languages
        return [
            Request(
                self.source_ids(each.source), each.options or options, each.prefix, each.constraint, first
            )
            for each in inputs
        ]

    def source_ids(self, ids: Sequence[int]) -> Sequence[int]:
        """The tokens of a sentence as the model reads them, with the end token."""
        return self.objective.source_sample(ids).source_ids

    def translations(
        self,
        prepared: Sequence[PreparedLine],
        lines: Sequence[Line],
        inputs: Sequence[SegmentInput],
        hypotheses: Sequence[Sequence[Hypothesis]],
        num_results: int = 1,
        alignment: bool = False,
        constraints: Sequence[Constraint] | None = None,
        checks: Checks = Checks(),
    ) -> list[Translation]:
        """The results of lines from the hypotheses of their segments."""
        best = [each[:num_results] for each in hypotheses]
        links = self.align([each.source for each in inputs], best) if alignment else None
        by_segment: dict[tuple[int, int], AlignedHypotheses] = {
            (each.line, each.index): list(zip(best[at], links[at] if links else [None] * len(best[at])))
            for at, each in enumerate(inputs)
        }
        confidences = self.confidences(prepared, lines, inputs, hypotheses)
        results = []
        for number, (mine, line) in enumerate(zip(prepared, lines)):
            parts = [by_segment.get((number, index)) for index in range(len(line.segments))]
            result = self.result(mine, line, parts, alignment)
            wrong = violated(constraints[number], result.text) if constraints and line.translatable else ()
            results.append(checks.judged(replace(result, unmet=wrong, confidence=confidences[number])))
        return results

    def result(
        self, mine: PreparedLine, line: Line, parts: Sequence[AlignedHypotheses | None], alignment: bool
    ) -> Translation:
        if line.skipped:
            nothing = Candidate("", alignment=[] if alignment else None, finished=False)
            return Translation(line.text, "", [nothing], skipped=True, precision=self.precision)
        count = min((len(each) for each in parts if each is not None), default=1)
        candidates = [
            join_segments(line.segments, kth, self.folder.target, alignment)
            for kth in ([each[k] if each else None for each in parts] for k in range(count))
        ]
        candidates = [unmask_candidate(each, mine.masked) for each in candidates]
        text = candidates[0].text
        must_copy = line.translatable and not line.text.startswith(self.folder.prefixes)
        return Translation(
            line.text,
            text,
            candidates,
            line.broken,
            language=mine.language,
            kept=any(each.kept for each in line.segments),
            lost=lost_items(line.text, text) if must_copy else (),
            precision=self.precision,
        )

    def confidences(
        self,
        prepared: Sequence[PreparedLine],
        lines: Sequence[Line],
        inputs: Sequence[SegmentInput],
        hypotheses: Sequence[Sequence[Hypothesis]],
    ) -> list[float | None]:
        """The probability that each line is usable: that of its worst segment."""
        if self.confidence is None:
            return [None] * len(lines)
        results: list[float | None] = [None] * len(lines)
        for each, best in zip(inputs, hypotheses):
            segment = lines[each.line].segments[each.index]
            texts = [segment.finish(self.folder.target.decode(one.tokens)) for one in best]
            second = each.options is not None
            values = features(segment.text, each.source, best, texts, prepared[each.line].share, second)
            before, p = results[each.line], self.confidence.probability(values)
            results[each.line] = p if before is None else min(before, p)
        for number, line in enumerate(lines):
            if any(each.kept for each in line.segments):
                results[number] = 0.0
            elif results[number] is None:  # there was nothing to translate
                results[number] = 1.0
        return results

    def align(
        self, sources: Sequence[Sequence[int]], hypotheses: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Links]]:
        """Word links for every hypothesis of every segment; of an ensemble the mean of its attention."""
        pairs = [(source, h.tokens) for source, best in zip(sources, hypotheses) for h in best]
        models = [folder.model for folder in self.folders]
        skipped = 1 if self.source_prefix else 0
        rest = iter(align(models, pairs, self.folder.source, self.folder.target, skipped))
        return [[next(rest) for _ in best] for best in hypotheses]

    @with_old_names("translate")
    def alternatives(
        self, source: str, prefix: str = "", num_results: int = 5, options: Decode | None = None
    ) -> list[Alternative]:
        """The most probable next words after the beginning of a translation, each with its best ending.

        The prefix ends with a whole word; a word may be several tokens, and alternatives differ as words.
        """
        options = options or self.folder.decode
        masked, prefix = self.objective.masked(source.strip(), prefix.strip(), every=True)
        ids = self.folder.source.encode(self.source_prefix + masked)
        if len(ids) > self.longest:
            raise UsageError(f"a text of {len(ids)} tokens is too long: the model reads {self.longest}")
        first = () if self.special.forced_bos is None else (self.special.forced_bos,)
        start = [*first, *(self.folder.target.encode(prefix) if prefix else [])]
        sample, model = self.objective.source_sample(ids), self.model(options)
        words = next_words(model, sample, start, num_results, self.special, self.lexicon, self.device)
        whole = Constraint(self.lexicon, whole_prefix=True)
        requests = [
            Request(sample.source, options, [*start, *word.tokens], whole) for word in words if word.tokens
        ]
        endings = iter(
            generate(self.model_for, requests, self.special, self.device, options.tokens_per_batch)
        )
        unmasked = partial(self.objective.unmasked, source=source.strip())
        candidates = [self.ending(word, prefix, endings) for word in words]
        return [
            Alternative(unmasked(word.text), word.log_probability, replace(each, text=unmasked(each.text)))
            for word, each in zip(words, candidates)
        ]

    def ending(self, word: NextWord, prefix: str, endings: Iterator[list[Hypothesis]]) -> Candidate:
        """The translation that continues with a word; without a word it is the prefix."""
        if not word.tokens:
            return Candidate(prefix, word.log_probability, word.log_probability)
        return join_segments([segment("")], [(next(endings)[0], None)], self.folder.target, aligned=False)

    def _score(self, sources: Texts, targets: Texts, mean: Mean, on_too_long: TooLong) -> list[TextScore]:
        pairs = [self.objective.masked(*pair, every=True) for pair in zip(sources, targets)]
        left = self.folder.source.encode_batch([self.source_prefix + source for source, _ in pairs])
        right = self.folder.target.encode_batch([target for _, target in pairs])
        cut, samples = [], []
        for number, ids in enumerate(zip(left, right), 1):
            kept = [within_limit(each, self.longest, on_too_long, number) for each in ids]
            cut.append(None if None in kept else max(map(len, ids)) > self.longest)
            source, target = (each[: self.longest] for each in ids)
            samples.append(self.objective.sample(source, target))
        read = [sample for sample, is_cut in zip(samples, cut) if is_cut is not None]
        model = scorer([folder.model for folder in self.folders], mean)
        rows = iter(score(model, read, min(self.folder.decode.tokens_per_batch, SCORE_TOKENS), self.device))
        end, first = self.folder.target.end, len(self.objective.first)
        return [
            TextScore.of(target, [], [], source=source, skipped=True, precision=self.precision)
            if is_cut is None
            else TextScore.of(
                target,
                self.folder.target.tokens([*ids[: self.longest], end]),
                next(rows)[first:],  # the language of the target is given
                source=source,
                truncated=is_cut,
                precision=self.precision,
            )
            for source, target, ids, is_cut in zip(sources, targets, right, cut)
        ]


def generative_model(folder: Folder) -> GenerativeModel:
    """The folder's model, if it generates text."""
    if isinstance(folder.model, EncoderOnly):
        raise UsageError(f"{folder.path}: a {folder.config.family} model generates no text")
    return folder.model


def check_same_tokenizers(one: Folder, other: Folder) -> None:
    for left, right in ((one.source, other.source), (one.target, other.target)):
        if left.fingerprint != right.fingerprint:
            raise UsageError(
                f"{one.path} and {other.path} have different tokenizers ({left.fingerprint}, "
                f"{right.fingerprint}): the models of an ensemble must share theirs"
            )
