"""The explorer: a page that shows a model's run, and the routes it asks."""

from regard.server.app import make_app
from regard.server.run import serve

__all__ = ["make_app", "serve"]
