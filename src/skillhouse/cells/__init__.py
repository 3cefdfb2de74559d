"""Runs the code of skills in the sandbox and exchanges JSON-RPC 2.0 messages with it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.cells.cell import CELL_LIMITS as CELL_LIMITS
    from skillhouse.cells.cell import Capabilities as Capabilities
    from skillhouse.cells.cell_probes import contained_test as contained_test
    from skillhouse.cells.cell_probes import installed as installed
    from skillhouse.cells.cell_probes import language_test as language_test
    from skillhouse.cells.cell_probes import self_test as self_test
    from skillhouse.cells.code_cache import MakeCaches as MakeCaches
    from skillhouse.cells.code_cache import make_caches as make_caches
    from skillhouse.cells.environment_locks import has_lock as has_lock
    from skillhouse.cells.environment_locks import locked_python as locked_python
    from skillhouse.cells.environments import Environment as Environment
    from skillhouse.cells.environments import EnvironmentRules as EnvironmentRules
    from skillhouse.cells.environments import check_installable as check_installable
    from skillhouse.cells.environments import prepare as prepare
    from skillhouse.cells.executor import Executor as Executor
    from skillhouse.cells.frames import own_frames as own_frames
    from skillhouse.cells.in_process import InProcessRunner as InProcessRunner
    from skillhouse.cells.installers import installer_variables as installer_variables
    from skillhouse.cells.rpc import FRAME_BYTES as FRAME_BYTES
    from skillhouse.cells.rpc import Method as Method
    from skillhouse.cells.rpc import respond as respond
    from skillhouse.cells.rpc_http import NoAnswerError as NoAnswerError
    from skillhouse.cells.rpc_http import RpcClient as RpcClient
    from skillhouse.cells.rpc_http import RpcServer as RpcServer
    from skillhouse.cells.rpc_http import check_token as check_token
    from skillhouse.cells.rpc_http import is_loopback as is_loopback
    from skillhouse.cells.served_call import ServedCall as ServedCall
    from skillhouse.cells.service import DirectorySource as DirectorySource
    from skillhouse.cells.service import RemoteExecutor as RemoteExecutor
    from skillhouse.cells.service import RemoteHost as RemoteHost
    from skillhouse.cells.service import ServedTool as ServedTool
    from skillhouse.cells.service import SkillSource as SkillSource
    from skillhouse.cells.service import core_methods as core_methods
    from skillhouse.cells.service import executor_methods as executor_methods
    from skillhouse.cells.uv_lock import LockRules as LockRules
    from skillhouse.cells.uv_lock import uv_requirements as uv_requirements
    from skillhouse.sandbox.code_call import TOOL_SECONDS as TOOL_SECONDS
    from skillhouse.sandbox.code_call import CellResult as CellResult
    from skillhouse.sandbox.code_call import CellSpec as CellSpec
    from skillhouse.sandbox.code_call import CodeFrame as CodeFrame
    from skillhouse.sandbox.code_call import HostCalls as HostCalls
    from skillhouse.sandbox.code_call import Language as Language
    from skillhouse.sandbox.code_call import RpcError as RpcError
    from skillhouse.sandbox.code_call import wrap_failure as wrap_failure
    from skillhouse.sandbox.code_call import wrap_result as wrap_result
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
