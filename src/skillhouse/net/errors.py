"""What callers of this room meet when something does not go out, or nothing usable comes back."""

from __future__ import annotations

from skillhouse.floor import SkillhouseError


class NetError(SkillhouseError):
    """A request is refused, or its answer cannot be used; `code` says why.

    Refusals, before anything has left: "url-refused", "host-refused", "address-refused",
    "redirect-refused", "secret-refused", "request-refused". Failures: "resolve-failed",
    "connect-failed", "protocol-error", "too-large", "timeout", "encoding-unknown".
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def refused(self) -> bool:
        """Whether it was our decision, and not what the other side did."""
        return self.code.endswith("-refused")
