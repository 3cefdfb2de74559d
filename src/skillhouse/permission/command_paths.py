"""The paths that a command reads and writes by its words, and why a person is asked about one.

They may be names that are found: `find … -exec wc -l {} +` and `find … | xargs wc -l`.

find(1) gives each name behind the place where it began, so that none is an option; xargs(1) splits
its input at blanks where no option says otherwise, and a part of a name may be one. Only commands
whose further operands are all files that are read are known here; for the rest a person is asked.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

from skillhouse.floor.regex import regex
from skillhouse.permission.command_reader import read_command
from skillhouse.permission.grammar import CommandMeaning
from skillhouse.permission.path_policy import PathPolicy, git_paths
from skillhouse.permission.raw_line import Word

CALM = frozenset(
    "basename cat cksum cut dirname du egrep fgrep grep head ls md5sum nl od readlink realpath rev "
    "sha1sum sha224sum sha256sum sha384sum sha512sum stat tac tail wc".split()
)
"""Programs that only read, whatever their options are (their manuals)."""
_PLACE = regex(r"[A-Za-z0-9_.][A-Za-z0-9_./@%+-]*")
_NAMING = {
    "find": frozenset(("-printf", "-fprintf", "-ls", "-fls", "-L", "-H", "-follow")),
    "git": frozenset(("-c", "--format", "--stage", "-s", "-v")),
}
"""Programs that print names of the workspace, with the options by which they print others."""
_ENDS = (";", "+")
_SAMPLES = ("./a", "./b")
_APART = frozenset(("-0", "--null", "-r0", "-0r"))
_ALONE = frozenset(("-r", "--no-run-if-empty", "-t"))


def found_commands(argv: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the `find` without its `-exec` and what it runs, or nothing where it takes more.

    >>> found_commands(("find", "src", "-name", "*.py", "-exec", "wc", "-l", "{}", "+"))
    (('find', 'src', '-name', '*.py'), ('wc', '-l', './a', './b'))
    """
    if argv[0] != "find" or not _NAMING["find"].isdisjoint(argv):
        return ()
    places = 1
    while places < len(argv) and _PLACE.fullmatch(argv[places]):
        places += 1
    if places == 1:
        return ()
    kept, inner, at = list(argv[:places]), list[tuple[str, ...]](), places
    while at < len(argv):
        if argv[at] != "-exec":
            kept.append(argv[at])
            at += 1
            continue
        end = next((n for n in range(at + 1, len(argv)) if argv[n] in _ENDS), 0)
        words = _with_names(argv[at + 1 : end]) if end else None
        if words is None:
            return ()
        inner.append(words)
        at = end + 1
    return (tuple(kept), *inner) if inner else ()


def _with_names(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return a command with two names where `{}` is, if both are files that it reads."""
    if words.count("{}") != 1 or any("{}" in word and word != "{}" for word in words):
        return None
    at = words.index("{}")
    made = (*words[:at], *_SAMPLES, *words[at + 1 :])
    return made if at and _reads(made, (at, at + 1)) else None


def piped_command(argv: Sequence[str], before: Sequence[str]) -> tuple[str, ...]:
    """Return what `xargs` runs with two names, behind a program that prints names of the workspace.

    >>> piped_command(("xargs", "wc", "-l"), ("find", ".", "-name", "*.py"))
    ('wc', '-l', './a', './b')
    >>> piped_command(("xargs", "sort"), ("find", "."))
    ()
    """
    if argv[0] != "xargs" or not _names(before):
        return ()
    at, is_apart = 1, False
    while at < len(argv) and argv[at][:1] == "-":
        if argv[at] in ("-n", "-P", "-L") and argv[at + 1 : at + 2] and argv[at + 1].isdigit():
            at += 1
        elif argv[at] in _APART:
            is_apart = True
        elif argv[at] not in _ALONE:
            return ()
        at += 1
    inner = tuple(argv[at:])
    is_safe = is_apart and before[0] == "find" and "-print0" in before
    if not inner or not (inner[0] in CALM or is_safe):
        return ()
    made = (*inner, *_SAMPLES)
    return made if _reads(made, (len(inner), len(inner) + 1)) else ()


def _names(argv: Sequence[str]) -> bool:
    if argv[:1] == ("find",):
        return _PLACE.fullmatch("".join(argv[1:2])) is not None and _is_naming(argv)
    return argv[:2] == ("git", "ls-files") and _is_naming(argv)


def _is_naming(argv: Sequence[str]) -> bool:
    others = _NAMING[argv[0]]
    return not any(word.partition("=")[0] in others or word == "-exec" for word in argv)


def _reads(words: tuple[str, ...], places: Sequence[int]) -> bool:
    meaning = read_command(words)
    known = meaning.grammar is not None and not meaning.unknown and meaning.started is None
    return known and set(places) <= set(meaning.reads)


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
        below = tuple(accumulate(meaning.directory, posixpath.join, initial=""))
        concerns = chain(
            map(self._places.secret, git_paths(argv[1:]) if meaning.program == "git" else ()),
            map(self._places.reading, below[1:]),
            self._of_reads(meaning, patterns, below[-1]),
            self._of_writes(meaning, patterns, below[-1]),
            map(self._loose, meaning.values),
            self._of_started(meaning, patterns),
        )
        return next(filter(None, concerns), "")

    def _of_reads(
        self, meaning: CommandMeaning, patterns: Sequence[Word], directory: str
    ) -> Iterator[str]:
        # The names that match are given to the program, whatever it does with them.
        names = [word.text for word in patterns if word.pattern]
        for path in dict.fromkeys((*names, *meaning.words(meaning.reads), *meaning.read_values)):
            yield self._places.reading(_below(directory, path))
        for candidates in meaning.scripts:
            yield self._places.reading(_below(directory, candidates[0]))

    def _of_writes(
        self, meaning: CommandMeaning, patterns: Sequence[Word], directory: str
    ) -> Iterator[str]:
        for at in meaning.writes:
            if at < len(patterns) and patterns[at].pattern:
                yield "it writes to what a pattern matches"
        for path in dict.fromkeys(meaning.written):
            yield self._places.writing(_below(directory, path), covered=True)[1]
        if meaning.program in _REMOVING:
            sources = meaning.words(meaning.writes)[: -1 if meaning.program == "mv" else None]
            for path in sources:
                if self._places.is_whole(_below(directory, path)):
                    yield f"`{path[:80]}` is the whole current tree"
        yield self._copies(meaning)

    def _of_started(self, meaning: CommandMeaning, patterns: Sequence[Word]) -> Iterator[str]:
        if meaning.started is not None:
            program = meaning.started.argv[0]
            if "/" in program and not meaning.is_far:
                yield self._places.reading(program)
            yield self.concern(meaning.started, patterns[meaning.at :])

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
