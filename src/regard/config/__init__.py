"""What a run is: model, data, training, decoding; named presets; validation. No torch."""

from regard.config.load import differing_field, load_config, resolve, to_toml, to_tree, usual_warmup
from regard.config.presets import PRESETS
from regard.config.schema import (
    Config,
    Corpora,
    Corpus,
    Data,
    Decode,
    Init,
    Model,
    Task,
    Text,
    Train,
    Weighted,
)
from regard.config.template import template

__all__ = [
    "PRESETS",
    "Config",
    "Corpora",
    "Corpus",
    "Data",
    "Decode",
    "Init",
    "Model",
    "Task",
    "Text",
    "Train",
    "Weighted",
    "differing_field",
    "load_config",
    "resolve",
    "template",
    "to_toml",
    "to_tree",
    "usual_warmup",
]
