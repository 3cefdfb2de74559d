"""Who published a skill, and which skill it is said to be."""

from __future__ import annotations

from msgspec import Struct

from skillhouse.floor import SkillhouseError

KEYS_DIRECTORY = "publishers/keys"
"""Where the keys of publishers are in the directory of the state."""
TRUSTED_DIRECTORY = "publishers/trusted"
"""Where the roots, timestamp authorities and revocation lists are that are trusted."""
SIGNATURE_MAX = 2 * 1_024 * 1_024
"""Bytes of a signature: one over 1,000 files with long names has about 600 KiB."""


class PublisherError(SkillhouseError):
    """A signature is refused; `step` is the step of verification that refused it."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(f"{step}: {message}")
        self.step = step


class Publisher(Struct, frozen=True, kw_only=True):
    """Who signed a skill."""

    handle: str
    """As the certificate has it."""
    certificate: str
    """SHA-256 of the certificate, 64 hex digits."""
    signed_at: str = ""
    """ISO 8601."""
    registry: str = ""
    """Whose root certificate vouches for the publisher."""
    is_time_trusted: bool = False
    """A timestamp authority confirms `signed_at`; otherwise it is the signer's word."""
    signature_sha256: str = ""
    """Of the file `skill.sig`, 64 hex digits."""
    warnings: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()
    """The warnings about what vouches for it and ended, or soon does."""


class SkillIdentity(Struct, frozen=True, kw_only=True):
    """Which skill a signature is about."""

    name: str
    version: str = ""
    """Empty for a skill that names none."""
    repository: str = ""
    """The registry that it is published in."""
