"""Train the paper's base model, and record what one of its attentions does with a few sentences.

REGARD_DATA=folder python recipes/thinking.py [--run runs/thinking]

It can be stopped at any time: the same command goes on. The sentences are those of the lesson “Thinking
Machines”. Tatoeba seldom writes the two words with capitals, so the tokenizer would cut them into pieces: the
rows with one of them are repeated as titles.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from regard.config import Config, load_config
from regard.data import read_examples
from regard.storage import write_text
from regard.training import train

RECIPE = Path(__file__).with_name("thinking.toml")
REPEATED = 8


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--run", type=Path, default=Path("runs/thinking"))
    options.add_argument("--set", dest="changes", action="append", default=[])
    given = options.parse_args()
    run = given.run / "run"
    config = with_titles(load_config(RECIPE, given.changes), given.run / "train.tsv")
    if not train(config, run, resume=(run / "run.toml").is_file()).finished:
        sys.exit(130)  # interrupted; the same command goes on


def with_titles(config: Config, file: Path) -> Config:
    """The recipe on Tatoeba's rows and on titles made of those with one of the two words."""
    tatoeba = load_config(RECIPE, ['data.train="data:tatoeba/train.en-de.tsv.gz"'])
    rows = [(each.source, each.target) for each in read_examples(tatoeba.data.train, tatoeba.task, "train")]
    titles = [
        (source.title(), target) for source, target in rows if re.search(r"\b(thinking|machines?)\b", source)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "".join(f"{source}\t{target}\n" for source, target in rows + titles * REPEATED))
    data = config.data.model_copy(update={"train": str(file.resolve())})
    return config.model_copy(update={"data": data})


if __name__ == "__main__":
    main()
