"""Skills whose files lie on another server until they are used: fetched, marked and asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from skillhouse.floor import SkillError, SkillhouseError
from skillhouse.floor.conventions import SKILL_RESOURCE_NAME
from skillhouse.permission import Effect, Permission
from skillhouse.skill import SKILL_FILE, SkillContent, load_listing, parse
from skillhouse.tools.call import Output, Plan, RefusedError, object_schema
from skillhouse.tools.caution import cautioned, check_fetched, handed
from skillhouse.tools.permission_request import PermissionRequest
from skillhouse.tools.span_attributes import skill_attributes

if TYPE_CHECKING:
    from skillhouse.skill import Skill
    from skillhouse.tools.session import Session

SKILL_CODE = "skill_code"
"""What rules call running a command while a skill of another server is in use."""
SKILL_RESOURCE = "skill_resource"
"""The tool that reads a file of such a skill."""


class RemoteSkillProvider(Protocol):
    """What knows the skills of other servers; of one of this machine it says nothing."""

    def skills(self) -> tuple[Skill, ...]:
        """Return them as they were listed last; nothing is fetched."""
        ...

    def refuse_roots(self, roots: Iterable[Path]) -> None:
        """Do nothing, unless fetched files would be found below a root as this machine's skills.

        Raises:
            ConfigError: they would.
        """
        ...

    def files(self, skill: Skill) -> tuple[str, ...] | None:
        """Return the paths of its other files."""
        ...

    def origin(self, skill: Skill) -> str:
        """Return what a model is told of where it comes from."""
        ...

    def address(self, skill: Skill) -> str:
        """Return its address there; nothing for one of this machine."""
        ...

    def binding(self, skill: Skill) -> str | None:
        """Return what a yes to it is bound to."""
        ...

    async def fetch(self, skill: Skill, relative: str = SKILL_FILE) -> bytes:
        """Return the verified bytes of a file, which then lies in its place.

        Raises:
            SkillhouseError: it has no such file, or its bytes are others than were listed.
            OSError: it cannot be stored.
        """
        ...


async def loaded_content(session: Session, skill: Skill, *, resources_max: int) -> SkillContent:
    """Return a skill's body and list of files, fetched first where they are elsewhere.

    Raises:
        SkillError: the file cannot be used, or is not what was listed.
    """
    files = files_elsewhere(session, skill)
    if files is None:
        return load_listing(skill, resources_max=resources_max)
    try:
        data = await fetched(session, skill, SKILL_FILE)
    except RefusedError as error:
        raise SkillError("unverified", skill.location, str(error)) from error
    # These very bytes, which were held against the entry just now: the file on the disk may be
    # another when it is read again.
    result = parse(data, directory=skill.directory.name, policy=skill.policy)
    if result.skill is None:
        refused = next(found for found in result.diagnostics if found.severity == "error")
        raise SkillError(refused.code, skill.location, refused.message)
    return SkillContent(
        skill=skill,
        text=result.text,
        body=result.body,
        resources=files[:resources_max],
        resources_omitted=max(0, len(files) - resources_max),
        directory=skill.directory,
        diagnostics=result.diagnostics,
    )


def files_elsewhere(session: Session, skill: Skill) -> tuple[str, ...] | None:
    """Return the paths of a skill's other files by its entry; None for one of this machine."""
    return None if session.remote_skills is None else session.remote_skills.files(skill)


async def fetched(session: Session, skill: Skill, relative: str) -> bytes:
    """Return a file of a skill that lies elsewhere.

    Raises:
        RefusedError: it cannot be had, or is not what was listed.
    """
    if session.remote_skills is None:
        raise RefusedError(f"skill `{skill.name}` is one of this machine")
    try:
        return await session.remote_skills.fetch(skill, relative)
    except (SkillhouseError, OSError) as error:
        raise RefusedError(f"nothing was read: {error}") from error


def begun(session: Session, skill: Skill, text: str) -> str:
    """Note that a skill is in use from now on, and return what a model gets of it.

    While a skill of another server is in use, commands need a yes for that skill as well
    (SEP-2640, "No implicit local execution"); rules that allow commands do not answer it.
    """
    session.loaded[skill.file] = skill.directory
    origin = acts(session, skill)
    return f"{origin}\n\n{text}" if origin else text


def acts(session: Session, skill: Skill) -> str:
    """Have commands need a yes for a skill of another server, and return what is told of it.

    For one of this machine nothing is done, and there is nothing to tell.
    """
    origin = "" if session.remote_skills is None else session.remote_skills.origin(skill)
    if session.remote_skills is None or not origin:
        return ""
    session.active_remote_requests[skill.file] = PermissionRequest(
        permission=Permission(action=SKILL_CODE, resource=skill.name),
        default=Effect.ASK,
        why=f"skill `{skill.name}` of another server is in use, and commands may be its own",
        skill_digest=session.remote_skills.binding(skill) or "",
        level="write",
    )
    return origin


class SkillResourceTool:
    """Reads a file of a skill in use from the server that the skill came from, and no other."""

    name = SKILL_RESOURCE
    title = "Read a skill's file"
    description = (
        "Read a text file of a loaded skill that comes from an MCP server. `skill` is its name as "
        "listed, `path` one of the files that loading it listed."
    )
    durable = False
    reads_only = True
    schema: Mapping[str, Any] = object_schema(
        {
            "skill": {"type": "string", "minLength": 1, "description": "the skill's name"},
            "path": {"type": "string", "minLength": 1, "description": "the file"},
        },
        required=("skill", "path"),
    )

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Judge the skill; only a loaded one is read from."""
        wanted, relative = arguments["skill"], arguments["path"]
        skill = next((s for s in session.visible.skills if wanted in (s.name, s.id)), None)
        if skill is None or files_elsewhere(session, skill) is None:
            raise RefusedError(f"no skill of an MCP server is called `{wanted}`")
        if skill.file not in session.loaded:
            raise RefusedError(f"load `{wanted}` first, or again if it has changed")

        path = skill.directory / relative
        needs, hidden = cautioned(
            session, session.needs_of(skill), skill=skill, file=str(path), text=None
        )

        async def run() -> Output:
            data = await fetched(session, skill, relative)
            origin = "" if session.remote_skills is None else session.remote_skills.origin(skill)
            try:
                text = data.decode()
            except UnicodeDecodeError:
                text = f"{len(data)} bytes that are no text"
            check_fetched(session, needs, str(path), text)
            return Output(
                text=f"{origin}\nFile: {path}\n\n{handed(text)}",
                data={"id": skill.id, "path": str(path)},
                detail={"skill": skill.id, "file": relative},
                span_attributes={SKILL_RESOURCE_NAME: relative},
            )

        span_attributes = skill_attributes(skill, session)
        return Plan(needs=needs, run=run, facts=hidden, span_attributes=span_attributes)
