"""The page of one call of a skill's code: where it failed, and what the code logged and printed."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.answers.audit import (
    PARTS,
    code_lists,
    command_of,
    detail_of,
)
from skillhouse.approval import ApprovalError
from skillhouse.audit import AuditEntry, AuditLog, AuditRecord, Confirmation, find_record
from skillhouse.extensions.server.forms import saved_file
from skillhouse.extensions.server.pages.object_links import (
    ObjectLinks,
    RuleLink,
    client_path,
    policy_query,
    rule_link,
)
from skillhouse.extensions.server.pages.question_view import QuestionView, view_of
from skillhouse.extensions.server.pages.site import Site
from skillhouse.tools import ArtifactError, ArtifactSet

ID_MAX = 64
"""Characters of a record's id."""


class LeftOutFile(Struct, frozen=True, kw_only=True):
    """A file that was not kept."""

    name: str
    """Empty for what is said of the folder as a whole."""
    why: str
    """Ours, or what the process of the skill said: a text like any other."""


class CallFiles(Struct, frozen=True, kw_only=True):
    """What a call's code wrote to its output folder."""

    set: ArtifactSet | None = None
    """None where nothing was kept, or is not any more."""
    was_kept: bool = False
    left_out: tuple[LeftOutFile, ...] = ()


class CallPage:
    """Shows records as the log has them; it changes nothing."""

    def __init__(self, site: Site, log: AuditLog) -> None:
        self._site = site
        self._log = log
        self._links = ObjectLinks(site)

    def routes(self) -> list[Route]:
        return [
            Route("/calls/{id}", self.call),
            Route("/calls/{id}/files/{place:int}", self.file),
        ]

    def call(self, request: Request) -> Response:
        entry = self._entry(request)
        record, after = entry.record, entry.outcome or entry.record
        links = self._rules(record)
        is_linked = any(
            (one.layer, one.rule_index) in links
            for one in record.permissions
            if one.effect == "deny"
        )
        asked = after.confirmation or record.confirmation
        skill = record.skill or self._links.skill_of_tool(record.tool)
        return self._site.page(
            request,
            "call.html",
            links=links,
            card=self._card(asked),
            denying=() if is_linked else self._links.named(record.agent, (record.reason,)),
            policy_query=policy_query(record, command_of(record)),
            client=client_path(record.client),
            skill=self._links.skill(skill),
            skill_name=skill,
            entry=entry,
            record=record,
            after=after,
            asked=asked,
            kept=code_lists(detail_of(entry)),
            files=self._files(entry),
            detail=plain_detail(detail_of(entry)),
        )

    def file(self, request: Request) -> Response:
        """Return a file that the call wrote, to be saved: no browser shows it."""
        found, place = self._files(self._entry(request)), request.path_params["place"]
        if found.set is None or place >= len(found.set.files):
            raise HTTPException(404)
        name = found.set.files[place].name
        try:
            _, data = self._site.house.services.artifacts.data(found.set.id, name)
        except ArtifactError as error:
            raise HTTPException(404) from error
        return Response(data, headers=saved_file(name))

    def _files(self, entry: AuditEntry) -> CallFiles:
        """Return what came of the call's output folder."""
        detail = detail_of(entry)
        said, left_out = detail.get("artifact_set"), detail.get("artifacts_left_out")
        left = tuple(map(left_out_file, left_out)) if isinstance(left_out, list) else ()
        if not isinstance(said, str):
            return CallFiles(left_out=left)
        try:
            kept = self._site.house.services.artifacts.get(said)
        except ArtifactError:
            return CallFiles(was_kept=True, left_out=left)
        return CallFiles(set=kept, was_kept=True, left_out=left)

    def _card(self, asked: Confirmation | None) -> QuestionView | None:
        """Return what the person was shown, while the state still has the question."""
        if asked is None or not asked.approval:
            return None
        try:
            approval = self._site.house.approvals.get(asked.approval)
        except ApprovalError:
            return None
        return view_of(approval) if approval.request.level != "sign" else None

    def _rules(self, record: AuditRecord) -> dict[tuple[str, int], RuleLink]:
        """Return each rule by layer and place, if none has changed since the call."""
        layers, digest = self._links.layers()
        if record.rules_digest != digest:
            return {}
        return {
            (one.layer.name, index): rule_link(layers, at, index)
            for at, one in reversed(list(enumerate(layers)))
            if one.agent in ("", record.agent)
            for index in range(len(one.layer.rules))
        }

    def _entry(self, request: Request) -> AuditEntry:
        wanted = request.path_params["id"]
        is_id = len(wanted) <= ID_MAX and wanted.isascii() and wanted.isalnum()
        entry = find_record(self._log.path, wanted, key=self._log.key) if is_id else None
        if entry is None:
            raise HTTPException(404)
        return entry


def left_out_file(line: object) -> LeftOutFile:
    """Return name and reason of a line of `artifacts_left_out`.

    >>> left_out_file("a.txt: it has several names").why
    'it has several names'
    """
    name, is_named, why = str(line).partition(": ")
    if not is_named or str(line).startswith("it cannot be written"):
        return LeftOutFile(name="", why=str(line))
    return LeftOutFile(name=name, why=why)


def plain_detail(detail: Mapping[str, object]) -> dict[str, object]:
    """Return the detail of a record without what has a part of its own, and without empty values.

    >>> plain_detail({"exit_code": 0, "limit": "", "log": ["a"], "approval": "27a0"})
    {'exit_code': 0}
    """
    files = ("artifacts", "artifact_set", "artifacts_left_out")
    own = (*PARTS, *files, "approval", "answer", "answered_by", "answered_on")
    return {
        name: value
        for name, value in detail.items()
        if name not in own and value not in ("", None, [], {})
    }
