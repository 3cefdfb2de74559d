"""A registry in a process of its own, and what a client sends it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.registry.sources import make_skill

from skillhouse.extensions.registry.hosting import new_token, open_repository
from skillhouse.registry import pack

READY = re.compile(r"registry `([a-z0-9.-]+)` serves at (http://[0-9a-z.:\[\]]+)\n")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By names in small letters."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem; empty for what is none."""
        if self.headers.get("content-type") != "application/problem+json":
            return ""
        assert self.json["status"] == self.status
        return str(self.json["code"])


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    url: str
    name: str
    directory: Path

    @property
    def place(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def token(self, *scopes: str, days: int = 0) -> str:
        return token_for(self.directory, *scopes, days=days)

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request as it is; no redirect is followed."""
        connection = http.client.HTTPConnection(*self.place, timeout=30)
        with contextlib.closing(connection):
            fields = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, body, {**fields, **(headers or {})})
            return _answer(connection.getresponse())

    def publish(
        self,
        archive: bytes,
        name: str,
        version: str,
        token: str,
        *,
        query: str = "",
        **headers: str,
    ) -> Answer:
        fields = {key.replace("_", "-"): value for key, value in headers.items()}
        path = f"/skills/{name}/{version}{query}"
        return self.ask(path, "PUT", archive, token=token, headers=fields)

    def change(self, verb: str, name: str, version: str, token: str, reason: str = "") -> Answer:
        body = json.dumps({"reason": reason}).encode()
        return self.ask(f"/skills/{name}/{version}/{verb}", "POST", body, token=token)


def _answer(found: http.client.HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in found.getheaders()}
    return Answer(found.status, headers, found.read())


def token_for(directory: Path, *scopes: str, days: int = 0) -> str:
    repository = open_repository(directory)
    try:
        return new_token(repository.store, scopes, datetime.now(UTC), days=days)[0]
    finally:
        repository.store.close()


@contextlib.contextmanager
def serving(directory: Path, *options: str) -> Iterator[Server]:
    """Run `skillhouse registry serve` and give the server."""
    home = directory.parent / "server-home"
    home.mkdir(exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SKILLHOUSE_", "XDG_"))}
    command = [sys.executable, "-m", "skillhouse", "registry", "serve", str(directory)]
    process = subprocess.Popen(
        [*command, "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env={**kept, "HOME": str(home)},
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = READY.fullmatch(line)
            assert found, line or (process.stderr and process.stderr.read())
            yield Server(process, found[2], found[1], directory)
        finally:
            process.kill()


def package(place: Path, name: str = "pdf", version: str = "1.0.0", body: str = "Body.") -> bytes:
    """Return the archive of a small skill."""
    directory = place / "packed" / name
    shutil.rmtree(directory, ignore_errors=True)
    return pack(make_skill(directory, body, version=version)).archive
