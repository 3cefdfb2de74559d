"""Answers questions as a page does, and knows the commands that a model must not be told."""

from __future__ import annotations

import re
from pathlib import Path

from skillhouse.approval import OWNER, Answer, Approval, ApprovalBroker

ANSWERING = re.compile(
    r"skillhouse[\s`'\"]+(approvals|policy|trust|resume|enable|keys|up|mcp|config|tools|reload)\b"
    r"|approvals approve|--yes|--token"
)
"""A command that answers a question, or loosens what asks it."""


def approve(state: Path, approval_id: str, answer: Answer = Answer.ONCE) -> Approval:
    """Approve the question of this id in the house whose state is in this directory."""
    broker = ApprovalBroker(state)
    nonce = broker.get(approval_id).request.nonce
    return broker.answer(approval_id, answer, by=OWNER, channel="page", nonce=nonce)
