"""Models of llama.cpp: one file with configuration, vocabulary, chat template and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from safetensors.torch import save
from torch import Tensor

from regard.config.reading import shown
from regard.storage.checksums import WEIGHTS
from regard.storage.files import Json, write_atomically, write_json, write_text
from regard.storage.gguf.header import GGUFFile, read_header
from regard.storage.gguf.names import ROPE, config_of, layout, name_here
from regard.storage.gguf.vocabulary import tokenizer_of
from regard.storage.weights import INDEX

MAX_PART = 1 << 30  # bytes of a file of weights
PART = "model-{:05d}-of-{:05d}.safetensors"


def convert_gguf(source: Path, out: Path, say: Callable[[str], None] = lambda text: None) -> None:
    """Write the folder of transformers that has the model of a file; quantized weights as float32."""
    file = read_header(source)
    config = config_of(file)
    tokenizer, settings, generation = tokenizer_of(file, config["vocab_size"])
    ids = {name: value for name, value in generation.items() if name in ("bos_token_id", "pad_token_id")}
    ends = generation.get("eos_token_id")
    ids |= {} if ends is None else {"eos_token_id": ends}
    write_json(out / "config.json", config | ids)
    write_json(out / "generation_config.json", generation)
    write_json(out / "tokenizer.json", tokenizer)
    write_json(out / "tokenizer_config.json", settings)
    write_text(out / "README.md", card(file))
    say(f"reading {len(file.tensors):,} tensors of {source.name}")
    write_parts(tensors_of(file, config), out)


def tensors_of(file: GGUFFile, config: Json) -> Iterator[tuple[str, Tensor]]:
    """One after the other, so that the weights are not in memory as a whole."""
    architecture = file.metadata["general.architecture"]
    for name in file.tensors:
        if name == ROPE:  # in the config
            continue
        theirs = name_here(name, file)
        try:
            yield theirs, layout(name, config, architecture, back=False)(file.read(name)).contiguous()
        except (RuntimeError, ValueError, KeyError):
            shape = list(file.tensors[name].shape)
            raise file.damaged(f"{shown(name)} of shape {shape} does not fit") from None


def write_parts(tensors: Iterator[tuple[str, Tensor]], out: Path) -> None:
    """Weights in files of a bounded size; several have an index."""
    places: dict[str, int] = {}
    part, count, total = dict[str, Tensor](), 0, 0

    def write() -> None:
        nonlocal part, count
        write_atomically(out / PART.format(count, 0), save(part, {"format": "pt"}))
        part, count = {}, count + 1

    for name, tensor in tensors:
        if part and sum(each.nbytes for each in part.values()) + tensor.nbytes > MAX_PART:
            write()
        part[name], places[name] = tensor, count
        total += tensor.nbytes
    write()
    if count == 1:
        (out / PART.format(0, 0)).rename(out / WEIGHTS)
        return
    names = [PART.format(number + 1, count) for number in range(count)]
    for number, name in enumerate(names):
        (out / PART.format(number, 0)).rename(out / name)
    index = {name: names[number] for name, number in places.items()}
    write_json(out / INDEX, {"metadata": {"total_size": total}, "weight_map": index})


def card(file: GGUFFile) -> str:
    """README.md with what the file says about itself."""
    facts = {name: file.metadata.get(f"general.{name}") for name in ("name", "license")}
    title, licence = (
        shown(value)[:200].strip('"') if isinstance(value, str) else "" for value in facts.values()
    )
    head = f"---\nlicense: {licence}\n---\n\n" if licence else ""
    return f"{head}# {title or file.path.stem}\n\nImported from {file.path.name} by `regard models import`.\n"
