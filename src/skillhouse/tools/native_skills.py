"""Skills that a coding agent loads itself: whether they are those that we know by that name, and
what the agent runs of their text."""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from skillhouse.floor import AmbiguousSkillError, UnknownSkillError
from skillhouse.floor.regex import regex
from skillhouse.permission import Effect, Permission
from skillhouse.skill import SKILL_FILE
from skillhouse.tools.call import PermissionRequest, RefusedError
from skillhouse.tools.command_requests import paths_read

if TYPE_CHECKING:
    from skillhouse.skill import Skill
    from skillhouse.tools.command import ExecTool
    from skillhouse.tools.native_call import NativeCall
    from skillhouse.tools.tool import Session

TEXT_MAX = 1_000_000
"""Bytes of a skill that a client reads."""
_BLOCK, _INLINE = regex(r"```!\s*\n?([\s\S]*?)\n?```"), regex(r"!`([^`]+)`")
"""What Claude Code 2.1.197 runs, and a little more."""
_HOOKS = regex(r"^[ \t]*[\"']?hooks[\"']?[ \t]*:", re.MULTILINE)


def commands_run(call: NativeCall) -> tuple[str, ...]:
    """Return the commands that a client runs when it loads the files of a call."""
    return tuple(dict.fromkeys(one for text in _texts(call) for one in _commands(text)))


def loading_needs(call: NativeCall, session: Session) -> tuple[PermissionRequest, ...]:
    """Return what a client's own load of a skill needs beside that of ours by the same name."""
    name = str(call.values.get("name") or "").strip().removeprefix("/")
    texts, given = _texts(call), call.values.get("text")
    whys = []
    if given and any("!$" in text or "$" in "".join(_commands(text)) for text in texts):
        whys.append(f"the skill `{name}` runs commands with the arguments of the call")
    if any(_HOOKS.search(_head(text)) for text in texts):
        whys.append(f"the skill `{name}` starts programs of its own, as hooks of the client")
    return (
        *(
            PermissionRequest(
                permission=Permission(action="tool", resource=name),
                default=Effect.ASK,
                why=why,
            )
            for why in whys
        ),
        *(
            PermissionRequest(
                permission=Permission(action="skill", resource=file),
                default=Effect.ASK,
                why=f"the client loads `{file}` by this name, which skillhouse does not see",
            )
            for file in _others(name, call, session)
        ),
    )


PRINTERS = frozenset("bat batcat cat head less more nl sed tac tail".split())
"""Programs that print what they read. Others read a SKILL.md and give the model none of it."""
LOADS_MAX = 8
"""Skills that one command line loads; what prints more of them is a look at all, no load."""


def skills_read(
    command: str,
    tool: ExecTool,
    session: Session,
    *,
    root: str,
    files: Callable[[], Mapping[str, Skill]],
) -> tuple[Skill, ...]:
    """Return the skills of which a command line reads the SKILL.md, by programs that print what
    they read and do nothing else. `root` is that of the workspace; `files` gives the visible skills
    by the real paths of their files."""
    if SKILL_FILE.casefold() not in command.casefold():
        # Most commands, which are not judged a second time for it.
        return ()
    verdict, context = tool._judged(command, None, session)  # noqa: SLF001 - of this package.
    if verdict.structure is None:
        return ()
    known = files()
    read = paths_read(verdict.structure, context.paths, root, programs=PRINTERS)
    found = tuple(known[path] for path in read if path in known)
    return found if len(found) <= LOADS_MAX else ()


def _others(name: str, call: NativeCall, session: Session) -> tuple[str, ...]:
    """Return the files that are not the skill that we know by a name, nor a copy of it."""
    try:
        known = session.visible.get(name).file
    except (UnknownSkillError, AmbiguousSkillError):
        # It is asked about, or denied, by its name.
        return ()
    if call.skill_files is None or call.elsewhere:
        # Nothing is known of it, or it is asked about as another skill.
        return ()
    return tuple(one for one in call.skill_files or (name,) if not _is_same(known, one))


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other) or filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _texts(call: NativeCall) -> tuple[str, ...]:
    found = []
    for file in call.skill_files or () if call.runs_text else ():
        try:
            with open(file, "rb") as stream:
                found.append(stream.read(TEXT_MAX + 1).decode("utf-8", "replace"))
        except OSError as error:
            raise RefusedError(
                f"cannot judge: the skill's text is not to be read: {error}"
            ) from error
    return tuple(found)


def _commands(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for each in (_BLOCK, _INLINE) for one in each.findall(text))


def _head(text: str) -> str:
    """Return the frontmatter of a skill, or more than that."""
    begun = text.lstrip("\ufeff").lstrip()
    return begun[3:].partition("\n---")[0] if begun.startswith("---") else ""
