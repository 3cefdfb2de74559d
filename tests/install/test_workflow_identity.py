"""A workflow publishes by its identity: GitHub's and GitLab's, with an issuer on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from skillhouse.floor import digest
from skillhouse.registry import pack
from tests.extensions.registry.hosting.servers import Server, serving
from tests.frontends.conftest import Run, place, run
from tests.frontends.test_cli_repositories import configure
from tests.loopback_http import QuietHandler, served
from tests.registry.build_root import BuildRoot
from tests.registry.sources import make_skill

__all__ = ["place", "run"]

pytestmark = pytest.mark.slow

KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
AUDIENCE = "https://skills.example.com"
REQUEST_TOKEN = "a-long-request-token"
AGREED = ("--yes", "--allow-unsigned")


class Provider(QuietHandler):
    """An issuer as a server: its discovery document, its keys, and the endpoint of a workflow."""

    repository = "acme/skills"
    moved_keys = ""
    asked: list[str] = []  # noqa: RUF012 - of all requests.

    @property
    def issuer(self) -> str:
        return f"http://{self.headers['Host']}"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.asked.append(parts.path)
        if parts.path == "/.well-known/openid-configuration":
            keys = self.moved_keys or f"{self.issuer}/keys"
            return self._say({"issuer": self.issuer, "jwks_uri": keys})
        if parts.path == "/keys":
            found = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
            return self._say({"keys": [{**found, "kid": "one", "alg": "RS256", "use": "sig"}]})
        if self.headers.get("Authorization") != f"bearer {REQUEST_TOKEN}":
            return self.answer(401, b"")
        (audience,) = parse_qs(parts.query)["audience"]
        return self._say({"count": 1, "value": identity(self.issuer, audience, self.repository)})

    def _say(self, value: Any) -> None:
        self.answer(200, json.dumps(value).encode())


def identity(issuer: str, audience: str, repository: str) -> str:
    now = int(time.time())
    claims = {"iss": issuer, "aud": audience, "iat": now, "exp": now + 300,
              "jti": f"{time.time_ns()}", "repository": repository}  # fmt: skip
    return jwt.encode(claims, KEY, "RS256", headers={"kid": "one"})


@pytest.fixture
def issuer() -> Iterator[str]:
    Provider.repository, Provider.moved_keys, Provider.asked[:] = "acme/skills", "", []
    with served(Provider) as address:
        yield address


@pytest.fixture
def server(place: Path, issuer: str) -> Iterator[Server]:
    (place / "oidc.toml").write_text(
        f'[[issuers]]\nissuer = "{issuer}"\naudience = "{AUDIENCE}"\n'
        f'[[publishers]]\nname = "notes"\nissuer = "{issuer}"\n'
        'claims = { repository = "acme/skills" }\n'
    )
    with serving(place / "state", "--oidc", str(place / "oidc.toml")) as found:
        token = f'token = "oidc:{AUDIENCE}"\n'
        configure(place, ("official", found.url, False), more=token)
        yield found


@pytest.fixture
def publishing(run: Run, place: Path) -> Callable[..., tuple[int, str, str]]:
    def publish(version: str = "1.0.0", *more: str) -> tuple[int, str, str]:
        source = make_skill(place / "made" / version / "notes", version=version)
        return run("publish", str(source), *AGREED, *more)

    return publish


@pytest.fixture
def at_github(monkeypatch: pytest.MonkeyPatch, issuer: str) -> None:
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{issuer}/token?api-version=2.0")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", REQUEST_TOKEN)


@pytest.mark.usefixtures("at_github")
def test_a_workflow_of_github_publishes_without_a_secret(
    publishing: Callable[..., tuple[int, str, str]], server: Server, place: Path
):
    archive = pack(make_skill(place / "made/1.0.0/notes", version="1.0.0")).digest
    bundle = BuildRoot().bundle(archive)
    (place / "notes.sigstore.json").write_bytes(bundle)
    code, out, err = publishing("1.0.0", "--attestation", str(place / "notes.sigstore.json"))
    assert code == 0, out + err
    assert "1 attestation over this archive" in " ".join(out.split())
    (release,) = server.ask("/skills/notes").json["versions"]
    assert release["attestations"] == [digest(bundle)]
    # Each one gets an identity of its own; what the registry keeps says whose it was.
    assert publishing("1.1.0")[0] == 0
    changes = server.ask("/changes?since=0").json["changes"]
    assert all("repository=acme/skills" in one["actor"]["claims"] for one in changes)
    assert Provider.asked.count("/.well-known/openid-configuration") == 1


@pytest.mark.usefixtures("at_github")
def test_another_repository_gets_no_token(
    publishing: Callable[..., tuple[int, str, str]], server: Server
):
    Provider.repository = "evil/skills"
    code, _, err = publishing()
    assert (code, "has these claims" in err) == (1, True)
    assert server.ask("/skills/notes").status == 404


@pytest.mark.usefixtures("at_github")
@pytest.mark.parametrize("keys", ["http://skills.example.com/keys", "file:///etc/passwd", "x"])
def test_an_issuer_that_names_odd_keys_vouches_for_nothing(
    publishing: Callable[..., tuple[int, str, str]], server: Server, keys: str
):
    Provider.moved_keys = keys
    code, _, err = publishing()
    assert (code, "the token is not taken: " in err) == (1, True), err
    assert server.ask("/skills/notes").status == 404


def test_a_job_of_gitlab_publishes_once_with_its_identity(
    publishing: Callable[..., tuple[int, str, str]],
    server: Server,
    issuer: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("SKILLHOUSE_ID_TOKEN", identity(issuer, AUDIENCE, "acme/skills"))
    code, out, err = publishing()
    assert code == 0, out + err
    code, _, err = publishing("1.1.0")
    assert (code, "was exchanged before" in err) == (1, True)
    assert [one["version"] for one in server.ask("/skills/notes").json["versions"]] == ["1.0.0"]


def test_without_an_identity_it_is_said_what_gives_one(
    publishing: Callable[..., tuple[int, str, str]],
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
):
    code, _, err = publishing()
    assert (code, "id-token: write" in err) == (1, True)
    # The token of the request goes to no server without encryption.
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", "http://example.com/token")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", REQUEST_TOKEN)
    code, _, err = publishing()
    assert (code, "no https address" in err) == (1, True)
    assert REQUEST_TOKEN not in err
    assert server.ask("/skills/notes").status == 404
