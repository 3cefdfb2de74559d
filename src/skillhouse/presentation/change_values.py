"""What a change of installed skills would do, with a digest, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

# A package and not its names, which are loaded when something is installed.
from skillhouse import install
from skillhouse.answers.errors import RefusalAnswer, error_code
from skillhouse.answers.installs import PlannedAnswer, plan_answer
from skillhouse.floor import isolated, structs
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


def planned_changes(
    installer: Installer, request: ChangeRequest, found: OpenSource | None
) -> list[PlannedAnswer]:
    """Return what each skill of a request would become; nothing is changed."""
    return [
        _one(installer, wanted, lambda plan: plan_answer(request.action, plan))
        for wanted in _changes(installer, request, found)
    ]


def applied_changes(
    installer: Installer,
    request: ChangeRequest,
    found: OpenSource | None,
    agreed: Mapping[str, Agreement],
) -> list[PlannedAnswer]:
    """Make the changes that were agreed to; each is refused if it is not what was shown."""
    return [
        _one(installer, wanted, lambda plan: _applied(request, plan, agreed))
        for wanted in _changes(installer, request, found)
    ]


def _changes(
    installer: Installer, request: ChangeRequest, found: OpenSource | None
) -> Iterator[WantedChange]:
    if request.lock:
        return install.lock_changes(installer, request)
    return wanted_changes(installer, request, found)


def _applied(
    request: ChangeRequest, plan: PlannedChange, agreed: Mapping[str, Agreement]
) -> PlannedAnswer:
    answer = plan_answer(request.action, plan)
    agreement = agreed.get(plan.staged.name)
    if plan.is_in_force:
        return answer
    if agreement is None:
        return structs.replace(answer, status="declined")
    # INVARIANT: what a person saw is what is done: the source may have something else by now.
    if agreement.digest != answer.plan_digest:
        raise AgreementError("plan-changed", "it is not what was shown any more; look at it again")
    check_answers(plan, agreement.answers)
    plan.apply()
    return structs.replace(answer, status="installed")


def _one(
    installer: Installer, wanted: WantedChange, make: Callable[[PlannedChange], PlannedAnswer]
) -> PlannedAnswer:
    """Return what comes of one skill; one that is refused keeps no other from its turn."""
    if wanted.skipped:
        return PlannedAnswer(name=wanted.name, status=wanted.skipped)
    with isolated() as failed, wanted.stage() as staged:
        return make(planned(installer, staged, wanted))
    (error,) = failed
    # A job that is cancelled ends as a whole.
    if error_code(error) == "cancelled":
        raise error
    refusal = RefusalAnswer(code=error_code(error), message=str(error))
    return PlannedAnswer(name=wanted.name, status="refused", error=refusal)
