"""Skills: as lists have them, whole, with code, in the trash, and as an editor shows a draft."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType, field

from skillhouse import skill as skill_package
from skillhouse.answers.findings import DiagnosticAnswer, diagnostic_answers
from skillhouse.answers.json_form import Count, JsonAnswer, copied
from skillhouse.floor import TreeError, tree_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skillhouse.house import AbsentSkill, SkillDefinition
    from skillhouse.house.trash import DeletedSkill
    from skillhouse.manage.code_facts import CodeFacts
    from skillhouse.skill import ParseResult, Skill, SkillContent, SkillManifest


class SkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    name: str
    description: str
    scope: str
    location: str
    directory: str
    uri: str


class ListedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill with its root, the clients that read that, and how a model hears of it."""

    flat_members = ("skill",)
    skill: SkillAnswer
    root: str
    clients: tuple[str, ...]
    listing: str
    warning: str
    """What of its signature ended, or soon does; empty for nothing."""


class ContentAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A loaded skill; what people do not see of its body is there as escapes."""

    flat_members = ("skill", "facts")
    skill: SkillAnswer
    body: str
    facts: ContentFactsAnswer


class ContentFactsAnswer(JsonAnswer, frozen=True, kw_only=True):
    hidden_text: str | None
    resources: tuple[str, ...]
    resources_omitted: Count
    resources_more: bool
    diagnostics: list[DiagnosticAnswer]


class CodeToolAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    full_name: str
    level: str
    description: str


class CodeManifestAnswer(JsonAnswer, frozen=True, kw_only=True):
    version: str
    description: str
    author: str
    license: str
    language: str
    entry: str
    tools: tuple[CodeToolAnswer, ...]
    env: dict[str, str]
    hosts: dict[str, str]
    """What is granted of each host that it asks for."""
    dependencies: tuple[str, ...]
    lock: str | None


class CodeFactsAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What is known of a skill's code; without the manifest where that cannot be read."""

    flat_members = ("manifest",)
    name: str
    directory: str
    scope: str
    enabled: bool
    problems: list[DiagnosticAnswer]
    manifest: CodeManifestAnswer | UnsetType = UNSET


class LibrarySkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill, or a file or place that is none, with its state and what it costs."""

    id: str
    name: str
    description: str
    scope: str
    path: str
    clients: tuple[str, ...]
    state: str
    listing: str
    reason: str
    hint: str | None
    mend: str | None
    code: str | None
    line: Count | None
    catalog_tokens: Count
    file_tokens: Count
    recent: Count | None
    language: str
    tools: tuple[str, ...]
    key: str
    """Unlike any other of the list, and the same as long as the file is at its place."""


class LibraryAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What a page of the library has besides its skills: how many are in each state, and of those
    in use how a model hears of them."""

    next: str | None
    states: dict[str, Count]
    listings: dict[str, Count]


class AbsentSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill, or a place of skills, that agents do not see or cannot load."""

    state: str
    name: str
    path: str
    reason: str
    hint: str
    line: Count | None
    id: str
    scope: str
    code: str
    mend: str
    """The name of `hint` before 0.2, which goes with 0.3."""


class DeletedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    key: str
    id: str
    path: str
    deleted: str
    enabled: bool
    real: str


class DraftAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The skill that a text would be."""

    name: str
    description: str
    allowed_tools: tuple[str, ...]
    fields: dict[str, Any]
    body: str
    hidden_text: str | None
    catalog_tokens: Count
    body_tokens: Count


class DefinitionFileAnswer(JsonAnswer, frozen=True, kw_only=True):
    name: str
    path: str
    type: str


class DefinitionAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill after a change (S004-82)."""

    id: str
    name: str
    description: str
    source: str
    path: str
    directory_path: str = field(name="directoryPath")
    enabled: bool
    instructions: str
    allowed_tools: tuple[str, ...] = field(name="allowedTools")
    files: tuple[DefinitionFileAnswer, ...]


class SourceAnswer(JsonAnswer, frozen=True, kw_only=True):
    text: str
    digest: str


class MarkupAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The markup of a text; null where it is too long."""

    markup: str | None


class PreviewAnswer(JsonAnswer, frozen=True, kw_only=True):
    preview: DraftAnswer | None


class RestoredSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    path: str


class RemovedSkillAnswer(JsonAnswer, frozen=True, kw_only=True):
    """A skill that went to the trash; `clients` are those that read it too."""

    id: str
    path: str
    scope: str
    clients: tuple[str, ...] | UnsetType = UNSET


class EmptiedTrashAnswer(JsonAnswer, frozen=True, kw_only=True):
    removed: list[str]


class SwitchedAnswer(JsonAnswer, frozen=True, kw_only=True):
    id: str
    enabled: bool


class OperationArgumentAnswer(JsonAnswer, frozen=True, kw_only=True):
    type: str
    required: bool


class OperationAnswer(JsonAnswer, frozen=True, kw_only=True):
    operation: str
    arguments: dict[str, OperationArgumentAnswer]


class OperationResultAnswer(JsonAnswer, frozen=True, kw_only=True):
    """What came of an operation, or why nothing did, in the words of the profile."""

    success: bool = True
    error: str | UnsetType = UNSET
    skills: list[DefinitionAnswer] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    skill: DefinitionAnswer | UnsetType = UNSET
    notice: str | UnsetType = UNSET


def skill_answer(skill: Skill) -> SkillAnswer:
    return SkillAnswer(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        scope=skill.scope,
        location=skill.file,
        directory=str(skill.directory),
        uri=skill.uri,
    )


def listed_skill(
    skill: Skill, clients: tuple[str, ...], listing: str, warnings: Mapping[str, str]
) -> ListedSkillAnswer:
    """Return a skill as lists have it; `warnings` are those of `manage.signature_warnings`."""
    return ListedSkillAnswer(
        skill=skill_answer(skill),
        root=skill.root,
        clients=clients,
        listing=listing,
        warning=warnings.get(os.path.realpath(skill.directory), "") if warnings else "",
    )


def content_answer(content: SkillContent) -> ContentAnswer:
    hidden = skill_package.hidden_text(content.text)
    return ContentAnswer(
        skill=skill_answer(content.skill),
        body=skill_package.revealed(content.body),
        facts=ContentFactsAnswer(
            hidden_text=None if hidden is None else hidden.summary,
            resources=tuple(content.resources),
            resources_omitted=content.resources_omitted,
            resources_more=content.resources_more,
            diagnostics=diagnostic_answers(content.diagnostics),
        ),
    )


def code_facts(facts: CodeFacts | None) -> CodeFactsAnswer | None:
    """Return the facts of a skill's code; None for a skill that has none."""
    if facts is None:
        return None
    return CodeFactsAnswer(
        name=facts.name,
        directory=str(facts.directory),
        scope=facts.scope,
        enabled=facts.is_on,
        problems=diagnostic_answers(facts.problems),
        manifest=UNSET if facts.manifest is None else _manifest(facts, facts.manifest),
    )


def _manifest(facts: CodeFacts, manifest: SkillManifest) -> CodeManifestAnswer:
    tools = (
        CodeToolAnswer(
            name=tool.name,
            full_name=f"{facts.name}:{tool.name}",
            level=facts.levels[tool.name],
            description=tool.description,
        )
        for tool in manifest.tools
    )
    return copied(
        CodeManifestAnswer,
        manifest,
        tools=tuple(tools),
        env=dict(facts.env),
        hosts=dict(facts.hosts),
        dependencies=tuple(manifest.dependencies),
        lock=facts.lock or None,
    )


def catalog_tokens(skill: Skill) -> int:
    return skill_package.tokens_of(f"{skill.name}{skill.description}")


def draft_answer(draft: ParseResult) -> DraftAnswer | None:
    """Return the skill that a text would be; None where it would be none."""
    skill = draft.skill
    if skill is None:
        return None
    hidden = skill_package.hidden_text(draft.text)
    return DraftAnswer(
        name=skill.name,
        description=skill.description,
        allowed_tools=tuple(skill.frontmatter.allowed_tools),
        fields=dict(skill.frontmatter.fields),
        body=skill_package.revealed(draft.body),
        hidden_text=None if hidden is None else hidden.summary,
        catalog_tokens=catalog_tokens(skill),
        body_tokens=skill_package.tokens_of(draft.body),
    )


def definition_answer(found: SkillDefinition) -> DefinitionAnswer:
    files = (
        DefinitionFileAnswer(name=file.name, path=file.path, type=file.type) for file in found.files
    )
    return copied(
        DefinitionAnswer, found, allowed_tools=tuple(found.allowed_tools), files=tuple(files)
    )


def digest_of(found: Skill | Path) -> str | None:
    """Return the digest of the files of a skill or directory; None where there is none to bind."""
    try:
        return (
            tree_digest(found) if isinstance(found, Path) else skill_package.followed_digest(found)
        )
    except TreeError:
        return None


def absent_skill(found: AbsentSkill) -> AbsentSkillAnswer:
    return AbsentSkillAnswer(**found._asdict(), mend=found.hint)


def deleted_skill(found: DeletedSkill) -> DeletedSkillAnswer:
    return copied(DeletedSkillAnswer, found)
