"""What extensions of others add to a `Skillhouse`: tools, channels, pages, an executor, hooks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from skillhouse import tools as toolbox
from skillhouse.approval import Channel
from skillhouse.extension import (
    Extension,
    ExtensionContext,
    ExtensionPage,
    ExtensionRoute,
    LoadedExtensions,
    load_extensions,
)
from skillhouse.floor import ConfigError
from skillhouse.floor.faults import isolated
from skillhouse.floor.regex import regex

if TYPE_CHECKING:
    from skillhouse.floor import Digest
    from skillhouse.house.code_service import Call
    from skillhouse.house.config import Config

logger = logging.getLogger(__name__)

_Part = TypeVar("_Part")
_PATH = regex(r"[a-z0-9-]+(/[a-z0-9-]+)*")


class ExtensionParts:
    """Nothing is loaded before `load`; what one extension raises costs its own part alone."""

    def __init__(self, call: Call, redeem: Callable[[Digest], str]) -> None:
        """`call` makes a tool call through the gate; `redeem` consumes an approval."""
        self._call = call
        self._redeem = redeem
        self._lock = threading.Lock()
        self.loaded: LoadedExtensions | None = None

    def load(self) -> bool:
        """Load them, once; whether this call found any."""
        with self._lock:
            if self.loaded is not None:
                return False
            self.loaded = load_extensions()
            return bool(self.loaded.extensions)

    @property
    def extensions(self) -> tuple[Extension, ...]:
        return () if self.loaded is None else self.loaded.extensions

    def tools(self, config: Config, taken: Collection[str]) -> tuple[toolbox.Tool, ...]:
        """Return their tools; one whose name is taken, or that is none, is left out."""
        made: list[toolbox.Tool] = []
        found = {} if self.loaded is None else self.loaded.tools(taken)
        for name, (extension, make) in found.items():
            for tool in self._made(extension, partial(make, self._context(extension, config))):
                with isolated() as failed:
                    _check(name, tool, taken)
                    made.append(tool)
                for error in failed:
                    logger.error("extension `%s`: %s", extension.name, error)
        return tuple(made)

    def channels(self, config: Config) -> tuple[Channel, ...]:
        """Return their ways to ask a person."""
        return tuple(made for _, made in self._each(lambda one: one.channels, config))

    def chat_channels(self, config: Config) -> tuple[object, ...]:
        """Return the services by which the bot is reached."""
        return tuple(made for _, made in self._each(lambda one: one.chat_channels, config))

    def pages(self, config: Config) -> tuple[tuple[Extension, ExtensionPage], ...]:
        """Return their pages; one without a usable path is left out."""
        found = self._each(lambda one: one.pages, config)
        return tuple(each for each in found if _has_path(*each, or_none=True))

    def routes(self, config: Config) -> tuple[tuple[Extension, ExtensionRoute], ...]:
        """Return their routes of the API, likewise."""
        return tuple(
            each for each in self._each(lambda one: one.routes, config) if _has_path(*each)
        )

    def executor(self, name: str, config: Config) -> toolbox.Runner:
        """Return what runs the code of skills by an extension's name; ConfigError for none."""
        self.load()
        for one in self.extensions:
            if one.name == name and one.executor is not None:
                for made in self._made(one, partial(one.executor, self._context(one, config))):
                    return made
                break
        message = f"no extension `{name}` runs the code of skills; `skillhouse doctor` names those"
        raise ConfigError(f"{message} that fail", key="skill_code.executor")

    def stopped(self, config: Config, reason: str) -> None:
        """Call the hooks of a stop; the extensions are loaded for it."""
        self.load()
        for one in self.extensions:
            if one.hooks.on_stop is not None:
                context = self._context(one, config)
                list(self._made(one, partial(one.hooks.on_stop, context, reason)))

    def close(self, config: Config) -> None:
        for one in self.extensions:
            if one.hooks.on_close is not None:
                list(self._made(one, partial(one.hooks.on_close, self._context(one, config))))

    def _each(
        self,
        part: Callable[[Extension], Callable[[ExtensionContext], Iterable[_Part]] | None],
        config: Config,
    ) -> tuple[tuple[Extension, _Part], ...]:
        """Return what one part of each extension makes, with the extension."""
        found: list[tuple[Extension, _Part]] = []
        for one in self.extensions:
            if (make := part(one)) is not None:
                listed = partial(_listed, make, self._context(one, config))
                found += [(one, each) for made in self._made(one, listed) for each in made]
        return tuple(found)

    def _context(self, extension: Extension, config: Config) -> ExtensionContext:
        section = extension.section
        settings: Any = None
        if section is not None:
            settings = config.sections.get(section.name)
            if settings is None:
                settings = next(iter(self._made(extension, partial(section.parse, {}))), None)
        return ExtensionContext(
            settings=settings,
            state_directory=config.state_directory,
            workspace=config.places.start,
            environment=config.places.environment,
            call=self._call,
            redeem=self._redeem,
        )

    def _made(self, extension: Extension, make: Callable[[], _Part]) -> Iterator[_Part]:
        """Yield what a function of an extension returns; nothing where it raises, which is
        logged."""
        found: list[_Part] = []
        with isolated() as failed:
            found.append(make())
        for error in failed:
            logger.error("extension `%s`: %s", extension.name, error)
        yield from found


def _listed(make: Callable[[ExtensionContext], Any], context: ExtensionContext) -> list[Any]:
    return list(make(context))


def _has_path(
    extension: Extension, part: ExtensionPage | ExtensionRoute, *, or_none: bool = False
) -> bool:
    """Whether the path of a page or route is one that stays below the extension's name."""
    with isolated() as failed:
        if _PATH.fullmatch(part.path) or (or_none and part.path == ""):
            return True
        logger.error("extension `%s`: a page or route without a usable path", extension.name)
    for error in failed:
        logger.error("extension `%s`: %s", extension.name, error)
    return False


def _check(name: str, tool: object, taken: Collection[str]) -> None:
    """Raise ConfigError for what is no tool of that name."""
    toolbox.check_own_tools([tool], taken)
    if getattr(tool, "name", "") != name:
        raise ConfigError(f"expected a tool named `{name}`, got another name", key="tools")
