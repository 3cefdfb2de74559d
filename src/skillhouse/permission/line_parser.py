"""Finds the commands of a line that only a shell can run, for what must never run.

This file alone loads the parser, and is imported when such a line is judged. Lines without a need
of a shell are read by `plain_line`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import tree_sitter
import tree_sitter_bash

from skillhouse.permission.plan import RedirectKind
from skillhouse.permission.raw_line import (
    COMMANDS_MAX,
    RawCommand,
    RawRedirect,
    Reading,
    UnreadableError,
    Word,
    decode_word,
)

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
    root = tree_sitter.Parser(_language()).parse(source).root_node
    if root.has_error:
        raise UnreadableError("it does not parse as a shell line")
    return Reading([], _all_commands(root, source), reason, _calls_itself(root, source))


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
