"""Looks at a place with the eyes of several clients and says what each makes of its skills."""

from skillhouse.runtime.lens.findings import problems
from skillhouse.runtime.lens.looking import look
from skillhouse.runtime.lens.values import (
    Budget,
    Cut,
    Lens,
    LensClient,
    LensProblem,
    LensSkill,
    LensState,
    NearMiss,
    Verdict,
)
from skillhouse.runtime.lens.words import CAUSES, Cause

__all__ = [
    "CAUSES",
    "Budget",
    "Cause",
    "Cut",
    "Lens",
    "LensClient",
    "LensProblem",
    "LensSkill",
    "LensState",
    "NearMiss",
    "Verdict",
    "look",
    "problems",
]
