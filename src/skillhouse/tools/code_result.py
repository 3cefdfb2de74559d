"""What comes of a call of a skill's code: its value, and what is kept of its words and output.

The value is as the manifest's `returns` describes it. What is kept is the skill's own text, so it
is bounded, without secrets, and shown as it is: a line that it wrote is one line, and nothing in it
controls a terminal. It is for the audit log and the operator; a model gets the result alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from skillhouse.audit import KnownSecrets, without_secrets
from skillhouse.floor.paths import sendable
from skillhouse.floor.schema_words import fault_words, safe
from skillhouse.sandbox.code_call import CellResult, CodeFrame
from skillhouse.tools.result_files import is_cut

LOG_LINES = 100
"""Lines of a call's own log that are kept."""
OUTPUT_LINES = 64
"""Lines of a call's output that are kept, from its end."""
LINE_MAX = 160
"""Characters of a piece of a line; the audit log keeps up to 200 of a text whole."""
ERROR_MAX = 2_000
"""Characters of an exception's text."""
EDGE = 256
"""Characters at the beginning of a cut output that are dropped: a secret may be cut there too."""
TAIL_FULL = 8_000
"""Characters from which an output counts as cut (`cells.cell.TAIL_BYTES` are kept of it)."""


def error_text(
    result: CellResult, secrets: KnownSecrets, *, frames: tuple[CodeFrame, ...] = ()
) -> str:
    """Return why a call failed in one line, and the frames where the operator shows them.

    One line, so that a text that the skill chose cannot look like frames, or like another message.
    """
    text = safe(secrets.hide(result.error))
    if len(text) > ERROR_MAX:
        text = f"{text[:ERROR_MAX]} [cut: {len(text) - ERROR_MAX} more characters]"
    return "\n".join((text, *(f"  at {frame.text()}" for frame in frames)))


def call_detail(
    name: str, result: CellResult, log: Iterable[str], secrets: KnownSecrets
) -> Mapping[str, object]:
    """Return the detail of a call's record."""
    detail: dict[str, object] = {
        "skill": name,
        "kind": result.kind,
        "milliseconds": round(result.seconds * 1_000),
        "log": kept_lines("\n".join(log), secrets, most=LOG_LINES),
    }
    if result.frames:
        detail["frames"] = [frame.text() for frame in result.frames]
    output = result.stdout_tail
    is_cut = len(output) >= TAIL_FULL
    lines = kept_lines(output, secrets, most=OUTPUT_LINES, edge=EDGE if is_cut else 0)
    if lines:
        detail["output"] = lines
    return detail


def kept_lines(text: str, secrets: KnownSecrets, *, most: int, edge: int = 0) -> list[str]:
    """Return the last lines of a text, in pieces that the log keeps whole, without secrets.

    >>> kept_lines("one\\n\\x1b[2Jtwo\\n", KnownSecrets(), most=5)
    ['one', '\\\\x1b[2Jtwo']
    """
    # Before the text is taken apart: a secret may reach over the end of a line or a piece.
    text = without_secrets(text, secrets)[edge:]
    pieces = []
    for line in text.splitlines():
        plain = "".join(
            c if c.isprintable() else "    " if c == "\t" else c.encode("unicode_escape").decode()
            for c in line
        )
        pieces += [plain[at : at + LINE_MAX] for at in range(0, len(plain), LINE_MAX)] or [""]
    left_out = len(pieces) - most
    if left_out > 0:
        return [f"[{left_out} earlier lines are not kept]", *pieces[-most:]]
    return ["[the beginning is not kept]", *pieces] if edge else pieces


def returned_value(wrapped: Mapping[str, Any]) -> Any:
    """Return what a result says besides whether it went well.

    >>> returned_value({"success": True, "data": {"a": 1}}), returned_value({"success": 1, "b": 2})
    ({'a': 1}, {'b': 2})
    """
    return wrapped.get("data", {k: v for k, v in wrapped.items() if k != "success"})


def misfit(schema: Mapping[str, Any], value: object) -> str:
    """Return why a value does not fit a schema that was judged with its manifest; "" if it does."""
    import jsonschema_rs  # noqa: PLC0415 - only tools that declare `returns` need it.

    if not isinstance(value, Mapping):
        return f"expected an object, got {type(value).__name__}"
    for fault in jsonschema_rs.Draft202012Validator(dict(schema)).iter_errors(dict(value)):
        found = fault_words(fault, schema)
        words = {"missing": "it lacks it: ", "unknown": "it may not be there: "}.get(found.kind, "")
        return f"`{found.place}`: {words}{found.text}" if found.path else f"{words}{found.text}"
    return ""


def structured_content(
    schema: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the value for a program, and why there is none, of a result as it was delivered.

    What was delivered has no secrets and a bounded size, so it may fit less than what was returned.
    """
    if is_cut(data):
        return {}, "it is too long for a structured result"
    value = returned_value(data)
    if why := misfit(schema, value):
        return {}, f"without secrets and hidden characters it does not fit `returns`: {why}"
    # A surrogate by itself is no text of JSON.
    plain: dict[str, Any] = json.loads(sendable(json.dumps(value, ensure_ascii=False)))
    return plain, ""
