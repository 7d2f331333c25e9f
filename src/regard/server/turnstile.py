"""A full server refuses at its door, in the words and with the headers that its routes would use.

Of ten times as many requests as can be answered nine are refused, on the cores that compute for the tenth:
through all of the app a refusal takes longer than the reading of a sentence. So what comes plainly, as
programs send it, is looked at here first; whatever is not plain goes the usual way, which ends the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

from starlette.datastructures import Headers

from regard.server.door import KeyPolicy, number_of
from regard.server.guard import SAFE, OriginPolicy
from regard.server.refusals import APIError, error_response, rate_limit_error
from regard.server.service import Service
from regard.server.waiting import Full

# Stricter than HTTP: what this takes for a head no reader takes for another one.
HEAD = re.compile(rb"POST (/[a-z0-9_/]+) HTTP/1\.1\r\n((?:[A-Za-z0-9-]+: [!-~][ -~]*\r\n)+)\r\n")
# A body of another form, another end of the connection, a page: for those who know them.
OTHERS = frozenset(
    {b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"origin", b"sec-fetch-site"}
)
LARGEST_HELD = 16 << 10  # bytes of a body that is waited for; others are counted while they come
Pairs = list[tuple[bytes, bytes]]


class EarlyRejection:
    """Looks at requests for a model before anything else does."""

    def __init__(self, service: Service, access: OriginPolicy, locks: KeyPolicy, paths: frozenset[str]) -> None:
        self.service, self.access, self.locks, self.paths = service, access, locks, paths

    def answer(self, data: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> bytes | None:
        """The refusal of a request, with some headers more; empty while its body is still to come, and None
        for what is to go the usual way."""
        if self.service.draining or self.service.full() is None:
            return None
        begun, head = time.monotonic(), HEAD.match(data, 0, self.service.bounds.headers)
        if head is None or (path := head[1].decode()) not in self.paths:
            return None
        pairs = pairs_of(head[2])
        length = length_in(pairs)
        if length is None or length > self.service.bounds.body or len(data) > head.end() + length:
            return None
        if len(data) < head.end() + length:
            return b"" if length <= LARGEST_HELD else None
        headers = Headers(raw=pairs)
        if self.access.reason(path, "POST", headers) is not None:
            return None
        try:
            owner = self.locks.owner(self.service.keys, path, headers, data[head.end() :])
            self.service.check_capacity()
        except APIError:  # no key: said elsewhere
            return None
        except Full as full:
            self.service.metrics.add("refused")
            status, first, body = written(path, str(full), full.retry_after)
        else:  # somebody has just left
            return None
        number = number_of(headers)
        self.service.note(path, "POST", status, time.monotonic() - begun, number, owner)
        rest = b"".join(b"%b: %b\r\n" % pair for pair in more)
        return b"%bx-request-id: %b\r\n%b\r\n%b" % (first, number.encode(), rest, body)


def pairs_of(lines: bytes) -> Pairs:
    """Header lines, as the app is given them."""
    found = []
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b": ")
        found.append((name.lower(), value.rstrip(b" ")))
    return found


def length_in(pairs: Pairs) -> int | None:
    """The bytes of a body, where the head is a plain one."""
    own = dict(pairs)
    length = own.get(b"content-length", b"")
    plain = len(own) == len(pairs) and OTHERS.isdisjoint(own) and length.isdigit() and len(length) <= 12
    stays = own.get(b"connection", b"keep-alive").lower() == b"keep-alive"
    return int(length) if plain and stays else None


@lru_cache(256)
def written(path: str, text: str, seconds: float) -> tuple[int, bytes, bytes]:
    """A refusal for want of room: its status, the head but for what each has of its own, and the body."""
    answer = error_response(path, rate_limit_error(text, seconds))
    answer.headers.update(SAFE)
    status = HTTPStatus(answer.status_code)
    lines = [b"%b: %b\r\n" % pair for pair in answer.raw_headers]
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() + b"".join(lines)
    return status.value, head, bytes(answer.body)
