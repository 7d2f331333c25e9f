"""Several pools at the same time are one pool to their user, and no text depends on the lane it was in."""

from __future__ import annotations

import copy
import threading

import pytest
import torch

from regard.batch import collate
from regard.config import Decode
from regard.generation import Lanes, Pool, Special, Wish, decode_all, engine, lanes, make_engine
from samples import END, START, random_samples, small

SPECIAL = Special(START, END, forbidden=(0, START, 3))
CPU = torch.device("cpu")
SHAPES = {"paper": {}, "pre": {"norm": "pre", "activation": "gelu_tanh"}, "wide": {"width": 256, "heads": 4}}
PRECISIONS = ("float32", "bfloat16", "int8")
ENGINE = make_engine(small(31))
pytestmark = pytest.mark.usefixtures("same_threads")


def wishes(count: int, **options: object) -> list[Wish]:
    how = Decode(**{"beam": 3, "max_length": 14, **options})
    return [Wish(sample.source, how) for sample in random_samples(count, 9, longest=30)]


def pool(model: object = ENGINE, tokens: int = 200) -> Pool:
    return Pool(lambda wish: model, SPECIAL, CPU, tokens)


def told(found):
    return [[(h.tokens, h.score, h.token_log_probabilities) for h in each] for each in found]


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"sample": True, "seed": 3, "top_k": 5}])
@pytest.mark.parametrize("count", [2, 3])
def test_a_text_does_not_depend_on_its_lane(count, options, monkeypatch):
    monkeypatch.setattr(lanes, "LEAST_TOKENS", 200)
    torch.set_num_threads(1)
    asked, finished = wishes(40, **options), []
    expected = told(decode_all(pool(), asked))
    assert told(decode_all(Lanes([pool() for _ in range(count)]), asked, finished.append)) == expected
    assert sum(finished) == 40
    torch.set_num_threads(3 - torch.get_num_threads())
    assert told(decode_all(pool(), asked)) == expected, "nor on the number of threads"


def test_lanes_are_one_pool(monkeypatch):
    monkeypatch.setattr(lanes, "ALONE", 4)
    asked = wishes(20)
    expected = told(decode_all(pool(), asked))
    running = Lanes([pool(), pool()])
    handles = [running.add(wish) for wish in asked[:12]]
    assert min(running.rows) > 0, "both have work"
    running.step()
    running.cancel(handles[3])
    running.cancel(handles[3])
    handles += [running.add(wish) for wish in asked[12:]]
    done = set()
    while running.busy:
        done |= set(running.step())
    assert done == set(handles) - {handles[3]} and running.rows == [0, 0] and not running.lane_of
    found = [handle.result() for handle in handles if handle in done]
    assert told(found) == [each for number, each in enumerate(expected) if number != 3]


def test_pieces_come_from_the_lane_they_are_in(monkeypatch):
    monkeypatch.setattr(lanes, "ALONE", 1)
    running = Lanes([pool(), pool()])
    handles = [running.add(wish) for wish in wishes(4, beam=1)]
    heard = [[] for _ in handles]
    while running.busy:
        running.step()
        for own, handle in zip(heard, handles):
            own += running.news(handle)
    assert [tuple(own) for own in heard] == [handle.result()[0].tokens for handle in handles]


class Slow:
    """A model whose first step takes until somebody lets it end."""

    longest_target = None

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def start(self, batch, beams=1):
        return ENGINE.start(batch, beams)

    def step(self, state, tokens):
        assert self.go_on.wait(60)
        return ENGINE.step(state, tokens)


def test_a_lane_waits_for_no_other(monkeypatch):
    """Both once made their steps together, and the faster one was idle for a fifth of the time."""
    monkeypatch.setattr(lanes, "ALONE", 1)
    slow, asked = Slow(), wishes(8)
    expected = told(decode_all(pool(), asked))
    running = Lanes([pool(slow), pool()])
    handles = [running.add(wish) for wish in asked[:6]]
    held = [handle for handle in handles if running.lane_of[handle] == 0]
    done = set()
    while len(done) < len(handles) - len(held):
        done |= set(running.step())
    assert held and not done & set(held) and running.news(held[0]) == []
    running.cancel(held[0])  # in the middle of its step
    monkeypatch.setattr(running, "costs", [0, 1])
    handles += [running.add(wish) for wish in asked[6:]]
    assert running.lane_of[handles[-2]] == 0, "into the lane whose step goes on"
    slow.go_on.set()
    while running.busy:
        done |= set(running.step())
    assert done == set(handles) - {held[0]}
    found = told([handle.result() for handle in handles if handle in done])
    assert found == [each for handle, each in zip(handles, expected) if handle in done]


class Broken:
    """A model that fails at its third step."""

    def __init__(self) -> None:
        self.steps = 0

    longest_target = None

    def start(self, batch, beams=1):
        return ENGINE.start(batch, beams)

    def step(self, state, tokens):
        self.steps += 1
        if self.steps == 3:
            raise ZeroDivisionError("the third step")
        return ENGINE.step(state, tokens)


def test_who_fails_in_a_lane_is_told_to_the_caller(monkeypatch):
    monkeypatch.setattr(lanes, "LEAST_TOKENS", 200)
    with pytest.raises(ZeroDivisionError, match="third"):
        decode_all(Lanes([pool(), pool(Broken())]), wishes(40))


def test_who_stops_listening_stops_the_lanes():
    """Ctrl-C in the middle of a file: every lane ends after its step, not after the file."""
    both, enough = Lanes([pool(), pool()]), threading.Event()

    def work(own, item):
        while not enough.is_set():  # a file without an end
            yield [item]

    sharing = both.share(work, range(8))
    try:
        for _ in range(5):
            next(sharing)
        sharing.close()
        all_free = threading.Barrier(2)  # broken where a lane is still at work
        for each in [both.threads.submit(all_free.wait, 60) for _ in both.pools]:
            each.result(timeout=60)
    finally:
        enough.set()


def test_how_much_a_lane_takes_at_once():
    several = Lanes([pool(tokens=8192) for _ in range(3)])
    assert several.portion(100_000) == 8192, "never more than it may"
    assert several.portion(15_000) == 5000, "else its share"
    assert several.portion(2000) == lanes.LEAST_TOKENS, "and never so little that it is not worth it"


def test_lanes_leave_the_callers_threads_alone():
    torch.set_num_threads(2)
    both = Lanes.over(lambda wish: ENGINE, SPECIAL, CPU, 3 * lanes.LEAST_TOKENS)
    assert len(both.pools) == 2 and both.threads.submit(torch.get_num_threads).result() == 1
    assert torch.get_num_threads() == 2
    assert len(Lanes.over(lambda wish: ENGINE, SPECIAL, CPU, lanes.LEAST_TOKENS).pools) == 1


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_scripted_step_is_the_plain_one(shape, precision, monkeypatch):
    """TorchScript is on its way out of torch: without it the same lines run as Python, to the same bits."""
    model = small(32, **SHAPES[shape])
    plain = make_engine(copy.deepcopy(model), precision)
    monkeypatch.setattr(engine, "WORTH_SCRIPTING", 0)
    fast = make_engine(model, precision)
    batch = collate(random_samples(3, 8), 16)
    for beams in (1, 4):
        own, other = fast.start(batch, beams), plain.start(batch, beams)
        for word in (5, 9, 11):
            tokens = torch.full((len(own), 1), word)
            (left, own), (right, other) = fast.step(own, tokens), plain.step(other, tokens)
            assert torch.equal(left, right)
    assert isinstance(fast.decoder, torch.jit.ScriptModule) and isinstance(plain.decoder, engine.Decoder)


def test_a_decoder_is_compiled_once_it_is_worth_it(monkeypatch):
    compiled = []
    monkeypatch.setattr(engine, "WORTH_SCRIPTING", 5)
    monkeypatch.setattr(engine, "scripted", lambda module: compiled.append(module) or module)
    own = make_engine(small(33))
    state = own.start(collate(random_samples(2, 8), 16))
    for steps in range(1, 10):
        _, state = own.step(state, torch.full((2, 1), 5))
        assert len(compiled) == (steps > 5)


def test_where_nothing_can_be_scripted_the_module_itself_serves():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return {each: print(each) for each in globals()}

    from regard.generation.kernels import scripted

    odd = Odd()
    assert scripted(odd) is odd


def test_who_has_no_room_in_the_first_lane_begins_in_another():
    """Few rows of long sources stood in the first lane's queue while the other one was idle."""
    both = Lanes([pool(tokens=4096 // 2) for _ in range(2)])
    long = [Wish(list(range(4, 22)) * 6, Decode(beam=5)) for _ in range(6)]  # 108 pieces, padded 112
    for wish in long:
        both.add(wish)
    assert both.rows == [15, 15]


def test_a_sentence_that_does_not_fit_beside_the_others_is_tried_alone(monkeypatch):
    monkeypatch.setattr(lanes, "LEAST_TOKENS", 200)
    asked, single = wishes(40), threading.Event()

    class Greedy:
        """There is memory for one lane at a time: the second fails as long as the first is there."""

        longest_target = None

        def start(self, batch, beams=1):
            if not single.is_set() and threading.current_thread().name.endswith("_1"):
                raise MemoryError("not enough memory")
            return ENGINE.start(batch, beams)

        def step(self, state, tokens):
            return ENGINE.step(state, tokens)

    expected = told(decode_all(pool(), asked))
    model = Greedy()
    found = decode_all(Lanes([pool(model), pool(model)]), asked)
    assert told(found) == expected
