"""Reads the lines that need no shell, exactly as bash reads them.

Bash's own rules (bash(1), "QUOTING", "SHELL GRAMMAR", "REDIRECTION") for words, lists, pipelines,
redirections, here-documents and assignments of plain text. What is not surely one of these needs a
shell, and is left to the parser of whole scripts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from skillhouse.floor.regex import regex
from skillhouse.permission.environment import (
    ExitCodes,
    KnownVariables,
    LineSurroundings,
    environment_concern,
    is_activation,
    may_start,
)
from skillhouse.permission.plan import REDIRECTS, Joined
from skillhouse.permission.raw_line import (
    COMMANDS_MAX,
    STATUS,
    NeedsShellError,
    RawCommand,
    RawRedirect,
    Reading,
    UnreadableError,
    Word,
    below_top,
    braced,
    cat_text,
    decode_word,
    ended_by_fault,
    joined_lines,
    without_brackets,
)

REDIRECTS_MAX = 64
"""Redirections of one command; more are denied, as each is a path to look at."""

_BLANKS = regex(r"[ \t]*")
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_QUOTED = rf"""
    '[^']*+'
    | \\[^\n]
    | \$'(?:[^'\\]|\\.)*+'
    | "(?: [^"\\`$] | \\. | {STATUS} | \${_NAME} | \$\{{{_NAME}\}}
         | \$(?=["\ /.,:;=+%\]|)&<>}}^~]) )*+"
"""
_WORD = regex(
    rf"""(?: [^ \t\n|&;<>()'"`\\$]++ | {_QUOTED} | {STATUS} | \${_NAME} | \$\{{{_NAME}\}}
         | \$(?=[ \t\n|&;<>)]|\Z) )++""",
    re.VERBOSE | re.DOTALL,
)
_DESCRIPTOR = regex(r"[0-9]+(?=[<>])")
_REDIRECT = regex(r"&>>|&>|<<-|<<<|<<|<>|<&|<|>>|>&|>\||>")
_CONNECTOR = regex(r"&&|\|\||\|&|\||;;|;|&|\n")
_ASSIGNMENT = regex(rf"({_NAME})=")
_NAMED_DESCRIPTOR = regex(r"\{.*\}", re.DOTALL)
_DELIMITER = regex(r"(['\"])([A-Za-z0-9_]+)\1|([A-Za-z0-9_]+)")
_FOR = regex(rf"for[ \t]+({_NAME})[ \t]+in(?=[ \t])")
_DO = regex(r"[ \t]*[;\n][ \t\n]*do[ \t\n]+")
_DONE = regex(r"done[ \t]*(&&|\|\||[;\n]|\Z)")
_PLAIN_PATH = regex(r"/[A-Za-z0-9_./@%+-]*")
_SETTING = ("-e", "-u", "-eu", "-ue", "-e -u", "-euo pipefail", "-eo pipefail", "-e -o pipefail")
_EXITING = tuple(tuple(f"set {words}".split()) for words in _SETTING)
LOOPS_MAX = 2
"""Loops in each other."""
_RESERVED = frozenset(
    "! { } [[ ]] case coproc do done elif else esac fi for function if in select then until "
    "while".split()
)
"""Words that are no program's name where a command begins (bash(1), "RESERVED WORDS"). `time` is
left out: a program of that name does what the word does."""


def read_line(line: str, around: LineSurroundings = LineSurroundings()) -> Reading:  # noqa: B008 - frozen.
    """Return the meaning of one or several lines of bash: a plan where none needs a shell.

    Raises:
        UnreadableError: it is no valid line, or is nested too deep, or has too many commands.
    """
    try:
        pipelines = _PlainReader(joined_lines(without_brackets(line)), around).read()
    except NeedsShellError as error:
        # The parser is loaded for a line that needs it, not with the package.
        from skillhouse.permission.raw_line import read_script  # noqa: PLC0415

        return read_script(line, str(error))
    return Reading(pipelines, [command for _, pipeline in pipelines for command in pipeline])


class _PlainReader:
    """Takes a line apart from left to right."""

    def __init__(self, line: str, around: LineSurroundings) -> None:
        self._line = line
        self._at = 0
        self._around = around
        self._variables = KnownVariables(around.environment)
        self._loops = 0
        self._has_gone = False
        """Whether a `cd` came before, so that names are looked up elsewhere."""
        self._exits_from = -1
        """Pipelines before a `set -e`; -1 without one."""
        self._pipes_fail = False
        self._sets = False
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
        self._codes = ExitCodes()
        self._export: RawCommand | None = None
        """The open command, when it is an `export` of plain assignments so far."""

    def read(self) -> list[tuple[Joined, list[RawCommand]]]:
        self._lists()
        if self._command is not None:
            self._end_list()
        if self._joined or self._pipeline or self._texts:
            raise NeedsShellError("a list without an end")
        if not self._pipelines and self._sets:
            raise NeedsShellError("`set` alone")
        if not self._pipelines:
            raise UnreadableError("there is no command")
        last = self._pipelines[-1][1][0]
        if last.only_sets:
            raise NeedsShellError("an assignment at the end")
        last.activates = False
        at = self._exits_from
        if at < 0:
            return self._pipelines
        ended = ended_by_fault(self._pipelines[at:], pipes_fail=self._pipes_fail)
        return [*self._pipelines[:at], *ended]

    def _lists(self) -> None:
        """Take lists up to the end, or to the `done` of the loop whose body this is."""
        line = self._line
        while True:
            self._skip_blanks()
            if self._at >= len(line):
                break
            if self._loops and self._command is None and _DONE.match(line, self._at):
                return
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
            elif self._command is None and _FOR.match(line, self._at):
                self._loop()
            else:
                self._word()
        if self._loops:
            raise NeedsShellError("a loop without an end")

    def _loop(self) -> None:
        """Take a `for` over words that are known: its body as often as there are words."""
        begin = _FOR.match(self._line, self._at)
        assert begin is not None  # noqa: S101 - the caller has seen it.
        name = begin[1]
        is_first = not (self._joined or self._pipeline or self._texts)
        is_decisive = environment_concern(name, "x")[0] or may_start(name, "x")
        if not self._variables.is_settable(name) or is_decisive:
            raise NeedsShellError(f"the assignment of `{name}`")
        if not is_first or self._loops >= LOOPS_MAX:
            raise NeedsShellError("`for`")
        self._at = begin.end()
        values: list[str] = []
        while (doing := _DO.match(self._line, self._at)) is None:
            self._skip_blanks()
            for word in self._words(self._source()):
                values += self._names(word)
            self._skip_blanks()
        self._loops += 1
        for value in values:
            self._at = doing.end()
            self._variables.set(name, value, exports=False)
            before = len(self._pipelines)
            self._lists()
            if self._joined or self._pipeline or self._texts or len(self._pipelines) == before:
                raise NeedsShellError("a loop whose body has no end")
            self._is_sure = False
        done = _DONE.match(self._line, self._at) if values else None
        if done is None:
            raise NeedsShellError("`for` over nothing")
        self._loops -= 1
        self._at = done.end()
        self._joined = "&&" if done[1] == "&&" else "||" if done[1] == "||" else ""

    def _names(self, word: Word) -> list[str]:
        """Return the values of a word of a loop: the names that match, or its text."""
        found = self._around.names(word.pattern) if word.pattern and not self._has_gone else None
        if word.tilde or (word.pattern and found is None):
            raise NeedsShellError("`for` over names that are not known here")
        return list(found or [word.text])

    def _skip_blanks(self) -> None:
        blanks = _BLANKS.match(self._line, self._at)
        assert blanks is not None  # noqa: S101 - it matches nothing, too.
        self._at = blanks.end()

    def _words(self, source: str, *, status: bool = False) -> list[Word]:
        """Return the words that one becomes, which may be several."""
        parts = [source] if _ASSIGNMENT.match(source) else braced(source)
        return [self._decoded(part, status=status) for part in parts]

    def _static(self) -> Word | None:
        """Take a word whose substitution is known beforehand, if one begins here."""
        if text := cat_text(self._line, self._at):
            word, end = Word(text[0]), text[1]
            if self._texts:
                raise NeedsShellError("a here-document in another")
        elif path := below_top(self._line, self._at):
            top = self._around.top()
            word, end = Word(f"{top}{path[0]}"), path[1]
            if self._has_gone or not _PLAIN_PATH.fullmatch(top):
                raise NeedsShellError("the root of a repository that is not known here")
        else:
            return None
        if self._line[end : end + 1] not in ("", " ", "\t", "\n", "|", "&", ";"):
            raise NeedsShellError(f"`{self._line[self._at : self._at + 60]}` is read by a shell")
        self._at = end
        return word

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
            self._count += 1
            if self._count > COMMANDS_MAX and self._loops:
                raise NeedsShellError(f"a loop of more than {COMMANDS_MAX} commands in all")
            if self._count > COMMANDS_MAX:
                raise UnreadableError(f"more than {COMMANDS_MAX} commands")
            self._command = RawCommand([], exported=self._variables.exported())
        return self._command

    def _word(self) -> None:
        if self._command is not None and self._command.words and (word := self._static()):
            self._export = None
            self._command.words.append(word)
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
        if command.words:
            status = self._codes.are_known(source, command.words[0].text)
            command.words += self._words(source, status=status and not self._pipeline)
        else:
            command.words.append(self._decoded(source, is_name=True))

    def _decoded(self, source: str, *, is_name: bool = False, status: bool = False) -> Word:
        word = decode_word(source, None if is_name else self._variables.plain, status=status)
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
        if sign not in REDIRECTS or (number or "0") not in ("0", "1", "2"):
            raise NeedsShellError(said)
        # A comment, or a number that begins another redirection, is no target.
        if self._line[self._at : self._at + 1] == "#" or _DESCRIPTOR.match(self._line, self._at):
            raise NeedsShellError(said)
        kind, default = REDIRECTS[sign]
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
        self._end_pipeline("")
        self._is_sure = True

    def _end_command(self) -> None:
        command = self._command
        if command is None:
            raise NeedsShellError("a list without an end")
        if not command.words and (command.redirects or not command.assignments):
            raise NeedsShellError("a redirection without a command")
        words = [word.text for word in command.words]
        if words[:1] == ["printf"] and set(words[1:]) <= {"--"}:
            # That of bash ends with another exit code than the program.
            raise NeedsShellError("`printf` without a format")
        is_export = self._export is command and len(command.words) > 1
        command.only_sets = is_export or not command.words
        if self._pipeline:
            command.before = tuple(word.text for word in self._pipeline[-1].words)
        self._pipeline.append(command)
        self._command = None

    def _end_pipeline(self, joined: Joined) -> None:
        pipeline, first = self._pipeline, self._pipeline[0]
        if len(pipeline) > 1 and any(word.holds_status for one in pipeline for word in one.words):
            raise NeedsShellError("an exit code in a pipe")
        if self._sets_exits(pipeline, joined):
            self._codes.succeeded()
            self._pipeline = []
            return
        self._pipelines.append((self._joined, pipeline))
        self._pipeline, self._joined = [], joined
        if any(command.only_sets for command in pipeline):
            # INVARIANT: a variable is known only where the assignment surely happened, and then
            # what follows it runs.
            if len(pipeline) > 1 or not self._is_sure or joined == "||":
                raise NeedsShellError("an assignment that may not happen")
            self._joined = ""
            self._codes.succeeded()
            for name, text in first.assignments:
                if not self._variables.is_settable(name):
                    raise NeedsShellError(f"the assignment of `{name}`")
                # A shell that has it already, as most people's have `EDITOR`, exports it again.
                self._variables.set(name, text, exports=bool(first.words) or may_start(name, text))
        elif len(pipeline) == 1 and first.words[0].text == "cd":
            self._variables.enter()
            self._codes.succeeded()
            self._has_gone = True
            self._is_sure = self._is_sure and joined != "||"
        elif self._is_activation(pipeline, joined):
            first.activates = True
            self._joined = ""
            self._variables.activate()
            self._codes.succeeded()
        else:
            self._codes.ran(len(pipeline), is_sure=not self._pipelines[-1][0])
            self._is_sure = False

    def _is_activation(self, pipeline: Sequence[RawCommand], joined: Joined) -> bool:
        """Whether an environment surely is activated before what follows this."""
        first, words = pipeline[0], pipeline[0].words
        is_bare = not (first.redirects or first.assignments or any(w.tilde for w in words))
        is_sure = self._is_sure and len(pipeline) == 1 and joined != "||" and not self._loops
        before = [commands[0] for _, commands in self._pipelines[:-1]]
        is_first = all(c.only_sets or c.activates or c.words[0].text == "cd" for c in before)
        is_named = is_activation([word.pattern or word.text for word in words])
        return is_bare and is_sure and is_first and is_named

    def _sets_exits(self, pipeline: Sequence[RawCommand], joined: Joined) -> bool:
        """Take a `set -e`, where it is a list of its own before all that it is about."""
        words = tuple(word.text for word in pipeline[0].words)
        is_alone = len(pipeline) == 1 and not (self._joined or joined or self._loops)
        if words not in _EXITING or not is_alone or pipeline[0].redirects:
            return False
        if pipeline[0].assignments or self._exits_from >= 0:
            return False
        self._sets = True
        if words != ("set", "-u"):  # A variable that is not known needs a shell anyway.
            self._exits_from = len(self._pipelines)
        self._pipes_fail = words[-1] == "pipefail"
        return True
