"""Real coding agents whose own tools our rules decide about, offline.

Needs the clients, which npm installs (README.md, "Real coding agents"): the folders of
SKILLHOUSE_TEST_AGENTS are used, each version once. `python -m tests.interop.agents.hooked` runs all
of it and prints the table of docs/interop.md.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.frontends.hooks.hook_clients import hook_client
from tests.harness import ran
from tests.interop.agents.clients import CLIENTS
from tests.interop.agents.hooked import actors
from tests.interop.agents.hooked_scenes import OWN_TOOLS, SCENES
from tests.interop.agents.hostile import DEVICES, copy_devices, jail

GIVEN = os.environ.get("SKILLHOUSE_TEST_AGENTS", "")
FOLDERS = [Path(one).resolve() for one in GIVEN.split(os.pathsep) if one]
ACTORS = actors(FOLDERS, ())
CASES = [
    pytest.param(title, name, id=f"{title} {name}")
    for title, actor in ACTORS.items()
    for name, scene in SCENES.items()
    if scene.clients(OWN_TOOLS[actor.client.name], hook_client(actor.client.name))
]
_MARKS = (
    pytest.mark.heavy,
    pytest.mark.skipif(not CASES, reason="SKILLHOUSE_TEST_AGENTS names no folder of clients"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare: clients run offline"),
)


def needs_agents(test: Callable[..., None]) -> Callable[..., None]:
    for mark in _MARKS:
        test = mark(test)
    return test


def run(module: str, title: str, *words: str) -> str:
    actor = ACTORS[title]
    given = ["--agents", str(actor.program.parent), "--only", actor.client.name, *words]
    done = ran([sys.executable, "-m", f"tests.interop.agents.{module}", *given])
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@needs_agents
@pytest.mark.parametrize(("title", "scene"), CASES or [("", "")])
def test_what_a_client_does_is_judged_and_recorded(title: str, scene: str) -> None:
    assert "did not hold: nothing" in run("hooked", title, "--scenes", scene)


@needs_agents
@pytest.mark.parametrize("title", [t for t in ACTORS if t.startswith(("Claude", "Codex"))] or [""])
def test_no_hostile_line_does_anything(title: str) -> None:
    assert '"did_something": []' in run("hostile", title)


@needs_agents
@pytest.mark.parametrize("title", [t for t in ACTORS if t.startswith(("Claude", "Codex"))] or [""])
def test_the_days_work_has_the_one_question_of_the_guide(title: str) -> None:
    assert run("hooked_day", title).count("\nquestion: ") == 1


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bwrap")
def test_the_jail_of_hostile_lines_has_devices_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.stat("/dev/full").st_mode
    if os.geteuid() == 0:
        monkeypatch.setenv(DEVICES, str(tmp_path / "devices"))
        (tmp_path / "devices").mkdir()
        copy_devices(tmp_path / "devices")
    (tmp_path / "base").mkdir()
    line = (
        "chmod 600 /dev/full; mount -o remount,rw,bind /; echo made > base/made; echo > /dev/null"
    )
    done = ran([*jail(tmp_path / "base"), "sh", "-c", line], cwd=tmp_path)
    try:
        assert os.stat("/dev/full").st_mode == before
    finally:
        if os.geteuid() == 0:
            os.chmod("/dev/full", before & 0o777)
    assert done.returncode == 0
    assert "mount" in done.stderr
    assert (tmp_path / "base/made").read_text() == "made\n"


def test_each_client_has_each_scene_or_says_why_not() -> None:
    # The others were tried by MCP alone.
    for client in (one for one in CLIENTS if one.name in OWN_TOOLS):
        has = {
            name
            for name, scene in SCENES.items()
            if scene.clients(OWN_TOOLS[client.name], hook_client(client.name))
        }
        left = set(SCENES) - has - {"hint", "no-hint", "boxed", "not-boxed"}
        asks = {"repeat", "repeat-no"} if hook_client(client.name).asks else set()
        asks |= set() if asks else {"ask", "ask-yes", "ask-no"}
        assert left <= asks | {"untrusted", "skill", "background"}
