"""Secrets: put into a header for the hosts they are bound to, and kept from going anywhere else.

The search is a net for accidents and simple tricks, not a wall: a secret that was encrypted,
compressed or sent a letter at a time is not found. The wall is that skills and models never see a
bound secret, only its name.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote

from skillhouse.net.errors import NetError

SECRET_MIN = 8
"""Characters of a secret; a shorter one would be found in any text by chance."""
_PLACEHOLDER = re.compile(r"\{\{secret:([A-Za-z0-9_.-]{1,64})\}\}")
_LAYERS = 3
"""How often what goes out is percent-decoded, each time searched anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretBinding:
    """One secret and the hosts that may get it."""

    name: str
    value: str = field(repr=False)
    hosts: tuple[str, ...]
    """Rules as `host_rule` reads them; their methods do not count."""

    def __post_init__(self) -> None:
        """Refuse what could not be searched for or sent.

        Raises:
            NetError: "secret-refused"; it does not tell the value.
        """
        if not _PLACEHOLDER.fullmatch(f"{{{{secret:{self.name}}}}}"):
            raise NetError("secret-refused", f"expected a name of letters, got {self.name!r}")
        if len(self.value) < SECRET_MIN or not self.value.isprintable() or self.value.isspace():
            message = f"expected at least {SECRET_MIN} printable characters in `{self.name}`"
            raise NetError("secret-refused", message)


def names_in(text: str) -> tuple[str, ...]:
    """Return the secrets that a header's value asks for.

    >>> names_in("Bearer {{secret:API_KEY}}")
    ('API_KEY',)
    """
    return tuple(_PLACEHOLDER.findall(text))


def filled(text: str, bound: Mapping[str, SecretBinding], host: str) -> str:
    """Return a header's value with its secrets put in.

    Args:
        bound: The secrets that may go to this host, by name.
        host: For the error.

    Raises:
        NetError: "secret-refused", one of them may not go there or does not exist.
    """

    def value(match: re.Match[str]) -> str:
        secret = bound.get(match[1])
        if secret is None:
            raise NetError("secret-refused", f"no secret `{match[1]}` is bound to {host}")
        return secret.value

    return _PLACEHOLDER.sub(value, text)


def leaked(secrets: Iterable[SecretBinding], parts: Sequence[bytes]) -> str:
    """Return the name of a secret that appears in what goes out, or "".

    Looked for, whatever the case: the secret itself, percent-encoded, as a JSON text, in
    hexadecimal, Base64 (both alphabets) and Base32 at every offset.
    """
    secrets = tuple(secrets)
    if not secrets:
        return ""
    texts = [layer.lower() for part in parts for layer in _layers(part)]
    for secret in secrets:
        for needle in _needles(secret.value):
            if any(needle in text for text in texts):
                return secret.name
    return ""


def masked(text: str, secrets: Iterable[SecretBinding]) -> str:
    """Return a text with the secrets that it repeats taken out."""
    for secret in secrets:
        if secret.value in text:
            text = text.replace(secret.value, f"[secret {secret.name}]")
    return text


def _layers(part: bytes) -> Iterator[bytes]:
    yield part
    for _ in range(_LAYERS):
        plain = _unquoted(part)
        if plain == part:
            return
        yield plain
        part = plain


def _unquoted(part: bytes) -> bytes:
    """Return bytes with `%41` decoded; a `%` before anything else may come back as another sign.

    By the reader of quoted-printable text, which is a hundred times faster than `urllib`: a body of
    nothing but `%25` would hold everything up for half a second.
    """
    marked = part.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"=")
    return binascii.a2b_qp(marked)


@lru_cache(maxsize=64)
def _needles(value: str) -> tuple[bytes, ...]:
    raw = value.encode()
    found = {
        raw,
        quote(value, safe="").encode(),
        json.dumps(value)[1:-1].encode(),
        raw.hex().encode(),
    }
    found.add(value.encode("unicode_escape"))
    for group, bits, encode in (
        (3, 6, base64.b64encode),
        (3, 6, base64.urlsafe_b64encode),
        (5, 5, base64.b32encode),
    ):
        found.update(_encoded(raw, group, bits, encode))
    return tuple(sorted(needle.lower() for needle in found))


def _encoded(
    raw: bytes, group: int, bits: int, encode: Callable[[bytes], bytes]
) -> Iterator[bytes]:
    """Yield the characters that stand for `raw` alone, wherever in a longer text it begins."""
    for offset in range(group):
        padded = bytes(offset) + raw + bytes(-(offset + len(raw)) % group)
        first = -(-offset * 8 // bits)
        last = (offset + len(raw)) * 8 // bits
        yield encode(padded)[first:last]
