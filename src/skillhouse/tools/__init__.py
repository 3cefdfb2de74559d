"""Turns a tool call into an effect through one door.

The face loads each name when it is first used, because most commands of a house call no tool.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.tools.call import OUTPUT_MAX as OUTPUT_MAX
    from skillhouse.tools.call import TRANSACTION_PAGE as TRANSACTION_PAGE
    from skillhouse.tools.call import Output as Output
    from skillhouse.tools.call import Plan as Plan
    from skillhouse.tools.call import RefusedError as RefusedError
    from skillhouse.tools.call import Tool as Tool
    from skillhouse.tools.call import ToolCall as ToolCall
    from skillhouse.tools.call import ToolResult as ToolResult
    from skillhouse.tools.call import UnknownToolError as UnknownToolError
    from skillhouse.tools.command import ExecTool as ExecTool
    from skillhouse.tools.files import EditTool as EditTool
    from skillhouse.tools.files import ListTool as ListTool
    from skillhouse.tools.files import ReadTool as ReadTool
    from skillhouse.tools.files import WriteTool as WriteTool
    from skillhouse.tools.gate import Gate as Gate
    from skillhouse.tools.need import Need as Need
    from skillhouse.tools.portal import Portal as Portal
    from skillhouse.tools.session import Session as Session
    from skillhouse.tools.session import Sessions as Sessions
    from skillhouse.tools.sign import SignTool as SignTool
    from skillhouse.tools.skills import SearchTool as SearchTool
    from skillhouse.tools.skills import SkillTool as SkillTool
    from skillhouse.tools.web import FetchTool as FetchTool
    from skillhouse.tools.web import WebSearchTool as WebSearchTool
    from skillhouse.tools.workspace import Workspace as Workspace
else:
    import importlib

    _FILES = {
        "call": (
            "OUTPUT_MAX TRANSACTION_PAGE Output Plan RefusedError Tool ToolCall ToolResult "
            "UnknownToolError"
        ),
        "command": "ExecTool",
        "files": "EditTool ListTool ReadTool WriteTool",
        "gate": "Gate",
        "need": "Need",
        "portal": "Portal",
        "session": "Session Sessions",
        "sign": "SignTool",
        "skills": "SearchTool SkillTool",
        "web": "FetchTool WebSearchTool",
        "workspace": "Workspace",
    }
    _FILE_OF = {name: file for file, names in _FILES.items() for name in names.split()}
    __all__ = sorted(_FILE_OF)

    def __getattr__(name):
        file = _FILE_OF.get(name)
        if file is None:
            raise AttributeError(f"module `skillhouse.tools` has no attribute `{name}`")
        value = getattr(importlib.import_module(f"skillhouse.tools.{file}"), name)
        globals()[name] = value
        return value
