"""Predicts which files a git command would write, by running git in a read-only sandbox.

It reads where a halted merge, rebase or row of picks began, and what git has left to do.

The repository's own settings may name programs, so git sees the machine read-only there, without a
network and for a short time; what it prints is only compared with names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import PathError, is_secret, open_beneath

HALTING = frozenset({"rebase", "merge", "cherry-pick", "revert"})
RESUMING = frozenset({"--abort", "--quit", "--skip", "--continue"})
LEFT_MAX = 50
"""Commits of a list of what is left that are looked at."""
BYTES_MAX = 65_536

_STATES: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "rebase": (("rebase-merge", "rebase-apply"), "orig-head", "git-rebase-todo"),
    "": (("sequencer",), "head", "todo"),
}
"""Where git keeps such a state, where it began, and what is left."""
_PICKS = frozenset("pick p reword r edit e squash s fixup f revert".split())
"""Commands of such a list that apply a commit (git-rebase(1), "Interactive mode")."""
_PAUSES = frozenset("drop d noop break b".split())


class Halt(Struct, frozen=True, kw_only=True):
    """What a word that resumes compares the work tree with, and which commits it applies."""

    trees: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


def halted(own: Path, word: str, options: frozenset[str]) -> Halt | None:
    """Return what a word of `HALTING` with one of `RESUMING` does; None where that is not known.

    Args:
        own: The git directory of the work tree.
        word: The subcommand.
        options: Its options.
    """
    if "--quit" in options:
        return Halt()
    states, began, todo = _STATES["rebase" if word == "rebase" else ""]
    stashes = _first_lines(own, [*(f"{state}/autostash" for state in states), "MERGE_AUTOSTASH"])
    if stashes is None:
        return None
    if "--abort" in options:
        trees = _first_lines(own, [f"{state}/{began}" for state in states])
        return None if trees is None else Halt(trees=("HEAD", *trees), commits=stashes)
    if word == "merge":
        return Halt(commits=stashes)
    # What is left of a rebase by patches is in no such list.
    if any(os.path.lexists(own / state) for state in states[1:]):
        return None
    lines = _lines(own, f"{states[0]}/{todo}")
    left = None if lines is None else picked(lines)
    if left is None or len(left) > LEFT_MAX:
        return None
    return Halt(trees=("HEAD",) * ("--skip" in options), commits=(*stashes, *left))


def picked(lines: Iterable[str]) -> list[str] | None:
    """Return the commits of a list of what is left; None where it does anything else as well.

    >>> picked(["pick 1a2b Add", "# a comment", "fixup -C 3c4d Fix"]), picked(["exec make"])
    (['1a2b', '3c4d'], None)
    """
    commits = []
    for words in map(str.split, lines):
        if not words or words[0][:1] == "#" or words[0] in _PAUSES:
            continue
        if words[0] not in _PICKS:
            return None
        commits += [word for word in words[1:] if word[:1] != "-"][:1]
    return commits


def _first_lines(own: Path, files: Iterable[str]) -> tuple[str, ...] | None:
    """Return the first line of each file that there is; None where one is no small file."""
    found = [_lines(own, file) for file in files]
    if None in found:
        return None
    return tuple(lines[0].strip() for lines in found if lines)


def _lines(own: Path, file: str) -> list[str] | None:
    try:
        with os.fdopen(open_beneath(own, file), "rb") as opened:
            data = opened.read(BYTES_MAX + 1)
    except PathError as error:
        return [] if error.code == "not-found" else None
    except OSError:
        return None
    return None if len(data) > BYTES_MAX else os.fsdecode(data).split("\n")


SECONDS = 5.0
"""Longest time of one git run."""
OUTPUT_MAX = 8 << 20
"""Bytes of an answer; a longer one is ignored."""

_VALUED = frozenset({"-b", "-B", "-c", "-C", "--orphan", "-m", "-X", "-n", "--onto", "--strategy"})
_PLAIN = frozenset(
    "status log diff show blame branch tag remote rev-parse rev-list describe ls-files ls-tree "
    "cat-file reflog add commit fetch push grep shortlog notes archive bundle config clone init "
    "version help gc fsck count-objects for-each-ref name-rev merge-base diff-tree diff-index "
    "diff-files show-ref symbolic-ref var whatchanged cherry range-diff request-pull ls-remote "
    "check-ignore check-attr check-ref-format hash-object write-tree commit-tree update-ref prune "
    "repack pack-refs maintenance verify-commit verify-tag worktree format-patch show-branch "
    "check-mailmap patch-id stripspace column verify-pack merge-tree update-index mktree mktag "
    "commit-graph replace".split()
)
"""Subcommands that do not change tracked files, and those that make repositories, which are checked
afterwards."""
_SOURCE = {"-s": "--source", "--source": "--source"}
_CLEAN_VALUED = {"-e": "--exclude", "--exclude": "--exclude"}
_APPLY_LOOKS = frozenset({"--check", "--stat", "--numstat", "--summary"})
_LOOKS = {
    "stash": frozenset({"list", "show", "drop", "clear", "create", "store"}),
    "submodule": frozenset({"", "status", "summary"}),
    "bisect": frozenset({"log", "terms"}),
    "sparse-checkout": frozenset({"list", "check-rules"}),
    "lfs": frozenset({"ls-files", "status", "env", "version", "pointer"}),
    "rerere": frozenset({"status", "diff", "remaining"}),
}
"""What follows a word that changes no files then; empty where nothing does."""
SUBMODULES_DEEP = 5
"""Nesting of submodules that is looked into."""


class GitChanges(Struct, frozen=True, kw_only=True):
    """The tracked files that a command of git may rewrite."""

    names: tuple[str, ...] = ()
    """Relative to the workspace."""
    outside: tuple[str, ...] = ()
    """Those of its work tree that are not in the workspace, relative to it."""
    edited: frozenset[str] = frozenset()
    """Those of them that differ from git's index alone. Where git cannot see that, as of a file
    that is masked, it does not write them."""
    is_known: bool = True
    """False: it may write other files as well."""
    is_known_outside: bool = True
    """False: it may write others outside of the workspace as well."""


NOTHING = GitChanges()
UNKNOWN = GitChanges(is_known=False, is_known_outside=False)


def find_git_changes(argv: Sequence[str], directory: Path, workspace: Path) -> GitChanges:
    """Return what `argv`, `git` with its arguments, would write below the workspace's real path."""
    directory, rest, is_plain = after_options(argv, directory)
    if not is_plain:
        return UNKNOWN
    if not rest or rest[0] in _PLAIN or {"--help", "-h"} & set(rest):
        return NOTHING
    return _Git(directory, workspace).changes(rest[0], rest[1:])


def after_options(argv: Sequence[str], directory: Path) -> tuple[Path, list[str], bool]:
    """Return where git runs, its words behind its own options, and whether these leave it the
    repository and the programs that it has there."""
    rest, is_plain = list(argv[1:]), True
    while rest and rest[0][:1] == "-":
        word = rest.pop(0)
        value = rest.pop(0) if word in _OWN_VALUED and rest else ""
        if word == "-C":
            directory = directory / value
        elif word.startswith(_ELSEWHERE):
            is_plain = False
    return directory, rest, is_plain


_ELSEWHERE = tuple(
    "--git-dir --work-tree --exec-path --config-env --namespace --attr-source".split()
)
_OWN_VALUED = frozenset({"-C", "-c", *_ELSEWHERE}) - {"--exec-path"}
"""Options of git itself whose value may be the next word (git(1))."""
_SETTINGS = tuple(
    word
    for setting in (
        *("safe.directory=*", "safe.bareRepository=explicit", "core.checkStat=minimal"),
        # What would start programs of the repository's own settings.
        *("core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false"),
        "protocol.allow=never",
    )
    for word in ("-c", setting)
)


def tracks_a_remote(name: str, directory: Path, *, guessed: bool = False) -> bool:
    """Whether a new branch that starts at `name` would follow a remote one.

    Args:
        guessed: It is the name of the branch itself, as `git switch NAME` takes it.
    """
    git = _Git(directory, directory)
    if not guessed:
        return git.has_ref(f"refs/remotes/{name.removeprefix('refs/remotes/')}")
    return not git.has_ref(f"refs/heads/{name}") and git.has_ref(f"refs/remotes/*/{name}")


def sets_up_remotes(directory: Path) -> bool:
    """Whether the first push of a branch writes as `push -u` does (git-config(1))."""
    return _Git(directory, directory).setting("push.autoSetupRemote") == "true"


def has_new_submodules(directory: Path, *, depth: int) -> bool:
    """Whether `git submodule init` in a work tree would write an address (git-submodule(1)).

    Args:
        depth: How deep to look, up to `SUBMODULES_DEEP`; 1 is the work tree itself.
    """
    depth = min(depth, SUBMODULES_DEEP)
    top = Path((ask_git(directory, "rev-parse", "--show-toplevel") or str(directory)).rstrip("\n"))
    known = _configured(top, "url")
    for name, path in _configured(top, "path", "-f", ".gitmodules").items():
        below = top / path
        is_deep = depth > 1 and (below / ".gitmodules").is_file()
        if name not in known or (is_deep and has_new_submodules(below, depth=depth - 1)):
            return True
    return False


def _configured(top: Path, key: str, *options: str) -> Mapping[str, str]:
    """Return one setting of each submodule by its name."""
    wanted = rf"^submodule\..*\.{key}$"
    text = ask_git(top, "config", "-z", *options, "--get-regexp", wanted) or ""
    pairs = (entry.partition("\n") for entry in text.split("\0") if entry)
    return {name[len("submodule.") : -len(key) - 1]: value for name, _, value in pairs}


class _Git:
    def __init__(self, directory: Path, workspace: Path) -> None:
        self._directory = directory
        self._workspace = workspace
        self._edited: set[str] = set()
        self._staged: set[str] = set()

    def setting(self, name: str) -> str:
        return (self._ask("config", "--type=bool", "--get", name) or "").strip()

    def has_ref(self, pattern: str) -> bool:
        return bool(self._ask("for-each-ref", "--count=1", "--format=%(refname)", pattern))

    def changes(self, word: str, arguments: Sequence[str]) -> GitChanges:
        top = self._ask("rev-parse", "--show-toplevel")
        if top is None:
            # No repository, which git itself reports; or no sandbox, without which nothing runs.
            return NOTHING if shutil.which("bwrap") else UNKNOWN
        operands, _, options = _parts(arguments)
        if (operands[0] if operands else "") in _LOOKS.get(word, ()):
            return NOTHING
        is_resumed = word in HALTING and not operands and bool(options & RESUMING)
        names = self._resumed(word, options) if is_resumed else self._names(word, arguments)
        if names is None:
            return UNKNOWN
        base = top.rstrip("\n")
        paths = {os.path.relpath(os.path.join(base, name), self._workspace): name for name in names}
        outside = {path for path in paths if path.startswith("../")}
        edited = self._edited - self._staged
        # One that is not there is not masked, so git sees that.
        edited = {name for name in edited if os.path.lexists(os.path.join(base, name))}
        return GitChanges(
            names=tuple(sorted(paths.keys() - outside)),
            outside=tuple(sorted(outside)),
            edited=frozenset(path for path, name in paths.items() if name in edited),
            # A person is asked, as the work since the halt may be lost.
            is_known=not is_resumed,
        )

    def _resumed(self, word: str, options: frozenset[str]) -> set[str] | None:
        own = (self._ask("rev-parse", "--absolute-git-dir") or "").rstrip("\n")
        halt = halted(Path(own), word, options) if own else None
        if halt is None:
            return None
        changed, made = self._against(halt.trees), self._made_by(halt.commits)
        return None if changed is None or made is None else changed | made

    def _names(self, word: str, arguments: Sequence[str]) -> set[str] | None:
        operands, paths, options = _parts(arguments)
        match word:
            case "checkout" | "switch":
                return self._checked_out(operands, paths, options)
            case "restore":
                source = next((o for o in options if o.startswith(("--source=", "-s"))), "")
                tree = source.partition("=")[2] if "=" in source else source[2:]
                return self._against((tree or "HEAD",), (*operands, *paths))
            case "reset":
                return self._reset(operands, paths, options)
            case "stash":
                return self._stashed(operands, options)
            case "merge" if operands:
                return self._merged(operands)
            case "rebase" if operands and not options & {"--exec", "-x", "--root"}:
                return self._against(operands)
            case "cherry-pick" | "revert" if operands:
                return self._made_by(operands)
            case "clean":
                return self._cleaned(arguments)
            case "rm" | "mv":
                if "--cached" in options:
                    return set()
                names = self._listed("ls-files", "-z", "--full-name", "--", *operands, *paths)
                return (
                    None
                    if names is None
                    else names | self._placed(operands if word == "mv" else ())
                )
            case "apply" if _only_shows(options):
                return set()
            case _:
                return None

    def _reset(
        self, operands: tuple[str, ...], paths: tuple[str, ...], options: frozenset[str]
    ) -> set[str] | None:
        if "--soft" in options:
            return set()
        tree = operands[:1] if operands and self._tree(operands[0]) else ("HEAD",)
        if options & {"--hard", "--merge", "--keep"}:
            return self._against(tree)
        # It writes the index alone. Of a file that git cannot read it has no size there then, and
        # each later command would fail at it.
        named = (*operands[1:], *paths) if operands[:1] == tree else (*operands, *paths)
        names = self._against(tree, named)
        return names and {name for name in names & self._staged if is_secret(name)}

    def _merged(self, operands: Sequence[str]) -> set[str] | None:
        names = self._against(operands)
        for given in operands:
            base = (self._ask("merge-base", "HEAD", given) or "").strip()
            made = self._listed("diff-tree", "-r", "-z", "--name-only", base, given)
            if names is None or not base or made is None:
                return names
            # What only this side has changed stays as it is.
            self._staged -= names - made
            self._edited |= names - made
        return names

    def _cleaned(self, arguments: Sequence[str]) -> set[str] | None:
        """Return untracked files: all of the paths that are meant, with those that are ignored
        only where they go too."""
        operands, paths, options = _parts(arguments, valued=_CLEAN_VALUED, skipped=frozenset())
        if options & {"-n", "--dry-run"} or any(_letters(word, "n") for word in options):
            return set()
        excluded = [word for word in options if word.startswith("--exclude=")]
        listed = ("ls-files", "-o", "-z", "--full-name", *excluded)
        is_all = any(_letters(word, "xX") for word in options)
        names = self._listed(*listed, "--", *operands, *paths)
        if names is not None and not is_all:
            self._edited |= names
        return names

    def _placed(self, operands: Sequence[str]) -> set[str]:
        top = (self._ask("rev-parse", "--show-prefix") or "").rstrip("\n")
        if not operands:
            return set()
        last = operands[-1]
        if not os.path.isdir(self._directory / last):
            return {top + last}
        return {f"{top}{last}/{os.path.basename(name)}" for name in operands[:-1]}

    def _checked_out(
        self, operands: tuple[str, ...], paths: tuple[str, ...], options: frozenset[str]
    ) -> set[str] | None:
        trees = [tree for tree in map(self._tree, operands) if tree]
        others = tuple(word for word in operands if not self._tree(word))
        if trees:
            return self._against(trees[:1], (*others, *paths))
        if others and not paths and not options & {"--ours", "--theirs", "-p", "--patch"}:
            remote = self._ask("for-each-ref", "--format=%(refname)", f"refs/remotes/*/{others[0]}")
            if remote:
                return self._against(tuple(remote.split()))
        if others or paths:
            return self._against(("HEAD",), (*others, *paths))
        return self._against(("HEAD",)) if options & {"-f", "--force"} else set()

    def _tree(self, word: str) -> str:
        word = "@{-1}" if word == "-" else word
        commit = self._ask("rev-parse", "--verify", "-q", "--end-of-options", f"{word}^{{commit}}")
        return (commit or "").strip()

    def _stashed(self, operands: tuple[str, ...], options: frozenset[str]) -> set[str] | None:
        kind = operands[0] if operands else "push"
        if kind in ("pop", "apply", "branch"):
            entry = operands[-1] if operands[1:] and kind != "branch" else "stash@{0}"
            entry = f"stash@{{{entry}}}" if entry.isdigit() else entry
            if entry == "stash@{0}" and not self._tree(entry):
                # Only an earlier part of the line can make it: it is what that part takes away.
                return self._against(("HEAD",))
            names = self._against((entry,))
            extra = self._listed("ls-tree", "-r", "-z", "--name-only", "--full-tree", f"{entry}^3")
            return None if names is None else names | (extra or set())
        names = self._against(("HEAD",))
        if names is not None and options & {"-u", "-a", "--include-untracked", "--all"}:
            untracked = self._listed("ls-files", "-o", "-z", "--full-name") or set()
            names |= untracked
            if not options & {"-a", "--all"}:
                self._edited |= untracked
        return names

    def _against(self, trees: Sequence[str], paths: Sequence[str] = ()) -> set[str] | None:
        """Return the files of the work tree, or of the index, that differ from some trees."""
        changed: set[str] = set()
        for given in trees:
            tree = self._tree(given.rpartition("..")[2].lstrip(".") or "HEAD")
            if not tree:
                return None
            for cached in ((), ("--cached",)):
                names = self._listed("diff-index", "-z", "--name-only", *cached, tree, "--", *paths)
                if names is None:
                    return None
                changed |= names
                (self._staged if cached else self._edited).update(names)
        return changed

    def _made_by(self, commits: Sequence[str]) -> set[str] | None:
        changed: set[str] = set()
        for given in commits:
            if ".." in given:
                return None
            commit = self._tree(given)
            names = commit and self._listed(
                "diff-tree", "-r", "-m", "--root", "-z", "--name-only", "--no-commit-id", commit
            )
            if not isinstance(names, set):
                return None
            changed |= names
        return changed

    def _listed(self, *arguments: str) -> set[str] | None:
        text = self._ask(*arguments)
        return None if text is None else {name for name in text.split("\0") if name}

    def _ask(self, *arguments: str) -> str | None:
        return ask_git(self._directory, *arguments)


def ask_git(directory: Path, *arguments: str, stdin: bytes = b"") -> str | None:
    """Return what git prints in a directory, in a read-only sandbox; None where it fails."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    command = (
        *(program, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
        *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
        *("--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "LC_ALL", "C.UTF-8"),
        *("--setenv", "GIT_OPTIONAL_LOCKS", "0", "--setenv", "GIT_NO_LAZY_FETCH", "1"),
        *("--chdir", str(directory), "--"),
        *("git", *_SETTINGS, *arguments),
    )
    try:
        done = subprocess.run(
            command, input=stdin, capture_output=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 or len(done.stdout) > OUTPUT_MAX:
        return None
    return os.fsdecode(done.stdout)


def _only_shows(options: frozenset[str]) -> bool:
    """Whether `git apply` only shows something, which `--apply` turns into work again."""
    return bool(options & _APPLY_LOOKS) and "--apply" not in options


def _letters(word: str, letters: str) -> bool:
    """Whether a word of short options has one of some letters."""
    return word[:1] == "-" and word[:2] != "--" and not {*letters}.isdisjoint(word[1:])


def _parts(
    arguments: Sequence[str],
    *,
    valued: Mapping[str, str] = _SOURCE,
    skipped: frozenset[str] = _VALUED,
) -> tuple[tuple[str, ...], tuple[str, ...], frozenset[str]]:
    """Return the operands before `--`, those after it, and the options.

    Args:
        valued: Options whose value is a word of its own, and the name that they are given with it.
        skipped: Those whose value is left out.
    """
    operands: list[str] = []
    options: set[str] = set()
    at = 0
    while at < len(arguments) and arguments[at] != "--":
        word = arguments[at]
        if word[:1] != "-" or word == "-":
            operands.append(word)
        elif word in valued and at + 1 < len(arguments):
            at += 1
            options.add(f"{valued[word]}={arguments[at]}")
        else:
            options.add(word)
            at += word in skipped
        at += 1
    return tuple(operands), tuple(arguments[at + 1 :]), frozenset(options)
