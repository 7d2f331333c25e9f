"""Models of pictures and sounds: what transformers saved opens here, and ours there, number for number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoFeatureExtractor,
    AutoImageProcessor,
    AutoModelForAudioClassification,
    AutoModelForImageClassification,
    AutoModelForSpeechSeq2Seq,
    AutoTokenizer,
    VisionEncoderDecoderModel,
)
from transformers.generation import GenerationMixin

from frame_models import (
    FRAME_MODELS,
    PICTURES,
    SOUNDS,
    SPECTRA,
    TASKS,
    frame_config,
    frames_batch,
    random_raw,
    save_frame_model,
    their_input,
)
from hf_models import CLOSE, LABELS, SENTINELS, make_pipelines, shaken  # noqa: F401 - a fixture
from regard.config import Decode
from regard.errors import UsageError
from regard.generation import decode
from regard.inputs.frames import make_reader
from regard.inputs.text import train_tokenizer
from regard.models.families import build
from regard.sample import Sample
from regard.storage import Folder, open_folder, read_model, unique_weights, write_identity, write_weights
from regard.storage.huggingface import opens_in_transformers
from regard.storage.inputs import input_size
from texts import CORPUS

TARGETS = [[0, 5, 6, 7], [0, 11, 12, 9]]
LEARNED = train_tokenizer(CORPUS, "bpe", 330, extra=("<mask>", *SENTINELS))


@torch.no_grad()
def their_logits(theirs: torch.nn.Module, folder: Folder, raws: list[Any]) -> torch.Tensor:
    read = torch.stack([their_input(folder.reader, raw) for raw in raws])
    if folder.labels:
        return theirs(read).logits[:, None]
    ids = torch.tensor(TARGETS)
    if folder.config.family == "whisper":
        return theirs(input_features=read, decoder_input_ids=ids).logits
    return theirs(pixel_values=read, decoder_input_ids=ids).logits


@torch.no_grad()
def compare(folder: Folder, theirs: torch.nn.Module) -> None:
    raws = [random_raw(folder.reader, seed) for seed in (1, 2)]
    batch = frames_batch(folder.reader, raws, None if folder.labels else TARGETS)
    torch.testing.assert_close(folder.model(batch), their_logits(theirs.eval(), folder, raws), **CLOSE)


@pytest.mark.parametrize("name", FRAME_MODELS)
def test_what_transformers_saved_opens(pipelines, name, tmp_path):
    theirs = save_frame_model(tmp_path, name, pipelines["gpt2"])
    folder = open_folder(tmp_path)
    compare(folder, theirs)
    assert folder.config.family == name.split()[0] and folder.task.name == TASKS[folder.config.family]
    assert folder.task.input == folder.reader.config.kind
    assert folder.labels == (tuple(LABELS.values()) if folder.task.name == "classify" else ())


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", [name for name in FRAME_MODELS if name.startswith(("whisper", "vit_gpt"))])
def test_texts_are_those_of_transformers(pipelines, name, beam, tmp_path):
    theirs = save_frame_model(tmp_path, name, pipelines["gpt2"], times=8)
    folder = open_folder(tmp_path)
    raws = [random_raw(folder.reader, seed) for seed in range(6)]
    read = torch.stack([their_input(folder.reader, raw) for raw in raws])
    settings = {"max_new_tokens": 12, "num_beams": beam, "do_sample": False, "length_penalty": 1.0}
    suppressed = sorted(folder.special.suppressed)
    # Whisper's own `generate` adds its long form; this is the search of all models
    ids = GenerationMixin.generate(theirs, read, suppress_tokens=suppressed or None, **settings)
    samples = [Sample(folder.reader.frames(raw)) for raw in raws]
    options = Decode(beam=beam, max_length=12)
    best = decode(folder.model, samples, options, folder.special, torch.device("cpu"))
    assert len({tuple(hypotheses[0].tokens) for hypotheses in best}) > 2
    for row, hypotheses in zip(ids.tolist(), best, strict=True):
        expected = row[1:]  # behind the start token
        expected = expected[: expected.index(0)] if 0 in expected else expected
        assert list(hypotheses[0].tokens) == expected


def test_bodies_without_a_head_give_their_weights(pipelines, tmp_path):
    """google/vit-base-patch16-224-in21k is a ViTModel: a run starts from it with a new output layer."""
    theirs = save_frame_model(tmp_path, "vit grey", pipelines["gpt2"])
    theirs.vit.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="without a head"):
        open_folder(tmp_path)
    initial = read_model(tmp_path)
    assert initial.task is None and not any(name.startswith("output.") for name in initial.weights)
    model = build(initial.config, input_size(initial.reader), 3).eval()
    missing, unknown = model.load_state_dict(initial.weights, strict=False)
    assert {*missing} == {"output.weight", "output.bias"} and not unknown
    raw = random_raw(initial.reader, 3)
    with torch.no_grad():
        found = model.encode(frames_batch(initial.reader, [raw]))
        expected = theirs.vit(their_input(initial.reader, raw)[None]).last_hidden_state
    torch.testing.assert_close(found, expected, **CLOSE)


# --- our folders

OWN = {
    "vit": ("vit", PICTURES, {}),
    "vit colours": ("vit", {**PICTURES, "channels": 3, "mean": (0.1, 0.2, 0.3)}, {"activation": "relu"}),
    "ast": ("ast", SPECTRA, {"epsilon": 1e-4}),
    "whisper": ("whisper", SOUNDS, {"encoder_layers": 1, "decoder_layers": 3}),
    "whisper untied": ("whisper", SOUNDS, {"tie_embeddings": False, "activation": "gelu_tanh"}),
    "vit_gpt": ("vit_gpt", PICTURES, {"encoder_layers": 1, "activation": "gelu_tanh"}),
    "vit_gpt untied": ("vit_gpt", {**PICTURES, "height": 12}, {"tie_embeddings": False, "epsilon": 1e-4}),
}
AUTO: dict[str, Any] = {
    "vit": AutoModelForImageClassification,
    "ast": AutoModelForAudioClassification,
    "whisper": AutoModelForSpeechSeq2Seq,
    "vit_gpt": VisionEncoderDecoderModel,
}


def written(path: Path, family: str, reads: dict[str, Any], more: dict[str, Any]) -> Folder:
    """A folder with a random model of ours, written as training does, and opened again."""
    path.mkdir(exist_ok=True)
    config = frame_config(family, reads, **more)
    reader = make_reader(config.input)
    labels = tuple(LABELS.values()) if config.task.name == "classify" else ()
    target = None if labels else LEARNED
    torch.manual_seed(5)
    model = shaken(build(config.model, input_size(reader), len(labels or LEARNED)))
    write_identity(path, config, reader, target, 0, labels)
    write_weights(path, config.model, unique_weights(model), config.input)
    folder = open_folder(path)
    raws = [random_raw(reader, seed) for seed in (1, 2)]
    batch = frames_batch(reader, raws, None if labels else TARGETS)
    with torch.no_grad():
        torch.testing.assert_close(folder.model(batch), model(batch), **CLOSE)
    assert folder.reader.fingerprint == reader.fingerprint and folder.labels == labels
    return folder


@pytest.mark.parametrize("name", OWN)
def test_transformers_opens_what_we_save(name, tmp_path):
    family, reads, more = OWN[name]
    folder = written(tmp_path, family, reads, more)
    assert opens_in_transformers(folder.config, True, folder.reader.config)
    theirs, info = AUTO[family].from_pretrained(tmp_path, output_loading_info=True)
    assert not any("pooler" not in key for key in info["missing_keys"]), info  # which nothing reads
    assert not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [type(theirs).__name__]
    compare(folder, theirs)
    raw = random_raw(folder.reader, 7)
    if folder.reader.config.kind == "image":
        processor = AutoImageProcessor.from_pretrained(tmp_path, use_fast=False)
        pixels = raw[:, :, 0] if raw.shape[2] == 1 else raw
        read = processor(pixels[None] if raw.shape[2] == 1 else pixels, return_tensors="pt", **channels(raw))
        found = read["pixel_values"][0]
    else:
        processor = AutoFeatureExtractor.from_pretrained(tmp_path)
        read = processor(raw / 32768, sampling_rate=16000, return_tensors="pt")
        found = next(iter(read.values()))[0]
    torch.testing.assert_close(found, their_input(folder.reader, raw), atol=1e-4, rtol=1e-4)
    if folder.labels:
        assert theirs.config.id2label == LABELS
    else:
        assert (
            len(AutoTokenizer.from_pretrained(tmp_path))
            == len(LEARNED)
            == theirs.get_output_embeddings().out_features
        )
    (tmp_path / "run.toml").unlink()  # as another program would have written it
    again = open_folder(tmp_path)
    assert again.task.name == folder.task.name and again.config == folder.config
    theirs.save_pretrained(tmp_path / "again")
    saved = load_file(tmp_path / "again" / "model.safetensors")
    for key, tensor in load_file(tmp_path / "model.safetensors").items():
        assert torch.equal(saved[key], tensor), key


def channels(raw: Any) -> dict[str, Any]:
    return {"input_data_format": "channels_first"} if raw.shape[2] == 1 else {}


ONLY_OURS = {
    "mean pool": ("vit", PICTURES, {"pool": "mean"}),
    "sinusoidal": ("vit", PICTURES, {"positions": "sinusoidal"}),
    "convolution": ("vit", PICTURES, {"front": "convolution"}),
    "head width": ("vit", PICTURES, {"head_width": 5}),
    "padded pictures": ("vit", {**PICTURES, "fit": "pad"}, {}),
    "video": ("vit", {**PICTURES, "kind": "video", "frames": 4}, {}),
    "spectra by vit": ("vit", SPECTRA, {}),
    "sounds by vit": ("vit", SOUNDS, {}),
    "convolution of sounds": ("vit", SOUNDS, {"front": "convolution"}),
    "another window": ("ast", {**SPECTRA, "window": 320}, {}),
    "mels by slaney": ("ast", {**SPECTRA, "scale": "whisper"}, {}),
    "sounds of their length": ("whisper", {**SOUNDS, "pad": False}, {}),
    "half a second": ("whisper", {**SOUNDS, "seconds": 0.5}, {}),
    "epsilon": ("whisper", SOUNDS, {"epsilon": 1e-4}),
    "captions of padded pictures": ("vit_gpt", {**PICTURES, "fit": "pad"}, {}),
    "head width of both": ("vit_gpt", PICTURES, {"head_width": 5}),
}


@pytest.mark.parametrize("name", ONLY_OURS)
def test_what_no_class_expresses_is_ours(name, tmp_path):
    family, reads, more = ONLY_OURS[name]
    folder = written(tmp_path, family, reads, more)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "regard"
    assert not opens_in_transformers(folder.config, True, folder.reader.config)


REFUSED = {
    "vit grey": [
        {"qkv_bias": False},
        {"hidden_act": "tanh"},
        {"architectures": ["ViTForMaskedImageModeling"]},
    ],
    "whisper": [{"scale_embedding": True}, {"encoder_ffn_dim": 21}],
    "vit_gpt grey": [
        {"encoder": {"model_type": "deit"}},
        {"decoder": {"n_embd": 24}},
        {"decoder": {"activation_function": "relu"}},
    ],
}


@pytest.mark.parametrize(
    ("name", "change"), [(name, each) for name, all_ in REFUSED.items() for each in all_]
)
def test_what_we_cannot_compute_is_refused_by_name(pipelines, name, change, tmp_path):
    save_frame_model(tmp_path, name, pipelines["gpt2"])
    file = tmp_path / "config.json"
    content = json.loads(file.read_text())
    for field, value in change.items():
        content[field] = {**content[field], **value} if isinstance(value, dict) else value
    file.write_text(json.dumps(content))
    with pytest.raises(UsageError) as caught:
        open_folder(tmp_path)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["vit grey", "ast", "whisper", "vit_gpt grey"])
def test_faults_of_a_folder_name_the_tensor(pipelines, name, tmp_path):
    save_frame_model(tmp_path, name, pipelines["gpt2"])
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    victim = sorted(key for key in tensors if "0." in key and tensors[key].dim() == 2)[0]
    save_file({key: tensor for key, tensor in tensors.items() if key != victim}, file)
    with pytest.raises(UsageError, match=f'"{victim}" is missing'):
        open_folder(tmp_path)
    save_file({**tensors, "mystery.weight": torch.ones(2)}, file)
    with pytest.raises(UsageError, match=r'"mystery\.weight" is unknown'):
        open_folder(tmp_path)
    save_file({**tensors, victim: torch.ones(7, 13)}, file)
    with pytest.raises(UsageError, match="shape"):
        open_folder(tmp_path)
