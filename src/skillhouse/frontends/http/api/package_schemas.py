"""The schemas of packages, their repositories and what is done with them."""

from __future__ import annotations

from collections.abc import Mapping

from skillhouse.frontends.http.api.route_table import Schema
from skillhouse.frontends.http.api.schemas import COUNT, FLAG, TEXT, array, maybe, record
from skillhouse.install.change_plan import CHANGED, EDITED, OBEYED, UNSIGNED, UNTRUSTED

SHORT: Schema = {"type": "string", "minLength": 1, "maxLength": 200}
CHANGE: Mapping[str, Schema] = {
    "action": {"enum": ["install", "update", "rollback", "restore"]},
    "source": {
        "type": "string",
        "minLength": 1,
        "maxLength": 2_000,
        "description": "Of an install: NAME@RANGE, owner/repo, an address or a directory.",
    },
    "lock": {
        "type": "string",
        "minLength": 1,
        "maxLength": 2_000,
        "description": "Of an install, in place of a source: another installer's lock.",
    },
    "repository": {**SHORT, "description": "The one in which a name is looked for."},
    "digest": {**SHORT, "description": "`sha256:` that the archive must have."},
    "skills": {
        **array(SHORT),
        "maxItems": 200,
        "description": "Of the source, or ids of installed ones; an update without any is of all.",
    },
    "all": {"type": "boolean", "description": "Every skill of the source."},
    "scope": {"enum": ["user", "project"], "description": "Where an install goes."},
}
CHANGE_EXAMPLE = {"action": "install", "source": "pdf@^1.2", "scope": "user"}
AGREED: Schema = {
    "type": "object",
    "maxProperties": 200,
    "description": "What a person agreed to, by the name of the skill.",
    "additionalProperties": record(
        {"plan_digest": SHORT},
        optional={
            "answers": array({"enum": [UNSIGNED, UNTRUSTED, OBEYED, EDITED, CHANGED]})
            | {"maxItems": 5}
        },
        closed=True,
    ),
}
REPOSITORY = record({"name": TEXT, "url": TEXT, "trusted": FLAG, "require_signature": FLAG})
PACKAGE = record(
    {
        "name": TEXT,
        "repository": TEXT,
        "version": TEXT,
        "description": TEXT,
        "license": TEXT,
        "publisher": maybe(TEXT),
    }
)
PACKAGE_EXAMPLE = {
    "name": "pdf",
    "repository": "official",
    "version": "1.2.0",
    "description": "Merges PDF files.",
    "license": "MIT",
    "publisher": None,
    "reason": "exact name",
    "matches": {"name": ["pdf"]},
}
RELEASE = record(
    {
        "version": TEXT,
        "state": TEXT,
        "reason": TEXT,
        "digest": TEXT,
        "tree_digest": TEXT,
        "size": COUNT,
        "files": COUNT,
        "published_at": TEXT,
        "publisher": maybe(TEXT),
        "registry": maybe(TEXT),
        "certificate": maybe(TEXT),
    }
)
