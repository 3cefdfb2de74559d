"""What callers need without loading the network: the methods of requests, and the error."""

from __future__ import annotations

from skillhouse.floor import SkillhouseError

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READING = frozenset({"GET", "HEAD"})
"""Methods of a rule that names none."""


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
