"""One agent's view of a snapshot: its skills, catalog and prompts, and what a person may start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import discovery
from skillhouse import skill as skill_package
from skillhouse import tools as toolbox
from skillhouse.floor import AmbiguousSkillError, UnknownSkillError, isolated, structs
from skillhouse.floor.lock import once
from skillhouse.floor.regex import regex
from skillhouse.house.config.secret_places import read_secret
from skillhouse.house.policy import Policy
from skillhouse.house.prompts import Prompts
from skillhouse.house.settings import SkillSettings
from skillhouse.house.skill_lines import AS_TOOLS, deferred_of, lines_of
from skillhouse.permission import Effect, Layer, Permission, decide
from skillhouse.skill import Skill, SkillIndex, described, read_invocation
from skillhouse.skill.hidden import one_line

if TYPE_CHECKING:
    from skillhouse.discovery import Catalog
    from skillhouse.floor import Diagnostic
    from skillhouse.house.agent_search import AgentSearch
    from skillhouse.house.config import Config
    from skillhouse.house.usage import LearnedChoices
    from skillhouse.retrieval import MeaningMaker
    from skillhouse.skill import Extensions, Profile, ToolRule


class AgentView:
    """The skills of one snapshot that one agent may see, and how they are listed."""

    def __init__(
        self,
        agent: str,
        index: SkillIndex,
        settings: SkillSettings,
        config: Config,
        policy: Policy,
        roots: Iterable[Path] = (),
        worked: Callable[[], Sequence[str]] = tuple,
        recent: Mapping[str, int] | None = None,
        learned: LearnedChoices | None = None,
        why_absent: Callable[[str], str] = lambda _: "",
        fault: Callable[[Skill], str] = lambda _: "",
        encoders: Callable[[], MeaningMaker | None] = lambda: None,
        waiting: Iterable[Skill] = (),
        code: Callable[[AgentView], Iterable[toolbox.Tool]] = lambda _: (),
        own_tools: int = 0,
    ) -> None:
        """Sort the index into what the agent may see, what a rule denies and what is off.

        No tool writes below `roots`, which are those of skills, whether they exist or not;
        `worked` gives the files of the project that the agent works on, and `recent` has the ranks
        of the skills that were loaded lately, by file. `learned` has what was loaded after
        searches, None where that changes nothing. `why_absent` says for a person why a skill of
        that name is not in the index, or nothing; `fault` why one may not be loaded. `waiting`
        has the project's skills that no person has looked at as they are. `code` gives the tools
        that skills bring to the agent, and `own_tools` is how many a program and extensions add.

        Raises:
            ConfigError: no agent has that name.
        """
        self.agent = agent
        self._config = config
        self._policy = policy
        self._worked = worked
        self._recent = recent or {}
        self._fault = fault
        self._encoders, self._learned = encoders, learned
        self._code, self._own_tools = code, own_tools
        self.waiting = {skill.file: skill for skill in waiting}
        """The project's skills that no person has looked at, as they are, by file."""
        self.menu = PersonMenu(agent, index, settings, policy, why_absent, self.waiting)
        extensions = self.profile.extensions
        self.person_directories = _for_people_alone(index, extensions)
        layers = policy.layers(agent)
        denied = self._denied(index, layers)
        present = [
            skill
            for skill in index.skills
            if skill.file not in denied and settings.is_enabled(skill.id)
        ]
        # Without such directories none of the skills is asked for its own, which is a path to make.
        hidden = self.person_directories
        self.for_people = tuple(s for s in present if hidden and s.directory in hidden)
        """What the model neither sees nor loads, and a person can start."""
        self.visible = SkillIndex(
            (described(s, extensions) for s in present if not hidden or s.directory not in hidden),
            diagnostics=_findings_to_see(index, layers),
            name_match=index.name_match,
        )
        self.hidden = tuple(skill for skill in index.skills if skill.file in denied)
        shadowed = (skill for skill in index.shadowed if _is_denied("skill", skill.name, layers))
        off = (skill for skill in index.skills if not settings.is_enabled(skill.id))
        self.withheld = frozenset(skill.directory for skill in (*self.hidden, *shadowed, *off))
        self.all_skills = (*index.skills, *index.shadowed)
        self.replaced = _replaced(index)
        self._roots = tuple(roots)
        self._is_enabled = settings.is_enabled

    def _denied(self, index: SkillIndex, layers: tuple[Layer, ...]) -> set[str]:
        """Return the files of the skills that a rule denies, by the name that is shown or, where
        that is another, by the one that its file has now."""
        return {
            skill.file
            for skill in index.skills
            for name in {skill.name, self.waiting.get(skill.file, skill).name}
            if _is_denied("skill", name, layers)
        }

    @once
    def search(self) -> AgentSearch:
        """Finds among what the agent sees."""
        from skillhouse.house.agent_search import AgentSearch  # noqa: PLC0415 - a list asks none.

        config = self._config
        return AgentSearch(
            self.visible,
            bodies=self.profile.search_bodies,
            cache=config.cache_directory,
            encoders=self._encoders,
            learned=self._learned,
            address=lambda: read_secret(
                config.search.database,
                "the address of the search database",
                config.places.environment,
                key="search.database",
            ),
        )

    def close(self) -> None:
        """Stop what a search began in the background."""
        if "search" in vars(self):
            self.search.close()

    @once
    def code_tools(self) -> tuple[toolbox.Tool, ...]:
        """The tools that skills bring."""
        return tuple(self._code(self))

    @once
    def deferred(self) -> toolbox.DeferredTools | None:
        """The tools of skills for which a request has no room; None where it has for all."""
        if not self.code_tools:
            return None
        shows, own_tools = self._visibility.shows, self._own_tools
        return deferred_of(
            self.code_tools, self.profile, self._config, shows=shows, own_tools=own_tools
        )

    @once
    def code_skills(self) -> tuple[Skill, ...]:
        """The skills of code alone that lists name: those whose tools have no room."""
        return lines_of(self.deferred, self.all_skills) if self.deferred else ()

    @once
    def listable(self) -> SkillIndex:
        """What lists and menus of a model may name."""
        return self.visible.plus(self.code_skills)

    @once
    def offer(self) -> toolbox.ToolVisibility:
        """Which tools the agent's model is offered."""
        has_skills = bool(self.listable.skills) or self.profile.tools_without_skills
        return structs.replace(self._visibility, has_skills=has_skills)

    @once
    def _visibility(self) -> toolbox.ToolVisibility:
        own = {name: own for own, names in self.profile.tool_names.items() for name in names}
        lists = self._config.tool_lists(self.agent)
        return toolbox.ToolVisibility(
            # A list may have the design's name of a tool; it is no other tool's.
            lists=tuple(tuple(own.get(entry, entry) for entry in entries) for entries in lists),
            layers=self._policy.layers(self.agent),
        )

    @once
    def skill_directories(self) -> tuple[Path, ...]:
        """The directories below which no tool writes."""
        return (*self._roots, *(skill.directory for skill in self.all_skills))

    def withholds(self, directory: Path, skill_id: str = "") -> bool:
        """Whether the skill in a directory is denied to this agent or switched off.

        One of code alone has no SKILL.md by which it is known here, and is switched by its id.
        """
        return not self._is_enabled(skill_id) or directory in self.withheld

    @property
    def profile(self) -> Profile:
        return self._policy.profile

    @property
    def listed(self) -> SkillIndex:
        """The visible skills without those for files that the agent has not touched."""
        return self._listed_for(())

    def _listed_for(self, more: Iterable[str]) -> SkillIndex:
        """Return those for the files that the agent works on, and for `more`."""
        extensions = self.profile.extensions
        if not extensions.paths:
            return self.visible
        files = (*self._worked(), *more)
        return self.visible.where(
            lambda skill: read_invocation(skill, extensions).is_listed_for(files)
        )

    def catalog(
        self,
        budget_tokens: int | None = None,
        *,
        style: str | None = None,
        files: Iterable[str] = (),
        budget_chars: int | None = None,
        request: str = "",
        by_location: bool = False,
        search: str | None = None,
        only: Collection[str] | None = None,
    ) -> Catalog:
        """Return the agent's skills as a model sees them.

        The style `direct` shows bodies, so it lists only what the agent may load without a
        question and as it is now; the others are among the omitted. The style `compact` begins
        each scope with the skills that were loaded last.

        Args:
            budget_tokens: Most tokens of the text; when None those of the configuration, else of
                the profile.
            budget_chars: Most characters besides.
            style: Another renderer than the profile's.
            files: Further paths below the project that the agent works on.
            request: A user's words, blank for none; the skills that fit them come first.
            by_location: Name by its file what a layout has no room for.
            search: What the model knows the search tool as; empty where it has none. None is the
                profile's name.
            only: Files of the skills that are listed; all when None.

        Raises:
            ConfigError: no renderer has that name.
            SearchError: with a request, this Python's SQLite has no full-text module.
        """
        if budget_tokens is None:
            budget_tokens = self.budget_tokens
        style = style or self.profile.catalog.style
        listed = self._listed_for(files)
        is_whole = len(listed) == len(self.visible)
        if style != "direct":
            # A skill of code alone has no body.
            listed = self.listable if is_whole else listed.plus(self.code_skills)
        if only is not None:
            listed = listed.where(lambda skill: skill.file in only)
        if style == "direct":
            listed = listed.where(self._is_allowed)
        if style == "compact" and self._recent:
            listed = SkillIndex(self._recent_first(listed.skills), name_match=listed.name_match)
        found = discovery.catalog_under(
            structs.replace(self.profile, tools=self._shown_rules),
            listed,
            style=style,
            budget_tokens=budget_tokens,
            budget_chars=budget_chars,
            first=self._fitting(request, listed) if request.strip() else None,
            recent=self._recent,
            by_location=by_location or not self._can_load,
            search=search,
            files=self._seen_files,
        )
        if (is_whole and style != "direct") or only is not None:
            return found
        included = {skill.file for skill in found.included}
        omitted = tuple(skill for skill in self.visible.skills if skill.file not in included)
        return structs.replace(found, omitted=omitted)

    def _seen_files(self, skill: Skill) -> Sequence[str]:
        """Return the names in a skill's directory, if they are those that a person saw."""
        if self._policy.why_unseen(skill):
            return (skill_package.SKILL_FILE,)
        return skill_package.list_top(skill.directory)

    def _fitting(self, request: str, listed: SkillIndex) -> list[Skill]:
        """Return the listed skills that fit a request, best first."""
        places = {skill.file: at for at, skill in enumerate(self.search.ranked(request))}
        fitting = [skill for skill in listed.skills if skill.file in places]
        return sorted(fitting, key=lambda skill: places[skill.file])

    def system_prompt(
        self, offered: Iterable[str] | None = None, *, tool_chars: int | None = None
    ) -> str:
        return self.prompts().system(offered, tool_chars=tool_chars)

    @once
    def _shown_rules(self) -> tuple[ToolRule, ...]:
        """The profile's tools about skills that the model sees."""
        layers = self._policy.layers(self.agent)
        denies = any(rule.effect is Effect.DENY for layer in layers for rule in layer.rules)
        if not denies and not self._config.all_tool_lists():
            return self.profile.tools
        return tuple(
            rule
            for rule in self.profile.tools
            if self.offer.shows(toolbox.ProfileTool(name=rule.name, kind=rule.kind))
        )

    @property
    def _can_load(self) -> bool:
        """Whether the agent has a tool that takes the name of a skill."""
        return any(rule.kind == "skill" for rule in self._shown_rules)

    def prompts(self, prefix: str = "") -> Prompts:
        """Return the texts besides the skill tool; `prefix` goes before the names of tools."""
        shown = {rule.name: rule.kind for rule in self._shown_rules}
        # Without a tool of its own a skill is loaded by reading its file.
        can_load = "skill" in shown.values() or self.offer.shows(toolbox.READ)
        return Prompts(
            profile=self.profile,
            has_skills=bool(self.listable.skills) and can_load,
            catalog=self.catalog,
            prefix=prefix,
            shown=frozenset(shown),
        )

    @property
    def budget_tokens(self) -> int | None:
        """Most tokens of a catalog, by the configuration or else the profile; None is no bound."""
        if self._config.catalog_budget_tokens is not None:
            return self._config.catalog_budget_tokens
        bound = self.profile.catalog.budget_tokens
        return None if bound == "none" else bound

    def _recent_first(self, skills: Sequence[Skill]) -> list[Skill]:
        """Return the skills with each scope's recent ones first, otherwise in their order."""
        scopes = {scope: at for at, scope in enumerate(dict.fromkeys(s.scope for s in skills))}
        last = len(self._recent)
        return sorted(
            skills, key=lambda skill: (scopes[skill.scope], self._recent.get(skill.file, last))
        )

    def tool_catalog(self, chars: int | None, *, only: Collection[str] | None = None) -> Catalog:
        """Return the catalog for the skill tool's description, of at most `chars` characters."""
        return self.catalog(style=self.profile.catalog.tool_style, budget_chars=chars, only=only)

    def mark(self, skill: Skill) -> str:
        """Return how the model hears of a skill; empty for one that it does not see."""
        return self.marks.get(skill.file, "")

    @once
    def marks(self) -> Mapping[str, str]:
        """How the model hears of each skill that lists may name, by its file."""
        can_search = any(rule.kind == "search" for rule in self._shown_rules)
        nothing = discovery.Catalog(text="", included=(), omitted=self.listable.skills)
        exposure = self.profile.catalog.exposure
        if exposure == "search":
            return nothing.marks(self.listable, nothing, can_search=can_search)
        usual = self.tool_catalog(None) if exposure == "tool" else self.catalog()
        return usual.marks(self.listable, self.marked_over_mcp or nothing, can_search=can_search)

    def code_mark(self, directory: Path) -> str:
        """Return how the model hears of a skill of code alone, of which it has tools."""
        files = {skill.directory: skill.file for skill in self.code_skills}
        return self.marks[files[directory]] if directory in files else AS_TOOLS

    @once
    def marked_over_mcp(self) -> Catalog | None:
        """`over_mcp` as `marks` has it."""
        return self.over_mcp()

    def over_mcp(self) -> Catalog | None:
        """Return the list that an MCP client gets; None where that has none."""
        rule = self.profile.catalog
        if rule.exposure == "tool":
            chars = None if rule.tool_chars == "none" else rule.tool_chars
            return self.tool_catalog(toolbox.list_room(self.profile.messages, chars))
        return self.prompts().in_instructions() if rule.exposure == "system" else None

    def tool_misses(self, chars: int) -> bool:
        """Whether the skill tool's description of so many characters does not name every skill."""
        if self.profile.catalog.exposure != "tool":
            return False
        room = toolbox.list_room(self.profile.messages, chars)
        return bool(self.tool_catalog(room).omitted)

    def tool_catalog_text(self, chars: int | None) -> str:
        return self.tool_catalog(chars).text if self.profile.catalog.exposure == "tool" else ""

    def _is_allowed(self, skill: Skill) -> bool:
        found = self._policy.explain_skill(skill, agent=self.agent)
        # A body in a list is loaded like any other: its files are those that were installed.
        return found.decision.effect is Effect.ALLOW and not self._fault(skill)


def _replaced(index: SkillIndex) -> Mapping[str, str]:
    """Return the strongest skill of another scope whose name one of a project has, by its file."""
    others: dict[str, str] = {}
    for skill in index.shadowed:
        if skill.scope != "project":
            others.setdefault(skill.name, skill.id)
    return {
        skill.file: others[skill.name]
        for skill in index.skills
        if others and skill.scope == "project" and skill.name in others
    }


ARGUMENTS_SHOWN = 16
"""Names of arguments that a menu has for one skill."""
_ARGUMENT = regex(r"[A-Za-z0-9_-]{1,64}")


class Invocable(Struct, frozen=True, kw_only=True):
    """One entry of a menu."""

    name: str
    """What `invoke` takes: the skill's name, or its id where two share the name."""
    description: str
    argument_hint: str = ""
    """What to write after the name; empty when the skill does not say."""
    arguments: tuple[str, ...] = ()
    """Names of what is written there, in order; empty where the skill names none."""


class PersonMenu:
    """The skills that a person may start beside one agent.

    A rule of the managed, user or project layer that denies the skill holds for people too, and so
    does a rule of any layer that denies the action `invoke`; what an agent is denied does not.
    """

    def __init__(
        self,
        agent: str,
        index: SkillIndex,
        settings: SkillSettings,
        policy: Policy,
        why_absent: Callable[[str], str],
        waiting: Mapping[str, Skill],
    ) -> None:
        self._agent = agent
        self._waiting = waiting
        self._why_absent = why_absent
        self._index = index
        self._settings = settings
        self._policy = policy
        self._layers = policy.layers(agent)

    @once
    def skills(self) -> SkillIndex:
        return self._index.where(lambda skill: not self._why_not(skill))

    def entries(self) -> tuple[Invocable, ...]:
        """Return the entries of a menu."""
        extensions = self._policy.profile.extensions
        names = Counter(one_line(skill.name) for skill in self.skills.skills)
        return tuple(
            Invocable(
                name=name if names[name := one_line(skill.name)] == 1 else skill.id,
                description=skill.description,
                argument_hint=read_invocation(skill, extensions).argument_hint,
                arguments=_argument_names(skill) if extensions.substitution else (),
            )
            for skill in self.skills.skills
        )

    def refusal(self, reference: str) -> str:
        """Return why a skill is not in the menu; empty if there is no such skill."""
        try:
            return self._why_not(self._index.get(reference))
        except AmbiguousSkillError:
            return ""
        except UnknownSkillError:
            return self._why_waiting(reference) or self._why_absent(reference)

    def _why_waiting(self, reference: str) -> str:
        wanted = reference.strip()
        if any(wanted in (skill.name, skill.id) for skill in self._waiting.values()):
            return f"`{wanted}` is new in this project: look at it with `skillhouse trust`"
        return ""

    def need(self, skill: Skill) -> toolbox.PermissionRequest:
        """Return what starting a skill needs.

        The caller is the person who would be asked, so it asks only about bytes of the project that
        are not those that were trusted.
        """
        wanted = Permission(action=toolbox.INVOKE, resource=skill.name)
        loading = self._policy.skill_need(skill)
        if skill.scope == "project" and loading.default is Effect.ASK:
            return toolbox.PermissionRequest(
                permission=wanted,
                default=Effect.ASK,
                why=loading.why,
                skill_digest=loading.skill_digest,
                level="read",
            )
        return toolbox.PermissionRequest(
            permission=wanted, default=Effect.ALLOW, why="a person starts it", level="read"
        )

    def _why_not(self, skill: Skill) -> str:
        if not self._settings.is_enabled(skill.id):
            return f"skill `{skill.name}` is off"
        for action, layers in (
            ("skill", self._policy.shared_layers),
            (toolbox.INVOKE, self._layers),
        ):
            now = self._waiting.get(skill.file, skill)
            if any(_is_denied(action, name, layers) for name in {skill.name, now.name}):
                return f"denied: a rule denies `{action} {skill.name}`"
        if not read_invocation(skill, self._policy.profile.extensions).user_invocable:
            return f"skill `{skill.name}` is for the model alone (`user-invocable: false`)"
        return ""


def _argument_names(skill: Skill) -> tuple[str, ...]:
    """Return the argument names before the first that a menu cannot show."""
    if b"arguments" not in skill.packed_fields:
        return ()
    # One skill of a menu; without them all that is typed after its name is one.
    with isolated():
        names = skill_package.argument_names(skill.frontmatter.fields)[:ARGUMENTS_SHOWN]
        return tuple(takewhile(_ARGUMENT.fullmatch, dict.fromkeys(names)))
    return ()


def _for_people_alone(index: SkillIndex, extensions: Extensions) -> frozenset[Path]:
    """Return the directories of the skills that only a person may start."""
    everything = (*index.skills, *index.shadowed) if extensions.invocation else ()
    return frozenset(
        skill.directory
        for skill in everything
        if not read_invocation(skill, extensions).model_invocable
    )


def _findings_to_see(index: SkillIndex, layers: tuple[Layer, ...]) -> Iterator[Diagnostic]:
    """Yield what is wrong with files, for those who might load them (S003-32)."""
    return (
        found
        for found in index.diagnostics
        if found.path is not None and not _is_denied("skill", found.path.parent.name, layers)
    )


def _is_denied(action: str, name: str, layers: tuple[Layer, ...]) -> bool:
    permission = Permission(action=action, resource=name)
    return decide(layers, permission).effect is Effect.DENY
