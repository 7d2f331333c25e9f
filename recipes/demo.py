"""The main job from beginning to end, as `make demo` runs it: train, test on unseen sentences, use."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

RECIPE = Path(__file__).with_name("phrasebook-en-de.toml")
SENTENCES = [
    "I would like to read this book.",
    "Sarah was walking in the park with her cat Alex.",
    "The doctor whom we have called has not yet repaired the old machine.",
    "Python executes quickly.",
    "At half past seven my friends are not allowed to turn on the lamp.",
]
NEXT = """
What to try next
  echo "The small cat does not want to drink the cold milk." | {regard} translate -m {run}
  {regard} translate -m {run} -n 3 --scores --alignment "Why has he sold the blue car?"
  {regard} config init my-run.toml     # then put your own files into [data]
  {regard} train my-run.toml -o runs/my-run
The report of this run is {run}/report.html, its card {run}/README.md.
"""


def regard(*arguments: str) -> None:
    """Show a command and run it; the demo ends where it fails."""
    print(f"\n$ regard {' '.join(arguments)}", flush=True)
    code = subprocess.call([sys.executable, "-m", "regard", *arguments])
    if code:
        sys.exit(code)


def show_alignments(run: str) -> None:
    """Each target word with the source word it looked at most."""
    from regard.tasks import load

    print("\nTranslations, and the English word each German word looked at most:", flush=True)
    for found in load(run).translate_lines(SENTENCES, alignment=True):
        best = found.candidates[0]
        source, target = found.source.split(), best.text.split()
        links = {to: source[origin] for origin, to in best.alignment or []}
        print(f"\n  {found.source}\n  {best.text}")
        print("  " + "  ".join(f"{word}←{links.get(number, '?')}" for number, word in enumerate(target)))


def main() -> None:
    run = sys.argv[1] if len(sys.argv) > 1 else "runs/demo"
    began = time.monotonic()
    regard("translate", SENTENCES[0])  # by a built-in model, before anything is trained
    resume = ["--resume"] if (Path(run) / "run.toml").is_file() else []
    regard("train", str(RECIPE.relative_to(Path.cwd())), "-o", run, *resume)
    regard("evaluate", "-m", run)
    show_alignments(run)
    program = str(Path(sys.executable).with_name("regard").relative_to(Path.cwd()))
    print(NEXT.format(run=run, regard=program))
    print(f"All of this took {(time.monotonic() - began) / 60:.1f} minutes.")


if __name__ == "__main__":
    main()
