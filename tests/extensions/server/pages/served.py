"""A service of one house, as a browser that is signed in reaches it."""

from __future__ import annotations

from starlette.testclient import TestClient
from starlette.types import ASGIApp

PORT = 8600
COOKIE = {"cookie": f"skillhouse_{PORT}=session-of-this-start"}
OURS = {**COOKIE, "origin": f"http://127.0.0.1:{PORT}"}


def client_of(app: ASGIApp, headers: dict[str, str]) -> TestClient:
    """Return a client that sends these headers with each request and follows no redirect."""
    base = f"http://127.0.0.1:{PORT}"
    client = TestClient(app, base, raise_server_exceptions=False, follow_redirects=False)
    client.headers.update(headers)
    return client
