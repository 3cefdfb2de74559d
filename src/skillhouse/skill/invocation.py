"""Who may start a skill, and where it is listed: Claude Code's fields, read under a profile.

Source: reference of the extensions, "Frontmatter" and "Invocation matrix". Nothing is read unless a
profile or the user turns it on (`Extensions`), and no field can turn on anything.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from skillhouse.floor import (
    Diagnostic,
    InternalFaultError,
    PathError,
    Severity,
    as_error,
    read_beneath,
)
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.skill.model import Skill, SkillContent, SkillIndex, split_outside
from skillhouse.skill.profile import Extensions
from skillhouse.skill.source import SKILL_FILE_MAX, FileRefusedError, normalise, split_head

MODEL_FIELD = "disable-model-invocation"
USER_FIELD = "user-invocable"
HINT_FIELD = "argument-hint"
WHEN_FIELD = "when_to_use"
PATHS_FIELD = "paths"

HINT_MAX = 200
"""Characters of an argument hint that are shown."""
WHEN_MAX = 1_536
"""Characters of `when_to_use` (Claude Code cuts it and the description together there)."""
PATHS_MAX = 64
"""Patterns that one skill may have."""

_JOIN = " - "
"""Separates a description from `when_to_use`, as in Claude Code."""


class Invocation(Struct, frozen=True, kw_only=True):
    """What a frontmatter says about who starts the skill, as far as a profile uses it."""

    model_invocable: bool = True
    """False: only a person starts it; the model neither sees nor loads it."""
    user_invocable: bool = True
    """False: it is not offered to a person."""
    argument_hint: str = ""
    """What to write after its name, for a menu."""
    when_to_use: str = ""
    paths: tuple[str, ...] = ()
    """Patterns of files; it is listed once one of them is worked on. Empty: always."""
    faults: tuple[tuple[str, str], ...] = ()
    """Fields that cannot be read as they are, each with what was expected."""

    def is_listed_for(self, files: Iterable[str]) -> bool:
        """Whether it is listed when these files, relative to the project, are worked on."""
        if not self.paths:
            return True
        return any(matches_glob(glob, file) for file in files for glob in self.paths)


_NOTHING_SAID = Invocation()


def read_invocation(skill: Skill, extensions: Extensions) -> Invocation:
    """Return what a skill's frontmatter says, of the fields that are turned on.

    A field that cannot be read counts as the stricter of its values and is a fault.
    """
    wanted = _wanted(extensions)
    # Looked for as bytes first: few of thousands have such a field, and decoding all takes long.
    packed = skill.packed_fields
    if not any(field in packed for field in _as_bytes(wanted)):
        return _NOTHING_SAID
    try:
        fields = skill.frontmatter.fields
        return _invocation({field: fields[field] for field in wanted if field in fields})
    except Exception as error:  # noqa: BLE001 - the edge of one skill of many.
        # INVARIANT: a skill is not offered by what could not be read.
        fault = (InternalFaultError.code, str(as_error(error)))
        return Invocation(model_invocable=False, user_invocable=False, faults=(fault,))


def described(skill: Skill, extensions: Extensions) -> Skill:
    """Return the skill with `when_to_use` in its description, where that is turned on."""
    # First of all whether it is on at all: this is asked of every skill.
    added = extensions.when_to_use and read_invocation(skill, extensions).when_to_use
    if not added:
        return skill
    text = f"{skill.description}{_JOIN}{added}" if skill.description else added
    return replace(skill, description=text)


def current_invocation(content: SkillContent, extensions: Extensions) -> Invocation:
    """Return what the file says that was loaded now, which may have changed since it was listed."""
    skill = content.skill
    if content.frontmatter_changed:
        data = content.text.encode()
        policy = skill.policy
        # Not needed to list skills, and the parser of YAML is much to load.
        from skillhouse.skill.skill_file import parse  # noqa: PLC0415

        skill = parse(data, directory=content.directory.name, policy=policy).skill or skill
    return read_invocation(skill, extensions)


def invocation_findings(index: SkillIndex, extensions: Extensions) -> tuple[Diagnostic, ...]:
    """Return a finding, with its line, for each of these fields that cannot be read."""
    if not _wanted(extensions):
        # An index is decoded when it is first looked at, which is not for this.
        return ()
    return tuple(
        Diagnostic(
            code="invocation-field",
            severity=Severity.WARNING,
            message=f"`{field}`: {message}",
            path=skill.location,
            line=_line_of(skill, field),
        )
        for skill in index.skills
        for field, message in read_invocation(skill, extensions).faults
    )


def relative_file(path: str, project: Path) -> str | None:
    """Return an absolute path, or one below the project, as patterns see it; None when outside."""
    given = PurePosixPath(path)
    if ".." in given.parts:
        return None
    if not given.is_absolute():
        return given.as_posix()
    return given.relative_to(project).as_posix() if given.is_relative_to(project) else None


@lru_cache(maxsize=64)
def _as_bytes(fields: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(field.encode() for field in fields)


def _wanted(extensions: Extensions) -> tuple[str, ...]:
    wanted: tuple[str, ...] = ()
    if extensions.invocation:
        wanted += (MODEL_FIELD, USER_FIELD)
    if extensions.invocation or extensions.substitution:
        wanted += (HINT_FIELD,)
    if extensions.when_to_use:
        wanted += (WHEN_FIELD,)
    return (*wanted, PATHS_FIELD) if extensions.paths else wanted


def _invocation(fields: Mapping[str, Any]) -> Invocation:
    faults: list[tuple[str, str]] = []
    disabled = _switch(fields, MODEL_FIELD, faults, default=False)
    return Invocation(
        model_invocable=disabled is False,
        user_invocable=_switch(fields, USER_FIELD, faults, default=True) is True,
        argument_hint=_hint(fields.get(HINT_FIELD), faults),
        when_to_use=_when(fields.get(WHEN_FIELD), faults),
        paths=_paths(fields.get(PATHS_FIELD), faults),
        faults=tuple(faults),
    )


def _switch(
    fields: Mapping[str, Any], field: str, faults: list[tuple[str, str]], *, default: bool
) -> bool | None:
    """Return a truth value, which is text here (decision 0013); None when it is none."""
    if field not in fields:
        return default
    value = fields[field]
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in ("true", "false"):
        return text == "true"
    faults.append((field, f"expected true or false, got {_shown(value)}"))
    return None


def _hint(value: Any, faults: list[tuple[str, str]]) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        # `[issue]` without quotes is a list to YAML.
        value = f"[{', '.join(value)}]"
    text = _text(value, HINT_FIELD, faults)
    return text if len(text) <= HINT_MAX else f"{text[:HINT_MAX]}..."


def _when(value: Any, faults: list[tuple[str, str]]) -> str:
    text = _text(value, WHEN_FIELD, faults)
    if len(text) > WHEN_MAX:
        faults.append((WHEN_FIELD, f"expected at most {WHEN_MAX} characters, got {len(text)}"))
        text = f"{text[:WHEN_MAX]}..."
    return text


def _text(value: Any, field: str, faults: list[tuple[str, str]]) -> str:
    """Return a text on one line; empty when it is none, or hides something from a person."""
    if value is None:
        return ""
    if not isinstance(value, str):
        faults.append((field, f"expected text, got {_shown(value)}"))
        return ""
    from skillhouse.skill.hidden import find_hidden  # noqa: PLC0415 - a warm list needs none of it.

    if find_hidden(value) is not None:
        faults.append((field, "a hidden character in it; the field is passed over"))
        return ""
    return " ".join(value.split())


def _paths(value: Any, faults: list[tuple[str, str]]) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        globs: tuple[str, ...] = split_globs(value)
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        globs = tuple(item.strip() for item in value if item.strip())
    else:
        faults.append((PATHS_FIELD, f"expected patterns as text or a list, got {_shown(value)}"))
        return ("",)
    odd = next((glob for glob in globs if not is_glob(glob)), None)
    if odd is not None:
        faults.append((PATHS_FIELD, f"no pattern of paths below the project: {odd!r:.80}"))
    if len(globs) > PATHS_MAX:
        faults.append((PATHS_FIELD, f"expected at most {PATHS_MAX} patterns, got {len(globs)}"))
    # A pattern that is none matches nothing, so that a bad limit does not become no limit.
    return globs[:PATHS_MAX]


def _shown(value: Any) -> str:
    return f"{value!r:.80}" if isinstance(value, str) else "a list or map"


def _line_of(skill: Skill, field: str) -> int | None:
    """Return the line of a field, read again; None when the file is not as it was."""
    try:
        # Not needed to list skills, as above.
        from skillhouse.skill.yaml_text import key_line  # noqa: PLC0415

        data = read_beneath(skill.directory, skill.location.name, max_bytes=SKILL_FILE_MAX)
        return key_line(split_head(normalise(data, [])).block, field)
    except (PathError, FileRefusedError):
        return None


GLOB_MAX = 512
"""Characters of one pattern."""
BRACES_MAX = 64
"""Patterns that the braces of one pattern may stand for."""

_BRACES = regex(r"\{([^{}]*)\}")


def split_globs(text: str) -> tuple[str, ...]:
    """Return the patterns that commas separate; those inside braces do not."""
    return split_outside(text, ("{", "}"), lambda character: character == ",")


def is_glob(pattern: str) -> bool:
    """Whether a pattern is one that `matches_glob` can match anything by."""
    return (
        0 < len(pattern) <= GLOB_MAX
        and pattern.isprintable()
        and not pattern.startswith(("/", "~"))
        and ".." not in pattern.split("/")
        and _expanded(pattern) is not None
    )


def matches_glob(pattern: str, relative: str) -> bool:
    """Whether a POSIX path below the project fits a pattern as a whole, with case.

    `*` and `?` end at a `/`, `**` matches any directories, `[ab]` one character and `{a,b}`
    either text; a pattern that ends in `/` matches everything below. A pattern that is none
    (`is_glob`) matches nothing.

    >>> matches_glob("src/**/*.{ts,tsx}", "src/ui/list.tsx"), matches_glob("*.ts", "src/a.ts")
    (True, False)
    """
    if not is_glob(pattern):
        return False
    parts = tuple(relative.split("/"))
    return any(_fits(segments, parts) for segments in _segments(pattern))


@lru_cache(maxsize=1_024)
def _segments(pattern: str) -> tuple[tuple[re.Pattern[str] | None, ...], ...]:
    alternatives = []
    for alternative in _expanded(pattern) or ():
        text = f"{alternative}**" if alternative.endswith("/") else alternative
        segments: list[re.Pattern[str] | None] = []
        for part in text.removeprefix("./").split("/"):
            if part != "**":
                segments.append(re.compile(fnmatch.translate(part)))
            elif not segments or segments[-1] is not None:
                segments.append(None)
        alternatives.append(tuple(segments))
    return tuple(alternatives)


def _fits(segments: tuple[re.Pattern[str] | None, ...], parts: tuple[str, ...]) -> bool:
    """Whether the segments fit all parts: which prefixes fit is kept for one segment at a time."""
    ends = {0}
    for segment in segments:
        if segment is None:
            ends = set(range(min(ends), len(parts) + 1))
        else:
            ends = {at + 1 for at in ends if at < len(parts) and segment.match(parts[at])}
        if not ends:
            return False
    return len(parts) in ends


@lru_cache(maxsize=1_024)
def _expanded(pattern: str) -> tuple[str, ...] | None:
    pending, expanded = [pattern], []
    while pending:
        current = pending.pop()
        braces = _BRACES.search(current)
        if braces is None:
            expanded.append(current)
        else:
            head, tail = current[: braces.start()], current[braces.end() :]
            pending += [f"{head}{choice}{tail}" for choice in braces[1].split(",")]
        if len(pending) + len(expanded) > BRACES_MAX:
            return None
    return tuple(expanded)
