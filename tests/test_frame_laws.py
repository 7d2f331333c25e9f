"""Laws of the models that read pictures and sounds: steps, batches, padding, engines, traces, gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from frame_models import PICTURES, SOUNDS, SPECTRA, random_frames, small_frame_model
from regard.batch import Frames, collate
from regard.config import Decode
from regard.config.input import parse_input
from regard.generation import SpecialTokens, decode
from regard.generation.engine import Engine, make_engine
from regard.generation.heads import label_probabilities
from regard.generation.kernels import can_pack, can_quantize
from regard.generation.score import map_logits
from regard.inputs.frames import make_reader
from regard.interpret import Recorder
from regard.models.attention import BLOCK
from regard.sample import IGNORED, Sample
from samples import END, START, VOCABULARY

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
CPU = torch.device("cpu")
SPECIAL = SpecialTokens(START, END, suppressed=(0, START, 3))
COLOURS = {**PICTURES, "channels": 3, "height": 16, "width": 20}
SHORT = {**SOUNDS, "pad": False, "seconds": 0.4}
SHAPES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "vit": ("vit", PICTURES, {}),
    "vit mean": ("vit", COLOURS, {"pool": "mean", "positions": "sinusoidal"}),
    "vit convolution": ("vit", COLOURS, {"front": "convolution", "width": 64}),
    "vit first": ("vit", SHORT, {}),
    "vit sounds": ("vit", SHORT, {"pool": "mean"}),
    "vit spectra": ("vit", SHORT, {"front": "convolution", "pool": "mean", "positions": "sinusoidal"}),
    "ast": ("ast", SPECTRA, {}),
    "whisper": ("whisper", {**SOUNDS, "seconds": 0.4}, {"decoder_layers": 1}),
    "whisper lengths": ("whisper", SHORT, {"encoder_layers": 1}),
    "vit_gpt": ("vit_gpt", PICTURES, {"encoder_layers": 1}),
    "vit_gpt wide": ("vit_gpt", COLOURS, {"width": 256, "heads": 4, "feed_forward": 512, "layers": 1}),
    "whisper wide": ("whisper", SHORT, {"width": 256, "heads": 4, "feed_forward": 512, "layers": 1}),
}
READERS = {name: make_reader(parse_input(reads)) for name, (_, reads, _) in SHAPES.items()}
EVEN = {"width": 32, "heads": 4, "feed_forward": 64}  # GELU of other sizes may differ in the last bits
MODELS = {
    name: small_frame_model(family, READERS[name].config, VOCABULARY, **{**EVEN, **more})
    for name, (family, _, more) in SHAPES.items()
}
WRITERS = [name for name in SHAPES if name.startswith(("whisper", "vit_gpt"))]
ENGINES = {name: make_engine(copy.deepcopy(MODELS[name])) for name in SHAPES}


def samples_of(name: str, count: int, seed: int) -> list[Sample]:
    return random_frames(READERS[name], count, seed)


def logits_alone(model: Any, sample: Sample, multiple: int = 1) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(collate([sample], multiple))[0]
    return found


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_full_equals_any_chunking(name, seed, data):
    model, samples = MODELS[name], samples_of(name, 3, seed)
    batch = collate(samples)
    longest, done, parts = batch.target.ids.shape[1], 0, []
    state = model.start(batch)
    while done < longest:
        size = data.draw(st.integers(1, longest - done))
        logits, state = model.step(state, batch.target.ids[:, done : done + size])
        parts.append(logits)
        done += size
    stepped = torch.cat(parts, dim=1)
    for row, sample in enumerate(samples):
        length = len(sample.target)
        torch.testing.assert_close(stepped[row, :length], logits_alone(model, sample), **CLOSE)


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), multiple=st.sampled_from([1, 3, 16]))
def test_batch_equals_each_row_alone(name, seed, multiple):
    model, samples = MODELS[name], samples_of(name, 4, seed)
    with torch.no_grad():
        together = model(collate(samples, multiple))
    for row, sample in enumerate(samples):
        alone = logits_alone(model, sample)
        torch.testing.assert_close(together[row, : len(alone)], alone, **CLOSE)


@pytest.mark.parametrize("name", [name for name in SHAPES if name not in WRITERS])
@pytest.mark.parametrize("packed", [False, True])
def test_neighbours_change_no_bit_of_a_label(name, packed):
    """As `classify` runs it: padded to blocks, in batches of any size."""
    model, samples = (ENGINES if packed else MODELS)[name], samples_of(name, 9, 5)
    samples = [Sample(sample.source) for sample in samples]

    def labels(some: list[Sample]) -> list[list[float]]:
        return map_logits(model, some, lambda _, logits: logits[0].tolist(), 400, CPU)

    alone = [labels([sample])[0] for sample in samples]
    assert labels(samples) == alone


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("beam", [1, 3])
def test_neighbours_change_no_bit_of_a_text(name, beam):
    samples = [Sample(sample.source) for sample in samples_of(name, 9, 7)]
    options = Decode(beam=beam, max_length=12)
    for model in (MODELS[name], ENGINES[name]):
        alone = [decode(model, [sample], options, SPECIAL, CPU)[0] for sample in samples]
        together = decode(model, samples, options, SPECIAL, CPU)
        assert [[(h.tokens, h.score) for h in each] for each in together] == [
            [(h.tokens, h.score) for h in each] for each in alone
        ]


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("beam", [1, 3])
def test_engines_write_the_models_text(name, beam):
    """Long enough that the step of the engine is recorded and replayed."""
    samples = [Sample(sample.source) for sample in samples_of(name, 12, 8)]
    options = Decode(beam=beam, max_length=20)
    own, other = (decode(each[name], samples, options, SPECIAL, CPU) for each in (MODELS, ENGINES))
    assert [h[0].tokens for h in own] == [h[0].tokens for h in other]
    if can_pack(torch.ones(2, 2)):
        assert isinstance(ENGINES[name], Engine)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", SHAPES)
def test_less_precision_is_close(name, precision):
    possible = can_quantize() if precision == "int8" else can_pack(torch.empty(0, dtype=torch.bfloat16))
    if not possible:
        pytest.skip("this build of torch has no such kernels")
    engine = make_engine(copy.deepcopy(MODELS[name]), precision)
    batch = collate(samples_of(name, 4, 9), BLOCK)
    run = engine.model if isinstance(engine, Engine) else engine
    with torch.no_grad():
        found, expected = run(batch), MODELS[name](batch)
    real = (
        torch.ones(found.shape[:2], dtype=torch.bool) if name not in WRITERS else batch.target.positions >= 0
    )
    spread = float(expected[real].std())
    assert float((found - expected)[real].abs().mean()) < 0.1 * spread


@pytest.mark.parametrize("name", SHAPES)
def test_watching_changes_nothing_and_weights_are_shares(name):
    model, batch = MODELS[name], collate(samples_of(name, 3, 10))
    recorder = Recorder()
    with torch.no_grad():
        torch.testing.assert_close(model(batch, recorder), model(batch), **CLOSE)
    seen = model.source.front(batch.source).positions >= 0
    for block in ("encoder.0.self", "decoder.0.cross"):
        if block.startswith("encoder") or name in WRITERS:
            shares = recorder.tensors[f"{block}.weights"]
            rows = seen if block.startswith("encoder") else batch.target.positions >= 0
            expected = rows[:, None, :].expand(shares.shape[:3]).float()
            torch.testing.assert_close(shares.sum(-1), expected)
            assert not shares.masked_select(~seen[:, None, None].expand_as(shares)).any()


@pytest.mark.parametrize("name", SHAPES)
def test_rubbish_in_padding_changes_nothing(name):
    model, batch = MODELS[name], collate(samples_of(name, 3, 11), 16)
    source = batch.source
    rubbish = torch.randn(source.values.shape, generator=torch.Generator().manual_seed(1))
    dirty = torch.where((source.positions < 0).unsqueeze(2), rubbish, source.values)
    if name.startswith("whisper"):  # zeros at padding are part of `Frames`: a convolution reads neighbours
        dirty = source.values
    with torch.no_grad():
        clean, other = (
            model(batch),
            model(type(batch)(Frames(dirty, source.positions, source.padding), batch.target)),
        )
    rows = batch.target.positions >= 0 if name in WRITERS else torch.ones(clean.shape[:2], dtype=torch.bool)
    assert torch.equal(clean[rows], other[rows])


@pytest.mark.parametrize("name", SHAPES)
def test_every_parameter_gets_a_gradient(name):
    model = copy.deepcopy(MODELS[name]).train()
    samples = samples_of(name, 4, 12)
    if name not in WRITERS:
        samples = [Sample(sample.source, labels=[number % 3]) for number, sample in enumerate(samples)]
    batch = collate(samples)
    loss = F.cross_entropy(model(batch).transpose(1, 2), batch.labels, ignore_index=IGNORED)
    loss.backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all()), key
        # softmax ignores what all keys of a query share
        assert key.endswith("key.bias") or bool(parameter.grad.any()), key


def test_labels_of_a_picture_are_probabilities():
    model, samples = MODELS["vit"], samples_of("vit", 2, 13)
    with torch.no_grad():
        logits = model(collate([Sample(sample.source) for sample in samples]))
    assert logits.shape == (2, 1, VOCABULARY)
    for row in label_probabilities(logits[:, 0], False):
        assert abs(float(row.sum()) - 1) < 1e-6
