"""Tests of extensions/server/pages/clients_page.py: the table, the lens, and a mend by the API."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.pages.served import OURS
from tests.extensions.server.pages.test_system_page import client_of
from tests.extensions.server.test_http_app import Page
from tests.harness import until
from tests.house.places import make_places, write_skill

from skillhouse.clients import ClientReport
from skillhouse.extensions.server.pages import clients_page
from skillhouse.extensions.server.pages.clients_page import ROWS_MAX
from skillhouse.house import Skillhouse, configured
from skillhouse.presentation.doctor_values import seen_by
from skillhouse.tools import Caller

pytestmark = pytest.mark.slow

BROKEN = "---\nname: broken\ndescription: > Use when: asked\n---\n<script>alert(1)</script>\n"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    places = make_places(tmp_path)
    (places.home / ".codex").mkdir()
    (places.home / ".codex/config.toml").write_text("")
    write_skill(places.home / ".agents/skills/notes")
    write_skill(places.home / ".agents/skills/broken")
    (places.home / ".agents/skills/broken/SKILL.md").write_text(BROKEN)
    write_skill(places.home / ".claude/skills/elsewhere")
    with Skillhouse(configured(places)) as house:
        yield house


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    return client_of(house)


def fixes_on(client: TestClient) -> dict[str, tuple[str, str, str]]:
    """Return the mends of the page by the text of each: address, proof and digest."""
    found = {}
    for text in re.findall(
        r'<article class="fix".*?</article>', client.get("/clients").text, re.DOTALL
    ):
        (path, proof) = re.findall(r'data-path="([^"]*)" data-proof="(\w+)"', text)[0]
        (digest,) = re.findall(r'name="digest" value="([^"]*)"', text)
        found[Page(text).text] = (path, proof, digest)
    return found


def test_the_table_has_each_skill_with_the_verdict_of_each_client(client: TestClient):
    page = Page(client.get("/clients").text)
    for expected in ("codex", "default", "notes", "~/.agents/skills/broken", "not in its folders"):
        assert expected in page.text
    one = Page(client.get("/clients?client=claude-code").text)
    assert "claude-code" in one.text
    assert "elsewhere" in one.text
    assert client.get("/clients?client=all").status_code == 200
    for unknown in ("nothing", "../../etc/passwd"):
        assert client.get("/clients", params={"client": unknown}).status_code == 404


def test_a_mend_is_shown_and_made_once_and_not_when_its_file_changed(
    client: TestClient, tmp_path: Path
):
    file = tmp_path / "home/.agents/skills/broken/SKILL.md"
    (text,) = [one for one in fixes_on(client) if "broken" in one and "Use when" in one]
    assert "-description: > Use when: asked" in text
    path, proof, digest = fixes_on(client)[text]
    file.write_text(BROKEN.replace("asked", "wanted"))
    body, headers = {"digest": digest}, {**OURS, "skillhouse-proof": proof}
    assert client.post(path, json=body, headers=headers).status_code == 409
    assert "wanted" in file.read_text()
    file.write_text(BROKEN)
    assert client.post(path, json=body, headers=OURS).status_code == 403
    assert client.post(path, json=body, headers=headers).status_code == 200
    assert file.read_text() != BROKEN
    assert client.post(path, json=body, headers=headers).status_code == 404
    assert text not in fixes_on(client)


def test_many_mends_of_a_kind_are_one_answer(client: TestClient, tmp_path: Path):
    files = [tmp_path / f"home/.agents/skills/s{n}/SKILL.md" for n in range(3)]
    for n, file in enumerate(files):
        file.parent.mkdir()
        file.write_text(f"---\nname: s{n}\ndescription: > Reads {n}.\n---\n")
    text = client.get("/clients").text
    assert text.index('id="matrix"') < text.index('id="fixes"')
    (form,) = re.findall(r'<form [^>]*data-path="/api/v1/fixes"[^>]*>', text)
    (proof,) = re.findall(r'data-proof="(\w+)"', form)
    body = json.loads(html.unescape(re.findall(r'data-body="([^"]*)"', form)[0]))
    assert len(body["fixes"]) >= 3
    headers = {**OURS, "skillhouse-proof": proof}
    assert client.post("/api/v1/fixes", json=body, headers=OURS).status_code == 403
    # Nothing is made where one of them is not what was shown.
    changed = {"fixes": [*body["fixes"][:-1], {**body["fixes"][-1], "digest": "sha256:00"}]}
    assert client.post("/api/v1/fixes", json=changed, headers=headers).status_code == 409
    assert not [file for file in files if "'Reads" in file.read_text()]
    made = client.post("/api/v1/fixes", json=body, headers=headers).json()
    assert (made["total"], made["refused"]) == (len(body["fixes"]), [])
    assert [f"'Reads {n}.'" in file.read_text() for n, file in enumerate(files)] == [True] * 3


def test_text_of_a_skill_is_no_markup_in_a_difference(client: TestClient):
    assert "<script>alert" not in client.get("/clients").text


@pytest.mark.one_server("agent")
def test_a_read_only_page_shows_mends_and_makes_none(house: Skillhouse):
    text = client_of(house, read_only="an agent serves it").get("/clients").text
    assert '<article class="fix"' in text
    assert "data-path" not in text


def test_the_table_is_bounded_and_shows_what_differs_first(house: Skillhouse, client: TestClient):
    home = house.config.places.home
    for number in range(ROWS_MAX + 5):
        write_skill(home / f".agents/skills/many-{number}")
    text = client.get("/clients").text
    assert text.count('<tr role="row" data-text=') == ROWS_MAX
    first = re.findall(r'<tr role="row" data-text="([^"]*)"', text)[:2]
    assert any("broken" in one or "elsewhere" in one for one in first)


def test_the_table_is_narrowed_by_folder_and_client(client: TestClient):
    def shown(**query: str) -> set[str]:
        rows = re.findall(
            r'<th scope="row"[^>]*>(?:<a [^>]*>)?<bdi>([^<]*)</bdi>',
            client.get("/clients", params={"client": "claude-code", **query}).text,
        )
        return set(rows)

    every = shown()
    assert {"notes", "broken", "elsewhere"} <= every
    in_folder = shown(folder="~/.claude/skills")
    assert "elsewhere" in in_folder
    assert "notes" not in in_folder
    seen, unseen = shown(by="claude-code"), shown(by="-claude-code")
    assert "elsewhere" in seen
    assert "notes" in unseen
    assert (seen | unseen, seen & unseen) == (every, set())
    assert "No skill fits this filter." in client.get("/clients?folder=/none").text


def test_names_lead_to_skills_and_clients_and_numbers_to_the_list(client: TestClient):
    answer = client.get("/clients")
    page = Page(answer.text)
    assert {"/skills/user:notes", "/clients/codex", "/"} <= set(page.links)
    # One box that scrolls in one direction.
    assert "max-height" not in client.get("/clients.css").text
    listed = re.findall(r"The <a href=./.>list of skills</a> has (\d+)", answer.text)
    rows = json.loads(client.get("/api/v1/library").text)["total"]
    assert listed == [str(rows)]


def test_each_client_has_a_page_of_what_it_sees_called_and_was_denied(
    house: Skillhouse, client: TestClient
):
    caller = Caller(client="codex-mcp-client", client_info="codex-mcp-client 0.9 <b>")
    house.call_sync("skill", {"name": "notes"}, caller=caller)
    house.call_sync("exec", {"command": "rm -rf /"}, caller=caller)
    house.call_sync("exec", {"command": "git push"}, caller=caller)
    answer = client.get("/clients/codex")
    page = Page(answer.text)
    text = " ".join(page.text.split())
    assert "/skills/user:notes" in page.links
    assert len([one for one in page.links if one.startswith("/calls/")]) >= 3, page.links
    assert any(one.startswith("/approvals/") and "standing" not in one for one in page.links)
    assert "no rule allows this: rm of /" in text
    assert "sees it" in text
    assert "<b>" not in answer.text.partition("<main")[2]
    # Of a client that only the log knows there is what it called.
    assert "What it sees" not in client.get("/clients/codex-mcp-client").text
    for unknown in ("nothing", "<script>"):
        assert client.get("/clients/" + unknown).status_code == 404
    assert client.get("/clients/exports").status_code == 200


def _edit(home: Path) -> None:
    file = home / ".agents/skills/notes/SKILL.md"
    # Of the same size and time of change.
    times = file.stat()
    file.write_text(file.read_text().replace("name: notes", "name: notez"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _unread_folder(home: Path) -> None:
    write_skill(home / ".unknown/skills/there")


def _link(home: Path) -> None:
    (home / ".codex/skills").mkdir()
    (home / ".codex/skills/linked").symlink_to(write_skill(home / "far/linked"))


def _behind_a_link(home: Path) -> None:
    (home / "far/before/SKILL.md").write_text(BROKEN)


CHANGES: dict[str, Callable[[Path], object]] = {
    "edited": _edit,
    "added": lambda home: write_skill(home / ".agents/skills/added"),
    "nested": lambda home: write_skill(home / ".agents/skills/notes/inside/deep"),
    "gone": lambda home: shutil.rmtree(home / ".claude/skills/elsewhere"),
    "a first skill": lambda home: write_skill(home / ".codex/skills/first"),
    "a folder that no client reads": _unread_folder,
    "a folder in an empty one": lambda home: write_skill(home / ".empty/skills/there"),
    "linked": _link,
    "edited behind a link": _behind_a_link,
    "wrong case": lambda home: (home / ".agents/skills/odd/skill.MD").write_text(""),
}


def looked_at(client: TestClient) -> str:
    """Return the page of clients without what it has of the list of skills, a second old."""
    text = client.get("/clients").text
    return re.sub(r"list of skills has \d+", "", Page(text).text)


@pytest.mark.parametrize("change", CHANGES)
def test_a_look_is_used_again_until_something_changed(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    home = house.config.places.home
    (home / ".empty").mkdir()
    (home / ".agents/skills/odd").mkdir()
    before = write_skill(home / "far/before")
    (home / ".claude/skills/before").symlink_to(before)
    looks: list[object] = []

    def seen(*given: Any) -> ClientReport:
        looks.append(given)
        return seen_by(*given)

    monkeypatch.setattr(clients_page, "seen_by", seen)
    client = client_of(house)

    def is_kept() -> bool:
        count = len(looks)
        client.get("/clients")
        return len(looks) == count

    assert until(is_kept)
    before_it = looked_at(client)
    CHANGES[change](home)
    assert before_it != looked_at(client) == looked_at(client_of(house))
