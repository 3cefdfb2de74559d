"""The reference of the API as a page: each operation of the OpenAPI document, with a curl line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from starlette.requests import Request

from skillhouse.extensions.server.pages.site import Site


class DescribedOperation(Struct, frozen=True, kw_only=True):
    name: str
    method: str
    path: str
    summary: str
    needs: str
    curl: str
    parameters: tuple[Mapping[str, Any], ...]
    statuses: tuple[tuple[str, str], ...]
    """Each with the code of its example, if it is a problem."""
    status: str
    """That of the example."""
    example: str


class ReferencePage:
    """Renders the document; the API checks who may read it."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def content(self, headers: Mapping[str, str]) -> bytes:
        """Return the page in the language that a request asks for; it needs no script."""
        given = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        services = self._site.services
        groups: dict[str, list[DescribedOperation]] = {}
        for tag, one in described(services.openapi):
            groups.setdefault(tag, []).append(one)
        request = Request({"type": "http", "headers": given, "path": "/api/v1/docs"})
        return bytes(self._site.bare(request, "reference.html", 200, groups=groups).body)


def described(document: Mapping[str, Any]) -> Iterator[tuple[str, DescribedOperation]]:
    """Yield each operation with its tag, in the order of the document."""
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            status = next(code for code in one["responses"] if code < "300")
            (answer,) = one["responses"][status]["content"].values()
            example = answer.get("example", "")
            yield (
                one["tags"][0],
                DescribedOperation(
                    name=one["operationId"],
                    method=method.upper(),
                    path=path,
                    summary=one["summary"],
                    needs=one["description"],
                    curl=one["x-codeSamples"][0]["source"],
                    parameters=tuple(one["parameters"]),
                    statuses=tuple(_statuses(one["responses"])),
                    status=status,
                    example=example if isinstance(example, str) else json.dumps(example, indent=2),
                ),
            )


def _statuses(responses: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for status, response in responses.items():
        problem = response.get("content", {}).get("application/problem+json")
        yield status, problem["example"]["code"] if problem else ""
