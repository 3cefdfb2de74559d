"""Whose a name is: the document that a registry's owners sign with keys kept offline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from skillhouse.floor import DecodeError, shaped
from skillhouse.registry.releases import split_name, strict_document, typed_name
from skillhouse.skill import validate_name

OWNERS_FILE = "owners.json"
PUBLISHERS_FILE = "publishers.pem"
"""Root certificates of the registry's publishers."""
METADATA_DIRECTORY, TARGETS_DIRECTORY = "metadata", "targets"
"""Below a repository's address: the signed roles, and the documents by their digests."""
FIRST_ROOT = "1.root.json"
"""What a person pins by its digest; it leads to all later ones."""
PENDING_DIRECTORY = "pending"
"""Of a registry: what people still have to sign."""
_OWNERS_MAX = 64
_HANDLE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")


class NameOwners(Struct, frozen=True, kw_only=True):
    """`owners.json`: the publishers that may sign a name, or any name of a namespace."""

    version: int
    """1."""
    names: Mapping[str, tuple[str, ...]]
    """By `pdf`, `@acme/pdf` or, for a whole namespace, `@acme`."""

    def of(self, namespace: str, skill: str) -> tuple[str, ...]:
        """Return the handles of the publishers of a name; nothing while it is unclaimed.

        >>> owners = NameOwners(version=1, names={"pdf": ("acme",), "@ops": ("ops-team",)})
        >>> owners.of("default", "pdf"), owners.of("ops", "x"), owners.of("default", "x")
        (('acme',), ('ops-team',), ())
        """
        own = self.names.get(typed_name(namespace, skill))
        return own or self.names.get(f"@{namespace}", ())


def decode_owners(data: bytes) -> NameOwners:
    """Return a document of owners; DecodeError where it is none."""
    found = shaped(strict_document(data, f"`{OWNERS_FILE}`"), NameOwners)
    if found.version != 1:
        raise DecodeError(f"expected version 1, got {found.version}: use a newer skillhouse")
    for name, handles in found.names.items():
        check_owned(name, handles)
    return found


def check_owned(name: str, handles: Sequence[str]) -> None:
    """Refuse, with DecodeError, what is no name or no publisher."""
    if name.startswith("@") and "/" not in name:
        if validate_name(name[1:], directory=name[1:]):
            raise DecodeError(f"no namespace: {name[:80]!r}")
    elif typed_name(*split_name(name)) != name:
        raise DecodeError(f"expected `{typed_name(*split_name(name))}`, got {name[:80]!r}")
    if not 0 < len(handles) <= _OWNERS_MAX or not all(map(_HANDLE.fullmatch, handles)):
        raise DecodeError(f"expected 1 to {_OWNERS_MAX} publishers of `{name[:80]}`")


def encode_owners(owners: NameOwners) -> bytes:
    """Return the document; equal values give equal bytes."""
    value = {
        "version": owners.version,
        "names": {name: sorted(set(owners.names[name])) for name in sorted(owners.names)},
    }
    return f"{json.dumps(value, sort_keys=True)}\n".encode()


def refused_signer(owners: Sequence[str], publisher: str, name: str) -> str:
    """Return why a publisher, or an unsigned skill, may not have a name; empty where it may.

    >>> refused_signer(("acme",), "evil", "pdf")
    '`pdf` belongs to acme, and this one is signed by evil'
    >>> refused_signer((), "evil", "pdf")
    ''
    """
    if not owners or publisher in owners:
        return ""
    said = f"signed by {publisher}" if publisher else "unsigned"
    return f"`{name}` belongs to {', '.join(owners)}, and this one is {said}"
