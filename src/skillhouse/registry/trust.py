"""Says who published a skill; everything that installs asks here, and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from skillhouse.floor import SIGNATURE_FILE, SkillhouseError, Tree, dataclass


class PublisherError(SkillhouseError):
    """A signature is refused; `step` is the step of verification that refused it."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(f"{step}: {message}")
        self.step = step


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Who signed a skill."""

    handle: str
    """As the certificate has it."""
    certificate: str
    """SHA-256 of the certificate, 64 hex digits."""
    signed_at: str = ""
    """ISO 8601."""


def publisher_of(directory: Path, tree: Tree) -> Publisher | None:
    """Return who signed the skill in `directory`, or None for an unsigned one.

    Args:
        tree: The files that were read there, without the signature.

    Raises:
        PublisherError: there is a signature, and it is not accepted.
    """
    signature = directory / SIGNATURE_FILE
    if not os.path.lexists(signature):
        return None
    # INVARIANT: a signature that is not checked never passes for one that is, nor for none.
    message = f"a signature cannot be checked yet, over {len(tree.files)} files"
    raise PublisherError("signature", message)
