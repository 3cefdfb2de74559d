"""Packages over the API: browse, plan, apply with what was shown, verify, pin, uninstall."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread
from typing import Any, cast

import anyio
import pytest
from starlette.testclient import TestClient
from tests.extensions.server.api.place import API, client_of, make_house, token_of
from tests.extensions.server.api.test_events import started
from tests.frontends.test_cli_from_lock import entry_of, written
from tests.frontends.test_cli_repositories import configure
from tests.harness import Clock
from tests.loopback_http import served
from tests.registry.repositories import StaticRepository, static_server
from tests.registry.sources import make_repository, make_skill

from skillhouse.answers.json_form import ListAnswer, listed, plain
from skillhouse.answers.service import JobAnswer, JobLineAnswer, JobState
from skillhouse.approval import Connections
from skillhouse.extensions.server.api.events import EventLog
from skillhouse.extensions.server.api.job_rows import KEPT_MAX, JobRows, KeptJob
from skillhouse.extensions.server.api.jobs import WAITING_MAX, Job, Jobs
from skillhouse.extensions.server.api.problems import ApiProblem
from skillhouse.floor import structs
from skillhouse.frontends.api_client import AgreedJson, ApiClient, ApiClientError
from skillhouse.house import Skillhouse
from skillhouse.install import QUESTIONS
from skillhouse.store import STATE, STATE_FILE, pooled

pytestmark = pytest.mark.slow

SECONDS = 30.0


@pytest.fixture
def official(tmp_path: Path) -> StaticRepository:
    """A trusted repository with two versions of `memo`, and one that is not trusted."""
    made = StaticRepository(tmp_path / "official")
    made.make("1.0.0", "memo")
    made.make("1.1.0", "memo")
    other = StaticRepository(tmp_path / "community", "community.example")
    other.make("0.1.0", "poem")
    configure(tmp_path, ("official", made.address, True), ("community", other.address, False))
    return made


@pytest.fixture
def house(tmp_path: Path, official: StaticRepository) -> Skillhouse:
    return make_house(tmp_path)


def ended(client: TestClient, answer: Any) -> dict[str, Any]:
    """Return a job once it has ended."""
    assert answer.status_code == 202, answer.text
    until = time.monotonic() + SECONDS
    path = answer.headers["location"]
    job: dict[str, Any] = answer.json()
    while job["state"] in ("waiting", "running") and time.monotonic() < until:
        job = client.get(path).json()
    return job


def planned(client: TestClient, **request: Any) -> list[dict[str, Any]]:
    job = ended(client, client.post(f"{API}/changes/plan", json=request))
    assert job["state"] == "done", job
    found: list[dict[str, Any]] = job["result"]["skills"]
    return found


def applied(client: TestClient, agreed: dict[str, Any], **request: Any) -> list[dict[str, Any]]:
    body = {**request, "agreed": agreed}
    job = ended(client, client.post(f"{API}/changes", json=body))
    assert job["state"] == "done", job
    found: list[dict[str, Any]] = job["result"]["skills"]
    return found


def agreed_to(plan: dict[str, Any], *answers: str) -> dict[str, Any]:
    return {plan["name"]: {"plan_digest": plan["plan_digest"], "answers": list(answers)}}


def installed(base: Path, name: str = "memo") -> str:
    return (base / "home/.agents/skills" / name / "SKILL.md").read_text()


def test_what_repositories_have_is_listed_with_its_versions(client: TestClient) -> None:
    found = client.get(f"{API}/repositories").json()["repositories"]
    assert [(one["name"], one["trusted"]) for one in found] == [
        ("official", True),
        ("community", False),
    ]
    answer = client.get(f"{API}/repositories/official/packages/memo")
    versions = answer.json()["versions"]
    assert [(one["version"], one["state"]) for one in versions] == [
        ("1.1.0", "published"),
        ("1.0.0", "published"),
    ]
    assert versions[0]["publisher"] is None
    missing = client.get(f"{API}/repositories/official/packages/none")
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown-skill")
    wrong = client.get(f"{API}/repositories/none/packages/memo")
    assert (wrong.status_code, wrong.json()["code"]) == (404, "not-configured")


def test_an_install_is_planned_and_made_as_it_was_shown(client: TestClient, tmp_path: Path) -> None:
    request = {"action": "install", "source": "memo@1.0.0"}
    (plan,) = planned(client, **request)
    assert (plan["status"], plan["questions"], plan["version"]) == (
        "planned",
        ["unsigned"],
        "1.0.0",
    )
    assert [one["path"] for one in plan["files"]] == ["SKILL.md", "scripts/run.sh"]
    assert not (tmp_path / "home/.agents/skills/memo").exists()
    (declined,) = applied(client, {}, **request)
    assert declined["status"] == "declined"
    (unsaid,) = applied(client, agreed_to(plan), **request)
    assert (unsaid["status"], unsaid["error"]["code"]) == ("refused", "not-agreed")
    assert not (tmp_path / "home/.agents/skills/memo").exists()
    (done,) = applied(client, agreed_to(plan, "unsigned"), **request)
    assert done["status"] == "installed"
    assert "Version 1.0.0" in installed(tmp_path)
    assert "user:memo" in [one["id"] for one in client.get(f"{API}/skills").json()["skills"]]
    (again,) = planned(client, **request)
    assert again["status"] == "unchanged"


def test_what_is_not_trusted_is_a_question_of_its_own(client: TestClient) -> None:
    request = {"action": "install", "source": "poem"}
    (plan,) = planned(client, **request)
    assert plan["questions"] == ["unsigned", "untrusted"]
    (half,) = applied(client, agreed_to(plan, "unsigned"), **request)
    assert half["error"]["code"] == "not-agreed"
    (done,) = applied(client, agreed_to(plan, "unsigned", "untrusted"), **request)
    assert done["status"] == "installed"


def test_a_name_that_may_be_taken_for_another_is_agreed_to(
    client: TestClient, tmp_path: Path
) -> None:
    install(client)
    make_skill(tmp_path / "source" / "memos", "Keeps memos.")
    request = {"action": "install", "source": str(tmp_path / "source")}
    (plan,) = planned(client, **request)
    assert plan["questions"] == ["unsigned", "near"]
    (done,) = applied(client, agreed_to(plan, "unsigned", "near"), **request)
    assert done["status"] == "installed"


def test_all_that_a_plan_may_ask_can_be_agreed_to_at_once(client: TestClient) -> None:
    request = {"action": "install", "source": "memo"}
    (plan,) = planned(client, **request)
    # Those that were not asked are refused by name, and so were read.
    (refused,) = applied(client, agreed_to(plan, *QUESTIONS), **request)
    assert refused["error"]["code"] == "not-agreed"
    assert all(word in refused["error"]["message"] for word in QUESTIONS)


def test_another_version_than_the_one_shown_is_not_installed(
    client: TestClient, tmp_path: Path, official: StaticRepository
) -> None:
    request = {"action": "install", "source": "memo"}
    (plan,) = planned(client, **request)
    official.make("1.2.0", "memo")
    (late,) = applied(client, agreed_to(plan, "unsigned"), **request)
    assert (late["status"], late["error"]["code"]) == ("refused", "plan-changed")
    assert not (tmp_path / "home/.agents/skills/memo").exists()


def test_the_skills_of_another_installers_lock_are_planned_and_made(
    client: TestClient, tmp_path: Path
) -> None:
    for name in ("notes2", "pdf2"):
        make_skill(tmp_path / "origin/skills" / name)
    origin = make_repository(tmp_path / "origin")
    entries = {name: entry_of(origin, name) for name in ("notes2", "pdf2")}
    entries["pdf2"]["computedHash"] = "0" * 64
    request = {"action": "install", "lock": "skills-lock.json"}
    written(tmp_path / "project/skills-lock.json", entries)
    plans = {one["name"]: one for one in planned(client, **request)}
    assert [plans[name]["lock_hash"] for name in ("notes2", "pdf2")] == ["same", "different"]
    assert plans["pdf2"]["questions"] == ["unsigned", "changed"]
    agreed = agreed_to(plans["notes2"], "unsigned") | agreed_to(plans["pdf2"], "unsigned")
    done = {one["name"]: one for one in applied(client, agreed, **request)}
    assert done["notes2"]["status"] == "installed"
    assert (done["pdf2"]["status"], done["pdf2"]["error"]["code"]) == ("refused", "not-agreed")
    agreed = agreed_to(plans["pdf2"], "unsigned", "changed")
    (late,) = applied(client, agreed, **request, skills=["pdf2"])
    assert late["status"] == "installed"
    assert (tmp_path / "home/.agents/skills/pdf2/SKILL.md").exists()
    both = client.post(f"{API}/changes/plan", json={**request, "source": "memo"})
    assert (both.status_code, both.json()["code"]) == (400, "wrong-body")
    for wrong in ({"lock": "none.json"}, {**request, "skills": ["none"]}):
        body = {"action": "install", **wrong}
        job = ended(client, client.post(f"{API}/changes/plan", json=body))
        assert job["state"] == "failed"


def install(client: TestClient, source: str = "memo@1.0.0") -> None:
    request = {"action": "install", "source": source}
    (plan,) = planned(client, **request)
    (done,) = applied(client, agreed_to(plan, *plan["questions"]), **request)
    assert done["status"] == "installed", done


def test_a_skill_is_updated_rolled_back_pinned_and_uninstalled(
    client: TestClient, tmp_path: Path
) -> None:
    install(client, "memo@1.0.0")
    asked = {"action": "export", "skills": ["user:memo"], "clients": ["claude-code"]}
    plan = client.post(f"{API}/exports/plan", json=asked).json()
    client.post(f"{API}/exports", json={**asked, "plan_digest": plan["plan_digest"]})
    copy = tmp_path / "home/.claude/skills/memo/SKILL.md"
    # `memo@1.0.0` stays where it was asked to; the newest is another request.
    (same,) = planned(client, action="update")
    assert same["status"] == "unchanged"
    install(client, "memo")
    assert "Version 1.1.0" in installed(tmp_path)
    assert "Version 1.1.0" in copy.read_text()
    assert ended(client, client.post(f"{API}/outdated"))["result"]["skills"][0]["outdated"] is False
    back = {"action": "rollback", "skills": ["memo"]}
    (plan,) = planned(client, **back)
    assert any("1.0.0" in line for line in plan["changes"])
    (done,) = applied(client, agreed_to(plan, *plan["questions"]), **back)
    assert done["status"] == "installed"
    assert "Version 1.0.0" in installed(tmp_path)
    assert "Version 1.0.0" in copy.read_text()
    pinned = client.put(f"{API}/installed/memo/pin", json={"pinned": True, "reason": "fine"})
    assert pinned.json()["pinned"] is True
    assert planned(client, action="update")[0]["status"] == "pinned"
    named = client.post(f"{API}/changes/plan", json={"action": "update", "skills": ["memo"]})
    job = ended(client, named)
    assert (job["state"], job["problem"]["code"]) == ("failed", "pinned")
    gone = client.delete(f"{API}/installed/user:memo")
    assert gone.json()["name"] == "memo"
    assert not copy.exists()
    assert client.get(f"{API}/installed").json()["total"] == 0
    (deleted,) = client.get(f"{API}/trash").json()["deleted"]
    assert deleted["id"] == "user:memo"


def test_edited_files_are_shown_kept_accepted_and_put_back(
    client: TestClient, tmp_path: Path
) -> None:
    install(client)
    file = tmp_path / "home/.agents/skills/memo/SKILL.md"
    file.write_text(file.read_text() + "Edited.\n")
    (state,) = ended(client, client.post(f"{API}/verify", json={}))["result"]["skills"]
    assert (state["state"], state["is_well"]) == ("edited", False)
    assert "+Edited." in state["changes"]
    refused = client.delete(f"{API}/installed/memo")
    assert (refused.status_code, refused.json()["code"]) == (409, "local-edits")
    stale = client.post(f"{API}/installed/memo/accept", json={"digest": "skilltree1:00"})
    assert (stale.status_code, stale.json()["code"]) == (409, "changed")
    request = {"action": "install", "source": "memo"}
    (plan,) = planned(client, **request)
    assert plan["questions"] == ["unsigned", "edited"]
    accepted = client.post(f"{API}/installed/memo/accept", json={"digest": state["found"]})
    assert accepted.json()["state"] == "accepted"
    back = {"action": "restore", "skills": ["memo"]}
    (plan,) = planned(client, **back)
    assert plan["questions"] == ["unsigned", "edited"]
    (done,) = applied(client, agreed_to(plan, "unsigned", "edited"), **back)
    assert done["status"] == "installed"
    assert "Edited." not in file.read_text()
    assert planned(client, **back)[0]["status"] == "ok"
    # The edits are what a rollback gives.
    (plan,) = planned(client, action="rollback", skills=["memo"])
    assert "+Edited." in plan["changes"]


def test_a_source_with_several_skills_says_which(client: TestClient, tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_skill(tmp_path / "source" / name, f"Does {name}.")
    request = {"action": "install", "source": str(tmp_path / "source")}
    job = ended(client, client.post(f"{API}/changes/plan", json=request))
    assert job["result"]["skills"] == []
    assert [one["path"] for one in job["result"]["candidates"]] == ["one", "two"]
    assert [one["name"] for one in planned(client, **request, skills=["two"])] == ["two"]
    assert [one["name"] for one in planned(client, **request, all=True)] == ["one", "two"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"action": "install"}, 400, "wrong-body"),
        ({"action": "rollback"}, 400, "wrong-body"),
        ({"action": "update", "source": "memo"}, 400, "wrong-body"),
        ({"action": "remove"}, 400, "wrong-body"),
    ],
)
def test_a_request_of_another_shape_begins_no_work(
    client: TestClient, body: dict[str, Any], status: int, code: str
) -> None:
    answer = client.post(f"{API}/changes/plan", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert client.get(f"{API}/jobs").json()["total"] == 0


def test_a_source_that_is_not_there_fails_the_job_with_its_code(client: TestClient) -> None:
    answer = client.post(f"{API}/changes/plan", json={"action": "install", "source": "nothing"})
    job = ended(client, answer)
    assert (job["state"], job["problem"]["code"]) == ("failed", "unknown-skill")


@pytest.mark.one_server("agent")
def test_a_plan_is_made_and_nothing_else_where_nothing_may_change(house: Skillhouse) -> None:
    client = client_of(house, read_only="an agent started this")
    (plan,) = planned(client, action="install", source="memo")
    body = {"action": "install", "source": "memo", "agreed": agreed_to(plan, "unsigned")}
    for method, path, given in (
        ("POST", "/changes", body),
        ("PUT", "/installed/memo/pin", {"pinned": True}),
        ("DELETE", "/installed/memo", None),
    ):
        answer = client.request(method, API + path, json=given)
        assert (answer.status_code, answer.json()["code"]) == (403, "read-only")


def test_jobs_of_another_user_are_not_shown(house: Skillhouse) -> None:
    client = client_of(house)
    job = ended(client, client.post(f"{API}/outdated"))
    eve = client_of(house, token_of(house, "read", "manage", user="eve"))
    assert eve.get(f"{API}/jobs").json()["total"] == 0
    for method in ("GET", "DELETE"):
        assert eve.request(method, f"{API}/jobs/{job['id']}").status_code == 404


@pytest.fixture
def jobs() -> Any:
    made = Jobs(EventLog(), clock=Clock(0.0), moment=Clock(0.0))
    yield made
    made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[], JobRows]]:
    """Return what makes the jobs of one more server of a state."""
    with ExitStack() as stack:

        def made() -> JobRows:
            connections = stack.enter_context(closing(Connections(tmp_path)))
            return JobRows(tmp_path, connections, clock=Clock(5.0))

        yield made


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_job_is_cancelled_as_it_goes_on_and_before_it_begins(jobs: Jobs) -> None:
    def work(job: Job) -> None:
        while True:
            job.report("fetching")
            time.sleep(0.001)

    first = jobs.start("plan", "local", work)
    second = jobs.start("plan", "local", work)
    until(lambda: first.state == "running")
    jobs.cancel(second)
    assert second.state == "cancelled"
    jobs.cancel(first)
    until(lambda: first.state == "cancelled")


def test_a_job_is_shown_and_ended_by_another_server_of_the_state(
    server: Callable[[], JobRows],
) -> None:
    here, there = (
        Jobs(EventLog(), clock=Clock(5.0), moment=time.monotonic, rows=server()) for _ in range(2)
    )

    def work(job: Job) -> ListAnswer:
        job.report("fetching")
        return listed("skills", ["a"])

    def endless(job: Job) -> None:
        while True:
            job.report("fetching")
            time.sleep(0.001)

    def shown(job_id: str) -> JobAnswer:
        found = there.get(job_id)
        assert isinstance(found, KeptJob)
        return found.answer()

    done = here.start("plan", "eve", work)
    until(lambda: shown(done.id).line.state == "done")
    assert plain(shown(done.id)) == plain(done.answer())
    assert [one.user for one in there.all()] == ["eve"]
    running = here.start("outdated", "eve", endless)
    until(lambda: running.state == "running")
    assert [one.id for one in there.all()] == [one.id for one in here.all()]
    kept = there.get(running.id)
    assert kept is not None
    there.cancel(kept)
    until(lambda: shown(running.id).line.state == "cancelled")
    # A server that is gone says no more: its job is none that runs for ever.
    lost = here.start("plan", "eve", endless)
    until(lambda: lost.state == "running")
    rows = server()
    rows.open("gone", "plan", "eve", lost.answer())
    rows.close()
    problem = shown("gone").problem
    assert problem is not None
    assert (problem.code, shown("gone").line.state) == ("job-lost", "failed")
    here.close()
    there.close()
    assert shown(lost.id).line.state == "cancelled"


def test_jobs_end_with_their_server_and_those_that_wait_too(server: Callable[[], JobRows]) -> None:
    there = server()
    here = Jobs(EventLog(), clock=Clock(5.0), moment=time.monotonic, rows=server())

    def endless(job: Job) -> None:
        while True:
            job.report("fetching")
            time.sleep(0.001)

    begun = [here.start("plan", "eve", endless) for _ in range(3)]
    until(lambda: begun[0].state == "running")
    here.close()
    shown = [there.get(one.id) for one in begun]
    assert [one and (one.state, one.answer().problem) for one in shown] == [("cancelled", None)] * 3
    assert [(one.state, one.ended_ms) for one in begun] == [("cancelled", 5_000)] * 3


def test_a_job_that_has_ended_is_read_once_by_each_server(
    tmp_path: Path, server: Callable[[], JobRows]
) -> None:
    here, there = server(), server()
    job = Job("plan", "eve", lambda _: None, 5.0)
    job.state, job.ended_ms, job.result = "done", 5_000, listed("skills", ["a"])
    here.open(job.id, "plan", "eve", job.answer())
    here.keep(job.id, job.answer())
    (seen,) = there.elsewhere()
    assert (seen.state, seen.answer().result) == ("done", None)
    whole = there.get(job.id)
    assert whole is not None
    assert plain(whole.answer()) == plain(job.answer())
    with pooled(tmp_path / STATE_FILE, STATE) as store, store.transaction() as connection:
        connection.execute("UPDATE call_task SET outcome = '{'")
    assert there.elsewhere() == [seen]
    assert (here.get(job.id), there.get(job.id)) == (None, None)


@pytest.mark.parametrize("is_asked_to_end", [False, True])
def test_a_job_whose_server_was_only_stopped_runs_again(
    tmp_path: Path, server: Callable[[], JobRows], *, is_asked_to_end: bool
) -> None:
    here, there, third = server(), server(), server()
    job = Job("plan", "eve", lambda _: None, 5.0)
    job.state = "running"
    here.open(job.id, "plan", "eve", job.answer())
    if is_asked_to_end:
        there.end(job.id)
    assert [one.state for one in there.elsewhere()] == ["running"]
    here.close()
    for rows in (there, third):
        (found,) = rows.elsewhere()
        assert (found.state, found.line().ended_ms) == ("failed", 5_000)
    with pooled(tmp_path / STATE_FILE, STATE) as store:
        (state,) = store.rows("SELECT state FROM call_task")
    assert state != ("running",)
    # It says once more how far it is, and is one that runs, or has been asked to end.
    assert here.keep(job.id, job.answer()) is not is_asked_to_end
    job.state, job.ended_ms = "done", 10_000
    here.keep(job.id, job.answer())
    assert [one.state for one in there.elsewhere()] == ["done"]


def test_a_job_that_runs_is_not_forgotten_for_many_of_another_server(
    server: Callable[[], JobRows],
) -> None:
    """Its server would take it for one that another server ended, and end it."""
    here, there = server(), server()
    job = Job("plan", "eve", lambda _: None, 5.0)
    here.open("long", "plan", "eve", job.answer())
    # One that was to end when its server was lost has ended.
    lost = server()
    lost.open("lost", "plan", "bob", job.answer())
    there.end("lost")
    lost.close()
    assert [one.state for one in there.elsewhere()] == ["waiting", "failed"]
    job.ended_ms, job.state = 6_000, "done"
    for number in range(KEPT_MAX + 5):
        there.open(str(number), "plan", "bob", job.answer())
        there.keep(str(number), job.answer())
    assert there.get("long") is not None
    assert (there.get("0"), there.get("lost")) == (None, None)
    assert there.get(str(KEPT_MAX + 4)) is not None
    job.ended_ms, job.state = 0, "running"
    assert here.keep("long", job.answer())
    here.close()
    there.close()


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("result", "[" * 900 + "]" * 900),
        ("result", "[" * 100_000),
        ("message", r'"\ud800"'),
        ("begun_ms", "9" * 30),
        ("begun_ms", "9" * 5_000),
    ],
)
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_job_that_cannot_be_shown_hides_no_other(
    tmp_path: Path, server: Callable[[], JobRows], member: str, value: str, *, is_lost: bool
) -> None:
    here, there = server(), server()
    for name in ("odd", "plain"):
        job = Job("plan", "eve", lambda _: None, 5.0)
        job.id, job.message, job.begun_ms = name, "MESSAGE", 5_000
        here.open(name, "plan", "eve", job.answer())
    was = {"result": '"result": null', "message": '"MESSAGE"', "begun_ms": ": 5000"}[member]
    new = was.rpartition(" ")[0] + value if member != "message" else value
    with pooled(tmp_path / STATE_FILE, STATE) as store, store.transaction() as connection:
        changed = "UPDATE call_task SET outcome = replace(outcome, ?, ?) WHERE digest = 'job:odd'"
        connection.execute(changed, (was, new))
        (text,) = connection.execute(
            "SELECT outcome FROM call_task WHERE digest = 'job:odd'"
        ).fetchone()
    assert value in text
    if is_lost:
        here.close()
    # From Python 3.12 on hundreds of levels are read, and written, as any other answer.
    is_shown = value.startswith("[[") and "]" in value and sys.version_info >= (3, 12)
    assert [one.id for one in there.elsewhere()] == ["odd"] * is_shown + ["plain"]
    assert (there.get("odd") is None) is not is_shown


def test_a_job_that_is_ended_while_it_is_written_is_not_one_that_waits(
    server: Callable[[], JobRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, there = server(), server()
    here = Jobs(EventLog(), clock=Clock(5.0), moment=time.monotonic, rows=rows)
    enders: list[Thread] = []
    keep = rows.keep

    def slow(job_id: str, answer: JobAnswer) -> bool:
        if not enders:
            (job,) = (one for one in here.all() if isinstance(one, Job))
            enders.append(Thread(target=here.cancel, args=(job,)))
            enders[0].start()
            enders[0].join(1.0)
        return keep(job_id, answer)

    monkeypatch.setattr(rows, "keep", slow)
    job = here.start("plan", "eve", lambda _: None)
    enders[0].join()
    until(lambda: job.state == "cancelled")
    found = there.get(job.id)
    assert found is not None
    assert found.state == "cancelled"
    here.close()


def test_a_job_of_a_later_version_hides_no_other(server: Callable[[], JobRows]) -> None:
    rows, there = server(), server()
    job = Job("plan", "eve", lambda _: None, 5.0)
    rows.open("new", "plan", "eve", structs.replace(job.answer(), line=replaced_state(job)))
    rows.open(job.id, "plan", "eve", job.answer())
    assert [one.id for one in there.elsewhere()] == [job.id]
    assert there.get("new") is None
    rows.close()


def replaced_state(job: Job) -> JobLineAnswer:
    return structs.replace(job.line(), state=cast("JobState", "paused"))


def test_jobs_are_bounded_and_a_fault_says_nothing_of_this_machine(jobs: Jobs) -> None:
    def broken(_: Job) -> None:
        raise RuntimeError("a secret path")

    def endless(job: Job) -> None:
        while True:
            job.report("fetching")
            time.sleep(0.001)

    one = jobs.start("plan", "local", broken)
    until(lambda: one.state == "failed")
    assert one.problem is not None
    assert (one.problem.code, "secret" in one.problem.detail) == ("broken", False)
    running = jobs.start("plan", "local", endless)
    until(lambda: running.state == "running")
    for _ in range(WAITING_MAX):
        jobs.start("plan", "local", endless)
    with pytest.raises(ApiProblem, match="wait already"):
        jobs.start("plan", "local", endless)


def test_progress_is_published_with_pauses_to_its_user_alone() -> None:
    events, moment = EventLog(), Clock(0.0)
    jobs = Jobs(events, clock=Clock(0.0), moment=moment)
    try:

        def work(job: Job) -> None:
            for number in range(1_000):
                job.advance(number, 1_000, "bytes", now=jobs.moment())

        job = jobs.start("plan", "eve", work)
        until(lambda: job.state == "done")
    finally:
        jobs.close()
    found, _ = events.after(0)
    assert {one.user for one in found} == {"eve"}
    # The clock stands still, so of a thousand steps none is published.
    assert len(found) == 3


def test_a_program_installs_from_a_server_with_the_client(tmp_path: Path) -> None:
    made = StaticRepository(tmp_path / "official")
    made.make("1.0.0", "memo")

    async def use(address: str, token: str) -> None:
        client = ApiClient(address, token)
        (plan,) = await client.plan("install", source="memo")
        agreed: dict[str, AgreedJson] = {
            "memo": {"plan_digest": plan["plan_digest"], "answers": plan["questions"]}
        }
        (done,) = await client.apply("install", agreed, source="memo")
        assert done["status"] == "installed"
        library = await client.library(words="memo")
        assert [one["id"] for one in library["items"]] == ["user:memo"]
        with pytest.raises(ApiClientError, match="no installed skill `none`"):
            await client.plan("rollback", skills=["none"])

    with served(static_server(made.place)) as url:
        configure(tmp_path, ("official", url, True))
        (tmp_path / "home/.config/skillhouse/config.toml").chmod(0o600)
        with started(tmp_path) as (address, token, _):
            anyio.run(use, address, token)
    assert "Version 1.0.0" in installed(tmp_path)
