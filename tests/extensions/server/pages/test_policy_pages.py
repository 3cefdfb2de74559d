"""Tests of extensions/server/pages/policy_pages.py and presentation/rule_changes.py."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.api.place import client_of
from tests.extensions.server.pages.served import COOKIE, OURS
from tests.house.places import make_places

from skillhouse.house import Skillhouse, configured
from skillhouse.install import RepositoryRefresh

pytestmark = pytest.mark.slow

RULES = """# mine
[[rules]]
effect = "ask"
action = "exec"
pattern = "git push *"
reason = "others <b>see</b> it"

[[rules]]
effect = "allow"
action = "exec"
patterns = ["git log *", "git status *"]

[[rules]]
effect = "deny"
action = "exec"
pattern = "git log *"

[[agents.planner.rules]]
effect = "deny"
action = "write"
pattern = "*"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(RULES)
    places.user_file.chmod(0o600)
    return places.user_file


@pytest.fixture
def house(file: Path, tmp_path: Path) -> Iterator[Skillhouse]:
    with Skillhouse(configured(make_places(tmp_path))) as house:
        yield house


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    return client_of(house, COOKIE, session="session-of-this-start")


def rows(page: str, caption: str) -> list[list[str]]:
    """Return the cells of a table as texts."""
    table = page.partition(f">{caption}</caption>")[2].partition("</table>")[0]
    cells = [re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL) for row in table.split("<tr")[2:]]
    return [[" ".join(re.sub(r"<.*?>", " ", cell).split()) for cell in row] for row in cells]


def test_rules_are_listed_by_layer_with_file_line_and_findings(
    client: TestClient, file: Path
) -> None:
    page = client.get("/policy").text
    assert f">{file}</p>" in page.replace("<wbr>", "")
    listed = rows(page, "Rules of user")
    assert [(row[0], row[2]) for row in listed] == [("1", "2"), ("2", "8"), ("3", "8"), ("4", "13")]
    assert "git push * others &lt;b&gt;see&lt;/b&gt; it" in listed[0][1]
    assert "rule-unreachable" in listed[1][1]
    assert rows(page, "Rules of agent planner") == [["1", "permission: deny write * Calls", "18"]]


def test_a_rule_without_lines_of_its_own_has_no_line(client: TestClient, file: Path) -> None:
    file.write_text('rules = [{effect = "deny", action = "exec", pattern = "rm *"}]\n')
    listed = rows(client.get("/policy").text, "Rules of user")
    assert [row[2] for row in listed] == [""]


def test_a_file_that_cannot_be_used_is_said(client: TestClient, file: Path) -> None:
    assert client.get("/policy").status_code == 200
    file.write_text("[[rules]\n")
    page = client.get("/policy").text
    assert "Not every rule was read" in page
    assert "not TOML" in page


def test_an_action_is_decided_with_the_rules_that_match_and_each_command(
    client: TestClient,
) -> None:
    asked = {"action": "exec", "resource": "git status | git push origin"}
    page = client.get("/policy", params=asked).text
    assert rows(page, "How the line was read")[0][:1] == ["git status"]
    matched = rows(page, "Rules that match")
    assert any("git push *" in row[0] and row[1] == "user 1" for row in matched)
    agent = {"action": "write", "resource": "/x", "agent": "planner"}
    assert "permission: </span>deny" in client.get("/policy", params=agent).text
    unknown = client.get("/policy", params={**asked, "agent": "nobody<i>"})
    assert (unknown.status_code, "<i>" in unknown.text) == (200, False)


def change_on(page: str) -> tuple[str, str, dict[str, str], object]:
    """Return method, path, headers and body of the one change that a page offers."""
    [form] = re.findall(r"<form class=\"change\".*?>", page)
    data = {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="(.*?)"', form)}
    body = re.findall(r"data-body='(.*?)'", form)
    headers = {**OURS, "skillhouse-proof": data["proof"], "if-match": data["match"]}
    return data["method"], data["path"], headers, json.loads(body[0]) if body else None


def test_a_rule_is_added_after_its_preview(
    house: Skillhouse, client: TestClient, file: Path
) -> None:
    house.call_sync("exec", {"command": "npm run build"})
    pattern = "npm \"<script>' *"
    for asked, count in (("npm *", 1), (pattern, 0)):
        query = {"effect": "deny", "action": "exec", "pattern": asked, "reason": ""}
        page = client.get("/policy/add", params=query).text
        assert "<script>'" not in page
        assert '<span class="added">+effect = &#34;deny&#34;</span>' in page
        found = rows(page, "What would be decided differently")
        assert len(found) == count
    assert found == []
    assert file.read_text() == RULES
    method, path, headers, body = change_on(page)
    assert body == {"effect": "deny", "action": "exec", "pattern": pattern}
    done = client.request(method, path, headers=headers, json=body)
    assert done.status_code == 201
    assert file.read_text().startswith(RULES)
    assert "npm" in file.read_text()
    # The same preview again is one of other rules.
    late = client.request(method, path, headers=headers, json=body)
    assert (late.status_code, late.json()["code"]) == (412, "changed")


def test_what_a_preview_says_is_what_is_decided_afterwards(
    house: Skillhouse, client: TestClient
) -> None:
    house.call_sync("exec", {"command": "npm run build"})
    query = {"effect": "deny", "action": "exec", "pattern": "npm *"}
    page = client.get("/policy/add", params=query).text
    [[permission, now, then]] = rows(page, "What would be decided differently")
    assert (permission, now[-3:], then[-4:]) == ("exec npm run build", "ask", "deny")
    method, path, headers, body = change_on(page)
    client.request(method, path, headers=headers, json=body)
    asked = {"action": "exec", "resource": "npm run build"}
    decided = client.get("/policy", params=asked).text
    assert rows(decided, "How the line was read")[0][1].startswith("permission: deny")


def test_a_rule_is_removed_after_its_preview(client: TestClient, file: Path) -> None:
    page = client.get("/policy/remove/0").text
    assert '<span class="removed">-pattern = &#34;git push *&#34;</span>' in page
    method, path, headers, _ = change_on(page)
    for missing in ("skillhouse-proof", "if-match"):
        sent = {key: value for key, value in headers.items() if key != missing}
        assert client.request(method, path, headers=sent).status_code in (403, 428)
    evil = {**headers, "origin": "http://evil.example"}
    assert client.request(method, path, headers=evil).status_code == 403
    other = client.request(method, path.replace("/0", "/3"), headers=headers)
    assert (other.status_code, other.json()["code"]) == (403, "proof-wanted")
    assert file.read_text() == RULES
    assert client.request(method, path, headers=headers).status_code == 200
    assert "git push" not in file.read_text()


def test_a_file_that_changed_after_the_preview_is_not_changed(
    client: TestClient, file: Path
) -> None:
    method, path, headers, _ = change_on(client.get("/policy/remove/0").text)
    changed = RULES.replace("git push *", "git fetch *")
    file.write_text(changed)
    late = client.request(method, path, headers=headers)
    assert (late.status_code, late.json()["code"]) == (412, "changed")
    assert file.read_text() == changed


@pytest.mark.parametrize("index", [1, 2])
def test_a_rule_without_lines_of_its_own_is_not_removed(client: TestClient, index: int) -> None:
    answer = client.get(f"/policy/remove/{index}")
    assert (answer.status_code, "no lines of its own" in answer.text) == (422, True)
    assert "<form" not in answer.text.partition("<main")[2].partition("</main>")[0]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/policy/remove/99", 422),
        ("/policy/remove/-1", 404),
        ("/policy/add?effect=maybe&action=exec&pattern=x", 404),
        ("/policy/add?effect=deny&action=x&pattern=x", 404),
        ("/policy/add?effect=deny&action=exec&pattern=", 422),
    ],
)
def test_what_cannot_be_changed_is_said(client: TestClient, path: str, status: int) -> None:
    assert client.get(path).status_code == status


@pytest.mark.one_server("agent")
def test_a_page_that_changes_nothing_offers_no_change(house: Skillhouse) -> None:
    client = client_of(
        house, COOKIE, session="session-of-this-start", read_only="an agent runs this"
    )
    page = client.get("/policy").text
    assert "Remove…" not in page
    assert 'action="/policy/add"' not in page
    preview = client.get("/policy/remove/0").text
    assert "an agent runs this" in preview
    assert "data-proof" not in preview


def body_of(page: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the address, the body and the headers that the button of a preview sends."""
    [path] = re.findall(r'<form class="change"[^>]*data-path="([^"]+)"', page)
    [proof] = re.findall(r'<form class="change"[^>]*data-proof="([^"]+)"', page)
    [tag] = re.findall(r'data-match="([^"]*)"', page)
    [body] = re.findall(r"data-body='([^']*)'", page)
    sent = {"skillhouse-proof": proof, "if-match": html.unescape(tag), **OURS}
    return path, json.loads(html.unescape(body)), sent


def test_each_action_of_the_form_is_explained_and_profiles_are_elsewhere(
    client: TestClient,
) -> None:
    page = client.get("/policy").text
    choices = page.partition('id="add-action"')[2].partition("</select>")[0]
    for action in re.findall(r"<option[^>]*>([^<]+)", choices):
        assert f"<div><dt><code>{action}</code></dt><dd>" in page
    assert "Compared with" not in page


@pytest.mark.parametrize(
    ("action", "pattern", "warned"),
    [
        ("exec", 'git *; rm "', "a word with a double quote"),
        ("exec", "git *; rm x", "each command of a line is judged by itself"),
        ("exec", "make & x", "each command of a line is judged by itself"),
        ("exec", "sort > out.txt", "the files that a line reads and writes"),
        ("read", "docs/*", "paths are absolute"),
        ("fetch", "https://example.com/*", "a method comes first"),
        ("fetch", "GET https://example.com", ""),
        ("fetch", "*", ""),
        ("fetch", "https://example.com", "a method comes first"),
        ("exec", "git log *", ""),
        ("exec", "echo 'a\"b' *", ""),
    ],
)
def test_a_rule_that_can_match_nothing_is_warned_of_before_it_is_made(
    client: TestClient, action: str, pattern: str, warned: str
) -> None:
    asked = {"effect": "deny", "action": action, "pattern": pattern}
    page = client.get("/policy/add", params=asked).text
    assert ("rule-no-effect" in page, warned in page) == (bool(warned), True)


def test_a_rule_is_changed_in_its_place_and_said_to_be(client: TestClient, file: Path) -> None:
    listed = client.get("/policy").text
    assert "/policy?change=0#add-title" in listed
    form = client.get("/policy?change=0").text
    assert 'action="/policy/change/0"' in form
    assert 'value="others &lt;b&gt;see&lt;/b&gt; it"' in form
    asked = {"effect": "deny", "action": "exec", "pattern": "git push *", "reason": "no"}
    preview = client.get("/policy/change/0", params=asked).text
    assert "Nothing was written yet" in preview
    path, body, sent = body_of(preview)
    assert client.put(path, json=body, headers=sent).status_code == 200
    wanted = RULES.replace('effect = "ask"', 'effect = "deny"', 1)
    assert file.read_text() == wanted.replace("others <b>see</b> it", "no")
    assert 'data-done="/policy" data-said="The rule was changed."' in preview
    # Two patterns share the lines of one table.
    refused = client.get("/policy/change/1", params=asked)
    assert (refused.status_code, "by hand" in refused.text) == (422, True)
    copied = client.get("/policy?copy=3").text
    assert 'action="/policy/add"' in copied
    assert "<option selected>deny</option>" in copied
    assert client.get("/policy?change=99").text.count('action="/policy/add"') == 1


def test_a_fresh_home_sets_a_starting_policy_by_a_button(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with Skillhouse(configured(places)) as house:
        client = client_of(house, COOKIE, session="session-of-this-start")
        page = client.get("/policy").text
        assert "Use this policy" in page
        assert 'data-said="The starting policy is now careful."' in page
        found = re.findall(r'data-path="/api/v1/policy/starting" data-proof="([^"]+)"', page)
        sent = {"skillhouse-proof": found[0], **OURS}
        answer = client.put("/api/v1/policy/starting", json={"policy": "careful"}, headers=sent)
        assert answer.status_code == 200
        assert places.user_file.read_text() == 'policy = "careful"\n'
        after = client.get("/policy").text
        assert "Use this policy" not in after
        wrong = client.put("/api/v1/policy/starting", json={"policy": "x"}, headers=sent)
        assert wrong.status_code == 400


def test_a_fresh_home_adds_a_repository_by_a_form(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    with Skillhouse(configured(places)) as house:
        client = client_of(house, COOKIE, session="session-of-this-start")
        page = client.get("/packages").text
        [proof] = re.findall(r'data-path="/api/v1/repositories" data-proof="([^"]+)"', page)
        sent = {"skillhouse-proof": proof, **OURS}
        asked = {"name": "team", "url": "https://skills.example.com"}
        answer = client.post("/api/v1/repositories", json=asked, headers=sent)
        assert (answer.status_code, answer.json()["trusted"]) == (201, False)
        for wrong in ({"name": "team", "url": "https://x.example"}, {"name": "b", "url": "ftp://"}):
            refused = client.post("/api/v1/repositories", json=wrong, headers=sent)
            assert refused.status_code == 422, wrong
        assert places.user_file.read_text().count("[[skills.repositories]]") == 1
        assert ">team</a>" in client.get("/packages").text


def test_the_page_of_packages_says_when_a_repository_was_asked_by_itself(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_text(
        '[[skills.repositories]]\nname = "team"\nurl = "/mirror"\nrefresh = "24h"\n'
    )
    with Skillhouse(configured(places)) as house:
        page = client_of(house, COOKIE, session="session-of-this-start").get("/packages").text
        assert "was not asked yet" in page
        RepositoryRefresh(house).look()
        page = client_of(house, COOKIE, session="session-of-this-start").get("/packages").text
        assert "what it took down" in page
