"""The commands and tools that a skill's body mentions, and the blocks that were not judged.

A model reads a command wherever it is written: in a block of a shell, in a block without a
language, indented, in backticks. What is not recognised as a command is counted, never left out.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from skillhouse.floor.regex import regex

MENTIONS_MAX = 200
"""Mentions taken from one body; a block with more is counted as not judged."""

# What follows backticks holds none (CommonMark 4.5), or a line of inline code would open a block.
_FENCE = regex(r"^([ \t]*)(`{3,}(?=[^`]*$)|~{3,})[ \t]*(.*)")
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
) -> BodyMentions:
    """Return the commands of the body, and each of `tools` that it names in backticks.

    Every line of a shell's block is a command. Elsewhere (a block without a language, an indented
    one, inline code) a command is what begins with a known program or a path of a script. Lines
    that end in a backslash are joined; bodies of here-documents pass for commands.

    Args:
        is_program: Whether a name is one of a known program.
    """
    finder = _Finder(tools, is_program)
    for number, line in enumerate(body.split("\n"), start=1):
        finder.take(number, line)
    finder.end()
    return BodyMentions(found=tuple(finder.mentions), unjudged=tuple(finder.unjudged))


class _Finder:
    """Follows the blocks of one body, line by line."""

    def __init__(self, tools: frozenset[str], is_program: Callable[[str], bool]) -> None:
        self._tools = tools
        self._is_program = is_program
        self.mentions: list[Mention] = []
        self.unjudged: list[UnjudgedBlock] = []
        self._seen: set[tuple[str, str]] = set()
        self._fence, self._is_deep, self._is_quoted = "", False, False
        self._kind, self._label = "", ""
        """Of the open block: shell, unmarked, indented or other; empty outside."""
        self._begin = 0
        self._is_judged = True
        self._pending, self._pending_line = "", 0
        self._is_after_blank = True
        self._list_indent = 0

    def take(self, number: int, line: str) -> None:
        is_quoted = _QUOTE.match(line) is not None
        if is_quoted and (not self._fence or self._is_quoted):
            line = _QUOTE.sub("", line)
        if self._fence:
            match = _FENCE.match(line)
            if match and self._closes(match[1], match[2], match[3]):
                self._close()
                self._fence = ""
                self._is_after_blank = True
            else:
                self._block_line(number, line)
            return
        bare = _ITEM.sub("", line)
        opened = _FENCE.match(bare)
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
        depth = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        text = line.strip()
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
        if _PRE.search(text.casefold()):
            self.unjudged.append(UnjudgedBlock(line=number, label="html"))
        self._inline(number, line)

    def _inline(self, number: int, line: str) -> None:
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
        self._command(is_prose=False)
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
        self._command(is_prose=is_prose)

    def _command(self, *, is_prose: bool) -> None:
        text, self._pending = self._pending.strip(), ""
        if not text:
            return
        has_prompt = _PROMPT.match(text) is not None
        command = _PROMPT.sub("", text) if has_prompt else text
        if not command or _COMMENT.match(command):
            return
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
