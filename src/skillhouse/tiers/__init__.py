"""Applies the published tier policy: amounts, cooldowns, escalation and the stop."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.tiers.emergency_stop import StopNotice as StopNotice
    from skillhouse.tiers.emergency_stop import StopReport as StopReport
    from skillhouse.tiers.tier_engine import ResumeError as ResumeError
    from skillhouse.tiers.tier_engine import TierEngine as TierEngine
    from skillhouse.tiers.tier_engine import is_stop_command as is_stop_command
    from skillhouse.tiers.tier_file import load_tier_policy as load_tier_policy
    from skillhouse.tiers.tier_file import read_tier_policy as read_tier_policy
    from skillhouse.tiers.tier_ledger import TierOutcome as TierOutcome
    from skillhouse.tiers.tier_policy import TierPolicy as TierPolicy
    from skillhouse.tiers.tier_values import Tier as Tier
    from skillhouse.tiers.tier_values import TierCall as TierCall
    from skillhouse.tiers.tier_values import TierLevel as TierLevel
    from skillhouse.tiers.tier_values import TierState as TierState
    from skillhouse.tiers.tier_values import TierVerdict as TierVerdict
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
