"""Model folders, weight names, checkpoints. All file writing goes through this room."""

from regard.store.card import write_card
from regard.store.checkpoint import (
    Checkpoint,
    average_weights,
    folder_of,
    load_checkpoint,
    load_latest,
    prune,
    save_checkpoint,
    steps,
)
from regard.store.files import read_json, told_plainly, write_atomically, write_json, write_text
from regard.store.folder import Folder, Initial, open_folder, read_model, write_identity
from regard.store.weights import load_weights_into, unique_weights, write_weights

__all__ = [
    "Checkpoint",
    "Folder",
    "Initial",
    "average_weights",
    "folder_of",
    "load_checkpoint",
    "load_latest",
    "load_weights_into",
    "open_folder",
    "prune",
    "read_json",
    "read_model",
    "save_checkpoint",
    "steps",
    "told_plainly",
    "unique_weights",
    "write_atomically",
    "write_card",
    "write_identity",
    "write_json",
    "write_text",
    "write_weights",
]
