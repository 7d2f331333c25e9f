"""Several threads: results do not depend on the worker, errors and interrupts reach the caller."""

from __future__ import annotations

import copy
import importlib
import threading

import pytest
import torch

from regard.batch import collate
from regard.config import Decode
from regard.generation import Request, SpecialTokens, engine, generate, kernels, scheduler
from regard.generation.engine import make_engine
from regard.generation.scheduler import Scheduler
from samples import END, START, random_samples, small

generating = importlib.import_module("regard.generation.generate")
SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
CPU = torch.device("cpu")
SHAPES = {"paper": {}, "pre": {"norm": "pre", "activation": "gelu_tanh"}, "wide": {"width": 256, "heads": 4}}
SHAPES |= {"t5": {"family": "t5"}, "gpt": {"family": "gpt"}, "llama": {"family": "llama", "kv_heads": 2}}
PRECISIONS = ("float32", "bfloat16", "int8")
ENGINE = make_engine(small(31))
pytestmark = pytest.mark.usefixtures("same_threads")


def requests(count: int, **options: object) -> list[Request]:
    how = Decode(**{"beam": 3, "max_length": 14, **options})
    return [Request(sample.source, how) for sample in random_samples(count, 9, longest=30)]


def run(asked: list[Request], workers: int = 1, model: object = ENGINE, tokens: int = 200):
    """`generate` with so many threads, whatever this machine has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generating, "MIN_WORKER_TOKENS", tokens)
        patch.setattr(generating, "worker_count", lambda *_: workers)
        return generate(lambda request: model, asked, SPECIAL, CPU, tokens * workers)


def values(found):
    return [[(h.tokens, h.score, h.token_log_probabilities) for h in each] for each in found]


def two_workers(*models: object) -> Scheduler:
    """A scheduler of two workers, which may have a model each."""
    both = Scheduler(lambda request: ENGINE, SPECIAL, CPU, 400, workers=2)
    for worker, model in zip(both.workers, models):
        settings = copy.copy(worker.settings)
        object.__setattr__(settings, "model_for", lambda request, model=model: model)
        worker.settings = settings
    return both


# generate


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"sample": True, "seed": 3, "top_k": 5}])
@pytest.mark.parametrize("count", [2, 3])
def test_a_result_does_not_depend_on_its_thread(count, options):
    torch.set_num_threads(1)
    asked = requests(40, **options)
    expected = values(run(asked))
    assert values(run(asked, count)) == expected
    torch.set_num_threads(3 - torch.get_num_threads())
    assert values(run(asked)) == expected, "nor on the number of torch's threads"


def test_threads_take_batches_from_one_queue():
    names = set()

    class Naming:
        longest_target = None

        def start(self, batch, beams=1):
            names.add(threading.current_thread().name)
            if len(names) == 1:
                both.wait(60)  # until the other thread has a batch, too
            return ENGINE.start(batch, beams)

        def step(self, state, tokens):
            both.set() if len(names) > 1 else None
            return ENGINE.step(state, tokens)

    both = threading.Event()
    run(requests(40), 2, Naming())
    assert len(names) == 2


class Broken:
    """A model that fails at its third step."""

    longest_target = None

    def __init__(self) -> None:
        self.steps = 0

    def start(self, batch, beams=1):
        return ENGINE.start(batch, beams)

    def step(self, state, tokens):
        self.steps += 1
        if self.steps == 3:
            raise ZeroDivisionError("the third step")
        return ENGINE.step(state, tokens)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_thread_is_raised_by_the_call(workers):
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="third"):
        run(requests(40), workers, Broken())
    assert threading.active_count() == before, "the other thread has ended, too"


def test_a_request_that_does_not_fit_beside_the_others_runs_alone():
    asked, main = requests(40), threading.current_thread()

    class Narrow:
        """Memory for one thread at a time: every second one fails."""

        longest_target = None

        def start(self, batch, beams=1):
            if threading.current_thread() is not main and threading.current_thread().name.endswith("_1"):
                raise MemoryError("not enough memory")
            return ENGINE.start(batch, beams)

        def step(self, state, tokens):
            return ENGINE.step(state, tokens)

    assert values(run(asked, 2, Narrow())) == values(run(asked))


def test_the_callers_thread_count_stays():
    torch.set_num_threads(2)
    shares = generating.worker_threads(2)
    assert shares.submit(torch.get_num_threads).result() == 1
    assert torch.get_num_threads() == 2
    shares.shutdown()
    assert generating.worker_count(CPU, 3 * generating.MIN_WORKER_TOKENS) == 2
    assert generating.worker_count(CPU, generating.MIN_WORKER_TOKENS) == 1


def test_a_scheduler_that_generated_files_still_admits_requests():
    """Once a pool had run a file, no request entered a running batch of it any more."""
    one = Scheduler(lambda request: ENGINE, SPECIAL, CPU, 4000, workers=1)
    asked = requests(2, min_length=12)
    first = one.add(asked[0])
    one.step()
    generate(lambda request: ENGINE, asked, SPECIAL, CPU, 4000)
    second = one.add(asked[1])
    one.step()
    assert one.rows_stepped == 6 and not first.is_done and not second.is_done


# Scheduler


def test_two_workers_are_one_scheduler(monkeypatch):
    monkeypatch.setattr(scheduler, "SINGLE_WORKER_ROWS", 4)
    asked = requests(20)
    expected = values(run(asked))
    both = two_workers()
    handles = [both.add(request) for request in asked[:12]]
    assert min(both.rows) > 0, "both have work"
    both.step()
    both.cancel(handles[3])
    both.cancel(handles[3])
    handles += [both.add(request) for request in asked[12:]]
    done = set()
    while both.busy:
        done |= set(both.step())
    assert done == set(handles) - {handles[3]} and both.rows == [0, 0] and not both.worker_of
    found = [handle.result() for handle in handles if handle in done]
    assert values(found) == [each for number, each in enumerate(expected) if number != 3]


def test_news_come_from_the_worker_of_a_request(monkeypatch):
    monkeypatch.setattr(scheduler, "SINGLE_WORKER_ROWS", 1)
    both = two_workers()
    handles = [both.add(request) for request in requests(4, beam=1)]
    news = [[] for _ in handles]
    while both.busy:
        both.step()
        for tokens, handle in zip(news, handles):
            tokens += both.news(handle)
    assert [tuple(tokens) for tokens in news] == [handle.result()[0].tokens for handle in handles]


class Slow:
    """A model whose steps wait for a signal."""

    longest_target = None

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def start(self, batch, beams=1):
        return ENGINE.start(batch, beams)

    def step(self, state, tokens):
        assert self.go_on.wait(60)
        return ENGINE.step(state, tokens)


def test_a_worker_waits_for_no_other(monkeypatch):
    """Both once made their steps together, and the faster one was idle for a fifth of the time."""
    monkeypatch.setattr(scheduler, "SINGLE_WORKER_ROWS", 1)
    slow, asked = Slow(), requests(8)
    expected = values(run(asked))
    both = two_workers(slow)
    handles = [both.add(request) for request in asked[:6]]
    held = [handle for handle in handles if both.worker_of[handle] == 0]
    done = set()
    while len(done) < len(handles) - len(held):
        done |= set(both.step())
    assert held and not done & set(held) and both.news(held[0]) == []
    both.cancel(held[0])  # in the middle of its step
    monkeypatch.setattr(both, "costs", [0, 1])
    handles += [both.add(request) for request in asked[6:]]
    assert both.worker_of[handles[-2]] == 0, "to the worker whose step is in progress"
    slow.go_on.set()
    while both.busy:
        done |= set(both.step())
    assert done == set(handles) - {held[0]}
    found = values([handle.result() for handle in handles if handle in done])
    assert found == [each for handle, each in zip(handles, expected) if handle in done]


def test_a_request_without_room_at_the_first_worker_goes_to_another():
    """Few rows of long sources waited for the first worker while the other one was idle."""
    both = Scheduler(lambda request: ENGINE, SPECIAL, CPU, 4096, workers=2)
    long = [Request(list(range(4, 22)) * 6, Decode(beam=5)) for _ in range(6)]  # 108 tokens, padded 112
    for request in long:
        both.add(request)
    assert both.rows == [15, 15]


# The engine's step


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_traced_step_is_the_plain_one(shape, precision, monkeypatch):
    """TorchScript is deprecated: without it the same lines run in Python, to the same bits."""
    model = small(32, **SHAPES[shape])
    plain = make_engine(copy.deepcopy(model), precision)
    monkeypatch.setattr(engine, "STEPS_BEFORE_TRACING", 0)
    fast = make_engine(model, precision)
    batch = collate(random_samples(3, 8), 16)
    for beams in (1, 4):
        own, other = fast.start(batch, beams), plain.start(batch, beams)
        for word in (5, 9, 11):
            tokens = torch.full((len(own), 1), word)
            (left, own), (right, other) = fast.step(own, tokens), plain.step(other, tokens)
            assert torch.equal(left, right)
    assert all(fast.traced.values()) and not plain.traced


def test_a_step_is_traced_once_it_is_worth_it(monkeypatch):
    compiled = []
    monkeypatch.setattr(engine, "STEPS_BEFORE_TRACING", 5)
    monkeypatch.setattr(engine, "trace", lambda module, inputs: compiled.append(module))
    own = make_engine(small(33))
    state = own.start(collate(random_samples(2, 8), 16))
    for steps in range(1, 10):
        _, state = own.step(state, torch.full((2, 1), 5))
        assert len(compiled) == (steps > 5)


def test_where_nothing_can_be_traced_the_model_itself_runs():
    class Odd(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("an operator that TorchScript does not know")

    assert kernels.trace(Odd(), [torch.ones(1)]) is None
