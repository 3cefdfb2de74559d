"""What is refused of a configuration when it is read, before anything follows from it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from skillhouse import approval
from skillhouse.approval import ApprovalSettings
from skillhouse.floor import ConfigError, nearest
from skillhouse.permission import Rule, matches
from skillhouse.signer import PasswordSource, SignerError

APPROVAL_NUMBER_MAX = 86_400
"""Most of any number about approvals: a day's seconds, and more questions than anybody answers."""
RULE_KEYS = frozenset(field.name for field in fields(Rule))

# seeds.md section 1.4: such variables are not handed on even when they are listed.
_SECRET_NAME = re.compile(
    "api[_-]?key|token|secret|pass(word)?|private|mnemonic|seed|session", re.IGNORECASE
)


def check_exec_environment(
    names: Sequence[str], path: Path | None, *, secret: frozenset[str] = frozenset()
) -> None:
    """Refuse to give commands a variable that is named like a secret, or is one.

    Args:
        names: The variables.
        path: The file that names them, for the error.
        secret: Variables that hold a secret of the configuration, whatever they are called.

    Raises:
        ConfigError: one of them is one.
    """
    for name in names:
        if name in secret or _SECRET_NAME.search(name):
            said = "holds a secret" if name in secret else "looks like a secret"
            message = f"`{name}` {said} and is not given to commands"
            raise ConfigError(message, path=path, key="exec_environment")


def check_approvals(settings: ApprovalSettings, path: Path | None) -> None:
    """Refuse bounds out of range, and an unusable webhook."""
    for known in fields(ApprovalSettings):
        value = getattr(settings, known.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not 0 < value <= APPROVAL_NUMBER_MAX:
            raise ConfigError(
                f"expected a number above 0 and at most {APPROVAL_NUMBER_MAX}, got {value}",
                path=path,
                key=f"approvals.{known.name}",
            )
    if settings.webhook_url:
        approval.checked_url(settings.webhook_url)
    if bool(settings.webhook_url) != bool(settings.webhook_secret_env):
        message = "expected `webhook_url` and `webhook_secret_env` together"
        raise ConfigError(message, path=path, key="approvals.webhook_url")


def refuse_unknown_rule_keys(table: Mapping[str, Any], path: Path | None) -> None:
    rules = table.get("rules")
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, Mapping):
            refuse_unknown(rule, RULE_KEYS, "rule key", path)


def refuse_unknown(
    table: Mapping[str, Any], known: frozenset[str], kind: str, path: Path | None
) -> None:
    for key in table:
        if key not in known:
            suggestion = next(iter(nearest(key, known)), "")
            message = f"unknown {kind} `{key}`"
            if not suggestion:
                message += f", known are {', '.join(sorted(known))}"
            raise ConfigError(message, path=path, key=key, suggestion=suggestion)


def try_examples(rule: Rule, index: int, path: Path | None) -> None:
    """Try a rule's own examples, which are its tests."""
    for example in rule.match:
        if not matches(rule.pattern, example):
            message = f"rule {index + 1}: `{rule.pattern}` does not match its example `{example}`"
            raise ConfigError(message, path=path, key="match")
    for example in rule.not_match:
        if matches(rule.pattern, example):
            message = f"rule {index + 1}: `{rule.pattern}` matches its counterexample `{example}`"
            raise ConfigError(message, path=path, key="not_match")


def check_signer(password: str, path: Path | None) -> None:
    """Refuse an unknown place of the keystore's password.

    Raises:
        ConfigError: it is none of those that `SignerSettings` names.
    """
    try:
        PasswordSource.parse(password)
    except SignerError:
        # What was written may be the password itself, so it is not repeated.
        message = "expected `terminal`, `keyring`, `fd:NUMBER` (from 3) or `env:NAME`"
        raise ConfigError(message, path=path, key="signer.password") from None
