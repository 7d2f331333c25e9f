"""Llama and its relatives in GGUF: metadata as config.json, and names and layouts of tensors, both ways.

In files of the architecture "llama" the rows of queries and keys are interleaved: llama.cpp rotates channels
2i and 2i + 1, transformers i and i + C/2. Gemma's norms have the weight w there, w - 1 in transformers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.config.model import RopeScaling
from regard.config.reading import shown
from regard.errors import UsageError
from regard.models.positions import scale_frequencies
from regard.storage.files import Json
from regard.storage.gguf.header import REFUSED, GGUFFile

Metadata = Mapping[str, Any]
# architecture there -> model_type and class of transformers
TYPES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma": ("gemma", "GemmaForCausalLM"),
}
TENSORS = {  # without the block's number and the ending
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE = "rope_freqs.weight"  # factors of the frequencies, of Llama 3
BLOCK = re.compile(r"(?:blk\.(\d{1,4})\.)?([a-z_]+)\.(weight|bias)")
LLAMA3: dict[str, Any] = {
    "low_factor": 1.0,
    "high_factor": 4.0,
    "original_length": 8192,
}  # of every release of Llama 3
DIGITS = 7  # of a float32


# --- metadata and config.json -----------------------------------------------------------------------------


def config_of(file: GGUFFile) -> Json:
    """config.json of a file; each field that changes the result is used or refused."""
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in TYPES:
        raise UsageError(
            f"{file.path}: a model of the architecture {shown(name)}; Regard reads {', '.join(TYPES)}",
            code=REFUSED,
        )
    kind, class_name = TYPES[name]

    def number(field: str, default: Any = None, form: type = int) -> Any:
        value = file.metadata.get(f"{name}.{field}", default)
        if type(value) not in (form, int):
            raise file.damaged(f"{name}.{field} is {shown(value)}")
        return float(f"{value:.{DIGITS}g}") if form is float else value

    if "token_embd.weight" not in file.tensors or len(file.tensors["token_embd.weight"].shape) != 2:
        raise file.damaged("the embedding token_embd.weight is missing")
    width, heads = number("embedding_length"), number("attention.head_count")
    if heads < 1 or width < 1:
        raise file.damaged(f"{heads} heads and a width of {width}")
    channels = number("attention.key_length", width // heads)
    refuse_others(file, name, channels)
    window = number("attention.sliding_window", 0)
    if window:
        kind, class_name = "mistral", "MistralForCausalLM"
    config = {
        "model_type": kind,
        "architectures": [class_name],
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "hidden_size": width,
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": number("attention.head_count_kv", heads),
        "head_dim": channels,
        "intermediate_size": number("feed_forward_length"),
        "max_position_embeddings": number("context_length"),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon", 1e-6, float),
        "hidden_act": "gelu_pytorch_tanh" if kind == "gemma" else "silu",
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": "float32",
        "rope_parameters": rope_of(file, name, channels, number("rope.freq_base", 10000.0, float)),
    }
    return config | ({"sliding_window": window} if window else {})


def refuse_others(file: GGUFFile, name: str, channels: int) -> None:
    """Fields that Regard does not compute with."""
    expected = {
        "rope.dimension_count": channels,
        "attention.value_length": channels,
        "rope.scaling.type": ("none", "linear"),
        "expert_count": 0,
        "attention.scale": channels**-0.5,
        "attn_logit_softcapping": 0.0,
        "final_logit_softcapping": 0.0,
    }
    for field, value in expected.items():
        given = file.metadata.get(f"{name}.{field}")
        if given is not None and given not in (value if isinstance(value, tuple) else (value,)):
            raise UsageError(f"{file.path}: {name}.{field} = {shown(given)} is not supported", code=REFUSED)


def rope_of(file: GGUFFile, name: str, channels: int, theta: float) -> Json:
    if ROPE in file.tensors:
        return llama3_of(file, channels, theta)
    factor = file.metadata.get(f"{name}.rope.scaling.factor", 0.0)
    if file.metadata.get(f"{name}.rope.scaling.type") == "linear" and factor:
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
    return {"rope_type": "default", "rope_theta": theta}


def llama3_of(file: GGUFFile, channels: int, theta: float) -> Json:
    """The file has what each frequency is divided by; the numbers from which that follows are the same in
    every release of Llama 3 but for the factor."""
    divisors = file.read(ROPE).float()
    if divisors.shape != (channels // 2,) or not bool(divisors.isfinite().all()):
        raise file.damaged(f"{ROPE} has the shape {list(divisors.shape)}")
    factor = float(f"{divisors.max().item():.{DIGITS}g}")
    rope = {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": factor,
        "low_freq_factor": LLAMA3["low_factor"],
        "high_freq_factor": LLAMA3["high_factor"],
        "original_max_position_embeddings": LLAMA3["original_length"],
    }
    scaling = RopeScaling(kind="llama3", factor=max(1.0, factor), **LLAMA3)
    if not torch.allclose(rope_divisors(channels, theta, scaling), divisors, rtol=1e-4):
        raise UsageError(f"{file.path}: {ROPE} is not that of Llama 3", code=REFUSED)
    return rope


def rope_divisors(channels: int, theta: float, scaling: RopeScaling) -> Tensor:
    """What Llama 3 divides each frequency by: [C/2]."""
    pair = torch.arange(0, channels, 2, dtype=torch.float64)
    frequency = theta ** (-pair / channels)
    return (frequency / scale_frequencies(frequency, scaling)).float()


def metadata_of(config: Json, name: str) -> dict[str, Any]:
    """The metadata of a config.json: numbers under the name of the architecture."""
    rope = config["rope_parameters"]
    fields: dict[str, Any] = {
        "vocab_size": config["vocab_size"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "rope.dimension_count": config["head_dim"],
        "rope.freq_base": float(rope["rope_theta"]),
    }
    if rope["rope_type"] == "linear":
        fields |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    if window := config.get("sliding_window"):
        fields["attention.sliding_window"] = window
    return {f"{name}.{field}": value for field, value in fields.items()}


# --- tensors ----------------------------------------------------------------------------------------------


def name_there(theirs: str) -> str:
    """GGUF's name of a tensor of transformers."""
    names = {name: short for short, name in TENSORS.items()}
    block = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.(weight|bias)", theirs)
    if block:
        return f"blk.{block[1]}.{names[block[2]]}.{block[3]}"
    module, _, part = theirs.rpartition(".")
    return f"{names[module]}.{part}"


def name_here(name: str, file: GGUFFile) -> str:
    """transformers' name of a tensor."""
    match = BLOCK.fullmatch(name)
    if not match or match[2] not in TENSORS:
        raise file.damaged(f"the tensor {shown(name)} is unknown")
    block, module = match[1], TENSORS[match[2]]
    if (block is None) != module.startswith(("model.", "lm_head")):
        raise file.damaged(f"the tensor {shown(name)} is unknown")
    return f"{module}.{match[3]}" if block is None else f"model.layers.{block}.{module}.{match[3]}"


def layout(name: str, config: Json, architecture: str, back: bool) -> Callable[[Tensor], Tensor]:
    """How the numbers of a tensor change on the way here, or `back`."""
    if architecture == "gemma" and "norm" in name:
        return lambda tensor: tensor.float() + (1 if back else -1)
    heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
    part = name.split(".")[-2]
    if architecture != "llama" or part not in heads:
        return lambda tensor: tensor
    count = config[heads[part]]

    def permuted(tensor: Tensor) -> Tensor:
        pair = (count, 2, -1) if back else (count, -1, 2)
        return tensor.reshape(*pair, *tensor.shape[1:]).transpose(1, 2).reshape(tensor.shape)

    return permuted
