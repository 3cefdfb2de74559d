"""Runs code inside limits and speaks JSON-RPC 2.0 with it."""

from skillhouse.sandbox.cell import (
    CELL_LIMITS,
    TOOL_SECONDS,
    Capabilities,
    CellResult,
    CellSpec,
    HostCalls,
    wrap_failure,
    wrap_result,
)
from skillhouse.sandbox.errors import SandboxError, SandboxUnavailableError
from skillhouse.sandbox.executor import Executor
from skillhouse.sandbox.in_process import InProcessRunner
from skillhouse.sandbox.launcher import BubblewrapLauncher, Launcher, launcher_for
from skillhouse.sandbox.plans import plan_argv, plan_readable
from skillhouse.sandbox.profile import PROTECTED, SECRETS, Completed, Limits, SandboxProfile
from skillhouse.sandbox.rpc import FRAME_BYTES, RpcError
from skillhouse.sandbox.rpc_client import RemoteExecutor, RemoteHost, RpcClient
from skillhouse.sandbox.self_test import self_test
from skillhouse.sandbox.service import ServedTool, Shelf, core_methods, executor_methods
from skillhouse.sandbox.serving import Method, respond
from skillhouse.sandbox.status import Level, ProbeResult, SandboxStatus, detect

__all__ = [
    "CELL_LIMITS",
    "FRAME_BYTES",
    "PROTECTED",
    "SECRETS",
    "TOOL_SECONDS",
    "BubblewrapLauncher",
    "Capabilities",
    "CellResult",
    "CellSpec",
    "Completed",
    "Executor",
    "HostCalls",
    "InProcessRunner",
    "Launcher",
    "Level",
    "Limits",
    "Method",
    "ProbeResult",
    "RemoteExecutor",
    "RemoteHost",
    "RpcClient",
    "RpcError",
    "SandboxError",
    "SandboxProfile",
    "SandboxStatus",
    "SandboxUnavailableError",
    "ServedTool",
    "Shelf",
    "core_methods",
    "detect",
    "executor_methods",
    "launcher_for",
    "plan_argv",
    "plan_readable",
    "respond",
    "self_test",
    "wrap_failure",
    "wrap_result",
]
