"""Memory while decoding, against CTranslate2: each in a process of its own, with the same weights.

python -m bench.memory -m FOLDER [--sentences 32] [--beams 4] [--source 25]

FOLDER is a translation model of ours, measured by `regard calibrate`; its CTranslate2 twin is written aside.
One line of JSON each: the most memory that the process had (VmHWM), what it holds after the work (VmRSS), and
what of that is its own and not the pages of a file (RssAnon), in MiB.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

TARGET = 32
WAYS = ("regard int8", "regard float32", "ctranslate2 int8", "ctranslate2 float32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=32)
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--source", type=int, default=25)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # in the process that is measured
    parser.add_argument("--twin", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps({"way": given.way, **work(given)}))
        return
    with tempfile.TemporaryDirectory() as place:
        write_twin(given.model, Path(place))
        for way in WAYS:
            own = [sys.executable, __file__, *sys.argv[1:], "--way", way, "--twin", place]
            subprocess.run(own, check=True)


def write_twin(model: Path, place: Path) -> None:
    from regard.export.check import token_names as names
    from regard.export.to_ctranslate2 import write
    from regard.storage import open_folder

    folder = open_folder(model)
    write(folder, place, "float32")
    (place / "names.json").write_text(json.dumps(list(names(folder.source))))


def work(given: argparse.Namespace) -> dict[str, float]:
    """The same ids for both, exactly TARGET tokens each; twice, since the first time may hold less."""
    program, precision = given.way.split()
    numbers = [
        [8 + (17 * row + 5 * place) % 900 for place in range(given.source)] for row in range(given.sentences)
    ]
    run = (ours if program == "regard" else theirs)(given, precision, numbers)
    for _ in range(2):
        run()
    return held()


def ours(given: argparse.Namespace, precision: str, numbers: list[list[int]]) -> Callable[[], object]:
    from regard.generation import Request, generate
    from regard.tasks import Translator, load_as

    translator = load_as(Translator, given.model, precision=precision)
    lengths = {"beam": given.beams, "min_length": TARGET, "max_length": TARGET}
    options = translator.folder.decode.model_copy(update=lengths)
    requests = [Request(row, options) for row in numbers]
    special, device = translator.special, translator.device
    return lambda: generate(translator.model_for, requests, special, device, 1_000_000)


def theirs(given: argparse.Namespace, precision: str, numbers: list[list[int]]) -> Callable[[], object]:
    import ctranslate2

    known = json.loads((given.twin / "names.json").read_text())
    model = ctranslate2.Translator(str(given.twin), compute_type=precision, inter_threads=1, intra_threads=2)
    words = [[known[number] for number in row] for row in numbers]
    lengths = {"min_decoding_length": TARGET, "max_decoding_length": TARGET}
    return lambda: model.translate_batch(words, beam_size=given.beams, max_batch_size=len(words), **lengths)


def held() -> dict[str, float]:
    text = Path("/proc/self/status").read_text()
    names = ("VmHWM", "VmRSS", "RssAnon")
    return {name: round(int(re.search(rf"{name}:\s+(\d+)", text)[1]) / 1024) for name in names}  # type: ignore[index]


if __name__ == "__main__":
    main()
