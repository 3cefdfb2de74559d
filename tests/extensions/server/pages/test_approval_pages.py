"""Tests of extensions/server/pages/approval_pages.py: the inbox, one question, devices."""

from __future__ import annotations

import html
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.approval.questions import begun, question
from tests.extensions.server.pages.served import COOKIE, OURS, PORT, client_of

from skillhouse.approval import Answer, ApprovalState, Pattern, signed_headers
from skillhouse.approval.webhook import secret_bytes
from skillhouse.extensions.server import http_app
from skillhouse.extensions.server.app import make_app
from skillhouse.house import Skillhouse

EVIL = "<script>alert(1)</script>\u202e\x1b[2J"


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    app = http_app(house, token="token-of-this-start", port=PORT, session="session-of-this-start")
    return client_of(app, COOKIE)


def form_of(client: TestClient, approval_id: str, answer: str, **values: str) -> dict[str, str]:
    """Return the fields of the form with which a person gives an answer."""
    return form_in(client.get(f"/approvals/{approval_id}").text, answer, **values)


def form_in(page: str, answer: str, **values: str) -> dict[str, str]:
    for form in re.findall(r"<form.*?</form>", page, re.DOTALL):
        if f'value="{answer}"' in form:
            found = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
            fields = {name: html.unescape(value) for name, value in found}
            return {**fields, "answer": answer, **values}
    raise AssertionError(f"no form for {answer}")


def confirmed(client: TestClient, approval_id: str, answer: str, **values: str) -> Any:
    """Give a lasting answer by both of its forms; return the page between and the last answer."""
    path, form = f"/approvals/{approval_id}", form_of(client, approval_id, answer, **values)
    between = client.post(path, data=form, headers=OURS)
    assert between.status_code == 200
    return between.text, client.post(path, data=form_in(between.text, answer), headers=OURS)


@pytest.mark.slow
def test_a_call_is_decided_on_its_page_and_runs_once(
    house: Skillhouse, client: TestClient, tmp_path: Path
) -> None:
    write = ("write", {"path": "a.txt", "content": "text"})
    asked = house.call_sync(*write).approval_id or ""
    assert f"/approvals/{asked}" in client.get("/approvals").text
    page = client.get(f"/approvals/{asked}").text
    for part in ("write: ", "a.txt", "text", "sha256:", "Deny", "Approve once", "Every project…"):
        assert part in page
    form = form_of(client, asked, "once")
    moved = client.post(f"/approvals/{asked}", data=form, headers=OURS)
    assert (moved.status_code, moved.headers["location"]) == (303, f"/approvals/{asked}")
    found = house.approvals.get(asked)
    assert (found.state, found.by, found.channel) == (ApprovalState.APPROVED, "local", "page")
    assert house.call_sync(*write).status == "ok"
    closed = client.get(f"/approvals/{asked}").text
    assert "approved and used" in closed
    assert "by local on page" in closed
    assert "<form" not in closed
    again = client.post(f"/approvals/{asked}", data=form, headers=OURS)
    assert again.status_code == 409
    assert "was used already" in again.text
    assert (tmp_path / "project/a.txt").read_text() == "text"


def test_the_page_says_on_top_what_will_not_work(house: Skillhouse, client: TestClient) -> None:
    asked = house.call_sync("exec", {"command": "npm install lodash"})
    sentence = "this will fail: no network is granted"
    assert sentence in asked.content
    page = client.get(f"/approvals/{asked.approval_id}").text
    assert page.index("This will fail: no network is granted") < page.index("What skillhouse found")
    other = house.call_sync("write", {"path": "a.txt", "content": sentence}).approval_id
    assert 'class="notice' not in client.get(f"/approvals/{other}").text


@pytest.mark.slow
def test_a_lasting_yes_is_narrowed_on_the_page(house: Skillhouse, client: TestClient) -> None:
    opened = house.approvals.open(question("/w/notes/a.txt"))
    page = client.get(f"/approvals/{opened.id}").text
    assert "A standing approval would allow write /w/notes/ (files directly in it)" in page
    assert ">\nwrite /w/notes/ (files directly in it)</textarea>" in page
    for rules, status in (("", 400), ("write /w/*", 409)):
        form = form_of(client, opened.id, "always", rules=rules)
        answered = client.post(f"/approvals/{opened.id}", data=form, headers=OURS)
        assert answered.status_code == status
    between, answered = confirmed(client, opened.id, "always", rules="write /w/notes/a.txt\r\n")
    assert 'id="written">write /w/notes/a.txt</pre>' in between
    assert "after 30 days" in between
    assert answered.status_code == 303
    begun(house.approvals, opened.id)
    assert [grant.pattern for grant in house.approvals.grant_store.all()] == ["/w/notes/a.txt"]


@pytest.mark.slow
def test_rules_that_a_field_would_change_are_not_edited(
    house: Skillhouse, client: TestClient
) -> None:
    pattern = Pattern(action="write", pattern="/w/n\u202eo/")
    odd = question(patterns=(pattern,), always=(pattern.text,))
    opened = house.approvals.open(odd)
    assert "<textarea" not in client.get(f"/approvals/{opened.id}").text
    between, answered = confirmed(client, opened.id, "always")
    assert (answered.status_code, "\\u202e" in between) == (303, True)
    begun(house.approvals, opened.id)
    assert [grant.pattern for grant in house.approvals.grant_store.all()] == [pattern.pattern]


@pytest.mark.slow
def test_a_lasting_answer_is_confirmed_for_exactly_the_rules_that_were_shown(
    house: Skillhouse, client: TestClient
) -> None:
    opened = house.approvals.open(question("/w/notes/a.txt"))
    path = f"/approvals/{opened.id}"
    narrow = form_of(client, opened.id, "session", rules="write /w/notes/a.txt")
    shown = form_in(client.post(path, data=narrow, headers=OURS).text, "session")
    changed = (
        {"rules": "write /w/notes/ (files directly in it)"},
        {"answer": "always"},
        {"confirmed": "0" * 64},
        {"csrf_token": "0" * 64},
    )
    for values in changed:
        answered = client.post(path, data={**shown, **values}, headers=OURS)
        assert answered.status_code in (200, 403)
        assert house.approvals.get(opened.id).state is ApprovalState.OPEN
    assert client.post(path, data=shown, headers=OURS).status_code == 303
    assert house.approvals.get(opened.id).answer == "session"


def test_a_no_takes_its_words_along(house: Skillhouse, client: TestClient) -> None:
    opened = house.approvals.open(question())
    form = form_of(client, opened.id, "no", message="use docs/")
    assert client.post(f"/approvals/{opened.id}", data=form, headers=OURS).status_code == 303
    found = house.approvals.get(opened.id)
    assert (found.state, found.message) == (ApprovalState.DENIED, "use docs/")


@pytest.mark.slow
def test_what_signs_is_decided_here_and_never_for_good(
    house: Skillhouse, client: TestClient
) -> None:
    opened = house.approvals.open(question(level="sign"))
    page = client.get(f"/approvals/{opened.id}").text
    assert "Approve once" in page
    assert "Approve always" not in page
    code = opened.request.content_digest[-6:]
    assert f"<code>{code}</code>" in page
    form = form_of(client, opened.id, "once")
    for typed in ("", "000000", code[:-1]):
        wrong = client.post(f"/approvals/{opened.id}", data={**form, "typed": typed}, headers=OURS)
        assert (wrong.status_code, "Nothing was approved" in wrong.text) == (403, True)
    form["typed"] = code
    lasting = client.post(
        f"/approvals/{opened.id}", data={**form, "answer": "always"}, headers=OURS
    )
    assert (lasting.status_code, "is not possible" in lasting.text) == (409, True)
    client.post(f"/approvals/{opened.id}", data=form, headers=OURS)
    assert house.approvals.get(opened.id).state is ApprovalState.APPROVED


@pytest.mark.slow
def test_nothing_is_shown_or_decided_without_the_key(house: Skillhouse, client: TestClient) -> None:
    opened = house.approvals.open(question())
    form = form_of(client, opened.id, "once")
    stranger = {"cookie": "", "origin": OURS["origin"]}
    for path in ("/approvals", f"/approvals/{opened.id}", "/api/v1/approvals"):
        answer = client.get(path, headers=stranger)
        assert (answer.status_code, opened.request.nonce in answer.text) == (401, False)
    assert client.post(f"/approvals/{opened.id}", data=form, headers=stranger).status_code == 401
    assert house.approvals.get(opened.id).state is ApprovalState.OPEN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "changes", "status"),
    [
        ({"origin": "http://evil.test"}, {}, 403),
        ({"origin": "null"}, {}, 403),
        ({"sec-fetch-site": "cross-site"}, {}, 403),
        ({"sec-fetch-site": "same-site"}, {}, 403),
        ({"host": "evil.test"}, {}, 421),
        ({}, {"csrf_token": ""}, 403),
        ({}, {"csrf_token": "0" * 64}, 403),
        ({}, {"csrf_token": "é\ud800"}, 403),
        ({}, {"nonce": ""}, 409),
        ({}, {"answer": "maybe"}, 400),
        ({}, {"answer": ""}, 400),
    ],
)
def test_a_forged_form_decides_nothing(
    house: Skillhouse,
    client: TestClient,
    headers: dict[str, str],
    changes: dict[str, str],
    status: int,
) -> None:
    opened = house.approvals.open(question())
    other = house.approvals.open(question("/w/other"))
    form = {**form_of(client, opened.id, "once"), **changes}
    body = "&".join(f"{key}={value}" for key, value in form.items()).encode("utf-8", "replace")
    kind = {"content-type": "application/x-www-form-urlencoded"}
    sent = {**OURS, **kind, **headers}
    assert client.post(f"/approvals/{opened.id}", content=body, headers=sent).status_code == status
    # The form of another question is none for this one.
    foreign = form_of(client, other.id, "once")
    answer = client.post(f"/approvals/{opened.id}", data=foreign, headers=OURS)
    assert answer.status_code == 403
    assert house.approvals.get(opened.id).state is ApprovalState.OPEN


def test_a_form_of_an_earlier_start_is_taken_and_of_another_browser_is_not(
    house: Skillhouse, client: TestClient
) -> None:
    opened = house.approvals.open(question())
    form = form_of(client, opened.id, "once")
    tokens = house.services.enforcement.access_tokens
    other = {**OURS, "cookie": f"skillhouse_{PORT}={tokens.new_browser()}"}
    for headers, status in ((other, 403), (OURS, 303)):
        app = http_app(house, token="t", port=PORT, session="session-of-this-start")
        with TestClient(app, f"http://127.0.0.1:{PORT}", follow_redirects=False) as later:
            answer = later.post(f"/approvals/{opened.id}", data=form, headers=headers)
            assert answer.status_code == status
            assert ("This form is old" in answer.text) == (status == 403)


def test_the_page_names_its_origin_so_that_a_browser_sends_it(
    house: Skillhouse, client: TestClient
) -> None:
    """With `no-referrer` a browser sends `Origin: null` with a form (Fetch, "append an Origin")."""
    opened = house.approvals.open(question())
    assert (
        '<meta name="referrer" content="same-origin">' in client.get(f"/approvals/{opened.id}").text
    )


def test_text_of_a_call_stays_text(house: Skillhouse, client: TestClient) -> None:
    values: dict[str, Any] = {
        "title": EVIL,
        "found": ((EVIL, EVIL),),
        "sent": ((EVIL, EVIL),),
        "reasons": (EVIL,),
        "user": EVIL,
    }
    opened = house.approvals.open(question(**values))
    for path in ("/approvals", f"/approvals/{opened.id}"):
        page = client.get(path).text
        assert "<script>" not in page
        assert not {"\u202e", "\x1b"} & set(page)
    assert client.get("/api/v1/approvals").json()["approvals"][0]["title"] == EVIL


@pytest.mark.parametrize("path", ["/approvals/zz", "/approvals/", "/approvals/a/b"])
def test_an_unknown_question_is_not_found(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_an_id_is_not_cut_and_a_body_is_bounded(house: Skillhouse, client: TestClient) -> None:
    opened = house.approvals.open(question())
    assert client.get(f"/approvals/{opened.id[:8]}").status_code == 404
    long = client.post(f"/approvals/{opened.id}", content=b"x" * 100_000, headers=OURS)
    assert long.status_code == 413
    many = "&".join(f"a{at}=1" for at in range(100))
    assert client.post(f"/approvals/{opened.id}", content=many, headers=OURS).status_code == 400
    assert client.post("/", headers=OURS).status_code == 405


@pytest.mark.slow
def test_a_paired_device_answers_without_the_key(house: Skillhouse, client: TestClient) -> None:
    device = house.services.enforcement.devices.pair("phone", user="local")
    opened = house.approvals.open(question(level="sign"))
    body = json.dumps(
        {
            "device": device.id,
            "approval": opened.id,
            "nonce": opened.request.nonce,
            "content_digest": opened.request.content_digest,
            "answer": Answer.ONCE.value,
        }
    ).encode()
    secret = secret_bytes(device.secret)
    headers = signed_headers(body, secret=secret, message_id="m1", now_seconds=time.time())
    wrong = client.post("/approvals/device", content=body, headers={**headers, "webhook-id": "x"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "wrong")
    sent = {**headers, "cookie": ""}
    taken = client.post("/approvals/device", content=body, headers=sent)
    assert (taken.status_code, taken.json()) == (200, {"approval": opened.id, "state": "approved"})
    repeated = client.post("/approvals/device", content=body, headers=sent)
    assert (repeated.status_code, repeated.json()["error"]["code"]) == (401, "repeated")
    late = signed_headers(body, secret=secret, message_id="m2", now_seconds=time.time())
    assert client.post("/approvals/device", content=body, headers=late).status_code == 409
    assert client.get("/approvals/device", headers=sent).status_code in (401, 404, 405)


@pytest.mark.slow
def test_the_page_shows_a_one_time_token_once_and_no_listing_does(
    house: Skillhouse, client: TestClient
) -> None:
    opened = house.approvals.open(question())
    form = form_of(client, opened.id, "token")
    shown = client.post(f"/approvals/{opened.id}", data=form, headers=OURS)
    (token,) = re.findall(r"<code>([0-9a-f]{48})</code>", shown.text)
    assert shown.headers["cache-control"] == "no-store"
    for path in (f"/approvals/{opened.id}", "/approvals", "/api/v1/approvals"):
        assert token not in client.get(path).text
    old = {**form, "nonce": "another"}
    assert client.post(f"/approvals/{opened.id}", data=old, headers=OURS).status_code == 409
    evil = {**OURS, "origin": "http://evil.example"}
    assert client.post(f"/approvals/{opened.id}", data=form, headers=evil).status_code == 403
    assert house.services.enforcement.tokens.take(opened, token).user == "local"
    signing = house.approvals.open(question(level="sign"))
    assert 'value="token"' not in client.get(f"/approvals/{signing.id}").text
    code = signing.request.content_digest[-6:]
    forged = {**form_of(client, signing.id, "once"), "answer": "token", "typed": code}
    assert client.post(f"/approvals/{signing.id}", data=forged, headers=OURS).status_code == 409


@pytest.mark.slow
@pytest.mark.one_server("agent")
def test_a_page_that_a_coding_agent_serves_approves_nothing(house: Skillhouse) -> None:
    app = make_app(
        house,
        token="token-of-this-start",
        port=PORT,
        session="session-of-this-start",
        read_only="Claude Code runs this",
    )
    client = TestClient(app, f"http://127.0.0.1:{PORT}", follow_redirects=False)
    client.headers.update(COOKIE)
    opened = house.approvals.open(question())
    fields = form_of(client, opened.id, "no")
    assert 'value="once"' not in client.get(f"/approvals/{opened.id}").text
    for answer in ("once", "session", "project", "always", "token"):
        taken = client.post(
            f"/approvals/{opened.id}", data={**fields, "answer": answer}, headers=OURS
        )
        assert (taken.status_code, "Claude Code runs this" in taken.text) == (403, True)
    assert house.approvals.get(opened.id).state is ApprovalState.OPEN
    assert client.post(f"/approvals/{opened.id}", data=fields, headers=OURS).status_code == 303
    assert house.approvals.get(opened.id).state is ApprovalState.DENIED


@pytest.mark.slow
def test_a_device_gets_a_token_and_its_answers_are_shown_with_its_name(
    house: Skillhouse, client: TestClient
) -> None:
    device = house.services.enforcement.devices.pair("robin's phone", user="local")
    opened = house.approvals.open(question())
    body = json.dumps(
        {
            "device": device.id,
            "approval": opened.id,
            "nonce": opened.request.nonce,
            "content_digest": opened.request.content_digest,
            "answer": "once",
        }
    ).encode()

    def sent(number: str) -> dict[str, str]:
        secret, now = secret_bytes(device.secret), time.time()
        return {
            **signed_headers(body, secret=secret, message_id=number, now_seconds=now),
            "cookie": "",
        }

    given = client.post("/approvals/device/token", content=body, headers=sent("m1"))
    assert given.status_code == 200
    assert house.services.enforcement.tokens.take(opened, given.json()["token"]).device == device.id
    again = client.post("/approvals/device/token", content=body, headers=sent("m1"))
    assert again.status_code == 401
    assert client.post("/approvals/device", content=body, headers=sent("m2")).status_code == 200
    for path in ("/approvals", f"/approvals/{opened.id}"):
        assert f"({device.id})" in client.get(path).text
