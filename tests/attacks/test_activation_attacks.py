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
from skillhouse.permission import ArgumentRules, PathPolicy, Rule, judge_command, judge_line
from tests.attacks.test_person_tool_attacks import Desk, program
from tests.frontends.hooks.hooked_home import HookedHome, effect_of
from tests.harness import Need, until

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
def test_what_a_line_activates_is_named_by_its_path(tmp_path: Path, need: Need) -> None:
    """Its programs are asked about as such, the script is not read, and PATH is as it was."""
    need(shutil.which("bwrap"), "no bubblewrap")
    at = desk(tmp_path)
    program(at.root / ".venv/bin/ls")
    program(at.root / ".venv/bin/nice")
    (at.root / ".venv/bin/linked").symlink_to("/bin/sh")
    with at.house:
        assert at.run(LINE).status == "denied"
        assert at.person.asked[0].reasons[0].startswith("`.venv/bin/tool` was not approved yet")
        assert "activate" not in " ".join(at.person.asked[0].reasons)
        assert at.run(LINE, Answer.ONCE).content.startswith("tool of")
        assert at.run(LINE).content.startswith("tool of")
        program(at.root / ".venv/bin/tool")
        assert at.run(LINE).status == "denied"
        for rest, name in (
            ("ls", "ls"),
            ("nice ls", "nice"),
            (".venv/bin/ls", "ls"),
            (f"{at.root}/.venv/bin/ls", "ls"),
        ):
            said = at.run(f"source .venv/bin/activate && {rest}").content
            assert f"`.venv/bin/{name}` was not approved yet" in said, rest
        assert at.run("source .venv/bin/activate && linked check").status == "denied"
        # What is made by the line is not found by a name.
        line = "source .venv/bin/activate && sort .venv/bin/tool | tee .venv/bin/late && late x"
        assert "planted" not in at.run(line).content


@pytest.mark.slow
def test_what_runs_any_code_has_the_environment_for_what_it_starts(
    tmp_path: Path, need: Need
) -> None:
    need(shutil.which("bwrap"), "no bubblewrap")
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern="check *", unbound=True)
    at = Desk(tmp_path, {"PATH": "/usr/bin"}, rule)
    environment(at.root)
    program(at.root / ".venv/bin/check", "#!/bin/sh\ntool x\n")
    with at.house:
        line = "source .venv/bin/activate && check x"
        assert at.run(line).status == "denied"
        assert at.run(line, Answer.ONCE).content.startswith(f"tool of {at.root}/.venv\n")
        assert "no network" in at.run(line).content


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timeout", "nice", "env", "nohup", "stdbuf"])
def test_a_program_of_the_workspace_with_the_name_of_a_wrapper_is_a_script(
    tmp_path: Path, need: Need, name: str
) -> None:
    """It ran unasked, as only the command inside was judged."""
    need(shutil.which("bwrap"), "no bubblewrap")
    at = desk(tmp_path)
    program(at.root / name)
    words = {"timeout": "timeout 5", "stdbuf": "stdbuf -o0"}.get(name, name)
    with at.house:
        for line in (f"./{words} ls", f"env ./{words} ls", f"./{words} env ls"):
            assert f"`{name}` was not approved yet" in at.run(line).content, line
            program(at.root / name, f"#!/bin/sh\necho {line}\n")
    verdict = judge_command(f"./{words} ls", allow=["ls *", "ls"], cwd=at.root)
    assert verdict.effect is Effect.ASK


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
        "source .venv/bin/activate && which tool",
        "source .venv/bin/activate && command -v tool",
        "source .venv/bin/activate && other x",
        "source a:b/bin/activate && tool x",
        "source .venv/bin/activate && tool $VIRTUAL_ENV",
        "source .venv/bin/activate && source other/bin/activate && tool x",
        "source .venv/bin/activate",
    ],
)
def test_what_a_shell_alone_would_do_is_not_taken_for_an_activation(
    tmp_path: Path, line: str
) -> None:
    environment(tmp_path)
    for name in ("other", "a:b"):
        shutil.copytree(tmp_path / ".venv", tmp_path / name)
    (tmp_path / "src").mkdir()
    allow = ["tool *", "other *", "test *", "false", "true"]
    values = {"PATH": "/usr/bin", "VIRTUAL_ENV": "/other"}
    verdict = judge_command(line, allow=allow, cwd=tmp_path, environment=values)
    assert (verdict.effect, verdict.structure) == (Effect.ASK, None)


def test_a_shell_that_has_no_such_command_activates_nothing(tmp_path: Path) -> None:
    environment(tmp_path)
    line = "sh -c 'source .venv/bin/activate; tool x'"
    verdict = judge_command(line, allow=["tool *"], cwd=tmp_path)
    assert verdict.effect is Effect.ASK
    assert verdict.structure is not None
    assert verdict.structure.activated == ""


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
    places = PathPolicy(tmp_path, binds_programs=True)
    verdict = judge_line(line, ArgumentRules(["tool *"]), places)
    assert verdict.structure is not None
    assert verdict.structure.value()["activated"] == str(tmp_path / place)
    names = {command.argv[0] for command in verdict.structure.commands()}
    assert {(tmp_path / places.directory / name).resolve() for name in names} == {
        tmp_path / place / "bin/tool"
    }
    assert verdict.effect is Effect.ALLOW
    assert all(one.is_own for one in verdict.commands if one.argv[0] == "tool")
    denied = judge_command(line, allow=["tool *"], deny=["source *", ". *"], cwd=tmp_path)
    assert denied.effect is Effect.DENY


@contextmanager
def client_with(path: str) -> Iterator[tuple[ProcessId, ...]]:
    """Start a process that has a PATH, as the client above a hook."""
    with subprocess.Popen(["/bin/sleep", "60"], env={"PATH": path}) as process:
        # The kernel shows it a moment after the program has begun.
        assert until(Path(f"/proc/{process.pid}/environ").read_bytes, 20)
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
async def test_a_shell_reads_a_script_only_beside_what_runs_any_code(tmp_path: Path) -> None:
    home = HookedHome(tmp_path, RULES)
    environment(home.project)
    with client_with("/usr/bin") as above:
        for line in (LINE, "source .venv/bin/activate && ls a"):
            answer = await home.ask(home.event("Bash", {"command": line}), above=above)
            assert effect_of(answer)[0] == "ask"
            assert "no rule covers `source .venv/bin/activate`" in effect_of(answer)[1]
        line = "source .venv/bin/activate && check x"
        answer = await home.ask(home.event("Bash", {"command": line}), above=above)
        assert effect_of(answer)[0] == "allow"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("layout", "line"),
    [
        ("link", "ls a"),
        ("shell", "bash -c 'ls a'"),
        ("find", "find . -name a -exec ls {} +"),
        ("late", "cp a .venv/bin/ls && ls a"),
        ("second", "find . -name a -exec ls {} + -exec cat {} +"),
        ("wrapper", "./timeout 5 ls a"),
    ],
)
async def test_what_a_client_would_start_of_the_workspace_is_asked_about(
    tmp_path: Path, layout: str, line: str
) -> None:
    home = HookedHome(tmp_path, RULES.replace('"ls *"', '"ls *", "cp *", "find *"'))
    place = environment(home.project)
    for name in ("a", "b"):
        (home.project / name).touch()
    if layout == "link":
        (place / "bin/ls").symlink_to("/bin/sh")
    elif layout != "late":
        names = {"shell": ".venv/bin/bash", "find": ".venv/bin/find", "wrapper": "timeout"}
        names["second"] = ".venv/bin/ls"
        program(home.project / names[layout])
    with client_with(f"{place}/bin:/usr/bin") as above:
        answer = await home.ask(home.event("Bash", {"command": line}), above=above)
    assert effect_of(answer)[0] == "ask"


@pytest.mark.anyio
async def test_a_client_in_an_environment_is_asked_nothing_that_the_line_does_not_make(
    tmp_path: Path,
) -> None:
    home = HookedHome(tmp_path, RULES.replace('"ls *"', '"ls *", "find *", "cat *", "head *"'))
    place = environment(home.project)
    (home.project / "a").touch()
    with client_with(f"{place}/bin:/usr/bin") as above:
        for line in (
            "ls a | head",
            "find . -name a | head",
            "find . -name a -exec cat {} +",
            "check x; ls a",
            "cat a && ls a",
        ):
            answer = await home.ask(home.event("Bash", {"command": line}), above=above)
            assert effect_of(answer)[0] == "allow", (line, effect_of(answer))


@pytest.mark.parametrize("end", ["';'", "+"])
def test_each_program_that_find_starts_is_looked_at(tmp_path: Path, end: str) -> None:
    """Only the last was, so that one of the workspace before it ran unasked."""
    program(tmp_path / "cat")
    (tmp_path / "a").touch()
    places = PathPolicy(tmp_path, binds_programs=True)
    rules = ArgumentRules(["find *", "cat *", "check *"])
    line = f"find . -name a -exec ./cat {{}} {end} -exec cat {{}} {end}"
    assert judge_line(line, rules, places).effect is Effect.ASK
    line = f"find . -name a -exec cat {{}} {end} -exec cat {{}} {end}"
    assert judge_line(line, rules, PathPolicy(tmp_path)).effect is Effect.ALLOW
