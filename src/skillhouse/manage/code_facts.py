"""What is known of skills with code without running any of it, for the verbs and the page."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from skillhouse import skill as skill_package
from skillhouse.floor import (
    Diagnostic,
    Severity,
    UnknownSkillError,
    WireNameError,
    fault_finding,
    isolated,
    nearest,
    wire_name,
)
from skillhouse.house.code_manifests import without_missing
from skillhouse.house.code_network import host_states
from skillhouse.house.find_skills import AbsentSkill, SkillState
from skillhouse.manage.skill_states import manifest_places
from skillhouse.permission import Effect, Permission
from skillhouse.skill import HINTS, SKILL_FILE

if TYPE_CHECKING:
    from skillhouse.approval import Level
    from skillhouse.house.house import Skillhouse
    from skillhouse.skill import ManifestResult, SkillManifest

LOCKS = {
    "python": ("uv.lock", "requirements.txt"),
    "javascript": ("package-lock.json", "npm-shrinkwrap.json"),
}
"""The files that say which packages exactly, by language."""


class CodeFacts(Struct, frozen=True, kw_only=True):
    """One skill with code, as its manifest and the configuration have it."""

    name: str
    """The prefix of its tools; the directory's name where the manifest cannot be used."""
    directory: Path
    scope: str
    manifest: SkillManifest | None
    """None where it cannot be used; `problems` say why."""
    levels: Mapping[str, Level]
    """The level of each tool, with the operator's least one."""
    env: Mapping[str, str]
    """Each declared variable: handed over, not set, or not named by the operator."""
    hosts: Mapping[str, str]
    """Each host that its code asks for: as what `[net]` grants it, or that it does not."""
    lock: str
    """The lock file; empty where there is none."""
    problems: tuple[Diagnostic, ...]
    """Why it, or a tool of it, cannot be used, and what else was found."""
    is_on: bool
    """Whether skills' code runs at all here."""

    @property
    def is_broken(self) -> bool:
        return any(one.severity is Severity.ERROR for one in self.problems)

    @property
    def id(self) -> str:
        """By which it is switched, where no SKILL.md is beside its code."""
        return f"{self.scope}:{self.name}"

    @property
    def is_alone(self) -> bool:
        """Whether no SKILL.md is beside it."""
        return not os.path.lexists(self.directory / SKILL_FILE)

    @property
    def language(self) -> str:
        """As people write it; empty where no manifest says it."""
        return LANGUAGES[self.manifest.language] if self.manifest else ""

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The full names of its tools."""
        tools = self.manifest.tools if self.manifest else ()
        return tuple(f"{self.name}:{tool.name}" for tool in tools)

    @property
    def wire_names(self) -> frozenset[str]:
        """The names of its tools in calls and records."""
        found = set()
        for tool in self.manifest.tools if self.manifest else ():
            # One that no wire takes is not offered, which `problems` say.
            with suppress(WireNameError):
                found.add(wire_name(self.name, tool.name))
        return frozenset(found)

    def tool_tokens(self) -> int:
        """Return the estimated tokens of its tools, which each request has."""
        tools = self.manifest.tools if self.manifest else ()
        parts = [
            (f"{self.name}__{tool.name}", tool.description, dict(tool.parameters)) for tool in tools
        ]
        return skill_package.tokens_of(json.dumps(parts, ensure_ascii=False)) if parts else 0

    def summary(self) -> str:
        """Return language and tools in one line."""
        if self.manifest is None:
            return "cannot be loaded"
        tools = ", ".join(f"{tool.name} ({self.levels[tool.name]})" for tool in self.manifest.tools)
        state = "" if self.is_on else "; off"
        return f"{LANGUAGES[self.manifest.language]}: {tools or 'no tools'}{state}"


LANGUAGES = {"python": "Python", "javascript": "JavaScript"}


def facts_at(house: Skillhouse, directory: Path, scope: str) -> CodeFacts | None:
    """Return the facts of a directory; None where no manifest says that it has tools."""
    return _facts(house, skill_package.read_manifest(directory), scope)


def offered_code(house: Skillhouse) -> tuple[CodeFacts, ...]:
    """Return the facts of all skills with code here, strongest root first; none where it is off."""
    if not house.runs_code:
        return ()
    every = (_facts(house, result, scope) for scope, result in house.snapshot.code)
    return tuple(one for one in every if one is not None)


def listed_code(house: Skillhouse) -> tuple[CodeFacts, ...]:
    """Return the facts of all skills with code; where code is off, of those without a SKILL.md.

    Those with one are listed as skills anyway, and a look at each of thousands takes time.
    """
    if house.runs_code:
        return offered_code(house)
    known = {os.path.dirname(s.file) for s in (*house.index.skills, *house.index.shadowed)}
    is_trusted: bool | None = None
    found = []
    for root in house.snapshot.roots:
        if "\0" in str(root.path):
            continue
        for place in manifest_places(os.path.realpath(root.path), known):
            if root.scope == "project" and is_trusted is None:
                is_trusted = house.is_project_trusted
            if root.scope != "project" or is_trusted:
                found.append(_facts(house, skill_package.read_manifest(Path(place)), root.scope))
    return tuple(one for one in found if one is not None)


def code_alone(
    house: Skillhouse, *, agent: str = "default"
) -> Iterator[tuple[CodeFacts, AbsentSkill | None]]:
    """Yield the skills of code without a SKILL.md, each with why agents have no tools of it."""
    taken: dict[str, CodeFacts] = {}
    waiting = _unseen(house)
    for facts in listed_code(house):
        stronger = taken.setdefault(facts.name, facts)
        if facts.is_alone:
            yield facts, _why_absent(house, facts, stronger, waiting, agent)


def _unseen(house: Skillhouse) -> set[Path]:
    """Return the directories of the project's code of which no person has seen the tools."""
    if not house.runs_code:
        return set()
    shown = {result.directory for _, result in house.snapshot.shown_code}
    return {result.directory for _, result in house.snapshot.code} - shown


def _why_absent(
    house: Skillhouse, facts: CodeFacts, stronger: CodeFacts, waiting: set[Path], agent: str
) -> AbsentSkill | None:
    settings = house.snapshot.settings
    wrong = [one for one in facts.problems if one.severity is Severity.ERROR]
    state: SkillState
    code = ""
    if wrong:
        state, reason, hint, code = "broken", wrong[0].message, wrong[0].hint, wrong[0].code
    elif not facts.is_on:
        state, reason = "code-off", "skills' code is off"
        hint = "set `enabled = true` below `[skill_code]`"
    elif stronger is not facts:
        state, hint = "shadowed", HINTS["shadowed"]
        reason = f"`{stronger.id}` at `{stronger.directory}` has its name and is used"
    elif not settings.is_enabled(facts.id):
        is_all = not settings.enable_skills
        state, reason = "disabled", "all skills are switched off" if is_all else "switched off"
        hint = "`skillhouse enable --all`" if is_all else f"`skillhouse enable {facts.id}`"
    elif denial := _denial(house, facts, agent):
        state, reason = "denied", denial
        hint = f"`skillhouse policy explain skill {facts.name}` shows the rules"
    elif facts.directory in waiting:
        state, hint = "unseen", "look at it with `skillhouse trust`"
        reason = "new since the project was trusted: agents are not shown it"
    else:
        return None
    return AbsentSkill(
        state=state,
        name=facts.name,
        path=str(facts.directory),
        reason=reason,
        hint=hint,
        id=facts.id,
        scope=facts.scope,
        code=code,
    )


def _denial(house: Skillhouse, facts: CodeFacts, agent: str) -> str:
    """Return why rules leave an agent no tools of it; empty where they do not."""
    wanted = Permission(action="skill", resource=facts.name)
    found = house.policy.explain(wanted, agent=agent, default=Effect.ALLOW)
    return found.reason if found.decision.effect is Effect.DENY else ""


def project_code(house: Skillhouse) -> tuple[CodeFacts, ...]:
    """Return those of the project, whether it is trusted or not, and whether code is on."""
    return _facts_below(house, [(place, "project") for place in house.snapshot.trust_roots])


def facts_named(house: Skillhouse, name: str) -> CodeFacts:
    """Return the facts of a skill by its name, id or directory, also where code is off.

    Raises:
        UnknownSkillError: there is none; it names the nearest.
    """
    is_trusted = house.is_project_trusted
    roots = [one for one in house.snapshot.roots if one.scope != "project" or is_trusted]
    found = _facts_below(house, [(root.path, root.scope) for root in roots])
    named = [one for one in found if name in (one.name, one.id, str(one.directory))]
    named += [one for one in found if one.directory.name == name]
    if named:
        return named[0]
    known = {one.name for one in found} | {skill.name for skill in house.index.skills}
    raise UnknownSkillError(name, nearest(name, known))


def _facts_below(house: Skillhouse, places: Iterable[tuple[Path, str]]) -> tuple[CodeFacts, ...]:
    """Return the facts of the skills below directories, each with its scope."""
    every = (
        _facts(house, result, scope)
        for place, scope in places
        if place.is_dir()
        for result in skill_package.find_manifests(place)
    )
    return tuple(one for one in every if one is not None)


def _facts(house: Skillhouse, result: ManifestResult, scope: str) -> CodeFacts | None:
    """Return the facts of one skill of many; one at which something went wrong has that alone."""
    with isolated() as failed:
        return _read_facts(house, result, scope)
    return CodeFacts(
        name=result.directory.name,
        directory=result.directory,
        scope=scope,
        manifest=None,
        levels={},
        env={},
        hosts={},
        lock="",
        problems=(*result.diagnostics, fault_finding(failed[0], result.directory)),
        is_on=house.services.skill_code.is_enabled,
    )


def _read_facts(house: Skillhouse, result: ManifestResult, scope: str) -> CodeFacts | None:
    code = house.services.skill_code
    result = without_missing(result, code.reloads.lacking()(result.directory))
    manifest = result.manifest
    if manifest is None and not result.diagnostics:
        return None
    if manifest is None and all(one.code == "manifest-missing" for one in result.diagnostics):
        return None
    levels: dict[str, Level] = {}
    env: dict[str, str] = {}
    hosts: dict[str, str] = {}
    lock = ""
    if manifest is not None:
        skill = code.configured(manifest, result.directory, scope)
        levels = {tool.name: skill.level_of(tool) for tool in manifest.tools}
        handed = code.handed(manifest)
        env = {name: _env_state(name, handed, skill.env) for name in manifest.env}
        hosts = host_states(manifest.hosts, house.config.net)
        places = (name for name in LOCKS[manifest.language])
        lock = next((name for name in places if (result.directory / name).is_file()), "")
    return CodeFacts(
        name=result.directory.name if manifest is None else manifest.name,
        directory=result.directory,
        scope=scope,
        manifest=manifest,
        levels=levels,
        env=env,
        hosts=hosts,
        lock=lock,
        problems=(*result.diagnostics, *_further(house, result, lock)),
        is_on=code.is_enabled,
    )


def _env_state(name: str, handed: Iterable[str], given: Mapping[str, str]) -> str:
    if name in given:
        return "handed over"
    return "not set" if name in handed else "not named below [skill_code] env"


def _further(house: Skillhouse, result: ManifestResult, lock: str) -> Iterable[Diagnostic]:
    """Yield what no manifest says: why the code did not load, and what keeps it from loading."""
    manifest = result.manifest
    if manifest is None:
        return
    if manifest.dependencies and not lock:
        wanted = " or ".join(LOCKS[manifest.language])
        yield Diagnostic(
            code="lock-missing",
            severity=Severity.WARNING,
            message=f"it has dependencies and no {wanted}, so nothing is installed",
            path=result.directory,
        )
    failure = house.services.skill_code.load_failure(result.directory)
    if failure:
        yield Diagnostic(
            code="code-not-loaded",
            severity=Severity.ERROR,
            message=f"its code did not load when it was last tried: {failure}",
            path=result.directory / manifest.entry,
        )
