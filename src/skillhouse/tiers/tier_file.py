"""Reads `policy.yml` as published: every scalar is text and converted strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from skillhouse.floor import ConfigError, file_problem, nearest, read_regular
from skillhouse.floor.regex import regex
from skillhouse.floor.rules import covers
from skillhouse.floor.structs import replace
from skillhouse.skill.source import FIRST_LINE, FileRefusedError, decoded, normalise
from skillhouse.skill.yaml_text import read_mapping
from skillhouse.tiers.tier_policy import DAY_MS, TierPolicy
from skillhouse.tiers.tier_values import (
    ASSIGNEE_ONLY,
    CHANNELS,
    COMPANION_APP,
    ETH,
    USD,
    Cooldown,
    EmergencyStop,
    Thresholds,
    Tier,
    ToolPolicy,
)

POLICY_FILE_MAX = 65_536
"""Bytes of a policy file, as of a frontmatter."""
TOOLS_MAX, WILDCARDS_MAX = 1_000, 200
"""Entries of one file; each wildcard is held against each other one."""
TIMEOUT_MAX_SECONDS = 3_600
ACTIONS = ("revoke-all-session-keys", "pause-all", "shutdown")

_SHOWN_MAX = 60
_NAME = regex(r"[A-Za-z0-9_.-]{1,128}")
_PATTERN = regex(r"[A-Za-z0-9_.*-]{1,128}")
_AMOUNT = regex(r"[0-9]{1,15}(\.[0-9]{1,18})?")
_WHOLE = regex(r"[1-9][0-9]{0,8}")

_Read = Callable[["_FileKey", Any], Any]


def load_tier_policy(
    path: Path, *, assignees: Collection[str], tier1_channel: str = COMPANION_APP
) -> TierPolicy:
    """Return the policy of a file; one that cannot be used gives a policy of reads only.

    Such a policy has a `fault` for its owner. A missing file is no fault: levels and the published
    fallback hold then.

    Args:
        path: The policy file.
        assignees: The users whom `assignee-only` means.
        tier1_channel: Where tier 1 is confirmed: `companion-app`, or `page` without such an app.
    """
    empty = TierPolicy(assignees=frozenset(assignees), tier1_channel=tier1_channel)
    try:
        if problem := file_problem(path):
            raise ConfigError(problem, path=path)
        data = read_regular(path, POLICY_FILE_MAX)
        return read_tier_policy(data, path, assignees=assignees, tier1_channel=tier1_channel)
    except FileNotFoundError:
        if path.is_symlink():
            return replace(empty, fault=f"the policy file is a link to nothing: `{path}`")
        return empty
    except (OSError, ConfigError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return replace(empty, fault=f"the policy file cannot be used: {reason}")


def read_tier_policy(
    data: bytes,
    path: Path,
    *,
    assignees: Collection[str] = (),
    tier1_channel: str = COMPANION_APP,
) -> TierPolicy:
    """Return the policy in `data`; for the other arguments see `load_tier_policy`.

    A `ConfigError` has the file, the key and, where known, the line.
    """
    if len(data) > POLICY_FILE_MAX:
        raise ConfigError(f"expected at most {POLICY_FILE_MAX} bytes of policy", path=path)
    try:
        text = decoded(normalise(data, []))
        # Not the fast parser: the result is the same, and this file is small.
        found = read_mapping(text, fast=False)
    except FileRefusedError as error:
        finding = error.finding
        # The reader counts from the second line, as a frontmatter begins there.
        off = 0 if finding.code == "encoding" else FIRST_LINE - 1
        where = f"line {finding.line - off}: " if finding.line else ""
        raise ConfigError(f"{where}{finding.message}", path=path) from None
    place = _FileKey(path, text, ())
    fields = _fields(place, found, _TOP)
    if fields.get("version") != "1":
        place.at("version").fail(f'expected version "1", got {found.get("version", "none")!r}')
    del fields["version"]
    policy = TierPolicy(**fields, assignees=frozenset(assignees), tier1_channel=tier1_channel)
    return replace(policy, warnings=(*_unreachable(policy), *_without_effect(policy)))


class _FileKey:
    """A key of the file, for errors that say where."""

    def __init__(self, path: Path, text: str, keys: tuple[str, ...]) -> None:
        self._path, self._text, self.keys = path, text, keys

    def at(self, key: str) -> _FileKey:
        return _FileKey(self._path, self._text, (*self.keys, key))

    def fail(self, message: str, *, suggestion: str = "") -> NoReturn:
        key = ".".join(self.keys)
        where = f"line {self._line()}, `{key}`: " if key else ""
        raise ConfigError(where + message, path=self._path, key=key, suggestion=suggestion)

    def _line(self) -> int:
        """Return the line of the innermost key that can be found, each after the one around it."""
        at = 0
        for key in self.keys:
            name = re.escape(key.partition(" ")[2] or key)
            found = re.compile(rf"""(?<![\w*.-])["']?{name}["']?(?![\w*.-])""").search(
                self._text, at
            )
            if found:
                at = found.start()
        return self._text.count("\n", 0, at) + 1


def _fields(place: _FileKey, value: Any, known: Mapping[str, tuple[str, _Read]]) -> dict[str, Any]:
    """Return the fields of a mapping, converted; a key that is not known is an error."""
    if not isinstance(value, dict):
        place.fail(f"expected `key: value` lines, got {_shown(value)}")
    found = {}
    for key, item in value.items():
        if key not in known:
            close = nearest(key, known)
            place.at(key).fail(
                f"unknown key `{key}`, known are {', '.join(known)}",
                suggestion=close[0] if close else "",
            )
        name, read = known[key]
        found[name] = read(place.at(key), item)
    return found


def _text(place: _FileKey, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        place.fail(f"expected a text, got {_shown(value)}")
    return value


def _one_of(*choices: str) -> _Read:
    def read(place: _FileKey, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            close = nearest(value, choices) if isinstance(value, str) else ()
            place.fail(
                f"expected one of {', '.join(choices)}, got {_shown(value)}",
                suggestion=close[0] if close else "",
            )
        return value

    return read


def _tier(place: _FileKey, value: Any) -> Tier:
    return Tier(_one_of("none", "3", "2", "1")(place, value))


def _flag(place: _FileKey, value: Any) -> bool:
    return bool(_one_of("true", "false")(place, value) == "true")


def _whole(most: int) -> _Read:
    def read(place: _FileKey, value: Any) -> int:
        if not isinstance(value, str) or not _WHOLE.fullmatch(value) or int(value) > most:
            place.fail(f"expected a whole number from 1 to {most}, got {_shown(value)}")
        return int(value)

    return read


def _amount(place: _FileKey, value: Any) -> Decimal:
    if not isinstance(value, str) or not _AMOUNT.fullmatch(value) or not Decimal(value):
        place.fail(f"expected an amount above 0 such as 12.50, got {_shown(value)}")
    return Decimal(value)


def _amounts(place: _FileKey, value: Any) -> dict[str, Decimal]:
    found = _fields(place, value, {name: (name, _amount) for name in (USD, ETH, "token")})
    if not found:
        place.fail("expected at least one of usd, eth, token")
    return found


def _cooldown(place: _FileKey, value: Any) -> Cooldown:
    return Cooldown(**_fields(place, value, _COOLDOWN))


def _users(place: _FileKey, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_text(place, user) for user in value)
    if value != ASSIGNEE_ONLY:
        place.fail(f"expected `{ASSIGNEE_ONLY}` or a list of users, got {_shown(value)}")
    return value


def _texts(place: _FileKey, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        place.fail(f"expected a list, got {_shown(value)}")
    return tuple(_text(place, item).strip() for item in value)


def _tool(place: _FileKey, value: Any) -> ToolPolicy:
    policy = ToolPolicy(**_fields(place, value, _TOOL))
    if policy.tier is Tier.NONE and policy.require_confirmation:
        place.fail("expected tier 3, 2 or 1 with requireConfirmation: tier none never asks")
    return policy


def _fallback(place: _FileKey, value: Any) -> ToolPolicy:
    policy = _tool(place, value)
    if policy.tier is None:
        place.fail("expected a tier: it is for tools that nothing else is said of")
    return policy


def _tools(place: _FileKey, value: Any) -> dict[str, ToolPolicy]:
    if not isinstance(value, dict) or len(value) > TOOLS_MAX:
        place.fail(f"expected at most {TOOLS_MAX} lines `name: policy`, got {_shown(value)}")
    for name in value:
        if "*" in name:
            place.at(name).fail("expected an exact name; names with `*` go to `wildcards`")
        if not _NAME.fullmatch(name):
            place.at(name).fail("expected a tool's name of A-Z, a-z, 0-9, `_`, `-` and `.`")
    return {name: _tool(place.at(name), item) for name, item in value.items()}


def _wildcards(place: _FileKey, value: Any) -> tuple[tuple[str, ToolPolicy], ...]:
    if not isinstance(value, list) or len(value) > WILDCARDS_MAX:
        place.fail(f"expected a list of at most {WILDCARDS_MAX} policies, got {_shown(value)}")
    return tuple(_wildcard(place, number, item) for number, item in enumerate(value))


def _wildcard(place: _FileKey, number: int, value: Any) -> tuple[str, ToolPolicy]:
    if not isinstance(value, dict) or not isinstance(value.get("pattern"), str):
        place.at(str(number)).fail("expected a `pattern` and a policy")
    pattern = value["pattern"]
    here = place.at(f"{number} {pattern}")
    if not _PATTERN.fullmatch(pattern) or "**" in pattern:
        here.fail(
            "expected a name with single `*`, got "
            f"{_shown(pattern)}: braces, `!`, `?`, `[…]`, `**` and extglobs are not read"
        )
    rest = {key: item for key, item in value.items() if key != "pattern"}
    return pattern, _tool(here, rest)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(f"{value[:_SHOWN_MAX]}…" if len(value) > _SHOWN_MAX else value)
    return "a list" if isinstance(value, list) else "a mapping"


def _unreachable(policy: TierPolicy) -> tuple[str, ...]:
    """Return a warning for each wildcard that an earlier one takes everything from."""
    patterns = [pattern for pattern, _ in policy.wildcards]
    return tuple(
        f"wildcard `{pattern}` never counts: `{earlier}` comes first and covers it"
        for number, pattern in enumerate(patterns)
        for earlier in patterns[:number]
        if covers(earlier, pattern)
    )[:100]


def _without_effect(policy: TierPolicy) -> tuple[str, ...]:
    """Return a warning for each amount that another bound makes pointless."""
    named = [*((f"tools.{name}", item) for name, item in policy.tools.items())]
    named += [(f"wildcards {pattern}", item) for pattern, item in policy.wildcards]
    return tuple(
        f"`{name}`: nothing above maxAmount {most[unit]} is done, so escalateAbove {above[unit]} "
        "never asks anybody"
        for name, item in named
        for most, above in [(item.max_amount or {}, item.escalate_above or {})]
        for unit in most.keys() & above.keys()
        if above[unit] >= most[unit]
    )


_COOLDOWN: Mapping[str, tuple[str, _Read]] = {
    "maxPerHour": ("max_per_hour", _whole(100_000)),
    "maxPerDay": ("max_per_day", _whole(1_000_000)),
    "minIntervalMs": ("min_interval_ms", _whole(DAY_MS)),
}
_TOOL: Mapping[str, tuple[str, _Read]] = {
    "tier": ("tier", _tier),
    "requireConfirmation": ("require_confirmation", _flag),
    "confirmationChannel": ("confirmation_channel", _one_of(*CHANNELS)),
    "maxAmount": ("max_amount", _amounts),
    "cooldown": ("cooldown", _cooldown),
    "allowedUsers": ("allowed_users", _users),
    "escalateAbove": ("escalate_above", _amounts),
    "timeout": ("timeout_seconds", _whole(TIMEOUT_MAX_SECONDS)),
}
_THRESHOLDS: Mapping[str, tuple[str, _Read]] = {
    "tier2MaxUsd": ("tier2_max_usd", _amount),
    "tier2DailyUsd": ("tier2_daily_usd", _amount),
    "tier3MaxUsd": ("tier3_max_usd", _amount),
    "sessionKeyTtlHours": ("session_key_ttl_hours", _whole(8_760)),
    "sessionKeyMaxBalance": ("session_key_max_balance", _amount),
}
_EMERGENCY: Mapping[str, tuple[str, _Read]] = {
    "enabled": ("enabled", _flag),
    "commands": ("commands", _texts),
    "channels": ("channels", _texts),
    "action": ("action", _one_of(*ACTIONS)),
}


def _thresholds(place: _FileKey, value: Any) -> Thresholds:
    return Thresholds(**_fields(place, value, _THRESHOLDS))


def _emergency(place: _FileKey, value: Any) -> EmergencyStop:
    return EmergencyStop(**_fields(place, value, _EMERGENCY))


_TOP: Mapping[str, tuple[str, _Read]] = {
    "version": ("version", _text),
    "defaults": ("defaults", _tool),
    "thresholds": ("thresholds", _thresholds),
    "emergencyStop": ("emergency_stop", _emergency),
    "tools": ("tools", _tools),
    "wildcards": ("wildcards", _wildcards),
    "fallback": ("fallback", _fallback),
}
