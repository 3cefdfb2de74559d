"""Reads only the head of an open SKILL.md, as discovery does for thousands of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from skillhouse.skill.model import ParsePolicy
from skillhouse.skill.parsing import Metadata, head_of, read_block
from skillhouse.skill.source import (
    FRONTMATTER_MAX,
    SKILL_FILE_MAX,
    FileRefusedError,
    Finding,
    IncompleteError,
    check_size,
    cut_head,
    decoded,
    normalise,
)

HEAD_BYTES = 4_096
"""Bytes of the first read; 99 in 100 published frontmatters end before it (standard.md 7.3)."""


def read_metadata(
    handle: int, size: int, directory: str, policy: ParsePolicy
) -> tuple[Metadata | None, list[Finding]]:
    """Return what the frontmatter of an open regular file says, and what was found in the head.

    The head ends with the closing line; what lies behind it is neither read nor judged, except
    that no more than `HEAD_BYTES` bytes are looked at for one when there is no frontmatter, and
    that a policy may take a missing description from the body.

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
        check_size(size, findings)
        data = os.read(handle, HEAD_BYTES)
        complete = len(data) < HEAD_BYTES
        try:
            block = _block(data, policy, findings, complete=complete)
        except IncompleteError:
            data, complete = data + _rest(handle), True
            block = _block(data, policy, findings, complete=True)
        body: Callable[[], str] = str
        if policy.missing_description == "body":
            body = partial(_body, handle, data, policy, complete=complete)
        found = read_block(block, directory, policy, findings, body)
    except FileRefusedError as refusal:
        findings.append(refusal.finding)
        return None, findings
    if findings and any(finding.fatal for finding in findings):
        return None, findings
    return found, findings


def _block(
    data: bytes, policy: ParsePolicy, findings: list[Finding], *, complete: bool
) -> str | None:
    """Return the text between the fences; None where there are none and need not be."""
    fence = data.find(b"\n---\n", 3) if data.startswith(b"---\n") else -1
    if fence == data.find(b"\n---", 3) and fence >= 0:
        raw = data[4 : fence + 1]
        if raw.isascii() and b"\r" not in raw and b"\0" not in raw and fence <= FRONTMATTER_MAX:
            # The common case in one go: plain fences around ASCII with LF.
            return raw.decode()
    return head_of(normalise(cut_head(data, complete=complete), findings), policy, findings)[0]


def _body(handle: int, data: bytes, policy: ParsePolicy, *, complete: bool) -> str:
    """Return the text after the fences, the rest of the file read if `data` is not complete."""
    whole = normalise(data if complete else data + _rest(handle), [])
    return decoded(whole[head_of(whole, policy, [])[1] :])


def _rest(handle: int) -> bytes:
    """Return what follows the first read, never much more than a SKILL.md may hold."""
    chunks = []
    left = SKILL_FILE_MAX
    while left > 0 and (chunk := os.read(handle, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
