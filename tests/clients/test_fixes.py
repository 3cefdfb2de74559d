"""What `doctor --fix` proposes and makes: signs and fences, names of files, links."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.clients import ClientReport, Fix, apply_fix, compare, proposed_fixes
from skillhouse.clients.config_file import ConfigFileError
from skillhouse.skill import load_profile, repaired_file
from tests.house.places import write_skill

CLIENTS = ("claude-code", "codex", "gemini-cli", "opencode-cli")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path


def refuse(path: Path, _: str) -> None:
    raise AssertionError(path)


def see(base: Path, *names: str) -> ClientReport:
    profiles = [load_profile(name) for name in names or CLIENTS]
    return compare(start=base / "project", home=base / "home", environment={}, profiles=profiles)


def put(base: Path, text: str, name: str = "pdf") -> Path:
    file = base / f"project/.agents/skills/{name}/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode())
    return file


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("\ufeff---\nname: pdf\ndescription: x\n---\n", "---\nname: pdf\ndescription: x\n---\n"),
        ("\n\n---\nname: pdf\ndescription: x\n---\n", "---\nname: pdf\ndescription: x\n---\n"),
        ("--- \nname: pdf\ndescription: x\n---\n", "---\nname: pdf\ndescription: x\n---\n"),
        ("---\ndescription: x\n---\nB\n", "---\nname: pdf\ndescription: x\n---\nB\n"),
        ("---\nname: pdf\ndescription: 1\n---\n", "---\nname: pdf\ndescription: '1'\n---\n"),
        (
            "---\nname: pdf\ndescription: > Use when: x\n---\n",
            "---\nname: pdf\ndescription: 'Use when: x'\n---\n",
        ),
        (
            "---\r\nname: pdf\r\ndescription: [a] b\r\n---\r\n",
            "---\r\nname: pdf\r\ndescription: '[a] b'\r\n---\r\n",
        ),
        (
            "---\nname: pdf\ndescription: x\n\n# Body\n",
            "---\nname: pdf\ndescription: x\n---\n\n# Body\n",
        ),
        ("---\rname: pdf\rdescription: x\r---\r", "---\nname: pdf\ndescription: x\n---\n"),
        # What takes an author, and what needs no mend.
        ("---\nname: pdf\n---\nBody.\n", None),
        ("# Only a body\n", None),
        ("---\nname: pdf\ndescription: 'x\n---\n", None),
        ("---\nname: a\nname: b\ndescription: x\n---\n", None),
        ("---\nname: pdf\ndescription: x\n---\n", None),
        ("---\nname: pdf\ndescription: x\u200b\n---\n", None),
    ],
)
def test_a_mend_changes_signs_and_no_words(text: str, after: str | None) -> None:
    made = repaired_file(text.encode(), directory="pdf", for_clients=True)
    assert (made.after if made else None) == after
    if after is not None:
        assert repaired_file(after.encode(), directory="pdf", for_clients=True) is None


def test_a_file_is_mended_as_it_was_shown(base: Path) -> None:
    file = put(base, "---\nname: pdf\ndescription: > Reads: it.\n---\nBody.\n")
    file.chmod(0o640)
    (fix,) = [fix for fix in proposed_fixes(see(base)) if fix.after]
    assert fix.codes == ("one-line-block", "read-by-lines")
    assert "-description: > Reads: it." in fix.difference
    assert "+description: 'Reads: it.'" in fix.difference
    apply_fix(fix, discard=refuse)
    assert file.read_text() == "---\nname: pdf\ndescription: 'Reads: it.'\n---\nBody.\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert [fix for fix in proposed_fixes(see(base)) if fix.after] == []


def test_a_file_that_changed_since_it_was_shown_stays(base: Path) -> None:
    file = put(base, "---\nname: pdf\ndescription: > Reads.\n---\n")
    (fix,) = [fix for fix in proposed_fixes(see(base)) if fix.after]
    file.write_text("---\nname: pdf\ndescription: Another.\n---\n")
    with pytest.raises(ConfigFileError):
        apply_fix(fix, discard=refuse)
    assert "Another." in file.read_text()


def test_a_file_elsewhere_that_a_link_leads_to_is_not_mended(base: Path) -> None:
    outside = base / "outside"
    outside.mkdir()
    (outside / "SKILL.md").write_text("---\nname: pdf\ndescription: > Reads.\n---\n")
    skills = base / "project/.agents/skills"
    skills.mkdir(parents=True)
    (skills / "pdf").symlink_to(outside)
    assert [fix for fix in proposed_fixes(see(base)) if fix.after] == []


def test_the_file_is_replaced_by_a_link_after_it_was_shown(base: Path) -> None:
    """The directory becomes a link out of the project between the question and the change."""
    file = put(base, "---\nname: pdf\ndescription: > Reads.\n---\n")
    (fix,) = [fix for fix in proposed_fixes(see(base)) if fix.after]
    outside = base / "outside"
    file.parent.rename(outside)
    (base / "project/.agents/skills/pdf").symlink_to(outside)
    with pytest.raises(ConfigFileError):
        apply_fix(fix, discard=refuse)
    assert "> Reads." in (outside / "SKILL.md").read_text()


def test_skills_that_a_client_brought_are_left_alone(base: Path) -> None:
    write = base / "home/.codex/skills/.system/own/SKILL.md"
    write.parent.mkdir(parents=True)
    write.write_text("---\nname: own\ndescription: > Reads.\n---\n")
    assert proposed_fixes(see(base)) == ()


def test_a_name_in_another_case_is_made_right(base: Path) -> None:
    file = put(base, "---\nname: pdf\ndescription: Reads.\n---\n")
    wrong = file.with_name("skill.md")
    file.rename(wrong)
    (fix,) = [fix for fix in proposed_fixes(see(base, "codex")) if fix.renamed]
    apply_fix(fix, discard=refuse)
    assert [path.name for path in file.parent.iterdir()] == ["SKILL.md"]


def test_a_link_brings_a_skill_to_the_client_that_reads_another_folder(base: Path) -> None:
    write_skill(base / "project/.agents/skills/pdf")
    lens = see(base, "claude-code", "codex")
    (fix,) = proposed_fixes(lens)
    assert (lens.short(fix.path), fix.codes) == (".claude/skills/pdf", ("no-root",))
    apply_fix(fix, discard=refuse)
    link = base / "project/.claude/skills/pdf"
    assert link.is_symlink()
    assert link.resolve() == (base / "project/.agents/skills/pdf").resolve()
    states = [v.state for row in see(base, "claude-code", "codex").skills for v in row.verdicts]
    assert states == ["seen", "seen"]


def test_no_link_hides_a_skill_of_the_same_name(base: Path) -> None:
    write_skill(base / "project/.agents/skills/pdf", "One.")
    write_skill(base / "home/.claude/skills/pdf", "Two.")
    links = [fix for fix in proposed_fixes(see(base, "claude-code", "codex")) if fix.target]
    assert [fix.path for fix in links if "project/.claude" in fix.path] == []


def test_a_link_that_would_leave_the_project_is_refused(base: Path) -> None:
    write_skill(base / "project/.agents/skills/pdf")
    (base / "outside").mkdir()
    (base / "project/.claude").symlink_to(base / "outside")
    fix = Fix(
        path=str(base / "project/.claude/skills/pdf"),
        bound=str(base / "project"),
        codes=("no-root",),
        target="../../.agents/skills/pdf",
    )
    with pytest.raises(ConfigFileError):
        apply_fix(fix, discard=refuse)
    assert list((base / "outside").iterdir()) == []
