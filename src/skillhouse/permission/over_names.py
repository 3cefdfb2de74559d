"""Commands over names that are found: `find … -exec wc -l {} +` and `find … | xargs wc -l`.

find(1) gives each name behind the place where it began, so that none is an option; xargs(1) splits
its input at blanks unless an option says otherwise, so that a part of a name may be one. Only
commands whose further operands are all files that are read are known here; for the rest a person is
asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from skillhouse.floor.regex import regex
from skillhouse.permission.command_reader import read_command

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
