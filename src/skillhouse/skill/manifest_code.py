"""Manifests in a package's own file: pyproject.toml, or package.json with its `owliabot` field.

The design of executable skills publishes the second; the first is the same in Python's manner, as
a table `[tool.skillhouse]`:

```toml
[project]
name = "crypto-price"
version = "0.1.0"
description = "Get cryptocurrency prices from CoinGecko"

[tool.skillhouse]
main = "main.py"                      # what is imported; this is the default
requires = { env = ["COINGECKO_URL"] }

[[tool.skillhouse.tools]]
name = "get_price"
description = "Get current price of a cryptocurrency"
security = { level = "read" }
timeout = 30000                       # milliseconds; may be left out

[tool.skillhouse.tools.parameters]
type = "object"
required = ["coin"]
properties.coin = { type = "string", description = "Coin ID (e.g., bitcoin, ethereum)" }
```
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from skillhouse.floor.documents import DocumentError, json_value, toml_table
from skillhouse.floor.regex import regex
from skillhouse.skill.manifest_fields import Keys, LineOf, RawManifest, mapping_at
from skillhouse.skill.profile_file import line_of_key
from skillhouse.skill.source import FileRefusedError

JAVASCRIPT_FILE = "package.json"
"""Manifest of a skill in JavaScript (S002-24)."""
PYTHON_FILE = "pyproject.toml"
"""Manifest of a skill in Python, in the manner of its language."""
MANIFEST_FILES = (JAVASCRIPT_FILE, PYTHON_FILE)

TABLE = ("tool", "skillhouse")
"""The table that makes a project a skill (pyproject.toml keeps `tool.*` for such)."""


FIELD = "owliabot"
"""The key that makes a package a skill (S002-24)."""

_MARKS = {JAVASCRIPT_FILE: FIELD.encode(), PYTHON_FILE: TABLE[1].encode()}
_SEEMS = {
    JAVASCRIPT_FILE: regex(r'"owliabot"\s*+:\s*+\{'),
    PYTHON_FILE: regex(
        r"""(?m)^\ufeff?[ \t]*+\[\[?[ \t]*+tool[ \t]*+\.[ \t]*+skillhouse[ \t]*+[\].]"""
    ),
}
"""What makes a file that cannot be parsed a skill's, so that its author hears what is wrong."""


def says_skill(file: str, data: bytes) -> bool:
    """Whether a manifest says that its directory is an executable skill, well or badly.

    An ordinary package does not, whatever it is called and depends on, and however broken it is.

    Args:
        file: The name of the file.
        data: Its beginning; what is cut is judged as a file that cannot be parsed.

    >>> says_skill("package.json", b'{"owliabot": {"tools": []}}')
    True
    >>> says_skill("package.json", b'{"dependencies": {"owliabot": "^1"}}')
    False
    """
    mark = _MARKS.get(file)
    # Most packages end here; a backslash, because a key may be spelled by escapes.
    if mark is None or (mark not in data and b"\\u" not in data):
        return False
    text = data.decode("utf-8-sig", errors="replace")
    try:
        if file == JAVASCRIPT_FILE:
            table = json_value(text)
            return isinstance(table, dict) and FIELD in table
        tools = toml_table(text).get("tool")
        return isinstance(tools, dict) and TABLE[1] in tools
    except DocumentError:
        return _SEEMS[file].search(text) is not None


def read_python(text: str) -> RawManifest | None:
    """Take a pyproject.toml apart; None when it does not say that it is a skill."""
    try:
        table = toml_table(text)
    except DocumentError as error:
        raise FileRefusedError("manifest-syntax", error.reason, error.line) from error
    tools = table.get("tool")
    if not isinstance(tools, dict) or TABLE[1] not in tools:
        return None
    line_of = partial(line_of_key, text)
    project = mapping_at(table, "project", (), line_of)
    return RawManifest(
        language="python",
        package={**project, "author": _author(project), "license": _license(project)},
        package_keys=("project",),
        own=mapping_at(tools, TABLE[1], TABLE[:1], line_of),
        own_keys=TABLE,
        dependencies=_dependencies(project, line_of),
        line_of=line_of,
    )


def _author(project: Mapping[str, Any]) -> str:
    """Return the names in `authors` as one text; they are for show only."""
    authors = project.get("authors")
    listed = authors if isinstance(authors, list) else []
    names = [one.get("name") for one in listed if isinstance(one, dict)]
    return ", ".join(name for name in names if isinstance(name, str))


def _license(project: Mapping[str, Any]) -> Any:
    """Return the licence's expression, or the text or file of its older form."""
    value = project.get("license")
    return value.get("text") or value.get("file") if isinstance(value, dict) else value


def _dependencies(project: Mapping[str, Any], line_of: LineOf) -> tuple[str, ...]:
    dependencies = project.get("dependencies", [])
    if not isinstance(dependencies, list) or not all(isinstance(one, str) for one in dependencies):
        line = line_of(("project", "dependencies"))
        raise FileRefusedError(
            "manifest-type", "expected `dependencies` to be a list of texts", line
        )
    return tuple(dependencies)


_BLANKS = " \t\r\n"
_DECODER = json.JSONDecoder()


def read_javascript(text: str) -> RawManifest | None:
    """Take a package.json apart; None when it does not say that it is a skill."""
    try:
        table = json_value(text)
    except DocumentError as error:
        raise FileRefusedError("manifest-syntax", error.reason, error.line) from error
    if not isinstance(table, dict):
        raise FileRefusedError("manifest-syntax", "expected a JSON object", 1)
    if FIELD not in table:
        return None
    author = table.get("author")
    if isinstance(author, dict):
        # The standard's long form; what a person is called is all that is carried along.
        author = author.get("name")
    line_of = partial(line_at, text)
    own = mapping_at(table, FIELD, (), line_of)
    dependencies = mapping_at(table, "dependencies", (), line_of)
    return RawManifest(
        language="javascript",
        package={**table, "author": author},
        package_keys=(),
        own=own,
        own_keys=(FIELD,),
        dependencies=tuple(f"{name}@{wanted}" for name, wanted in sorted(dependencies.items())),
        line_of=line_of,
    )


def line_at(text: str, keys: Keys) -> int:
    """Return the line at which the value at `keys` begins, or the deepest one that is there."""
    at = _past_blanks(text, 0)
    for key in keys:
        child = _child(text, at, key)
        if child is None:
            break
        at = child
    return text.count("\n", 0, at) + 1


def _child(text: str, at: int, key: str) -> int | None:
    """Return where the value under `key` begins in the object or list at `at`; text is JSON."""
    opening, place = text[at], 0
    if opening not in "{[":
        return None
    at = _past_blanks(text, at + 1)
    while text[at] not in "}]":
        name = str(place)
        if opening == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = _past_blanks(text, _past_blanks(text, at) + 1)
        if name == key:
            return at
        at = _past_blanks(text, _DECODER.raw_decode(text, at)[1])
        place += 1
        if text[at] == ",":
            at = _past_blanks(text, at + 1)
    return None


def _past_blanks(text: str, at: int) -> int:
    while text[at] in _BLANKS:
        at += 1
    return at
