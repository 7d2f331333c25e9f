"""Laws that every model keeps: stepping, chunking, batching, padding, the future, caches with one owner."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.batch import Batch, Tokens, collate
from regard.models.transformer import EncoderDecoder
from samples import random_samples, small

MODELS = {
    "paper": small(1),
    "pre": small(2, norm="pre", activation="gelu"),
    "learned": small(3, positions="learned", heads=2, head_width=5, decoder_layers=1),
    "bart": small(10, positions="learned", first_position=2, embedding_norm=True),
    "m2m": small(11, positions="sinusoidal_tensor2tensor", first_position=2, norm="pre"),
    "alibi": small(12, positions="alibi", width=18, heads=3, norm="pre"),
    "window": small(13, window=3, positions="alibi"),
    "ssru": small(12, decoder_mixer="ssru", decoder_layers=2),
    "rnn": small(4, family="rnn", reverse_source=True),
    "rnn-gru": small(5, family="rnn", cell="gru", layers=1),
    "t5": small(9, family="t5"),
    "bahdanau": small(6, family="bahdanau", cell="gru"),
    "bahdanau-dot": small(7, family="bahdanau", score="dot", layers=1),
    "bahdanau-general": small(8, family="bahdanau", score="general"),
}
CLOSE = {"atol": 2e-5, "rtol": 1e-4}


def logits_alone(model, sample):
    with torch.no_grad():
        return model(collate([sample]))[0]


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_full_equals_any_chunking(name, seed, data):
    """Rows of unequal length too: those that are through are fed rubbish, which must not matter."""
    model = MODELS[name]
    samples = random_samples(3, seed)
    batch = collate(samples)
    longest = batch.target.ids.shape[1]
    state, done, parts = model.start(batch), 0, []
    while done < longest:
        size = data.draw(st.integers(1, longest - done))
        logits, state = model.step(state, batch.target.ids[:, done : done + size])
        parts.append(logits)
        done += size
    stepped = torch.cat(parts, dim=1)
    for row, sample in enumerate(samples):
        length = len(sample.target)
        torch.testing.assert_close(stepped[row, :length], logits_alone(model, sample), **CLOSE)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), multiple=st.sampled_from([1, 3, 16]))
def test_batch_equals_each_row_alone(name, seed, multiple):
    model, samples = MODELS[name], random_samples(4, seed)
    with torch.no_grad():
        together = model(collate(samples, multiple))
    for row, sample in enumerate(samples):
        torch.testing.assert_close(together[row, : len(sample.target)], logits_alone(model, sample), **CLOSE)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_rubbish_in_padding_and_in_the_future_changes_nothing(name, seed):
    model, samples = MODELS[name], random_samples(3, seed)
    batch = collate(samples, multiple=4)
    torch.manual_seed(seed)

    def with_rubbish(side: Tokens) -> Tokens:
        rubbish = torch.randint(0, 23, side.ids.shape)
        return Tokens(torch.where(side.positions < 0, rubbish, side.ids), side.positions)

    with torch.no_grad():
        clean = model(batch)
        dirty = model(Batch(with_rubbish(batch.source), with_rubbish(batch.target)))
        for row, sample in enumerate(samples):
            assert torch.equal(clean[row, : len(sample.target)], dirty[row, : len(sample.target)])
        cut = int(torch.randint(1, batch.target.ids.shape[1] + 1, ()))
        future = batch.target.ids.clone()
        future[:, cut:] = torch.randint(0, 23, future[:, cut:].shape)
        other = model(Batch(batch.source, Tokens(future, batch.target.positions)))
        torch.testing.assert_close(clean[:, :cut], other[:, :cut], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), beams=st.integers(1, 3), data=st.data())
def test_select_and_join(name, seed, beams, data):
    """Rows that are repeated, dropped, reordered and joined go on as if they had been alone."""
    model, samples = MODELS[name], random_samples(4, seed)
    target = torch.randint(4, 23, (8,), generator=torch.Generator().manual_seed(seed))
    early, late = collate(samples[:2]), collate(samples[2:])
    one = model.start(early, beams)
    _, one = model.step(one, target[:3].expand(2 * beams, -1))
    two = model.start(late, beams)
    _, two = model.step(two, target[:1].expand(2 * beams, -1))
    state = type(one).join([one, two])
    rows = data.draw(st.lists(st.integers(0, 4 * beams - 1), min_size=1, max_size=9))
    logits, _ = model.step(state.select(torch.tensor(rows)), target[-1:].expand(len(rows), -1))
    for at, row in enumerate(rows):
        source = row // beams
        words = torch.cat([target[: 3 if source < 2 else 1], target[-1:]]).tolist()
        alone = logits_alone(model, type(samples[0])(samples[source].source, words, words))
        torch.testing.assert_close(logits[at, -1], alone[-1], **CLOSE)


@pytest.mark.parametrize("count", [3, 15, 16, 31, 32])  # the next may outgrow the buffers
@pytest.mark.parametrize("beams", [1, 3])
def test_a_cache_has_one_owner(count, beams):
    """A consumed cache shares its buffers with its successor: it is refused; a clone has its own."""
    model, batch = MODELS["paper"], collate(random_samples(2, 5))
    draw = torch.Generator().manual_seed(count)
    _, cache = model.step(model.start(batch, beams), torch.randint(4, 20, (2 * beams, count), generator=draw))
    second, third = cache.clone(), cache.clone()
    tokens = torch.full((2 * beams, 1), 9)
    expected, after = model.step(cache, tokens)
    for use in (lambda: model.step(cache, tokens), lambda: cache.select(tokens[:, 0]), cache.take):
        with pytest.raises(ValueError, match="consumed"):
            use()
    other, _ = model.step(second, torch.full_like(tokens, 10))
    again, after_again = model.step(third, tokens)
    assert torch.equal(expected, again) and not torch.equal(expected, other)
    assert torch.equal(model.step(after, tokens)[0], model.step(after_again, tokens)[0])


def test_beams_share_the_keys_of_their_source():
    model, batch = MODELS["paper"], collate(random_samples(3, 6))
    cache = model.start(batch, beams=4)
    memory = cache.memory
    assert len(cache) == 12 and len(cache.keys[0]) == len(memory.positions) == 3
    cache = cache.select(torch.tensor([1, 0, 0, 3, 4, 4, 4, 4, 8, 9, 10, 11]))
    assert cache.beams == 4 and cache.memory is memory
    cache = cache.select(torch.arange(4, 12))
    assert cache.beams == 4 and len(cache.keys[0]) == len(cache.memory.positions) == 2
    cache = cache.select(torch.tensor([0, 5, 1, 2]))
    assert cache.beams == 1 and len(cache.keys[0]) == len(cache.memory.positions) == 4


@pytest.mark.parametrize("name", ["paper", "bahdanau"])
def test_caches_with_other_beams_are_joined(name):
    model, samples = MODELS[name], random_samples(2, 6)
    one, two = model.start(collate(samples[:1]), 1), model.start(collate(samples[1:]), 2)
    joined = type(one).join([one, two])
    assert len(joined) == 3 and joined.beams == 1
    logits, _ = model.step(joined, torch.tensor([[5], [6], [7]]))
    for row, (sample, token) in enumerate([(0, 5), (1, 6), (1, 7)]):
        alone = logits_alone(model, type(samples[0])(samples[sample].source, [token], [token]))
        torch.testing.assert_close(logits[row, -1], alone[-1], **CLOSE)


def test_watching_changes_nothing():
    from regard.interpret import Recorder

    for model in MODELS.values():
        batch = collate(random_samples(3, 8))
        recorder = Recorder()
        with torch.no_grad():
            torch.testing.assert_close(model(batch, recorder), model(batch), **CLOSE)
        if not isinstance(model, EncoderDecoder):
            continue  # its names are those of tests/test_recurrent.py
        shares = recorder.tensors["decoder.0.cross.weights"]
        seen = (batch.target.positions >= 0)[:, None, :, None].expand_as(shares[..., :1])
        torch.testing.assert_close(shares.sum(-1, keepdim=True), seen.float())
        assert {
            "encoder.0.self.scores",
            "encoder.embedding.sum",
            "decoder.out",
            "logits",
        } <= recorder.tensors.keys()
