"""How an answer becomes JSON, and the types that members of several answers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct

from skillhouse.floor import structs

Count: TypeAlias = Annotated[int, Meta(ge=0)]
EffectWord: TypeAlias = Literal["allow", "ask", "deny"]


class JsonAnswer(Struct, frozen=True, kw_only=True):
    """What is answered; a member that may be absent has UNSET as its default."""

    flat_members: ClassVar[tuple[str, ...]] = ()
    """Those that are answers themselves, and whose members are in the place of theirs."""


A = TypeVar("A", bound=JsonAnswer)
CORE_VALUES = frozenset(
    {
        "ApprovedScript",
        "AuditRecord",
        "Confirmation",
        "DecidedPermission",
        "Grant",
        "LogProblem",
        "ProbeResult",
        "SandboxStatus",
        "TransactionEntry",
        "Trouble",
    }
)
"""Classes of the core whose values are answered with all their fields. It is a list, so that no
value with a secret is written because an answer holds it."""


def members(answer: object) -> dict[str, Any]:
    """Return the members of an answer by their names in JSON, without those that it lacks.

    It is the `default` of `json.dumps`, which comes back for members that are answers.

    Raises:
        TypeError: it is no answer.
    """
    if isinstance(answer, JsonAnswer):
        found: dict[str, Any] = {}
        for encoded, name in zip(
            answer.__struct_encode_fields__, answer.__struct_fields__, strict=True
        ):
            value = getattr(answer, name)
            if value is UNSET:
                continue
            found |= members(value) if name in answer.flat_members else {encoded: value}
        return found
    if isinstance(answer, Mapping):
        return dict(answer)
    if type(answer).__name__ not in CORE_VALUES:
        raise TypeError(f"{type(answer).__name__} is no answer")
    return {name: getattr(answer, name) for name in structs.field_names(answer)}


def copied(kind: type[A], value: object, **more: Any) -> A:
    """Return an answer with the fields of a value of the core, which have the same names."""
    return kind(**{name: getattr(value, name) for name in structs.field_names(value)}, **more)


def plain(value: Any) -> Any:
    """Return an answer, or lists and objects that hold some, as JSON values."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple | frozenset):
        return [plain(one) for one in value]
    return {key: plain(one) for key, one in members(value).items()}
