"""Reads the lines that need no shell, exactly as bash reads them.

Bash's own rules (bash(1), "QUOTING", "SHELL GRAMMAR", "REDIRECTION") for words, lists, pipelines,
redirections, here-documents and assignments of plain text. What is not surely one of these needs a
shell, and is left to the parser of whole scripts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from skillhouse.floor.regex import regex
from skillhouse.permission.plan import Joined, RedirectKind
from skillhouse.permission.raw_line import (
    COMMANDS_MAX,
    NeedsShellError,
    RawCommand,
    RawRedirect,
    Reading,
    UnreadableError,
    Word,
    decode_word,
)
from skillhouse.permission.static_forms import STATIC_TEXT, braced, unrolled
from skillhouse.permission.variables import KnownVariables

REDIRECTS_MAX = 64
"""Redirections of one command; more are denied, as each is a path to look at."""

_BLANKS = regex(r"[ \t]*")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_QUOTED = rf"""
    '[^']*+'
    | \$'(?:[^'\\]|\\.)*+'
    | \\[^\n]
    | "(?: [^"\\`$] | \\. | \${_NAME} | \$\{{{_NAME}\}} | \$(?=["\ /.,:;=+%\]|)&<>}}^~]) )*+"
"""
_WORD = regex(
    rf"""(?: [^ \t\n|&;<>()'"`\\$]++ | {_QUOTED} | \${_NAME} | \$\{{{_NAME}\}}
         | \$(?=[ \t\n|&;<>)]|\Z) )++""",
    re.VERBOSE | re.DOTALL,
)
_DESCRIPTOR = regex(r"[0-9]+(?=[<>])")
_REDIRECT = regex(r"&>>|&>|<<-|<<<|<<|<>|<&|<|>>|>&|>\||>")
_CONNECTOR = regex(r"&&|\|\||\|&|\||;;|;|&|\n")
_ASSIGNMENT = regex(rf"({_NAME})=")
_NAMED_DESCRIPTOR = regex(r"\{.*\}", re.DOTALL)
_DELIMITER = regex(r"(['\"])([A-Za-z0-9_]+)\1|([A-Za-z0-9_]+)")
_RESERVED = frozenset(
    "! { } [[ ]] case coproc do done elif else esac fi for function if in select then until "
    "while".split()
)
"""Words that are no program's name where a command begins (bash(1), "RESERVED WORDS"). `time` is
left out: a program of that name does what the word does."""
_REDIRECTS: dict[str, tuple[RedirectKind, int]] = {
    "<": ("read", 0),
    ">": ("write", 1),
    ">|": ("write", 1),
    ">>": ("append", 1),
    "&>": ("write", 1),
    "&>>": ("append", 1),
    ">&": ("copy", 1),
    "<&": ("copy", 0),
    "<<": ("text", 0),
    "<<<": ("text", 0),
}


def read_line(line: str, environment: Mapping[str, str] | None = None) -> Reading:
    """Return the meaning of a line: a plan where none of it needs a shell.

    Args:
        line: One or several lines of bash.
        environment: The variables that its commands get.

    Raises:
        UnreadableError: it is no valid line, or is nested too deep, or has too many commands.
    """
    try:
        text = unrolled(_joined_lines(line))
        pipelines = _PlainReader(text, KnownVariables(environment or {})).read()
    except NeedsShellError as error:
        # The parser is loaded for a line that needs it, not with the package.
        from skillhouse.permission.line_parser import read_script  # noqa: PLC0415

        return read_script(line, str(error))
    return Reading(pipelines, [command for _, pipeline in pipelines for command in pipeline])


class _PlainReader:
    """Takes a line apart from left to right."""

    def __init__(self, line: str, variables: KnownVariables) -> None:
        self._line = line
        self._at = 0
        self._variables = variables
        self._count = 0
        self._pipelines: list[tuple[Joined, list[RawCommand]]] = []
        self._joined: Joined = ""
        self._pipeline: list[RawCommand] = []
        self._command: RawCommand | None = None
        self._texts: list[tuple[RawRedirect, str, bool]] = []
        """Here-documents whose text begins behind this line: the end of each, and whether it is
        quoted."""
        self._is_sure = True
        """Whether all of this list so far surely succeeds."""
        self._exits = False
        """Whether the line ends where a list fails, by `set -e`."""
        self._fails_inside = False
        """Whether a pipeline fails with each of its commands, by `set -o pipefail`."""
        self._following: Joined = ""
        """How the next list is joined to the one before."""
        self._is_mixed = False
        """Whether this list has several pipelines, whose failure may not end the line."""
        self._export: RawCommand | None = None
        """The open command, when it is an `export` of plain assignments so far."""

    def read(self) -> list[tuple[Joined, list[RawCommand]]]:
        line = self._line
        while True:
            self._skip_blanks()
            if self._at >= len(line):
                break
            sign = line[self._at]
            if sign == "#":
                end = line.find("\n", self._at)
                self._at = end if end >= 0 else len(line)
            elif sign in "<>" or line.startswith("&>", self._at):
                self._redirect(None)
            elif sign in "|&;\n":
                self._connect()
            elif number := _DESCRIPTOR.match(line, self._at):
                self._at = number.end()
                self._redirect(number[0])
            else:
                self._word()
        if self._command is not None:
            self._end_list()
        if self._joined or self._pipeline or self._texts:
            raise NeedsShellError("a list without an end")
        if not self._pipelines:
            if self._exits or self._fails_inside:
                raise NeedsShellError("`set` alone")
            raise UnreadableError("there is no command")
        if self._pipelines[-1][1][0].only_sets:
            raise NeedsShellError("an assignment at the end")
        return self._pipelines

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self._line, self._at)
        assert blanks is not None  # noqa: S101 - it matches nothing, too.
        self._at = blanks.end()

    def _source(self) -> str:
        """Take a word as it is written."""
        found = _WORD.match(self._line, self._at)
        end = found.end() if found is not None else self._at
        rest = self._line[end : end + 1]
        if found is None or rest not in ("", " ", "\t", "\n", "|", "&", ";", "<", ">"):
            raise NeedsShellError(f"`{self._line[self._at : self._at + 60]}` is read by a shell")
        if rest in ("<", ">") and rest and _NAMED_DESCRIPTOR.fullmatch(found[0]):
            raise NeedsShellError(f"the redirection `{self._line[self._at : end + 20]}`")
        self._at = end
        return found[0]

    def _open(self) -> RawCommand:
        if self._command is None:
            if self._is_mixed and not self._joined and not self._pipeline:
                raise NeedsShellError("`set -e` before a list of several pipelines")
            self._count += 1
            if self._count > COMMANDS_MAX:
                raise UnreadableError(f"more than {COMMANDS_MAX} commands")
            self._command = RawCommand([], exported=self._variables.exported())
        return self._command

    def _word(self) -> None:
        if text := STATIC_TEXT.match(self._line, self._at):
            self._static_text(text)
            return
        source = self._source()
        command = self._open()
        if not command.words:
            if found := _ASSIGNMENT.match(source):
                command.assignments.append(self._assignment(found, command))
                return
            if source in _RESERVED:
                raise NeedsShellError(f"`{source}`")
        elif self._export is command:
            if found := _ASSIGNMENT.match(source):
                command.assignments.append(self._assignment(found, command))
                command.words.append(Word(f"{found[1]}={command.assignments[-1][1]}"))
                return
            if self._variables.is_settable(source) and source in self._variables.values:
                command.assignments.append((source, self._variables.values[source]))
            else:
                self._export = None
        is_bare = not (command.words or command.assignments or command.redirects)
        self._export = command if is_bare and source == "export" else self._export
        # A name or an assignment is no place for a list in braces.
        several = braced(source) if command.words and self._export is not command else ()
        if several:
            command.words += [self._decoded(each) for each in several]
            return
        command.words.append(self._decoded(source, is_name=not command.words))

    def _static_text(self, found: re.Match[str]) -> None:
        """Take a here-document that is an argument: nothing in it is expanded."""
        command = self._open()
        if not command.words or self._export is command or self._texts:
            raise NeedsShellError("a substitution")
        text = found["text"].rstrip("\n")
        command.words.append(Word(text))
        self._at = found.end()

    def _decoded(self, source: str, *, is_name: bool = False) -> Word:
        word = decode_word(source, None if is_name else self._variables.plain)
        if word is None:
            raise NeedsShellError(f"`{source[:60]}` is expanded by a shell")
        if word.text[:1] == "-" and source.lstrip('"')[:1] == "$":
            raise NeedsShellError(f"`{source[:60]}` becomes an option")
        return word

    def _assignment(self, found: re.Match[str], command: RawCommand) -> tuple[str, str]:
        name, source = found[1], found.string[found.end() :]

        def value(known: str) -> str | None:
            is_set = any(known == before for before, _ in command.assignments)
            return None if is_set else self._variables.plain(known)

        decoded = decode_word(source, value) if source else Word("")
        if decoded is None or decoded.tilde or ":~" in source:
            raise NeedsShellError(f"the assignment of `{name}`")
        return name, decoded.text

    def _redirect(self, number: str | None) -> None:
        found = _REDIRECT.match(self._line, self._at)
        assert found is not None  # noqa: S101 - the caller has seen its first sign.
        begin, sign = self._at, found[0]
        self._at = found.end()
        self._skip_blanks()
        said = f"the redirection `{self._line[begin : begin + 60]}`"
        if sign not in _REDIRECTS or (number or "0") not in ("0", "1", "2"):
            raise NeedsShellError(said)
        # A comment, or a number that begins another redirection, is no target.
        if self._line[self._at : self._at + 1] == "#" or _DESCRIPTOR.match(self._line, self._at):
            raise NeedsShellError(said)
        kind, default = _REDIRECTS[sign]
        descriptor = default if number is None else int(number)
        command, source = self._open(), self._source()
        self._export = None
        if len(command.redirects) >= REDIRECTS_MAX:
            raise UnreadableError(f"more than {REDIRECTS_MAX} redirections")
        if sign == "<<":
            self._here_document(source, descriptor, command)
            return
        target = self._decoded(source)
        if kind == "text":
            if target.tilde:
                raise NeedsShellError(said)
            command.redirects.append(RawRedirect(descriptor, kind, f"{target.text}\n"))
        elif target.pattern:
            raise NeedsShellError("a redirection to a pattern")
        elif kind == "copy":
            if target.text not in ("0", "1", "2"):
                raise NeedsShellError(said)
            command.redirects.append(RawRedirect(descriptor, kind, target.text))
        else:
            both = sign[0] == "&"
            command.redirects.append(RawRedirect(descriptor, kind, target, both=both))

    def _here_document(self, source: str, descriptor: int, command: RawCommand) -> None:
        delimiter = _DELIMITER.fullmatch(source)
        if delimiter is None:
            raise NeedsShellError("a here-document")
        redirect = RawRedirect(descriptor, "text", "")
        command.redirects.append(redirect)
        self._texts.append((redirect, delimiter[2] or delimiter[3], bool(delimiter[1])))

    def _take_texts(self) -> None:
        """Take the text of each here-document, from where this line begins."""
        for redirect, delimiter, is_quoted in self._texts:
            end = re.compile(rf"^{delimiter}(?:\n|\Z)", re.MULTILINE).search(self._line, self._at)
            if end is None:
                raise NeedsShellError("a here-document without an end")
            text = self._line[self._at : end.start()]
            if not is_quoted and re.search(r"[$`\\]", text):
                raise NeedsShellError("a here-document that is expanded")
            redirect.target = text
            self._at = end.end()
        self._texts = []

    def _connect(self) -> None:
        found = _CONNECTOR.match(self._line, self._at)
        assert found is not None  # noqa: S101 - the caller has seen its first sign.
        sign = found[0]
        self._at = found.end()
        if sign == "\n":
            self._take_texts()
            if self._command is not None:
                self._end_list()
        elif self._command is None or sign in ("&", ";;"):
            raise NeedsShellError(f"`{sign}`")
        elif sign == ";":
            self._end_list()
        elif sign in ("|", "|&"):
            if sign == "|&":
                self._command.redirects.append(RawRedirect(2, "copy", "1"))
            self._end_command()
        else:
            self._end_command()
            self._end_pipeline("&&" if sign == "&&" else "||")

    def _end_list(self) -> None:
        self._end_command()
        is_mixed = bool(self._joined)
        self._end_pipeline("")
        self._is_sure = True
        if self._exits and self._pipelines:
            self._following, self._is_mixed = "&&", is_mixed

    def _end_command(self) -> None:
        command = self._command
        if command is None:
            raise NeedsShellError("a list without an end")
        if not command.words and (command.redirects or not command.assignments):
            raise NeedsShellError("a redirection without a command")
        if {word.text for word in command.words[1:]} <= {"--"} and (
            command.words and command.words[0].text == "printf"
        ):
            # That of bash ends with another exit code than the program.
            raise NeedsShellError("`printf` without a format")
        is_export = self._export is command and len(command.words) > 1
        command.only_sets = is_export or not command.words
        self._pipeline.append(command)
        self._command = None

    def _end_pipeline(self, joined: Joined) -> None:
        pipeline, first = self._pipeline, self._pipeline[0]
        if first.words and first.words[0].text == "set":
            self._set(pipeline, joined)
            return
        if (self._fails_inside and len(pipeline) > 1) or (
            self._exits and any(command.only_sets for command in pipeline)
        ):
            raise NeedsShellError("`set`")
        self._pipelines.append((self._joined or self._following, pipeline))
        self._pipeline, self._joined = [], joined
        if any(command.only_sets for command in pipeline):
            # INVARIANT: a variable is known only where the assignment surely happened, and then
            # what follows it runs.
            if len(pipeline) > 1 or not self._is_sure or joined == "||":
                raise NeedsShellError("an assignment that may not happen")
            self._joined = ""
            for name, value in first.assignments:
                if not self._variables.is_settable(name):
                    raise NeedsShellError(f"the assignment of `{name}`")
                self._variables.set(name, value, exports=bool(first.words))
        elif len(pipeline) == 1 and first.words[0].text == "cd":
            self._variables.enter()
            self._is_sure = self._is_sure and joined != "||"
        else:
            self._is_sure = False

    def _set(self, pipeline: list[RawCommand], joined: Joined) -> None:
        """Take `set -e` and its like at the beginning, which no program sees."""
        (command, *others), words = pipeline, [word.text for word in pipeline[0].words[1:]]
        options = "".join(word[1:] for word in words if word[:1] == "-")
        is_known = bool(words) and words in _SET_FORMS
        is_bare = not (command.redirects or command.assignments or command.exported or others)
        if not is_known or not is_bare or self._pipelines or self._joined or joined == "||":
            raise NeedsShellError("`set`")
        self._exits = self._exits or "e" in options
        self._fails_inside = self._fails_inside or "pipefail" in words
        self._pipeline, self._joined = [], ""


_SET_FORMS = (
    *(["-e"], ["-u"], ["-eu"], ["-ue"], ["-e", "-u"]),
    *([*before, "pipefail"] for before in (["-o"], ["-eo"], ["-euo"], ["-e", "-o"], ["-eu", "-o"])),
)
"""`-u` changes nothing here: a variable that is not known needs a shell."""


def _joined_lines(line: str) -> str:
    """Return a line without the escaped ends of lines, which bash takes out before all else.

    Text behind a line with a here-document is left as it is.
    """
    if "\\\n" not in line:
        return line
    if "$'" in line or "$(" in line:
        # In there an escaped end of a line may stay.
        raise NeedsShellError("an escaped end of a line")
    made: list[str] = []
    at, has_text, last = 0, False, "\n"
    while at < len(line):
        sign = line[at]
        piece = sign
        if sign == "\n" and has_text:
            return "".join(made) + line[at:]
        if sign == "\\":
            piece = line[at : at + 2]
        elif sign == "'":
            end = line.find("'", at + 1)
            piece = line[at : end + 1] if end > 0 else line[at:]
        elif sign == '"':
            found = _DOUBLE.match(line, at)
            piece = found[0] if found else line[at:]
        elif sign == "#" and last in " \t\n|&;<>()":
            end = line.find("\n", at)
            piece = line[at:end] if end > 0 else line[at:]
        elif line.startswith("<<", at):
            has_text, piece = True, "<<"
        at += len(piece)
        kept = _ESCAPED.sub(_without_end, piece) if sign in '"\\' else piece
        if kept:
            made.append(kept)
            last = kept[-1]
    return "".join(made)


_DOUBLE = regex(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_ESCAPED = regex(r"\\(.)", re.DOTALL)


def _without_end(found: re.Match[str]) -> str:
    return "" if found[1] == "\n" else found[0]
