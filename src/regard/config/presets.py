"""Named models: partial `[model]` sections, every field of which can be overridden."""

from __future__ import annotations

# Defaults of `[decode]` by task. Continuations of a prompt are sampled.
DECODE_DEFAULTS: dict[str, dict[str, object]] = {
    # smaller batches than of translations, because the cache holds the prompt too
    "generate": {
        "sample": True,
        "beam": 1,
        "temperature": 0.8,
        "max_length": 200,
        "tokens_per_batch": 4096,
    },
}

PRESETS: dict[str, dict[str, object]] = {
    # the size that published Multi30k scores use (Wu et al. 2021)
    "transformer-tiny": {"layers": 4, "width": 128, "feed_forward": 256, "heads": 4, "dropout": 0.1},
    # Joey NMT's IWSLT14 size
    "transformer-small": {"layers": 6, "width": 256, "feed_forward": 1024, "heads": 4, "dropout": 0.1},
    # recurrent models of a size like transformer-tiny
    "rnn-tiny": {"family": "rnn", "layers": 2, "width": 192, "dropout": 0.2},
    "bahdanau-tiny": {"family": "bahdanau", "cell": "gru", "layers": 1, "width": 256, "dropout": 0.2},
    # nanoGPT's size for a CPU, and others like it
    "gpt-tiny": {"family": "gpt", "layers": 4, "width": 128, "feed_forward": 512, "heads": 4},
    "llama-tiny": {"family": "llama", "layers": 4, "width": 128, "feed_forward": 344, "heads": 4},
    "bert-tiny": {"family": "bert", "layers": 4, "width": 128, "feed_forward": 512, "heads": 4},
    "t5-tiny": {"family": "t5", "layers": 4, "width": 128, "feed_forward": 256, "heads": 4},
    # published sizes
    "gpt2": {"family": "gpt", "layers": 12, "width": 768, "feed_forward": 3072, "heads": 12},
    "bert-base": {"family": "bert", "layers": 12, "width": 768, "feed_forward": 3072, "heads": 12},
    "t5-small": {"family": "t5", "layers": 6, "width": 512, "feed_forward": 2048, "heads": 8},
    # the paper's base and big (Vaswani et al. 2017, Table 3)
    "transformer-base": {"layers": 6, "width": 512, "feed_forward": 2048, "heads": 8, "dropout": 0.1},
    # deep encoder, shallow decoder: fast decoding (Kasai et al. 2021)
    "transformer-6-1": {
        "encoder_layers": 6,
        "decoder_layers": 1,
        "width": 512,
        "feed_forward": 2048,
        "heads": 8,
        "dropout": 0.1,
    },
    "transformer-12-1": {
        "encoder_layers": 12,
        "decoder_layers": 1,
        "width": 512,
        "feed_forward": 2048,
        "heads": 8,
        "dropout": 0.1,
    },
    "transformer-big": {"layers": 6, "width": 1024, "feed_forward": 4096, "heads": 16, "dropout": 0.3},
}
