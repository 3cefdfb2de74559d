"""Tests of extensions/server/pages/system_page.py: what it shows, and what its buttons may do."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient
from tests.executors import answering
from tests.extensions.server.pages.served import OURS, PORT
from tests.extensions.server.test_http_app import Page
from tests.house.places import make_places, write_skill

from skillhouse.extensions.server.app import make_app
from skillhouse.extensions.server.pages.languages import finding_texts
from skillhouse.floor.structs import replace
from skillhouse.house import Skillhouse, configured
from skillhouse.house.access_tokens import AccessScope
from skillhouse.presentation.sandbox_levels import LEVELS

pytestmark = pytest.mark.slow

BASE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    places = make_places(tmp_path)
    write_skill(places.home / ".agents/skills/notes")
    write_skill(places.start / ".agents/skills/unread")
    broken = places.home / ".agents/skills/broken"
    broken.mkdir()
    (broken / "SKILL.md").write_text("---\nname: 'x\n---\n")
    with Skillhouse(configured(places)) as house:
        yield house


def client_of(house: Skillhouse, *, read_only: str = "") -> TestClient:
    app = make_app(
        house, token="token", port=PORT, session="session-of-this-start", read_only=read_only
    )
    client = TestClient(app, BASE, raise_server_exceptions=False, follow_redirects=False)
    client.headers.update(OURS)
    return client


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    return client_of(house)


def attributes_of(text: str, path: str) -> dict[str, str]:
    """Return the attributes by which an element of a page acts at an address."""
    [found] = re.findall(rf'data-method="[A-Z]+" data-path="{path}" data-proof="\w+"', text)
    return {name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', found)}


def test_a_finding_is_in_chinese_with_its_english_words_beneath(client: TestClient):
    text = finding_texts("zh")["yaml-error"]
    beneath = '<br><span class="note" lang="en">'
    english = client.get("/system", headers={"accept-language": "en"}).text
    chinese = client.get("/system", headers={"accept-language": "zh"}).text
    assert text + beneath in chinese
    assert beneath not in english
    words = re.findall(r'<td role="cell">(.+) <code class="code">yaml-error', english)
    assert len(words) == 1
    assert f"{text}{beneath}{words[0]}</span>" in chinese


@pytest.mark.one_server("inside")
def test_a_state_on_a_server_is_named_before_its_directory(
    house: Skillhouse, monkeypatch: pytest.MonkeyPatch
):
    page = client_of(house).get("/system").text
    assert "postgresql://" not in page
    # The house has its state by then, which stays where it is.
    settings = replace(house.config.state, url="postgresql://db.example.org/team")
    config = replace(house.config, state=settings)
    monkeypatch.setattr(Skillhouse, "config", property(lambda _: config))
    page = client_of(house).get("/system").text
    assert "postgresql://db.example.org/team<br>" in page


def house_with_executors(base: Path, *addresses: str) -> Skillhouse:
    places = make_places(base)
    (base / "token").write_text("t" * 40)
    configuration = places.home / ".config/skillhouse/config.toml"
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text(
        f'[skill_code]\nenabled = true\nexecutor_token = "file:{base}/token"\n'
        f"[skill_code.executors]\npython = {json.dumps(addresses)}\n"
    )
    return Skillhouse(configured(places))


def executors_of(page: str) -> list[list[str]]:
    [table] = re.findall(r'<table role="table" class="keys executors">.*?</table>', page, re.DOTALL)
    rows = [re.findall(r"<td.*?</td>", row, re.DOTALL) for row in table.split("<tr")[2:]]
    return [[" ".join(Page(cell).text.split()) for cell in row] for row in rows]


def test_who_looks_at_one_time_shares_one_look_at_the_executors(tmp_path: Path) -> None:
    asked_at: list[float] = []

    def slow(asked: dict[str, Any], _: dict[str, str]) -> tuple[int, Any]:
        asked_at.append(time.monotonic())
        time.sleep(0.5)
        return 200, {"jsonrpc": "2.0", "result": {"status": "ok"}, "id": asked["id"]}

    with answering(slow) as address, house_with_executors(tmp_path, address) as house:
        paths = ["/api/v1/executors", "/system", "/api/v1/executors"]
        clients = [client_of(house) for _ in paths]
        with ThreadPoolExecutor(len(paths)) as pool:
            found = list(pool.map(lambda one, path: one.get(path), clients, paths))
    assert [one.status_code for one in found] == [200] * 3
    assert len(asked_at) == 1
    assert found[0].json()["executors"] == found[2].json()["executors"]


def test_executors_are_shown_with_what_they_say_and_how_they_answer(tmp_path: Path):
    def says(asked: dict[str, Any], _: dict[str, str]) -> tuple[int, Any]:
        own = {"name": "one", "version": "0.1.0", "level": "container+landlock+seccomp"}
        health = {"status": "ok", **own, "calls": 8, "most": 8, "is_ready": True}
        return 200, {"jsonrpc": "2.0", "result": health, "id": asked["id"]}

    with answering(says) as first, answering(lambda asked, _: (502, {})) as second:
        places = [urlsplit(url).netloc for url in (first, second)]
        with house_with_executors(tmp_path, first, second) as house:
            client = client_of(house)
            page = client.get("/system").text
            found = client.get("/api/v1/executors").json()["executors"]
    full, silent = executors_of(page)
    assert full[:4] == [
        f"{places[0]} one 0.1.0 python", "full", "8/8", "container+landlock+seccomp not asked yet",
    ]  # fmt: skip
    assert re.fullmatch(r".+ in \d+ ms", full[4])
    assert silent[0] == f"{places[1]} without a name python"
    assert silent[1].startswith("no answer the server at")
    assert silent[2:] == ["not said", "not asked yet", "never"]
    assert [(one["id"], one["state"], one["runs"]) for one in found] == [
        (places[0], "full", ["python"]), (places[1], "silent", ["python"]),
    ]  # fmt: skip
    assert (found[0]["calls"], found[0]["most"], found[0]["name"]) == (8, 8, "one")


def test_executors_that_cannot_be_asked_are_a_fault_that_is_shown(tmp_path: Path):
    with house_with_executors(tmp_path, "http://127.0.0.1:9/rpc") as house:
        (tmp_path / "token").unlink()
        client = client_of(house)
        assert "cannot read the token" in client.get("/system").text
        assert client.get("/api/v1/executors").status_code == 422


def test_without_executors_elsewhere_nothing_is_shown_of_them(client: TestClient):
    assert 'id="executors"' not in client.get("/system").text
    assert client.get("/api/v1/executors").json()["executors"] == []


def test_the_page_that_writes_a_skill_has_the_texts_of_findings(client: TestClient):
    for language in ("en", "zh"):
        page = client.get("/new", headers={"accept-language": language}).text
        [texts] = re.findall(r'data-texts="([^"]*)"', page)
        assert json.loads(unescape(texts)) == finding_texts(language)


def test_the_page_shows_roots_findings_trust_files_and_the_log(client: TestClient, tmp_path: Path):
    answer = client.get("/system")
    assert answer.status_code == 200
    text = Page(answer.text).text
    for expected in (
        f"{tmp_path}/home/.agents/skills",
        "yaml-error",
        "not read: not trusted",
        "Look at its skills",
        f"{tmp_path}/home/.config/skillhouse/config.toml",
        f"{tmp_path}/home/.local/state/skillhouse/audit.jsonl",
        "OpenTelemetry SDK",
    ):
        assert expected in text
    assert 'action="/approvals/stop"' in answer.text


def test_the_page_of_trust_has_what_other_clients_find_and_where_links_lead(
    house: Skillhouse, client: TestClient, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    write_skill(project / ".gemini/skills/gem")
    odd = write_skill(project / ".claude/skills/odd") / "SKILL.md"
    odd.write_text("---\nname: other\ndescription: Fixes things.\n---\nBody.\n")
    (tmp_path / "shared.md").write_text("Shared.\n")
    (project / ".agents/skills/unread/shared.md").symlink_to(tmp_path / "shared.md")
    text = " ".join(Page(client.get("/system/trust").text).text.split())
    assert "Not found here, but by gemini-cli" in text
    assert re.search(r"Read otherwise by claude-code[\w, -]*: odd ?, Fixes things\.", text)
    assert f"A link leads out of the project: {tmp_path}/shared.md" in text
    house.project_trust.trust()
    assert "This project is trusted" in client.get("/system/trust").text


def test_every_level_of_the_sandbox_is_tested_when_it_is_asked_for(client: TestClient):
    assert "/system?sandbox=test#sandbox" in Page(client.get("/system").text).links
    text = client.get("/system?sandbox=test").text
    for level in LEVELS:
        assert f"<code>{level}</code>" in text
    assert len(re.findall(r'class="effect effect-(?:allow|deny)"', text)) == len(LEVELS)


def test_a_token_is_revoked_by_its_button_and_by_no_other_proof(
    house: Skillhouse, client: TestClient
):
    tokens = house.services.enforcement.access_tokens
    kept, _ = tokens.new("kept", [AccessScope.READ])
    gone, _ = tokens.new("dashboard", [AccessScope.READ], agent="default", days=3)
    text = client.get("/system").text
    assert "dashboard" in text
    button = attributes_of(text, f"/api/v1/tokens/{gone.id}")
    other = attributes_of(text, f"/api/v1/tokens/{kept.id}")
    for wrong in ("", other["data-proof"]):
        answer = client.delete(button["data-path"], headers={"skillhouse-proof": wrong})
        assert answer.status_code == 403
    proof = {"skillhouse-proof": button["data-proof"]}
    assert client.delete(button["data-path"], headers=proof).json()["name"] == "dashboard"
    assert [one.name for one in tokens.all() if one.kind == "token"] == ["kept"]
    assert client.delete(button["data-path"], headers=proof).status_code == 404


def test_a_stop_is_lifted_by_typing_the_word(house: Skillhouse, client: TestClient):
    house.services.enforcement.stop("local", "a drill")
    text = client.get("/system").text
    assert "a drill" in text
    assert 'action="/approvals/stop"' not in text
    form = attributes_of(text, "/api/v1/resume")
    proof = {"skillhouse-proof": form["data-proof"]}
    wrong = client.post("/api/v1/resume", json={"confirm": "yes"}, headers=proof)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "wrong-body")
    assert client.post("/api/v1/resume", json={"confirm": "resume"}, headers=proof).json() == {
        "resumed": True
    }
    assert not house.services.enforcement.tiers.is_stopped


@pytest.mark.one_server("agent")
def test_a_read_only_page_offers_no_change_but_the_stop(house: Skillhouse):
    house.services.enforcement.access_tokens.new("kept", [AccessScope.READ])
    client = client_of(house, read_only="an agent serves it")
    text = client.get("/system").text
    assert "data-path" not in text
    assert 'action="/approvals/stop"' in text
    house.services.enforcement.stop("local", "a drill")
    assert "data-path" not in client.get("/system").text


def test_findings_of_one_code_are_one_row_with_a_link_for_each(tmp_path: Path):
    places = make_places(tmp_path)
    root = places.home / ".agents/skills"
    for at in range(17):
        file = write_skill(root / f"many-{at:02}") / "SKILL.md"
        text = file.read_text().replace("\n---\nBody", "\nallowed-tools: Read, Write\n---\nBody")
        file.write_text(text)
    broken = root / "broken"
    broken.mkdir()
    (broken / "SKILL.md").write_text('---\nname: broken\ndescription: "x\n---\n')
    with Skillhouse(configured(places)) as house:
        client = client_of(house)
        answer = client.get("/system")
        page = Page(answer.text)
        text = " ".join(page.text.split())
        assert "17 files: allowed-tools has commas or is a list; read all the same" in text
        assert answer.text.count('class="code">allowed-tools-form') == 1
        assert "/edit/user:many-03#L4" in page.links
        assert f"/edit/{str(broken).replace('/', '%2F')}%2FSKILL.md#L3" in page.links
        chinese = client.get("/system", headers={"accept-language": "zh"}).text
        assert "17 个文件" in chinese
        # A warning that changes nothing is none of those that the list can be filtered by.
        listed = " ".join(Page(client.get("/").text).text.split())
        assert "with findings (1)" in listed, re.findall("with findings.{9}", listed)


def test_other_browsers_are_folded_and_signed_out_together(house: Skillhouse):
    tokens = house.services.enforcement.access_tokens
    tokens.new("kept", [AccessScope.READ])
    app = make_app(house, token="token", port=PORT)
    client = TestClient(app, BASE, raise_server_exceptions=False, follow_redirects=False)
    client.headers.update({"host": f"127.0.0.1:{PORT}"})
    for _ in range(3):
        tokens.new_browser()
    client.get("/?token=token")
    # Whoever is signed in and opens the printed address again is no further browser.
    assert "set-cookie" not in client.get("/?token=token").headers
    text = client.get("/system").text
    assert "3 other browsers" in text
    assert text.count("This browser") == 1
    button = attributes_of(text, "/api/v1/browsers")
    origin = {"origin": BASE, "skillhouse-proof": button["data-proof"]}
    assert client.delete("/api/v1/browsers", headers=origin).json()["total"] == 3
    assert [one.kind for one in tokens.all()] == ["token", "browser"]
    assert "other browser" not in client.get("/system").text
