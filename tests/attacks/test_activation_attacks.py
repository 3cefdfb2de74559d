"""Attacks by environments of the workspace: on what a line activates, and on a client's PATH."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.floor.rules import Effect
from skillhouse.frontends.hooks.tickets import ProcessId
from skillhouse.permission import Rule, judge_command
from tests.attacks.test_person_tool_attacks import Desk, program
from tests.frontends.hooks.hooked_home import HookedHome, effect_of
from tests.harness import Need

LINE = "source .venv/bin/activate && tool x"
RULES = """
[[rules]]
effect = "allow"
action = "exec"
patterns = ["tool *", "ls *", "timeout *"]
[[rules]]
effect = "allow"
action = "exec"
pattern = "check *"
unbound = true
"""


def environment(root: Path) -> Path:
    """Make an environment of which each file that would run says so."""
    place = root / ".venv"
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (place / "bin/activate").write_text("echo sourced\nalias tool='echo aliased'\n")
    program(place / "bin/tool", "#!/bin/sh\necho tool of $VIRTUAL_ENV\n")
    return place


def desk(base: Path, **variables: str) -> Desk:
    rules = [
        Rule(effect=Effect.ALLOW, action="exec", pattern=pattern)
        for pattern in ("tool *", "ls *", "sh *")
    ]
    made = Desk(base, {"PATH": "/usr/bin", **variables}, *rules)
    environment(made.root)
    return made


@pytest.mark.slow
def test_what_a_line_activates_is_asked_about_by_its_bytes_and_not_read(
    tmp_path: Path, need: Need
) -> None:
    need(shutil.which("bwrap"), "no bubblewrap")
    at = desk(tmp_path)
    program(at.root / ".venv/bin/ls")
    with at.house:
        assert at.run(LINE).status == "denied"
        assert at.person.asked[0].reasons[0].startswith("`.venv/bin/tool` was not approved yet")
        assert "activate" not in " ".join(at.person.asked[0].reasons)
        assert at.run(LINE, Answer.ONCE).content == f"tool of {at.root}/.venv\n"
        assert at.run(LINE).content == f"tool of {at.root}/.venv\n"
        program(at.root / ".venv/bin/tool")
        assert at.run(LINE).status == "denied"
        # What is judged by its words is the system's, whichever environment is active.
        assert at.run("source .venv/bin/activate && ls").status == "ok"
        assert "planted" not in at.run("source .venv/bin/activate && ls").content
        for path in (".venv/bin/ls", f"{at.root}/.venv/bin/ls"):
            assert at.run(f". .venv/bin/activate; {path}").status == "denied"


@pytest.mark.slow
def test_the_environment_that_the_person_works_in_is_in_use(tmp_path: Path, need: Need) -> None:
    need(shutil.which("bwrap"), "no bubblewrap")
    place = tmp_path / "project"
    at = desk(tmp_path, VIRTUAL_ENV=str(place / ".venv"), PATH=f"{place}/.venv/bin:/usr/bin")
    with at.house:
        assert at.run("tool x").status == "denied"
        assert at.run("tool x", Answer.ONCE).content == f"tool of {place}/.venv\n"


@pytest.mark.parametrize(
    "layout", ["script is a link", "programs are a link", "environment is a link", "no settings"]
)
def test_what_leads_elsewhere_is_no_environment(tmp_path: Path, layout: str) -> None:
    root = tmp_path / "work"
    place, other = environment(root), environment(tmp_path / "other")
    if layout == "script is a link":
        (place / "bin/activate").unlink()
        (place / "bin/activate").symlink_to(other / "bin/activate")
    elif layout == "no settings":
        (place / "pyvenv.cfg").unlink()
    else:
        moved = place / "bin" if layout == "programs are a link" else place
        shutil.rmtree(moved)
        moved.symlink_to(other / "bin" if moved.name == "bin" else other)
    verdict = judge_command(LINE, allow=["tool *"], cwd=root)
    assert (verdict.effect, verdict.structure) == (Effect.ASK, None)


@pytest.mark.parametrize(
    "line",
    [
        "false || source .venv/bin/activate; tool x",
        "source .venv/bin/activate || tool x",
        "test -d src && source .venv/bin/activate && tool x",
        "tool x; source .venv/bin/activate; tool x",
        "source .venv/bin/activate | tool x",
        "source .venv/bin/activate > out && tool x",
        "A=1 source .venv/bin/activate && tool x",
        "source .venv/bin/activate x && tool x",
        "source .venv/bin/activ*e && tool x",
        "for a in 1 2; do source .venv/bin/activate; tool $a; done",
        "source .venv/bin/activate && tool $PATH",
        "source .venv/bin/activate && tool $VIRTUAL_ENV",
        "source .venv/bin/activate && source other/bin/activate && tool x",
        "source .venv/bin/activate",
    ],
)
def test_what_a_shell_alone_would_do_is_not_taken_for_an_activation(
    tmp_path: Path, line: str
) -> None:
    environment(tmp_path)
    shutil.copytree(tmp_path / ".venv", tmp_path / "other")
    (tmp_path / "src").mkdir()
    allow = ["tool *", "test *", "false", "true"]
    values = {"PATH": "/usr/bin", "VIRTUAL_ENV": "/other"}
    verdict = judge_command(line, allow=allow, cwd=tmp_path, environment=values)
    assert (verdict.effect, verdict.structure) == (Effect.ASK, None)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (LINE, ".venv"),
        (". ./.venv/bin/activate; tool x", ".venv"),
        ("cd src && source ../.venv/bin/activate && tool x", ".venv"),
        ("source .venv/bin/activate && cd src && tool x", ".venv"),
        ("set -e\nsource '.venv/bin/activate'\ntool x", ".venv"),
        ("export CI=1; . .venv/bin/activate\ntool x | tool y", ".venv"),
        ("bash -c 'source .venv/bin/activate && tool x'", ".venv"),
        ("cd .venv && . bin/activate && tool x", ".venv"),
    ],
)
def test_an_environment_that_surely_is_active_is_part_of_the_plan(
    tmp_path: Path, line: str, place: str
) -> None:
    environment(tmp_path)
    (tmp_path / "src").mkdir()
    verdict = judge_command(line, allow=["tool *"], cwd=tmp_path)
    assert verdict.structure is not None
    assert verdict.structure.activated == str(tmp_path / place)
    assert verdict.structure.value()["activated"] == str(tmp_path / place)
    assert verdict.effect is Effect.ALLOW
    denied = judge_command(line, allow=["tool *"], deny=["source *", ". *"], cwd=tmp_path)
    assert denied.effect is Effect.DENY


@contextmanager
def client_with(path: str) -> Iterator[tuple[ProcessId, ...]]:
    """Start a process that has a PATH, as the client above a hook."""
    with subprocess.Popen(["/bin/sleep", "60"], env={"PATH": path}) as process:
        yield (ProcessId(process.pid, "0"),)
        process.kill()


@pytest.mark.anyio
async def test_a_name_that_a_client_finds_in_the_workspace_is_asked_about(tmp_path: Path) -> None:
    """Its own shell runs the line, by its own PATH, where no sandbox has the system's first."""
    home = HookedHome(tmp_path, RULES)
    place = environment(home.project)
    for name in ("ls", "timeout", "check"):
        program(place / "bin" / name)

    async def asked(line: str, path: str) -> str:
        with client_with(path) as above:
            answer = await home.ask(home.event("Bash", {"command": line}), above=above)
        return "; ".join(effect_of(answer))

    active = f"{place}/bin:/usr/bin"
    for path in (active, ".venv/bin:/usr/bin"):
        for line, name in (("ls a", "ls"), ("timeout 5 sort a", "timeout"), ("tool x", "tool")):
            said = await asked(line, path)
            assert said.startswith("ask"), (line, path)
            assert f"`.venv/bin/{name}` was not approved yet" in said
    assert (await asked("ls a", f"/usr/bin:{place}/bin")).startswith("allow")
    assert (await asked("check x", active)).startswith("allow")


@pytest.mark.anyio
async def test_the_script_that_a_shell_reads_is_asked_about_by_its_bytes(tmp_path: Path) -> None:
    home = HookedHome(tmp_path, RULES)
    environment(home.project)
    with client_with("/usr/bin") as above:
        for line, said in (
            (LINE, "`.venv/bin/activate` was not approved yet"),
            ("source .venv/bin/activate && ls a", "`.venv/bin/activate` was not approved yet"),
        ):
            answer = await home.ask(home.event("Bash", {"command": line}), above=above)
            assert effect_of(answer)[0] == "ask"
            assert said in effect_of(answer)[1]
        # A rule lets any code of the workspace run anyway.
        line = "source .venv/bin/activate && check x"
        answer = await home.ask(home.event("Bash", {"command": line}), above=above)
        assert effect_of(answer)[0] == "allow"
