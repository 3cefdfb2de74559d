"""What a person does with skills themselves: look through, make, switch, open, delete."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Literal

from msgspec import Struct

from skillhouse import registry
from skillhouse.audit import AuditLog
from skillhouse.audit.log import recorded
from skillhouse.discovery import Root, discover
from skillhouse.floor import (
    PathError,
    SkillError,
    SkillhouseError,
    UnknownSkillError,
    UnusableSkillError,
    confine,
    is_leftover_name,
    isolated,
    read_beneath,
)
from skillhouse.floor.paths import safe_path
from skillhouse.house.code_manifests import NamedCode, code_named
from skillhouse.house.config.config_files import project_of
from skillhouse.house.find_skills import find_in
from skillhouse.house.house_snapshot import SnapshotInUse
from skillhouse.house.installed_check import INSTALLS
from skillhouse.house.remote_skills import load_known
from skillhouse.house.settings import SettingsStore, SkillSettings
from skillhouse.house.trash import DeletedSkill, Trash, check_deletable, check_unread
from skillhouse.skill import (
    SKILL_FILE,
    Profile,
    Skill,
    SkillIndex,
    list_resources,
    revealed,
    skill_text,
)

_OPENERS = {"darwin": "open", "win32": "explorer"}


def open_on_desktop(target: str | Path, *, project: Path) -> None:
    """Open a target without waiting for its program, which is never one of the project.

    Raises:
        SkillError: there is no desktop here.
    """
    wanted = _OPENERS.get(sys.platform, "xdg-open")
    opener = shutil.which(wanted, path=safe_path(os.environ, project))
    if opener is None:
        # An address may hold a token, so the message names the place alone.
        message = "no file manager or browser found; open it yourself"
        raise SkillError("no-file-manager", project, message)
    process = subprocess.Popen(
        [opener, os.fspath(target)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # A server goes on for weeks, and each program that ended would stay in the table of processes.
    threading.Thread(target=process.wait, name="desktop", daemon=True).start()


FileKind = Literal["markdown", "script", "template", "other"]

_SCRIPTS = (".py", ".js", ".ts", ".sh", ".bash")


class SkillFile(Struct, frozen=True, kw_only=True):
    """One file of a skill (S004-11)."""

    name: str
    """Relative to the skill's directory."""
    path: str
    """Absolute."""
    type: FileKind


class SkillDefinition(Struct, frozen=True, kw_only=True):
    """A skill as the management operations give it (S004-82)."""

    id: str
    name: str
    description: str
    source: str
    path: str
    """The SKILL.md."""
    directory_path: str
    enabled: bool
    instructions: str
    allowed_tools: tuple[str, ...]
    files: tuple[SkillFile, ...]


def define(skill: Skill, settings: SkillSettings, profile: Profile) -> SkillDefinition:
    """Return what is known of a skill; SkillError if its file cannot be read now."""
    content = load_known(skill)
    return SkillDefinition(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        source=profile.scope(skill.scope).source or skill.scope,
        path=skill.file,
        directory_path=str(skill.directory),
        enabled=settings.is_enabled(skill.id),
        instructions=revealed(content.body.strip()),
        allowed_tools=skill.frontmatter.allowed_tools,
        files=files_of(skill.directory),
    )


def files_of(directory: Path) -> tuple[SkillFile, ...]:
    """Return a skill's other files with their types, sorted; at most `RESOURCES_MAX`."""
    listed, _ = list_resources(directory)
    return tuple(
        SkillFile(name=name, path=str(directory / name), type=file_kind(name)) for name in listed
    )


def file_kind(name: str) -> FileKind:
    """Return the type of a file by its path (S004-11).

    >>> [file_kind(name) for name in ("a.md", "run.py", "templates/t.txt", "logo.png")]
    ['markdown', 'script', 'template', 'other']
    """
    path = PurePosixPath(name)
    if path.suffix == ".md":
        return "markdown"
    if path.suffix in _SCRIPTS:
        return "script"
    if "templates" in path.parts[:-1] or "template" in path.name:
        return "template"
    return "other"


FILE_MAX = 5 * 1024 * 1024
"""Bytes of a skill's file that is read for a person (docs/reference/limits.md: fetch)."""


class Management:
    """The seven operations (S004-67); every change is in the audit log."""

    def __init__(
        self,
        house: SnapshotInUse,
        *,
        settings: SettingsStore,
        audit: AuditLog,
    ) -> None:
        """Take the source of the skills, and of the settings that a change of them goes to."""
        self._house = house
        # No reload changes the directories of state and of the start.
        config = house.snapshot.composition.config
        self._project = project_of(config.places.start)
        self._settings = settings
        self._audit = audit
        self.trash = Trash(config.state_directory / "trash")
        self._installs = config.state_directory / INSTALLS

    @property
    def _profile(self) -> Profile:
        return self._house.snapshot.composition.profile

    @property
    def settings(self) -> SkillSettings:
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
        """Return every readable skill, also the disabled, and shadowed ones last."""
        index = self._index()
        settings = self.settings
        return tuple(
            found
            for skill in (*index.skills, *index.shadowed)
            if (found := self._definition(skill, settings)) is not None
        )

    def get(self, reference: str) -> SkillDefinition:
        """Return one skill by id, name or path; errors as of `Skillhouse.load`."""
        return define(self._find(reference), self.settings, self._profile)

    def get_enabled(self) -> tuple[SkillDefinition, ...]:
        """Return the skills that are in the index and enabled (S004-71)."""
        in_force = {skill.file for skill in self._index().skills}
        return tuple(found for found in self.get_all() if found.enabled and found.path in in_force)

    def refresh(self) -> tuple[SkillDefinition, ...]:
        """Scan again and return every skill."""
        self._house.refresh()
        return self.get_all()

    def read_file(self, reference: str, relative: str) -> str:
        """Return the text of one of a skill's files.

        Raises:
            SkillError: the file is no UTF-8 text; and all that `read_data` raises.
        """
        data = self.read_data(reference, relative)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            target = self._known(reference).directory / relative
            raise SkillError("not-text", target, "expected UTF-8 text") from error

    def read_data(self, reference: str, relative: str) -> bytes:
        """Return the bytes of one of a skill's files.

        Raises:
            UnknownSkillError: there is no such skill.
            PathError: the path leads out of the skill, or to no regular file.
            SkillError: the file is too large.
        """
        skill = self._known(reference)
        # INVARIANT: checked by segments and opened beneath the directory, never by a prefix.
        target = confine(skill.directory, relative)
        real = skill.directory.resolve()
        inside = target.relative_to(real).as_posix()
        if is_leftover_name(relative) or is_leftover_name(inside):
            raise PathError("not-found", relative, skill.directory)
        data = read_beneath(real, inside, max_bytes=FILE_MAX)
        if len(data) > FILE_MAX:
            raise SkillError("too-large", target, f"expected at most {FILE_MAX} bytes")
        return data

    def open_directory(self, reference: str | None = None) -> Path:
        """Show a skill's directory, or the user's, in the file manager; SkillError without one."""
        path = self.target("user").path if reference is None else self._find(reference).directory
        open_on_desktop(path, project=self._project)
        return path

    def create(
        self,
        name: str,
        description: str,
        instructions: str,
        scope: str = "user",
        *,
        files: Mapping[str, str] | None = None,
    ) -> SkillDefinition:
        """Make a skill and return it; what is there already is never overwritten.

        Args:
            files: More files to write beside the SKILL.md, by their paths in the skill.

        Raises:
            SkillError: the name or description breaks the specification, the place is taken, or
                there is no place of this scope (user or project).
        """
        text = skill_text(name, description, instructions)
        root = self.target(scope)
        directory = root.path / name
        arguments = {"name": name, "scope": scope, "path": str(directory)}
        with recorded(self._audit, "create", arguments):
            try:
                root.path.mkdir(parents=True, exist_ok=True)
                directory.mkdir()
            except FileExistsError as error:
                is_there = os.path.lexists(directory)
                why = "there is a skill already" if is_there else "a link on the way leads nowhere"
                raise SkillError("skill-exists", directory, why) from error
            try:
                for relative, content in (files or {}).items():
                    (directory / relative).parent.mkdir(parents=True, exist_ok=True)
                    _write_new(directory / relative, content)
                _write_new(directory / SKILL_FILE, text)
            except BaseException:
                shutil.rmtree(directory)
                raise
        self._house.refresh()
        # Found by itself: the index does not have an untrusted project's skills.
        made = discover([Root(root.path, scope)], profile=self._profile)
        # A root may be a link, as `~/.agents` of dotfiles is: what is found has its real path.
        every = (*made.skills, *made.shadowed)
        skill = next(one for one in every if os.path.samefile(one.directory, directory))
        return define(skill, self.settings, self._profile)

    def deletable(self, reference: str, *, scopes: Sequence[str] = ("user",)) -> Skill:
        """Return the skill that `delete` would move to the trash.

        Args:
            scopes: Those whose skills may be deleted; "project" includes a project that is not
                trusted, of which a person names a skill.

        Raises:
            UnknownSkillError: there is no such skill.
            SkillError: it is of another scope, or holds other skills, or is reached by a link.
        """
        try:
            skill, others = self._own(reference, scopes)
        except UnusableSkillError as error:
            check_unread(error, scopes=scopes)
            raise
        check_deletable(skill, others, scopes=scopes, project=self._project)
        return skill

    def delete(self, reference: str, *, scopes: Sequence[str] = ("user",)) -> Path:
        """Move a skill with its directory to the trash, and return where it was.

        Only the user's unless `scopes` names others (S004-79); errors as `deletable`.
        """
        skill = self.deletable(reference, scopes=scopes)
        directory = skill.directory
        with recorded(self._audit, "delete", {"id": skill.id, "path": str(directory)}):
            enabled = self.settings.skills.get(skill.id, True)
            self.trash.put(directory, skill.id, enabled=enabled)
            self._settings.forget(skill.id)
        self._house.refresh()
        return directory

    def discard(self, directory: Path, skill_id: str) -> None:
        """Move the directory of a skill that the caller has checked to the trash."""
        with recorded(self._audit, "delete", {"id": skill_id, "path": str(directory)}):
            self.trash.put(directory, skill_id, enabled=True)
        self._house.refresh()

    def undelete(self, reference: str = "") -> DeletedSkill:
        """Put a deleted skill back, the latest without a reference, disabled if it was.

        One that was uninstalled is in its lock again.

        Raises:
            SkillError: there is none, or something else is in its place now.
            StateError: its lock cannot be used.
        """
        found = self.trash.find(reference)
        with recorded(self._audit, "undelete", {"id": found.id, "path": found.path}):
            if not found.enabled:
                self._settings.set_skill(found.id, enabled=False)
            put = partial(self.trash.restore, found)
            if found.entry:
                name = found.id.partition(":")[2]
                entry = registry.entry_of(json.loads(found.entry))
                registry.Installs(self._installs).put_back(Path(found.lock), name, entry, put)
            else:
                put()
        self._house.refresh()
        return found

    def empty_trash(self, chosen: Sequence[DeletedSkill]) -> None:
        """Remove deleted skills for good."""
        ids = [found.id for found in chosen]
        with recorded(self._audit, "empty-trash", {"ids": ids}):
            self.trash.empty(chosen)

    def set_enabled(self, reference: str, *, enabled: bool) -> SkillDefinition:
        """Switch one skill on or off, for good; errors as `get`."""
        found = self._known(reference)
        its_id = found.id if isinstance(found, Skill) else f"{found.scope}:{found.manifest.name}"
        with recorded(self._audit, "enable" if enabled else "disable", {"id": its_id}):
            self._settings.set_skill(its_id, enabled=enabled)
        self._house.refresh()
        if isinstance(found, Skill):
            return define(found, self.settings, self._profile)
        return self._define_code(found, its_id)

    def _known(self, reference: str) -> Skill | NamedCode:
        """Return a skill, also one of code alone; errors as of `_find`."""
        try:
            return self._find(reference)
        except UnknownSkillError:
            found = code_named(self._house.snapshot.code, reference)
            if found is None:
                raise
            return found

    def _define_code(self, found: NamedCode, its_id: str) -> SkillDefinition:
        return SkillDefinition(
            id=its_id,
            name=found.manifest.name,
            description=found.manifest.description,
            source=self._profile.scope(found.scope).source or found.scope,
            path=str(found.directory / found.manifest.entry),
            directory_path=str(found.directory),
            enabled=self.settings.is_enabled(its_id),
            instructions="",
            allowed_tools=(),
            files=files_of(found.directory),
        )

    def set_all_enabled(self, *, enabled: bool) -> None:
        """Switch skills as a whole on or off (S004-83)."""
        with recorded(self._audit, "enable" if enabled else "disable", {"id": "*"}):
            self._settings.set_all(enabled=enabled)
        self._house.refresh()

    def said(self, error: SkillhouseError) -> str:
        """Return an error in the profile's published words, or else in ours."""
        key = ""
        if isinstance(error, UnknownSkillError):
            key = "manage_unknown"
        elif isinstance(error, PathError):
            key = "manage_path"
        elif isinstance(error, SkillError) and error.code == "not-deletable":
            key = "manage_delete"
        return self._profile.messages.get(key) or str(error)

    def _index(self) -> SkillIndex:
        return self._house.snapshot.place.known

    def _roots(self) -> Sequence[Root]:
        return self._house.snapshot.place.roots

    def _find(self, reference: str) -> Skill:
        return find_in(self._house.snapshot.place, reference)

    def _own(self, reference: str, scopes: Sequence[str]) -> tuple[Skill, tuple[Skill, ...]]:
        """Return a skill, and all among which it was found."""
        try:
            skill, index = self._find(reference), self._index()
            return skill, (*index.skills, *index.shadowed)
        except UnknownSkillError:
            if "project" not in scopes:
                raise
            # The index does not have the skills of a project that is not trusted.
            roots = [root for root in self._roots() if root.scope == "project"]
            found = discover(roots, profile=self._profile)
            try:
                return found.get(reference), (*found.skills, *found.shadowed)
            except UnknownSkillError:
                pass
            raise

    def target(self, scope: str) -> Root:
        """Return the root in which skills of a scope are made: `.agents/skills`, or the first.

        `.agents/skills` is what most clients read. A project's root is one inside the project.
        """
        roots = [
            root
            for root in self._roots()
            if root.scope == scope
            and (scope != "project" or root.path.is_relative_to(self._project))
        ]
        shared = [root for root in roots if root.path.parts[-2:] == (".agents", "skills")]
        for root in (*shared, *roots):
            return root
        message = f"skills are made in scope user or project, not in `{scope}`"
        raise SkillError("no-place", self._project, message)

    def _definition(self, skill: Skill, settings: SkillSettings) -> SkillDefinition | None:
        # One that cannot be read is left out; its page and `show` say why.
        with isolated():
            return define(skill, settings, self._profile)
        return None


def _write_new(path: Path, text: str) -> None:
    with open(path, "x", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
