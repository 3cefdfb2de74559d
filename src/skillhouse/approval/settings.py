"""The bounds of asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettings:
    """How long is waited, how much is asked, and how long a yes lasts."""

    wait_seconds: float = 60.0
    """How long a call waits where somebody was asked (seeds.md C25); silence is a no."""
    expires_seconds: int = 3_600
    """How long a question can be answered, and a yes be used, from when it was asked."""
    unattended: Literal["pending", "deny"] = "pending"
    """What happens when nobody can be asked here: the question stays open for the inbox and the
    command line, or the call waits `wait_seconds` and is refused."""
    reject_all: bool = False
    """Whether a no also answers the other open questions of that conversation (opencode)."""
    grant_days: int = 30
    """How long a lasting yes is kept (reference/security.md section 4.3)."""
    open_max: int = 100
    """Open questions of a house; further ones are refused (security.md section 6, item 69)."""
    user_open_max: int = 25
    """Open questions of one user."""
    user_rate: int = 60
    """Questions that one user's calls may ask in `RATE_SECONDS`."""
    webhook_url: str = ""
    """Where each question is sent as well: https, or http on this machine."""
    webhook_secret_env: str = ""
    """Variable of the process that holds the secret which signs what is sent there."""
    page_url: str = ""
    """Address of the page that `skillhouse up` serves, for a link in what is sent."""
    elicitation: bool = True
    """Whether the answer that an MCP client brings from its user counts (decision 0141)."""


RATE_SECONDS = 600
DENIAL_COOLDOWN_AFTER = 3
"""Noes in a row to one kind of call in a conversation, after which it is not asked about."""
DENIAL_COOLDOWN_SECONDS = 300
"""How long that lasts from the latest no; then a person is asked again, so nobody is locked out."""
KEPT_SECONDS = 30 * 86_400
"""How long closed questions are kept."""
CONTENT_SECONDS = 86_400
"""How long a closed question keeps the text of its call, which may hold secrets."""
KEPT_MAX = 5_000
"""Questions that are kept at most; the oldest closed ones go first."""
CLOCK_BACK_SECONDS = 300
"""How far the clock may have gone back since a question was asked (security.md section 4.3)."""
YES_SECONDS = 600
"""How long a yes can be used at least, however late it came."""
