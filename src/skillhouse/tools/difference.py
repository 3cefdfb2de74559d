"""Shows a person what changes in a text file."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

LINES_MAX = 400
"""Lines of a difference that are shown; more is said to be there."""
PRODUCT_MAX = 1_000_000
"""Changed lines before, times those after, that are compared one by one: some 0.2 s at worst."""
COLUMNS_MAX = 1_000
"""Characters of one line that are shown."""
CONTEXT = 2


def difference(before: str, after: str, path: str) -> str:
    """Return a unified difference of at most `LINES_MAX` lines; empty when nothing changes.

    It takes time linear in the texts, whatever they hold: what is equal at both ends is passed
    over first, and too much in between is shown as all of the old, then all of the new.

    >>> print(difference("a\\nb\\n", "a\\nc\\n", "x.txt"), end="")
    --- x.txt
    +++ x.txt
    @@ -1,2 +1,2 @@
     a
    -b
    +c
    """
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    cut_old, cut_new = old[start : len(old) - end], new[start : len(new) - end]
    if len(cut_old) * len(cut_new) <= PRODUCT_MAX:
        blanks = [""] * max(0, start - CONTEXT)
        # Only the lines near the change; the blanks keep the numbers right.
        tail = end - min(end, CONTEXT)
        shown_lines = list(
            difflib.unified_diff(
                blanks + old[len(blanks) : len(old) - tail],
                blanks + new[len(blanks) : len(new) - tail],
                path,
                path,
                n=CONTEXT,
                lineterm="",
            )
        )
    else:
        shown_lines = [f"--- {path}", f"+++ {path}"]
        shown_lines.append(f"@@ -{start + 1},{len(cut_old)} +{start + 1},{len(cut_new)} @@")
        shown = LINES_MAX // 2
        shown_lines += [f"-{line}" for line in cut_old[:shown]]
        shown_lines += [f"+{line}" for line in cut_new[: LINES_MAX - shown]]
        left = max(0, len(cut_old) - shown) + max(0, len(cut_new) - LINES_MAX + shown)
        return _joined(shown_lines, left)
    return _joined(shown_lines[:LINES_MAX], len(shown_lines) - LINES_MAX)


def _lines(text: str) -> list[str]:
    """A last line without an end is marked, as a difference of files does."""
    lines = text.split("\n")
    if lines[-1]:
        lines[-1] += "\n\\ No newline at end of file"
        return lines
    return lines[:-1]


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _joined(lines: Sequence[str], left: int) -> str:
    rest = [f"[{left} more lines]"] if left > 0 else []
    return "\n".join([*map(_cut, lines), *rest]) + "\n"


def _cut(line: str) -> str:
    left = len(line) - COLUMNS_MAX
    return f"{line[:COLUMNS_MAX]}… [{left} more characters]" if left > 0 else line
