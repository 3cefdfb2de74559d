"""A fault of one request or job: the answer names the report, and the service goes on."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse.extensions.server.api import skill_routes
from skillhouse.extensions.server.pages import package_pages
from skillhouse.floor import InternalFaultError
from skillhouse.frontends.mcp import skill_resources, tool_list
from skillhouse.install import install_report
from tests.extensions.server.api.place import API, client_of, make_house
from tests.extensions.server.api.test_packages import ended
from tests.frontends.mcp_inside import Inside, sdk_answers
from tests.house.places import write_skill
from tests.registry.sources import make_repository, make_skill

pytestmark = pytest.mark.slow


def report_of(caplog: pytest.LogCaptureFixture) -> str:
    (fault,) = [one.__dict__["fault"] for one in caplog.records if "fault" in one.__dict__]
    assert isinstance(fault, InternalFaultError)
    return fault.report


def fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a path of this machine")


def test_a_request_of_the_api_is_answered_with_500_and_the_next_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(make_house(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(skill_routes, "listed_skill", fail)
        answer = client.get(f"{API}/skills")
    found = answer.json()
    assert (answer.status_code, found["code"]) == (500, "broken")
    assert answer.headers["content-type"] == "application/problem+json"
    assert found["report"] == report_of(caplog)
    assert found["report"] in found["detail"]
    assert "machine" not in found["detail"]
    assert client.get(f"{API}/skills").status_code == 200


def test_a_page_names_the_report_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = client_of(make_house(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(package_pages, "installed_marks", fail)
        broken = client.get("/packages")
    assert broken.status_code == 500
    assert f"report <code>{report_of(caplog)}" in broken.text
    assert client.get("/packages").status_code == 200


def test_a_job_plans_every_skill_but_the_one_with_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Review N1: the page said "something went wrong" and no more."""
    judge = install_report.hosts_in
    monkeypatch.setattr(
        install_report, "hosts_in", lambda text: fail() if "BOOM" in text else judge(text)
    )
    for name, body in (("aaa", "A."), ("bbb", "BOOM"), ("ccc", "C.")):
        make_skill(tmp_path / "source/skills" / name, body)
    source = make_repository(tmp_path / "source")
    client = client_of(make_house(tmp_path))
    request = {"action": "install", "source": f"git+file://{source}", "all": True}
    job = ended(client, client.post(f"{API}/changes/plan", json=request))
    assert job["state"] == "done", job
    one, two, three = job["result"]["skills"]
    assert (one["status"], two["status"], three["status"]) == ("planned", "refused", "planned")
    assert two["name"] == "skills/bbb"
    assert two["error"]["code"] == "internal-fault"
    assert "ZeroDivisionError" in two["error"]["message"]


def test_mcp_answers_an_internal_error_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = Inside(tmp_path)
    write_skill(place.places.home / ".agents/skills/aaa")
    server = place.server()
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(skill_resources.SkillResources, "page", fail)
        answers = anyio.run(sdk_answers, server, [*HELLO, ask("resources/list", 1), ask("ping", 2)])
    error = answers[1]["error"]
    assert error["code"] == -32603
    assert error["message"] == f"the request failed inside skillhouse: report `{report_of(caplog)}`"
    assert answers[2]["result"] is not None


def test_mcp_lists_every_tool_and_resource_but_the_one_with_the_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Inside(tmp_path)
    for name in ("aaa", "bbb", "ccc"):
        write_skill(place.places.home / ".agents/skills" / name)
    described, made = tool_list._described, skill_resources.SkillResources._made  # noqa: SLF001

    def of_tool(tool: Any, chars: Any, description: str) -> Any:
        return fail() if tool.name == "exec" else described(tool, chars, description)

    def of_skill(self: Any, base: str, skill: Any) -> Any:
        return fail() if skill.name == "bbb" else made(self, base, skill)

    monkeypatch.setattr(tool_list, "_described", of_tool)
    monkeypatch.setattr(skill_resources.SkillResources, "_made", of_skill)
    messages = [*HELLO, ask("tools/list", 1), ask("resources/list", 2)]
    answers = anyio.run(sdk_answers, place.server(), messages)
    tools = [one["name"] for one in answers[1]["result"]["tools"]]
    assert "exec" not in tools
    assert {"read", "skill"} <= set(tools)
    names = [one["name"] for one in answers[2]["result"]["resources"]]
    assert {"aaa", "ccc"} <= set(names)
    assert "bbb" not in names


def ask(method: str, number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method}


HELLO = (
    ask("initialize", 0)
    | {
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)
