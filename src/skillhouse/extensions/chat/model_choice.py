"""Which model a chat has: from the options, a transcript or the environment.

Nothing of a provider's package is imported here, so that what is wrong with the options shows at
once, before the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from skillhouse.audit import is_secret_name
from skillhouse.extensions.chat.transcript import TranscriptHead
from skillhouse.floor import ConfigError
from skillhouse.presentation.text import one_line

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Wanted(Struct, frozen=True, kw_only=True):
    model: str
    """`provider:name`; with an address also just a name."""
    base_url: str = ""
    """Address of the API; empty for the provider's own."""
    key_variable: str = ""
    """Environment variable with the key; empty for the provider's usual one."""

    @property
    def where(self) -> str:
        """The model, and its address if given, for display."""
        return f"{self.model} at {self.base_url}" if self.base_url else self.model


def check(wanted: Wanted) -> None:
    """Raise ConfigError if no model is named, or the address is invalid or holds a secret."""
    if not wanted.model:
        raise ConfigError(
            "name a model, such as `--model openai:gpt-5`, or set SKILLHOUSE_CHAT_MODEL; a model "
            "of this machine: `--model NAME --base-url http://127.0.0.1:11434/v1`"
        )
    if wanted.base_url:
        _check_url(wanted.base_url)


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"expected an address, got `{url}`") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"expected an address such as `http://127.0.0.1:8080/v1`, got `{url}`")
    if parts.username or parts.password:
        raise ConfigError("an address with a password in it would be kept; use `--key-variable`")
    if any(is_secret_name(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise ConfigError("an address with a key in it would be kept; use `--key-variable`")


def is_loopback(url: str) -> bool:
    try:
        return urlsplit(url).hostname in LOOPBACK
    except ValueError:
        return False


def choose_model(
    named: Wanted, head: TranscriptHead | None, environment: Mapping[str, str]
) -> Wanted:
    """Return the model from the options, or a resumed transcript, or else the environment.

    A transcript is a file, and must not decide where prompts and keys are sent: an address outside
    this machine and a key's variable have to be given again, or a ConfigError says so.
    """
    usual = Wanted(
        model=environment.get("SKILLHOUSE_CHAT_MODEL", ""),
        base_url=environment.get("SKILLHOUSE_CHAT_BASE_URL", ""),
    )
    before: Wanted | TranscriptHead = usual if head is None else head
    again = []
    is_known = before.base_url in ("", usual.base_url) or is_loopback(before.base_url)
    if not named.base_url and not is_known:
        again.append(f"--base-url {before.base_url}")
    if not named.key_variable and before.key_variable:
        again.append(f"--key-variable {before.key_variable}")
    if again:
        options = one_line(" ".join(again))
        raise ConfigError(f"to go on with this conversation, name again where it goes: `{options}`")
    return Wanted(
        model=named.model or before.model,
        base_url=named.base_url or before.base_url,
        key_variable=named.key_variable,
    )
