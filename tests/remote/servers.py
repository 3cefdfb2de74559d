"""A server of tests: addresses and what they answer."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import anyio

from skillhouse.floor import SkillhouseError
from skillhouse.remote import Fetched, RemoteSource, SyncReport, sync
from tests.archives import tar_archive

BASE = "https://skills.test"
WELL_KNOWN = f"{BASE}/.well-known/agent-skills/index.json"
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"


class Server:
    """Answers what it holds; counts what is asked."""

    def __init__(self, pages: Mapping[str, bytes] | None = None) -> None:
        self.pages = dict(pages or {})
        self.asked: list[str] = []
        self.is_down = False

    async def fetch(self, url: str, limit: int) -> Fetched:
        await anyio.lowlevel.checkpoint()
        self.asked.append(url)
        if self.is_down:
            raise SkillhouseError("connection refused")
        if url not in self.pages:
            return Fetched(404, url, b"")
        if len(self.pages[url]) > limit:
            raise SkillhouseError(f"more than {limit} bytes")
        return Fetched(200, url, self.pages[url])

    def offer(self, *entries: Mapping[str, Any]) -> None:
        """List these entries in the well-known index."""
        document = {"$schema": SCHEMA, "skills": list(entries)}
        self.pages[WELL_KNOWN] = json.dumps(document).encode()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def text_of(name: str, body: str = "Body.") -> bytes:
    return f"---\nname: {name}\ndescription: About {name}.\n---\n{body}\n".encode()


def entry(server: Server, name: str, data: bytes, *, kind: str = "skill-md") -> dict[str, Any]:
    """Put an artifact on the server and return its entry."""
    url = f"/files/{name}"
    server.pages[f"{BASE}{url}"] = data
    digest = digest_of(data)
    return {"name": name, "type": kind, "description": "x", "url": url, "digest": digest}


def tar_of(files: Mapping[str, bytes]) -> bytes:
    return tar_archive(files.items())


def zip_of(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def synced(source: RemoteSource, cache: Any, server: Server) -> SyncReport:
    """Sync to the end."""
    return anyio.run(sync, source, cache, server.fetch)
