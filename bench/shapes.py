"""Models of well-known shapes with random weights, as transformers saves them: for races of speed only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
Shape = tuple[str, dict[str, Any]]  # a class of transformers and fields of its config


def llama(width: int, layers: int, heads: int, kv_heads: int, feed_forward: int, tied: bool = False) -> Shape:
    fields = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": feed_forward}
    fields |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": 32000}
    return "LlamaForCausalLM", fields | {"max_position_embeddings": 1024, "tie_word_embeddings": tied}


def marian(vocabulary: int, width: int = 512, layers: int = 6, feed_forward: int = 2048) -> Shape:
    """As OPUS-MT has it, with swish."""
    one = {"layers": layers, "attention_heads": 8, "ffn_dim": feed_forward}
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in one.items()}
    fields = {"vocab_size": vocabulary, "d_model": width, "max_position_embeddings": 512, **sides}
    return "MarianMTModel", fields | {"scale_embedding": True, "activation_function": "swish"}


SHAPES: dict[str, Shape] = {
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 50257}),  # its defaults are those of the 124 M model
    "llama": llama(768, 12, 12, 4, 2048),
    "stories15m": llama(288, 6, 6, 6, 768, tied=True),
    "t5-small": ("T5ForConditionalGeneration", {"vocab_size": 32128, "d_model": 512, "d_ff": 2048}),
    "marian-32000": marian(32000),
    "marian-58000": marian(58000),
}


def make_folder(name: str, cache: Path) -> Path:
    """The folder of a shape, made at the first use."""
    path = cache / name / "model"
    if (path / "tokenizer_config.json").is_file():  # written last
        return path
    kind, fields = SHAPES[name]
    size, writes_only = fields["vocab_size"], kind.endswith("ForCausalLM") or "LMHead" in kind
    ids = {"eos_token_id": 0, "pad_token_id": size - 1}
    ids |= {"bos_token_id": 0} if writes_only else {"decoder_start_token_id": size - 1}
    torch.manual_seed(0)
    made = getattr(transformers, kind)
    made(made.config_class(**fields, **ids)).save_pretrained(path)
    write_tokenizer(path, size, writes_only)
    return path


def write_tokenizer(path: Path, size: int, writes_only: bool) -> None:
    """One token for each byte of a text, and tokens that no text has; <pad> comes last, as in Marian."""
    names = ["</s>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names += [*(f"t{number}" for number in range(size - len(names) - 1)), "<pad>"]
    pipeline = tokenizers.Tokenizer(models.BPE({name: id for id, name in enumerate(names)}, []))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.add_special_tokens(["</s>", "<unk>", "<pad>"])
    roles = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    if writes_only:
        roles["bos_token"] = "</s>"
    else:
        pipeline.post_processor = processors.TemplateProcessing("$A </s>", None, [("</s>", 0)])
    pipeline.save(str(path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **roles}
    (path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
