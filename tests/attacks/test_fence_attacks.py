"""The ways around a denial under an allow of everything, through the whole gate.

What a file of the workspace starts, no rule sees: there the sandbox has none of the programs that
are denied whatever their words are (decision record 0416).

The judge alone once asked about each while the gate ran some: what is said of a text that a program
reads was said of no command, and an allow of everything passed over it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import SandboxLevel, Toolset
from skillhouse.tools import ToolResult
from skillhouse.tools.denied_programs import DeniedPrograms
from tests.harness import Need
from tests.house.coded import best_sandbox
from tests.house.places import make_places
from tests.permission.test_fence import WAYS

pytestmark = pytest.mark.slow

RULES = (
    *(Rule(effect=Effect.ALLOW, action=action, pattern="*") for action in ("exec", "write")),
    *(
        Rule(effect=Effect.DENY, action="exec", pattern=pattern)
        for pattern in ("rm *", "curl *", "git push *", "sudo *")
    ),
)


def started_by_first_word(line: str) -> bool:
    """What compares the first word of a line with the denials runs."""
    return line.split(maxsplit=1)[0] not in ("rm", "curl", "sudo") and line[:8] != "git push"


@pytest.mark.parametrize("way", WAYS)
def test_no_way_around_a_denial_runs(tmp_path: Path, way: str) -> None:
    around, _ = WAYS[way]
    assert all(map(started_by_first_word, around))
    places = make_places(tmp_path)
    (places.start / "src").mkdir()
    for name in ("README.md", "list", "push", "x.py", "src/a.py"):
        (places.start / name).write_text("x\n")
    before = sorted(places.start.rglob("*"))
    layers = (Layer(name="user", rules=RULES),)
    with Skillhouse(configured(places), layers=layers) as house:
        results = [house.call_sync("exec", {"command": line}) for line in around]
    ran = [line for line, one in zip(around, results, strict=True) if one.status == "ok"]
    assert ran == []
    assert {one.status for one in results} <= {"denied", "pending", "error"}
    assert not [one for one in results if one.data and one.data.get("exit_code") is not None]
    assert sorted(places.start.rglob("*")) == before


Ran = Callable[..., tuple[list[ToolResult], Path]]

HIDDEN = {
    "a word of a shell": ("sh x", "a=r; ${a}m victim"),
    "its path": ("sh x", '/bin/r""m victim'),
    "the loader": ("sh x", "$(ls /lib*/ld-linux*.so.* | head -1) /usr/bin/rm victim"),
    "a copy": ("sh x", "cp $(command -v rm) k; ./k victim"),
    "what is in a copy": ("sh x", "cat /usr/bin/rm >k; chmod 755 k; ./k victim"),
    "a link": ("sh x", "ln -s /usr/bin/rm k; ./k victim; ln /usr/bin/rm l; ./l victim"),
    "rights that it is given": (
        "sh x",
        "chmod 755 /usr/bin/rm; rm victim; umount /usr/bin/rm; rm victim",
    ),
    "all in one": ("sh x", "busybox rm victim"),
    "a language": ("perl x", 'system chr(114) . "m", "victim"'),
    "a pipe": ("printf '1e r%s victim' m >k; sed -f k README.md", ""),
    "a program": ("awk -f x", 'BEGIN { c = "cm"; system("r" substr(c, 2) " victim") }'),
    "a name with a version": (
        "sh x",
        'for p in /usr/bin/python3*; do $p -c \'open("hit", "w")\'; done',
    ),
}


@pytest.fixture
def ran(tmp_path: Path, need: Need) -> Ran:
    levels = (SandboxLevel.CGROUP, SandboxLevel.RLIMITS)
    need(best_sandbox(need).level in levels, "programs are covered in bubblewrap only")

    def run(*lines: str, text: str, denied: tuple[str, ...]) -> tuple[list[ToolResult], Path]:
        places = make_places(tmp_path)
        for name, content in (("x", text), ("victim", ""), ("README.md", "x\n")):
            (places.start / name).write_text(content)
        rules = (
            *(Rule(effect=Effect.ALLOW, action=each, pattern="*") for each in ("exec", "write")),
            *(Rule(effect=Effect.DENY, action="exec", pattern=each) for each in denied),
        )
        layers = (Layer(name="user", rules=rules),)
        with Skillhouse(configured(places), layers=layers) as house:
            return [house.call_sync("exec", {"command": line}) for line in lines], places.start

    return run


@pytest.mark.parametrize("way", HIDDEN)
def test_what_a_command_starts_by_itself_is_not_a_denied_program(ran: Ran, way: str) -> None:
    line, text = HIDDEN[way]
    _, place = ran(line, text=text, denied=("rm *", "python3 *"))
    assert (place / "victim").exists()
    assert not (place / "hit").exists()


def test_the_result_says_which_rule_it_was(ran: Ran) -> None:
    (result,), _ = ran("sh x", text="rm victim", denied=("rm *",))
    assert "`rm`: a rule denies it, also to what a command starts by itself" in result.content


def test_several_commands_run_where_python_is_denied(ran: Ran) -> None:
    (result,), place = ran("true && sh x", text="echo a >b; python3 -c 1", denied=("python3 *",))
    assert (place / "b").read_text() == "a\n"
    assert "`python3`: a rule denies it" in result.content


@pytest.mark.parametrize("denied", ["rm -rf *", "rm"])
def test_a_denial_of_some_words_leaves_the_program_there(ran: Ran, denied: str) -> None:
    (result,), place = ran("sh x", text="rm victim", denied=(denied,))
    assert result.status == "ok"
    assert not (place / "victim").exists()


def test_a_directory_that_may_be_entered_and_not_listed_hides_no_denied_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(place: str) -> list[str]:
        raise PermissionError(13, "Permission denied", place)

    tools = Toolset()
    listed = DeniedPrograms().found(frozenset({"rm"}), tools)
    monkeypatch.setattr(os, "listdir", refused)
    unlisted = DeniedPrograms().found(frozenset({"rm"}), tools)
    assert os.path.realpath("/usr/bin/rm") in listed.keys() & unlisted.keys()
