"""Tests of house/config and policy.py: an agent's skill patterns, and approvals' bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillhouse.approval import ApprovalSettings
from skillhouse.floor import ConfigError
from skillhouse.house import Skillhouse, configured, load_config
from skillhouse.permission import Effect, Rule
from skillhouse.skill import load_profile
from tests.house.places import make_places, write_skill

TABLE = """
[agents.a.skill]
"internal-secret" = "allow"
"internal-*" = "deny"
"10" = "ask"
"2" = "allow"
"""
LIST = """
[agents.a]
skill = [["internal-secret", "allow"], ["internal-*", "deny"], ["10", "ask"], ["2", "allow"]]
"""
NAMES = ("internal-secret", "internal-tool", "pdf", "10")


def house_of(base: Path, text: str, profile: str) -> Skillhouse:
    places = make_places(base)
    places.user_file.parent.mkdir(parents=True, exist_ok=True)
    places.user_file.write_text(text, encoding="utf-8")
    for name in NAMES:
        write_skill(places.home / ".claude/skills" / name)
    return Skillhouse(configured(places), profile=profile)


def effects(house: Skillhouse) -> dict[str, str]:
    return {
        skill.name: house.policy.explain_skill(skill, agent="a").decision.effect.value
        for skill in house.index.skills
        if skill.name in NAMES
    }


@pytest.mark.parametrize("text", [TABLE, LIST], ids=["table", "list"])
@pytest.mark.req("S004-54")
def test_patterns_keep_the_order_in_which_they_are_written(tmp_path: Path, text: str) -> None:
    """Trap 27: keys that look like numbers must not be moved to the front."""
    places = make_places(tmp_path)
    places.user_file.parent.mkdir(parents=True)
    places.user_file.write_text(text, encoding="utf-8")
    assert load_config(places).skill_rules["a"] == tuple(
        Rule(effect=effect, action="skill", pattern=pattern)
        for pattern, effect in (
            ("internal-secret", Effect.ALLOW),
            ("internal-*", Effect.DENY),
            ("10", Effect.ASK),
            ("2", Effect.ALLOW),
        )
    )


@pytest.mark.slow
@pytest.mark.req("S004-55", "S004-56", "S004-57", "S004-58", "S004-59", "S004-60")
def test_under_claude_desktop_the_first_pattern_decides_and_silence_allows(tmp_path: Path) -> None:
    assert load_profile("claude-desktop").rules.match == "first"
    with house_of(tmp_path, TABLE, "claude-desktop") as house:
        assert effects(house) == {
            "internal-secret": "allow",
            "internal-tool": "deny",
            "pdf": "allow",
            "10": "ask",
        }
        visible = {skill.name for skill in house.view("a").visible.skills}
        assert visible.issuperset({"internal-secret", "pdf", "10"})
        assert "internal-tool" not in visible
    # Wildcards in another case, and names that are matched and not ids.
    other = '[agents.a.skill]\n"INTERNAL-?????" = "deny"\n"user:pdf" = "deny"\n'
    with house_of(tmp_path, other, "claude-desktop") as house:
        assert effects(house)["internal-tool"] == "allow"
        assert effects(house)["pdf"] == "allow"
    four = '[agents.a.skill]\n"INTERNAL-????" = "deny"\n'
    with house_of(tmp_path, four, "claude-desktop") as house:
        assert effects(house)["internal-tool"] == "deny"
    with house_of(tmp_path, "[agents.a]\n", "claude-desktop") as house:
        assert set(effects(house).values()) == {"allow"}


def test_under_the_default_the_last_pattern_decides(tmp_path: Path) -> None:
    with house_of(tmp_path, TABLE, "default") as house:
        assert effects(house)["internal-secret"] == "deny"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[agents.a.skill]\npdf = "maybe"\n', "wrong value"),
        ('[agents.a]\nskill = [["pdf"]]\n', "wrong value"),
        ("[agents.a]\nskils = {}\n", "unknown agent key `skils` in .*; did you mean `skill`"),
        ("[approvals]\nwait = 3\n", "unknown approvals key `wait`"),
        ("[approvals]\nwait_seconds = 0\n", "expected a number above 0"),
        ("[approvals]\nwait_seconds = inf\n", "inf is no number that can be used"),
        ("[approvals]\nwait_seconds = nan\n", "nan is no number that can be used"),
        ("[approvals]\nopen_max = 1000000\n", "at most 86400"),
        ('[approvals]\nunattended = "allow"\n', "wrong value"),
    ],
)
def test_a_faulty_value_is_an_error_that_names_it(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        house_of(tmp_path, text, "default")


def test_the_bounds_of_approvals_come_from_the_file(tmp_path: Path) -> None:
    text = '[approvals]\nunattended = "deny"\nwait_seconds = 0.01\n'
    with house_of(tmp_path, text, "default") as house:
        wanted = ApprovalSettings(unattended="deny", wait_seconds=0.01)
        assert house.approvals.settings == wanted
        refused = house.call_sync("write", {"path": "a", "content": "x"})
        assert (refused.status, refused.approval_id) == ("denied", None)
        assert "no answer came within 0.01 seconds" in refused.content


def test_a_project_sets_no_bound_of_approvals(tmp_path: Path) -> None:
    places = make_places(tmp_path)
    (places.start / "skillhouse.toml").write_text("[approvals]\nwait_seconds = 1\n")
    config = load_config(places, project=places.start)
    assert "cannot be set by a project" in config.problems[0].message
    assert config.approvals == load_config(places).approvals
