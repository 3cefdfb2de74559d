"""Stage 3: a YAML block to a mapping in which every scalar is the text that was written.

PyYAML's events are the truth. The Rust parser is a shortcut for blocks so plain that both agree
(docs/decisions/0013); tests/skill/test_yaml_text.py holds the two against each other.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
import yaml_rs
from yaml.cyaml import CParser  # type: ignore[attr-defined]  # missing in the stubs
from yaml.reader import ReaderError

from skillhouse.skill.source import RefusedError

YAML_DEPTH_MAX = 16
"""Nested collections; the top mapping is level 1 (DESIGN, bounds)."""
FAST_BLOCK_MAX = 8_192
"""Bytes up to which the Rust parser is trusted (decision 13)."""
FAST_OPENERS_MAX = 16
"""Openers of collections on one line up to which the Rust parser is trusted (decision 13)."""

FIRST_LINE = 2
"""Line of the file at which a frontmatter block begins."""


def read_mapping(block: str, *, fast: bool = True) -> dict[str, Any]:
    """Return the mapping that `block` holds: text to text, list or mapping.

    Raises:
        RefusedError: `yaml-error` when it does not parse, else the code of what is not allowed.
    """
    if fast and is_plain(block):
        found = _rust(block)
        if found is not None:
            return found
    return _from_events(block)


def is_plain(block: str) -> bool:
    """Whether the Rust parser reads `block` as PyYAML's events do."""
    if len(block) >= FAST_BLOCK_MAX or block[-1:] != "\n":
        return False
    if "..." in block and (block[:3] == "..." or "\n..." in block):
        return False
    if block.encode().translate(None, _HARMLESS) and not _is_plain_with_marks(block):
        return False
    return block.count("- ") + block.count("? ") <= FAST_OPENERS_MAX or all(
        line.count("- ") + line.count("? ") <= FAST_OPENERS_MAX for line in block.split("\n")
    )


_HARMLESS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n.,:;-_/()+=?@#~^$`"
"""Characters that neither open anything nor hide anything: without others a block is plain."""


def _is_plain_with_marks(block: str) -> bool:
    if "&" in block or "*" in block or "!" in block:
        return False
    # A directive: Rust passes over those it does not know.
    if "%" in block and (block[0] == "%" or "\n%" in block):
        return False
    # Rust joins two escaped surrogates to one character, and libyaml refuses them.
    if "\\u" in block or "\\U" in block:
        return False
    # Not printable: tabs, controls, U+0085, U+2028, U+2029, and all hidden characters.
    if not block.replace("\n", "").isprintable():
        return False
    if ("[" in block or "{" in block) and (
        block.count("[") + block.count("{") > FAST_OPENERS_MAX or _ODD_FLOW.search(block)
    ):
        return False
    return not ((">" in block or "|" in block) and _ODD_BLOCK_SCALAR.search(block))


_ODD_FLOW = re.compile(r"""[\[{](?:[^\n]*["'>|?]|(?:[^\n]*[ ,\[{])?:)|[\[{][^\]}\n]*\n""")
"""After an opener: a quote, a block mark, `?`, a text that begins with `:`, or the line's end."""

_ODD_BLOCK_SCALAR = re.compile(r"(?<![^ \n])[>|][-+0-9]*[ ]*(?:#|\n(?![ ]+[^ \n]))")
"""A block mark before a comment, or before a line that is blank or not indented."""


def _rust(block: str) -> dict[str, Any] | None:
    """Return the mapping if every leaf came back as text, else None."""
    try:
        found = yaml_rs.loads(block, parse_datetime=False)
    except (ValueError, TypeError):
        # Any refusal (YAMLDecodeError is a ValueError) is for the events to judge; a key that is
        # a collection gives TypeError.
        return None
    if type(found) is not dict:
        return None
    for key, value in found.items():
        if type(key) is not str or (type(value) is not str and not _is_text(value, 2)):
            return None
    return found


def _is_text(value: object, level: int) -> bool:
    """Whether all leaves are text and no collection, `value` being at `level`, is too deep."""
    if type(value) is str:
        return True
    if level > YAML_DEPTH_MAX:
        return False
    if type(value) is list:
        return all(_is_text(item, level + 1) for item in value)
    return type(value) is dict and all(
        type(key) is str and _is_text(item, level + 1) for key, item in value.items()
    )


class _Builder:
    """Builds values from PyYAML's events; iterative, so that nesting cannot exhaust the stack."""

    def __init__(self) -> None:
        self.root: Any = None
        self.stack: list[tuple[Any, list[str]]] = []
        """Open collections, each with the key that waits for its value (empty: none)."""

    def put(self, value: Any, line: int, *, opens: bool) -> None:
        """Place a value where the innermost collection expects one."""
        if not self.stack:
            self.root = value
        else:
            parent, waiting = self.stack[-1]
            if isinstance(parent, list):
                parent.append(value)
            elif waiting:
                parent[waiting.pop()] = value
            elif opens:
                raise RefusedError("yaml-error", "a collection as a key", line)
            elif value in parent:
                raise RefusedError(
                    "yaml-duplicate-key", f"key {value!r} twice in one mapping", line
                )
            else:
                waiting.append(value)
        if opens:
            if len(self.stack) >= YAML_DEPTH_MAX:
                raise RefusedError("yaml-depth", f"nested deeper than {YAML_DEPTH_MAX}", line)
            self.stack.append((value, []))


def _from_events(block: str) -> dict[str, Any]:
    """Return the mapping by PyYAML's events, stopped at the first thing that is not allowed."""
    builder = _Builder()
    documents = 0
    parser = CParser(block)
    try:
        while parser.check_event():
            event: Any = parser.get_event()
            line = event.start_mark.line + FIRST_LINE
            if isinstance(event, yaml.NodeEvent):
                _refuse_indirect(event, line)
            if isinstance(event, yaml.ScalarEvent):
                builder.put(event.value, line, opens=False)
            elif isinstance(event, yaml.CollectionStartEvent):
                builder.put(
                    [] if isinstance(event, yaml.SequenceStartEvent) else {}, line, opens=True
                )
            elif isinstance(event, yaml.CollectionEndEvent):
                builder.stack.pop()
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise RefusedError("yaml-error", "a second document in the frontmatter", line)
    except yaml.YAMLError as error:
        raise _yaml_error(error, block) from None
    finally:
        parser.dispose()
    if not isinstance(builder.root, dict):
        raise RefusedError("frontmatter-not-mapping", "expected `key: value` lines", FIRST_LINE)
    return builder.root


def _refuse_indirect(event: Any, line: int) -> None:
    if event.anchor is not None:
        kind = "alias" if isinstance(event, yaml.AliasEvent) else "anchor"
        raise RefusedError("yaml-alias", f"{kind} `{event.anchor}`: write the value out", line)
    tag = getattr(event, "tag", None)
    if tag is not None:
        raise RefusedError("yaml-tag", f"tag `{tag}`: values are plain text, lists and maps", line)


def _yaml_error(error: yaml.YAMLError, block: str) -> RefusedError:
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, ReaderError):
        # It has no mark, only an offset in bytes.
        problem = error.reason
        line = block.encode()[: error.position].count(b"\n") + FIRST_LINE
    else:
        problem = getattr(error, "problem", None) or "unreadable"
        line = FIRST_LINE if mark is None else mark.line + FIRST_LINE
    return RefusedError("yaml-error", f"not YAML: {' '.join(str(problem).split())}", line)


def key_line(block: str, key: str) -> int | None:
    """Return the line of the file that has the top-level `key` of `block`; None when none has.

    The text is searched first, and the events are asked only when it does not say.
    """
    found = list(re.finditer(rf"""(?m)^([{{ ]*)["']?{re.escape(key)}["']?[ ]*:""", block))
    if len(found) == 1:
        return block.count("\n", 0, found[0].start()) + FIRST_LINE
    parser = CParser(block)
    depth, at_key = 0, True
    try:
        while parser.check_event():
            event: Any = parser.get_event()
            line: int = event.start_mark.line + FIRST_LINE
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth == 1:
                if at_key and isinstance(event, yaml.ScalarEvent) and event.value == key:
                    return line
                at_key ^= not isinstance(event, yaml.CollectionStartEvent)
            depth += isinstance(event, yaml.CollectionStartEvent)
    except yaml.YAMLError:
        # A block that is read only after a repair: its keys begin their lines.
        first = min(found, key=lambda match: len(match[1]), default=None)
        return None if first is None else block.count("\n", 0, first.start()) + FIRST_LINE
    finally:
        parser.dispose()
    return None
