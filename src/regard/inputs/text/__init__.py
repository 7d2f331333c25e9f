"""Text to token ids and back: train, load and save tokenizers, and split text into sentences."""

from pathlib import Path

from regard.inputs.text.byte_level import SPECIALS, ByteLevelTokenizer, is_byte_level
from regard.inputs.text.checks import check_content, read_object, to_pipeline
from regard.inputs.text.sentences import split_sentences, split_words
from regard.inputs.text.tokenizer import SpecialTokens, Tokenizer, huggingface_config, special_tokens
from regard.inputs.text.train import KINDS, LEAST_VOCABULARY, train_tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a model folder, a tokenizer.json or an .spm file, written by Regard or by another program.

    The module of a kind is imported when a tokenizer is of that kind.
    """
    if path.suffix == ".spm" or all((path / name).is_file() for name in ("source.spm", "vocab.json")):
        from regard.inputs.text.sentencepiece import read_sentencepiece

        return read_sentencepiece(path / "source.spm" if path.is_dir() else path)
    if path.is_dir() and not (path / "tokenizer.json").is_file():
        from regard.inputs.text.hf import read_hf_tokenizer

        return read_hf_tokenizer(path)
    path = path / "tokenizer.json" if path.is_dir() else path
    text, content = read_object(path)
    check_content(content, path)
    pipeline = to_pipeline(text, str(path))
    if is_byte_level(pipeline):
        return ByteLevelTokenizer(pipeline)
    from regard.inputs.text.hf import read_hf_tokenizer

    return read_hf_tokenizer(path, pipeline)
