"""Permission requests and what was approved for good.

A standing approval and an approved script are answered as the core has them: `Grant` and
`ApprovedScript`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from skillhouse.answers.json_form import Count, JsonAnswer, copied

if TYPE_CHECKING:
    from skillhouse.approval import Approval, Device, Facts, Grant


class FactAnswer(JsonAnswer, frozen=True, kw_only=True):
    label: str
    value: str


class FactsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What skillhouse found, under labels of its own, and what the call sent under any label."""

    found: tuple[FactAnswer, ...]
    sent: tuple[FactAnswer, ...]


class AnsweringDeviceAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    name: str


class ApprovalAnswer(JsonAnswer, frozen=True, kw_only=True):
    """An approval request with everything it covers, but not its nonce."""

    id: str
    state: Literal["open", "approved", "used", "denied", "expired"]
    tool: str
    title: str
    agent: str
    user: str
    channel: str
    client: str
    call_id: str
    """The caller's id of the call; empty where it gave none."""
    place: str
    level: str
    out_of_band_only: bool
    """Whether only the page and paired devices decide it."""
    reasons: tuple[str, ...]
    facts: FactsAnswer
    always: tuple[str, ...]
    content: Any
    content_digest: str
    opened_ms: Count
    expires_ms: Count
    answer: str | None
    answered_by: str | None
    answered_on: str | None
    device: AnsweringDeviceAnswer | None
    message: str | None
    closed_ms: Count | None


class QuestionEventAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A question that was asked or answered, without what it is about."""

    id: str
    title: str
    tool: str
    state: Literal["open", "approved", "used", "denied", "expired"]
    answer: str | None
    user: str
    agent: str
    client: str
    """The client's name for itself; empty where it gave none."""
    channel: str
    expires_ms: Count


class RevokedGrantAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    revoked: Literal[True] = True


class DeviceAnsweredAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a device gets for its answer."""

    approval: str
    state: str


class DeviceTokenAnswer(JsonAnswer, frozen=True, kw_only=True):
    token: str


class WithdrawnAnswer(JsonAnswer, frozen=True, kw_only=True):
    """How many approvals went with a device."""

    approvals: Count
    grants: Count


class UnpairedDeviceAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    unpaired: Literal[True] = True
    withdrawn: WithdrawnAnswer


class ListedDeviceAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A paired device; its secret is shown once, when it is paired."""

    id: str
    name: str
    user: str
    is_app: bool
    """Whether it is a companion app, with a key of its own."""
    paired_ms: Count


class PairedDeviceAnswer(JsonAnswer, frozen=True, kw_only=True):
    flat_members = ("device",)
    device: ListedDeviceAnswer
    secret: str


class PairingCodeAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A code that pairs a companion app once, and the address that has it."""

    code: str
    address: str
    minutes: Count
    picture: str
    """The address as an SVG to scan."""


def approval_answer(found: Approval) -> ApprovalAnswer:
    request = found.request
    device = AnsweringDeviceAnswer(id=found.device, name=found.device_name)
    return ApprovalAnswer(
        id=found.id,
        state=found.state.value,
        tool=request.tool,
        title=request.title,
        agent=request.agent,
        user=request.user,
        channel=request.channel,
        client=request.client,
        call_id=request.call_id,
        place=request.place,
        level=request.level,
        out_of_band_only=request.out_of_band_only,
        reasons=tuple(request.reasons),
        facts=FactsAnswer(found=_facts(request.found), sent=_facts(request.sent)),
        always=tuple(request.always),
        content=json.loads(request.content),
        content_digest=request.content_digest,
        opened_ms=request.opened_ms,
        expires_ms=request.expires_ms,
        answer=found.answer or None,
        answered_by=found.by or None,
        answered_on=found.channel or None,
        device=device if found.device else None,
        message=found.message or None,
        closed_ms=found.closed_ms or None,
    )


def question_event(found: Approval) -> QuestionEventAnswer:
    request = found.request
    return copied(
        QuestionEventAnswer,
        request,
        id=found.id,
        state=found.state.value,
        client=request.client_name,
        answer=found.answer or None,
    )


def _facts(facts: Facts) -> tuple[FactAnswer, ...]:
    return tuple(FactAnswer(label=label, value=value) for label, value in facts)


def device_answer(device: Device) -> ListedDeviceAnswer:
    return ListedDeviceAnswer(
        id=device.id,
        name=device.name,
        user=device.user,
        is_app=device.is_app,
        paired_ms=device.paired_ms,
    )


def device_text(found: Approval | Grant) -> str:
    """Return the paired device of an answer or a standing approval, by name and id, or nothing."""
    return f"{found.device_name} ({found.device})" if found.device else ""
