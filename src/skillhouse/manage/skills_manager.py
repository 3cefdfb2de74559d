"""The face that design 003 publishes: one object that lists, finds and reads skills."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, MutableSequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from skillhouse import tools as toolbox
from skillhouse.discovery import Root, discover
from skillhouse.floor import ConfigError, SkillError, SkillhouseError
from skillhouse.retrieval import SearchIndex
from skillhouse.skill import handed_over, load, load_profile

if TYPE_CHECKING:
    from skillhouse.house.house import Skillhouse
    from skillhouse.skill import Profile, Skill, SkillIndex

SPECIFICATION = "https://agentskills.io/specification"
README = f"""\
# Skills

Each directory here is one skill, if it has a `SKILL.md`:

    skill-name/
        SKILL.md       required: frontmatter with `name` and `description`, then instructions
        references/    documents that the instructions name
        scripts/       programs that the instructions run
        assets/        templates and other files

The name is that of the directory: 1 to 64 characters, small letters, digits and single hyphens.
The description says in 1 to 1024 characters what the skill does and when to use it.

The format is that of the Agent Skills specification: {SPECIFICATION}
"""


class SkillsManager:
    """Skills by the published functions; what goes wrong comes back as text (S003-83).

    It is for the user's own programs, and asks no person. A model calls the tools of the same
    names, which go through the gate (`register_tools`).
    """

    def __init__(
        self,
        root: Path | None = None,
        *,
        profile: str | Profile = "openseed",
        index: Callable[[], SkillIndex] | None = None,
    ) -> None:
        """Manage the skills of one directory, which is read at each call (S003-14).

        Args:
            root: The directory of skills; by default `skills` below the environment's
                `DOCUMENT_ROOT`, as the design publishes it.
            profile: Whose rules and words hold.
            index: Gives the skills instead of a look into `root`.

        Raises:
            ConfigError: no profile has that name, or there is neither `root` nor `DOCUMENT_ROOT`.
        """
        self._profile = load_profile(profile)
        self.root = root or _document_root() / "skills"
        place = Root(path=self.root, scope="explicit")
        self._index = index or (lambda: discover([place], profile=self._profile))
        self._fault: Callable[[Skill], str] = lambda _: ""

    @classmethod
    def at(cls, root: Path, *, profile: str | Profile = "openseed") -> Self:
        """Return a manager of one directory's skills; ConfigError for an unknown profile."""
        return cls(root, profile=profile)

    @classmethod
    def of(cls, house: Skillhouse, *, agent: str = "default") -> Self:
        """Return a manager of the skills that an agent sees; denied skills are unknown to it.

        An installed one is not handed over once its files were edited or its signature is refused,
        and one of a project not before a person has looked at it: no one can be asked here.
        """

        def fault(skill: Skill) -> str:
            # What checks installs is loaded with the first skill that is read.
            edited = house.services.installed_check.fault(skill.directory, skill.scope)
            if edited:
                return f"{edited}; `skillhouse verify` shows more"
            return house.policy.why_unseen(skill)

        manager = cls(
            house.config.places.start,
            profile=house.policy.profile,
            index=lambda: house.view(agent).visible,
        )
        manager._fault = fault
        return manager

    def list_skills(self) -> list[str]:
        """Return the names of all skills that can be used; none when the root is missing."""
        return [skill.name for skill in self._index().skills]

    def get_skill_content(self, name: str) -> str:
        """Return the whole SKILL.md, or an error."""
        try:
            return handed_over(load(self._usable(name)).text)
        except toolbox.AssetError as error:
            return str(error)
        except SkillError as error:
            messages = self._profile.messages
            return toolbox.render(messages, "skill_unreadable", name=name, reason=error)

    def search_skills(self, query: str, n: int = 5) -> list[dict[str, str]]:
        """Return name and description of at most `n` skills, best first; bodies are not read."""
        index = self._index()
        found = SearchIndex.from_documents(
            (skill.id, skill.name, skill.description, "") for skill in index.skills
        )
        hits = found.search(query, limit=toolbox.limit_within(n), collapse=True)
        return toolbox.found_values(index, hits)

    def get_skill_asset(self, skill_name: str, relative_path: str) -> str:
        """Return the text of one of the skill's files, or an error."""
        try:
            text = toolbox.read_asset(self._usable(skill_name), relative_path, self._profile)
            return handed_over(text)
        except toolbox.AssetError as error:
            return str(error)

    def get_skill_script_path(self, skill_name: str, script_name: str) -> str:
        """Return the absolute path of one of the skill's scripts, or an error."""
        try:
            return str(toolbox.script_path(self._usable(skill_name), script_name, self._profile))
        except toolbox.AssetError as error:
            return str(error)

    def list_skill_assets(self, skill_name: str) -> list[str]:
        """Return the relative paths of the files that `get_skill_asset` gives, sorted.

        Raises:
            AssetError: no skill has that name, and the profile wants that to be an error.
        """
        try:
            return list(toolbox.list_assets(self._find(skill_name), self._profile))
        except toolbox.AssetError:
            if self._profile.unknown_assets == "empty":
                return []
            raise

    def create_root(self) -> bool:
        """Create the directory of skills with a README; whether it was missing."""
        if self.root.exists():
            return False
        self.root.mkdir(parents=True)
        (self.root / "README.md").write_text(README, encoding="utf-8")
        return True

    def _find(self, name: str) -> Skill:
        return toolbox.find_skill(self._index(), name, self._profile.messages)

    def _usable(self, name: str) -> Skill:
        skill = self._find(name)
        if fault := self._fault(skill):
            message = f"skill `{name}` is not loaded: {fault}"
            raise toolbox.AssetError("unverified", message)
        return skill


def _document_root() -> Path:
    value = os.environ.get("DOCUMENT_ROOT", "")
    if not value:
        message = "set DOCUMENT_ROOT to the directory that holds `skills`, or name a directory"
        raise ConfigError(message, key="DOCUMENT_ROOT")
    return Path(value).expanduser().absolute()


def register_tools(
    house: Skillhouse,
    register: Callable[[Callable[..., Any]], Any],
    *,
    tools_list: MutableSequence[str] | None = None,
    agent: str = "default",
) -> tuple[str, ...]:
    """Register the tools about skills as functions (S003-80, S003-81).

    Each has the signature of its schema, goes through the gate and never raises: an error comes
    back as text. `register` is a decorator, such as `tool_manager.register`; `tools_list` gets the
    names added.
    """
    kinds = {rule.name: rule.kind for rule in house.policy.profile.tools}
    names = []
    for tool in house.tools(agent=agent):
        if tool.name in kinds:
            register(_function(house, tool, agent))
            names.append(tool.name)
    if tools_list is not None:
        tools_list.extend(name for name in names if name not in tools_list)
    return tuple(names)


_TYPES: Mapping[str, type] = {"string": str, "integer": int}


def _function(house: Skillhouse, tool: toolbox.Tool, agent: str) -> Callable[..., Any]:
    required = set(tool.schema["required"])
    signature = inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if name in required else shape.get("default"),
                annotation=_TYPES[shape["type"]],
            )
            for name, shape in tool.schema["properties"].items()
        ]
    )

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
            result = house.call_sync(tool.name, arguments, agent=agent)
        except (SkillhouseError, TypeError) as error:
            return str(error)
        data = {} if result.is_error else dict(result.data or {})
        return data.get("skills", data.get("paths", result.content))

    call.__name__ = call.__qualname__ = tool.name
    call.__doc__ = tool.description
    call.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
    # `inspect.signature` goes by it.
    vars(call)["__signature__"] = signature
    return call
