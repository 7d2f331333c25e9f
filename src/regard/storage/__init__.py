"""Model folders, weights, checkpoints. All files are written through this package."""

from regard.storage.card import write_card
from regard.storage.checkpoint import (
    Checkpoint,
    average_weights,
    checkpoint_folder,
    is_complete,
    load_checkpoint,
    load_latest,
    prune,
    save_checkpoint,
    checkpoint_steps,
)
from regard.storage.checksums import verified, write_checksums, remove_checksums
from regard.storage.files import (
    Disk,
    folder_lock,
    append,
    make_folders,
    read_json,
    use_disk,
    remove_partials,
    friendly_os_errors,
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
    "folder_lock",
    "append",
    "verified",
    "average_weights",
    "checkpoint_folder",
    "is_complete",
    "load_checkpoint",
    "load_latest",
    "load_weights_into",
    "make_folders",
    "open_folder",
    "prune",
    "read_json",
    "read_model",
    "save_checkpoint",
    "write_checksums",
    "use_disk",
    "checkpoint_steps",
    "remove_partials",
    "friendly_os_errors",
    "unique_weights",
    "remove_checksums",
    "write_atomically",
    "write_card",
    "write_identity",
    "write_json",
    "write_text",
    "write_weights",
]
