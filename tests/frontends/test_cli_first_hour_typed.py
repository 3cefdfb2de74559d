"""The first minutes as a person types them: the real program at a pseudo-terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frontends.shells import typed
from tests.house.places import make_places, readers_of, write_skill

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Path:
    make_places(tmp_path)
    return tmp_path


def at(place: Path, line: str, *answers: tuple[str, str]) -> tuple[int, str]:
    return typed(line.split(), answers, place / "home", place / "project")


def test_new_asks_says_who_reads_it_and_what_comes_next(place: Path) -> None:
    code, said = at(
        place,
        "new",
        ("Name", "My Notes"),
        ("Name", "my-notes"),
        ("when to use it", "Writes notes. Use it after a call."),
    )
    made = place / "home/.agents/skills/my-notes"
    assert (code, "got 'My Notes'" in said) == (0, True)
    assert f"user:my-notes is at {made}/SKILL.md" in said
    assert f"also read by {readers_of()}" in said
    assert f"next: edit {made}/SKILL.md, then `skillhouse validate {made}`" in said
    assert at(place, f"validate {made}")[0] == 0


def test_a_skill_of_the_project_is_trusted_deleted_and_put_back(place: Path) -> None:
    directory = write_skill(place / "project/.agents/skills/deploy")
    code, said = at(place, "trust", ("(y, n)", "n"))
    assert (code, "nothing was trusted" in said) == (1, True)
    code, said = at(place, "trust", ("(y, n)", "y"))
    assert (code, "deploy  new  .agents/skills/deploy" in said) == (0, True)
    code, said = at(place, "delete deploy", ("(y, n)", "n"))
    assert (code, directory.is_dir()) == (1, True)
    code, said = at(place, "delete deploy", ("(y, n)", "y"))
    assert (code, directory.exists()) == (0, False)
    assert "It is a skill of this project, which others may share" in said
    assert "to put it back: skillhouse delete --undo project:deploy" in said
    assert at(place, "delete --undo")[0] == 0
    assert (directory / "SKILL.md").is_file()
    at(place, "delete deploy", ("(y, n)", "y"))
    code, said = at(place, "delete --empty", ("Remove 1 deleted skill for good? (y, n)", "y"))
    assert (code, "removed 1 deleted skill for good" in said) == (0, True)
    assert at(place, "delete --undo")[0] == 1


def test_a_rule_is_shown_and_asked_about(place: Path) -> None:
    code, said = at(place, "policy allow exec pwd", ("(y, n)", "y"))
    assert (code, 'pattern = "pwd"' in said) == (0, True)
    assert "1: allow exec pwd" in at(place, "policy")[1]
    code, said = at(place, "policy explain exec pwd")
    assert (code, "allow" in said) == (0, True)
