"""Every level, for the superuser and for a user without rights, as the command line meets it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from skillhouse.floor import tree_digest
from skillhouse.sandbox import SandboxLevel
from skillhouse.sandbox.guard import find_place
from skillhouse.sandbox.status import surroundings
from tests.frontends.mcp_peer import Peer, Pipe
from tests.frontends.test_published_skills import CONFIGURATION
from tests.harness import Need, ran
from tests.house.coded import ROOTS, write_code
from tests.loopback_http import QuietHandler, served
from tests.machines import (
    PACKAGES,
    as_user,
    check_machine,
    check_user,
    python_of,
    without_bubblewrap,
)

pytestmark = [pytest.mark.slow, pytest.mark.heavy]

PRICE = '{"coin": "bitcoin", "currency": "usd", "price": 65000.5}\n'
TOP = "nothing can be made, renamed or removed directly in `.`"


@dataclass(frozen=True)
class Machine:
    """A home and a project of one user, and the level that is found there."""

    base: Path
    level: SandboxLevel
    user: int

    @property
    def prefix(self) -> tuple[str, ...]:
        hidden = without_bubblewrap() if self.level is SandboxLevel.LANDLOCK else ()
        return (*hidden, *as_user(self.user))

    def skillhouse(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return ran(
            (*self.prefix, python_of(self.user), "-m", "skillhouse", *arguments),
            cwd=self.base / "project",
            env={
                "HOME": str(self.base / "home"),
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "PYTHONPATH": PACKAGES,
                "TMPDIR": str(self.base / "temporary"),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            timeout=120,
        )

    def write(self, relative: str, text: str) -> None:
        file = self.base / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        self.give()

    def give(self) -> None:
        """Make all of it the user's own."""
        if self.user:
            for path in (self.base, *self.base.rglob("*")):
                os.chown(path, self.user, self.user)


WAYS = {
    "cgroup": (SandboxLevel.CGROUP, False),
    "rlimits-user": (SandboxLevel.RLIMITS, True),
    "landlock": (SandboxLevel.LANDLOCK, False),
    "landlock-user": (SandboxLevel.LANDLOCK, True),
}
"""Level, and whether another user without rights uses it."""


@pytest.fixture(params=WAYS)
def machine(request: pytest.FixtureRequest, need: Need) -> Iterator[Machine]:
    level, is_other = WAYS[request.param]
    # No other test runs processes of this user, which rlimits count.
    user = 200_000 + os.getpid() if is_other else 0
    check_user(need, user)
    if not is_other and level is SandboxLevel.CGROUP:
        need(find_place(surroundings().process), "no control groups")
    # A short path, which that user can enter.
    with tempfile.TemporaryDirectory(prefix="levels-", dir="/tmp") as made:
        base = Path(made)
        for name in ("home", "project/src", "temporary"):
            (base / name).mkdir(parents=True)
        found = Machine(base, level, user)
        check_machine(need, found.prefix)
        found.give()
        yield found


class Prices(QuietHandler):
    def do_GET(self) -> None:
        body = b'{"bitcoin": {"usd": 65000.5, "eur": 60000}}'
        self.answer(200, body, {"Content-Type": "application/json"})


@pytest.fixture
def address() -> Iterator[str]:
    with served(Prices) as url:
        yield url


def test_the_level_is_found_and_holds(machine: Machine):
    done = machine.skillhouse("sandbox", "status", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["level"] == machine.level


def test_the_table_has_every_level_that_the_user_can_have(machine: Machine):
    done = machine.skillhouse("sandbox", "status", "--levels", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    levels = json.loads(done.stdout)["levels"]
    found = {name for name, about in levels.items() if about["level"] == name}
    expected = {machine.level, SandboxLevel.LANDLOCK}
    if machine.user or os.geteuid() != 0:
        # The number of processes limits a contained call; the superuser has no such limit.
        expected |= {SandboxLevel.CONTAINER}
        expected |= {SandboxLevel.RLIMITS} if machine.level is SandboxLevel.CGROUP else set()
    assert found == expected


def test_a_command_runs_and_is_held(machine: Machine):
    machine.write("project/.env", "canary\n")
    machine.write("outside", "canary\n")
    allowed = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'
    machine.write("home/.config/skillhouse/config.toml", allowed)
    plain = {"command": "echo", "params": ["made"]}
    done = machine.skillhouse("call", "exec", "--args", json.dumps(plain))
    assert (done.returncode, done.stdout, done.stderr) == (0, "made\n", "")
    script = (
        "echo made > src/made; cat ../outside .env; echo evil > ../outside; echo x >> .env;"
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 1))' 2>&1; exit 3"
    )
    shell = {"command": "sh", "params": ["-c", script]}
    done = machine.skillhouse("call", "exec", "--args", json.dumps(shell))
    assert done.returncode == 1
    assert "canary" not in done.stdout + done.stderr
    assert (machine.base / "project/src/made").read_text() == "made\n"
    assert (machine.base / "outside").read_text() == "canary\n"
    assert (machine.base / "project/.env").read_text() == "canary\n"
    assert (machine.level is SandboxLevel.LANDLOCK) == (TOP in done.stdout + done.stderr)


@pytest.mark.parametrize("language", ROOTS)
def test_the_published_price_skill_runs(machine: Machine, language: str, address: str, need: Need):
    need(language == "python" or shutil.which("node"), "no node here")
    shutil.copytree(ROOTS[language] / "crypto-price", machine.base / "skills/crypto-price")
    digest = tree_digest(machine.base / "skills/crypto-price")
    machine.write("home/.config/skillhouse/config.toml", CONFIGURATION.format(url=address))
    arguments = ("crypto-price:get_price", "--args", '{"coin": "bitcoin"}')
    done = machine.skillhouse(
        "call", *arguments, "--root", str(machine.base / "skills"), COINGECKO_URL=address
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, PRICE, "")
    assert tree_digest(machine.base / "skills/crypto-price") == digest
    assert list((machine.base / "temporary").iterdir()) == []


def test_the_core_fetches_for_a_command_line_without_network(machine: Machine, address: str):
    machine.write("home/.config/skillhouse/config.toml", CONFIGURATION.format(url=address))
    done = machine.skillhouse("call", "fetch", "--args", json.dumps({"url": f"{address}/x"}))
    assert (done.returncode, done.stderr) == (0, "")
    assert "65000.5" in done.stdout


class BarePeer(Peer):
    """A server on a machine without bubblewrap."""

    def command(self, *arguments: str) -> list[str]:
        return [*without_bubblewrap(), *super().command(*arguments)]


def answer(pipe: Pipe, number: int, tool_name: str, **arguments: Any) -> tuple[bool, str]:
    """Return whether a call failed, and its text."""
    pipe.send("tools/call", number, name=tool_name, arguments=arguments)
    while (message := pipe.receive()).get("id") != number:
        assert "method" in message, message
    result = message["result"]
    return bool(result.get("isError")), result["content"][0]["text"]


@pytest.mark.parametrize("first", ["any", "bubblewrap"])
def test_a_running_server_refuses_and_allows_the_level_as_its_configuration_says(
    tmp_path: Path, need: Need, first: str
):
    check_machine(need, without_bubblewrap())
    peer = BarePeer(tmp_path)
    code = "tools = {'tool': lambda params, context: 'ran'}\n"
    write_code(peer.home / ".agents/skills/one", code)
    with_code = "[skill_code]\nenabled = true\n"
    choices = ["any", "bubblewrap", "any"] if first == "any" else ["bubblewrap", "any"]
    peer.configure(f'sandbox = "{first}"\n{with_code}')
    with Pipe(peer) as pipe:
        pipe.shake_hands()
        for number, choice in enumerate(choices):
            peer.configure(f'sandbox = "{choice}"\n{with_code}')
            calls = (
                answer(pipe, 10 + number, "exec", command="echo", params=["made"]),
                answer(pipe, 20 + number, "one__tool"),
            )
            if choice == "any":
                assert calls == ((False, "made\n"), (False, "ran"))
            else:
                for is_error, said in calls:
                    assert is_error
                    assert "bubblewrap is not installed" in said
