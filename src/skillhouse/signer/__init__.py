"""Signs what a person approved, with keys that only the signer process can read."""

from skillhouse.signer.errors import SignerError
from skillhouse.signer.keys import KeyInfo, KeyKind, Limit, Terms, Vault, limit_text, terms_from
from skillhouse.signer.keystore import KEYSTORE_FILE, read_vault
from skillhouse.signer.lifecycle import STATE_FILE, KeyEvent, SessionKey, SessionKeys
from skillhouse.signer.movement import (
    COINS,
    Movement,
    Spend,
    amount_text,
    decimal_amount,
    message_movement,
    movement_of,
)
from skillhouse.signer.process import PasswordSource, SignerProcess
from skillhouse.signer.request import (
    Signature,
    Signer,
    SignRequest,
    message_text,
    new_request,
    with_approval,
)
from skillhouse.signer.transaction import (
    Transaction,
    build_transaction,
    decode_transaction,
    raw_bytes,
)

__all__ = [
    "COINS",
    "KEYSTORE_FILE",
    "STATE_FILE",
    "KeyEvent",
    "KeyInfo",
    "KeyKind",
    "Limit",
    "Movement",
    "PasswordSource",
    "SessionKey",
    "SessionKeys",
    "SignRequest",
    "Signature",
    "Signer",
    "SignerError",
    "SignerProcess",
    "Spend",
    "Terms",
    "Transaction",
    "Vault",
    "amount_text",
    "build_transaction",
    "decimal_amount",
    "decode_transaction",
    "limit_text",
    "message_movement",
    "message_text",
    "movement_of",
    "new_request",
    "raw_bytes",
    "read_vault",
    "terms_from",
    "with_approval",
]
