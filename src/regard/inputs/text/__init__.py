"""Text to ids and back: train, load and save tokenizers, and split text into sentences."""

from regard.inputs.text.learn import KINDS, LEAST_VOCABULARY, learn
from regard.inputs.text.sentences import cut_words, split_sentences
from regard.inputs.text.special import Special, special
from regard.inputs.text.tokenizer import SPECIALS, Tokenizer, huggingface_config

__all__ = [
    "KINDS",
    "LEAST_VOCABULARY",
    "SPECIALS",
    "Special",
    "Tokenizer",
    "cut_words",
    "huggingface_config",
    "learn",
    "special",
    "split_sentences",
]
