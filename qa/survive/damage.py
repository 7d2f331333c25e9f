"""Corruption: flipped bits, cut files and mixed generations are noticed, the file is named."""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch

import regard.storage.checkpoint as store
from qa.result import Result
from qa.survive.common import checkpoint, newest_step, patched, write_model
from regard.checksums import SUMS
from regard.errors import RegardError
from regard.storage import Checkpoint, checkpoint_folder, open_folder, save_checkpoint

SHARES = {"flip": 2000, "cut": 200, "mix": 50}  # of 2,250
MOST = 0.05  # of a save's time may go into sums
SAVES = 60  # of each kind, to measure that


def damage(count: int, seed: int) -> Result:
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
    figure = f"{len(kinds) - len(wrong)} of {len(kinds)} noticed, with the file's name"
    more = dict[str, float]()
    if count >= sum(SHARES.values()):
        with tempfile.TemporaryDirectory() as name:  # on the disk where runs are
            more = checking_costs(Path(name))
        wrong += [] if more["share_of_saving"] <= MOST else [f"sums take {more['share_of_saving']} of a save"]
        figure += f"; the sums are {100 * more['share_of_saving']:.1f} % of a save of 25 MB"
    return Result("corruption", len(kinds), len(wrong), figure, seed, more, wrong)


def changed(content: bytes, kind: str, chance: random.Random) -> bytes:
    if kind == "cut":
        return content[: chance.randrange(len(content))]
    at = chance.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]


def in_run(place: Path, kind: str, chance: random.Random) -> str:
    """The newest checkpoint is damaged: the one before is used, aloud."""
    run, said = place / "run", list[str]()
    newest = checkpoint_folder(run, 10)
    file = newest / chance.choice(sorted(path.name for path in newest.iterdir()))
    whole = file.read_bytes()
    other = (checkpoint_folder(run, 5) / file.name).read_bytes()
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


# --- what the sums cost


class Clock:
    """Seconds of saves, on the clock, and without those in which something else had the core."""

    def __init__(self) -> None:
        self.whole, self.own = list[float](), list[float]()
        self.written = self.summed = self.waiting = 0.0

    def sum_of(self, content: bytes) -> str:
        """In the thread beside."""
        began, before = time.perf_counter(), queued()
        found = SUM_OF(content)
        self.summed = time.perf_counter()
        self.waiting = (queued() - before) / (self.summed - began)
        return found

    def write_new(self, path: Path, content: bytes) -> None:
        WRITE_NEW(path, content)
        if path.name in store.CONTENT:
            self.written = time.perf_counter()

    def save(self, place: Path, step: int, big: Checkpoint) -> None:
        began, before, self.summed = time.perf_counter(), queued(), 0.0
        folder = save_checkpoint(place, step, big)
        taken, late = time.perf_counter() - began, max(0.0, self.summed - self.written)  # that is waited for
        self.whole.append(taken)
        self.own.append(taken - (queued() - before) - late * self.waiting)
        shutil.rmtree(folder)


SUM_OF, WRITE_NEW = store.sha256_of, store.write_new


def queued() -> float:
    """Seconds that this thread was ready, and something else had the core."""
    path = Path("/proc/thread-self/schedstat")
    return int(path.read_text().split()[1]) / 1e9 if path.exists() else 0.0


def checking_costs(place: Path) -> dict[str, float]:
    """What the sums add to a save: interleaved with and without them, the quicker half of each."""
    big = Checkpoint({"w": torch.randn(1 << 21)}, {"w": torch.randn(1 << 22)}, {"step": 20})
    summing, bare = Clock(), Clock()
    for turn in range(SAVES):
        with patched((store, "write_new", summing.write_new), (store, "sha256_of", summing.sum_of)):
            summing.save(place, turn, big)
        with patched((store, "write_new", bare.write_new), (store, "sha256_of", lambda content: "0" * 64)):
            bare.save(place, turn, big)
    own, without, clock, clock_without = (
        statistics.mean(sorted(each)[: SAVES // 2])
        for each in (summing.own, bare.own, summing.whole, bare.whole)
    )
    return {
        "share_of_saving": round(1 - without / own, 3),
        "share_on_the_clock": round(1 - clock_without / clock, 3),
        "save_ms": round(1000 * own, 1),
    }
