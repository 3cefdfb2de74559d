"""Attacks on rules that cover a script: another file runs than the one that was approved."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.floor import ConfigError, structs
from skillhouse.house import Skillhouse, load_config
from skillhouse.house.config import PROJECT_FILE
from skillhouse.permission import Effect, Permission, Rule, decide
from skillhouse.tools import ToolResult
from tests.harness import Need
from tests.house.places import make_places, write_skill
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

GOOD = "print('good')\n"
EVIL = "print('evil')\n"


def allow(*patterns: str, unbound: bool = False) -> list[Rule]:
    return [
        Rule(effect=Effect.ALLOW, action="exec", pattern=pattern, unbound=unbound)
        for pattern in patterns
    ]


RULES = allow(
    "python3 scripts/x.py *",
    "python3 ./scripts/x.py *",
    "python3 sub/../scripts/x.py *",
    "python3 link/x.py *",
    "python3 linked.py *",
    "python3 x.py *",
    "bash scripts/x.sh *",
    "./scripts/run.sh *",
    "npm run build *",
    "cp *",
    "mv *",
    "mkdir *",
    "echo *",
    "cat *",
    "cd *",
)


class Desk:
    """A workspace with scripts, a person who says yes `answers` times, and what was asked."""

    def __init__(self, house: Skillhouse, person: Person, root: Path) -> None:
        self.house, self.person, self.root = house, person, root

    def run(self, line: str) -> ToolResult:
        return self.house.call_sync("exec", {"command": line})

    def yes(self, count: int = 1) -> None:
        self.person.answers += [Answer.ONCE] * count

    @property
    def why(self) -> list[str]:
        return [request.reasons[0] for request in self.person.asked]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    person = Person()
    with house_at(tmp_path, *RULES, person=person) as house:
        root = tmp_path / "project"
        (root / "scripts").mkdir(parents=True)
        (root / "sub").mkdir()
        (root / "scripts/x.py").write_text(GOOD)
        (root / "evil.py").write_text(EVIL)
        yield Desk(house, person, root)


NEW = "`scripts/x.py` was not approved yet; an approval holds until it changes"
CHANGED = "`scripts/x.py` has changed since it was approved; an approval holds until it changes"


def test_a_script_is_asked_about_once_and_again_when_it_changes(desk: Desk) -> None:
    assert desk.run("python3 scripts/x.py").status == "denied"
    desk.yes()
    assert desk.run("python3 scripts/x.py").content == "good\n"
    for line in ("python3 scripts/x.py a", "python3 scripts/x.py 'b c'; echo done"):
        assert desk.run(line).content.startswith("good\n")
    assert desk.why == [NEW, NEW]
    assert [asked.always for asked in desk.person.asked] == [(), ()]
    (desk.root / "scripts/x.py").write_text(EVIL)
    assert desk.run("python3 scripts/x.py").status == "denied"
    assert desk.why == [NEW, NEW, CHANGED]
    # Back to what was approved, which is the same bytes.
    (desk.root / "scripts/x.py").write_text(GOOD)
    assert desk.run("python3 scripts/x.py").content == "good\n"


@pytest.mark.parametrize(
    "line", ["python3 ./scripts/x.py", "python3 sub/../scripts/x.py", "cd scripts && python3 x.py"]
)
def test_another_spelling_of_its_path_is_the_same_script(desk: Desk, line: str) -> None:
    desk.yes()
    assert desk.run("python3 scripts/x.py").content == "good\n"
    assert desk.run(line).content == "good\n"
    (desk.root / "scripts/x.py").write_text(EVIL)
    assert desk.run(line).status == "denied"
    assert desk.why == [NEW, CHANGED]


def test_a_script_that_is_replaced_between_the_approval_and_the_run_does_not_run(
    desk: Desk,
) -> None:
    script = desk.root / "scripts/x.py"

    class Replacing(Person):
        async def ask(self, request: object) -> Answer:
            script.write_text(EVIL)
            return await super().ask(request)  # type: ignore[arg-type]

    replacing = Replacing([Answer.ONCE])
    desk.house.approvals.channels[:] = [replacing]
    result = desk.run("python3 scripts/x.py")
    assert result.status == "denied"
    assert "evil" not in result.content
    assert len(replacing.asked) == 2
    assert desk.house.approvals.scripts.all() == ()


@pytest.mark.parametrize("way", ["file", "directory"])
def test_a_script_behind_a_symbolic_link_is_asked_about_each_time(desk: Desk, way: str) -> None:
    if way == "file":
        (desk.root / "linked.py").symlink_to("scripts/x.py")
        line = "python3 linked.py"
    else:
        (desk.root / "link").symlink_to("scripts")
        line = "python3 link/x.py"
    desk.yes(2)
    assert [desk.run(line).content for _ in range(2)] == ["good\n"] * 2
    assert all("reached through a symbolic link" in why for why in desk.why)
    assert len(desk.why) == 2
    assert desk.house.approvals.scripts.all() == ()


def test_a_link_that_takes_the_place_of_an_approved_script_is_asked_about(desk: Desk) -> None:
    desk.yes()
    desk.run("python3 scripts/x.py")
    (desk.root / "scripts/x.py").unlink()
    (desk.root / "scripts/x.py").symlink_to("../evil.py")
    assert desk.run("python3 scripts/x.py").status == "denied"
    assert "reached through a symbolic link" in desk.why[1]


def test_a_hard_link_that_takes_its_place_has_other_bytes(desk: Desk) -> None:
    desk.yes()
    desk.run("python3 scripts/x.py")
    (desk.root / "scripts/x.py").unlink()
    os.link(desk.root / "evil.py", desk.root / "scripts/x.py")
    assert desk.run("python3 scripts/x.py").status == "denied"
    assert desk.why == [NEW, CHANGED]


@pytest.mark.parametrize(
    "line",
    [
        "cp evil.py scripts/x.py && python3 scripts/x.py",
        "cp evil.py scripts/ && python3 scripts/x.py",
        "cat evil.py > scripts/x.py; python3 scripts/x.py",
        "python3 scripts/x.py && python3 scripts/x.py",
    ],
)
def test_a_line_that_may_change_the_script_is_asked_about(desk: Desk, line: str) -> None:
    desk.yes()
    desk.run("python3 scripts/x.py")
    result = desk.run(line)
    assert result.status == "denied", result
    assert "is asked about each time" in " ".join(desk.person.asked[1].reasons)


def test_a_line_that_moves_the_script_away_is_refused_without_a_question(desk: Desk) -> None:
    desk.yes()
    desk.run("python3 scripts/x.py")
    line = "mv scripts old && mkdir scripts && cp evil.py scripts/x.py && python3 scripts/x.py"
    result = desk.run(line)
    assert (result.status, len(desk.person.asked)) == ("denied", 1)
    assert "runs as it was approved while the line runs" in result.content


def test_a_line_that_makes_the_script_is_asked_about(desk: Desk) -> None:
    (desk.root / "scripts/x.py").unlink()
    assert desk.run("cp evil.py scripts/x.py && python3 scripts/x.py").status == "denied"
    assert "is asked about each time" in " ".join(desk.person.asked[0].reasons)


def test_a_script_that_is_not_there_needs_no_approval_and_then_one(desk: Desk) -> None:
    (desk.root / "scripts/x.py").unlink()
    assert "no such file" in desk.run("python3 scripts/x.py").content
    assert desk.why == []
    (desk.root / "scripts/x.py").write_text(EVIL)
    assert desk.run("python3 scripts/x.py").status == "denied"


def test_a_script_outside_the_workspace_is_asked_about_each_time(
    tmp_path: Path, desk: Desk
) -> None:
    (tmp_path / "out.py").write_text(EVIL)
    (desk.root / "linked.py").symlink_to(tmp_path / "out.py")
    assert desk.run("python3 linked.py").status == "denied"
    assert "outside the current tree" in " ".join(desk.person.asked[0].reasons)


def test_a_script_too_large_to_be_sealed_is_asked_about_each_time(desk: Desk) -> None:
    (desk.root / "scripts/x.py").write_text(GOOD + "#" * 1_048_576)
    desk.yes(2)
    assert [desk.run("python3 scripts/x.py").content for _ in range(2)] == ["good\n"] * 2
    assert len(desk.why) == 2
    assert "not a file that can be read whole" in desk.why[0]


def test_a_program_of_the_workspace_runs_where_a_rule_names_it(desk: Desk) -> None:
    script = desk.root / "scripts/run.sh"
    script.write_text("#!/bin/sh\necho ran $1\n")
    script.chmod(0o755)
    desk.yes()
    assert desk.run("./scripts/run.sh a").content == "ran a\n"
    assert desk.run("./scripts/run.sh b").content == "ran b\n"
    assert len(desk.why) == 1
    script.write_text("#!/bin/sh\necho evil\n")
    assert desk.run("./scripts/run.sh b").status == "denied"
    assert desk.run("./scripts/other.sh").content.startswith("no such file")
    asked = len(desk.why)
    assert desk.run(f"{script}").status == "denied"
    assert len(desk.why) == asked + 1


def test_a_revoked_script_is_asked_about(desk: Desk) -> None:
    desk.yes()
    desk.run("python3 scripts/x.py")
    (kept,) = desk.house.approvals.scripts.all()
    assert (kept.path, kept.workspace) == ("scripts/x.py", str(desk.root))
    assert desk.house.approvals.scripts.revoke(kept.id)
    assert not desk.house.approvals.scripts.revoke(kept.id)
    assert desk.run("python3 scripts/x.py").status == "denied"
    assert desk.why == [NEW, NEW]


def test_an_approval_is_of_one_user_and_one_workspace(desk: Desk) -> None:
    desk.yes()
    desk.run("python3 scripts/x.py")
    other = desk.house.call_sync("exec", {"command": "python3 scripts/x.py"}, user="robin")
    assert other.status == "denied"


def test_what_runs_is_a_copy_that_the_script_cannot_change(desk: Desk) -> None:
    (desk.root / "scripts/x.py").write_text("open(__file__, 'a').write('#')\n")
    desk.yes()
    assert "Permission denied" in desk.run("python3 scripts/x.py").content


def test_an_exact_rule_asks_once_and_the_operators_star_never(tmp_path: Path) -> None:
    for pattern, questions in (("python3 x.py", 1), ("*", 0)):
        person = Person([Answer.ONCE])
        base = tmp_path / str(questions)
        (base / "project").mkdir(parents=True)
        with house_at(base, *allow(pattern), person=person) as house:
            (base / "project/x.py").write_text(GOOD)
            for _ in range(2):
                result = house.call_sync("exec", {"command": "python3", "params": ["x.py"]})
                assert result.content == "good\n"
        assert len(person.asked) == questions


def test_two_calls_at_once_run_what_was_approved(desk: Desk) -> None:
    """One call runs the script, the other puts another directory in its place, again and again."""
    (desk.root / "other").mkdir()
    (desk.root / "other/x.py").write_text(EVIL)
    desk.yes()
    desk.run("python3 scripts/x.py")
    said: list[str] = []

    def running() -> None:
        said.extend(desk.run("python3 scripts/x.py").content for _ in range(8))

    def swapping() -> None:
        for _ in range(8):
            desk.run("mv scripts old && mv other scripts && mv scripts other && mv old scripts")

    threads = [threading.Thread(target=running), threading.Thread(target=swapping)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "evil\n" not in said
    assert "good\n" in said


@pytest.mark.parametrize("unbound", [True, False])
def test_a_rule_that_is_not_unbound_covers_no_make(tmp_path: Path, unbound: bool) -> None:
    person = Person([Answer.ONCE])
    (tmp_path / "project").mkdir()
    (tmp_path / "project/Makefile").write_text("all:\n\t@echo made\n")
    with house_at(tmp_path, *allow("make all *", unbound=unbound), person=person) as house:
        for _ in range(2):
            result = house.call_sync("exec", {"command": "make all"})
    (first, *more) = person.asked
    assert first.always == ()
    # With the mark the Makefile is asked about once; without it make itself, each time.
    assert len(more) == (0 if unbound else 1)
    assert (result.status, "Makefile" in first.reasons[0]) == (
        "ok" if unbound else "denied",
        unbound,
    )


@pytest.mark.parametrize("place", ["skills", "project/skills"])
def test_a_script_of_a_loaded_skill_needs_no_approval_of_its_own(
    tmp_path: Path, place: str
) -> None:
    person = Person()
    skill = write_skill(tmp_path / place / "pdf")
    (skill / "scripts").mkdir()
    (skill / "scripts/run.py").write_text(GOOD)
    script = f"{skill}/scripts/run.py"
    rules = allow(f"python3 {script} *")
    with house_at(tmp_path, *rules, person=person, roots=[skill.parent]) as house:
        line = {"command": f"python3 {script}"}
        assert house.call_sync("exec", line).status == "denied"
        assert house.call_sync("skill", {"name": "pdf"}).status == "ok"
        asked = len(person.asked)
        assert house.call_sync("exec", line).content == "good\n"
        assert len(person.asked) == asked


def test_a_script_of_a_skill_that_is_asked_about_is_asked_about_too(tmp_path: Path) -> None:
    person = Person([Answer.ONCE])
    skill = write_skill(tmp_path / "project/skills/pdf")
    (skill / "run.py").write_text(GOOD)
    rules = [
        *allow("python3 skills/pdf/run.py *"),
        Rule(effect=Effect.ASK, action="skill", pattern="*"),
    ]
    with house_at(tmp_path, *rules, person=person, roots=[skill.parent]) as house:
        assert house.call_sync("skill", {"name": "pdf"}).status == "ok"
        assert house.call_sync("exec", {"command": "python3 skills/pdf/run.py"}).status == "denied"
        assert len(person.asked) == 2


def test_a_link_to_a_loaded_skill_is_asked_about_each_time(tmp_path: Path) -> None:
    person = Person()
    skill = write_skill(tmp_path / "skills/pdf")
    (skill / "run.py").write_text(GOOD)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/link").symlink_to(skill)
    rules = allow("python3 link/run.py *")
    with house_at(tmp_path, *rules, person=person, roots=[skill.parent]) as house:
        assert house.call_sync("skill", {"name": "pdf"}).status == "ok"
        assert house.call_sync("exec", {"command": "python3 link/run.py"}).status == "denied"


def test_a_script_that_another_call_makes_meanwhile_does_not_run(desk: Desk) -> None:
    """Nothing is there to approve; then another call puts a file in its place."""
    (desk.root / "scripts/x.py").unlink()
    said: list[str] = []

    def running() -> None:
        said.extend(desk.run("python3 scripts/x.py").content for _ in range(6))

    def making() -> None:
        for _ in range(6):
            desk.run("cp evil.py scripts/x.py && mv scripts/x.py gone.py")

    threads = [threading.Thread(target=running), threading.Thread(target=making)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert "evil\n" not in said


def test_r5_a_module_beside_an_approved_script_ends_the_approval(desk: Desk) -> None:
    script = "import argparse, helper\nprint(helper.SAID)\n"
    (desk.root / "scripts/x.py").write_text(script)
    (desk.root / "scripts/helper.py").write_text("SAID = 'good'\n")
    desk.yes(1)
    assert desk.run("python3 scripts/x.py").content.startswith("good")
    assert "not bound" in {name for name, _ in desk.person.asked[0].found}
    # What it imports changes.
    (desk.root / "scripts/helper.py").write_text("SAID = 'evil'\n")
    assert desk.run("python3 scripts/x.py").status != "ok"
    assert "`scripts/helper.py`, which `scripts/x.py` loads" in desk.why[-1]
    # A new file takes the place of a module of Python.
    (desk.root / "scripts/helper.py").write_text("SAID = 'good'\n")
    assert desk.run("python3 scripts/x.py").content.startswith("good")
    for name in ("argparse.py", "gettext.py"):
        (desk.root / "scripts" / name).write_text(EVIL)
        assert desk.run("python3 scripts/x.py").status != "ok"
        assert "in the place of a module of Python's own" in desk.why[-1]
        (desk.root / "scripts" / name).unlink()
    # The line itself makes one.
    result = desk.run("cp evil.py scripts/gettext.py && python3 scripts/x.py")
    assert result.status != "ok", result.content
    assert "the line writes it" in result.content


@pytest.mark.parametrize("name", ["build.js", "lib.js", "before.sh", "package.json"])
def test_r5_a_script_that_an_approved_task_starts_ends_the_approval(
    desk: Desk, need: Need, name: str
) -> None:
    """The task's line was bound, and what it starts was not."""
    need(shutil.which("npm", path="/usr/bin:/bin"), "no npm")
    tasks = {"prebuild": "sh before.sh", "build": "node build.js"}
    files = {
        "package.json": json.dumps({"scripts": tasks}),
        "before.sh": "echo before\n",
        "build.js": "console.log(require('./lib'))\n",
        "lib.js": "module.exports = 'good'\n",
    }
    for file, text in files.items():
        (desk.root / file).write_text(text)
    desk.yes()
    for _ in range(2):
        assert desk.run("npm run build").content.endswith("good\n")
    assert len(desk.person.asked) == 1
    # The same with one more line, which is nothing to the program.
    (desk.root / name).write_text(files[name] + "\n")
    assert desk.run("npm run build").status == "denied"
    assert f"`{name}`" in desk.why[-1]


def test_a_project_or_the_environment_of_an_agent_sets_no_policy(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    (places.start / PROJECT_FILE).write_text('policy = "developer"\n')
    config = load_config(places, project=places.start)
    assert config.policy is None
    # What it may have denied cannot be read: everything is asked about.
    assert [layer.name for layer in config.layers if layer.is_builtin] == []
    assert "key `policy` cannot be set by a project" in config.problems[0].message
    places = structs.replace(places, environment={"SKILLHOUSE_POLICY": "developer"})
    with pytest.raises(ConfigError, match="unknown environment variable"):
        load_config(places)


def test_no_agent_that_is_called_like_a_policy_takes_its_place(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(
        'policy = "locked"\n[[agents.locked.rules]]\neffect = "allow"\naction = "write"\n'
        'pattern = "*"\n'
    )
    config = load_config(places)
    wanted = Permission(action="write", resource="/site/a.txt")
    found = decide((*config.layers, config.agents["locked"]), wanted)
    assert (found.effect, found.layer) == (Effect.DENY, "locked")


MODULES = ("python3 -m py_compile *", "python3 -m unittest *", "python3 -m json.tool *")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("for f in evil*.py; do python3 -m py_compile $f; done", ""),
        ("python3 -m unittest -q && python3 -m py_compile evil.py", ""),
        ("cp evil.py py_compile.py && python3 -m py_compile evil.py", "the line writes it"),
        ("mkdir py_compile && python3 -m py_compile evil.py", "the line writes it"),
        ("python3 -m unittest -q > py_compile.py; python3 -m py_compile a", "the line writes it"),
        ("python3 -m json.tool a py_compile.py; python3 -m py_compile a", "the line writes it"),
        ("./scripts/run.sh && python3 -m py_compile evil.py", "another command of the line may"),
    ],
)
def test_a_module_of_python_that_the_line_puts_another_in_place_of(
    line: str, why: str, tmp_path: Path
):
    rules = [*allow("./scripts/run.sh *", "cp *", "mkdir *"), *allow(*MODULES, unbound=True)]
    person = Person()
    with house_at(tmp_path, *rules, person=person) as house:
        root = tmp_path / "project"
        (root / "scripts").mkdir(parents=True)
        (root / "scripts/run.sh").write_text("#!/bin/sh\ncp evil.py py_compile.py\n")
        (root / "scripts/run.sh").chmod(0o755)
        for name in ("evil.py", "evil2.py"):
            (root / name).write_text(EVIL)
        result = house.call_sync("exec", {"command": line})
        asked = [reason for request in person.asked for reason in request.reasons]
        assert bool(asked) is bool(why), (asked, result.content)
        assert not why or any(why in reason for reason in asked), asked
