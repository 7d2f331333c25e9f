"""What a run is: task, data, model, training, decoding; presets; TOML. Does not import torch."""

from regard.config.load import (
    PRESETS,
    differing_field,
    load_config,
    resolve,
    template,
    to_toml,
    to_tree,
    usual_warmup,
)
from regard.config.model import (
    BahdanauConfig,
    BertConfig,
    GPTConfig,
    LlamaConfig,
    ModelConfig,
    RNNConfig,
    T5Config,
    TransformerConfig,
    parse_model,
)
from regard.config.schema import (
    Config,
    Corpora,
    Corpus,
    Data,
    Decode,
    Init,
    Task,
    Text,
    Train,
    Weighted,
)

Model = ModelConfig
