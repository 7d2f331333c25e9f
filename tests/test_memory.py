"""Where memory runs out, the running batch is halved, the results stay, and it is said once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from regard.config import Decode
from regard.errors import RegardError
from regard.generation import SpecialTokens, decode
from regard.generation.generate import is_out_of_memory
from regard.sample import Sample
from samples import END, START, random_samples, small

SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
CPU = torch.device("cpu")
CPU_WORDS = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
)
ERRORS = [MemoryError(), RuntimeError(CPU_WORDS), torch.OutOfMemoryError("CUDA out of memory. Tried")]


class Narrow:
    """A model with room for so many rows."""

    def __init__(self, rows: int, error: Exception) -> None:
        self.model, self.rows, self.error = small(6), rows, error
        self.tried: list[int] = []
        self.longest_target = None

    def start(self, batch, beams=1):
        self.tried.append(len(batch.source.ids))
        if len(batch.source.ids) * beams > self.rows:
            raise self.error
        return self.model.start(batch, beams)

    def step(self, state, tokens):
        return self.model.step(state, tokens)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_halves_until_it_fits(error):
    samples = [Sample(source=sample.source) for sample in random_samples(30, 3)]
    options = Decode(beam=3, max_length=10, tokens_per_batch=100_000)
    warnings = []
    model = Narrow(24, error)
    found = decode(model, samples, options, SPECIAL, CPU, warn=warnings.append)
    assert found == decode(model.model, samples, options, SPECIAL, CPU)
    assert len(warnings) == 1 and "memory" in warnings[0]
    assert model.tried[:3] == [30, 15, 7]
    assert max(model.tried[3:]) <= 7, "15 did not fit: its like is not tried a second time"


def test_one_sentence_that_does_not_fit_is_said_plainly():
    samples = [Sample(source=sample.source) for sample in random_samples(4, 3)]
    with pytest.raises(RegardError, match=r"not enough memory for a single sentence.*smaller beam"):
        decode(Narrow(2, MemoryError()), samples, Decode(beam=3), SPECIAL, CPU)


def test_other_errors_are_no_lack_of_memory():
    assert not is_out_of_memory(RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes"):
        decode(
            Narrow(2, RuntimeError("shapes differ")), [Sample(source=[5, END])], Decode(beam=3), SPECIAL, CPU
        )


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_process_with_little_room():
    """Really: 512 rows of 20,000 logits take 40 MB a tensor, and the process may grow by 70 MB only."""
    script = """
        import resource, sys, torch
        torch.set_num_threads(1)
        from regard.config import Decode
        from regard.sample import Sample
        from regard.generation import SpecialTokens, decode
        from samples import END, START, random_samples, small

        model, special = small(1, vocabulary=20_000), SpecialTokens(START, END, (0, START, 3))
        samples = [Sample(source=s.source) for s in random_samples(128, 2, vocabulary=20_000)]
        few = Decode(beam=4, max_length=3, tokens_per_batch=512)
        expected = decode(model, samples, few, special, torch.device("cpu"))
        pages = int(open("/proc/self/statm").read().split()[0])
        room = pages * resource.getpagesize() + 70_000_000
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        many = few.model_copy(update={"tokens_per_batch": 1_000_000})
        found = decode(model, samples, many, special, torch.device("cpu"), warn=lambda text: print(text))
        print([h.tokens for own in found for h in own] == [h.tokens for own in expected for h in own])
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    first, *rest = result.stdout.splitlines() or [result.stderr]
    assert "out of memory with 128 sentences" in first
    assert rest == ["True"]
