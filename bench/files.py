"""From a text file to a text file, against CTranslate2: tokenizing included, by turns in one process.

python -m bench.files -m FOLDER --texts FILE [--count 20000] [--beam 5] [--rounds 3] [--precision int8]
    [--test SOURCE REFERENCE [--tokenize none]]

FOLDER is a translation model of ours, measured by `regard calibrate`; its CTranslate2 twin is written aside.
CTranslate2 is asked in batches of 32 sentences, as `translate_file` does, and of 4,096 pieces, which suits it
better; both with its tokens made and read by the tokenizers library. Lines that come twice are left out.
With --test both also translate SOURCE, and their BLEU is told, beside that of our float32.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import islice
from pathlib import Path

import ctranslate2
import sacrebleu
import tokenizers
import torch

from bench.race import Runner, race, report
from regard.data.files import lines
from regard.device import choose_machine
from regard.export.run import write_tokenizers
from regard.export.to_ctranslate2 import write
from regard.storage import open_folder
from regard.tasks import Translator, load_as

WARM = 500  # lines
BATCHES = {"32 sentences": (32, "examples"), "4,096 pieces": (4096, "tokens")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--model", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=("int8", "float32"), default="int8")
    parser.add_argument("--test", type=Path, nargs=2, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--tokenize", default="none", help="sacreBLEU's words")
    given = parser.parse_args()
    choose_machine("cpu", precision="float32").use()
    texts = list(islice(dict.fromkeys(line for line in lines(given.texts) if line), given.count))
    own = load_as(Translator, given.model, precision=given.precision)
    asked = list(lines(given.test[0])) if given.test else []
    with tempfile.TemporaryDirectory() as place:
        folder = open_folder(given.model)
        write(folder, Path(place), "float32")
        write_tokenizers(Path(place), folder)
        twin = Twin(Path(place), given.precision)
        runners, warm = (ways(own, twin, part, given.beam, Path(place)) for part in (texts, texts[:WARM]))
        speeds = race(runners, given.rounds, warm=warm)
        for other in list(runners)[1:]:
            report(f"{len(texts)} lines, beam {given.beam}", speeds, "regard", [other], "lines")
        said = [read(Path(place) / name) for name in ("ours", "theirs")]
        print(f"{sum(a == b for a, b in zip(*said))} of {len(texts)} lines are equal", flush=True)
        if given.test:
            plain = load_as(Translator, given.model, precision="float32")
            judged = {
                "regard": ours(own, asked, given.beam, Path(place)),
                "regard float32": ours(plain, asked, given.beam, Path(place)),
                "ctranslate2": theirs(twin, BATCHES["32 sentences"], asked, given.beam, Path(place)),
            }
            score(judged, Path(place), list(lines(given.test[1])), given.tokenize)


class Twin:
    """The same model in CTranslate2, with its tokenizers."""

    def __init__(self, place: Path, precision: str) -> None:
        threads = torch.get_num_threads()
        self.model = ctranslate2.Translator(
            str(place), compute_type=precision, inter_threads=1, intra_threads=threads
        )
        self.source = tokenizers.Tokenizer.from_file(str(place / "tokenizer.json"))
        other = place / "target_tokenizer.json"
        self.target = tokenizers.Tokenizer.from_file(str(other)) if other.is_file() else self.source


def ways(own: Translator, twin: Twin, texts: list[str], beam: int, place: Path) -> dict[str, Runner]:
    others = {
        f"ctranslate2, {name}": theirs(twin, batch, texts, beam, place) for name, batch in BATCHES.items()
    }
    return {"regard": ours(own, texts, beam, place), **others}


def score(ways: dict[str, Runner], place: Path, references: list[str], tokenize: str) -> None:
    """The BLEU of each way on the same sentences."""
    for name, run in ways.items():
        run()
        said = read(place / ("theirs" if name == "ctranslate2" else "ours"))
        print(
            f"{name}: {sacrebleu.corpus_bleu(said, [references], tokenize=tokenize, force=True)}", flush=True
        )


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


def ours(model: Translator, texts: list[str], beam: int, place: Path) -> Runner:
    def run() -> int:
        found = model.translate(texts, beam=beam)
        (place / "ours").write_text("\n".join(found), encoding="utf-8")
        return len(texts)

    return run


def theirs(twin: Twin, batch: tuple[int, str], texts: list[str], beam: int, place: Path) -> Runner:
    size, kind = batch

    def run() -> int:
        # without the end, which CTranslate2 adds
        words = [each.tokens for each in twin.source.encode_batch(texts, add_special_tokens=False)]
        found = twin.model.translate_batch(words, beam_size=beam, max_batch_size=size, batch_type=kind)
        ids = [[twin.target.token_to_id(piece) for piece in each.hypotheses[0]] for each in found]
        (place / "theirs").write_text("\n".join(twin.target.decode_batch(ids)), encoding="utf-8")
        return len(texts)

    return run


if __name__ == "__main__":
    main()
