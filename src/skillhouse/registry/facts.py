"""What a person wants to know of a skill before it is used: its facts, and what differs.

The difference is that of two versions: files, and the lines of those that are text.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from skillhouse.floor import (
    EXECUTABLE_MODE,
    Diagnostic,
    PathError,
    Severity,
    SkillError,
    Tree,
    read_beneath,
)
from skillhouse.skill import (
    SKILL_FILE,
    SKILL_FILE_MAX,
    ArchiveMember,
    HiddenText,
    SkillManifest,
    ToolSpec,
    hidden_text,
    parse,
    read_manifest,
    validate_name,
)

VERSION_MAX = 64
"""Characters of a version."""
TEXT_MAX = 256 * 1024
"""Bytes of a file whose lines are compared."""
LINES_MAX = 400
"""Lines of one comparison that are shown."""


class SkillFacts(Struct, frozen=True, kw_only=True):
    """What the files of a skill say of themselves: nothing of it is checked."""

    name: str
    description: str
    version: str = ""
    """Of the frontmatter or the manifest; empty where there is none."""
    license: str = ""
    allowed_tools: tuple[str, ...] = ()
    """What it would like to use; it grants nothing."""
    tools: tuple[ToolSpec, ...] = ()
    """Its own, in code."""
    env: tuple[str, ...] = ()
    """Environment variables that its code asks for."""
    dependencies: tuple[str, ...] = ()
    body: str = ""
    hidden: HiddenText | None = None
    diagnostics: tuple[Diagnostic, ...] = ()


def read_facts(directory: Path, folder: str, *, any_name: bool = False) -> SkillFacts:
    """Return what is known of the skill in `directory`, whose name was `folder` where it is from.

    Args:
        any_name: Also where its name is no name for a directory.

    Raises:
        SkillError: it is no skill that could be loaded, or its name is no name for a directory.
    """
    file = directory / SKILL_FILE
    declared = read_manifest(directory)
    manifest = declared.manifest
    if manifest is not None and not os.path.lexists(file):
        # A skill of code alone needs no SKILL.md.
        return _checked(_of_manifest(manifest, declared.diagnostics), directory)
    try:
        data = read_beneath(directory, SKILL_FILE, max_bytes=SKILL_FILE_MAX)
    except PathError as error:
        raise SkillError(error.code, file, "cannot read this skill") from error
    result = parse(data, directory=folder, path=file)
    skill = result.skill
    if skill is None:
        refused = next(one for one in result.diagnostics if one.severity is Severity.ERROR)
        raise SkillError(refused.code, file, refused.message)
    said = skill.frontmatter
    facts = SkillFacts(
        name=skill.name,
        description=skill.description,
        version=_version(said.version or (manifest.version if manifest else "")),
        license=said.license or (manifest.license if manifest else ""),
        allowed_tools=said.allowed_tools,
        tools=manifest.tools if manifest else (),
        env=manifest.env if manifest else (),
        dependencies=manifest.dependencies if manifest else (),
        body=result.body,
        hidden=hidden_text(result.text),
        diagnostics=(*result.diagnostics, *declared.diagnostics),
    )
    return facts if any_name else _checked(facts, file)


def _of_manifest(manifest: SkillManifest, diagnostics: tuple[Diagnostic, ...]) -> SkillFacts:
    return SkillFacts(
        name=manifest.name,
        description=manifest.description,
        version=_version(manifest.version),
        license=manifest.license,
        tools=manifest.tools,
        env=manifest.env,
        dependencies=manifest.dependencies,
        diagnostics=diagnostics,
    )


def _checked(facts: SkillFacts, path: Path) -> SkillFacts:
    # A package is named after it.
    if findings := validate_name(facts.name, directory=facts.name):
        raise SkillError(findings[0].code, path, findings[0].message)
    return facts


def _version(text: str) -> str:
    """Return a version that can be part of a file's name, or nothing."""
    kept = text.strip()
    is_plain = kept.isascii() and all(c.isalnum() or c in ".-+" for c in kept)
    return kept if is_plain and len(kept) <= VERSION_MAX and kept[:1].isalnum() else ""


class TreeChanges(Struct, frozen=True, kw_only=True):
    """Paths that differ, each list sorted."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    """Of the same content, and executable on one side only."""

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.modes)

    @property
    def count(self) -> int:
        """How many files differ."""
        return len({*self.added, *self.removed, *self.changed, *self.modes})

    @property
    def summary(self) -> str:
        """Such as `1 file changed, 2 added`."""
        counts = {
            "changed": len(self.changed),
            "added": len(self.added),
            "removed": len(self.removed),
            "with another mode": len(self.modes),
        }
        parts = [f"{count} {word}" for word, count in counts.items() if count]
        return ", ".join(parts) or "no file differs"


def compare_trees(before: Tree, after: Tree) -> TreeChanges:
    """Return what differs from `before` in `after`."""
    old, new = before.by_path, after.by_path
    both = sorted(old.keys() & new.keys())
    return TreeChanges(
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=tuple(path for path in both if old[path].sha256 != new[path].sha256),
        modes=tuple(
            f"{path} ({'not ' if new[path].mode != EXECUTABLE_MODE else ''}executable now)"
            for path in both
            if old[path].sha256 == new[path].sha256 and old[path].mode != new[path].mode
        ),
    )


def text_changes(
    changes: TreeChanges, before: Iterable[ArchiveMember], after: Iterable[ArchiveMember]
) -> Iterator[str]:
    """Yield the lines of a unified diff, at most `LINES_MAX`; a file that is no text is named."""
    old, new = _by_path(before), _by_path(after)
    count = 0
    for path in sorted({*changes.added, *changes.removed, *changes.changed}):
        for line in _of_file(path, old.get(path), new.get(path)):
            count += 1
            if count > LINES_MAX:
                yield f"… more than {LINES_MAX} lines"
                return
            yield line
    for mode in changes.modes:
        yield f"mode of {mode}"


def _of_file(path: str, old: ArchiveMember | None, new: ArchiveMember | None) -> Iterable[str]:
    sides = [_lines(old), _lines(new)]
    if None in sides:
        return [f"{path}: differs, and is no text or a long one"]
    first, second = ([] if side is None else side for side in sides)
    return difflib.unified_diff(first, second, f"a/{path}", f"b/{path}", lineterm="")


def _lines(member: ArchiveMember | None) -> list[str] | None:
    if member is None:
        return []
    if member.size > TEXT_MAX:
        return None
    try:
        text = b"".join(member.read()).decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.splitlines()


def _by_path(members: Iterable[ArchiveMember]) -> Mapping[str, ArchiveMember]:
    return {member.path: member for member in members}
