"""Attacks on a listener of this machine: each works on a naive server and fails on ours.

The naive server is what a local tool writes in an afternoon: it looks at no header but the cookie,
takes the token anywhere, and puts a skill's words on the page as they are.
"""

from __future__ import annotations

import re
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from skillhouse.extensions.server import http_app
from skillhouse.house import Skillhouse, configured
from tests.extensions.server.test_http_app import COOKIE, PORT, SESSION, TOKEN, Page
from tests.house.places import make_places, write_skill

pytestmark = pytest.mark.slow


BASE = f"http://127.0.0.1:{PORT}"
SECRET = "the words of a private skill"


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    places = make_places(tmp_path)
    write_skill(places.home / ".agents/skills/private", description=SECRET)
    (tmp_path / "outside.txt").write_text("a file outside every skill")
    return Skillhouse(configured(places))


@pytest.fixture
def ours(house: Skillhouse) -> TestClient:
    app = http_app(house, token=TOKEN, port=PORT, session=SESSION)
    return TestClient(app, BASE, follow_redirects=False)


@pytest.fixture
def naive(house: Skillhouse, tmp_path: Path) -> TestClient:
    return TestClient(naive_app(house, tmp_path), BASE, follow_redirects=False)


def naive_app(house: Skillhouse, base: Path):
    """Return the server of an afternoon."""

    async def app(scope, receive, send):
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": SECRET})
            return
        path, status = scope["path"], 200
        query = parse_qs(scope["query_string"].decode())
        known = TOKEN.encode() in dict(scope["headers"]).get(b"cookie", b"")
        known = known or query.get("token", [""])[0] in TOKEN  # A prefix is as good.
        body = "".join(f"<p>{skill.description}</p>" for skill in house.index.skills)
        if path.startswith("/skills/"):
            body = (base / "home" / path.removeprefix("/skills/")).read_text()
        elif path.startswith("/closed") and not known:
            body, status = "no", 401
        headers = [
            (b"content-type", b"text/html"),
            (b"access-control-allow-origin", b"*"),
            (b"set-cookie", f"session={TOKEN}; Path=/".encode()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})

    return app


def goes_along(set_cookie: str) -> bool:
    """Whether a browser sends the cookie with a form that a page of another site submits.

    RFC 6265bis, 5.6.7.2: Lax and Strict stay behind with a POST of another site; without the
    attribute some browsers send it (5.6.7.1 allows two minutes, others do so always).
    """
    (morsel,) = SimpleCookie(set_cookie).values()
    return str(morsel["samesite"]).lower() not in ("lax", "strict")


def test_dns_rebinding(naive: TestClient, ours: TestClient):
    # A page of attacker.example lets its own name point to 127.0.0.1 and reads "its own" server.
    rebound = {"host": f"attacker.example:{PORT}"}
    assert SECRET in naive.get("/", headers=rebound).text
    hosts = [
        f"attacker.example:{PORT}",
        f"127.0.0.1.attacker.example:{PORT}",
        f"127.0.0.1:{PORT + 1}",
        f"127.0.0.1:{PORT}@attacker.example",
        "127.0.0.1",
        f"2130706433:{PORT}",
        f"[::1]:{PORT}",
        f"0.0.0.0:{PORT}",
        "",
    ]
    for host in hosts:
        answer = ours.get("/", headers={**COOKIE, "host": host})
        assert (host, answer.status_code) == (host, 421)
        assert SECRET not in answer.text
    assert answer.text == f"only 127.0.0.1:{PORT} and localhost:{PORT} are served here\n"


def test_two_hosts_in_one_request(naive: TestClient, ours: TestClient):
    # What stands in front may look at one Host, and we at the other.
    hosts = [("host", f"127.0.0.1:{PORT}"), ("host", "attacker.example")]
    assert SECRET in naive.get("/", headers=hosts).text
    assert ours.get("/", headers=[*hosts, *COOKIE.items()]).status_code == 421


@pytest.mark.parametrize(
    "origin",
    ["https://attacker.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1", ""],
)
def test_a_foreign_origin(naive: TestClient, ours: TestClient, origin: str):
    stolen = naive.get("/", headers={"origin": origin})
    assert SECRET in stolen.text
    assert stolen.headers["access-control-allow-origin"] == "*"
    answer = ours.get("/api/v1/skills", headers={**COOKIE, "origin": origin})
    assert (answer.status_code, SECRET in answer.text) == (403, False)
    assert "access-control-allow-origin" not in answer.headers
    own = {**COOKIE, "origin": f"http://localhost:{PORT}"}
    assert ours.get("/api/v1/skills", headers=own).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site", "else"])
def test_another_page_of_the_browser_embeds_us(naive: TestClient, ours: TestClient, site: str):
    # An image, a frame or a link sends no Origin. Another port of 127.0.0.1 is "same-site", and
    # cookies know no ports, so its pages bring ours along.
    embedded = {"sec-fetch-site": site}
    assert SECRET in naive.get("/", headers=embedded).text
    assert ours.get("/", headers={**COOKIE, **embedded}).status_code == 403
    for own in ("same-origin", "none"):
        assert ours.get("/", headers={**COOKIE, "sec-fetch-site": own}).status_code == 200


def test_no_token_a_wrong_one_and_parts_of_it(naive: TestClient, ours: TestClient):
    for part in ("", TOKEN[:1], TOKEN[:-1]):
        assert SECRET in naive.get("/closed", params={"token": part}).text
    wrong = ["", TOKEN[:1], TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "tökén", SESSION, "%00"]
    for token in wrong:
        answer = ours.get("/", params={"token": token})
        assert (token, answer.status_code, SECRET in answer.text) == (token, 401, False)
        assert "set-cookie" not in answer.headers
    assert ours.get(f"/?token={TOKEN}&token={TOKEN}").status_code == 401
    for value in (
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer x",
        f"Bearer {SESSION}",
    ):
        answer = ours.get("/api/v1/skills", headers={"authorization": value})
        assert (value, answer.status_code, SECRET in answer.text) == (value, 401, False)
    twice = [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer x")]
    assert ours.get("/api/v1/skills", headers=twice).status_code == 401
    # A key that is wrong is not mended by another that is right.
    both = {"authorization": "Bearer x", **COOKIE}
    assert ours.get("/api/v1/skills", headers=both).status_code == 401


def test_the_cookie_of_an_earlier_start(naive: TestClient, ours: TestClient):
    naive.cookies.set("session", TOKEN)
    assert SECRET in naive.get("/closed").text
    for value in ("", TOKEN, "session-of-an-earlier-start"):
        answer = ours.get("/", headers={"cookie": f"skillhouse_{PORT}={value}"})
        assert (value, answer.status_code) == (value, 401)


def test_the_token_in_an_address_of_the_api(naive: TestClient, ours: TestClient):
    # Addresses end up in histories, logs and the links that people pass on.
    assert SECRET in naive.get("/closed/api", params={"token": TOKEN}).text
    for path in ("/api/v1/status", "/api/v1/skills", "/skills/private", "/index.html"):
        answer = ours.get(f"{path}?token={TOKEN}")
        assert (path, answer.status_code, SECRET in answer.text) == (path, 401, False)
        assert "set-cookie" not in answer.headers


def test_a_form_of_another_site_with_a_cookie_that_goes_along(naive: TestClient, ours: TestClient):
    theirs = naive.get("/").headers["set-cookie"]
    assert goes_along(theirs)
    assert TOKEN in theirs
    cookie = ours.get(f"/?token={TOKEN}").headers["set-cookie"]
    assert not goes_along(cookie)
    assert "HttpOnly" in cookie
    assert TOKEN not in cookie
    # Even a browser that knows no SameSite sends the Origin with a form.
    forged = {**COOKIE, "origin": "https://attacker.example"}
    assert ours.post("/", headers=forged).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "GETS"])
def test_a_method_that_could_change_something(naive: TestClient, ours: TestClient, method: str):
    assert naive.request(method, "/").status_code == 200
    for path in ("/", "/api/v1/status", f"/?token={TOKEN}"):
        answer = ours.request(method, path, headers=COOKIE)
        assert (path, answer.status_code) == (path, 405)
        assert answer.headers["allow"] == "GET, HEAD"


def test_a_web_socket_of_another_page(naive: TestClient, ours: TestClient):
    # Browsers open web sockets to any origin and send the cookies along.
    with naive.websocket_connect("/", headers=COOKIE) as socket:
        assert socket.receive_text() == SECRET
    with pytest.raises(WebSocketDisconnect), ours.websocket_connect("/", headers=COOKIE):
        pass


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "'\"><svg onload=alert(1)>",
    "</p></main><h1>Trusted</h1>",
    "{{ 7 * 7 }}{% for x in ().__class__.__mro__ %}x{% endfor %}",
    "javascript:alert(1)",
    "`<b>code</b>`",
    "--><!-- & &lt;script&gt;",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_a_script_in_the_words_of_a_skill(
    naive: TestClient, ours: TestClient, tmp_path: Path, words: str
):
    def pages() -> list[Page]:
        return [
            Page(ours.get(path, headers=COOKIE).text)
            for path in ("/", f"/?q={quoted(words)}", "/skills/evil", f"/skills/{quoted(words)}")
        ]

    def write(text: str) -> None:
        scalar = "'" + text.replace("'", "''") + "'"
        directory = tmp_path / "home/.agents/skills/evil"
        (directory / text.replace("/", "_")).mkdir(parents=True, exist_ok=True)
        (directory / text.replace("/", "_") / "file").write_text("")
        (directory / "SKILL.md").write_text(
            f"---\nname: {scalar}\ndescription: {scalar}\n{scalar}: {scalar}\n---\n{text}\n"
        )

    write(words)
    assert words in naive.get("/").text
    hostile = pages()
    assert any(words in page.text for page in hostile)
    for page in hostile:
        assert {"script", "img", "svg", "b"} & set(page.tags[page.tags.index("main") :]) == set()
        assert page.tags.count("h1") == 1
        assert all(link.startswith(("/", "#")) for link in page.links)


def quoted(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode())


def test_hidden_characters_in_a_body(naive: TestClient, ours: TestClient, tmp_path: Path):
    # What the person reads is not what the model gets: U+202E turns the order around, tags hide it.
    body = "safe \u202eevil\u202c \U000e0041\u200b\x1b[8mgone\x1b[0m\n"
    write_skill(tmp_path / "home/.agents/skills/hiding", body=body)
    assert "\u202e" in naive.get("/skills/.agents/skills/hiding/SKILL.md").text
    text = ours.get("/skills/hiding", headers=COOKIE).text
    assert not re.search("[\u200b\u202a-\u202e\U000e0000-\U000e007f\x1b]", text)
    assert "\\u202eevil\\u202c" in Page(text).text


@pytest.mark.parametrize(
    "path",
    (
        "%2e%2e/outside.txt ..%2foutside.txt .agents/skills/../../../outside.txt "
        "%2e%2e%2foutside.txt user:%2e%2e/outside.txt {base}/outside.txt "
        "%2f{base}/outside.txt ..%5coutside.txt ..%00/outside.txt"
    ).split(),
)
def test_a_path_in_place_of_an_id(naive: TestClient, ours: TestClient, tmp_path: Path, path: str):
    assert "outside" in naive.get("/skills/%2e%2e/outside.txt").text
    path = path.replace("{base}", str(tmp_path))
    for prefix in ("/skills/", "/api/v1/skills/"):
        answer = ours.get(prefix + path, headers=COOKIE)
        assert (path, answer.status_code) == (path, 404)
        assert "a file outside every skill" not in answer.text


def test_a_skill_that_is_named_like_the_id_of_another(ours: TestClient, tmp_path: Path):
    # By name alone, the link of the good skill would lead to the evil one.
    evil = write_skill(tmp_path / "home/.agents/skills/aaa", description="The evil twin.")
    text = "---\nname: 'user:private'\ndescription: The evil twin.\n---\n"
    (evil / "SKILL.md").write_text(text)
    page = ours.get("/skills/user:private", headers=COOKIE).text
    assert SECRET in page
    assert "The evil twin." not in page
