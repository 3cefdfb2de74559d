"""Tests of tools/invoke.py: what a started skill looks like to the model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skillhouse.approval import Answer
from skillhouse.audit import read_records
from skillhouse.floor import structs, tree_digest
from skillhouse.house import ExtensionSettings, Skillhouse, configured
from skillhouse.permission import Effect, Permission, Rule, decide
from skillhouse.skill import DEFAULT_PROFILE
from tests.house.places import make_places
from tests.house.test_menu import ON, house_in, invoke, write
from tests.profiles.houses import house_under
from tests.tools.test_gate_approvals import answer

DENY_EXEC = Rule(effect=Effect.DENY, action="exec", pattern="*")
COMMANDS_ALONE = ExtensionSettings(commands=True, substitution=False)


def commands(house: Skillhouse, name: str, arguments: str = "") -> list[tuple[str, str]]:
    data = invoke(house, name, arguments).data
    assert data is not None
    return [(done["command"], done["status"]) for done in data["commands"]]


def test_the_result_says_which_skill_and_what_became_of_each_command(tmp_path: Path) -> None:
    place = write(tmp_path, "fix", body="A !`ls -l`\n```!\npwd\nid\n```\nB\n")
    with house_in(tmp_path, DENY_EXEC) as house:
        result = invoke(house, "fix")
        assert result.data == {
            "id": "explicit:fix",
            "name": "fix",
            "directory": str(place),
            "commands": [
                {"command": command, "status": "denied", "approval_id": ""}
                for command in ("ls -l", "pwd", "id")
            ],
        }
        shape = (
            r"\nA <command_output mark=\"(\w{8})\" status=\"denied\">not run: denied: [^\n]*"
            r"</command_output mark=\"\1\">\n(<command_output [^\n]*\n){2}B\n</skill_content"
        )
        assert re.search(shape, result.content)


def test_the_record_of_a_command_says_within_which_start_it_was_made(tmp_path: Path) -> None:
    write(tmp_path, "fix", body="A !`ls -l`\n")
    with house_in(tmp_path, DENY_EXEC) as house:
        invoke(house, "fix")
        started, refused = read_records(house.audit_log.path, newest_first=False)
        assert (started.record.parent, refused.record.parent) == ("", started.record.call)
        assert refused.record.call != started.record.call


@pytest.mark.slow
def test_commands_wait_for_their_answers_all_at_once(tmp_path: Path) -> None:
    write(tmp_path, "fix", body="!`ls`\n!`pwd`\n")
    config = configured(make_places(tmp_path))
    with Skillhouse(config, roots=[tmp_path / "skills"], extensions=ON) as house:
        result = invoke(house, "fix")
        assert result.status == "ok"
        waiting = [approval.id for approval in house.approvals.pending()]
        data = result.data or {}
        assert sorted(done["approval_id"] for done in data["commands"]) == sorted(waiting)
        assert len(waiting) == 2


@pytest.mark.slow
def test_a_lasting_yes_to_a_skills_command_is_one_to_its_bytes(tmp_path: Path) -> None:
    place = write(tmp_path, "fix", body="!`git status`\n")
    config = configured(make_places(tmp_path))
    with Skillhouse(config, roots=[tmp_path / "skills"], extensions=ON) as house:
        assert commands(house, "fix") == [("git status", "pending")]
        (waiting,) = house.approvals.pending()
        answer(house, waiting.id, Answer.ALWAYS)
        ((_, status),) = commands(house, "fix")
        assert status != "pending"
        # The skill's own command is allowed from now on; the same words of an agent are not, nor
        # those of the skill when it has other bytes.
        wanted = Permission(action="exec", resource="git status", argv=("git", "status"))
        askers = ("", tree_digest(place))
        (place / "notes.md").write_text("Other bytes, another skill.\n")
        effects = [
            decide(house.policy.layers("default", origin_digest), wanted).effect
            for origin_digest in (*askers, tree_digest(place))
        ]
        assert effects == [Effect.ASK, Effect.ALLOW, Effect.ASK]
        assert commands(house, "fix") == [("git status", "pending")]
        # What the agent runs by itself is another question.
        assert house.call_sync("exec", {"command": "git status"}).status == "pending"
        assert len(house.approvals.pending()) == 2


def test_without_substitution_commands_are_as_written(tmp_path: Path) -> None:
    write(tmp_path, "fix", body="!`echo $0`\n!`echo x`\n$0\n")
    with house_in(tmp_path, DENY_EXEC, on=COMMANDS_ALONE) as house:
        assert commands(house, "fix", "a") == [("echo $0", "denied"), ("echo x", "denied")]
        text = invoke(house, "fix", "a").content
        assert "`echo $0` needs a shell" in text
        assert "\n$0\n\nARGUMENTS: a\n" in text


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("body", "Fix 12.\n"),
        ("raw", "---\nname: fix\ndescription: About fix.\n---\nFix 12.\n"),
    ],
)
def test_a_profile_says_what_it_looks_like(tmp_path: Path, style: str, expected: str) -> None:
    profile = structs.replace(DEFAULT_PROFILE, load_style=style)  # type: ignore[arg-type]
    write(tmp_path, "fix", body="Fix $0.\n")
    with house_under(tmp_path, profile, roots=[tmp_path / "skills"], extensions=ON) as house:
        assert invoke(house, "fix", "12").content == expected


def test_the_names_of_the_arguments_are_places_too(tmp_path: Path) -> None:
    write(tmp_path, "fix", "arguments: issue who\n", "Fix $issue for $who. $HOME\n")
    with house_in(tmp_path) as house:
        assert "Fix 12 for . $HOME\n" in invoke(house, "fix", "12").content
        assert "Fix 12 for the team. $HOME\n" in invoke(house, "fix", "12 'the team'").content


def test_what_changed_since_the_menu_was_made_is_seen(tmp_path: Path) -> None:
    place = write(tmp_path, "fix")
    with house_in(tmp_path) as house:
        assert invoke(house, "fix").status == "ok"
        head = "---\nname: fix\ndescription: x\nuser-invocable: false\n---\n"
        (place / "SKILL.md").write_text(f"{head}Body.\n")
        result = invoke(house, "fix")
        assert (result.status, result.content) == (
            "error",
            "skill `fix` is now for the model alone",
        )
        (place / "SKILL.md").unlink()
        assert invoke(house, "fix").status == "error"


def test_both_switches_off_is_a_skill_for_nobody(tmp_path: Path) -> None:
    write(tmp_path, "fix", "user-invocable: false\ndisable-model-invocation: true\n")
    with house_in(tmp_path, on=ON) as house:
        assert invoke(house, "fix").status == "denied"
        assert house.call_sync("skill", {"name": "fix"}).is_error
