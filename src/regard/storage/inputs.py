"""What a model reads and writes: the tokenizers of its folder, or its reader of pictures or sounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.batch import FrameSize
from regard.errors import UsageError
from regard.inputs.text import Tokenizer, load_tokenizer
from regard.models.families import InputSize
from regard.storage.files import Json
from regard.storage.huggingface import reads_frames

if TYPE_CHECKING:
    from regard.inputs.frames import FrameReader

    Input = Tokenizer | FrameReader
else:  # the readers of files are imported when one is opened
    Input = object

PREPROCESSOR = "preprocessor_config.json"
READS = {"text": "text", "image": "pictures", "video": "videos", "audio": "sounds"}
NAMES = ("tokenizer.json", "target_tokenizer.json")


class TextSides:
    """The tokenizers of a model that reads and writes text; of others, an error."""

    path: Path
    input: Input
    output: Input

    @property
    def source(self) -> Tokenizer:
        """Of the text that the model reads."""
        if not isinstance(self.input, Tokenizer):
            kind = READS[self.input.config.kind]
            raise UsageError(f"{self.path}: this model reads {kind}, not text", code="E_MODEL_INPUT")
        return self.input

    @property
    def target(self) -> Tokenizer:
        """Of the text that the model writes."""
        if not isinstance(self.output, Tokenizer):
            raise UsageError(f"{self.path}: this model writes no text", code="E_MODEL_INPUT")
        return self.output

    @property
    def reader(self) -> FrameReader:
        """Of the pictures or sounds that the model reads."""
        if isinstance(self.input, Tokenizer):
            raise UsageError(f"{self.path}: this model reads text, not files", code="E_MODEL_INPUT")
        return self.input


def input_size(source: Input) -> InputSize:
    """The size of the vocabulary, or of the frames."""
    if isinstance(source, Tokenizer):
        return source.size
    return FrameSize(source.most, source.width, source.grid, getattr(source.config, "channels", 1))


def output_size(source: Input, target: Input | None, labels: Sequence[str]) -> int | None:
    """The number of labels, or the size of a separate target vocabulary."""
    if labels:
        return len(labels)
    if not isinstance(target, Tokenizer):
        return None
    is_shared = isinstance(source, Tokenizer) and source.shares_vocabulary(target)
    return None if is_shared else len(target)


def load_inputs(path: Path, content: Json) -> tuple[Input, Input]:
    """What turns the input and the output of a model into numbers: tokenizers, or a reader of frames.

    A model that writes no text has the same twice.
    """
    if not (path / PREPROCESSOR).is_file() or not reads_frames(content):
        return load_tokenizers(path, content)
    from regard.inputs.frames import FrameReader  # with pillow and soundfile

    reader = FrameReader.load(path)
    if "vocab_size" not in content:
        return reader, reader
    return reader, load_tokenizers(path, content)[1]


def load_tokenizers(path: Path, content: Json) -> tuple[Tokenizer, Tokenizer]:
    """The folder's tokenizers, checked to belong to its weights."""
    source = load_tokenizer(path)
    files = [path / name for name in ("target.spm", "target_tokenizer.json") if (path / name).is_file()]
    target = load_tokenizer(files[0]) if files else source
    first, second = ("vocab.json", "target_vocab.json") if files and files[0].suffix == ".spm" else NAMES
    section = content.get("regard", {})
    if reads_frames(content):  # the source is no tokenizer
        section = {**section, "source": section.get("target")}
    checks = (
        (first, source, section.get("source"), content.get("vocab_size")),
        (
            first if source.shares_vocabulary(target) else second,
            target,
            section.get("target"),
            content.get("decoder_vocab_size") or content.get("vocab_size"),
        ),
    )
    for name, tokenizer, fingerprint, size in checks:
        if (fingerprint or tokenizer.fingerprint) != tokenizer.fingerprint or size != len(tokenizer):
            raise UsageError(
                f"{path / name} is the tokenizer of another model: it has {len(tokenizer)} tokens, "
                f"the model was trained with another set of {size}; put the original file back",
                code="E_MODEL_TOKENIZER",
            )
    if target.start >= len(target):
        raise UsageError(
            f"{path}: the start token is {target.start}, but the vocabulary has {len(target)} tokens",
            code="E_MODEL_TOKENIZER",
        )
    return source, target
