"""Learn a vocabulary from text. The same texts give the same tokenizer, byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from regard.errors import UsageError, near_miss
from regard.inputs.text.tokenizer import (
    BYTE_ALPHABET,
    CHUNK,
    SPECIALS,
    Tokenizer,
    build_pipeline,
    finish_pipeline,
    replace_surrogates,
    to_byte_alphabet,
)
from regard.inputs.text.unigram import learn_pieces

Number = TypeVar("Number", int, float)

_BASE = [*SPECIALS, *BYTE_ALPHABET]
LEAST_VOCABULARY = len(_BASE) + 1
# A score so low that a special is never the best way to write a text that merely looks like it.
_NEVER = -1000.0
_LONGEST = 64  # characters of one piece


def learn(
    texts: Iterable[str], kind: str = "bpe", vocabulary: int = 8000, extra: Sequence[str] = ()
) -> Tokenizer:
    """Train a tokenizer with at most `vocabulary` pieces; fewer when the texts have no more to give.

    `extra` specials ("<mask>", T5's "<extra_id_0>"...) count among them and stand at the end.
    """
    if kind not in _LEARNERS:
        names = ", ".join(_LEARNERS)
        raise UsageError(f'unknown kind of tokenizer "{kind}", it can be {names}{near_miss(kind, _LEARNERS)}')
    least = LEAST_VOCABULARY + len(extra)
    if vocabulary < least:
        raise UsageError(
            f"a vocabulary of {vocabulary} is too small: {len(SPECIALS) + len(extra)} specials, 256 bytes "
            f"and something to learn need at least {least}"
        )
    clean = _without_blanks(texts)
    first = next(clean, None)
    if first is None:
        raise UsageError(
            "cannot train a tokenizer: the corpus has no text; give at least one line that is not blank"
        )
    pipeline = _LEARNERS[kind](chain([first], clean), vocabulary - len(extra))
    return finish_pipeline(pipeline, extra)


def _without_blanks(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if text and not text.isspace():
            yield replace_surrogates(text)


def _learn_bpe(texts: Iterator[str], vocabulary: int) -> Pipeline:
    pipeline = build_pipeline(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=list(SPECIALS),
        initial_alphabet=BYTE_ALPHABET,
        show_progress=False,
    )
    whole_words = pipeline.pre_tokenizer
    # Time grows with the square of the longest word, so one line of base64 could take hours.
    cut = pre_tokenizers.Split(Regex(f".{{{_LONGEST}}}"), "isolated")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([whole_words, cut])
    pipeline.train_from_iterator(texts, trainer)
    pipeline.pre_tokenizer = whole_words
    return pipeline


def _learn_unigram(texts: Iterator[str], vocabulary: int) -> Pipeline:
    scores = learn_pieces(_count_words(texts), vocabulary - len(_BASE))
    # Bytes that the texts do not use cost more than any piece, so they stay the last resort.
    last_resort = min(scores.values()) - 1.0
    ranked = {to_byte_alphabet(piece): score for piece, score in _ranked(scores)}
    byte_scores = [(sign, ranked.pop(sign, last_resort)) for sign in BYTE_ALPHABET]
    pieces = [*((name, _NEVER) for name in SPECIALS), *byte_scores, *ranked.items()]
    return build_pipeline(models.Unigram(pieces, unk_id=SPECIALS.index("<unk>")))


def _learn_word(texts: Iterator[str], vocabulary: int) -> Pipeline:
    pieces = [to_byte_alphabet(word) for word, _ in _ranked(_count_words(texts)) if len(word) <= _LONGEST]
    names = list(dict.fromkeys([*_BASE, *pieces]))[:vocabulary]
    # Without merges, a word outside the vocabulary stays a row of bytes.
    model = models.BPE({name: number for number, name in enumerate(names)}, [], ignore_merges=True)
    return build_pipeline(model)


def _learn_character(texts: Iterator[str], vocabulary: int) -> Pipeline:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    pieces = [to_byte_alphabet(character) for character, _ in _ranked(counts)]
    names = list(dict.fromkeys([*_BASE, *pieces]))[:vocabulary]
    # Equal scores make the fewest pieces the best: a known character is one piece, another its bytes.
    scores = [(name, _NEVER if name in SPECIALS else -1.0) for name in names]
    return build_pipeline(models.Unigram(scores, unk_id=SPECIALS.index("<unk>")), whole=True)


def _count_words(texts: Iterator[str]) -> Counter[str]:
    """How often each pre-token occurs, with the space in front that encoding will put there."""
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(CHUNK.findall(" " + text))
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True).pre_tokenize_str
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for _, (start, end) in cut(chunk):
            words[chunk[start:end]] += count
    return words


def _ranked(counts: Mapping[str, Number]) -> list[tuple[str, Number]]:
    """Highest first; ties by text, so that the order never depends on the run."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


_LEARNERS: dict[str, Callable[[Iterator[str], int], Pipeline]] = {
    "bpe": _learn_bpe,
    "unigram": _learn_unigram,
    "word": _learn_word,
    "character": _learn_character,
}
KINDS = tuple(_LEARNERS)
