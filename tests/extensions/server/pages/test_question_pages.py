"""Tests of what the page of a question shows: commands, differences, transactions, and attacks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.approval.questions import begun, question, said
from tests.extensions.server.pages.served import COOKIE, OURS, PORT, client_of
from tests.extensions.server.pages.test_approval_pages import form_of
from tests.states import state_at

from skillhouse.approval import (
    Answer,
    Approval,
    ApprovalState,
    Asked,
    canonical,
    content_digest,
)
from skillhouse.extensions.server import http_app
from skillhouse.house import Skillhouse
from skillhouse.store import STATE_FILE

RECIPIENT = "0x" + "ab" * 18 + "c0Fe"
CLAIM = "A harmless test. <b>Approve</b> it."
DECODED = (("does", "pays from the account"), ("amount", "1.5 ETH"), ("to", RECIPIENT))


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    app = http_app(house, token="token-of-this-start", port=PORT, session="session-of-this-start")
    return client_of(app, COOKIE)


def signing(house: Skillhouse, shown: tuple[tuple[str, str], ...] = DECODED) -> Approval:
    """Open a question about a signature, as the tool `sign` asks it."""
    arguments = {"key": "main", "type": "transaction", "purpose": CLAIM}
    facts = (*shown, ("claim of the skill, not checked", CLAIM))
    content = canonical(
        {"tool": "sign", "arguments": arguments, "shown": [list(f) for f in facts], "binding": "b"}
    )
    return house.approvals.open(
        question(
            tool="sign",
            level="sign",
            title="sign: main transaction",
            found=shown,
            sent=(*facts[-1:], *arguments.items()),
            content=content,
            content_digest=content_digest(content),
            always=(),
            patterns=(),
        )
    )


def test_a_transaction_page_has_what_was_decoded_and_no_word_of_the_skill(
    house: Skillhouse, client: TestClient
) -> None:
    page = client.get(f"/approvals/{signing(house).id}").text
    for part in ("1.5 ETH", RECIPIENT, "pays from the account", "last 4 characters"):
        assert part in page
    for part in ("harmless", "claim of the skill", "Approve later calls", "one-time token"):
        assert part not in page


def test_labels_of_a_transaction_are_translated_and_its_values_are_not(
    house: Skillhouse, client: TestClient
) -> None:
    path = f"/approvals/{signing(house).id}"
    page = client.get(path, headers={"accept-language": "zh"}).text
    for part in ("<dt>金额</dt>", "<dt>收款方</dt>", "1.5 ETH", RECIPIENT, "weighty"):
        assert part in page
    assert "<dt>amount</dt>" not in page


@pytest.mark.slow
def test_a_signature_is_approved_once_amount_and_recipient_are_typed(
    house: Skillhouse, client: TestClient
) -> None:
    opened = signing(house)
    path = f"/approvals/{opened.id}"
    for typed in ("", "1.5", "c0Fe", "15 c0fe", "1.5 c0ff", f"1.5 {RECIPIENT}"):
        form = form_of(client, opened.id, "once", typed=typed)
        refused = client.post(path, data=form, headers=OURS)
        assert (refused.status_code, "Nothing was approved" in refused.text) == (403, True)
    assert house.approvals.get(opened.id).state is ApprovalState.OPEN
    form = form_of(client, opened.id, "once", typed=" 1.5  C0FE")
    assert client.post(path, data=form, headers=OURS).status_code == 303
    assert house.approvals.get(opened.id).state is ApprovalState.APPROVED


@pytest.mark.slow
@pytest.mark.parametrize(
    "shown",
    [
        (("signs", "a message, no transaction"), ("message", "hello")),
        (("amount", "1 ETH"), ("to", RECIPIENT), ("amount", "2 ETH"), ("to", RECIPIENT)),
        (("amount", "1 ETH"), ("to", "a new contract")),
        (("AMOUNT UNKNOWN", "this can move anything"),),
    ],
)
def test_what_has_no_one_amount_and_recipient_is_signed_by_a_code(
    house: Skillhouse, client: TestClient, shown: tuple[tuple[str, str], ...]
) -> None:
    opened = signing(house, shown)
    code = opened.request.content_digest[-6:]
    assert f"<code>{code}</code>" in client.get(f"/approvals/{opened.id}").text
    form = form_of(client, opened.id, "once", typed=code)
    assert client.post(f"/approvals/{opened.id}", data=form, headers=OURS).status_code == 303


def rewritten(state: Path, approval: Approval, **changes: Any) -> None:
    """Change a stored question, as whoever can write the state could."""
    with state_at(state / STATE_FILE) as connection:
        [(text,)] = connection.execute("SELECT request FROM approval WHERE id = ?", (approval.id,))
        value = json.dumps({**json.loads(text), **changes})
        connection.execute("UPDATE approval SET request = ? WHERE id = ?", (value, approval.id))


@pytest.mark.slow
@pytest.mark.parametrize("keeps_digest", [True, False])
def test_a_transaction_whose_arguments_changed_while_it_was_shown_is_refused(
    house: Skillhouse, client: TestClient, keeps_digest: bool
) -> None:
    """With the digest of before, the content does not fit it; with its own, the form does not."""
    opened = signing(house)
    form = form_of(client, opened.id, "once", typed="1.5 c0fe")
    content = opened.request.content.replace("1.5 ETH", "99 ETH")
    digest = opened.request.content_digest if keeps_digest else content_digest(content)
    rewritten(house.config.state_directory, opened, content=content, content_digest=digest)
    form["typed"] = "99 c0fe"
    refused = client.post(f"/approvals/{opened.id}", data=form, headers=OURS)
    assert refused.status_code == 409
    assert "not the one that this form showed. Nothing was approved" in refused.text
    assert house.approvals.get(opened.id).state is ApprovalState.OPEN


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["nonce", "content_digest"])
def test_a_form_with_another_digest_or_nonce_approves_nothing(
    house: Skillhouse, client: TestClient, changed: str
) -> None:
    opened, other = house.approvals.open(question()), house.approvals.open(question("/w/b"))
    form = form_of(client, opened.id, "once", **{changed: getattr(other.request, changed)})
    assert client.post(f"/approvals/{opened.id}", data=form, headers=OURS).status_code == 409
    assert house.approvals.get(opened.id).state is ApprovalState.OPEN


def test_a_later_question_of_the_same_caller_is_named_on_the_page_of_the_earlier(
    house: Skillhouse, client: TestClient
) -> None:
    first = signing(house)
    assert "has asked for something else since" not in client.get(f"/approvals/{first.id}").text
    rewritten(house.config.state_directory, first, opened_ms=1)
    later = signing(house, (("amount", "9 ETH"), ("to", RECIPIENT)))
    page = client.get(f"/approvals/{first.id}").text
    assert "has asked for something else since" in page
    assert f'href="/approvals/{later.id}"' in page


@pytest.mark.slow
@pytest.mark.parametrize("shell", [(), ("bash", "-c")], ids=["line", "shell"])
def test_each_command_of_a_line_is_shown_on_its_own(
    house: Skillhouse, client: TestClient, shell: tuple[str, ...]
) -> None:
    line = "npm run build && git push origin main | tee out.txt"
    command, *params = (*shell, line)
    call = {"command": command, "params": params} if params else {"command": command}
    asked = house.call_sync("exec", call).approval_id or ""
    page = client.get(f"/approvals/{asked}").text
    commands = re.findall(r"<li><pre>(.*?)</pre>", page.partition("<ol")[2].partition("</ol>")[0])
    assert commands == ["npm run build", "git push origin main", "tee out.txt"]


@pytest.mark.slow
def test_a_card_of_the_inbox_approves_only_what_it_shows_whole(
    house: Skillhouse, client: TestClient
) -> None:
    long = " && ".join(f"touch file{number}" for number in range(40))
    for command, is_whole in (
        ("npm run build", True),
        ("sh -c 'ls; make'", True),
        (long, False),
        (f"touch {'x' * 200}", False),
    ):
        asked = house.call_sync("exec", {"command": command}).approval_id or ""
        inbox = client.get("/approvals").text
        assert f'id="deny-{asked}"' in inbox
        assert (f'id="approve-{asked}"' in inbox) is is_whole
    signs = signing(house)
    assert f'id="deny-{signs.id}"' not in client.get("/approvals").text
    form = {**form_of(client, asked, "no"), "back": "inbox"}
    moved = client.post(f"/approvals/{asked}", data=form, headers=OURS)
    assert (moved.status_code, moved.headers["location"]) == (303, f"/approvals?done={asked}")


@pytest.mark.slow
def test_a_write_is_shown_as_a_difference_and_a_file_that_changed_since_is_said(
    house: Skillhouse, client: TestClient, tmp_path: Path
) -> None:
    file = tmp_path / "project/plan.md"
    file.write_text("one\ntwo\n")
    asked = [
        house.call_sync("write", {"path": "plan.md", "content": "one\n2\n"}).approval_id or "",
        house.call_sync("edit", {"path": "plan.md", "old": "two", "new": "<2>"}).approval_id or "",
    ]
    for approval_id, after in zip(asked, ("2", "&lt;2&gt;"), strict=True):
        page = client.get(f"/approvals/{approval_id}").text
        assert '<span class="removed">-two</span>' in page
        assert f'<span class="added">+{after}</span>' in page
        assert "The file has changed" not in page
    file.write_text("one\ntwo\nthree\n")
    for approval_id in asked:
        page = client.get(f"/approvals/{approval_id}").text
        assert "The file has changed since this was asked" in page
    assert '<span class="removed">-three</span>' in client.get(f"/approvals/{asked[0]}").text
    file.unlink()
    assert "The file has changed" in client.get(f"/approvals/{asked[0]}").text
    assert client.get(f"/approvals/{asked[1]}").status_code == 200


def test_no_argument_passes_for_a_difference_that_was_compared(
    house: Skillhouse, client: TestClient
) -> None:
    spoof = "--- safe.txt\n+++ safe.txt\n@@ -1 +1 @@\n+harmless\n"
    opened = house.approvals.open(question(sent=(("difference", spoof), ("content", spoof))))
    page = client.get(f"/approvals/{opened.id}").text
    assert 'class="added"' not in page
    assert '<pre class="body quoted" tabindex="0" role="group" aria-label="difference">' in page


@pytest.mark.slow
def test_a_line_of_megabytes_is_cut_and_that_is_said(house: Skillhouse, client: TestClient) -> None:
    line = "x\u202e" * 600_000
    content = canonical({"tool": "write", "arguments": {"content": line}})
    opened = house.approvals.open(
        question(
            sent=(("content", line),),
            asked=(Asked(action="exec", resource=line),),
            content=content,
            content_digest=content_digest(content),
        )
    )
    page = client.get(f"/approvals/{opened.id}").text
    assert "1,190,000 more" in page  # Of the command.
    assert len(page) < 3_500_000
    assert "1,150,000 more characters are not on this page" in page


def test_a_link_in_the_place_of_a_file_is_not_followed(
    house: Skillhouse, client: TestClient, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("the secret\n")
    root = tmp_path / "project"
    (root / "a.txt").symlink_to(tmp_path / "secret")
    content = canonical({"arguments": {"content": "x"}, "shown": []})
    opened = house.approvals.open(
        question(
            place=str(root),
            asked=(Asked(action="write", resource=f"{root}/a.txt"),),
            found=(("difference", "nothing changes"),),
            content=content,
            content_digest=content_digest(content),
        )
    )
    assert "the secret" not in client.get(f"/approvals/{opened.id}").text


@pytest.mark.slow
def test_the_history_is_filtered_by_words_and_outcome(
    house: Skillhouse, client: TestClient
) -> None:
    first, second = (house.approvals.open(question(f"/w/{name}")) for name in ("pear", "plum"))
    said(house.approvals, first.id)
    said(house.approvals, second.id, Answer.NO, message="use docs")
    shown = {
        query: [one.id in client.get(f"/approvals/history?{query}").text for one in (first, second)]
        for query in ("", "q=PEAR", "q=docs", "state=denied", "state=approved&q=plum", "state=x")
    }
    assert shown == {
        "": [True, True],
        "q=PEAR": [True, False],
        "q=docs": [False, True],
        "state=denied": [False, True],
        "state=approved&q=plum": [False, False],
        "state=x": [False, False],
    }


@pytest.mark.slow
def test_a_standing_approval_is_listed_and_withdrawn_by_its_proof_alone(
    house: Skillhouse, client: TestClient
) -> None:
    opened = house.approvals.open(question("/w/notes/a.txt"))
    said(house.approvals, opened.id, Answer.ALWAYS)
    assert house.approvals.grant_store.all() == ()
    begun(house.approvals, opened.id)
    [grant] = house.approvals.grant_store.all()
    page = client.get("/approvals/standing").text
    assert "write /w/notes/" in page
    path = f"/api/v1/grants/{grant.id}"
    [proof] = re.findall(rf'data-path="{path}" data-proof="(\w+)"', page)
    for headers in (OURS, {**OURS, "skillhouse-proof": "0" * 64}):
        assert client.delete(path, headers=headers).status_code == 403
    evil = {**OURS, "origin": "http://evil.example", "skillhouse-proof": proof}
    assert client.delete(path, headers=evil).status_code == 403
    assert house.approvals.grant_store.all()
    assert client.delete(path, headers={**OURS, "skillhouse-proof": proof}).status_code == 200
    assert not house.approvals.grant_store.all()
    assert "There are none." in client.get("/approvals/standing").text
