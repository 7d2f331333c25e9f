"""The same sentence encoder in other programs, for a race: texts in, tokenizing included; vectors out."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.tasks import Embedder, load_as

Vectors = NDArray[np.float32]  # [texts, width]
Embed = Callable[[Sequence[str]], Vectors]
PRECISIONS = {"onnxruntime": ("float32", "int8"), "transformers": ("float32", "bfloat16")}
ROWS = 32  # texts of a batch, sorted by length, as sentence-transformers does it


def open_embedder(program: str, precision: str, path: Path, place: Path, threads: int) -> Embed:
    if program == "regard":
        return load_as(Embedder, path, precision=precision, threads=threads).vectors
    states = onnxruntime if program == "onnxruntime" else transformers
    return in_batches(path, states(path, precision, place, threads))


def in_batches(path: Path, states: Callable[[Any, Any], Any]) -> Embed:
    """Tokenize, run batches of like lengths, and take the normalised mean over tokens."""
    from transformers import AutoTokenizer

    ours = load_as(Embedder, path, precision="float32")
    longest = ours.longest + 2
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)

    def embed(texts: Sequence[str]) -> Vectors:
        rows = tokenizer(list(texts), truncation=True, max_length=longest)
        order = sorted(range(len(texts)), key=lambda number: len(rows["input_ids"][number]))
        vectors = np.empty((len(texts), ours.width), dtype=np.float32)
        for first in range(0, len(order), ROWS):
            batch = order[first : first + ROWS]
            some = {
                name: [rows[name][number] for number in batch] for name in ("input_ids", "attention_mask")
            }
            padded = tokenizer.pad(some, return_tensors="np")
            ids, mask = padded["input_ids"].astype(np.int64), padded["attention_mask"].astype(np.int64)
            total = (states(ids, mask) * mask[:, :, None]).sum(axis=1)  # [B,S,D] -> [B,D]
            vectors[batch] = total / np.linalg.norm(total, axis=1, keepdims=True)
        return vectors

    return embed


def transformers(path: Path, precision: str, place: Path, threads: int) -> Callable[[Any, Any], Any]:
    from transformers import AutoModel

    model = AutoModel.from_pretrained(path, dtype=getattr(torch, precision), local_files_only=True).eval()

    @torch.inference_mode()
    def states(ids: Any, mask: Any) -> Any:
        found = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
        return found.last_hidden_state.float().numpy()

    return states


def onnxruntime(path: Path, precision: str, place: Path, threads: int) -> Callable[[Any, Any], Any]:
    import onnxruntime as library

    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    session = library.InferenceSession(str(onnx_file(path, precision, place)), options)
    return lambda ids, mask: session.run(None, {"input_ids": ids, "attention_mask": mask})[0]


def onnx_file(path: Path, precision: str, place: Path) -> Path:
    """Exported from transformers, fused by ONNX Runtime's optimizer; int8 by its dynamic quantisation."""
    from onnx import TensorProto
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model
    from transformers import AutoModel

    plain, fused, small = (place / f"{name}.onnx" for name in ("plain", "float32", "int8"))
    if not small.is_file():
        place.mkdir(parents=True, exist_ok=True)
        model = AutoModel.from_pretrained(path, attn_implementation="eager", local_files_only=True)
        ids, names = torch.ones(2, 8, dtype=torch.long), ["input_ids", "attention_mask"]
        mask = torch.arange(8) < torch.tensor([[8], [5]])  # all ones would be left out of the graph
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            axes = {name: {0: "rows", 1: "tokens"} for name in (*names, "states")}
            torch.onnx.export(
                States(model).eval(), (ids, mask.long()), str(plain), input_names=names,
                output_names=["states"], dynamic_axes=axes, opset_version=17, dynamo=False,
            )  # fmt: skip
        shape = {"num_heads": model.config.num_attention_heads, "hidden_size": model.config.hidden_size}
        optimize_model(str(plain), model_type="bert", **shape).save_model_to_file(str(fused))
        level, kind = logging.getLogger().level, {"DefaultTensorType": TensorProto.FLOAT}
        logging.getLogger().setLevel(logging.ERROR)
        quantize_dynamic(fused, small, extra_options=kind)
        logging.getLogger().setLevel(level)
    return fused if precision == "float32" else small


class States(nn.Module):
    """The last hidden states alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states
