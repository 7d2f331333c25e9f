"""Packages of Argos Translate (.argosmodel): the export to CTranslate2 in a zip that LibreTranslate opens."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.errors import UsageError
from regard.export.run import ExportResult, export_model
from regard.resources import read_data
from regard.storage.argos import CARD, METADATA, SPLITTER, SUFFIX
from regard.storage.ctranslate2.file import MODEL
from regard.storage.files import new_file, to_json
from regard.storage.folder import describe

PACKAGE_VERSION, ARGOS_VERSION = "1.0", "1.9.0"  # of this package; the oldest Argos Translate that opens it
TOKENIZERS = ("source.spm", "target.spm", CARD)  # of the export, which a package has elsewhere


def export_argos(
    model: Path,
    out: Path,
    precision: str = "float32",
    sample: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> ExportResult:
    """Write the package `out`, after the checks of the export to CTranslate2."""
    spec = describe(model)
    if out.suffix != SUFFIX:
        raise UsageError(f"{out}: the name of a package ends with {SUFFIX}", code="E_EXPORT_NAME")
    if spec.task is None or spec.task.name != "translate" or spec.source.library != "sentencepiece":
        raise UsageError(
            f"{model}: Argos Translate has translators with SentencePiece tokenizers only (as those that "
            '"regard models import" makes of its packages, of CTranslate2 and of Marian)',
            code="E_EXPORT_FAMILY",
        )
    codes = spec.task.source, spec.task.target
    names = read_data("languages")
    metadata = {"package_version": PACKAGE_VERSION, "argos_version": ARGOS_VERSION, "target_prefix": ""}
    for side, code in zip(("from", "to"), codes):
        metadata |= {f"{side}_code": code, f"{side}_name": names.get(code, code)}
    root = f"translate-{codes[0]}_{codes[1]}-{PACKAGE_VERSION.replace('.', '_')}"
    card = model / CARD
    with new_file(out) as file, TemporaryDirectory(prefix="regard-") as temporary:
        folder = Path(temporary) / "model"
        result = export_model(model, "ctranslate2", folder, precision, sample, say)
        say(f"packing {out.name}")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{root}/{METADATA}", to_json(metadata))
            archive.writestr(f"{root}/{CARD}", card.read_text() if card.is_file() else f"# {root}\n")
            # one for both sides: it splits what is read, and joins any tokens to a text
            archive.write(folder / TOKENIZERS[0], f"{root}/{SPLITTER}")
            for path in sorted(folder.iterdir()):
                if path.name not in TOKENIZERS:
                    kind = zipfile.ZIP_STORED if path.name == MODEL else zipfile.ZIP_DEFLATED
                    archive.write(path, f"{root}/model/{path.name}", kind)
    return replace(result, path=out)
