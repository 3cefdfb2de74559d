"""Tests of extensions/server/guard.py: who may come in, and what every answer carries."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.test_http_app import (
    BEARER,
    COOKIE,
    PORT,
    SESSION,
    TOKEN,
    Page,
    client_of,
    headers_missing,
)
from tests.house.places import make_places

from skillhouse.extensions.server import http_app
from skillhouse.extensions.server.app import STATIC_TYPES
from skillhouse.extensions.server.guard import AccessKeys, RequestGuard
from skillhouse.house import Skillhouse, configured


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    return Skillhouse(configured(make_places(tmp_path)))


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", COOKIE, 200),
        ("HEAD", "/", COOKIE, 200),
        ("GET", "/", {}, 401),
        ("HEAD", "/api/v1/status", {}, 401),
        ("GET", f"/?token={TOKEN}", {}, 303),
        ("GET", "/?token=wrong", {}, 401),
        ("GET", "/style.css", {}, 200),
        ("GET", "/icon.svg", {}, 200),
        ("GET", "/api/v1/status", BEARER, 200),
        ("GET", "/skills/nothing", COOKIE, 404),
        ("GET", "/nothing", COOKIE, 404),
        ("POST", "/", COOKIE, 405),
        ("GET", "/", {"host": "elsewhere"}, 421),
        ("HEAD", "/", {"host": "elsewhere"}, 421),
        ("GET", "/", {"origin": "http://elsewhere"}, 403),
    ],
)
def test_every_answer_has_the_headers(
    house: Skillhouse, method: str, path: str, headers: dict[str, str], status: int
):
    answer = client_of(house, {}).request(method, path, headers=headers)
    # A browser keeps the files that are the same for everyone.
    missing = ["cache-control"] if path in STATIC_TYPES else []
    assert (answer.status_code, headers_missing(answer.headers)) == (status, missing)
    assert "access-control-allow-origin" not in answer.headers
    if method == "HEAD":
        assert answer.content == b""


@pytest.mark.slow
@pytest.mark.one_server("address")
def test_the_address_with_the_token_opens_a_session_and_loses_the_token(house: Skillhouse):
    client = client_of(house, {})
    answer = client.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie == f"skillhouse_{PORT}={SESSION}; HttpOnly; SameSite=Strict; Path=/"
    assert TOKEN not in cookie
    assert client.get("/").status_code == 200


def test_a_session_is_random_and_not_the_token(house: Skillhouse):
    apps = [http_app(house, token=TOKEN, port=PORT) for _ in range(2)]
    cookies = set()
    for app in apps:
        client = TestClient(app, f"http://127.0.0.1:{PORT}", follow_redirects=False)
        cookies.add(client.get(f"/?token={TOKEN}").headers["set-cookie"])
    assert len(cookies) == 2


@pytest.mark.one_server("address")
def test_without_a_token_a_person_is_told_what_to_do(house: Skillhouse):
    answer = client_of(house, {}).get("/")
    assert answer.headers["www-authenticate"] == "Bearer"
    text = Page(answer.text).text
    assert "Open the address that skillhouse up printed in its terminal." in text
    assert f"http://127.0.0.1:{PORT}/?token=…" in text
    value = client_of(house, {}).get("/api/operations").json()
    assert value["error"]["code"] == "unauthorized"
    assert client_of(house, {}).get("/api/v1/status").json()["code"] == "unauthorized"


def test_a_cookie_of_another_server_on_this_machine_does_not_lock_us_out(house: Skillhouse):
    name = f"skillhouse_{PORT}"
    mixed = {"cookie": f"{name}=other; theme=dark; {name}={SESSION}"}
    assert client_of(house, mixed).get("/").status_code == 200


@pytest.mark.slow
@pytest.mark.one_server("address")
def test_localhost_is_a_name_of_ours_and_port_80_may_be_left_out(house: Skillhouse):
    client = client_of(house)
    assert client.get("/", headers={"host": f"localhost:{PORT}"}).status_code == 200
    assert client.get("/", headers={"host": "localhost"}).status_code == 421
    app = http_app(house, token=TOKEN, port=80)
    client = TestClient(app, "http://127.0.0.1", headers=BEARER)
    assert client.get("/api/v1/status").status_code == 200
    assert client.get("/api/v1/status", headers={"origin": "http://localhost"}).status_code == 200


def test_a_path_may_answer_more_methods_behind_the_same_guard():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body"})

    keys = AccessKeys(token=TOKEN, session=SESSION, port=PORT)
    methods = {"/": ("GET", "POST")}
    guard = RequestGuard(app, keys=keys, port=PORT, unauthorized=app, methods_at=methods)
    client = TestClient(guard, f"http://127.0.0.1:{PORT}", headers=BEARER)
    assert client.post("/").status_code == 202
    answer = client.delete("/")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    assert answer.text == "only GET and POST are answered here\n"


@pytest.mark.slow
def test_start_and_end_of_the_application_pass_the_guard(house: Skillhouse):
    with client_of(house) as client:
        assert client.get("/").status_code == 200


@pytest.mark.slow
def test_other_names_are_answered_where_an_operator_names_them(house: Skillhouse):
    app = http_app(house, token=TOKEN, port=PORT, allowed=("house.test", "10.1.2.3:8600"))
    page = TestClient(app, base_url=f"http://127.0.0.1:{PORT}")

    def status(host: str, **headers: str) -> int:
        given = {"host": host, **BEARER, **headers}
        return page.get("/api/v1/status", headers=given).status_code

    for host in ("house.test", "10.1.2.3:8600", f"localhost:{PORT}"):
        assert status(host) == 200
    # No pattern, no other port, no part of a name: what an address is rebound to stays outside.
    for host in (
        "house.test:8600",
        "10.1.2.3",
        "x.house.test",
        "house.test.evil.test",
        "evil.test",
    ):
        assert status(host) == 421
    assert status("house.test", origin="https://house.test") == 200
    assert status("house.test", origin="http://house.test") == 200
    assert status("house.test", origin="https://evil.test") == 403
    given = {"host": "house.test"}
    assert page.get("/api/v1/status", headers=given).status_code == 401
