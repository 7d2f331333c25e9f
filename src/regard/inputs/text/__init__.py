"""Text to token ids and back: train, load and save tokenizers, and split text into sentences."""

from regard.inputs.text.byte_level import SPECIALS
from regard.inputs.text.load import load_tokenizer
from regard.inputs.text.sentences import cut_words, split_sentences
from regard.inputs.text.tokenizer import Special, Tokenizer, huggingface_config, special
from regard.inputs.text.train import KINDS, LEAST_VOCABULARY, learn

__all__ = [
    "KINDS",
    "LEAST_VOCABULARY",
    "SPECIALS",
    "Special",
    "Tokenizer",
    "cut_words",
    "huggingface_config",
    "learn",
    "load_tokenizer",
    "special",
    "split_sentences",
]
