"""Attacks on the log-in at `/mcp`: tokens that an authorization server did not give for us.

The naive form takes what a token says of its own algorithm, and every token that the issuer signed,
whomever it is for: a server that got one for itself then uses it here (RFC 8707, 2).
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

import anyio
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from skillhouse.extensions.server.protected_resource import OAuthRefusalError, ProtectedResource
from skillhouse.floor import ConfigError
from skillhouse.house import Skillhouse, configured
from skillhouse.house.access_tokens import AccessError, AccessScope, AccessTokens
from skillhouse.house.config.config_values import OAuthSettings
from tests.authorization_server import (
    KEY,
    AuthorizationServer,
    authorization_server,
    believes,
    public_jwk,
    table,
)
from tests.frontends.mcp_peer import PATIENCE_SECONDS, Peer, up
from tests.house.places import make_places

# It starts a process.
pytestmark = [pytest.mark.slow, pytest.mark.heavy]

OTHER = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
PUBLIC = KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
METADATA_HOST = "http://169.254.169.254/latest/jwks"


class Place:
    """A running server and the issuer that it is configured for."""

    def __init__(self, peer: Peer, issuer: AuthorizationServer, address: str) -> None:
        self.peer = peer
        self.issuer = issuer
        self.address = address
        self.resource = f"{address}/mcp"
        self.http = httpx2.Client(base_url=address, timeout=PATIENCE_SECONDS)

    def post(self, token: str, path: str = "/mcp", **more: Any) -> httpx2.Response:
        headers = {"accept": "application/json", "authorization": f"Bearer {token}"}
        return self.http.post(path, json={}, headers=headers, **more)

    def lets_in(self, token: str) -> bool:
        """Whether the guard passed a request; what is in it is nothing that MCP takes."""
        return self.post(token).status_code not in (401, 403)

    def naive(self, token: str) -> bool:
        """Whether a check that believes the token's own words would let it in."""
        if believes(token, PUBLIC):
            return True
        try:
            jwt.decode(token, KEY.public_key(), ["RS256"], options={"verify_aud": False})
        except jwt.PyJWTError:
            return False
        return True


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    peer = Peer(tmp_path_factory.mktemp("oauth"))
    with ExitStack() as stack:
        issuer = stack.enter_context(authorization_server())
        address, _ = stack.enter_context(up(peer))
        peer.configure(table(issuer.issuer, address))
        place = Place(peer, issuer, address)
        stack.callback(place.http.close)
        yield place


def coded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def claims_of(token: str) -> Any:
    return jwt.decode(token, options={"verify_signature": False})


def test_a_token_for_this_service_alone_is_let_in(at: Place) -> None:
    assert at.lets_in(at.issuer.token(at.resource))
    assert at.lets_in(at.issuer.token([at.resource]))


@pytest.mark.parametrize(
    "audience",
    [
        "https://other.example.com/mcp",
        "{resource}/",
        "{resource}x",
        "{address}",
        ["{resource}", "https://other.example.com/mcp"],
        [],
        "",
        None,
        "*",
        "skillhouse",
    ],
)
def test_a_token_of_another_audience(at: Place, audience: Any) -> None:
    """INVARIANT: who gets a token for itself, or one that several take, uses none of them here."""

    def named(text: str) -> str:
        return text.format(resource=at.resource, address=at.address)

    given = [named(one) for one in audience] if isinstance(audience, list) else audience
    token = at.issuer.token(named(given) if isinstance(given, str) else given)
    assert at.naive(token)
    refused = at.post(token)
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    assert refused.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://other.example.com"},
        {"iss": None},
        {"exp": int(time.time()) - 120},
        {"exp": None},
        {"exp": "never"},
        {"nbf": int(time.time()) + 3_600},
        {"iat": int(time.time()) + 3_600},
    ],
)
def test_a_token_of_another_issuer_or_time(at: Place, changes: dict[str, Any]) -> None:
    assert at.post(at.issuer.token(at.resource, **changes)).status_code == 401


def test_a_token_that_says_it_needs_no_signature(at: Place) -> None:
    body = coded(claims_of(at.issuer.token(at.resource)))
    for algorithm in ("none", "None", "NONE", "nOnE"):
        token = f"{coded({'alg': algorithm, 'typ': 'JWT', 'kid': 'one'})}.{body}."
        if algorithm == "none":
            assert at.naive(token)
        assert at.post(token).status_code == 401


def test_a_token_that_takes_the_public_key_for_a_shared_secret(at: Place) -> None:
    claims = coded(claims_of(at.issuer.token(at.resource)))
    signed = f"{coded({'alg': 'HS256', 'typ': 'JWT', 'kid': 'one'})}.{claims}"
    mac = hmac.digest(PUBLIC, signed.encode(), "sha256")
    token = f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    assert at.naive(token)
    assert at.post(token).status_code == 401


def test_a_token_with_a_key_of_its_own(at: Place) -> None:
    claims = claims_of(at.issuer.token(at.resource))
    for more in (
        {"jwk": public_jwk(OTHER, "one")},
        {"jku": f"{at.issuer.issuer}/other"},
        {"x5u": f"{at.issuer.issuer}/other"},
        {"kid": "../../etc/passwd"},
    ):
        token = jwt.encode(claims, OTHER, "RS256", headers={"kid": "one", **more})
        assert at.post(token).status_code == 401, more
    assert "/other" not in at.issuer.asked


def test_a_flood_of_unknown_keys_asks_the_issuer_once(at: Place) -> None:
    assert at.lets_in(at.issuer.token(at.resource))
    before = at.issuer.asked.count("/jwks")
    for number in range(20):
        token = at.issuer.token(at.resource, key=OTHER, kid=f"k-{number}")
        assert at.post(token).status_code == 401
    assert at.issuer.asked.count("/jwks") - before <= 1
    assert at.lets_in(at.issuer.token(at.resource))


def test_a_token_anywhere_but_in_the_one_header(at: Place) -> None:
    token = at.issuer.token(at.resource)
    accept = {"accept": "application/json"}
    for query in (f"/mcp?access_token={token}", f"/mcp?token={token}"):
        assert at.http.post(query, json={}, headers=accept).status_code == 401
    form = {"access_token": token}
    assert at.http.post("/mcp", data=form, headers=accept).status_code == 401
    cookie = {"cookie": f"access_token={token}", **accept}
    assert at.http.post("/mcp", json={}, headers=cookie).status_code == 401
    for scheme in ("Basic", "DPoP", "Token", ""):
        given = {"authorization": f"{scheme} {token}".strip(), **accept}
        assert at.http.post("/mcp", json={}, headers=given).status_code == 401
    twice = [("authorization", f"Bearer {token}"), ("authorization", f"Bearer {token}")]
    assert at.http.post("/mcp", json={}, headers=[*accept.items(), *twice]).status_code == 401
    assert at.post("a" * 40_000).status_code in (400, 401, 431)


def test_a_token_opens_nothing_else(at: Place) -> None:
    token = at.issuer.token(at.resource)
    given = {"authorization": f"Bearer {token}"}
    for path in ("/", "/approvals", "/api/v1/skills", "/api/v1/approvals", "/system", "/rpc"):
        assert at.http.get(path, headers=given).status_code in (401, 405), path
    for path in ("/rpc", "/api/v1/calls", "/api/v1/tokens"):
        assert at.post(token, path).status_code == 401, path


@pytest.mark.parametrize(
    "user", ["", None, 7, ["alice"], "alice\n", " alice", "alice bob", "аlice", "Alice", "a" * 129]
)
def test_a_user_in_disguise(at: Place, user: Any) -> None:
    """The fourth but last begins with a letter of Cyrillic."""
    refused = at.post(at.issuer.token(at.resource, sub=user))
    assert refused.status_code in (401, 403), refused.text


def settings_of(issuer: AuthorizationServer, **changes: Any) -> OAuthSettings:
    values = {
        "issuer": issuer.issuer,
        "resource": "http://127.0.0.1:8600/mcp",
        "users": ("alice", "local"),
        **changes,
    }
    return OAuthSettings(**values)


def access_of(base: Path, settings: OAuthSettings, token: str) -> Any:
    base.mkdir()
    with Skillhouse(configured(make_places(base)), oauth=settings) as house:
        return anyio.run(ProtectedResource(house).access, f"Bearer {token}".encode())


def test_keys_are_fetched_from_no_metadata_address(tmp_path: Path) -> None:
    """An issuer that was taken over leads to a service that only this machine reaches."""
    for place, changes in enumerate(({"moved_keys": METADATA_HOST}, {"keys_uri": METADATA_HOST})):
        with authorization_server() as issuer:
            for name, value in changes.items():
                setattr(issuer, name, value)
            settings = settings_of(issuer)
            with pytest.raises(OAuthRefusalError, match="cannot be had now"):
                access_of(tmp_path / str(place), settings, issuer.token(settings.resource))
    # Within this machine another server's keys are not taken by a redirect either.
    with authorization_server() as issuer, authorization_server() as other:
        issuer.moved_keys = f"{other.issuer}/jwks"
        settings = settings_of(issuer)
        with pytest.raises(OAuthRefusalError, match="cannot be had now"):
            access_of(tmp_path / "last", settings, issuer.token(settings.resource))
        assert "/jwks" not in other.asked


def test_a_user_of_an_issuer_is_nobody_of_this_machine(tmp_path: Path) -> None:
    with authorization_server() as issuer:
        settings = settings_of(issuer)
        token = issuer.token(settings.resource, sub="local")
        access = access_of(tmp_path / "place", settings, token)
    assert (access.user, access.is_owner, set(access.scopes)) == (
        "oauth:local",
        False,
        {AccessScope.CALL},
    )
    tokens = AccessTokens(tmp_path)
    with pytest.raises(AccessError, match="begins with `oauth:`"):
        tokens.new("mine", [AccessScope.CALL], user="oauth:local")


def test_what_an_open_connection_rests_on_ends(tmp_path: Path) -> None:
    places, now = make_places(tmp_path), [time.time()]
    places.user_file.parent.mkdir(parents=True)
    with authorization_server() as issuer:
        here = "http://127.0.0.1:8600"
        places.user_file.write_text(table(issuer.issuer, here))
        with Skillhouse(configured(places)) as house:
            resource = ProtectedResource(house, clock=lambda: now[0])
            token = issuer.token(f"{here}/mcp")
            access = anyio.run(resource.access, f"Bearer {token}".encode())
            assert resource.holds(access.id)
            assert not resource.holds("oauth-0000000000000000")
            # The user is taken out of the configuration, or the token ends.
            places.user_file.write_text(table(issuer.issuer, here, users='["bob"]'))
            assert not resource.holds(access.id)
            places.user_file.write_text(table(issuer.issuer, here))
            assert resource.holds(access.id)
            now[0] += 400
            assert not resource.holds(access.id)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("issuer", '"http://issuer.example.com"'),
        ("issuer", '"https://u:p@issuer.example.com"'),
        ("issuer", '"file:///etc/passwd"'),
        ("resource", '"http://skills.example.com/mcp"'),
        ("resource", '"https://skills.example.com/"'),
        ("resource", '"https://skills.example.com/mcp?a=b"'),
        ("jwks", '"http://169.254.169.254/jwks"'),
        ("users", "[]"),
        ("scope", '""'),
        ("scope", '"a\\"b"'),
        ("user_claim", '""'),
    ],
)
def test_a_table_that_would_let_in_anyone(tmp_path: Path, key: str, value: str) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    text = table("https://issuer.example.com", "https://skills.example.com")
    lines = [line for line in text.splitlines() if not line.startswith(key)]
    places.user_file.write_text("\n".join([*lines, f"{key} = {value}"]))
    with pytest.raises(ConfigError) as refused:
        configured(places)
    assert refused.value.key == f"oauth.{key}"
