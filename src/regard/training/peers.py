"""How the ranks of a run find one another, compare what they were started with, and notice that one is gone.

All of it goes through the key-value store of torch.distributed. Clocks of machines are never compared: each
rank counts its beats, and a rank is gone when its count stands still.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore

from regard.config import Config
from regard.errors import PeerError, UsageError

ADVICE = "continue from the last checkpoint with --resume, or let torchrun do that with --max-restarts"
LOOK = 2.0  # seconds between two looks at the others while this rank waits
JOIN = 5.0  # seconds until the thread that counts has ended
PATIENCE = 20.0  # seconds that finding out who is gone may take


class Peers:
    """The other ranks, as this one sees them."""

    def __init__(self, rank: int, world_size: int, timeout: float, prefix: str) -> None:
        """`prefix` hides keys that processes of an earlier attempt left."""
        self.rank, self.world_size, self.timeout = rank, world_size, timeout
        self.hosts = ["?"] * world_size
        self.operations = 0  # that this rank has begun: of ranks that wait, those with fewer are waited for
        self.waits = 0
        self.interval = max(0.5, world_size / 500)  # seconds between two beats
        self.ended, self.thread = threading.Event(), threading.Thread(target=self.beat, daemon=True)
        self.prefix = prefix
        self.store = self.open_store(serves=rank == 0)

    def open_store(self, serves: bool) -> PrefixStore:
        """A connection to the store of torchrun, else of rank 0."""
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        serves = serves and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        wait = timedelta(seconds=self.timeout)
        try:
            store = TCPStore(
                address, port, self.world_size, serves, wait, wait_for_workers=False, multi_tenant=True
            )
        except torch.distributed.DistError as error:
            raise PeerError(
                f"no answer from rank 0 at {address}:{port} in {self.timeout:g} s", code="E_RUN_PEER"
            ) from error
        return PrefixStore(self.prefix, store)

    # --- begin

    def join(self, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Wait for all ranks; the facts of each. From now on this rank is seen to be alive."""
        ranks = range(self.world_size)
        self.store.set(f"beat/{self.rank}", "0 0")
        self.store.set(f"facts/{self.rank}", json.dumps({"host": socket.gethostname(), **facts}))
        keys = [f"facts/{rank}" for rank in ranks]
        try:
            self.store.wait(keys, timedelta(seconds=self.timeout))
        except torch.distributed.DistError as error:
            missing = [rank for rank, key in zip(ranks, keys) if not self.store.check([key])]
            raise PeerError(
                f"rank {listed(missing)} of {self.world_size} did not join in {self.timeout:g} s; start "
                "as many processes as --nnodes and --nproc-per-node announce, with the same address",
                code="E_RUN_PEER",
            ) from error
        every = [json.loads(text) for text in self.store.multi_get(keys)]
        self.hosts = [each["host"] for each in every]
        self.thread.start()
        readers = self.store.add("readers", int(self.rank > 0))
        deadline = time.monotonic() + PATIENCE
        while self.rank == 0 and readers < self.world_size - 1 and time.monotonic() < deadline:
            time.sleep(0.01)  # the store may end with rank 0: first all others must have read
            readers = self.store.add("readers", 0)
        return every

    def beat(self) -> None:
        """Count, by a connection of its own: the other one may be waiting."""
        with suppress(RuntimeError, PeerError):  # the store is gone with its process
            store = self.open_store(serves=False)
            for number in itertools.count(1):
                store.set(f"beat/{self.rank}", f"{number} {self.operations}")
                if self.ended.wait(self.interval):
                    return

    def close(self) -> None:
        """The thread must not be in the store while the interpreter ends: that would abort the process."""
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join(JOIN)

    # --- wait

    def wait_for_all(self) -> None:
        """Until all ranks call this. One of them may work for hours before, as long as it is alive."""
        self.waits, self.operations = self.waits + 1, self.operations + 1
        if self.store.add(f"arrivals/{self.waits}", 1) == self.world_size:
            self.store.set(f"go/{self.waits}", "")
            self.store.delete_key(f"arrivals/{self.waits}")
            self.store.delete_key(f"go/{self.waits - 1}")  # all have left that one
            return
        beats, alive = self.beats(), [time.monotonic()] * self.world_size
        while not self.has_arrived():
            now = self.beats()
            alive = [time.monotonic() if new != old else last for new, old, last in zip(now, beats, alive)]
            beats = now
            silent = [rank for rank, last in enumerate(alive) if time.monotonic() - last > self.timeout]
            if silent or self.store.check(["verdict"]):
                raise self.failure(silent)

    def has_arrived(self) -> bool:
        try:
            self.store.wait([f"go/{self.waits}"], timedelta(seconds=min(LOOK, self.timeout)))
        except torch.distributed.DistStoreError:
            return False
        return True

    def beats(self) -> list[tuple[int, int]]:
        """The count and the operations of each rank."""
        texts = self.store.multi_get([f"beat/{rank}" for rank in range(self.world_size)])
        pairs = [text.decode().split() for text in texts]
        return [(int(count), int(operations)) for count, operations in pairs]

    # --- end

    def publish(self, error: BaseException) -> None:
        """Tell the others why this rank ends."""
        with suppress(RuntimeError):
            self.decide([self.rank], f"{self.name(self.rank)}: {error or type(error).__name__}")

    def failure(self, silent: Sequence[int] = ()) -> PeerError:
        """Who failed, after an operation with the others ended with an error. All ranks name the same."""
        verdicts: list[tuple[list[int], str]] = []
        thread = threading.Thread(target=lambda: verdicts.append(self.verdict(silent)), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        ranks, text = verdicts[0] if verdicts else ([0], f"{self.name(0)} does not answer")
        error = PeerError(f"{text}; {ADVICE}", code="E_RUN_PEER")
        alive = [rank for rank in range(self.world_size) if rank not in ranks]
        error.reports = 0 in ranks and self.rank == min(alive, default=self.rank)
        return error

    def verdict(self, silent: Sequence[int]) -> tuple[list[int], str]:
        try:
            if not silent and not self.store.check(["verdict"]):
                before = self.beats()
                time.sleep(4 * self.interval)
                after = self.beats()
                pairs = enumerate(zip(before, after))
                silent = [rank for rank, (old, new) in pairs if old == new and rank != self.rank]
                if not silent:
                    return self.decide_hang(after)
            return self.decide(silent, f"{self.names(silent)} ended or cannot be reached")
        except RuntimeError:  # the store is gone, too
            return [0], f"{self.name(0)}, which holds the store, ended or cannot be reached"

    def decide_hang(self, beats: Sequence[tuple[int, int]]) -> tuple[list[int], str]:
        behind = [rank for rank, (_, operations) in enumerate(beats) if operations < self.operations]
        if not behind:
            return [], "another process of this run ended"
        waited = f"{self.timeout:g} s (train.timeout)"
        return self.decide(behind, f"{self.names(behind)} did not take part in an operation for {waited}")

    def decide(self, ranks: Sequence[int], text: str) -> tuple[list[int], str]:
        """The first verdict counts: ranks that end because of it are not to blame."""
        mine = json.dumps([list(ranks), text])
        first = self.store.compare_set("verdict", "", mine).decode()
        decided = json.loads(first)
        return list(decided[0]), str(decided[1])

    def name(self, rank: int) -> str:
        return f"rank {rank} ({self.hosts[rank]})"

    def names(self, ranks: Sequence[int]) -> str:
        return ", ".join(map(self.name, ranks))


def start_facts(config: Config, resume: bool) -> dict[str, Any]:
    """What all ranks of a run must have in common; threads and GPUs may differ."""
    import regard
    from regard.training.prepare import code_version

    tree = config.model_dump(mode="json", by_alias=True)
    for name in ("device", "threads"):
        del tree["train"][name]
    versions = {"regard": regard.__version__, "code": code_version(regard), "torch": torch.__version__}
    return {"config": tree, "versions": versions, "resume": resume}


def refuse_differences(facts: Sequence[dict[str, Any]]) -> None:
    """Raise on all ranks if one of them has another value than rank 0, naming it with its host.

    A value that is a dictionary of dictionaries is named by the fields that differ.
    """
    flat = [dict(flatten(each)) for each in facts]
    for rank, other in enumerate(flat):
        for key in sorted(flat[0].keys() | other.keys()):
            if key != "host" and flat[0].get(key) != other.get(key):
                raise UsageError(
                    f"rank {rank} ({other['host']}) has {key} = {json.dumps(other.get(key))}, rank 0 "
                    f"({flat[0]['host']}) has {json.dumps(flat[0].get(key))}; all ranks need the same "
                    "config, data and packages",
                    code="E_RUN_RANKS",
                )


def flatten(tree: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        name = f"{before}{key}"
        pairs += flatten(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return pairs


def listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
