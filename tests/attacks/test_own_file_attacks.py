"""Attacks on the files that decide: through links and hard links, wide modes and other owners.

Each worked on the code before (review E1, E2): the model rewrote its own rules through a link into
its workspace, and another user of the machine read and wrote the state.
"""

from __future__ import annotations

import grp
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.floor import ConfigError, SkillhouseError, StateError
from skillhouse.house import Skillhouse, configured
from skillhouse.tools import ToolResult
from tests.harness import Need, ran
from tests.house.places import make_places, write_skill
from tests.tools.houses import Person

# Left out of the fast part: it starts processes.
pytestmark = pytest.mark.slow

RULES = '[[rules]]\neffect = "allow"\naction = "write"\npattern = "*"\n'
ALL = RULES.replace('"write"', '"*"')
POLICY = "version: 1\ndefaults:\n  tier: none\n"
EVIL = '[[rules]]\neffect = "allow"\naction = "exec"\npattern = "*"\n'


@pytest.fixture
def bwrap(need: Need) -> None:
    need(shutil.which("bwrap"), "no bubblewrap")


class Machine:
    """A home whose files can be links into the project that an agent works in."""

    def __init__(self, base: Path) -> None:
        self.places = make_places(base)
        self.project = self.places.start
        self.home = self.places.home
        self.settings = self.home / ".config/skillhouse"
        self.state = self.home / ".local/state/skillhouse"
        self.settings.mkdir(parents=True)
        self.state.mkdir(parents=True, mode=0o700)
        self.dotfiles = self.project / "dotfiles"
        self.dotfiles.mkdir()

    def link(self, path: Path, text: str, *, name: str = "") -> Path:
        """Put a file into the project, and a link to it into the home."""
        real = self.dotfiles / (name or path.name)
        real.parent.mkdir(parents=True, exist_ok=True)
        real.write_text(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(real)
        return real

    def house(self) -> Skillhouse:
        return Skillhouse(configured(self.places), channel=Person([Answer.ONCE] * 50))

    def call(self, tool: str, **arguments: object) -> ToolResult:
        with self.house() as house:
            return house.call_sync(tool, arguments)

    def sh(self, line: str) -> ToolResult:
        return self.call("exec", command=line)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_model_does_not_rewrite_its_rules_through_a_linked_configuration(
    machine: Machine,
) -> None:
    real = machine.link(machine.settings / "config.toml", RULES)
    result = machine.call("write", path="dotfiles/config.toml", content=EVIL)
    assert (result.status, "is protected" in result.content) == ("denied", True)
    assert real.read_text() == RULES
    assert machine.call("write", path="dotfiles/other.toml", content=EVIL).status == "ok"


LINES = [
    "cp evil.toml dotfiles/config.toml",
    "tee dotfiles/config.toml < evil.toml",
    "sed -i s/write/exec/ dotfiles/config.toml",
    "echo > dotfiles/config.toml",
    "ln -sf ../evil.toml dotfiles/config.toml",
    "ln dotfiles/config.toml name && cp evil.toml name",
    "mv evil.toml dotfiles/config.toml",
    "mv dotfiles away && mkdir dotfiles && cp evil.toml dotfiles/config.toml",
    "rm -r dotfiles; mkdir dotfiles; cp evil.toml dotfiles/config.toml",
    "python3 -c \"import os; os.rename('dotfiles', 'away')\"",
    "python3 -c \"open('dotfiles/config.toml', 'w').write('')\"",
]


@pytest.mark.parametrize("line", LINES)
def test_no_command_changes_what_a_linked_configuration_says(
    machine: Machine, line: str, bwrap: None
) -> None:
    machine.link(machine.settings / "config.toml", ALL)
    (machine.project / "evil.toml").write_text(EVIL)
    result = machine.sh(line)
    assert (machine.settings / "config.toml").read_text() == ALL
    assert result.is_error
    assert machine.sh("cp evil.toml fine").status == "ok"


def test_a_linked_policy_profile_and_skill_file_are_as_safe(machine: Machine, bwrap: None) -> None:
    """A skill's file may be a link as long as it stays below the root that it was found in."""
    above = f'roots = ["{machine.project.parent}"]\n'
    (machine.settings / "config.toml").write_text(f'profile = "mine"\n{above}{ALL}')
    skill = write_skill(machine.home / "skills/notes") / "SKILL.md"
    text = skill.read_text()
    skill.unlink()
    linked = {
        machine.link(machine.settings / "policy.yml", POLICY): POLICY,
        machine.link(machine.settings / "profiles/mine.toml", ""): "",
        machine.link(skill, text, name="notes.md"): text,
    }
    for real, before in linked.items():
        relative = real.relative_to(machine.project).as_posix()
        assert machine.call("write", path=relative, content="evil").status == "denied", relative
        source = f"open('{relative}', 'w').write('x')"
        machine.call("exec", command="python3", params=["-c", source])
        assert real.read_text() == before, relative


def test_a_script_of_a_loaded_skill_that_is_a_link_is_not_rewritten(
    machine: Machine, bwrap: None
) -> None:
    (machine.settings / "config.toml").write_text(ALL)
    skill = write_skill(machine.home / ".claude/skills/notes")
    real = machine.link(skill / "scripts/run.sh", "echo harmless\n")
    with machine.house() as house:
        assert house.call_sync("skill", {"name": "notes"}).status == "ok"
        result = house.call_sync("write", {"path": "dotfiles/run.sh", "content": "evil"})
        assert result.status == "denied"
        house.call_sync("exec", {"command": "tee dotfiles/run.sh"})
    assert real.read_text() == "echo harmless\n"


@pytest.mark.parametrize(
    "way", ["link", "inner/../dotfiles", "inner/link/../dotfiles"], ids=["link", "up", "both"]
)
def test_a_way_that_leads_through_the_workspace_is_refused(machine: Machine, way: str) -> None:
    """What is only passed could be replaced by a link to elsewhere."""
    (machine.dotfiles / "config.toml").write_text(ALL)
    (machine.project / "link").symlink_to("dotfiles")
    (machine.project / "inner").mkdir()
    (machine.project / "inner/link").symlink_to("../inner")
    os.symlink(machine.project / way / "config.toml", machine.settings / "config.toml")
    for tool, arguments in (
        ("write", {"path": "a.txt", "content": "x"}),
        ("exec", {"command": "true"}),
    ):
        result = machine.call(tool, **arguments)
        assert (result.status, "is reached through" in result.content) == ("denied", True)
    assert machine.call("list", path=".").status == "ok"


def test_a_file_that_becomes_a_link_while_the_program_runs_is_protected(machine: Machine) -> None:
    (machine.settings / "config.toml").write_text(ALL)
    with machine.house() as house:
        (machine.settings / "config.toml").unlink()
        real = machine.link(machine.settings / "config.toml", ALL)
        result = house.call_sync("write", {"path": "dotfiles/config.toml", "content": EVIL})
        assert result.status == "denied"
        assert real.read_text() == ALL
        real.unlink()
        real.write_text(ALL)
        os.link(real, machine.project / "other-name")
        result = house.call_sync("write", {"path": "other-name", "content": EVIL})
        assert (result.status, "hard links" in result.content) == ("denied", True)


def test_dotfiles_elsewhere_are_no_concern(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (tmp_path / "dotfiles/config.toml").write_text(ALL)
    (machine.settings / "config.toml").symlink_to(tmp_path / "dotfiles/config.toml")
    assert machine.call("write", path="dotfiles/config.toml", content="x").status == "ok"


def test_a_link_to_nothing_in_the_workspace_lets_nothing_act(machine: Machine) -> None:
    """A model could make the file that it leads to."""
    (machine.settings / "config.toml").write_text(ALL)
    (machine.settings / "policy.yml").symlink_to(machine.dotfiles / "policy.yml")
    result = machine.call("write", path="dotfiles/policy.yml", content=POLICY)
    assert (result.status, "link to nothing" in result.content) == ("denied", True)


def test_a_name_that_no_sandbox_can_cover_is_refused(machine: Machine) -> None:
    machine.dotfiles = machine.project / "all*"
    real = machine.link(machine.settings / "config.toml", ALL)
    result = machine.call("exec", command="true")
    assert (result.is_error, "rename it" in result.content) == (True, True)
    assert machine.call("write", path="a.txt", content="x").status == "ok"
    assert real.read_text() == ALL


def test_a_home_as_workspace_is_as_safe(machine: Machine, bwrap: None) -> None:
    (machine.settings / "config.toml").write_text(ALL)
    house = Skillhouse(machine.house().config.at(machine.home))
    with house:
        for line in ("tee .config/skillhouse/config.toml", "mv .config away", "true"):
            result = house.call_sync("exec", {"command": "sh", "params": ["-c", line]})
            assert result.is_error is (line != "true"), result.content
    shutil.move(machine.settings, machine.home / "settings")
    machine.settings.symlink_to(machine.home / "settings")
    with Skillhouse(machine.house().config.at(machine.home)) as house:
        result = house.call_sync("exec", {"command": "true"})
        assert (result.status, "is reached through" in result.content) == ("denied", True)
    assert (machine.settings / "config.toml").read_text() == ALL


@pytest.mark.parametrize("name", ["", "profiles"])
def test_nothing_acts_in_the_directory_of_the_configuration(machine: Machine, name: str) -> None:
    (machine.settings / "config.toml").write_text(ALL)
    (machine.settings / "profiles").mkdir()
    (machine.settings / "profiles/mine.toml").write_text("")
    with Skillhouse(machine.house().config.at(machine.settings / name)) as house:
        for file in ("config.toml", "mine.toml", "new.toml"):
            result = house.call_sync("write", {"path": file, "content": EVIL})
            assert result.status == "denied"
    with Skillhouse(machine.house().config.at(machine.state)) as house:
        result = house.call_sync("write", {"path": "new", "content": EVIL})
        assert result.status == "denied"


@pytest.mark.parametrize("name", ["config.toml", "policy.yml", "profiles/mine.toml"])
def test_a_file_of_the_configuration_with_two_names_is_not_used(
    machine: Machine, name: str
) -> None:
    texts = {"config.toml": ALL, "policy.yml": POLICY, "profiles/mine.toml": ""}
    (machine.settings / "profiles").mkdir()
    for other in {"config.toml", name}:
        (machine.settings / other).write_text(texts[other])
    os.link(machine.settings / name, machine.project / "other-name")
    if name == "profiles/mine.toml":
        (machine.settings / "config.toml").write_text(f'profile = "mine"\n{ALL}')
    if name == "policy.yml":
        said = machine.call("write", path="other-name", content="evil").content
    else:
        with pytest.raises(ConfigError) as caught:
            machine.call("write", path="other-name", content="evil")
        said = str(caught.value)
    assert "hard links" in said
    assert f"cp -pL {machine.settings / name}" in said
    assert (machine.settings / name).read_text() == texts[name]


def test_a_skill_file_with_another_name_in_the_workspace_is_covered_there(
    machine: Machine, bwrap: None
) -> None:
    (machine.settings / "config.toml").write_text(ALL)
    skill = write_skill(machine.home / ".claude/skills/notes") / "SKILL.md"
    before = skill.read_text()
    os.link(skill, machine.dotfiles / "note.txt")
    assert machine.call("write", path="dotfiles/note.txt", content="evil").status == "denied"
    assert machine.call("exec", command="tee dotfiles/note.txt").is_error
    assert skill.read_text() == before
    assert machine.call("exec", command="tee dotfiles/new.txt").status == "ok"


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_a_linked_state_is_not_used(machine: Machine, kind: str) -> None:
    (machine.settings / "config.toml").write_text(ALL)
    with machine.house() as house:
        house.project_trust.trust()
    state = machine.state / "state.sqlite3"
    if kind == "hard":
        os.link(state, machine.project / "state.sqlite3")
    else:
        shutil.move(state, machine.project / "state.sqlite3")
        state.symlink_to(machine.project / "state.sqlite3")
    with pytest.raises(StateError, match="file of its own"):
        machine.call("list", path=".")


def test_the_state_is_its_owners_alone_whatever_the_umask(machine: Machine) -> None:
    machine.state.rmdir()
    shutil.rmtree(machine.home / ".local")
    before = os.umask(0)
    try:
        with machine.house() as house:
            house.call_sync("write", {"path": "a.txt", "content": "x"})
            house.project_trust.trust()
            modes = {
                str(found.relative_to(machine.home)): stat.S_IMODE(found.stat().st_mode)
                for found in (machine.home / ".local").rglob("*")
            }
    finally:
        os.umask(before)
    assert modes[".local/state/skillhouse/state.sqlite3"] == 0o600
    assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}


def widen(path: Path, mode: int) -> Callable[[Machine], None]:
    return lambda machine: (machine.home / path).chmod(mode)


def give_away(path: Path) -> Callable[[Machine], None]:
    return lambda machine: os.chown(machine.home / path, 12345, -1)


STATE = Path(".local/state/skillhouse")
CONFIG = Path(".config/skillhouse")
CASES = {
    "state-directory-0755": (widen(STATE, 0o755), "chmod go= "),
    "state-directory-0777": (widen(STATE, 0o777), "chmod go= "),
    "state-0644": (widen(STATE / "state.sqlite3", 0o644), "chmod go= "),
    "state-0666": (widen(STATE / "state.sqlite3", 0o666), "chmod go= "),
    "above-the-state-0777": (widen(STATE.parent, 0o777), "chmod go-w "),
    "configuration-0666": (widen(CONFIG / "config.toml", 0o666), "chmod go-w "),
    "configuration-0664": (widen(CONFIG / "config.toml", 0o664), "chmod go-w "),
    "its-directory-0777": (widen(CONFIG, 0o777), "chmod go-w "),
    "its-directory-sticky": (widen(CONFIG, 0o1777), "chmod go-w "),
    "above-it-0777": (widen(CONFIG.parent, 0o777), "chmod go-w "),
    "state-directory-of-another": (give_away(STATE), "chown"),
    "state-of-another": (give_away(STATE / "state.sqlite3"), "chown"),
    "log-of-another": (give_away(STATE / "audit.jsonl"), "chown"),
    "log-0666": (widen(STATE / "audit.jsonl", 0o666), "chmod go-w "),
    "configuration-of-another": (give_away(CONFIG / "config.toml"), "chown"),
    "its-directory-of-another": (give_away(CONFIG), "chown"),
    "cache-0777": (widen(Path(".cache/skillhouse"), 0o777), "chmod go-w "),
}


@pytest.mark.parametrize("case", CASES)
def test_what_others_can_change_is_refused_with_what_mends_it(
    machine: Machine, need: Need, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(group_id: int) -> object:
        raise KeyError(group_id)

    # A group in which the user who runs the tests is alone is no one else.
    monkeypatch.setattr(grp, "getgrgid", unknown)
    spoil, command = CASES[case]
    if command == "chown":
        need(os.geteuid() == 0, "only root gives a file away")
    (machine.settings / "config.toml").write_text(ALL)
    with machine.house() as house:
        house.project_trust.trust()
        assert house.call_sync("write", {"path": "a.txt", "content": "x"}).status == "ok"
    spoil(machine)
    try:
        result = machine.call("write", path="b.txt", content="x")
    except SkillhouseError as error:
        said = str(error)
    else:
        assert result.is_error
        said = result.content
    assert command in said
    assert not (machine.project / "b.txt").exists()
    mended = said[said.index(command) :].split("`")[0]
    if command != "chown":
        subprocess.run(mended, shell=True, check=True)
        assert machine.call("write", path="b.txt", content="x").status == "ok"


def test_a_policy_that_others_can_write_lets_only_reads_go_on(machine: Machine) -> None:
    (machine.settings / "config.toml").write_text(ALL)
    (machine.settings / "policy.yml").write_text(POLICY)
    assert machine.call("write", path="a.txt", content="x").status == "ok"
    (machine.settings / "policy.yml").chmod(0o666)
    result = machine.call("write", path="b.txt", content="x")
    assert (result.status, "chmod go-w" in result.content) == ("denied", True)
    assert machine.call("read", path="a.txt").status == "ok"


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o444])
def test_a_configuration_that_others_only_read_is_used(machine: Machine, mode: int) -> None:
    (machine.settings / "config.toml").write_text(ALL)
    (machine.settings / "config.toml").chmod(mode)
    machine.settings.chmod(0o755)
    assert machine.call("write", path="a.txt", content="x").status == "ok"


def test_the_command_line_says_what_mends_it(machine: Machine) -> None:
    machine.state.chmod(0o755)
    done = ran(
        [sys.executable, "-m", "skillhouse", "list"],
        env={"HOME": str(machine.home), "PATH": os.environ["PATH"]},
        cwd=machine.project,
    )
    assert done.returncode != 0
    assert f"run `chmod go= {machine.state}`" in done.stderr
