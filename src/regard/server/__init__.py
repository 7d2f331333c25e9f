"""HTTP server: the explorer page and the API."""

from regard.server.app import make_app
from regard.server.run import serve
