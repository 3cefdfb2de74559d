"""Reads a command line: its simple commands, and the plan when no shell is needed for it.

This file alone loads the parser, and is imported when a line is judged.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import tree_sitter
import tree_sitter_bash

from skillhouse.permission.plan import Joined, RedirectKind
from skillhouse.permission.raw_line import (
    NeedsShellError,
    RawCommand,
    RawRedirect,
    Reading,
    UnreadableError,
    Word,
    decode_word,
)

COMMANDS_MAX = 64
"""Commands of one line; more are denied (issue "command judge": no cap that drops a deny)."""
DEPTH_MAX = 48
"""Brackets open at one time; the parser's effort grows with them, and no honest line has more."""
SIGNS_MAX = 768
BRACKETS_MAX = 320
"""Signs of the shell's grammar in a line, quoted or not, and brackets among them: the parser's
effort grows with their square where they make no sense (4,096 pipes take it 0.4 s)."""
NODES_MAX = 8_192
"""Nodes of a line that are looked at; 8 KiB of text have no more."""

_BLANK = re.compile(rb"(?:[ \t]|\\\n)*")
_SPACE = re.compile(rb"(?:[ \t\n]|\\\n)*")
_DELIMITER = re.compile(r"(['\"])([A-Za-z0-9_]+)\1|([A-Za-z0-9_]+)")
_WORDS = frozenset({"word", "raw_string", "string", "concatenation", "number"})
_REDIRECTS: dict[str, tuple[RedirectKind, int]] = {
    "<": ("read", 0),
    ">": ("write", 1),
    ">|": ("write", 1),
    ">>": ("append", 1),
    "&>": ("write", 1),
    "&>>": ("append", 1),
    ">&": ("copy", 1),
    "<&": ("copy", 0),
}


def read_line(line: str) -> Reading:
    """Return what a line says.

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
    root = tree_sitter.Parser(_language()).parse(source).root_node
    if root.has_error:
        raise UnreadableError("it does not parse as a shell line")
    builder = _PlanBuilder(source)
    try:
        builder.statements(root)
    except NeedsShellError as error:
        commands = _all_commands(root, builder)
        return Reading([], commands, str(error), _calls_itself(root, builder))
    commands = [command for _, pipeline in builder.pipelines for command in pipeline]
    return Reading(builder.pipelines, commands)


@functools.cache
def _language() -> tree_sitter.Language:
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


class _PlanBuilder:
    """Makes pipelines of nodes of known types; anything else needs a shell."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._count = 0
        self.pipelines: list[tuple[Joined, list[RawCommand]]] = []

    def text(self, node: tree_sitter.Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode()

    def statements(self, root: tree_sitter.Node) -> None:
        at = 0
        for node in root.children:
            self._gap(at, node.start_byte, _SPACE)
            at = node.end_byte
            if node.is_named:
                if node.type != "comment":
                    self._statement(node)
            elif node.type not in (";", "\n"):
                raise NeedsShellError(f"`{node.type}`")
        self._gap(at, len(self._source), _SPACE)
        if not self.pipelines:
            raise UnreadableError("there is no command")

    def _statement(self, node: tree_sitter.Node) -> None:
        """Add the pipelines of a statement.

        The parser nests lists, pipelines and redirections to the left without regard to which
        binds tighter: in `a && b 2>f | c` it takes `a && b` for what writes into the pipe. In the
        order of the text their meaning is plain, so the nesting is not looked at.
        """
        waiting = [node]
        joined: str | None = ""
        while waiting:
            node = waiting.pop()
            kind = node.type
            if kind in ("list", "pipeline", "redirected_statement"):
                self._gaps(node, _SPACE)
                waiting += reversed(node.children)
            elif kind == "command":
                self._add(self._command(node), joined)
                joined = None
            elif kind in ("file_redirect", "heredoc_redirect") and joined is None:
                self._redirects([node], self.pipelines[-1][1][-1])
            elif kind in ("|", "|&") and joined is None:
                if kind == "|&":
                    merged = RawRedirect(2, "copy", "1")
                    self.pipelines[-1][1][-1].redirects.append(merged)
                joined = "|"
            elif kind in ("&&", "||") and joined is None:
                joined = "&&" if kind == "&&" else "||"
            elif kind not in ("\n", "comment"):
                raise NeedsShellError(f"`{kind.replace('_', ' ')}`")
        if joined is not None:
            raise NeedsShellError("a list without an end")

    def _add(self, command: RawCommand, joined: str | None) -> None:
        self._count += 1
        if self._count > COMMANDS_MAX:
            raise UnreadableError(f"more than {COMMANDS_MAX} commands")
        if joined == "|":
            self.pipelines[-1][1].append(command)
        elif joined is None:
            raise NeedsShellError("commands without a sign between them")
        else:
            self.pipelines.append(("&&" if joined == "&&" else "||" if joined else "", [command]))

    def _command(self, node: tree_sitter.Node) -> RawCommand:
        self._gaps(node)
        command = RawCommand([])
        for child in node.children:
            kind = child.type
            if kind == "command_name":
                (child,) = child.children
                kind = child.type
            if kind in _WORDS:
                command.words.append(self._word(child))
            elif kind == "variable_assignment":
                command.assignments.append(self._assignment(child))
            elif kind == "file_redirect":
                self._redirects([child], command)
            elif not child.is_named and command.words:
                # Loose signs such as `==` or `[` that the grammar does not make words.
                command.words.append(self._word(child))
            else:
                raise NeedsShellError(kind.replace("_", " "))
        if not command.words:
            raise NeedsShellError("an assignment")
        return command

    def _word(self, node: tree_sitter.Node) -> Word:
        source = self.text(node)
        found = decode_word(source)
        if found is None:
            raise NeedsShellError(f"`{source[:60]}` is expanded by a shell")
        return found

    def _assignment(self, node: tree_sitter.Node) -> tuple[str, str]:
        name, _, value = self.text(node).partition("=")
        found = decode_word(value) if value else Word("")
        if found is None or found.tilde or ":~" in value or not name.isidentifier():
            raise NeedsShellError(f"the assignment of `{name}`")
        return name, found.text

    def _redirects(self, nodes: list[tree_sitter.Node], command: RawCommand) -> None:
        for node in nodes:
            if node.type == "file_redirect":
                self._gaps(node)
                self._file_redirect(node, command)
            elif node.type == "heredoc_redirect":
                self._heredoc(node, command)
            else:
                raise NeedsShellError(node.type.replace("_", " "))

    def _file_redirect(self, node: tree_sitter.Node, command: RawCommand) -> None:
        descriptor, sign, words = None, "", []
        for child in node.children:
            if child.type == "file_descriptor":
                descriptor = self.text(child)
            elif child.type in _WORDS:
                words.append(child)
            elif not child.is_named and not sign:
                sign = child.type
            else:
                raise NeedsShellError(f"redirection to a {child.type.replace('_', ' ')}")
        if sign not in _REDIRECTS or not words or (descriptor or "0") not in "012":
            raise NeedsShellError(f"the redirection `{self.text(node)[:60]}`")
        if len(words) > 1 and not command.words:
            raise NeedsShellError("words between a redirection and its command")
        kind, default = _REDIRECTS[sign]
        target = self._word(words[0])
        if target.pattern:
            raise NeedsShellError("a redirection to a pattern")
        number = default if descriptor is None else int(descriptor)
        if kind == "copy":
            if target.text not in ("0", "1", "2"):
                raise NeedsShellError(f"the redirection `{self.text(node)[:60]}`")
            command.redirects.append(RawRedirect(number, kind, target.text))
        else:
            command.redirects.append(RawRedirect(number, kind, target, both="&" in sign))
        # In `cat < a b` the `b` is an argument.
        command.words += [self._word(word) for word in words[1:]]

    def _heredoc(self, node: tree_sitter.Node, command: RawCommand) -> None:
        children = {child.type: child for child in node.children}
        others = [
            child
            for child in node.children
            if child.type not in ("<<", "heredoc_start", "heredoc_body", "heredoc_end")
        ]
        if any(child.type != "file_redirect" for child in others) or "<<" not in children:
            raise NeedsShellError("a here-document with more on its line")
        start = _DELIMITER.fullmatch(self.text(children["heredoc_start"]))
        if start is None or "heredoc_end" not in children:
            raise NeedsShellError("a here-document")
        body = children.get("heredoc_body")
        text = self.text(body) if body is not None else ""
        delimiter = start[2] or start[3]
        if start[3] and re.search(r"[$`\\]", text):
            raise NeedsShellError("a here-document that is expanded")
        # INVARIANT: the text ends where a shell would end it, at the first such line.
        if delimiter in text.split("\n") or (text and not text.endswith("\n")):
            raise NeedsShellError("a here-document with an unclear end")
        command.redirects.append(RawRedirect(0, "text", text))
        self._redirects(others, command)

    def _gaps(self, node: tree_sitter.Node, blank: re.Pattern[bytes] = _BLANK) -> None:
        """Refuse text between the children of a node that the parser left out."""
        at = node.start_byte
        for child in node.children:
            self._gap(at, child.start_byte, blank)
            at = child.end_byte
        self._gap(at, node.end_byte, blank)

    def _gap(self, start: int, end: int, blank: re.Pattern[bytes]) -> None:
        # INVARIANT: each byte of the line is accounted for. The parser drops an escaped blank
        # after a quotation, for one, which would make two words of one.
        if start != end and not blank.fullmatch(self._source, start, end):
            raise NeedsShellError("an escape between words")


def _all_commands(root: tree_sitter.Node, builder: _PlanBuilder) -> list[RawCommand]:
    """Return every simple command anywhere in the tree, as far as it can be read."""
    found = []
    for node in _nodes(root):
        if node.type in ("command", "declaration_command", "unset_command"):
            words = _loose_words(node, builder)
            parent = node.parent
            if parent is not None and parent.type == "redirected_statement":
                for redirect in parent.children[1:]:
                    words += _loose_words(redirect, builder)[1:]
            found.append(RawCommand(words, redirects=_loose_redirects(node, builder)))
        elif node.type == "redirected_statement" and node.children[0].type == "file_redirect":
            found.append(RawCommand(_loose_words(node.children[0], builder)[1:]))
        elif node.type == "file_redirect":
            found.append(RawCommand([], redirects=_loose_redirect(node, builder)))
        if len(found) > 4 * COMMANDS_MAX:
            raise UnreadableError(f"more than {COMMANDS_MAX} commands")
    if sum(1 for command in found if command.words) > COMMANDS_MAX:
        raise UnreadableError(f"more than {COMMANDS_MAX} commands")
    return found


def _calls_itself(root: tree_sitter.Node, builder: _PlanBuilder) -> bool:
    for node in _nodes(root):
        if node.type == "function_definition":
            name = builder.text(node.children[0])
            if name == "function":
                name = builder.text(node.children[1])
            body = builder.text(node).partition("{")[2]
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


def _loose_words(node: tree_sitter.Node, builder: _PlanBuilder) -> list[Word]:
    """Return the words of a command; one that a shell would expand is its source."""
    words = []
    for child in node.children:
        if child.type in ("variable_assignment", "file_redirect", "file_descriptor"):
            continue
        if child.is_named or child.type in ("export", "declare", "local", "readonly", "unset"):
            source = builder.text(child)
            words.append(decode_word(source) or Word(source.strip('"')))
    return words


def _loose_redirects(node: tree_sitter.Node, builder: _PlanBuilder) -> list[RawRedirect]:
    found: list[RawRedirect] = []
    for child in node.children:
        if child.type == "file_redirect":
            found += _loose_redirect(child, builder)
    return found


def _loose_redirect(node: tree_sitter.Node, builder: _PlanBuilder) -> list[RawRedirect]:
    signs = [child.type for child in node.children if not child.is_named]
    words = _loose_words(node, builder)
    if not signs or not words:
        return []
    kind: RedirectKind = "read" if signs[0] == "<" else "write"
    return [RawRedirect(1, kind, words[0])]
