"""Runs the code of skills in the sandbox and exchanges JSON-RPC 2.0 messages with it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.extensions.cells.cell import CELL_LIMITS as CELL_LIMITS
    from skillhouse.extensions.cells.cell import Capabilities as Capabilities
    from skillhouse.extensions.cells.cell_probes import contained_test as contained_test
    from skillhouse.extensions.cells.cell_probes import installed as installed
    from skillhouse.extensions.cells.cell_probes import language_test as language_test
    from skillhouse.extensions.cells.cell_probes import self_test as self_test
    from skillhouse.extensions.cells.code_cache import MakeCaches as MakeCaches
    from skillhouse.extensions.cells.code_cache import make_caches as make_caches
    from skillhouse.extensions.cells.environment_locks import has_lock as has_lock
    from skillhouse.extensions.cells.environment_locks import locked_python as locked_python
    from skillhouse.extensions.cells.environments import Environment as Environment
    from skillhouse.extensions.cells.environments import EnvironmentRules as EnvironmentRules
    from skillhouse.extensions.cells.environments import check_installable as check_installable
    from skillhouse.extensions.cells.environments import prepare as prepare
    from skillhouse.extensions.cells.executor import Executor as Executor
    from skillhouse.extensions.cells.executor_pool import ExecutorPool as ExecutorPool
    from skillhouse.extensions.cells.executor_pool import Parcel as Parcel
    from skillhouse.extensions.cells.frames import own_frames as own_frames
    from skillhouse.extensions.cells.in_process import InProcessRunner as InProcessRunner
    from skillhouse.extensions.cells.installers import installer_variables as installer_variables
    from skillhouse.extensions.cells.rpc import FRAME_BYTES as FRAME_BYTES
    from skillhouse.extensions.cells.rpc import Method as Method
    from skillhouse.extensions.cells.rpc import respond as respond
    from skillhouse.extensions.cells.rpc_client import NoAnswerError as NoAnswerError
    from skillhouse.extensions.cells.rpc_client import RpcClient as RpcClient
    from skillhouse.extensions.cells.rpc_client import at_port as at_port
    from skillhouse.extensions.cells.rpc_http import RpcServer as RpcServer
    from skillhouse.extensions.cells.rpc_http import is_loopback as is_loopback
    from skillhouse.extensions.cells.rpc_tokens import FixedTokens as FixedTokens
    from skillhouse.extensions.cells.rpc_tokens import check_token as check_token
    from skillhouse.extensions.cells.served_call import ServedCall as ServedCall
    from skillhouse.extensions.cells.served_tools import DirectorySource as DirectorySource
    from skillhouse.extensions.cells.served_tools import ServedTool as ServedTool
    from skillhouse.extensions.cells.served_tools import SkillSource as SkillSource
    from skillhouse.extensions.cells.service import RemoteExecutor as RemoteExecutor
    from skillhouse.extensions.cells.service import RemoteHost as RemoteHost
    from skillhouse.extensions.cells.service import core_methods as core_methods
    from skillhouse.extensions.cells.service import executor_methods as executor_methods
    from skillhouse.extensions.cells.tls_files import TlsFiles as TlsFiles
    from skillhouse.extensions.cells.tls_files import TlsPaths as TlsPaths
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
