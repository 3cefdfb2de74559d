"""Signs what a person approved, with keys that only the signer process can read."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.signer.key_file import KEYSTORE_FILE as KEYSTORE_FILE
    from skillhouse.signer.key_state import KeyEvent as KeyEvent
    from skillhouse.signer.key_state import SessionKey as SessionKey
    from skillhouse.signer.key_state import SessionKeys as SessionKeys
    from skillhouse.signer.keys import COINS as COINS
    from skillhouse.signer.keys import KeyInfo as KeyInfo
    from skillhouse.signer.keys import KeyKind as KeyKind
    from skillhouse.signer.keys import Limit as Limit
    from skillhouse.signer.keys import Movement as Movement
    from skillhouse.signer.keys import Spend as Spend
    from skillhouse.signer.keys import Terms as Terms
    from skillhouse.signer.keys import Vault as Vault
    from skillhouse.signer.keys import amount_text as amount_text
    from skillhouse.signer.keys import decimal_amount as decimal_amount
    from skillhouse.signer.keys import limit_text as limit_text
    from skillhouse.signer.keys import message_movement as message_movement
    from skillhouse.signer.keys import movement_of as movement_of
    from skillhouse.signer.keys import terms_from as terms_from
    from skillhouse.signer.keystore import read_vault as read_vault
    from skillhouse.signer.process import PasswordSource as PasswordSource
    from skillhouse.signer.process import SignerProcess as SignerProcess
    from skillhouse.signer.request import Signature as Signature
    from skillhouse.signer.request import Signer as Signer
    from skillhouse.signer.request import SignRequest as SignRequest
    from skillhouse.signer.request import message_text as message_text
    from skillhouse.signer.request import new_request as new_request
    from skillhouse.signer.request import with_approval as with_approval
    from skillhouse.signer.signer_errors import SignerError as SignerError
    from skillhouse.signer.transaction import Transaction as Transaction
    from skillhouse.signer.transaction import build_transaction as build_transaction
    from skillhouse.signer.transaction import decode_transaction as decode_transaction
    from skillhouse.signer.transaction import raw_bytes as raw_bytes
    from skillhouse.signer.unlock import ask_password as ask_password
    from skillhouse.signer.unlock import check_new as check_new
    from skillhouse.signer.unlock import keyring_secret as keyring_secret
    from skillhouse.signer.unlock import new_password as new_password
    from skillhouse.signer.unlock import read_descriptor as read_descriptor
    from skillhouse.signer.unlock import system_keyring as system_keyring
    from skillhouse.store import STATE_FILE as STATE_FILE
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
