"""A local HTTP server with the routes of the hub that huggingface_hub uses, and with faulty connections.

Uploads go by its routes of git LFS, with HF_HUB_DISABLE_XET.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """A model or a data set of the hub."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    token: str | None = None  # required to read it
    gated: bool = False  # its files are listed, and refused
    private: bool = False


class Server(ThreadingHTTPServer):
    """Files at plain addresses, and repositories of the hub."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.repositories: dict[str, Repository] = {}  # by owner/name, or datasets/owner/name
        self.large = ".safetensors"  # ending of the files whose SHA-256 is listed
        self.store: str | None = None  # address of another server with the large files
        self.spoiled: dict[str, bytes] = {}  # by path: content that replaces the file's
        self.tear_after: int | None = None  # bytes of a file before the connection breaks
        self.torn = ""  # ending of the paths whose connection breaks
        self.reachable: int | None = None  # requests that get bytes; later ones break at once
        self.hidden: tuple[str, ...] = ()  # beginnings of paths that are not found
        self.writer: str | None = None  # the token that may create and write
        self.objects: dict[str, bytes] = {}  # by SHA-256: large files that were uploaded
        self.on_commit: Callable[[], None] = lambda: None  # called before a commit is made
        self.requests: list[tuple[str, str, str | None]] = []  # method, path, range
        self.logins: list[str | None] = []  # Authorization headers

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
        self.server.requests.append((self.command, path, self.headers.get("Range")))
        self.server.logins.append(self.headers.get("Authorization"))
        if path.startswith(self.server.hidden):
            code = "RepoNotFound" if path.startswith("/api") else "EntryNotFound"
            self.send(404, b"", {"X-Error-Code": code}, body)
        elif path.startswith("/api/"):
            name, _, revision = path.removeprefix("/api/").partition("/revision/")
            self.send_repository(name.removeprefix("models/"), revision or "main", None, body)
        elif path in self.server.files or "/resolve/" not in path:
            self.send_file(path, self.server.files.get(path), "c" * 40, body)
        else:
            name, _, place = path[1:].partition("/resolve/")
            revision, _, file = place.partition("/")
            self.send_repository(name, revision, file, body)

    def send_repository(self, name: str, revision: str, file: str | None, body: bool) -> None:
        """The list of a repository's files, or one of them."""
        model = self.server.repositories.get(name)
        bearer = self.headers.get("Authorization")
        if model is None or (model.token is not None and bearer != f"Bearer {model.token}"):
            self.send(404 if model is None else 401, b"", {"X-Error-Code": "RepoNotFound"}, body)
            return
        commit = model.branches.get(revision, revision)
        if commit not in model.commits:
            self.send(404, b"", {"X-Error-Code": "RevisionNotFound"}, body)
        elif file is None:
            siblings = [self.sibling(*each) for each in model.commits[commit].items()]
            fields = {"id": name, "modelId": name, "sha": commit, "siblings": siblings}
            fields["private"] = model.private
            self.send(200, json.dumps(fields).encode(), {"Content-Type": "application/json"}, body)
        elif model.gated:
            self.send(403, b"", {"X-Error-Code": "GatedRepo"}, body)
        else:
            self.send_file(f"/{name}/{file}", model.commits[commit].get(file), commit, body)

    # what writes

    def do_POST(self) -> None:
        content = self.read_body()
        path = unquote(self.path.split("?")[0])
        self.server.requests.append(("POST", path, None))
        if path == "/api/validate-yaml":
            self.send_json(200, {"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {self.server.writer}":
            self.send_json(403, {"error": "a token that may not write"})
        elif path == "/api/repos/create":
            self.create(json.loads(content))
        elif path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(content)["objects"]
            self.send_json(200, {"objects": [self.upload_of(each) for each in objects]})
        elif "/preupload/" in path:
            self.send_json(200, {"files": [self.mode_of(each) for each in json.loads(content)["files"]]})
        else:
            self.commit(path.removeprefix("/api/models/").partition("/commit/")[0], content)

    def do_PUT(self) -> None:
        content = self.read_body()
        self.server.requests.append(("PUT", self.path, None))
        self.server.objects[sha256(content)] = content
        self.send_json(200, {})

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            return b"".join(iter(self.read_chunk, b""))
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def read_chunk(self) -> bytes:
        content = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return content

    def create(self, fields: dict[str, Any]) -> None:
        name = f"{fields['organization']}/{fields['name']}"
        if name in self.server.repositories:
            self.send_json(409, {"error": "it exists"})
            return
        first = sha256(name.encode())[:40]
        private = fields.get("private", fields.get("visibility") == "private")
        self.server.repositories[name] = Repository(
            {first: {".gitattributes": b""}}, {"main": first}, private=private
        )
        self.send_json(200, {"url": f"{self.server.address}/{name}", "name": name})

    def mode_of(self, file: dict[str, Any]) -> dict[str, object]:
        mode = "lfs" if file["path"].endswith(self.server.large) else "regular"
        return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False}

    def upload_of(self, item: dict[str, Any]) -> dict[str, object]:
        place = {"upload": {"href": f"{self.server.address}/store/{item['oid']}"}}
        uploaded = item["oid"] in self.server.objects
        return {"oid": item["oid"], "size": item["size"], **({} if uploaded else {"actions": place})}

    def commit(self, name: str, content: bytes) -> None:
        self.server.on_commit()
        model = self.server.repositories[name]
        files = dict(model.commits[model.branches["main"]])
        for row in map(json.loads, content.splitlines()):
            value = row["value"]
            if row["key"] == "header" and value["parentCommit"] != model.branches["main"]:
                self.send_json(412, {"error": "the branch has another commit"})
                return
            if row["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif row["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            elif row["key"] == "deletedFile":
                del files[value["path"]]
        commit = sha256(content)[:40]
        model.commits[commit] = files
        model.branches["main"] = commit
        address = f"{self.server.address}/{name}/commit/{commit}"
        self.send_json(200, {"success": True, "commitOid": commit, "commitUrl": address})

    def send_json(self, status: int, fields: dict[str, object]) -> None:
        self.send(status, json.dumps(fields).encode(), {"Content-Type": "application/json"}, body=True)

    def sibling(self, name: str, content: bytes) -> dict[str, object]:
        fields: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": git_hash(content)}
        if name.endswith(self.server.large):
            fields["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
        return fields

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
