"""The routes by which the program `clawhub` searches, installs and updates."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from skillhouse.extensions.registry.hosting import HostedRepository, HostingError, ListQuery
from skillhouse.extensions.registry.reads import ReadRoutes, number_in, text_in
from skillhouse.extensions.registry.replies import archive_reply, json_reply
from skillhouse.floor import digest, make_private, write_atomically
from skillhouse.registry import DEFAULT_NAMESPACE, Release, SkillReleases, clawhub_fingerprint
from skillhouse.retrieval import surely_meant
from skillhouse.skill import read_archive

SEARCHED_MAX = 100
COMPARED_MAX = 10
"""Newest versions whose files are compared with those that a client has."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODES = {True: 0o100755, False: 0o100644}


class ClawHubRoutes:
    """Plain functions, which Starlette runs in threads.

    `clawhub` knows a skill by a slug without a namespace, and since 0.21 by `@owner/slug`: a
    namespace is an owner, and `acme--pdf` a slug.
    """

    def __init__(self, repository: HostedRepository, reads: ReadRoutes) -> None:
        self._repository = repository
        self._reads = reads
        # An archive of 50 MB is in memory whole while it is packed again.
        self._packing = threading.BoundedSemaphore(2)

    def search(self, request: Request) -> Response:
        text = text_in(request, "q")
        limit = max(1, min(number_in(request, "limit", 20), SEARCHED_MAX))
        query = ListQuery(text=text, also=tuple(surely_meant(text)), limit=limit)
        found = self._repository.store.find(query).skills
        if text_in(request, "mode") == "exact":
            wanted = text.strip().lower()
            found = tuple(one for one in found if wanted in (one.name, one.skill))
        results = [
            {
                "slug": one.name,
                "displayName": one.skill,
                "summary": one.description,
                "version": one.latest or None,
                # It compares no scores of two answers; the order is what counts.
                "score": round(1 - (place + 1) / (len(found) + 2), 3),
                "updatedAt": _milliseconds(one.updated_at),
                **_owner_handle(one.namespace),
            }
            for place, one in enumerate(found)
        ]
        return json_reply({"results": results})

    def skill(self, request: Request) -> Response:
        found = self._releases(request, request.path_params["slug"])
        stated = {one.version: one for one in found.versions}
        latest = stated.get(found.latest)
        times = [_milliseconds(one.published_at) for one in found.versions]
        skill = {
            "slug": found.name,
            "displayName": found.skill,
            "summary": found.description,
            "tags": {**(found.channels or {}), **({"latest": found.latest} if latest else {})},
            "stats": {},
            "createdAt": min(times, default=0),
            "updatedAt": max(times, default=0),
        }
        return json_reply(
            {
                "skill": skill,
                "latestVersion": None if latest is None else _version(latest),
                "owner": None
                if found.namespace == DEFAULT_NAMESPACE
                else {"handle": found.namespace},
                "moderation": None,
            }
        )

    def version(self, request: Request) -> Response:
        """Say that a version is there, which `clawhub install --version` asks first."""
        found = self._releases(request, request.path_params["slug"])
        release = self._repository.release(found.name, request.path_params["version"])
        skill = {"slug": found.name, "displayName": found.skill}
        return json_reply({"version": _version(release), "skill": skill})

    def resolve(self, request: Request) -> Response:
        """Say which version has the files that a client has."""
        found = self._releases(request, text_in(request, "slug"))
        wanted = text_in(request, "hash")
        offered = [one for one in found.versions if one.state != "revoked"][:COMPARED_MAX]
        match = next((one for one in offered if self._fingerprint(one) == wanted), None)
        return json_reply(
            {
                "match": None if match is None else {"version": match.version},
                "latestVersion": {"version": found.latest} if found.latest else None,
            }
        )

    def download(self, request: Request) -> Response:
        """Give a version as a zip, which is all that it reads."""
        found = self._releases(request, text_in(request, "slug"))
        wanted = text_in(request, "version") or text_in(request, "tag") or "latest"
        release = self._repository.release(found.name, wanted)
        file = f'attachment; filename="{found.name}-{release.version}.zip"'
        headers = {"content-disposition": file}
        if release.state == "revoked" or release.media_type == "application/zip":
            return self._reads.archive(request, release, headers)
        path = self._zip(release)
        return archive_reply(
            request, path, digest=f"zip-{release.digest}", media_type="application/zip",
            headers=headers,
        )  # fmt: skip

    def _releases(self, request: Request, slug: str) -> SkillReleases:
        owner = text_in(request, "ownerHandle").removeprefix("@").lower()
        if owner and "--" not in slug and owner != DEFAULT_NAMESPACE:
            slug = f"{owner}--{slug}"
        found = self._repository.releases(slug)
        if owner and owner != found.namespace:
            raise HostingError("unknown-skill", f"there is no skill `{slug}` of `{owner}` here")
        return found

    def _zip(self, release: Release) -> Path:
        name = release.digest.removeprefix("sha256:")
        path: Path = self._repository.repacked / f"{name}.zip"
        if not path.exists():
            make_private(path.parent)
            with self._packing, write_atomically(path) as file:
                file.write(_packed(self._files(release)))
        return path

    def _fingerprint(self, release: Release) -> str:
        with self._packing:
            return _fingerprint_of(self._repository.blobs.path(release.digest), release.digest)

    def _files(self, release: Release) -> Mapping[str, tuple[bool, bytes]]:
        return _files(self._repository.blobs.path(release.digest).read_bytes())


def _files(data: bytes) -> Mapping[str, tuple[bool, bytes]]:
    return {
        one.path: (one.is_executable, b"".join(one.read()))
        for one in read_archive(data)
        if not one.is_directory
    }


@lru_cache(maxsize=4_096)
def _fingerprint_of(path: Path, expected: str) -> str:
    """Return the fingerprint of an archive; it is kept by its digest, as no blob ever changes."""
    data = path.read_bytes()
    if digest(data) != expected:
        return ""
    return clawhub_fingerprint({name: content for name, (_, content) in _files(data).items()})


def _packed(files: Mapping[str, tuple[bool, bytes]]) -> bytes:
    """Return a zip of files, the same for the same files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            is_executable, content = files[path]
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = _MODES[is_executable] << 16
            entry.create_system = 3
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def _version(release: Release) -> dict[str, Any]:
    created = _milliseconds(release.published_at)
    return {"version": release.version, "createdAt": created, "changelog": ""}


def _owner_handle(namespace: str) -> dict[str, str]:
    return {} if namespace == DEFAULT_NAMESPACE else {"ownerHandle": namespace}


def _milliseconds(text: str) -> int:
    """Return a time of a release as JavaScript counts it; 0 where there is none."""
    return int(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
