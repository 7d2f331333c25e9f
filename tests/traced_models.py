"""A small untrained model of every family and task, opened as its task."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from regard.inputs.text import Tokenizer, train_tokenizer
from regard.storage import Folder
from regard.tasks import Answerer, Classifier, Filler, Generator, Tagger, Translator
from small_models import opened, small_config, small_model

TEXT = "the small cat sees an unbelievably old house"
CONTEXT = "the cat sleeps in the house"
SIGNS = [f"<extra_id_{number}>" for number in range(4)]
# the class, the task, the model's settings, what is traced
KINDS: dict[str, tuple[type[Any], str, dict[str, Any], dict[str, Any]]] = {
    "transformer": (Translator, "translate", {"family": "transformer", "norm": "pre"}, {}),
    "post-norm": (Translator, "translate", {"family": "transformer", "norm": "post"}, {}),
    "ssru": (Translator, "translate", {"family": "transformer", "decoder_mixer": "ssru"}, {}),
    "bart": (
        Translator,
        "translate",
        {"family": "transformer", "positions": "learned", "first_position": 2, "embedding_norm": True},
        {},
    ),
    "m2m": (
        Translator,
        "translate",
        {
            "family": "transformer",
            "positions": "sinusoidal_tensor2tensor",
            "first_position": 1,
            "norm": "pre",
        },
        {},
    ),
    "t5": (Translator, "translate", {"family": "t5"}, {}),
    "t5 gated": (Filler, "fill", {"family": "t5", "gated": True}, {"text": "the <mask> sees ___ house"}),
    "rnn": (Translator, "translate", {"family": "rnn"}, {}),
    "rnn gru": (Translator, "translate", {"family": "rnn", "cell": "gru", "reverse_source": True}, {}),
    "bahdanau": (Translator, "translate", {"family": "bahdanau"}, {}),
    "bahdanau gru": (Translator, "translate", {"family": "bahdanau", "cell": "gru", "score": "dot"}, {}),
    "gpt": (Generator, "generate", {"family": "gpt"}, {"decode": {"beam": 2, "max_length": 5}}),
    "gpt rotary": (
        Generator,
        "generate",
        {"family": "gpt", "positions": "rotary", "rotary_channels": 4, "parallel": True},
        {"decode": {"seed": 3}},
    ),
    "llama": (Generator, "generate", {"family": "llama", "kv_heads": 2}, {"decode": {"beam": 1}}),
    "alibi": (Translator, "translate", {"family": "transformer", "positions": "alibi", "window": 4}, {}),
    "fill mpnet": (
        Filler,
        "fill",
        {"family": "bert", "relative_bias": True, "segments": 0},
        {"text": "the <mask> sees a house"},
    ),
    "fill": (Filler, "fill", {"family": "bert"}, {"text": "the <mask> sees a house"}),
    "classify": (Classifier, "classify", {"family": "bert", "head": "sentence"}, {}),
    "tag": (Tagger, "tag", {"family": "bert", "head": "tokens"}, {}),
    "answer": (Answerer, "answer", {"family": "bert", "head": "span"}, {"context": CONTEXT}),
}
LABELS = {"classify": ("good", "bad", "odd"), "tag": ("O", "B-PER", "I-PER", "B-LOC")}
WITH_TARGET = [name for name, (kind, *_) in KINDS.items() if kind in (Translator, Generator)]


@cache
def tokenizer() -> Tokenizer:
    return train_tokenizer([TEXT, CONTEXT, "a dog sleeps"], "bpe", 300, ["<mask>", *SIGNS])


def small_folder(kind: str, max_length: int = 160, layers: int = 2) -> Folder:
    """With a model that is not packed."""
    _, task, settings, _ = KINDS[kind]
    config = small_config(task, max_length=max_length, **{"layers": layers, "heads": 4, **settings})
    labels = LABELS.get(task, ())
    model = small_model(config, tokenizer(), labels=len(labels) or None)
    return replace(opened(config, model, tokenizer()), labels=labels)


@cache
def opened_task(kind: str, max_length: int = 160, layers: int = 2) -> Any:
    return KINDS[kind][0](small_folder(kind, max_length, layers))


def traced(kind: str, **options: Any) -> Any:
    own = {"text": TEXT, **KINDS[kind][3], **options}
    return opened_task(kind).trace(own.pop("text"), **own)
