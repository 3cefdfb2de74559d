"""The operations of the API as typed functions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import anyio

from skillhouse.frontends.api_client.api_connection import (
    ANSWER_SECONDS,
    ApiClientError,
    ApiConnection,
    ApiEvent,
    HttpAnswer,
)
from skillhouse.frontends.api_client.api_values import (
    AgreedJson,
    AuditEntryJson,
    CallResultJson,
    ContentJson,
    DecisionJson,
    DefinitionJson,
    HitJson,
    JobJson,
    LibrarySkillJson,
    ListedSkillJson,
    PageJson,
    PlannedJson,
    QuestionJson,
    RehearsalJson,
    SourceJson,
    ToolJson,
)

API = "/api/v1"
JOB_SECONDS = 0.1
"""Time between two looks at a job."""


class ApiClient:
    """Calls a service; each function raises ApiClientError for what is refused.

    >>> client = ApiClient("http://127.0.0.1:8600", "skh_0")
    >>> hits = await client.search("merge PDFs")  # doctest: +SKIP
    """

    def __init__(self, base_url: str, token: str, *, seconds: float = ANSWER_SECONDS) -> None:
        self.connection = ApiConnection(base_url, token, seconds=seconds)
        self.base_url = self.connection.base_url

    async def get(self, path: str, **query: str | int | None) -> Any:
        """Return what any reading route answers; `path` is below /api/v1."""
        asked = {name: value for name, value in query.items() if value is not None}
        return (await self.connection.request("GET", API + path, query=asked)).json()

    async def send(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """Return the answer of any route that changes something."""
        return await self.connection.request(method, API + path, body=body, headers=headers)

    async def health(self) -> bool:
        return bool((await self.get("/health"))["status"] == "ok")

    async def skills(
        self, *, words: str = "", scope: str | None = None, limit: int = 50, cursor: str = ""
    ) -> PageJson[ListedSkillJson]:
        """Return one page of the skills that agents see."""
        found = await self.get(
            "/skills", q=words or None, scope=scope, limit=limit, cursor=cursor or None
        )
        return _page(found)

    async def all_skills(self, *, words: str = "") -> AsyncIterator[ListedSkillJson]:
        """Yield every skill, page by page."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self.skills(words=words, limit=200, cursor=cursor)
            for skill in page["items"]:
                yield skill
            cursor = page["next"]

    async def skill(self, reference: str) -> dict[str, Any]:
        return cast("dict[str, Any]", await self.get(f"/skills/{_part(reference)}"))

    async def load(self, reference: str) -> ContentJson:
        return cast("ContentJson", await self.get(f"/skills/{_part(reference)}/content"))

    async def read_file(self, reference: str, file: str) -> str:
        found = await self.get(f"/skills/{_part(reference)}/files/{_part(file)}")
        return str(found["content"])

    async def search(self, query: str, *, limit: int = 5) -> list[HitJson]:
        return cast("list[HitJson]", (await self.get("/search", q=query, limit=limit))["hits"])

    async def create(self, name: str, description: str, instructions: str) -> DefinitionJson:
        body = {"name": name, "description": description, "instructions": instructions}
        return cast("DefinitionJson", (await self.send("POST", "/skills", body)).json())

    async def source(self, reference: str) -> SourceJson:
        return cast("SourceJson", await self.get(f"/skills/{_part(reference)}/source"))

    async def update(self, reference: str, text: str, *, digest: str) -> DefinitionJson:
        """Replace a SKILL.md; `digest` is that of the `source` which was edited."""
        headers = {"if-match": f'"{digest}"'}
        path = f"/skills/{_part(reference)}/source"
        answer = await self.send("PUT", path, {"text": text}, headers=headers)
        return cast("DefinitionJson", answer.json())

    async def set_enabled(self, reference: str, *, enabled: bool) -> None:
        await self.send("PUT", f"/skills/{_part(reference)}/enabled", {"enabled": enabled})

    async def delete(self, reference: str) -> None:
        await self.send("DELETE", f"/skills/{_part(reference)}")

    async def tools(self) -> list[ToolJson]:
        return cast("list[ToolJson]", (await self.get("/tools"))["tools"])

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        approval_id: str = "",
        idempotency_key: str = "",
    ) -> CallResultJson:
        """Make one gated call; with a key, a repetition after a lost answer does nothing again."""
        body: dict[str, Any] = {"tool": tool, "arguments": dict(arguments)}
        body |= {"approval_id": approval_id} if approval_id else {}
        headers = {"idempotency-key": idempotency_key} if idempotency_key else {}
        answer = await self.send("POST", "/calls", body, headers=headers)
        return cast("CallResultJson", answer.json())

    async def rehearse(self, request: str) -> RehearsalJson:
        answer = await self.send("POST", "/rehearse", {"request": request})
        return cast("RehearsalJson", answer.json())

    async def explain(self, action: str, resource: str) -> DecisionJson:
        body = {"action": action, "resource": resource}
        return cast("DecisionJson", (await self.send("POST", "/policy/explain", body)).json())

    async def questions(self) -> list[QuestionJson]:
        """Return the open questions, oldest first, of all pages."""
        page = await self.get("/approvals")
        found = page["approvals"]
        while page["next"]:
            page = await self.get("/approvals", cursor=page["next"])
            found += page["approvals"]
        return cast("list[QuestionJson]", found)

    async def answer(
        self,
        question: QuestionJson,
        answer: str,
        *,
        message: str = "",
        rules: Sequence[str] = (),
    ) -> QuestionJson:
        """Answer a question as it was read: another content is refused."""
        body: dict[str, Any] = {"answer": answer, "content_digest": question["content_digest"]}
        body |= {"message": message} if message else {}
        body |= {"rules": list(rules)} if rules else {}
        path = f"/approvals/{_part(question['id'])}/answer"
        return cast("QuestionJson", (await self.send("POST", path, body)).json())

    async def records(
        self, *, tool: str | None = None, limit: int = 50, cursor: str = ""
    ) -> PageJson[AuditEntryJson]:
        """Return one page of the audit log, newest first."""
        found = await self.get("/audit/records", tool=tool, limit=limit, cursor=cursor or None)
        return _page(found)

    async def verify(self) -> bool:
        """Return whether no byte of the audit log was changed."""
        return bool((await self.get("/audit/verify"))["ok"])

    async def library(
        self, *, words: str = "", state: str | None = None, limit: int = 50, cursor: str = ""
    ) -> PageJson[LibrarySkillJson]:
        """Return one page of every skill here, also those that agents do not see."""
        found = await self.get(
            "/library", q=words or None, state=state, limit=limit, cursor=cursor or None
        )
        return _page(found)

    async def plan(self, action: str, **request: Any) -> list[PlannedJson]:
        """Return what an install, update, rollback or restore would do; it waits for the job.

        `request` has the members of `POST /changes/plan`, such as `source` or `skills`.
        """
        job = await self._ended("/changes/plan", {"action": action, **request})
        return cast("list[PlannedJson]", job["result"]["skills"])

    async def apply(
        self, action: str, agreed: Mapping[str, AgreedJson], **request: Any
    ) -> list[PlannedJson]:
        """Make what a plan of the same request showed, and a person agreed to, by skill."""
        body = {"action": action, **request, "agreed": dict(agreed)}
        job = await self._ended("/changes", body)
        return cast("list[PlannedJson]", job["result"]["skills"])

    async def job(self, job_id: str) -> JobJson:
        return cast("JobJson", await self.get(f"/jobs/{_part(job_id)}"))

    async def _ended(self, path: str, body: Mapping[str, Any]) -> JobJson:
        job = cast("JobJson", (await self.send("POST", path, dict(body))).json())
        while job["state"] in ("waiting", "running"):
            await anyio.sleep(JOB_SECONDS)
            job = await self.job(job["id"])
        problem = job["problem"]
        if problem is not None:
            raise ApiClientError(problem["status"], problem["code"], problem["detail"], problem)
        if job["result"] is None:
            raise ApiClientError(0, job["state"], f"the job was {job['state']}", {})
        return job

    def events(self, last_id: str = "") -> AsyncIterator[ApiEvent]:
        """Yield events as they come; `last_id` is that of the last one that was read."""
        return self.connection.events(f"{API}/events", last_id)


def _part(text: str) -> str:
    return quote(text, safe="")


def _page(found: dict[str, Any]) -> PageJson[Any]:
    return {"items": found[found["list"]], "total": found["total"], "next": found["next"]}
