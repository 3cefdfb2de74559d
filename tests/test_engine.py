"""deploy/ in a container engine: both images are built, and calls made in the composition.

One test, because what it builds takes minutes and is for all of it; its parts are subtests.
"""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.test_container_attacks import ATTEMPTS, STATEMENTS
from tests.containers import ROOT
from tests.engine import Composed, Engine, composers, engine
from tests.extensions.cells.packages import wheel
from tests.extensions.cells.test_environments import uv_skill
from tests.house.coded import tool, write_code

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
SECONDS = 1_800
"""For Debian's packages, both images and everything that is tried."""

SCRATCH = """
import os

def works(params, context):
    before = sorted(os.listdir("/tmp"))
    with open("/tmp/left", "w") as file:
        file.write("x")
    return [before, sorted(os.listdir("/tmp"))]

tools = {"works": works, "change": works}
"""
NODE = """
import fs from 'node:fs';
export const tools = {
  works: async () => {
    const before = fs.readdirSync('/tmp').sort();
    fs.writeFileSync('/tmp/left', 'x');
    return [before, fs.readdirSync('/tmp').sort()];
  },
};
"""
HOSTILE = f"""{ATTEMPTS}
def tries(params, context):
    return [attempt(text) for text in params["statements"]]

tools = {{"tries": tries}}
"""
GREETS = """
import greet

tools = {"hello": lambda params, context: greet.word}
"""
TRIED = [text.replace("PORT", "8700") for text in STATEMENTS]
OF_THE_EXECUTOR = ("/run/secrets/rpc-token", "'/skills'", "'/packages'", "create_connection")
"""What a plain process in that container reaches; the rest of it is kept from that one as well."""
REACHES = """
import json, socket, sys, urllib.error, urllib.request

def reaches(address, port):
    try:
        socket.create_connection((address, port), 3).close()
    except OSError as error:
        return type(error).__name__
    return "reached"

try:
    urllib.request.urlopen("http://core:8600/api/v1/status", timeout=10)
except urllib.error.HTTPError as error:
    named = error.code
print(json.dumps([named, *(reaches(*place) for place in json.loads(sys.argv[1]))]))
"""
"""The page of the core by a name that it does not answer to, and then each address."""


@pytest.fixture
def running(need: Any) -> Iterator[Engine]:
    # Longer than any other test may take (conftest.py), from the setup on.
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 5)
    with engine() as found:
        if isinstance(found, str):
            need(not found.startswith("not installed"), found)
            pytest.skip(f"no container engine can run here: {found}")
        yield found
        signal.setitimer(signal.ITIMER_REAL, SECONDS, 5)


def write_skills(base: Path) -> None:
    skills = base / "workspace/skills"
    write_code(skills / "scratch", SCRATCH, tool("works"), tool("change", "write"))
    write_code(skills / "scratch-node", NODE, tool("works"), language="javascript")
    write_code(skills / "hostile", HOSTILE, tool("tries"))
    write_code(skills / "odd", SCRATCH, tool("change", "write"))
    (skills / "odd/uv.lock").write_text("version = 2\n")
    sha = wheel(base / "wheels", "greet", "1.0", "word = 'hello'")
    locked = uv_skill(skills, sha, name="greets")
    about = (locked / "pyproject.toml").read_text()
    write_code(locked, GREETS, tool("hello"))
    declared = (locked / "pyproject.toml").read_text()
    dependencies = re.search(r"^dependencies = .*$", about, re.MULTILINE)
    assert dependencies is not None
    (locked / "pyproject.toml").write_text(
        declared.replace("[project]\n", f"[project]\n{dependencies[0]}\n", 1)
    )
    (base / "more.yaml").write_text(
        "services:\n  core:\n    environment:\n"
        '      UV_FIND_LINKS: /wheels\n      UV_OFFLINE: "1"\n'
        f"    volumes:\n      - {base}/wheels:/wheels:ro\n"
    )


def test_both_images_run_as_composed(running: Engine, tmp_path: Path, subtests: Any) -> None:
    signal.setitimer(signal.ITIMER_REAL, SECONDS, 5)
    for target in ("core", "skill-executor"):
        running.build(target)
    checks = CHECKS
    for version, command in composers().items():
        place = Composed(running, tmp_path / version, command)
        write_skills(place.base)
        with place.running():
            for check in checks:
                with subtests.test(f"{version}: {check.__name__}"):
                    check(place)
        # The rest is the same whatever read the file.
        checks = CHECKS[:3]


def the_hardening_is_in_force(place: Composed) -> None:
    executor = place.inspect("skill-executor")
    assert executor["Name"].startswith("/skillhouse")
    host = executor["HostConfig"]
    found = {key: host[key] for key in ("ReadonlyRootfs", "CapDrop", "Memory", "PidsLimit")}
    assert found == {
        "ReadonlyRootfs": True, "CapDrop": ["ALL"], "Memory": 512 << 20, "PidsLimit": 256,
    }  # fmt: skip
    assert executor["Config"]["User"] == "65534:65534"
    with socket.create_server(("0.0.0.0", 0)) as listener:
        # The core's other network, and what this machine serves, by the address of either bridge.
        outside = place.inspect("core")["NetworkSettings"]["Networks"]["skillhouse_external"]
        port = listener.getsockname()[1]
        inside = place.engine.run("docker", "network", "inspect", "skillhouse_internal").stdout
        gateway = json.loads(inside)[0]["IPAM"]["Config"][0]["Gateway"]
        places = [[outside["IPAddress"], 8600], [outside["Gateway"], port], [gateway, port]]
        core, executor = (
            json.loads(place.inside(name, "python", "-c", REACHES, json.dumps(places)).stdout)
            for name in ("core", "skill-executor")
        )
    assert core[:3] == [421, "reached", "reached"]
    assert executor[0] == 421
    assert "reached" not in executor


def a_skill_with_a_uv_lock_is_called(place: Composed) -> None:
    pinned = re.search(r"^uv==(\S+)", (ROOT / "requirements/uv.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert place.inside("core", "uv", "--version").stdout.split()[1] == pinned[1]
    assert place.inside("skill-executor", "uv", "--version", check=False).returncode != 0
    first = place.call("greets:hello")
    assert (first["status"], first["content"]) == ("ok", "hello"), first
    # Installed, it needs neither uv nor what uv was told.
    without = {"PATH": "/opt/skillhouse/bin", "UV_FIND_LINKS": "/none", "PIP_NO_INDEX": "1"}
    assert place.inside("core", "uv", variables=without, check=False).returncode != 0
    assert place.call("greets:hello", variables=without)["content"] == "hello"
    shutting = place.inside("skill-executor", "touch", "/packages/made", check=False)
    assert "Read-only file system" in shutting.stderr


def tmp_is_writable_in_each_form(place: Composed) -> None:
    for service in ("core", "skill-executor"):
        script = "echo said > /tmp/file && cat /tmp/file && ! touch /made 2>/dev/null"
        assert place.inside(service, "sh", "-c", script).stdout == "said\n"
    for name in ("scratch:works", "scratch:works", "scratch-node:works"):
        # A call has the folder for its artifacts there, and nothing of the call before.
        found = place.call(name)["data"]["data"]
        assert found == [["skill-output"], ["left", "skill-output"]]
    assert place.inside("skill-executor", "ls", "/tmp/left", check=False).returncode != 0


def what_a_skill_tries_is_refused(place: Composed) -> None:
    # Nothing that would change the executor itself, which is process 1 there.
    harmless = [text for text in TRIED if not re.search(r"\(1,|PROCESS, 1|os\.(kill|fork)", text)]
    code = f"{ATTEMPTS}\nimport json\nprint(json.dumps([attempt(text) for text in {harmless!r}]))"
    plain = place.inside("skill-executor", "python", "-I", "-c", code).stdout.splitlines()[-1]
    reached = [
        text for text, said in zip(harmless, json.loads(plain), strict=True) if said == "worked"
    ]
    for part in OF_THE_EXECUTOR:
        assert any(part in text for text in reached), reached
    found = place.call("hostile:tries", statements=TRIED)
    assert found["status"] == "ok", found
    confined = dict(zip(TRIED, found["data"]["data"], strict=True))
    assert "worked" not in confined.values(), confined


def what_cannot_run_is_refused_before_anybody_is_asked(place: Composed) -> None:
    assert place.call("scratch:change")["status"] == "pending"
    odd = place.call("odd:change")
    assert (odd["status"], odd["approval_id"]) == ("error", None)
    assert "in version 1 of its format" in odd["content"]
    place.compose("stop", "--timeout", "1", "skill-executor")
    absent = place.call("scratch:change")
    assert (absent["status"], absent["approval_id"]) == ("error", None)
    assert "nothing was run: no server answers at skill-executor" in absent["content"]
    place.compose("start", "skill-executor")
    place.wait_for("skill-executor", '"listening"', times=2)
    assert place.call("scratch:works")["status"] == "ok"
    status = json.loads(
        place.inside("core", "skillhouse", "sandbox", "status", "--json", check=False).stdout
    )
    expected = "error" if status["level"] == "none" else "pending"
    assert place.call("exec", command="mkdir made")["status"] == expected


def both_start_again_after_a_kill(place: Composed) -> None:
    listening = '"listening"'
    times = place.compose("logs", "--no-color", "skill-executor").stdout.count(listening)
    place.kill("skill-executor")
    place.wait_for("skill-executor", listening, times=times + 1)
    before = place.call("greets:hello")
    assert (before["status"], before["content"]) == ("ok", "hello"), before
    records = recorded(place)
    place.kill("core")
    place.wait_for("core", "/?token=", times=2)
    assert place.call("greets:hello")["content"] == "hello"
    assert recorded(place) > records
    verified = place.inside("core", "skillhouse", "audit", "verify", check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def recorded(place: Composed) -> int:
    """Return how many records the core's log has."""
    listed = place.inside("core", "skillhouse", "audit", "list", "--json").stdout
    total = json.loads(listed)["total"]
    assert isinstance(total, int)
    return total


CHECKS: tuple[Callable[[Composed], None], ...] = (
    the_hardening_is_in_force,
    a_skill_with_a_uv_lock_is_called,
    tmp_is_writable_in_each_form,
    what_a_skill_tries_is_refused,
    what_cannot_run_is_refused_before_anybody_is_asked,
    both_start_again_after_a_kill,
)
