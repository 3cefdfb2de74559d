"""The paths that a command reads and writes by its words, and why a person is asked about one."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from skillhouse.floor.regex import regex
from skillhouse.permission.command_meaning import CommandMeaning
from skillhouse.permission.path_policy import PathPolicy, git_paths
from skillhouse.permission.raw_line import Word

_REMOVING = frozenset(("rm", "rmdir", "mv"))


class CommandPaths:
    """Compares the paths of a command with the places that it may use."""

    def __init__(self, places: PathPolicy) -> None:
        self._places = places

    def concern(self, meaning: CommandMeaning, patterns: Sequence[Word]) -> str:
        """Return why a path that a command reads or writes needs approval, or nothing."""
        argv = meaning.argv
        if meaning.grammar is None:
            return next(filter(None, map(self._loose, argv[1:])), "")
        if meaning.program == "git":
            secrets = filter(None, map(self._places.secret, git_paths(argv[1:])))
            if concern := next(secrets, ""):
                return concern
        directory = ""
        for path in meaning.directory:
            directory = posixpath.join(directory, path)
            if concern := self._places.reading(directory):
                return concern
        # The names that match are given to the program, whatever it does with them.
        names = [word.text for word in patterns if word.pattern]
        for path in dict.fromkeys((*names, *meaning.words(meaning.reads), *meaning.read_values)):
            if concern := self._places.reading(_below(directory, path)):
                return concern
        for candidates in meaning.scripts:
            if concern := self._places.reading(_below(directory, candidates[0])):
                return concern
        for at in meaning.writes:
            if at < len(patterns) and patterns[at].pattern:
                return "it writes to what a pattern matches"
        for path in dict.fromkeys(meaning.written):
            _, concern = self._places.writing(_below(directory, path), covered=True)
            if concern:
                return concern
        if meaning.program in _REMOVING:
            sources = meaning.words(meaning.writes)[: -1 if meaning.program == "mv" else None]
            for path in sources:
                if self._places.is_whole(_below(directory, path)):
                    return f"`{path[:80]}` is the whole current tree"
        if concern := self._copies(meaning):
            return concern
        for word in meaning.values:
            if concern := self._loose(word):
                return concern
        if meaning.started is not None:
            program = meaning.started.argv[0]
            is_here = not meaning.is_far
            if is_here and "/" in program and (concern := self._places.reading(program)):
                return concern
            return self.concern(meaning.started, patterns[meaning.at :])
        return ""

    def _copies(self, meaning: CommandMeaning) -> str:
        """Return why a copy would have a protected name where it is put, or nothing."""
        if meaning.table is None or meaning.table.last != "write" or not meaning.reads:
            return ""
        target = meaning.argv[meaning.operands[-1]]
        for source in meaning.words(meaning.reads):
            name = posixpath.basename(source.rstrip("/"))
            is_top = posixpath.normpath(target) == "."
            if not is_top and target[-1:] != "/":
                continue  # Whether it is a directory is not known here.
            if is_top and name in ("", ".", ".."):
                return f"all of `{source[:60]}` would be put into the workspace's top"
            _, concern = self._places.writing(posixpath.join(target, name), covered=True)
            if concern:
                return concern
        return ""

    def _loose(self, word: str) -> str:
        """Return why a word would need approval if it is a path, which is not known."""
        for text in _path_candidates(word):
            parts = text.split("/")
            if text.startswith(("/", "~")) or ".." in parts:
                if concern := self._places.reading(text):
                    return concern
            elif len(parts) > 1 and (concern := self._places.reading(text)):
                return concern
            if self._places.is_never(text):
                return f"`{text[:80]}` is protected"
        return ""


def _below(directory: str, path: str) -> str:
    return path if not directory or path.startswith("~") else posixpath.join(directory, path)


_FILE_SIGN = regex(r"@|file(?:b)?:(?://(?:localhost(?=/))?)?", re.IGNORECASE)
"""Before the path of a file whose content is meant, by many programs."""
_PREFIXED = regex(r"[\w.+,-]+:(?=[/~]|\.\.?/|\.\w)", re.ASCII)
"""Before a path, as in `text:/etc/passwd`."""


def _path_candidates(word: str) -> Iterator[str]:
    if len(word) == 1 and word != "~":
        return  # A separator, or a name; not the whole disk.
    if marked := _FILE_SIGN.match(word):
        yield word[marked.end() :]
        return
    if "://" in word:
        return
    if prefix := _PREFIXED.match(word):
        yield word[prefix.end() :]
    if not word.startswith("-"):
        yield word
    elif word[1:2] != "-" and "/" in word:
        yield word[2:]
    _, sign, value = word.partition("=")
    if sign and value:
        yield value
