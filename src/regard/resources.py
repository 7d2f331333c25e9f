"""Where the data files of the package lie."""

from importlib.resources import files
from pathlib import Path

PACKAGE = Path(str(files("regard")))
WEB = PACKAGE / "server" / "web"  # the explorer page: index.html, style.css, js/
EXPORT_TEMPLATES = PACKAGE / "builtin" / "export.toml"  # README.md of exported models
