"""Shows Markdown on a terminal while it arrives: each word once, nothing drawn over.

Headings, lists, quotes, tables, code, emphasis and links; anything else stays as it was written.
An address is always shown beside its text, since a link can name one place and lead to another.
The text has to be escaped before; the only control sequences in the result are our own styles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from skillhouse.floor.regex import regex
from skillhouse.presentation.text import shown, width_of

Piece = tuple[str, str]
"""A text and the parameters of its style, as in `1;4`; empty for none."""

BOLD, DIM, ITALIC, UNDERLINED, STRUCK, CODE = "1", "2", "3", "4", "9", "36"
HELD_MAX = 400
"""Characters that wait for the end of an emphasis or link; beyond them its beginning is text."""

_FENCE = regex(r" {0,3}(```+|~~~+)(.*)$")
_HEADING = regex(r" {0,3}(#{1,6}) +(?=\S)")
_ITEM = regex(r"( *)([-*+]|\d{1,9}[.)]) +(?=\S)")
_QUOTE = regex(r" {0,3}((?:> ?)+)")
_RULE = regex(r" {0,3}([-*_])(?: ?\1){2,} *$")
_DELIMITER = regex(r" *\|(?: *:?-+:? *\|)+ *$")
_MAYBE_MARKER = regex(r" *(?:#{0,6}|[-*_+]{1,3}|\d{1,9}[.)]?|`{1,2}|~{1,2}|> ?)? *$")
_SPECIAL = "`*_~[!\\"
_INLINE = (
    # Each has a limit, or a long line of marks without an end would take minutes.
    (re.compile(r"(`{1,4})(?!`)(.{1,400}?)(?<!`)\1(?!`)"), CODE),
    (re.compile(r"(\*\*|__)(?=\S)(.{1,400}?)(?<=\S)\1"), BOLD),
    (re.compile(r"(\*)(?=[^\s*])(.{1,400}?)(?<=[^\s*])\1(?!\*)"), ITALIC),
    (re.compile(r"(_)(?=[^\s_])(.{1,400}?)(?<=[^\s_])\1(?![\w_])"), ITALIC),
    (re.compile(r"(~~)(?=\S)(.{1,400}?)(?<=\S)\1"), STRUCK),
)
_LINK = regex(r"(!?)\[([^\[\]]{0,400})\]\(([^()\s]{0,2000})\)")
_OPEN = regex(r"`|\*{1,3}(?=\S|$)|__?(?=\S|$)|~~?(?=\S|$)|!?\[|!$|\\$")


def styled(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


def rendered(text: str, width: int) -> str:
    """Return a whole untrusted text as lines for a terminal, its control characters as escapes."""
    stream = MarkdownStream(width)
    return stream.feed("\n".join(shown(line) for line in text.split("\n"))) + stream.close()


class MarkdownStream:
    """Turns a text that arrives in pieces into styled lines of a terminal."""

    def __init__(self, width: int) -> None:
        """Begin a text; lines, but not those of code, are broken at `width` columns."""
        self._width = max(width, 20)
        self._line = ""
        """What the current line has so far and was not shown."""
        self._is_begun = False
        self._base = ""
        self._indent = ""
        self._column = 0
        self._gap = False
        self._fence = ""
        self._rows: list[str] = []

    @property
    def line_is_open(self) -> bool:
        return self._column > 0

    def feed(self, piece: str) -> str:
        """Return what can be shown now."""
        *whole, rest = (self._line + piece).split("\n")
        made = [self._end(line) for line in whole]
        self._line = rest
        if not self._fence and (self._is_begun or self._can_begin(rest)):
            made.append(self._words())
        return "".join(made)

    def close(self) -> str:
        """Return the rest, with a line feed if a line is open."""
        line, self._line = self._line, ""
        made = self._end(line) if line or self._column else ""
        made += self._table()
        self._fence = ""
        return made

    def _can_begin(self, line: str) -> bool:
        """Return whether the beginning of a line shows what the line is."""
        words = line.lstrip(" ")
        return not _MAYBE_MARKER.match(line) and not words.startswith(("|", "```", "~~~"))

    def _begin(self) -> str:
        """Take the marker off the current line; return a table before it, and the marker's form."""
        before = self._table()
        self._is_begun, self._base, self._indent = True, "", ""
        mark = ""
        if heading := _HEADING.match(self._line):
            self._line = self._line[heading.end() :]
            self._base = f"{BOLD};{UNDERLINED}" if len(heading[1]) == 1 else BOLD
        elif item := _ITEM.match(self._line):
            self._line = self._line[item.end() :]
            bullet = "•" if item[2] in "-*+" else item[2]
            mark = f"{item[1][: self._width // 2]}{bullet} "
        elif quote := _QUOTE.match(self._line):
            self._line = self._line[quote.end() :]
            mark = "│ " * min(quote[1].count(">"), self._width // 4)
            self._base = DIM
            self._indent = mark
        else:
            spaces = len(self._line) - len(self._line.lstrip(" "))
            mark = " " * min(spaces, self._width // 2)
            self._line = self._line.lstrip(" ")
        self._indent = self._indent or " " * width_of(mark)
        self._column, self._gap = width_of(mark), False
        return before + (mark if not self._base else styled(mark, DIM) if mark else "")

    def _end(self, line: str) -> str:
        """Return the rest of a line, with its line feed."""
        self._line = line
        if not self._is_begun:
            if self._fence:
                return self._code(line)
            if fence := _FENCE.match(line):
                self._fence = fence[1]
                label = fence[2].strip()
                return self._table() + (styled(label, DIM) + "\n" if label else "")
            if line.lstrip(" ").startswith("|"):
                self._rows.append(line.strip(" "))
                return ""
            if not line.strip(" "):
                return self._table() + "\n"
            if _RULE.match(line):
                return self._table() + styled("─" * min(self._width, 40), DIM) + "\n"
        made = self._words(is_whole=True) + "\n"
        self._is_begun, self._column, self._line = False, 0, ""
        return made

    def _code(self, line: str) -> str:
        end = line.strip()
        if end.startswith(self._fence) and not end.strip(self._fence[0]):
            self._fence = ""
            return ""
        return styled(line, CODE) + "\n"

    def _words(self, *, is_whole: bool = False) -> str:
        """Return the words of the current line whose form is certain; `is_whole`: all of them."""
        made = "" if self._is_begun else self._begin()
        ready = len(self._line) if is_whole else _certain(self._line)
        text, self._line = self._line[:ready], self._line[ready:]
        word: list[Piece] = []
        for piece, style in inline(text, self._base):
            for part in re.findall(r"\s+|\S+", piece):
                if part.isspace():
                    made += self._word(word)
                    word, self._gap = [], True
                else:
                    word.append((part, style))
        return made + self._word(word)

    def _word(self, word: list[Piece]) -> str:
        if not word:
            return ""
        width = sum(width_of(text) for text, _ in word)
        begins = self._column <= width_of(self._indent)
        before = " " if self._gap and not begins else ""
        if not begins and self._column + len(before) + width > self._width:
            mark = styled(self._indent, DIM) if self._indent.strip() else self._indent
            before, self._column = f"\n{mark}", width_of(self._indent)
        else:
            self._column += len(before)
        self._column += width
        self._gap = False
        return before + "".join(styled(text, style) for text, style in word)

    def _table(self) -> str:
        """Return the table that ended, in columns; as it was written if it is none or too wide."""
        lines, self._rows = self._rows, []
        if not lines:
            return ""
        rows = [_cells(line) for line in lines]
        if len(lines) < 2 or not _DELIMITER.match(lines[1]):
            return "".join(f"{line}\n" for line in lines)
        del rows[1]
        count = max(map(len, rows))
        padded = [[*row, *[""] * (count - len(row))] for row in rows]
        cells = [[list(inline(cell, "")) for cell in row] for row in padded]
        widths = [max(_width(row[place]) for row in cells) for place in range(count)]
        if sum(widths) + 3 * (count - 1) > self._width:
            return "".join(f"{line}\n" for line in lines)
        made = []
        for number, row in enumerate(cells):
            line = styled(" │ ", DIM).join(
                "".join(styled(text, style or ("" if number else BOLD)) for text, style in cell)
                + " " * (widths[place] - _width(cell))
                for place, cell in enumerate(row)
            )
            made.append(line.rstrip(" ") + "\n")
            if number == 0:
                made.append(styled("─┼─".join("─" * width for width in widths), DIM) + "\n")
        return "".join(made)


def _width(cell: list[Piece]) -> int:
    return sum(width_of(text) for text, _ in cell)


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|")
    inner = inner.removesuffix("|") if not inner.endswith("\\|") else inner
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _certain(text: str) -> int:
    """Return how much of an unfinished line can be shown: whole words, no open emphasis or link."""
    place = end = 0
    while place < len(text):
        found = _at(text, place)
        if found is not None:
            place = found[0]
        elif text[place] in _SPECIAL and _OPEN.match(text, place) and _can_open(text, place):
            if len(text) - place <= HELD_MAX:
                break
            place += 1
        else:
            place += 1
            if text[place - 1].isspace():
                end = place
    return end


def inline(text: str, base: str) -> Iterator[Piece]:
    """Yield the pieces of a text with their styles.

    >>> list(inline("a **b** [c](http://d)", ""))
    [('a ', ''), ('b', '1'), (' ', ''), ('c', '4'), (' (http://d)', '2')]
    """
    plain = ""
    place = 0
    while place < len(text):
        found = _at(text, place)
        if found is None:
            plain += text[place]
            place += 1
            continue
        if plain:
            yield plain, base
            plain = ""
        place, pieces = found
        for piece, style in pieces:
            yield piece, ";".join(one for one in (base, style) if one)
    if plain:
        yield plain, base


def _at(text: str, place: int) -> tuple[int, list[Piece]] | None:
    """Return the end and the pieces of an emphasis, code, link or escape that begins at a place."""
    if text[place] not in _SPECIAL:
        return None
    if text[place] == "\\":
        after = text[place + 1 : place + 2]
        # Only punctuation: a backslash before a letter shows an escaped control character.
        return (place + 2, [(after, "")]) if after in set("`*_~[]()#|\\<>!{}+-.") else None
    if link := _LINK.match(text, place):
        label, address = link[2], link[3]
        if not address or label == address:
            return link.end(), [(label or address, UNDERLINED)]
        return link.end(), [(label, UNDERLINED), (f" ({address})", DIM)]
    if not _can_open(text, place):
        return None
    for form, style in _INLINE:
        if match := form.match(text, place):
            if style == CODE:
                return match.end(), [(match[2], CODE)]
            return match.end(), list(inline(match[2], style))
    return None


def _can_open(text: str, place: int) -> bool:
    """Return whether a mark can begin an emphasis; an underscore within a word is a letter."""
    return text[place] != "_" or place == 0 or not text[place - 1].isalnum()
