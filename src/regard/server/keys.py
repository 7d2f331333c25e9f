"""API keys: a JSON file of named keys, stored as salted hashes.

A key is 32 random bytes, so one round of SHA-256 suffices. The file is reloaded when it changes: adding and
revoking keys needs no restart.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import secrets
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from regard.errors import UsageError
from regard.storage.files import write_atomically

PREFIX = "regard-"
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class Key:
    name: str
    salt: str
    hash: str
    created: str

    def fits(self, secret: str) -> bool:
        return hmac.compare_digest(self.hash, digest(self.salt, secret))


def digest(salt: str, secret: str) -> str:
    return hashlib.sha256(f"{salt}:{secret}".encode(errors="replace")).hexdigest()


def read_keys(path: Path) -> list[Key]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [
            Key(**{name: str(each[name]) for name in Key.__dataclass_fields__}) for each in content["keys"]
        ]
    except OSError as error:
        raise UsageError(f'{path}: {error.strerror}; run "regard serve keys add {path} NAME"') from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is not a key file; create one with regard serve keys add") from None


def write_keys(path: Path, keys: list[Key]) -> None:
    content = json.dumps({"keys": [asdict(key) for key in keys]}, indent=2)
    write_atomically(path, f"{content}\n".encode())
    path.chmod(0o600)


def add_key(path: Path, name: str) -> str:
    """Add a key and return its secret, which is not stored."""
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r}: a key's name has letters, digits and . _ -, 64 at most")
    keys = read_keys(path) if path.exists() else []
    if any(key.name == name for key in keys):
        raise UsageError(f'{path} has a key "{name}" already; revoke it first, or take another name')
    secret, salt = PREFIX + secrets.token_urlsafe(32), secrets.token_hex(16)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_keys(path, [*keys, Key(name, salt, digest(salt, secret), now)])
    return secret


def revoke_key(path: Path, name: str) -> None:
    keys = read_keys(path)
    if all(key.name != name for key in keys):
        names = ", ".join(key.name for key in keys) or "none"
        raise UsageError(f'{path} has no key "{name}"; it has {names}')
    write_keys(path, [key for key in keys if key.name != name])


class Keys:
    """The keys of a running server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamp = self.look()
        self.keys = read_keys(path)

    def look(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def owner(self, secret: str | None) -> str | None:
        """The name of a valid key, else None. Compares all keys, so that timing reveals nothing."""
        if (stamp := self.look()) != self.stamp:
            self.stamp = stamp
            try:
                self.keys = read_keys(self.path)
            except UsageError:  # an unreadable file accepts no key
                self.keys = []
        owner = None
        for key in self.keys:
            if key.fits(secret or ""):
                owner = key.name
        return owner


def secret_in(header: str | None) -> str | None:
    """The key in `Authorization: Bearer KEY`; a browser sends it as the password of `Basic`."""
    kind, _, value = (header or "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() != "basic":
        return None
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return None
