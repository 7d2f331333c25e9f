"""Train a tokenizer on text. The same texts give the same tokenizer, byte for byte."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from regard.errors import TokenizerError, near_miss
from regard.inputs.text.byte_level import (
    BYTE_ALPHABET,
    CHUNK,
    SPECIALS,
    build_pipeline,
    finish_pipeline,
    to_byte_alphabet,
)
from regard.inputs.text.tokenizer import Tokenizer, replace_surrogates

Number = TypeVar("Number", int, float)
_BASE = [*SPECIALS, *BYTE_ALPHABET]
LEAST_VOCABULARY = len(_BASE) + 1
# Score of a special token in a unigram model: text that spells it is never encoded as it.
_NEVER = -1000.0
_LONGEST = 64  # characters of one token
_UNIGRAM_LONGEST = 16  # characters of one unigram token, as in SentencePiece
_UNIGRAM_TEXT = 4_000_000  # characters of distinct words, the most frequent first: rarer ones change little


def train_tokenizer(
    texts: Iterable[str], kind: str = "bpe", vocabulary: int = 8000, extra: Sequence[str] = ()
) -> Tokenizer:
    """Train a tokenizer with at most `vocabulary` tokens; fewer if the texts are too short for more.

    `extra` special tokens ("<mask>", T5's "<extra_id_0>"...) are included in the count and come last.
    """
    if kind not in _TRAINERS:
        names = ", ".join(_TRAINERS)
        raise TokenizerError(
            f'unknown kind of tokenizer "{kind}", it can be {names}{near_miss(kind, _TRAINERS)}'
        )
    least = LEAST_VOCABULARY + len(extra)
    if vocabulary < least:
        raise TokenizerError(
            f"a vocabulary of {vocabulary} is too small: {len(SPECIALS) + len(extra)} special tokens, 256 "
            f"bytes and one learned token need at least {least}"
        )
    clean = (replace_surrogates(text) for text in texts if text and not text.isspace())
    first = next(clean, None)
    if first is None:
        raise TokenizerError(
            "cannot train a tokenizer: the corpus has no text; give at least one line that is not blank"
        )
    pipeline = _TRAINERS[kind](chain([first], clean), vocabulary - len(extra))
    return finish_pipeline(pipeline, extra)


def _train_bpe(texts: Iterator[str], vocabulary: int) -> Pipeline:
    pipeline = build_pipeline(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=list(SPECIALS),
        initial_alphabet=BYTE_ALPHABET,
        show_progress=False,
    )
    whole_words = pipeline.pre_tokenizer
    # Time grows with the square of the longest word: one line of base64 could take hours.
    split = pre_tokenizers.Split(Regex(f".{{{_LONGEST}}}"), "isolated")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([whole_words, split])
    pipeline.train_from_iterator(texts, trainer)
    pipeline.pre_tokenizer = whole_words
    return pipeline


def _train_unigram(texts: Iterator[str], vocabulary: int) -> Pipeline:
    scores = _unigram_scores(_count_words(texts), vocabulary - len(_BASE))
    # A byte that the texts lack costs more than any token, so that it is used only if needed.
    byte_score = min(scores.values()) - 1.0
    bytes_first = [(sign, scores.pop(sign, byte_score)) for sign in BYTE_ALPHABET]
    tokens = [*((name, _NEVER) for name in SPECIALS), *bytes_first, *_ranked(scores)]
    return build_pipeline(models.Unigram(tokens, unk_id=SPECIALS.index("<unk>")))


def _unigram_scores(words: Mapping[str, int], tokens: int) -> dict[str, float]:
    """Log probabilities of the bytes of the words, and of up to `tokens` longer tokens, in the byte alphabet.

    SentencePiece's trainer on one thread is deterministic; the trainer of `tokenizers` sums in the order of a
    randomly seeded table. In the byte alphabet there is no space, tab or newline, and nothing to normalise.
    """
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer  # here: no model needs them to run

    parts: Counter[str] = Counter()
    for word, count in words.items():
        spelled = to_byte_alphabet(word)
        for start in range(0, len(spelled), _LONGEST):
            parts[spelled[start : start + _LONGEST]] += count
    rows: list[str] = []
    characters = 0
    for part, count in _ranked(parts):
        characters += len(part)
        if rows and characters > _UNIGRAM_TEXT:
            break
        rows.append(f"{part}\t{count}")
    alphabet = set("".join(rows)) & set(BYTE_ALPHABET)
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(rows),
        model_writer=model,
        model_type="unigram",
        input_format="tsv",  # a word, a tab, its count
        vocab_size=tokens + len(alphabet) + 1,  # and <unk>
        hard_vocab_limit=False,
        character_coverage=1.0,
        max_sentencepiece_length=_UNIGRAM_LONGEST,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_by_whitespace=False,
        split_by_unicode_script=False,
        split_by_number=False,
        bos_id=-1,
        eos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    trained = SentencePieceProcessor.from_proto(model.getvalue())
    names = ((trained.id_to_piece(number), trained.get_score(number)) for number in range(1, len(trained)))
    scores = {name: round(float(score), 6) for name, score in names}
    longer = [name for name, _ in _ranked(scores) if len(name) > 1][:tokens]
    return {name: scores[name] for name in scores if len(name) == 1} | {name: scores[name] for name in longer}


def _train_word(texts: Iterator[str], vocabulary: int) -> Pipeline:
    words = [to_byte_alphabet(word) for word, _ in _ranked(_count_words(texts)) if len(word) <= _LONGEST]
    names = list(dict.fromkeys([*_BASE, *words]))[:vocabulary]
    # Without merges, a word outside the vocabulary is encoded as bytes.
    model = models.BPE({name: number for number, name in enumerate(names)}, [], ignore_merges=True)
    return build_pipeline(model)


def _train_character(texts: Iterator[str], vocabulary: int) -> Pipeline:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    characters = [to_byte_alphabet(character) for character, _ in _ranked(counts)]
    names = list(dict.fromkeys([*_BASE, *characters]))[:vocabulary]
    # With equal scores the fewest tokens win: one for a character of the vocabulary, bytes for another.
    scores = [(name, _NEVER if name in SPECIALS else -1.0) for name in names]
    return build_pipeline(models.Unigram(scores, unk_id=SPECIALS.index("<unk>")), whole=True)


def _count_words(texts: Iterator[str]) -> Counter[str]:
    """Frequency of each pre-token, with the space in front that encoding puts there."""
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(CHUNK.findall(" " + text))
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True).pre_tokenize_str
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for _, (start, end) in split(chunk):
            words[chunk[start:end]] += count
    return words


def _ranked(counts: Mapping[str, Number]) -> list[tuple[str, Number]]:
    """Highest first; ties by text, so that the order is the same in each run."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


_TRAINERS: dict[str, Callable[[Iterator[str], int], Pipeline]] = {
    "bpe": _train_bpe,
    "unigram": _train_unigram,
    "word": _train_word,
    "character": _train_character,
}
KINDS = tuple(_TRAINERS)
