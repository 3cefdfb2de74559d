"""Attacks by names of skills on the shell of a person who presses TAB and Enter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillhouse.frontends.cli.candidates import safe
from tests.frontends.conftest import Run, place, run
from tests.frontends.shells import REAL, SHELLS, put_program, started
from tests.house.places import write_skill

pytestmark = pytest.mark.slow

__all__ = ["place", "run"]

HOSTILE = (
    "evil$(touch PWNED)",
    "evil`touch PWNED`",
    "evil;touch PWNED",
    "evil&touch PWNED",
    "evil|touch PWNED",
    "evil\ntouch PWNED",
    "evil\rtouch PWNED",
    "evil' ; touch PWNED #",
    'evil" ; touch PWNED #',
    "evil\\",
    "evil>PWNED",
    "evil${IFS}",
    "evil(touch PWNED)",
    "evil{a,b}",
    "evil*",
    "evil!!",
    "evil\x1b]0;x\x07",
    "evil\x1b[2J",
    "evil\ttouch PWNED",
    "evil name",
    "evil\u202ename",
    "evil\u200bname",
    "evil\x00name",
    "evil~",
    "evil=x",
    "evil%x",
    "evil#x",
)
FIRST = ("--yes", "-rf", "=ls", "~root", "!!", "$(touch PWNED)", "`touch PWNED`")


def test_no_name_with_a_meaning_to_a_shell_is_a_candidate() -> None:
    assert list(safe((*HOSTILE, *FIRST))) == []
    assert list(safe(["evil" + "l" * 300])) == []


@pytest.mark.parametrize("shell_name", SHELLS)
def test_skills_with_hostile_names_put_nothing_into_the_line(
    run: Run, place: Path, shell_name: str
) -> None:
    home = place / "home"
    for number, name in enumerate((*HOSTILE, *FIRST)):
        directory = write_skill(home / f".agents/skills/s{number}")
        text = f"---\nname: {json.dumps(name)}\ndescription: Does it.\n---\nBody.\n"
        (directory / "SKILL.md").write_text(text, encoding="utf-8")
    put_program(home, REAL)
    script = place / "script"
    script.write_text(run("completions", shell_name)[1], encoding="utf-8")
    with started(shell_name, home, script, place / "project") as shell:
        for line in ("skillhouse load evil", "skillhouse show user:evil", "skillhouse load ~ro"):
            assert shell.completed(line)[-1].endswith(("evil", "~ro", "/root")), line
        assert shell.completed("skillhouse load wea") == ["load", "weather"]
    assert list(place.rglob("PWNED")) == []


@pytest.mark.parametrize("shell_name", SHELLS)
def test_the_scripts_put_no_hostile_candidate_into_the_line_by_themselves(
    run: Run, place: Path, shell_name: str
) -> None:
    """As if `--complete` handed over everything: each alone, so that TAB would insert it."""
    home = place / "home"
    script = place / "script"
    script.write_text(run("completions", shell_name)[1], encoding="utf-8")
    put_program(
        home,
        "import pathlib, sys\nsys.stdout.write(pathlib.Path(sys.argv[0] + '.says').read_text())\n",
    )
    says = home / "bin/skillhouse.says"
    says.write_text("", encoding="utf-8")
    with started(shell_name, home, script, place / "project") as shell:
        for name in HOSTILE:
            if "\0" in name:  # bash drops it while reading, and a plain word is left.
                continue
            # A shell reads lines: of a name with a line break, each line is a candidate.
            says.write_text(f"{name}\n", encoding="utf-8", newline="")
            words = shell.completed("skillhouse load ev")
            assert words in (["load", "ev"], ["load", "evil"]), name
        says.write_text("evilly\n", encoding="utf-8")
        assert shell.completed("skillhouse load ev") == ["load", "evilly"]
    assert list(place.rglob("PWNED")) == []


@pytest.mark.parametrize("shell_name", SHELLS)
def test_what_is_typed_is_not_run_to_complete_it(run: Run, place: Path, shell_name: str) -> None:
    home = place / "home"
    put_program(home, REAL)
    script = place / "script"
    script.write_text(run("completions", shell_name)[1], encoding="utf-8")
    with started(shell_name, home, script, place / "project") as shell:
        for line in (
            "skillhouse load '$(touch PWNED)",
            "skillhouse list --scope '`touch PWNED`",
            "skillhouse '$(touch PWNED)' lo",
            "skillhouse load --root '$(touch PWNED)' wea",
        ):
            # The quote is closed, so that Enter runs nothing either.
            closing = "'" if line.count("'") % 2 else ""
            shell.completed(line, closing)
    assert list(place.rglob("PWNED")) == []
