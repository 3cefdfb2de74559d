"""Reads skills: bytes in, values and diagnostics out.

No file has the name of a public name: the module would replace it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.skill.archive import ARCHIVE_MAX as ARCHIVE_MAX
    from skillhouse.skill.archive import DEPTH_MAX as DEPTH_MAX
    from skillhouse.skill.archive import FILE_MAX as FILE_MAX
    from skillhouse.skill.archive import PATH_MAX as PATH_MAX
    from skillhouse.skill.archive import ArchiveError as ArchiveError
    from skillhouse.skill.archive import ArchiveMember as ArchiveMember
    from skillhouse.skill.archive import clash as clash
    from skillhouse.skill.archive import is_safe_name as is_safe_name
    from skillhouse.skill.archive import package_path as package_path
    from skillhouse.skill.archive import read_archive as read_archive
    from skillhouse.skill.archive import unpack as unpack
    from skillhouse.skill.archive import write_members as write_members
    from skillhouse.skill.body import ARGUMENTS_MAX as ARGUMENTS_MAX
    from skillhouse.skill.body import COMMANDS_MAX as COMMANDS_MAX
    from skillhouse.skill.body import BodyMentions as BodyMentions
    from skillhouse.skill.body import Mention as Mention
    from skillhouse.skill.body import PlaceholderSubstitution as PlaceholderSubstitution
    from skillhouse.skill.body import SubstitutionError as SubstitutionError
    from skillhouse.skill.body import UnjudgedBlock as UnjudgedBlock
    from skillhouse.skill.body import argument_names as argument_names
    from skillhouse.skill.body import find_commands as find_commands
    from skillhouse.skill.body import find_mentions as find_mentions
    from skillhouse.skill.body import plain_words as plain_words
    from skillhouse.skill.body import substitute as substitute
    from skillhouse.skill.content import RESOURCES_MAX as RESOURCES_MAX
    from skillhouse.skill.content import find_resources as find_resources
    from skillhouse.skill.content import followed_digest as followed_digest
    from skillhouse.skill.content import linked_files as linked_files
    from skillhouse.skill.content import list_resources as list_resources
    from skillhouse.skill.content import list_top as list_top
    from skillhouse.skill.content import load as load
    from skillhouse.skill.content import load_body as load_body
    from skillhouse.skill.content import load_listing as load_listing
    from skillhouse.skill.content import skill_links as skill_links
    from skillhouse.skill.hidden import HiddenText as HiddenText
    from skillhouse.skill.hidden import find_hidden as find_hidden
    from skillhouse.skill.hidden import handed_over as handed_over
    from skillhouse.skill.hidden import hidden_text as hidden_text
    from skillhouse.skill.hidden import is_demanded as is_demanded
    from skillhouse.skill.hidden import revealed as revealed
    from skillhouse.skill.invocation import Invocation as Invocation
    from skillhouse.skill.invocation import current_invocation as current_invocation
    from skillhouse.skill.invocation import described as described
    from skillhouse.skill.invocation import invocation_findings as invocation_findings
    from skillhouse.skill.invocation import read_invocation as read_invocation
    from skillhouse.skill.invocation import relative_file as relative_file
    from skillhouse.skill.manifest import JAVASCRIPT_FILE as JAVASCRIPT_FILE
    from skillhouse.skill.manifest import MANIFEST_FILES as MANIFEST_FILES
    from skillhouse.skill.manifest import MANIFEST_MAX as MANIFEST_MAX
    from skillhouse.skill.manifest import PYTHON_FILE as PYTHON_FILE
    from skillhouse.skill.manifest import ManifestCache as ManifestCache
    from skillhouse.skill.manifest import find_manifests as find_manifests
    from skillhouse.skill.manifest import has_manifest as has_manifest
    from skillhouse.skill.manifest import read_manifest as read_manifest
    from skillhouse.skill.manifest import says_skill as says_skill
    from skillhouse.skill.manifest_fields import python_fits as python_fits
    from skillhouse.skill.model import DEFAULT_POLICY as DEFAULT_POLICY
    from skillhouse.skill.model import SKILL_FILE as SKILL_FILE
    from skillhouse.skill.model import Frontmatter as Frontmatter
    from skillhouse.skill.model import IndexContent as IndexContent
    from skillhouse.skill.model import ManifestResult as ManifestResult
    from skillhouse.skill.model import ParsePolicy as ParsePolicy
    from skillhouse.skill.model import ParseResult as ParseResult
    from skillhouse.skill.model import Skill as Skill
    from skillhouse.skill.model import SkillContent as SkillContent
    from skillhouse.skill.model import SkillIndex as SkillIndex
    from skillhouse.skill.model import SkillLinks as SkillLinks
    from skillhouse.skill.model import SkillManifest as SkillManifest
    from skillhouse.skill.model import ToolSpec as ToolSpec
    from skillhouse.skill.model import UnvisitedDirectories as UnvisitedDirectories
    from skillhouse.skill.model import split_tools as split_tools
    from skillhouse.skill.model import tokens_of as tokens_of
    from skillhouse.skill.profile import DEFAULT_PROFILE as DEFAULT_PROFILE
    from skillhouse.skill.profile import CatalogRule as CatalogRule
    from skillhouse.skill.profile import Duplicates as Duplicates
    from skillhouse.skill.profile import Extensions as Extensions
    from skillhouse.skill.profile import Identity as Identity
    from skillhouse.skill.profile import Profile as Profile
    from skillhouse.skill.profile import RootRule as RootRule
    from skillhouse.skill.profile import ScopeRule as ScopeRule
    from skillhouse.skill.profile import Symlinks as Symlinks
    from skillhouse.skill.profile import ToolRule as ToolRule
    from skillhouse.skill.profile import WalkUp as WalkUp
    from skillhouse.skill.profile import load_profile as load_profile
    from skillhouse.skill.profile import profile_names as profile_names
    from skillhouse.skill.profile import read_profile as read_profile
    from skillhouse.skill.skill_file import HEAD_BYTES as HEAD_BYTES
    from skillhouse.skill.skill_file import Metadata as Metadata
    from skillhouse.skill.skill_file import parse as parse
    from skillhouse.skill.skill_file import read_metadata as read_metadata
    from skillhouse.skill.skill_file import skill_text as skill_text
    from skillhouse.skill.skill_file import typed_fields as typed_fields
    from skillhouse.skill.source import CAUSES as CAUSES
    from skillhouse.skill.source import HINTS as HINTS
    from skillhouse.skill.source import ONE_NAME as ONE_NAME
    from skillhouse.skill.source import SKILL_FILE_LARGE as SKILL_FILE_LARGE
    from skillhouse.skill.source import SKILL_FILE_MAX as SKILL_FILE_MAX
    from skillhouse.skill.source import Cause as Cause
    from skillhouse.skill.source import Finding as Finding
    from skillhouse.skill.source import install_name as install_name
    from skillhouse.skill.source import validate_name as validate_name
    from skillhouse.skill.text_repair import repaired_file as repaired_file
    from skillhouse.skill.text_repair import with_name as with_name
    from skillhouse.skill.validation import validate as validate
    from skillhouse.skill.yaml_events import core_value as core_value
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
