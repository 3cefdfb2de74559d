"""The seven management operations as requests of plain values (S004-67), for any transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, field

from skillhouse.answers.skills import (
    OperationAnswer,
    OperationArgumentAnswer,
    OperationResultAnswer,
    definition_answer,
)
from skillhouse.clients import Exporter
from skillhouse.floor import ConfigError, DecodeError, SkillhouseError, nearest, shaped
from skillhouse.floor.schema_words import decoding_words
from skillhouse.house import export_source

if TYPE_CHECKING:
    from skillhouse.house import Skillhouse


def answer(
    house: Skillhouse, operation: str, arguments: Mapping[str, Any]
) -> OperationResultAnswer:
    """Return what came of an operation, or why nothing did.

    Raises:
        ConfigError: there is no such operation, or its arguments have other names or types.
    """
    if operation not in OPERATIONS:
        close = nearest(operation, OPERATIONS)
        raise ConfigError(
            f"unknown operation `{operation}`",
            key=operation,
            suggestion=close[0] if close else "",
        )
    wanted = OPERATIONS[operation]
    unknown = sorted(arguments.keys() - wanted.arguments.keys())
    missing = sorted(wanted.arguments.keys() - arguments.keys() - wanted.optional)
    if unknown or missing:
        what = f"unknown argument `{unknown[0]}`" if unknown else f"no argument `{missing[0]}`"
        raise ConfigError(f"{what} of `{operation}`", key=(unknown or missing)[0])
    values: dict[str, Any] = {}
    for published, (name, shape) in wanted.arguments.items():
        if published not in arguments:
            continue
        try:
            values[name] = shaped(arguments[published], shape)
        except DecodeError as error:
            _, words = decoding_words(str(error))
            text = f"wrong argument `{published}` of `{operation}`: {words}"
            raise ConfigError(text, key=operation) from error
    try:
        return wanted.run(house, **values)
    except SkillhouseError as error:
        return OperationResultAnswer(success=False, error=house.management.said(error))
    except OSError as error:
        return OperationResultAnswer(success=False, error=(error.strerror or str(error)).lower())


def _get_all(house: Skillhouse) -> OperationResultAnswer:
    return OperationResultAnswer(skills=list(map(definition_answer, house.management.get_all())))


def _refresh(house: Skillhouse) -> OperationResultAnswer:
    return OperationResultAnswer(skills=list(map(definition_answer, house.management.refresh())))


def _read_file(house: Skillhouse, skill: str, file: str) -> OperationResultAnswer:
    return OperationResultAnswer(content=house.management.read_file(skill, file))


def _open(house: Skillhouse, skill: str | None = None) -> OperationResultAnswer:
    return OperationResultAnswer(path=str(house.management.open_directory(skill)))


_UNTRUSTED = "no agent and no list has it until the project is trusted: run `skillhouse trust`"


def _create(
    house: Skillhouse, name: str, description: str, instructions: str, scope: str = "user"
) -> OperationResultAnswer:
    found = house.management.create(name, description, instructions, scope=scope)
    is_listed = any(one.path == found.path for one in house.management.get_all())
    return OperationResultAnswer(
        skill=definition_answer(found), notice=UNSET if is_listed else _UNTRUSTED
    )


def _delete(house: Skillhouse, skill: str) -> OperationResultAnswer:
    path = house.management.delete(skill)
    Exporter(export_source(house)).follow(path)
    return OperationResultAnswer(path=str(path))


def _toggle(house: Skillhouse, skill: str, enabled: bool) -> OperationResultAnswer:  # noqa: FBT001 a value of the request
    return OperationResultAnswer(
        skill=definition_answer(house.management.set_enabled(skill, enabled=enabled))
    )


class _Operation(Struct, frozen=True):
    run: Callable[..., OperationResultAnswer]
    arguments: Mapping[str, tuple[str, type]] = field(default_factory=dict)
    """Published name of an argument to our name and its type."""
    optional: frozenset[str] = frozenset()


_SKILL = {"skillId": ("skill", str)}

OPERATIONS = {
    "SKILLS_GET_ALL": _Operation(_get_all),
    "SKILLS_REFRESH": _Operation(_refresh),
    "SKILLS_READ_FILE": _Operation(_read_file, {**_SKILL, "fileName": ("file", str)}),
    "SKILLS_OPEN_DIRECTORY": _Operation(_open, _SKILL, frozenset({"skillId"})),
    "SKILLS_CREATE": _Operation(
        _create,
        {
            "name": ("name", str),
            "description": ("description", str),
            "instructions": ("instructions", str),
            "source": ("scope", str),
        },
        frozenset({"source"}),
    ),
    "SKILLS_DELETE": _Operation(_delete, _SKILL),
    "SKILLS_TOGGLE_ENABLED": _Operation(_toggle, {**_SKILL, "enabled": ("enabled", bool)}),
}
"""The published channels."""
READS = ("SKILLS_GET_ALL", "SKILLS_REFRESH", "SKILLS_READ_FILE")
"""Those that change nothing and open nothing."""


def operation_answers() -> list[OperationAnswer]:
    """Return the operations with their arguments."""
    return [
        OperationAnswer(
            operation=name,
            arguments={
                published: OperationArgumentAnswer(
                    type=kind.__name__, required=published not in one.optional
                )
                for published, (_, kind) in one.arguments.items()
            },
        )
        for name, one in OPERATIONS.items()
    ]
