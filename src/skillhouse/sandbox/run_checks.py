"""What every launcher checks before a run, whatever holds it, and looks at after it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from skillhouse.floor import PROTECTED_NAMES, structs
from skillhouse.floor.threads import in_thread
from skillhouse.sandbox.interpreters import own_python, system_program
from skillhouse.sandbox.mountpoints import Stash, is_placeholder
from skillhouse.sandbox.persistence import Census
from skillhouse.sandbox.profile import Completed, SandboxError, SandboxProfile, names_like
from skillhouse.sandbox.protected_mounts import ProtectedMounts, shield


async def census_of(profile: SandboxProfile) -> Census | None:
    if profile.paths is None or (profile.read_only and not profile.writable):
        # What can write nothing makes nothing: whatever is new is another program's.
        return None
    always = {*PROTECTED_NAMES} & {*profile.protected}
    shielded = names_like(tuple(sorted(name for name in always if "/" not in name)))
    census = Census(
        str(profile.workspace),
        profile.paths,
        profile.opened,
        profile.below.directories if profile.below else {},
        is_shielded=lambda name: shielded.fullmatch(name.casefold()) is not None,
        places=tuple(str(path.relative_to(profile.workspace)) for path in profile.writable)
        if profile.read_only
        else ("",),
    )
    await in_thread(census.take)
    return census


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
    profile: SandboxProfile, census: Census | None, stash: Stash | None
) -> AbstractAsyncContextManager[ProtectedMounts]:
    """Return what is mounted over the protected paths of a run, as `shield` does it."""
    return shield(
        str(profile.workspace),
        protected_paths(profile),
        stash=stash,
        hidden=profile.hidden,
        census=census,
        below=profile.below,
        read_only=profile.read_only,
        is_lasting=profile.is_lasting,
    )


def with_census(done: Completed, census: Census | None, git_notes: Iterable[str] = ()) -> Completed:
    notes = (*done.notes, *git_notes)
    if census is None:
        return structs.replace(done, notes=notes) if notes else done
    notes = (*notes, *census.notes)
    return structs.replace(done, changes=tuple(census.changes), notes=notes)
