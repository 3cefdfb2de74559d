"""What others than our own clients read: a page for people, and `.well-known/agent-skills`."""

from __future__ import annotations

import json
import re
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from skillhouse.extensions.registry.hosting import HostedRepository, HostingError
from skillhouse.extensions.registry.replies import document
from skillhouse.floor.regex import regex
from skillhouse.registry import DEFAULT_NAMESPACE, address_name
from skillhouse.skill import validate_name

SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
LISTED_MAX = 10_000
"""Skills of one `.well-known` document: clients read all of it for each skill."""
DESCRIPTION_MAX = 1_024
"""Characters of a description (Agent Skills Discovery 0.2.0)."""
_HOST: re.Pattern[str] = regex(r"[a-z0-9.-]{1,253}(?::[0-9]{1,5})?|\[[0-9a-f:.]+\](?::[0-9]{1,5})?")

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{name}: skills</title>
<style>body{{font:16px/1.5 system-ui;max-width:42rem;margin:3rem auto;padding:0 1rem}}
pre{{background:#8882;padding:.8rem;overflow:auto}}</style>
<h1>{name}</h1>
<p>A registry of skills for AI agents: {count}.</p>
<p>To install from it, put this into <code>~/.config/skillhouse/config.toml</code>:</p>
<pre>[[skills.repositories]]
name = "{name}"
url = "{url}"{root}</pre>
<pre>skillhouse install NAME</pre>
<p>Other installers read <code>.well-known/agent-skills/index.json</code> here; programs read
<code>/skills?q=WORDS</code>.</p>
</html>
"""


class OpenRoutes:
    """Plain functions, which Starlette runs in threads."""

    def __init__(self, repository: HostedRepository) -> None:
        self._repository = repository

    def page(self, request: Request) -> Response:
        host = request.headers.get("host", "").lower()
        known = host if _HOST.fullmatch(host) else "ADDRESS"
        count = self._repository.store.skill_count()
        # INVARIANT: each value is escaped; no text of a package is on this page.
        text = _PAGE.format(
            name=escape(self._repository.name),
            count=f"{count:,} skill{'' if count == 1 else 's'}",
            url=escape(f"{request.url.scheme}://{known}"),
            root=f'\nroot = "{self._repository.root}"' if self._repository.is_rooted else "",
        )
        return HTMLResponse(text, headers={"cache-control": "no-store"})

    def well_known(self, request: Request) -> Response:
        namespace = request.path_params.get("namespace", DEFAULT_NAMESPACE)
        if validate_name(namespace, directory=namespace):
            raise HostingError("unknown-skill", "there is no such namespace here")
        found = self._repository.store.newest(namespace, LISTED_MAX + 1)
        if not found and namespace != DEFAULT_NAMESPACE:
            raise HostingError("unknown-skill", "there is no such namespace here")
        if len(found) > LISTED_MAX:
            message = f"more than {LISTED_MAX} skills: search with /skills?q=WORDS"
            raise HostingError("unknown-skill", message)
        # Relative, so that it holds below a proxy's prefix, too.
        above = "../../" if "namespace" not in request.path_params else "../../../"
        skills = [
            {
                "name": one.skill,
                "type": "archive",
                "description": one.description[:DESCRIPTION_MAX],
                "url": f"{above}skills/{address_name(namespace, one.skill)}/{one.release.version}",
                "digest": one.release.digest,
            }
            for one in found
        ]
        value = {"$schema": SCHEMA, "skills": skills}
        return document(request, json.dumps(value, ensure_ascii=True).encode())
