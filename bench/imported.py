"""An imported translator against the engine that it comes from: the share of equal texts.

python -m bench.imported -m DIR --texts FILE --package zh-en.argosmodel     # CTranslate2 in float32
python -m bench.imported -m DIR --texts FILE --outputs bergamot.txt         # of bench/bergamot.py, greedy
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import ctranslate2
import torch

from bench.rounds import arguments, show
from regard.config import Decode
from regard.data.files import lines
from regard.device import choose_machine
from regard.export import to_ctranslate2
from regard.export.check import equal_share
from regard.export.sample import EncodedText
from regard.generation import decode
from regard.metrics.bleu import text_scores
from regard.sample import Sample
from regard.storage import Folder, open_folder


def in_float32(package: Path, place: Path) -> Path:
    """The model of a package, its weights as float32: CTranslate2 would multiply in bytes."""
    with zipfile.ZipFile(package) as archive:
        for name in archive.namelist():
            if PurePosixPath(name).parent.name == "model":
                (place / PurePosixPath(name).name).write_bytes(archive.read(name))
    return place


class Float32Translator(ctranslate2.Translator):  # type: ignore[misc]
    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options, compute_type="float32")


def greedy(folder: Folder, texts: list[str]) -> list[str]:
    samples = [Sample(source=folder.source.framed(folder.source.encode(text))) for text in texts]
    hypotheses = decode(
        folder.model, samples, Decode(beam=1, max_length=256), folder.special, torch.device("cpu")
    )
    return [folder.target.decode(each[0].tokens) for each in hypotheses]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--package", type=Path, help="the .argosmodel that the model comes from")
    parser.add_argument("--outputs", type=Path, help="what another engine made of the texts, line by line")
    parser.add_argument("--references", type=Path, help="for BLEU")
    options = parser.parse_args()
    choose_machine("cpu", precision="float32").use()
    folder, texts = open_folder(options.model), list(lines(options.texts))
    if options.package is not None:
        # the vocabulary of the package has no <pad>, which Regard suppresses
        plain = replace(folder, special=replace(folder.special, suppressed=()))
        to_ctranslate2.ctranslate2.Translator = Float32Translator
        with TemporaryDirectory() as scratch:
            place = in_float32(options.package, Path(scratch))
            encoded = [EncodedText(folder.source.encode(text), []) for text in texts]
            agreement = to_ctranslate2.check(place, plain, encoded)
        show({"texts": len(texts), **agreement.equal, "largest": agreement.largest}, options.json)
    if options.outputs is not None:
        ours, theirs = greedy(folder, texts), list(lines(options.outputs))
        row = {"texts": len(texts), "equal": equal_share(ours, theirs)}
        if options.references is not None:
            references = list(lines(options.references))
            row |= {"BLEU": text_scores(ours, references).bleu}
            row |= {"BLEU of theirs": text_scores(theirs, references).bleu}
        show(row, options.json)


if __name__ == "__main__":
    main()
