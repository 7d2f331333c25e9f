"""No repeated n-grams and the repetition penalty, against transformers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_models import as_marian
from regard.batch import collate
from regard.config import Decode
from regard.generation import SpecialTokens, decode
from regard.generation.processors import NoRepeatNgram, RunningRows
from regard.sample import Sample
from samples import END, START, random_samples, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
CPU = torch.device("cpu")
RULES = [
    {"no_repeat_ngram": 1},
    {"no_repeat_ngram": 2},
    {"no_repeat_ngram": 3},
    {"repetition_penalty": 1.6},
    {"repetition_penalty": 4.0},
    {"repetition_penalty": 0.5},
    {"no_repeat_ngram": 2, "repetition_penalty": 1.5},
]


def sources(count: int, seed: int) -> list[Sample]:
    return [Sample(source=sample.source) for sample in random_samples(count, seed, longest=12)]


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Models that repeat themselves, which random ones do, and the same in transformers."""
    return [as_marian(tmp_path_factory.mktemp("marian"), seed) for seed in (12, 31, 5)]


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_equal_to_transformers(both, beam, rules):
    samples = sources(9, 13)
    batch = collate(samples)
    changed = False
    for model, theirs in both:
        options = Decode(beam=beam, max_length=16, **rules)
        ours = [found[0].tokens for found in decode(model, samples, options, SPECIAL, CPU)]
        plain = decode(model, samples, Decode(beam=beam, max_length=16), SPECIAL, CPU)
        changed |= ours != [found[0].tokens for found in plain]
        generated = theirs.generate(
            input_ids=batch.source.ids,
            attention_mask=(batch.source.positions >= 0).long(),
            num_beams=beam,
            max_new_tokens=16,
            do_sample=False,
            length_penalty=1.0,
            early_stopping=False,
            suppress_tokens=list(SPECIAL.suppressed),
            eos_token_id=END,
            pad_token_id=0,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
            bad_words_ids=None,
            no_repeat_ngram_size=rules.get("no_repeat_ngram", 0),
            repetition_penalty=rules.get("repetition_penalty", 1.0),
        )
        for tokens, row in zip(ours, generated.tolist()):
            expected = row[1:]
            expected = expected[: expected.index(END)] if END in expected else expected[:16]
            assert list(tokens) == expected
    assert changed, "the rule must have something to change"


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("rules", RULES, ids=str)
def test_a_row_alone_and_what_is_reported(sample, rules):
    """Neighbours change nothing; log-probabilities are the model's own, whatever ranked."""
    from regard.generation import score

    model, samples = small(31), sources(7, 5)
    options = Decode(beam=3, max_length=14, sample=sample, **rules)
    together = decode(model, samples, options, SPECIAL, CPU)
    for each, found in zip(samples, together):
        alone = decode(model, [each], options, SPECIAL, CPU)[0]
        assert [h.tokens for h in alone] == [h.tokens for h in found]
        assert sample or alone == found
        for hypothesis in found if not sample else ():
            words = list(hypothesis.tokens)
            own = score(model, [Sample(each.source, [START, *words], [*words, END])], 999, CPU)[0]
            details = hypothesis.token_log_probabilities
            assert details == pytest.approx(own[: len(details)], abs=1e-4)
            assert hypothesis.log_probability == pytest.approx(sum(details), abs=1e-4)
        size = options.no_repeat_ngram
        for hypothesis in found if size else ():
            ngrams = list(zip(*(hypothesis.tokens[k:] for k in range(size))))
            assert len(ngrams) == len(set(ngrams))


@settings(deadline=None)
@given(
    st.integers(1, 4), st.lists(st.lists(st.integers(0, 4), min_size=9, max_size=9), min_size=1, max_size=3)
)
def test_banned_is_what_would_repeat(size, rows):
    tokens = torch.tensor(rows)
    for length in range(10):
        logits = torch.zeros(len(rows), 5)
        NoRepeatNgram(size)(logits, RunningRows(tokens[:, :length], [], [0] * len(rows)))
        for row, scores in zip(rows, logits.tolist()):
            said = row[:length]
            known = {tuple(said[at : at + size]) for at in range(length - size + 1)}
            tail = tuple(said[length - size + 1 :]) if size > 1 else ()
            for token in range(5):
                repeats = length >= size and (*tail, token) in known
                assert (scores[token] == float("-inf")) == repeats


@pytest.mark.parametrize("sample", [False, True])
def test_nothing_left_to_say_is_no_error(sample):
    """Two words that may each come once, and an end that may not come yet: the search must still answer."""
    model = small(4, vocabulary=6)
    options = Decode(beam=2, no_repeat_ngram=1, min_length=9, max_length=9, sample=sample)
    found = decode(model, [Sample(source=[4, 5, END])], options, SPECIAL, CPU)[0]
    assert sorted(found[0].tokens) == [4, 5]
    assert sample or not found[0].finished
