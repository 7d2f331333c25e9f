"""The loss and the learning rate against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.batch import collate
from regard.config import Train
from regard.device import Machine
from regard.sample import IGNORED
from regard.training.loss import batch_loss, count, cross_entropy, output_cross_entropy
from regard.training.optimizer import learning_rate
from samples import random_samples, small


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 3),
    length=st.integers(1, 300),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    scale=st.sampled_from([1.0, 0.01, -3.0]),
)
def test_output_cross_entropy_equals_torch_in_value_and_gradient(rows, length, smoothing, scale):
    """Its gradients are computed ahead of time: a scaled loss must scale them too."""
    torch.manual_seed(length)
    hidden = torch.randn(rows, length, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 11, (rows, length))
    labels[torch.rand(rows, length) < 0.3] = IGNORED
    ours = output_cross_entropy(hidden, weight, labels, smoothing) * scale
    theirs = cross_entropy(hidden @ weight.T, labels, smoothing) * scale
    torch.testing.assert_close(ours, theirs)
    for own, other in zip(
        torch.autograd.grad(ours, (hidden, weight)), torch.autograd.grad(theirs, (hidden, weight))
    ):
        torch.testing.assert_close(own, other)


def test_output_cross_entropy_in_bfloat16_is_near():
    torch.manual_seed(0)
    hidden, weight = torch.randn(4, 90, 32, requires_grad=True), torch.randn(500, 32, requires_grad=True)
    labels = torch.randint(0, 500, (4, 90))
    exact = cross_entropy(hidden @ weight.T, labels, 0.1)
    near = output_cross_entropy(hidden, weight, labels, 0.1, torch.bfloat16)
    assert near.item() == pytest.approx(exact.item(), rel=2e-3)
    wanted = torch.autograd.grad(exact, (hidden, weight))
    for own, other in zip(torch.autograd.grad(near, (hidden, weight)), wanted):
        assert F.cosine_similarity(own.flatten(), other.flatten(), dim=0) > 0.9995


def test_a_sure_word_has_a_small_and_true_gradient_in_bfloat16():
    """Near 1 a probability of eight bits is off by more than the gradient: it must come from the others."""
    weight = torch.zeros(300, 2)
    weight[7, 0] = 1.0
    hidden = torch.tensor([[[13.0, 0.0]]], requires_grad=True)  # p(7) = 0.99932
    labels = torch.tensor([[7]])
    loss = output_cross_entropy(hidden, weight, labels, dtype=torch.bfloat16)
    exact = cross_entropy(hidden @ weight.T, labels)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-2)
    (own,), (other,) = torch.autograd.grad(loss, hidden), torch.autograd.grad(exact, hidden)
    assert own[0, 0, 0].item() == pytest.approx(other[0, 0, 0].item(), rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_word_thought_impossible_has_a_finite_loss(dtype):
    hidden = torch.tensor([[[200.0, 0.0]]])
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.5, 0.0]])
    loss = output_cross_entropy(hidden, weight, torch.tensor([[1]]), dtype=dtype)
    assert loss.item() == pytest.approx(400.0)


@pytest.mark.parametrize("bias", [False, True])
def test_the_bias_of_the_output_layer_learns_too(bias):
    torch.manual_seed(3)
    hidden = torch.randn(2, 40, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
    added = torch.randn(9, dtype=torch.float64, requires_grad=True) if bias else None
    labels = torch.randint(0, 9, (2, 40))
    ours = output_cross_entropy(hidden, weight, labels, 0.1, None, added)
    theirs = cross_entropy(F.linear(hidden, weight, added), labels, 0.1)
    torch.testing.assert_close(ours, theirs)
    learned = (hidden, weight, added) if bias else (hidden, weight)
    for own, other in zip(torch.autograd.grad(ours, learned), torch.autograd.grad(theirs, learned)):
        torch.testing.assert_close(own, other)


def test_cross_entropy_is_the_written_formula():
    logits, labels = torch.randn(2, 3, 5, dtype=torch.float64), torch.tensor([[0, 4, IGNORED], [2, 2, 1]])
    log_p = logits.log_softmax(-1)
    expected = 0.0
    for row in range(2):
        for at in range(3):
            label = int(labels[row, at])
            if label != IGNORED:
                expected += 0.9 * -log_p[row, at, label] + 0.1 * -log_p[row, at].mean()
    torch.testing.assert_close(cross_entropy(logits, labels, 0.1), expected)
    assert count(labels) == 5


def test_the_papers_schedule():
    config = Train(schedule="paper", warmup=4000)
    for step in (1, 100, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, config, 512) == pytest.approx(expected, rel=1e-12)
    same = Train(schedule="inverse-sqrt", lr=(512 * 4000) ** -0.5, warmup=4000)
    for step in (1, 399, 4000, 90_000):
        assert learning_rate(step, same, 512) == pytest.approx(learning_rate(step, config, 512))


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", "inverse-sqrt"])
def test_schedules_rise_to_the_peak_and_fall(schedule):
    config = Train(schedule=schedule, lr=2e-3, warmup=10, steps=100)
    rates = [learning_rate(step, config, 64) for step in range(1, 101)]
    assert rates[:10] == sorted(rates[:10]) and rates[9] == pytest.approx(2e-3)
    assert rates[9:] == sorted(rates[9:], reverse=True)
    if schedule in ("linear", "cosine"):
        assert rates[-1] == pytest.approx(0.0, abs=1e-9)


def test_a_hook_on_the_output_layer_is_called_in_training() -> None:
    """The loss reads `output.weight` portion by portion, which an adapter or a hook would never notice."""
    model, batch = small(3), collate(random_samples(4, 5))
    machine = Machine(torch.device("cpu"), "float32", 1)
    before = batch_loss(model, batch, "words", 0.0, machine)
    model.output.register_forward_hook(lambda module, inputs, output: output * 0)
    after = batch_loss(model, batch, "words", 0.0, machine)
    assert before != after
    torch.testing.assert_close(after, torch.tensor(count(batch.labels) * math.log(model.output.out_features)))
