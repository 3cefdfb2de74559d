"""How an answer becomes JSON, and the types that members of several answers have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from skillhouse.floor import structs

Count: TypeAlias = Annotated[int, Meta(ge=0)]
EffectWord: TypeAlias = Literal["allow", "ask", "deny"]


MOMENTS = frozenset(
    {
        "approved_ms",
        "begun_ms",
        "closed_ms",
        "created_ms",
        "ended_ms",
        "expires_ms",
        "granted_ms",
        "opened_ms",
        "paired_ms",
        "used_ms",
    }
)
"""Members that are moments, in milliseconds since 1970; each is followed by the same as a time of
RFC 3339, and is deprecated. Others that end so are spans of time."""


class JsonAnswer(Struct, frozen=True, kw_only=True):
    """What is answered; a member that may be absent has UNSET as its default."""

    flat_members: ClassVar[tuple[str, ...]] = ()
    """Those that are answers themselves, and whose members are in the place of theirs."""


class ListAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A list as docs/reference/json.md describes it; `listed` makes one."""

    name: str
    items: Sequence[Struct | str]
    total: int | None
    more: JsonAnswer | None


class PageAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The cursor of the following page of a list."""

    next: str | None


class HintAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What to do, also under its name before 0.2, which goes with 0.3."""

    hint: str | None
    mend: str | None


A = TypeVar("A", bound=JsonAnswer)
CORE_VALUES = frozenset(
    {
        "ApprovedScript",
        "AuditRecord",
        "CatalogRule",
        "Change",
        "Confirmation",
        "DecidedPermission",
        "Extensions",
        "Grant",
        "HookChange",
        "Invocable",
        "LearnedChoice",
        "ListedRecord",
        "LogProblem",
        "McpReport",
        "OnceGroup",
        "ParsePolicy",
        "ProbeResult",
        "Profile",
        "ProfileRules",
        "ProgramPlaces",
        "Publisher",
        "ReportedProblem",
        "RepositoryFreshness",
        "RootRule",
        "SandboxStatus",
        "ScopeRule",
        "ToolReport",
        "ToolRule",
        "TransactionEntry",
        "TreeFile",
        "Trouble",
    }
)
"""Classes of the core whose values are answered with all their fields. It is a list, so that no
value with a secret is written because an answer holds it."""


SPARSE: Mapping[str, tuple[str, ...]] = {
    "ListedRecord": ("amount_usd", "session_key", "signer_tier", "transaction")
}
"""Fields that are left out where they are not set: few logs have what signs."""


def members(answer: object) -> dict[str, Any]:
    """Return the members of an answer by their names in JSON, without those that it lacks.

    Raises:
        TypeError: it is no answer.
    """
    found: dict[str, Any] = {}
    if isinstance(answer, ListAnswer):
        found = {"list": answer.name, "total": answer.total, answer.name: list(answer.items)}
        return found if answer.more is None else found | members(answer.more)
    if isinstance(answer, JsonAnswer):
        for encoded, name in zip(
            answer.__struct_encode_fields__, answer.__struct_fields__, strict=True
        ):
            value = getattr(answer, name)
            if value is UNSET:
                continue
            found |= members(value) if name in answer.flat_members else {encoded: value}
        return with_moments(found)
    if isinstance(answer, Mapping):
        return dict(answer)
    if type(answer).__name__ not in CORE_VALUES:
        raise TypeError(f"{type(answer).__name__} is no answer")
    found = {name: getattr(answer, name) for name in structs.field_names(answer)}
    for name in SPARSE.get(type(answer).__name__, ()):
        if not found[name]:
            del found[name]
    return with_moments(found)


def with_moments(found: dict[str, Any]) -> dict[str, Any]:
    """Return members with a time of RFC 3339 after each of `MOMENTS`; null where there is none.

    >>> with_moments({"opened_ms": 1_769_860_800_000, "closed_ms": None, "max_ms": 5})
    {'opened_ms': 1769860800000, 'opened': '2026-01-31T12:00:00.000Z', 'closed_ms': None, \
'closed': None, 'max_ms': 5}
    """
    if MOMENTS.isdisjoint(found):
        return found
    from skillhouse.audit import timestamp  # noqa: PLC0415 - most answers hold no moment.

    whole: dict[str, Any] = {}
    for name, value in found.items():
        whole[name] = value
        if name in MOMENTS:
            whole.setdefault(moment_of(name), timestamp(value) if value else None)
    return whole


def moment_of(name: str) -> str:
    """Return the name under which the time of a member in milliseconds is, too."""
    return name.removesuffix("_ms")


def json_text(answer: object, *, indent: int | None = None) -> str:
    """Return an answer as JSON, all of it ASCII so that nothing can hide in it."""
    separators = None if indent else (",", ":")
    return json.dumps(answer, indent=indent, separators=separators, default=_encoded)


def _encoded(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else members(value)


def listed(
    name: str,
    items: Sequence[Struct | str],
    more: JsonAnswer | None = None,
    *,
    total: int | UnsetType | None = UNSET,
) -> ListAnswer:
    """Return a list under its name; `total` is for one that has more items than are given."""
    count = len(items) if total is UNSET else total
    return ListAnswer(name=name, items=items, total=count, more=more)


def hinted(text: str | None) -> HintAnswer:
    return HintAnswer(hint=text or None, mend=text or None)


def copied(kind: type[A], value: object, **more: Any) -> A:
    """Return an answer with the members of a value that have the same names, and `more`."""
    own = {
        name: getattr(value, name)
        for name in kind.__struct_fields__
        if name not in more and hasattr(value, name)
    }
    return kind(**own, **more)


def plain(value: Any) -> Any:
    """Return an answer, or lists and objects that hold some, as JSON values."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple | frozenset):
        return [plain(one) for one in value]
    return {key: plain(one) for key, one in members(value).items()}
