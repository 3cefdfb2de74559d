"""`validate`: what it takes, what it folds, and `--fix`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.frontends.conftest import Run
from tests.house.places import write_skill

Typing = Run
FAULTY = "---\nname: one\ndescription: Use when: asked\n---\nBody.\n"
MENDED = "---\nname: one\ndescription: 'Use when: asked'\n---\nBody.\n"


@pytest.fixture
def faulty(place: Path) -> Path:
    file = place / "skills/one/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(FAULTY)
    file.chmod(0o640)
    return file


@pytest.mark.parametrize(("word", "written"), [("y", MENDED), ("n", FAULTY), ("", FAULTY)])
def test_fix_shows_a_difference_and_asks(
    typing: Typing, faulty: Path, word: str, written: str
) -> None:
    code, out, err = typing(word, "validate", str(faulty.parent), "--fix")
    assert "-description: Use when: asked\n+description: 'Use when: asked'\n" in out
    assert "Write 1 file? (y, n)" in err
    assert faulty.read_text() == written
    assert code == (0 if word == "y" else 1)
    assert faulty.stat().st_mode & 0o777 == 0o640


def test_fix_without_a_terminal_writes_only_with_yes(run: Run, faulty: Path) -> None:
    assert run("validate", str(faulty.parent), "--fix")[0] == 2
    assert faulty.read_text() == FAULTY
    assert run("validate", str(faulty.parent), "--yes")[0] == 2
    code, out, _ = run("validate", str(faulty.parent), "--fix", "--yes", "--json")
    assert code == 0
    assert json.loads(out)["fixed"] == [{"path": str(faulty), "codes": ["yaml-repaired"]}]
    assert faulty.read_text() == MENDED


def test_fix_writes_through_no_link(run: Run, faulty: Path, place: Path) -> None:
    outside = place / "outside.md"
    faulty.rename(outside)
    faulty.symlink_to(outside)
    run("validate", str(faulty.parent), "--fix", "--yes")
    assert outside.read_text() == FAULTY
    assert os.path.islink(faulty)


def test_a_directory_that_is_a_skill_and_holds_others_is_judged_whole(
    run: Run, place: Path
) -> None:
    whole = place / "whole"
    write_skill(whole)
    write_skill(whole / "skills/pdf")
    write_skill(whole / "skills/pdf/inner")
    (whole / "skills/bad").mkdir()
    (whole / "skills/bad/SKILL.md").write_text("")
    code, out, err = run("validate", str(whole))
    assert code == 1
    assert "skills/bad/SKILL.md:1: error" in out
    assert "skills/pdf/inner/SKILL.md: info: a skill inside the skill `pdf`" in out
    assert err.startswith("3 skills: 1 error, 0 warnings, 1 for information")
    assert run("validate", str(whole / "skills/pdf"))[0] == 0


@pytest.mark.slow
def test_many_findings_of_one_code_are_folded_and_counted(run: Run, place: Path) -> None:
    for number in range(40):
        file = write_skill(place / f"many/s{number:02}") / "SKILL.md"
        file.write_text(file.read_text().replace(f"name: s{number:02}", "name: Other Name"))
    code, out, err = run("validate", str(place / "many"), "--lenient")
    assert code == 0
    assert out.count("[name-invalid]\n") == 3
    assert "… and 37 more findings [name-invalid]: --all" in out
    assert "40 skills: 0 errors, 80 warnings, most often name-invalid 40, name-mismatch 40" in err
    assert run("validate", str(place / "many"), "--lenient", "--all")[1].count("\n") == 80
    assert len(json.loads(run("validate", str(place / "many"), "--json")[1])["diagnostics"]) == 80


@pytest.mark.slow
def test_validate_list_and_doctor_say_the_same_thing_to_do(run: Run, place: Path) -> None:
    skill = place / "home/.claude/skills/bad"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: bad\n---\n")
    said = "add `description:`, what it does and when to use it"
    for verb in (("validate", str(skill)), ("list", "--findings"), ("list",), ("show", "bad")):
        assert said in " ".join(run(*verb)[1].split())
    assert said in " ".join(run("doctor")[1].split())


@pytest.mark.slow
@pytest.mark.parametrize("named", [".", "absolute"])
def test_more_directories_than_a_scan_of_manifests_takes_are_each_judged_once(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    root = place / "skills"
    for number in range(2_100):
        write_skill(root / f"s{number}")
    monkeypatch.chdir(root)
    code, out, err = run("validate", "." if named == "." else str(root))
    assert (code, "2100 skills: 0 errors" in out + err) == (0, True)
