"""skillhouse: finds the skills of an AI agent, runs them under a policy, and records what they do.

Every public name is loaded from its package when it is first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.approval import Answer as Answer
    from skillhouse.approval import Approval as Approval
    from skillhouse.approval import ApprovalBroker as ApprovalBroker
    from skillhouse.approval import ApprovalError as ApprovalError
    from skillhouse.approval import ApprovalRequest as ApprovalRequest
    from skillhouse.approval import ApprovalSettings as ApprovalSettings
    from skillhouse.approval import ApprovalState as ApprovalState
    from skillhouse.approval import Asked as Asked
    from skillhouse.approval import Channel as Channel
    from skillhouse.approval import Pattern as Pattern
    from skillhouse.approval import Reply as Reply
    from skillhouse.approval import Unattended as Unattended
    from skillhouse.audit import AuditEntry as AuditEntry
    from skillhouse.audit import AuditLog as AuditLog
    from skillhouse.audit import AuditRecord as AuditRecord
    from skillhouse.audit import StateHead as StateHead
    from skillhouse.audit import Verification as Verification
    from skillhouse.audit import read_records as read_records
    from skillhouse.audit import verify_log as verify_log
    from skillhouse.discovery import Catalog as Catalog
    from skillhouse.discovery import Root as Root
    from skillhouse.discovery import discover as discover
    from skillhouse.discovery import render_catalog as render_catalog
    from skillhouse.floor import AmbiguousSkillError as AmbiguousSkillError
    from skillhouse.floor import ConfigError as ConfigError
    from skillhouse.floor import Diagnostic as Diagnostic
    from skillhouse.floor import Digest as Digest
    from skillhouse.floor import Locations as Locations
    from skillhouse.floor import PathError as PathError
    from skillhouse.floor import Severity as Severity
    from skillhouse.floor import SkillError as SkillError
    from skillhouse.floor import SkillhouseError as SkillhouseError
    from skillhouse.floor import StateError as StateError
    from skillhouse.floor import UnknownSkillError as UnknownSkillError
    from skillhouse.floor import confine as confine
    from skillhouse.floor import digest as digest
    from skillhouse.floor import open_beneath as open_beneath
    from skillhouse.floor import tree_digest as tree_digest
    from skillhouse.floor import wire_name as wire_name
    from skillhouse.house import Caller as Caller
    from skillhouse.house import CallerFields as CallerFields
    from skillhouse.house import Config as Config
    from skillhouse.house import ConfigFields as ConfigFields
    from skillhouse.house import Conversation as Conversation
    from skillhouse.house import Difference as Difference
    from skillhouse.house import ExtensionSettings as ExtensionSettings
    from skillhouse.house import Invocable as Invocable
    from skillhouse.house import McpServerSettings as McpServerSettings
    from skillhouse.house import MemorySettings as MemorySettings
    from skillhouse.house import ModelTools as ModelTools
    from skillhouse.house import NetSettings as NetSettings
    from skillhouse.house import ProtectionSettings as ProtectionSettings
    from skillhouse.house import SandboxSettings as SandboxSettings
    from skillhouse.house import SearchSettings as SearchSettings
    from skillhouse.house import SecretSettings as SecretSettings
    from skillhouse.house import SignerSettings as SignerSettings
    from skillhouse.house import SkillCodeSettings as SkillCodeSettings
    from skillhouse.house import Skillhouse as Skillhouse
    from skillhouse.permission import CommandPlan as CommandPlan
    from skillhouse.permission import CommandVerdict as CommandVerdict
    from skillhouse.permission import Decision as Decision
    from skillhouse.permission import Dialect as Dialect
    from skillhouse.permission import Effect as Effect
    from skillhouse.permission import JudgedCommand as JudgedCommand
    from skillhouse.permission import Layer as Layer
    from skillhouse.permission import Permission as Permission
    from skillhouse.permission import Rule as Rule
    from skillhouse.permission import decide as decide
    from skillhouse.permission import judge_command as judge_command
    from skillhouse.remote import RemoteSource as RemoteSource
    from skillhouse.retrieval import Hit as Hit
    from skillhouse.retrieval import SearchIndex as SearchIndex
    from skillhouse.retrieval import search as search
    from skillhouse.sandbox import Limits as Limits
    from skillhouse.sandbox import SandboxProfile as SandboxProfile
    from skillhouse.sandbox import SandboxUnavailableError as SandboxUnavailableError
    from skillhouse.skill import Frontmatter as Frontmatter
    from skillhouse.skill import ParsePolicy as ParsePolicy
    from skillhouse.skill import ParseResult as ParseResult
    from skillhouse.skill import Profile as Profile
    from skillhouse.skill import Skill as Skill
    from skillhouse.skill import SkillContent as SkillContent
    from skillhouse.skill import SkillIndex as SkillIndex
    from skillhouse.skill import load as load
    from skillhouse.skill import parse as parse
    from skillhouse.skill import validate as validate
    from skillhouse.skill import validate_name as validate_name
    from skillhouse.tools import EvaluatedPermission as EvaluatedPermission
    from skillhouse.tools import Forecast as Forecast
    from skillhouse.tools import FunctionTool as FunctionTool
    from skillhouse.tools import Gate as Gate
    from skillhouse.tools import Output as Output
    from skillhouse.tools import PermissionRequest as PermissionRequest
    from skillhouse.tools import Plan as Plan
    from skillhouse.tools import Progress as Progress
    from skillhouse.tools import ProgressHandler as ProgressHandler
    from skillhouse.tools import ReportProgress as ReportProgress
    from skillhouse.tools import Session as Session
    from skillhouse.tools import Tool as Tool
    from skillhouse.tools import ToolCall as ToolCall
    from skillhouse.tools import ToolDefinitionError as ToolDefinitionError
    from skillhouse.tools import ToolNotOfferedError as ToolNotOfferedError
    from skillhouse.tools import ToolResult as ToolResult
    from skillhouse.tools import UnknownToolError as UnknownToolError
    from skillhouse.tools import WriteGate as WriteGate
    from skillhouse.tools.function_tool import tool as tool
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)

    def __dir__():
        return [*__all__, "__version__"]


__version__ = "0.1.0"
