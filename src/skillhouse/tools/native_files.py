"""The files that a call of a client's own tool is about: those of a patch, of a search, and those
that our sandbox would keep from a command."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatch
from itertools import islice, pairwise, takewhile
from pathlib import Path, PurePath

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.permission import (
    CommandPlan,
    Effect,
    Permission,
    SimpleCommand,
    command_resource,
    only_reads,
    read_command,
    unwrapped,
)
from skillhouse.sandbox import CoveredPaths, ask_git
from skillhouse.tools.call import PermissionRequest
from skillhouse.tools.command_protection import (
    files_below,
    found_commands,
    has_more_below,
    recurses,
    rewriting_need,
)
from skillhouse.tools.workspace import Workspace

PATHS_MAX = 200
"""Files of one patch; a person cannot look at more."""
BELOW_MAX = 20_000
"""Files of a protected directory whose names are compared."""
_HEADS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
_MARKS = ("*** Begin Patch", "*** End Patch", "*** End of File")


def is_searched(file: str, root: str, patterns: tuple[str, ...]) -> bool:
    """Whether a search may look into a file: where a pattern may name it, or, without one, where no
    `.gitignore` of the top, by which clients go, certainly leaves it out."""
    relative = os.path.relpath(file, root)
    name = os.path.basename(file)
    if patterns:
        # What is read in several ways (braces, negations, sets) counts as naming it.
        return any(
            set(one) & set("{}![]")
            or fnmatch(name, one.rpartition("/")[2])
            or fnmatch(relative, one)
            for one in patterns
        )
    try:
        lines = Path(root, ".gitignore").read_text("utf-8", "replace").splitlines()
    except OSError:
        return True
    is_repository = os.path.exists(os.path.join(root, ".git"))
    plain = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not is_repository or any(line.startswith("!") for line in plain):
        return True
    return not any("/" not in line and fnmatch(name, line) for line in plain)


class PatchError(Exception):
    """A text is no such patch; the message says what was expected."""


def patched_paths(text: str) -> tuple[str, ...]:
    r"""Return every path that a patch adds, changes, removes or moves to, in its order.

    >>> patched_paths("*** Begin Patch\n*** Add File: a/b\n+text\n*** End Patch")
    ('a/b',)

    Raises:
        PatchError: it names no file, more than `PATHS_MAX`, or has a head that is not known.
    """
    found: dict[str, None] = {}
    for whole in text.split("\n"):
        # Codex passes over blanks before a head.
        line = whole.strip()
        head = next((one for one in _HEADS if line.startswith(one)), "")
        path = line.removeprefix(head).strip()
        if head and path:
            found[path] = None
        elif whole.startswith("***") and line not in _MARKS:
            raise PatchError(f"expected a head of a patch, got `{line[:80]}`")
    if not found or len(found) > PATHS_MAX:
        raise PatchError(f"expected a patch of 1 to {PATHS_MAX} files, got {len(found)}")
    return tuple(found)


class ReachedTree(Struct, frozen=True, kw_only=True):
    """A directory of which a command gives, or changes, what is below."""

    place: str
    patterns: tuple[str, ...] = ()
    """Names that the files have; none for all."""
    left_out: tuple[str, ...] = ()
    """Patterns of paths, as `find` begins them, that are left out."""
    is_plain: bool = False
    """Whether hidden files, and those that git leaves out, are left out."""
    has_hidden: bool = False
    """Whether hidden files are not left out all the same."""
    is_tracked: bool = False
    """Whether only files that git has are part of it."""
    is_changed: bool = False

    def holds(self, file: str, root: str) -> bool:
        """Whether a file, or what is in a directory, is part of it."""
        if not file.startswith(f"{self.place}/"):
            return False
        relative = os.path.relpath(file, self.place)
        inside = f"./{relative}/x" if os.path.isdir(file) else f"./{relative}"
        if any(fnmatch(inside, one) for one in self.left_out):
            return False
        if self.patterns and os.path.isdir(file):
            below = (os.path.join(at, name) for at, _, names in os.walk(file) for name in names)
            several = list(islice(below, BELOW_MAX + 1))
            is_beyond = len(several) > BELOW_MAX
            return is_beyond or any(is_searched(one, root, self.patterns) for one in several)
        if self.patterns:
            return is_searched(file, root, self.patterns)
        is_hidden = not self.has_hidden and any(part[:1] == "." for part in relative.split("/"))
        return not self.is_plain or (not is_hidden and is_searched(file, root, ()))

    def changed(self, root: str) -> Iterator[str]:
        """Yield the files that may be changed, as far as they are looked at."""
        whole = replace(self, patterns=())
        for path in files_below(self.place) if self.is_changed else ():
            # What changes a directory, as `mv` does, changes what is below.
            names = PurePath(os.path.relpath(path, self.place)).parts
            is_below_one = bool(self.patterns) and any(
                is_searched(name, root, self.patterns) for name in names[:-1]
            )
            if self.holds(path, root) or (is_below_one and whole.holds(path, root)):
                yield path


_RECURSIVE = frozenset({"grep", "egrep", "fgrep"})
_SEARCHES = frozenset({"rg", "ag", "ack"})
"""Programs that search below a directory by themselves, without what is hidden or ignored."""
_WIDE = ("--hidden", "--no-ignore", "--unrestricted", "--all", "--skip-vcs", "-.")
_WIDE_OF_GIT = frozenset({"--no-index", "--no-exclude-standard"})
_ONLY_NAMES = frozenset({"--files", "--type-list", "--help", "--version"})
_FOUND = "./a"
"""In the place of a name that a program finds."""
_PACKERS = frozenset({"tar", "bsdtar", "zip", "7z", "rsync", "scp"})
_COMPRESSORS = frozenset({"gzip", "gunzip", "pigz", "unpigz"})
_READERS = regex(
    r"\b(?:[ef]?grep|diff|cp|mv|rg|ag|ack|find|fd|fdfind|xargs|tar|bsdtar|zip|7z|rsync|scp|gzip|gunzip|pigz|unpigz|unzip|7za|7zz|env|printenv|npx|bunx|pnpx|npm)\b|--no-index|--untracked"
)


def may_have_trees(line: str) -> bool:
    """Whether it is worth looking for `trees` in a line."""
    return _READERS.search(line) is not None


def trees(
    commands: Sequence[SimpleCommand], directory: str
) -> list[tuple[ReachedTree, SimpleCommand]]:
    """Return the directories of which commands of a pipeline give, or change, everything."""
    argvs = [unwrapped(command.argv) or command.argv for command in commands]
    found = ((_trees(argvs, at, directory), one) for at, one in enumerate(commands))
    return [(tree, one) for several, one in found for tree in several]


def _trees(argvs: Sequence[tuple[str, ...]], at: int, directory: str) -> Iterator[ReachedTree]:
    argv = argvs[at]
    name, words = os.path.basename(argv[0]), argv[1:]
    places, here = _directories(words, directory), os.path.realpath(directory)
    if name == "xargs":
        yield from _fed(argvs[:at], argv, here)
    elif name in ("find", "fd", "fdfind"):
        yield from _found(argv, places or [here])
    elif name == "cp":
        yield from (ReachedTree(place=place) for place in _directories(_copied(words), directory))
    elif name == "diff" or _packs(name, words):
        values = [word.partition("=")[2] for word in words if word[:2] == "--" and "=" in word]
        places += _directories(filter(None, values), directory)
        yield from (ReachedTree(place=place) for place in places)
    elif name in _RECURSIVE and _is_recursive(words):
        yield from (ReachedTree(place=place) for place in _searched_places(argv, directory))
    elif name in _SEARCHES and not _gives_names(words):
        found = _searched_places(argv, directory)
        yield from (tree for place in found for tree in _searched(words, place))
    elif name == "git":
        yield from _given_by_git(argv, places, directory)


def _searched_places(argv: tuple[str, ...], directory: str) -> list[str]:
    """Return the directories that a search goes through: here, where it may name none.

    A pattern, or the value of an option, may be the name of a directory too.
    """
    meaning = read_command(argv)
    named = meaning.words(meaning.reads)
    is_understood = meaning.grammar is not None and not meaning.unknown
    if is_understood and named:
        paths = [os.path.join(directory, *meaning.directory, word) for word in named]
        if all(map(os.path.lexists, paths)):
            return [real for real in map(os.path.realpath, paths) if os.path.isdir(real)]
    return list(dict.fromkeys((*_directories(argv[1:], directory), os.path.realpath(directory))))


def _given_by_git(
    argv: tuple[str, ...], places: Sequence[str], directory: str
) -> Iterator[ReachedTree]:
    is_search = "grep" in argv
    if {"--no-index", "--untracked"}.isdisjoint(argv):
        meaning = read_command(argv)
        if is_search and not meaning.unknown and meaning.path == ("grep",):
            yield from _tracked_trees(meaning.words(meaning.reads), directory)
        return
    is_plain = _WIDE_OF_GIT.isdisjoint(argv)
    for place in _searched_places(argv, directory) if is_search else places:
        yield ReachedTree(place=place, is_plain=is_plain, has_hidden=True)


def _tracked_trees(named: Sequence[str], directory: str) -> Iterator[ReachedTree]:
    """Yield what `git grep` looks into: the paths and patterns that it names, or all."""
    patterns = tuple(word for word in named if not {*word}.isdisjoint("*?"))
    places = [] if patterns else _directories(named, directory)
    is_file = not (places or patterns) and any(
        os.path.isfile(os.path.join(directory, word)) for word in named
    )
    if not is_file:
        for place in places or [os.path.realpath(directory)]:
            yield ReachedTree(place=place, patterns=patterns, is_tracked=True)


def _copied(words: Sequence[str]) -> Sequence[str]:
    """Return what `cp` copies with all that is below."""
    is_deep = any(w.startswith(("--rec", "--arc")) or _has_letter(w, "rRa") for w in words)
    has_target = any(w.startswith("--tar") or _has_letter(w, "t") for w in words)
    operands = [word for word in words if word[:1] != "-"]
    return (operands if has_target else operands[:-1]) if is_deep else ()


def _directories(words: Iterable[str], directory: str) -> list[str]:
    paths = (os.path.realpath(os.path.join(directory, word)) for word in words)
    return [path for path in paths if os.path.isdir(path)]


def _searched(words: Sequence[str], place: str) -> Iterator[ReachedTree]:
    globs = _globs(words)
    is_wide = any(word.startswith(_WIDE) or _has_letter(word, "u") for word in words)
    yield ReachedTree(place=place, patterns=globs, is_plain=not (is_wide or globs))
    if globs and _may_be_values(words):
        yield ReachedTree(place=place, is_plain=not is_wide)


def _is_recursive(words: Sequence[str]) -> bool:
    return any(
        word.startswith(("--rec", "--deref", "--dir")) or _has_letter(word, "rRd") for word in words
    )


def _has_letter(word: str, letters: str) -> bool:
    return word[:1] == "-" and word[1:2] != "-" and not {*letters}.isdisjoint(word)


def _packs(name: str, words: Sequence[str]) -> bool:
    """Whether a program puts the directories that it is given into something."""
    if name in _COMPRESSORS:
        return recurses(words)
    if name not in ("tar", "bsdtar"):
        return name in _PACKERS
    return _tar_does("cru", ("--create", "--append", "--update"), words)


def _tar_does(letters: str, options: Iterable[str], words: Sequence[str]) -> bool:
    """Whether one of the modes is given, as in `xf`, `-xf` or `--extract`."""
    first = "".join(words[:1])
    is_short = first[:1] != "-" and not {*letters}.isdisjoint(first)
    is_short = is_short or any(_has_letter(word, letters) for word in words)
    return is_short or not {*options}.isdisjoint(words)


def unpacks(argv: tuple[str, ...]) -> bool:
    """Whether a command brings files whose names are in an archive.

    >>> [unpacks(argv) for argv in (("tar", "-xzf", "a"), ("tar", "tf", "a"), ("unzip", "a"))]
    [True, False, True]
    """
    argv = unwrapped(argv) or argv
    name, words = os.path.basename(argv[0]), argv[1:]
    if name in ("tar", "bsdtar"):
        return _tar_does("x", ("--extract", "--get"), words)
    if name == "unzip":
        # Behind the name of the archive they are names of files; what follows `-d` is its value.
        letters = takewhile(lambda word: word[:1] == "-", words)
        return not any(_has_letter(word.partition("d")[0], "lvtpZzh") for word in letters)
    return name in ("7z", "7za", "7zz") and "".join(words[:1]) in ("x", "e")


def fetched(argv: tuple[str, ...], directory: str) -> str:
    """Return the package that npx or its like would install to run it; "" where it is there."""
    argv = _innermost(argv)
    meaning = read_command(argv)
    if meaning.started is None or meaning.program not in ("npx", "bunx", "pnpx", "npm"):
        return ""
    name = meaning.started.argv[0]
    above = (directory, *map(str, Path(directory).parents))
    is_there = any(os.path.lexists(f"{place}/node_modules/.bin/{name}") for place in above)
    return "" if is_there or "--no-install" in argv[: meaning.at] else name


def shows_variables(argv: tuple[str, ...]) -> bool:
    """Whether a command prints all variables that it has, or those that are named.

    >>> [shows_variables(argv) for argv in (("env",), ("env", "ls"), ("printenv", "PATH"))]
    [True, False, True]
    """
    return read_command(_innermost(argv)).program in ("env", "printenv")


def _innermost(argv: tuple[str, ...]) -> tuple[str, ...]:
    while inner := read_command(argv).inner:
        argv = argv[inner:]
    return argv


def _globs(words: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns that name files, of which those that leave some out name none."""
    options = ("-g", "--glob", "--iglob")
    found = [after for word, after in pairwise(words) if word in options]
    found += [word.partition("=")[2] for word in words if word.startswith(("--glob=", "--iglob="))]
    found += [word[2:] for word in words if word[:2] == "-g" and word[2:]]
    return tuple(one for one in found if one[:1] != "!")


def _gives_names(words: Sequence[str]) -> bool:
    """Whether a search only gives names: not where the word may be a value, as in `-e --files`."""
    pairs = zip(("", *words), words, strict=False)
    return any(word in _ONLY_NAMES and before[:1] != "-" for before, word in pairs)


def _may_be_values(words: Sequence[str]) -> bool:
    """Whether what looks like `-g` may be the value of the option before it, as in `-e -g`."""
    pairs = [(a, b) for a, b in pairwise(words) if b.startswith(("-g", "--glob", "--iglob"))]
    return any(_has_letter(before, "ABCEMTdefjmrt") or before[:2] == "--" for before, _ in pairs)


def _found(argv: Sequence[str], places: Sequence[str]) -> Iterator[ReachedTree]:
    """Yield what the commands of `find -exec` are given."""
    for start, inner in found_commands(argv):
        tests = argv[:start]
        made = tuple(_FOUND if "{}" in word else word for word in inner) or ("true",)
        for place in places:
            tree = ReachedTree(place=place) if _goes_below(made) else _tested(tests, place)
            yield replace(tree, is_changed=not only_reads(made))


def _goes_below(argv: tuple[str, ...]) -> bool:
    """Whether a command takes all that is below a directory that it is given."""
    words = tuple("/" if word == _FOUND else word for word in argv)
    return any(True for _ in _trees([words], 0, "/"))


def _tested(tests: Sequence[str], place: str) -> ReachedTree:
    """Return what `find` finds below a directory, by the tests that are plain to see."""
    if not {"-o", "-or", "(", "\\(", ","}.isdisjoint(tests) or os.path.basename(tests[0]) != "find":
        return ReachedTree(place=place)
    names, left_out = [], []
    for before, word, after in zip(("", *tests), tests, tests[1:], strict=False):
        is_not = before in ("!", "-not")
        if word in ("-name", "-path", "-wholename") and after[:1] == "-":
            # The word may be the value of another test, as in `-path -name`.
            return ReachedTree(place=place)
        if word == "-name" and not is_not:
            names.append(after)
        elif word in ("-path", "-wholename") and is_not:
            is_plain = after[:1] == "*" or (after[:2] == "./" and tests[1] == ".")
            left_out += [after] * is_plain
    return ReachedTree(place=place, patterns=tuple(names), left_out=tuple(left_out))


def _fed(
    before: Sequence[tuple[str, ...]], argv: tuple[str, ...], here: str
) -> Iterator[ReachedTree]:
    """Yield what `xargs` is given: names that a program found, or any."""
    first = before[0] if before else ("",)
    meaning = read_command(argv)
    marks = [o.value or "{}" for o in meaning.options if o.name in ("-I", "-i", "--replace", "-J")]
    inner = argv[meaning.operands[0] :] if meaning.operands else ("echo",)
    made = tuple(_FOUND if any(mark in word for mark in marks) else word for word in inner)
    made = made if marks else (*inner, _FOUND)
    is_changed = not only_reads(made)
    if _goes_below(made):
        # Without a name it is about the whole directory, and a name may be one's.
        yield ReachedTree(place=here, is_changed=is_changed)
    elif os.path.basename(first[0]) == "find":
        yield replace(_tested(first, here), is_changed=is_changed)
    else:
        is_listed = first[:2] in (("git", "ls-files"), ("git", "diff")) and not any(
            _has_letter(word, "oi") or word in ("--others", "--ignored") for word in first
        )
        yield ReachedTree(place=here, is_tracked=is_listed, is_changed=is_changed)


def unbounded_needs(
    structure: CommandPlan, workspace: Workspace, coverage: Callable[[], CoveredPaths]
) -> Iterator[PermissionRequest]:
    """Yield what our sandbox would keep from the commands of a plan: reading what is hidden below a
    directory, changing files that act later there, the client's variables, new packages."""
    root = str(workspace.root)
    start = os.path.join(root, structure.directory)
    for pipeline in structure.pipelines:
        for tree, one in trees(pipeline.commands, start):
            yield from _tree_needs(tree, one, workspace, coverage)
        for one in pipeline.commands:
            if moved := tuple(_moved(one.argv, start, workspace)):
                yield rewriting_need(one.argv, moved, is_known=True)
            if unpacks(one.argv):
                yield rewriting_need(one.argv, (), is_known=False)
            why = ""
            if shows_variables(one.argv):
                why = "the variables of the client may hold its keys"
            elif name := fetched(one.argv, start):
                why = f"`{name[:80]}` is not installed here, and would be from the network"
            if why:
                resource = command_resource(one.argv)
                yield PermissionRequest(
                    permission=Permission(action="exec-once", resource=resource),
                    default=Effect.ASK,
                    why=why,
                )


def _tree_needs(
    tree: ReachedTree,
    command: SimpleCommand,
    workspace: Workspace,
    coverage: Callable[[], CoveredPaths],
) -> Iterator[PermissionRequest]:
    root = str(workspace.root)
    hidden = (os.path.join(root, at, name) for at, name, is_it in coverage().paths if is_it)
    found = [path for path in hidden if tree.holds(path, root)]
    found = _tracked(found, root) if tree.is_tracked and found else found
    yield from hidden_needs(found, root, "the command reads")
    acting = [
        path for path in tree.changed(root) if workspace.paths.group(os.path.relpath(path, root))
    ]
    acting = _tracked(acting, root) if tree.is_tracked and acting else acting
    is_known = not (tree.is_changed and has_more_below(tree.place))
    if acting or not is_known:
        names = tuple(os.path.relpath(path, root) for path in acting)
        yield rewriting_need(command.argv, names, is_known=is_known)


def _moved(argv: tuple[str, ...], directory: str, workspace: Workspace) -> Iterator[str]:
    """Yield the files that act later, in directories that `mv` moves."""
    argv = unwrapped(argv) or argv
    is_move = os.path.basename(argv[0]) == "mv"
    for place in _directories(argv[1:-1], directory) if is_move else ():
        names = (os.path.relpath(path, workspace.root) for path in files_below(place))
        yield from (name for name in names if workspace.paths.group(name))


def _tracked(paths: Sequence[str], root: str) -> list[str]:
    """Return those of some paths that git has, or has files of; all where git does not say."""
    listed = ask_git(Path(root), "ls-files", "-z", "--", *paths)
    if listed is None:
        return list(paths)
    names = {os.path.join(root, name) for name in listed.split("\0") if name}
    return [
        path for path in paths if path in names or any(one.startswith(f"{path}/") for one in names)
    ]


SHOWN_MAX = 8
"""Hidden files that are asked about one by one."""


def hidden_needs(found: Sequence[str], root: str, what: str) -> tuple[PermissionRequest, ...]:
    shown = "" if len(found) <= SHOWN_MAX else f" and {len(found) - SHOWN_MAX} more files"
    return tuple(
        PermissionRequest(
            permission=Permission(action="read", resource=path),
            default=Effect.ASK,
            why=f"{what} `{os.path.relpath(path, root)[:80]}`{shown} as well, "
            "which is kept from commands here",
        )
        for path in found[:SHOWN_MAX]
    )
