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
from functools import lru_cache
from urllib.parse import quote

from skillhouse.floor.regex import regex
from skillhouse.floor.structs import PartialStruct
from skillhouse.net.net_errors import NetError

SECRET_MIN = 8
"""Characters of a secret; a shorter one would be found in any text by chance."""
_PLACEHOLDER = regex(r"\{\{secret:([A-Za-z0-9_.-]{1,64})\}\}")
_LAYERS = 3
"""How often a text is decoded; it is searched after each time."""
_ESCAPE = regex(
    rb"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8}))"
)
_NAMED = {b"&lt;": b"<", b"&gt;": b">", b"&quot;": b'"', b"&apos;": b"'", b"&amp;": b"&"}
_ENTITY = regex(rb"&#(?:[xX]0{0,8}([0-9a-fA-F]{1,6})|0{0,8}([0-9]{1,7}));?")
_PACKED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
"""The letters of Base64 and Base32."""


class SecretBinding(PartialStruct, frozen=True, kw_only=True):
    """One secret and the hosts that may get it."""

    SECRET = frozenset({"value"})

    name: str
    value: str
    hosts: tuple[str, ...]
    """Rules as `host_rule` reads them; their methods do not count."""

    def __post_init__(self) -> None:
        """Refuse what could not be searched for or sent; the error does not show the value."""
        PartialStruct.__post_init__(self)
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
        bound: The secrets that may go to this host, by name; any other is "secret-refused".
    """

    def value(match: re.Match[str]) -> str:
        secret = bound.get(match[1])
        if secret is None:
            raise NetError("secret-refused", f"no secret `{match[1]}` is bound to {host}")
        return secret.value

    return _PLACEHOLDER.sub(value, text)


def leaked(secrets: Iterable[SecretBinding], parts: Sequence[bytes]) -> str:
    """Return the name of a secret that appears in `parts`, or "".

    Looked for, whatever the case: the secret itself, percent-encoded, as a JSON text, with any of
    its characters as `\\u0041` or `&#65;`, in hexadecimal, Base64 (both alphabets, also over
    several lines) and Base32 at every offset.
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
    """Return a text with the secrets that it repeats taken out, in every spelling of `leaked`.

    INVARIANT: `leaked` finds nothing in what is returned. A text that repeats a secret in a way
    that cannot be cut out, such as encoded twice, is withheld whole.
    """
    secrets = tuple(secrets)
    data = text.encode("utf-8", "surrogatepass")
    if not leaked(secrets, (data,)):
        return text
    for secret in secrets:
        data = _without(data, secret)
    if name := leaked(secrets, (data,)):
        return f"[withheld: the text repeats the secret {name}]"
    return data.decode("utf-8", "surrogatepass")


def _layers(part: bytes) -> Iterator[bytes]:
    """Yield a text and what it is once decoded: by each way alone, then by all of them."""
    yield part
    for _ in range(_LAYERS):
        plain = part
        for decode in (_unquoted, _unescaped, _without_entities, _on_one_line):
            if (alone := decode(part)) != part:
                yield alone
            plain = decode(plain)
        if plain == part:
            return
        yield plain
        part = plain


def _unescaped(part: bytes) -> bytes:
    """Return bytes with `\\u0041`, `\\x41` and what JSON escapes decoded; rather too much."""
    if b"\\" not in part:
        return part
    plain = _ESCAPE.sub(_unescape, part.replace(b"\\\\", b"\\"))
    return plain.replace(b'\\"', b'"').replace(b"\\/", b"/").replace(b"\\n", b"\n")


def _unescape(match: re.Match[bytes]) -> bytes:
    high, low, *digits = match.groups()
    if high and low:
        return bytes.fromhex((high + low).decode()).decode("utf-16-be").encode()
    return _character(int(next(filter(None, digits)), 16))


def _without_entities(part: bytes) -> bytes:
    """Return bytes with `&#65;`, `&#x41;` and the entities of XML decoded."""
    if b"&" not in part:
        return part
    for entity, character in _NAMED.items():
        part = part.replace(entity, character)
    return _ENTITY.sub(lambda m: _character(int(m[1], 16) if m[1] else int(m[2])), part)


def _character(code: int) -> bytes:
    return chr(code).encode("utf-8", "surrogatepass") if code <= 0x10FFFF else b"?"


def _on_one_line(part: bytes) -> bytes:
    return part.translate(None, b"\r\n")


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
    needles = {
        raw,
        quote(value, safe="").encode(),
        json.dumps(value)[1:-1].encode(),
        raw.hex().encode(),
        value.encode("unicode_escape"),
        *_packed(raw),
    }
    return tuple(sorted(needle.lower() for needle in needles))


def _packed(raw: bytes) -> Iterator[bytes]:
    for group, bits, encode in (
        (3, 6, base64.b64encode),
        (3, 6, base64.urlsafe_b64encode),
        (5, 5, base64.b32encode),
    ):
        yield from _encoded(raw, group, bits, encode)


def _encoded(
    raw: bytes, group: int, bits: int, encode: Callable[[bytes], bytes]
) -> Iterator[bytes]:
    """Yield the characters that stand for `raw` alone, wherever in a longer text it begins."""
    for offset in range(group):
        padded = bytes(offset) + raw + bytes(-(offset + len(raw)) % group)
        first = -(-offset * 8 // bits)
        last = (offset + len(raw)) * 8 // bits
        yield encode(padded)[first:last]


def _without(data: bytes, secret: SecretBinding) -> bytes:
    kept, at = [], 0
    for match in _spellings(secret.value).finditer(data):
        start, end = match.span()
        if match["packed"]:
            # What is beside it holds bits of its first and last bytes.
            start -= start > at and data[start - 1] in _PACKED
            end += end < len(data) and data[end] in _PACKED
        if start >= at:
            kept += [data[at:start], f"[secret {secret.name}]".encode()]
        at = max(at, end)
    return b"".join([*kept, data[at:]])


@lru_cache(maxsize=64)
def _spellings(value: str) -> re.Pattern[bytes]:
    raw = value.encode()
    packed = sorted(set(_packed(raw)), key=lambda needle: (-len(needle), needle))
    plain = (b"".join(_spelling(character) for character in value), raw.hex().encode())
    first = {raw[:1], raw.hex()[:1].encode(), b"\\", b"%", b"&", b"+", *(n[:1] for n in packed)}
    # Most places of a text are passed over by their first byte.
    return re.compile(
        b"(?=[%b])(?:%b|(?P<packed>%b))"
        % (
            b"".join(re.escape(byte) for byte in sorted(first)),
            b"|".join(plain),
            b"|".join(map(re.escape, packed)),
        ),
        re.IGNORECASE,
    )


def _spelling(character: str) -> bytes:
    """Return a pattern of the ways in which one character of a secret may be written."""
    code, raw = ord(character), character.encode()
    units = character.encode("utf-16-be").hex()
    ways = [
        rb"\\{0,8}" + re.escape(raw),
        b"".join(rb"%%(?:25){0,3}%02x" % byte for byte in raw),
        b"".join(rb"\\{1,8}u" + units[at : at + 4].encode() for at in range(0, len(units), 4)),
        rb"\\{1,8}U%08x" % code,
        rb"&(?:amp;){0,3}#(?:x0{0,8}%x|0{0,8}%d);?" % (code, code),
        *(b"&(?:amp;){0,3}" + name[1:] for name, of in _NAMED.items() if of == raw),
    ]
    if code < 256:
        ways.append(rb"\\{1,8}x%02x" % code)
    if character == " ":
        ways.append(rb"\+")
    return b"(?:" + b"|".join(ways) + b")"
