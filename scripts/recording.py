"""Records the first minutes: real commands in an empty home, as docs/images/first-minutes.svg.

`./x docs recording` writes it. What a machine decides, its kernel and Python, is replaced; all else
is what the commands print. The picture moves by CSS alone, in a loop; where nothing may move it
shows one screen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from scripts.terminal import COLUMNS, Terminal, short_home

PICTURE = Path(__file__).resolve().parents[1] / "docs/images/first-minutes.svg"
_NEW = 'skillhouse new standup --description "Write a stand-up note. Use when asked for a status."'
_DOCTOR = "skillhouse doctor --client codex --client claude-code"
_CALL = """skillhouse call exec --args '{"command": "git", "params": ["branch"]}'"""
SCREENS = (
    ("skillhouse list", 'skillhouse search "will it rain in Tokyo"'),
    (_NEW, "skillhouse validate ~/.agents/skills/standup"),
    (_DOCTOR,),
    ("skillhouse export standup --to claude-code --link", _DOCTOR),
    ('git init --quiet && git commit --quiet --allow-empty -m "Begin"', _CALL),
    ('skillhouse policy allow exec "git branch *"', _CALL),
)
"""The commands, by what is on the screen together."""

STILL = 3
"""The screen that is shown where nothing moves."""

_MACHINE = re.compile(r"^(skillhouse [\d.]+), .*$", re.MULTILINE)
_COST = re.compile(r"\babout \d+(?= tokens|:)")
"""What a list costs: it names files, and their places are longer on some machines."""
_SPAN = re.compile(r"\x1b\[([\d;]*)m")
_OTHER = re.compile(r"\x1b\[[0-9;?]*[A-HJ-Za-ln-z]|\r")
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "34": "c", "35": "c", "36": "c"}

_CHAR, _LINE, _SIDE, _TOP = 8.4, 19.0, 18.0, 46.0
_TYPED_SECONDS, _TYPED_MAX, _READ_SECONDS, _READ_MAX = 0.028, 1.8, 0.22, 4.5
_STYLE = """
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#24292f}
.w,.k{fill:#fbfbf9}.w{stroke:#c9ccd1}.bar{fill:#e9eaec}
.b{font-weight:700}.d{fill:#5c636b}.p{fill:#57606a}.t{font-size:13px;fill:#57606a}
.r{fill:#b3261e}.g{fill:#1a6e2e}.y{fill:#8a5a00}.c{fill:#0a5c8f}
.s{visibility:hidden}.still{visibility:visible}
@media(prefers-color-scheme:dark){
text{fill:#d7dce2}.w,.k{fill:#1b2027}.w{stroke:#3b434d}.bar{fill:#2a313a}
.d{fill:#a3abb5}.p,.t{fill:#9aa4af}.r{fill:#ff9a91}.g{fill:#7ed492}.y{fill:#e5b95c}.c{fill:#7cc4f2}
}
@media(prefers-reduced-motion:reduce){.s,.k{animation:none!important}}
"""


@dataclass(frozen=True, slots=True)
class Shown:
    """A command on the screen with what it printed, escapes of colours and styles included."""

    command: str
    output: str


def record(programs: Path) -> tuple[tuple[Shown, ...], ...]:
    """Type the commands in an empty home, and return the screens."""
    with short_home() as home:
        terminal = Terminal(home, programs)
        try:
            return tuple(
                tuple(Shown(command, _printed(terminal, command)) for command in screen)
                for screen in SCREENS
            )
        finally:
            terminal.close()


def _printed(terminal: Terminal, command: str) -> str:
    done = terminal.run(command)
    if done.status not in (0, 1):
        raise RuntimeError(f"{command}: exit code {done.status}: {done.output}")
    text = _OTHER.sub("", done.raw).strip("\n")
    text = _COST.sub("about 350", text)
    return _MACHINE.sub(r"\1, Linux x86_64, Python 3.13", text)


def drawn(screens: tuple[tuple[Shown, ...], ...]) -> str:
    """Return the SVG of some screens."""
    parts: list[str] = []
    rules: list[str] = []
    starts, total = _times(screens)
    rows = max(sum(len(_lines(shown)) + 1 for shown in screen) for screen in screens)
    for number, screen in enumerate(screens):
        row, still = 0, " still" if number == STILL else ""
        ended = starts[number + 1][0].typed if number + 1 < len(screens) else total
        for place, shown in enumerate(screen):
            name, times = f"{number}{place}", starts[number][place]
            lines, heads = _lines(shown), _rows(shown.command)
            parts.append(f'<g class="s a{name}{still}">{_text(lines[:heads], row, prompt=True)}')
            parts += [_cover(name, row + line, indent=2 * (line == 0)) for line in range(heads)]
            parts.append(f'</g><g class="s b{name}{still}">{_text(lines[heads:], row + heads)}</g>')
            rules += [
                _visible(f"a{name}", times.typed, ended, total),
                _typing(f"k{name}", times, len(shown.command), total),
                _visible(f"b{name}", times.printed, ended, total),
            ]
            row += len(lines) + 1
    width, height = 2 * _SIDE + COLUMNS * _CHAR, _TOP + rows * _LINE + 4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-labelledby="t">\n'
        '<title id="t">The first minutes with skillhouse in a terminal</title>\n'
        f"<style>{_STYLE}{''.join(rules)}</style>\n"
        f'<clipPath id="i"><rect x="1" y="1" width="{width - 2:.0f}" height="{height - 2:.0f}" '
        'rx="9"/></clipPath>\n'
        f'<rect class="w" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" '
        'rx="9"/>\n<g clip-path="url(#i)">\n'
        f'<rect class="bar" x="1" y="1" width="{width - 2:.0f}" height="25"/>'
        f'<text class="t" x="{_SIDE}" y="18">~/work</text>\n' + "\n".join(parts) + "\n</g></svg>\n"
    )


@dataclass(frozen=True, slots=True)
class _Times:
    """When a command begins to be typed, ends, and has printed, in seconds of the loop."""

    typed: float
    ended: float
    printed: float


def _times(screens: tuple[tuple[Shown, ...], ...]) -> tuple[list[list[_Times]], float]:
    """Return the times of each command, and the length of the loop."""
    found, clock = [], 0.5
    for screen in screens:
        times = []
        for shown in screen:
            ended = clock + min(len(shown.command) * _TYPED_SECONDS, _TYPED_MAX)
            times.append(_Times(clock, ended, ended + 0.3))
            printed = len(_lines(shown)) - _rows(shown.command)
            clock = ended + 1.1 + min(printed * _READ_SECONDS, _READ_MAX)
        found.append(times)
    return found, clock


def _rows(command: str) -> int:
    return -(-(len(command) + 2) // COLUMNS)


def _cover(name: str, row: int, *, indent: int) -> str:
    """Return what hides a line of a command until it is typed."""
    x, y = _SIDE + indent * _CHAR, _TOP + row * _LINE - 14
    size = f'width="{COLUMNS * _CHAR:.1f}" height="{_LINE:.0f}"'
    return f'<rect class="k k{name}" x="{x:.1f}" y="{y:.1f}" {size}/>'


def _visible(name: str, start: float, end: float, total: float) -> str:
    return (
        f".{name}{{animation:{name} {total:.1f}s step-end infinite}}"
        f"@keyframes {name}{{0%{{visibility:hidden}}{100 * start / total:.2f}%"
        f"{{visibility:visible}}{min(100 * end / total, 99.99):.2f}%{{visibility:hidden}}}}\n"
    )


def _typing(name: str, times: _Times, letters: int, total: float) -> str:
    """Return how the cover of a command moves away, a letter at a time."""
    steps = min(letters, COLUMNS)
    away = f"transform:translateX({steps * _CHAR:.1f}px)"
    start, end = 100 * times.typed / total, 100 * times.ended / total
    return (
        f".{name}{{{away};animation:{name} {total:.1f}s linear infinite}}"
        f"@keyframes {name}{{0%{{transform:none}}{start:.2f}%{{transform:none;"
        f"animation-timing-function:steps({steps})}}{end:.2f}%,100%{{{away}}}}}\n"
    )


def _lines(shown: Shown) -> list[list[tuple[str, str]]]:
    """Return the lines of a command and its output, broken where the terminal breaks them."""
    found: list[list[tuple[str, str]]] = []
    for line in (f"$ {shown.command}", *(shown.output.split("\n") if shown.output else ())):
        style, cells = "", []
        for place, part in enumerate(_SPAN.split(line)):
            if place % 2:
                names = [_CLASSES[code] for code in part.split(";") if code in _CLASSES]
                style = " ".join(names)
            else:
                cells += [(character, style) for character in part]
        starts = range(0, max(len(cells), 1), COLUMNS)
        found += [_runs(cells[start : start + COLUMNS]) for start in starts]
    return found


def _runs(cells: list[tuple[str, str]]) -> list[tuple[str, str]]:
    runs: list[tuple[str, str]] = []
    for character, style in cells:
        if runs and runs[-1][1] == style:
            runs[-1] = (runs[-1][0] + character, style)
        else:
            runs.append((character, style))
    return runs


def _text(lines: list[list[tuple[str, str]]], row: int, *, prompt: bool = False) -> str:
    """Return lines of text; each run has its place, so that columns hold in any font."""
    made = []
    for number, line in enumerate(lines):
        y, column = _TOP + (row + number) * _LINE, 0
        for text, style in line:
            pieces = [(text, style)]
            if prompt and number == 0 and column == 0:
                pieces = [("$ ", "p"), (text[2:], "b")]
            elif prompt:
                pieces = [(text, "b")]
            for piece, its in pieces:
                blank = len(piece) - len(piece.lstrip(" "))
                word = piece.strip(" ")
                if word:
                    x, wide = _SIDE + (column + blank) * _CHAR, len(word) * _CHAR
                    kind = f' class="{its}"' if its else ""
                    made.append(
                        f'<text{kind} x="{x:.1f}" y="{y:.0f}" textLength="{wide:.1f}" '
                        'lengthAdjust="spacingAndGlyphs" xml:space="preserve">'
                        f"{escape(word)}</text>"
                    )
                column += len(piece)
    return "".join(made)
