"""From a text file to a text file, against CTranslate2: tokenizing included, by turns in one process.

python bench/files.py -m FOLDER --texts FILE [--count 20000] [--beam 5] [--rounds 3] [--precision int8]

FOLDER is a translation model of ours, measured by `regard calibrate`; its CTranslate2 twin is written aside.
CTranslate2 is asked in batches of 32 sentences, as `translate_file` does, and of 4,096 pieces, which suits it
better; both with its tokens made and read by the tokenizers library. Lines that come twice are left out.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import islice
from pathlib import Path

import ctranslate2
import tokenizers
import torch

from race import Runner, race, report
from regard.data.files import lines
from regard.export.to_ctranslate2 import write
from regard.export.vocabulary import write_tokenizers
from regard.machine import choose_machine
from regard.store import open_folder
from regard.tasks import Translator, load_as

BATCHES = {"32 sentences": (32, "examples"), "4,096 pieces": (4096, "tokens")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=("int8", "float32"), default="int8")
    given = parser.parse_args()
    choose_machine("cpu", precision="float32").use()
    texts = list(islice(dict.fromkeys(line for line in lines(given.texts) if line), given.count))
    own = load_as(Translator, given.model, precision=given.precision)
    with tempfile.TemporaryDirectory() as place:
        runners = {"regard": ours(own, texts, given.beam, Path(place))}
        folder = open_folder(given.model)
        write(folder, Path(place), "float32")
        write_tokenizers(Path(place), folder)
        for name, batch in BATCHES.items():
            runners[f"ctranslate2, {name}"] = theirs(Path(place), batch, given, texts)
        speeds = race(runners, given.rounds)
        for other in list(runners)[1:]:
            report(f"{len(texts)} lines, beam {given.beam}", speeds, "regard", [other], "lines")
        said = [(Path(place) / name).read_text(encoding="utf-8").split("\n") for name in ("ours", "theirs")]
    print(f"{sum(a == b for a, b in zip(*said))} of {len(texts)} lines are equal")


def ours(model: Translator, texts: list[str], beam: int, place: Path) -> Runner:
    def run() -> int:
        found = model.translate(texts, beam=beam)
        (place / "ours").write_text("\n".join(found), encoding="utf-8")
        return len(texts)

    return run


def theirs(place: Path, batch: tuple[int, str], given: argparse.Namespace, texts: list[str]) -> Runner:
    size, kind = batch
    model = ctranslate2.Translator(
        str(place), compute_type=given.precision, inter_threads=1, intra_threads=torch.get_num_threads()
    )
    source = tokenizers.Tokenizer.from_file(str(place / "tokenizer.json"))
    other = place / "target_tokenizer.json"
    target = tokenizers.Tokenizer.from_file(str(other)) if other.is_file() else source

    def run() -> int:
        words = [each.tokens for each in source.encode_batch(texts)]
        found = model.translate_batch(words, beam_size=given.beam, max_batch_size=size, batch_type=kind)
        ids = [[target.token_to_id(piece) for piece in each.hypotheses[0]] for each in found]
        (place / "theirs").write_text("\n".join(target.decode_batch(ids)), encoding="utf-8")
        return len(texts)

    return run


if __name__ == "__main__":
    main()
