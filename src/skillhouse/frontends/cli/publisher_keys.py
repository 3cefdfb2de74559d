"""Lists the keys of publishers with what ends soon, and removes one of them."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from skillhouse import registry
from skillhouse.answers.packages import certificate_answer
from skillhouse.answers.signatures import KeyChangeAnswer, PublisherKeyAnswer
from skillhouse.extension import own_module
from skillhouse.floor import SkillhouseError, needs_extra
from skillhouse.frontends.cli.options import UsageError
from skillhouse.frontends.cli.question import typed
from skillhouse.house.own_files import KEYSTORE_FILE
from skillhouse.presentation.text import counted, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cryptography.x509 import Certificate

    from skillhouse.frontends.cli.terminal import Terminal
    from skillhouse.house import Skillhouse

ROLES = {"skills": "developer", "root": "root", "intermediate": "intermediate"}
"""What `keys new --for` makes, and the kind of its certificate."""
WARN_BEFORE = timedelta(days=30)
"""How long before the end of a certificate `keys list` warns of it."""


def publisher_store(house: Skillhouse) -> registry.PublisherKeys:
    return registry.PublisherKeys(_directory(house))


def _directory(house: Skillhouse) -> Path:
    return house.config.state_directory / registry.KEYS_DIRECTORY


def publisher_keys(house: Skillhouse, now: datetime) -> list[PublisherKeyAnswer]:
    """Return the keys of publishers, for a listing."""
    if not _directory(house).is_dir():
        return []
    with needs_extra("registry"):
        store = publisher_store(house)
    return [_answer(key, store.certificates(key.name), now) for key in store.all()]


def _answer(
    key: registry.PublisherKey, chain: Sequence[Certificate], now: datetime
) -> PublisherKeyAnswer:
    return PublisherKeyAnswer(
        name=key.name,
        use=next(use for use, role in ROLES.items() if role == key.role),
        kind="p256" if key.role == "developer" else "p384",
        lock=key.lock,
        registry=key.registry,
        certificates=list(map(certificate_answer, chain[:1])),
        warning=_warning(key, chain, now),
    )


def _warning(key: registry.PublisherKey, chain: Sequence[Certificate], now: datetime) -> str:
    """Return what ends within `WARN_BEFORE` or has ended, and what to do; empty for nothing.

    A certificate counts for as long as each one above it does.
    """
    if not chain:
        return ""
    first = min(chain, key=lambda one: one.not_valid_after_utc)
    end = first.not_valid_after_utc
    if end - now > WARN_BEFORE:
        return ""
    what = "its certificate" if first == chain[0] else "the intermediate above its certificate"
    when = "ended" if end <= now else f"ends in {counted((end - now).days, 'day')}"
    if key.role == "root":
        advice = "make a root with another name, and have both trusted for a time"
    else:
        advice = f"`skillhouse keys request {key.name}` asks for the next one"
    return f"{what} {when} ({end:%Y-%m-%d}): {advice}"


def print_publishers(values: Iterable[PublisherKeyAnswer], terminal: Terminal) -> None:
    for one in values:
        terminal.rows([(shown(one.name), shown(_line(one)))])
        for certificate in one.certificates:
            terminal.line(f"    {shown(certificate.names or '')}")
            # Never cut: people compare it character by character.
            terminal.line(f"    {certificate.certificate}")
        if one.warning:
            mark = terminal.style("warning:", "yellow", errors=True)
            terminal.note(f"{mark} {shown(one.name)}: {shown(one.warning)}")


def _line(key: PublisherKeyAnswer) -> str:
    if not key.certificates:
        return f"signs {key.use}, no certificate yet"
    what = "signs skills" if key.use == "skills" else f"{key.use} certificate"
    return f"{what}, until {key.certificates[0].valid_until[:10]}"


def add_removal_options(remove: argparse.ArgumentParser) -> None:
    """Add to `keys remove` what is about the keys of publishers."""
    group = remove.add_argument_group("keys of publishers")
    group.add_argument(
        "--for",
        dest="use",
        choices=["transactions", *ROLES],
        help="which key, where two have one name",
    )
    group.add_argument("--final", action="store_true", help="keep no encrypted copy of it")


def is_of_publisher(house: Skillhouse, options: argparse.Namespace) -> bool:
    """Whether the key that is to be removed is one of publishers.

    Raises:
        UsageError: there are two keys of that name, and nothing says which one is meant.
    """
    if options.use is not None:
        return bool(options.use != "transactions")
    names = {path.stem for path in _directory(house).glob("*.json")}
    if options.name not in names:
        return False
    keystore = house.config.state_directory / KEYSTORE_FILE
    if not keystore.exists():
        return True
    records = own_module("signer").read_key_records(keystore)
    if any(key.name == options.name for key in records.keys):
        message = f"there are two keys `{options.name}`: add --for transactions, or --for skills"
        raise UsageError(message)
    return True


def remove_publisher_key(
    house: Skillhouse, options: argparse.Namespace, terminal: Terminal
) -> tuple[KeyChangeAnswer, str]:
    """Remove the key of a publisher once a person has agreed; return a value and its text."""
    keys = publisher_store(house)
    key = keys.get(options.name)
    use = next(use for use, role in ROLES.items() if role == key.role)
    if options.use not in (None, use):
        raise UsageError(f"the key `{key.name}` is one for {use}, not for {options.use}")
    terminal.note(shown(_consequence(key, final=options.final)))
    if not options.yes and not typed(key.name, terminal, instead="use --yes"):
        raise SkillhouseError(f"nothing was removed: expected the name of the key, `{key.name}`")
    copy = keys.remove(key.name, datetime.now(UTC), final=options.final)
    value = KeyChangeAnswer(name=key.name, use=use, copy=str(copy or ""))
    if copy is None:
        return value, f"removed {key.name} for good"
    place = copy.parents[1] / "keys"
    text = f"removed {key.name}; an encrypted copy is in `{copy}`: its files in `{place}` undo this"
    return value, text


def _consequence(key: registry.PublisherKey, *, final: bool) -> str:
    """Return what removing a key means, before a person agrees."""
    parts = []
    if key.role == "developer":
        parts.append(f"`{key.name}` signs nothing more; what it signed stays valid")
    else:
        days = f"{registry.REVOCATION_DAYS} days"
        parts.append(
            f"`{key.name}` issues and revokes nothing more; what it issued stays valid, but a "
            f"list of revocations that it signed ends within {days}, and cannot be renewed"
        )
    if key.lock == "pkcs11":
        parts.append("the key itself stays in its token, whose own program removes it")
    if key.lock == "keyring":
        parts.append(f"its password stays in the keyring as `{key.id}`")
    if final and key.lock != "pkcs11":
        parts.append("without a copy it cannot be had back")
    return "; ".join(parts)
