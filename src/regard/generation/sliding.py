"""Generation beyond the context window of a language model."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.batch import Batch, collate
from regard.models.state import BLOCK, State
from regard.models.transformer import LanguageModel
from regard.sample import Sample


class SlidingWindow:
    """A language model without a length limit: when its window is full, its last half becomes the prompt.

    Each row's window moves when that row has filled it.
    """

    longest_target: int | None = None
    reads_prompts = True

    def __init__(self, model: LanguageModel, window: int) -> None:
        self.model, self.window = model, window

    def start(self, batch: Batch, beams: int = 1) -> State:
        state = self.model.start(batch, beams)
        if batch.source is None:
            raise ValueError("a language model needs a prompt of at least one token")
        ids = batch.source.ids[:, : self.window].repeat_interleave(beams, dim=0)  # [R,t]
        return with_window(state, torch.nn.functional.pad(ids, (0, self.window - ids.shape[1])))

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """Feed one more token to each row: [R,1]."""
        full = state.rows["next"] >= self.window  # [R]
        if bool(full.any()):
            state = self.move(state, tokens, full)
        read = state.rows["read"].scatter(1, state.rows["next"][:, None], tokens)  # [R,W]
        logits, state = self.model.step(state, tokens)
        return logits, with_window(state, read)

    def move(self, state: State, tokens: Tensor, full: Tensor) -> State:
        """The state after full rows have read the last half of their window and then `tokens`."""
        half = max(1, self.window // 2)
        rows = torch.cat([state.rows["read"], tokens], dim=1)[full, -half:]  # [F,W/2], the token not yet fed
        prompts = collate([Sample(source=row) for row in rows.tolist()], BLOCK).to(tokens.device)
        moved, others = self.start(prompts), (~full).nonzero()[:, 0]
        if not len(others):
            return moved
        joined = State.join([state.select(others), moved])
        places = torch.cat([others, full.nonzero()[:, 0]])  # where each row of `joined` belongs
        return joined.select(places.argsort())


def with_window(state: State, tokens: Tensor) -> State:
    """The state with the tokens of each row's window: [R,W]."""
    return replace(state, rows={**state.rows, "read": tokens})
