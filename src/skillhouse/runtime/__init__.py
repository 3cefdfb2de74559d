"""Builds one house from one configuration."""

from skillhouse.runtime.agent_file import agent_skills
from skillhouse.runtime.agent_view import AgentView
from skillhouse.runtime.caller import Caller
from skillhouse.runtime.config import (
    Config,
    ExtensionSettings,
    Locations,
    MemorySettings,
    NetSettings,
    SecretSettings,
    Settings,
    SkillCodeSettings,
    load_config,
)
from skillhouse.runtime.config.resolve import configured
from skillhouse.runtime.conversation import Conversation
from skillhouse.runtime.definition import SkillDefinition, SkillFile, file_kind
from skillhouse.runtime.enforcement import EnforcementServices
from skillhouse.runtime.health import audit_troubles, file_troubles
from skillhouse.runtime.house import Skillhouse
from skillhouse.runtime.house_snapshot import Difference, HouseSnapshot
from skillhouse.runtime.management import Management
from skillhouse.runtime.mcp_skills import McpServerSettings
from skillhouse.runtime.menu import Invocable
from skillhouse.runtime.network import Network
from skillhouse.runtime.policy import Explanation, Policy
from skillhouse.runtime.prompts import Prompts
from skillhouse.runtime.rehearsal import (
    JudgedLine,
    MentionVerdict,
    Rehearsal,
    judged_line,
    rehearse,
)
from skillhouse.runtime.remotes import Remotes, RemoteState, Synced
from skillhouse.runtime.services import Services
from skillhouse.runtime.settings import SettingsStore, SkillSettings
from skillhouse.runtime.skill_access import explain_loading, read_skill_file
from skillhouse.runtime.skills_manager import SkillsManager, register_tools
from skillhouse.runtime.trust import TrustedSkill, TrustReport, TrustStore

__all__ = [
    "AgentView",
    "Caller",
    "Config",
    "Conversation",
    "Difference",
    "EnforcementServices",
    "Explanation",
    "ExtensionSettings",
    "HouseSnapshot",
    "Invocable",
    "JudgedLine",
    "Locations",
    "Management",
    "McpServerSettings",
    "MemorySettings",
    "MentionVerdict",
    "NetSettings",
    "Network",
    "Policy",
    "Prompts",
    "Rehearsal",
    "RemoteState",
    "Remotes",
    "SecretSettings",
    "Services",
    "Settings",
    "SettingsStore",
    "SkillCodeSettings",
    "SkillDefinition",
    "SkillFile",
    "SkillSettings",
    "Skillhouse",
    "SkillsManager",
    "Synced",
    "TrustReport",
    "TrustStore",
    "TrustedSkill",
    "agent_skills",
    "audit_troubles",
    "configured",
    "explain_loading",
    "file_kind",
    "file_troubles",
    "judged_line",
    "load_config",
    "read_skill_file",
    "register_tools",
    "rehearse",
]
