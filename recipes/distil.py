"""Teach a small, fast model what a large one says: sequence-level distillation (Kim & Rush 2016).

python recipes/distil.py RECIPE.toml --teacher DIR --out DIR [--set model.decoder_layers=1 ...]

The teacher translates the sources of the recipe's training data (beam 5, the best hypothesis); the student
learns from these translations, which are more regular than people's, so that little is lost with one decoder
layer, and decoding has one layer to go through (Kasai et al. 2021). Validation and test data stay people's.

    REGARD_DATA=folder python recipes/distil.py recipes/multi30k-en-de-quick.toml \
        --teacher runs/multi30k-quick --out runs/student \
        --set model.encoder_layers=6 --set model.decoder_layers=1

It can be stopped at any time: the same command goes on. Expected: BLEU 39.69 on test_2016 (the teacher 39.80,
the same shape without one 37.86; twelve layers and one, taught, 39.28). Time: by their rates on two cores, 2
minutes for the teacher's texts and 20 for the student (31 with twelve layers).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from regard.config import Config, load_config
from regard.data import read_examples
from regard.storage import write_text
from regard.tasks import load
from regard.training import train

LINES_AT_ONCE = 2000  # what is lost at most when the teacher is interrupted


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("recipe", type=Path)
    options.add_argument("--teacher", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--set", dest="changes", action="append", default=[])
    options.add_argument("--beam", type=int, default=5)
    given = options.parse_args()
    config = load_config(given.recipe, given.changes)
    said = given.out.with_name(f"{given.out.name}-teacher")
    sources, targets = teach(config, given.teacher, said, given.beam)
    data = config.data.model_copy(update={"train": [str(sources.resolve()), str(targets.resolve())]})
    student = config.model_copy(update={"data": data})
    outcome = train(student, given.out, resume=(given.out / "run.toml").is_file())
    for record in outcome.records:
        print(record["kind"], f"BLEU {record['bleu']:.2f}", record.get("bleu_signature", ""), flush=True)
    sys.exit(0 if outcome.finished else 130)


def teach(config: Config, teacher: Path, place: Path, beam: int) -> tuple[Path, Path]:
    """What the teacher says of every training source, as two files; portions that are there are kept."""
    sources = list(
        dict.fromkeys(each.source for each in read_examples(config.data.train, config.task, "train"))
    )
    place.mkdir(parents=True, exist_ok=True)
    model, portions = None, []
    for number, start in enumerate(range(0, len(sources), LINES_AT_ONCE)):
        file = place / f"part-{number:05d}.txt"
        portions.append(file)
        if not file.is_file():
            model = model or load(teacher)
            texts = model.translate(sources[start : start + LINES_AT_ONCE], beam=beam)
            write_text(file, lines_of(texts))
            print(f"{min(start + LINES_AT_ONCE, len(sources)):,} of {len(sources):,} lines", flush=True)
    write_text(place / "source.txt", lines_of(sources))
    write_text(place / "target.txt", "".join(file.read_text(encoding="utf-8") for file in portions))
    return place / "source.txt", place / "target.txt"


def lines_of(texts: Iterable[str]) -> str:
    return "".join(" ".join(text.splitlines()) + "\n" for text in texts)


if __name__ == "__main__":
    main()
