"""Train the small models of the package, and put them into it in half precision.

python recipes/lessons.py [--runs runs/lessons] [--only phrasebook-rnn]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file

from regard.config import load_config
from regard.storage import write_text
from regard.training import train

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "regard" / "builtin" / "models"
FILES = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
    "preprocessor_config.json", "README.md",
)  # fmt: skip
REPORT = "`report.html` shows the details; this"  # it stays with the run
SHAPES = {
    "phrasebook-transformer": [],
    "phrasebook-bahdanau": ["family=bahdanau", "cell=gru", "layers=1", "width=96"],
    "phrasebook-rnn": ["family=rnn", "cell=lstm", "layers=1", "width=128", "reverse_source=true"],
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=Path, default=Path("runs/lessons"))
    options.add_argument("--only", choices=list(SHAPES), action="append")
    given = options.parse_args()
    for name in given.only or SHAPES:
        changes = [f"model.{change}" for change in SHAPES[name]]
        folder = given.runs / name
        config = load_config(HERE / "lessons.toml", changes)
        outcome = train(config, folder, resume=(folder / "run.toml").is_file())
        scores = {record["kind"]: (record["bleu"], record["exact"]) for record in outcome.records}
        print(name, scores, flush=True)
        if not outcome.finished:
            sys.exit(130)  # interrupted; the same command goes on
        put(folder, PACKAGE / name)


def put(run: Path, place: Path) -> None:
    """The run's model as a folder of the package: half precision, nothing of the run itself."""
    place.mkdir(parents=True, exist_ok=True)
    for name in FILES:  # pictures have no tokenizer, text has no preprocessor
        if (run / name).is_file():
            shutil.copyfile(run / name, place / name)
    if (place / "tokenizer.json").is_file():
        shorten(place / "tokenizer.json")
    card = (place / "README.md").read_text(encoding="utf-8").replace(REPORT, "This")
    write_text(
        place / "README.md",
        card.replace(f'"{run.name}"', f'"{place.name}"').replace(f"-m {run.name}", f"-m {place.name}"),
    )
    weights = {name: tensor.half() for name, tensor in load_file(run / "model.safetensors").items()}
    save_file(weights, place / "model.safetensors", {"format": "pt"})
    (place / "model.safetensors").chmod(
        0o644
    )  # it is written for the owner alone; a package is for everybody


def shorten(tokenizer: Path) -> None:
    """Without indentation it is half as large; a merge is `a b`, the older form, instead of `["a","b"]`."""
    content = json.loads(tokenizer.read_text(encoding="utf-8"))
    if "merges" in content["model"]:
        pairs = content["model"]["merges"]
        content["model"]["merges"] = [pair if isinstance(pair, str) else " ".join(pair) for pair in pairs]
    write_text(tokenizer, json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
