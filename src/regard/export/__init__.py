"""Models for other engines: CTranslate2 and ONNX, each checked against our own text before it is kept."""

from regard.export.calibration import calibrate
from regard.export.run import Exported, export_model

__all__ = ["Exported", "calibrate", "export_model"]
