"""Fit the vocabulary of a pretrained model to a run: `init.new_tokens` and `init.trim`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from regard.config import Config
from regard.config.model import BertConfig, ModelConfig
from regard.data.corpora import corpus_specs, read_rows
from regard.data.report import DataReport
from regard.errors import UsageError
from regard.inputs.text import Tokenizer
from regard.inputs.text.vocabulary import CODE, Rows, extended, trimmed_to
from regard.storage import Initial

AT_ONCE = 1000  # texts
OUTPUT = ("output.weight", "output.bias")


def fit_vocabulary(initial: Initial, config: Config, log: Callable[[str], None]) -> Initial:
    """The pretrained model with another vocabulary, in its tokenizers and its weights."""
    init = config.init
    if not isinstance(initial.input, Tokenizer) or not isinstance(initial.output, Tokenizer):
        raise UsageError("init.new_tokens, init.trim: only models of text have a vocabulary", code=CODE)
    is_joint = initial.output is initial.input or initial.input.shares_vocabulary(initial.output)
    sides = [initial.input] if is_joint else [initial.input, initial.output]
    fitted: list[Tokenizer] = []
    weights = dict(initial.weights)
    for number, tokenizer in enumerate(sides):
        rows: Rows = [[each] for each in range(len(tokenizer))]
        chosen = tokenizer
        if init.new_tokens:
            chosen, rows = extended(chosen, init.new_tokens)
        grown = len(rows)
        if init.trim:
            chosen, kept = trimmed_to(chosen, used_ids(config, chosen))
            rows = [rows[each] for (each,) in kept]
        fitted.append(chosen)
        names = table_names(initial.config, both=is_joint, first=number == 0)
        weights |= {name: with_rows(weights[name], rows) for name in names if name in weights}
        log(
            f"vocabulary of {initial.path}: {len(tokenizer):,} tokens, {len(init.new_tokens)} added, "
            f"{grown - len(rows):,} dropped, {len(rows):,} remain"
        )
    return replace(initial, input=fitted[0], output=fitted[-1], weights=weights)


def table_names(config: ModelConfig, both: bool, first: bool) -> list[str]:
    """The weights with a row for each token of a vocabulary."""
    writes = not isinstance(config, BertConfig) or config.head == "words"
    targets = ["target.tokens.weight", *(OUTPUT if writes else ())]
    return ["source.tokens.weight", *targets] if both else ["source.tokens.weight"] if first else targets


def with_rows(table: Tensor, rows: Rows) -> Tensor:
    """Each row the mean of old ones; a single one as it is."""
    whole = table[torch.tensor([old[0] for old in rows])].clone()
    for number, old in enumerate(rows):
        if len(old) > 1:
            whole[number] = table[torch.tensor(old)].float().mean(dim=0)
    return whole


def used_ids(config: Config, tokenizer: Tokenizer) -> set[int]:
    """The tokens of all texts of a run, on either side."""
    used: set[int] = set()
    texts: list[str] = []
    for split in ("train", "valid", "test"):
        corpora = getattr(config.data, split)
        for spec in corpus_specs(corpora, config.task, config.data) if corpora is not None else ():
            for _, source, target in read_rows(spec, config.task, split, DataReport()):
                texts += [source, target]
                if len(texts) > AT_ONCE:
                    used.update(*tokenizer.encode_batch(texts))
                    texts = []
    return used.union(*tokenizer.encode_batch(texts))
