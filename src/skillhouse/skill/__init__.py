"""Says what a skill is: bytes in, values and diagnostics out."""

from skillhouse.skill.content import RESOURCES_MAX, list_resources, load
from skillhouse.skill.head import HEAD_BYTES, read_metadata
from skillhouse.skill.index import IndexContent, SkillIndex
from skillhouse.skill.mentions import Mention, find_mentions, plain_words
from skillhouse.skill.model import (
    DEFAULT_POLICY,
    SKILL_FILE,
    Frontmatter,
    ParsePolicy,
    ParseResult,
    Skill,
    SkillContent,
    split_tools,
    tokens_of,
)
from skillhouse.skill.naming import validate_name
from skillhouse.skill.parse import Metadata, parse
from skillhouse.skill.profile import DEFAULT_PROFILE, Profile, ScopeRule, load_profile
from skillhouse.skill.source import SKILL_FILE_MAX, Finding
from skillhouse.skill.validate import validate

__all__ = [
    "DEFAULT_POLICY",
    "DEFAULT_PROFILE",
    "HEAD_BYTES",
    "RESOURCES_MAX",
    "SKILL_FILE",
    "SKILL_FILE_MAX",
    "Finding",
    "Frontmatter",
    "IndexContent",
    "Mention",
    "Metadata",
    "ParsePolicy",
    "ParseResult",
    "Profile",
    "ScopeRule",
    "Skill",
    "SkillContent",
    "SkillIndex",
    "find_mentions",
    "list_resources",
    "load",
    "load_profile",
    "parse",
    "plain_words",
    "read_metadata",
    "split_tools",
    "tokens_of",
    "validate",
    "validate_name",
]
