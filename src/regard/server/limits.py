"""How much one request, and all of them together, may ask for. Defaults protect a machine with two cores.

What is fixed is checked with each request's fields and stands in the OpenAPI document; what a server may set
otherwise is in `Bounds`. `GET /api/v1/limits` tells all of it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from regard.server.requests import LARGEST_BEAM, LONGEST_TEXT

MOST_TEXTS = 64  # of one request
MOST_CHARACTERS = 50_000  # of all texts of one request
MOST_TOKENS = 1024  # that one completion may have
LONGEST_PROMPT = 8192  # ids of one prompt
MOST_CHOICES = 8  # n, best_of, alternatives
MOST_ROWS = 64  # prompts times choices
MOST_STOPS, LONGEST_STOP = 4, 200
MOST_LOGPROBS = 5
MOST_RANKED = 50  # guesses, labels or answers


@dataclass(frozen=True)
class ServerLimits:
    """What a server may set for itself."""

    body: int = 1 << 20  # bytes
    headers: int = 16 << 10  # bytes of all of them
    chunks: int = 4096  # parts that a body may come in
    unread: int = 128 << 10  # bytes of answers that the system holds for a client until it reads them
    connections: int = 600
    traces: int = 4  # runs for the explorer that wait or work at once
    header_seconds: float = 5.0  # from a connection to the end of its headers
    body_seconds: float = 8.0  # from there to the end of the body
    write_seconds: float = 5.0  # that a client may leave an answer unread
    idle_seconds: float = 5.0  # between two requests of a connection
    request_seconds: float = 30.0  # for one answer
    drain_seconds: float = 30.0  # for all of them, once the server shall end

    def as_dict(self) -> dict[str, float]:
        fixed = {
            "text_characters": LONGEST_TEXT,
            "texts": MOST_TEXTS,
            "characters": MOST_CHARACTERS,
            "max_tokens": MOST_TOKENS,
            "prompt_ids": LONGEST_PROMPT,
            "choices": MOST_CHOICES,
            "rows": MOST_ROWS,
            "stops": MOST_STOPS,
            "stop_characters": LONGEST_STOP,
            "logprobs": MOST_LOGPROBS,
            "ranked": MOST_RANKED,
            "beam": LARGEST_BEAM,
        }
        return fixed | asdict(self)
