"""Attacks on the exchange of an identity provider's token for one that publishes.

The naive form takes what a token says of its own algorithm, as libraries did (CVE-2015-9235), and
looks at the repository alone.
"""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from skillhouse.extensions.registry import oidc
from skillhouse.floor import ConfigError
from tests.authorization_server import believes
from tests.extensions.registry.hosting.servers import Answer, Server, package, serving
from tests.loopback_http import QuietHandler, served

pytestmark = pytest.mark.slow

KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
OTHER = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
PUBLIC = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
AUDIENCE = "https://skills.example.com"
CLAIMS = {"repository": "acme/skills", "workflow": "release", "environment": "prod"}


def public_jwk(key: rsa.RSAPrivateKey, kid: str) -> dict[str, Any]:
    found = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**found, "kid": kid, "use": "sig", "alg": "RS256"}


class Issuer(QuietHandler):
    """An identity provider on this machine."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        shared = {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(b"k" * 32).decode()}
        self.answer(200, json.dumps({"keys": [public_jwk(KEY, "one"), shared]}).encode())


class Place:
    def __init__(self, server: Server, issuer: str) -> None:
        self.server = server
        self.issuer = issuer
        self._count = 0

    def claims(self, **changes: Any) -> dict[str, Any]:
        self._count += 1
        now = int(time.time())
        found = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 300,
            "jti": f"jti-{self._count}-{id(changes)}",
            **CLAIMS,
            **changes,
        }
        return {key: value for key, value in found.items() if value is not None}

    def token(self, key: Any = KEY, kid: str = "one", **changes: Any) -> str:
        return jwt.encode(self.claims(**changes), key, "RS256", headers={"kid": kid})

    def ask(self, token: str, name: str = "pdf", address: str = "") -> Answer:
        """Send a token, each from an address of its own, so that only what it is refuses it."""
        self._count += 1
        body = json.dumps({"token": token, "name": name}).encode()
        sender = address or f"192.0.2.{self._count % 256}"
        headers = {"X-Forwarded-For": sender}
        return self.server.ask("/auth/oidc", "POST", body, headers=headers)


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    base = tmp_path_factory.mktemp("registry")
    with ExitStack() as stack:
        issuer = stack.enter_context(served(Issuer))
        claims = ", ".join(f'{key} = "{value}"' for key, value in CLAIMS.items())
        (base / "oidc.toml").write_text(
            f'[[issuers]]\nissuer = "{issuer}"\naudience = "{AUDIENCE}"\n'
            f'jwks = "{issuer}/jwks"\n'
            f'[[publishers]]\nname = "pdf"\nissuer = "{issuer}"\nclaims = {{{claims}}}\n'
        )
        options = ("--oidc", str(base / "oidc.toml"), "--proxy", "127.0.0.1")
        server = stack.enter_context(serving(base / "state", *options))
        yield Place(server, issuer)


def naive(token: str) -> bool:
    """Check a token as it says itself."""
    return believes(token, PUBLIC)


def coded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_a_token_of_the_provider_publishes_one_name_for_minutes(at: Place, tmp_path: Path):
    answer = at.ask(at.token(sha="c0ffee"))
    assert answer.status == 201, answer.body
    assert answer.json["scopes"] == ["publish:default/pdf"]
    secret = answer.json["token"]
    sender = {"X_Forwarded_For": "192.0.2.1"}
    done = at.server.publish(package(tmp_path), "pdf", "1.0.0", secret, **sender)
    assert done.status == 201, done.body
    other = at.server.publish(package(tmp_path, "csv"), "csv", "1.0.0", secret, **sender)
    assert other.code == "forbidden"
    (change,) = at.server.ask("/changes", headers={"X-Forwarded-For": "192.0.2.1"}).json["changes"]
    assert change["actor"]["claims"] == (
        f"{at.issuer} repository=acme/skills workflow=release environment=prod sha=c0ffee"
    )
    left = time.mktime(time.strptime(answer.json["expires_at"], "%Y-%m-%dT%H:%M:%SZ"))
    assert 0 < left - time.mktime(time.gmtime()) <= 15 * 60


def test_a_token_that_says_it_needs_no_signature(at: Place):
    for algorithm in ("none", "None", "NONE"):
        head = coded({"alg": algorithm, "typ": "JWT", "kid": "one"})
        token = f"{head}.{coded(at.claims())}."
        if algorithm == "none":
            assert naive(token)
        assert at.ask(token).code == "unauthorized"


def test_a_token_that_takes_the_public_key_for_a_shared_secret(at: Place):
    head = coded({"alg": "HS256", "typ": "JWT", "kid": "one"})
    signed = f"{head}.{coded(at.claims())}"
    mac = hmac.digest(PUBLIC, signed.encode(), "sha256")
    token = f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    assert naive(token)
    assert at.ask(token).code == "unauthorized"
    shared = jwt.encode(at.claims(), b"k" * 32, "HS256", headers={"kid": "shared"})
    assert at.ask(shared).code == "unauthorized"


def test_a_token_with_a_key_of_its_own(at: Place):
    token = jwt.encode(
        at.claims(), OTHER, "RS256",
        headers={"kid": "one", "jwk": public_jwk(OTHER, "one"), "jku": f"{at.issuer}/other"},
    )  # fmt: skip
    assert at.ask(token).code == "unauthorized"
    assert at.ask(at.token(OTHER, kid="two")).code == "unauthorized"


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "https://other.example.com"},
        {"aud": None},
        {"aud": [AUDIENCE, "https://other.example.com"]},
        {"aud": f"{AUDIENCE}/"},
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"exp": int(time.time()) - 120, "iat": int(time.time()) - 300},
        {"exp": None},
        {"exp": int(time.time()) + 10 * 86_400},
        {"iat": None},
        {"iat": int(time.time()) + 3_600},
        {"nbf": int(time.time()) + 3_600},
        {"jti": None},
        {"jti": ""},
        {"jti": "j" * 201},
        {"jti": 7},
    ],
)
def test_a_token_for_another_place_or_time(at: Place, changes: dict[str, Any]):
    answer = at.ask(at.token(**changes))
    assert (answer.status, answer.code) == (401, "unauthorized"), answer.body


@pytest.mark.parametrize(
    "changes",
    [
        {"repository": "mallory/skills"},
        {"repository": "acme/skills-fork"},
        {"repository": "Acme/skills"},
        {"repository": "acme/skills\n"},
        {"repository": ["acme/skills"]},
        {"repository": None, "Repository": "acme/skills"},
        {"workflow": "test"},
        {"environment": None},
        {"environment": "PROD"},
    ],
)
def test_a_token_of_another_repository_workflow_or_environment(at: Place, changes: dict[str, Any]):
    answer = at.ask(at.token(**changes))
    assert (answer.status, answer.code) == (403, "forbidden"), answer.body
    assert "acme" not in answer.body.decode()


def test_a_name_that_is_of_someone_else(at: Place):
    for name in ("csv", "@acme/pdf", "acme--pdf"):
        assert at.ask(at.token(), name).code == "forbidden"
    for name in ("*", "../pdf", "PDF", ""):
        assert at.ask(at.token(), name).code == "name"


def test_a_token_that_is_used_again(at: Place):
    token = at.token()
    assert at.ask(token).status == 201
    assert at.ask(token).code == "unauthorized"


def test_tokens_that_name_ever_other_keys_ask_the_provider_seldom(at: Place):
    at.ask(at.token())
    before = Issuer.asked
    for number in range(8):
        assert at.ask(at.token(kid=f"unknown-{number}")).code == "unauthorized"
    assert Issuer.asked <= before + 1


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b.c",
        "." * 100,
        "e30.e30.e30",
        "x" * 20_000,
        "\u00e9",
        "e" + "A" * 9_000,
        "x" * 50_000,
    ],
)
def test_what_is_no_token(at: Place, token: str):
    assert at.ask(token).code == ("too-large" if len(token) > 40_000 else "unauthorized")


def test_wrong_tokens_of_one_address_come_to_an_end(at: Place):
    codes = [at.ask("a.b.c", address="198.51.100.7").code for _ in range(40)]
    assert codes[0] == "unauthorized"
    assert "rate-limited" in codes
    # Who shares the address and has a right one is answered.
    assert at.ask(at.token(), address="198.51.100.7").status == 201


@pytest.mark.parametrize(
    "text",
    [
        "[[publishers]]\nname = 'pdf'\nissuer = 'https://a'\nclaims = {}\n",
        "[[publishers]]\nname = 'pdf'\nissuer = 'https://b'\nclaims = {repository = 'x'}\n",
        "[[publishers]]\nname = '*'\nissuer = 'https://a'\nclaims = {repository = 'x'}\n",
        "[[publishers]]\nname = 'pdf'\nclaim = {}\n",
        "[[issuers]]\nissuer = 'https://c'\naudience = 'x'\njwks = 'http://c.example/'\n",
    ],
)
def test_rules_that_would_let_everyone_in_are_refused(tmp_path: Path, text: str):
    file = tmp_path / "oidc.toml"
    known = "[[issuers]]\nissuer = 'https://a'\naudience = 'x'\njwks = '/srv/jwks.json'\n"
    file.write_text(known + text)
    with pytest.raises(ConfigError):
        oidc.read_rules(file)
