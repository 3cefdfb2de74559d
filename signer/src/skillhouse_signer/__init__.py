"""Signs what a person approved, with keys that only the signer process can read."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.house.own_files import KEYSTORE_FILE as KEYSTORE_FILE
    from skillhouse.registry.passwords import PasswordSource as PasswordSource
    from skillhouse.registry.passwords import SignerError as SignerError
    from skillhouse.store import STATE_FILE as STATE_FILE
    from skillhouse_signer.key_state import KeyEvent as KeyEvent
    from skillhouse_signer.key_state import SessionKey as SessionKey
    from skillhouse_signer.key_state import SessionKeys as SessionKeys
    from skillhouse_signer.keys import COINS as COINS
    from skillhouse_signer.keys import KeyInfo as KeyInfo
    from skillhouse_signer.keys import KeyKind as KeyKind
    from skillhouse_signer.keys import KeyRecords as KeyRecords
    from skillhouse_signer.keys import Limit as Limit
    from skillhouse_signer.keys import Spend as Spend
    from skillhouse_signer.keys import Terms as Terms
    from skillhouse_signer.keys import TransactionEffect as TransactionEffect
    from skillhouse_signer.keys import amount_text as amount_text
    from skillhouse_signer.keys import decimal_amount as decimal_amount
    from skillhouse_signer.keys import limit_text as limit_text
    from skillhouse_signer.keys import message_movement as message_movement
    from skillhouse_signer.keys import movement_of as movement_of
    from skillhouse_signer.keys import terms_from as terms_from
    from skillhouse_signer.keystore import read_key_records as read_key_records
    from skillhouse_signer.process import SignerProcess as SignerProcess
    from skillhouse_signer.request import Signature as Signature
    from skillhouse_signer.request import Signer as Signer
    from skillhouse_signer.request import SignRequest as SignRequest
    from skillhouse_signer.request import message_text as message_text
    from skillhouse_signer.request import new_request as new_request
    from skillhouse_signer.request import with_approval as with_approval
    from skillhouse_signer.sign_tool import SignTool as SignTool
    from skillhouse_signer.transaction import Transaction as Transaction
    from skillhouse_signer.transaction import build_transaction as build_transaction
    from skillhouse_signer.transaction import decode_transaction as decode_transaction
    from skillhouse_signer.transaction import raw_bytes as raw_bytes
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
