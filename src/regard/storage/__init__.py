"""Model folders, weights, checkpoints. All files are written through this package."""

from regard.storage.checkpoint import (
    Checkpoint,
    average_weights,
    checkpoint_folder,
    checkpoint_steps,
    damage,
    finish_sharded,
    is_complete,
    is_saved,
    load_checkpoint,
    load_latest,
    prune,
    read_checkpoint,
    read_manifest,
    save_checkpoint,
)
from regard.storage.checksums import remove_checksums, verified, write_checksums
from regard.storage.files import (
    Disk,
    append,
    folder_lock,
    friendly_os_errors,
    make_folders,
    read_json,
    remove_partials,
    use_disk,
    write_atomically,
    write_json,
    write_text,
)
from regard.storage.folder import Folder, Initial, open_folder, read_model, write_identity
from regard.storage.weights import load_weights_into, unique_weights, write_weights
