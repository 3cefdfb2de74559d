"""The list of skills and the page of one: code alone is among them, and the numbers add up."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.pages.served import COOKIE, PORT, client_of
from tests.house.coded import coded_house, tool, write_code
from tests.house.places import make_places, write_skill

from skillhouse.extensions.server.app import make_app
from skillhouse.extensions.server.pages.skill_pages import PAGE_ROWS
from skillhouse.house import Skillhouse, configured

pytestmark = pytest.mark.slow

TOKEN = "token-of-this-start"
API = "/api/v1"


def served(house: Skillhouse) -> TestClient:
    app = make_app(house, token=TOKEN, port=PORT, session=COOKIE["cookie"].partition("=")[2])
    return client_of(app, COOKIE)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Skillhouse]:
    """A house with code in both languages, one that is broken, and one that is shadowed."""
    root, home = tmp_path / "root", tmp_path / "home/.agents/skills"
    coin = {"type": "object", "properties": {"coin": {"type": "string", "enum": ["btc", "eth"]}}}
    write_code(root / "prices", "tools = {}\n", tool("now", parameters=coin), tool("then", "write"))
    write_code(root / "swaps", "exports.tools = {};\n", tool("swap", "sign"), language="javascript")
    write_code(tmp_path / "home/.config/skillhouse/skills/swaps", "tools = {}\n")
    (write_code(root / "wrong", "tools = {}\n") / "pyproject.toml").write_text(
        '[project]\nname = "wrong"\n[[tool.skillhouse.tools]]\nname = "<b>x"\n'
    )
    write_skill(home / "notes", description="Takes notes.")
    both = write_code(root / "both", "tools = {}\n")
    write_skill(both, description="Has a text and a tool.")
    with coded_house(tmp_path, root, cache_directory=None) as made:
        yield made


def rows(page: str) -> list[str]:
    """Return the names in the list, with their states by which it is filtered."""
    found = re.findall(
        r'<li data-scope="[^"]*" data-clients="[^"]*" data-problems="([^"]*)".*?class="name"[^>]*>'
        r"<bdi>(.*?)</bdi>",
        page,
        re.DOTALL,
    )
    return [f"{name}: {states}" for states, name in found]


def numbers(page: str) -> dict[str, int]:
    """Return the numbers that filter, by the state that each shows."""
    strip = page.partition('id="counts"')[2].partition("</dl>")[0]
    found = re.findall(r'href="/\?state=([a-z-]+)[^"]*#skills"[^>]*>([\d,]+)<', strip)
    return {state: int(count.replace(",", "")) for state, count in found}


def test_code_alone_is_in_the_list_with_its_state_language_and_tools(house: Skillhouse):
    page = served(house).get("/").text
    names = {row.partition(":")[0] for row in rows(page)}
    assert {"both", "prices", "swaps", "wrong", "notes", "weather"} <= names
    assert "prices: in-use tools code" in rows(page)
    assert "both: in-use listed code" in rows(page)
    assert "swaps: shadowed code not-in-use" in rows(page)
    assert re.search(r"Python · 2\s+tools", page)
    assert re.search(r"JavaScript · 1\s+tool<", page)
    assert "<b>x" not in page


def test_the_numbers_come_before_the_rows_and_add_up(house: Skillhouse):
    client = served(house)
    page = client.get("/").text
    assert page.index('id="counts"') < page.index('id="rows"')
    found = numbers(page)
    assert found == {"in-use": 7, "listed": 5, "tools": 2, "not-in-use": 2}
    answer = client.get(f"{API}/library", params={"limit": 200}).json()
    assert answer["listings"] == {"listed": 5, "tools": 2}
    assert sum(answer["listings"].values()) == answer["states"]["in-use"]
    assert sum(answer["states"].values()) == answer["total"] == len(rows(page))
    for state, count in found.items():
        assert len(rows(client.get(f"/?state={state}").text)) == count, state


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("state=tools", ["prices", "swaps"]),
        ("state=code&words=price", ["prices"]),
        ("words=NOTES+takes", ["notes"]),
        ("words=then", ["prices"]),
        ("scope=user", ["notes", "swaps"]),
        ("words=nothing-has-this", []),
        ("state=no-such-state", []),
    ],
)
def test_the_list_is_filtered_by_what_is_in_the_address(
    house: Skillhouse, query: str, wanted: list[str]
):
    page = served(house).get(f"/?{query}").text
    assert [row.partition(":")[0] for row in rows(page)] == wanted
    assert 'id="clear"' in page
    # A state that no skill has is still what is chosen.
    assert ('id="none-fits" hidden' in page) == (query != "words=nothing-has-this")
    assert ("(0)</option>" in page) == (query == "state=no-such-state")


def test_the_pages_of_a_long_list_keep_its_filter(tmp_path: Path):
    for number in range(PAGE_ROWS + 1):
        write_skill(tmp_path / f"home/.agents/skills/skill-{number:03}")
    with coded_house(tmp_path, cache_directory=None) as house:
        client = served(house)
        page = client.get("/?scope=user&words=skill-").text
        assert "Page 1 of 2" in page
        assert "/?words=skill-&amp;scope=user&amp;page=2#skills" in page
        second = client.get("/?scope=user&words=skill-&page=2").text
        assert [row.partition(":")[0] for row in rows(second)] == [f"skill-{PAGE_ROWS}"]


def test_a_search_finds_code_alone_everywhere(house: Skillhouse):
    client = served(house)
    assert rows(client.get("/?q=prices").text)[0].startswith("prices:")
    found = client.get(f"{API}/search", params={"q": "prices"}).json()
    assert [(one["id"], one["tools"]) for one in found["code"]] == [
        ("explicit:prices", ["prices:now", "prices:then"])
    ]
    assert not found["weak"]
    library = client.get(f"{API}/library", params={"q": "prices", "scope": "explicit"})
    library = library.json()["skills"]
    assert [(one["id"], one["state"], one["listing"]) for one in library] == [
        ("explicit:prices", "in-use", "offered as tools")
    ]
    assert (library[0]["language"], library[0]["tools"]) == (
        "python",
        ["prices:now", "prices:then"],
    )
    page = client.get("/rehearse", params={"q": "prices now"}).text
    assert "prices:now" in page
    assert '/skills/explicit:prices"' in page
    assert "no rule matches; a tool that may write asks by default" in page


@pytest.mark.parametrize("reference", ["prices", "explicit:prices"])
def test_code_alone_has_a_page_with_a_form_for_each_tool(house: Skillhouse, reference: str):
    client = served(house)
    answer = client.get(f"/skills/{reference}")
    assert answer.status_code == 200
    page = answer.text
    assert re.search(r"Python · 2\s+tools", page)
    assert "offered as tools" in page
    assert page.count('data-path="/api/v1/calls"') == 2
    assert "<option>btc</option><option>eth</option>" in page
    assert f'data-path="{API}/skills/explicit:prices/enabled"' in page
    assert "/files/explicit:prices?name=main.py" in page
    file = client.get("/files/explicit:prices", params={"name": "main.py"})
    assert (file.status_code, "tools = {}" in file.text) == (200, True)
    assert client.get("/files/explicit:prices?name=../both/SKILL.md").status_code == 404


def test_code_alone_is_disabled_by_the_api_and_says_so(house: Skillhouse):
    client = served(house)
    key = {"authorization": f"Bearer {TOKEN}"}
    path = f"{API}/skills/explicit:prices/enabled"
    answer = client.put(path, json={"enabled": False}, headers=key)
    assert (answer.status_code, answer.json()) == (200, {"id": "explicit:prices", "enabled": False})
    page = client.get("/skills/prices").text
    assert "Agents have no tools of it." in page
    assert "data-body='{\"enabled\": true}'" in page
    assert 'data-path="/api/v1/calls"' not in page
    assert "prices: disabled code not-in-use" in rows(client.get("/").text)


def test_what_is_wrong_with_code_is_on_its_page_as_text(house: Skillhouse):
    client = served(house)
    page = client.get("/skills/wrong").text
    assert "Agents have no tools of it." in page
    assert "Findings" in page
    assert "<b>x" not in page
    place = house.config.places.home / ".config/skillhouse/skills/swaps"
    weaker = client.get(f"/skills/{str(place).replace('/', '%2F')}")
    assert (weaker.status_code, "has its name and is used" in weaker.text) == (200, True)
    assert client.get("/skills/nothing-of-this-name").status_code == 404


def test_the_numbers_are_those_of_the_agent_that_is_asked_about(tmp_path: Path):
    file = tmp_path / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        '[agents.builder]\nrules = [{effect = "deny", action = "skill", pattern = "weather"}]\n'
    )
    with Skillhouse(configured(make_places(tmp_path)), cache_directory=None) as house:
        client = served(house)
        assert numbers(client.get("/").text) == {"in-use": 3, "listed": 3}
        page = client.get("/?agent=builder").text
        assert numbers(page) == {"in-use": 2, "listed": 2, "not-in-use": 1}
        assert 'href="/?state=listed&amp;agent=builder#skills"' in page
        assert "weather: denied not-in-use" in rows(page)
        answer = client.get(f"{API}/library", params={"agent": "builder"}).json()
        assert answer["states"] == {"in-use": 2, "denied": 1}
        skill = client.get("/skills/github").text
        assert re.search(r"default</bdi>: listed; <bdi>builder</bdi>: listed", skill)


def test_the_first_page_says_what_waits_what_was_denied_and_what_was_called(
    house: Skillhouse,
) -> None:
    client = served(house)
    assert "Needs you" in client.get("/").text  # A skill is broken.
    assert "Latest calls" not in client.get("/").text
    house.call_sync("exec", {"command": "sudo <b>ls</b>"})
    asked = house.call_sync("write", {"path": "a.txt", "content": "text"}).approval_id
    page = client.get("/").text
    assert f'href="/approvals/{asked}"' in page.partition("Needs you")[2]
    assert re.search(r"Waiting</dt><dd><a href=\"/approvals\">1<", page)
    denied = re.search(r"Denied today</dt><dd><a href=\"(/audit\?[^\"]*)\">1<", page)
    assert denied is not None
    calls = client.get(denied[1].replace("&amp;", "&")).text
    assert calls.count('class="record"') == 1
    assert "&lt;b&gt;ls" in page
    assert "<b>ls" not in page


def test_rows_that_are_kept_follow_files_rules_and_switches(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    write_skill(tmp_path / "home/.agents/skills/notes", description="Takes notes.")
    house = Skillhouse(configured(places))
    client = served(house)

    def states() -> list[str]:
        time.sleep(1.1)  # A scan is used for a second.
        return rows(client.get("/").text)

    first = states()
    assert states() == first
    assert any(one.startswith("notes: in-use listed") for one in first), first
    # A file of ours, a rule of the user's file, and a switch from elsewhere.
    write_skill(Path(house.config.places.home) / ".agents/skills/second")
    assert any(one.startswith("second:") for one in states())
    file = house.config.places.user_file
    file.parent.mkdir(parents=True, exist_ok=True)
    text = ""
    file.write_text(f'{text}\n[[rules]]\neffect = "deny"\naction = "skill"\npattern = "notes"\n')
    assert any(one.startswith("notes: denied") for one in states()), states()
    file.write_text(text)
    assert any(one.startswith("notes: in-use") for one in states())
    house.management.set_enabled("user:second", enabled=False)
    assert any(one.startswith("second: disabled") for one in states()), states()
