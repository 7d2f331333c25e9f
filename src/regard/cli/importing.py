"""`regard import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.terminal import say

Source = Annotated[Path, typer.Argument(help="A folder whose weights are pytorch_model.bin.")]
Out = Annotated[Path, typer.Argument(help="The folder to write; it must not be there yet.")]


def import_(source: Source, out: Out) -> None:
    """Turn the weights of a folder from pytorch_model.bin into safetensors, which Regard opens.

    A file of that kind can run code while it is read. A process of its own reads it, as plain tensors
    and with bounds of memory and time; what holds anything else is refused.

    [bold]Example[/]

      regard import opus-mt-en-de models/en-de
    """
    from regard.storage.importing import import_folder

    files = import_folder(source, out, say)
    say(f"wrote {out} ({', '.join(files)}); it opens")
