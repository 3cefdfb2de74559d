"""What several rooms guard alike: files, and actions of which a yes never lasts."""

SECRET_NAMES = (
    ".env",
    ".env.*",
    ".ssh",
    ".gnupg",
    ".npmrc",
    ".netrc",
    "*.pem",
    "*.key",
    # The names that ssh-keygen gives, their copies, and any other without an ending: `id_map.py`
    # is a program.
    "id_*",
    "id_rsa.*",
    "id_dsa.*",
    "id_ecdsa.*",
    "id_ed25519.*",
)
"""Names of files that hold secrets: no run may read them; the sandbox's `fits` says what `*` is."""

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
    *SECRET_NAMES,
)
"""Paths below a workspace that no command changes or creates, whether or not they exist."""

ONE_TIME = frozenset({"shell", "exec-once"})
"""Actions that a person allows once, each time: no rule and no lasting yes allows one.
`shell` is a line that only a shell can run; `exec-once` a command that a rule with a wildcard
covers in words but not in meaning."""
