"""What a YAML parser reports, in the words of an author: what was seen, and what to write."""

from __future__ import annotations

from typing import NamedTuple

LINE_SHOWN_MAX = 60
"""Characters of the line that are shown."""


class YamlFault(NamedTuple):
    seen: str
    mend: str


_QUOTES = "put the value in quotes"
_FAULTS: tuple[tuple[str, YamlFault], ...] = (
    (
        "mapping values are not allowed",
        YamlFault("a colon with a space inside a value without quotes", _QUOTES),
    ),
    (
        "cannot start any token",
        YamlFault("a value that begins with a sign which YAML reserves", _QUOTES),
    ),
    (
        "found a tab character",
        YamlFault("a tab where spaces are expected", "write spaces"),
    ),
    (
        "could not find expected ':'",
        YamlFault(
            "a line that is no `key: value`",
            "write it as `key: value`, or indent it below the value that it continues",
        ),
    ),
    (
        "did not find expected ',' or",
        YamlFault("text after a list or map in brackets", "put the whole value in quotes"),
    ),
    (
        "did not find expected node content",
        YamlFault("a bracket without a value", "put the whole value in quotes"),
    ),
    (
        "did not find expected key",
        YamlFault(
            "a line that is indented in another way than the fields, or text after a quoted value",
            "begin each field at the start of its line, and put the whole value in quotes",
        ),
    ),
    (
        "did not find expected '-' indicator",
        YamlFault("a line in a list that is no item", "begin each item with `- `"),
    ),
    (
        "block sequence entries are not allowed",
        YamlFault(
            "`- ` on the line of a field", "put the value in quotes, or the list on the next lines"
        ),
    ),
    (
        "found unexpected end of stream",
        YamlFault("a quote that is not closed", "close the quote"),
    ),
    (
        "found unexpected document indicator",
        YamlFault("a quote that is not closed", "close the quote"),
    ),
    (
        "found unknown escape character",
        YamlFault(
            "a backslash in double quotes that is no escape", "use single quotes, or double it"
        ),
    ),
    (
        "did not find expected alphabetic or numeric character",
        YamlFault("a value that begins with `*` or `&`", _QUOTES),
    ),
    (
        "did not find expected comment or line break",
        YamlFault(
            "text on the line of `>` or `|`",
            "put the value in quotes, without the mark, or write the text on the next lines",
        ),
    ),
    (
        "did not find expected tag URI",
        YamlFault("a value that begins with `!`", _QUOTES),
    ),
    ("tag", YamlFault("a value that begins with `!`", _QUOTES)),
    ("directive", YamlFault("a line that begins with `%`", _QUOTES)),
    (
        "control characters are not allowed",
        YamlFault("a control character", "delete it"),
    ),
    (
        "<document start>",
        YamlFault(
            "text that is no `key: value`", "write only `key: value` lines between the `---` lines"
        ),
    ),
    ("simple key", YamlFault("a key that is too long or on two lines", "shorten the key")),
)
OTHER = YamlFault("text that YAML cannot read", "put the value on the line in quotes")


TAB = YamlFault("a tab where spaces are expected", "write spaces")


def fault_of(problem: str, line: str = "") -> YamlFault:
    """Return what an author should know of a parser's message about a line.

    >>> fault_of("mapping values are not allowed in this context").mend
    'put the value in quotes'
    >>> fault_of("found character that cannot start any token", "\\ta: b").mend
    'write spaces'
    """
    if "cannot start any token" in problem and line.lstrip(" ").startswith("\t"):
        # The parser in C does not say which character it is.
        return TAB
    return next((fault for known, fault in _FAULTS if known in problem), OTHER)


def line_shown(block: str, index: int) -> str:
    """Return the beginning of a line of a block, counted from 0, in backticks; or nothing."""
    lines = block.split("\n")
    text = lines[index].strip() if 0 <= index < len(lines) else ""
    if not text:
        return ""
    cut = text if len(text) <= LINE_SHOWN_MAX else f"{text[:LINE_SHOWN_MAX]}…"
    return f": `{cut}`"
