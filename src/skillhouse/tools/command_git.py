"""What git in a command needs of the git directories, and which of its words are refused.

A word that would be half done, or would report success without an effect, is refused before it
starts, with what the person can do instead.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from skillhouse.approval import ApprovedScript, ScriptStore
from skillhouse.floor.errors import first_of
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.permission import (
    CommandPlan,
    Effect,
    Permission,
    SimpleCommand,
    command_resource,
    loads_code,
    unwrapped,
)
from skillhouse.sandbox import (
    CoveredPaths,
    GitPlaces,
    added_remote,
    after_options,
    find_git,
    find_git_changes,
    has_new_submodules,
    is_inside,
    remote_paths,
    sets_up_remotes,
    tracks_a_remote,
    with_submodules,
)
from skillhouse.tools.approved_scripts import approved_in
from skillhouse.tools.call import PERSISTENCE, PermissionRequest, RefusedError
from skillhouse.tools.tool import Session
from skillhouse.tools.workspace import Workspace

SHOWN_MAX = 8
"""Names that a refusal has."""
BY_THE_USER = "ask the user to run it"
NO_HOOKS: Mapping[str, str] = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.hooksPath",
    "GIT_CONFIG_VALUE_0": "/dev/null",
}
"""Variables by which git runs no hooks (git-config(1)), where it may write its configuration."""

_BEFORE = frozenset("do then else elif if while until ! { time command exec xargs".split())
"""Words of a shell after which a command begins, and programs that start one."""
_SHELLS = frozenset({"bash", "sh", "dash", "zsh"})
_LINE_OPTION = regex(r"-[a-z]*c")
"""Before the text of a line, in the words of a shell."""
_PARTS = regex(r"[;&|()`\n]|\$\(")
_BRANCH = regex(
    r"-[a-z]*[dDmMcCut][a-z]*|--(?:delete|move|copy|track|set-upstream-to|unset-upstream"
    r"|edit-description)(?:=.*)?"
)
_TRACK = regex(r"-[a-z]*t|--track(?:=.*)?")
_MADE = regex(r"-[a-z]*[cCbB]|--create|--force-create|--orphan")
_REMOTE = frozenset({"add", "rename", "remove", "rm", "set-url", "set-branches"})
_NEVER: Mapping[str, frozenset[str]] = {
    # What each of them writes is the configuration, or what other work trees are found by.
    "worktree": frozenset({"add", "move", "remove", "prune", "lock", "unlock", "repair"}),
    "submodule": frozenset(
        {"add", "init", "deinit", "sync", "set-url", "set-branch", "absorbgitdirs"}
    ),
    "sparse-checkout": frozenset({"init", "set", "add", "disable"}),
    "maintenance": frozenset({"start", "stop", "register", "unregister"}),
}
_LOOKS: Mapping[str, frozenset[str]] = {
    # With nothing after it: all of the word. `apply` passes over what is outside of its directory.
    **dict.fromkeys(("apply", "interpret-trailers", "difftool", "rerere"), frozenset()),
    "lfs": frozenset({"ls-files", "status", "env", "version"}),
    "bisect": frozenset({"view", "visualize"}),
}
"""Words that change no files around the workspace, beside those of `find_git_changes`."""
_CONFIG_READS = frozenset({"get", "list"})
_CONFIG_WRITES = frozenset({"set", "unset", "edit", "rename-section", "remove-section"})
_CONFIG_OPTIONS = regex(
    r"--(?:add|unset|unset-all|replace-all|rename-section|remove-section|edit)|-e"
)


class GitWordError(RefusedError):
    """Words of git that our sandbox refuses: what they do, and why not here."""

    def __init__(self, what: str, here: str, hint: str, *, is_lasting: bool = False) -> None:
        """`is_lasting` says that they change what git obeys."""
        super().__init__(f"denied: {what}{here}; nothing was done: {hint}", denied=True)
        self.what = what
        self.is_lasting = is_lasting


class GitUse(Struct, frozen=True, kw_only=True):
    """What one command line has to do with git's directories."""

    places: GitPlaces
    """Those that it may use, once its needs are met."""
    needs: tuple[PermissionRequest, ...] = ()
    new: tuple[ApprovedScript, ...] = ()
    """What is remembered when the needs are approved."""
    writes_config: bool = False
    """Whether it is git alone, with words that write `branch.*` or `remote.*`."""
    configs: tuple[str, ...] = ()
    """The files that they write, as far as they are in the workspace."""
    find: Callable[[str], GitPlaces] = find_git

    def now(self, below: Sequence[str]) -> GitPlaces:
        """Return the places as they are at the start of the run, with those of submodules.

        Args:
            below: Directories of the workspace that have a `.git` file.

        Raises:
            RefusedError: they are others than those that were decided about.
        """
        found = self.find(self.places.workspace)
        known = self.places
        if (found.own, found.top, found.problem) != (known.own, known.top, known.problem) and (
            known.directories or known.top
        ):
            raise RefusedError("nothing was done: git's directory is another now; try again")
        if not {*known.alternates} <= {*found.alternates}:
            raise RefusedError("nothing was done: git borrows other objects now; try again")
        return with_submodules(known, below)


class GitConsents(Struct, frozen=True, kw_only=True):
    """What a person has approved of a workspace's git directories, and the rules about them."""

    store: ScriptStore
    session: Session
    decide: Callable[[PermissionRequest], Effect]
    problem_around: Callable[[str], str]
    """Returns why a directory around the workspace is not shown, or ""."""
    find: Callable[[str], GitPlaces] = find_git


def git_use(plan: CommandPlan | None, line: str, workspace: Path, consents: GitConsents) -> GitUse:
    """Return what a plan, or a line for a shell, needs of git's directories.

    What the client runs by itself has no sandbox of ours: a person is asked about such words.

    Raises:
        RefusedError: it has words of git that would not do here what they do outside.
    """
    root = str(workspace)
    places = consents.find(root)
    commands = list(_commands_of_line(line, root) if plan is None else _commands_of(plan, root))
    is_git = bool(commands)
    if places.top and not places.problem and (why := consents.problem_around(places.top)):
        places = replace(places, problem=why, directories=(), alternates=())
    if places.problem and is_git:
        raise RefusedError(f"denied: git is not used here: {places.problem}", denied=True)
    words = line if plan is None else _words_of(plan)
    if consents.session.is_handed_over:
        more = tuple(_needs_of_client(commands, places, words, is_planned=plan is not None))
        places = replace(places, top="", alternates=())
        places, needs, new = _consented(places, consents, is_git=is_git)
        return GitUse(places=places, needs=(*needs, *more), new=new, find=consents.find)
    is_alone = plan is not None and all(map(_is_git_or_nothing, plan.commands()))
    _check(commands, places, is_planned=plan is not None, is_alone=is_alone)
    _check_remotes(commands, places, words)
    writers = [command for command in commands if command.writes_config]
    if places.problem:
        places = GitPlaces(workspace=root)
    places, needs, new = _consented(places, consents, is_git=is_git)
    if places.top and not (commands and _is_predictable(plan)):
        # A program could switch branches there, of which only the part in the workspace would
        # change; git then refuses before it begins.
        places = replace(places, read_only=True)
    configs = [f"{one.repository}/config" for one in writers]
    return GitUse(
        places=places,
        needs=needs,
        new=new,
        writes_config=is_alone and bool(writers),
        configs=tuple(path for path in configs if is_inside(path, root)),
        find=consents.find,
    )


def _needs_of_client(
    commands: Sequence[_GitCommand], places: GitPlaces, words: str, *, is_planned: bool
) -> Iterator[PermissionRequest]:
    """Yield what a person is asked about git outside of our sandbox: what our own runs refuse, but
    for that which only their mounts could not do."""
    checks: list[tuple[str, Callable[[], None]]] = []
    for command in commands:
        line = command_resource(command.argv)
        # A linked work tree is as any other there.
        checks.append((line, partial(command.check, GitPlaces(workspace=places.workspace))))
        if places.top and is_planned:
            checks.append((line, partial(command.check_outside, places)))
    checks.append((words, partial(_check_remotes, commands, places, words)))
    for line, check in checks:
        try:
            check()
        except GitWordError as refusal:
            need = replace(_asked("exec-once", line, refusal.what), may_last=False)
            yield replace(need, caution_layer=PERSISTENCE) if refusal.is_lasting else need


def _check(
    commands: Sequence[_GitCommand], places: GitPlaces, *, is_planned: bool, is_alone: bool
) -> None:
    """Raise RefusedError for a command that would not do here what it does outside."""
    for command in commands:
        command.check(places)
        if places.top and is_planned:
            command.check_outside(places)
        if command.surely_writes_config and not is_alone:
            raise RefusedError(
                f"denied: `git {command.shown}` writes git's configuration, which is writable only "
                "to a line of git commands alone; nothing was done: run it in a call of its own",
                denied=True,
            )


def _words_of(plan: CommandPlan) -> str:
    return " ".join(word for command in plan.commands() for word in command.argv)


def _check_remotes(commands: Sequence[_GitCommand], places: GitPlaces, words: str) -> None:
    """Raise RefusedError for a command that talks to a repository which no command sees.

    INVARIANT: what is said does not depend on whether it exists.

    Args:
        words: All of the line: what it names twice below /tmp, it may have made there before.
    """
    shown = [places.workspace, *(one.path for one in places.directories)]
    shown += [places.top] if places.top else []
    added: dict[str, str] = {}
    for command in commands:
        for written, path in remote_paths(command.word, command.rest, Path(command.place), added):
            real = os.path.realpath(path)
            seen = (is_inside(one, place) for one in (real, f"{real}/.git") for place in shown)
            is_own = is_inside(path, "/tmp") and words.count(written) > 1  # noqa: S108
            if not any(seen) and not is_own:
                what = f"talks to `{written}`, which is outside of the workspace "
                command.refuse(f"{what}`{places.workspace}`", " and not shown to commands")
        added |= added_remote(command.word, command.rest)


def git_now(
    use: GitUse,
    below: CoveredPaths,
    workspace: Workspace,
    coverage: Callable[[Workspace], CoveredPaths],
) -> tuple[CoveredPaths, GitPlaces]:
    """Return what is covered, and the git directories as they are at the start of the run.

    Args:
        coverage: Returns what is covered of the work tree around a workspace.

    Raises:
        RefusedError: they are others than those that were decided about, or cannot be shown.
    """
    places = use.now([place for place, name, _ in below.paths if name == ".git" and place])
    if places.top:
        around = workspace.around(places.top)
        places = replace(places, masks=_hidden_outside(coverage(around), places, around.hidden))
    return below, replace(places, opens_config=use.writes_config, configs=use.configs)


def _hidden_outside(
    shown: CoveredPaths, places: GitPlaces, private: Iterable[str]
) -> tuple[str, ...]:
    if not shown.is_all:
        raise RefusedError(
            f"denied: too many secrets or directories in `{places.top}` to show it: start "
            "skillhouse there",
            denied=True,
        )
    below = (os.path.join(place, name) for place, name, secret in shown.paths if secret)
    names = (os.path.join(places.top, name) for name in (*below, *private))
    return tuple(
        name for name in names if os.path.lexists(name) and not is_inside(name, places.workspace)
    )


def _consented(
    places: GitPlaces, consents: GitConsents, *, is_git: bool
) -> tuple[GitPlaces, tuple[PermissionRequest, ...], tuple[ApprovedScript, ...]]:
    """Return the places with only what was consented to, unless git is to ask for the rest."""
    asked = tuple(_questions(places))
    if not asked:
        return places, (), ()
    session = consents.session
    known = approved_in(consents.store, places.workspace, session)
    needs, new, refused = [], [], set()
    for kind, path, need in asked:
        mark = hashlib.sha256(f"git {kind}\0{path}".encode("utf-8", "surrogateescape")).hexdigest()
        is_known = mark in known.get(path, ()) and consents.decide(need) is not Effect.DENY
        if is_known:
            continue
        if is_git:
            needs.append(need)
            new.append(
                ApprovedScript(
                    workspace=places.workspace,
                    path=path,
                    digest=mark,
                    user=session.user,
                    agent=session.agent,
                )
            )
        elif consents.decide(need) is not Effect.ALLOW:
            refused.add(kind)
    if {"tree", "directory"} & refused:
        return GitPlaces(workspace=places.workspace), (), ()
    if refused:
        places = replace(places, alternates=())
    return places, tuple(needs), tuple(new)


def _questions(places: GitPlaces) -> Iterator[tuple[str, str, PermissionRequest]]:
    if places.top:
        why = (
            f"git needs the whole work tree `{places.top}`: what is outside of the workspace is "
            "shown to commands read-only, without its secrets"
        )
        yield "tree", places.top, _asked("read", places.top, why)
    if places.separate:
        why = (
            f"git's directory is `{places.separate}`, and nothing there leads back to this "
            "workspace: commands would write in that repository"
        )
        # A rule that allows to write anything means the workspace: no tool writes beyond it.
        need = replace(_asked("write", places.separate, why), caution=why, may_last=False)
        yield "directory", places.separate, replace(need, caution_layer=PERSISTENCE)
    for path in places.alternates:
        why = f"this repository borrows the objects in `{path}`, which commands could read"
        yield "objects", path, _asked("read", path, why)


def _asked(action: str, path: str, why: str) -> PermissionRequest:
    return PermissionRequest(
        permission=Permission(action=action, resource=path), default=Effect.ASK, why=why
    )


def _is_git_or_nothing(command: SimpleCommand) -> bool:
    # Our own runner does the others itself, and no program runs.
    program = os.path.basename((unwrapped(command.argv) or command.argv)[0])
    return program in {"git", "true", "false", ":"}


def _is_predictable(plan: CommandPlan | None) -> bool:
    """Whether nothing of a plan but its own words of git runs git."""
    return plan is not None and not any(
        loads_code(command.argv)
        for command in plan.commands()
        if (unwrapped(command.argv) or command.argv)[0] != "git"
    )


class _GitCommand(Struct, frozen=True, kw_only=True):
    """One command of git: where it runs, its word, and what follows."""

    argv: tuple[str, ...]
    directory: str
    """Where the line runs it; `-C` comes on top."""
    place: str
    """Where git works."""
    word: str
    rest: tuple[str, ...]
    options: tuple[str, ...] = field(default=())
    operands: tuple[str, ...] = field(default=())

    @property
    def shown(self) -> str:
        return " ".join((self.word, *self.rest))[:80]

    @property
    def repository(self) -> str:
        """The directory with its `config`, or "" where there is no repository yet."""
        found = find_git(os.path.realpath(self.place))
        return found.directories[0].path if found.directories else found.own

    @property
    def surely_writes_config(self) -> bool:
        return self._has_words_for_config() and bool(self.repository)

    def _has_words_for_config(self) -> bool:
        match self.word:
            case "branch":
                return self._has(_BRANCH) or self._starts_at_remote(self.operands[1:])
            case "switch" | "checkout":
                if self._has(_TRACK):
                    return True
                if self._has(_MADE):
                    return self._starts_at_remote(self.operands[-1:])
                return len(self.operands) == 1 and "--" not in self.rest and self._guesses()
            case "push" | "fetch" | "pull":
                return bool({"-u", "--set-upstream"} & {*self.options}) and (
                    self.word == "push" or "--set-upstream" in self.options
                )
            case "remote":
                return self.operands[:1] != () and self.operands[0] in _REMOTE
            case "submodule":
                # It sets `core.worktree` again, to what it is.
                return self.operands[:1] == ("update",)
        return False

    @property
    def writes_config(self) -> bool:
        is_push = self.word == "push" and not self.surely_writes_config
        return self.surely_writes_config or (is_push and sets_up_remotes(Path(self.place)))

    def check(self, places: GitPlaces) -> None:
        """Raise RefusedError for words that would not do here what they do outside."""
        if {"--help", "-h", "--dry-run", "-n"} & {*self.options}:
            return
        first = self.operands[0] if self.operands else ""
        is_never = first in _NEVER.get(self.word, ()) or self._writes_all_config()
        is_never = is_never or self._starts_submodules()
        # One that the line makes is its own until the run has ended.
        if is_never and (self.repository or "--global" in self.options):
            here = ", which is read-only to every command"
            self.refuse("writes what git obeys", here, is_lasting=True)
        is_expiry = self.word == "reflog" and first == "expire" and "--all" in self.options
        if places.is_linked and (self.word == "gc" or is_expiry):
            self.refuse("is about all work trees of the repository", ", and this is a linked one")

    def _starts_submodules(self) -> bool:
        if self.word != "submodule" or self.operands[:1] != ("update",):
            return False
        depth = sys.maxsize if "--recursive" in self.options else 1
        return "--init" in self.options and has_new_submodules(Path(self.place), depth=depth)

    def _writes_all_config(self) -> bool:
        if self.word != "config" or {"-f", "--file"} & {*self.options}:
            return False
        if any(option.startswith("--file=") for option in self.options):
            return False
        if any(_CONFIG_OPTIONS.fullmatch(option) for option in self.options):
            return True
        if self.operands[:1] and self.operands[0] in _CONFIG_WRITES and len(self.operands) > 1:
            return True
        is_reading = (
            any(o.startswith(("--get", "--list")) or o == "-l" for o in self.options)
            or {*self.operands[:1]} & _CONFIG_READS
        )
        return not is_reading and len(self.operands) > 1

    def check_outside(self, places: GitPlaces) -> None:
        """Raise RefusedError where it may change files around the workspace."""
        looks = _LOOKS.get(self.word)
        if looks is not None and (not looks or {*self.operands[:1]} <= looks):
            return
        workspace = Path(places.workspace)
        changes = find_git_changes(self.argv, directory=Path(self.directory), workspace=workspace)
        if changes.is_known_outside and not changes.outside:
            return
        names = first_of([f"`{name}`" for name in changes.outside], SHOWN_MAX)
        what = f"would change {names}" if names else "may change files"
        self.refuse(
            f"{what} outside of the workspace `{places.workspace}`",
            ", which commands cannot",
            hint=f"start skillhouse in `{places.top}`, or ask the user to run it",
        )

    def refuse(
        self, why: str, here: str, *, hint: str = BY_THE_USER, is_lasting: bool = False
    ) -> None:
        raise GitWordError(f"`git {self.shown}` {why}", here, hint, is_lasting=is_lasting)

    def _has(self, options: re.Pattern[str]) -> bool:
        return any(options.fullmatch(word) for word in self.options)

    def _starts_at_remote(self, start: Sequence[str]) -> bool:
        if "--no-track" in self.options:
            return False
        return any("/" in word and tracks_a_remote(word, Path(self.place)) for word in start)

    def _guesses(self) -> bool:
        if {"--no-guess", "--detach", "-d"} & {*self.options}:
            return False
        return tracks_a_remote(self.operands[0], Path(self.place), guessed=True)


def _commands_of(plan: CommandPlan, root: str) -> Iterator[_GitCommand]:
    directory = os.path.join(root, plan.directory)
    for command in plan.commands():
        argv = unwrapped(command.argv) or command.argv
        program = os.path.basename(argv[0])
        if program == "git":
            yield _command(argv, directory)
        elif program in _SHELLS:
            at = next((n for n, word in enumerate(argv) if _LINE_OPTION.fullmatch(word)), len(argv))
            yield from _commands_of_line(" ".join(argv[at + 1 : at + 2]), directory)


def _commands_of_line(line: str, root: str) -> Iterator[_GitCommand]:
    """Yield what looks like a command of git in a line that only a shell can run."""
    if "<<" in line:
        # What follows is text for a program.
        line = line.partition("\n")[0]
    for part in _PARTS.split(line):
        words = [word.strip("\"'") for word in part.split()]
        while words and (words[0] in _BEFORE or "=" in words[0]):
            words.pop(0)
        if words[:1] == ["git"]:
            yield _command(words, root)


def _command(argv: Sequence[str], directory: str) -> _GitCommand:
    place, rest, _ = after_options(argv, Path(directory))
    word, words = (rest[0], rest[1:]) if rest else ("", [])
    return _GitCommand(
        argv=tuple(argv),
        directory=directory,
        place=str(place),
        word=word,
        rest=tuple(words),
        options=tuple(one for one in words if one[:1] == "-"),
        operands=tuple(one for one in words if one[:1] != "-"),
    )
