"""Reads only the head of an open SKILL.md, as discovery does for thousands of them."""

from __future__ import annotations

import os

from skillhouse.skill.model import ParsePolicy
from skillhouse.skill.parsing import Metadata, read_block
from skillhouse.skill.source import (
    FRONTMATTER_MAX,
    SKILL_FILE_MAX,
    Finding,
    IncompleteError,
    RefusedError,
    cut_head,
    normalise,
    split_head,
    too_large,
)

HEAD_BYTES = 4_096
"""Bytes of the first read; 99 in 100 published frontmatters end before it (standard.md 7.3)."""


def read_metadata(
    handle: int, size: int, directory: str, policy: ParsePolicy
) -> tuple[Metadata | None, list[Finding]]:
    """Return what the frontmatter of an open regular file says, and what was found in the head.

    The head ends with the closing line; what lies behind it is neither read nor judged, except
    that no more than `HEAD_BYTES` bytes are looked at for one when there is no frontmatter.

    Args:
        handle: Descriptor at the start of the file.
        size: The file's size in bytes, from `fstat`.
        directory: Name of the directory the file lies in.
        policy: What designs and clients differ on.

    Returns:
        None in place of the metadata when a finding is fatal.
    """
    findings: list[Finding] = []
    try:
        if size > SKILL_FILE_MAX:
            raise too_large(size)
        data = os.read(handle, HEAD_BYTES)
        try:
            block = _block(data, findings, complete=len(data) < HEAD_BYTES)
        except IncompleteError:
            data += _rest(handle)
            block = _block(data, findings, complete=True)
        found = read_block(block, directory, policy, findings)
    except RefusedError as refusal:
        findings.append(refusal.finding)
        return None, findings
    if findings and any(finding.fatal for finding in findings):
        return None, findings
    return found, findings


def _block(data: bytes, findings: list[Finding], *, complete: bool) -> str:
    """Return the text between the fences."""
    fence = data.find(b"\n---\n", 3) if data.startswith(b"---\n") else -1
    if fence == data.find(b"\n---", 3) and fence >= 0:
        raw = data[4 : fence + 1]
        if raw.isascii() and b"\r" not in raw and b"\0" not in raw and fence <= FRONTMATTER_MAX:
            # The common case in one go: plain fences around ASCII with LF.
            return raw.decode()
    return split_head(normalise(cut_head(data, complete=complete), findings)).block


def _rest(handle: int) -> bytes:
    """Return what follows the first read, never much more than a SKILL.md may hold."""
    chunks = []
    left = SKILL_FILE_MAX
    while left > 0 and (chunk := os.read(handle, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
