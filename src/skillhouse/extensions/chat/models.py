"""The model of a chat: created from `provider:name`, with limits for what its provider sends."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2
from msgspec import Struct
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)
from pydantic_ai.models import Model, infer_model, parse_model_id
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.usage import UsageLimits

from skillhouse.extensions.chat.model_choice import Wanted, check, is_loopback
from skillhouse.floor import (
    ConfigError,
    MissingExtraError,
    SkillhouseError,
    nearest,
    package_advice,
)
from skillhouse.floor.regex import regex

OPENAI_KEY = "OPENAI_API_KEY"
PROVIDERS = (
    "alibaba anthropic azure bedrock cerebras cohere crusoe deepseek fireworks gateway github "
    "google google-cloud groq heroku huggingface litellm meta mistral moonshotai nebius ollama "
    "openai openai-chat openai-responses openrouter ovhcloud sambanova snowflake together vercel "
    "vllm xai zai"
).split()
"""The library's providers of chat models, for suggestions."""

_VARIABLE = regex(r"`([A-Z][A-Z0-9_]{3,})`")
_GROUP = regex(r"pydantic-ai-slim\[([a-z-]+)\]")


class MissingProviderError(MissingExtraError):
    def __init__(self, provider: str, group: str, module: str) -> None:
        how = package_advice(f"pydantic-ai-slim[{group}]")
        SkillhouseError.__init__(
            self, f"the provider `{provider}` needs a package of its own; {how}"
        )
        self.extra = group
        self.module = module


class UsableModel(Struct, frozen=True, kw_only=True):
    model: Model
    where: str = ""
    """The model, and its address if given, for display."""
    secrets: tuple[str, ...] = ()
    """The key, if given; it must not be stored."""
    notice: str = ""
    """A warning before the first request."""
    reports_end: bool = True
    """Whether a whole answer has a finish reason, as every provider's has."""


def model_of(wanted: Wanted, environment: Mapping[str, str]) -> UsableModel:
    """Return the model; nothing is sent yet.

    Raises:
        ConfigError: the provider is unknown, its key is missing, or the address is invalid.
        MissingProviderError: the provider's package is not installed.
    """
    check(wanted)
    prefix, name = parse_model_id(wanted.model)
    if prefix is None or not _is_provider(prefix):
        if not wanted.base_url:
            raise _unknown(wanted.model)
        prefix, name = None, wanted.model
    if not name:
        raise ConfigError(f"expected `provider:name`, got `{wanted.model}`")
    if wanted.base_url and prefix in (None, "openai", "openai-chat"):
        try:
            return _compatible(name, wanted, environment)
        except ImportError as error:
            raise MissingExtraError("chat", error.name or "openai") from error
    key = _key(wanted.key_variable, environment)
    try:
        model = infer_model(
            f"{prefix}:{name}", lambda provider: _provider(provider, wanted.base_url, key)
        )
    except UserError as error:
        raise _without_key(prefix or "", str(error)) from error
    except ImportError as error:
        raise _missing(prefix or "", error) from error
    return UsableModel(model=model, where=wanted.where, secrets=(key,) if key else ())


def _compatible(name: str, wanted: Wanted, environment: Mapping[str, str]) -> UsableModel:
    """Return a model at an address with OpenAI's chat completions API."""
    from pydantic_ai.models.openai import OpenAIChatModel  # noqa: PLC0415 - of the extra
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider  # noqa: PLC0415

    key, notice = _key(wanted.key_variable, environment), ""
    usual = environment.get(OPENAI_KEY, "")
    if not key and usual and wanted.model.startswith(("openai:", "openai-chat:")):
        if _is_safe(wanted.base_url):
            key = usual
        else:
            notice = (
                f"{OPENAI_KEY} is not sent over plain http to another machine; "
                f"`--key-variable {OPENAI_KEY}` sends it all the same"
            )
    provider = OpenAICompatibleProvider(
        urlsplit(wanted.base_url).netloc,
        base_url=wanted.base_url,
        api_key=key or None,
        http_client=bounded_client(),
    )
    model = OpenAIChatModel(name, provider=provider)
    secrets = (key,) if key else ()
    return UsableModel(model=model, where=wanted.where, secrets=secrets, notice=notice)


def _provider(name: str, base_url: str, key: str) -> Provider[Any]:
    provider = infer_provider_class(name)
    takes = inspect.signature(provider.__init__).parameters
    given = {"base_url": base_url, "api_key": key}
    for parameter, value in given.items():
        if value and parameter not in takes:
            option = {"base_url": "--base-url", "api_key": "--key-variable"}[parameter]
            raise ConfigError(f"the provider `{name}` takes no `{option}`")
    return provider(**{parameter: value for parameter, value in given.items() if value})


def _key(variable: str, environment: Mapping[str, str]) -> str:
    if variable and not environment.get(variable):
        raise ConfigError(f"the environment has no `{variable}`, which is to hold the key")
    return environment.get(variable, "") if variable else ""


def _is_provider(name: str) -> bool:
    try:
        infer_provider_class(name)
    except ValueError:
        return False
    except ImportError:
        # A provider whose package is missing: reported when the model is created.
        return True
    return True


def _unknown(model: str) -> ConfigError:
    prefix, colon, _ = model.partition(":")
    if not colon:
        return ConfigError(f"expected `provider:name`, such as `openai:gpt-5`, got `{model}`")
    close = next(iter(nearest(prefix, PROVIDERS)), "")
    return ConfigError(f"unknown provider `{prefix}`", suggestion=close)


def _without_key(provider: str, message: str) -> ConfigError:
    variable = _VARIABLE.search(message)
    if variable is None:
        return ConfigError(f"the provider `{provider}` cannot be used: {' '.join(message.split())}")
    return ConfigError(f"the provider `{provider}` needs `{variable[1]}` in the environment")


def _missing(provider: str, error: ImportError) -> MissingProviderError:
    group = _GROUP.search(str(error))
    return MissingProviderError(provider, group[1] if group else provider, error.name or provider)


def _is_safe(url: str) -> bool:
    return urlsplit(url).scheme == "https" or is_loopback(url)


REQUESTS_MAX = 50
"""Requests for one prompt, which ends a model that calls tools forever."""
CALLS_MAX = 200
"""Tool calls for one prompt; of an answer that exceeds it no call is made."""
ANSWER_MAX = 1_000_000
"""Characters of one answer with thoughts and calls; models' own limit is about half."""
PARTS_MAX = 2_000
"""Texts, thoughts and calls of one answer."""
BODY_MAX = 32 * 1_048_576
"""Bytes of one HTTP response; the protocol adds about 200 bytes to each byte of an answer."""

TIMEOUT_SECONDS = 600
"""Maximum silence; models think long before they answer."""
CONNECT_SECONDS = 5


class TooMuchError(SkillhouseError):
    """The provider sent more than `Measured` allows."""


def limits() -> UsageLimits:
    return UsageLimits(request_limit=REQUESTS_MAX, tool_calls_limit=CALLS_MAX)


class Measured:
    def __init__(self) -> None:
        self._characters = 0
        self._parts = 0

    def take(self, event: object) -> None:
        """Count an event of a stream; raises TooMuchError."""
        if isinstance(event, PartStartEvent):
            self._parts += 1
            self._characters += _length(event.part)
        elif isinstance(event, PartDeltaEvent):
            self._characters += _length(event.delta)
        if self._characters > ANSWER_MAX or self._parts > PARTS_MAX:
            raise TooMuchError(
                f"the answer was ended: it has more than {ANSWER_MAX:,} characters or "
                f"{PARTS_MAX:,} parts; try another model or `--base-url`"
            )


def _length(piece: object) -> int:
    if isinstance(piece, TextPart | ThinkingPart):
        return len(piece.content)
    if isinstance(piece, ToolCallPart):
        return len(piece.args_as_json_str())
    if isinstance(piece, TextPartDelta | ThinkingPartDelta):
        return len(piece.content_delta or "")
    if isinstance(piece, ToolCallPartDelta):
        return len(str(piece.args_delta or ""))
    return 0


def bounded_client() -> httpx2.AsyncClient:
    """Return a client whose responses end in an error after `BODY_MAX` bytes.

    Libraries read a whole line before its content can be counted. Redirects are not followed, since
    they would send the conversation, and a key in a custom header, to another address.
    """
    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
        headers={"Accept-Encoding": "identity"},
        event_hooks={"response": [_bound]},
        follow_redirects=False,
    )


async def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        # A few compressed bytes can expand to any number.
        raise httpx2.DecodingError("the response is compressed, which was not asked for")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = BODY_MAX
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.DecodingError(f"the response has more than {BODY_MAX} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
