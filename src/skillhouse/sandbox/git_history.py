"""Of which files a git command prints, packs or unpacks the content that the history has of them.

A mask is over a file of the work tree, and git's objects hold each version that was committed. So
git is asked for the names alone, in a read-only sandbox and with the words of the command. Programs
that read the objects themselves are not seen here.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.floor.regex import regex
from skillhouse.sandbox.git_changes import after_options, ask_git
from skillhouse.sandbox.git_index import repository_around

_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Git knows this tree in every repository of SHA-1 (gitformat-pack, object.c)."""
_ALL = frozenset(
    "range-diff merge-tree fast-export difftool send-email imap-send unpack-file pack-objects "
    "request-pull upload-pack".split()
)
"""Words that print or pack what their words do not tell easily: all of the history counts."""
_QUIET = frozenset(
    "branch tag remote rev-parse rev-list describe ls-files ls-tree fetch push "
    "switch rm mv clean merge rebase cherry-pick revert init gc".split()
)
_PATCH = (
    *("--patch", "--patch-with-stat", "--patch-with-raw", "--unified", "--binary", "--cc", "--dd"),
    *("--word-diff", "--color-words", "--remerge-diff", "--diff-merges", "--function-context"),
    *("--check", "--full-diff", "--color-moved", "--inter-hunk-context", "--output-indicator-new"),
)
"""Options of which git takes the beginnings as well (gitcli(7))."""
_SHORT_PATCH = ("-p", "-u", "-U", "-c", "-W", "-m")
_SUMMARY = (
    *("--stat", "--numstat", "--shortstat", "--dirstat", "--summary", "--compact-summary", "-s"),
    *("--name-only", "--name-status", "--raw", "--no-patch", "--quiet", "--cumulative", "-X"),
)
_FORMAT = regex(
    r"-[puWsz]|-U\d*|-X.*|-O.+|--(?:no-)?patch(?:-with-(?:stat|raw))?|--unified(?:=.*)?|--raw"
    r"|--(?:stat|numstat|shortstat|dirstat|cumulative|summary|compact-summary|no-stat)(?:[=,-].*)?"
    r"|--name-(?:only|status)|--binary|--check|--(?:full-)?index|--(?:no-)?abbrev(?:=.*)?|-z"
    r"|--(?:no-)?color(?:-\w+)*(?:=.*)?|--word-diff(?:-regex)?(?:=.*)?|--anchored=.*"
    r"|--(?:no-)?(?:relative|renames|ext-diff|textconv|function-context|graph)(?:=.*)?"
    r"|--(?:format|pretty)(?:=.*)?|--oneline|--output(?:-\S+)?=.*|--line-prefix=.*|--quiet"
    r"|--inter-hunk-context=.*|--(?:src|dst)-prefix=.*|--(?:no|default)-prefix|--submodule(?:=.*)?"
    r"|--(?:find-renames|find-copies)(?:=.*)?|-[MCB]\S*|--find-copies-harder|--(?:no-)?decorate\S*"
    r"|--stdout|--cover-letter|--thread(?:=.*)?|--(?:subject-prefix|start-number|suffix)=.*|-[ks]"
    r"|--(?:signoff|numbered|keep-subject|no-numbered|zero-commit|signature|no-signature)(?:=.*)?"
    r"|--(?:minimal|patience|histogram|indent-heuristic|diff-algorithm)(?:=.*)?|--notes(?:=.*)?"
    r"|--(?:show|no)-notes\S*|--show-signature|--abbrev-commit|--no-abbrev-commit|--stat|-[aw]|-b"
)
"""Options about the form of what is printed, which are left out when git is asked for names."""
_COMMIT = regex(r"(?:HEAD|@)(?:[~^][0-9]*|@\{[0-9]+\})*")
_PATH = regex(r"[^:]:.|^:[0-3]?:?[^/(!^0-3:]")
"""`REV:PATH` and `:PATH` (gitrevisions(7)), which is judged by its path."""
_WILD = regex(r"[*?\[]|^:|\.\.|\^")
_BLOB_LINE = regex(r"blob ([0-9a-f]{40,64})")


class GitContents(Struct, frozen=True, kw_only=True):
    """The files of which a command gives the content of the history."""

    names: tuple[str, ...] = ()
    """Absolute paths, which need not exist."""
    is_known: bool = True
    """False: it may give that of other files as well."""


NOTHING = GitContents()
UNKNOWN = GitContents(is_known=False)


def find_git_contents(argv: Sequence[str], directory: Path) -> GitContents:
    """Return what `argv`, `git` with its arguments, gives of the history where it runs."""
    directory, rest, is_plain = after_options(argv, directory)
    if not rest or rest[0] in _QUIET or {"--help", "-h"} & {*rest[1:2]}:
        return NOTHING
    if is_plain and repository_around(os.path.realpath(directory)) is None:
        return NOTHING
    history = _History(directory)
    try:
        names = history.names(rest[0], rest[1:])
    except _UnknownError:
        return NOTHING if history.fails(rest[0], rest[1:]) else UNKNOWN
    if names is None:
        return NOTHING
    if not is_plain:
        return UNKNOWN
    return GitContents(names=tuple(sorted(history.absolute(name) for name in names)))


class _UnknownError(Exception):
    """Git did not say which files are meant."""


class _History:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @functools.cached_property
    def _top(self) -> str:
        found = repository_around(os.path.realpath(self._directory))
        if found is not None:
            return found.top
        return (ask_git(self._directory, "rev-parse", "--show-toplevel") or "").rstrip("\n")

    def absolute(self, name: str) -> str:
        return os.path.join(self._top, name)

    def fails(self, word: str, arguments: Sequence[str]) -> bool:
        """Whether git itself finds nothing that the command could be about."""
        try:
            return self._fails(word, *_split(arguments))
        except _UnknownError:
            return False

    def _fails(self, word: str, before: list[str], after: list[str]) -> bool:
        operands = _operands(before[1:] if word in ("stash", "reflog") else before)
        if any(given.startswith(_SETS) for given in before):
            return False
        if not operands:
            named = "refs/stash" if word == "stash" else "HEAD"
            return not self._is_revision(named)
        return word in ("show", "log", "diff", "stash") and any(
            not self._is_revision(one)
            and (after or not os.path.lexists(self._directory / one))
            and not _WILD.search(one)
            for one in operands
        )

    def names(self, word: str, arguments: Sequence[str]) -> set[str] | None:
        """Return the names below the top; None for a command that gives nothing."""
        before, after = _split(arguments)
        if word in _ALL or (word == "fsck" and "--lost-found" in before):
            return self._walked("log", ["--all", "--reflog", "-m"], ())
        if word in _FINDERS:
            return _FINDERS[word](self, before, after)
        is_by_hunks = word in _BY_HUNKS and _is_one_of(before, _HUNKS)
        if is_by_hunks or (word in ("status", "commit") and _is_one_of(before, _VERBOSE)):
            return self._uncommitted()
        return None

    def _shown(self, before: list[str], after: Sequence[str]) -> set[str]:
        blobs, rest = self._blobs(before)
        has_others = len(rest) == len(before) or _operands(rest)
        if _is_summary(before) or not has_others:
            return blobs
        return blobs | self._walked("show", rest, after)

    def _logged(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        return self._walked("log", before, after) if _has_patch(before) else None

    def _reflog(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        words = before[1:] if before[:1] == ["show"] else before
        return self._logged(["-g", *words], after)

    def _stash(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        if before[:1] == ["show"]:
            return self._stashed(before[1:])
        if before[:1] == ["list"]:
            # The commits of a stash are merges.
            words = ["-g", "-m", "refs/stash", *before[1:]]
            return self._walked("log", words, after) if _has_patch(before[1:]) else None
        return self._uncommitted() if _is_one_of(before, _HUNKS) else None

    def _diff_tree(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        return self._walked("diff-tree", before, after) if _has_patch(before) else None

    def _diff_index(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        return self._walked("diff-index", before, after) if _has_patch(before) else None

    def _diff_files(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        return self._walked("diff-files", before, after) if _has_patch(before) else None

    def _patches(self, before: list[str], after: Sequence[str]) -> set[str]:
        return self._walked("log", _since(before), after)

    def _bundled(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        if before[:1] != ["create"]:
            return None
        revisions = [word for word in before[1:] if word not in _BUNDLE][1:]
        return self._walked("log", ["-m", "--root", *revisions], after)

    def _walked(self, word: str, before: Sequence[str], after: Sequence[str]) -> set[str]:
        """Return the names of what a command that walks or compares would print."""
        words = [given for given in before if not _FORMAT.fullmatch(given)]
        form = () if word.startswith("diff") else ("--format=",)
        more = ("-r", "--no-commit-id") if word == "diff-tree" else ()
        # Behind a path that is given without `--` git takes no options.
        return self._listed(
            word,
            *more,
            "--no-renames",
            "--no-relative",
            "--no-textconv",
            "--no-ext-diff",
            "--name-only",
            "-z",
            *form,
            *words,
            *(("--", *after) if after else ()),
        )

    def _compared(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        if "--no-index" in before or _is_summary(before):
            return None
        operands = _operands(before)
        is_cached = {"--cached", "--staged"} & {*before}
        if not (operands or is_cached or shutil.which("bwrap")):
            # Nothing can be asked there, and of what is masked only a deletion would be shown.
            return None
        revisions = [one for one in operands if self._is_revision(one)]
        blobs, _ = self._blobs(operands)
        is_range = len(revisions) > 1 or any(".." in one for one in revisions)
        if is_cached or is_range or blobs:
            return blobs | self._walked("diff", before, after)
        # Against the work tree a masked file is what the index has.
        found = self._walked("diff", [_UNMASKED, *before], after)
        return found | (self._walked("diff", ["--cached", *before], after) if revisions else set())

    def _uncommitted(self) -> set[str]:
        """Return the names of what differs between the last commit, the index and the work tree."""
        found = self._walked("diff", ["--cached"], ())
        return found | self._walked("diff", [_UNMASKED], ())

    def _stashed(self, before: Sequence[str]) -> set[str] | None:
        if _is_summary(before) and not _has_patch(before):
            return None
        words = [word for word in before if not _FORMAT.fullmatch(word)]
        return self._listed("stash", "show", "--name-only", "-z", "--no-renames", *words)

    def _searched(self, before: list[str], after: Sequence[str]) -> set[str] | None:
        if any(_is_short_of(_COUNTS, word) for word in before):
            return None
        operands, has_pattern = _grep_operands(before)
        revisions = []
        for operand in operands if has_pattern else operands[1:]:
            # Without `--` git takes no word for a revision that is a file as well.
            is_file = not after and os.path.lexists(self._directory / operand)
            if is_file or not self._is_revision(operand):
                break
            revisions.append(operand)
        paths = after or [o for o in operands[0 if has_pattern else 1 :] if o not in revisions]
        found, trees = self._blobs(revisions)
        for revision in trees:
            found |= self._tree_names(revision, paths)
        if "--cached" in before:
            found |= self._listed("ls-files", "-z", "--full-name", "--", *paths)
        return found

    def _archived(self, before: Sequence[str], after: Sequence[str]) -> set[str] | None:
        operands = _operands(before, valued=_ARCHIVE)
        if not operands or {"-l", "--list"} & {*before}:
            return None
        return self._tree_names(operands[0], [*operands[1:], *after])

    def _printed(self, before: list[str], _: Sequence[str]) -> set[str] | None:
        if any(word == "--batch" or word.startswith(_BATCH) for word in before):
            raise _UnknownError
        operands = _operands(before)
        if not operands or {"-t", "-s", "-e"} & {*before}:
            return None
        return self._blobs(operands[-1:])[0]

    def _cloned(self, before: list[str], _: Sequence[str]) -> set[str] | None:
        operands = _operands(before, valued=_CLONE)
        source = self._directory / operands[0].removeprefix("file://") if operands else None
        if source is None or not source.is_dir() or not _BARE.isdisjoint(before):
            return None
        other = _History(source)
        names = other._tree_names("HEAD", ())
        return {other.absolute(name) for name in names}

    def _added(self, before: list[str], _: Sequence[str]) -> set[str] | None:
        operands = _operands(before, valued=_CLONE)
        if operands[:1] != ["add"] or not _BARE.isdisjoint(before):
            return None
        return self._tree_names(operands[2] if operands[2:] else "HEAD", [f"{self._top}/"])

    def _tree_names(self, tree: str, paths: Iterable[str]) -> set[str]:
        """Return the files of a tree below the directory, as pathspecs choose them."""
        paths = tuple(paths) or (".",)
        return self._listed(
            "diff",
            "--no-renames",
            "--no-relative",
            "--name-only",
            "-z",
            _EMPTY_TREE,
            tree,
            "--",
            *paths,
        )

    def _blobs(self, words: Sequence[str]) -> tuple[set[str], list[str]]:
        """Return the names of the files that words name as objects, and the other words.

        One that is named by a path is judged by that, and left out as well.
        """
        asked = [one for one in _operands(words) if not _COMMIT.fullmatch(one)]
        if not asked:
            return set(), list(words)
        if any("\n" in one for one in asked):
            raise _UnknownError
        # Of a tag what it leads to.
        ends = (one if _PATH.search(one) else f"{one}^{{}}" for one in asked)
        lines = "".join(f"{one}\n" for one in ends).encode(errors="surrogateescape")
        answer = ask_git(
            self._directory, "cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=lines
        )
        kinds = dict(zip(asked, (answer or "").splitlines(), strict=False))
        if len(kinds) < len(set(asked)):
            raise _UnknownError
        others = {one for one, kind in kinds.items() if kind.startswith(("blob ", "tree "))}
        found: set[str] = set()
        for one, kind in kinds.items():
            match = _BLOB_LINE.fullmatch(kind)
            if match is not None and not _PATH.search(one):
                found |= self._names_of(match[1])
        return found, [word for word in words if word not in others]

    def _names_of(self, blob: str) -> set[str]:
        """Return the names that an object has in the history and in the index."""
        names = self._walked("log", ["--all", "-m", f"--find-object={blob}"], ())
        staged = ask_git(self._directory, "ls-files", "-s", "-z", "--full-name", "--", ":/") or ""
        entries = (entry for entry in staged.split("\0") if entry[7:].startswith(blob))
        names |= {entry.partition("\t")[2] for entry in entries}
        if not names:
            raise _UnknownError
        return names

    def _is_revision(self, word: str) -> bool:
        sides = [side for side in re.split(r"\.{2,3}", word) if side] or [word]
        lines = "".join(f"{side}\n" for side in sides).encode(errors="surrogateescape")
        answer = ask_git(self._directory, "cat-file", "--batch-check=%(objecttype)", stdin=lines)
        if answer is None or "\n" in word:
            raise _UnknownError
        return all(line in _OBJECTS for line in answer.splitlines())

    def _listed(self, *arguments: str) -> set[str]:
        text = ask_git(self._directory, *arguments)
        if text is None:
            raise _UnknownError
        return {name for part in text.split("\0") if (name := part.strip("\n"))}


_FINDERS: Mapping[str, Callable[[_History, list[str], Sequence[str]], set[str] | None]] = {
    "show": _History._shown,  # noqa: SLF001 - of this module, as the others.
    "log": _History._logged,  # noqa: SLF001
    "whatchanged": _History._logged,  # noqa: SLF001
    "reflog": _History._reflog,  # noqa: SLF001
    "stash": _History._stash,  # noqa: SLF001
    "diff": _History._compared,  # noqa: SLF001
    "diff-tree": _History._diff_tree,  # noqa: SLF001
    "diff-index": _History._diff_index,  # noqa: SLF001
    "diff-files": _History._diff_files,  # noqa: SLF001
    "format-patch": _History._patches,  # noqa: SLF001
    "grep": _History._searched,  # noqa: SLF001
    "archive": _History._archived,  # noqa: SLF001
    "bundle": _History._bundled,  # noqa: SLF001
    "cat-file": _History._printed,  # noqa: SLF001
    "clone": _History._cloned,  # noqa: SLF001
    "worktree": _History._added,  # noqa: SLF001
}
_SETS = (
    *("--all", "--branches", "--remotes", "--tags", "--glob", "--reflog", "--alternate-refs"),
    *("-g", "--walk-reflogs", "--stdin", "--merge", "--bisect"),
)
"""Options that mean commits without naming one."""
_OBJECTS = frozenset({"commit", "tag", "tree", "blob"})
_BATCH = ("--batch=", "--batch-command")
_BARE = frozenset({"--bare", "--mirror", "-n", "--no-checkout"})
_UNMASKED = "--diff-filter=DTU"
"""What is not masked, as it is no file of the work tree now."""
_BY_HUNKS = frozenset({"add", "stage", "commit", "checkout", "restore", "reset", "stash"})
_HUNKS = ("-p", "-i", "-e", "--patch", "--interactive", "--edit")
_VERBOSE = ("-v", "--verbose")
_BUNDLE = frozenset({"-q", "--quiet", "--progress", "--all-progress", "--no-quiet"})
_COUNTS = ("-l", "-L", "-c", "-q", "--files-with-matches", "--files-without-match", "--count")
_ARCHIVE = frozenset({"-o", "--output", "--format", "--prefix", "--add-file", "--remote", "--exec"})
_CLONE = frozenset({"-b", "-B", "--branch", "-o", "--origin", "--depth", "-j", "--reason", "-c"})
_GREP = frozenset({"-e", "-f", "-A", "-B", "-C", "-m", "--threads", "--max-depth", "-O"})


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return list(arguments), []
    at = list(arguments).index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


def _operands(words: Sequence[str], *, valued: frozenset[str] = frozenset()) -> list[str]:
    found, at = [], 0
    while at < len(words):
        if words[at] in valued:
            at += 1
        elif words[at][:1] != "-" or words[at] == "-":
            found.append(words[at])
        at += 1
    return found


def _grep_operands(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return the operands of `git grep`, and whether its pattern is an option's value."""
    has_pattern = any(word[:2] in ("-e", "-f") for word in words)
    return _operands(words, valued=_GREP), has_pattern


def _has_patch(words: Sequence[str]) -> bool:
    if any(word.startswith("-L") for word in words):
        # Of the lines of one file, which is judged by its path.
        return False
    return any(
        word.startswith(_SHORT_PATCH)
        or (word[:2] == "--" and any(one.startswith(word.partition("=")[0]) for one in _PATCH))
        for word in words
        if word[:1] == "-" and word != "--"
    )


def _is_summary(words: Sequence[str]) -> bool:
    """Whether a command that prints patches has options to print something else, and no patch."""
    names = {word.partition("=")[0] for word in words}
    return not names.isdisjoint(_SUMMARY) and not _has_patch(words)


def _is_one_of(words: Sequence[str], options: Sequence[str]) -> bool:
    """Whether a word is an option, the beginning of its name, or has its letter among others."""
    letters = {option[1] for option in options if option[:2] != "--"}
    return any(
        word[2:] != "" and any(option.startswith(word) for option in options)
        if word[:2] == "--"
        else word[:1] == "-" and not letters.isdisjoint(word[1:])
        for word in words
    )


def _is_short_of(options: Sequence[str], word: str) -> bool:
    return word in options or (
        word[:1] == "-"
        and word[:2] != "--"
        and any(letter in word[1:] for letter in "lLcq")
        and word[1:].isalpha()
    )


def _since(before: Sequence[str]) -> list[str]:
    """Return the words of `git log` for those of `git format-patch` (git-format-patch(1))."""
    words = [word for word in before if word != "--root"]
    operands = _operands(
        words, valued=frozenset({"-o", "--output-directory", "-v", "--in-reply-to"})
    )
    numbers = [word for word in words if re.fullmatch(r"-\d+", word)]
    if numbers or "--root" in before or any(".." in one for one in operands):
        return [*numbers, *operands]
    return [f"{one}..HEAD" for one in operands]
