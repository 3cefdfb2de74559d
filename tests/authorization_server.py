"""An authorization server of a test on loopback: metadata, registration, PKCE, and JWT tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.loopback_http import QuietHandler, serving_http

KEY = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
METADATA = "/.well-known/oauth-authorization-server"


def believes(token: str, public: bytes) -> bool:
    """Whether a check would let a token in that goes by the token's own word for its algorithm, and
    takes the public key for whatever that wants."""
    head, _, rest = token.partition(".")
    body, _, signature = rest.partition(".")
    algorithm = json.loads(base64.urlsafe_b64decode(head + "=="))["alg"]
    if algorithm == "HS256":
        wanted = hmac.digest(public, f"{head}.{body}".encode(), "sha256")
        return base64.urlsafe_b64encode(wanted).rstrip(b"=") == signature.encode()
    return bool(algorithm == "none")


def public_jwk(key: rsa.RSAPrivateKey, kid: str) -> dict[str, Any]:
    found = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**found, "kid": kid, "use": "sig", "alg": "RS256"}


class AuthorizationServer(ThreadingHTTPServer):
    """Lets `user` log in at once; what it is asked for is kept."""

    daemon_threads = True

    def __init__(self, user: str = "alice") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.user = user
        self.issuer = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: list[str] = []
        """The paths of requests."""
        self.codes: dict[str, Mapping[str, str]] = {}
        self.moved_keys = ""
        """Where the keys are said to be instead, by a redirect."""
        self.keys_uri = f"{self.issuer}/jwks"

    def token(self, audience: Any, *, key: Any = KEY, kid: str = "one", **changes: Any) -> str:
        """Return a signed token; a claim of None is left out."""
        now = int(time.time())
        found = {
            "iss": self.issuer,
            "aud": audience,
            "sub": self.user,
            "iat": now,
            "exp": now + 300,
            "scope": "skillhouse",
            **changes,
        }
        claims = {name: value for name, value in found.items() if value is not None}
        return jwt.encode(claims, key, "RS256", headers={"kid": kid, "typ": "at+jwt"})

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "jwks_uri": self.keys_uri,
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }


class _Handler(QuietHandler):
    server: AuthorizationServer

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        self.server.asked.append(place.path)
        if place.path == METADATA:
            self._json(200, self.server.metadata())
        elif place.path == "/jwks" and self.server.moved_keys:
            self.answer(302, headers={"Location": self.server.moved_keys})
        elif place.path == "/jwks":
            self._json(200, {"keys": [public_jwk(KEY, "one")]})
        elif place.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(place.query).items()}
            code = secrets.token_urlsafe(16)
            self.server.codes[code] = asked
            back = urlencode({"code": code, "state": asked["state"], "iss": self.server.issuer})
            self.answer(302, headers={"Location": f"{asked['redirect_uri']}?{back}"})
        else:
            self._json(404, {})

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/register":
            asked = json.loads(body)
            self._json(201, {**asked, "client_id": "c-1", "token_endpoint_auth_method": "none"})
            return
        given = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        granted = self.server.codes.pop(given.get("code", ""), None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        is_right = granted is not None and granted["code_challenge"] == challenge
        if granted is None or not is_right or granted["resource"] != given["resource"]:
            self._json(400, {"error": "invalid_grant"})
            return
        scope = granted.get("scope", "")
        token = self.server.token(granted["resource"], scope=scope)
        said = {"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": scope}
        self._json(200, said)

    def _json(self, status: int, value: object) -> None:
        headers = {"Content-Type": "application/json"}
        self.answer(status, json.dumps(value).encode(), headers)


@contextmanager
def authorization_server(user: str = "alice") -> Iterator[AuthorizationServer]:
    """Serve one while the block runs."""
    with serving_http(AuthorizationServer(user)) as server:
        yield server


def table(issuer: str, address: str, **more: str) -> str:
    """Return an `[oauth]` table for the server at an address; `more` are TOML values."""
    values = {
        "issuer": f'"{issuer}"',
        "resource": f'"{address}/mcp"',
        "users": '["alice"]',
        **more,
    }
    return "[oauth]\n" + "".join(f"{key} = {value}\n" for key, value in values.items())
