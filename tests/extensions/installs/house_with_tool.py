"""A `Skillhouse` whose models may have skills installed, and what answers its questions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.house.places import make_places

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.house import Skillhouse, configured
from skillhouse.tools import FIND_AND_INSTALL, ToolResult

ON = "[find_and_install]\nenabled = true\n"


def configure(base: Path, *repositories: tuple[str, str, bool], more: str = ON) -> Path:
    """Write the user's file with repositories: each its name, its address, and whether trusted."""
    file = base / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    listed = "".join(
        f'[[skills.repositories]]\nname = "{name}"\nurl = "{url}"\n'
        f"trusted = {str(trusted).lower()}\n"
        for name, url, trusted in repositories
    )
    file.write_text(f"{more}{listed}", encoding="utf-8")
    return file


@contextmanager
def house_in(base: Path) -> Iterator[Skillhouse]:
    # For git, which fetches collections.
    environment = {"HOME": str(base / "home"), "PATH": os.environ["PATH"]}
    with Skillhouse(configured(make_places(base, environment))) as house:
        yield house


def asked(house: Skillhouse, wanted: str, **more: Any) -> ToolResult[Any]:
    """Make the model's call."""
    arguments = {"wanted": wanted}
    if "repository" in more:
        arguments["repository"] = more.pop("repository")
    return house.call_sync(FIND_AND_INSTALL, arguments, **more)


def answer(house: Skillhouse, said: Answer = Answer.ONCE) -> ApprovalRequest:
    """Answer the only open question as a person at the page does; return it."""
    (question,) = house.approvals.pending()
    nonce = question.request.nonce
    house.approvals.answer(question.id, said, by="local", channel="page", nonce=nonce)
    return question.request


def installed_file(base: Path, name: str = "notes") -> Path:
    return base / "home/.agents/skills" / name / "SKILL.md"
