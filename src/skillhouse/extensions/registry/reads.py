"""The routes that read: the static documents, the published routes, search and changes."""

from __future__ import annotations

import base64
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from skillhouse.extensions.registry.hosting import HostedRepository, HostingError, ListQuery
from skillhouse.extensions.registry.replies import (
    archive_reply,
    document,
    json_reply,
    problem,
)
from skillhouse.floor import PathError, read_beneath, structs
from skillhouse.registry import (
    Release,
    attestation_path,
    attestations,
    encode_document,
    releases,
)
from skillhouse.registry.owners import METADATA_DIRECTORY, TARGETS_DIRECTORY
from skillhouse.retrieval import surely_meant, words_in

CHANGES_MAX = 1_000
_NUMBER_MAX = 18
_SORTS = ("relevance", "name", "updated")


class ReadRoutes:
    """Plain functions, which Starlette runs in threads."""

    def __init__(self, repository: HostedRepository) -> None:
        self._repository = repository

    def repository(self, request: Request) -> Response:
        return document(request, encode_document(self._repository.document))

    def index(self, request: Request) -> Response:
        namespace, file = request.path_params["namespace"], request.path_params["file"]
        skill = file.removesuffix(".json")
        given = request.scope["path"].lstrip("/")
        if given != releases.index_path(namespace, skill):
            raise HostingError("unknown-skill", "there is no such document here")
        found = self._repository.releases(releases.address_name(namespace, skill))
        return document(request, encode_document(found))

    def skill(self, request: Request) -> Response:
        found = self._repository.releases(request.path_params["name"])
        return document(request, encode_document(found))

    def versions(self, request: Request) -> Response:
        found = self._repository.releases(request.path_params["name"])
        listed = [structs.asdict(one) for one in found.versions]
        return json_reply({"name": found.name, "versions": listed})

    def version(self, request: Request) -> Response:
        name, wanted = request.path_params["name"], request.path_params["version"]
        release = self._repository.release(name, wanted)
        if release.version != wanted:
            # Both parts are checked names, so nothing in them is a separator.
            answer = RedirectResponse(f"/skills/{name}/{release.version}", 302)
            answer.headers["cache-control"] = "max-age=60"
            return answer
        file = f"{name}-{release.version}.{_ENDINGS[release.media_type]}"
        return self.archive(
            request, release, {"content-disposition": f'attachment; filename="{file}"'}
        )

    def blob(self, request: Request) -> Response:
        digest = f"sha256:{request.path_params['digest']}"
        found = None
        if request.scope["path"].lstrip("/") == releases.blob_path(digest):
            found = self._repository.store.archive(digest)
        if found is None:
            raise HostingError("unknown-version", "no version has this archive")
        return self.archive(request, found, {})

    def attestation(self, request: Request) -> Response:
        place = self._repository.directory
        try:
            digest = f"sha256:{request.path_params['digest']}"
            path = request.scope["path"].lstrip("/")
            if path != attestation_path(digest):
                raise FileNotFoundError(path)
            data = read_beneath(place, path, max_bytes=attestations.ATTESTATION_MAX)
        except (PathError, FileNotFoundError):
            return problem("unknown-version", "no version has this attestation")
        return document(request, data)

    def skills(self, request: Request) -> Response:
        text = text_in(request, "q")
        query = ListQuery(
            text=text,
            also=tuple(surely_meant(text)),
            cursor=text_in(request, "cursor"),
            limit=number_in(request, "limit", 20),
            sort=_sort(request),
            publisher=text_in(request, "publisher"),
        )
        found = self._repository.store.find(query)
        fields = [{"name": one.skill, "description": one.description} for one in found.skills]
        listed = [
            {**structs.asdict(one), "matches": matches}
            for one, matches in zip(found.skills, words_in(text, fields), strict=True)
        ]
        return json_reply({"skills": listed, "next_cursor": found.next_cursor})

    def changes(self, request: Request) -> Response:
        since = number_in(request, "since", 0)
        most = max(1, min(number_in(request, "limit", 100), CHANGES_MAX))
        found = self._repository.store.changes(since, most)
        listed = [structs.asdict(one) for one in found]
        if not request.state.access.is_admin:
            # Where a person works is no business of every reader.
            for one in listed:
                one["actor"].pop("address")
        return json_reply({"changes": listed, "next": found[-1].seq if found else since})

    def revocations(self, request: Request) -> Response:
        found = self._repository.revocations()
        if found is None:
            return problem("unknown-version", "nothing was revoked by a signed list yet")
        return document(request, found)

    def metadata(self, request: Request) -> Response:
        return self._file(request, METADATA_DIRECTORY)

    def target(self, request: Request) -> Response:
        return self._file(request, TARGETS_DIRECTORY)

    def _file(self, request: Request, place: str) -> Response:
        directory, file = self._repository.directory / place, request.path_params["file"]
        try:
            data = read_beneath(directory, file, max_bytes=releases.DOCUMENT_MAX)
        except (PathError, FileNotFoundError):
            return problem("bad-request", "there is no such signed document here", status=404)
        return document(request, data)

    def health(self, _: Request) -> Response:
        self._repository.store.setting("name")
        return json_reply({"status": "ok"})

    def archive(self, request: Request, release: Release, headers: dict[str, str]) -> Response:
        """Return the archive of a version as it was published; 410 for a revoked one."""
        if release.state == "revoked":
            # INVARIANT: a revoked archive leaves the registry by no route.
            why = f": {release.reason}" if release.reason else ""
            return problem("unknown-version", f"version {release.version} was revoked{why}",
                           status=410)  # fmt: skip
        path = self._repository.blobs.path(release.digest)
        whole = content_digest(release.digest)
        fields = {"repr-digest": whole, **headers}
        if "range" not in request.headers:
            # Of a part it would be another one (RFC 9530, 2).
            fields["content-digest"] = whole
        return archive_reply(
            request, path, digest=release.digest, media_type=release.media_type, headers=fields
        )


_ENDINGS = {"application/gzip": "tar.gz", "application/zip": "zip"}


def content_digest(digest: str) -> str:
    """Return a digest as the field `Content-Digest` has it (RFC 9530).

    >>> content_digest("sha256:00ff")
    'sha-256=:AP8=:'
    """
    raw = bytes.fromhex(digest.removeprefix("sha256:"))
    return f"sha-256=:{base64.b64encode(raw).decode()}:"


def text_in(request: Request, name: str) -> str:
    """Return a value of the query, empty where there is none; HostingError for several."""
    found = request.query_params.getlist(name)
    if len(found) > 1:
        raise HostingError("bad-request", f"expected `{name}` once")
    return found[0] if found else ""


def number_in(request: Request, name: str, default: int) -> int:
    """Return a number of the query; HostingError `bad-request` for what is none."""
    text = text_in(request, name)
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > _NUMBER_MAX:
        raise HostingError("bad-request", f"expected a number for `{name}`")
    return int(text)


def _sort(request: Request) -> Any:
    text = text_in(request, "sort")
    if text and text not in _SORTS:
        raise HostingError("bad-request", f"expected `sort` to be one of: {', '.join(_SORTS)}")
    return text or None
