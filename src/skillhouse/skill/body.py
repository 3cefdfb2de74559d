"""The placeholders and commands to run in a skill's body, and which commands need no shell.

Placeholders are Claude Code's, for when a person invokes a skill. Source: reference of the
extensions, "Substitutions" and "Dynamic context". Nothing is filled on load, and no profile does
this unless it or the user turns it on (`Extensions`). This file finds and fills; it runs nothing.

Also the commands and tools that a body mentions, and the blocks that were not judged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import SkillhouseError
from skillhouse.floor.regex import regex

COMMAND_MAX = 4_096
"""Characters of a command that is looked at; `plain_words` takes no longer one for plain."""

STATEMENT_LINES, STATEMENT_CHARS = 60, 8_192
"""Lines and characters of a shell's block that are looked at for the end of one statement."""
LOOKS_MAX = 500
"""Such looks at one body; what follows is taken line by line."""

# What follows backticks holds none (CommonMark 4.5), or a line of inline code would open a block.
_FENCE = regex(r"^ {0,3}(`{3,}(?=[^`]*$)|~{3,})[ \t]*(\S*)")


def plain_words(command: str) -> tuple[str, ...] | None:
    """Return the argv of a command that no shell is needed for, or None.

    Words may be quoted; anything a shell would expand, redirect or join makes it not plain.

    >>> plain_words('curl -s "wttr.in/Tokyo?format=3"')
    ('curl', '-s', 'wttr.in/Tokyo?format=3')
    """
    if len(command) > COMMAND_MAX or "\n" in command or "\0" in command:
        return None
    if _SAFE.fullmatch(command) is None:
        return None
    lexer = shlex.shlex(command, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words = tuple(lexer)
    # With `=` in it the first word would be an assignment.
    return words if words and "=" not in words[0] else None


# Each alternative begins with characters of its own and none is repeated inside the repetition, so
# that there is one way only to match a text, and a text that fails does so at once.
_SAFE = regex(
    r"""(?: [^\s'"\\$`;&|<>(){}\[\]*?~\#!]  # nothing that a shell treats specially
          | '[^']*'                          # everything literal
          | "[^"\\$`!]*"                     # no expansion inside
          | (?<=[^\s=:])~                    # special at the start of a word or value
          | (?<=\S)\#                        # special at the start of a word
          | [ \t] )*""",
    re.VERBOSE,
)


ARGUMENTS_MAX = 65_536
"""Characters of the arguments that a person gives."""
COMMANDS_MAX = 20
FILLED_MAX = 1_048_576
"""Characters that all places of one body are filled with."""

_PLACE = regex(
    r"\$ARGUMENTS\[(?P<index>\d{1,3})\]|\$(?P<all>ARGUMENTS)\b|\$(?P<position>\d{1,3})\b"
    r"|\$\{(?P<setting>CLAUDE_SKILL_DIR|CLAUDE_SESSION_ID)\}|\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)\b"
)
_INLINE_COMMAND = regex(r"(?<!\S)!`([^`\n]+)`")
_BLOCK = "```!"
_MARK = regex("\ue000(\\d+)\ue001")
"""Marks a place while a command is split; private use, so that it means nothing to a shell."""


class SubstitutionError(SkillhouseError):
    """A body has so many places for such long arguments that no person could read the result."""


class CommandPlace(Struct, frozen=True):
    """A command in a body that is to run before the model sees the text."""

    start: int
    end: int
    """The part of the text that the output takes the place of."""
    command: str
    """A line, or the lines of a block."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The commands, one a line; empty lines and comments are none."""
        lines = (line.strip() for line in self.command.split("\n"))
        return tuple(line for line in lines if line and not line.startswith("#"))


class PlaceholderSubstitution:
    """Fills the places of one invocation; what is filled in is never looked at again."""

    def __init__(
        self,
        arguments: str,
        *,
        directory: Path,
        session: str = "",
        names: Sequence[str] = (),
        positions_from: int = 0,
    ) -> None:
        self._arguments = arguments
        self._words = _split(arguments)
        self._settings = {"CLAUDE_SKILL_DIR": str(directory), "CLAUDE_SESSION_ID": session}
        self._named = {name: self._word(at) for at, name in enumerate(names)}
        self._first = positions_from
        self._filled = 0
        self.is_used = False
        """Whether any place took an argument."""

    def text(self, part: str) -> str:
        """Return a part of the body, its places filled; SubstitutionError beyond `FILLED_MAX`."""
        return _PLACE.sub(self._fill, part)

    def words(self, command: str) -> tuple[str, ...] | None:
        """Return the argv of a command, its places filled; None where it would need a shell.

        The command is taken apart as its author wrote it, so that an argument is part of one word
        whatever is in it, and the program is never named by an argument.
        """
        values: list[str] = []

        def marked(found: re.Match[str]) -> str:
            if found["name"] and found["name"] not in self._named:
                return found[0]
            values.append(self._fill(found))
            return f"\ue000{len(values) - 1}\ue001"

        if "\ue000" in command or "\ue001" in command:
            return None
        words = plain_words(_PLACE.sub(marked, command))
        if words is None or _MARK.search(words[0]):
            return None
        return tuple(_MARK.sub(lambda found: values[int(found[1])], word) for word in words)

    def rest(self) -> str:
        """Return the text for the end: the arguments, where no place took any."""
        if self.is_used or not self._arguments:
            return ""
        return f"\n\nARGUMENTS: {self._arguments}\n"

    def _fill(self, place: re.Match[str]) -> str:
        value = self._value(place)
        self._filled += len(value)
        if self._filled > FILLED_MAX:
            raise SubstitutionError(
                f"expected at most {FILLED_MAX} characters in the places of this skill, got more"
            )
        return value

    def _value(self, place: re.Match[str]) -> str:
        if place["setting"]:
            return self._settings[place["setting"]]
        if place["name"] and place["name"] not in self._named:
            return place[0]
        self.is_used = True
        if place["all"]:
            return self._arguments
        if place["name"]:
            return self._named[place["name"]]
        if place["index"]:
            return self._word(int(place["index"]))
        return self._word(int(place["position"]) - self._first)

    def _word(self, at: int) -> str:
        return self._words[at] if 0 <= at < len(self._words) else ""


def substitute(
    body: str,
    arguments: str,
    *,
    directory: Path,
    session: str = "",
    names: Sequence[str] = (),
    positions_from: int = 0,
) -> str:
    """Return `body` with its placeholders filled; what is filled in is not looked at again.

    `$ARGUMENTS` is all of the arguments as written, `$0` and `$ARGUMENTS[0]` the first one, split
    as a shell would (`positions_from` 1 makes it `$1`); `$name` is one by its place in `names`, and
    one that was not given is empty. `${CLAUDE_SKILL_DIR}` is the directory. Where no place takes an
    argument, those given are added at the end. SubstitutionError: the result is too long.

    >>> substitute("Fix $0 in $ARGUMENTS", "bug 'the file'", directory=Path("/s"))
    "Fix bug in bug 'the file'"
    """
    filling = PlaceholderSubstitution(
        arguments,
        directory=directory,
        session=session,
        names=names,
        positions_from=positions_from,
    )
    text = filling.text(body)
    rest = filling.rest()
    return f"{text.rstrip()}{rest}" if rest else text


def argument_names(fields: Mapping[str, object]) -> tuple[str, ...]:
    names = fields.get("arguments")
    if isinstance(names, str):
        return tuple(names.split())
    if isinstance(names, list):
        return tuple(item for item in names if isinstance(item, str))
    return ()


def find_commands(body: str) -> Iterator[CommandPlace]:
    """Yield the commands that a body, as its author wrote it, wants run: !`…` and ```! blocks.

    The `!` begins a line or follows a blank. What any other fenced block holds is an example, and a
    block that is not closed holds nothing.

    INVARIANT: this is asked of the body before anything is filled in, so that no argument can
    become a command.
    """
    fence, opened, at = "", 0, 0
    block: list[str] | None = None
    for line in body.split("\n"):
        end = at + len(line)
        if fence:
            bare = line.strip()
            if len(bare) >= len(fence) and not bare.strip(fence[0]):
                if block is not None:
                    yield CommandPlace(opened, end, "\n".join(block).strip())
                fence, block = "", None
            elif block is not None:
                block.append(line)
        elif line.rstrip() == _BLOCK:
            fence, opened, block = "```", at, []
        elif match := _FENCE.match(line):
            fence = match[1]
        else:
            for inline in _INLINE_COMMAND.finditer(line):
                yield CommandPlace(at + inline.start(), at + inline.end(), inline[1].strip())
        at = end + 1


def _split(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:
        # A quote that is not closed; the words are as they stand.
        return arguments.split()


MENTIONS_MAX = 200
"""Mentions taken from one body; a block with more is counted as not judged."""

# What follows backticks holds none (CommonMark 4.5), or a line of inline code would open a block.
_CODE_FENCE = regex(r"^([ \t]*)(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)")
_SHELLS = frozenset(
    "bash sh shell console shell-session bash-session sh-session shellsession shellscript zsh dash "
    "ksh fish terminal".split()
)
_UNMARKED = frozenset(["", "text", "txt", "plain", "plaintext", "none", "command", "commands"])
_PROMPT = regex(r"^(?:\$|%|>) +")
_COMMENT = regex(r"^#(?!!)")
_INLINE = regex(r"(?<!`)(`{1,2})(?!`)([^`\n]+)\1(?!`)|<code>([^<\n]+)</code>")
_QUOTE = regex(r"^(?: {0,3}> ?)+")
_ITEM = regex(r"^([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+")
_PRE = regex(r"<(?:pre|script)\b")
_LABEL = regex(r"^[{.\s]*([A-Za-z0-9_+#-]*)")
_ASSIGNMENT = regex(r"^[A-Za-z_][A-Za-z0-9_]*=\S*$")
_PATH = regex(r"^(?:\.{1,2}|~)?/[^\s/]|^[\w.-]+/\S*\.(?:sh|py|js|rb|pl|bash)$")
_OPENS = regex(r"<<|^\s*(?:if|for|while|until|case|select|function)\s|[({]\s*$|\n")
_ARGUMENT = regex(r"\s(?:-|[./~$\"'<>|]|\S*[/.=:|;&>])")

_MORE_PROGRAMS = frozenset(
    "sudo su doas eval exec source export cd shutdown reboot halt poweroff mkfs fdisk parted mount "
    "umount crontab passwd useradd usermod userdel adduser iptables nft chroot insmod modprobe dd "
    "shred wipefs at batch sysctl service powershell pwsh cmd socat ncat netcat security yum dnf "
    "pacman apk snap flatpak port winget choco scoop tsx crictl nerdctl vi vim nano trap set unset "
    "alias read wait bg fg jobs kill pushd popd umask ulimit".split()
)
"""Programs and words of the shell that have no grammar and still begin a command."""


class Mention(Struct, frozen=True, kw_only=True):
    """A command line or tool name in a body; it says what could be tried, and grants nothing."""

    kind: str
    """command or tool."""
    text: str
    line: int
    """Line in the body, from 1."""


class UnjudgedBlock(Struct, frozen=True, kw_only=True):
    """A block of the body with at least one line that was not taken for a command."""

    line: int
    """Line in the body where the block begins, from 1."""
    label: str
    """What its fence calls it, "indented", "html", or empty."""


class BodyMentions(Struct, frozen=True, kw_only=True):
    """What was found in one body."""

    found: tuple[Mention, ...]
    unjudged: tuple[UnjudgedBlock, ...]


def find_mentions(
    body: str,
    tools: frozenset[str] = frozenset(),
    *,
    is_program: Callable[[str], bool] = lambda _: False,
    is_whole: Callable[[str], bool] = lambda _: True,
) -> BodyMentions:
    """Return the commands of the body, and each of `tools` that it names in backticks.

    Every line of a shell's block is a command. Elsewhere (a block without a language, an indented
    one, inline code) a command is what begins with a known program or a path of a script. Lines
    that end in a backslash are joined, and in a shell's block those of one `if`, `for`, `case`,
    function, here-document or quoted text, up to STATEMENT_LINES.

    Args:
        is_program: Whether a name is one of a known program.
        is_whole: Whether a text is a whole statement of a shell. Without it no lines are joined
            but after a backslash.
    """
    finder = _Finder(tools, is_program, is_whole)
    for number, line in enumerate(body.split("\n"), start=1):
        finder.take(number, line)
    finder.end()
    return BodyMentions(found=tuple(finder.mentions), unjudged=tuple(finder.unjudged))


def _may_go_on(text: str) -> bool:
    """Whether lines may be the beginning of a statement, or have a quote that is not closed."""
    if text.lstrip().startswith("#"):
        return False
    return bool(_OPENS.search(text) or text.count('"') % 2 or text.count("'") % 2)


class _Finder:
    """Follows the blocks of one body, line by line."""

    def __init__(
        self,
        tools: frozenset[str],
        is_program: Callable[[str], bool],
        is_whole: Callable[[str], bool],
    ) -> None:
        self._tools = tools
        self._is_program = is_program
        self._is_whole = is_whole
        self.mentions: list[Mention] = []
        self.unjudged: list[UnjudgedBlock] = []
        self._seen: set[tuple[str, str]] = set()
        self._fence, self._is_deep, self._is_quoted = "", False, False
        self._kind, self._label = "", ""
        """Of the open block: shell, unmarked, indented or other; empty outside."""
        self._begin = 0
        self._is_judged = True
        self._pending, self._pending_line = "", 0
        self._looks = 0
        self._is_after_blank = True
        self._list_indent = 0

    def take(self, number: int, line: str) -> None:
        is_quoted = _QUOTE.match(line) is not None
        if is_quoted and (not self._fence or self._is_quoted):
            line = _QUOTE.sub("", line)
        if self._fence:
            match = _CODE_FENCE.match(line)
            if match and self._closes(match[1], match[2], match[3]):
                self._close()
                self._fence = ""
                self._is_after_blank = True
            else:
                self._block_line(number, line)
            return
        bare = _ITEM.sub("", line)
        opened = _CODE_FENCE.match(bare)
        if opened:
            self._close()
            label = _LABEL.match(opened[3])
            self._label = label[1].casefold() if label else ""
            self._fence = opened[2]
            self._is_deep = bare != line or len(opened[1].expandtabs(4)) > 3
            self._is_quoted = is_quoted
            kind = "unmarked" if self._label in _UNMARKED else "other"
            self._open("shell" if self._label in _SHELLS else kind, number)
            return
        self._outside(number, line)

    def end(self) -> None:
        self._close()

    def _closes(self, indent: str, fence: str, rest: str) -> bool:
        # A fence in a list is closed at any depth; one at the margin at most 3 columns in, or
        # what a page shows as part of a block would be read as prose here.
        near = self._is_deep or len(indent.expandtabs(4)) <= 3
        return near and fence.startswith(self._fence) and not rest.strip()

    def _outside(self, number: int, line: str) -> None:
        text = line.strip()
        wide = line.expandtabs(4)
        depth = len(wide) - len(wide.lstrip())
        if not text:
            self._is_after_blank = True
            return
        item = _ITEM.match(line)
        is_code = depth >= 4 and not item and (self._is_after_blank or self._kind == "indented")
        if is_code:
            if self._kind != "indented":
                self._open("indented", number)
                self._label = "indented"
            # Below an item of a list this may be prose that goes on.
            self._block_line(number, line, is_prose=depth < self._list_indent + 4)
            self._is_after_blank = False
            return
        self._close()
        if item:
            self._list_indent = len(item[0].expandtabs(4))
        elif depth == 0 and self._is_after_blank:
            self._list_indent = 0
        self._is_after_blank = text.startswith("#")
        if "<" in text and _PRE.search(text.casefold()):
            self.unjudged.append(UnjudgedBlock(line=number, label="html"))
        self._inline(number, line)

    def _inline(self, number: int, line: str) -> None:
        if "`" not in line and "<" not in line:
            return
        for inline in _INLINE.finditer(line):
            text = (inline[2] or inline[3]).strip()
            if text in self._tools:
                self._add("tool", text, number)
                continue
            command = _PROMPT.sub("", text)
            # One word names a program, a file or a value; with more it is a command.
            if len(command.split()) > 1 and self._begins_command(command):
                self._add("command", command, number)

    def _open(self, kind: str, number: int) -> None:
        self._kind, self._begin = kind, number
        self._is_judged = kind != "other"

    def _close(self) -> None:
        self._line_by_line()
        if self._kind and not self._is_judged:
            self.unjudged.append(UnjudgedBlock(line=self._begin, label=self._label))
        self._kind = self._label = ""

    def _block_line(self, number: int, line: str, *, is_prose: bool = False) -> None:
        if self._kind == "other":
            return
        self._pending_line = self._pending_line if self._pending else number
        self._pending += line
        # In a comment the backslash joins nothing, and what follows is a command.
        if self._pending.endswith("\\") and not self._pending.lstrip().startswith("#"):
            self._pending = self._pending[:-1] + " "
            return
        if self._kind == "shell" and self._goes_on():
            self._pending += "\n"
        else:
            self._command(is_prose=is_prose)

    def _goes_on(self) -> bool:
        """Whether the statement so far needs the next line; what gets too long is no statement."""
        text = self._pending
        if not _may_go_on(text):
            return False
        self._looks += 1
        is_short = text.count("\n") < STATEMENT_LINES and len(text) <= STATEMENT_CHARS
        if is_short and self._looks <= LOOKS_MAX:
            return not self._is_whole(text.strip())
        self._line_by_line()
        return False

    def _line_by_line(self) -> None:
        """Take what waits for its end, which does not come, as the lines that it is."""
        lines, first = self._pending.split("\n"), self._pending_line
        for number, line in enumerate(lines, start=first):
            self._pending, self._pending_line = line, number
            self._command(is_prose=False)

    def _command(self, *, is_prose: bool) -> None:
        text, self._pending = self._pending.strip(), ""
        if not text:
            return
        has_prompt = _PROMPT.match(text) is not None
        command = _PROMPT.sub("", text) if has_prompt else text
        if not command or _COMMENT.match(command):
            return
        if self._kind == "shell" and command.startswith("#!"):
            return  # Of a script, whose lines follow.
        if (
            self._kind == "shell"
            or has_prompt
            or (self._begins_command(command) and (not is_prose or _ARGUMENT.search(command)))
        ):
            self._add("command", command, self._pending_line)
        elif is_prose:
            # Prose of a list: what it names in backticks still counts.
            self._inline(self._pending_line, command)
        else:
            self._is_judged = False

    def _begins_command(self, text: str) -> bool:
        words = text.split()
        while len(words) > 1 and _ASSIGNMENT.match(words[0]):
            words = words[1:]
        first = words[0].strip("({!").rstrip(";|&")
        if _PATH.match(first):
            return True
        return first in _MORE_PROGRAMS or self._is_program(first)

    def _add(self, kind: str, text: str, line: int) -> None:
        if (kind, text) in self._seen:
            return
        if len(self.mentions) == MENTIONS_MAX:
            if self._kind:
                self._is_judged = False
            elif not self.unjudged or self.unjudged[-1].line != line:
                self.unjudged.append(UnjudgedBlock(line=line, label="inline"))
            return
        self._seen.add((kind, text))
        self.mentions.append(Mention(kind=kind, text=text, line=line))
