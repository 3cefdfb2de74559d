"""The tool `sign`: one signature, of what was decoded here and agreed to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skillhouse.floor import Digest, SkillhouseError
from skillhouse.permission import Effect, Permission
from skillhouse.tools.call import (
    SKILL_CLAIM,
    TRANSACTION_PAGE,
    Output,
    PermissionRequest,
    Plan,
    RefusedError,
    object_schema,
)
from skillhouse.tools.tool import Session, Tool
from skillhouse_signer import (
    COINS,
    KeyInfo,
    SessionKeys,
    Signature,
    Signer,
    SignerError,
    Transaction,
    TransactionEffect,
    amount_text,
    build_transaction,
    decimal_amount,
    decode_transaction,
    limit_text,
    message_movement,
    message_text,
    movement_of,
    new_request,
    raw_bytes,
    read_key_records,
    with_approval,
)

CALLDATA_SHOWN = 256
"""Bytes of an unknown call that are shown, with its length."""
ACCESS_SHOWN = 8
"""Addresses of an access list that are shown; the others are counted."""
CLAIM_MAX = 500
"""Characters of what a skill says it is for."""

_NUMBER = {"type": ["integer", "string"], "minimum": 0}
_FIELDS = object_schema(
    {
        "chain_id": _NUMBER,
        "nonce": _NUMBER,
        "to": {"type": "string", "description": "an address, 0x and 40 hex digits"},
        "value": {**_NUMBER, "description": "in wei; a text when it is large"},
        "data": {"type": "string", "description": "calldata in hex"},
        "gas_limit": _NUMBER,
        "gas_price": _NUMBER,
        "max_fee_per_gas": _NUMBER,
        "max_priority_fee_per_gas": _NUMBER,
    },
    required=("chain_id", "nonce", "gas_limit"),
)

Clock = Callable[[], int]
"""Milliseconds since 1970."""


class SignTool(Tool):
    name = "sign"
    description = (
        "Sign a text message, or an EVM transaction, with a key of the user's. A person sees what "
        "the transaction itself says, and decides. Nothing is sent to a network. `data` is the "
        "text, or the unsigned transaction in hex; or give `transaction` by its fields."
    )
    durable = True
    required_actions = ("sign",)
    schema: Mapping[str, Any] = object_schema(
        {
            "key": {"type": "string", "minLength": 1, "description": "a key's name"},
            "type": {"enum": ["message", "transaction"]},
            "data": {"type": "string"},
            "transaction": _FIELDS,
            "purpose": {
                "type": "string",
                "maxLength": CLAIM_MAX,
                "description": "what it is for, in words; shown as your claim",
            },
        },
        required=("key", "type"),
    )

    def __init__(
        self,
        signer: Signer,
        keystore: Path,
        sessions: SessionKeys,
        *,
        approval: Callable[[Digest], str],
        clock: Clock = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`keystore` is the file whose open part names the keys. `approval` consumes the approval
        of a plan's `binding` on a transaction page and returns its id, or "": see
        `RedeemedApprovals.take`."""
        self._signer = signer
        self._keystore = keystore
        self._sessions = sessions
        self._approval = approval
        self._clock = clock

    def plan(self, arguments: Mapping[str, Any], session: Session) -> Plan:
        """Decode what is to be signed, and bind the approval to exactly these bytes."""
        try:
            key = read_key_records(self._keystore).get(arguments["key"])
            self._check_session(key)
            if arguments["type"] == "message":
                if "transaction" in arguments:
                    raise SignerError("unreadable-message", "expected a text in `data`")
                payload = arguments.get("data", "").encode()
                facts: tuple[tuple[str, str], ...] = (
                    ("signs", "a message, no transaction"),
                    ("message", message_text(payload)),
                )
                movement = message_movement()
                words: tuple[str, ...] = ()
            else:
                payload = _transaction_bytes(arguments)
                transaction = decode_transaction(payload)
                movement = movement_of(transaction)
                facts = _transaction_facts(transaction, movement)
                words = _resource_words(transaction, movement)
            request = new_request(key, arguments["type"], payload, self._clock())
        except SkillhouseError as error:
            raise RefusedError(str(error)) from error

        async def run() -> Output:
            try:
                # The approval is consumed once, at the moment of use.
                agreed = with_approval(request, request.approved, self._approval(request.content))
                return _output(key, movement, await self._signer.sign(agreed))
            except SkillhouseError as error:
                is_refusal = getattr(error, "code", "") not in ("signer-gone", "signer-failed")
                raise RefusedError(str(error), denied=is_refusal) from error

        return Plan(
            needs=(
                PermissionRequest(
                    permission=Permission(
                        action="sign", resource=" ".join((key.name, arguments["type"], *words))
                    ),
                    default=Effect.ASK,
                    why="no rule matches; signatures ask by default",
                    level="sign",
                    may_last=False,
                ),
            ),
            run=run,
            facts=(
                ("signs with", f"{key.name} ({key.id})"),
                *facts,
                *_term_facts(key),
                ("content", request.content),
            ),
            claims=((SKILL_CLAIM, arguments.get("purpose", "none")),),
            page="" if key.is_session else TRANSACTION_PAGE,
            spends=_spends(movement),
            binding=request.content,
            session_key=key.id if key.is_session else "",
        )

    def _check_session(self, key: KeyInfo) -> None:
        """No person is asked about what the signer would refuse."""
        if not key.is_session:
            return
        states = [s.state for s in self._sessions.all() if s.key_id == key.id]
        if states != ["active"]:
            state = states[0] if states else "not known to this state"
            raise SignerError(
                "session-over",
                f"session key `{key.name}` is {state}; sign with a key that a person confirms",
            )


def _transaction_bytes(arguments: Mapping[str, Any]) -> bytes:
    if ("data" in arguments) == ("transaction" in arguments):
        raise SignerError(
            "unreadable-transaction", "expected either `data` or `transaction`, not both"
        )
    if "data" in arguments:
        return raw_bytes(arguments["data"])
    return build_transaction(arguments["transaction"])


def _transaction_facts(
    transaction: Transaction, movement: TransactionEffect
) -> tuple[tuple[str, str], ...]:
    coin = COINS.get(transaction.chain_id, "not known by name")
    facts = [("does", _deed(movement))]
    for spend in movement.spends:
        label = "fee at most" if spend.recipient == "fee" else "amount"
        facts.append((label, amount_text(spend.currency, spend.amount)))
        if spend.recipient != "fee":
            facts.append(("to", spend.recipient or "a new contract"))
    if movement.contract:
        facts.append(("contract", movement.contract))
    facts += [
        ("chain", f"{transaction.chain_id}, its coin is {coin}"),
        ("nonce", str(transaction.nonce)),
        ("gas", f"{transaction.gas_limit} units, each at most {transaction.gas_price} wei"),
    ]
    if transaction.priority_fee is not None:
        facts.append(("priority fee", f"at most {transaction.priority_fee} wei for each unit"))
    if transaction.access_list:
        facts.append(("access list", _access_list_text(transaction)))
    if not movement.is_countable:
        shown = transaction.data[:CALLDATA_SHOWN].hex()
        facts += [
            (
                "AMOUNT UNKNOWN",
                "this can move anything that the contract may take from the account",
            ),
            ("calldata", f"{len(transaction.data)} bytes: 0x{shown}"),
        ]
    return tuple(facts)


def _access_list_text(transaction: Transaction) -> str:
    entries = transaction.access_entries
    addresses = dict.fromkeys(f"0x{address.hex()}" for address, _ in entries)
    shown = ", ".join(list(addresses)[:ACCESS_SHOWN])
    more = len(addresses) - ACCESS_SHOWN
    count = sum(keys for _, keys in entries)
    return (
        f"{len(entries)} entries with {count} storage keys, paid for as gas: "
        f"{shown}{f' and {more} more addresses' if more > 0 else ''}"
    )


def _deed(movement: TransactionEffect) -> str:
    # ERC-721 has the same two calls with a piece's number where ERC-20 has an amount.
    return {
        "send": "pays from the account",
        "transfer": "sends tokens (ERC-20 transfer)",
        "transferFrom": "sends tokens from an account that allowed it (ERC-20 transferFrom; "
        "of a contract for single pieces, the number says which piece)",
        "approve": "allows another account to take tokens later (ERC-20 approve; "
        "of a contract for single pieces, the number says which piece)",
        "create": "makes a new contract",
        "unknown": "calls a contract in a way that is not known here",
    }[movement.call]


def _resource_words(transaction: Transaction, movement: TransactionEffect) -> tuple[str, ...]:
    recipients = ",".join(r or "new-contract" for r in movement.recipients)
    return (f"eip155:{transaction.chain_id}", movement.call, recipients or movement.contract)


def _term_facts(key: KeyInfo) -> tuple[tuple[str, str], ...]:
    facts = [("limit", limit_text(limit)) for limit in key.terms.limits]
    if key.is_session:
        ends = datetime.fromtimestamp(key.expires_ms / 1000, UTC)
        facts.append(("session key until", f"{ends:%Y-%m-%d %H:%M} UTC"))
    return tuple(facts)


def _spends(movement: TransactionEffect) -> Any:
    if not movement.is_countable:
        return None
    return tuple((c, decimal_amount(c, amount)) for c, amount in movement.totals().items())


def _output(key: KeyInfo, movement: TransactionEffect, signed: Signature) -> Output:
    data = {
        "key": signed.key_id,
        "public_key": signed.public_key,
        "scheme": signed.scheme,
        "signature": "0x" + signed.signature.hex(),
    }
    text = f"signed with `{key.name}` ({signed.key_id}, {signed.scheme}): {data['signature']}"
    if signed.transaction:
        data["transaction"] = "0x" + signed.transaction.hex()
        data["hash"] = "0x" + signed.transaction_hash.hex()
        text = (
            f"signed transaction {data['hash']} with `{key.name}` ({signed.key_id}), not sent:\n"
            f"{data['transaction']}"
        )
    detail = {
        "key": signed.key_id,
        "scheme": signed.scheme,
        "call": movement.call,
        "spends": ", ".join(amount_text(*item) for item in movement.totals().items()),
        "tx_hash": data.get("hash", ""),
    }
    return Output(text=text, data=data, detail=detail)
