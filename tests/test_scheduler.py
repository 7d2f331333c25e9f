"""The scheduler: requests enter, leave and are cancelled, and each gets the result it gets alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from regard.batch import collate
from regard.config import Decode
from regard.generation import Request, SpecialTokens
from regard.generation.engine import make_engine
from regard.generation.ensemble import Ensemble
from regard.generation.scheduler import ROWS_PER_WAIT, Scheduler
from regard.generation.search import BeamSearch
from regard.generation.sliding import SlidingWindow
from sampled import sampled
from samples import END, START, random_samples, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
CPU = torch.device("cpu")
WIDE = {"width": 256, "heads": 4, "feed_forward": 1024, "layers": 1}
# GELU and swish of the last numel % 32 numbers have other bits, so that widths are multiples of 32
GPT = small(26, family="gpt", max_length=48, feed_forward=32)
MODELS = {
    "paper": small(21),
    "pre": small(22, norm="pre", width=32),
    "engine": make_engine(copy.deepcopy(small(21))),
    "packed engine": make_engine(small(23, **WIDE)),
    "t5": small(24, family="t5"),
    "rnn": small(25, family="rnn"),
    "bahdanau": small(6, family="bahdanau", cell="gru"),
    "gpt": GPT,
    "llama": small(27, family="llama", kv_heads=2, feed_forward=32),
    "sliding": SlidingWindow(GPT, 20),
    "ensemble": Ensemble([small(28), make_engine(small(29))]),
}
UNSTEADY = ("bahdanau",)
OPTIONS = [
    Decode(beam=1, max_length=20),
    Decode(beam=3, max_length=18),
    Decode(beam=3, max_length=9, min_length=5, length_penalty=0.4, early_stopping=True),
    Decode(beam=3, max_length=22, early_stopping="never"),
    Decode(beam=1, max_length=14, repetition_penalty=1.4),
    Decode(beam=3, max_length=14, no_repeat_ngram=2),
    Decode(beam=1, sample=True, max_length=16, seed=4),
    Decode(beam=2, sample=True, max_length=12, top_k=5, temperature=1.5, min_length=3, seed=9),
    Decode(beam=1, sample=True, max_length=12, top_p=0.8, no_repeat_ngram=2, repetition_penalty=1.2),
]
COUNT = 12
PREFIXES = [(), (), (5,), (7, 8, 9)]


@cache
def requests(name: str) -> list[Request]:
    """Sources of many lengths with all kinds of options."""
    prompts = name in ("gpt", "llama", "sliding")
    found = []
    for number, sample in enumerate(random_samples(COUNT, 5, longest=18)):
        ids = [START, *sample.source[:-1]] if prompts else sample.source
        options = OPTIONS[number % len(OPTIONS)]
        found.append(Request(ids, options, PREFIXES[number % len(PREFIXES)]))
    return found


def scheduler_of(name: str, tokens: int = 10_000, rows: int | None = None) -> Scheduler:
    return Scheduler(lambda request: MODELS[name], SPECIAL, CPU, tokens, rows, workers=1)


def running_rows(scheduler: Scheduler) -> int:
    return sum(worker.rows for worker in scheduler.workers)


def values(handle):
    return [(h.tokens, h.score, h.token_log_probabilities, h.finished) for h in handle.result()]


def assert_same(name, found, expected):
    """The same words; and the same bits, but of models whose sums are not steady in the number of rows."""
    assert [each[0] for each in found] == [each[0] for each in expected]
    if name in UNSTEADY:
        assert [each[1] for each in found] == pytest.approx([each[1] for each in expected], abs=1e-5)
    else:
        assert found == expected


def run(scheduler: Scheduler) -> None:
    for _ in range(2000):
        if not scheduler.busy:
            return
        scheduler.step()
    raise AssertionError("a scheduler that does not end")


@cache
def alone(name: str, number: int):
    scheduler = scheduler_of(name)
    handle = scheduler.add(requests(name)[number])
    run(scheduler)
    return values(handle)


@pytest.mark.parametrize("name", sampled(MODELS, "paper", "packed engine", "rnn", "sliding"))
@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(data=st.data())
def test_nobody_sees_who_else_is_there(name, data):
    """Any order of entering, any pauses, any cancellations, any room: the same words and the same bits."""
    order = data.draw(st.permutations(range(COUNT)))
    pauses = data.draw(st.lists(st.integers(0, 4), min_size=COUNT, max_size=COUNT))
    cancelled = data.draw(st.sets(st.integers(0, COUNT - 1), max_size=4))
    tokens, rows = data.draw(st.sampled_from([(10_000, None), (150, None), (10_000, 6), (400, 11)]))
    scheduler, handles = scheduler_of(name, tokens, rows), {}
    for number, pause in zip(order, pauses):
        handles[number] = scheduler.add(requests(name)[number])
        for _ in range(pause):
            scheduler.step()
        victim = data.draw(st.sampled_from(sorted(handles)))
        if victim in cancelled:
            scheduler.cancel(handles[victim])
    run(scheduler)
    for number, handle in handles.items():
        if handle.is_done or number not in cancelled:
            assert_same(name, values(handle), alone(name, number))
    assert running_rows(scheduler) == 0 and not scheduler.workers[0].batches and scheduler.rows == [0]


def test_what_is_cancelled_is_gone_at_once():
    search = BeamSearch(MODELS["packed engine"], SPECIAL, CPU, Request([5, END], Decode(beam=3)).key)
    options = Decode(beam=3, min_length=30, max_length=40)
    (old,) = search.admit([Request([*range(4, 23), *range(4, 20), END], options)])
    for _ in range(17):
        search.step()
    young = search.admit([Request([5, END], options), Request([6, END], options)])
    search.step()
    cache = search.state  # a row for each source
    assert len(cache) == 9 and cache.next.tolist() == [18, 1, 1]
    assert 18 <= int(cache.lengths[0]) < 3 * 18, "beams share what they have in common"
    assert cache.lengths[1:].tolist() == [3, 3] and search.log_p.shape == (3, 3, 18)
    longest = cache.memory.positions.shape[1]
    search.drop(old)
    cache = search.state
    assert search.active == young[::-1], "the last takes the place of the one that left"
    assert len(cache) == 6 and cache.lengths.tolist() == [3, 3] and cache.length == 3
    assert search.log_p.shape == (2, 3, 1) and search.tokens.shape == (2, 3, 2), (
        "histories are cut when the oldest leaves"
    )
    assert cache.width == cache.block
    assert cache.memory.positions.shape[1] == cache.memory.layers[0][0].shape[2] == cache.block < longest
    for source in young:
        search.drop(source)
    assert not search.active and not hasattr(search, "state")


def test_freed_places_are_taken():
    """Short answers make room for those who wait long before the longest is done."""
    options = [Decode(beam=1, min_length=n, max_length=n) for n in (30, 2, 2, 2, 2, 2, 2, 2)]
    scheduler = scheduler_of("paper", rows=2)
    handles = [scheduler.add(Request([5, 6, END], each)) for each in options]
    ended: list[int] = []
    for _ in range(14):
        ended += [handles.index(handle) for handle in scheduler.step()]
        assert running_rows(scheduler) <= 2
    assert ended == [1, 2, 3, 4, 5, 6, 7] and not handles[0].is_done


def test_a_full_batch_is_not_moved_for_one_row():
    rows = 8 * ROWS_PER_WAIT
    tried = []
    lengths = [*range(2, 2 + rows), *([3] * 40)]
    start = MODELS["paper"].start

    class Counting:
        longest_target = None
        step = MODELS["paper"].step

        def start(self, batch, beams=1):
            tried.append(len(batch.source.ids))
            return start(batch, beams)

    model = Counting()
    scheduler = Scheduler(lambda request: model, SPECIAL, CPU, 10_000, rows, workers=1)
    for length in lengths:
        scheduler.add(Request([5, 6, END], Decode(beam=1, min_length=length, max_length=length)))
    run(scheduler)
    assert tried[0] == rows and sum(tried) == len(lengths)
    assert min(tried[1:-1]) >= 3, "one place is free at each step, but several enter together"


def test_searches_share_the_room():
    """Many greedy ones do not keep a beam search waiting, nor the other way round."""
    scheduler = scheduler_of("paper", rows=8)
    greedy, beams = Decode(beam=1, min_length=6, max_length=6), Decode(beam=4, min_length=6, max_length=6)
    many = [scheduler.add(Request([5, 6, END], greedy)) for _ in range(60)]
    scheduler.step()
    assert running_rows(scheduler) == 8
    late = [scheduler.add(Request([6, END], beams)) for _ in range(3)]
    for _ in range(26):
        scheduler.step()
    assert all(handle.is_done for handle in late)
    assert 12 < sum(handle.is_done for handle in many) < 60


def test_one_that_is_larger_than_the_room_runs_all_the_same():
    scheduler = scheduler_of("paper", tokens=16, rows=2)
    handle = scheduler.add(Request([*range(4, 20), END], Decode(beam=5, max_length=4)))
    run(scheduler)
    assert len(handle.result()) == 5


def test_errors_concern_those_who_made_them():
    class Broken:
        longest_target = None

        def __init__(self):
            self.steps = 0

        def start(self, batch, beams=1):
            return MODELS["paper"].start(batch, beams)

        def step(self, state, tokens):
            self.steps += 1
            if self.steps == 3:
                raise ValueError("broken")
            return MODELS["paper"].step(state, tokens)

    broken = Broken()
    scheduler = Scheduler(
        lambda r: broken if r.options.seed else MODELS["paper"], SPECIAL, CPU, 1000, workers=1
    )
    good = scheduler.add(requests("paper")[1])
    bad = scheduler.add(Request([5, END], Decode(beam=2, min_length=9, max_length=9, seed=1)))
    run(scheduler)
    assert values(good) == alone("paper", 1)
    with pytest.raises(ValueError, match="broken"):
        bad.result()
    again = scheduler.add(bad.request)
    run(scheduler)
    assert len(again.result()) == 2, "a search that failed begins anew"


def test_a_wish_that_cannot_be_read_fails_alone():
    scheduler, options = scheduler_of("paper"), Decode(beam=2, max_length=5)
    handles = [scheduler.add(Request([word, END], options)) for word in (5, 6, 999, 7)]
    run(scheduler)
    with pytest.raises(IndexError):
        handles.pop(2).result()
    assert all(len(handle.result()) == 2 for handle in handles)


def test_memory_that_runs_out_in_the_middle():
    """What was under way begins anew with fewer at once; pieces that were told are not told twice."""

    class Small:
        longest_target = None

        def start(self, batch, beams=1):
            return MODELS["paper"].start(batch, beams)

        def step(self, state, tokens):
            if state.length > 3 and len(state) > 4:
                raise MemoryError
            return MODELS["paper"].step(state, tokens)

    model, said, pieces = Small(), [], []
    scheduler = Scheduler(lambda request: model, SPECIAL, CPU, 1000, workers=1, warn=said.append)
    options = Decode(beam=1, min_length=8, max_length=12)
    handles = [scheduler.add(Request(sample.source, options)) for sample in random_samples(9, 4)]
    while scheduler.busy:
        scheduler.step()
        pieces += scheduler.news(handles[3])
    assert len(said) == 1 and "9 sentences" in said[0]
    for handle in handles:
        lone = scheduler_of("paper")
        expected = lone.add(handle.request)
        run(lone)
        assert values(handle) == values(expected)
    assert tuple(pieces) == handles[3].result()[0].tokens


@pytest.mark.parametrize("name", ["paper", "gpt"])
def test_a_stream_gives_the_pieces_of_the_answer(name):
    for number, request in enumerate(requests(name)):
        scheduler, found = scheduler_of(name), []
        expected = alone(name, number)[0][0]
        for piece in scheduler.stream(request):
            found.append(piece)
            if request.options.beam == 1:
                assert scheduler.busy or len(found) == len(expected), (
                    "each piece comes as soon as it is certain"
                )
        assert tuple(found) == expected


def test_one_draw_of_several_is_that_of_all():
    base = requests("gpt")[7]
    every = {tokens for tokens, *_ in alone("gpt", 7)}
    for draw in range(base.options.beam):
        scheduler = scheduler_of("gpt")
        handle = scheduler.add(replace(base, draw=draw))
        run(scheduler)
        assert handle.result()[0].tokens in every


def test_windows_move_one_by_one():
    """A row that moves its window reads what it would read alone, while others do not move."""
    model = MODELS["sliding"]
    prompts = [[START, *range(4, 4 + count)] for count in (3, 12, 19)]
    options = Decode(beam=1, min_length=40, max_length=40)
    scheduler = scheduler_of("sliding")
    handles = [scheduler.add(Request(prompt, options)) for prompt in prompts]
    run(scheduler)
    for prompt, handle in zip(prompts, handles):
        words = [*prompt, *handle.result()[0].tokens]
        window = list(prompt)
        for place in range(len(prompt), len(words)):
            if len(window) > model.window:
                window = window[-(model.window // 2) :]
            state = GPT.start(collate([replace(random_samples(1)[0], source=window)], 16))
            logits, _ = GPT.step(state, torch.tensor([[window[-1]]]))
            logits[0, -1, [*SPECIAL.suppressed, END]] = -torch.inf
            assert int(logits[0, -1].argmax()) == words[place]
            window.append(words[place])


def test_there_is_no_answer_before_the_end():
    with pytest.raises(ValueError, match="no result yet"):
        scheduler_of("paper").add(requests("paper")[0]).result()
