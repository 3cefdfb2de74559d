"""Repositories of packages for tests: a directory in the protocol's layout, and its servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from skillhouse.floor import structs
from skillhouse.registry import (
    Release,
    RepositoryDocument,
    SkillReleases,
    address_name,
    pack,
    split_name,
)
from skillhouse.registry.releases import blob_path, encode_document, index_path
from tests.loopback_http import QuietHandler
from tests.registry.sources import make_skill

PUBLISHED_AT = "2026-11-01T12:00:00Z"


class StaticRepository:
    """A repository that is a directory; what is published is there at once."""

    def __init__(self, place: Path, name: str = "skills.example.com") -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self.write("registry.json", encode_document(RepositoryDocument(api=1, name=name)))
        self.skills: dict[str, SkillReleases] = {}
        self.archives: dict[str, bytes] = {}

    @property
    def address(self) -> str:
        return self.place.as_uri()

    def write(self, path: str, data: bytes) -> Path:
        target = self.place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return target

    def publish(self, directory: Path, *, namespace: str = "default", **changes: Any) -> Release:
        """Add the skill of a directory in its version, as the newest one."""
        package = pack(directory)
        release = Release(
            version=package.facts.version,
            digest=package.digest,
            tree_digest=package.tree.digest,
            size=len(package.archive),
            published_at=PUBLISHED_AT,
            files=len(package.tree.files),
        )
        release = structs.replace(release, **changes)
        self.write(blob_path(package.digest), package.archive)
        self.archives[package.digest] = package.archive
        name = address_name(namespace, package.facts.name)
        before = self.skills.get(name)
        self.put(
            SkillReleases(
                name=name,
                namespace=namespace,
                skill=package.facts.name,
                description=package.facts.description,
                latest=release.version,
                versions=(release, *(before.versions if before else ())),
                license=package.facts.license,
                channels=before.channels if before else None,
            )
        )
        return release

    def make(
        self, version: str, name: str = "notes", *, namespace: str = "default", **changes: Any
    ) -> Release:
        """Publish a small skill in a version."""
        place = self.place.parent / "made" / namespace / version / name
        source = make_skill(place, f"Version {version} of {namespace}.", version=version)
        return self.publish(source, namespace=namespace, **changes)

    def put(self, skill: SkillReleases) -> None:
        self.skills[skill.name] = skill
        self.write(index_path(skill.namespace, skill.skill), encode_document(skill))

    def change(self, name: str, version: str, **changes: Any) -> None:
        """Change what is said of a release."""
        before = self.skills[name]
        versions = tuple(
            structs.replace(one, **changes) if one.version == version else one
            for one in before.versions
        )
        self.put(structs.replace(before, versions=versions))

    def index(self, name: str = "notes") -> Path:
        return self.place / index_path(*split_name(name))


def static_server(
    place: Path, instead: Callable[[QuietHandler], bool] = lambda _: False
) -> type[BaseHTTPRequestHandler]:
    """Return a handler that serves the files below a directory, as any file server does.

    `instead` may answer a request in its own way, and then returns True.
    """

    class Handler(QuietHandler):
        asked: list[str] = []  # noqa: RUF012 shared by all requests
        credentials: list[str] = []  # noqa: RUF012

        def do_GET(self) -> None:
            self.asked.append(self.path)
            self.credentials.append(self.headers.get("Authorization", ""))
            if instead(self):
                return
            target = place / unquote(self.path.partition("?")[0]).lstrip("/")
            body = target.read_bytes() if target.is_file() else None
            self.answer(404 if body is None else 200, body or b"")

    return Handler


def published_routes(repository: StaticRepository) -> type[BaseHTTPRequestHandler]:
    """Return a handler of the four published routes, and of nothing else (S002-104)."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            words = unquote(self.path.partition("?")[0]).strip("/").split("/")
            if words == ["skills"]:
                listed = [
                    {"name": one.name, "description": one.description, "latest": one.latest}
                    for one in repository.skills.values()
                ]
                return self.answer(200, encode_value({"skills": listed, "next_cursor": None}))
            skill = repository.skills.get(words[1]) if words[0] == "skills" else None
            if skill is None:
                return self.answer(404, b"")
            value = structs.asdict(skill)
            versions = value.pop("versions")
            if len(words) == 2:
                return self.answer(200, encode_value(value))
            if words[2] == "versions":
                return self.answer(200, encode_value({"name": skill.name, "versions": versions}))
            found = [one for one in skill.versions if one.version == words[2]]
            return self.answer(200, repository.archives[found[0].digest])

    return Handler


def encode_value(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()
