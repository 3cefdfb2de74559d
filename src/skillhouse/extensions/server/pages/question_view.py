"""What the page of a question shows: its exact content in parts, and what a person types."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from skillhouse.approval import Approval, ApprovalRequest, Facts, content_digest
from skillhouse.floor import PathError, open_beneath
from skillhouse.permission import command_resource
from skillhouse.presentation.question import DIFFERENCE, Question, question_of
from skillhouse.tools import READ_MAX, change_facts, commands_inside

CODE_CHARACTERS = 6
"""Of the digest, which a person types where no amount and recipient are known."""
SHORT_CHARACTERS = 120
CARD_LINES = 30
"""Lines of what is wanted and of differences that a card of the inbox shows."""
CARD_FACTS = 6
"""Values of a call on a card, where no command or difference says them."""
_COVERING = (frozenset({"command", "params"}), frozenset({"path", "content", "old", "new"}))
"""Arguments that are shown as commands, and those that are shown as a difference."""
RECIPIENT_CHARACTERS = 4
"""Last characters of a recipient that a person types."""


class WantedPermission(Struct, frozen=True, kw_only=True):
    """One permission of the call, with whether it is what the person is asked about."""

    action: str
    resource: str
    is_asked: bool
    inside: tuple[str, ...] = ()
    """The commands of the line that a shell in it is given."""


class ConfirmationPhrase(Struct, frozen=True, kw_only=True):
    """What a person types to approve what signs."""

    kind: str
    """amount: the amount and the end of the recipient, which the page shows; code: a code."""
    text: str

    def fits(self, given: str) -> bool:
        """Whether it was typed; capital letters and the number of blanks do not matter.

        >>> ConfirmationPhrase(kind="amount", text="1.5 a0Fe").fits("  1.5  A0fe ")
        True
        """
        return given.casefold().split() == self.text.casefold().split()


class FactBox(Struct, frozen=True, kw_only=True):
    """Facts of one origin: those that fit on a line of a table, and the others."""

    short: Facts
    long: Facts


class QuestionView(Struct, frozen=True, kw_only=True):
    """One question with what its page alone shows; every text in it is untrusted."""

    question: Question
    commands: tuple[WantedPermission, ...]
    """Each command of a line on its own."""
    others: tuple[WantedPermission, ...]
    content: str
    """The whole call as JSON."""
    typed: ConfirmationPhrase | None
    """None where pressing the button is enough."""
    is_intact: bool
    """Whether the content is the one of the digest to which an approval is bound."""
    difference_now: str
    """What a write would change now, if the file is not what it was; else empty."""

    found: FactBox
    """Without the differences, which are shown as such."""
    sent: FactBox
    is_covered: bool
    """Whether its commands or its difference say everything that was sent."""
    is_whole_on_a_card: bool
    """Whether a card of the inbox shows all of it, so that it can be approved there."""


def is_short(text: str) -> bool:
    """Whether a value fits on a line of a table."""
    return len(text) <= SHORT_CHARACTERS and "\n" not in text


def fact_box(facts: Facts) -> FactBox:
    return FactBox(
        short=tuple(one for one in facts if is_short(one[1])),
        long=tuple(one for one in facts if not is_short(one[1])),
    )


def view_of(approval: Approval) -> QuestionView:
    request = approval.request
    content: dict[str, Any] = json.loads(request.content)
    wanted = _wanted(request, content)
    question = question_of(request)
    typed, intact = phrase_of(request), is_intact(request)
    difference_now = _difference_now(request, content)
    sent, covered = fact_box(question.sent), _is_covered(question, wanted)
    found = fact_box(tuple(one for one in question.found if one not in question.differences))
    card = (*(one.resource for one in wanted), *(value for _, value in question.differences))
    return QuestionView(
        question=question,
        is_covered=covered,
        is_whole_on_a_card=(
            typed is None
            and intact
            and not difference_now
            and all(is_short(line) for text in card for line in text.split("\n"))
            and sum(text.count("\n") + 1 for text in card) <= CARD_LINES
            and (covered or not (sent.long or found.long or sent.short[CARD_FACTS:]))
        ),
        found=found,
        sent=sent,
        commands=tuple(one for one in wanted if one.action == "exec"),
        others=tuple(one for one in wanted if one.action != "exec"),
        content=json.dumps(content, indent=2),
        typed=typed,
        is_intact=intact,
        difference_now=difference_now,
    )


def _is_covered(question: Question, wanted: Sequence[WantedPermission]) -> bool:
    names = {label for label, _ in question.sent}
    commands, changes = _COVERING
    has_line = any(one.action in ("exec", "shell") for one in wanted)
    return (has_line and names <= commands) or (bool(question.differences) and names <= changes)


def is_intact(request: ApprovalRequest) -> bool:
    """Whether the content is the one of the digest to which an approval is bound."""
    return content_digest(request.content) == request.content_digest


def phrase_of(request: ApprovalRequest) -> ConfirmationPhrase | None:
    """Return what a person types; None where pressing the button is enough."""
    if request.level != "sign":
        return None
    return typed_of(question_of(request).found, request)


def _wanted(request: ApprovalRequest, content: Mapping[str, Any]) -> tuple[WantedPermission, ...]:
    asked = {(one.action, one.resource) for one in request.asked}
    needs = content.get("needs") or [
        {"action": one.action, "resource": one.resource} for one in request.asked
    ]
    found = {(str(need["action"]), str(need["resource"])): need.get("argv") for need in needs}
    return tuple(
        WantedPermission(
            action=action,
            resource=resource,
            is_asked=(action, resource) in asked,
            inside=_inside(argv or (), request.place),
        )
        for (action, resource), argv in found.items()
    )


def _inside(argv: Sequence[str], place: str) -> tuple[str, ...]:
    return tuple(command_resource(one) for one in commands_inside(tuple(argv), place))


def typed_of(facts: Sequence[tuple[str, str]], request: ApprovalRequest) -> ConfirmationPhrase:
    """Return what a person types before something is signed.

    One amount to one recipient is typed as both, so that they are read; all else has a code.
    """
    amounts = [value for label, value in facts if label == "amount"]
    recipients = [value for label, value in facts if label == "to" and value.startswith("0x")]
    if len(amounts) == len(recipients) == 1:
        end = recipients[0][-RECIPIENT_CHARACTERS:]
        return ConfirmationPhrase(kind="amount", text=f"{amounts[0].partition(' ')[0]} {end}")
    return ConfirmationPhrase(kind="code", text=request.content_digest[-CODE_CHARACTERS:])


def _difference_now(request: ApprovalRequest, content: Mapping[str, Any]) -> str:
    """Return the difference of a write against the file as it is, if it is not the one shown."""
    shown = dict(request.found).get(DIFFERENCE)
    arguments = content.get("arguments") or {}
    writes = [one.resource for one in request.asked if one.action == "write"]
    if shown is None or len(writes) != 1 or not writes[0].startswith(f"{request.place}/"):
        return ""
    relative = writes[0].removeprefix(f"{request.place}/")
    before = _held(Path(request.place), relative)
    if isinstance(arguments.get("content"), str):
        after = arguments["content"]
    elif before is not None and {"old", "new"} <= arguments.keys():
        after = before.decode("utf-8", "replace").replace(arguments["old"], arguments["new"])
    else:
        return ""
    now = dict(change_facts(before, after, relative))[DIFFERENCE]
    return "" if now == shown else now


def _held(root: Path, relative: str) -> bytes | None:
    try:
        handle = open_beneath(root, relative)
    except (PathError, OSError):
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(READ_MAX + 1)
