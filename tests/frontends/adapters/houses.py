"""Houses for agents of frameworks: without a channel, questions stay open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.house.places import make_places, write_skill

from skillhouse.approval import Channel
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Layer, Rule
from skillhouse.tools import Tool

FALCONS = "Finds nests of falcons."


def open_house(
    base: Path, *rules: Rule, channel: Channel | None = None, tools: Sequence[Tool] = ()
) -> Skillhouse:
    """Return a house below `base` with one skill of its own besides the builtin ones."""
    write_skill(base / "skills/kestrel", FALCONS)
    return Skillhouse(
        configured(make_places(base)),
        channel=channel,
        tools=tools,
        layers=(Layer(name="user", rules=rules),),
        roots=[base / "skills"],
    )


def written(base: Path) -> str | None:
    """Return what the model wrote, or None where it did not get to."""
    file = base / "project/poem.txt"
    return file.read_text(encoding="utf-8") if file.exists() else None


def answers(house: Skillhouse) -> list[tuple[str, str, str, str]]:
    """Return tool, state, answer and channel of every question, oldest first."""
    found = reversed(house.approvals.latest())
    return [(one.request.tool, one.state.value, one.answer, one.channel) for one in found]
