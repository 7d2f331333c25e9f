"""The traces that were asked for last."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

from regard.errors import UsageError
from regard.interpret import Trace

MOST = 16  # traces
MOST_BYTES = 1 << 30


class Traces:
    """Kept in memory alone; the one that was not looked at for longest goes first."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.kept: OrderedDict[str, Trace] = OrderedDict()
        self.lock = Lock()

    def get(self, number: str) -> Trace | None:
        with self.lock:
            if number in self.kept:
                self.kept.move_to_end(number)
            return self.kept.get(number)

    def require(self, number: str) -> Trace:
        found = self.get(number)
        if found is None:
            raise UsageError("this trace is not kept any more; ask for it again")
        return found

    def add(self, number: str, trace: Trace) -> None:
        with self.lock:
            self.kept[number] = trace
            # two that are compared and one with changes stay, however large
            while len(self.kept) > self.most or (len(self.kept) > 3 and self.bytes() > self.most_bytes):
                self.kept.popitem(last=False)

    def bytes(self) -> int:
        return sum(t.nbytes for trace in self.kept.values() for t in trace.tensors.values())


def number_of(key: str) -> str:
    """The same request has the same number, so that a page that is loaded again costs nothing."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:24]
