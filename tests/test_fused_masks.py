"""Without a mask tensor the fused kernel can be flash attention: hidden states and gradients stay equal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from regard.batch import Batch, collate
from regard.config import parse_model
from regard.models import transformer
from regard.models.attention import CAUSAL, attend, self_mask, visible
from regard.models.families import build
from regard.sample import Sample

EQUAL, PADDED = ([3, 4, 5, 6, 7, 8, 9, 3, 4, 5],) * 2, ([3, 4, 5, 6, 7, 8, 9, 3, 4, 5], [6, 5, 4])
FAMILIES = {
    "transformer": {"heads": 2, "layers": 2, "feed_forward": 16},
    "gpt": {"heads": 2, "layers": 2, "feed_forward": 16},
    "llama": {"heads": 2, "layers": 2, "feed_forward": 16},
    "t5": {"heads": 2, "layers": 2, "feed_forward": 16},
    "bert": {"heads": 2, "layers": 2, "feed_forward": 16},
}


def batch_of(family: str, rows: Sequence[Sequence[int]]) -> Batch:
    samples = [Sample(source=[] if family in ("gpt", "llama") else row, target=row) for row in rows]
    return collate([Sample(source=each.source) if family == "bert" else each for each in samples])


@pytest.mark.parametrize("rows", [EQUAL, PADDED], ids=["equal", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_models_without_a_mask_tensor(family: str, rows: Sequence[Sequence[int]], monkeypatch) -> None:
    """As on a GPU: with documents, padding before a key or a position bias there still is one."""
    torch.manual_seed(1)
    fields = {"family": family, "width": 16, "dropout": 0.0, **FAMILIES[family]}
    model, batch = build(parse_model(fields), 20).double(), batch_of(family, rows)
    tokens = batch.source if family == "bert" else batch.target
    assert tokens is not None
    real = tokens.positions >= 0
    results = []
    for dense in (True, False):
        needs = lambda device, tap, positions, dense=dense: dense or positions is not None  # noqa: E731
        monkeypatch.setattr(transformer, "needs_dense_mask", needs)
        model.zero_grad()
        hidden = model.hidden(batch)[real]
        hidden.square().sum().backward()
        results.append([hidden, *(p.grad for p in model.parameters() if p.grad is not None)])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two)


def test_a_causal_mask_is_the_mask_of_the_positions() -> None:
    q, k, v = torch.randn(3, 2, 4, 12, 8, dtype=torch.float64).unbind(0)
    positions = torch.arange(12).expand(2, -1)
    for causal, mask in ((True, CAUSAL), (False, None)):
        expected = attend(q, k, v, visible(positions, positions, causal))
        torch.testing.assert_close(attend(q, k, v, mask), expected)


def test_which_masks_are_tensors() -> None:
    full, padded = (collate([Sample(target=row) for row in rows]).target for rows in (EQUAL, PADDED))
    packed = collate([Sample(target=[3, 4, 5], documents=[0, 1, 1], positions=[0, 0, 1])]).target
    assert full is not None and padded is not None and packed is not None
    assert self_mask(full, True, False) is CAUSAL and self_mask(full, False, False) is None
    assert self_mask(padded, True, False) is CAUSAL
    for tokens, causal in ((padded, False), (packed, True)):
        assert isinstance(self_mask(tokens, causal, False), torch.Tensor)
    assert isinstance(self_mask(full, True, True), torch.Tensor)
