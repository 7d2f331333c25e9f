"""Learn from a project's own .po files, fill entries that were blanked, and let `msgfmt -c` judge.

    python -m bench.catalogue --folder site-packages/django --language de --minutes 10

Every tenth translated entry of the largest catalogue is blanked; the other catalogues of the language,
and what is left of that one, are the training data. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import polib
from sacrebleu.metrics.chrf import CHRF

EVERY = 10
CONFIG = """
[task]
source = "en"
target = "{language}"
[data]
train = {files}
[text]
vocabulary = 3000
[model]
preset = "transformer-tiny"
norm = "pre"
dropout = 0.3
[train]
steps = 100000
minutes = {minutes}
tokens_per_batch = 2048
lr = 2e-3
schedule = "inverse-sqrt"
warmup = 300
checkpoint_every = 500
seed = 1
[decode]
beam = 4
"""


def catalogues(folder: Path, language: str) -> list[Path]:
    found = sorted(path for path in folder.rglob("*.po") if language in path.parts)
    return sorted(found, key=lambda path: -len(polib.pofile(str(path)).translated_entries()))


def blank(path: Path, copy: Path) -> dict[tuple[str, str | None], str]:
    """A copy of which every tenth plain entry is untranslated: what these said."""
    catalogue = polib.pofile(str(path))
    said = {}
    plain = [entry for entry in catalogue.translated_entries() if not entry.msgid_plural]
    for entry in plain[::EVERY]:
        said[entry.msgid, entry.msgctxt] = entry.msgstr
        entry.msgstr = ""
    catalogue.save(str(copy))
    return said


def regard(*arguments: object) -> str:
    command = [sys.executable, "-m", "regard", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--language", default="de")
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    files = catalogues(options.folder, options.language)
    if not files:
        raise SystemExit(f"{options.folder} holds no .po file of {options.language}")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        said = blank(files[0], work / "blanked.po")
        names = [str(work / "blanked.po"), *(str(path.resolve()) for path in files[1:])]
        fields = {"language": options.language, "minutes": options.minutes, "files": json.dumps(names)}
        (work / "run.toml").write_text(CONFIG.format(**fields))
        regard("train", work / "run.toml", "--out", work / "model", "--plain")
        told = regard("translate", "-m", work / "model", work / "blanked.po", "-o", work / "filled.po")
        check = ["msgfmt", "-c", "-o", "/dev/null", str(work / "filled.po")]
        judged = subprocess.run(check, capture_output=True, text=True, check=False)
        filled = {(entry.msgid, entry.msgctxt): entry for entry in polib.pofile(str(work / "filled.po"))}
        pairs = [(filled[key].msgstr, text) for key, text in said.items() if filled[key].msgstr]
        figures = {
            "bench": "catalogue",
            "files": len(files),
            "blanked": len(said),
            "filled": len(pairs),
            "exact": sum(one == two for one, two in pairs),
            "chrf": round(
                CHRF().corpus_score([one for one, _ in pairs], [[two for _, two in pairs]]).score, 1
            ),
            "msgfmt": judged.returncode,
            "msgfmt_said": judged.stderr.strip(),
            "told": told,
        }
    print(json.dumps(figures, ensure_ascii=False))


if __name__ == "__main__":
    main()
