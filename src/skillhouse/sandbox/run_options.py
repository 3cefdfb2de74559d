"""The options for bubblewrap around a command: the workspace, and what is mounted over it.

And what every launcher checks before a run and looks at after it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field

from skillhouse.floor import PROTECTED_NAMES, structs, unread_paths
from skillhouse.floor.crash_cleanup import PLACEHOLDER_SOCKETS
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox import interpreters
from skillhouse.sandbox.bubblewrap import (
    ETC_FILES,
    ETC_HOSTS,
    namespace_options,
    own_options,
    program_options,
)
from skillhouse.sandbox.covers import PATHS_MAX
from skillhouse.sandbox.interpreters import HOME, own_python, system_program
from skillhouse.sandbox.masks import by_repository
from skillhouse.sandbox.mountpoints import KeptPlaceholders, is_placeholder
from skillhouse.sandbox.persistence import PersistentFileScan
from skillhouse.sandbox.profile import (
    GIT_ATTRIBUTES,
    GIT_CONFIG,
    PINNED,
    Completed,
    SandboxError,
    SandboxProfile,
    names_like,
)
from skillhouse.sandbox.protected_mounts import MountCover, ProtectedMounts, protected_mounts


async def persistent_scan(profile: SandboxProfile) -> PersistentFileScan | None:
    if profile.paths is None or (profile.read_only and not profile.writable):
        # What can write nothing makes nothing: whatever is new is another program's.
        return None
    always = {*PROTECTED_NAMES} & {*profile.protected}
    shielded = names_like(tuple(sorted(name for name in always if "/" not in name)))
    scan = PersistentFileScan(
        str(profile.workspace),
        profile.paths,
        profile.opened,
        profile.below.directories if profile.below else {},
        is_shielded=lambda name: shielded.fullmatch(name.casefold()) is not None,
        places=tuple(str(path.relative_to(profile.workspace)) for path in profile.writable)
        if profile.read_only
        else ("",),
    )
    await in_thread(scan.take)
    return scan


def checked(argv: Sequence[str], profile: SandboxProfile, cwd: Path) -> tuple[SandboxProfile, Path]:
    """Return a profile and a current directory without links, whose run may begin.

    Raises:
        SandboxError: the program or a place is refused; `code` is the reason.
    """
    check_argv(argv, profile)
    profile, cwd = resolved(profile, cwd)
    check_places(profile, cwd)
    return profile, cwd


def check_argv(argv: Sequence[str], profile: SandboxProfile) -> None:
    tools = profile.tools
    if not argv or not argv[0]:
        raise SandboxError("exec-empty", "expected a program and its arguments, got nothing")
    if any("\0" in part for part in argv):
        raise SandboxError("exec-nul", "expected arguments without NUL")
    program = argv[0]
    if "/" in program or program in (".", ".."):
        if program in (system_program(), str(own_python()[1])):
            return
        message = f"expected a program's plain name, got a path: {program!r}"
        raise SandboxError("exec-path", message)
    if tools.which(program) is not None:
        return
    found = shutil.which(program, path=tools.outside_path)
    if found is None:
        message = f"no program {program!r} in {tools.search_path}"
        if nearby := profile.nearby(program):
            message += f"; {nearby}"
        raise SandboxError("exec-not-found", message)
    real = os.path.realpath(found)
    seen = (profile.workspace, *profile.readable, *profile.skills)
    if not any(Path(real).is_relative_to(os.path.realpath(place)) for place in seen):
        message = f"{found!r} leads to {real!r}, which commands do not see; "
        message += "`[sandbox] mounts` can name its directory"
        raise SandboxError("exec-not-found", message)


def resolved(profile: SandboxProfile, cwd: Path) -> tuple[SandboxProfile, Path]:
    try:
        directory = cwd.resolve(strict=True)
        workspace = profile.workspace
        real = structs.replace(
            profile,
            workspace=directory if workspace == cwd else workspace.resolve(strict=True),
            readable=tuple(path.resolve(strict=True) for path in profile.readable),
            skills=tuple(path.resolve(strict=True) for path in profile.skills),
            writable=tuple(path.resolve(strict=True) for path in profile.writable),
        )
        if os.statvfs(real.workspace).f_flag & os.ST_RDONLY:
            # Nothing can be made there, and so no placeholder.
            real = structs.replace(real, read_only=True)
    except OSError as error:
        place = os.fsdecode(error.filename or "")
        raise SandboxError("place-missing", f"expected a directory: {place}") from error
    for name, value in profile.environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise SandboxError("environment-refused", f"expected a variable's name: {name!r}")
    return real, directory


def protected_paths(profile: SandboxProfile) -> tuple[str, ...]:
    """Return the protected paths of a run, without those that it may write."""
    paths = profile.protected
    if profile.opened.top_repository and _has_no_repository(profile.workspace):
        paths = tuple(path for path in paths if not path.startswith(".git/"))
    return tuple(path for path in paths if path in profile.hidden or not profile.opened.frees(path))


def _has_no_repository(workspace: Path) -> bool:
    place = workspace / ".git"
    try:
        return not place.is_symlink() and not os.listdir(place)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def missing_names(profile: SandboxProfile) -> tuple[str, ...]:
    """Return the names at the top that get placeholders, as far as is known before the run."""
    names = {path.split("/")[0] for path in protected_paths(profile) if "*" not in path}
    top = str(profile.workspace)
    paths = ((name, f"{top}/{name}") for name in sorted(names))
    return tuple(n for n, path in paths if not os.path.lexists(path) or is_placeholder(path))


def mounts_of(
    profile: SandboxProfile, scan: PersistentFileScan | None, stash: KeptPlaceholders | None
) -> AbstractAsyncContextManager[ProtectedMounts]:
    """Return what is mounted over the protected paths of a run, as `protected_mounts` does it."""
    return protected_mounts(
        str(profile.workspace),
        protected_paths(profile),
        stash=stash,
        hidden=profile.hidden,
        scan=scan,
        below=profile.below,
        read_only=profile.read_only,
        is_lasting=profile.is_lasting,
    )


def with_scan(
    done: Completed, scan: PersistentFileScan | None, git_notes: Iterable[str] = ()
) -> Completed:
    notes = (*done.notes, *git_notes)
    if scan is None:
        return structs.replace(done, notes=notes) if notes else done
    notes = (*notes, *scan.notes)
    return structs.replace(done, changes=tuple(scan.changes), notes=notes)


_GIT_SETTINGS = (
    "[safe]\n\tbareRepository = explicit\n[core]\n\tcheckStat = minimal\n\ttrustctime = false\n"
)
"""git-config(1). A directory that looks like a repository is none unless it is named as one; the
index knows the files' owner as it is outside, so by owner all would seem changed, and by inode and
change time what is masked (`masks`)."""
_GIT_LINKED = "[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
"""In a linked work tree `git gc` fails at the logs of the others, and leaves a log that it did."""
_IGNORED = "/etc/skillhouse-gitignore"
_EXCLUDED = "/etc/skillhouse-gitexcludes"
"""What the person ignores everywhere."""
_IGNORING = "/etc/skillhouse-gitconfig"
RUNNER_PLACE = "/etc/skillhouse-runner"
"""Where a run has the Python that runs it, if that is denied to what it starts."""
_DIRECTORIES = (MountCover.EMPTY_DIRECTORY, MountCover.CLOSED_DIRECTORY)
_HIDING = (MountCover.CLOSED_FILE, MountCover.EMPTY_FILE, *_DIRECTORIES)
_SYSTEM = tuple(
    Path(path)
    for path in ("/usr", "/etc", "/proc", "/sys", "/dev", "/boot", "/run", "/bin", "/lib", "/sbin")
)


class RunMasks(Struct, frozen=True):
    """The files that are mounted over what is hidden in a run."""

    by_path: Mapping[str, str] = field(default_factory=dict)
    plain: Callable[[], str] = str
    """Makes that of any other path."""
    empty: Callable[[], str] = str
    """Makes that of a file that is not there."""

    def below(self, directory: str) -> Iterator[tuple[str, str]]:
        start = f"{directory}/"
        return ((path, mask) for path, mask in self.by_path.items() if path.startswith(start))


def etc_files(profile: SandboxProfile) -> Mapping[str, str]:
    """Return the texts of the files that a run gets instead of the host's."""
    own = ETC_FILES if profile.paths is None else {**ETC_FILES, **_git_files(profile)}
    own = {**own, **_person_files(profile)}
    if profile.network:
        return own
    bridged = (
        {interpreters.BRIDGE_SCRIPT: interpreters.bridge_script()} if profile.proxy_socket else {}
    )
    return own | ETC_HOSTS | bridged


def _git_files(profile: SandboxProfile) -> Mapping[str, str]:
    """Return git's settings, by which it passes over what cannot be read or removed: the
    placeholders in the workspace's own repository, for `git clean` and `git stash -u`, and what is
    masked, for `git add -A`, in each repository that has some.
    """
    git, everywhere = profile.git, profile.tools.git.ignored
    files = {"/etc/gitconfig": _GIT_SETTINGS + (_GIT_LINKED if git and git.is_linked else "")}
    if everywhere:
        files["/etc/gitconfig"] += f"[core]\n\texcludesFile = {_EXCLUDED}\n"
        files[_EXCLUDED] = everywhere
    for at, (directory, names) in enumerate(sorted(_passed_over(profile).items())):
        # Both a pattern and a quoted text.
        place = re.sub(r"([*?\[\\])", r"\\\1", directory)
        quoted = re.sub(r'(["\\])', r"\\\1", place)
        settings, ignored = f"{_IGNORING}-{at}", f"{_IGNORED}-{at}"
        files["/etc/gitconfig"] += f'[includeIf "gitdir:{quoted}"]\n\tpath = {settings}\n'
        files[settings] = f"[core]\n\texcludesFile = {ignored}\n"
        # The last pattern that matches counts (gitignore(5)).
        files[ignored] = everywhere + "".join(f"/{re.escape(name)}\n" for name in names)
    return files


def _passed_over(profile: SandboxProfile) -> Mapping[str, list[str]]:
    """Return paths below the top of the work tree, for each git directory; those of directories
    only end with a slash."""
    workspace, git = str(profile.workspace), profile.git
    found: dict[str, list[str]] = {}
    below = profile.below.paths if profile.below else []
    masked = [os.path.join(workspace, place, name) for place, name, is_hidden in below if is_hidden]
    masked += git.masks if git else ()
    for repository, names in by_repository(masked).items():
        found.setdefault(repository.directory, []).extend(sorted(names))
    missing = () if profile.read_only else missing_names(profile)
    own = git.own if git and git.own else f"{workspace}/.git"
    start = f"{os.path.relpath(workspace, git.top)}/" if git and git.top else ""
    found.setdefault(own, []).extend(f"{start}{name}{_ending(name)}" for name in missing)
    return {
        directory: [name for name in names if "\n" not in name]
        for directory, names in found.items()
        if names and "\n" not in directory
    }


def _ending(name: str) -> str:
    return "" if name in PLACEHOLDER_SOCKETS else "/"


def _person_files(profile: SandboxProfile) -> Mapping[str, str]:
    """Return the person's settings of git, as far as a run has them."""
    git, files = profile.tools.git, {}
    if git.config or git.attributes:
        files[GIT_CONFIG] = git.config
    if git.attributes:
        files[GIT_CONFIG] += f"[core]\n\tattributesFile = {GIT_ATTRIBUTES}\n"
        files[GIT_ATTRIBUTES] = git.attributes
    return files


def check_places(profile: SandboxProfile, cwd: Path) -> None:
    """Refuse a system directory as workspace, and a current directory that is not mounted."""
    workspace = profile.workspace
    place = os.path.join(workspace, "")
    refused = place == "/" or place.startswith(tuple(f"{path}/" for path in _SYSTEM))
    if refused or str(workspace) == HOME:
        raise SandboxError("workspace-refused", f"expected a project's directory: {workspace}")
    shown = (place, *(os.path.join(path, "") for path in profile.readable))
    if not os.path.join(cwd, "").startswith(shown):
        message = f"expected a directory in the workspace `{workspace}` or a skill: {cwd}"
        raise SandboxError("cwd-outside", message)


def skill_covers(profile: SandboxProfile) -> Mapping[str, MountCover]:
    """Return what hides, in the directories of skills, bytecode and what programs left.

    Python takes bytecode for the source beside it, whatever the source says (PEP 552), so that
    what runs would not be what a person and the digest of the skill were about.

    Raises:
        SandboxError: "protect-failed", there is more than can be hidden.
    """
    found: dict[str, MountCover] = {}
    for directory in profile.skills:
        for path, _ in unread_paths(str(directory)):
            # Nothing can be mounted over a link. What it leads to outside of the skill is not what
            # this is about: commands may write there.
            real = os.path.realpath(path)
            if not real.startswith(f"{directory}/") or not os.path.exists(real):
                continue
            is_directory = os.path.isdir(real)
            found[real] = MountCover.EMPTY_DIRECTORY if is_directory else MountCover.CLOSED_FILE
            if len(found) > PATHS_MAX:
                message = "too much bytecode and too many files that programs left, remove some"
                raise SandboxError("protect-failed", f"{message}: `{directory}`")
    return found


def options(
    profile: SandboxProfile,
    covers: Mapping[str, MountCover],
    *,
    around: Mapping[str, MountCover],
    cwd: Path,
    files: Mapping[str, int],
    masks: RunMasks,
    runners: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the options of a run, which bubblewrap reads by `--args`.

    Args:
        covers: What is mounted over the protected paths.
        around: What is mounted outside of the workspace, before it.
        files: The descriptor of each of `etc_files` and of the profile's sealed files.
        runners: Where a run has the denied programs that run its command, by real path.
    """
    yield from namespace_options(profile, "sandbox", *(("--share-net",) if profile.network else ()))
    yield from own_options(profile, files)
    yield from _places(profile, covers, around, files, masks)
    yield from ("--chdir", str(cwd))
    if profile.denied:
        yield from program_options(profile.denied, masks.plain(), runners)
    else:
        yield from program_options()


def _places(
    profile: SandboxProfile,
    covers: Mapping[str, MountCover],
    around: Mapping[str, MountCover],
    files: Mapping[str, int],
    masks: RunMasks,
) -> Iterator[str]:
    """Yield the binds in such an order that none covers a stricter one."""
    workspace = profile.workspace
    readable = sorted(set(profile.readable))
    for directory in readable:
        if not directory.is_relative_to(workspace):
            yield from ("--ro-bind", str(directory), str(directory))
    yield from _tools(profile)
    for path, cover in around.items():
        yield from _cover(path, cover, masks)
    bind = "--ro-bind" if profile.read_only else "--bind"
    yield from (bind, str(workspace), str(workspace))
    for directory in profile.writable:
        yield from ("--bind", str(directory), str(directory))
    for path, cover in _needed(profile, covers):
        yield from _cover(path, cover, masks)
    for directory in readable:
        if directory.is_relative_to(workspace):
            yield from ("--ro-bind", str(directory), str(directory))
    yield from _caches(profile)
    hidden = {path for path, cover in covers.items() if cover in _HIDING}
    for path in profile.sealed:
        if hidden.isdisjoint((path, *map(str, Path(path).parents))):
            mode = "0555" if os.access(path, os.X_OK) else "0444"
            yield from ("--perms", mode, "--ro-bind-data", str(files[path]), path)
    # Last, so that nothing is mounted over them.
    for path, cover in skill_covers(profile).items():
        if hidden.isdisjoint((path, *map(str, Path(path).parents))):
            yield from _cover(path, cover, masks)


def _needed(
    profile: SandboxProfile, covers: Mapping[str, MountCover]
) -> Iterator[tuple[str, MountCover]]:
    """Yield what changes something over the bind of the workspace, in the order of the mounts."""
    # What is read-only is so with all in it: what is mounted there on the host comes along.
    is_frozen = profile.read_only and not profile.writable
    # Binds first: bubblewrap reads the table of all mounts again for each one.
    for path, cover in sorted(covers.items(), key=lambda item: item[1] in _DIRECTORIES):
        # A bind of a directory is writable, whatever is around it.
        is_fixed = profile.read_only and not _is_in(path, profile.writable)
        is_said = cover is MountCover.READ_ONLY and is_frozen
        if not (is_said or (cover is MountCover.PIN and is_fixed)):
            yield path, cover


def _is_in(path: str, directories: Iterable[Path]) -> bool:
    return any(path.startswith(f"{directory}/") for directory in directories)


def _tools(profile: SandboxProfile) -> Iterator[str]:
    """Yield the places of the person's tools, before the workspace, which may be below one."""
    tools = profile.tools
    for name, program in tools.pinned.items():
        yield from ("--symlink", program, f"{PINNED}/{name}")
    for path, target in tools.links.items():
        yield from ("--symlink", target, path)
    for place in tools.mounts:
        yield from ("--ro-bind", str(place), str(place))


def _caches(profile: SandboxProfile) -> Iterator[str]:
    caches = profile.tools.caches
    if caches is not None:
        yield from ("--bind", str(caches.directory), str(caches.directory))
        for path in caches.closed:
            yield from ("--ro-bind", str(path), str(path))
        for path in caches.opened:
            yield from ("--bind", str(path), str(path))
        for place, path in caches.shown.items():
            yield from ("--bind", str(path), place)


def _cover(path: str, cover: MountCover, masks: RunMasks) -> tuple[str, ...]:
    if cover is MountCover.PIN:
        return ("--bind", path, path)
    if cover is MountCover.READ_ONLY:
        return ("--ro-bind", path, path)
    if cover is MountCover.CLOSED_FILE:
        return ("--ro-bind", masks.by_path.get(path) or masks.plain(), path)
    if cover is MountCover.EMPTY_FILE:
        return ("--ro-bind", masks.empty(), path)
    tracked = [word for below, mask in masks.below(path) for word in ("--ro-bind", mask, below)]
    if cover is MountCover.EMPTY_DIRECTORY:
        mode, tracked = "0555", []
    else:
        # Git looks at each file that it tracks, by its path.
        mode = "0111" if tracked else "0000"
    # One page: all that a run gets if it makes the directory writable.
    return ("--size", "4096", "--perms", mode, "--tmpfs", path, *tracked)
