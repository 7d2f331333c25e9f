"""Generation settings of other programs: generation_config.json, or config.json in old folders.

Settings with a field in `[decode]` become a `Decode`, which the user may change; special tokens, also forced
and suppressed ones, become a `Special`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regard.config.reading import shown
from regard.config.schema import Decode
from regard.errors import UsageError
from regard.inputs.text import SpecialTokens, Tokenizer, special_tokens
from regard.storage.files import Json, read_json

DECODE = {  # their name -> field of [decode]
    "num_beams": "beam",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "repetition_penalty": "repetition_penalty",
}
WRONG, UNSUPPORTED = "E_GENERATION_CONFIG", "E_GENERATION_UNSUPPORTED"
SAMPLING = {"do_sample": "sample", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p"}
DEFAULT_TOP_K = 50  # of transformers

# Settings that Regard does not support, with the value that turns them off.
OFF: dict[str, Any] = {
    "num_beam_groups": 1,
    "diversity_penalty": 0,
    "penalty_alpha": None,
    "typical_p": 1,
    "top_h": None,
    "min_p": None,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "exponential_decay_length_penalty": None,
    "sequence_bias": None,
    "guidance_scale": 1,
    "watermarking_config": None,
    "force_words_ids": None,
    "constraints": None,
    "dola_layers": None,
    "stop_strings": None,
    "max_time": None,
    "token_healing": False,
}


def read_generation(home: Path, content: Json) -> tuple[Path, Json]:
    """The settings of a folder and their file. A generation_config.json replaces those of config.json."""
    file = home / "generation_config.json"
    if not file.is_file():
        return home / "config.json", content
    ids = {name: value for name, value in content.items() if name.endswith("_start_token_id")}
    return file, {**ids, **read_json(file)}


def decode_of(settings: Json, file: Path, has_prompt: bool) -> Decode:
    """Greedy search by default, as in transformers."""
    for name, off in OFF.items():
        if settings.get(name) not in (off, None):
            raise UsageError(
                f"{file}: {name} = {shown(settings[name])} is not supported by Regard", code=UNSUPPORTED
            )
    names = {**DECODE, **SAMPLING}
    fields = {field: settings[name] for name, field in names.items() if settings.get(name) is not None}
    if not fields.get("sample") and fields.get("temperature") == 0:  # means greedy
        del fields["temperature"]
    if fields.get("sample"):
        fields.setdefault("top_k", DEFAULT_TOP_K)
    # Theirs counts the start token, or the whole prompt; ours counts the output.
    for bound, least in (("max", 1), ("min", 0)):
        new, whole = _count(settings, f"{bound}_new_tokens", file), _count(settings, f"{bound}_length", file)
        if new is None and whole is not None and not has_prompt:
            new = max(least, whole - 1)
        if new is not None:
            fields[f"{bound}_length"] = new
    try:
        return Decode.model_validate({"beam": 1, **fields})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{file}: {place}: {first['msg']}", code=WRONG) from None


def special_of(settings: Json, file: Path, target: Tokenizer, has_prompt: bool) -> SpecialTokens:
    """The tokenizer's special tokens, with those that the folder forces and suppresses."""
    default, size = special_tokens(target), len(target)

    def several(name: str) -> tuple[int, ...]:
        value = settings.get(name)
        values = [] if value is None else value if isinstance(value, list) else [value]
        return tuple(_ids(values, name, size, file))

    def one(name: str) -> int | None:
        values = several(name)
        if len(values) > 1:
            raise UsageError(
                f"{file}: {name} = {shown(settings[name])} is more than one token", code=UNSUPPORTED
            )
        return next(iter(values), None)

    bad = settings.get("bad_words_ids") or []
    if not isinstance(bad, list):
        raise UsageError(f"{file}: bad_words_ids = {shown(bad)} is not a list of lists of ids", code=WRONG)
    sequences = [tuple(_ids(each, "bad_words_ids", size, file)) for each in bad]
    end, *ends = _end_tokens(settings.get("eos_token_id"), default.end, size, file)
    # transformers never suppresses an end token by bad_words_ids
    single = {each[0] for each in sequences if len(each) == 1} - {end, *ends}
    start = one("decoder_start_token_id")
    timeless = one("no_timestamps_token_id")
    times = range(size if timeless is None else timeless + 1, size)  # which no file need name
    return SpecialTokens(
        start=default.start if start is None or has_prompt else start,
        end=end,
        ends=tuple(ends),
        suppressed=tuple(
            sorted({*default.suppressed} - {end, *ends, *times} | single | {*several("suppress_tokens")})
        ),
        bad_words=tuple(each for each in sequences if len(each) > 1),
        begin_suppressed=several("begin_suppress_tokens"),
        forced_bos=None if has_prompt else one("forced_bos_token_id"),
        forced_eos=one("forced_eos_token_id"),
        max_length=_count(settings, "max_length", file) if has_prompt else None,
        min_length=(_count(settings, "min_length", file) or 0) if has_prompt else 0,
        no_timestamps=timeless,
        renormalize=settings.get("renormalize_logits") is True,
    )


def _end_tokens(value: object, default: int, size: int, file: Path) -> list[int]:
    """The tokens at which generation stops, the tokenizer's first. Ids beyond the vocabulary never occur."""
    values = [] if value is None else value if isinstance(value, list) else [value]
    if any(type(each) is not int for each in values):
        raise UsageError(f"{file}: eos_token_id = {shown(value)} is not a list of token ids", code=WRONG)
    ends = [each for each in dict.fromkeys(values) if 0 <= each < size] or [default]
    return sorted(ends, key=lambda each: each != default)


def _count(settings: Json, name: str, file: Path) -> int | None:
    value = settings.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise UsageError(f"{file}: {name} = {shown(value)} is not a number of tokens", code=WRONG)
    return value


def _ids(value: object, name: str, size: int, file: Path) -> Sequence[int]:
    if isinstance(value, list) and all(type(each) is int and 0 <= each < size for each in value):
        return value
    raise UsageError(f"{file}: {name} = {shown(value)} is not a list of ids of the {size} tokens", code=WRONG)
