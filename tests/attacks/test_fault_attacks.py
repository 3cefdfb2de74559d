"""Attacks by faults: bad servers, held locks, full disks, many threads at once (review, G18-G20).

Each shows that what is wrong with one costs no other.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillhouse import sandbox
from skillhouse import tools as toolbox
from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.floor import structs
from skillhouse.house import McpServerSettings, Skillhouse, configured
from skillhouse.house.remotes import McpServers
from skillhouse.permission import Effect, Rule
from skillhouse.remote import McpCache, McpHost, McpServer, RemoteSource, skills_place
from skillhouse.sandbox import level_probes
from tests.harness import Need, ran
from tests.house.places import make_places, write_skill
from tests.machines import OWN_MOUNTS
from tests.remote.mcp_liar import Liar, entry_of, skill_file
from tests.remote.servers import BASE, Server, digest_of, text_of
from tests.tools.houses import Person, house_at

BAD = RemoteSource(url=f"{BASE}/bad", kind="opencode")
GOOD = RemoteSource(url=f"{BASE}/good", kind="opencode")
READ = Rule(effect=Effect.ALLOW, action="read", pattern="*")
WRITE = Rule(effect=Effect.ALLOW, action="write", pattern="*")
EXEC = Rule(effect=Effect.ALLOW, action="exec", pattern="*")


def opencode(server: Server, source: RemoteSource, name: str, *files: str) -> None:
    """Have a server offer one skill with these files besides its own."""
    listed = ["SKILL.md", *files]
    index = json.loads(server.pages.get(f"{source.url}/index.json", b'{"skills": []}'))
    index["skills"].append({"name": name, "files": listed})
    server.pages[f"{source.url}/index.json"] = json.dumps(index).encode()
    server.pages[f"{source.url}/{name}/SKILL.md"] = text_of(name)
    server.pages.update({f"{source.url}/{name}/{file}": b"x" for file in files})


def syncing_house(base: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Skillhouse:
    """Return a house with a bad remote before a good one."""
    house = Skillhouse(structs.replace(configured(make_places(base)), remotes=(BAD, GOOD)))

    monkeypatch.setattr(house.services.network, "fetch_for", lambda _, __: server.fetch)
    return house


async def tick(stalls: list[float]) -> None:
    """Note how long each pause of a hundredth of a second took: more where the loop stood still."""
    while True:
        began = time.monotonic()
        await anyio.sleep(0.01)
        stalls.append(time.monotonic() - began)


@contextmanager
def held_elsewhere(file: Path, seconds: float) -> Iterator[None]:
    """Hold a file's lock in another process."""
    script = (
        "import fcntl, sys, time; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('held', flush=True); time.sleep(float(sys.argv[2]))"
    )
    command = (sys.executable, "-I", "-c", script, str(file), str(seconds))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield


@pytest.mark.parametrize("file", ["a" * 300, "/".join(["b" * 250] * 20)])
def test_a_listed_name_that_no_file_can_have_costs_no_other_skill_and_no_other_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    server = Server()
    opencode(server, BAD, "evil", file)
    opencode(server, BAD, "fine")
    opencode(server, GOOD, "weather")
    with syncing_house(tmp_path, server, monkeypatch) as house:
        done = anyio.run(house.remotes.sync)
        places = [skills_place(house.config.remote_directory, source) for source in (BAD, GOOD)]
        assert [sorted(os.listdir(place)) for place in places] == [["fine"], ["weather"]]
        assert [found.is_whole for found in done] == [False, True]
        assert done[0].report is not None
        [problem] = done[0].report.problems
        assert problem.startswith("`evil` passed over: refused file")
        assert str(tmp_path) not in problem


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "evil", "type": "archive", "url": "https://[x", "digest": f"sha256:{'0' * 64}"},
        {"name": "evil", "type": "archive", "url": "https://x:y/z", "digest": f"sha256:{'0' * 64}"},
    ],
)
def test_an_address_that_is_none_costs_no_other_skill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, str]
) -> None:
    server = Server()
    opencode(server, BAD, "fine")
    index = json.loads(server.pages[f"{BAD.url}/index.json"])
    fine = {**entry, "name": "fine", "type": "skill-md", "url": f"{BAD.url}/fine/SKILL.md"}
    fine["digest"] = digest_of(server.pages[fine["url"]])
    index["$schema"] = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
    index["skills"] = [entry, fine]
    server.pages[f"{BAD.url}/index.json"] = json.dumps(index).encode()
    opencode(server, GOOD, "weather")
    with syncing_house(tmp_path, server, monkeypatch) as house:
        done = anyio.run(house.remotes.sync)
        assert [found.report.added if found.report else () for found in done] == [
            ("fine",),
            ("weather",),
        ]
        assert not done[0].is_whole


def test_a_network_that_raises_something_odd_costs_no_other_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server()
    opencode(server, GOOD, "weather")
    fetch = server.fetch

    async def odd(url: str, limit: int) -> Any:
        if url.startswith(BAD.url):
            raise UnicodeError("label empty or too long")
        return await fetch(url, limit)

    monkeypatch.setattr(server, "fetch", odd)
    with syncing_house(tmp_path, server, monkeypatch) as house:
        done = anyio.run(house.remotes.sync)
        assert [found.is_whole for found in done] == [False, True]
        assert "UnicodeError" in done[0].error
        outcomes = [entry.status for entry in read_records(house.audit_log.path, limit=5)]
        assert sorted(outcomes) == ["error", "ok"]


@pytest.mark.parametrize(
    "odd",
    [{"number": 1 << 70}, {"text": "\ud800"}],
    ids=["a number of 70 bits", "half a surrogate pair"],
)
def test_an_entry_that_cannot_be_stored_costs_no_other_entry_and_no_other_mcp_server(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    bad, good = Liar(), Liar()
    for liar, name in ((bad, "fine"), (good, "weather")):
        liar.offer(f"skill://{name}", {"SKILL.md": skill_file(name)})
    evil = entry_of("skill://evil", {"SKILL.md": skill_file("evil")})
    evil["frontmatter"] = {**evil["frontmatter"], **odd}
    # In memory: a transport would refuse some of these before, another one another.
    pages = {"bad": [evil, *bad.entries], "good": good.entries}

    @asynccontextmanager
    async def dial(server: McpServer) -> AsyncIterator[Any]:
        class Answering:
            async def list_skills(self) -> list[Any]:
                await anyio.lowlevel.checkpoint()
                return pages[server.label]

        yield Answering()

    settings = [McpServerSettings(label=label, url="http://127.0.0.1/mcp") for label in pages]
    config = structs.replace(configured(make_places(tmp_path)), mcp_servers=tuple(settings))
    named = [McpServer(label=label, url="http://127.0.0.1/mcp") for label in pages]
    host = McpHost(named, McpCache(config.state_directory / "mcp"), dial=dial)
    with Skillhouse(config) as house:
        servers = McpServers(config, host, house.audit_log, house.refresh)
        done = anyio.run(servers.refresh)
    assert [found.error for found in done] == ["", ""]
    assert [found.is_whole for found in done] == [False, True]
    assert [skill.name for skill in host.skills()] == ["bad:fine", "good:weather"]


def mounted(
    base: Path, need: Need, script: str, place: Path, options: str
) -> subprocess.CompletedProcess[str]:
    """Run a script, which is given a path where a file system of its own is mounted."""
    need(shutil.which("unshare"), "no unshare")
    place.mkdir(parents=True)
    (base / "script.py").write_text(script)
    mount = f'mount -t tmpfs -o {options} none "$1" && exec "$2" "$3" "$1"'
    words = (*OWN_MOUNTS, "sh", "-c", mount, "sh")
    root = Path(__file__).parents[2]
    done = ran(
        (*words, str(place), sys.executable, str(base / "script.py")),
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    need("permitted" not in done.stderr, "no mounts in a namespace of one's own")
    return done


FULL = """
import dataclasses, os, sys
from pathlib import Path
import anyio
from skillhouse.remote import sync, skills_place
from tests.attacks.test_fault_attacks import BAD, GOOD, opencode
from tests.remote.servers import Server
import subprocess

cache = Path(sys.argv[1])
server = Server()
opencode(server, BAD, "large", "ref/data")
opencode(server, GOOD, "weather")
small = server.pages[f"{BAD.url}/large/ref/data"]

async def work():
    await sync(BAD, cache, server.fetch)
    place = skills_place(cache, BAD)
    # The disk of this source alone is full.
    server.pages[f"{BAD.url}/large/ref/data"] = os.urandom(600_000)
    said = []
    for source in (BAD, GOOD):
        try:
            report = await sync(source, cache, server.fetch)
            said.append([report.problems, report.kept, report.added])
        except OSError as error:
            said.append(["failed", os.strerror(error.errno)])
    print(said, (place / "large/ref/data").read_bytes() == small)

anyio.run(work)
"""


@pytest.mark.slow
def test_a_full_disk_leaves_what_was_there_and_costs_no_other_server(
    tmp_path: Path, need: Need
) -> None:
    place = tmp_path / "cache"
    done = mounted(tmp_path, need, FULL, place, "size=256k")
    assert done.stdout.strip() == (
        "[[('`large` not taken: no space left on device',), ('large',), ()],"
        " [(), (), ('weather',)]] True"
    ), done.stderr


READ_ONLY = """
import sys
from pathlib import Path
from skillhouse.house import Skillhouse, configured
from skillhouse.house import export_source
from skillhouse.clients import ExportRequest, export
from tests.house.places import make_places

with Skillhouse(configured(make_places(Path(sys.argv[1]).parents[1]))) as house:
    request = ExportRequest(references=("notes",), clients=("claude-code", "codex"))
    for item in export(export_source(house), request):
        print(Path(item.target).parts[-3], item.state, item.done)
"""


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_costs_no_other_clients_export(
    tmp_path: Path, need: Need
) -> None:
    places = make_places(tmp_path)
    write_skill(places.home / ".config/skillhouse/skills/notes", "Takes notes.")
    done = mounted(tmp_path, need, READ_ONLY, places.home / ".claude", "ro")
    assert done.stdout.splitlines() == [
        ".claude refused False",
        ".agents missing True",
    ], done.stderr


@pytest.mark.slow
def test_a_held_log_delays_its_own_call_and_never_the_event_loop(tmp_path: Path) -> None:
    stalls: list[float] = []
    with house_at(tmp_path, READ, WRITE) as house:
        (tmp_path / "project/a.txt").write_text("text")

        async def work() -> float:
            await house.call("read", {"path": "a.txt"})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tick, stalls)
                with held_elsewhere(house.audit_log.path, 2):
                    assert (await house.call("read", {"path": "a.txt"})).status == "ok"
                    # The log is known to be locked now: reads go on, and their records wait.
                    began = time.monotonic()
                    assert (await house.call("read", {"path": "a.txt"})).status == "ok"
                    took = time.monotonic() - began
                    # What changes something waits for its record.
                    written = await house.call("write", {"path": "b.txt", "content": "x"})
                    assert written.status == "ok"
                tasks.cancel_scope.cancel()
            return took

        took = anyio.run(work)
        assert max(stalls) < 0.5
        assert took < 1.0
        house.audit_log.flush()
        assert house.audit_log.verify().problems == ()
        kinds = [entry.record.tool for entry in read_records(house.audit_log.path, limit=9)]
        assert kinds == ["write", "read", "read", "read"]


def test_a_log_that_stays_held_refuses_the_effect_by_the_name_of_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillhouse.floor.lock.LOCK_SECONDS", 0.2)
    with house_at(tmp_path, WRITE) as house:
        assert house.call_sync("write", {"path": "a.txt", "content": "1"}).status == "ok"
        with open(house.audit_log.path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            result = house.call_sync("write", {"path": "a.txt", "content": "2"})
        assert (result.status, "lock of `audit.jsonl`" in result.content) == ("denied", True)
        assert (tmp_path / "project/a.txt").read_text() == "1"


@pytest.mark.slow
async def test_a_held_state_delays_its_own_call_and_never_the_event_loop(tmp_path: Path) -> None:
    """Another process holds the write lock of the state while a call is asked about."""
    stalls: list[float] = []
    with house_at(tmp_path, person=Person([Answer.ONCE])) as house:
        (tmp_path / "project/a.txt").write_text("text")
        done: list[str] = []

        async def asked() -> None:
            result = await house.call("write", {"path": "b.txt", "content": "x"})
            done.append(f"write {result.status}")

        await house.call("read", {"path": "a.txt"})
        house.approvals.withdraw_all()
        state = sqlite3.connect(house.config.state_directory / "state.sqlite3")
        try:
            state.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(tick, stalls)
                async with anyio.create_task_group() as calls:
                    calls.start_soon(asked)
                    await anyio.sleep(0.7)
                    done.append(f"read {(await house.call('read', {'path': 'a.txt'})).status}")
                    state.execute("ROLLBACK")
                tasks.cancel_scope.cancel()
        finally:
            state.close()
        assert done == ["read ok", "write ok"]
        assert max(stalls) < 0.5


def test_first_calls_of_many_threads_have_one_portal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[toolbox.Portal] = []

    class Counted(toolbox.Portal):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(toolbox, "Portal", Counted)
    with house_at(tmp_path, READ) as house:
        (tmp_path / "project/a.txt").write_text("text")
        together = threading.Barrier(8)

        def call(_: int) -> str:
            together.wait()
            return house.call_sync("read", {"path": "a.txt"}).status

        try:
            with ThreadPoolExecutor(8) as pool:
                assert set(pool.map(call, range(8))) == {"ok"}
            assert len(made) == 1
        finally:
            for portal in made[:-1]:
                portal.close()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [False, True])
def test_first_commands_at_once_have_one_self_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, threads: bool
) -> None:
    tests: list[int] = []
    real = level_probes.self_test

    async def counted(**named: Any) -> sandbox.SandboxStatus:
        tests.append(1)
        return await real(**named)

    monkeypatch.setattr(level_probes, "self_test", counted)
    with house_at(tmp_path, EXEC) as house:

        async def three() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(house.services.sandbox.status)

        if threads:
            with ThreadPoolExecutor(3) as pool:
                list(pool.map(lambda _: anyio.run(house.services.sandbox.status), range(3)))
        else:
            anyio.run(three)
        assert len(tests) == 1


_OPENED: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "sqlite3.connect" and _OPENED is not None:
        _OPENED.append(str(arguments[0]))


@pytest.mark.slow
def test_an_asked_command_opens_the_state_at_most_twice(tmp_path: Path) -> None:
    global _OPENED  # noqa: PLW0603 - a hook of the interpreter cannot be taken away.
    # Here, since it costs every test that comes after it.
    sys.addaudithook(_watch)
    with house_at(tmp_path, person=Person([Answer.ONCE])) as house:
        _OPENED = []
        try:
            result = house.call_sync("exec", {"command": "touch made"})
        finally:
            opened, _OPENED = _OPENED, None
        assert result.status in ("ok", "error")
        assert 0 < len([path for path in opened if path.endswith("state.sqlite3")]) <= 2
