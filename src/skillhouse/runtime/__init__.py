"""Builds a `Skillhouse` from its configuration."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.runtime.agent_view import AgentView as AgentView
    from skillhouse.runtime.agent_view import Invocable as Invocable
    from skillhouse.runtime.code_facts import CodeFacts as CodeFacts
    from skillhouse.runtime.code_facts import facts_at as facts_at
    from skillhouse.runtime.code_facts import facts_named as facts_named
    from skillhouse.runtime.code_facts import listed_code as listed_code
    from skillhouse.runtime.code_facts import offered_code as offered_code
    from skillhouse.runtime.code_facts import project_code as project_code
    from skillhouse.runtime.config import Config as Config
    from skillhouse.runtime.config import ExtensionSettings as ExtensionSettings
    from skillhouse.runtime.config import Locations as Locations
    from skillhouse.runtime.config import McpServerSettings as McpServerSettings
    from skillhouse.runtime.config import MemorySettings as MemorySettings
    from skillhouse.runtime.config import NetSettings as NetSettings
    from skillhouse.runtime.config import SecretSettings as SecretSettings
    from skillhouse.runtime.config import Settings as Settings
    from skillhouse.runtime.config import SkillCodeSettings as SkillCodeSettings
    from skillhouse.runtime.config import load_config as load_config
    from skillhouse.runtime.config.config_faults import UsableConfig as UsableConfig
    from skillhouse.runtime.config.config_faults import usable_config as usable_config
    from skillhouse.runtime.config.config_files import project_of as project_of
    from skillhouse.runtime.config.config_source import configured as configured
    from skillhouse.runtime.config.config_values import ProtectionSettings as ProtectionSettings
    from skillhouse.runtime.config.config_values import SignerSettings as SignerSettings
    from skillhouse.runtime.config.overrides import ConfigFields as ConfigFields
    from skillhouse.runtime.config_reload import ConfigNews as ConfigNews
    from skillhouse.runtime.conversation import Conversation as Conversation
    from skillhouse.runtime.conversation import agent_skills as agent_skills
    from skillhouse.runtime.enforcement import EnforcementServices as EnforcementServices
    from skillhouse.runtime.exported_copies import EXPORTED_COPY as EXPORTED_COPY
    from skillhouse.runtime.find_skills import AbsentSkill as AbsentSkill
    from skillhouse.runtime.house import Skillhouse as Skillhouse
    from skillhouse.runtime.house_snapshot import Difference as Difference
    from skillhouse.runtime.house_snapshot import HouseSnapshot as HouseSnapshot
    from skillhouse.runtime.management import Management as Management
    from skillhouse.runtime.management import SkillDefinition as SkillDefinition
    from skillhouse.runtime.management import SkillFile as SkillFile
    from skillhouse.runtime.management import file_kind as file_kind
    from skillhouse.runtime.network import Network as Network
    from skillhouse.runtime.own_files import audit_troubles as audit_troubles
    from skillhouse.runtime.own_files import file_troubles as file_troubles
    from skillhouse.runtime.policy import Explanation as Explanation
    from skillhouse.runtime.policy import Policy as Policy
    from skillhouse.runtime.prompts import Prompts as Prompts
    from skillhouse.runtime.rehearsal import JudgedLine as JudgedLine
    from skillhouse.runtime.rehearsal import MentionVerdict as MentionVerdict
    from skillhouse.runtime.rehearsal import ReadCommand as ReadCommand
    from skillhouse.runtime.rehearsal import Rehearsal as Rehearsal
    from skillhouse.runtime.rehearsal import explain_loading as explain_loading
    from skillhouse.runtime.rehearsal import export_source as export_source
    from skillhouse.runtime.rehearsal import judged_line as judged_line
    from skillhouse.runtime.rehearsal import read_skill_file as read_skill_file
    from skillhouse.runtime.rehearsal import rehearse as rehearse
    from skillhouse.runtime.remotes import Remotes as Remotes
    from skillhouse.runtime.remotes import RemoteState as RemoteState
    from skillhouse.runtime.remotes import Synced as Synced
    from skillhouse.runtime.rule_editor import add_rule as add_rule
    from skillhouse.runtime.rule_editor import checked_addition as checked_addition
    from skillhouse.runtime.rule_editor import rule_text as rule_text
    from skillhouse.runtime.services import Caller as Caller
    from skillhouse.runtime.services import CallerFields as CallerFields
    from skillhouse.runtime.services import Services as Services
    from skillhouse.runtime.settings import SettingsStore as SettingsStore
    from skillhouse.runtime.settings import SkillSettings as SkillSettings
    from skillhouse.runtime.skill_states import STATES as STATES
    from skillhouse.runtime.skill_states import absent_skills as absent_skills
    from skillhouse.runtime.skill_states import find_skill as find_skill
    from skillhouse.runtime.skill_states import may_hold_code as may_hold_code
    from skillhouse.runtime.skill_states import state_of as state_of
    from skillhouse.runtime.skills_manager import SkillsManager as SkillsManager
    from skillhouse.runtime.skills_manager import register_tools as register_tools
    from skillhouse.runtime.starting_policies import POLICY_NAMES as POLICY_NAMES
    from skillhouse.runtime.starting_policies import add_policy as add_policy
    from skillhouse.runtime.starting_policies import check_can_add as check_can_add
    from skillhouse.runtime.starting_policies import policy_text as policy_text
    from skillhouse.runtime.starting_policies import starting_rules as starting_rules
    from skillhouse.runtime.trust import TrustedSkill as TrustedSkill
    from skillhouse.runtime.trust import TrustReport as TrustReport
    from skillhouse.runtime.trust import TrustStore as TrustStore
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
