"""A path of more names than any system has, which costs the square of its length (security.md, 72).

Python's pathlib compares a path with each directory above another: 60,000 names took 36 seconds of
the processor in one `write` on Python 3.12.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

import pytest

from tests.attacks.test_write_attacks import house_at
from tests.frontends.hooks.hooked_home import HookedHome
from tests.house.places import write_skill

pytestmark = pytest.mark.slow

NAMES_MAX = 2_100
"""More than a path can have that the system opens: its bytes are at most 4,096."""
DEEP = "d/" * 5_000 + "a.txt"
LINE = "d/" * 3_900 + "a.txt"
"""As long as a command may be."""
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("write", {"path": DEEP, "content": "x"}),
    ("edit", {"path": DEEP, "old": "a", "new": "b"}),
    ("read", {"path": DEEP}),
    ("list", {"path": DEEP}),
    ("exec", {"command": f"cat {LINE}"}),
    ("exec", {"command": f"echo x > {LINE}"}),
    ("exec", {"command": f"cp a.txt {LINE}"}),
    ("exec", {"command": f"cd {LINE} && ls"}),
    ("exec", {"command": f"git -C {LINE} status"}),
    ("exec", {"command": f"./{LINE} x"}),
    ("exec", {"command": f"python3 {LINE}"}),
    ("exec", {"command": f"rm -r {LINE}"}),
    ("exec", {"command": "ls", "writable": [DEEP], "background": True}),
    ("skill", {"name": DEEP}),
    ("fetch", {"url": f"https://example.org/{DEEP}"}),
]


@pytest.fixture
def squares(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of what went through the directories above a path without end."""
    found: list[str] = []

    def watched(name: str) -> Any:
        whole = getattr(PurePath, name)

        def looked(path: PurePath, *given: Any) -> Any:
            if len(path.parts) > NAMES_MAX:
                found.append(name)
            return whole(path, *given)

        return looked

    for name in ("is_relative_to", "relative_to"):
        monkeypatch.setattr(PurePath, name, watched(name))
    parents = PurePath.parents.fget  # type: ignore[attr-defined]

    def above(path: PurePath) -> Any:
        if len(path.parts) > NAMES_MAX:
            found.append("parents")
        return parents(path)

    monkeypatch.setattr(PurePath, "parents", property(above))
    return found


@pytest.mark.parametrize(("tool", "arguments"), CALLS, ids=lambda given: str(given)[:40])
def test_no_tool_goes_through_all_directories_above(
    tmp_path: Path, squares: list[str], tool: str, arguments: dict[str, Any]
) -> None:
    with house_at(tmp_path) as house:
        write_skill(house.services.project / ".agents/skills/notes", "notes", "Keeps notes.")
        (house.services.project / "a.txt").write_text("x")
        for is_whole in (False, True):
            given = {
                key: value.replace("d/d", f"{house.services.project}/d/d", 1)
                if is_whole and isinstance(value, str) and not value.startswith("http")
                else value
                for key, value in arguments.items()
            }
            result = house.call_sync(tool, given)
            assert result.status in ("denied", "error", "ok", "pending"), result
    assert squares == []


NATIVE: list[tuple[str, dict[str, Any]]] = [
    ("Read", {"file_path": f"/{DEEP}"}),
    ("Write", {"file_path": f"/{DEEP}", "content": "x"}),
    ("Edit", {"file_path": f"/{DEEP}", "old_string": "a", "new_string": "b"}),
    ("NotebookEdit", {"notebook_path": f"/{DEEP}", "new_source": "x"}),
    ("Glob", {"pattern": DEEP, "path": f"/{DEEP}"}),
    ("Grep", {"pattern": "x", "path": f"/{DEEP}"}),
    ("Bash", {"command": f"cat /{LINE}"}),
    ("Skill", {"skill": DEEP}),
    ("Unheard", {"path": f"/{DEEP}"}),
]


@pytest.mark.anyio
@pytest.mark.parametrize("cwd", ["", f"/{DEEP}"], ids=["here", "deep"])
@pytest.mark.parametrize(("tool", "given"), NATIVE, ids=lambda given: str(given)[:40])
async def test_no_hook_goes_through_all_directories_above(
    tmp_path: Path, squares: list[str], tool: str, given: dict[str, Any], cwd: str
) -> None:
    home = HookedHome(tmp_path)
    try:
        more = {"cwd": cwd} if cwd else {}
        inside = {k: v.replace("/d/", f"{home.project}/d/", 1) for k, v in given.items()}
        for arguments in (given, inside):
            await home.ask(home.event(tool, arguments, **more))
    finally:
        home.end()
    assert squares == []
