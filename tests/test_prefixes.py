"""Beginnings of prompts that are kept: the same bits, fewer tokens computed, bounded memory."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from chats import chat_folder
from regard.batch import collate
from regard.config import Decode
from regard.config.model import GPTConfig, LlamaConfig
from regard.generation import Request
from regard.generation.engine import make_engine
from regard.generation.prefixes import PrefixEngine, portion_names, with_prefixes
from regard.generation.scheduler import Scheduler
from regard.inputs.text import SpecialTokens
from regard.models.attention import BLOCK
from regard.models.families import build
from regard.sample import Sample
from regard.tasks import Generator

SHAPE = {"width": 64, "layers": 2, "heads": 4, "feed_forward": 128, "max_length": 700, "dropout": 0.0}
WIDE = {**SHAPE, "width": 256, "layers": 1}
KINDS: dict[str, tuple[Any, str]] = {
    "gpt": (GPTConfig(family="gpt", **SHAPE), "float32"),
    "llama": (LlamaConfig(family="llama", **SHAPE, kv_heads=2), "float32"),
    "wide": (LlamaConfig(family="llama", **WIDE), "float32"),
    "bfloat16": (LlamaConfig(family="llama", **WIDE), "bfloat16"),
    "int8": (LlamaConfig(family="llama", **WIDE), "int8"),
}
SPECIAL = SpecialTokens(1, 2)


def engine(kind: str) -> Any:
    torch.manual_seed(5)
    config, precision = KINDS[kind]
    return make_engine(build(config, 200), precision)


def prompts(seed: int, count: int) -> list[list[int]]:
    """Some begin alike, for up to 400 tokens."""
    dice = random.Random(seed)
    system = [dice.randrange(3, 200) for _ in range(400)]
    return [
        system[: dice.choice([0, 130, 256, 400])]
        + [dice.randrange(3, 200) for _ in range(dice.randint(1, 200))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_with_fewer_tokens(kind: str, beams: int) -> None:
    plain = engine(kind)
    keeping = PrefixEngine(plain)
    for seed in range(3):
        rows = prompts(seed // 2, 5)  # the last two batches are the same
        batch = collate([Sample(source=row) for row in rows], BLOCK)
        expected, other = plain.start(batch, beams), keeping.start(batch, beams)
        feed = expected.first[:, None]
        assert torch.equal(feed, other.first[:, None])
        for _ in range(3):
            logits, expected = plain.step(expected, feed)
            again, other = keeping.step(other, feed)
            assert torch.equal(logits, again)
            feed = logits[:, -1].argmax(dim=1, keepdim=True)
    whole = sum(len(row) for seed in range(3) for row in prompts(seed // 2, 5))
    assert keeping.computed + keeping.reused == whole
    assert keeping.reused >= sum(
        128 * ((len(row) - 1) // 128) for row in prompts(0, 5)
    )  # of the second batch


def test_memory_is_bounded() -> None:
    plain = engine("llama")
    size = 2 * 2 * 128 * 2 * 16 * 4  # keys and values, layers, tokens, heads, channels, bytes
    keeping = PrefixEngine(plain, limit=3 * size)
    for row in prompts(3, 12):
        keeping.start(collate([Sample(source=row)], BLOCK))
        assert keeping.nbytes == sum(each.nbytes for each in keeping.portions.values()) <= 3 * size
    long = prompts(4, 1)[0] * 3
    for _ in range(2):
        keeping.start(collate([Sample(source=long[:650])], BLOCK))
    assert len(keeping.portions) == 3


def test_names_follow_from_all_tokens() -> None:
    ids = list(range(300))
    assert (
        len(portion_names(ids)) == 2 and len(portion_names(ids[:256])) == 1 and not portion_names(ids[:128])
    )
    assert portion_names(ids)[0] == portion_names(ids[:200])[0]
    assert not set(portion_names([1, *ids[1:]])) & set(portion_names([2, *ids[1:]]))


def test_requests_that_arrive_share_a_beginning() -> None:
    plain = engine("llama")
    keeping: Any = with_prefixes(plain)
    options = Decode(beam=2, max_length=6)
    rows = prompts(7, 8)

    def results(model: Any, pause: int) -> list[Any]:
        scheduler = Scheduler(lambda request: model, SPECIAL, torch.device("cpu"), 4000, 8)
        handles = []
        for row in rows:
            handles.append(scheduler.add(Request(row, options)))
            for _ in range(pause):
                scheduler.step()
        while scheduler.busy:
            scheduler.step()
        return [each.result() for each in handles]

    expected = results(plain, 0)
    assert results(keeping, 2) == expected
    first, keeping.computed = keeping.computed, 0
    assert results(keeping, 0) == expected
    assert keeping.computed < first


def test_a_chat_reads_its_history_once(tmp_path: Path) -> None:
    model = Generator.load(chat_folder(tmp_path), threads=1, precision="float32")
    system = {"role": "system", "content": "A man in a blue hat sees a dog. " * 8}
    talk = [system, {"role": "user", "content": "Two men?"}]
    fresh = copy.copy(model)
    answer = model.chat(talk, beam=1, max_length=8)
    before = model.prefixes.computed
    assert model.chat(talk, beam=1, max_length=8) == answer
    assert 0 < model.prefixes.computed - before < len(model.chat_ids(talk)) - 127
    assert fresh.chat(talk, beam=1, max_length=8) == answer


def test_windows_keep_nothing() -> None:
    model = build(LlamaConfig(family="llama", **SHAPE, window=64), 200)
    plain = make_engine(model, "float32")
    assert with_prefixes(plain) is plain
