"""A house that looks anew whenever a file changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from skillhouse import discovery
from skillhouse.floor import SkillhouseError

if TYPE_CHECKING:
    from skillhouse.runtime.house import Skillhouse
    from skillhouse.runtime.snapshot import Difference

logger = logging.getLogger(__name__)


def watch(
    house: Skillhouse, announce: Callable[[Difference], None], *, stop: threading.Event, poll: bool
) -> None:
    """Look anew until `stop` is set; see `Skillhouse.watch`."""
    while not stop.is_set():
        roots = house.roots
        for _ in discovery.watch(roots, stop=stop, poll=poll):
            before = house.look
            try:
                is_other = house.refresh()
            except (SkillhouseError, OSError, ValueError, RecursionError):
                # A file that is half written now is whole at the next change.
                logger.exception("looking for changes")
                continue
            if is_other:
                announce(house.look.since(before))
            if house.roots != roots:
                break
