"""Tests of extensions/server/pages/stop_page.py: the stop button, and who can press it."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient
from tests.balanced import is_replicated
from tests.extensions.server.pages.served import OURS, PORT, client_of

from skillhouse.approval import ApprovalState
from skillhouse.extensions.server.app import make_app
from skillhouse.extensions.server.pages.site import PLACES
from skillhouse.house import Skillhouse

STOP = "/approvals/stop"


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    # A page that a coding agent serves approves nothing, and stops all the same; it is no replica.
    app = make_app(
        house,
        token="token",
        port=PORT,
        session="session-of-this-start",
        read_only="" if is_replicated() else "an agent serves it",
    )
    return client_of(app, OURS)


def form_on(client: TestClient, path: str) -> dict[str, str]:
    """Return the fields of the stop form on a page."""
    [form] = re.findall(rf'<form[^>]*action="{STOP}".*?</form>', client.get(path).text, re.DOTALL)
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/system", STOP])
def test_the_button_stops_everything_and_says_what_it_ended(
    house: Skillhouse, client: TestClient, path: str
) -> None:
    asked = house.call_sync("write", {"path": "a.txt", "content": "text"}).approval_id or ""
    moved = client.post(STOP, data=form_on(client, path), headers=OURS)
    assert (moved.status_code, moved.headers["location"]) == (303, STOP)
    assert house.services.enforcement.tiers.stopped_reason == "on the page (by local)"
    assert house.approvals.get(asked).state is not ApprovalState.OPEN
    page = client.get(STOP).text
    # Each server says what it has ended itself.
    assert is_replicated() or "0 calls ended." in page
    assert "skillhouse resume" in page
    assert "<form" not in page
    status = client.get("/system").text
    assert "Everything is stopped." in status
    assert f'action="{STOP}"' not in status
    assert "stopped" in house.call_sync("read", {"path": "a.txt"}).content


@pytest.mark.slow
@pytest.mark.one_server("agent")
def test_every_page_says_that_everything_is_stopped_and_where_it_ends(house: Skillhouse) -> None:
    apps = [
        make_app(house, token="t", port=PORT, session="session-of-this-start", read_only=why)
        for why in ("", "an agent serves it")
    ]
    client, served = (client_of(app, OURS) for app in apps)
    paths = [place.path for place in PLACES] + ["/new", "/approvals/standing", "/skills/none"]
    for path in paths:
        assert "Everything is stopped" not in client.get(path).text
    house.services.enforcement.stop("me", "a <b>reason</b>")
    for path in paths:
        text = client.get(path).text
        assert text.count("Everything is stopped.") == 1, path
        assert "a &lt;b&gt;reason&lt;/b&gt; (by me)" in text
        assert ">Stopped</a>" in text
        # The word is taken on one page, and by none that a coding agent serves.
        assert ('href="/system#resume-word"' in text) == (path != "/system"), path
        agents = served.get(path).text
        assert "Everything is stopped." in agents
        assert "skillhouse resume" in agents
        assert "resume-word" not in agents
    assert 'id="resume-word"' in client.get("/system").text
    assert 'href="/system#resume-word"' in client.get(STOP).text
    assert "resume-word" not in served.get(STOP).text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "csrf_token", "status"),
    [
        (OURS, "", 403),
        (OURS, "x" * 43, 403),
        (OURS, "\u00e9", 403),
        ({**OURS, "origin": "https://evil.example"}, None, 403),
        ({**OURS, "sec-fetch-site": "cross-site"}, None, 403),
        ({**OURS, "cookie": "none=none"}, None, 401),
    ],
)
def test_no_other_page_presses_it(
    house: Skillhouse,
    client: TestClient,
    headers: dict[str, str],
    csrf_token: str | None,
    status: int,
) -> None:
    fields = form_on(client, "/system")
    if csrf_token is not None:
        fields["csrf_token"] = csrf_token
    client.cookies.clear()
    assert client.post(STOP, data=fields, headers=headers).status_code == status
    assert not house.services.enforcement.tiers.is_stopped


def test_a_body_that_is_no_form_stops_nothing(house: Skillhouse, client: TestClient) -> None:
    for body in (b"\xff", b"a=1&" * 20):
        assert client.post(STOP, content=body, headers=OURS).status_code == 400
    assert not house.services.enforcement.tiers.is_stopped
