"""Tests of audit/known.py: a secret that we know is found in every form in which it travels."""

from __future__ import annotations

import base64
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.audit.known import HIDDEN, MAX_SECRETS, KnownSecrets

FORMS: dict[str, Callable[[str], str]] = {
    "raw": lambda text: text,
    "hex": lambda text: text.encode().hex(),
    "upper hex": lambda text: text.encode().hex().upper(),
    "url": lambda text: quote(text, safe=""),
    "url with plus": quote_plus,
    "every byte": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "twice": lambda text: quote(quote(text, safe=""), safe=""),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}
SECRETS = st.text(min_size=8, max_size=60).filter(lambda text: text.strip() == text)


@given(secret=SECRETS, form=st.sampled_from(sorted(FORMS)))
def test_each_form_of_a_secret_is_hidden(secret: str, form: str) -> None:
    dressed = FORMS[form](secret)
    found = KnownSecrets([secret]).hide(f"before {dressed} after")
    assert dressed not in found
    assert HIDDEN in found


@given(secret=SECRETS, before=st.binary(max_size=40), after=st.binary(max_size=40))
def test_a_secret_within_coded_bytes_is_hidden_at_any_place(
    secret: str, before: bytes, after: bytes
) -> None:
    for code in (base64.b64encode, base64.urlsafe_b64encode):
        coded = code(before + secret.encode() + after).decode()
        assert coded not in KnownSecrets([secret]).hide(f"x={coded}&")


def test_short_values_are_not_searched() -> None:
    assert KnownSecrets(["1234567"]).hide("1234567 and 12345678") == "1234567 and 12345678"
    assert not KnownSecrets(["", "short"])
    assert KnownSecrets(["12345678"]).hide("1234567 and 12345678") == f"1234567 and {HIDDEN}"


def test_a_line_of_a_longer_secret_is_a_secret() -> None:
    key = (
        "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"
    )
    assert KnownSecrets([key]).hide("x AQEFAASCBKcwggSjAgEAAoIB y") == f"x {HIDDEN} y"


@pytest.mark.parametrize("between", ["\n", "\r\n", " \n\t"])
def test_a_secret_broken_over_lines_hides_the_text(between: str) -> None:
    assert KnownSecrets(["correct-horse"]).hide(f"a correct{between}-horse b") == HIDDEN


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    found = KnownSecrets(["password", "password-of-the-house"]).hide("a password-of-the-house")
    assert found == f"a {HIDDEN}"


def test_very_many_secrets_keep_the_longest() -> None:
    known = KnownSecrets([f"secret-{'x' * (n % 7)}{n:05}" for n in range(MAX_SECRETS + 500)])
    assert known.hide("secret-xxxxxx00006") == HIDDEN
