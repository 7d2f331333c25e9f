"""From text file to text file: our models and CTranslate2, tokenizing included, interleaved in one process.

    python -m bench.files -m FOLDER --texts FILE [--count 20000] [--beam 5] [--rounds 3] [--precision int8]
    python -m bench.files -m FOLDER --and FOLDER... --texts FILE --test SOURCE REFERENCE --no-ctranslate2

FOLDER is a translation model of ours, measured by `regard calibrate` where the precision is int8. CTranslate2
runs a copy of the first, in batches of 32 sentences, as its `translate_file` does, and of 4,096 tokens, which
suits it better; both with its tokens made and read by the tokenizers library. Lines that come twice are left
out. With --test every program also translates SOURCE, and its BLEU is printed, beside that of our float32.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import ctranslate2
import sacrebleu
import tokenizers
import torch

from bench.rounds import arguments, race, report, show
from regard.data.files import lines
from regard.device import choose_machine
from regard.export.run import write_tokenizers
from regard.export.to_ctranslate2 import write
from regard.storage import open_folder
from regard.tasks import Translator, load_as

WARM = 500  # lines
Program = Callable[[list[str]], list[str]]
BATCHES = {"32 sentences": (32, "examples"), "4,096 tokens": (4096, "tokens")}


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--and", dest="others", type=Path, nargs="+", default=[], help="more models of ours")
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--precision", choices=("int8", "float32"), default="int8")
    parser.add_argument("--no-ctranslate2", action="store_true")
    parser.add_argument("--test", type=Path, nargs=2, metavar=("SOURCE", "REFERENCE"))
    parser.add_argument("--tokenize", default="none", help="of sacreBLEU")
    given = parser.parse_args()
    choose_machine("cpu", precision="float32").use()
    texts = list(islice(dict.fromkeys(line for line in lines(given.texts) if line), given.count))
    with tempfile.TemporaryDirectory() as name:
        programs = translators(given, Path(name))
        runners, warm = (
            {
                key: partial(written, programs[key], part, Path(name) / f"{number}")
                for number, key in enumerate(programs)
            }
            for part in (texts, texts[:WARM])
        )
        speeds = race(runners, given.rounds, warm=warm)
        outputs = [read(Path(name) / f"{number}") for number in range(len(programs))]
        more = {
            key: {"equal": float(sum(map(str.__eq__, outputs[0], lines)))}
            for key, lines in zip(programs, outputs)
        }
        title = f"{len(texts)} lines, beam {given.beam}"
        report(title, speeds, given.json, "lines/s", more, ours=[next(iter(programs))])
        if given.test:
            plain = load_as(Translator, given.model, precision="float32")
            programs["regard float32"] = partial(plain.translate, beam=given.beam)
            sources, references = (list(lines(path)) for path in given.test)
            for key, program in programs.items():
                bleu = sacrebleu.corpus_bleu(
                    program(sources), [references], tokenize=given.tokenize, force=True
                )
                show({"program": key, "BLEU": round(bleu.score, 2)}, given.json)


def translators(given: argparse.Namespace, place: Path) -> dict[str, Program]:
    """By name, what translates a list of lines; the first is the one that the others are compared with."""
    programs: dict[str, Program] = {}
    for path in [given.model, *given.others]:
        model = load_as(Translator, path, precision=given.precision)
        name = f"regard {path}" if given.others else "regard"
        programs[name] = partial(model.translate, beam=given.beam)
        layers = "-".join(map(str, model.folder.config.depth))
        show({"model": name, "layers": layers, "parameters": model.folder.parameters}, given.json)
    if not given.no_ctranslate2:
        twin = Twin(given.model, place, given.precision)
        for name, batch in BATCHES.items():
            programs[f"ctranslate2, {name}"] = partial(twin.translate, beam=given.beam, batch=batch)
    return programs


class Twin:
    """The same model in CTranslate2, with its tokenizers."""

    def __init__(self, model: Path, place: Path, precision: str) -> None:
        folder = open_folder(model)
        write(folder, place, "float32")
        write_tokenizers(place, folder)
        self.model = ctranslate2.Translator(
            str(place), compute_type=precision, inter_threads=1, intra_threads=torch.get_num_threads()
        )
        self.source = tokenizers.Tokenizer.from_file(str(place / "tokenizer.json"))
        other = place / "target_tokenizer.json"
        self.target = tokenizers.Tokenizer.from_file(str(other)) if other.is_file() else self.source

    def translate(self, texts: list[str], beam: int, batch: tuple[int, str]) -> list[str]:
        size, kind = batch
        # without the end, which CTranslate2 adds
        words = [each.tokens for each in self.source.encode_batch(texts, add_special_tokens=False)]
        found = self.model.translate_batch(words, beam_size=beam, max_batch_size=size, batch_type=kind)
        ids = [[self.target.token_to_id(token) for token in each.hypotheses[0]] for each in found]
        return list(self.target.decode_batch(ids))


def written(program: Program, texts: list[str], path: Path) -> int:
    """One round: all lines to a file."""
    path.write_text("\n".join(program(texts)), encoding="utf-8")
    return len(texts)


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")


if __name__ == "__main__":
    main()
