"""Change the vocabulary of a tokenizer: put words in, or leave out tokens that no text needs.

Both give the tokenizer and, for each of its ids, the old ids whose embeddings it begins with (their mean).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken

from regard.config.reading import shown
from regard.errors import UsageError
from regard.inputs.text.byte_level import BYTE_ALPHABET, ByteLevelTokenizer
from regard.inputs.text.checks import to_pipeline
from regard.inputs.text.hf import HFTokenizer
from regard.inputs.text.sentencepiece import SentencePieceTokenizer
from regard.inputs.text.tokenizer import Tokenizer

CODE = "E_INIT_VOCABULARY"
LONGEST = 100  # characters of a new token
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_LANGUAGE = re.compile(">>.+<<")
Rows = list[list[int]]  # old ids of each new one


def extended(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[Tokenizer, Rows]:
    """With words that are one token each; letters and digits only where they are a word of a text."""
    if not isinstance(tokenizer, HFTokenizer | ByteLevelTokenizer):
        raise UsageError("init.new_tokens: the vocabulary of a .spm file cannot grow", code=CODE)
    pipeline = to_pipeline(tokenizer.to_json())
    vocabulary = pipeline.get_vocab()
    for word in words:
        if not word or len(word) > LONGEST or re.search(r"\s", word) or word in vocabulary:
            reason = "a token already" if word in vocabulary else f"no word of 1 to {LONGEST} characters"
            raise UsageError(f"init.new_tokens: {shown(word)} is {reason}", code=CODE)
    is_bytes = '"ByteLevel"' in json.dumps(json.loads(tokenizer.to_json())["decoder"])
    if wrong := next((word for word in words if is_bytes and not word.isascii()), None):
        raise UsageError(  # their decoders would read its letters as bytes
            f"init.new_tokens: {shown(wrong)}: a byte-level vocabulary takes words of ASCII alone", code=CODE
        )
    pieces = [tokenizer.encode(word) for word in words]
    pipeline.add_tokens(
        [AddedToken(word, normalized=False, single_word=bool(re.fullmatch(r"\w+", word))) for word in words]
    )
    whole = rebuilt(tokenizer, pipeline.to_str(), {})
    grown = pipeline.get_vocab()
    rows = [[number] for number in range(len(tokenizer))] + [[0]] * (len(whole) - len(tokenizer))
    for word, old in zip(words, pieces):
        rows[grown[word]] = old
    return whole, rows


def trimmed_to(tokenizer: Tokenizer, used: Collection[int]) -> tuple[Tokenizer, Rows]:
    """With the used tokens, special and added ones, and what those are made of; in the same order."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return without_ids(tokenizer, used)
    if not isinstance(tokenizer, HFTokenizer | ByteLevelTokenizer):
        raise UsageError("init.trim: not for this kind of tokenizer", code=CODE)
    content = json.loads(tokenizer.to_json())
    model, vocabulary = content["model"], vocabulary_of(content["model"])
    names = {number: name for name, number in vocabulary.items()}
    added = {token["content"]: int(token["id"]) for token in content["added_tokens"]}
    kept = {names[number] for number in used if number in names} | (added.keys() & vocabulary.keys())
    kept |= {name for name in vocabulary if name in BYTE_ALPHABET or _BYTE.fullmatch(name)}
    if isinstance(model.get("unk_token"), str):
        kept |= {model["unk_token"]} & vocabulary.keys()
    if isinstance(model.get("unk_id"), int):
        kept.add(names[model["unk_id"]])
    merges = [
        tuple(each.split(" ", 1)) if isinstance(each, str) else tuple(each)
        for each in model.get("merges", [])
    ]
    for left, right in reversed(merges):  # parts of a token come before it
        if left + right in kept:
            kept |= {left, right}
    ids = {vocabulary[name] for name in kept} | set(added.values())
    new = {old: number for number, old in enumerate(sorted(ids))}
    if isinstance(model["vocab"], list):
        model["vocab"] = [each for number, each in enumerate(model["vocab"]) if number in new]
    else:
        model["vocab"] = {name: new[number] for name, number in vocabulary.items() if name in kept}
    if "merges" in model:
        model["merges"] = [list(pair) for pair in merges if {*pair, "".join(pair)} <= kept]
    if isinstance(model.get("unk_id"), int):
        model["unk_id"] = new[model["unk_id"]]
    for token in content["added_tokens"]:
        token["id"] = new[token["id"]]
    content["post_processor"] = renumbered(content.get("post_processor"), new)
    return rebuilt(tokenizer, json.dumps(content), new), [[old] for old in sorted(ids)]


def without_ids(tokenizer: SentencePieceTokenizer, used: Collection[int]) -> tuple[Tokenizer, Rows]:
    """Only ids are left out: the .spm file splits texts as before, and a token without an id is <unk>."""
    vocabulary, special = (
        tokenizer._vocabulary,
        {tokenizer.end, tokenizer.pad, tokenizer.start, tokenizer.unknown},
    )
    kept = sorted(
        number
        for name, number in vocabulary.items()
        if number in used or number in special or _LANGUAGE.fullmatch(name) or _BYTE.fullmatch(name)
    )
    new = {old: number for number, old in enumerate(kept)}
    names = {name: new[number] for name, number in vocabulary.items() if number in new}
    sizes = {"pieces": len(kept), "start": new[tokenizer.start]}
    settings = {**tokenizer.settings, "regard": sizes}
    return SentencePieceTokenizer(tokenizer._model, names, settings, "source.spm"), [[old] for old in kept]


def vocabulary_of(model: Mapping[str, Any]) -> dict[str, int]:
    vocab = model["vocab"]
    return (
        {name: number for number, (name, _) in enumerate(vocab)} if isinstance(vocab, list) else dict(vocab)
    )


def renumbered(part: Any, new: Mapping[int, int]) -> Any:
    """A post-processor with new ids: "ids" of a template, or ["[SEP]", 102] of BERT's and RoBERTa's."""
    if isinstance(part, dict):
        return {
            name: [new[each] for each in value] if name == "ids" else renumbered(value, new)
            for name, value in part.items()
        }
    if isinstance(part, list):
        if len(part) == 2 and isinstance(part[0], str) and isinstance(part[1], int):
            return [part[0], new[part[1]]]
        return [renumbered(each, new) for each in part]
    return part


def rebuilt(tokenizer: HFTokenizer | ByteLevelTokenizer, content: str, new: Mapping[int, int]) -> Tokenizer:
    """A tokenizer of the same class; `new` has the new ids if there are fewer."""
    if isinstance(tokenizer, ByteLevelTokenizer):
        return ByteLevelTokenizer(to_pipeline(content))
    start, size = tokenizer.start, len(tokenizer)
    sizes = {"start": new.get(start, start), "pieces": len(new) or size}
    return HFTokenizer(to_pipeline(content), {**tokenizer.settings, "regard": sizes}, "tokenizer.json")
