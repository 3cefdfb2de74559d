"""The files of a skill besides its SKILL.md: which there are, their text, and a script's path."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from skillhouse.floor import (
    AmbiguousSkillError,
    PathError,
    SkillhouseError,
    UnknownSkillError,
    confine,
    is_leftover_name,
    nearest,
    read_beneath,
)
from skillhouse.skill import Profile, Skill, SkillIndex
from skillhouse.skill.hidden import one_line
from skillhouse.tools.messages import render

ASSET_MAX = 8 * 1_048_576
"""Bytes of an asset (as `read`)."""
ASSETS_LISTED_MAX = 1_000
"""Assets of a skill that are listed (docs/reference/limits.md: files of a skill)."""
ENTRIES_MAX = 10_000
"""Entries that are looked at for a listing."""
NAMED_MAX, NEAREST_MAX = 20, 5
"""Skills that an error names where another one was asked for: all, or of more the nearest."""
SCRIPTS = "scripts"
"""The directory that scripts lie in (specification, "Directory structure")."""

_KEYS = {
    "not-found": "asset_missing",
    "not-a-file": "asset_not_a_file",
    "path-escape": "asset_escape",
    "path-link": "asset_escape",
    "unreadable": "asset_unreadable",
    "not-text": "asset_not_text",
    "too-large": "asset_too_large",
}
"""What is said about a path; about any other it is that it is not allowed."""


class AssetError(SkillhouseError):
    """A skill's file cannot be given; the text is in the profile's words, `code` as a path's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def find_skill(index: SkillIndex, reference: str, messages: Mapping[str, str]) -> Skill:
    """Raises AssetError: `skill-unknown`, `skill-ambiguous`, or `skill-invalid` for a file that
    cannot be used."""
    wanted = reference.strip()
    try:
        return index.get(wanted)
    except AmbiguousSkillError as error:
        text = render(messages, "skill_ambiguous", name=reference, reason=error)
        raise AssetError("skill-ambiguous", text) from error
    except UnknownSkillError as error:
        for diagnostic in index.diagnostics:
            path = diagnostic.path
            same = path is not None and path.parent.name.casefold() == wanted.casefold()
            if same and diagnostic.severity == "error" and diagnostic.code != "not-a-file":
                text = render(messages, "skill_invalid", name=reference, reason=diagnostic.message)
                raise AssetError("skill-invalid", text) from error
        raise AssetError("skill-unknown", unknown_skill(index, reference, messages)) from error


def unknown_skill(index: SkillIndex, reference: str, messages: Mapping[str, str]) -> str:
    """Return that there is no such skill, with the others; of many the nearest few and a count."""
    names = list(dict.fromkeys(one_line(skill.name) for skill in index.skills))
    if len(names) > NAMED_MAX:
        near = dict.fromkeys((*nearest(reference, names, limit=NEAREST_MAX), *names))
        names = [*list(near)[:NEAREST_MAX], f"and {len(names) - NEAREST_MAX} more"]
    available = ", ".join(names) or render(messages, "none")
    return render(messages, "skill_unknown", name=reference, available=available)


def read_asset(skill: Skill, relative: str, profile: Profile) -> str:
    r"""Return the text of one of a skill's files; in `relative`, `\` separates as `/`.

    Raises:
        AssetError: there is no such text file, or it must not be read.
    """
    asked = relative.replace("\\", "/")
    try:
        base = _base(skill, asked)
        target = _confined(base, asked, profile.asset_directories)
        _refuse_leftover(base, asked, target)
        data = read_beneath(base, target.relative_to(base).as_posix(), max_bytes=ASSET_MAX)
        if len(data) > ASSET_MAX:
            raise PathError("too-large", asked, base)
    except PathError as error:
        raise AssetError(
            error.code, _refusal(error.code, skill, asked=relative, profile=profile)
        ) from error
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8"
    else:
        if "\0" not in text:
            return text
        reason = "it contains a NUL"
    words = _refusal("not-text", skill, asked=relative, profile=profile, reason=reason)
    raise AssetError("not-text", words)


def script_path(skill: Skill, name: str, profile: Profile) -> Path:
    """Return the path without links of a file in scripts/; AssetError for any other."""
    asked = name.strip()
    is_name = asked not in ("", ".", "..") and not any(letter in asked for letter in "/\\\0:")
    if not is_name:
        raise AssetError("path-name", render(profile.messages, "script_name", script=name))
    relative = f"{SCRIPTS}/{asked}"
    try:
        base = _base(skill, relative)
        target = confine(base, relative, mode="asset")
        _refuse_leftover(base, relative, target)
        return target
    except PathError as error:
        if error.code == "not-found":
            words = render(profile.messages, "script_missing", name=skill.name, script=name)
        else:
            words = _refusal(error.code, skill, asked=relative, profile=profile)
        raise AssetError(error.code, words) from error


def list_assets(skill: Skill, profile: Profile) -> tuple[str, ...]:
    """Return what `read_asset` gives, sorted, without links (S003-74)."""
    tops = profile.asset_directories or ("",)
    paths = (relative for top in tops for relative in _files_below(skill.directory, top))
    listed: list[str] = []
    for relative in sorted(paths, key=os.fsencode):
        if len(listed) == ASSETS_LISTED_MAX:
            break
        try:
            read_asset(skill, relative, profile)
        except AssetError:
            continue
        listed.append(relative)
    return tuple(listed)


def _files_below(directory: Path, top: str) -> Iterator[str]:
    pending = [f"{top}/" if top else ""]
    seen = 0
    while pending and seen < ENTRIES_MAX:
        prefix = pending.pop()
        # A link in the place of the top directory is no directory of the skill's.
        if prefix and os.path.islink(directory / prefix.rstrip("/")):
            continue
        try:
            with os.scandir(directory / prefix) as entries:
                for entry in entries:
                    seen += 1
                    relative = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(f"{relative}/")
                    elif entry.is_file(follow_symlinks=False) and relative.isprintable():
                        yield relative
        except OSError:
            continue


def _base(skill: Skill, relative: str) -> Path:
    """Raise PathError if it was replaced by a link out of its root."""
    base = skill.directory.resolve()
    if not base.is_relative_to(skill.bound.resolve()):
        raise PathError("path-escape", relative, skill.directory)
    return base


def _confined(base: Path, relative: str, directories: Sequence[str]) -> Path:
    target = confine(base, relative) if not directories or _first(relative) in directories else None
    if target is None:
        # What is wrong with the text itself is said first.
        confine(base, relative, mode="asset")
        raise PathError("path-prefix", relative, base)
    return target


def _refuse_leftover(base: Path, asked: str, target: Path) -> None:
    """Refuse what a program left, also by a link: it is no file of the skill."""
    if is_leftover_name(asked) or is_leftover_name(target.relative_to(base).as_posix()):
        raise PathError("not-found", asked, base)


def _first(relative: str) -> str:
    return next((part for part in relative.split("/") if part not in ("", ".")), "")


def _refusal(code: str, skill: Skill, *, asked: str, profile: Profile, reason: str = "") -> str:
    directories = ", ".join(f"{name}/" for name in profile.asset_directories)
    return render(
        profile.messages,
        _KEYS.get(code, "asset_not_allowed"),
        name=skill.name,
        path=asked,
        reason=reason,
        limit=ASSET_MAX,
        directories=directories or "its directory",
    )
