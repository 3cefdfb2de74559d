"""What several rooms guard alike: files, and actions of which a yes never lasts."""

from skillhouse.floor.secret_names import NEVER_WRITTEN

PROTECTED_NAMES = (
    # What git runs or is told by: on the host, the next `git status` would act on it. A
    # submodule's or linked worktree's own configuration lies below modules and worktrees.
    ".git/hooks",
    ".git/config",
    ".git/modules",
    ".git/worktrees",
    ".gitmodules",
    # What shells and tools read when they start (sandbox-runtime, "mandatory deny paths").
    ".bashrc",
    ".zshrc",
    ".profile",
    ".bash_profile",
    ".bash_login",
    ".zprofile",
    ".zshenv",
    ".gitconfig",
    ".ripgreprc",
    # What editors and agents take orders from.
    ".mcp.json",
    ".vscode",
    ".idea",
    ".claude",
    ".agents",
    ".skillhouse",
    ".codex",
    ".gemini",
    ".cursor",
    ".opencode",
    "skillhouse.toml",
    *NEVER_WRITTEN,
)
"""Paths below a workspace that no command changes or creates, whether or not they exist."""

ONE_TIME = frozenset({"shell", "exec-once"})
"""Actions that a person allows once, each time: no rule and no lasting yes allows one.
`shell` is a line that only a shell can run; `exec-once` a command that a rule with a wildcard
covers in words but not in meaning."""
