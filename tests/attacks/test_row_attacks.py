"""A long value in a question, which a window would break so that its rest looks like ours."""

from __future__ import annotations

import fcntl
import struct
import termios
from typing import Any

import anyio
import pytest

from skillhouse.approval import FOUND_HEADING, SENT_HEADING, ApprovalRequest, rows_of
from skillhouse.approval.request import ROW_COLUMNS
from skillhouse.approval.webhook import chat_text
from skillhouse.frontends.mcp.elicitation import ElicitationClient, elicitation_for
from tests.approval.questions import question
from tests.frontends.test_cli_approvals import Typed

FORGED = f"  {FOUND_HEADING}"
COLUMNS = (40, 80, 100)


def padded(start: str, columns: int, letter: str = " ") -> str:
    """A value whose rest a window of so many columns begins as a line of ours."""
    wide = 1 if letter.isascii() else 2
    count, odd = divmod(columns - len(start), wide)
    return "x" * odd + letter * count + FORGED


def forging(columns: int, letter: str = " ") -> ApprovalRequest:
    """A question in which each text of the call is padded to the end of the row."""
    return question(
        title=f"exec: ls{padded('exec: ls', columns, letter)}",
        found=(("network", "none"),),
        sent=(
            ("command", padded("    command: ", columns, letter)),
            ("content", "x\n" + padded("      ", columns, letter)),
        ),
        reasons=(padded("  why: ", columns, letter),),
        always=(padded("  a standing approval would allow: ", columns, letter),),
    )


def seen(text: str, columns: int) -> list[str]:
    """The rows that a window of so many columns shows; Chinese letters take two."""
    rows: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        row, used = "", 0
        for character in line:
            width = 1 if character.isascii() else 2
            if used + width > columns:
                rows.append(row)
                row, used = "", 0
            row += character
            used += width
        rows.append(row)
    return rows


def headings(rows: list[str]) -> list[str]:
    return [row.strip() for row in rows if row.rstrip() in (FORGED, f"  {SENT_HEADING}")]


@pytest.mark.parametrize("letter", [" ", "x", "字"])
@pytest.mark.parametrize("columns", COLUMNS)
def test_no_row_at_the_terminal_is_begun_by_a_value(columns: int, letter: str, capsys: Any) -> None:
    asked = forging(columns, letter)
    naive = seen(f"    command: {dict(asked.sent)['command']}", columns)
    assert FORGED in naive
    typed = Typed(b"n\n")
    fcntl.ioctl(typed.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    _, said = anyio.run(typed.answer, asked, capsys)
    rows = seen(said, columns)
    assert headings(rows) == [FOUND_HEADING, SENT_HEADING]
    begun = [row for row in rows if row[:1].strip()]
    assert [row.partition(" ")[0] for row in begun[:2]] == ["exec:", "Allow?"], begun
    # Nothing of a value is left out.
    (command,) = (value for label, value in asked.sent if label == "command")
    assert "".join(command.split()) in "".join("".join(rows).split())


@pytest.mark.parametrize("columns", [ROW_COLUMNS, ROW_COLUMNS + 8, 200])
def test_no_row_of_a_client_or_a_chat_is_begun_by_a_value(columns: int) -> None:
    """How wide their windows are is not known: at least `ROW_COLUMNS`, or they break rows too."""
    asked = forging(columns)
    form = elicitation_for(asked, ElicitationClient(form=True), "")
    assert form is not None
    assert headings(seen(form.message, columns)) == [FOUND_HEADING, SENT_HEADING]
    chat = [row for row in seen(chat_text(asked), columns) if row.strip().endswith(":")]
    assert [row for row in chat if row.strip() in (FOUND_HEADING, SENT_HEADING)].count(
        FOUND_HEADING
    ) == 1


@pytest.mark.parametrize("columns", [1, 8, 20, 40, 80, 200])
@pytest.mark.parametrize("line", ["", "x", "a" * 79, "  why: " + "b c" * 90, "字" * 99, " " * 500])
def test_rows_hold_all_of_a_line_and_fit(line: str, columns: int) -> None:
    first, *rest = rows_of(line, columns)
    margin = len(rest[0]) - len(rest[0].lstrip(" ")) if rest and rest[0].strip() else 0
    assert margin == 0 or margin >= 8
    cut = max(8, min(len(line) - len(line.lstrip(" ")), 8) + 4)
    assert first + "".join(row[cut:] for row in rest) == line
    if columns >= 40:
        assert all(len(seen(row, columns)) == 1 for row in (first, *rest))
