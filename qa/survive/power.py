"""Power cuts: every disk state that a cut during a save may leave loads as exactly the old or the new.

The calls of a save are recorded. Of what was not synced before the cut each part may have reached the disk or
not, in any order: names that were made, renamed and deleted; contents as a whole, in part, as zeros, or as
rubbish. Synced is what a sync of that file or that folder came after.
"""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qa.result import Result
from qa.survive.common import checkpoint, newest_step
from regard.storage import Disk, prune, remove_checksums, save_checkpoint, use_disk, write_checksums
from regard.storage.checksums import changed_files
from regard.storage.files import remove_partials, write_atomically

Change = dict[str, int | None]  # names of one folder: which file or folder they are from now on, None: gone
DATA = ("none", "all", "part", "zeros", "rubbish")
AT_ONCE = 40  # states of one moment, where there are more


@dataclass
class Call:
    kind: str  # names, write, sync, sync_folder, done
    on: int = 0  # the folder or file
    names: Change = field(default_factory=dict)
    content: bytes = b""


class Recorder(Disk):
    """Does what the disk does, and remembers it. Files and folders have numbers; the root is 0."""

    def __init__(self, root: Path) -> None:
        self.root, self.calls = root, list[Call]()
        self.numbers: dict[Path, int] = {}
        self.handles: dict[int, int] = {}
        self.folders: set[int] = {0}
        self.before: dict[int, dict[str, int]] = {}
        self.contents: dict[int, bytes] = {}
        self.look(root)

    def look(self, path: Path) -> None:
        """What is there at first is durable."""
        self.numbers[path] = number = len(self.numbers)
        if path.is_dir():
            self.folders.add(number)
            for inner in sorted(path.iterdir()):
                self.look(inner)
            self.before[number] = {inner.name: self.numbers[inner] for inner in path.iterdir()}
        else:
            self.contents[number] = path.read_bytes()

    def new(self, path: Path, folder: bool) -> None:
        number = 1 + max([0, *self.contents, *self.folders])
        self.folders.add(number) if folder else self.contents.setdefault(number, b"")
        self.numbers[path] = number
        self.calls.append(Call("names", self.numbers[path.parent], {path.name: number}))

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self.new(path, folder=True)

    def create(self, path: Path) -> int:
        handle = super().create(path)
        self.new(path, folder=False)
        self.handles[handle] = self.numbers[path]
        return handle

    def write(self, handle: int, content: memoryview) -> int:
        written = super().write(handle, content)
        self.calls.append(Call("write", self.handles[handle], content=bytes(content[:written])))
        return written

    def sync(self, handle: int) -> None:
        super().sync(handle)
        self.calls.append(Call("sync", self.handles[handle]))

    def sync_folder(self, path: Path) -> None:
        super().sync_folder(path)
        if path == self.root or self.root in path.parents:
            self.calls.append(Call("sync_folder", self.numbers[path]))

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        number = self.numbers[old]
        moved = {path: each for path, each in self.numbers.items() if path == old or old in path.parents}
        for path, each in moved.items():
            del self.numbers[path]
            self.numbers[new / path.relative_to(old) if path != old else new] = each
        self.calls.append(Call("names", self.numbers[old.parent], {old.name: None, new.name: number}))

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.calls.append(Call("names", self.numbers[path.parent], {path.name: None}))

    def remove_folder(self, path: Path) -> None:
        super().remove_folder(path)
        self.calls.append(Call("names", self.numbers[path.parent], {path.name: None}))

    def done(self) -> None:
        """The save has returned: from here on the new one is promised."""
        self.calls.append(Call("done"))


Tree = dict[str, bytes | None]  # by path: the content of a file, None for a folder


def states(record: Recorder, chance: random.Random) -> Iterator[tuple[Tree, bool]]:
    """Disk states after a cut at any moment, and whether the save had returned by then."""
    for cut in range(len(record.calls) + 1):
        past = record.calls[:cut]
        returned = any(call.kind == "done" for call in past)
        synced = {(call.kind, call.on): place for place, call in enumerate(past)}
        loose = [
            place
            for place, call in enumerate(past)
            if call.kind == "names" and synced.get(("sync_folder", call.on), -1) < place
        ]
        files = sorted(
            {
                c.on
                for place, c in enumerate(past)
                if c.kind == "write" and synced.get(("sync", c.on), -1) < place
            }
        )
        ways = 2 ** len(loose) * len(DATA) ** len(files)
        every: Iterator[tuple[object, ...]] = itertools.product(
            *[(False, True)] * len(loose), *[DATA] * len(files)
        )
        if ways > AT_ONCE:
            drawn = [
                (*(chance.random() < 0.5 for _ in loose), *(chance.choice(DATA) for _ in files))
                for _ in range(AT_ONCE)
            ]
            every = iter([(*[True] * len(loose), *["all"] * len(files)), *drawn])
        for chosen in every:
            happened = {place for place, yes in zip(loose, chosen) if yes}
            how = dict(zip(files, chosen[len(loose) :]))
            yield laid(record, past, loose, happened, how, synced, chance), returned


def laid(
    record: Recorder,
    past: list[Call],
    loose: list[int],
    happened: set[int],
    how: dict[int, object],
    synced: dict[tuple[str, int], int],
    chance: random.Random,
) -> Tree:
    """The tree of one state."""
    names: dict[int, dict[str, int]] = {number: dict(inner) for number, inner in record.before.items()}
    contents = {number: content for number, content in record.contents.items() if number in _old(record)}
    for place, call in enumerate(past):
        if call.kind == "names" and (place in happened or place not in loose):
            own = names.setdefault(call.on, {})
            for name, number in call.names.items():
                if number is None:
                    own.pop(name, None)
                else:
                    own[name] = number
        elif call.kind == "write":
            late = synced.get(("sync", call.on), -1) < place
            contents[call.on] = contents.get(call.on, b"") + (
                _kept(call.content, str(how[call.on]), chance) if late else call.content
            )
    tree: Tree = {}

    def walk(number: int, path: str) -> None:
        for name, inner in names.get(number, {}).items():
            tree[f"{path}{name}"] = None if inner in record.folders else contents.get(inner, b"")
            if inner in record.folders:
                walk(inner, f"{path}{name}/")

    walk(0, "")
    return tree


def _old(record: Recorder) -> set[int]:
    return {number for inner in record.before.values() for number in inner.values()}


def _kept(content: bytes, how: str, chance: random.Random) -> bytes:
    """What of a write that was not synced is there afterwards."""
    part = content[: chance.randrange(len(content) + 1)]
    return {
        "none": b"",
        "all": content,
        "part": part,
        "zeros": bytes(len(content)),
        "rubbish": part + chance.randbytes(len(content) - len(part)),
    }[how]


def put(place: Path, tree: Tree) -> None:
    place.mkdir()
    for path, content in tree.items():
        if content is None:
            (place / path).mkdir()
        else:
            (place / path).write_bytes(content)


# --- what is saved, and what may be there afterwards

Story = tuple[Callable[[Path], None], Callable[[Path, Callable[[], None]], None], Callable[[Path, bool], str]]


def first_save() -> Story:
    def save(run: Path, done: Callable[[], None]) -> None:
        save_checkpoint(run, 5, checkpoint(5))
        done()

    return lambda run: None, save, lambda run, returned: judged(run, {5} if returned else {None, 5}, 5)


def next_save() -> Story:
    """An older one is deleted in the end."""

    def before(run: Path) -> None:
        for step in (5, 10):
            save_checkpoint(run, step, checkpoint(step))

    def save(run: Path, done: Callable[[], None]) -> None:
        save_checkpoint(run, 15, checkpoint(15))
        done()
        prune(run, {10, 15})

    return before, save, lambda run, returned: judged(run, {15} if returned else {10, 15}, 15)


def save_over_a_broken_one() -> Story:
    def before(run: Path) -> None:
        for step in (5, 10):
            (save_checkpoint(run, step, checkpoint(step)) / "state.json").touch()
        (run / "checkpoints" / "step-10" / "state.json").write_text("{}")

    def save(run: Path, done: Callable[[], None]) -> None:
        save_checkpoint(run, 10, checkpoint(10))
        done()
        prune(run, {5, 10})

    return before, save, lambda run, returned: judged(run, {10} if returned else {5, 10}, 10)


def judged(run: Path, may: set[int | None], last: int) -> str:
    """What is wrong with a state: nothing if it loads as it may, and the next save works and cleans up."""
    found = newest_step(run, [])
    if found not in may:
        return f"loads {found}, not one of {may}"
    save_checkpoint(run, last, checkpoint(last))
    save_checkpoint(run, last + 5, checkpoint(last + 5))
    prune(run, {last, last + 5})
    left = sorted(path.name for path in (run / "checkpoints").iterdir())
    if left != sorted([f"step-{last}", f"step-{last + 5}"]) or newest_step(run, []) != last + 5:
        return f"the next save leaves {left}"
    return ""


def model_weights() -> Story:
    """The weights of a model folder and their sums."""

    def before(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"old" * 20)
        write_checksums(folder)

    def save(folder: Path, done: Callable[[], None]) -> None:
        remove_checksums(folder)
        write_atomically(folder / "model.safetensors", b"new" * 30)
        done()
        write_checksums(folder)

    def judge(folder: Path, returned: bool) -> str:
        content = (folder / "model.safetensors").read_bytes()
        if content not in ([b"new" * 30] if returned else [b"old" * 20, b"new" * 30]):
            return f"the weights are {content[:10]!r}"
        if wrong := changed_files(folder):
            return f"{wrong[0].name} is refused"
        remove_partials(folder)
        return "" if not list(folder.glob(".*")) else "something is left"

    return before, save, judge


STORIES = (first_save, next_save, save_over_a_broken_one, model_weights)


def power(count: int, seed: int) -> Result:
    """At least `count` states over all stories, none of them twice."""
    chance, wrong, kinds = random.Random(seed), list[str](), dict[str, int]()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        for story in STORIES:
            before, save, judge = story()
            root = Path(place).resolve() / story.__name__
            root.mkdir()
            before(root)
            record = Recorder(root)
            with use_disk(record):
                save(root, record.done)
            seen: set[int] = set()
            while len(seen) < -(-count // len(STORIES)):
                known = len(seen)
                for tree, returned in states(record, chance):
                    mark = hash((tuple(sorted(tree.items(), key=lambda item: item[0])), returned))
                    if mark in seen:
                        continue
                    seen.add(mark)
                    put(root.with_name("now"), tree)
                    if found := judge(root.with_name("now"), returned):
                        wrong.append(f"{story.__name__}, seed {seed}: {found} of {sorted(tree)}")
                    shutil.rmtree(root.with_name("now"))
                if len(seen) == known:
                    break  # there are no more
            kinds[story.__name__] = len(seen)
    n = sum(kinds.values())
    figure = f"{n - len(wrong)} of {n} states load as exactly the old or the new"
    return Result("power-cuts", n, len(wrong), figure, seed, kinds, wrong)
