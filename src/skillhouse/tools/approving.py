"""What a person is asked about a call, and what a yes is bound to."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence

from skillhouse.approval import (
    ApprovalRequest,
    Asked,
    Pattern,
    canonical,
    content_digest,
    grant_patterns,
    may_last,
)
from skillhouse.permission import Effect
from skillhouse.tools.call import Plan
from skillhouse.tools.case import Case
from skillhouse.tools.need import UNBOUND, Need

_BETWEEN_WORDS = re.compile(r"[\s;|&<>()'\"`$={}]+")

NAMED_FILES_MAX = 32
"""Files of one command that a yes is bound to."""

NAMED_FILE_MAX = 64 * 1_048_576
"""Bytes of such a file that are hashed; a larger one is known by its size and times."""


def question(case: Case, place: str) -> ApprovalRequest:
    """Return the question about exactly this call (decision 8).

    A repeated call has the same digest as long as everything that `bound` takes in is the same.
    """
    call, plan, verdict = case.call, _planned(case), case.verdict
    asked = [j for j in case.judged if j.decision.effect is Effect.ASK]
    patterns = _patterns([j.need for j in asked])
    content = bound(case, place)
    arguments = tuple((key, str(item)) for key, item in call.arguments.items())
    return ApprovalRequest(
        tool=call.name,
        agent=call.agent,
        user=call.user,
        channel=call.channel,
        title=plan.title or f"{call.name}: {asked[0].need.permission.resource}",
        # What we decoded comes before what the model wrote.
        facts=(*plan.facts, *arguments) if plan.page else (*arguments, *plan.facts),
        reasons=tuple(dict.fromkeys(j.reason for j in asked)),
        content_digest=content_digest(content),
        content=content,
        always=tuple(f"{p.action} {p.pattern}" for p in patterns),
        place=place,
        level=case.level,
        on_page=case.on_page,
        wait_seconds=verdict.timeout_seconds if verdict else 0,
        asked=tuple(
            Asked(
                action=j.need.permission.action,
                resource=j.need.permission.resource,
                skill_digest=j.need.skill_digest,
            )
            for j in asked
        ),
        patterns=patterns,
        session_id=call.session_id,
        message_id=call.message_id,
        call_id=call.call_id,
    )


def bound(case: Case, place: str) -> str:
    """Return the canonical JSON of the exact call: what a yes is about.

    It holds the arguments, every need with its skill's tree digest, the digests of the files that
    the plan or a command names, what the person is shown, where it is decided, and on whose behalf
    it is.
    """
    call, plan = case.call, _planned(case)
    content: dict[str, object] = {
        "tool": call.name,
        "arguments": dict(call.arguments),
        "needs": [_need(need) for need in plan.needs],
        "files": {**_named_files(plan, place), **dict(plan.bound)},
        "shown": [list(fact) for fact in plan.facts],
        "level": case.level,
        "cwd": place,
        "agent": call.agent,
        "user": call.user,
        "channel": call.channel,
    }
    if plan.binding:
        content["binding"] = plan.binding
    if case.on_page:
        # A yes that was given elsewhere before the call rose to the page is none to it.
        content["on_page"] = True
    return canonical(content)


def rule_hint(case: Case) -> str:
    """Return which rule of the user's would have let the call through, or nothing."""
    found = next(j for j in case.judged if j.decision.effect is Effect.ASK)
    wanted = found.need
    rules = grant_patterns(wanted.permission.action, wanted.permission.resource, wanted.argv)
    if not rules or case.on_page or found.decision.layer in ("tiers", "write gate"):
        return ""
    return f"; a rule that allows `{wanted.permission.action} {rules[0]}` would let it through"


def ways_to_answer(request: ApprovalRequest, page: str) -> str:
    """Return where a person answers an open question, in words for who waits for it.

    Args:
        request: The question, as it is kept.
        page: Address of the page of `skillhouse up`; empty where it is not known.
    """
    opened = f"open {page}/approvals/{request.id}" if page else "open the page of `skillhouse up`"
    if request.is_for_page:
        return opened
    return f"{opened} or run `skillhouse approvals approve {request.id}`"


def _planned(case: Case) -> Plan:
    assert case.plan is not None  # noqa: S101 - nobody is asked about a call without a plan.
    return case.plan


def _patterns(needs: Sequence[Need]) -> tuple[Pattern, ...]:
    """Return what a lasting yes would allow; nothing when it would not cover the whole call."""
    found: list[Pattern] = []
    for need in needs:
        wanted = need.permission
        patterns = grant_patterns(wanted.action, wanted.resource, need.argv)
        lasts = need.may_last and need.effective_level != "sign" and may_last(need.argv)
        if not patterns or not lasts or need.skill_digest == UNBOUND:
            return ()
        found += [
            Pattern(action=wanted.action, pattern=pattern, skill_digest=need.skill_digest)
            for pattern in patterns
        ]
    return tuple(found)


def _named_files(plan: Plan, place: str) -> Mapping[str, str]:
    """Return the digests of the files that words of a command name, such as the script of `sh`.

    A yes to `python run.py` or `sh < run.sh` is one to what the file says now.
    """
    words = [word for need in plan.needs for word in _words(need, plan)]
    found: dict[str, str] = {}
    for word in dict.fromkeys(words):
        if len(found) == NAMED_FILES_MAX:
            break
        try:
            said = _file_digest(os.path.join(place, word))
        except (OSError, ValueError):
            # Without the right to read it, or with a NUL in its name, it is only a word.
            continue
        if said:
            found[word] = said
    return found


def _words(need: Need, plan: Plan) -> Sequence[str]:
    """Return the words of a need that may name a file which a command reads."""
    wanted = need.permission
    if wanted.action == "shell":
        # Nobody knows what such a line reads; what looks like a word of it is tried.
        return _BETWEEN_WORDS.split(wanted.resource)
    if wanted.action == "read" and any(other.argv for other in plan.needs):
        return (wanted.resource,)
    return need.argv[1:]


def _file_digest(path: str) -> str:
    """Return what tells a file's bytes from others; empty when it is no regular file."""
    # Some files of /proc are regular and never end, or never begin.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as file:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return ""
        if info.st_size > NAMED_FILE_MAX:
            return f"{info.st_dev}:{info.st_ino}:{info.st_size}:{info.st_mtime_ns}"
        hashed = hashlib.sha256()
        left = NAMED_FILE_MAX
        while left > 0 and (part := file.read(min(left, 1_048_576))):
            hashed.update(part)
            left -= len(part)
        return hashed.hexdigest()


def _need(need: Need) -> Mapping[str, object]:
    return {
        "action": need.permission.action,
        "resource": need.permission.resource,
        "argv": list(need.argv),
        "skill_digest": need.skill_digest,
    }
