"""What goes on after a stop: programs, skills' code, requests, questions, in several processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketStream

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.audit import read_records, verify_log
from skillhouse.house import Skillhouse, configured
from skillhouse.tiers.emergency_stop import lines
from skillhouse.tools import ToolResult
from tests.extensions.cells.lab import until
from tests.frontends.mcp_peer import MODERN, Peer, Pipe, http_client, up
from tests.frontends.test_mcp_elsewhere import Elsewhere, text_of
from tests.harness import ran
from tests.house.coded import ROOTS, best_sandbox, tool, write_code
from tests.machines import OWN_MOUNTS
from tests.net.servers import Server, ok, serving
from tests.tools.houses import Person

pytestmark = pytest.mark.slow

RULES = """
[skill_code]
enabled = true

[net]
hosts = ["GET {url}"]
private = ["127.0.0.1/32"]

[[rules]]
effect = "allow"
action = "exec"
pattern = "*"

[[rules]]
effect = "allow"
action = "skill_tool"
pattern = "*"
"""
WAITS = {
    "python": """
        async def waits(params, context):
            await context.fetch(params["url"] + "/slow")

        async def works(params, context):
            await context.fetch(params["url"] + "/begun")
            while True:
                pass

        tools = {"waits": waits, "works": works}
    """,
    "javascript": """
        export const tools = {
            waits: async (params, context) => { await context.fetch(params.url + "/slow"); },
            works: async (params, context) => {
                await context.fetch(params.url + "/begun");
                for (;;) {}
            },
        };
    """,
}
STUBBORN = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
        open("LATE-2", "w").close()
open("BEGUN-2", "w").close()
time.sleep(60)
open("LATE-3", "w").close()
"""


class Thinking(Person):
    """Has not answered yet."""

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request)
        await anyio.sleep_forever()
        raise AssertionError


async def unanswered(stream: SocketStream) -> None:
    """Take a request and never answer it."""
    await anyio.sleep_forever()


@pytest.fixture
def peer(tmp_path: Path, need: Any) -> Peer:
    best_sandbox(need)
    return Peer(tmp_path)


def stop(peer: Peer) -> dict[str, Any]:
    """Stop everything from a process of its own, and return what it says."""
    said = subprocess.run(
        [sys.executable, "-m", "skillhouse", "stop", "--json", "--reason", "a test"],
        env=peer.environment,
        cwd=peer.project,
        capture_output=True,
        check=False,
        timeout=30,
    )
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def statuses(peer: Peer) -> list[tuple[str, str]]:
    """Return tool and status of each call that began or was asked about."""
    entries = read_records(peer.log, newest_first=False)
    calls = [one for one in entries if one.record.kind in ("intent", "refusal")]
    return sorted((one.record.tool, one.status) for one in calls)


def survivors(word: str) -> list[str]:
    """Return the command lines of processes with that word."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in line:
                found.append(line)
    return found


def begin(pipe: Pipe, command: str) -> None:
    """Call `exec` over MCP."""
    pipe.send("tools/call", 1, name="exec", arguments={"command": command})


def received(pipe: Pipe) -> ToolResult:
    """Return what came of that call."""
    result = pipe.receive()["result"]
    status: Any = "error" if result["isError"] else "ok"
    return ToolResult(content=result["content"][0]["text"], status=status)


@pytest.mark.file_state
def test_a_stop_ends_what_runs_in_every_process(peer: Peer, need: Any, node: None) -> None:
    need(shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin"), "no Python for commands")
    stubborn = f"stubborn-{os.getpid()}.py"
    (peer.project / stubborn).write_text(STUBBORN)
    for language, source in WAITS.items():
        tools = [tool(name, timeout=60_000) for name in ("waits", "works")]
        write_code(peer.home / f".agents/skills/{language}", source, *tools, language=language)
    results: dict[str, ToolResult] = {}
    person = Thinking()

    async def scene(server: Server, pipe: Pipe) -> dict[str, Any]:
        house = Skillhouse(configured(peer.places), channel=person)
        here = server.url

        async def call(name: str, **arguments: Any) -> None:
            results[" ".join((name, *map(str, arguments)))] = await house.call(name, arguments)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(call, "exec", command=f"python3 {stubborn}"))
            tasks.start_soon(partial(call, "write", path="a.txt", content="x"))
            begin(pipe, "touch BEGUN-1 && sleep 60 && touch LATE-1")
            await until(lambda: len(list(peer.project.glob("BEGUN*"))) == 2 and person.asked)
            # Late, as each takes a processor until the stop.
            for language in WAITS:
                tasks.start_soon(partial(call, f"{language}:works", url=here))
            await until(lambda: len(server.seen) == 2)
            # Last, as a request ends by itself after some seconds.
            for language in WAITS:
                tasks.start_soon(partial(call, f"{language}:waits", url=here))
            tasks.start_soon(partial(call, "fetch", url=f"{here}/slow"))
            await until(lambda: len(server.seen) == 5)
            said = await anyio.to_thread.run_sync(stop, peer)
        await until(lambda: not house.services.skill_code.local_executor.is_busy)
        results["over MCP"] = await anyio.to_thread.run_sync(received, pipe)
        await house.services.release_loop()
        house.close()
        return said

    async def staged() -> dict[str, Any]:
        async with serving(ok(b"begun"), ok(b"begun"), unanswered) as server:
            peer.configure(RULES.format(url=server.url))
            with Pipe(peer) as pipe:
                pipe.shake_hands()
                return await scene(server, pipe)

    said = anyio.run(staged)
    # Seven calls here and one over MCP, and the two requests that skills' code waits for.
    assert (said["new"], said["ended"], said["silent"], said["failed"]) == (True, 10, [], [])
    asked = results.pop("write path content")
    assert (asked.status, "everything is stopped: a test" in asked.content) == ("denied", True)
    of_skills = {f"{language}:{name} url" for language in WAITS for name in ("waits", "works")}
    assert set(results) == {"fetch url", "exec command", "over MCP", *of_skills}
    for name, one in results.items():
        assert (one.status, one.content[:22]) == ("error", "stopped: a test (by lo"), name
    assert statuses(peer) == [
        *[("exec", "stopped")] * 2,
        *[("fetch", "ok")] * 2,
        *[("fetch", "stopped")] * 3,
        ("javascript__waits", "stopped"),
        ("javascript__works", "stopped"),
        ("python__waits", "stopped"),
        ("python__works", "stopped"),
        ("write", "emergency-stopped"),
    ]
    assert survivors(stubborn) == []
    assert list(peer.project.glob("LATE*")) == []
    assert verify_log(peer.log).problems == ()


def test_a_process_that_does_not_answer_a_stop_is_named_and_its_commands_killed(
    peer: Peer,
) -> None:
    peer.configure(RULES.format(url="http://127.0.0.1:1"))
    seconds = f"20.{os.getpid()}"
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        begin(pipe, f"touch BEGUN-1 && sleep {seconds} && touch LATE-1")
        anyio.run(until, (peer.project / "BEGUN-1").exists)
        anyio.run(until, lambda: survivors(f"sleep {seconds}"))
        pipe.process.send_signal(signal.SIGSTOP)
        said = stop(peer)
        pid = pipe.process.pid
        assert (said["ended"], said["silent"], said["killed"]) == (0, [pid], 1)
        anyio.run(until, lambda: not survivors(f"sleep {seconds}"))
        pipe.process.send_signal(signal.SIGCONT)
        assert received(pipe).content.startswith("stopped: a test (by local)")
    assert statuses(peer) == [("exec", "stopped")]
    assert list(peer.project.glob("LATE*")) == []


def test_code_of_skills_runs_again_after_a_resume(peer: Peer) -> None:
    source = "tools = {'works': lambda params, context: 'done'}\n"
    write_code(peer.home / ".agents/skills/short", source, tool("works"))
    peer.configure(RULES.format(url="http://127.0.0.1:1"))

    async def scene() -> list[str]:
        house = Skillhouse(configured(peer.places))
        found = [(await house.call("short:works", {})).content]
        background = house.services.skill_code.local_executor
        assert background is not None
        assert background.is_busy
        await anyio.to_thread.run_sync(stop, peer)
        # No call runs, and the cell that waits for one is ended all the same.
        await until(lambda: not background.is_busy)
        found.append((await house.call("short:works", {})).status)
        house.services.enforcement.resume("local", "terminal")
        found.append((await house.call("short:works", {})).content)
        await house.services.release_loop()
        house.close()
        return found

    assert anyio.run(scene) == ["done", "denied", "done"]


def test_a_stop_ends_what_a_service_and_a_worker_run(tmp_path: Path, need: Any) -> None:
    best_sandbox(need)
    found: dict[str, tuple[str, bool]] = {}
    said: list[dict[str, Any]] = []

    async def scene() -> None:
        async with serving(unanswered) as server:
            place = Elsewhere(tmp_path, ROOTS["python"], server.url)
            with place.worker(), up(place.peer) as at:
                async with http_client(*at, MODERN) as client, anyio.create_task_group() as tasks:

                    async def call(name: str, **arguments: Any) -> None:
                        found[name] = text_of(await client.call_tool(name, arguments))

                    tasks.start_soon(partial(call, "crypto-price__get_price", coin="bitcoin"))
                    tasks.start_soon(partial(call, "fetch", url=f"{server.url}/slow"))
                    await until(lambda: len(server.seen) == 2)
                    said.append(await anyio.to_thread.run_sync(stop, place.peer))
            said.extend(line for line in place.said if line["event"] == "tool.execute")

    anyio.run(scene)
    assert (said[0]["ended"], said[0]["silent"]) == (3, [])
    assert {name: text.startswith("stopped: a test (by") for name, (text, _) in found.items()} == {
        "crypto-price__get_price": True,
        "fetch": True,
    }
    assert [line["outcome"] for line in said[1:]] == ["cancelled"]


def test_a_stop_ends_a_reload_and_keeps_the_next_from_loading_code(peer: Peer) -> None:
    hangs = f"while True: pass  # {os.getpid()}\n"
    write_code(peer.home / ".agents/skills/hangs", hangs, tool("works"))
    peer.configure(RULES.format(url="http://127.0.0.1:1"))
    words = [sys.executable, "-m", "skillhouse", "reload"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    calls = peer.home / ".local/state/skillhouse/stop"
    with subprocess.Popen(words, env=peer.environment, cwd=peer.project, **pipes) as process:
        anyio.run(until, lambda: any(line.running for line in lines(calls)))
        assert stop(peer)["ended"] == 1
        assert "everything is stopped: a test" in process.communicate(timeout=30)[1]
    again = subprocess.run(words, env=peer.environment, cwd=peer.project, check=False, **pipes)
    assert (again.returncode, "everything is stopped: a test" in again.stderr) == (1, True)


@pytest.mark.parametrize("inodes", [60, 4_000])
def test_a_stop_is_given_on_a_full_disk(peer: Peer, need: Any, inodes: int) -> None:
    can_mount = subprocess.run(
        [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False, capture_output=True
    )
    need(can_mount.returncode == 0, "no file system can be mounted here")
    state = peer.home / ".local/state"
    state.mkdir(parents=True)
    (peer.project / "a.txt").write_text("x")
    script = f"""
        mount -t tmpfs -o size=512k,nr_inodes={inodes} tmpfs {state}
        house() {{ {sys.executable} -m skillhouse "$@"; echo "code $?"; }}
        house call read --args '{{"path": "a.txt"}}'
        head -c 1m /dev/zero 2>/dev/null > {state}/full
        i=0; while [ $i -lt {inodes} ] && : 2>/dev/null > {state}/full-$i; do i=$((i+1)); done
        house stop --json --reason "a test"
        house stop --status
        house call read --args '{{"path": "a.txt"}}'
    """
    done = ran(
        [*OWN_MOUNTS, "bash", "-c", script], env=peer.environment, cwd=peer.project, timeout=60
    )
    read, said, status, refused, _ = done.stdout.split("code ")
    assert read == "x\n", done.stderr
    report = json.loads(said.partition("\n")[2])
    assert report["new"]
    assert "write to the database" in [one["step"] for one in report["failed"]]
    assert "stopped: a test (by local)" in status
    assert "everything is stopped: a test (by local)" in refused + done.stderr
