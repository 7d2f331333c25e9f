"""A GPT-2 or Llama folder in llama.cpp (PyPI xllamacpp and gguf), for a race: ids in, texts out."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

Ids = list[list[int]]
SLOTS, CONTEXT = 8, 512  # texts at once, and tokens of each
# fields of the file: their names in config.json of GPT-2 and of Llama
FIELDS = {
    "block_count": ("n_layer", "num_hidden_layers"),
    "embedding_length": ("n_embd", "hidden_size"),
    "head_count": ("n_head", "num_attention_heads"),
    "head_count_kv": ("n_head", "num_key_value_heads"),
    "context_length": ("n_positions", "max_position_embeddings"),
    "feed_forward_length": ("n_inner", "intermediate_size"),
}


def open_llama_cpp(path: Path, names: Sequence[str], place: Path, threads: int) -> Callable[..., list[str]]:
    """Continues prompts by exactly so many tokens, greedily, in Q8_0."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(gguf_file(path, names, place))
    params.n_ctx, params.n_parallel, params.verbosity, params.cache_ram_mib = SLOTS * CONTEXT, SLOTS, -1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)

    def generate(prompts: Ids, count: int) -> list[str]:
        asked = {"prompt": prompts if len(prompts) > 1 else prompts[0], "max_tokens": count}
        asked |= {"temperature": 0, "ignore_eos": True, "cache_prompt": False}
        found = server.handle_completions(asked)["choices"]
        if any(each["finish_reason"] != "length" for each in found):
            raise RuntimeError(f"llama.cpp stopped before {count} tokens")
        return [each["text"] for each in found]

    return generate


def gguf_file(path: Path, names: Sequence[str], place: Path) -> Path:
    """Matrices in Q8_0, all else in float32, as llama.cpp's converter and `llama-quantize` write them."""
    import gguf

    file = place / "Q8_0.gguf"
    if file.is_file():
        return file
    place.mkdir(parents=True, exist_ok=True)
    config = json.loads((path / "config.json").read_text("utf-8"))
    kind = config["model_type"]
    writer = gguf.GGUFWriter(place / "part.gguf", kind)
    write_shape(writer, config)
    write_vocabulary(writer, names, config)
    q8, table = gguf.GGMLQuantizationType.Q8_0, gguf.MODEL_ARCH[kind.upper()]
    known = gguf.get_tensor_name_map(table, config[FIELDS["block_count"][kind == "llama"]])
    for name, weight in load_file(path / "model.safetensors").items():
        tensor = weight.float()
        if kind == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            tensor = tensor.T.contiguous()  # of Conv1D, which is [K,N]
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        if heads is not None:  # its rotation takes neighbouring channels as pairs
            pairs = tensor.view(config[heads], 2, -1, tensor.shape[1]).transpose(1, 2)
            tensor = pairs.reshape(tensor.shape)
        goal, array = known.get_name(name, try_suffixes=(".weight", ".bias")), tensor.numpy()
        if array.ndim == 2 and not goal.startswith("position_embd"):
            writer.add_tensor(goal, gguf.quants.quantize(array, q8), raw_dtype=q8)
        else:
            writer.add_tensor(goal, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return (place / "part.gguf").rename(file)


def write_shape(writer: Any, config: dict[str, Any]) -> None:
    is_llama = config["model_type"] == "llama"
    values = {name: config.get(fields[is_llama]) for name, fields in FIELDS.items()}
    values["feed_forward_length"] = values["feed_forward_length"] or 4 * values["embedding_length"]
    for name, value in values.items():
        getattr(writer, f"add_{name}")(value)
    if is_llama:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_dimension_count(values["embedding_length"] // values["head_count"])
        writer.add_rope_freq_base((config.get("rope_parameters") or config).get("rope_theta", 10000.0))
    else:
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])


def write_vocabulary(writer: Any, names: Sequence[str], config: dict[str, Any]) -> None:
    """Enough for prompts of ids: the file must have merges, and none is used."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(list(names))
    writer.add_token_types([1] * len(names))
    writer.add_token_merges([f"{names[2]} {names[3]}"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
