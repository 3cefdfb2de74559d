"""A command line as it is written: taken apart, and not yet judged.

Words that look expanded and have one value in the line itself are that value. Where only a shell
can run a line, its commands are found as far as possible, for what must never run.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from skillhouse.floor.regex import regex
from skillhouse.permission.plan import Joined, RedirectKind

if TYPE_CHECKING:
    import tree_sitter

EXPANSIONS_MAX = 64
"""Words that one list in braces may become; with more a shell runs it, after a question."""

_ESCAPE = regex(r"\\(?:([abefnrtvE\\'\"?])|x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_MEANINGS = dict(zip("abefnrtvE\\'\"?", "\a\b\x1b\f\n\r\t\v\x1b\\'\"?", strict=True))
_SHOWN = regex(r"[^\x00-\x08\x0b-\x1f\x7f]*")
_ITEM = r"[A-Za-z0-9_./@:%+=-]*"
_LIST = rf"\{{{_ITEM}(?:,{_ITEM})+\}}|\{{-?[0-9]{{1,4}}\.\.-?[0-9]{{1,4}}\}}"
_LISTS = regex(rf"({_LIST})")
_BRACED = regex(rf"[A-Za-z0-9_./@:%+=*?-]*(?:(?:{_LIST})[A-Za-z0-9_./@:%+=*?-]*)+")
_CAT = regex(r"\"\$\(cat <<(?:'(\w+)'|\"(\w+)\"|(\w+))\n", re.ASCII)
_CAT_END = regex(r"[ \t\n]*\)\"")
_TOP = regex(r'(")?\$\(git rev-parse --show-toplevel\)((?:/[A-Za-z0-9_./@%+-]*)?)(?(1)")')


def ansi_text(source: str) -> str | None:
    r"""Return what the inside of `$'…'` means, or None where bash and this may differ.

    >>> ansi_text(r"a\tb\x41\n"), ansi_text(r"\u00e9"), ansi_text(r"a\0b")
    ('a\tbA\n', None, None)
    """
    is_sure = True

    def meaning(found: re.Match[str]) -> str:
        nonlocal is_sure
        if found[1]:
            return _MEANINGS[found[1]]
        number = int(found[2], 16) if found[2] else int(found[3], 8) if found[3] else 0
        # Other letters are left as they are or make bytes; a NUL ends the string.
        is_sure = is_sure and 0 < number < 0x80
        return chr(number)

    text = _ESCAPE.sub(meaning, source)
    # What moves a terminal's cursor is not for words that a person reads.
    return text if is_sure and _SHOWN.fullmatch(text) else None


def braced(source: str) -> list[str]:
    """Return the words that lists in braces become, in bash's order; the word itself without one.

    >>> braced("a/{b,c}.{x,y}"), braced("{1..3}"), braced("{}")
    (['a/b.x', 'a/b.y', 'a/c.x', 'a/c.y'], ['1', '2', '3'], ['{}'])
    """
    if "{" not in source or not _BRACED.fullmatch(source):
        return [source]
    parts = [_items(part) if part[:1] == "{" else [part] for part in _LISTS.split(source)]
    count = 1
    for part in parts:
        count *= len(part)
        if count > EXPANSIONS_MAX:
            return [source]
    words = ["".join(chosen) for chosen in itertools.product(*parts)]
    # An empty word is none to bash.
    return words if all(words) else [source]


def _items(part: str) -> list[str]:
    inside = part[1:-1]
    if "," in inside:
        return inside.split(",")
    first, _, last = inside.partition("..")
    if any(len(text.lstrip("-")) > 1 and text.lstrip("-")[0] == "0" for text in (first, last)):
        return [part] * (EXPANSIONS_MAX + 1)  # Zeros in front are a width.
    step = 1 if int(first) <= int(last) else -1
    return [str(number) for number in range(int(first), int(last) + step, step)]


def cat_text(line: str, at: int) -> tuple[str, int] | None:
    """Return the text of a `"$(cat <<'E' …)"` that begins at a place, and where it ends.

    >>> cat_text("m \\"$(cat <<'E'\\na\\n\\nE\\n)\\" x", 2)
    ('a', 22)
    """
    begin = _CAT.match(line, at)
    if begin is None:
        return None
    delimiter = begin[1] or begin[2] or begin[3]
    end = re.compile(rf"^{delimiter}\n", re.MULTILINE).search(line, begin.end())
    if end is None:
        return None
    text = line[begin.end() : end.start()]
    if begin[3] and re.search(r"[$`\\]", text):
        return None
    closed = _CAT_END.match(line, end.end())
    return None if closed is None else (text.rstrip("\n"), closed.end())


def below_top(line: str, at: int) -> tuple[str, int] | None:
    """Return the path below the root of the repository that a word names, and where it ends.

    >>> below_top('cd "$(git rev-parse --show-toplevel)/a"', 3)
    ('/a', 39)
    """
    found = _TOP.match(line, at)
    return None if found is None else (found[2], found.end())


COMMANDS_MAX = 64
"""Commands of one line; more are denied: a bound must never hide a denial."""

_PLAIN = regex(r"[A-Za-z0-9_./:=,+@%^-]+")
_QUOTED_RUN = regex(r'[^"`$\\]+')
_WILDCARDS = frozenset("*?[")
_BRACKET = regex(r"\[!?[A-Za-z0-9_.-]+\]")
_LITERAL_BRACE = regex(r"\{(?!.*\.\.)[A-Za-z0-9_.@-]*\}")
_VARIABLE = regex(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
STATUS = r"\$\?|\$\{PIPESTATUS\[[0-9]\]\}"
"""The exit code of what ran before, as it is written."""
_STATUS = regex(STATUS)
_ASSIGNING = regex(r"[A-Za-z_][A-Za-z0-9_]*(\[|\+?=)")
"""A word like an assignment, in which bash looks for home directories behind `=` and `:`."""
_ANSI = regex(r"\$'((?:[^'\\]|\\.)*+)'", re.DOTALL)
_ESCAPABLE = ("$", "`", '"', "\\", "\n")
"""What a backslash takes its meaning from between double quotes (POSIX shell, 2.2.3)."""


class Word(Struct, frozen=True):
    """A decoded word."""

    text: str
    pattern: str = ""
    """As a file name pattern, when it has wildcards: literal characters are in brackets."""
    tilde: bool = False
    """Whether it has a home directory that is not known here."""
    holds_status: bool = False
    """Whether each `$?` and `${PIPESTATUS[N]}` in it is what a command before ended with."""


def decode_word(
    source: str, value: Callable[[str], str | None] | None = None, *, status: bool = False
) -> Word | None:
    """Return what a word is without a shell, or None when it takes one to say.

    Args:
        source: The word as it is written.
        value: Gives the value of a variable that is known, which has no sign of a shell's; without
            it none is.
        status: Whether exit codes may stay in it, which are known once it runs.

    >>> decode_word("a\\\\ b'c d'").text
    'a bc d'
    >>> decode_word("$HOME") is None, decode_word("./*.md").pattern
    (True, './*.md')
    """
    if _PLAIN.fullmatch(source):
        return Word(source)
    return _Decoder(source, value, status=status).word()


def _has_later_tilde(source: str) -> bool:
    has_sign = "=~" in source or ":~" in source
    return has_sign and _ASSIGNING.match(source) is not None


class _Decoder:
    def __init__(
        self, source: str, value: Callable[[str], str | None] | None, *, status: bool
    ) -> None:
        self._source = source
        self._value = value
        self._may_hold = status
        self._statuses = 0
        """How many exit codes are in it."""
        self._text: list[str] = []
        self._pattern: list[str] = []
        self._is_pattern = False

    def word(self) -> Word | None:
        at, source = 0, self._source
        while at < len(source):
            sign = source[at]
            step = self._quoted(at) if sign in "'\"\\" else self._bare(at)
            if step <= at:
                return None
            at = step
        text = "".join(self._text)
        if self._statuses and (self._is_pattern or len(_STATUS.findall(text)) != self._statuses):
            return None  # A quoted `$?` is text, and would look the same.
        return Word(
            text,
            "".join(self._pattern) if self._is_pattern else "",
            tilde=source.startswith("~") or _has_later_tilde(source),
            holds_status=self._statuses > 0,
        )

    def _literal(self, text: str) -> None:
        self._text.append(text)
        if not _WILDCARDS.isdisjoint(text):
            text = "".join(f"[{sign}]" if sign in _WILDCARDS else sign for sign in text)
        self._pattern.append(text)

    def _wild(self, text: str) -> None:
        self._is_pattern = True
        self._text.append(text)
        self._pattern.append(text)

    def _quoted(self, at: int) -> int:
        """Take a quotation or an escaped character; return where it ends, or -1."""
        source = self._source
        if source[at] == "'":
            end = source.find("'", at + 1)
            self._literal(source[at + 1 : end])
            return end + 1 if end > 0 else -1
        if source[at] == "\\":
            if source[at + 1 : at + 2] not in ("", "\n"):
                self._literal(source[at + 1])
            return at + 2 if at + 1 < len(source) else -1
        at += 1
        while at < len(source) and source[at] != '"':
            if run := _QUOTED_RUN.match(source, at):
                self._literal(run[0])
                at = run.end()
                continue
            if source[at] == "`":
                return -1
            if source[at] == "$":
                at = self._dollar(at, ' /.,:;=+%]|)&<>}^~"')
                if at < 0:
                    return -1
                continue
            if source[at] == "\\" and source[at + 1 : at + 2] in _ESCAPABLE:
                at += 1
                if source[at] != "\n":
                    self._literal(source[at])
            else:
                self._literal(source[at])
            at += 1
        return at + 1 if at < len(source) else -1

    def _dollar(self, at: int, ordinary: str) -> int:
        """Take a variable, or a `$` that begins none, being before an ordinary character."""
        if self._may_hold and (code := _STATUS.match(self._source, at)):
            self._statuses += 1
            self._literal(code[0])
            return code.end()
        found = _VARIABLE.match(self._source, at)
        if found is None:
            if self._source[at + 1 : at + 2] not in ordinary:
                return -1
            self._literal("$")
            return at + 1
        value = self._value(found[1] or found[2]) if self._value is not None else None
        if value is None:
            return -1
        self._literal(value)
        return found.end()

    def _ansi(self, at: int) -> int:
        """Take a `$'…'`; return where it ends, or -1."""
        found = _ANSI.match(self._source, at)
        text = None if found is None else ansi_text(found[1])
        if found is None or text is None:
            return -1
        self._literal(text)
        return found.end()

    def _bare(self, at: int) -> int:
        """Take one unquoted character or bracket; return where it ends, or -1."""
        source, sign = self._source, self._source[at]
        if run := _PLAIN.match(source, at):
            self._literal(run[0])
            return run.end()
        if sign in "`;|&<>() \t\n":
            return -1
        if sign == "$":
            return self._ansi(at) if source[at + 1 : at + 2] == "'" else self._dollar(at, "")
        if sign in "*?":
            self._wild(sign)
        elif sign == "[":
            bracket = _BRACKET.match(source, at)
            if bracket is not None:
                self._wild(bracket[0])
                return bracket.end()
            if "]" in source[at:]:
                return -1
            self._literal(sign)
        elif sign == "{" and "}" in source[at:] and not _LITERAL_BRACE.match(source, at):
            # Perhaps a list in braces, which makes several words of one.
            return -1
        else:
            self._literal(sign)
        return at + 1


class UnreadableError(Exception):
    """The text is not a shell line, or is over a bound."""


class NeedsShellError(Exception):
    """The line is valid, but needs a shell; the text says for what."""


class RawRedirect(Struct):
    """A redirection as written."""

    descriptor: int
    kind: RedirectKind
    target: Word | str
    """A path, or the text of a here-document or the number of a descriptor."""
    both: bool = False
    """Whether the other output goes with it."""


class RawCommand(Struct):
    """A simple command as written; words that take a shell stand as their source."""

    words: list[Word]
    assignments: list[tuple[str, str]] = field(default_factory=list)
    """Before its name, or of an `export`."""
    redirects: list[RawRedirect] = field(default_factory=list)
    exported: tuple[tuple[str, str], ...] = ()
    """Variables that the line has set before it, as far as it gets them."""
    before: tuple[str, ...] = ()
    """Words of the command whose output it reads, where a line pipes one into it."""
    only_sets: bool = False
    """Whether it only sets variables, and nothing of it runs."""
    activates: bool = False
    """Whether it surely activates an environment (venv's documentation, "How venvs work") for all
    that follows, if its script is that of one."""


def ended_by_fault(
    pipelines: Sequence[tuple[Joined, list[RawCommand]]], *, pipes_fail: bool
) -> Iterator[tuple[Joined, list[RawCommand]]]:
    """Yield pipelines behind a `set -e`, so that each runs only if those before succeed.

    Raises:
        NeedsShellError: a list has `&&`: in `a && b` nothing ends where `a` fails; or a pipe
            is to fail with any of its commands.
    """
    if pipes_fail and any(len(pipeline) > 1 for _, pipeline in pipelines):
        raise NeedsShellError("`pipefail` before a pipe")
    lists: list[list[tuple[Joined, list[RawCommand]]]] = []
    for joined, pipeline in pipelines:
        if joined and lists:
            lists[-1].append((joined, pipeline))
        else:
            lists.append([(joined, pipeline)])
    for number, each in enumerate(lists):
        is_last = number + 1 == len(lists)
        if not is_last and any(joined == "&&" for joined, _ in each):
            raise NeedsShellError("`set -e` before a list with `&&`")
        yield "&&" if number else "", each[0][1]
        yield from each[1:]


class Reading(Struct):
    """A parsed line."""

    pipelines: list[tuple[Joined, list[RawCommand]]]
    """The plan: each pipeline with "", "&&" or "||" before it; empty when a shell is needed."""
    commands: list[RawCommand]
    """Every simple command, also those in substitutions and branches."""
    shell_reason: str = ""
    calls_itself: bool = False
    """Whether a function starts itself in a pipeline or beside itself."""


_IN_BRACKETS = regex(r"[()#]|<<")
"""What a line in brackets must not hold: the bracket at its end may belong to it."""


def without_brackets(line: str) -> str:
    """Return a line without the brackets around all of it, which only keep what it sets.

    >>> without_brackets(" (cd a && ls) "), without_brackets("(a) && (b)")
    ('cd a && ls', '(a) && (b)')
    """
    inside = line.strip(" \t\n")[1:-1]
    is_one = line.strip(" \t\n")[:1] == "(" and line.strip(" \t\n")[-1:] == ")"
    return inside if is_one and inside.strip() and not _IN_BRACKETS.search(inside) else line


def joined_lines(line: str) -> str:
    """Return a line without the escaped ends of lines, which bash takes out before all else.

    Text behind a line with a here-document is left as it is.
    """
    if "\\\n" not in line:
        return line
    if "$'" in line:
        raise NeedsShellError("an escaped end of a line, perhaps in `$'…'`")
    made: list[str] = []
    at, has_text, last = 0, False, "\n"
    while at < len(line):
        sign = line[at]
        piece = sign
        if (sign == "\n" and has_text) or line.startswith('"$(cat <<', at):
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


DEPTH_MAX = 48
"""Brackets open at one time; the parser's effort grows with them, and no honest line has more."""
SIGNS_MAX = 768
BRACKETS_MAX = 320
"""Signs of the shell's grammar in a line, quoted or not, and brackets among them: the parser's
effort grows with their square where they make no sense (4,096 pipes take it 0.4 s)."""
NODES_MAX = 8_192
"""Nodes of a line that are looked at; 8 KiB of text have no more."""


def read_script(line: str, reason: str) -> Reading:
    """Return every simple command of a line that needs a shell, for the given reason.

    Raises:
        UnreadableError: it does not parse, or is nested too deep, or has too many commands.
    """
    brackets = sum(map(line.count, ("(", ")", "[", "]", "{", "}", "=~")))
    if brackets > BRACKETS_MAX or brackets + sum(map(line.count, "|&;<>")) > SIGNS_MAX:
        raise UnreadableError(
            f"more than {SIGNS_MAX} signs of a shell's grammar, or {BRACKETS_MAX} brackets"
        )
    if _depth(line) > DEPTH_MAX:
        raise UnreadableError(f"more than {DEPTH_MAX} brackets are open at one time")
    source = line.encode()
    root = _parser().parse(source).root_node
    if root.has_error:
        raise UnreadableError("it does not parse as a shell line")
    return Reading([], _all_commands(root, source), reason, _calls_itself(root, source))


def is_whole_line(text: str) -> bool:
    """Whether a text is whole statements of a shell: no quote, block or here-document is open."""
    return not _parser().parse(text.encode()).root_node.has_error


def _parser() -> tree_sitter.Parser:
    """Return a new parser: it has a state, and lines come on several threads."""
    # Loaded here: a plain line needs it not, and most commands of the program judge none.
    import tree_sitter  # noqa: PLC0415

    return tree_sitter.Parser(_language())


@functools.cache
def _language() -> tree_sitter.Language:
    import tree_sitter  # noqa: PLC0415 - as above.
    import tree_sitter_bash  # noqa: PLC0415

    return tree_sitter.Language(tree_sitter_bash.language())


def _depth(line: str) -> int:
    """Return how many brackets are open at most; quotes are not looked at, so it may be more."""
    depth = most = 0
    for sign in re.findall(r"[(){}\[\]]|\bif\b|\bfi\b|\bdo\b|\bdone\b|\bcase\b|\besac\b", line):
        if sign in ("(", "{", "[", "if", "do", "case"):
            depth += 1
            most = max(most, depth)
        else:
            depth = max(0, depth - 1)
    return most


def _text(source: bytes, node: tree_sitter.Node) -> str:
    return source[node.start_byte : node.end_byte].decode()


def _all_commands(root: tree_sitter.Node, source: bytes) -> list[RawCommand]:
    """Return every simple command anywhere in the tree, as far as it can be read."""
    commands = []
    for node in _nodes(root):
        if node.type in ("command", "declaration_command", "unset_command"):
            words = _loose_words(node, source)
            parent = node.parent
            if parent is not None and parent.type == "redirected_statement":
                for redirect in parent.children[1:]:
                    words += _loose_words(redirect, source)[1:]
            commands.append(RawCommand(words, redirects=_loose_redirects(node, source)))
        elif node.type == "redirected_statement" and node.children[0].type == "file_redirect":
            commands.append(RawCommand(_loose_words(node.children[0], source)[1:]))
        elif node.type == "file_redirect":
            commands.append(RawCommand([], redirects=_loose_redirect(node, source)))
        if len(commands) > 4 * COMMANDS_MAX:
            raise UnreadableError(f"more than {COMMANDS_MAX} commands")
    if sum(1 for command in commands if command.words) > COMMANDS_MAX:
        raise UnreadableError(f"more than {COMMANDS_MAX} commands")
    return commands


def _calls_itself(root: tree_sitter.Node, source: bytes) -> bool:
    for node in _nodes(root):
        if node.type == "function_definition":
            name = _text(source, node.children[0])
            if name == "function":
                name = _text(source, node.children[1])
            body = _text(source, node).partition("{")[2]
            if name in re.split(r"[\s;|&{}()]+", body) and re.search(r"[|&]", body):
                return True
    return False


def _nodes(root: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    waiting, count = [root], 0
    while waiting:
        node = waiting.pop()
        count += 1
        if count > NODES_MAX:
            raise UnreadableError("too many parts")
        yield node
        waiting += reversed(node.children)


def _loose_words(node: tree_sitter.Node, source: bytes) -> list[Word]:
    """Return the words of a command; one that a shell would expand is its source."""
    words = []
    for child in node.children:
        if child.type in ("variable_assignment", "file_redirect", "file_descriptor"):
            continue
        if child.is_named or child.type in ("export", "declare", "local", "readonly", "unset"):
            word = _text(source, child)
            words.append(decode_word(word) or Word(word.strip('"')))
    return words


def _loose_redirects(node: tree_sitter.Node, source: bytes) -> list[RawRedirect]:
    redirects: list[RawRedirect] = []
    for child in node.children:
        if child.type == "file_redirect":
            redirects += _loose_redirect(child, source)
    return redirects


def _loose_redirect(node: tree_sitter.Node, source: bytes) -> list[RawRedirect]:
    signs = [child.type for child in node.children if not child.is_named]
    words = _loose_words(node, source)
    if not signs or not words:
        return []
    kind: RedirectKind = "read" if signs[0] == "<" else "write"
    return [RawRedirect(1, kind, words[0])]
