"""Models for other engines, CTranslate2 and ONNX Runtime, each checked against Regard's output."""

from regard.compat import old_names
from regard.export.run import ExportResult, calibrate, export_model

__getattr__ = old_names(__name__)
