"""Tests of signer/service.py: what is signed, what is refused, and what stays counted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256K1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from eth_account import Account
from eth_account.messages import encode_defunct

from skillhouse.floor import MissingExtraError
from skillhouse.floor.structs import replace
from skillhouse_signer import (
    KeyKind,
    SignerError,
    new_request,
    read_key_records,
    terms_from,
    with_approval,
)
from skillhouse_signer.request import Named, NewKey
from skillhouse_signer.service import Service
from tests.signer.places import (
    ALICE,
    BOB,
    DAY_MS,
    ETH,
    FEE,
    MALLORY,
    TOKEN,
    Bench,
    payment,
    token_call,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def code_of(bench: Bench, *arguments: object, **options: object) -> str:
    with pytest.raises(SignerError) as caught:
        bench.sign(*arguments, **options)  # type: ignore[arg-type]
    return caught.value.code


def test_an_ed25519_signature_is_good(bench: Bench) -> None:
    key = bench.key("main", KeyKind.ED25519)
    signed = bench.sign(key, "hello\nworld")
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signed.public_key))
    public.verify(signed.signature, b"hello\nworld")
    assert (signed.scheme, key.id) == ("ed25519", f"ed25519:{signed.public_key}")


def test_a_secp256k1_message_is_one_of_eip_191(bench: Bench) -> None:
    key = bench.key()
    signed = bench.sign(key, "hello")
    found = Account.recover_message(encode_defunct(text="hello"), signature=signed.signature)
    assert (signed.scheme, found.lower()) == ("eip191", key.id)


def test_a_signed_transaction_is_the_keys_own(bench: Bench) -> None:
    key = bench.key()
    signed = bench.sign(key, payment())
    assert Account.recover_transaction(signed.transaction).lower() == key.id


def test_an_ed25519_key_signs_no_transaction(bench: Bench) -> None:
    assert code_of(bench, bench.key("main", KeyKind.ED25519), payment()) == "wrong-key"


def test_a_key_that_is_no_session_key_needs_a_persons_yes(bench: Bench) -> None:
    key = bench.key("main", KeyKind.ED25519)
    assert code_of(bench, key, "hello", approved=False) == "needs-person"
    session = bench.session("message=1/2")
    assert bench.sign(session, "hello", approved=False).scheme == "eip191"


def test_a_session_key_signs_within_its_limits_only(bench: Bench) -> None:
    key = bench.session("eip155:1=1/2", recipients=(ALICE,))
    bench.sign(key, payment(ETH // 2), approved=False)
    assert code_of(bench, key, payment(ETH // 2, BOB), approved=False) == "recipient"
    assert code_of(bench, key, payment(ETH), approved=False) == "limit"
    assert code_of(bench, key, payment(chain_id=10), approved=False) == "limit"
    assert code_of(bench, key, token_call("a9059cbb", ALICE, 5), approved=False) == "limit"
    assert code_of(bench, key, "hello", approved=False) == "limit"


def test_a_key_with_limits_signs_nothing_that_cannot_be_counted(bench: Bench) -> None:
    key = bench.key("main", KeyKind.SECP256K1, "eip155:1=1/2")
    assert code_of(bench, key, token_call("d0e30db0")) == "uncountable"
    free = bench.key("free")
    bench.sign(free, token_call("d0e30db0"))


def test_only_the_contracts_of_the_terms_are_called(bench: Bench) -> None:
    other = "0x" + "8" * 40
    key = bench.session(
        "eip155:1=1/1",
        f"eip155:1/erc20:{TOKEN}=9/9",
        f"eip155:1/erc20:{other}=9/9",
        contracts=(TOKEN,),
    )
    bench.sign(key, token_call("a9059cbb", BOB, 9), approved=False)
    elsewhere = token_call("a9059cbb", BOB, 1, token=other)
    assert code_of(bench, key, elsewhere, approved=False) == "recipient"


def test_an_allowance_is_counted_like_a_payment(bench: Bench) -> None:
    key = bench.session("eip155:1=1/1", f"eip155:1/erc20:{TOKEN}=9/9")
    assert code_of(bench, key, token_call("095ea7b3", MALLORY, 2**256 - 1)) == "limit"
    bench.sign(key, token_call("095ea7b3", MALLORY, 9))
    assert code_of(bench, key, token_call("a9059cbb", MALLORY, 1)) == "limit"


def test_the_limit_itself_may_be_spent_and_not_one_unit_more(bench: Bench) -> None:
    key = bench.session("eip155:1=2/3")
    assert code_of(bench, key, payment(2 * ETH - FEE + 1)) == "limit"
    bench.sign(key, payment(2 * ETH - FEE))
    assert code_of(bench, key, payment(ETH - FEE + 1)) == "limit"
    bench.sign(key, payment(ETH - FEE))
    bench.clock.passes(DAY_MS + 3_600_000)
    assert code_of(bench, key, payment(1)) == "session-over"


def test_after_24_hours_the_allowance_is_whole_again(bench: Bench) -> None:
    key = bench.key("main", KeyKind.SECP256K1, "message=2/2")
    bench.sign(key, "one")
    bench.sign(key, "two")
    bench.clock.passes(DAY_MS - 3_600_000)
    assert code_of(bench, key, "three") == "limit"
    bench.clock.passes(2 * 3_600_000)
    bench.sign(key, "three")


def test_a_refused_request_counts_nothing_and_may_be_signed_later(bench: Bench) -> None:
    key = bench.key("main", KeyKind.SECP256K1, "message=1/1")
    request = new_request(key, "message", b"hello", bench.clock.now.wall_ms)
    agreed = with_approval(request, request.binding, "yes")
    bench.clock.is_set(-DAY_MS)
    with pytest.raises(SignerError, match="clock was set back"):
        bench.service.sign(agreed)
    bench.clock.is_set(DAY_MS)
    bench.service.sign(agreed)


def test_a_request_waits_ten_minutes(bench: Bench) -> None:
    key = bench.key("main", KeyKind.ED25519)
    request = new_request(key, "message", b"hello", bench.clock.now.wall_ms)
    bench.clock.passes(600_000)
    with pytest.raises(SignerError) as caught:
        bench.service.sign(with_approval(request, request.binding, "yes"))
    assert caught.value.code == "expired"


def test_a_session_key_ends(bench: Bench) -> None:
    key = bench.session("message=9/9")
    bench.sign(key, "hello", approved=False)
    assert bench.sessions.state("bot") == "active"
    bench.clock.passes(DAY_MS)
    assert bench.sessions.state("bot") == "expired"
    assert code_of(bench, key, "hello", approved=False) == "session-over"
    # Nor does a person's yes bring it back: the terms of its life are over.
    assert code_of(bench, key, "hello") == "session-over"


def test_all_session_keys_end_at_once_and_without_a_password(bench: Bench) -> None:
    one, two = bench.session("message=9/9"), bench.session("message=9/9", name="two")
    assert bench.sessions.revoke_all("emergency stop") == 2
    for key in (one, two):
        assert code_of(bench, key, "hello", approved=False) == "session-over"
        assert bench.sessions.state(key.name) == "revoked"
    assert bench.sessions.revoke_all("again") == 0
    assert bench.sessions.state("none") == "missing"


def test_a_rotated_session_key_is_new_and_the_old_one_ends(bench: Bench) -> None:
    old = bench.session("message=9/9")
    bench.clock.passes(1_000)
    new = bench.service.rotate(Named(name="bot")).keys[0]
    assert (new.terms, new.expires_ms) == (old.terms, old.expires_ms + 1_000)
    assert new.id != old.id
    assert code_of(bench, old, "hello", approved=False) == "binding"
    bench.sign(new, "hello", approved=False)
    assert [session.state for session in bench.sessions.all()] == ["revoked", "active"]


def test_the_life_of_each_key_is_in_the_log(bench: Bench) -> None:
    key = bench.key("main", KeyKind.ED25519)
    old = bench.session("message=9/9")
    new = bench.service.rotate(Named(name="bot")).keys[0]
    bench.sessions.revoke("bot", "lost")
    bench.service.terms(Named(name="main", terms=terms_from(("message=1/1",))))
    bench.service.remove(Named(name="main"))
    bench.service.accept(Named(name=""))
    found = [(event.event, event.name, event.key_id) for event in bench.sessions.events()]
    assert found == [
        ("created", "main", key.id),
        ("created", "bot", old.id),
        ("rotated", "bot", old.id),
        ("created", "bot", new.id),
        ("revoked", "bot", new.id),
        ("terms", "main", key.id),
        ("removed", "main", key.id),
        ("accepted", "", ""),
    ]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (NewKey(name="Main", kind=KeyKind.ED25519, terms=terms_from(())), "name-taken"),
        (NewKey(name="a b", kind=KeyKind.ED25519, terms=terms_from(())), "name-taken"),
        (NewKey(name="main", kind=KeyKind.ED25519, terms=terms_from(())), "name-taken"),
        (
            NewKey(name="s", kind=KeyKind.ED25519, terms=terms_from(()), session_seconds=60),
            "limit",
        ),
        (
            NewKey(
                name="s",
                kind=KeyKind.ED25519,
                terms=terms_from(("message=1/1",)),
                session_seconds=10**7,
            ),
            "limit",
        ),
    ],
)
def test_a_key_that_makes_no_sense_is_not_made(bench: Bench, wanted: NewKey, code: str) -> None:
    main = bench.key()
    with pytest.raises(SignerError) as caught:
        bench.service.new(wanted)
    assert caught.value.code == code
    assert read_key_records(bench.keystore).keys == (main,)


def test_a_removed_key_signs_no_more(bench: Bench) -> None:
    key = bench.key()
    bench.service.remove(Named(name="main"))
    assert code_of(bench, key, "hello") == "unknown-key"


def test_another_service_sees_a_new_key_and_a_removed_one(bench: Bench) -> None:
    key = bench.key()
    other = bench.opened()
    late = bench.key("late")
    bench.service, other = other, bench.service
    bench.sign(late, "hello")
    bench.service.remove(Named(name="main"))
    bench.service = other
    assert code_of(bench, key, "hello") == "unknown-key"


def test_keys_are_imported_from_hex_and_from_pem(bench: Bench) -> None:
    account = Account.create()
    assert bench.imported(account.key.hex()).id == account.address.lower()
    pems: list[tuple[Any, KeyKind, serialization.PrivateFormat]] = [
        (Ed25519PrivateKey.generate(), KeyKind.ED25519, serialization.PrivateFormat.OpenSSH),
        (Ed25519PrivateKey.generate(), KeyKind.ED25519, serialization.PrivateFormat.PKCS8),
        (generate_private_key(SECP256K1()), KeyKind.SECP256K1, serialization.PrivateFormat.PKCS8),
    ]
    for key, kind, form in pems:
        bench.service.remove(Named(name="in"))
        text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        assert bench.imported(text.decode(), kind=kind).id.startswith(("0x", "ed25519:"))


@pytest.mark.parametrize(
    "text", ["ab", "zz" * 32, "00" * 32, "ff" * 32, "-----BEGIN PRIVATE KEY-----\nabc"]
)
def test_what_is_no_private_key_is_not_imported_nor_repeated(bench: Bench, text: str) -> None:
    with pytest.raises(SignerError) as caught:
        bench.imported(text)
    assert caught.value.code == "wrong-key"
    assert text not in str(caught.value)


def test_a_key_is_imported_once(bench: Bench) -> None:
    bench.imported("11" * 32)
    with pytest.raises(SignerError, match="there already"):
        bench.imported("11" * 32)


def test_a_wrong_password_opens_nothing(bench: Bench) -> None:
    bench.key()
    with pytest.raises(SignerError, match="does not open"):
        bench.opened("another password")


def test_a_short_new_password_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.service = bench.opened("short")
    with pytest.raises(SignerError, match="8 characters"):
        bench.key()
    assert not bench.keystore.exists()


@pytest.mark.parametrize("text", ["", "a\x1b[2Jb", "pay \u202eyako", "a\x00", "zero\u200bwidth"])
def test_a_message_that_cannot_be_shown_is_not_signed(bench: Bench, text: str) -> None:
    assert code_of(bench, bench.key(), text) == "unreadable-message"


def test_bytes_that_are_no_text_are_not_signed(bench: Bench) -> None:
    key = bench.key("main", KeyKind.ED25519)
    request = new_request(key, "message", b"\xff\xfe", bench.clock.now.wall_ms)
    with pytest.raises(SignerError, match="UTF-8"):
        bench.service.sign(with_approval(request, request.binding, "yes"))


def test_a_tampered_keystore_stops_a_signer_that_is_open(bench: Bench) -> None:
    key = bench.session("message=1/1")
    content = json.loads(bench.keystore.read_text())
    content["keys"][0]["terms"]["limits"][0]["per_day"] = 1_000
    bench.keystore.write_text(json.dumps(content))
    assert code_of(bench, key, "hello", approved=False) == "wrong-password"


def test_another_key_of_the_same_name_is_not_what_was_agreed_to(bench: Bench) -> None:
    key = bench.key("main", KeyKind.ED25519)
    bench.service.remove(Named(name="main"))
    bench.key("main", KeyKind.ED25519)
    assert code_of(bench, key, "hello") == "binding"


def test_a_request_of_no_known_form_is_refused(bench: Bench) -> None:
    key = bench.key("main", KeyKind.ED25519)
    request = new_request(key, "message", b"hello", bench.clock.now.wall_ms)
    for changed in (replace(request, type="blind"), replace(request, id="x")):
        with pytest.raises(SignerError) as caught:
            bench.service.sign(with_approval(changed, changed.binding, "yes"))
        assert caught.value.code == "binding"


def test_a_signature_that_fails_is_not_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = bench.key("main", KeyKind.ED25519, "message=1/1")
    with monkeypatch.context() as patch:
        patch.setattr("skillhouse_signer.service.sign_message", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bench.sign(key, "hello")
    bench.sign(key, "hello")


@pytest.mark.parametrize(
    ("kind", "module"),
    [(KeyKind.SECP256K1, "eth_account"), (KeyKind.ED25519, "cryptography")],
)
def test_a_missing_library_is_named_with_its_extra(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: KeyKind, module: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match="optional part `signer`"):
        bench.key("main", kind)
    assert not bench.keystore.exists()


def test_the_first_key_of_two_houses_makes_one_keystore(bench: Bench) -> None:
    other = bench.opened()
    bench.key()
    bench.service = other
    with pytest.raises(SignerError, match="another process made the keystore"):
        bench.key("second")
    bench.restart()
    bench.key("second")
    assert [key.name for key in read_key_records(bench.keystore).keys] == ["main", "second"]


def test_a_keystore_has_an_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skillhouse_signer.keystore.KEYS_MAX", 1)
    bench.key()
    with pytest.raises(SignerError, match="at most 1 keys"):
        bench.key("second")


def test_session_keys_keep_a_limit_and_only_they_rotate(bench: Bench) -> None:
    bench.key("main", KeyKind.ED25519)
    bench.session("message=1/1")
    with pytest.raises(SignerError, match="needs a limit"):
        bench.service.terms(Named(name="bot", terms=terms_from(())))
    with pytest.raises(SignerError, match="expected the new terms"):
        bench.service.terms(Named(name="bot"))
    with pytest.raises(SignerError, match="no session key"):
        bench.service.rotate(Named(name="main"))


def test_without_a_password_nothing_opens(bench: Bench) -> None:
    bench.key()
    with pytest.raises(SignerError, match="no password was given"):
        Service().open(bench.opening())
    with pytest.raises(SignerError, match="out of bounds"):
        Service().open(replace(bench.opening(), cost=30))


def test_a_wrong_clock_makes_no_session_key(bench: Bench) -> None:
    bench.key()
    bench.clock.is_set(DAY_MS)
    with pytest.raises(SignerError, match="clock was set forward"):
        bench.session("message=1/1")
    assert bench.sessions.all() == ()
