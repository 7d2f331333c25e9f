"""Engines: a model made ready for inference on this machine, with the model's `start` and `step`.

The weights are packed once: projections of the same input become one product, in the chosen precision. The
model's own code runs with these parts. After some steps of one token the engine traces it with TorchScript
and replays the recorded graph, because for small batches Python's calls cost more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.batch import Batch, Frames, Unpadding, collate
from regard.device import bfloat16_hardware, release_memory
from regard.errors import UsageError
from regard.generation.kernels import can_pack, replay, trace
from regard.generation.packing import (
    LONGEST_HALF,
    Calibration,
    HalfSelfAttention,
    Packing,
    Shared,
    choose_precision,
    pack_blocks,
    pack_linears,
)
from regard.models.attention import BLOCK, LONG_ROW, Mask
from regard.models.cache import Cache, KeysValues, LayerCache
from regard.models.layers import Tap
from regard.models.positions import NO_TERMS, PositionTerms
from regard.models.transformer import (
    CausalDecoder,
    EncoderDecoder,
    LanguageModel,
    Stack,
    StepInputs,
)
from regard.sample import Sample, Source

# Channels of a model from which on its caches are worth converting. Every product is then large enough for
# oneDNN, which leaves up to 4096 multiplications to another kernel: a sentence alone has the bits of many.
WIDE = 256
STEPS_BEFORE_TRACING = 48  # by then, Python's calls have cost as much time as the tracing costs
TRACING = Lock()


def make_engine(
    model: Any, precision: str = "float32", calibration: Calibration | None = None, engine: str = "auto"
) -> Any:
    """The model, or what has its methods and is faster on this machine. Packs the model in place."""
    return open_engine(model, precision, calibration, engine)[0]


def open_engine(
    model: Any,
    precision: str,
    calibration: Calibration | None = None,
    engine: str = "auto",
    shared: Shared | None = None,
) -> tuple[Any, str]:
    """The engine of this name, and the precision that was chosen. `shared` has what models with the same
    parameters have packed."""
    if engine not in ENGINES:
        raise UsageError(f'engine "{engine}" is unknown; use {", ".join(ENGINES)}', code="E_ENGINE")
    model.eval()
    return ENGINES[engine](model, precision, calibration, shared)


def plain(
    model: nn.Module, precision: str, calibration: Calibration | None, shared: Shared | None
) -> tuple[nn.Module, str]:
    """The model itself, as it was trained."""
    if precision not in ("auto", "float32"):
        raise UsageError(f'the engine "plain" computes in float32, not in {precision}', code="E_PRECISION")
    return model, "float32"


def packed(
    model: Any, precision: str, calibration: Calibration | None, shared: Shared | None
) -> tuple[Any, str]:
    """Packed weights, and for a Transformer decoder a traced step."""
    chosen = choose_precision(precision, model, calibration)
    packing = Packing(model, chosen, calibration, shared)
    if can_pack(next(model.parameters())) and pack_blocks(model, packing):
        release_memory()  # of the weights as they were
        if type(encoder := getattr(model, "encoder", None)) is Stack:
            model.encoder = TracedStack(encoder)
        is_decoder = isinstance(model, EncoderDecoder | LanguageModel)
        return Engine(model, chosen) if is_decoder else model, chosen
    if chosen != "float32":
        pack_linears(model, packing)
    return model, chosen


# name -> maker of what has the model's methods, with the precision chosen; another engine is another entry
ENGINES: dict[str, Callable[[Any, str, Calibration | None, Shared | None], tuple[Any, str]]] = {
    "auto": packed,
    "packed": packed,
    "plain": plain,
}


@torch.no_grad()
def warm_up(engine: Any, source: Source = (0,)) -> None:
    """Trace now: a server should do this before the first request, not during one."""
    batch = collate([Sample(source=source)], BLOCK)
    if isinstance(encoder := getattr(getattr(engine, "model", engine), "encoder", None), TracedStack):
        encoder.calls = STEPS_BEFORE_TRACING - 1
        engine.start(batch) if isinstance(engine, Engine) else engine(batch)
    if isinstance(engine, Engine):
        engine.warm_up(source)


def cache_dtype(precision: str, width: int, beams: int) -> torch.dtype:
    """The precision of keys and values: bfloat16 where the weights are no more exact than that.

    Products of bfloat16 take a third of the time, but each call some 15 microseconds more: too much where
    little is multiplied. Depends on model and beam width only, so that outputs are batch-invariant.
    """
    worth_it = precision != "float32" and width >= WIDE and beams > 1 and bfloat16_hardware()
    return torch.bfloat16 if worth_it else torch.float32


class Engine:
    """A packed Transformer decoder: GPT, Llama, T5, or the paper's encoder-decoder."""

    def __init__(self, model: EncoderDecoder | LanguageModel, precision: str) -> None:
        self.model, self.precision = model, precision
        self.width = next(iter(model.decoder)).attention.cache_width
        self.steps_before_tracing = STEPS_BEFORE_TRACING
        # for each type of the cache: a trace is made for one type
        self.steps: dict[torch.dtype, int] = {}
        self.traced: dict[torch.dtype, Callable[..., Tensor] | None] = {}

    @property
    def longest_target(self) -> int | None:
        return self.model.longest_target

    @property
    def reads_prompts(self) -> bool:
        return bool(getattr(self.model, "reads_prompts", False))

    @torch.no_grad()
    def start(self, batch: Batch, beams: int = 1, past: Cache | None = None) -> Cache:
        """As the model's; `past` has the beginnings of a language model's prompts."""
        if isinstance(self.model, LanguageModel):
            rows = 0 if batch.source is None else len(batch.source.positions)
            cache = self.model.empty_cache(rows, self.dtype(beams)) if past is None else past
            return self.model.start(batch, beams, cache=cache)
        return self.model.start(batch, beams, dtype=self.dtype(beams))

    def dtype(self, beams: int) -> torch.dtype:
        return cache_dtype(self.precision, self.width, beams)

    @torch.no_grad()
    def start_encoded(self, source: Frames, beams: int = 1) -> Cache:
        return cast(EncoderDecoder, self.model).start_encoded(source, beams, self.dtype(beams))

    @torch.no_grad()
    def step(self, cache: Cache, tokens: Tensor) -> tuple[Tensor, Cache]:
        """As the model's: [R,T] -> logits [R,T,V]."""
        inputs, cache = self.model.step_inputs(cache, tokens)
        run = self.model.run_step if tokens.shape[1] > 1 else self.current_step(inputs)
        return run(inputs).view(*tokens.shape, -1), cache

    def current_step(self, inputs: StepInputs) -> Callable[[StepInputs], Tensor]:
        """The model's step, until there were enough steps that tracing it is worth the time."""
        dtype = inputs.keys[0].dtype
        if dtype not in self.traced:
            with TRACING:  # several threads come here
                self.steps[dtype] = self.steps.get(dtype, 0) + 1
                if self.steps[dtype] > self.steps_before_tracing and dtype not in self.traced:
                    self.traced[dtype] = trace(TracedStep(self.model, inputs), inputs.tensors())
        traced = self.traced.get(dtype)
        return self.model.run_step if traced is None else lambda given: replay(traced, given.tensors())

    def warm_up(self, source: Source = (0,)) -> None:
        for beams in (1, 2):  # whose caches may have different types
            cache = self.start(collate([Sample(source=source)]), beams)
            self.steps[cache.keys[0].dtype] = self.steps_before_tracing
            for _ in range(2):
                _, cache = self.step(cache, torch.zeros((beams, 1), dtype=torch.int64))


class TracedStack(Stack):
    """The stack of a packed encoder; after some calls its operators are recorded and replayed, too.

    Long rows, whose attention is a loop over rows, and traces for people run the stack itself.
    """

    def __init__(self, stack: Stack) -> None:
        nn.Module.__init__(self)
        self.blocks, self.final_norm = stack.blocks, stack.final_norm
        self.positions, self.window = stack.positions, stack.window
        is_half = all(isinstance(block.attention, HalfSelfAttention) for block in self)
        self.longest = LONGEST_HALF if is_half else LONG_ROW  # columns, up to which rows are not a loop
        self.calls = 0
        self.traced: Callable[..., Tensor] | None = None

    def forward(
        self,
        x: Tensor,
        mask: Mask,
        past: Sequence[LayerCache] | None = None,
        memory: Sequence[KeysValues] | None = None,
        memory_mask: Mask = None,
        tap: Tap | None = None,
        order: PositionTerms = NO_TERMS,
        layout: Unpadding | None = None,
    ) -> Tensor:
        is_short = layout is not None and layout.columns <= self.longest
        if layout is None or not is_short or not isinstance(mask, Tensor) or order is not NO_TERMS:
            return super().forward(x, mask, past, memory, memory_mask, tap, order, layout)
        inputs = [x, mask, layout.places]
        if self.calls <= STEPS_BEFORE_TRACING:
            with TRACING:
                self.calls += 1
                if self.calls == STEPS_BEFORE_TRACING:
                    self.traced = trace(UnpaddedStack(self), inputs)
        if self.traced is None:
            return super().forward(x, mask, layout=layout)
        return replay(self.traced, inputs)


class UnpaddedStack(nn.Module):
    """The stack of an encoder as a function of tensors only: [1,T,D], [B,1,S,S], [T] -> [1,T,D]."""

    def __init__(self, stack: TracedStack) -> None:
        super().__init__()
        self.blocks, self.final_norm = stack.blocks, stack.final_norm
        self.run = partial(Stack.forward, stack)

    def forward(self, x: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        return self.run(x, mask, layout=Unpadding(mask.shape[0], mask.shape[3], places))


class TracedStep(nn.Module):
    """The step of a model as a function of tensors only."""

    def __init__(self, model: CausalDecoder, example: StepInputs) -> None:
        super().__init__()
        self.decoder, self.output = model.decoder, model.output
        self.run_step, self.like = model.run_step, example.like

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.run_step(self.like(tensors))
