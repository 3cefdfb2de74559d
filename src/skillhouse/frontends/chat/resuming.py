"""Which model a chat is with: what the person names, then the transcript, then the variables."""

from __future__ import annotations

from collections.abc import Mapping

from skillhouse.floor import ConfigError
from skillhouse.frontends.chat.models import Wanted, is_loopback
from skillhouse.frontends.chat.transcript import TranscriptHead
from skillhouse.frontends.presentation.text import one_line


def wanted(named: Wanted, head: TranscriptHead | None, environment: Mapping[str, str]) -> Wanted:
    """Return the model, as far as anybody names one.

    A transcript is a file, and files do not say where words and keys go: of an address outside this
    machine and of a key's variable it only reminds the person.

    Args:
        named: What the options say.
        head: How the conversation that goes on began; None for a new one.
        environment: Its variables stand for the options.

    Raises:
        ConfigError: the person has to name something again.
    """
    usual = Wanted(
        model=environment.get("SKILLHOUSE_CHAT_MODEL", ""),
        base_url=environment.get("SKILLHOUSE_CHAT_BASE_URL", ""),
    )
    if head is None:
        return Wanted(
            model=named.model or usual.model,
            base_url=named.base_url or usual.base_url,
            key_variable=named.key_variable,
        )
    again = []
    is_known = head.base_url in ("", usual.base_url) or is_loopback(head.base_url)
    if not named.base_url and not is_known:
        again.append(f"--base-url {head.base_url}")
    if not named.key_variable and head.key_variable:
        again.append(f"--key-variable {head.key_variable}")
    if again:
        options = one_line(" ".join(again))
        raise ConfigError(f"to go on with this conversation, name again where it goes: `{options}`")
    return Wanted(
        model=named.model or head.model,
        base_url=named.base_url or head.base_url,
        key_variable=named.key_variable,
    )
