"""A translation model exported to CTranslate2 and ONNX: share of equal texts on a test set, and BLEU.

python -m bench.export -m runs/multi30k [--source data:multi30k/test_2016_flickr.lc.tok.en.gz] [--target ...]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.rounds import arguments, show
from regard.data.files import find, lines
from regard.device import choose_machine
from regard.export import export_model
from regard.export.check import BEAM, GREEDY, Reference
from regard.export.sample import EncodedText
from regard.export.to_ctranslate2 import CTranslate2Model
from regard.export.to_onnx import OnnxModel
from regard.metrics.bleu import text_scores
from regard.storage import Folder, open_folder

TEST = "data:multi30k/test_2016_flickr.lc.tok"
EQUAL, BLEU = 0.995, 0.05  # share of equal texts, and difference of BLEU, that pass
Search = Callable[[], list[list[int]]]


def searches(folder: Folder, reference: Reference, places: dict[str, Path]) -> dict[str, tuple[int, Search]]:
    """What each engine says, by name, with its number of beams."""
    fast, onnx = CTranslate2Model(places["ctranslate2"], folder), OnnxModel(places["onnx"], folder)
    sources = [text.source for text in reference.texts]
    return {
        "CTranslate2 greedy": (GREEDY, lambda: fast.search(sources, GREEDY, reference.limit)),
        f"CTranslate2 beam {BEAM}": (BEAM, lambda: fast.search(sources, BEAM, reference.limit)),
        "ONNX Runtime greedy": (GREEDY, lambda: onnx.greedy(reference.prompts, reference.limit)),
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--source", default=f"{TEST}.en.gz")
    parser.add_argument("--target", default=f"{TEST}.de.gz")
    parser.add_argument("--tokenize", default="none", help="of BLEU")
    options = parser.parse_args()
    choose_machine("cpu", precision="float32").use()
    sources, references = (list(lines(find(name))) for name in (options.source, options.target))
    folder = open_folder(options.model)
    reference = Reference(folder, [EncodedText(folder.source.encode(line), []) for line in sources])
    with tempfile.TemporaryDirectory() as scratch:
        places = {form: Path(scratch) / form for form in ("ctranslate2", "onnx")}
        for form, place in places.items():
            start = time.monotonic()
            agreement = export_model(options.model, form, place).agreement.summary
            seconds = round(time.monotonic() - start)
            show({"export": form, "seconds": seconds, "agreement": agreement}, options.json)
        ours = {beam: reference.detokenize(reference.search(beam)) for beam in (GREEDY, BEAM)}
        bleu = {beam: text_scores(said, references, options.tokenize).bleu for beam, said in ours.items()}
        for name, (beam, search) in searches(folder, reference, places).items():
            said = reference.detokenize(search())
            equal = sum(one == other for one, other in zip(ours[beam], said)) / len(said)
            gap = text_scores(said, references, options.tokenize).bleu - bleu[beam]
            row = {"engine": name, "texts": len(said), "equal": equal, "BLEU": bleu[beam], "BLEU gap": gap}
            show({**row, "passes": equal >= EQUAL and abs(gap) <= BLEU}, options.json)


if __name__ == "__main__":
    main()
