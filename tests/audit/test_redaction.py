"""Tests of audit/redaction.py: which secrets are hidden, in every form in which they travel."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.audit import AuditDraft, DecidedPermission, redacted
from skillhouse.audit.redaction import HIDDEN, MAX_SECRETS, KnownSecrets
from tests.audit.logs import log_at

ADDRESS = "0x" + "aB" * 20
TX_HASH = "0x" + "0f" * 32


@pytest.mark.req("S000-121")
@pytest.mark.parametrize(
    "key",
    "privateKey private_key PRIVATE_KEY PrivateKey seed mnemonic secret password passwd apiKey "
    "api_key API_KEY api-key apikey token TOKEN auth authorization Authorization cookie credential "
    "credentials clientSecret access_token X-Api-Key userPassword".split(),
)
def test_a_value_under_a_secret_key_is_hidden(key: str) -> None:
    for value in ("abc", 7, None, ["abc"], {"a": "abc"}):
        assert redacted({key: value}) == {key: HIDDEN}


@pytest.mark.parametrize(
    "key",
    "author tokenAddress token_address max_tokens authority passwordless secretary seedling "
    "cookieConsent monkey key keyboard tokenizer apiKeyboard".split(),
)
def test_a_word_that_only_contains_a_secret_word_stays(key: str) -> None:
    assert redacted({key: "abc"}) == {key: "abc"}


@pytest.mark.req("S000-122")
def test_addresses_and_transaction_hashes_stay() -> None:
    arguments = {"to": ADDRESS, "txHash": TX_HASH, "text": f"paid {ADDRESS} in {TX_HASH}"}
    assert redacted(arguments) == arguments


@pytest.mark.req("S000-123")
def test_a_long_text_is_cut_and_marked() -> None:
    arguments = {"at": "x" * 200, "over": "y" * 201}
    assert redacted(arguments) == {"at": "x" * 200, "over": "y" * 50 + "...[truncated]"}


@pytest.mark.req("S000-124")
def test_redaction_reaches_into_nested_values() -> None:
    arguments = {"a": {"b": [{"password": "p", "c": [["z" * 201]]}], "token": {"d": 1}}}
    assert redacted(arguments) == {
        "a": {"b": [{"password": HIDDEN, "c": [["z" * 50 + "...[truncated]"]]}], "token": HIDDEN}
    }


CANARIES = {
    "openai": "sk-proj1234567890abcdefCANARY",
    "anthropic": "sk-ant-api03-1234567890CANARY",
    "github": "ghp_1234567890abcdefCANARY",
    "github_server": "ghs_1234567890abcdefCANARY",
    "github_fine": "github_pat_1234567890abcdefCANARY",
    "aws": "AKIACANARY1234567890",
    "slack": "xoxb-1234-CANARYabcdef",
    "slack_app": "xapp-1-A1234-CANARYabcdef",
    "gitlab": "glpat-1234567890CANARYabcd",
    "npm": "npm_1234567890abcdefCANARY",
    "hugging_face": "hf_1234567890abcdefCANARY",
    "stripe": "sk_live_1234567890abcdefCANARY",
    "google": "AIzaSyA1234567890abcdefghijklmnCANARY",
    "google_token": "ya29.1234567890abcdefCANARY",
    "sendgrid": "SG.1234567890abcdef.1234567890CANARY",
    "age": "AGE-SECRET-KEY-1QQQQQQQQQQQQQQQCANARY",
    "telegram": "123456789:AAE1234567890abcdefghijklmnopCANARY",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJDQU5BUlkifQ.CANARYCANARY",
    "pem": "-----BEGIN EC PRIVATE KEY-----\nCANARY\n-----END EC PRIVATE KEY-----",
    "pem_unfinished": "-----BEGIN PRIVATE KEY-----\nCANARY",
    "url": "https://me:CANARY@example.org/x",
    "query": "https://example.org/?q=1&api_key=CANARY",
    "header": "curl -H 'Authorization: Bearer CANARY' https://example.org",
    "cookie": "Cookie: session=CANARY",
    "option": "deploy --password CANARY now",
    "option_equals": "deploy --api-key=CANARY",
    "environment": "GITHUB_TOKEN=CANARY git push",
    "json": '{"password": "CANARY", "a": 1}',
    "json_list": '{"apikey": ["CANARY", ["CANARY"]], "a": 1}',
    "json_map": '{"credentials": {"user": "[{CANARY", "word": "CANARY"}, "a": 1}',
    "json_unfinished": '{"tokens": 1, "token": [["CANARY"], "CANARY',
    "json_quote": '{"password": "a\\"CANARY", "a": 1}',
    "json_in_a_word": 'curl -d "{\\"password\\": \\"CANARY\\"}" https://example.org',
    "json_twice": '"{\\"a\\": \\"{\\\\\\"token\\\\\\":\\\\\\"CANARY\\\\\\"}\\"}"',
    "within_another_value": "the key 'password=CANARY'",
    "braces": "PASSWORD={ CANARY }",
}


@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
def test_what_looks_like_a_secret_is_hidden_in_any_text(canary: str) -> None:
    for text in (
        canary,
        f"first {canary} last",
        canary + " " + "x" * 300,
        "y" * 30 + f" {canary}" * 9,
    ):
        found = json.dumps(redacted({"text": text, text: 1, "list": [text, {"deep": text}]}))
        assert "CANARY" not in found


@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
def test_no_secret_reaches_the_file_through_any_field(tmp_path: Path, canary: str) -> None:
    log = log_at(tmp_path / "audit.jsonl")
    log.append(
        AuditDraft(
            kind="refusal",
            tool=canary,
            agent=canary,
            user=canary,
            channel=canary,
            arguments={"x": canary},
            permissions=(
                DecidedPermission(action=canary, resource=canary, effect="deny", layer=canary),
            ),
            reason=f"failed: {canary}",
            status="denied",
            detail={"error": canary},
        ),
        durable=False,
    )
    assert "CANARY" not in log.path.read_text()


def test_the_value_after_a_secret_option_of_an_argv_is_hidden() -> None:
    argv = ["deploy", "--token", "abc", "--force", "abc", "--password=abc"]
    assert redacted({"argv": argv}) == {
        "argv": ["deploy", "--token", HIDDEN, "--force", "abc", f"--password={HIDDEN}"]
    }


def test_ordinary_text_stays_as_it_is() -> None:
    text = "task-runner: a token is needed, reset the password; author=me, path=/a/b?x=1"
    assert redacted({"text": text}) == {"text": text}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (1.5, "1.5"),
        (True, True),
        (None, None),
        (2**300, "301 bits...[truncated]"),
        (b"abc", "<bytes>"),
        ("a\u2028b\u202ec\x9b\x7f", "a\\u2028b\\u202ec\\u009b\\u007f"),
        ("\ud800", "\\ud800"),
        ("line\nline", "line\nline"),
        (list(range(300)), [*range(256), "44 more...[truncated]"]),
    ],
)
def test_other_values_become_json(value: object, kept: object) -> None:
    assert redacted({"a": value}) == {"a": kept}


def test_a_map_with_very_many_keys_is_cut() -> None:
    kept = redacted({f"k{number}": number for number in range(300)})
    assert len(kept) == 257
    assert kept["...[truncated]"] == 44


def test_a_call_with_very_many_values_is_cut() -> None:
    kept = redacted({f"k{number}": ["x"] * 100 for number in range(100)})
    assert len(json.dumps(kept)) < 10_000
    assert kept["...[truncated]"] == 90


def test_what_is_deeper_than_sixteen_is_cut() -> None:
    value: object = "bottom"
    for _ in range(40):
        value = {"a": value}
    text = json.dumps(redacted({"a": value}))
    assert text.count("{") == 16
    assert "...[truncated]" in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@pytest.mark.slow
@given(arguments=st.dictionaries(st.text(), JSON))
def test_any_arguments_become_json_with_ascii_keys(arguments: dict[str, object]) -> None:
    assert json.loads(json.dumps(redacted(arguments), allow_nan=False)) == redacted(arguments)
    assert all(key.isascii() for key in redacted(arguments))


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


@pytest.mark.slow
@given(secret=SECRETS, form=st.sampled_from(sorted(FORMS)))
def test_each_form_of_a_secret_is_hidden(secret: str, form: str) -> None:
    dressed = FORMS[form](secret)
    found = KnownSecrets([secret]).hide(f"before {dressed} after")
    assert dressed not in found
    assert HIDDEN in found


@pytest.mark.slow
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
