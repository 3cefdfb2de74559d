"""Builds a `Skillhouse` from its configuration."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.house.access_tokens import BROWSER_DAYS as BROWSER_DAYS
    from skillhouse.house.access_tokens import NO_ACCESS as NO_ACCESS
    from skillhouse.house.access_tokens import TOKEN_DAYS as TOKEN_DAYS
    from skillhouse.house.access_tokens import Access as Access
    from skillhouse.house.access_tokens import AccessScope as AccessScope
    from skillhouse.house.access_tokens import AccessTokens as AccessTokens
    from skillhouse.house.agent_view import AgentView as AgentView
    from skillhouse.house.agent_view import Invocable as Invocable
    from skillhouse.house.call_keys import CallKeys as CallKeys
    from skillhouse.house.config import Config as Config
    from skillhouse.house.config import ExtensionSettings as ExtensionSettings
    from skillhouse.house.config import Locations as Locations
    from skillhouse.house.config import McpServerSettings as McpServerSettings
    from skillhouse.house.config import MemorySettings as MemorySettings
    from skillhouse.house.config import NetSettings as NetSettings
    from skillhouse.house.config import SandboxSettings as SandboxSettings
    from skillhouse.house.config import SearchSettings as SearchSettings
    from skillhouse.house.config import SecretSettings as SecretSettings
    from skillhouse.house.config import Settings as Settings
    from skillhouse.house.config import SkillCodeSettings as SkillCodeSettings
    from skillhouse.house.config import load_config as load_config
    from skillhouse.house.config.config_faults import UsableConfig as UsableConfig
    from skillhouse.house.config.config_faults import usable_config as usable_config
    from skillhouse.house.config.config_files import configured as configured
    from skillhouse.house.config.config_files import project_of as project_of
    from skillhouse.house.config.config_keywords import ConfigFields as ConfigFields
    from skillhouse.house.config.config_values import ProtectionSettings as ProtectionSettings
    from skillhouse.house.config.config_values import SignerSettings as SignerSettings
    from skillhouse.house.config.rule_tables import POLICY_NAMES as POLICY_NAMES
    from skillhouse.house.config.rule_tables import POLICY_SUMMARIES as POLICY_SUMMARIES
    from skillhouse.house.config.rule_tables import policy_text as policy_text
    from skillhouse.house.config.rule_tables import starting_rules as starting_rules
    from skillhouse.house.config_reload import ConfigNews as ConfigNews
    from skillhouse.house.container import token_at as token_at
    from skillhouse.house.conversation import Conversation as Conversation
    from skillhouse.house.conversation import agent_skills as agent_skills
    from skillhouse.house.enforcement import EnforcementServices as EnforcementServices
    from skillhouse.house.exported_copies import EXPORTED_COPY as EXPORTED_COPY
    from skillhouse.house.find_skills import AbsentSkill as AbsentSkill
    from skillhouse.house.house import Skillhouse as Skillhouse
    from skillhouse.house.house_snapshot import Difference as Difference
    from skillhouse.house.house_snapshot import HouseSnapshot as HouseSnapshot
    from skillhouse.house.installed_check import InstalledCheck as InstalledCheck
    from skillhouse.house.installed_check import InstalledState as InstalledState
    from skillhouse.house.management import Management as Management
    from skillhouse.house.management import SkillDefinition as SkillDefinition
    from skillhouse.house.management import SkillFile as SkillFile
    from skillhouse.house.management import file_kind as file_kind
    from skillhouse.house.management import open_on_desktop as open_on_desktop
    from skillhouse.house.model_tools import ModelTools as ModelTools
    from skillhouse.house.model_tools import ShownTool as ShownTool
    from skillhouse.house.network import Network as Network
    from skillhouse.house.own_files import audit_troubles as audit_troubles
    from skillhouse.house.own_files import file_troubles as file_troubles
    from skillhouse.house.person_tools import ToolReport as ToolReport
    from skillhouse.house.person_tools import tool_report as tool_report
    from skillhouse.house.policy import Explanation as Explanation
    from skillhouse.house.prompts import Prompts as Prompts
    from skillhouse.house.rehearsal import JudgedLine as JudgedLine
    from skillhouse.house.rehearsal import MentionVerdict as MentionVerdict
    from skillhouse.house.rehearsal import ReadCommand as ReadCommand
    from skillhouse.house.rehearsal import Rehearsal as Rehearsal
    from skillhouse.house.rehearsal import explain_loading as explain_loading
    from skillhouse.house.rehearsal import export_source as export_source
    from skillhouse.house.rehearsal import judged_line as judged_line
    from skillhouse.house.rehearsal import loading_effects as loading_effects
    from skillhouse.house.rehearsal import read_skill_file as read_skill_file
    from skillhouse.house.rehearsal import rehearse as rehearse
    from skillhouse.house.remote_skills import check_for_person as check_for_person
    from skillhouse.house.remotes import RemoteState as RemoteState
    from skillhouse.house.remotes import Synced as Synced
    from skillhouse.house.settings import SettingsStore as SettingsStore
    from skillhouse.house.settings import SkillSettings as SkillSettings
    from skillhouse.house.trust import TrustReport as TrustReport
    from skillhouse.house.trust import TrustStore as TrustStore
    from skillhouse.tools import Caller as Caller
    from skillhouse.tools import CallerFields as CallerFields
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
