"""Tests of extensions/server: the pages, the JSON, and what they show of a house."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.house.places import make_places, write_skill

from skillhouse import __version__
from skillhouse.extensions.server import app as app_module
from skillhouse.extensions.server import http_app
from skillhouse.extensions.server.api.route_table import PROBLEM_JSON
from skillhouse.extensions.server.guard import HEADERS
from skillhouse.extensions.server.pages.skill_pages import PAGE_ROWS
from skillhouse.extensions.server.status import StatusReader
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.skill import SkillIndex

pytestmark = pytest.mark.slow

PORT = 8600
TOKEN = "token-of-this-start"
SESSION = "session-of-this-start"
BEARER = {"authorization": f"Bearer {TOKEN}"}
COOKIE = {"cookie": f"skillhouse_{PORT}={SESSION}"}


class Page(HTMLParser):
    """What a reader of a page meets: its text, tags, and links but those of other languages."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self._templates = 0
        """How deep the reader is in what is shown by a script only."""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._templates += tag == "template"
        if self._templates:
            return
        self.tags.append(tag)
        if tag == "a" and "hreflang" not in dict(attrs):
            self.links.append(dict(attrs)["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._templates -= tag == "template"

    def handle_data(self, data: str) -> None:
        if not self._templates:
            self.text += data


def client_of(house: Skillhouse, headers: dict[str, str] | None = None) -> TestClient:
    app = http_app(house, token=TOKEN, port=PORT, session=SESSION)
    base = f"http://127.0.0.1:{PORT}"
    client = TestClient(app, base, raise_server_exceptions=False, follow_redirects=False)
    client.headers.update(headers if headers is not None else COOKIE)
    return client


def headers_missing(headers: object) -> list[str]:
    """Return the names of our headers that an answer lacks, repeats or changes."""
    pairs = headers.multi_items()  # type: ignore[attr-defined]
    wanted = [(name.decode(), value.decode()) for name, value in HEADERS]
    return [name for name, value in wanted if [v for n, v in pairs if n == name] != [value]]


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    """A house with skills of three scopes, a denied, a shadowed and a broken one."""
    places = make_places(tmp_path)
    write_skill(places.start / ".agents/skills/pdf", description="Merges PDF files.")
    write_skill(places.home / ".agents/skills/发票", description="整理发票。")
    write_skill(places.home / ".agents/skills/pdf", description="Another one.")
    write_skill(places.home / ".agents/skills/secret-notes")
    broken = places.home / ".agents/skills/broken"
    broken.mkdir()
    (broken / "SKILL.md").write_text("---\nname: 'x\n---\n")
    rule = Rule(effect=Effect.DENY, action="skill", pattern="secret-*", reason="not for models")
    layers = (Layer(name="user", rules=(rule,)),)
    house = Skillhouse(configured(places), layers=layers, cache_directory=None)
    house.project_trust.trust()
    return house


@pytest.fixture
def client(house: Skillhouse) -> TestClient:
    return client_of(house)


def test_the_status_page_shows_everything_that_was_found(client: TestClient, tmp_path: Path):
    answer = client.get("/")
    page = Page(answer.text)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for expected in (
        "Skills in project",
        "Merges PDF files.",
        "整理发票。",
        "rule skill secret-* of user policy: not for models",
        "~/.agents/skills/broken",
        "rename all but one",
        "a quote that is not closed",
    ):
        assert expected in page.text
    assert {"/skills/project:pdf", "/skills/user:%E5%8F%91%E7%A5%A8", "/skills/user:pdf"} <= set(
        page.links
    )
    assert page.tags.count("script") == 3
    assert f"skillhouse {__version__}" in page.text


def test_every_link_of_the_pages_leads_somewhere(client: TestClient):
    seen: set[str] = set()
    ahead = ["/"]
    while ahead:
        link = ahead.pop().partition("#")[0]
        if not link or link in seen:
            continue
        seen.add(link)
        answer = client.get(link)
        assert (link, answer.status_code) == (link, 200)
        if answer.headers["content-type"].startswith("text/html"):
            ahead += Page(answer.text).links
    assert {"/api/v1/status", "/api/v1/skills", "/skills/builtin:weather"} <= seen


def test_a_project_that_is_not_trusted_is_not_read_and_the_page_says_how(
    house: Skillhouse, tmp_path: Path
):
    house.project_trust.revoke()
    page = Page(client_of(house).get("/").text)
    assert "This project is not trusted, so its skills are not read." in page.text
    assert "/system/trust" in page.links
    shown = Page(client_of(house).get("/system/trust").text)
    assert f"skillhouse trust {tmp_path}/project" in shown.text
    assert "not trusted" in page.text
    assert "Merges PDF files." not in page.text


def test_a_house_with_the_builtin_skills_only_has_a_short_page(tmp_path: Path):
    page = Page(client_of(Skillhouse(configured(make_places(tmp_path)))).get("/").text)
    assert "Begin here" in page.text
    assert "shadowed" not in page.text
    assert "denied" not in page.text


def test_a_house_without_any_skill_says_where_to_put_one(tmp_path: Path):
    rule = Rule(effect=Effect.DENY, action="skill", pattern="*")
    house = Skillhouse(configured(make_places(tmp_path)), layers=(Layer(name="u", rules=(rule,)),))
    page = Page(client_of(house).get("/").text)
    assert "No skill of yours is here yet" in page.text


def test_many_skills_are_paged(tmp_path: Path):
    places = make_places(tmp_path)
    for number in range(PAGE_ROWS + 1):
        write_skill(places.home / f".agents/skills/skill-{number:03}")
    client = client_of(Skillhouse(configured(places), catalog_budget_tokens=100))
    first, second = (Page(client.get(path).text) for path in ("/", "/?page=2"))
    assert "Page 1 of 2" in first.text
    assert "204" in first.text
    assert "Found by search only" in first.text
    assert "/?state=search-only#skills" in first.links
    assert "/?page=2#skills" in first.links
    assert "/skills/user:skill-199" in first.links
    assert [link for link in second.links if link.startswith("/skills/")] == [
        "/skills/user:skill-200",
        "/skills/builtin:github",
        "/skills/builtin:weather",
        "/skills/builtin:web-search",
    ]
    assert "Left out of the catalog" not in second.text
    for path, page in (("/?page=99", "2"), ("/?page=0", "1"), ("/?page=x", "1"), ("/?page=", "1")):
        assert f"Page {page} of 2" in Page(client.get(path).text).text


def test_a_search_shows_the_skills_that_fit_best_first(client: TestClient):
    page = Page(client.get("/", params={"q": "weather in Tokyo"}).text)
    links = [link for link in page.links if link.startswith("/skills/")]
    assert links[0] == "/skills/builtin:weather"
    assert "1 skill for “weather in Tokyo”" in page.text
    assert "fits by name: weather; description: weather; body: weather" in page.text
    assert "Nothing fits well" not in page.text
    assert "No skill fits “zzzz”" in Page(client.get("/?q=zzzz").text).text
    assert "/skills/user:secret-notes" not in Page(client.get("/?q=secret+notes").text).links
    assert "All skills" in client.get("/?q=%20").text


def test_the_page_of_a_skill_shows_all_that_is_known_of_it(client: TestClient, tmp_path: Path):
    directory = tmp_path / "home/.agents/skills/forms"
    (directory / "scripts").mkdir(parents=True)
    (directory / "scripts/fill.py").write_text("")
    (directory / "SKILL.md").write_text(
        "---\nname: forms\ndescription: Fills forms.\nlicense: MIT\n"
        "allowed-tools: Bash(*)\nmetadata:\n  author: mika\n  tags: [a, b]\n---\n"
        "# Forms\n\nzero\u200bwidth <b>bold</b>\n",
        encoding="utf-8",
    )
    page = Page(client.get("/skills/user:forms").text)
    for expected in (
        "no rule matches; skills of scope user default to allow",
        f"{directory}/SKILL.md",
        "skilltree1:",
        "MIT",
        'author: mika; tags: ["a", "b"]',
        "it grants nothing",
        "fill.py",
        "hidden U+200B in the body",
        "zero\\u200bwidth <b>bold</b>",
    ):
        assert expected in page.text
    assert "b" not in page.tags
    # As Markdown, and as plain text.
    assert page.tags.count("mark") == 2


def test_a_skill_is_found_by_id_name_and_directory_name(client: TestClient):
    for reference in ("project:pdf", "pdf"):
        assert "Merges PDF files." in client.get(f"/skills/{reference}").text
    assert "Used instead" not in client.get("/skills/project:pdf").text
    assert "Used instead" in client.get("/skills/user:pdf").text


def test_a_second_skill_of_one_id_is_reached_by_its_file(house: Skillhouse, tmp_path: Path):
    write_skill(tmp_path / "home/.claude/skills/pdf", description="The third one.")
    client = client_of(house)
    links = [
        link
        for link in Page(client.get("/").text).links
        if link.startswith("/skills/") and "%2F" in link
    ]
    assert len(links) == 1
    page = Page(client.get(links[0]).text)
    assert "The third one." in page.text
    as_json = [link for link in page.links if link.startswith("/api/")]
    assert client.get(as_json[-1]).json()["description"] == "The third one."


@pytest.mark.one_server("moment")
def test_a_skill_whose_file_is_spoilt_is_still_shown(house: Skillhouse, tmp_path: Path):
    client = client_of(house)
    file = tmp_path / "project/.agents/skills/pdf/SKILL.md"
    for _ in range(2):
        # The first one makes the page's parts, which may take longer than a scan holds.
        assert client.get("/skills/pdf").status_code == 200
    file.write_text("---\nname: 'spoilt\n---\n")
    (file.parent / "link").symlink_to("nowhere")
    page = Page(client.get("/skills/project:pdf").text)
    assert "This skill cannot be loaded any more." in page.text
    assert "none: " in page.text
    value = client.get("/api/v1/skills/project:pdf").json()
    # By a scan since then the skill is none.
    assert value["code"] in ("yaml-error", "unusable-skill")
    assert "a quote that is not closed" in value["detail"]


def test_an_unknown_skill_names_the_nearest(client: TestClient):
    answer = client.get("/skills/wether")
    assert answer.status_code == 404
    assert "/skills/weather" in Page(answer.text).links
    problem = client.get("/api/v1/skills/wether").json()
    assert (problem["code"], problem["detail"]) == ("unknown-skill", "no skill `wether`")
    assert problem["hint"] == "nearest: `weather`"


def test_a_name_that_fits_several_skills_lists_them(house: Skillhouse, tmp_path: Path):
    for place in ("home/.agents/skills", "home/.claude/skills"):
        directory = write_skill(tmp_path / place / "twin")
        text = f"---\nname: twin-{directory.parents[1].name}\ndescription: x\n---\n"
        (directory / "SKILL.md").write_text(text)
    client = client_of(house)
    answer = client.get("/skills/twin")
    assert answer.status_code == 300
    assert {"/skills/user:twin-.agents", "/skills/user:twin-.claude"} <= set(
        Page(answer.text).links
    )
    assert client.get("/api/v1/skills/twin").json()["code"] == "ambiguous-skill"


def test_a_log_that_cannot_be_written_is_at_the_top_of_the_page(
    client: TestClient, house: Skillhouse, tmp_path: Path
):
    assert "The audit log needs attention." not in client.get("/").text
    house.audit_log.path.unlink()
    house.audit_log.path.mkdir()
    message = "the audit log cannot be written (is a directory): effects are refused until it is"
    page = Page(client.get("/").text)
    assert "The audit log needs attention." in page.text
    assert message in page.text
    told = client.get("/api/v1/status", headers=BEARER).json()["audit"]
    assert told == [{"code": "log-unwritable", "message": message}]
    house.audit_log.path.rmdir()


@pytest.mark.parametrize("path", ["/nothing", "/skills", "/api/nothing", "/style.css/x"])
def test_an_unknown_address_is_not_found(client: TestClient, path: str):
    answer = client.get(path)
    assert answer.status_code == 404
    assert ("application/json" in answer.headers["content-type"]) == path.startswith("/api/")


@pytest.mark.parametrize(
    ("path", "use"),
    [
        ("/api/status", "/api/v1/status"),
        ("/api/skills", "/api/v1/skills"),
        ("/api/skills/builtin:weather", "/api/v1/skills/builtin%3Aweather"),
        ("/api/skills/a/b", "/api/v1/skills/a%2Fb"),
        ("/api/approvals", "/api/v1/approvals"),
        ("/api/calls", "/api/v1/audit/records"),
        ("/api/calls/01J9ZC", "/api/v1/audit/records/01J9ZC"),
    ],
)
def test_an_address_that_is_gone_names_the_one_to_use(
    client: TestClient, house: Skillhouse, path: str, use: str
):
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM_JSON)
    problem = answer.json()
    assert (problem["code"], problem["hint"]) == ("address-gone", f"use `{use}`")
    assert client.get(path, headers={"cookie": ""}).status_code == 401
    if path != "/api/skills/a/b" and "01J9" not in path:
        assert client.get(use).status_code == 200


def test_the_json_is_that_of_the_command_line(client: TestClient, house: Skillhouse):
    status = client.get("/api/v1/status", headers=BEARER).json()
    assert status.pop("instance")["version"] == "0.1.0"
    roots = status.pop("roots")
    assert status == {
        "version": "0.1.0",
        "project": str(house.services.project),
        "trusted": True,
        "profile": "default",
        "skills": 5,
        "hidden": 1,
        "shadowed": 1,
        "diagnostics": 3,
        "errors": 1,
        "changed": [],
        "audit": [],
        "config_fault": "",
        "catalog": {
            "budget_tokens": 2_000,
            "tokens": house.catalog().tokens,
            "mcp_tokens": 351,
            "listed": 5,
            "omitted": 0,
            "tool": {"chars": 2_000, "listed": 5, "omitted": 0},
        },
        "trust": [],
        "repositories": [],
    }
    assert [root["skills"] for root in roots] == [0, 1, 0, 0, 3, 0, 3]
    skills = client.get("/api/v1/skills").json()
    assert [skill["id"] for skill in skills["skills"]] == [
        "project:pdf",
        "user:发票",
        "builtin:github",
        "builtin:weather",
        "builtin:web-search",
    ]
    hidden = client.get("/api/v1/library?state=denied").json()
    assert [skill["id"] for skill in hidden["skills"]] == ["user:secret-notes"]
    skill = client.get("/api/v1/skills/weather").json()
    assert skill["decision"]["effect"] == "allow"
    assert skill["frontmatter"]["license"] == "MIT"
    body = client.get("/api/v1/skills/weather/content").json()["body"]
    assert body.startswith("\n# Weather")


def test_a_configuration_that_cannot_be_used_is_on_the_page(client: TestClient, house: Skillhouse):
    assert client.get("/", headers=BEARER).status_code == 200
    house.config.places.user_file.parent.mkdir(parents=True, exist_ok=True)
    house.config.places.user_file.write_text('profile = "<b>"\n')
    page = client.get("/", headers=BEARER).text
    assert "A configuration file cannot be used." in page
    assert "unknown profile `&lt;b&gt;`" in page
    house.config.places.user_file.write_text("")
    assert house.config_reload.is_due()


def test_json_is_ascii_so_that_nothing_hides_in_it(client: TestClient):
    answer = client.get("/api/v1/skills")
    assert answer.content.isascii()
    assert json.loads(answer.content)["skills"][1]["name"] == "发票"


def test_what_changes_on_disk_is_shown_a_moment_later(house: Skillhouse, tmp_path: Path):
    now = 100.0
    reader = StatusReader(house, lambda: now)
    before = len(reader.scan().view.visible)
    write_skill(tmp_path / "home/.claude/skills/fresh", description="Quite fresh.")
    assert len(reader.scan().view.visible) == before
    now += 1.0
    assert len(reader.scan().view.visible) == before + 1
    found = reader.found(reader.scan(), "quite fresh")
    assert [hit.name for hit in found.hits][:1] == ["fresh"]


def test_a_root_that_cannot_be_a_path_costs_nothing(tmp_path: Path):
    house = Skillhouse(configured(make_places(tmp_path)), roots=["bad\0root"])
    assert client_of(house).get("/").status_code == 200


@pytest.mark.file_state
def test_state_that_cannot_be_read_is_a_page_and_not_a_traceback(house: Skillhouse, tmp_path: Path):
    state = tmp_path / "home/.local/state/skillhouse/state.sqlite3"
    state.write_bytes(b"not a database, not at all" * 100)
    client = client_of(house)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "The state cannot be read" in answer.text
    assert client.get("/api/v1/status").json()["code"] == "state"


@pytest.mark.one_server("inside")
def test_a_fault_of_ours_is_a_page_with_all_headers(tmp_path: Path):
    class Faulty(Skillhouse):
        @property
        def index(self) -> SkillIndex:
            raise RuntimeError("not shown to anyone")

    answer = client_of(Faulty(configured(make_places(tmp_path)))).get("/")
    assert answer.status_code == 500
    assert "Something went wrong" in answer.text
    assert "not shown to anyone" not in answer.text
    assert headers_missing(answer.headers) == []


def test_the_page_says_what_the_catalog_leaves_out(client: TestClient, house: Skillhouse):
    home = house.config.places.home
    for at in range(300):
        write_skill(home / f".claude/skills/more-{at:03}-{'x' * 40}", "Reads one kind of it.")
    house.refresh()
    page = Page(client.get("/").text)
    assert "Left out of the catalog of 2,000 tokens: " in page.text
    assert "skill tool's description of 2,000 characters: " in page.text
    assert "`search_skills` finds them." in page.text


def test_files_of_the_pages_are_kept_by_their_digest_and_sent_compressed(house: Skillhouse):
    client = client_of(house)
    plain = client.get("/app.js", headers={"accept-encoding": "identity"})
    packed = client.get("/app.js")
    assert (packed.headers["content-encoding"], packed.text) == ("gzip", plain.text)
    assert plain.headers["cache-control"] == packed.headers["cache-control"] == "no-cache"
    tag = plain.headers["etag"]
    again = client.get("/app.js", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/style.css", headers={"if-none-match": tag}).status_code == 200
    # All else is kept by no one, also what is refused at the same address.
    foreign = client.get("/app.js", headers={"origin": "http://elsewhere.example"})
    for other in (client.get("/"), foreign):
        assert other.headers["cache-control"] == "no-store"
    scripts = sorted((Path(app_module.__file__).parent / "static").glob("*.js"))
    sizes = {one.name: int(client.get(f"/{one.name}").headers["content-length"]) for one in scripts}
    # Pages of the console load none of the companion app's.
    of_app = sizes.pop("companion.js") + sizes.pop("device_key.js")
    assert sum(sizes.values()) <= 25_000
    assert of_app <= 5_000
