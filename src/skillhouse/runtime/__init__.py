"""Builds one house from one configuration."""

from skillhouse.runtime.config import Config, Places, Settings, load_config
from skillhouse.runtime.house import Skillhouse, configured
from skillhouse.runtime.policy import Explanation, Policy
from skillhouse.runtime.rehearsal import (
    JudgedLine,
    MentionVerdict,
    Rehearsal,
    judged_line,
    rehearse,
)
from skillhouse.runtime.trust import TrustedSkill, TrustReport, TrustStore
from skillhouse.runtime.view import View

__all__ = [
    "Config",
    "Explanation",
    "JudgedLine",
    "MentionVerdict",
    "Places",
    "Policy",
    "Rehearsal",
    "Settings",
    "Skillhouse",
    "TrustReport",
    "TrustStore",
    "TrustedSkill",
    "View",
    "configured",
    "judged_line",
    "load_config",
    "rehearse",
]
