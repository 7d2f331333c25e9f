"""A server on this machine that speaks the routes of the hub, with the faults that a connection can have."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """A model of the hub."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    token: str | None = None  # who has it may read
    gated: bool = False  # all see its files, nobody gets them


class Server(ThreadingHTTPServer):
    """Files at their addresses, and the routes of the hub that its library asks for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.models: dict[str, Repository] = {}
        self.large = ".safetensors"  # the ending of files whose SHA-256 is listed
        self.store: str | None = None  # the address of another server that keeps the large files
        self.told: list[str | None] = []  # who asked, by the header for it
        self.spoiled: dict[str, bytes] = {}  # by path: what is sent in the place of the file
        self.tear_after: int | None = None  # bytes of a file before the connection breaks
        self.torn = ""  # the end of the paths that this happens to
        self.reachable: int | None = None  # how often bytes come before it breaks at once
        self.hidden: tuple[str, ...] = ()  # beginnings of paths that are not found
        self.asked: list[tuple[str, str, str | None]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = unquote(self.path.split("?")[0])
        self.server.asked.append((self.command, path, self.headers.get("Range")))
        self.server.told.append(self.headers.get("Authorization"))
        if path.startswith(self.server.hidden):
            code = "RepoNotFound" if path.startswith("/api") else "EntryNotFound"
            self.send(404, b"", {"X-Error-Code": code}, body)
        elif path.startswith("/api/datasets/"):
            self.send_json(self.listing(path), body)
        elif path.startswith("/api/models/"):
            name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            self.with_model(name, revision or "main", None, body)
        elif path in self.server.files or "/resolve/" not in path:
            self.send_file(path, self.server.files.get(path), "c" * 40, body)
        else:
            name, _, place = path[1:].partition("/resolve/")
            revision, _, file = place.partition("/")
            self.with_model(name, revision, file, body)

    def with_model(self, name: str, revision: str, file: str | None, body: bool) -> None:
        """The list of a model's files, or one of them."""
        model = self.server.models.get(name)
        bearer = self.headers.get("Authorization")
        if model is None or (model.token is not None and bearer != f"Bearer {model.token}"):
            self.send(404 if model is None else 401, b"", {"X-Error-Code": "RepoNotFound"}, body)
            return
        commit = model.branches.get(revision, revision)
        if commit not in model.commits:
            self.send(404, b"", {"X-Error-Code": "RevisionNotFound"}, body)
        elif file is None:
            siblings = [self.sibling(*each) for each in model.commits[commit].items()]
            self.send_json({"id": name, "modelId": name, "sha": commit, "siblings": siblings}, body)
        elif model.gated:
            self.send(403, b"", {"X-Error-Code": "GatedRepo"}, body)
        else:
            self.send_file(f"/{name}/{file}", model.commits[commit].get(file), commit, body)

    def sibling(self, name: str, content: bytes) -> dict[str, object]:
        told: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
        if name.endswith(self.server.large):
            told["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
        return told

    def send_json(self, content: object, body: bool) -> None:
        self.send(200, json.dumps(content).encode(), {"Content-Type": "application/json"}, body)

    def send_file(self, path: str, content: bytes | None, commit: str, body: bool) -> None:
        if content is None:
            self.send(404, b"", {"X-Error-Code": "EntryNotFound"}, body)
            return
        headers = {"ETag": f'"{sha256(content)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if path.endswith(self.server.large):
            headers |= {"X-Linked-ETag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
            if self.server.store is not None:
                self.send(302, b"", {**headers, "Location": f"{self.server.store}{path}"}, body)
                return
        content = self.server.spoiled.get(path, content)
        begin = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
        torn = self.torn_after() if body and path.endswith(self.server.torn) else None
        if begin >= len(content) > 0:
            self.send(416, b"", {}, body)
        elif begin:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            self.send(206, content[begin:], headers, body, torn)
        else:
            self.send(200, content, headers, body, torn)

    def torn_after(self) -> int | None:
        if self.server.reachable is None:
            return self.server.tear_after
        self.server.reachable -= 1
        return self.server.tear_after if self.server.reachable >= 0 else 0

    def listing(self, path: str) -> list[dict[str, object]]:
        name = "/".join(path.split("/")[3:5])
        prefix = f"/datasets/{name}/resolve/main/"
        return [
            {"type": "file", "path": each.removeprefix(prefix), "size": len(content), "oid": "0" * 40}
            for each, content in self.server.files.items()
            if each.startswith(prefix)
        ]

    def send(
        self, status: int, content: bytes, headers: dict[str, str], body: bool, torn: int | None = None
    ) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content[:torn])
            self.close_connection = torn is not None

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def running() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
