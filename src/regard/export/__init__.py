"""Models for other engines, CTranslate2 and ONNX Runtime, each checked against Regard's output."""

from typing import Any

from regard.compat import old_python_name
from regard.export.calibration import calibrate
from regard.export.run import ExportResult, export_model

__all__ = ["ExportResult", "calibrate", "export_model"]


def __getattr__(name: str) -> Any:
    return old_python_name(__name__, name)
