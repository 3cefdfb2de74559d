"""What a change of installed skills would do, as a value with a digest, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

# A package and not its names, which are loaded when something is installed.
from skillhouse import install
from skillhouse.floor import digest, isolated
from skillhouse.frontends.answers.packages import report_value
from skillhouse.frontends.presentation.error_values import error_code
from skillhouse.install.change_plan import (
    AgreementError,
    ChangeRequest,
    PlannedChange,
    WantedChange,
    check_answers,
    planned,
    wanted_changes,
)

if TYPE_CHECKING:
    from skillhouse.install import Installer, OpenSource


class Agreement(Struct, frozen=True, kw_only=True):
    """What a person agreed to of one skill."""

    digest: str
    """That of the value which they saw."""
    answers: tuple[str, ...] = ()
    """A word for each question."""


def planned_values(
    installer: Installer, request: ChangeRequest, found: OpenSource | None
) -> list[dict[str, Any]]:
    """Return what each skill of a request would become; nothing is changed."""
    values = []
    for wanted in _changes(installer, request, found):
        value: dict[str, Any] = {"name": wanted.name}
        with _caught(value), _opened(installer, wanted, value) as plan:
            if plan is not None:
                value.update(_plan_value(request, plan))
        values.append(value)
    return values


def applied_values(
    installer: Installer,
    request: ChangeRequest,
    found: OpenSource | None,
    agreed: Mapping[str, Agreement],
) -> list[dict[str, Any]]:
    """Make the changes that were agreed to; each is refused if it is not what was shown."""
    values = []
    for wanted in _changes(installer, request, found):
        value: dict[str, Any] = {"name": wanted.name}
        with _caught(value), _opened(installer, wanted, value) as plan:
            if plan is not None:
                value.update(_applied(request, plan, agreed))
        values.append(value)
    return values


def _changes(
    installer: Installer, request: ChangeRequest, found: OpenSource | None
) -> Iterator[WantedChange]:
    if request.lock:
        return install.lock_changes(installer, request)
    return wanted_changes(installer, request, found)


def _applied(
    request: ChangeRequest, plan: PlannedChange, agreed: Mapping[str, Agreement]
) -> dict[str, Any]:
    value = _plan_value(request, plan)
    agreement = agreed.get(plan.staged.name)
    if plan.is_in_force:
        return value
    if agreement is None:
        return {**value, "status": "declined"}
    # INVARIANT: what a person saw is what is done: the source may have something else by now.
    if agreement.digest != value["plan_digest"]:
        raise AgreementError("plan-changed", "it is not what was shown any more; look at it again")
    check_answers(plan, agreement.answers)
    plan.apply()
    return {**value, "status": "installed"}


def _plan_value(request: ChangeRequest, plan: PlannedChange) -> dict[str, Any]:
    value = {**report_value(plan.staged.report), "questions": list(plan.questions)}
    if plan.lock_hash:
        value.update(lock_hash=plan.lock_hash, note=plan.note)
    text = json.dumps([request.action, value], sort_keys=True)
    status = "unchanged" if plan.is_in_force else "planned"
    return {**value, "plan_digest": digest(text.encode("utf-8", "replace")), "status": status}


@contextmanager
def _opened(
    installer: Installer, wanted: WantedChange, value: dict[str, Any]
) -> Iterator[PlannedChange | None]:
    """Give the change, staged; None for one that is skipped, whose value says so."""
    if wanted.skipped:
        value["status"] = wanted.skipped
        yield None
        return
    with wanted.stage() as staged:
        yield planned(installer, staged, wanted)


@contextmanager
def _caught(value: dict[str, Any]) -> Iterator[None]:
    """Go on with the next skill after one that is refused, or at which something went wrong."""
    with isolated() as failed:
        yield
    for error in failed:
        # A job that is cancelled ends as a whole.
        if error_code(error) == "cancelled":
            raise error
        value["status"] = "refused"
        value["error"] = {"code": error_code(error), "message": str(error)}
