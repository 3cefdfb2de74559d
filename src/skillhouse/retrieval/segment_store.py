"""Stores the postings of skills in a cache directory, and updates them.

Documents are tokenised in batches, each different token stemmed once. A root has two segments: one
of all its skills, and a small one of later changes. The key of a document is a digest of all its
sources, so documents of another state, project or agent are skipped and do not count in any score.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import sqlite3
import stat
import time
import unicodedata
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from skillhouse.floor import encode, make_private, write_atomically
from skillhouse.floor.lock import locked_file
from skillhouse.retrieval.segment import (
    HEAD_GAP,
    TIE_BYTES,
    DamagedError,
    Segment,
    SegmentBuilder,
    stem_hash,
)
from skillhouse.retrieval.tokens import STOP_WORDS, stems_of, tokens_of, words

BODY_CHARS_MAX = 4_096
"""Characters of a body that are indexed; its purpose is at its start."""
_BATCH = 256
_WORDS_KNOWN_MAX = 200_000
"""Different words whose stems are cached at a time."""


class KeyedDocument(NamedTuple):
    key: bytes
    name: str
    description: str
    body: str


def add_documents(builder: SegmentBuilder, documents: Iterable[KeyedDocument]) -> None:
    """Add documents to a segment, in their order."""
    # A library repeats most of its words.
    stems: dict[str, tuple[str, ...]] = {}
    body_stems: dict[str, tuple[str, ...]] = {}
    heads: dict[str, bytes] = {}
    for batch in _batches(documents):
        if len(stems) > _WORDS_KNOWN_MAX:
            stems, body_stems, heads = {}, {}, {}
        read = [(each, _tie(each), _texts(each)) for each in batch]
        new = set(chain.from_iterable(text for *_, texts in read for text in texts))
        builder.spell(_learn(new - stems.keys(), stems, body_stems))
        for each, tie, (name, description, body) in read:
            fields = (
                _counted(name, stems),
                _counted(description, stems),
                _counted(body, body_stems),
            )
            for word in chain(name, description):
                if word not in heads:
                    heads[word] = b"".join(map(stem_hash, body_stems[word]))
            texts = (b"".join(map(heads.__getitem__, text)) for text in (name, description))
            builder.add(each.key, tie, fields, HEAD_GAP.join(texts))


def _batches(documents: Iterable[KeyedDocument]) -> Iterator[list[KeyedDocument]]:
    remaining = iter(documents)
    while batch := list(islice(remaining, _BATCH)):
        yield batch


def _tie(document: KeyedDocument) -> bytes:
    # A body from the caller can contain half a surrogate pair.
    data = document.body[:BODY_CHARS_MAX].encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=TIE_BYTES).digest()


def _texts(document: KeyedDocument) -> tuple[list[str], ...]:
    texts = (document.name, document.description, document.body[:BODY_CHARS_MAX])
    return tuple(words(text) for text in texts)


def _learn(
    new: Collection[str], stems: dict[str, tuple[str, ...]], body_stems: dict[str, tuple[str, ...]]
) -> Mapping[str, str]:
    """Add the stems of new words: all of them, and those without stop words for bodies.

    Returns the stem of each token that has one.
    """
    tokens = {word: tokens_of(word) for word in new}
    of_token = stems_of(chain.from_iterable(tokens.values()))
    for word, parts in tokens.items():
        stems[word] = tuple(stem for token in parts for stem in of_token[token])
        body_stems[word] = tuple(
            stem for token in parts if token not in STOP_WORDS for stem in of_token[token]
        )
    return {token: found[0] for token, found in of_token.items() if len(found) == 1}


def _counted(words_found: Iterable[str], stems: Mapping[str, tuple[str, ...]]) -> Mapping[str, int]:
    """Count each stem, without a Python loop because bodies are long."""
    return Counter(chain.from_iterable(map(stems.__getitem__, words_found)))


READING = 3
"""Increase it when the same text gives other tokens: older files become invalid."""
DIRECTORY = "words"
ROOTS_KEPT = 256
"""Roots whose files are kept; the one written longest ago is deleted first."""

CHANGES_LEAST = 256
CHANGES_SHARE = 8
"""Documents of the small segment, at most: `CHANGES_LEAST`, or the size of the large one divided by
`CHANGES_SHARE`. With more, both are merged."""
OTHERS_LEAST = 1_000
OTHERS_SHARE = 2
"""Documents of other states, projects and agents that are kept for each wanted one, at most."""

_LEFT_SECONDS = 3_600
"""After this time an unfinished file has no writer any more."""
_READ = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
)

Read = Callable[[Sequence[bytes]], Iterator[KeyedDocument]]
"""Reads the documents of some keys."""


class WordFiles:
    """The files of one root, shared by all processes of a user."""

    def __init__(self, cache: Path, root: str) -> None:
        # Another SQLite or Python may split and stem differently.
        made_by = (
            root,
            READING,
            BODY_CHARS_MAX,
            sqlite3.sqlite_version,
            unicodedata.unidata_version,
        )
        name = hashlib.blake2b(encode(made_by), digest_size=16).hexdigest()
        self._directory = cache / DIRECTORY
        self._base = self._directory / f"{name}.base"
        self._changes = self._directory / f"{name}.changes"
        self._lock = self._directory / f"{name}.lock"

    def read(self) -> list[Segment]:
        """Return the usable segments: the large one, and the small one if it belongs to it."""
        base = _opened(self._base)
        changes = None if base is None else _opened(self._changes)
        if base is None or changes is None or changes.base != base.own:
            return [] if base is None else [base]
        return [base, changes]

    def remove(self) -> None:
        """Delete the files of a damaged segment."""
        for path in (self._changes, self._base):
            with contextlib.suppress(OSError):
                path.unlink()

    def update(self, wanted: Sequence[bytes], read: Read) -> None:
        """Write the missing ones of the wanted documents; most other documents stay.

        OSError: it cannot be written; the old files stay valid.
        """
        make_private(self._directory)
        with locked_file(self._lock):
            try:
                self._write_missing(wanted, read, self.read())
            except DamagedError:
                self._write_missing(wanted, read, [])

    def _write_missing(
        self, wanted: Sequence[bytes], read: Read, segments: Sequence[Segment]
    ) -> None:
        known = {key for segment in segments for key in segment.keys}
        missing = [key for key in wanted if key not in known]
        if not missing:
            # Another process wrote them meanwhile.
            return
        changes = len(missing) + sum(len(segment.keys) for segment in segments[1:])
        most = max(CHANGES_LEAST, len(segments[0].keys) // CHANGES_SHARE) if segments else 0
        is_small = changes <= most
        builder = SegmentBuilder()
        keep = frozenset(wanted)
        others = len(known - keep)
        keeps_others = is_small or others <= OTHERS_SHARE * max(len(keep), OTHERS_LEAST)
        for segment in segments[1:] if is_small else segments:
            builder.take(segment, lambda key: keeps_others or key in keep)
        add_documents(builder, read(missing))
        target, base = (self._changes, segments[0].own) if is_small else (self._base, bytes(16))
        with write_atomically(target) as file:
            builder.write(file, own=secrets.token_bytes(16), base=base)
        if not is_small:
            self._tidy()

    def _tidy(self) -> None:
        """Delete the files of the oldest roots, and unfinished files without a writer."""
        now = time.time()
        bases: list[tuple[float, Path]] = []
        for path in self._directory.iterdir():
            with contextlib.suppress(OSError):
                changed = path.lstat().st_mtime
                if path.suffix == ".base":
                    bases.append((changed, path))
                elif path.name.startswith(".") and now - changed > _LEFT_SECONDS:
                    path.unlink()
        for _, path in sorted(bases, reverse=True)[ROOTS_KEPT:]:
            # The lock is deleted last: another process may be about to take it.
            for ending in (".base", ".changes", ".lock"):
                with contextlib.suppress(OSError):
                    path.with_suffix(ending).unlink()


def _opened(path: Path) -> Segment | None:
    """Return the segment in a file of this user, or None when it is not usable."""
    try:
        handle = os.open(path, _READ)
    except OSError:
        return None
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != _own_user(info):
        os.close(handle)
        return None
    file = os.fdopen(handle, "rb")
    try:
        segment = Segment(file, info.st_size)
    except (DamagedError, OSError):
        file.close()
        return None
    weakref.finalize(segment, file.close)
    return segment


def _own_user(info: os.stat_result) -> int:
    return os.geteuid() if hasattr(os, "geteuid") else info.st_uid


def in_memory(documents: Sequence[KeyedDocument] | Iterator[KeyedDocument]) -> Segment:
    """Return a segment of documents that are not kept."""
    builder = SegmentBuilder()
    add_documents(builder, documents)
    file = io.BytesIO()
    builder.write(file)
    return Segment(file, file.getbuffer().nbytes)


def kept_segments(cache: Path, wanted: Mapping[str, Sequence[bytes]], read: Read) -> list[Segment]:
    """Return the segments of a cache that hold the wanted documents, brought up to date.

    What cannot be written is in none of them.

    Args:
        wanted: The keys of documents, by their root.
        read: Reads those that are missing.
    """
    usable: list[Segment] = []
    for root, keys in wanted.items():
        files = WordFiles(cache, root)
        segments = files.read()
        known = {key for segment in segments for key in segment.keys}
        if not known.issuperset(keys):
            # A full disk or a directory of another's costs the cache and never the search.
            with contextlib.suppress(OSError):
                files.update(keys, read)
            segments = files.read()
        usable += segments
    return usable


def forget(cache: Path, roots: Sequence[str]) -> None:
    """Remove what is kept of some roots, which was found to be damaged."""
    for root in roots:
        WordFiles(cache, root).remove()
