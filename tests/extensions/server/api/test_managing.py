"""Everything here for people: the library, drafts, mends of doctor, tokens, calls by time."""

from __future__ import annotations

import socket
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.api.place import API, client_of, make_house, token_of
from tests.house.places import write_skill

import skillhouse
from skillhouse.answers.json_form import MOMENTS, moment_of
from skillhouse.approval import Answer
from skillhouse.extensions.server.api.routes import ENDPOINTS
from skillhouse.floor.schema_words import in_words
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.tools import Caller

pytestmark = pytest.mark.slow


def states(client: TestClient, /, **query: str) -> dict[str, str]:
    found = client.get(f"{API}/library", params={"limit": 200, **query}).json()
    named = [one for one in found["skills"] if one["name"] and one["scope"] != "builtin"]
    return {one["name"]: one["state"] for one in named}


def test_the_library_has_every_skill_with_its_state(
    house: Skillhouse, client: TestClient, tmp_path: Path
) -> None:
    root = tmp_path / "home/.agents/skills"
    (root / "torn").mkdir()
    (root / "torn/SKILL.md").write_text("---\nname: 'x\n---\n")
    write_skill(tmp_path / "project/.agents/skills/theirs")
    house.management.set_enabled("pdf", enabled=False)
    write_skill(root / "weather", "Mine.")
    everything = client.get(f"{API}/library", params={"limit": 200}).json()
    by_name = {(one["name"], one["state"]): one for one in everything["skills"]}
    assert by_name["notes", "in-use"]["catalog_tokens"] == 5
    size = (root / "notes/SKILL.md").stat().st_size
    assert by_name["notes", "in-use"]["file_tokens"] == -(-size // 4)
    assert by_name["pdf", "disabled"]["mend"] == "`skillhouse enable user:pdf`"
    assert by_name["torn", "broken"]["code"]
    assert sum(name == "weather" for name, _ in by_name) == 2
    assert "untrusted" in everything["states"]
    assert everything["states"]["broken"] == 1
    paths = [one["path"] for one in everything["skills"]]
    assert len(set(paths)) == len(paths) == everything["total"]
    assert states(client, q="pdf") == {"pdf": "disabled"}
    assert "notes" not in states(client, state="problem")
    assert states(client, state="broken") == {"torn": "broken"}
    assert states(client, scope="user", state="in-use") == {"notes": "in-use", "weather": "in-use"}
    assert "notes" in states(client, client="codex")
    assert states(client, client="claude-code", state="in-use") == {}
    assert client.get(f"{API}/library", params={"client": "../x"}).status_code == 404
    assert client.get(f"{API}/library", params={"state": "x"}).status_code == 400


def test_the_library_is_read_page_by_page(client: TestClient) -> None:
    whole = client.get(f"{API}/library", params={"limit": 200}).json()["skills"]
    seen, cursor = [], None
    while True:
        query = {"limit": "2", **({"cursor": cursor} if cursor else {})}
        page = client.get(f"{API}/library", params=query).json()
        seen += page["skills"]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == whole


def test_a_skill_that_was_loaded_is_recent(tmp_path: Path) -> None:
    house = make_house(tmp_path)
    assert house.services.recent.ranks() == {}
    cached = Skillhouse(house.config, cache_directory=tmp_path / "cache")
    client = client_of(cached)
    found = cached.call_sync("skill", {"name": "pdf"})
    assert found.status == "ok"
    lines = client.get(f"{API}/library", params={"scope": "user"}).json()["skills"]
    assert {one["name"]: one["recent"] for one in lines} == {"notes": None, "pdf": 0}


def test_a_draft_is_shown_as_the_skill_it_would_be(client: TestClient) -> None:
    text = "---\nname: notes\ndescription: Takes notes.\nallowed-tools: Read Write\n---\nA\u202eb\n"
    found = client.post(f"{API}/validate", json={"name": "notes", "text": text}).json()
    preview = found["preview"]
    assert (preview["name"], preview["allowed_tools"]) == ("notes", ["Read", "Write"])
    assert preview["body"] == "A\\u202eb\n"
    assert preview["hidden_text"]
    assert (preview["catalog_tokens"], preview["body_tokens"]) == (5, 2)
    broken = {"name": "notes", "text": "---\nname: 'x\n---\n"}
    found = client.post(f"{API}/validate", json=broken).json()
    assert found["preview"] is None
    assert found["diagnostics"][0]["line"]


FAULTY = "---\nname: pdf\ndescription: Use when: asked\n---\nBody.\n"


def test_a_mend_of_doctor_is_made_only_as_it_was_shown(client: TestClient, tmp_path: Path) -> None:
    file = tmp_path / "home/.agents/skills/pdf/SKILL.md"
    file.write_text(FAULTY)
    query = {"client": "all"}
    fixes = client.get(f"{API}/fixes", params=query).json()["fixes"]
    (fix,) = [one for one in fixes if "yaml-error" in one["codes"]]
    assert "-description: Use when: asked" in fix["difference"]
    path = f"{API}/fixes/{fix['id']}"
    stale = client.post(path, params=query, json={"digest": "sha256:00"})
    assert (stale.status_code, stale.json()["code"]) == (409, "changed")
    file.write_text(FAULTY + "More.\n")
    late = client.post(path, params=query, json={"digest": fix["digest"]})
    assert (late.status_code, late.json()["code"]) == (409, "changed")
    assert file.read_text() == FAULTY + "More.\n"
    file.write_text(FAULTY)
    done = client.post(path, params=query, json={"digest": fix["digest"]})
    assert done.json() == fix
    assert "description: 'Use when: asked'" in file.read_text()
    gone = client.post(path, params=query, json={"digest": fix["digest"]})
    assert (gone.status_code, gone.json()["code"]) == (404, "unknown-fix")


def test_calls_are_counted_by_time(house: Skillhouse, client: TestClient) -> None:
    (house.config.places.start / "a.txt").write_text("a")
    assert house.call_sync("read", {"path": "a.txt"}).status == "ok"
    assert house.call_sync("write", {"path": "b.txt", "content": "b"}).status == "pending"
    found = client.get(f"{API}/audit/series", params={"buckets": 24}).json()
    assert (found["width_seconds"], found["total"]) == (3_600, 2)
    last = found["buckets"][-1]
    assert last["by_verdict"] == {"allow": 1, "ask": 1}
    assert client.get(f"{API}/audit/series", params={"tool": "read"}).json()["total"] == 1
    past = client.get(f"{API}/audit/series", params={"since": "2020", "until": "2021"}).json()
    assert (past["total"], past["since"]) == (0, "2020-01-01T00:00:00Z")
    for wrong in ({"since": "2026-13"}, {"since": "2026", "until": "2025"}, {"buckets": "0"}):
        answer = client.get(f"{API}/audit/series", params=wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, "wrong-parameter")
    eve = client_of(house, token_of(house, "read", user="eve"))
    assert eve.get(f"{API}/audit/series").json()["total"] == 0


def test_a_time_of_an_answer_is_one_of_a_question(house: Skillhouse, client: TestClient) -> None:
    """A client polls from the last record it saw, with what `datetime.isoformat()` makes of it."""
    (house.config.places.start / "a.txt").write_text("a")
    house.call_sync("read", {"path": "a.txt"})
    assert house.call_sync("read", {"path": "a.txt"}).status == "ok"
    records = client.get(f"{API}/audit/records").json()["records"]
    newest, oldest = (datetime.fromisoformat(one["record"]["ts"]) for one in records)
    just_after = newest + timedelta(milliseconds=1)
    east = timezone(timedelta(hours=5, minutes=30))
    for text in (
        records[0]["record"]["ts"],
        newest.isoformat(),
        newest.isoformat(timespec="milliseconds"),
        newest.astimezone(east).isoformat(),
        newest.astimezone(timezone(-timedelta(hours=8))).isoformat(sep=" "),
        newest.replace(tzinfo=None).isoformat(),
    ):
        asked = {"since": text, "until": text}
        for path in ("/audit/records", "/audit/export.json"):
            found = client.get(API + path, params=asked).json()
            found = found if isinstance(found, list) else found["records"]
            assert records[0]["record"]["id"] in [one["record"]["id"] for one in found], text
        for path in ("/audit/stats", "/audit/series"):
            assert client.get(API + path, params=asked).json()["total"] >= 1, (path, text)
    late = {"since": just_after.isoformat()}
    assert client.get(f"{API}/audit/records", params=late).json()["records"] == []
    assert client.get(f"{API}/audit/stats", params={"until": oldest.isoformat()}).json()["total"]
    # A `+` that nothing encoded comes as a blank.
    plain = newest.astimezone(east).isoformat()
    assert client.get(f"{API}/audit/stats?since={plain}").json()["total"] >= 1


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("since=soon", "`since`: expected a time such as 2026-01-31, 2026-01-31T12:00 or "),
        ("until=2026-13", "`until`: expected a time such as "),
        ("since=2026-01-31T12%2B02:00", "`since`: expected a time such as "),
        ("since=0001-01-01T00:00%2B01:00", "`since`: expected a time such as "),
        ("limit=500", "`limit`: expected a whole number (1 to 200), got `500`"),
        ("tool=", "`tool`: expected text (1 to 200 characters), got ``"),
    ],
)
def test_a_wrong_parameter_is_said_in_words(client: TestClient, query: str, wanted: str) -> None:
    answer = client.get(f"{API}/audit/records?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "wrong-parameter")
    assert answer.json()["detail"].startswith(wanted)
    assert "{" not in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body", "detail", "hint"),
    [
        (
            "POST",
            "/approvals/a/answer",
            {"answer": "deny", "content_digest": "sha256:00"},
            "`answer`: expected `once`, `session`, `project`, `always` or `no`, got `deny`",
            None,
        ),
        (
            "POST",
            "/tokens",
            {"name": "ci", "scopes": ["call", "all"]},
            "`scopes.1`: expected `read`, `manage`, `call` or `approve`, got `all`",
            None,
        ),
        (
            "POST",
            "/tokens",
            {"name": "ci", "scopes": []},
            "`scopes`: expected a list (1 to 4 items), each `read`, `manage`, `call` or `approve`",
            None,
        ),
        (
            "POST",
            "/tokens",
            {"scopes": ["call"]},
            "the body lacks `name`: expected text (1 to 64 characters)",
            None,
        ),
        (
            "POST",
            "/tokens",
            {"name": "ci", "scope": ["call"], "scopes": ["call"]},
            "the body has an unknown member `scope`",
            "did you mean `scopes`",
        ),
        ("PUT", "/skills/notes/enabled", [], "the body: expected an object with `enabled`", None),
        ("GET", "/skills?colour=red", None, "unknown parameter `colour`", "known are "),
        ("GET", "/skills?limt=3", None, "unknown parameter `limt`", "did you mean `limit`"),
        ("GET", "/search", None, "the query lacks `q`: expected text (1 to ", None),
        ("GET", "/library?state=lost", None, "`state`: expected `in-use`, ", None),
        ("PUT", "/approvals", None, "only GET and HEAD are answered here", None),
        ("GET", "/policy/explain", None, "only POST is answered here", None),
        (
            "POST",
            "/tokens",
            {"name": "ci", "scopes": ["call"], "agent": "builder"},
            "unknown agent `builder`",
            "known are `default`",
        ),
    ],
)
def test_an_error_says_in_words_what_fits(
    client: TestClient, method: str, path: str, body: Any, detail: str, hint: str | None
) -> None:
    answer = client.request(method, API + path, json=body).json()
    assert answer["detail"].startswith(detail), answer["detail"]
    assert (answer["hint"] or "").startswith(hint or ""), answer["hint"]
    assert "candidates" not in answer["detail"]
    assert "{" not in answer["detail"]


def test_every_parameter_can_be_said_in_words() -> None:
    shapes = [each.schema for one in ENDPOINTS for each in one.query if each.read is None]
    assert all("{" not in in_words(one) for one in shapes)


def test_tokens_are_listed_and_ended_by_the_owner(house: Skillhouse, client: TestClient) -> None:
    manager = client_of(house, token_of(house, "manage", name="mine"))
    eve = client_of(house, token_of(house, "manage", name="hers", user="eve"))
    listed = client.get(f"{API}/tokens").json()["tokens"]
    assert {one["name"] for one in listed} == {"mine", "hers"}
    assert all("digest" not in one for one in listed)
    assert [one["name"] for one in eve.get(f"{API}/tokens").json()["tokens"]] == ["hers"]
    refused = manager.delete(f"{API}/tokens/hers")
    assert (refused.status_code, refused.json()["code"]) == (403, "owner-wanted")
    assert client.delete(f"{API}/tokens/hers").json()["name"] == "hers"
    assert eve.get(f"{API}/tokens").status_code == 401
    assert client.delete(f"{API}/tokens/hers").status_code == 404


def test_roots_of_publishers_are_listed(client: TestClient) -> None:
    found = client.get(f"{API}/publishers").json()
    assert found == {"roots": [], "timestamps": [], "revocations": [], "repositories": []}


@pytest.mark.one_server("inside")
def test_a_service_says_which_one_it_is(house: Skillhouse, client: TestClient) -> None:
    own = client.get(f"{API}/status").json()["instance"]
    assert own.keys() == {"id", "name", "host", "version", "started"}
    assert own["name"] == own["host"] == socket.gethostname()
    assert own["version"] == skillhouse.__version__
    assert datetime.fromisoformat(own["started"]).utcoffset() == timedelta(0)
    assert client.get(f"{API}/health").json() == {"status": "ok", "instance": own}
    # Who has no key learns nothing of this machine.
    assert client_of(house, {}).get(f"{API}/health").json() == {"status": "ok"}
    labels = ",".join(f'{name}="{own[name]}"' for name in ("id", "host", "name"))
    info = f'skillhouse_instance_info{{{labels},version="'
    assert info in client.get(f"{API}/metrics").text
    assert client_of(house).get(f"{API}/status").json()["instance"]["id"] != own["id"]


def test_metrics_count_calls_denials_questions_and_times(tmp_path: Path) -> None:
    rules = (Rule(effect=Effect.DENY, action="exec", pattern="git push *"),)
    house = make_house(tmp_path, layers=(Layer(name="user", rules=rules),))
    house.call_sync("skill", {"name": "notes"})
    client = client_of(house)

    def counts() -> dict[str, float]:
        lines = client.get(f"{API}/metrics").text.splitlines()
        found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name.removeprefix("skillhouse_"): float(value) for name, _, value in found}

    # Calls before the start are no calls of this service's time.
    assert not any(name.startswith("calls_total") for name in counts())
    for _ in range(2):
        house.call_sync("skill", {"name": "notes"})
        house.call_sync("exec", {"command": "git push origin"})
    question = house.call_sync("write", {"path": "a", "content": "b"}).approval_id
    assert question
    approval = house.approvals.get(question)
    house.approvals.answer(
        question, Answer.NO, by="local", channel="page", nonce=approval.request.nonce
    )
    for _ in range(2):
        found = counts()
        assert found['calls_total{status="ok"}'] == 2
        assert found['denials_total{by="rule"}'] == 2
        assert found['denials_total{by="person"}'] == 1
        assert found['questions_total{answer="denied"}'] == 1
        assert found["call_duration_seconds_count"] == 2
        assert found['call_duration_seconds_bucket{le="+Inf"}'] == 2
    house.call_sync("skill", {"name": "pdf"})
    assert counts()['calls_total{status="ok"}'] == 3


def test_questions_grants_and_tokens_come_in_pages(house: Skillhouse, client: TestClient) -> None:
    for number in range(5):
        token_of(house, "read", name=f"t{number}")
        caller = Caller(connection=f"c{number}", client="codex", channel="mcp")
        asked = {"path": f"{number}.txt", "content": "b"}
        assert house.call_sync("write", asked, caller=caller).approval_id
    for path, name in (("/approvals", "approvals"), ("/tokens", "tokens"), ("/grants", "grants")):
        whole = client.get(API + path).json()
        assert whole["next"] is None
        found: list[str] = []
        page = client.get(f"{API}{path}?limit=2").json()
        while page["next"]:
            assert len(page[name]) == 2
            assert page["total"] == whole["total"]
            found += [one["id"] for one in page[name]]
            page = client.get(f"{API}{path}?limit=2&cursor={page['next']}").json()
        found += [one["id"] for one in page[name]]
        assert found == [one["id"] for one in whole[name]]
        assert len(found) == (0 if name == "grants" else 5)


def test_each_line_of_the_library_has_a_key_of_its_own(tmp_path: Path) -> None:
    house = make_house(tmp_path)
    skills = tmp_path / "home/.agents/skills"
    for name in ("one", "two"):
        write_skill(skills / name).joinpath("SKILL.md").write_text("---\nname: [\n---\n")
    found = client_of(house).get(f"{API}/library").json()["skills"]
    assert len({one["key"] for one in found}) == len(found)
    broken = {one["id"] for one in found if one["state"] == "broken"}
    assert broken == {"one", "two"}
    assert all(one["id"] for one in found)


def test_each_moment_is_a_time_of_rfc_3339_beside_its_older_form(
    house: Skillhouse, client: TestClient
) -> None:
    document = client.get(f"{API}/openapi.json").json()["components"]["schemas"]
    found = set()
    for schema in document.values():
        properties = schema.get("properties", {})
        for name in MOMENTS & properties.keys():
            assert properties[name]["deprecated"] is True
            assert properties[moment_of(name)]["format"] == "date-time"
            assert (moment_of(name) in schema["required"]) == (name in schema["required"])
            found.add(name)
        # What else ends so is a span of time.
        others = {name for name in properties if name.endswith("_ms")} - MOMENTS
        times = {"p50_ms", "p95_ms", "max_ms", "latency_ms", "lag_ms", "clock_ms"}
        times |= {"duration_ms", "waited_ms"}
        assert others <= times
    assert found == MOMENTS
    assert house.call_sync("write", {"path": "a", "content": "opened_ms"}).approval_id
    (question,) = client.get(f"{API}/approvals").json()["approvals"]
    opened = datetime.fromisoformat(question["opened"])
    assert opened.timestamp() == pytest.approx(question["opened_ms"] / 1000)
    assert (question["closed"], question["closed_ms"]) == (None, None)
    # What a call sent is left as it came.
    assert "opened" not in question["content"]["arguments"]
