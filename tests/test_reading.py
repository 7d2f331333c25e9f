"""Sources without their padding: the encoder makes of a word what it makes of it in a padded batch."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.batch import Tokens, collate
from regard.generation.engine import make_engine
from regard.generation.reading import Unpad, encode_packed
from regard.models.state import BLOCK
from regard.sample import Sample
from samples import END, random_samples, small

SHAPES = {
    "small": {},
    "pre": {"norm": "pre", "activation": "gelu"},
    "halves": {"positions": "sinusoidal_halves", "activation": "swish"},
    "learned": {"positions": "learned", "max_length": 64, "heads": 2, "head_width": 5},
    "packed": {"width": 256, "heads": 4, "feed_forward": 1024, "layers": 1},
}
MODELS = {name: small(31, **changes) for name, changes in SHAPES.items()}
ENGINES = {name: make_engine(copy.deepcopy(model)) for name, model in MODELS.items()}


def words_of(name: str, samples: list[Sample]) -> tuple[torch.Tensor, Tokens]:
    source = collate(samples, BLOCK).source
    assert source is not None
    return encode_packed(ENGINES[name].model, source, Unpad(source.positions)), source


@pytest.mark.parametrize("name", SHAPES)
def test_words_are_those_of_the_padded_batch(name):
    found, source = words_of(name, random_samples(7, 3, longest=20))
    with torch.no_grad():
        padded = MODELS[name].encode(source)  # [N,S,D]
    expected = padded[source.positions >= 0]
    assert found.shape == expected.shape
    assert_close(found, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-5)


@pytest.mark.parametrize("name", ["small", "packed"])
def test_a_word_has_the_same_bits_in_every_batch(name):
    samples = random_samples(9, 4, longest=40)
    together, _ = words_of(name, samples)
    alone = torch.cat([words_of(name, [sample])[0] for sample in samples])
    assert torch.equal(together, alone)


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5), more=st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_what_is_spread_stands_at_its_word_and_nowhere_else(lengths, more):
    columns = max(lengths) + more
    place = torch.arange(columns).expand(len(lengths), -1)
    positions = torch.where(place < torch.tensor(lengths)[:, None], place, -1)
    places, heads, parts, channels = Unpad(positions), 2, 3, 4
    x = torch.rand(sum(lengths), parts * heads * channels) + 1  # never zero
    spread = places.spread(x, heads, parts)  # [P,N,H,S,C]
    assert spread.shape == (parts, len(lengths), heads, columns, channels)
    assert bool((spread.permute(1, 3, 0, 2, 4)[positions < 0] == 0).all())
    for number in range(parts):
        back = places.words(spread[number].transpose(1, 2).flatten(2))  # [T,H*C]
        assert torch.equal(back, x.view(-1, parts, heads * channels)[:, number])


def test_a_source_of_its_end_alone_is_read():
    found, source = words_of("small", [Sample(source=[END]), Sample(source=[5, 6, END])])
    assert found.shape == (4, 16) and len(source.ids) == 2
    assert bool(found.isfinite().all())
