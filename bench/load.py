"""Load a server with requests and measure latency and throughput.

    python -m bench.load -m runs/demo                                   # starts `regard serve` meanwhile
    python -m bench.load -m runs/demo --rate 20 --seconds 60
    python -m bench.load --url http://127.0.0.1:8000 --clients 8 --file texts.txt

With --clients each client sends its next request as soon as it has its answer (closed loop); with --rate
requests arrive as a Poisson process, and latency counts from when a request was due (open loop).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

from bench.rounds import arguments, show
from qa.serving.driver import Drive, Figures, measure, questions_for, sentences
from qa.serving.link import Address
from qa.serving.process import started
from regard.cli.bench import read
from regard.device import freeze_gc


def main(words: list[str] | None = None) -> None:
    parser = arguments(__doc__, model=False)
    parser.add_argument("-m", "--model", action="append", default=[], help="a model to serve meanwhile")
    parser.add_argument("--url", help="a running server, as http://127.0.0.1:8000")
    parser.add_argument("--key", default=os.environ.get("REGARD_KEY"), help="API key (or REGARD_KEY)")
    parser.add_argument("--file", type=Path, help="texts, one per line; default: phrasebook sentences")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rate", type=float, help="requests per second, instead of clients")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--name", default="", help="of a model in the server; default: the first")
    parser.add_argument("--max-tokens", type=int, default=32, help="for language models")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", nargs="*", default=[], help="options for regard serve, e.g. --threads=2")
    given = parser.parse_args(words)
    if bool(given.model) == bool(given.url):
        parser.error("give either -m, a model to serve, or --url of a running server")
    texts = sentences(given.seed) if given.file is None else read(given.file)
    drive = Drive(given.clients, given.rate, given.seconds, given.seed)

    async def load(address: Address) -> Figures:
        requests = await questions_for(address, texts, given.name, given.max_tokens)
        return await measure(address, requests, drive)

    with ExitStack() as stack:
        if given.url:
            address = Address.of(given.url, given.key)
        else:
            address = stack.enter_context(started([*given.model, *given.serve])).address
        freeze_gc()  # a pause for garbage collection in the client would count as the server's
        show(asyncio.run(load(address)).summary(), given.json)


if __name__ == "__main__":
    main()
