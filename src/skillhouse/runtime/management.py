"""What a person does with skills themselves: look through, make, switch, open, delete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.discovery import Root, discover
from skillhouse.floor import (
    PathError,
    SkillError,
    UnknownSkillError,
    confine,
    read_beneath,
)
from skillhouse.runtime.definition import define
from skillhouse.runtime.recording import recorded
from skillhouse.runtime.safe_path import safe_path
from skillhouse.skill import SKILL_FILE, skill_text

if TYPE_CHECKING:
    from skillhouse.audit import AuditLog
    from skillhouse.floor import (
        SkillhouseError,
    )
    from skillhouse.runtime.definition import SkillDefinition
    from skillhouse.runtime.settings import SettingsStore, SkillSettings
    from skillhouse.skill import Profile, Skill, SkillIndex

FILE_MAX = 5 * 1024 * 1024
"""Bytes of a skill's file that is read for a person (DESIGN, bounds: fetch)."""

_OPENERS = {"darwin": "open", "win32": "explorer"}


class Management:
    """The seven operations (S004-67); every change is in the audit log."""

    def __init__(
        self,
        *,
        index: Callable[[], SkillIndex],
        refresh: Callable[[], bool],
        roots: Callable[[], Sequence[Root]],
        profile: Profile,
        project: Path,
        settings: SettingsStore,
        audit: AuditLog,
    ) -> None:
        """Take the parts of the house that the operations work on.

        Args:
            index: Returns what was found last.
            refresh: Looks anew.
            roots: Returns the places of skills, strongest first.
            profile: How skills are found, what scopes are called, and its published words.
            project: Where this project's own skills are made.
            settings: What is switched off.
            audit: Where changes are recorded.
        """
        self._index = index
        self._refresh = refresh
        self._roots = roots
        self._profile = profile
        self._project = project
        self._settings = settings
        self._audit = audit

    @property
    def settings(self) -> SkillSettings:
        """What is switched off."""
        return self._settings.read()

    def prepare(self) -> tuple[Path, ...]:
        """Make the user's directories of skills where they are missing (S004-68)."""
        made = tuple(
            root.path
            for root in self._roots()
            if root.scope == "user" and not os.path.lexists(root.path)
        )
        for path in made:
            path.mkdir(parents=True, exist_ok=True)
        return made

    def get_all(self) -> tuple[SkillDefinition, ...]:
        """Return every skill that was found, also the disabled, and shadowed ones last.

        A skill whose file cannot be read any more is left out; a refresh reports it.
        """
        index = self._index()
        settings = self.settings
        return tuple(
            found
            for skill in (*index.skills, *index.shadowed)
            if (found := self._definition(skill, settings)) is not None
        )

    def get(self, reference: str) -> SkillDefinition:
        """Return one skill by id, name or directory name.

        Raises:
            UnknownSkillError: nothing fits.
            AmbiguousSkillError: several fit.
            SkillError: its file cannot be used any more.
        """
        return define(self._find(reference), self.settings, self._profile)

    def get_enabled(self) -> tuple[SkillDefinition, ...]:
        """Return what is in force and enabled (S004-71)."""
        in_force = {skill.file for skill in self._index().skills}
        return tuple(found for found in self.get_all() if found.enabled and found.path in in_force)

    def refresh(self) -> tuple[SkillDefinition, ...]:
        """Look anew and return every skill."""
        self._refresh()
        return self.get_all()

    def read_file(self, reference: str, relative: str) -> str:
        """Return the text of one of a skill's files.

        Raises:
            UnknownSkillError: there is no such skill.
            PathError: the path leads out of the skill, or to no regular file.
            SkillError: the file is no UTF-8 text, or too large.
        """
        skill = self._find(reference)
        # INVARIANT: checked by segments and opened beneath the directory, never by a prefix.
        target = confine(skill.directory, relative)
        real = skill.directory.resolve()
        inside = target.relative_to(real).as_posix()
        data = read_beneath(real, inside, max_bytes=FILE_MAX)
        if len(data) > FILE_MAX:
            raise SkillError("too-large", target, f"expected at most {FILE_MAX} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SkillError("not-text", target, "expected UTF-8 text") from error

    def open_directory(self, reference: str | None = None) -> Path:
        """Show a skill's directory in the file manager; without a skill the user's directory.

        Raises:
            SkillError: there is no file manager to be found; the error has the directory.
        """
        path = self._target("user").path if reference is None else self._find(reference).directory
        wanted = _OPENERS.get(sys.platform, "xdg-open")
        opener = shutil.which(wanted, path=safe_path(os.environ, self._project))
        if opener is None:
            raise SkillError("no-file-manager", path, "no file manager found; open it yourself")
        subprocess.Popen(
            [opener, os.fspath(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return path

    def create(
        self, name: str, description: str, instructions: str, *, scope: str = "user"
    ) -> SkillDefinition:
        """Make a skill and return it; what is there already is never overwritten.

        Args:
            name: Also the name of its directory.
            description: Any text; it reads back as it is.
            instructions: The body.
            scope: user or project.

        Raises:
            SkillError: the name or description breaks the specification, the place is taken, or
                there is no place of this scope.
        """
        text = skill_text(name, description, instructions)
        root = self._target(scope)
        directory = root.path / name
        arguments = {"name": name, "scope": scope, "path": str(directory)}
        with recorded(self._audit, "create", arguments):
            root.path.mkdir(parents=True, exist_ok=True)
            try:
                directory.mkdir()
            except FileExistsError as error:
                raise SkillError("skill-exists", directory, "there is a skill already") from error
            try:
                _write_new(directory / SKILL_FILE, text)
            except BaseException:
                shutil.rmtree(directory)
                raise
        self._refresh()
        # Found by itself: the house does not read a project that is not trusted yet.
        made = discover([Root(root.path, scope)], profile=self._profile)
        skill = next(one for one in (*made.skills, *made.shadowed) if one.directory == directory)
        return define(skill, self.settings, self._profile)

    def delete(self, reference: str) -> Path:
        """Remove a user's skill with its directory, and return where it was.

        Raises:
            UnknownSkillError: there is no such skill.
            SkillError: it is not the user's, or holds other skills, or is reached by a link.
        """
        skill = self._find(reference)
        directory = skill.directory
        if skill.scope != "user":
            message = f"only skills of scope user can be deleted, this one is {skill.scope}"
            raise SkillError("not-deletable", directory, message)
        # INVARIANT: the place comes from the index entry and lies truly below its root.
        real, root = os.path.realpath(directory), os.path.realpath(skill.root)
        if real != os.path.join(root, os.path.relpath(directory, skill.root)) or real == root:
            message = "reached by a symbolic link; remove the link yourself"
            raise SkillError("not-deletable", directory, message)
        inside = [
            other.id
            for other in (*self._index().skills, *self._index().shadowed)
            if other.file != skill.file and other.file.startswith(f"{directory}{os.sep}")
        ]
        if inside:
            message = f"holds other skills, delete them first: {', '.join(inside)}"
            raise SkillError("not-deletable", directory, message)
        with recorded(self._audit, "delete", {"id": skill.id, "path": str(directory)}):
            shutil.rmtree(directory)
            self._settings.forget(skill.id)
        self._refresh()
        return directory

    def set_enabled(self, reference: str, *, enabled: bool) -> SkillDefinition:
        """Switch a skill on or off, for good; other ids of the same name are left alone.

        Raises:
            UnknownSkillError: there is no such skill.
        """
        skill = self._find(reference)
        with recorded(self._audit, "enable" if enabled else "disable", {"id": skill.id}):
            self._settings.set_skill(skill.id, enabled=enabled)
        self._refresh()
        return define(skill, self.settings, self._profile)

    def set_all_enabled(self, *, enabled: bool) -> None:
        """Switch skills as a whole on or off (S004-83)."""
        with recorded(self._audit, "enable" if enabled else "disable", {"id": "*"}):
            self._settings.set_all(enabled=enabled)
        self._refresh()

    def said(self, error: SkillhouseError) -> str:
        """Return an error in the words that the profile publishes, or else in ours."""
        key = ""
        if isinstance(error, UnknownSkillError):
            key = "manage_unknown"
        elif isinstance(error, PathError):
            key = "manage_path"
        elif isinstance(error, SkillError) and error.code == "not-deletable":
            key = "manage_delete"
        return self._profile.messages.get(key) or str(error)

    def _find(self, reference: str) -> Skill:
        return self._index().get(reference)

    def _target(self, scope: str) -> Root:
        """Return the first root of a scope: for a project one that lies directly in it."""
        for root in self._roots():
            if root.scope == scope and (
                scope != "project" or root.path.is_relative_to(self._project)
            ):
                return root
        message = f"skills are made in scope user or project, not in `{scope}`"
        raise SkillError("no-place", self._project, message)

    def _definition(self, skill: Skill, settings: SkillSettings) -> SkillDefinition | None:
        try:
            return define(skill, settings, self._profile)
        except SkillError:
            return None


def _write_new(path: Path, text: str) -> None:
    with open(path, "x", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
