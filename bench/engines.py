"""Decoding against CTranslate2: the same weights, exactly as many target tokens, interleaved in one process.

python -m bench.engines -m FOLDER [--rounds 7] [--cells 1x1 1x4 32x1 32x4 64x5] [--transformers]

FOLDER is a translation model of ours, measured by `regard calibrate`; its CTranslate2 twin is written aside.
With --transformers `generate` races too, which opens FOLDER itself, in float32.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from transformers import MarianMTModel

from bench.race import Runner, arguments, race, report
from regard.device import choose_machine
from regard.export.check import token_names as names
from regard.export.to_ctranslate2 import write
from regard.generation import decode
from regard.generation.engine import make_engine
from regard.sample import Sample
from regard.storage import Folder, open_folder
from regard.storage.huggingface import opens_in_transformers

SOURCE, TARGET = 25, 32
CELLS = ["1x1", "1x4", "32x1", "32x4", "64x5"]  # sentences x beams


def main() -> None:
    parser = arguments(__doc__, rounds=7)
    parser.add_argument("--cells", nargs="+", default=CELLS)
    parser.add_argument("--transformers", action="store_true")
    given = parser.parse_args()
    choose_machine("cpu", precision="float32").use()
    torch.manual_seed(0)
    folder = open_folder(given.model)
    with tempfile.TemporaryDirectory() as place:
        write(folder, Path(place), "float32")
        twins = {precision: twin(place, precision) for precision in ("int8", "float32")}
    if given.transformers and not opens_in_transformers(folder.config):
        parser.error(f"--transformers: it has no model of the shape of {given.model}")
    hugging = MarianMTModel.from_pretrained(given.model).eval() if given.transformers else None
    engines = {precision: engine(given.model, precision) for precision in ("int8", "float32")}
    for cell in given.cells:
        rows, beams = (int(each) for each in cell.split("x"))
        texts = torch.randint(8, len(folder.source), (rows, SOURCE)).tolist()
        runners = {f"regard {name}": ours(own, folder, texts, beams) for name, own in engines.items()}
        runners |= {f"ctranslate2 {name}": theirs(own, folder, texts, beams) for name, own in twins.items()}
        if hugging is not None:
            runners["transformers"] = generating(hugging, texts, beams)
        speeds = race(runners, given.rounds)
        for other in [name for name in runners if not name.startswith("regard")]:
            report(f"{rows} sentences, {beams} beams", speeds, "regard int8", other, given.json)


def engine(path: Path, precision: str) -> Any:
    folder = open_folder(path)
    return make_engine(folder.model, precision, folder.calibration)  # type: ignore[arg-type]


def twin(place: str, precision: str) -> ctranslate2.Translator:
    threads = torch.get_num_threads()
    return ctranslate2.Translator(place, compute_type=precision, inter_threads=1, intra_threads=threads)


def ours(model: Any, folder: Folder, texts: Sequence[list[int]], beams: int) -> Runner:
    lengths = {"min_length": TARGET, "max_length": TARGET, "tokens_per_batch": 1_000_000}
    options = folder.decode.model_copy(update={"beam": beams, **lengths})

    def run() -> int:
        asked = [Sample(source=row) for row in texts]
        found = decode(model, asked, options, folder.special, torch.device("cpu"))
        if any(len(each[0].tokens) != TARGET for each in found):
            raise RuntimeError("not the number of tokens that was asked for")
        return len(texts) * TARGET

    return run


def theirs(model: ctranslate2.Translator, folder: Folder, texts: Sequence[list[int]], beams: int) -> Runner:
    known = names(folder.source)
    words = [[known[piece] for piece in row] for row in texts]
    lengths = {"min_decoding_length": TARGET, "max_decoding_length": TARGET}

    def run() -> int:
        model.translate_batch(words, beam_size=beams, max_batch_size=len(words), **lengths)
        return len(texts) * TARGET

    return run


def generating(model: MarianMTModel, texts: Sequence[list[int]], beams: int) -> Runner:
    ids = torch.tensor([[*row[:-1], model.config.eos_token_id] for row in texts])
    lengths = {"min_new_tokens": TARGET, "max_new_tokens": TARGET}

    def run() -> int:
        with torch.inference_mode():
            model.generate(ids, num_beams=beams, do_sample=False, **lengths)
        return len(texts) * TARGET

    return run


if __name__ == "__main__":
    main()
