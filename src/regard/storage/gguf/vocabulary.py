"""The vocabulary in a GGUF file as tokenizer.json, and back.

Two kinds: byte-level BPE with merges ("gpt2"), whose way of cutting a text is a name ("smollm", "qwen2"), and
SentencePiece ("llama"), whose tokens have scores instead of merges: of all pairs the one whose token has the
highest score is joined first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from regard.config.reading import shown
from regard.errors import UsageError
from regard.inputs.text.checks import check_content, check_vocabulary, tokenizer_errors
from regard.storage.files import Json
from regard.storage.gguf.header import REFUSED, GGUFFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # types of tokens
SPACE = "\u2581"  # SentencePiece's
MAX_WORK = 1 << 28  # characters compared while scores become merges
PIECES = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"


def by_pattern(pattern: str) -> Any:
    cut = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)]
    )


def by_digits() -> Any:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


CUTS: dict[
    str, Callable[[], Any]
] = {  # tokenizer.ggml.pre -> how a text is cut before it is joined; the first name is written
    "gpt-2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": by_digits,
    "qwen2": lambda: by_pattern(ENDINGS + PIECES % ""),
    "llama-bpe": lambda: by_pattern(ENDINGS + PIECES % "{1,3}"),
}
SAME_CUT = {"default": "gpt-2", "starcoder": "smollm", "llama3": "llama-bpe", "llama-v3": "llama-bpe"}
ROLES = {  # tokenizer.ggml.NAME_token_id -> role in tokenizer_config.json
    "bos": "bos_token",
    "eos": "eos_token",
    "unknown": "unk_token",
    "padding": "pad_token",
}


# --- from GGUF --------------------------------------------------------------------------------------------


def tokenizer_of(file: GGUFFile, size: int) -> tuple[Json, Json, Json]:
    """tokenizer.json, tokenizer_config.json and generation_config.json for an embedding of `size` rows."""
    tokens = listed(file, "tokens", str)
    kinds = listed(file, "token_type", int) or [NORMAL] * len(tokens)
    if not 1 <= len(tokens) <= size or len(kinds) != len(tokens):
        raise file.damaged(f"{len(tokens)} tokens of {len(kinds)} types for an embedding of {size}")
    used = max((number for number, kind in enumerate(kinds, 1) if kind != UNUSED), default=0)
    tokens = tokens[:used]  # further rows of the embedding have no token
    vocabulary = {token: number for number, token in enumerate(tokens)}
    with tokenizer_errors(file.path):
        try:
            check_vocabulary(vocabulary)
        except ValueError as error:
            raise file.damaged(str(error)) from None
        if len(vocabulary) < len(tokens):
            raise file.damaged("two tokens are the same")
        kind = file.metadata.get("tokenizer.ggml.model")
        if kind not in ("gpt2", "llama"):
            raise UsageError(f"{file.path}: a tokenizer of kind {shown(kind)} is not read", code=REFUSED)
        is_pieces = kind == "llama"
        pipeline = sentencepiece(file, vocabulary, kinds) if is_pieces else byte_level(file, vocabulary)
        added = [
            (token, kind) for token, kind in zip(tokens, kinds) if kind in (UNKNOWN, CONTROL, USER_DEFINED)
        ]
        pipeline.add_tokens(
            [AddedToken(t, special=False, normalized=False) for t, k in added if k == USER_DEFINED]
        )
        special = [AddedToken(t, special=True, normalized=False) for t, k in added if k != USER_DEFINED]
        pipeline.add_special_tokens(special)
        names = {role: tokens[number] for role, number in role_ids(file, len(tokens)).items()}
        start = names.get("bos_token")
        adds_start = file.metadata.get("tokenizer.ggml.add_bos_token", kind == "llama")
        if adds_start and start:
            pipeline.post_processor = processors.TemplateProcessing(
                single=f"{start} $A",
                pair=f"{start} $A {start}:1 $B:1",
                special_tokens=[(start, vocabulary[start])],
            )
        content: Json = json.loads(pipeline.to_str())
    check_content(content, file.path)
    settings: Json = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    if isinstance(template := file.metadata.get("tokenizer.chat_template"), str):
        settings["chat_template"] = template
    return content, settings, generation_of(file, len(tokens))


def listed(file: GGUFFile, name: str, form: type) -> list[Any]:
    values = file.metadata.get(f"tokenizer.ggml.{name}", [])
    if not isinstance(values, list) or not all(type(each) is form for each in values):
        raise file.damaged(f"tokenizer.ggml.{name} is not a list of the expected type")
    return values


def role_ids(file: GGUFFile, size: int) -> dict[str, int]:
    """The ids of special tokens; an id beyond the vocabulary names none."""
    ids = {role: file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name, role in ROLES.items()}
    return {role: number for role, number in ids.items() if type(number) is int and 0 <= number < size}


def generation_of(file: GGUFFile, size: int) -> Json:
    roles = role_ids(file, size)
    turn = file.metadata.get("tokenizer.ggml.eot_token_id")  # ends a turn of a chat
    ends = [each for each in (roles.get("eos_token"), turn) if type(each) is int and 0 <= each < size]
    ids: Json = {"bos_token_id": roles.get("bos_token"), "pad_token_id": roles.get("pad_token")}
    ids["eos_token_id"] = list(dict.fromkeys(ends)) if len(ends) > 1 else next(iter(ends), None)
    return {name: value for name, value in ids.items() if value is not None}


def byte_level(file: GGUFFile, vocabulary: Mapping[str, int]) -> tokenizers.Tokenizer:
    cut = file.metadata.get("tokenizer.ggml.pre", "default")
    cut = SAME_CUT.get(cut, cut) if isinstance(cut, str) else cut
    if cut not in CUTS:
        raise UsageError(
            f"{file.path}: it cuts texts as {shown(cut)}; Regard knows {', '.join(CUTS)}", code=REFUSED
        )
    merges = [tuple(each.split(" ")) for each in listed(file, "merges", str)]
    if any(len(pair) != 2 for pair in merges):
        raise file.damaged("a merge is not a pair of tokens")
    pipeline = tokenizers.Tokenizer(
        models.BPE(dict(vocabulary), merges, ignore_merges=cut == "llama-bpe")  # whole words first
    )
    if cut == "qwen2":
        pipeline.normalizer = normalizers.NFC()
    pipeline.pre_tokenizer, pipeline.decoder = CUTS[cut](), decoders.ByteLevel()
    return pipeline


def sentencepiece(
    file: GGUFFile, vocabulary: Mapping[str, int], kinds: Sequence[int]
) -> tokenizers.Tokenizer:
    scores = listed(file, "scores", float)
    if len(scores) < len(vocabulary):
        raise file.damaged(f"{len(vocabulary)} tokens have {len(scores)} scores")
    joined = {token: scores[number] for token, number in vocabulary.items() if kinds[number] == NORMAL}
    unknown = next((token for token, number in vocabulary.items() if kinds[number] == UNKNOWN), None)
    if unknown is None:
        raise file.damaged("no token stands for what is unknown")
    merges = merges_of(file, vocabulary, joined)
    model = models.BPE(dict(vocabulary), merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    pipeline = tokenizers.Tokenizer(model)
    leads = bool(file.metadata.get("tokenizer.ggml.add_space_prefix", True))
    first = [normalizers.Prepend(SPACE)] if leads else []
    pipeline.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", SPACE)])
    last = [decoders.Strip(" ", 1, 0)] if leads else []
    pipeline.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    )
    return pipeline


def merges_of(
    file: GGUFFile, vocabulary: Mapping[str, int], joined: Mapping[str, float]
) -> list[tuple[str, str]]:
    """All pairs that give a token, by its score, as transformers orders them."""
    if sum(len(token) ** 2 for token in joined) > MAX_WORK:
        raise file.damaged("its tokens are too long")
    pairs: list[tuple[float, int, int, tuple[str, str]]] = []
    for token, score in joined.items():
        cuts = ((token[:place], token[place:]) for place in range(1, len(token)))
        possible = [pair for pair in cuts if pair[0] in vocabulary and pair[1] in vocabulary]
        possible.sort(key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        pairs += [(score, len(pair[0]), len(pair[1]), pair) for pair in possible]
    pairs.sort(key=lambda each: each[:3], reverse=True)
    return [pair for *_, pair in pairs]


# --- to GGUF ----------------------------------------------------------------------------------------------


def vocabulary_to(tokenizer: Mapping[str, Any], size: int) -> dict[str, Any]:
    """The entries `tokenizer.ggml.*` of a tokenizer.json, for an embedding of `size` rows."""
    model, added = tokenizer["model"], {each["id"]: each for each in tokenizer["added_tokens"]}
    names = {number: token for token, number in model["vocab"].items()}
    names |= {number: each["content"] for number, each in added.items()}
    tokens = [names.get(number, f"[PAD{number}]") for number in range(size)]
    around = json.dumps([tokenizer["normalizer"], tokenizer["decoder"]], ensure_ascii=False)
    is_pieces = model["type"] == "BPE" and model.get("byte_fallback") and SPACE in around

    def kind(number: int) -> int:
        if number not in names:
            return UNUSED
        if number in added:
            is_unknown = is_pieces and names[number] == model["unk_token"]
            return UNKNOWN if is_unknown else CONTROL if added[number]["special"] else USER_DEFINED
        return BYTE if is_pieces and names[number].startswith("<0x") and len(names[number]) == 6 else NORMAL

    entries: dict[str, Any] = {"tokens": tokens, "token_type": [kind(number) for number in range(size)]}
    merges = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model.get("merges", [])]
    if is_pieces:
        entries |= {"model": "llama", "pre": "default", "scores": scores_to(tokens, merges)}
        return entries | {"add_space_prefix": '"Prepend"' in around}
    return entries | {
        "model": "gpt2",
        "pre": cut_to(tokenizer),
        "merges": [" ".join(pair) for pair in merges],
    }


def scores_to(tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> list[float]:
    """The earlier a token is joined the higher its score; characters come after all others."""
    first: dict[str, int] = {}
    for place, pair in enumerate(merges):
        first.setdefault("".join(pair), place)
    return [float(-first.get(token, len(merges))) for token in tokens]


def cut_to(tokenizer: Mapping[str, Any]) -> str:
    """The name of the way in which a byte-level tokenizer cuts texts."""
    steps = tokenizer["pre_tokenizer"]
    for name, make in CUTS.items():
        pipeline = tokenizers.Tokenizer(models.BPE())
        pipeline.pre_tokenizer = make()
        if steps_of(json.loads(pipeline.to_str())["pre_tokenizer"]) == steps_of(steps):
            return name
    raise UsageError(
        "this tokenizer cuts texts in a way that llama.cpp has no name for; models with the tokenizer of "
        f"Llama, {', '.join(CUTS)} can be exported",
        code=REFUSED,
    )


def steps_of(steps: Any) -> Any:
    """Without what changes no token: how offsets are counted."""
    if isinstance(steps, dict):
        return {name: steps_of(each) for name, each in steps.items() if name != "trim_offsets"}
    return [steps_of(each) for each in steps] if isinstance(steps, list) else steps
