"""Sounds that are spoken here, and small models of Whisper's type: one trained here, one of transformers."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
import tokenizers
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from pictures import TRAIN, trained
from small_models import kept_folder

RATE = 8000
NOTES = {"lo": 400, "hi": 2000}  # words as tones
TONE, PAUSE = 0.25, 0.15  # seconds
LONGEST = 2.0  # seconds of a window


def tone(frequency: float, seconds: float = TONE, rate: int = RATE, loud: float = 0.4) -> NDArray[np.float64]:
    times = np.arange(round(seconds * rate)) / rate
    return loud * np.sin(2 * np.pi * frequency * times) * np.hanning(len(times))


def spoken(text: str, rate: int = RATE, seed: int = 0) -> NDArray[np.float64]:
    """Each word as its tone, with a pause before and behind."""
    dice = np.random.default_rng(seed)
    parts = [tone(NOTES[word] * dice.uniform(0.95, 1.05), rate=rate) for word in text.split()]
    gap = np.zeros(round(PAUSE * rate))
    return np.concatenate([gap, *(each for part in parts for each in (part, gap))])


def wav(samples: NDArray[np.float64], rate: int = RATE, subtype: str = "PCM_16") -> bytes:
    content = io.BytesIO()
    soundfile.write(content, samples, rate, format="WAV", subtype=subtype)
    return content.getvalue()


@cache
def singer() -> Path:
    """A model trained here: tones to words, windows of two seconds."""
    folder = kept_folder("regard-speech-")
    dice = np.random.default_rng(1)
    for split, count in (("train", 96), ("valid", 8)):
        (folder / split).mkdir()
        rows = ["file\ttext"]
        for number in range(count):
            text = " ".join(dice.choice(list(NOTES), size=dice.integers(1, 4)))
            (folder / split / f"{number}.wav").write_bytes(wav(spoken(text, seed=number)))
            rows.append(f"{number}.wav\t{text}")
        (folder / split / "rows.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return trained(
        folder,
        task={"name": "transcribe"},
        data={"train": str(folder / "train" / "rows.tsv"), "valid": str(folder / "valid" / "rows.tsv")},
        input={"kind": "audio", "sample_rate": RATE, "seconds": LONGEST, "pad": False, "mels": 16,
               "window": 200, "hop": 160},
        text={"kind": "word", "vocabulary": 300},
        model={"width": 32, "heads": 2, "layers": 1, "feed_forward": 64, "dropout": 0.0, "max_length": 16},
        train={**TRAIN, "steps": 160, "tokens_per_batch": 1024, "lr": 1e-2, "warmup": 20},
        decode={"beam": 1},
    )  # fmt: skip


# --- of transformers --------------------------------------------------------------------------------------

SPECIALS = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>",
            "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]  # fmt: skip
SECONDS = 2  # of a window
TIMES = 50 * SECONDS + 1


def byte_tokenizer() -> tokenizers.Tokenizer:
    """Bytes, and Whisper's special tokens behind them; the times have no names."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pipeline = tokenizers.Tokenizer(models.BPE({sign: at for at, sign in enumerate(alphabet)}, []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    return pipeline


def special(name: str) -> int:
    return 256 + SPECIALS.index(name)


def tiny_whisper(path: Path, seed: int = 0, width: int = 32, times: bool = True) -> Path:
    """A folder of transformers with random weights; without `times` it never writes one."""
    torch.manual_seed(seed)
    vocabulary = 256 + len(SPECIALS) + TIMES
    never = () if times else range(vocabulary - TIMES, vocabulary)
    config = WhisperConfig(
        vocab_size=vocabulary, d_model=width, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=80,
        max_source_positions=50 * SECONDS, max_target_positions=40, init_std=0.3,
        decoder_start_token_id=special("<|startoftranscript|>"), suppress_tokens=None,
        begin_suppress_tokens=None, **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 256),
    )  # fmt: skip
    model = WhisperForConditionalGeneration(config).eval()
    model.generation_config = GenerationConfig(
        decoder_start_token_id=special("<|startoftranscript|>"),
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 256),
        lang_to_id={f"<|{name}|>": special(f"<|{name}|>") for name in ("en", "de")},
        task_to_id={name: special(f"<|{name}|>") for name in ("translate", "transcribe")},
        no_timestamps_token_id=special("<|notimestamps|>"),
        is_multilingual=True,
        suppress_tokens=[1, 2, *range(257, 256 + len(SPECIALS) - 1), *never],
        begin_suppress_tokens=[32, 256],
        alignment_heads=[[1, 0], [1, 1]],
        max_length=40,
        max_initial_timestamp_index=50,
    )
    model.save_pretrained(path)
    WhisperFeatureExtractor(chunk_length=SECONDS).save_pretrained(path)
    byte_tokenizer().save(str(path / "tokenizer.json"))
    roles = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>")
    names = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    (path / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    return path
