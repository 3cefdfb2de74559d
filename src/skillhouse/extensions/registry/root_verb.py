"""`skillhouse registry root`: the keys that are kept offline, and whose the names are."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillhouse import registry
from skillhouse.answers.json_form import Count, JsonAnswer, copied
from skillhouse.extensions.registry.hosting import (
    PAGE_MAX,
    HostedRepository,
    ListQuery,
    ReleaseStore,
)
from skillhouse.floor import needs_extra
from skillhouse.frontends.cli.options import UsageError, add_common, house_of, positive
from skillhouse.frontends.cli.publisher_secrets import open_private
from skillhouse.presentation.text import shown
from skillhouse.registry import PasswordSource, split_name, typed_name
from skillhouse.registry.owners import PENDING_DIRECTORY, check_owned

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

    from skillhouse.extensions.registry.hosting.offline_roles import OfflineRoles
    from skillhouse.frontends.cli.terminal import Terminal


class SignedRoleAnswer(JsonAnswer, frozen=True, kw_only=True):
    """One role that people sign, in force or waiting."""

    role: str
    version: Count
    expires: str
    signed: Count
    threshold: Count
    is_pending: bool


class RegistryRootAnswer(JsonAnswer, frozen=True, kw_only=True):
    """The root of a registry: what a person pins, and what waits for signatures."""

    root: str
    """As `root` of `[[skills.repositories]]`; empty while none is in force."""
    keys: tuple[str, ...]
    roles: tuple[SignedRoleAnswer, ...]
    owners: dict[str, tuple[str, ...]]
    unclaimed: tuple[str, ...]


def configure_root(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="root_verb", required=True, metavar="VERB")
    init = verbs.add_parser("init", help="prepare the first root, of keys that are made or given")
    sign = verbs.add_parser("sign", help="sign what waits, and put it in force with enough keys")
    rotate = verbs.add_parser("rotate", help="prepare the next root: other keys, or a longer time")
    owners = verbs.add_parser("owners", help="prepare whose the names are")
    status = verbs.add_parser("status", help="show the root, what waits, and names without owners")
    init.add_argument("--key", dest="keys", action="append", required=True, metavar="KEY",
                      help="a PEM file, made if missing, or a name of `keys`")  # fmt: skip
    sign.add_argument("--key", dest="keys", action="append", default=[], metavar="KEY",
                      help="a key of the root: a file or a name; repeatable")  # fmt: skip
    sign.add_argument("--pending", metavar="DIR",
                      help="a copy of `pending`, signed without the registry")  # fmt: skip
    rotate.add_argument("--add", action="append", default=[], metavar="KEY",
                        help="a key that signs from now on; repeatable")  # fmt: skip
    rotate.add_argument("--remove", action="append", default=[], metavar="ID",
                        help="a key that signs no more; repeatable")  # fmt: skip
    rotate.add_argument("--server-key", action="store_true",
                        help="make another key for what the server signs by itself")  # fmt: skip
    for one in (init, sign, rotate):
        one.add_argument("--password", type=PasswordSource.parse, default=PasswordSource(),
                         metavar="PLACE",
                         help="of named keys: terminal, keyring, fd:N, env:NAME")  # fmt: skip
    for one in (init, rotate):
        one.add_argument("--threshold", type=positive, default=0, metavar="N",
                         help="how many keys must sign (more than half)")  # fmt: skip
    owners.add_argument("changes", nargs="*", metavar="NAME=PUBLISHER,…",
                        help="`pdf=acme`, `@ops=ops-team,acme`; `pdf=` gives it up")  # fmt: skip
    owners.add_argument("--claim", action="store_true",
                        help="give unclaimed names to who signed them")  # fmt: skip
    owners.add_argument("--publishers", metavar="FILE",
                        help="root certificates that the root vouches for")  # fmt: skip
    for one in (init, sign, rotate, owners, status):
        one.add_argument("--directory", metavar="DIR", help="the registry's (in the user's state)")
        add_common(one)


def sign_elsewhere(options: argparse.Namespace, terminal: Terminal) -> int:
    """Sign a copy of what waits; its registry is not here."""
    with needs_extra("registry"):
        from skillhouse.extensions.registry.hosting import offline_roles
    place = Path(options.start or ".", options.pending).absolute()
    if place.name != PENDING_DIRECTORY:
        raise UsageError(f"expected a copy of the directory `{PENDING_DIRECTORY}`, got `{place}`")
    roles = offline_roles.OfflineRoles(place.parent)
    _sign(roles, options, terminal)
    return 0


def run_root(repository: HostedRepository, options: argparse.Namespace, terminal: Terminal) -> int:
    """Do what the words say."""
    roles = repository.roles().offline
    verbs: Mapping[str, Callable[..., None]] = {
        "init": _init,
        "sign": _sign,
        "rotate": _rotate,
        "owners": lambda *_: _owners(repository, roles, options),
        "status": lambda *_: None,
    }
    verbs[options.root_verb](roles, options, terminal)
    repository.sign_changes()
    _show(_answer(repository, roles), options, terminal)
    return 0


def _init(roles: OfflineRoles, options: argparse.Namespace, terminal: Terminal) -> None:
    keys = _keys(options.keys, options, terminal)
    roles.init(keys, threshold=options.threshold or len(keys) // 2 + 1)


def _keys(texts: list[str], options: argparse.Namespace, terminal: Terminal) -> list[Any]:
    """Return public keys; files of keys are made where there are none."""
    from skillhouse.extensions.registry.hosting import offline_roles

    found = []
    for text in texts:
        path = Path(options.start or ".", text).absolute()
        if _is_name(text) or path.exists():
            found.append(_signer(text, options).public_key)
            continue
        found.append(offline_roles.new_signer(path).public_key)
        terminal.note(f"made the key `{path}`: keep it where no network is, and a copy of it")
    return found


def _is_name(text: str) -> bool:
    """Whether a text names a key of this user, and no file."""
    return not set(text) & {"/", "\\", "."}


def _signer(text: str, options: argparse.Namespace) -> CryptoSigner:
    """Return the key in a file, or one of this user: behind a password, a keyring or a token."""
    from skillhouse.extensions.registry.hosting import offline_roles

    if not _is_name(text):
        return offline_roles.read_signer(Path(options.start or ".", text).absolute())
    with house_of(options) as house:
        keys = registry.PublisherKeys(house.config.state_directory / registry.KEYS_DIRECTORY)
    return offline_roles.signer_of(open_private(keys, keys.get(text), options.password))


def _sign(roles: OfflineRoles, options: argparse.Namespace, terminal: Terminal) -> None:
    from skillhouse.extensions.registry.hosting import offline_roles

    waiting = offline_roles.read_documents(roles.pending)
    for name, handles in sorted(waiting.names.items()) if waiting else ():
        terminal.note(f"owner of {shown(name)}: {', '.join(handles)}")
    for text in options.keys:
        signer = _signer(text, options)
        done = roles.sign(signer)
        terminal.note(f"signed {', '.join(done)} with the key {signer.public_key.keyid[:12]}")


def _rotate(roles: OfflineRoles, options: argparse.Namespace, terminal: Terminal) -> None:
    add = _keys(options.add, options, terminal)
    roles.rotate(
        add=add, remove=options.remove, threshold=options.threshold, online=options.server_key
    )


def _owners(repository: HostedRepository, roles: OfflineRoles, options: argparse.Namespace) -> None:
    changes: dict[str, tuple[str, ...]] = {}
    if options.claim:
        changes = {name: (who,) for name, who in _unclaimed(repository) if who}
    for text in options.changes:
        name, separator, listed = text.partition("=")
        if not separator:
            raise UsageError(f"expected NAME=PUBLISHER, got {text[:80]!r}")
        changes[name] = tuple(one for one in listed.split(",") if one)
        check_owned(name, changes[name] or ("none",))
    if options.publishers:
        roles.set_publishers(Path(options.start or ".", options.publishers).read_bytes())
    if changes:
        roles.set_owners(changes)
    elif not options.publishers:
        raise UsageError("nothing changes: name an owner as `pdf=acme`, or --claim")


def _unclaimed(repository: HostedRepository) -> list[tuple[str, str]]:
    """Return the names that have no owner, each with who signed the newest version."""
    owners, store = repository.roles().offline.owners(), repository.store
    signers = _listed_signers(store)
    sequence = 0
    while changes := store.changes(sequence, PAGE_MAX):
        sequence = changes[-1].seq
        for one in changes:
            if one.name and one.name not in signers:
                # All of its versions were revoked, so no list has it; the name is in use still.
                found = store.releases(*split_name(one.name))
                signature = found.versions[0].signature if found else None
                signers[one.name] = signature.publisher if signature else ""
    return [
        (typed_name(*split_name(name)), signer)
        for name, signer in sorted(signers.items())
        if not owners.of(*split_name(name))
    ]


def _listed_signers(store: ReleaseStore) -> dict[str, str]:
    """Return who signed the newest version of each skill, by its name in addresses."""
    found: dict[str, str] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = store.find(ListQuery(cursor=cursor, limit=PAGE_MAX, sort="name"))
        found.update({one.name: one.publisher for one in page.skills})
        cursor = page.next_cursor
    return found


def _answer(repository: HostedRepository, roles: OfflineRoles) -> RegistryRootAnswer:
    keys = roles.required("root").signed.roles["root"].keyids if roles.is_rooted else ()
    return RegistryRootAnswer(
        root=repository.root if roles.is_rooted else "",
        keys=tuple(keys),
        roles=tuple(copied(SignedRoleAnswer, one) for one in roles.states()),
        owners=dict(roles.owners().names),
        unclaimed=tuple(name for name, _ in _unclaimed(repository)),
    )


def _show(answer: RegistryRootAnswer, options: argparse.Namespace, terminal: Terminal) -> None:
    if options.json:
        terminal.json(answer)
        return
    terminal.line(f"root {answer.root}" if answer.root else "no root is in force yet")
    for one in answer.roles:
        state = f"waits, {one.signed} of {one.threshold} keys" if one.is_pending else "in force"
        terminal.line(f"{one.role:8} version {one.version}, until {one.expires}, {state}")
    for name, handles in sorted(answer.owners.items()):
        terminal.line(f"{shown(name)} belongs to {', '.join(handles)}")
    for name in answer.unclaimed:
        terminal.line(f"{shown(name)} is unclaimed")
