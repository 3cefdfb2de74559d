"""A SKILL.md's frontmatter as the JSON that other programs make of it.

In skillhouse every scalar is the text that was written (decision 13). Peers read the file with
a YAML library of their own and compare field by field, so for them a plain `1.0` is the number
that YAML 1.2's core schema makes of it; what is in quotes stays text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from skillhouse.skill.model import ParsePolicy
from skillhouse.skill.skill_file import parse
from skillhouse.skill.source import split_head
from skillhouse.skill.yaml_events import mapping_of

_CORE: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"~|null|Null|NULL|"), lambda _: None),
    (re.compile(r"true|True|TRUE"), lambda _: True),
    (re.compile(r"false|False|FALSE"), lambda _: False),
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text, 0)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"), float),
)
"""What a plain scalar means (YAML 1.2.2, 10.3.2); `.inf` and `.nan` are no JSON and stay text."""
DIGITS_MAX = 300
"""Characters up to which a scalar is taken for a number."""
_UNREPAIRED = ParsePolicy(yaml_repair=False)
"""Another program makes no repairs of ours."""


def typed_fields(data: bytes, *, directory: str) -> Mapping[str, Any] | None:
    """Return the frontmatter of a SKILL.md as JSON values; None where it is no skill.

    >>> text = b"---\\nname: a\\ndescription: b\\nmetadata:\\n  n: 1.50\\n  t: '1'\\n---\\n"
    >>> typed_fields(text, directory="a")
    {'name': 'a', 'description': 'b', 'metadata': {'n': 1.5, 't': '1'}}
    """
    result = parse(data, directory=directory, policy=_UNREPAIRED)
    if result.skill is None:
        return None
    return mapping_of(split_head(result.text.encode()).block, _typed)


def core_value(text: str) -> Any:
    """Return what a plain scalar means.

    >>> [core_value(text) for text in ("1.0", "true", "yes", "", "2026-01-01", "0o17")]
    [1.0, True, 'yes', None, '2026-01-01', 15]
    """
    if len(text) > DIGITS_MAX:
        return text
    for pattern, meaning in _CORE:
        if pattern.fullmatch(text):
            found = meaning(text)
            return text if isinstance(found, float) and not math.isfinite(found) else found
    return text


def _typed(event: Any) -> Any:
    return event.value if event.style else core_value(event.value)
