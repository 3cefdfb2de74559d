"""Skills whose files are on another server until they are used: fetched, marked and asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skillhouse.floor import SkillError, SkillhouseError
from skillhouse.floor.structs import replace
from skillhouse.floor.tracing import SKILL_RESOURCE_NAME
from skillhouse.skill import SKILL_FILE, Skill, SkillContent, load_listing, parse
from skillhouse.tools.call import Output, PermissionRequest, Plan, RefusedError, object_schema
from skillhouse.tools.session_marks import acting_request
from skillhouse.tools.skill_text import cautioned, check_fetched, content_here, handed
from skillhouse.tools.telemetry import skill_attributes
from skillhouse.tools.tool import Session, Tool
from skillhouse.tools.tool_set import SKILL_RESOURCE

"""The action of running a command while a skill of another server is in use."""


class SkillLoad:
    """A skill's text from the plan of a call, which judges it, to its run, which returns it."""

    def __init__(
        self, session: Session, skill: Skill, needs: tuple[PermissionRequest, ...], *, listed: int
    ) -> None:
        """Read the skill if it is here, and add the caution that its text needs.

        Raises:
            RefusedError: its files are not those that were synced.
        """
        session.verify(skill)
        self._session, self._skill, self._listed = session, skill, listed
        self._known = content_here(session, skill, resources_max=listed)
        text = None if self._known is None else self._known.text
        self.needs, self.facts = cautioned(session, needs, skill=skill, file=skill.file, text=text)
        digest = self.needs[0].skill_digest
        if session.seen is not None and digest:
            # The digest is there only for a skill that a person is asked about.
            said, changes = session.seen.get().changes(skill, digest, session.server_listing(skill))
            if said:
                why = f"{self.needs[0].why}; {said}"
                self.needs = (replace(self.needs[0], why=why), *self.needs[1:])
                self.facts = (*self.facts, *changes)

    async def content(self, *, is_checked: bool = True) -> SkillContent:
        """`is_checked` refuses a text that was fetched now and hides something unasked
        (RefusedError). Raises SkillError where the file cannot be used, or is not what was listed.
        """
        # INVARIANT: the text that is handed over is the one that was judged.
        content = self._known or await loaded_content(
            self._session, self._skill, resources_max=self._listed
        )
        if is_checked:
            check_fetched(self._session, self.needs, self._skill.file, content.text)
        digest = self.needs[0].skill_digest
        if self._session.seen is not None and digest:
            listing = self._session.server_listing(self._skill)
            self._session.seen.get().note(self._skill, digest, listing)
        return content


async def loaded_content(session: Session, skill: Skill, *, resources_max: int) -> SkillContent:
    """Fetch the files of a skill that are elsewhere; SkillError if one is not what was listed."""
    files = session.remote_files(skill)
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
        refused = next(
            diagnostic for diagnostic in result.diagnostics if diagnostic.severity == "error"
        )
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


async def fetched(session: Session, skill: Skill, relative: str) -> bytes:
    """Raises RefusedError where it cannot be had, or is not what was listed."""
    if session.remote_skills is None:
        raise RefusedError(f"skill `{skill.name}` is one of this machine")
    try:
        return await session.remote_skills.fetch(skill, relative)
    except (SkillhouseError, OSError) as error:
        raise RefusedError(f"nothing was read: {error}") from error


def begin_use(session: Session, skill: Skill, text: str) -> str:
    """Note that a skill is in use, and return the text that a model gets: below its origin, where
    another server has it."""
    session.begin(skill)
    origin = guard_commands(session, skill)
    return f"{origin}\n\n{text}" if origin else text


def guard_commands(session: Session, skill: Skill) -> str:
    """Return the origin of a skill of another server, "" if it is here. While it is in use commands
    need an approval too (SEP-2640, "No implicit local execution"), whatever rules allow."""
    origin = session.origin(skill)
    if session.remote_skills is None or not origin:
        return ""
    session.active_remote_requests[skill.file] = acting_request(
        skill.name,
        f"skill `{skill.name}` of another server is loaded, and commands may be its own",
        session.remote_skills.binding(skill) or "",
    )
    # What other servers know is of the last load: its time begins again, and its bytes may differ.
    session.kept_marks.discard(skill.file)
    return origin


class SkillResourceTool(Tool):
    """Reads a file of a skill in use from the server that the skill came from, and no other."""

    name = SKILL_RESOURCE
    title = "Read a skill's file"
    description = (
        "Read a text file of a loaded skill that comes from an MCP server. `skill` is its name as "
        "listed, `path` one of the files that loading it listed."
    )
    durable = False
    reads_only = True
    is_about_skills = True
    schema: Mapping[str, Any] = object_schema(
        {
            "skill": {"type": "string", "minLength": 1, "description": "the skill's name"},
            "path": {"type": "string", "minLength": 1, "description": "the file"},
        },
        required=("skill", "path"),
    )

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        wanted, relative = arguments["skill"], arguments["path"]
        skill = next((s for s in session.visible.skills if wanted in (s.name, s.id)), None)
        if skill is None or session.remote_files(skill) is None:
            raise RefusedError(f"no skill of an MCP server is called `{wanted}`")
        if skill.file not in session.loaded:
            raise RefusedError(f"load `{wanted}` first, or again if it has changed")

        path = skill.directory / relative
        needs, hidden = cautioned(
            session, session.needs_of(skill), skill=skill, file=str(path), text=None
        )

        async def run() -> Output:
            data = await fetched(session, skill, relative)
            try:
                text = data.decode()
            except UnicodeDecodeError:
                text = f"{len(data)} bytes that are no text"
            check_fetched(session, needs, str(path), text)
            return Output(
                text=f"{session.origin(skill)}\nFile: {path}\n\n{handed(text)}",
                data={"id": skill.id, "path": str(path)},
                detail={"skill": skill.id, "file": relative},
                span_attributes={SKILL_RESOURCE_NAME: relative},
            )

        span_attributes = skill_attributes(skill, session)
        return Plan(needs=needs, run=run, facts=hidden, span_attributes=span_attributes)
