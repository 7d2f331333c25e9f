"""`regard import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import say

Source = Annotated[Path, typer.Argument(help="Folder with weights in pytorch_model.bin.")]
Out = Annotated[Path, typer.Argument(help="Folder to write; it must not exist.")]


def import_(source: Source, out: Out) -> None:
    """Convert the weights of a folder from pytorch_model.bin to safetensors, which Regard opens.

    A pickle can run code while it is read. A separate process reads it, as plain tensors only and with limits
    of memory and time; a file with anything else is refused.

    [bold]Example[/]

      regard import opus-mt-en-de models/en-de
    """
    from regard.storage.importing import import_folder

    files = import_folder(source, out, say)
    say(f"wrote {out} ({', '.join(files)})")
