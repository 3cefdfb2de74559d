"""The identity of a workflow: a token of its provider, exchanged for one of a registry.

GitHub Actions gives one for each request, to a job with `id-token: write`; GitLab one for each job,
in a variable that its file names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TypeVar
from urllib.parse import quote, urlsplit

import anyio
from msgspec import Struct

from skillhouse import net
from skillhouse.floor import DecodeError, SkillhouseError, shaped
from skillhouse.house.network import Network
from skillhouse.registry import Repository, RepositoryError
from skillhouse.registry.releases import strict_document

ANSWER_MAX = 64 * 1024
"""Bytes of an answer with a token."""
GITHUB_URL, GITHUB_TOKEN = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
GITLAB_TOKEN = "SKILLHOUSE_ID_TOKEN"  # noqa: S105
"""Variables, and no tokens."""
_CREDENTIAL = "workflow-identity"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class IdentityError(SkillhouseError):
    """A workflow has no identity, or cannot get it."""

    code = "identity"


class _GitHubAnswer(Struct, frozen=True):
    value: str


class _ExchangeAnswer(Struct, frozen=True):
    token: str


_Answer = TypeVar("_Answer", _GitHubAnswer, _ExchangeAnswer)


def workflow_identity(network: Network, environment: Mapping[str, str], audience: str) -> str:
    """Return the token by which the provider vouches for this workflow.

    Args:
        audience: For whom it is, as the registry is configured; GitLab's says so in its file.

    Raises:
        IdentityError: this is no such workflow, or its provider gives none.
        NetError: the provider cannot be asked.
    """
    if given := environment.get(GITLAB_TOKEN, "").strip():
        return given
    address, token = environment.get(GITHUB_URL, ""), environment.get(GITHUB_TOKEN, "")
    if not address or not token:
        raise IdentityError(
            "no identity of a workflow is here: in GitHub Actions give the job `permissions: "
            f"id-token: write`, in GitLab an `id_tokens` entry `{GITLAB_TOKEN}` with `aud: "
            f"{audience}`; elsewhere name a token of the repository"
        )
    parts = urlsplit(address)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
        raise IdentityError(f"`{GITHUB_URL}` is no https address: nothing was sent")
    joined = "&" if parts.query else "?"
    response = anyio.run(
        partial(
            network.exchange,
            f"{address}{joined}audience={quote(audience, safe='')}",
            ANSWER_MAX,
            method="GET",
            headers={"Authorization": f"bearer {{{{secret:{_CREDENTIAL}}}}}"},
            secrets=(_bound(address, token),),
        )
    )
    if response.status != 200:
        raise IdentityError(f"status {response.status} of the provider of the workflow's identity")
    return _read(response.body, _GitHubAnswer).value


def _bound(address: str, token: str) -> net.SecretBinding:
    target = net.parse_url(address)
    rule = net.HostRule(host=target.host, scheme=target.scheme, port=target.port, methods=None)
    return net.SecretBinding(name=_CREDENTIAL, value=token, hosts=(str(rule),))


def exchanged(repository: Repository, identity: str, name: str) -> str:
    """Return the token that a registry gives for an identity, which publishes one name.

    Raises:
        RepositoryError: it gives none; NetError: it cannot be asked.
    """
    body = json.dumps({"name": name, "token": identity}).encode()
    headers = {"Content-Type": "application/json"}
    answer = repository.send("POST", "auth/oidc", body, headers=headers, max_bytes=ANSWER_MAX)
    try:
        return _read(answer.body, _ExchangeAnswer).token
    except IdentityError as error:
        raise RepositoryError("document", f"`{repository.address}`: {error}") from error


def _read(data: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return shaped(strict_document(data, "the answer"), kind)
    except DecodeError as error:
        # Never with what came, which may be the token.
        raise IdentityError("the answer has no token") from error
