"""What a shape costs and gives: BLEU and speed of several models side by side, by turns in one process.

python -m bench.presets -m FOLDER FOLDER... --texts FILE --test SOURCE REFERENCE [--count 5000] [--beams 1 5]
    [--rounds 3] [--precision int8] [--tokenize none]

Each FOLDER is a translation model of ours, measured by `regard calibrate` where the precision is int8. Speed
is that of the first lines of FILE (each once), BLEU that of SOURCE. One line of JSON each.
"""

from __future__ import annotations

import argparse
import json
import statistics
from itertools import islice
from pathlib import Path

import sacrebleu

from bench.race import Runner, race
from regard.data.files import lines
from regard.device import choose_machine
from regard.storage import open_folder
from regard.tasks import Translator, load_as

WARM = 300  # lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-m", "--models", type=Path, nargs="+", required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--test", type=Path, nargs=2, metavar=("SOURCE", "REFERENCE"), required=True)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=("int8", "float32"), default="int8")
    parser.add_argument("--tokenize", default="none", help="sacreBLEU's words")
    given = parser.parse_args()
    choose_machine("cpu", precision="float32").use()
    texts = list(islice(dict.fromkeys(line for line in lines(given.texts) if line), given.count))
    asked, references = (list(lines(path)) for path in given.test)
    models = {path: load_as(Translator, path, precision=given.precision) for path in given.models}
    for beam in given.beams:
        runners = {str(path): writing(model, texts, beam) for path, model in models.items()}
        warm = {str(path): writing(model, texts[:WARM], beam) for path, model in models.items()}
        speeds = race(runners, given.rounds, warm=warm)
        first = speeds[str(given.models[0])]
        for path, model in models.items():
            own = speeds[str(path)]
            bleu = sacrebleu.corpus_bleu(
                model.translate(asked, beam=beam), [references], tokenize=given.tokenize, force=True
            )
            ratios = [mine / other for mine, other in zip(own, first)]
            told = {
                "model": str(path),
                "layers": "-".join(map(str, model.folder.config.depth)),
                "parameters": open_folder(path).parameters,
                "beam": beam,
                "bleu": round(bleu.score, 2),
                "tokens a second": round(statistics.median(own)),
                "against the first": [round(each(ratios), 2) for each in (statistics.median, min, max)],
            }
            print(json.dumps(told), flush=True)


def writing(model: Translator, texts: list[str], beam: int) -> Runner:
    """Target pieces, as the model's own tokenizer counts them, with the end of each line."""

    def run() -> int:
        return sum(len(model.folder.target.encode(text)) + 1 for text in model.translate(texts, beam=beam))

    return run


if __name__ == "__main__":
    main()
