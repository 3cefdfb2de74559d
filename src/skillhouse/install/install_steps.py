"""Names the step of an install that refused a skill."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from skillhouse.floor import SkillhouseError, TreeError
from skillhouse.registry import LocalEditsError, PublisherError
from skillhouse.skill import ArchiveError


class InstallError(SkillhouseError):
    """A skill was refused; nothing of it is in force. `step` says which check did that."""

    def __init__(self, step: str, error: SkillhouseError) -> None:
        self.step = step
        """source, digest, archive, skill, signature, policy or place."""
        self.code: str = getattr(error, "code", "")
        """What was found, where there is a code for it."""
        self.nearest: tuple[str, ...] = getattr(error, "nearest", ())
        """Of "unknown-skill": names that may have been meant, best first."""
        code = f" [{self.code}]" if self.code else ""
        super().__init__(f"{step}: {error}{code}")


class UnsignedError(SkillhouseError):
    """A skill without a signature was not installed: no person agreed to that."""


@contextmanager
def install_step(name: str) -> Iterator[None]:
    """Turn an error of ours into one that names the step."""
    try:
        yield
    except InstallError:
        raise
    except SkillhouseError as error:
        raise install_error(name, error) from error


def install_error(name: str, error: SkillhouseError) -> InstallError:
    """Return an error that names the step, which is that of `name` where nothing says another."""
    found = InstallError(_step_of(error, name), error)
    found.__cause__ = error
    return found


def _step_of(error: SkillhouseError, default: str) -> str:
    if isinstance(error, ArchiveError):
        return "digest" if error.code == "digest" else "archive"
    if isinstance(error, TreeError):
        return "archive"
    if isinstance(error, PublisherError):
        return "signature"
    if isinstance(error, LocalEditsError):
        return "place"
    return default
