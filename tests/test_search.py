"""Search against brute force and against transformers, and text that no neighbour changes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from hf_models import as_marian
from regard.batch import collate
from regard.config import Decode
from regard.generation import SpecialTokens, decode, score
from regard.generation.sampling import draw, log_probabilities, nucleus
from regard.generation.search import top
from regard.sample import Sample
from samples import END, START, random_samples, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
CPU = torch.device("cpu")


def sources(count: int, seed: int = 0, longest: int = 9) -> list[Sample]:
    return [Sample(source=sample.source) for sample in random_samples(count, seed, longest)]


def best(model, samples, options, **more):
    return [found[0] for found in decode(model, samples, options, SPECIAL, CPU, **more)]


def scored(model, source, words):
    """log p of words and the end, teacher-forced."""
    return score(model, [Sample(source, [START, *words], [*words, END])], 1000, CPU)[0]


def test_a_full_beam_equals_brute_force():
    """Vocabulary of 6, length at most 3: every possible answer is scored and the beam must find the best."""
    model = small(4, vocabulary=6)
    special = SpecialTokens(START, END, suppressed=(0, START, 3))
    words = [4, 5]
    for sample in [Sample(source=[4, 5, END]), Sample(source=[5, END]), Sample(source=[4, 4, 5, END])]:
        everything = []
        for length in range(3):
            for answer in itertools.product(words, repeat=length):
                log_p = math.fsum(scored(model, sample.source, answer))
                everything.append((log_p / (length + 1) ** 0.7, answer, log_p))
        for answer in itertools.product(words, repeat=3):  # cut off by the limit: no end
            log_p = math.fsum(scored(model, sample.source, answer)[:3])
            everything.append((log_p / 3**0.7, answer, log_p))
        everything.sort(reverse=True)
        options = Decode(beam=15, length_penalty=0.7, max_length=3, early_stopping="never")
        found = decode(model, [sample], options, special, CPU)[0]
        assert [h.tokens for h in found] == [answer for _, answer, _ in everything]
        for hypothesis, (value, _, log_p) in zip(found, everything):
            assert hypothesis.score == pytest.approx(value, abs=1e-5)
            assert hypothesis.log_probability == pytest.approx(log_p, abs=1e-5)


def test_greedy_takes_the_most_probable_word_each_time():
    model = small(5)
    for sample in sources(3, 3):
        state, words = model.start(collate([sample], 16)), [START]
        while words[-1] != END and len(words) <= len(sample.source) + 50:
            logits, state = model.step(state, torch.tensor([[words[-1]]]))
            logits[0, 0, list(SPECIAL.suppressed)] = -math.inf
            words.append(int(logits[0, 0].argmax()))
        found = best(model, [sample], Decode(beam=1))[0]
        assert [*found.tokens, *([END] if found.finished else [])] == words[1:]


@pytest.mark.parametrize("beam", [1, 4])
def test_text_never_depends_on_the_neighbours(beam):
    """Alone, in company of any size, shuffled: the same words, and on this kind of CPU the same bits."""
    for seed, changes in ((6, {}), (7, {"norm": "pre", "width": 32})):
        model, samples = small(seed, **changes), sources(12, 9, longest=40)
        options = Decode(beam=beam, max_length=16)
        alone = [best(model, [sample], options)[0] for sample in samples]
        for tokens in (64, 700, 10_000):
            together = best(model, samples, options.model_copy(update={"tokens_per_batch": tokens}))
            assert [h.tokens for h in together] == [h.tokens for h in alone]
            assert [h.score for h in together] == [h.score for h in alone]
        backwards = best(model, samples[::-1], options)[::-1]
        assert [h.tokens for h in backwards] == [h.tokens for h in alone]


def test_sampling_is_reproducible_and_blind_to_neighbours():
    model, samples = small(8), sources(8, 4)
    options = Decode(beam=3, sample=True, top_k=8, top_p=0.9, seed=5, max_length=16)
    together = decode(model, samples, options, SPECIAL, CPU)
    alone = [decode(model, [sample], options, SPECIAL, CPU)[0] for sample in samples]
    assert [[h.tokens for h in each] for each in together] == [[h.tokens for h in each] for each in alone]
    other = decode(model, samples, options.model_copy(update={"seed": 6}), SPECIAL, CPU)
    assert [h[0].tokens for h in other] != [h[0].tokens for h in together]
    assert any(len({h.tokens for h in each}) > 1 for each in together), "draws of a sentence are independent"


def test_draws_follow_the_distribution():
    log_p = torch.tensor([0.5, 0.0, 0.2, 0.3], dtype=torch.float64).log()
    counts = [0] * 4
    for number in range(1000):
        counts[draw(log_p, number / 1000)] += 1
    assert counts == [500, 0, 200, 300]
    assert draw(log_p, 1.0) == 3 and draw(torch.tensor([0.0, -math.inf]).double(), 1.0) == 0


def test_top_k_and_top_p_keep_what_they_say():
    logits = torch.tensor([[1.0, 3.0, 2.0, 0.0, -1.0, 5.0]])
    kept = log_probabilities(logits, Decode(top_k=2))[0].isfinite()
    assert kept.tolist() == [False, True, False, False, False, True]
    probability = logits.double().softmax(1)[0]
    assert float(probability[5]) < 0.9 < float(probability[5] + probability[1])
    assert nucleus(logits.double(), 0.9)[0].isfinite().tolist() == [False, True, False, False, False, True]
    cold = log_probabilities(logits, Decode(temperature=0.5))[0]
    zero = log_probabilities(logits, Decode(temperature=0.0))[0]
    assert zero[logits[0].argmax()] == 0 and zero.exp().sum() == 1
    torch.testing.assert_close(cold, (logits.double() * 2).log_softmax(1)[0])


def test_lengths_prefixes_and_details():
    model, samples = small(9), sources(8, 11)
    for beam in (1, 3):
        longer = best(model, samples, Decode(beam=beam, min_length=4, max_length=6))
        assert all(4 <= len(h.tokens) <= 6 for h in longer)
        prefixes = [[4, 5], [6], [], [7, 8, 9], [4], [], [5, 5], [10]]
        options = Decode(beam=beam, max_length=16)
        forced = best(model, samples, options, prefixes=prefixes)
        alone = [best(model, [s], options, prefixes=[p])[0].tokens for s, p in zip(samples, prefixes)]
        for sample, prefix, hypothesis, lone in zip(samples, prefixes, forced, alone):
            assert list(hypothesis.tokens[: len(prefix)]) == prefix and hypothesis.tokens == lone
            details = scored(model, sample.source, hypothesis.tokens)[len(prefix) :]
            own = hypothesis.token_log_probabilities[len(prefix) :]
            assert own == pytest.approx(details[: len(own)], abs=1e-4)
            assert hypothesis.log_probability == pytest.approx(sum(own), abs=1e-4)


def test_nbest_is_sorted_and_distinct():
    for found in decode(small(10), sources(6, 12), Decode(beam=5), SPECIAL, CPU):
        assert len(found) == 5 and len({h.tokens for h in found}) == 5
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_the_wu_penalty():
    found = decode(
        small(10), sources(1, 12), Decode(beam=4, penalty_form="wu", length_penalty=0.6), SPECIAL, CPU
    )
    for h in found[0]:
        length = len(h.tokens) + h.finished
        assert h.score == pytest.approx(h.log_probability / ((5 + length) / 6) ** 0.6)


def test_two_stage_top_is_topk():
    torch.manual_seed(0)
    for columns, count in ((5000, 8), (1283, 2), (300, 7), (128 * 40, 9)):
        values = torch.randn(6, columns)
        values[2] = values[2].round()  # many ties: values must agree, their order is free
        ours, where = top(values, count)
        assert torch.equal(ours, values.topk(count, dim=1).values)
        assert torch.equal(values.gather(1, where), ours)
        assert all(len(set(row)) == count for row in where.tolist())


@pytest.mark.parametrize(("beam", "early_stopping"), [(1, False), (4, False), (4, True), (4, "never")])
def test_equal_to_transformers(tmp_path, beam, early_stopping):
    """The same weights in MarianMTModel give the same ids, greedy and beam, for every way to stop."""
    model, theirs = as_marian(tmp_path, seed=12)
    samples = sources(25, 13, longest=12)
    batch = collate(samples)
    for penalty in (0.6, 1.0, 1.4) if beam > 1 else (1.0,):
        options = Decode(beam=beam, length_penalty=penalty, max_length=20, early_stopping=early_stopping)
        ours = best(model, samples, options)
        generated = theirs.generate(
            input_ids=batch.source.ids,
            attention_mask=(batch.source.positions >= 0).long(),
            num_beams=beam,
            max_new_tokens=20,
            do_sample=False,
            length_penalty=penalty,
            early_stopping=early_stopping,
            suppress_tokens=list(SPECIAL.suppressed),
            eos_token_id=END,
            pad_token_id=0,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
            bad_words_ids=None,
        )
        for hypothesis, row in zip(ours, generated.tolist()):
            expected = row[1:]
            expected = expected[: expected.index(END)] if END in expected else expected[:20]
            assert list(hypothesis.tokens) == expected


@pytest.mark.parametrize("beam", [1, 4])
def test_several_end_tokens_are_those_of_transformers(tmp_path, beam):
    """`eos_token_id` may be a list; only the first of it once ended a hypothesis."""
    model, theirs = as_marian(tmp_path, seed=12)
    samples = sources(25, 13, longest=12)
    batch = collate(samples)
    options = Decode(beam=beam, length_penalty=1.0, max_length=20, min_length=2)
    usual = Counter(token for h in best(model, samples, options) for token in h.tokens[3:])
    further = tuple(token for token, _ in usual.most_common(2))  # tokens that the model generates
    special, ends = replace(SPECIAL, ends=further), [END, *further]
    ours = [found[0] for found in decode(model, samples, options, special, CPU)]
    generated = theirs.generate(
        input_ids=batch.source.ids,
        attention_mask=(batch.source.positions >= 0).long(),
        num_beams=beam,
        max_new_tokens=20,
        min_new_tokens=2,
        do_sample=False,
        suppress_tokens=list(SPECIAL.suppressed),
        eos_token_id=ends,
        pad_token_id=0,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
        bad_words_ids=None,
    )
    for hypothesis, row in zip(ours, generated.tolist()):
        first = next((at for at, token in enumerate(row[1:]) if token in ends), 20)
        assert list(hypothesis.tokens) == row[1:][:first]
        assert hypothesis.finished == (first < 20)
    last = [row[1 + len(h.tokens)] for h, row in zip(ours, generated.tolist()) if h.finished]
    assert set(last) - {END}, "a further end token occurs"


def test_draws_stop_at_every_end_token():
    model, samples = small(8), sources(12, 4)
    options = Decode(beam=2, sample=True, temperature=2.0, max_length=30, min_length=2)
    for found in decode(model, samples, options, replace(SPECIAL, ends=(7, 9)), CPU):
        for hypothesis in found:
            assert not {END, 7, 9} & set(hypothesis.tokens)
            assert len(hypothesis.tokens) >= 2
