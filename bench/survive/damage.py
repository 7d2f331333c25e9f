"""B4, corruption: flipped bits, cut files and mixed generations are noticed, the file is named."""

from __future__ import annotations

import hashlib
import random
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save

from regard.errors import RegardError
from regard.store import Checkpoint, folder_of, open_folder, save_checkpoint
from regard.store.files import SUMS
from survive.common import Bar, checkpoint, newest_step, write_model

SHARES = {"flip": 2000, "cut": 200, "mix": 50}  # of 2,250


def damage(count: int, seed: int) -> Bar:
    chance, wrong = random.Random(seed), list[str]()
    kinds = [kind for kind, share in SHARES.items() for _ in range(max(1, round(count * share / 2250)))]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        place = Path(name)
        for model, step in (("a", 1), ("b", 2)):
            write_model(place / model, step)
        for step in (5, 10):
            save_checkpoint(place / "run", step, checkpoint(step))
        for number, kind in enumerate(kinds):
            tried = in_run if number % 2 else in_model
            if found := tried(place, kind, chance):
                wrong.append(f"case {number} of seed {seed}, {kind}: {found}")
    with tempfile.TemporaryDirectory() as name:  # on the disk where runs are
        share = checking_share(Path(name))
    figure = f"{len(kinds) - len(wrong)} of {len(kinds)} noticed, with the file's name"
    more = {"hashing_share_of_saving": share}
    return Bar("B4 corruption", len(kinds), len(wrong), figure, seed, more, wrong)


def changed(content: bytes, kind: str, chance: random.Random) -> bytes:
    if kind == "cut":
        return content[: chance.randrange(len(content))]
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


def in_run(place: Path, kind: str, chance: random.Random) -> str:
    """The newest checkpoint is damaged: the one before is used, aloud."""
    run, said = place / "run", list[str]()
    newest = folder_of(run, 10)
    file = newest / chance.choice(sorted(path.name for path in newest.iterdir()))
    whole = file.read_bytes()
    other = (folder_of(run, 5) / file.name).read_bytes()
    file.write_bytes(other if kind == "mix" else changed(whole, kind, chance))
    try:
        found = newest_step(run, said)
        named = any(file.name in text or (kind == "mix" and str(newest) in text) for text in said)
        # a changed manifest may put the blame on a file that it lists
        named = named or (file.name == "manifest.json" and str(newest) in " ".join(said))
        return "" if found == 5 and named and len(said) == 1 else f"{file.name}: loads {found}, said {said}"
    except Exception as error:
        return f"{file.name}: {type(error).__name__} {error}"
    finally:
        file.write_bytes(whole)


def in_model(place: Path, kind: str, chance: random.Random) -> str:
    """A file of a model folder is damaged, or of another model: it does not open, and the file is named."""
    model = place / "a"
    names = [path.name for path in sorted(model.iterdir())]
    if kind == "mix":  # other weights and sums of other files; all else of the two is equal
        names = ["model.safetensors", SUMS]
    file = model / chance.choice(names)
    whole = file.read_bytes()
    file.write_bytes(
        (place / "b" / file.name).read_bytes() if kind == "mix" else changed(whole, kind, chance)
    )
    try:
        open_folder(model)
        return f"{file.name}: opens"
    except RegardError as error:
        blamed = file.name in str(error) or (file.name == SUMS and SUMS in str(error))
        return "" if blamed else f"{file.name}: said {error}"
    except Exception as error:
        return f"{file.name}: {type(error).__name__} {error}"
    finally:
        file.write_bytes(whole)


def checking_share(place: Path) -> float:
    """Of the time that saving takes: what hashing takes."""
    big = Checkpoint({"w": torch.randn(1 << 21)}, {"w": torch.randn(1 << 22)}, {"step": 20})
    began = time.perf_counter()
    save_checkpoint(place, 20, big)
    whole = time.perf_counter() - began
    content = save(dict(big.model)) + save(dict(big.optimizer))
    began = time.perf_counter()
    hashlib.sha256(content).hexdigest()
    return round((time.perf_counter() - began) / whole, 3)
