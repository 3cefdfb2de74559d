"""Skills of code alone: which agents have tools of, and why not of the others."""

from __future__ import annotations

from pathlib import Path

from skillhouse.house import Skillhouse
from skillhouse.manage.code_facts import code_alone
from tests.house.coded import coded_house, tool, write_code


def states(house: Skillhouse) -> dict[str, str]:
    return {facts.id: why.state if why else "in-use" for facts, why in code_alone(house)}


def names(house: Skillhouse) -> set[str]:
    return {one.full_name for one in house.tools() if ":" in one.full_name}


def test_code_alone_is_disabled_and_enabled_like_any_skill(tmp_path: Path):
    root = tmp_path / "root"
    write_code(root / "prices", "tools = {}\n", tool("now"), tool("then"))
    write_code(root / "swaps", "exports.tools = {};\n", language="javascript")
    with coded_house(tmp_path, root) as house:
        assert states(house) == {"explicit:prices": "in-use", "explicit:swaps": "in-use"}
        assert names(house) == {"prices:now", "prices:then", "swaps:tool"}
        found = house.management.set_enabled("prices", enabled=False)
        assert (found.id, found.enabled, found.instructions) == ("explicit:prices", False, "")
        assert names(house) == {"swaps:tool"}
        assert states(house)["explicit:prices"] == "disabled"
        assert house.management.set_enabled("explicit:prices", enabled=True).enabled
        assert names(house) == {"prices:now", "prices:then", "swaps:tool"}
        house.management.set_all_enabled(enabled=False)
        assert (names(house), set(states(house).values())) == (set(), {"disabled"})


def test_each_reason_why_an_agent_has_no_tools_of_code_has_its_state(tmp_path: Path):
    root, weaker = tmp_path / "root", tmp_path / "home/.config/skillhouse/skills"
    write_code(root / "denied", "tools = {}\n")
    write_code(root / "twice", "tools = {}\n")
    write_code(weaker / "twice", "tools = {}\n")
    (write_code(root / "wrong", "tools = {}\n") / "pyproject.toml").write_text(
        '[project]\nname = "wrong"\n[[tool.skillhouse.tools]]\nname = "x"\n'
    )
    both = write_code(root / "both", "tools = {}\n")
    (both / "SKILL.md").write_text("---\nname: both\ndescription: Has a text.\n---\nBody.\n")
    with coded_house(tmp_path, root, ("deny", "skill", "denied")) as house:
        assert states(house) == {
            "explicit:denied": "denied",
            "explicit:twice": "in-use",
            "explicit:wrong": "broken",
            "user:twice": "shadowed",
        }


def test_where_skills_code_is_off_it_is_said_of_each(tmp_path: Path):
    write_code(tmp_path / "root/prices", "tools = {}\n")
    with coded_house(tmp_path, tmp_path / "root", enabled=False) as house:
        assert states(house) == {"explicit:prices": "code-off"}
