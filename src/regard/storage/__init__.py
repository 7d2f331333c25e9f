"""Model folders, weights, checkpoints. All files are written through this package."""

from regard.storage.card import write_card
from regard.storage.checkpoint import (
    Checkpoint,
    average_weights,
    folder_of,
    is_whole,
    load_checkpoint,
    load_latest,
    prune,
    save_checkpoint,
    steps,
)
from regard.storage.checksums import as_sealed, seal, unseal
from regard.storage.files import (
    Disk,
    alone_in,
    append,
    make_folders,
    read_json,
    standing_in,
    sweep,
    told_plainly,
    write_atomically,
    write_json,
    write_text,
)
from regard.storage.folder import Folder, Initial, open_folder, read_model, write_identity
from regard.storage.weights import load_weights_into, unique_weights, write_weights

__all__ = [
    "Checkpoint",
    "Disk",
    "Folder",
    "Initial",
    "alone_in",
    "append",
    "as_sealed",
    "average_weights",
    "folder_of",
    "is_whole",
    "load_checkpoint",
    "load_latest",
    "load_weights_into",
    "make_folders",
    "open_folder",
    "prune",
    "read_json",
    "read_model",
    "save_checkpoint",
    "seal",
    "standing_in",
    "steps",
    "sweep",
    "told_plainly",
    "unique_weights",
    "unseal",
    "write_atomically",
    "write_card",
    "write_identity",
    "write_json",
    "write_text",
    "write_weights",
]
