"""What the readings of clients share: what they are given and what they return."""

from __future__ import annotations

from typing import Any, NamedTuple

from skillhouse.skill.model import ParsePolicy
from skillhouse.skill.source import Finding

JS_SPACE = "[\\t\\n\\v\\f\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
"""What `\\s` is in JavaScript, for a pattern."""
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
"""Plain scalars that are no text but nothing."""
PARTS = ("name", "description")


class ClientRead(NamedTuple):
    """What a client makes of a file."""

    name: str
    description: str
    fields: dict[str, Any]
    body: str


class ClientSource(NamedTuple):
    """A file, the name of its directory, and where findings go."""

    data: bytes
    directory: str
    policy: ParsePolicy
    findings: list[Finding]
