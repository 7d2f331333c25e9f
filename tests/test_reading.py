"""Sources without their padding: the encoder computes the same hidden states as in a padded batch."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.batch import Tokens, Unpadding, collate
from regard.generation.engine import make_engine, warm_up
from regard.models.attention import BLOCK
from regard.sample import Sample
from samples import END, random_samples, small

SHAPES = {
    "small": {},
    "pre": {"norm": "pre", "activation": "gelu"},
    "halves": {"positions": "sinusoidal_halves", "activation": "swish"},
    "learned": {"positions": "learned", "max_length": 64, "heads": 2, "head_width": 5},
    "packed": {"width": 256, "heads": 4, "feed_forward": 1024, "layers": 1},
    "ssru": {"decoder_mixer": "ssru"},
    "t5": {"family": "t5"},
}
MODELS = {name: small(31, **changes).eval() for name, changes in SHAPES.items()}
ENGINES = {name: make_engine(copy.deepcopy(model)) for name, model in MODELS.items()}


def hidden_states(name: str, samples: list[Sample]) -> tuple[torch.Tensor, Tokens]:
    source = collate(samples, BLOCK).source
    assert source is not None
    with torch.no_grad():
        return ENGINES[name].model.encode(source), source


@pytest.mark.parametrize("name", SHAPES)
def test_hidden_states_are_those_of_the_padded_batch(name):
    found, source = hidden_states(name, random_samples(7, 3, longest=20))
    padded = MODELS[name].encode(source).detach()  # [N,S,D], with gradients nothing is left out
    real = source.positions >= 0
    assert_close(found[real], padded[real], atol=1e-5 * float(padded.abs().max()), rtol=1e-5)
    assert bool((found[~real] == 0).all())


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_recorded_encoder_gives_the_same_bits(precision):
    engine = make_engine(copy.deepcopy(MODELS["packed"]), precision)
    batches = [collate(random_samples(n, n, longest=20 * n), BLOCK).source for n in (1, 4, 6)]
    with torch.no_grad():
        before = [engine.model.encode(each) for each in batches]
        warm_up(engine)
        assert engine.model.encoder.traced is not None
        after = [engine.model.encode(each) for each in batches]
    assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("name", ["small", "packed", "t5"])
def test_a_token_has_the_same_bits_in_every_batch(name):
    samples = random_samples(9, 4, longest=40)
    together, _ = hidden_states(name, samples)
    for row, sample in enumerate(samples):
        alone, _ = hidden_states(name, [sample])
        assert torch.equal(together[row, : len(sample.source)], alone[0, : len(sample.source)])


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), more=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_padding_is_put_back_where_it_was(lengths, more):
    columns = max(lengths) + more
    place = torch.arange(columns).expand(len(lengths), -1)
    positions = torch.where(place < torch.tensor(lengths)[:, None], place, -1)
    layout = Unpadding.of(positions)
    x = torch.rand(1, sum(lengths), 3) + 1  # never zero
    padded = layout.pad(x)
    assert padded.shape == (len(lengths), columns, 3) and bool((padded[positions < 0] == 0).all())
    assert torch.equal(layout.unpad(padded), x)


def test_a_source_of_its_end_alone_is_read():
    found, source = hidden_states("small", [Sample(source=[END]), Sample(source=[5, 6, END])])
    assert len(source.ids) == 2 and bool(found.isfinite().all())
