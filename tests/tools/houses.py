"""Houses of temporary directories with a person who gives fixed answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from skillhouse.approval import Answer, ApprovalRequest, ApprovalSettings, Unattended
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Layer, Rule
from skillhouse.tools import BackgroundRuns
from tests.house.places import make_places


class Person:
    """Answers questions in the order of `answers`, then no; remembers what was asked."""

    def __init__(self, answers: Sequence[Answer] = ()) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request)
        return self.answers.pop(0) if self.answers else Answer.NO


def no_background(base: Path) -> BackgroundRuns:
    """Return what keeps commands in the background, of a test that starts none."""
    return BackgroundRuns(
        base / "background",
        portal=lambda: pytest.fail("nothing goes on in the background"),
        running=lambda: pytest.fail("nothing goes on in the background"),
        record=lambda _: None,
    )


def house_at(
    base: Path,
    *rules: Rule,
    person: Person | None = None,
    roots: Sequence[Path] = (),
    sandbox: Literal["any", "bubblewrap"] = "any",
    **more: Any,
) -> Skillhouse:
    """Return a house in a project below `base`; without a person, every answer is no."""
    # A design may deny what stays unanswered after its wait; here a question stays open.
    more.setdefault("approvals", ApprovalSettings(unattended="pending"))
    return Skillhouse(
        configured(make_places(base)),
        channel=person or Unattended(),
        layers=(Layer(name="user", rules=rules),),
        roots=roots,
        sandbox=sandbox,
        **more,
    )
