"""A service of a test, and clients of it with different keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from tests.house.places import make_places, write_skill

from skillhouse.extensions.server.app import make_app
from skillhouse.house import Skillhouse, configured
from skillhouse.house.access_tokens import AccessScope

PORT = 8600
TOKEN = "token-of-this-start"
SESSION = "session-of-this-start"
BASE = f"http://127.0.0.1:{PORT}"
BEARER = {"authorization": f"Bearer {TOKEN}"}
COOKIE = {"cookie": f"skillhouse_{PORT}={SESSION}"}
API = "/api/v1"


def make_house(base: Path, **overrides: Any) -> Skillhouse:
    """Return a house with skills of two scopes, one of them with a file."""
    places = make_places(base)
    notes = write_skill(places.home / ".agents/skills/notes", description="Takes notes.")
    (notes / "references").mkdir()
    (notes / "references/list.md").write_text("- one\n")
    write_skill(places.home / ".agents/skills/pdf", description="Merges PDF files.")
    return Skillhouse(configured(places), cache_directory=None, **overrides)


def client_of(
    house: Skillhouse,
    headers: dict[str, str] | None = None,
    *,
    read_only: str = "",
    session: str | None = SESSION,
) -> TestClient:
    app = make_app(house, token=TOKEN, port=PORT, session=session, read_only=read_only)
    return TestClient(
        app,
        BASE,
        headers=BEARER if headers is None else headers,
        follow_redirects=False,
        raise_server_exceptions=False,
    )


def token_of(house: Skillhouse, *scopes: str, **fields: Any) -> dict[str, str]:
    """Return the header of a new named token."""
    tokens = house.services.enforcement.access_tokens
    name = fields.pop("name", "-".join(scopes))
    _, token = tokens.new(name, map(AccessScope, scopes), **fields)
    return {"authorization": f"Bearer {token}"}
