"""Words of opened folders are those of `transformers.generate`: greedy and four beams, texts side by side."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import GenerationConfig

from hf_models import MODELS, make_pipelines, saved
from regard.generation import decode
from regard.generation.engine import make_engine
from regard.sample import Sample
from regard.storage import Folder, open_folder
from regard.tasks import Generator

__all__ = ["make_pipelines"]  # a fixture
RESIDUAL = (  # what T5 and BART add to the stream
    *("SelfAttention.o.weight", "EncDecAttention.o.weight", "DenseReluDense.wo.weight"),
    *("attn.out_proj.weight", "fc2.weight"),
)
MOST = 9  # pieces after a prompt; the smallest model reads twenty
WRITERS = [name for name, (kind, _) in MODELS.items() if kind in ("gpt2", "llama", "t5") and name != "marian"]


def inputs(folder: Folder, encodes: bool, count: int = 50) -> list[list[int]]:
    """Rows of mixed length without special pieces; a text that is read whole ends with the end."""
    dice = random.Random(5)
    special = {folder.source.pad, folder.source.end, *folder.source.suppressed}
    usual = [number for number in range(len(folder.source)) if number not in special]
    end = [folder.source.end] if encodes else []
    return [[*dice.choices(usual, k=dice.randint(1, 11)), *end] for _ in range(count)]


def their_words(model: torch.nn.Module, rows: list[list[int]], folder: Folder, beams: int) -> list[tuple]:
    """An encoder's rows are padded behind their texts, a language model's before its prompts."""
    encodes, pad, end = model.config.is_encoder_decoder, folder.source.pad, folder.target.end
    longest = max(map(len, rows))
    filler = [[pad] * (longest - len(row)) for row in rows]
    ids = [row + more if encodes else more + row for row, more in zip(rows, filler)]
    there = [[1] * len(row) + [0] * len(more) for row, more in zip(rows, filler)]
    if not encodes:
        there = [row[::-1] for row in there]
    rules = GenerationConfig(
        num_beams=beams,
        do_sample=False,
        max_new_tokens=MOST,
        pad_token_id=pad,
        eos_token_id=end,
        decoder_start_token_id=folder.special.start,
        suppress_tokens=list(folder.special.suppressed),
        use_cache=False,  # its cache of a T5 has as many layers as the encoder
    )
    found = model.generate(torch.tensor(ids), attention_mask=torch.tensor(there), generation_config=rules)
    written = found[:, 1 if encodes else longest :].tolist()
    return [until(row, end, pad) for row in written]


def until(row: list[int], end: int, pad: int) -> tuple[int, ...]:
    cut = row[: row.index(end)] if end in row else row
    return tuple(piece for piece in cut if piece != pad)


@torch.no_grad()
def livelier(model: torch.nn.Module) -> torch.nn.Module:
    """A random model says one word again and again, unless what it reads weighs more than what it is."""
    for name, parameter in model.named_parameters():
        if name.endswith(RESIDUAL):
            parameter.mul_(12)
    model.get_output_embeddings().weight.mul_(3)
    return model


@pytest.mark.parametrize("name", WRITERS)
def test_words_are_those_of_transformers(pipelines, name, tmp_path):
    theirs = saved(tmp_path, name, pipelines)
    livelier(theirs).save_pretrained(tmp_path)
    folder = open_folder(tmp_path)
    rows = inputs(folder, theirs.config.is_encoder_decoder)
    engine = make_engine(folder.model)
    for beams in (1, 4):
        rules = {
            "beam": beams,
            "max_length": MOST,
            "sample": False,
            "length_penalty": 1.0,
            "early_stopping": False,
        }
        options = folder.decode.model_copy(update=rules)
        found = decode(
            engine, [Sample(source=row) for row in rows], options, folder.special, torch.device("cpu")
        )
        expected = their_words(theirs, rows, folder, beams)
        assert [each[0].tokens for each in found] == expected
        assert len(set(expected)) > 5


@pytest.mark.parametrize(("name", "adds_start"), [("gpt2", False), ("llama", True)])
def test_an_unmodified_prompt_is_that_of_transformers(pipelines, name, adds_start, tmp_path):
    """GPT-2's tokenizer puts nothing before a prompt, Llama's a start token."""
    theirs = saved(tmp_path, name, pipelines)
    livelier(theirs).save_pretrained(tmp_path)
    folder = open_folder(tmp_path)
    assert folder.source.adds_start == adds_start
    generator = Generator(folder)
    ids = folder.source.encode("a man and two men")
    prompt = [folder.source.start, *ids] if adds_start else ids
    assert generator.prompt_ids("a man and two men") == prompt and len(ids) > 1
    assert generator.prompt_ids("") == [folder.source.start], "there must be something to read"
    most = (generator.model.longest_target or 99) - len(prompt)
    options = generator.options({"beam": 1, "max_length": min(MOST, most)})
    found = generator.write(["a man and two men"], options)[0][0]
    expected = theirs.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        max_new_tokens=min(MOST, most),
        do_sample=False,
        pad_token_id=folder.source.pad,
        eos_token_id=folder.target.end,
        suppress_tokens=list(folder.special.suppressed),
    )[0, len(prompt) :].tolist()
    assert [*found.token_ids, *([folder.target.end] if found.finished else [])] == expected
