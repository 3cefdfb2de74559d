"""The blocks of a guide, and the one rule by which a test runs them.

A fence names its language. `bash` is run as it is; each of its commands must succeed. `console` has
`$ ` before a command (`> ` before its further lines) and then what it prints. `python` is a
program. All others are text; a path in a line before the block that ends with `:`, or in a comment
on the block's first line, is a file with that content. Other `toml` belongs to the user's
configuration, which grows by each block and has no fault, unless it is of a pyproject.toml. The
blocks of a page are one walk: an empty home, in `~/work`; `/home/me` is the home.

In what is shown `…` is anything within a line, and on a line of its own any lines. An id such as
`5c1f…` is what the command printed there; `5c1f` in a later command or output is that id.

A comment on the line before a fence is about the block:

- `<!-- not run: REASON -->` no test runs it
- `<!-- run by: PATH -->` the test in that file runs it, with stand-ins
- `<!-- exit 1: REASON -->` some of its commands end with 1
- `<!-- until: TEXT -->` it goes on running, and the next block follows when it printed TEXT

A comment `<!-- set-up:` has lines of bash that run there: what the reader has already.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Installed = Callable[[tuple[str, ...]], Path]
"""Returns the programs of an environment that holds skillhouse with some extras, and no more."""
ROOT = Path(__file__).resolve().parents[2]
README = "README.md"
GUIDES = sorted(path.name for path in (ROOT / "docs/guides").glob("*.md"))
NAMES = (README, *(f"docs/guides/{name}" for name in GUIDES))
COMMANDS = ("bash", "console", "python")
TEXTS = ("text", "toml", "json", "markdown", "js", "ts")

_PARTS = re.compile(
    r"^<!-- set-up:\n(?P<setup>.*?)^-->"
    r"|^(?P<indent> *)(?:<!-- (?P<mark>[a-z0-9 ]+): (?P<reason>[^\n]*?) -->\n *)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"`(?P<path>~?[\w./-]*[./][\w.-]+)`[^`\n]*:\n\n?$")
_FIRST_LINE = re.compile(r"# (?P<path>~/[\w./-]+)\n")


INSTALL = re.compile(
    r"(?P<how>pip|uv tool|pipx) install '?[.\w/]*?(?:skillhouse|\.)"
    r"(?:\[(?P<extras>[a-z,-]+)\]'|(?=['\s`]))(?P<packages>(?: [a-z][a-z0-9-]*)*)"
    r"|extra `(?P<extra>[a-z-]+)`|distribution `(?P<distribution>skillhouse-[a-z]+)`"
)
"""A line that installs skillhouse, or the name of an extra: what follows is run with that alone.

With a distribution of ours it is run besides."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a guide, or lines of bash that come before one."""

    page: str
    line: int
    language: str
    """That of the fence; "set-up" for lines in a comment."""

    text: str
    mark: str = ""
    """`not run`, `run by`, `exit 1`, `until`, or nothing."""

    reason: str = ""
    """What is behind the colon of the mark."""

    file: str | None = None
    """The file whose content this is."""

    extras: tuple[str, ...] = ("all",)
    """What the last install line above it brings for commands; the README's first, without one.

    A package that the line names besides is `+NAME`.
    """

    python_extras: tuple[str, ...] = ()
    """Likewise for programs; without a line above, the README's line for a project brings none."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    extras, python_extras = Block.extras, Block.python_extras
    needed: set[str] = set()
    passed = 0
    for part in _PARTS.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        for install in INSTALL.finditer(text, passed, part.start()):
            if install["distribution"]:
                extras = (*extras, f"+{install['distribution']}")
                continue
            if install["extra"]:
                needed |= {install["extra"]}
                extras = python_extras = tuple(sorted(needed))
                continue
            needed = set(filter(None, (install["extras"] or "").split(",")))
            some = (*sorted(needed), *(f"+{one}" for one in install["packages"].split()))
            if install["how"] == "pip":
                python_extras = some
            # An environment of a project has the command too, where the page names no other line.
            if install["how"] != "pip" or page != README:
                extras = some
        passed = part.start()
        if part["setup"]:
            found.append(Block(page=page, line=line, language="set-up", text=part["setup"]))
            continue
        inside = re.sub(rf"^{part['indent']}", "", part["text"], flags=re.MULTILINE)
        file = _FILE.search(text, max(0, part.start() - 300), part.start())
        named = _FIRST_LINE.match(inside)
        at = named["path"] if named else file["path"] if file else None
        if part["language"] == "toml" and at is None and "[project]" not in inside:
            at = "~/.config/skillhouse/config.toml"
        found.append(
            Block(
                page=page,
                line=line,
                language=part["language"],
                text=inside,
                mark=part["mark"] or "",
                reason=part["reason"] or "",
                file=at if part["language"] not in ("bash", "console") else None,
                extras=extras,
                python_extras=python_extras,
            )
        )
    return found


def steps(text: str) -> list[tuple[str, str]]:
    """Return the commands of a `console` block, each with what is shown of its output."""
    found = []
    for step in filter(None, re.split(r"^\$ ", text, flags=re.MULTILINE)):
        lines = step.split("\n")
        more = 1
        while more < len(lines) and lines[more].startswith("> "):
            more += 1
        command = "\n".join([lines[0], *(line[2:] for line in lines[1:more])])
        found.append((command, "\n".join(lines[more:]).rstrip("\n")))
    return found


def commands_of(block: Block) -> list[str]:
    """Return the commands of a block; the text of a here-document belongs to its command."""
    if block.language == "console":
        return [command for command, _ in steps(block.text)]
    one = r"^[^\n]*<<'EOF'\n(?:[^\n]*\n)*?EOF$|^[^\n]+$"
    return re.findall(one, block.text, re.MULTILINE)


def escaped(shown: str) -> str:
    """Return the pattern of a text in which a number of further clients is any number.

    How many read a folder changes with each client that becomes known.
    """
    return re.sub(r"\band\\ \d+\\ more\b", r"and\\ \\d+\\ more", re.escape(shown))


class Names:
    """What stands in the place of a page's ids."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}

    def put(self, command: str) -> str:
        """Return a command with the ids that were printed."""
        for shown, real in self.ids.items():
            command = re.sub(rf"\b{shown}\b", real, command)
        return command

    def match(self, shown: str, printed: str) -> bool:
        """Whether a command printed what the page shows; keeps the ids that it printed."""
        parts = []
        for line in shown.strip("\n").split("\n"):
            if line.strip() == "…":
                parts.append(r"(?:[^\n]*\n)*?")
            else:
                parts.append(self._pattern(line.rstrip()) + r"\n")
        found = re.fullmatch("".join(parts), printed.strip("\n") + "\n")
        if found is None:
            return False
        self.ids |= {name[3:]: text for name, text in found.groupdict().items() if text}
        return True

    def _pattern(self, line: str) -> str:
        made = []
        known: set[str] = set()
        for part in re.split(r"((?:\b[0-9a-f]{4}\b|\b01[0-9A-Z]{2}\b)?…|\b[0-9a-f]{4}\b)", line):
            name = part.removesuffix("…")
            if part == "…":
                made.append(r"[^\n]*")
            elif part.endswith("…") and name in known | set(self.ids):
                made.append(r"[0-9A-Za-z]+")
            elif part.endswith("…"):
                known.add(name)
                made.append(rf"(?P<id_{name}>[0-9A-Za-z]+)")
            elif part in self.ids:
                made.append(re.escape(self.ids[part]))
            else:
                made.append(escaped(part))
        return "".join(made)
