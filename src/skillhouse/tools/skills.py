"""The tools that load a skill and that search for one, under a profile's names and words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import anyio.to_thread
from msgspec import Struct, field

from skillhouse.discovery.catalog import NAME_CHARS
from skillhouse.discovery.catalog_text import clipped, most
from skillhouse.floor import AmbiguousSkillError, SkillError, UnknownSkillError
from skillhouse.permission import Effect, Permission
from skillhouse.retrieval import Fit, Hit, SearchResult, fit_of, reason, skills_of
from skillhouse.skill import Profile, Skill, SkillContent, SkillIndex, ToolRule, current_invocation
from skillhouse.skill.fields import DESCRIPTION_MAX
from skillhouse.skill.hidden import one_line
from skillhouse.tools.activation import activation_of
from skillhouse.tools.assets import AssetError, find_skill
from skillhouse.tools.call import (
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    ToolResult,
    object_schema,
)
from skillhouse.tools.messages import before_list, list_room, opening, render
from skillhouse.tools.remote_skills import SkillLoad, begin_use
from skillhouse.tools.skill_text import fitted, result_data
from skillhouse.tools.telemetry import skill_attributes
from skillhouse.tools.tool import Session, Tool
from skillhouse.tools.tool_set import SEARCH_ACTION

if TYPE_CHECKING:
    from skillhouse.tools.deferred_tools import DeferredTools, ToolMatch
    from skillhouse.tools.skill_code import SkillCodeTool

CATEGORY = "builtin"
"""Where these tools come from (S004-42)."""
NAMED_CHARS, NAMED_MOST = 7_500, 250
"""Characters and number of names in a schema that is the only place for them: OpenAI's API takes
more than 250 values of an `enum` only if they have at most 7,500 characters (its guide to
structured outputs)."""
SEARCH_LIMIT = 5
"""Skills that a search gives when the call does not say (S003-35)."""
SEARCH_MAX = 50
"""Skills that a search gives at most."""

SEARCH_BYTES = 12_000
"""Bytes of the descriptions of a search: with the names and reasons of `SEARCH_MAX` hits it is what
the client with the narrowest bound lets through (`CLIENT_MAX`), so that no hit is cut off."""


class VisibleSkills(Struct, frozen=True, kw_only=True):
    """What one agent sees of skills, for the tools that load and find them."""

    visible: SkillIndex
    hidden: SkillIndex
    """What a rule denies it: neither listed nor loaded."""
    catalog: Callable[[int | None], str]
    """Gives the list for the skill tool's description, of at most so many characters; nothing where
    it is shown elsewhere."""
    profile: Profile
    decide: Callable[[PermissionRequest, Session], str]
    listed: frozenset[str] | None = None
    """Files of the skills that lists name; the others are found by search alone. None is all."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """The id of the other skill whose name one of a project has, by the project's file."""
    deferred: DeferredTools | None = None
    """The tools of skills for which a request has no room; None where there is room for all."""
    code: Mapping[str, Path] = field(default_factory=dict)
    """Of these the directories of skills without a SKILL.md, by name and by id: they are listed
    and loaded as others are."""

    @property
    def listed_names(self) -> list[str]:
        """The names that lists have, in their order: none of a skill that search alone finds."""
        named = self.listed
        seen = (one for one in self.visible.skills if named is None or one.file in named)
        return [one_line(one.name) for one in seen]


class SkillReference:
    """The parameter that names a skill, and what is taken for it."""

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        self._shown = shown
        self.parameter = rule.parameters.get("name", "name")
        self._aliases = tuple(alias for alias in rule.aliases if alias != self.parameter)
        self.values = _values(rule, shown.visible.skills)

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """One alias is taken for a missing parameter; a skill named by its id, directory or in
        another case gets its listed name. What fits nothing stays, and is refused by the schema."""
        given = dict(arguments)
        aliased = [alias for alias in self._aliases if alias in given]
        if self.parameter not in given and len(aliased) == 1:
            given[self.parameter] = given.pop(aliased[0])
        wanted = given.get(self.parameter)
        if isinstance(wanted, str) and self.values and wanted not in self.values:
            try:
                skill = self._shown.visible.get(wanted.strip())
            except (UnknownSkillError, AmbiguousSkillError):
                return given
            given[self.parameter] = self.values_of_file.get(skill.file, wanted)
        return given

    @property
    def values_of_file(self) -> Mapping[str, str]:
        files = (skill.file for skill in self._shown.visible.skills)
        return dict(zip(files, self.values, strict=False))

    def skill(self, arguments: Mapping[str, Any], session: Session) -> Skill:
        """Return a visible skill; RefusedError for none or a denied one, which get the same answer
        unless the profile has words for a denied skill."""
        reference: str = arguments[self.parameter]
        messages = self._shown.profile.messages
        try:
            return find_skill(session.visible, reference, messages)
        except AssetError as error:
            name = self._hidden_name(reference)
            words = render(messages, "skill_denied", name=name) if name else ""
            if words:
                raise RefusedError(words, denied=True) from error
            raise RefusedError(str(error)) from error

    def _hidden_name(self, reference: str) -> str:
        try:
            return self._shown.hidden.get(reference.strip()).name
        except UnknownSkillError:
            return ""
        except AmbiguousSkillError:
            return reference


def _values(rule: ToolRule, skills: Sequence[Skill]) -> tuple[str, ...]:
    if rule.enum == "none":
        return ()
    if rule.enum == "ids":
        counts = Counter(skill.id for skill in skills)
        return tuple(s.id if counts[s.id] == 1 else s.file for s in skills)
    # As lists and searches show them, so that a model finds each in both.
    shown = {skill.file: one_line(skill.name) for skill in skills}
    names = Counter(shown[skill.file] for skill in skills)
    ids = Counter(skill.id for skill in skills)
    return tuple(
        name if names[name := shown[s.file]] == 1 else s.id if ids[s.id] == 1 else s.file
        for s in skills
    )


class SkillTool(Tool):
    durable = False
    loads_skills = True
    listed_at_once = True
    is_about_skills = True
    category = CATEGORY
    reads_only = True

    def __init__(self, rule: ToolRule, shown: VisibleSkills) -> None:
        self.name = rule.name
        self.title = rule.title or rule.name
        self._shown = shown
        self._reference = SkillReference(rule, shown)
        messages = shown.profile.messages
        self.description = self.description_within(None)
        values = self._reference.values
        of_file = self._reference.values_of_file
        kept = shown.listed
        listed = [value for file, value in of_file.items() if kept is None or file in kept]
        listed += [name for name in shown.code if ":" not in name]
        wanted: dict[str, Any] = {"type": "string", "description": "the skill to load"}
        self.accepted: Mapping[str, Any] = self._schema(wanted)
        """Where the profile has words of its own for a skill that is unknown, the tool says them,
        and not the schema."""
        size = sum(map(len, listed))
        shows_values = rule.enum != "none" and size <= shown.profile.catalog.enum_chars
        with_names = self._schema({**wanted, "enum": listed or [""]})
        self.schema: Mapping[str, Any] = with_names if shows_values else self._schema(wanted)
        is_named = rule.enum != "none" and size <= NAMED_CHARS and len(listed) <= NAMED_MOST
        self.schema_with_names = with_names if is_named else self.schema
        """For clients whose bound of a description has no room for the names."""
        if "skill_unknown" not in messages and shown.visible.skills and shows_values:
            # What is not listed can still be found, and then loaded.
            self.accepted = self._schema({**wanted, "enum": [*values, *shown.code]})

    def description_within(self, chars: int | None) -> str:
        messages = self._shown.profile.messages
        listed = self._shown.catalog(list_room(messages, chars))
        if not listed:
            return render(messages, "skill_description")
        return before_list(messages, self._shown.listed_names) + listed

    def _schema(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        parameter = self._reference.parameter
        return object_schema({parameter: wanted}, required=(parameter,))

    def canonical(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._reference.canonical(arguments)

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        deferred, directory = self._shown.deferred, self._code_directory(arguments, session)
        if deferred is not None and directory is not None:
            return self._plan_of_code(deferred, directory, session)
        skill = self._reference.skill(arguments, session)
        profile = self._shown.profile
        load = SkillLoad(session, skill, session.needs_of(skill), listed=profile.resources_listed)

        async def run() -> Output:
            try:
                content = await load.content()
            except SkillError as error:
                words = render(profile.messages, "skill_unreadable", name=skill.name, reason=error)
                title = render(profile.messages, "failed_title", name=skill.name)
                data = result_data(
                    profile.result, title=title, output=words, metadata={}, succeeded=False
                )
                return Output(text=words, data=data, failed=True)
            if not current_invocation(content, profile.extensions).model_invocable:
                raise RefusedError(f"skill `{skill.name}` is now for people alone", denied=True)
            return self._output(content, load.needs[0], session)

        question = profile.rules.pattern.replace("{name}", skill.name)
        facts = [("skill", skill.id), ("asks for", question), ("file", skill.file)]
        if origin := session.origin(skill):
            facts.append(("from", origin))
        if replaced := self._shown.replaced.get(skill.file):
            facts.append(("in place of", replaced))
        facts += load.facts
        title = render(profile.messages, "question_title", name=skill.name)
        span_attributes = skill_attributes(skill, session)
        return Plan(
            needs=load.needs,
            run=run,
            facts=tuple(facts),
            # What its server says of it, since nothing of it is here yet.
            claims=(("description", skill.description),) if origin else (),
            title=title,
            span_attributes=span_attributes,
        )

    def _code_directory(self, arguments: Mapping[str, Any], session: Session) -> Path | None:
        """Return where a skill of code alone is; None for any other, which comes first."""
        reference = arguments[self._reference.parameter].strip()
        try:
            session.visible.get(reference)
        except UnknownSkillError:
            return self._shown.code.get(reference)
        except AmbiguousSkillError:
            return None
        return None

    def _plan_of_code(self, deferred: DeferredTools, directory: Path, session: Session) -> Plan:
        profile = self._shown.profile
        facts = deferred.facts(directory)
        known = profile.metadata.items()
        metadata = {theirs: facts[ours] for ours, theirs in known if ours in facts}
        title = render(profile.messages, "loaded_title", name=facts["name"])
        text = deferred.text_of(directory)
        data = result_data(profile.result, title=title, output=text, metadata=metadata)
        return deferred.loading_plan(directory, session, data)

    def shaped(self, result: ToolResult) -> Mapping[str, Any] | None:
        messages = self._shown.profile.messages
        key = {"denied": "denied_title", "pending": "pending_title"}.get(
            result.status, "unknown_title"
        )
        data = result_data(
            self._shown.profile.result,
            title=render(messages, key),
            output=result.content,
            metadata={},
            succeeded=False,
        )
        return data or None

    def _output(self, content: SkillContent, need: PermissionRequest, session: Session) -> Output:
        skill, profile = content.skill, self._shown.profile
        if session.origin_digest:
            # What a skill's own code loads is no choice of the model.
            session.searches.found.pop(skill.file, None)
        is_held = session.activations.is_held(content)
        if is_held:
            text = render(profile.messages, "skill_held", name=skill.name)
        else:
            text, _ = fitted(content, profile.load_style)
            text += self._tools_beside(skill, session)
        text = begin_use(session, skill, text)
        facts = {
            "id": skill.id,
            "name": skill.name,
            "directory": str(skill.directory),
            "source": profile.scope(skill.scope).source or skill.scope,
            "permission": self._shown.decide(need, session),
        }
        metadata = {theirs: facts[ours] for ours, theirs in profile.metadata.items()}
        title = render(profile.messages, "loaded_title", name=skill.name)
        return Output(
            text=text,
            excerpt="whole",
            data=result_data(profile.result, title=title, output=text, metadata=metadata),
            detail={"skill": skill.id, **({"held": 1} if is_held else {})},
            activation=None if is_held else activation_of(content, text, need.skill_digest),
        )

    def _tools_beside(self, skill: Skill, session: Session) -> str:
        """Return what is said of the tools of a skill for which the list has no room."""
        deferred = self._shown.deferred
        if not deferred or skill.directory not in deferred.skills:
            return ""
        session.use_tools(skill.directory)
        return f"\n\n{deferred.text_of(skill.directory)}\n"


class SearchEntry(Struct, frozen=True, kw_only=True):
    """One result of a search, with those of its tools that the list has no room for."""

    hit: Hit
    name: str
    description: str
    tools: tuple[SkillCodeTool, ...] = ()

    def value(self) -> dict[str, str]:
        return {"name": self.name, "description": self.description}


class FindSkills(Protocol):
    """Searches an agent's skills for one session, at once: while bodies are being read, by names
    and descriptions alone."""

    def __call__(
        self, session: Session, query: str, *, limit: int, collapse: bool
    ) -> SearchResult: ...


class SearchTool(Tool):
    durable = False
    listed_at_once = True
    is_about_skills = True
    required_actions = (SEARCH_ACTION,)
    category = CATEGORY
    reads_only = True

    def __init__(self, rule: ToolRule, shown: VisibleSkills, find: FindSkills) -> None:
        self.name = rule.name
        self.title = rule.title or rule.name
        is_listed = shown.profile.catalog.exposure == "tool"
        names = shown.listed_names if is_listed else []
        self.description = opening(shown.profile.messages, "search", names)
        self._query = rule.parameters.get("query", "query")
        self._limit = rule.parameters.get("limit", "limit")
        self._messages = shown.profile.messages
        self._find = find
        self._collapse = shown.profile.duplicates != "keep_all"
        self._deferred = shown.deferred
        refuses = rule.bounds == "refuse"
        text = {"minLength": 1} if refuses else {}
        number = {"minimum": 1, "maximum": SEARCH_MAX} if refuses else {}
        self.schema: Mapping[str, Any] = object_schema(
            {
                self._query: {"type": "string", **text, "description": "what is to be done"},
                self._limit: {"type": "integer", **number, "default": SEARCH_LIMIT},
            },
            required=(self._query,),
        )

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        query = arguments[self._query]
        limit = limit_within(arguments.get(self._limit, SEARCH_LIMIT))

        async def run() -> Output:
            # The index may have to be opened or made, which must not hold up other calls.
            found = await anyio.to_thread.run_sync(
                lambda: self._find(session, query, limit=limit, collapse=self._collapse)
            )
            matches = await anyio.to_thread.run_sync(lambda: self._matches(session, query, limit))
            skills = skills_of(session.visible, found.hits)
            if not session.origin_digest:
                session.searches.note(query, (skill.file for skill in skills))
            entries = self._entries(skills, found.hits, matches)[:limit]
            fit = fit_of(one.hit for one in entries)
            data: dict[str, Any] = {"skills": [one.value() for one in entries]}
            if entries:
                data["reasons"] = [reason(one.hit) for one in entries]
            if self._deferred and (tools := [tool for one in entries for tool in one.tools]):
                data["tools"] = self._deferred.values(tools)
            if fit is not Fit.GOOD:
                data["weak"] = True
            if fit is Fit.NONE:
                data["nothing_fits"] = True
            if found.is_partial:
                data["partial"] = True
            if found.meaning is not None:
                # Until an encoder is ready, its vote is missing.
                data["encoders"] = {"ready": found.meaning.ready, "all": found.meaning.encoders}
            text = self._text(entries, fit, session, is_partial=found.is_partial)
            return Output(text=text, data=data)

        need = PermissionRequest(
            permission=Permission(action=SEARCH_ACTION, resource=query),
            default=Effect.ALLOW,
            why="searching what is listed changes nothing",
        )
        return Plan(needs=(need,), run=run)

    def _matches(self, session: Session, query: str, limit: int) -> Sequence[ToolMatch]:
        deferred, among = self._deferred, len(session.visible.skills)
        return deferred.search(query, limit=limit, among=among) if deferred else ()

    def _entries(
        self, skills: Sequence[Skill], hits: Sequence[Hit], matches: Sequence[ToolMatch]
    ) -> list[SearchEntry]:
        """Return the found skills, each with the tools that the list has no room for.

        Of those that have only tools each comes before the first that it fits better than.
        """
        own = self._deferred.skills if self._deferred else {}
        entries = [
            SearchEntry(
                hit=hit,
                # A name that no list has room for stays out of this one too.
                name=_flat(skill.name if len(skill.name) <= NAME_CHARS else skill.directory.name),
                description=_flat(skill.description),
                tools=own.get(skill.directory, ()),
            )
            for skill, hit in zip(skills, hits, strict=True)
        ]
        known = {skill.directory for skill in skills}
        for match in matches:
            manifest, directory = match.tools[0].skill.manifest, match.tools[0].skill.directory
            if directory in known:
                continue
            worse = (
                at for at, one in enumerate(entries) if one.hit.confidence < match.hit.confidence
            )
            entry = SearchEntry(
                hit=match.hit,
                name=_flat(manifest.name),
                description=_flat(manifest.description),
                tools=match.tools,
            )
            entries.insert(next(worse, len(entries)), entry)
        return entries

    def _text(
        self, entries: Sequence[SearchEntry], fit: Fit, session: Session, *, is_partial: bool
    ) -> str:
        shown = self._deferred.described([one.tools for one in entries]) if self._deferred else []
        cut = zip(entries, _fair([one.description for one in entries]), strict=True)
        lines = [f"{one.name}: {text}{self._reason(one.hit)}" for one, text in cut]
        if any(shown):
            with_tools = zip(lines, shown, strict=True)
            lines = [line for head, more in with_tools for line in (head, *more)]
            lines.append("Call a tool that is not in your list with `call_skill_tool`.")
        if fit is Fit.WEAK:
            lines.insert(0, render(self._messages, "search_weak"))
        elif fit is Fit.NONE or not lines:
            # Once: a model that goes on with other words each time finds nothing better.
            hint = "" if session.searches.is_hinted else render(self._messages, "search_hint")
            session.searches.is_hinted = True
            said = render(self._messages, "search_none" if lines else "search_empty", hint=hint)
            lines.insert(0, said)
        if is_partial:
            lines += ["", render(self._messages, "search_partial")]
        return "\n".join(lines)

    def _reason(self, hit: Hit) -> str:
        alike = render(self._messages, "search_alike", ids=", ".join(map(_flat, hit.alike)))
        return render(
            self._messages, "search_reason", reason=reason(hit), alike=alike if hit.alike else ""
        )


def limit_within(limit: int) -> int:
    """Return how many skills a search gives: none for a limit below one (S003-41, S003-48)."""
    return max(0, min(limit, SEARCH_MAX))


def found_values(visible: SkillIndex, hits: Sequence[Hit]) -> list[dict[str, str]]:
    """Return name and description of each hit, best first (S003-36, S003-38)."""
    return [
        {"name": _flat(skill.name), "description": _flat(skill.description)}
        for skill in skills_of(visible, hits)
    ]


def _fair(descriptions: Sequence[str]) -> list[str]:
    """Return descriptions within `SEARCH_BYTES`: whole where they fit, else in equal shares."""

    def fits(chars: int) -> bool:
        cut = (clipped(one, chars) for one in descriptions)
        return sum(len(one.encode("utf-8", "replace")) for one in cut) <= SEARCH_BYTES

    chars = most(SEARCH_BYTES // SEARCH_MAX // 4, DESCRIPTION_MAX, fits)
    return [clipped(one, chars) for one in descriptions]


def _flat(text: str) -> str:
    return " ".join(text.split())
