"""The values of a configuration's `[bot]`, and of the services in which the bot is."""

from __future__ import annotations

from msgspec import Struct

from skillhouse.floor import ConfigError
from skillhouse.floor.regex import regex
from skillhouse.house.config.code_settings import callback_of
from skillhouse.house.config.secret_places import check_place

_WHO = regex(
    r"(?:telegram|discord):(?:chat:)?-?[0-9]{1,20}|(?!telegram:|discord:|chat:)[a-z]{1,20}:\S+"
)
"""An entry of `allow`; the ids of the services that are built in are numbers."""


class TelegramSettings(Struct, frozen=True, kw_only=True):
    """The table `[bot.telegram]`."""

    token: str
    """Where the token is that BotFather gave, env:NAME or file:PATH; never itself."""
    server: str = ""
    """Address of another Bot API server, such as one of your own; "" is Telegram's."""
    webhook: str = ""
    """Address, with https, to which Telegram brings updates; "" asks for them instead."""
    listen: str = "127.0.0.1:8643"
    """With `webhook`, where the bot takes them, ADDRESS:PORT, behind a server that has TLS."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a token that is not named by its place, or a wrong address."""
        check_place(self.token, key="token")
        callback_of(self.listen, key="listen")


class DiscordSettings(Struct, frozen=True, kw_only=True):
    """The table `[bot.discord]`."""

    token: str
    """Where the bot's token of the developer portal is, env:NAME or file:PATH; never itself."""
    server: str = ""
    """Address with https in place of Discord's, with a certificate of its names; "" is Discord."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a token that is not named by its place."""
        check_place(self.token, key="token")


class BotSettings(Struct, frozen=True, kw_only=True):
    """Who talks with which assistant in chat services."""

    allow: tuple[str, ...] = ()
    """Who may talk with it: `telegram:USER` or `discord:USER`, or `telegram:chat:CHAT` for all of a
    chat. The bot says a stranger's id."""
    approvers: tuple[str, ...] = ()
    """Who may answer the questions of all others, as `telegram:USER` or `discord:USER`."""
    agent: str = "default"
    """The agent whose skills and rules hold."""
    model: str = ""
    """Provider and name, as of `skillhouse chat --model`; "" is that of the variable."""
    base_url: str = ""
    """An OpenAI-compatible address, as of `--base-url`."""
    key_variable: str = ""
    """Environment variable with the model's key; "" is the provider's usual one."""
    key: str = ""
    """Where the model's key is instead, env:NAME or file:PATH; never itself."""
    telegram: TelegramSettings | None = None
    """The bot of Telegram, where there is one."""
    discord: DiscordSettings | None = None
    """The bot of Discord, where there is one."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a key that is not named by its place, or who can be no one."""
        for key, entries in (("allow", self.allow), ("approvers", self.approvers)):
            for one in entries:
                if not _WHO.fullmatch(one) or (key == "approvers" and ":chat:" in one):
                    raise ConfigError(
                        f"`{one}` in `{key}` is no one: expected such as `telegram:123456789`; the "
                        "bot says their id to who writes to it",
                        key=key,
                    )
        if self.key:
            check_place(self.key, key="key")

    @property
    def has_channels(self) -> bool:
        return self.telegram is not None or self.discord is not None
