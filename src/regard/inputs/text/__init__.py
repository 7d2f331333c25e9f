"""Text to token ids and back: train, load and save tokenizers, and split text into sentences."""

from regard.inputs.text.byte_level import SPECIALS
from regard.inputs.text.load import load_tokenizer
from regard.inputs.text.sentences import split_sentences, split_words
from regard.inputs.text.tokenizer import SpecialTokens, Tokenizer, huggingface_config, special_tokens
from regard.inputs.text.train import KINDS, LEAST_VOCABULARY, train_tokenizer

__all__ = [
    "KINDS",
    "LEAST_VOCABULARY",
    "SPECIALS",
    "SpecialTokens",
    "Tokenizer",
    "huggingface_config",
    "load_tokenizer",
    "special_tokens",
    "split_sentences",
    "split_words",
    "train_tokenizer",
]
