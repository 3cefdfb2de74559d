"""What a command in the background may write, what is said of it, and what ends it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from skillhouse.floor import DEPENDENCIES, is_below
from skillhouse.floor.crash_cleanup import is_placeholder
from skillhouse.floor.structs import replace
from skillhouse.permission import CommandPlan, Effect, Permission, read_command, unwrapped
from skillhouse.tools.background_runs import BACKGROUND_SECONDS
from skillhouse.tools.call import PERSISTENCE, PermissionRequest, RefusedError
from skillhouse.tools.command_inputs import CommandInputs
from skillhouse.tools.path_rules import PathRules
from skillhouse.tools.tool import Session
from skillhouse.tools.workspace import Workspace

WRITABLE_MAX = 8
"""Directories that one command in the background may write."""
ENTRIES_MAX = 20_000
"""Names in them that are looked at each time."""
NOT_KEPT = "it goes on in the background, where the files that it loads later may be other ones"


class BackgroundForm(Struct, frozen=True, kw_only=True):
    """A call of `exec` with `background`."""

    writable: tuple[Path, ...] = ()
    """Real paths of directories in the workspace."""
    needs: tuple[PermissionRequest, ...] = ()

    @property
    def fact(self) -> tuple[str, str]:
        """What a person who is asked sees of it."""
        names = ", ".join(f"`{place.name}/`" for place in self.writable)
        reach = f"the workspace is read-only but for {names}" if names else "it writes no file"
        hours = BACKGROUND_SECONDS // 3600
        ends = f"until it ends or is ended, at most {hours} hours"
        return ("in the background", f"{ends}; {reach}; nothing outside reaches a port of it")

    def needs_of(self, line: str, *, runs_scripts: bool) -> Iterator[PermissionRequest]:
        """Yield what the command needs besides: the approval of a script is about a run in which
        no other call changes the workspace."""
        yield from self.needs
        if runs_scripts:
            yield PermissionRequest(
                permission=Permission(action="exec-once", resource=line),
                default=Effect.ASK,
                why=f"it runs a script of the workspace, and {NOT_KEPT}",
                caution_layer=PERSISTENCE,
                may_last=False,
            )


def background_form(
    arguments: Mapping[str, Any], workspace: Workspace, session: Session, paths: PathRules
) -> BackgroundForm | None:
    """Return the form of a call, None for one that is waited for.

    Raises:
        RefusedError: a directory is none, is protected, or is not in the workspace.
    """
    names = arguments.get("writable", ())
    if not arguments.get("background"):
        if names:
            raise RefusedError("`writable` is for a command with `background`: others write freely")
        return None
    if session.origin_digest:
        raise RefusedError("what a skill runs by itself cannot go on in the background")
    places = tuple(dict.fromkeys(_directory(name, workspace, session) for name in names))
    needs = tuple(need for place in places for need in paths.writing(str(place)))
    return BackgroundForm(writable=places, needs=needs)


def _directory(name: str, workspace: Workspace, session: Session) -> Path:
    absolute = workspace.absolute(name)
    relative = workspace.writable(name, session)
    if not os.path.isdir(absolute):
        raise RefusedError(f"expected a directory that exists in `writable`: `{relative}`")
    if os.path.realpath(absolute) != absolute:
        raise RefusedError(
            f"`{relative}` in `writable` is reached through a link: name the real one"
        )
    group = next((g for part in _above(relative) if (g := workspace.paths.group(part))), None)
    if group is not None:
        why = f"`{relative}` is protected ({group.why})"
        raise RefusedError(f"denied: {why}", denied=True)
    return Path(absolute)


def _above(relative: str) -> Iterator[str]:
    parts = relative.split("/")
    yield from ("/".join(parts[:end]) for end in range(1, len(parts) + 1))


def check_writes(plan: CommandPlan | None, form: BackgroundForm, root: str) -> None:
    """Raise RefusedError for what the words say is written where nothing can be."""
    if plan is None:
        return
    base = os.path.join(root, plan.directory)
    for command in plan.commands():
        meaning = read_command(unwrapped(command.argv) or command.argv)
        is_known = meaning.is_quiet and not meaning.directory
        for target in (*command.redirected, *(meaning.written if is_known else ())):
            real = os.path.realpath(os.path.join(base, target))
            is_free = any(is_below(real, place) for place in form.writable)
            if real.startswith(f"{root}/") and not is_free:
                shown = os.path.relpath(real, root)
                raise RefusedError(
                    f"nothing was started: it would write `{shown}`, and in the background the "
                    "workspace is read-only: name a directory that exists in `writable`"
                )


def beside_background(
    found: CommandInputs, form: BackgroundForm | None, written: Sequence[str]
) -> CommandInputs:
    """Return what a command depends on, with why nothing keeps what it may load as it is."""
    if not found.signature or found.unbound:
        return found
    if form is not None:
        return replace(found, unbound=NOT_KEPT)
    names = ", ".join(f"`{place}`" for place in written)
    return (
        replace(found, unbound=f"a command in the background may write {names}") if names else found
    )


def refuse_moving_scripts(copies: Mapping[str, bytes], written: Sequence[str]) -> None:
    """Raise RefusedError where a command in the background could put another file in the place of
    an approved script: it may rename the directory above it."""
    for path in copies:
        if any(path.startswith(f"{place}/") for place in written):
            raise RefusedError(
                f"nothing was done: `{path}` is in a directory that a command in the background "
                "may write; end that first (`exec_stop`)"
            )


def look_of(workspace: Workspace, paths: PathRules, form: BackgroundForm) -> Callable[[], str]:
    """Return what says why a command in the background has to end now, from how it is here.

    Mounts are over what was there when it began. A secret that is made later, or replaced, would
    be seen, and a file that acts later would act before the end of the run undoes it.
    """
    before = _guarded(workspace, paths, form)

    def look() -> str:
        for path, identity in sorted(_guarded(workspace, paths, form).items()):
            if before.get(path) != identity:
                return f"`{path}` was made or replaced meanwhile, which it must not see or make"
        return ""

    return look


def _guarded(
    workspace: Workspace, paths: PathRules, form: BackgroundForm
) -> Mapping[str, tuple[int, int]]:
    root = str(workspace.root)
    hidden = (
        f"{place}/{name}" if place else name
        for place, name, secret in paths.coverage().paths
        if secret
    )
    found = {}
    for relative in (*hidden, *_acting_below(workspace, form)):
        path = f"{root}/{relative}"
        try:
            info = os.lstat(path)
        except OSError:
            continue
        if not (stat.S_ISDIR(info.st_mode) and is_placeholder(path)):
            found[relative] = (info.st_dev, info.st_ino)
    return found


def _acting_below(workspace: Workspace, form: BackgroundForm) -> Iterator[str]:
    """Yield what acts later in the directories that it may write, but for installed packages."""
    left = ENTRIES_MAX
    for top in form.writable:
        for place, directories, files in os.walk(top):
            left -= len(directories) + len(files)
            if left < 0:
                return
            start = os.path.relpath(place, workspace.root)
            for name in (*directories, *files):
                if workspace.paths.group(f"{start}/{name}") is not None:
                    yield f"{start}/{name}"
            directories[:] = sorted({*directories} - DEPENDENCIES)
