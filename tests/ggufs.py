"""Small GGUF files, made with the `gguf` package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES

from regard.export.to_gguf import add

WIDTH, LAYERS = 32, 1
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"▁abc", "ab", "▁a"]
KINDS = [2, 3, 3, *[6] * 256, *[1] * 6]
METADATA: dict[str, Any] = {
    "general.name": "small",
    "llama.context_length": 64,
    "llama.embedding_length": WIDTH,
    "llama.block_count": LAYERS,
    "llama.feed_forward_length": WIDTH,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": KINDS,
    "tokenizer.ggml.scores": [float(-number) for number in range(len(TOKENS))],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


def shapes() -> dict[str, tuple[int, ...]]:
    square, half = (WIDTH, WIDTH), (WIDTH // 2, WIDTH)
    block = {"attn_q": square, "attn_k": half, "attn_v": half, "attn_output": square}
    block |= {"ffn_gate": square, "ffn_up": square, "ffn_down": square}
    block |= {"attn_norm": (WIDTH,), "ffn_norm": (WIDTH,)}
    inner = {f"blk.{n}.{name}.weight": shape for n in range(LAYERS) for name, shape in block.items()}
    return {"token_embd.weight": (len(TOKENS), WIDTH), "output_norm.weight": (WIDTH,), **inner}


def gguf_bytes(path: Path, changes: Mapping[str, Any] | None = None, kind: str = "Q4_0") -> bytes:
    """A file with random weights; `changes` of metadata, None removes an entry."""
    random, quantized = np.random.default_rng(1), GGMLQuantizationType[kind]
    entries = {**METADATA, **(changes or {})}
    writer = GGUFWriter(path, str(entries.pop("general.architecture", "llama")))
    for name, value in entries.items():
        if value is not None:
            add(writer, name, value)
    block, size = GGML_QUANT_SIZES[quantized]
    for name, shape in shapes().items():
        if len(shape) == 1 or shape[-1] % block:
            writer.add_tensor(name, random.standard_normal(shape, dtype=np.float32))
            continue
        raw = random.integers(0, 40, (*shape[:-1], shape[-1] // block * size), dtype=np.uint8)
        writer.add_tensor(name, raw, raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()
