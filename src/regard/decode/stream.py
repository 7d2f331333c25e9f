"""Text without an end in sight: pieces as they come, and writing on beyond what a model reads at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.config import Decode
from regard.data import Batch, Sample, collate
from regard.decode.sample import Sampling
from regard.decode.search import BeamSearch, Steppable
from regard.model import LanguageModel, State
from regard.model.state import BLOCK
from regard.text import Special


class Sliding:
    """A language model whose window moves on: when it is full, its last half is read anew as a prompt.

    A search sees a model without a limit. The rows of a batch must be of one length, because all windows move
    at the same step; then no row's numbers depend on its neighbours.
    """

    longest_target: int | None = None
    reads_prompts = True

    def __init__(self, model: LanguageModel, window: int) -> None:
        self.model, self.window = model, window

    def start(self, batch: Batch, beams: int = 1) -> State:
        state = self.model.start(batch, beams)
        if batch.source is None or int(state.rows["next"].min()) != int(state.rows["next"].max()):
            raise ValueError("prompts whose windows move together are of one length")
        count = int(state.rows["next"].max())  # all but the last piece have been read
        read = batch.source.ids[:, :count].repeat_interleave(beams, dim=0)  # [R,t]
        return with_read(state, torch.nn.functional.pad(read, (0, self.window - count)))

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """Feed one more token to each row: [R,1]."""
        place = int(state.rows["next"][0])
        if place >= self.window:
            state, place = self.move(state, tokens), max(1, self.window // 2) - 1
        read = state.rows["read"].clone()  # [R,W]
        read[:, place] = tokens[:, 0]
        logits, state = self.model.step(state, tokens)
        return logits, with_read(state, read)

    def move(self, state: State, tokens: Tensor) -> State:
        """The state after reading the last half of the window, of which `tokens` will be the last ones."""
        half = max(1, self.window // 2)
        rows = torch.cat([state.rows["read"], tokens], dim=1)[:, -half:]  # [R,W/2]
        prompts = collate([Sample(source=row) for row in rows.tolist()], BLOCK).to(tokens.device)
        return self.start(prompts)


def with_read(state: State, read: Tensor) -> State:
    """The state with what each row's window holds: [R,W]."""
    return replace(state, rows={**state.rows, "read": read})


def stream(
    model: Steppable[Any],
    prompt: Sample,
    options: Decode,
    special: Special,
    device: torch.device,
    draw: int = 0,
) -> Iterator[int]:
    """The pieces that follow one prompt, each as soon as it is certain: those of `decode`.

    Of several draws it is the one with the number `draw`; of a search with several beams all come at the end.
    """
    batch = collate([prompt], BLOCK).to(device)
    search: Sampling[Any] | BeamSearch[Any]
    if options.sample:
        search = Sampling(model, batch, options, special, copies=[draw])
    else:
        search = BeamSearch(model, batch, options, special, None)
    told = 0
    for _ in search.steps():
        yield from search.said[told:]
        told = max(told, len(search.said))
