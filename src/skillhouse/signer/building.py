"""An unsigned transaction from named fields, for callers that do not write RLP."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from skillhouse.signer.errors import SignerError
from skillhouse.signer.transaction import DYNAMIC_FEE, LEGACY, Transaction, decode_transaction

_NUMBER = re.compile(r"0|[1-9][0-9]{0,77}|0x[0-9a-fA-F]{1,64}")
_HEX = re.compile(r"(0x)?([0-9a-fA-F]{2})*")


def build_transaction(fields: Mapping[str, Any]) -> bytes:
    """Return the raw unsigned transaction of these fields.

    Args:
        fields: chain_id, nonce, to, value, data, gas_limit, and gas_price or max_fee_per_gas with
            max_priority_fee_per_gas; numbers as integers or texts, in the smallest unit.

    Raises:
        SignerError: "unreadable-transaction": a field is missing or no such value.
    """
    legacy = "gas_price" in fields
    if legacy == ("max_fee_per_gas" in fields):
        raise _wrong("expected either `gas_price` or `max_fee_per_gas`")
    to = _bytes(fields, "to")
    if to and len(to) != 20:
        raise _wrong("expected 0x and 40 hex digits as `to`")
    found = Transaction(
        type=LEGACY if legacy else DYNAMIC_FEE,
        chain_id=_number(fields, "chain_id"),
        nonce=_number(fields, "nonce"),
        to=to or None,
        value=_number(fields, "value", default=0),
        data=_bytes(fields, "data"),
        gas_limit=_number(fields, "gas_limit"),
        gas_price=_number(fields, "gas_price" if legacy else "max_fee_per_gas"),
        priority_fee=None if legacy else _number(fields, "max_priority_fee_per_gas", default=0),
    )
    raw = found.unsigned()
    decode_transaction(raw)
    return raw


def raw_bytes(text: str) -> bytes:
    """Return the bytes of hex digits, with or without 0x.

    Raises:
        SignerError: "unreadable-transaction": there is something else in it.

    >>> raw_bytes("0x01ff")
    b'\\x01\\xff'
    """
    found = text.strip()
    if not _HEX.fullmatch(found):
        raise _wrong("expected the unsigned transaction as hex digits")
    return bytes.fromhex(found.removeprefix("0x"))


def _number(fields: Mapping[str, Any], name: str, *, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value, 16 if value.startswith("0x") else 10)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 256:
        raise _wrong(f"expected a number of 256 bits as `{name}`")
    return value


def _bytes(fields: Mapping[str, Any], name: str) -> bytes:
    value = fields.get(name, "")
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise _wrong(f"expected hex digits as `{name}`")
    return bytes.fromhex(value.removeprefix("0x"))


def _wrong(reason: str) -> SignerError:
    return SignerError("unreadable-transaction", f"the transaction cannot be built: {reason}")
