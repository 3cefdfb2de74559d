"""Errors of the sandbox."""

from __future__ import annotations

from skillhouse.floor import SkillhouseError


class SandboxError(SkillhouseError):
    """A run is refused, or bubblewrap did not start; `code` is the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SandboxUnavailableError(SkillhouseError):
    """No level of the sandbox works here, so no code is run (decision 10)."""

    def __init__(self, reasons: tuple[str, ...], hint: str) -> None:
        reason = "; ".join(reasons) or "no level passed its self-test"
        super().__init__(
            f"no usable sandbox: {reason}; {hint}" if hint else f"no sandbox: {reason}"
        )
        self.reasons = reasons
        self.hint = hint
