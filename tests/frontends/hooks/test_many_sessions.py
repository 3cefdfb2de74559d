"""Many sessions of clients at once, judged by one process."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor.paths import unix_address
from tests.frontends.hooks.hooked_home import HookedHome
from tests.harness import until

SESSIONS, CALLS = 20, 4
MEMORY_MAX_KB = 120 * 1024
"""Of the judge, with the calls of all sessions."""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[HookedHome]:
    made = HookedHome(tmp_path)
    yield made
    made.end()


def judges(home: HookedHome) -> list[Path]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if b"\0serve\0" in words and os.fsencode(home.directory) in words:
            found.append(place)
    return found


def asked(home: HookedHome, client: str, event: Mapping[str, Any]) -> bytes:
    """Return what the judge answers; without the two seconds that a hook waits for it, as so many
    processes at once begin late on a machine that is busy."""
    words = (client, "enforce", "before", str(home.project), "")
    with (
        unix_address(home.directory / "judge.sock") as address,
        socket.socket(socket.AF_UNIX) as peer,
    ):
        peer.connect(address)
        peer.sendall("\0".join((*words, json.dumps(event))).encode())
        peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65536), b""))


@pytest.mark.heavy
def test_twenty_sessions_at_once_have_one_judge_that_stays_small(home: HookedHome) -> None:
    home.run(home.line(), home.event("Bash", {"command": "touch first"}))
    assert until((home.directory / "judge.sock").exists, 30)
    (judge,) = judges(home)

    def work(number: int) -> list[str]:
        client = ("claude-code", "codex")[number % 2]
        found = []
        for at in range(CALLS):
            command = "git push origin" if at == 2 else f"touch {number}-{at}"
            event = {
                **home.event("Bash", {"command": command}),
                "session_id": f"session-{number}",
                "tool_use_id": f"call-{number}-{at}",
            }
            found.append("deny" if b'"deny"' in asked(home, client, event) else "allow")
        return found

    with ThreadPoolExecutor(SESSIONS) as pool:
        answers = list(pool.map(work, range(SESSIONS)))
    assert answers == [["allow", "allow", "deny", "allow"]] * SESSIONS
    assert judges(home) == [judge]
    log = next(home.places.state().rglob("audit.jsonl")).read_text().splitlines()
    kinds = [one["kind"] for one in map(json.loads, log) if one["tool"] == "Bash"]
    assert sorted(kinds) == ["intent"] * (SESSIONS * 3 + 1) + ["refusal"] * SESSIONS
    status = (judge / "status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0])
    print(f"{SESSIONS} sessions, {SESSIONS * CALLS} calls, judge at most {peak // 1024} MB")
    assert peak <= MEMORY_MAX_KB


@pytest.mark.heavy
def test_twenty_hooks_at_once_get_the_answers_of_the_one_judge(home: HookedHome) -> None:
    line = home.line()
    home.run(line, home.event("Bash", {"command": "touch first"}))
    assert until((home.directory / "judge.sock").exists, 30)
    # What would judge instead of the one, or start another, fails: the hook would refuse all.
    (home.directory / "program").write_text("/bin/false")

    def work(number: int) -> tuple[int, str, bytes]:
        command = f"touch {number}" if number % 2 else "git push origin"
        event = {
            **home.event("Bash", {"command": command}),
            "session_id": f"session-{number}",
            "tool_use_id": f"call-{number}",
        }
        done = home.run(line, event)
        effect = "deny" if b'"deny"' in done.stdout else "allow"
        return done.returncode, effect, done.stderr

    with ThreadPoolExecutor(SESSIONS) as pool:
        found = list(pool.map(work, range(SESSIONS)))
    assert found == [(0, "deny", b""), (0, "allow", b"")] * (SESSIONS // 2)
