"""What a model is shown of a trusted project's skills: the texts that a person saw.

Every list for a model is made of `shown_skills`: catalogs, tools, prompts, resources, completions
and search. Loading a skill is another matter: what is new or changed is asked about there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from msgspec import Struct, field

from skillhouse.floor import DecodeError, Diagnostic, Severity, encode, shaped
from skillhouse.floor.regex import regex
from skillhouse.floor.structs import replace
from skillhouse.skill import ManifestResult, Skill, SkillIndex, SkillManifest, ToolSpec

PROJECT = "project"
"""The scope whose skills are shown by trust."""
NEW_TEXT = "New in this project: what it is for is shown after a person has looked at it."
"""In place of a description that no person has seen."""

NAME_MAX = 64
"""Characters of a name that is shown unseen (specification, "name")."""
_NAME = regex(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_WHO_STARTS = {"disable-model-invocation": "false", "user-invocable": "true"}
"""Fields of a frontmatter that say who may start a skill, each with its loosest value."""
_UNREAD = "a file of the project that no person has looked at, and that cannot be used"


class TrustedText(Struct, frozen=True, kw_only=True):
    """The text of one directory as it was when a person trusted the project."""

    name: str = ""
    """Empty where it has no SKILL.md, and tools alone."""
    description: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """The frontmatter."""
    tools: tuple[str, ...] = ()
    """What models are shown of each tool of its own, as `tool_text` writes it."""
    targets: tuple[str, ...] = ()
    """Real paths out of the project that links in it lead to."""

    @classmethod
    def of(cls, skill: Skill | None, tools: Iterable[str] = ()) -> Self:
        if skill is None:
            return cls(tools=tuple(tools))
        return cls(
            name=skill.name,
            description=skill.description,
            fields=dict(skill.frontmatter.fields),
            tools=tuple(tools),
        )

    def is_of(self, skill: Skill) -> bool:
        """Whether this is what the skill says now."""
        said = (self.name, self.description, dict(self.fields))
        return said == (skill.name, skill.description, dict(skill.frontmatter.fields))


def written(texts: Iterable[TrustedText]) -> str:
    """Return the texts of one directory, each as it was shown, as the state keeps them."""
    names = ("name", "description", "fields", "tools", "targets")
    parts = [{name: getattr(text, name) for name in names} for text in texts]
    return json.dumps(parts, sort_keys=True)


def texts_of(shown: str) -> tuple[TrustedText, ...]:
    """Return what `written` wrote; nothing for anything else."""
    try:
        return tuple(shaped(json.loads(shown), list[TrustedText])) if shown else ()
    except (ValueError, DecodeError, RecursionError):
        return ()


def tool_text(prefix: str, spec: ToolSpec) -> str:
    """Return everything that a model is shown of a tool, and its level."""
    parts = [prefix, spec.name, spec.description, spec.level, spec.parameters]
    if spec.returns is not None:
        # Without it, the text is that of earlier versions, and stays trusted.
        parts.append(spec.returns)
    return json.dumps(parts, sort_keys=True)


def code_text(tree_digest: str) -> str:
    """Return what is kept beside the tools' texts: the code that a person trusted."""
    return json.dumps(["code", tree_digest])


def tool_texts(manifest: SkillManifest) -> tuple[str, ...]:
    return tuple(tool_text(manifest.name, spec) for spec in manifest.tools)


def with_seen_tools(result: ManifestResult, texts: TrustedTexts) -> ManifestResult | None:
    """Return the manifest with the tools that a person saw as they are; None where none is.

    One that cannot be used has no tools: its findings say why.
    """
    manifest = result.manifest
    if manifest is None:
        return result
    seen = tuple(
        spec
        for spec in manifest.tools
        if texts.has_tool(result.directory, tool_text(manifest.name, spec))
    )
    if len(seen) == len(manifest.tools):
        return result
    unseen = [spec.name for spec in manifest.tools if spec not in seen]
    findings = tuple(
        Diagnostic(
            code="tool-unseen",
            severity=Severity.WARNING,
            message=f"`{name}` is new or changed since the project was trusted",
            path=result.directory,
            hint="look at it with `skillhouse trust`",
        )
        for name in unseen
    )
    if not seen:
        return None
    diagnostics = (*result.diagnostics, *findings)
    return replace(result, manifest=replace(manifest, tools=seen), diagnostics=diagnostics)


class TrustedTexts(Struct, frozen=True, kw_only=True):
    """The texts of one project, of it or of the work trees that share its trust."""

    project: str
    """Its real path."""
    texts: Mapping[str, tuple[TrustedText, ...]] = field(default_factory=dict)
    """By directory, relative to the project."""

    def of(self, directory: str | Path) -> tuple[TrustedText, ...]:
        return self.texts.get(relative_to(self.project, directory), ())

    def has_tool(self, directory: str | Path, text: str) -> bool:
        """Whether a person saw this of a tool of the directory."""
        return any(text in known.tools for known in self.of(directory))


def relative_to(project: str, directory: str | Path) -> str:
    """Return the real path of a directory as the trust has it, relative to the project's."""
    return os.path.relpath(os.path.realpath(directory), project)


class ShownSkills(Struct, frozen=True, kw_only=True):
    """The skills of one moment as models are shown them."""

    index: SkillIndex
    changed: tuple[Skill, ...] = ()
    """As they are now; models are shown their earlier text."""
    named: tuple[Skill, ...] = ()
    """New ones, of which models are shown the name alone."""
    withheld: tuple[Skill, ...] = ()
    """New ones of which models are shown nothing."""

    @property
    def waiting(self) -> tuple[Skill, ...]:
        """All that a person has not looked at as they are."""
        return (*self.changed, *self.named, *self.withheld)


def shown_skills(
    index: SkillIndex,
    texts: Callable[[], TrustedTexts],
    *,
    roots: Iterable[Path],
    scopes: Sequence[str],
) -> ShownSkills:
    """Return the skills with no text of a project that a person did not see.

    A changed skill has its earlier text. Of a new one only the name is shown, if it is of the
    specified alphabet, and only where it takes the place of no other skill: until a person looks
    at it, that one stays in force.

    Args:
        index: All that was found.
        texts: Gives what was seen of the project; asked only if it has skills.
        roots: Those of the project.
        scopes: Names of the scopes, strongest first.
    """
    every = [one for one in (*index.skills, *index.shadowed) if one.scope == PROJECT]
    # Without a skill of a project nothing of its trust is read.
    known = texts() if every else TrustedTexts(project="")
    seen = {skill.file: _as_seen(skill, known.of(os.path.dirname(skill.file))) for skill in every}
    current = {skill.file for skill in every if seen[skill.file] is skill}
    findings = _quoting_only(index.diagnostics, current, roots)
    if len(current) == len(every):
        return ShownSkills(index=_with(index, index.skills, findings))
    unseen = [skill for skill in index.skills if seen.get(skill.file, skill) is None]
    skills = [shown for skill in index.skills if (shown := seen.get(skill.file, skill))]
    skills = _merged(skills, _back_in_force(index.shadowed, seen, skills), scopes)
    files = {skill.file for skill in skills}
    changed = [one for one in every if one.file in files and one.file not in current]
    taken = {skill.name.casefold() for skill in skills}
    named, withheld = [], []
    for skill in unseen:
        if _is_plain(skill) and skill.name not in taken:
            taken.add(skill.name)
            named.append(skill)
        else:
            withheld.append(skill)
    skills = _merged(skills, map(_named_alone, named), scopes)
    return ShownSkills(
        index=_with(index, skills, findings),
        changed=tuple(changed),
        named=tuple(named),
        withheld=tuple(withheld),
    )


def _with(index: SkillIndex, skills: Iterable[Skill], findings: Iterable[Diagnostic]) -> SkillIndex:
    kept = tuple(skills)
    files = {skill.file for skill in kept}
    return SkillIndex(
        kept,
        shadowed=(one for one in index.shadowed if one.file not in files),
        diagnostics=findings,
        left_out=index.left_out,
        name_match=index.name_match,
        cache=index.cache,
    )


def is_plain_name(name: str) -> bool:
    """Whether a name is of the specified alphabet and length, so that it can say little.

    >>> is_plain_name("fill-forms"), is_plain_name("Run this first"), is_plain_name("a" * 65)
    (True, False, False)
    """
    return len(name) <= NAME_MAX and _NAME.fullmatch(name) is not None


def _is_plain(skill: Skill) -> bool:
    """Whether name and place, which lists can have, are plain."""
    place = os.path.relpath(os.path.dirname(skill.file), skill.root)
    # In the root itself it has no name of a place.
    parts = place.split(os.sep) if place != "." else ()
    return all(map(is_plain_name, (skill.name, *parts)))


def _as_seen(skill: Skill, texts: Sequence[TrustedText]) -> Skill | None:
    """Return the skill with a text that was seen of it, itself where that is its own."""
    if any(text.is_of(skill) for text in texts):
        return skill
    text = next((text for text in texts if text.name), None)
    if text is None:
        return None
    fields, now = dict(text.fields), skill.frontmatter.fields
    # INVARIANT: of what says who may start it the stricter holds, seen or not.
    for name, loosest in _WHO_STARTS.items():
        if name in now and str(fields.get(name, loosest)).strip().lower() == loosest:
            fields[name] = now[name]
    return replace(
        skill, name=text.name, description=text.description, packed_fields=encode(fields)
    )


def _named_alone(skill: Skill) -> Skill:
    now = skill.frontmatter.fields
    fields = {name: now[name] for name in _WHO_STARTS if name in now}
    return replace(
        skill,
        description=NEW_TEXT,
        packed_fields=encode({"name": skill.name, "description": NEW_TEXT, **fields}),
    )


def _back_in_force(
    shadowed: Iterable[Skill], seen: Mapping[str, Skill | None], skills: Iterable[Skill]
) -> list[Skill]:
    """Return what a name that no person saw keeps out of force: the first of each name."""
    taken = {skill.name for skill in skills}
    found = []
    for skill in shadowed:
        shown = seen.get(skill.file, skill)
        if shown is not None and shown.name not in taken:
            taken.add(shown.name)
            found.append(shown)
    return found


def _merged(skills: Iterable[Skill], more: Iterable[Skill], scopes: Sequence[str]) -> list[Skill]:
    """Return all skills, each of `more` behind those of its scope and of stronger ones."""
    ranks = {scope: rank for rank, scope in enumerate(scopes)}
    merged = list(skills)
    for skill in more:
        rank = ranks.get(skill.scope, len(ranks))
        before = [at for at, one in enumerate(merged) if ranks.get(one.scope, len(ranks)) <= rank]
        merged.insert(before[-1] + 1 if before else 0, skill)
    return merged


def _quoting_only(
    findings: Iterable[Diagnostic], current: Collection[str], roots: Iterable[Path]
) -> tuple[Diagnostic, ...]:
    """Return findings that quote no file of the project but those that were seen as they are."""
    below = tuple(f"{place}/" for root in roots for place in {str(root), os.path.realpath(root)})
    return tuple(
        replace(found, message=_UNREAD)
        if str(found.path).startswith(below) and str(found.path) not in current
        else found
        for found in findings
    )
