"""Runs code inside limits and speaks JSON-RPC 2.0 with it.

The face loads each name when it is first used, because most commands of a house run no code.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.sandbox.abandoned import kill_sandboxes as kill_sandboxes
    from skillhouse.sandbox.cell import CELL_LIMITS as CELL_LIMITS
    from skillhouse.sandbox.cell import TOOL_SECONDS as TOOL_SECONDS
    from skillhouse.sandbox.cell import Capabilities as Capabilities
    from skillhouse.sandbox.cell import CellResult as CellResult
    from skillhouse.sandbox.cell import CellSpec as CellSpec
    from skillhouse.sandbox.cell import HostCalls as HostCalls
    from skillhouse.sandbox.cell import wrap_failure as wrap_failure
    from skillhouse.sandbox.cell import wrap_result as wrap_result
    from skillhouse.sandbox.contained_testing import contained_test as contained_test
    from skillhouse.sandbox.directory_source import DirectorySource as DirectorySource
    from skillhouse.sandbox.environment_tools import installer_variables as installer_variables
    from skillhouse.sandbox.environments import Environment as Environment
    from skillhouse.sandbox.environments import EnvironmentRules as EnvironmentRules
    from skillhouse.sandbox.environments import prepare as prepare
    from skillhouse.sandbox.errors import SandboxError as SandboxError
    from skillhouse.sandbox.errors import SandboxUnavailableError as SandboxUnavailableError
    from skillhouse.sandbox.executor import Executor as Executor
    from skillhouse.sandbox.git_changes import GitChanges as GitChanges
    from skillhouse.sandbox.git_changes import find_git_changes as find_git_changes
    from skillhouse.sandbox.in_process import InProcessRunner as InProcessRunner
    from skillhouse.sandbox.launcher import BubblewrapLauncher as BubblewrapLauncher
    from skillhouse.sandbox.launcher import Launcher as Launcher
    from skillhouse.sandbox.launcher import launcher_for as launcher_for
    from skillhouse.sandbox.nested import covered_paths as covered_paths
    from skillhouse.sandbox.persistence import Opened as Opened
    from skillhouse.sandbox.plans import plan_argv as plan_argv
    from skillhouse.sandbox.plans import plan_readable as plan_readable
    from skillhouse.sandbox.profile import Completed as Completed
    from skillhouse.sandbox.profile import Limits as Limits
    from skillhouse.sandbox.profile import SandboxProfile as SandboxProfile
    from skillhouse.sandbox.profile import fits as fits
    from skillhouse.sandbox.rpc import FRAME_BYTES as FRAME_BYTES
    from skillhouse.sandbox.rpc import RpcError as RpcError
    from skillhouse.sandbox.rpc_client import NoAnswerError as NoAnswerError
    from skillhouse.sandbox.rpc_client import RemoteExecutor as RemoteExecutor
    from skillhouse.sandbox.rpc_client import RemoteHost as RemoteHost
    from skillhouse.sandbox.rpc_client import RpcClient as RpcClient
    from skillhouse.sandbox.rpc_server import RpcServer as RpcServer
    from skillhouse.sandbox.rpc_server import check_token as check_token
    from skillhouse.sandbox.rpc_server import is_loopback as is_loopback
    from skillhouse.sandbox.self_testing import self_test as self_test
    from skillhouse.sandbox.service import ServedCall as ServedCall
    from skillhouse.sandbox.service import ServedTool as ServedTool
    from skillhouse.sandbox.service import SkillSource as SkillSource
    from skillhouse.sandbox.service import core_methods as core_methods
    from skillhouse.sandbox.service import executor_methods as executor_methods
    from skillhouse.sandbox.serving import Method as Method
    from skillhouse.sandbox.serving import respond as respond
    from skillhouse.sandbox.status import Level as Level
    from skillhouse.sandbox.status import ProbeResult as ProbeResult
    from skillhouse.sandbox.status import SandboxStatus as SandboxStatus
    from skillhouse.sandbox.status import detect as detect
    from skillhouse.sandbox.survey import CoveredPaths as CoveredPaths
    from skillhouse.sandbox.survey import Survey as Survey
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
