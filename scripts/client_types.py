"""Writes the types of the API's client from the answers: src/…/api_client/api_values.py.

A client gets JSON objects and not our Structs, so each answer is a TypedDict, by the same source.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

import msgspec

from skillhouse.answers.approvals import ApprovalAnswer
from skillhouse.answers.audit import ListedEntryAnswer, ListedRecord
from skillhouse.answers.catalogs import SkillHitAnswer
from skillhouse.answers.installs import PlannedAnswer
from skillhouse.answers.json_form import MOMENTS, moment_of
from skillhouse.answers.policy import ExplanationAnswer
from skillhouse.answers.rehearsal import RehearsalAnswer
from skillhouse.answers.service import JobAnswer
from skillhouse.answers.skills import (
    ContentAnswer,
    DefinitionAnswer,
    LibrarySkillAnswer,
    ListedSkillAnswer,
    SkillAnswer,
    SourceAnswer,
)
from skillhouse.answers.tools import CallResultAnswer, ToolAnswer
from skillhouse.floor import structs

HEAD = '''\
"""The types of what the API answers; members that are not named here may be there too.

Generated from skillhouse.answers by `./x docs`; do not edit.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NotRequired, TypedDict, TypeVar

T = TypeVar("T")


class PageJson(TypedDict, Generic[T]):
    """One page of a list; `next` is the cursor of the following one."""

    items: list[T]
    total: int | None
    next: str | None


class AgreedJson(TypedDict):
    plan_digest: str
    answers: list[str]
'''
ANSWERS: Mapping[str, type] = {
    "AuditEntryJson": ListedEntryAnswer,
    "CallResultJson": CallResultAnswer,
    "ContentJson": ContentAnswer,
    "DecisionJson": ExplanationAnswer,
    "DefinitionJson": DefinitionAnswer,
    "HitJson": SkillHitAnswer,
    "JobJson": JobAnswer,
    "LibrarySkillJson": LibrarySkillAnswer,
    "ListedSkillJson": ListedSkillAnswer,
    "PlannedJson": PlannedAnswer,
    "QuestionJson": ApprovalAnswer,
    "RehearsalJson": RehearsalAnswer,
    "SkillJson": SkillAnswer,
    "SourceJson": SourceAnswer,
    "ToolJson": ToolAnswer,
}
"""The types by the names that programs import; those in them follow."""


def client_types() -> str:
    """Return the text of the module."""
    names = {kind: name for name, kind in ANSWERS.items()}
    written = dict(names)
    waiting = list(names)
    parts: dict[str, str] = {}
    while waiting:
        kind = waiting.pop(0)
        found = {name: _Text(names) for name in _members(kind)}
        lines = [f"    {name}: {found[name].of(one)}" for name, one in _members(kind).items()]
        parts[names[kind]] = "\n".join((f"class {names[kind]}(TypedDict):", *_doc(kind), *lines))
        new = [one for one in names if one not in written]
        written.update({one: names[one] for one in new})
        waiting += new
    return "\n\n\n".join((HEAD.rstrip(), *(parts[name] for name in sorted(parts)))) + "\n"


def _doc(kind: type) -> Iterator[str]:
    # A Struct without one has none; a dataclass would have its signature.
    text = (kind.__doc__ or "").strip()
    if text and "\n" not in text and not text.startswith(f"{kind.__name__}("):
        yield f'    """{text}"""\n'


def _members(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    if issubclass(kind, msgspec.Struct):
        found: dict[str, Any] = {}
        names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
        for encoded, name in names:
            inner = hints[name]
            if name not in getattr(kind, "flat_members", ()):
                # A flat one that may be absent has it too.
                found.setdefault(encoded, inner)
            elif isinstance(inner, types.UnionType):
                below = _members(typing.get_args(inner)[0])
                new = {name: one for name, one in below.items() if name not in found}
                found |= {name: one | msgspec.UnsetType for name, one in new.items()}
            else:
                found |= _members(inner)
        whole: dict[str, Any] = {}
        for name, inner in found.items():
            whole[name] = inner
            if name in MOMENTS:
                whole[moment_of(name)] = str | None
        return whole
    return {name: hints[name] for name in structs.field_names(kind)}


class _Text:
    """Writes types; `names` gets those of the answers that they need."""

    def __init__(self, names: dict[type, str]) -> None:
        self._names = names

    def of(self, kind: Any) -> str:
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin in (types.UnionType, typing.Union):
            left = [one for one in inner if one is not msgspec.UnsetType]
            text = " | ".join(self.of(one) for one in left)
            return text if len(left) == len(inner) else f"NotRequired[{text}]"
        if origin is typing.Literal:
            return f"Literal[{', '.join(f'{word!r}' for word in inner)}]".replace("'", '"')
        if origin in (tuple, list):
            return f"list[{self.of(inner[0])}]"
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return f"dict[{self.of(inner[0])}, {self.of(inner[1])}]"
        if kind is type(None):
            return "None"
        if kind in (Any, object):
            return "Any"
        if kind is ListedRecord:
            # It has 46 members, which the OpenAPI document names.
            return "dict[str, Any]"
        if issubclass(kind, enum.Enum):
            return "str"
        if issubclass(kind, msgspec.Struct) or is_dataclass(kind):
            default = f"{kind.__name__.removesuffix('Answer')}Json"
            return self._names.setdefault(kind, default)
        return str(kind.__name__)
