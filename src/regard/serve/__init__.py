"""The explorer: a page that shows a model's run, and the routes it asks."""

from regard.serve.app import make_app
from regard.serve.run import serve

__all__ = ["make_app", "serve"]
