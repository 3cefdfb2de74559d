"""The endpoints of the companion app: its shell, which is the same for everyone, its pairing, and
its messages. None of them needs a key of the page: the code, or the device's signature, is one."""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from skillhouse.answers.json_form import JsonAnswer
from skillhouse.approval import (
    OWNER,
    Answer,
    Approval,
    ApprovalError,
    ApprovalState,
    Device,
    DeviceAnswer,
    SignatureError,
)
from skillhouse.audit import AuditError, Query, entries_of
from skillhouse.extensions.server.companion import app_messages as said
from skillhouse.extensions.server.companion.app_pushes import PushError, Pushes
from skillhouse.extensions.server.pages.device_answers import taken
from skillhouse.extensions.server.pages.question_view import is_intact, phrase_of, view_of
from skillhouse.extensions.server.pages.site import Site

COMPANION_PATH = "/companion/"
"""The app, and the scope of its service worker, which has no other."""
PAIR_PATH = "/companion/pair"
MESSAGE_PATH = "/companion/message"
OPEN_PATHS = (COMPANION_PATH.rstrip("/"), COMPANION_PATH, PAIR_PATH, MESSAGE_PATH)
"""For which the guard requires no key."""
METHODS = {PAIR_PATH: ("POST",), MESSAGE_PATH: ("POST",)}

WAITING_MAX = 20
"""Open questions that the app shows; of more, the first by age."""
ACTIVITY_MAX = 20
NAME_MAX = 64

logger = logging.getLogger(__name__)


class PairedAppAnswer(JsonAnswer, frozen=True, kw_only=True):
    device: str
    name: str


class SeenAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What the app shows; `html` is null where its tag is the one that the app has."""

    tag: str
    html: str | None
    waiting: int
    stopped: bool
    was_away: bool
    """Whether only reads went on until this message, since no app was open."""
    name: str
    push_key: str
    """With which the browser subscribes."""
    is_subscribed: bool


class DoneAnswer(JsonAnswer, frozen=True, kw_only=True):
    done: str


class CompanionEndpoints:
    def __init__(self, site: Site, pushes: Pushes) -> None:
        self._site = site
        self._house = site.house
        self._enforcement = site.house.services.enforcement
        self._companion = site.house.services.companion
        self._devices = self._enforcement.devices
        self._pushes = pushes

    def routes(self) -> list[Route]:
        return [
            Route(COMPANION_PATH.rstrip("/"), self.moved),
            Route(COMPANION_PATH, self.shell),
            Route(PAIR_PATH, self.pair, methods=["POST"]),
            Route(MESSAGE_PATH, self.message, methods=["POST"]),
        ]

    def moved(self, _: Request) -> Response:
        # The fragment with the code goes along: a browser keeps it over a redirect (RFC 9110).
        return RedirectResponse(COMPANION_PATH, 303)

    def shell(self, request: Request) -> Response:
        return self._site.bare(request, "companion.html", 200)

    async def pair(self, request: Request) -> Response:
        return await taken(request, self._paired)

    async def message(self, request: Request) -> Response:
        return await taken(request, partial(self._done, request))

    def _paired(self, headers: Mapping[str, str], body: bytes) -> PairedAppAnswer:
        """Pair an app that has the private half of the key that it names, by a code."""
        asked = said.pairing_of(body)
        signature = headers.get("webhook-signature", "").encode()
        # Without this the key could be another device's, which then answers under this name.
        if not said.is_signed_by(asked.public_key, body, signature):
            raise SignatureError("wrong", "the signature is not right")
        code = self._companion.codes.take(asked.code)
        name = " ".join(asked.name.split())[:NAME_MAX] or code.device_name
        device = self._devices.pair_app(name, user=code.user, public_key=asked.public_key)
        self._companion.see()
        return PairedAppAnswer(device=device.id, name=device.name)

    def _done(self, request: Request, headers: Mapping[str, str], body: bytes) -> JsonAnswer:
        message = said.message_of(body)
        device = self._devices.sender_app(message.device, headers, body, said.is_signed_by)
        was_away = self._companion.warning() == 0
        if not isinstance(message, said.Leave):
            # What an app sends, it sends because it is open, or a push was delivered.
            self._companion.see()
        match message:
            case said.Look():
                return self._seen(request, device, message, was_away=was_away)
            case said.GiveAnswer():
                return self._answered(device, message)
            case said.StopAll():
                self._enforcement.stop(device.user, f"on the device {device.name}")
            case said.Subscribe():
                self._subscribe(device, message)
            case said.Unsubscribe():
                self._pushes.unsubscribe(device.id)
            case said.Leave():
                self._devices.unpair(device.id)
            case said.Alive():
                pass
        return DoneAnswer(done=str(type(message).__struct_config__.tag))

    def _subscribe(self, device: Device, asked: said.Subscribe) -> None:
        try:
            self._pushes.subscribe(device.id, asked.endpoint, asked.p256dh, asked.auth)
        except PushError as error:
            raise ApprovalError("no-push", str(error)) from error

    def _answered(self, device: Device, given: said.GiveAnswer) -> DoneAnswer:
        if given.answer not in (Answer.ONCE, Answer.NO):
            raise ApprovalError("not-offered", "the app approves once, or denies")
        question = self._house.approvals.get(given.approval)
        request = question.request
        if not _may_see(device, question):
            raise ApprovalError("unknown", f"no approval begins with `{given.approval[:40]}`")
        if given.answer is Answer.ONCE and question.state is ApprovalState.OPEN:
            # INVARIANT: as on the page, what is approved is what was shown, and what signs is
            # approved by who typed its amount and recipient.
            if not is_intact(request):
                raise ApprovalError("another-call", "the call is not the one that was asked about")
            phrase = phrase_of(request)
            if phrase is not None and not phrase.fits(given.typed):
                raise ApprovalError("wrong-phrase", "what was typed is not what is asked for")
        answer = DeviceAnswer(
            device=device.id,
            approval=given.approval,
            nonce=given.nonce,
            content_digest=given.content_digest,
            answer=given.answer,
            message=given.message[:2_000],
        )
        answered = self._devices.answer_of_app(self._house.approvals, device, answer)
        return DoneAnswer(done=answered.state.value)

    def _seen(
        self, request: Request, device: Device, look: said.Look, *, was_away: bool
    ) -> SeenAnswer:
        pending = [one for one in self._house.approvals.pending() if _may_see(device, one)]
        stopped = self._enforcement.tiers.stopped_reason
        values: dict[str, Any] = {"part": look.part, "stopped": stopped, "device": device}
        if look.part == "activity":
            values |= {"answered": self._recent(device), "calls": self._calls(device)}
        else:
            values |= {
                "pending": [(one, view_of(one)) for one in pending[:WAITING_MAX]],
                "more": len(pending) - WAITING_MAX,
                "minutes": self._minutes,
            }
        html = self._site.text(request, "companion_view.html", **values)
        tag = hashlib.sha256(html.encode()).hexdigest()[:32]
        return SeenAnswer(
            tag=tag,
            html=None if tag == look.seen else html,
            waiting=len(pending),
            stopped=bool(stopped),
            was_away=was_away,
            name=device.name,
            push_key=self._pushes.public_key,
            is_subscribed=self._pushes.has(device.id),
        )

    def _recent(self, device: Device) -> list[Approval]:
        latest = self._house.approvals.latest(10 * ACTIVITY_MAX)
        found = (a for a in latest if a.state is not ApprovalState.OPEN and _may_see(device, a))
        return list(itertools.islice(found, ACTIVITY_MAX))

    def _calls(self, device: Device) -> list[Any]:
        log = self._house.audit_log
        who = Query() if device.user == OWNER else Query(user=device.user)
        try:
            return list(itertools.islice(entries_of(log.path, who, key=log.key), ACTIVITY_MAX))
        except AuditError:
            logger.warning("the audit log cannot be read for a companion app")
            return []

    def _minutes(self, approval: Approval) -> int:
        left_ms = approval.request.expires_ms - self._site.services.clock() * 1000
        return max(1, math.ceil(left_ms / 60_000))


def _may_see(device: Device, question: Approval) -> bool:
    return device.user in (OWNER, question.request.user)
