"""Text to ids and back: train, load and save tokenizers, and split text into sentences."""

from regard.text.learn import KINDS, LEAST_VOCABULARY, learn
from regard.text.sentences import cut_words, split_sentences
from regard.text.tokenizer import SPECIALS, Tokenizer, huggingface_config

__all__ = [
    "KINDS",
    "LEAST_VOCABULARY",
    "SPECIALS",
    "Tokenizer",
    "cut_words",
    "huggingface_config",
    "learn",
    "split_sentences",
]
