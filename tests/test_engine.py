"""The engine against the model it was made of: its numbers, its text, its states."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.batch import Batch, collate
from regard.config import Decode
from regard.device import bfloat16_hardware, default_threads
from regard.errors import UsageError
from regard.generation import SpecialTokens, answers, decode, kernels, score
from regard.generation.engine import Engine, make_engine, warm_up
from regard.generation.kernels import can_pack, can_quantize
from regard.generation.packing import HalfSelfAttention, PackedLinear, attend_half, choose_precision
from regard.generation.requests import NEG_INF
from regard.generation.score import map_logits
from regard.models.attention import attend, attend_cached
from regard.models.encoder import EncoderOnly
from regard.models.layers import Linear
from regard.sample import Sample
from samples import END, START, random_samples, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
CPU = torch.device("cpu")
SHAPES = {
    "small": {},
    "pre": {"norm": "pre", "activation": "gelu"},
    "learned": {"positions": "learned", "max_length": 64, "heads": 2, "head_width": 5},
    "mbart": {"positions": "learned", "first_position": 2, "embedding_norm": True, "norm": "pre"},
    "m2m": {"positions": "sinusoidal_tensor2tensor", "first_position": 2, "norm": "pre"},
    "alibi": {"positions": "alibi", "heads": 3, "width": 24, "window": 6},
    "gpt alibi": {"family": "gpt", "positions": "alibi", "width": 256, "heads": 4, "feed_forward": 512},
    "packed": {"width": 256, "heads": 4, "feed_forward": 1024, "layers": 1},
    "ssru": {"decoder_mixer": "ssru"},
    "ssru packed": {"decoder_mixer": "ssru", "width": 512, "heads": 8, "feed_forward": 640, "layers": 2},
    "t5": {"family": "t5"},
    "t5 gated": {"family": "t5", "gated": True, "activation": "gelu_tanh", "tie_embeddings": False},
    "gpt": {"family": "gpt", "max_length": 160},
    "gpt rotary": {"family": "gpt", "positions": "rotary", "width": 256, "heads": 4, "feed_forward": 1024},
    "llama": {"family": "llama", "kv_heads": 2, "width": 32},
    "llama wide": {"family": "llama", "kv_heads": 2, "width": 256, "heads": 8, "feed_forward": 704},
    "mistral": {"family": "llama", "kv_heads": 2, "width": 256, "heads": 4, "window": 7},
    "qwen": {"family": "llama", "kv_heads": 2, "width": 256, "heads": 4, "qkv_bias": True, "qk_norm": True},
}
MODELS = {name: small(21, **changes) for name, changes in SHAPES.items()}
ENGINES = {name: make_engine(copy.deepcopy(model)) for name, model in MODELS.items()}
HALF = torch.bfloat16 if bfloat16_hardware() else torch.float32


def sources(count: int, seed: int, longest: int = 30) -> list[Sample]:
    return [Sample(source=sample.source) for sample in random_samples(count, seed, longest)]


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Within rounding of float32, measured on the largest logit."""
    torch.testing.assert_close(found, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-5)


def test_this_machine_really_packs():
    """Else the rest of this file would compare the model with itself."""
    if not can_pack(torch.ones(2, 2)):
        pytest.skip("this build of torch has no packed kernels: the model itself decodes")
    assert all(isinstance(engine, Engine) for engine in ENGINES.values())
    assert ENGINES["gpt"].reads_prompts and not ENGINES["t5"].reads_prompts
    widen = ENGINES["packed"].model.decoder.blocks[0].feed_forward.up
    assert isinstance(widen, PackedLinear) and widen.packs


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("beams", [1, 3])
def test_steps_are_the_models(name, beams):
    model, engine = MODELS[name], ENGINES[name]
    batch = collate(random_samples(4, 5), 16)
    own, other = model.start(batch, beams), engine.start(batch, beams)
    words = torch.randint(4, 23, (4 * beams, 20), generator=torch.Generator().manual_seed(3))
    for sizes in (3, 1, 1, 1, 12, 1):  # over the border of a block of 16 columns
        tokens, words = words[:, :sizes], words[:, sizes:]
        expected, own = model.step(own, tokens)
        found, other = engine.step(other, tokens)
        assert_near(found, expected)
    rows = torch.tensor([2, 0, 0, 3])
    own, other = own.select(rows), other.select(rows)
    joined = type(other).join([other, other.clone().select(torch.tensor([1]))])
    expected, _ = model.step(own, torch.full((4, 1), 9))
    found, _ = engine.step(joined, torch.full((5, 1), 9))
    assert_near(found[:4], expected)
    assert_near(found[4], expected[1])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("beam", [1, 4])
def test_the_text_is_the_models(name, beam):
    samples, options = sources(20, 6), Decode(beam=beam, max_length=20)
    own = decode(MODELS[name], samples, options, SPECIAL, CPU)
    other = decode(ENGINES[name], samples, options, SPECIAL, CPU)
    assert [h[0].tokens for h in own] == [h[0].tokens for h in other]


@pytest.mark.parametrize(
    ("beam", "name"),
    [
        (1, "small"),
        (5, "packed"),
        (3, "t5"),
        (1, "ssru packed"),
        (4, "ssru packed"),
        (1, "gpt rotary"),
        (3, "llama wide"),
        (1, "mistral"),
        (3, "alibi"),
        (1, "gpt alibi"),
        (3, "qwen"),
        pytest.param(1, "packed", marks=pytest.mark.slow),
    ],
)
def test_neighbours_change_no_bit(name, beam):
    engine, samples, options = ENGINES[name], sources(17, 7, longest=50), Decode(beam=beam, max_length=18)
    alone = [decode(engine, [sample], options, SPECIAL, CPU)[0] for sample in samples]
    for tokens in (100, 10_000):
        sized = options.model_copy(update={"tokens_per_batch": tokens})
        together = decode(engine, samples, sized, SPECIAL, CPU)
        assert [[(h.tokens, h.score) for h in each] for each in together] == [
            [(h.tokens, h.score) for h in each] for each in alone
        ]


WIDE = {"width": 256, "heads": 4, "feed_forward": 512, "layers": 1}
LONG = {
    "transformer": WIDE,
    "t5": WIDE | {"family": "t5", "gated": True, "activation": "gelu_tanh"},
    "gpt": WIDE | {"family": "gpt", "positions": "rotary"},
    "llama": WIDE | {"family": "llama", "kv_heads": 2},
    "mistral": WIDE | {"family": "llama", "window": 40, "qk_norm": True},
}


@cache
def long_engine(name: str, precision: str) -> Engine:
    return make_engine(small(41, **LONG[name]), precision)


@pytest.mark.skipif(not can_quantize(), reason="torch multiplies no bytes on this processor")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", LONG)
@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(1, 300), min_size=2, max_size=5), st.sampled_from([1, 3]), st.integers(0, 10**6))
def test_a_wide_model_writes_the_same_bits_in_every_batch(name, precision, lengths, beam, seed):
    """With long sources and prompts: sums over many keys, whatever the neighbours' lengths are."""
    engine, draw = long_engine(name, precision), torch.Generator().manual_seed(seed)
    samples = [Sample(source=torch.randint(4, 23, (n,), generator=draw).tolist()) for n in lengths]
    options = Decode(beam=beam, max_length=8)
    together = decode(engine, samples, options, SPECIAL, CPU)
    for sample, each in zip(samples, together):
        alone = decode(engine, [sample], options, SPECIAL, CPU)[0]
        assert [(h.tokens, h.score) for h in each] == [(h.tokens, h.score) for h in alone]


@cache
def encoder(precision: str, traced: bool) -> EncoderOnly:
    wide = WIDE | {"family": "bert", "head": "words", "activation": "gelu", "heads": 8, "max_length": 700}
    engine = make_engine(small(43, **wide), precision)
    if traced:
        warm_up(engine)
        assert engine.encoder.traced is not None
    return engine


@pytest.mark.skipif(not can_quantize(), reason="torch multiplies no bytes on this processor")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.one_of(st.integers(1, 48), st.integers(1, 600)), min_size=2, max_size=6),
    st.sampled_from([64, 256, 4096]),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_an_encoder_gives_the_same_bits_in_every_batch(precision, lengths, size, traced, seed):
    """Alone with all threads, in small batches with a thread each, and in one batch; recorded and not."""
    draw = torch.Generator().manual_seed(seed)
    samples = [Sample(source=torch.randint(4, 23, (n,), generator=draw).tolist()) for n in lengths]
    together = answers(encoder(precision, traced), samples, size, CPU)
    for sample, found in zip(samples, together):
        assert torch.equal(found, answers(encoder(precision, False), [sample], size, CPU)[0])


@pytest.mark.skipif(not bfloat16_hardware(), reason="this processor multiplies no bfloat16")
def test_an_encoder_in_half_precision_is_near_the_model():
    """Attention and GELU are in bfloat16, too."""
    assert all(isinstance(block.attention, HalfSelfAttention) for block in encoder("bfloat16", False).encoder)
    samples = sources(6, 9, longest=40)
    own, other = (answers(encoder(name, False), samples, 256, CPU) for name in ("float32", "bfloat16"))
    for exact, half in zip(own, other):
        assert torch.cosine_similarity(exact, half, dim=-1).min() > 0.999


@pytest.mark.skipif(not bfloat16_hardware(), reason="this processor multiplies no bfloat16")
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(12, 32), (8, 64), (4, 64), (16, 16), (12, 40)]),
    st.integers(1, 20),
    st.integers(0, 12),
    st.integers(1, 5),
    st.integers(0, 2**31),
)
def test_half_attention_of_a_row_is_the_same_among_longer_ones(shape, blocks, more, rows, seed):
    torch.manual_seed(seed)
    (heads, channels), columns, wider = shape, 16 * blocks, 16 * (blocks + more)
    q, k, v = torch.randn(3, rows, heads, wider, channels).bfloat16().unbind()
    seen = torch.ones(rows, 1, wider, dtype=torch.bool)
    length = columns - seed % 16
    seen[-1, :, length:] = False
    here, scale = (slice(-1, None), slice(None), slice(columns)), channels**-0.5
    alone = attend_half(q[here], k[here], v[here], seen[here], scale)[:, :, :length]
    together = attend_half(q, k, v, seen, scale)[-1:, :, :length]
    assert torch.equal(alone, together)
    exact = attend(q.float(), k.float(), v.float(), seen[:, None])[-1:, :, :length]
    torch.testing.assert_close(alone.float(), exact, atol=0.03, rtol=0.03)


@pytest.mark.skipif(default_threads() < 2, reason="one core")
def test_a_short_text_takes_one_core_and_leaves_the_others_as_they_were():
    seen, before = [], torch.get_num_threads()

    def look(batch: Batch) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        if batch.source.ids.shape[1] > 200:
            raise UsageError("no", code="E_ENGINE")
        return batch.source.ids[:, :, None].float()

    torch.set_num_threads(2)
    try:
        for length in (5, 100, 300):
            with nullcontext() if length < 200 else pytest.raises(UsageError):
                answers(look, [Sample(source=[4] * length)], 1000, CPU)
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2, 2]


def test_an_error_in_one_batch_ends_the_others():
    def fail(batch: Batch) -> torch.Tensor:
        raise UsageError("no", code="E_ENGINE")

    with pytest.raises(UsageError):
        map_logits(fail, sources(40, 9), lambda number, logits: logits, 64, CPU, workers=2)


@pytest.mark.skipif(not can_quantize(), reason="torch multiplies no bytes on this processor")
@pytest.mark.parametrize(("beam", "kept_as"), [(1, torch.float32), (3, HALF)])
@pytest.mark.parametrize("precision", ["int8", "bfloat16"])
@pytest.mark.parametrize("name", ["packed", "ssru packed"])
def test_neighbours_change_no_bit_of_rounded_numbers(name, precision, beam, kept_as):
    """Keys and values of several beams are kept in half the bytes, too; not the states of a recurrence."""
    engine = make_engine(copy.deepcopy(MODELS[name]), precision)
    kept_as = torch.float32 if name.startswith("ssru") else kept_as
    samples, options = sources(9, 7, longest=50), Decode(beam=beam, max_length=18)
    cache = engine.start(collate(samples, 1), beam)
    assert {cache.keys[0].dtype, cache.memory.layers[0][1].dtype} == {kept_as}
    together = decode(engine, samples, options, SPECIAL, CPU)
    for sample, each in zip(samples, together):
        alone = decode(engine, [sample], options, SPECIAL, CPU)[0]
        assert [(h.tokens, h.score) for h in each] == [(h.tokens, h.score) for h in alone]
    own = decode(MODELS[name], samples, options, SPECIAL, CPU)
    assert [each[0].score for each in together] == pytest.approx([each[0].score for each in own], rel=0.15)


@pytest.mark.skipif(not bfloat16_hardware(), reason="this processor multiplies no bfloat16")
@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(8, 64), (4, 64), (8, 32), (16, 16), (12, 40)]),
    st.integers(2, 8),
    st.integers(1, 70),
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(0, 2**31),
)
def test_attention_in_half_precision_is_the_same_among_others(shape, beams, blocks, more, sentences, seed):
    """A sentence alone, and the last of several with more columns, which nobody sees."""
    torch.manual_seed(seed)
    (heads, channels), columns = shape, 16 * blocks
    wider = columns + 16 * more
    q = torch.randn(sentences * heads, beams, channels).bfloat16()
    k, v = torch.randn(2, sentences * heads, wider, channels).bfloat16().unbind()
    bias = torch.zeros(sentences * heads, beams, wider)
    bias[-heads:, :, columns:] = NEG_INF
    own, seen = slice(-heads, None), slice(columns)
    scale = channels**-0.5
    alone = attend_cached(q[own], k[own, seen], v[own, seen], bias[own, :, seen], scale).float()
    together = attend_cached(q, k, v, bias, scale)[own].float()
    assert torch.equal(alone, together)
    exact = attend_cached(
        q[own].float(), k[own, seen].float(), v[own, seen].float(), bias[own, :, seen], scale
    )
    torch.testing.assert_close(alone, exact, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_warm_engine_says_the_same(beam):
    """To compile takes a fifth of a second, by which a request to a server once missed its deadline."""
    engine, samples, options = make_engine(copy.deepcopy(MODELS["pre"])), sources(5, 3), Decode(beam=beam)
    assert not engine.traced
    warm_up(engine)
    assert engine.traced and all(engine.traced.values()) and engine.model.encoder.traced is not None
    own, other = (decode(each, samples, options, SPECIAL, CPU) for each in (MODELS["pre"], engine))
    assert [h[0].tokens for h in own] == [h[0].tokens for h in other]


def test_a_packed_model_still_scores():
    for name, model in MODELS.items():
        samples = [
            replace(each, source=()) if ENGINES[name].reads_prompts else each for each in random_samples(5, 8)
        ]
        own = score(model, samples, 1000, CPU)
        other = score(ENGINES[name].model, samples, 1000, CPU)
        for left, right in zip(own, other):
            assert left == pytest.approx(right, abs=2e-3, rel=1e-5)


@pytest.mark.parametrize("name", SHAPES)
def test_beams_that_change_places_keep_their_own_words(name):
    """The engine moves no word when beams change places; the model copies the cache. Both say the same."""
    model, engine = MODELS[name], ENGINES[name]
    batch = collate(random_samples(3, 8), 16)
    own, other = model.start(batch, 4), engine.start(batch, 4)
    draw = torch.Generator().manual_seed(5)
    group = 4 * torch.arange(3)[:, None]
    for _ in range(40):
        tokens = torch.randint(4, 23, (len(own), 1), generator=draw)
        expected, own = model.step(own, tokens)
        found, other = engine.step(other, tokens)
        assert_near(found, expected)
        parents = torch.randint(4, (len(group), 4), generator=draw)
        rows = (group + parents).flatten()
        own, other = own.select(rows), other.select(rows)
    assert int(other.lengths.max()) < 2 * 40, "beams share what they have in common"
    rows = torch.tensor([9, 2, 2, 7, 0])  # across the sources: each row on its own from here
    own, other = own.select(rows), other.select(rows)
    tokens = torch.randint(4, 23, (5, 3), generator=draw)
    assert_near(engine.step(other, tokens)[0], model.step(own, tokens)[0])


@pytest.mark.parametrize("fault", [AttributeError, None])
def test_a_kernel_that_is_missing_or_computes_something_else_is_not_used(
    monkeypatch: pytest.MonkeyPatch, fault: type[Exception] | None
) -> None:
    """Another version of torch may have no such operator, or another one of the same name."""

    def product(x: torch.Tensor, *others: object) -> torch.Tensor:
        if fault is not None:
            raise fault("no such operator")
        return x

    monkeypatch.setattr(kernels, "packed_product", product)
    kernels.packing_works.cache_clear()
    try:
        assert not can_pack(torch.ones(2, 2))
    finally:
        kernels.packing_works.cache_clear()


def test_engines_are_chosen_by_name():
    model = small(3)
    plain = make_engine(model, "auto", engine="plain")
    assert plain is model and type(plain.output) is Linear
    for wrong in ({"engine": "warp"}, {"engine": "plain", "precision": "int8"}):
        with pytest.raises(UsageError) as refused:
            make_engine(small(3), **wrong)
        assert refused.value.code in ("E_ENGINE", "E_PRECISION")


@pytest.mark.skipif(not can_quantize(), reason="torch multiplies no bytes on this processor")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "float32"),
        (WIDE, "int8"),
        (WIDE | {"family": "gpt"}, "int8"),
        (WIDE | {"family": "bert", "head": "words"}, "bfloat16" if bfloat16_hardware() else "float32"),
        ({"family": "rnn", "width": 256}, "float32"),
    ],
)
def test_auto_is_the_fastest_precision_that_keeps_results(changes, expected):
    model = small(3, **changes)
    assert choose_precision("auto", model, None) == expected
    measured = {"decoder.blocks.0.feed_forward.up": (-1.0, 1.0)}
    assert choose_precision("auto", model, measured) == "int8"
