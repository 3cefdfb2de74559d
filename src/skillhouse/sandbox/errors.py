"""What callers of the sandbox meet when something cannot be run inside limits."""

from __future__ import annotations

from skillhouse.floor import SkillhouseError


class SandboxError(SkillhouseError):
    """A run is refused, or bubblewrap did not come up; `code` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SandboxUnavailableError(SkillhouseError):
    """No level of the sandbox works here, so no code is run at all (decision 10)."""

    def __init__(self, reasons: tuple[str, ...], hint: str) -> None:
        said = "; ".join(reasons) or "no level passed its self-test"
        super().__init__(f"no usable sandbox: {said}; {hint}" if hint else f"no sandbox: {said}")
        self.reasons = reasons
        self.hint = hint
