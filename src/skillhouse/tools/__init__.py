"""Turns a tool call into an effect: every call goes through the gate.

Each name is loaded when it is first used, because most commands of the program call no tool.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.tools.activation import ATTACHED_SKILL_TOKENS as ATTACHED_SKILL_TOKENS
    from skillhouse.tools.activation import ATTACHED_TOKENS as ATTACHED_TOKENS
    from skillhouse.tools.activation import Activation as Activation
    from skillhouse.tools.activation import Activations as Activations
    from skillhouse.tools.activation import Attachment as Attachment
    from skillhouse.tools.activation import LeftOut as LeftOut
    from skillhouse.tools.activation import tokens_of as tokens_of
    from skillhouse.tools.asker import Asker as Asker
    from skillhouse.tools.asset_tools import SKILL_FILE_TOOL as SKILL_FILE_TOOL
    from skillhouse.tools.asset_tools import SkillFileTool as SkillFileTool
    from skillhouse.tools.asset_tools import tool_about_skills as tool_about_skills
    from skillhouse.tools.assets import ASSET_MAX as ASSET_MAX
    from skillhouse.tools.assets import ASSETS_LISTED_MAX as ASSETS_LISTED_MAX
    from skillhouse.tools.assets import AssetError as AssetError
    from skillhouse.tools.assets import find_skill as find_skill
    from skillhouse.tools.assets import list_assets as list_assets
    from skillhouse.tools.assets import read_asset as read_asset
    from skillhouse.tools.assets import script_path as script_path
    from skillhouse.tools.background_runs import BACKGROUND_SECONDS as BACKGROUND_SECONDS
    from skillhouse.tools.background_runs import BackgroundRun as BackgroundRun
    from skillhouse.tools.background_runs import BackgroundRuns as BackgroundRuns
    from skillhouse.tools.background_runs import end_of as end_of
    from skillhouse.tools.background_tools import BackgroundAnswers as BackgroundAnswers
    from skillhouse.tools.background_tools import ExecOutputTool as ExecOutputTool
    from skillhouse.tools.background_tools import ExecStopTool as ExecStopTool
    from skillhouse.tools.call import HIDDEN_TEXT as HIDDEN_TEXT
    from skillhouse.tools.call import OUTPUT_MAX as OUTPUT_MAX
    from skillhouse.tools.call import PERSISTENCE as PERSISTENCE
    from skillhouse.tools.call import TRANSACTION_PAGE as TRANSACTION_PAGE
    from skillhouse.tools.call import UNBOUND as UNBOUND
    from skillhouse.tools.call import Caller as Caller
    from skillhouse.tools.call import CallerFields as CallerFields
    from skillhouse.tools.call import EvaluatedPermission as EvaluatedPermission
    from skillhouse.tools.call import Output as Output
    from skillhouse.tools.call import PermissionRequest as PermissionRequest
    from skillhouse.tools.call import Plan as Plan
    from skillhouse.tools.call import Progress as Progress
    from skillhouse.tools.call import ProgressHandler as ProgressHandler
    from skillhouse.tools.call import RedeemedApprovals as RedeemedApprovals
    from skillhouse.tools.call import RefusedError as RefusedError
    from skillhouse.tools.call import ReportProgress as ReportProgress
    from skillhouse.tools.call import ToolCall as ToolCall
    from skillhouse.tools.call import ToolNotOfferedError as ToolNotOfferedError
    from skillhouse.tools.call import ToolResult as ToolResult
    from skillhouse.tools.call import UnknownToolError as UnknownToolError
    from skillhouse.tools.call_context import Forecast as Forecast
    from skillhouse.tools.command import ExecTool as ExecTool
    from skillhouse.tools.command_network import NamedRequest as NamedRequest
    from skillhouse.tools.command_requests import shown_variables as shown_variables
    from skillhouse.tools.delivery import Delivery as Delivery
    from skillhouse.tools.files import EditTool as EditTool
    from skillhouse.tools.files import ListTool as ListTool
    from skillhouse.tools.files import ReadTool as ReadTool
    from skillhouse.tools.files import WriteTool as WriteTool
    from skillhouse.tools.function_schema import ToolDefinitionError as ToolDefinitionError
    from skillhouse.tools.function_tool import check_own_tools as check_own_tools
    from skillhouse.tools.gate import Gate as Gate
    from skillhouse.tools.gate import PermissionJudge as PermissionJudge
    from skillhouse.tools.invoke import INVOKE as INVOKE
    from skillhouse.tools.invoke import AttachTool as AttachTool
    from skillhouse.tools.invoke import InvokeTool as InvokeTool
    from skillhouse.tools.invoke import Menu as Menu
    from skillhouse.tools.invoke import RunCommand as RunCommand
    from skillhouse.tools.invoke import Way as Way
    from skillhouse.tools.memory import MemorySearchTool as MemorySearchTool
    from skillhouse.tools.memory import MemoryWriteTool as MemoryWriteTool
    from skillhouse.tools.messages import list_room as list_room
    from skillhouse.tools.messages import render as render
    from skillhouse.tools.native import NativeCall as NativeCall
    from skillhouse.tools.native import NativePlans as NativePlans
    from skillhouse.tools.native import NativeTool as NativeTool
    from skillhouse.tools.recorder import Recorder as Recorder
    from skillhouse.tools.remote_skills import SkillResourceTool as SkillResourceTool
    from skillhouse.tools.remote_skills import acts as acts
    from skillhouse.tools.result_files import RESULT_MAX as RESULT_MAX
    from skillhouse.tools.result_files import ResultFiles as ResultFiles
    from skillhouse.tools.seen_skills import SeenSkills as SeenSkills
    from skillhouse.tools.skill_code import CODE_ACTION as CODE_ACTION
    from skillhouse.tools.skill_code import Ask as Ask
    from skillhouse.tools.skill_code import CodeSkill as CodeSkill
    from skillhouse.tools.skill_code import Runner as Runner
    from skillhouse.tools.skill_code import SkillCodeTool as SkillCodeTool
    from skillhouse.tools.skill_code import cell_of as cell_of
    from skillhouse.tools.skill_text import caution_of as caution_of
    from skillhouse.tools.skill_text import one_line as one_line
    from skillhouse.tools.skill_text import render_content as render_content
    from skillhouse.tools.skill_text import result_data as result_data
    from skillhouse.tools.skills import VisibleSkills as VisibleSkills
    from skillhouse.tools.skills import bounded as bounded
    from skillhouse.tools.skills import found_values as found_values
    from skillhouse.tools.telemetry import CallTelemetry as CallTelemetry
    from skillhouse.tools.tier_gate import Background as Background
    from skillhouse.tools.tier_gate import Portal as Portal
    from skillhouse.tools.tier_gate import TierGate as TierGate
    from skillhouse.tools.tool import ForecastCache as ForecastCache
    from skillhouse.tools.tool import RemoteSkillProvider as RemoteSkillProvider
    from skillhouse.tools.tool import Session as Session
    from skillhouse.tools.tool import Sessions as Sessions
    from skillhouse.tools.tool import SkillCheck as SkillCheck
    from skillhouse.tools.tool import Tool as Tool
    from skillhouse.tools.tool_set import BUILTIN_TOOLS as BUILTIN_TOOLS
    from skillhouse.tools.tool_set import READ as READ
    from skillhouse.tools.tool_set import SKILL_RESOURCE as SKILL_RESOURCE
    from skillhouse.tools.tool_set import ProfileTool as ProfileTool
    from skillhouse.tools.tool_set import ToolMaker as ToolMaker
    from skillhouse.tools.tool_set import ToolNames as ToolNames
    from skillhouse.tools.tool_set import ToolSet as ToolSet
    from skillhouse.tools.tool_set import ToolVisibility as ToolVisibility
    from skillhouse.tools.tool_set import check_tool_lists as check_tool_lists
    from skillhouse.tools.web import FetchTool as FetchTool
    from skillhouse.tools.web import WebSearchTool as WebSearchTool
    from skillhouse.tools.workspace import Workspace as Workspace
    from skillhouse.tools.workspace_lock import WorkspaceBusyError as WorkspaceBusyError
    from skillhouse.tools.workspace_lock import WorkspaceLock as WorkspaceLock
    from skillhouse.tools.write_gate import WriteGate as WriteGate
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
