"""The pages of skills with code and of their calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.extensions.server.test_http_app import BEARER, Page, client_of
from tests.harness import Need
from tests.house.coded import best_sandbox, called, coded_house, tool, write_code

pytestmark = pytest.mark.slow

FAILS = """
def tool(params, context):
    print("<script>alert(1)</script>\\x1b[31m")
    context.log("began")
    raise ValueError("<b>no</b>")


tools = {"tool": tool, "pay": tool}
"""


def test_the_page_shows_skills_with_code_and_what_their_calls_left(
    tmp_path: Path, need: Need
) -> None:
    status = best_sandbox(need)
    root = tmp_path / "skills"
    write_code(root / "one", FAILS, tool(), tool("pay", "sign"))
    write_code(root / "bad", FAILS, tool(level="root"))
    (root / "one/SKILL.md").write_text("---\nname: one\ndescription: Fails.\n---\nbody\n")
    house = coded_house(tmp_path, root, status=status)
    called(house, "one:tool")
    client = client_of(house)
    first = client.get("/")
    assert "Python · 2" in Page(first.text).text
    assert "security.level" in first.text
    assert "one:pay (sign) Does pay." in Page(client.get("/skills/one").text).text
    moved = client.get("/calls")
    assert (moved.status_code, moved.headers["location"]) == (303, "/audit")
    log = Page(client.get("/audit?text=one:tool").text)
    (link,) = [one for one in log.links if one.startswith("/calls/")]
    answer = client.get(link)
    page = Page(answer.text)
    assert answer.status_code == 200
    for text in ("main.py:5 in tool", "began", "<script>alert(1)</script>\\x1b[31m", "<b>no</b>"):
        assert text in page.text
    assert "<script>" not in answer.text
    records = "/api/v1/audit/records"
    value = client_of(house, BEARER).get(f"{records}/{link.rpartition('/')[2]}").json()
    assert value["outcome"]["detail"]["frames"] == ["main.py:5 in tool"]
    assert value["status"] == "error"
    (listed,) = client_of(house, BEARER).get(f"{records}?text=one:tool").json()["records"]
    assert listed["record"]["id"] == value["record"]["id"]
    code = client_of(house, BEARER).get("/api/v1/skills/one").json()["code"]
    assert [one["level"] for one in code["tools"]] == ["read", "sign"]


@pytest.mark.parametrize("wanted", ["0" * 26, "%2e%2e%2fx", "a" * 100, "ä"])
def test_a_call_that_is_not_there_is_404(tmp_path: Path, wanted: str) -> None:
    client = client_of(coded_house(tmp_path))
    assert client.get(f"/calls/{wanted}").status_code == 404
    assert client.get("/calls", headers={"cookie": ""}).status_code == 401
