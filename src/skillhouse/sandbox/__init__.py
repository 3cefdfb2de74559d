"""Runs code inside limits."""

from skillhouse.sandbox.errors import SandboxError, SandboxUnavailableError
from skillhouse.sandbox.launcher import BubblewrapLauncher, Launcher, launcher_for
from skillhouse.sandbox.plans import plan_argv, plan_readable
from skillhouse.sandbox.profile import (
    PROTECTED,
    SECRETS,
    Completed,
    Limits,
    SandboxProfile,
    fits,
)
from skillhouse.sandbox.self_test import self_test
from skillhouse.sandbox.status import Level, ProbeResult, SandboxStatus, detect

__all__ = [
    "PROTECTED",
    "SECRETS",
    "BubblewrapLauncher",
    "Completed",
    "Launcher",
    "Level",
    "Limits",
    "ProbeResult",
    "SandboxError",
    "SandboxProfile",
    "SandboxStatus",
    "SandboxUnavailableError",
    "detect",
    "fits",
    "launcher_for",
    "plan_argv",
    "plan_readable",
    "self_test",
]
