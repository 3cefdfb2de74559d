"""Where the file tools may go: the workspace, and the directories of loaded skills."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from copy import copy
from pathlib import Path, PurePosixPath

from msgspec import Struct

from skillhouse.floor import (
    PathError,
    PathStateCache,
    PersistentPaths,
    confine,
    is_below,
    is_leftover_name,
    is_secret_file,
    open_beneath,
)
from skillhouse.sandbox import CoverCache, find_git
from skillhouse.skill import SKILL_FILE
from skillhouse.skill.hidden import one_line
from skillhouse.tools.call import RefusedError
from skillhouse.tools.protection import Guarded, NoFiles, OwnFiles, links_below, other_names
from skillhouse.tools.tool import Session

_MESSAGES = {
    "not-found": "there is no `{path}`",
    "not-a-file": "`{path}` is not a regular file",
    "path-escape": "`{path}` is a link that leads outside",
    "path-link": "`{path}` goes through a link that appeared while it was opened",
    "unreadable": "`{path}` cannot be read",
    "path-parent": "`{path}`: write the path without `..`",
}

WRITTEN_DEPTH_MAX = 64
"""Directories above a file that is written, and so that one call may make: people's trees are not
deeper, and each costs calls of the system, of which a path of 100 KB would need 50,000."""
MEANT_MAX = 3
"""Places that the answer to a wrong path names."""
WRITTEN_PATH_MAX = 4_000
"""Bytes of its path below the workspace; most programs open none above 4,096 (PATH_MAX)."""


class Place(Struct, frozen=True, kw_only=True):
    """A regular file as it was when the call was judged."""

    base: Path
    """Real directory that bounds it."""
    relative: str
    """Path below `base`, without links."""
    identity: tuple[int, int]
    """Device and inode, compared when it is opened."""
    concern: str
    """Why reading it is not taken for granted; empty when it is."""

    @property
    def path(self) -> Path:
        return self.base / self.relative


class Workspace:
    def __init__(
        self,
        root: Path,
        *,
        withheld: Iterable[Path] = (),
        for_people: Iterable[Path] = (),
        protected: Iterable[Path] = (),
        private: Iterable[Path] = (),
        own: OwnFiles | None = None,
        paths: PersistentPaths = PersistentPaths(),  # noqa: B008 - a frozen value.
    ) -> None:
        """Take the directory, and what no rule and no person can open to an agent. Skills' files in
        `withheld` must not be read; `for_people` opens to a conversation in which a person has
        started the skill; no tool writes to `protected`, and no command reads `private`."""
        self.root = root.resolve()
        withheld, private = tuple(withheld), tuple(private)
        self.paths = paths
        self._guarded = Guarded(self.root, (*protected, *withheld, *private), paths=paths)
        self._own = own or NoFiles()
        state = Guarded(self.root, private)
        self._is_inside = state.is_around
        self._protected = _protected_place(self.root, paths)
        self.hidden = state.below
        """What of it no command reads, relative to the workspace."""
        self._private = tuple(Path(os.path.realpath(place)) for place in private)
        self._withheld = _places(withheld)
        self._for_people = _places(for_people)
        self._checked: tuple[Hashable, PathStateCache, Guarded, str] | None = None
        self.cover_cache = CoverCache()
        self._around: Workspace | None = None

    def around(self, top: str) -> Workspace:
        """Return the same of a directory around the workspace, of which commands read."""
        if self._around is None or str(self._around.root) != top:
            self._around = found = copy(self)
            found.root, found.cover_cache = Path(top), CoverCache()
            found.hidden = Guarded(found.root, self._private).below
        return self._around

    def problem_around(self, top: str) -> str:
        """Return why a directory around the workspace is not shown to commands, or ""."""
        if self.around(top).hidden:
            return f"the repository `{top}` around the workspace holds the state of skillhouse"
        return ""

    def withheld(self, session: Session) -> frozenset[str]:
        """Return the skills kept from view, as written and with links followed."""
        return self._withheld | (self._for_people - _places(session.loaded.values()))

    def protected(self, session: Session) -> tuple[str, ...]:
        """Return what no command writes to now; RefusedError where a sandbox cannot protect it."""
        now = self.check(session)
        linked = map(str, self._links(session))
        names = other_names(self.root, self._own.skill_files.union(linked))
        places = sorted({*self._guarded.below, *now.below, *names})
        if odd := next((place for place in places if "*" in place), ""):
            raise RefusedError(f"denied: `{odd}` cannot be protected; rename it", denied=True)
        # What is below another of them is protected with it.
        return tuple(
            place for place in places if not any(place.startswith(f"{other}/") for other in places)
        )

    def check(self, session: Session) -> Guarded:
        """Return the files that decide now; RefusedError where one cannot be protected."""
        return session.once(("check", self, *session.loaded), lambda: self._look(session))

    def _look(self, session: Session) -> Guarded:
        places = (*self._own.places(), *self._links(session))
        key = (os.getcwd(), places)
        kept = self._checked
        # INVARIANT: what is kept follows from the key and from what is at the paths in `looks`.
        if kept is None or kept[0] != key or not kept[1].hold():
            states = PathStateCache()
            now = Guarded(self.root, places, paths=self.paths, states=states)
            kept = self._checked = key, states, now, self._own.problem(states)
        _, _, now, problem = kept
        problem = problem or self._guarded.detour() or now.detour()
        if self._is_inside:
            problem = "the workspace is inside the state of skillhouse: start it elsewhere"
        if not problem and self._protected and not self._is_work():
            problem = (
                f"the workspace is in `{self._protected}`, which is protected, and is no work tree "
                "of git of its own: start skillhouse elsewhere"
            )
        if problem:
            raise RefusedError(f"denied: {problem}", denied=True)
        return now

    def _is_work(self) -> bool:
        """Whether it is a work tree, or an unprotected part of one, below the protected place."""
        found = find_git(str(self.root))
        part = os.path.relpath(self.root, found.top or self.root)
        is_protected = part != "." and self.paths.is_never(part)
        return bool(found.own) and not (found.problem or is_protected)

    def _links(self, session: Session) -> tuple[Path, ...]:
        known = self._own.skill_files
        bases = [base for file, base in session.loaded.items() if file in known]
        return tuple(path for base in bases for path in links_below(base))

    def is_withheld(self, absolute: str, session: Session) -> bool:
        """Whether a path is, also by links, in a withheld skill; of nested skills the innermost
        counts."""
        withheld = self.withheld(session)
        if not withheld:
            return False
        for path in {absolute, os.path.realpath(absolute)}:
            kept = max((one for one in withheld if is_below(path, one)), key=len, default=None)
            inner = (os.path.dirname(skill.file) for skill in session.visible.skills)
            if kept is not None and not any(
                len(seen) > len(kept) and is_below(path, seen) for seen in inner
            ):
                return True
        return False

    def is_private(self, real: str) -> bool:
        """Whether a real path is in what no command reads."""
        return any(is_below(real, place) for place in self._private)

    def check_withheld(self, absolute: str, path: str, session: Session) -> None:
        """Raise RefusedError for a withheld skill; no answer of a person changes that."""
        if self.is_withheld(absolute, session):
            raise RefusedError(
                f"denied: `{path}` belongs to a skill that is denied or off", denied=True
            )

    def absolute(self, path: str) -> str:
        """Return the path that a model meant, below the workspace if relative; RefusedError for no
        path."""
        if not path or "\0" in path:
            raise RefusedError("expected a path")
        if ".." in PurePosixPath(path).parts:
            raise refusal(PathError("path-parent", path, self.root))
        absolute = os.path.normpath(os.path.join(self.root, path))
        # POSIX lets two slashes at the beginning stay, and Linux takes them for one.
        return absolute[1:] if absolute.startswith("//") else absolute

    def base_of(self, absolute: str, session: Session) -> Path | None:
        for base in (self.root, *session.loaded.values()):
            if is_below(absolute, base):
                return base
        return None

    def is_leftover(self, absolute: str, session: Session) -> bool:
        """Whether a path is, also by links, what a program left in a skill."""
        paths = {absolute, os.path.realpath(absolute)}
        # There may be thousands of skills, and hardly any path has such a name.
        if not any(map(is_leftover_name, paths)):
            return False
        homes = {os.path.dirname(skill.file) for skill in session.visible.skills}
        homes |= {str(place) for place in session.loaded.values()}
        return any(
            path.startswith(f"{place}/") and is_leftover_name(path[len(place) + 1 :])
            for path in paths
            for home in homes
            for place in {home, os.path.realpath(home)}
        )

    def file(self, path: str, session: Session) -> Place:
        """Follow links within the base to a regular file; RefusedError if there is none."""
        absolute = self.absolute(path)
        self.check_withheld(absolute, path, session)
        if self.is_leftover(absolute, session):
            raise RefusedError(f"denied: a program left `{path}`, the skill has no such file")
        base = self.base_of(absolute, session)
        concern = "" if base else "it is outside the workspace and the loaded skills"
        base = base or Path("/")
        if linked := session.linked_file(absolute):
            absolute, base = linked, Path(linked).parent
        try:
            target = confine(base, os.path.relpath(absolute, base))
            if any(is_below(target, place) for place in self._private):
                raise RefusedError(f"denied: `{path}` belongs to skillhouse itself", denied=True)
            info = os.stat(target)
        except PathError as error:
            raise self.not_there(error, path, session) from error
        except OSError:
            # Gone since: another process moves files here.
            raise refusal(PathError("not-found", path, base), path) from None
        if not is_text(str(target)):
            raise RefusedError(f"`{path}` leads to a file whose name is not UTF-8")
        real_base = base.resolve()
        if not concern and info.st_nlink > 1:
            concern = "it has other names, which may be outside"
        if not concern and is_secret_file(str(target.relative_to(real_base)), str(target)):
            concern = "its name is one of secrets"
        return Place(
            base=real_base,
            relative=target.relative_to(real_base).as_posix(),
            identity=(info.st_dev, info.st_ino),
            concern=concern,
        )

    def not_there(self, error: PathError, path: str, session: Session) -> RefusedError:
        """Return the refusal of a path, with the places that loaded skills have under it: their
        instructions name files relative to the skill, and these tools begin at the workspace."""
        if error.code != "not-found" or os.path.isabs(path):
            return refusal(error, path)
        relative = os.path.normpath(path)
        meant = [
            f"`{place}` (of skill `{one_line(directory.name)}`)"
            for directory in reversed(session.loaded.values())
            if os.path.exists(place := os.path.join(directory, relative))
            and is_below(os.path.realpath(place), os.path.realpath(directory))
            and not self.is_withheld(place, session)
        ]
        hint = f"; did you mean {' or '.join(meant[:MEANT_MAX])}" if meant else ""
        return RefusedError(f"{refusal(error, path)}{hint}")

    def writable(self, path: str, session: Session) -> str:
        """Return the path below the workspace; RefusedError for what is outside or protected."""
        absolute = self.absolute(path)
        if self.base_of(absolute, session) != self.root or absolute == str(self.root):
            raise RefusedError(
                f"denied: `{path}` is outside the workspace `{self.root}`", denied=True
            )
        relative = os.path.relpath(absolute, self.root)
        _check_depth(relative)
        reason = self._guarded.reason(relative) or self.check(session).reason(relative)
        if not reason and self._is_name_of_a_skill(absolute):
            reason = "is protected: it is another name (hard link) of a skill's file"
        if not reason and self._is_loaded(absolute, session):
            reason = "is protected: it belongs to a skill; ask the user to change it"
        if reason:
            raise RefusedError(f"denied: `{relative}` {reason}", denied=True)
        return relative

    def _is_name_of_a_skill(self, absolute: str) -> bool:
        try:
            info = os.lstat(absolute)
            return info.st_nlink > 1 and any(
                os.path.samestat(info, os.stat(file))
                for file in self._own.skill_files
                if os.path.exists(file)
            )
        except OSError:
            return False

    def _is_loaded(self, absolute: str, session: Session) -> bool:
        skills = (os.path.dirname(skill.file) for skill in session.visible.skills)
        directories = (*skills, *map(str, session.loaded.values()))
        return any(is_below(absolute, place) for place in directories)


def _protected_place(root: Path, paths: PersistentPaths) -> str:
    """Return the directory with a protected name that a workspace is in, or "".

    Of names without a dot alone, such as `id_service`, a directory may be called anything.
    """
    names = [n if n[:1] == "." or not paths.is_never(n) else "x" for n in root.parts[1:]]
    ends = range(1, len(names) + 1)
    found = next((end for end in ends if paths.is_never("/".join(names[:end]))), 0)
    return str(Path(*root.parts[: found + 1])) if found else ""


def _places(directories: Iterable[Path]) -> frozenset[str]:
    return frozenset(
        place for given in directories for place in (str(given), os.path.realpath(given))
    )


def skill_directory_of(file: Path, base: Path) -> Path | None:
    """Return the nearest skill's directory at or below `base`."""
    within = (place for place in file.parents if place.is_relative_to(base))
    return next((place for place in within if os.path.lexists(place / SKILL_FILE)), None)


def opened(place: Place) -> int:
    """Open the file that was judged, or one to which the same applies; RefusedError for another."""
    try:
        handle = open_beneath(place.base, place.relative)
    except PathError as error:
        raise refusal(error) from error
    info = os.fstat(handle)
    is_same = (info.st_dev, info.st_ino) == place.identity
    # A file that was replaced in one step, as `write` does, is another one at the same path. What
    # held for the first holds for it too, unless it has a name elsewhere.
    if not is_same and (place.concern or info.st_nlink > 1):
        os.close(handle)
        raise RefusedError(f"`{place.path}` was replaced meanwhile; try again")
    return handle


def is_text(path: str) -> bool:
    """Whether a path, which may be any bytes, is UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in path)


def _check_depth(relative: str) -> None:
    """Raise RefusedError for a path that is deeper or longer than the bounds."""
    depth = relative.count("/")
    if depth > WRITTEN_DEPTH_MAX:
        message = f"expected at most {WRITTEN_DEPTH_MAX} directories in the path, got {depth}"
        raise RefusedError(message)
    size = len(relative.encode("utf-8", "surrogatepass"))
    if size > WRITTEN_PATH_MAX:
        raise RefusedError(f"expected a path of at most {WRITTEN_PATH_MAX} bytes, got {size}")


def refusal(error: PathError, path: str = "") -> RefusedError:
    message = _MESSAGES.get(error.code, "`{path}` is no path that can be used here")
    return RefusedError(
        message.format(path=path or error.relative), denied=error.code == "path-escape"
    )
