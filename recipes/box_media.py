"""Train the models of the package that read pictures and sounds, and put them into it in half precision.

REGARD_DATA=folder python recipes/box_media.py [--runs runs/box] [--only spoken-digits] [--no-put]

The recipes are fashion-mnist.toml and digits-in-a-row.toml; this makes their data first. It can be stopped at
any time: the same command goes on, and puts a model that is complete into the package.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from lessons import PACKAGE, put

from regard.config import load_config
from regard.storage import read_json, write_json, write_text
from regard.training import train

HERE = Path(__file__).parent
CARDS = HERE / "cards"
SCORES = "REGARD_DATA=folder python recipes/box_media_scores.py"
GARMENTS = {  # the labels of Fashion-MNIST, and what garments.py adds
    "0": "t-shirt", "1": "trousers", "2": "pullover", "3": "dress", "4": "coat", "5": "sandal", "6": "shirt",
    "7": "sneaker", "8": "bag", "9": "ankle boot", "10": "no garment",
}  # fmt: skip
MODELS = {  # recipe, script of its data, licence, what its data is called
    "garments": ("fashion-mnist.toml", "garments.py", "mit", "Fashion-MNIST and garments.py"),
    "spoken-digits": ("digits-in-a-row.toml", "spoken.py", "cc-by-sa-4.0", "FSDD, joined by spoken.py"),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--runs", type=Path, default=HERE.parent / "runs" / "box")
    options.add_argument("--only", choices=list(MODELS), action="append")
    options.add_argument("--set", dest="changes", action="append", default=[])
    options.add_argument("--no-put", action="store_true", help="leave the package as it is")
    given = options.parse_args()
    for name in given.only or MODELS:
        recipe, script, _, _ = MODELS[name]
        folder = given.runs / name
        is_begun = (folder / "run.toml").is_file()
        if not is_begun:
            subprocess.run([sys.executable, HERE / script], check=True)
        if not (folder / "model.safetensors").is_file():
            config = load_config(HERE / recipe, given.changes)
            if not train(config, folder, resume=is_begun).finished:
                sys.exit(130)  # interrupted; the same command goes on
        if not given.no_put:
            pack(folder, name)


def pack(run: Path, name: str) -> None:
    """Into the package: what the run was for, names of labels, licence, and what was written by hand."""
    _, _, licence, data = MODELS[name]
    place = PACKAGE / name
    put(run, place)
    settings = load_config(run / "run.toml")
    lines = [f"version = {settings.version}", "", "[task]", f'name = "{settings.task.name}"']
    lines += [f'input = "{settings.task.input}"', f'target = "{settings.task.target}"']
    lines += ["", "[decode]", f"beam = {settings.decode.beam}"]
    write_text(place / "run.toml", "\n".join(lines) + "\n")
    content = read_json(place / "config.json")
    if "id2label" in content:
        names = {number: GARMENTS[label] for number, label in content["id2label"].items()}
        numbers = {label: int(number) for number, label in names.items()}
        write_json(place / "config.json", content | {"id2label": names, "label2id": numbers})
    card = (place / "README.md").read_text(encoding="utf-8")
    card = card.replace("pipeline_tag:", f"license: {licence}\npipeline_tag:", 1)
    first, found, rest = card.partition("| training data | ")
    assert found, "the card says what the model was trained on"
    card = first + found + data + rest[rest.index(" |\n") :]
    card = re.sub("^regard evaluate .*$", SCORES, card, flags=re.MULTILINE)
    notes = (CARDS / f"{name}.md").read_text(encoding="utf-8")
    write_text(place / "README.md", card.replace("## Use\n", f"{notes}\n## Use\n", 1))


if __name__ == "__main__":
    main()
