"""Regard trains, runs and shows Transformers.

import regard
model = regard.load("runs/demo")
model.translate("I see the small house.")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.errors import RegardError, UsageError

if TYPE_CHECKING:
    from regard.tasks import Translator, load

__version__ = "0.1.0"
__all__ = ["RegardError", "Translator", "UsageError", "__version__", "load"]


def __getattr__(name: str) -> object:
    """`load` and `Translator` on first use, so that `import regard` does not wait for torch."""
    if name in ("load", "Translator"):
        from regard import tasks

        return getattr(tasks, name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
