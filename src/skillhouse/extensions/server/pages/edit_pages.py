"""The pages on which a skill is written: a new one, and the SKILL.md of one that is here."""

from __future__ import annotations

import json

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skillhouse.answers.errors import problem_answer
from skillhouse.answers.skills import MarkupAnswer
from skillhouse.extensions.server.api.api_app import (
    PROOF_HEADER,
    PROOF_WANTED,
    PROOF_WANTED_TEXT,
)
from skillhouse.extensions.server.api.route_table import PROBLEM_JSON
from skillhouse.extensions.server.forms import body_of, json_response
from skillhouse.extensions.server.guard import access_of
from skillhouse.extensions.server.pages.languages import language_of, translations
from skillhouse.extensions.server.pages.site import Site
from skillhouse.extensions.server.pages.skill_markdown import IMAGE, MARKDOWN_MAX, rendered
from skillhouse.extensions.server.pages.skill_page import installed_state_of
from skillhouse.floor import PathError, SkillError
from skillhouse.manage import EDITABLE, skill_source
from skillhouse.skill import SKILL_FILE, SKILL_FILE_MAX

PREVIEW_PATH = "/preview"
PREVIEW_METHODS = ("POST",)
"""It changes nothing; what is shown is too long for an address."""
PREVIEW_BODY_MAX = 8 * MARKDOWN_MAX
"""Bytes of its request, with the escapes of JSON."""


class EditPages:
    """What is written here is checked and saved by the API."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._reader = site.reader

    def routes(self) -> list[Route]:
        return [
            Route("/new", self.new),
            Route("/edit/{reference:path}", self.edit),
            Route(PREVIEW_PATH, self.preview, methods=list(PREVIEW_METHODS)),
        ]

    def new(self, request: Request) -> Response:
        with self._reader.using() as house:
            targets = []
            for scope in ("user", "project"):
                try:
                    targets.append((scope, house.management.target(scope).path))
                except SkillError:
                    # The profile has no place of this scope.
                    continue
        return self._site.page(request, "new.html", targets=targets, file_max=SKILL_FILE_MAX)

    def edit(self, request: Request) -> Response:
        scan, reference = self._reader.scan(), request.path_params["reference"]
        # Before names: a skill may have the id or file of another as its name.
        skill = scan.by_id.get(reference) or scan.by_file.get(reference)
        try:
            with self._reader.using() as house:
                source = skill_source(house, skill.file if skill else reference)
                installed = installed_state_of(house, source.directory)
        except (PathError, SkillError) as error:
            # Behind a link, or too long to be written here.
            nothing = dict.fromkeys(("reference", "edit", "example"), "")
            code, message = "unusable-skill", str(error)
            return self._site.page(
                request, "error.html", 409, code=code, message=message, nearest=(), **nothing
            )
        if source.scope not in EDITABLE:
            raise HTTPException(404)
        return self._site.page(
            request,
            "edit.html",
            source=source,
            installed=installed,
            # After it was saved a broken one is found by its id, too.
            reference=str(source.file) if source.is_broken else reference,
            file_max=SKILL_FILE_MAX,
        )

    async def preview(self, request: Request) -> Response:
        """Return the markup of a text as JSON: `markup`, or null where it is too long."""
        given = request.headers.get(PROOF_HEADER, "")
        is_key = "authorization" in request.headers
        access, proofs = access_of(request.scope), self._site.services.proofs
        if not is_key and not proofs.holds(given, access, "POST", PREVIEW_PATH):
            problem = problem_answer(403, PROOF_WANTED, PROOF_WANTED_TEXT)
            return json_response(problem, 403, media=PROBLEM_JSON)
        text = _text_of(await body_of(request, limit=PREVIEW_BODY_MAX))
        gettext, _ = translations(language_of(request))
        image = gettext(IMAGE)
        markup = await run_in_threadpool(rendered, text, reference="", file=SKILL_FILE, image=image)
        return json_response(MarkupAnswer(markup=markup))


def _text_of(body: bytes) -> str:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise HTTPException(400)
    return text
