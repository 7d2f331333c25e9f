"""How the model of another program chooses its words: generation_config.json, or config.json if it is old.

What `[decode]` has a field for becomes a `Decode`, which a person may change; what is forced or forbidden, a
`Special`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regard.config import Decode
from regard.config.reading import shown
from regard.errors import UsageError
from regard.inputs.text import Special, Tokenizer, special
from regard.storage.files import Json, read_json

DECODE = {  # their names of how words are chosen
    "num_beams": "beam",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "repetition_penalty": "repetition_penalty",
}
SAMPLING = {"do_sample": "sample", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p"}
USUAL_TOP_K = 50  # what transformers draws from unless told

# What changes the words and has no place here, with the value at which it changes nothing.
IDLE: dict[str, Any] = {
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
}


def read_generation(home: Path, content: Json) -> tuple[Path, Json]:
    """What a folder says, and the file that says it: a generation_config.json counts alone."""
    file = home / "generation_config.json"
    if not file.is_file():
        return home / "config.json", content
    ids = {name: value for name, value in content.items() if name.endswith("_start_token_id")}
    return file, {**ids, **read_json(file)}


def decode_of(said: Json, file: Path, reads_prompts: bool) -> Decode:
    """Greedy search, unless the folder says otherwise."""
    for name, idle in IDLE.items():
        if said.get(name) not in (idle, None):
            raise UsageError(f"{file}: {name} = {shown(said[name])} is something that Regard cannot do yet")
    names = {**DECODE, **SAMPLING}
    chosen = {our: said[name] for name, our in names.items() if said.get(name) is not None}
    if not chosen.get("sample") and chosen.get("temperature") == 0:  # as much as to say: greedy
        del chosen["temperature"]
    if chosen.get("sample"):
        chosen.setdefault("top_k", USUAL_TOP_K)
    # Theirs counts the start, or the whole prompt; ours counts what is written.
    for ending, least in (("max", 1), ("min", 0)):
        new, whole = _count(said, f"{ending}_new_tokens", file), _count(said, f"{ending}_length", file)
        if new is None and whole is not None and not reads_prompts:
            new = max(least, whole - 1)
        if new is not None:
            chosen[f"{ending}_length"] = new
    try:
        return Decode.model_validate({"beam": 1, **chosen})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def special_of(said: Json, file: Path, target: Tokenizer, reads_prompts: bool) -> Special:
    """Of the tokenizer, with what the folder forces and forbids."""
    usual, size = special(target), len(target)

    def one(name: str) -> int | None:
        value = said.get(name)
        if value is None:
            return None
        found = _ids(value if isinstance(value, list) else [value], name, size, file)
        return found[0] if found else None

    def several(name: str) -> tuple[int, ...]:
        return tuple(_ids(said.get(name) or [], name, size, file))

    bad = said.get("bad_words_ids") or []
    if not isinstance(bad, list):
        raise UsageError(f"{file}: bad_words_ids = {shown(bad)} is no list of lists of ids")
    runs = [tuple(_ids(run, "bad_words_ids", size, file)) for run in bad]
    # transformers forbids no end in this way
    single = {run[0] for run in runs if len(run) == 1} - {usual.end}
    start = one("decoder_start_token_id")
    return Special(
        start=usual.start if start is None or reads_prompts else start,
        end=usual.end,
        forbidden=tuple(sorted({*usual.forbidden, *single, *several("suppress_tokens")})),
        runs=tuple(run for run in runs if len(run) > 1),
        not_first=several("begin_suppress_tokens"),
        first=None if reads_prompts else one("forced_bos_token_id"),
        last=one("forced_eos_token_id"),
        longest=_count(said, "max_length", file) if reads_prompts else None,
        shortest=(_count(said, "min_length", file) or 0) if reads_prompts else 0,
    )


def _count(said: Json, name: str, file: Path) -> int | None:
    value = said.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise UsageError(f"{file}: {name} = {shown(value)} is no number of pieces")
    return value


def _ids(value: object, name: str, size: int, file: Path) -> Sequence[int]:
    if isinstance(value, list) and all(type(each) is int and 0 <= each < size for each in value):
        return value
    raise UsageError(f"{file}: {name} = {shown(value)} is not a list of the model's {size} pieces")
