"""The list of skills and the page of one: code alone is among them, and the numbers add up."""

from __future__ import annotations

import json
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
from skillhouse.extensions.server.pages.skill_list import COLUMNS, HIDDEN, ShownRow
from skillhouse.extensions.server.pages.skill_pages import INDEX_PATH, PAGE_ROWS
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
    """Return the names in the list, with their states and how a model hears of them."""
    body = page.partition('id="rows"')[2].partition("</tbody>")[0]
    found = re.findall(
        r'class="name"[^>]*><bdi>(.*?)</bdi>.*?class="state[^"]*">(.*?)</span>'
        r'.*?class="c-listing"[^>]*>(.*?)</td>',
        body,
        re.DOTALL,
    )
    return [f"{name}: {state} {listing}".strip() for name, state, listing in found]


def numbers(page: str) -> dict[str, int]:
    """Return the numbers that filter, by the state that each shows."""
    strip = page.partition('id="counts"')[2].partition("</dl>")[0]
    found = re.findall(r'href="/\?state=([a-z-]+)[^"]*#skills"[^>]*>([\d,]+)<', strip)
    return {state: int(count.replace(",", "")) for state, count in found}


def test_code_alone_is_in_the_list_with_its_state_language_and_tools(house: Skillhouse):
    page = served(house).get("/").text
    names = {row.partition(":")[0] for row in rows(page)}
    assert {"both", "prices", "swaps", "wrong", "notes", "weather"} <= names
    assert "prices: in force offered as tools" in rows(page)
    assert "both: in force listed" in rows(page)
    assert "swaps: shadowed" in rows(page)
    assert re.search(r"c-tools[^>]*>Python · 2<", page)
    assert re.search(r"c-tools[^>]*>JavaScript · 1<", page)
    assert "<b>x" not in page


def test_every_skill_of_the_list_has_its_pages_whatever_its_name(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    heads = ["|\n  a\n  b", "|\n  block", '" padded "', '"a/b?c#d"', "...", '"a\\nb\\nc"']
    for at, head in enumerate(heads):
        place = places.home / f".agents/skills/odd-{at}"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(f"---\nname: {head}\ndescription: D.\n---\nBODY {at}\n")
    with Skillhouse(configured(places), cache_directory=None) as made:
        client = served(made)
        links = re.findall(r'<a class="name" href="/skills/([^"]{2,})"', client.get("/").text)
        assert len(links) >= len(heads)
        for link in links:
            for path in (f"/skills/{link}", f"/seen/{link}", f"{API}/skills/{link}"):
                assert client.get(path).status_code == 200, path
            if link.startswith("user:"):
                assert client.get(f"/edit/{link}").status_code == 200, link


def test_the_numbers_come_before_the_rows_and_add_up(house: Skillhouse):
    client = served(house)
    page = client.get("/").text
    assert page.index('id="counts"') < page.index('id="rows"')
    found = numbers(page)
    assert found == {"in-use": 7, "listed": 5, "tools": 2, "not-in-use": 2, "findings": 1}
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
        assert "Page 1 of 2" in re.sub("<[^>]*>", "", page)
        assert "/?words=skill-&amp;scope=user&amp;page=2#skills" in page
        second = client.get("/?scope=user&words=skill-&page=2").text
        assert [row.partition(":")[0] for row in rows(second)] == [f"skill-{PAGE_ROWS}"]


NAMES = {
    "resume": "Résumé und Straße, for ﬁles of Zoë.",
    "odos": "ΟΔΟΣ, οδος and Ёлка.",
    "shu": "处理表格和发票，が and ｐｄｆ.",
    "hangul": "한글 문서.",
    "istanbul": "İstanbul, ılık.",
    "plain-pdf": "Merges PDF files; A\u00a0B.",
    "long": "word " * 100 + "needle.",
    "odd": "Has a family 👩 and `code`.",
}
"""Descriptions of skills by their names, on which both filters are tried."""
TYPED = {
    "": [*NAMES],
    "RESUME": ["resume"],
    "strasse": ["resume"],
    "files": ["plain-pdf", "resume"],
    "zoe resume": ["resume"],
    "οδοσ": ["odos"],
    "елка": ["odos"],
    "发票 表格": ["shu"],
    "发票表格": [],
    "PDF": ["plain-pdf", "shu"],
    "pdf merges": ["plain-pdf"],
    "a\u00a0b files": ["plain-pdf"],
    "한": ["hangul"],
    "ISTANBUL ilik": ["istanbul"],
    "needle": ["long"],
    "....": [],
    "👩 CODE": ["odd"],
    "skills/odd": ["odd"],
}
"""What a person types, and what fits; a test of the browser tries the same."""


def write_names(base: Path) -> None:
    for name, description in NAMES.items():
        write_skill(
            base / f"home/.agents/skills/{name}",
            description=json.dumps(description, ensure_ascii=False),
        )


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    base = tmp_path_factory.mktemp("named")
    write_names(base)
    with coded_house(base, cache_directory=None) as house:
        yield served(house)


@pytest.mark.parametrize("typed", TYPED)
def test_words_fit_without_case_and_accents(named: TestClient, typed: str):
    page = named.get("/", params={"words": typed, "scope": "user"}).text
    assert sorted(row.partition(":")[0] for row in rows(page)) == sorted(TYPED[typed])


def test_the_index_has_what_the_page_shows_and_is_sent_once(house: Skillhouse):
    client = served(house)
    answer = client.get(INDEX_PATH)
    index = answer.json()
    fields = ("kind", *ShownRow._fields, "more", "is_whole")
    found = [dict(zip(fields, row, strict=True)) for row in index["rows"]]
    shown = [f"{one['name']}: " + one["state"].replace("in-use", "in force") for one in found]
    page = [re.sub(" (listed|offered as tools)$", "", row) for row in rows(client.get("/").text)]
    assert shown == page
    prices = next(one for one in found if one["name"] == "prices")
    assert (index["kinds"][prices["kind"]], prices["language"], prices["tools"]) == (
        ["in-use", "tools", "code"],
        "Python",
        2,
    )
    assert answer.headers["content-encoding"] == "gzip"
    again = client.get(INDEX_PATH, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    house.management.set_enabled("weather", enabled=False)
    time.sleep(1.1)  # A scan is used for a second.
    changed = client.get(INDEX_PATH, headers={"if-none-match": answer.headers["etag"]})
    assert (changed.status_code, changed.headers["etag"] != answer.headers["etag"]) == (200, True)


def test_the_index_is_the_owners(house: Skillhouse):
    client = served(house)
    assert client.get(INDEX_PATH, headers={"cookie": ""}).status_code == 401
    key = client.post(
        f"{API}/tokens",
        json={"name": "x", "scopes": ["read"]},
        headers={"authorization": f"Bearer {TOKEN}"},
    ).json()
    token = {"authorization": f"Bearer {key['token']}"}
    assert client.get(INDEX_PATH, headers=token).status_code == 403


@pytest.mark.parametrize(
    ("query", "head", "first"),
    [
        ("sort=name", ("name", "ascending"), ["both", "github"]),
        ("sort=-name", ("name", "descending"), ["wrong", "web-search"]),
        ("sort=-tools", ("tools", "descending"), ["prices", "both"]),
        ("sort=state&words=s", ("state", "ascending"), []),
        ("sort=no-such", None, []),
    ],
)
def test_the_list_is_sorted_by_what_is_in_the_address(
    house: Skillhouse, query: str, head: tuple[str, str] | None, first: list[str]
):
    page = served(house).get(f"/?{query}").text
    assert [row.partition(":")[0] for row in rows(page)][: len(first)] == first
    sorted_by = re.findall(r'class="c-([a-z]+)" aria-sort="([a-z]+)"', page)
    assert sorted_by == ([head] if head else [])
    if head:
        # Another press turns it, and what is filtered stays.
        link = re.search(rf'class="c-{head[0]}"[^>]*><a href="([^"]*)"', page)
        assert link is not None
        assert ("words=s" in link[1]) == ("words=s" in query)


def test_columns_are_those_of_the_address(house: Skillhouse):
    client = served(house)

    def hidden(query: str) -> set[str]:
        found = re.search(r'<table role="table" class="list([^"]*)"', client.get(query).text)
        assert found is not None
        return {one.removeprefix("no-") for one in found[1].split()}

    assert hidden("/") == set(HIDDEN)
    assert hidden("/?columns=state,tools") == set(COLUMNS) - {"state", "tools"}
    # As a form without a script sends them.
    assert hidden("/?columns=none&columns=used") == set(COLUMNS) - {"used"}
    page = client.get("/?columns=used&sort=name").text
    assert "/?sort=-name&amp;columns=used" in page
    assert re.search(r'href="/\?state=in-use&amp;sort=name&amp;columns=used#skills"', page)


def test_a_search_ranks_what_the_agent_sees_that_is_asked_about(tmp_path: Path) -> None:
    file = tmp_path / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        '[agents.builder]\nrules = [{effect = "deny", action = "skill", pattern = "weather"}]\n'
    )
    with Skillhouse(configured(make_places(tmp_path)), cache_directory=None) as house:
        client = served(house)
        assert "weather: in force listed" in rows(client.get("/?q=weather").text)
        page = client.get("/?q=weather&agent=builder").text
        assert not [one for one in rows(page) if one.startswith("weather")]


def test_the_number_with_findings_is_that_of_the_filter(house: Skillhouse) -> None:
    client = served(house)
    count = numbers(client.get("/").text)["findings"]
    assert count == len(rows(client.get("/?state=findings").text)) > 0


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
    assert "prices: disabled" in rows(client.get("/").text)


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
        assert "weather: denied by rules" in rows(page)
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
    assert any(one.startswith("notes: in force listed") for one in first), first
    # A file of ours, a rule of the user's file, and a switch from elsewhere.
    write_skill(Path(house.config.places.home) / ".agents/skills/second")
    assert any(one.startswith("second:") for one in states())
    file = house.config.places.user_file
    file.parent.mkdir(parents=True, exist_ok=True)
    text = ""
    file.write_text(f'{text}\n[[rules]]\neffect = "deny"\naction = "skill"\npattern = "notes"\n')
    assert any(one.startswith("notes: denied by rules") for one in states()), states()
    file.write_text(text)
    assert any(one.startswith("notes: in force") for one in states())
    house.management.set_enabled("user:second", enabled=False)
    assert any(one.startswith("second: disabled") for one in states()), states()
