"""Renders the pages: what a skill or a command says becomes text in them, and never markup."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

import skillhouse
from skillhouse.extensions.server.api.route_table import API_PATH
from skillhouse.extensions.server.pages.languages import (
    LANGUAGES,
    finding_texts,
    problem_texts,
    translated,
    translations,
)
from skillhouse.presentation.library import why
from skillhouse.presentation.question import ANSWER_WORDS
from skillhouse.presentation.text import cut, one_line, shown
from skillhouse.skill import is_demanded

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"

LINE_COLUMNS = 300
"""Columns of a description in a list, where the style shows two lines."""
NAME_MAX = 64
"""Columns of a name in a list, the maximum of the specification."""
ROWS_MAX = 200
"""Rows of a table; the JSON has all."""


WORDS = frozenset(
    "allow ask deny error warning info ok denied timeout pending stopped unknown escalated "
    "emergency-stopped".split()
)
"""Words of values that templates translate where they show them."""


FACT_LABELS = frozenset(
    (
        "signs with",
        "signs",
        "message",
        "does",
        "amount",
        "fee at most",
        "to",
        "contract",
        "chain",
        "nonce",
        "gas",
        "priority fee",
        "access list",
        "AMOUNT UNKNOWN",
        "calldata",
        "limit",
        "session key until",
        "content",
        "skill",
        "file",
        "script",
        "difference",
        "plan",
        "plan digest",
        "hidden text",
        "attached",
        "network",
        "judge",
        "bound to",
        "not bound to files",
        "directory",
        "may",
        "request",
        "sends",
        "asks for",
        "from",
        "in place of",
        "changed",
        "changes",
        "not compared",
        "not bound",
        "rewrites",
        "read-only in the run",
        "changed since the earlier question",
        "will not work",
    )
)
"""Labels of what was found, which are translated. Those of what was sent never are: an argument has
any name."""
FACT_WORDS = {
    "judge": "rule check",
    "bound to": "applies to files",
    "not bound to files": "does not apply to files",
    "not bound": "not covered",
}
"""What some of them are called on a page; in a record and the API they keep their names."""


class Renderer:
    """Renders the templates, which are compiled when first used, in any of the languages."""

    def render(self, template: str, language: str, **values: Any) -> str:
        return _environment(language).get_template(template).render(language=language, **values)


@cache
def _environment(language: str) -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        extensions=["jinja2.ext.i18n"],
        # INVARIANT: no template turns this off, and none uses `safe`: a skill's texts are never
        # markup.
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["ext.i18n.trimmed"] = True
    gettext, ngettext = translations(language)
    # mypy: the extension adds the method.
    made.install_gettext_callables(gettext, ngettext, newstyle=True)  # type: ignore[attr-defined]
    made.filters.update(
        fact_label=lambda label: (
            gettext(FACT_WORDS.get(label) or label) if label in FACT_LABELS else label
        ),
        answer_words=lambda answer: gettext(ANSWER_WORDS[answer]),
        finding_text=lambda code: finding_texts(language).get(code, ""),
        problem_text=lambda code: problem_texts(language).get(code, ""),
        line=partial(start, columns=LINE_COLUMNS),
        short=partial(start, columns=NAME_MAX),
        path=path,
        folded=one_line,
        marked=marked,
        coded=lambda text: coded(translated(language, text)),
        as_written=coded,
        said=partial(translated, language),
        counted=counted,
        number="{:,}".format,
        skill_path=skill_path,
        edit_path=edit_path,
        command=command,
        day=partial(utc, to="day"),
        when=when,
        why=why,
        flat=flat,
        utc=utc,
    )
    made.globals.update(
        version=skillhouse.__version__,
        all_finding_texts=lambda: dict(finding_texts(language)),
        languages=LANGUAGES,
        rows_max=ROWS_MAX,
        address=address,
        files_path=files_path,
        seen_path=seen_path,
        api_path=api_path,
        package_path=package_path,
    )
    return made


def start(text: str, *, columns: int) -> str:
    """Return the start of a text on one line.

    >>> start("one two three", columns=8)
    'one two…'
    """
    # Some descriptions have 64 KiB; only as much is processed as could be shown.
    return cut(one_line(text[: 4 * columns]), columns)


def marked(text: str) -> Markup:
    r"""Return a text of several lines with its controls and hidden characters marked.

    >>> marked("a<b\x1b")
    Markup('a&lt;b<mark>\\x1b</mark>')
    """
    if text.isprintable():
        return escape(text)
    opened, closed = Markup("<mark>"), Markup("</mark>")
    pieces = []
    judged = ((_is_plain(text, at), letter) for at, letter in enumerate(text))
    for plain, run in itertools.groupby(judged, lambda pair: pair[0]):
        piece = "".join(letter for _, letter in run)
        pieces += [escape(piece)] if plain else [opened, escape(shown(piece)), closed]
    return Markup("").join(pieces)


def _is_plain(text: str, at: int) -> bool:
    """Whether a character is visible; wide spaces, as in Chinese, look like spaces."""
    character = text[at]
    return (
        character.isprintable()
        or character in "\n\t\u00a0\u3000"
        or (character > "\u2000" and is_demanded(text, at))
    )


def coded(text: str) -> Markup:
    """Return a message with its text in backticks as code.

    >>> coded("got `<b>`"), coded("one ` alone")
    (Markup('got <code>&lt;b&gt;</code>'), Markup('one ` alone'))
    """
    parts = one_line(text).split("`")
    if len(parts) % 2 == 0 or "" in parts[1::2]:
        return escape(one_line(text))
    pieces = [escape(part) for part in parts]
    pieces[1::2] = [Markup("<code>{}</code>").format(part) for part in parts[1::2]]
    return Markup("").join(pieces)


def path(value: object) -> Markup:
    """Return a path that may break after its slashes.

    >>> path(Path("/a<b"))
    Markup('/<wbr>a&lt;b')
    """
    return Markup("/<wbr>").join(shown(part) for part in str(value).split("/"))


def counted(value: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "skill"), counted(12_000, "skill")
    ('1 skill', '12,000 skills')
    """
    return f"{value:,} {noun}" + ("" if value == 1 else "s")


def skill_path(reference: str) -> str:
    """Return the address of a skill's page; nothing in the reference is a separator.

    >>> skill_path("user:a/b?c")
    '/skills/user:a%2Fb%3Fc'
    """
    return _below("/skills/", reference)


def edit_path(reference: str) -> str:
    """Return the address at which a skill is edited."""
    return _below("/edit/", reference)


def seen_path(reference: str) -> str:
    """Return the address at which the clients are that see a skill."""
    return _below("/seen/", reference)


def _below(path: str, text: str) -> str:
    return path + quote(text, safe=":", errors="replace")


def files_path(reference: str, name: str = "") -> str:
    """Return the address of a file of a skill.

    >>> files_path("user:a", "x/y z")
    '/files/user:a?name=x%2Fy%20z'
    """
    query = urlencode({"name": name}, quote_via=quote, safe="", errors="replace")
    return _below("/files/", reference) + "?" + query


def package_path(repository: str, package: str) -> str:
    """Return the address of a package's page.

    >>> package_path("official", "acme/pdf")
    '/packages/of/official/acme%2Fpdf'
    """
    return "/packages/of" + _below("/", repository) + _below("/", package)


def api_path(*segments: str) -> str:
    """Return the address of a route of the API; no segment has a separator.

    >>> api_path("skills", "user:a/b", "enabled")
    '/api/v1/skills/user:a%2Fb/enabled'
    """
    return API_PATH + "".join(_below("/", one) for one in segments)


def address(**query: Any) -> str:
    """Return the address of the status page with a query, without empty values.

    >>> address(q="a&b", page=2), address(q="", page=None)
    ('/?q=a%26b&page=2', '/')
    """
    kept = {key: value for key, value in query.items() if value}
    return "/?" + urlencode(kept) if kept else "/"


_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[-+]\d\d:\d\d)")
_SHOWN = {"day": 10, "minute": 16, "second": 19, "ms": 23}
"""Characters of a time that is shown so exactly."""


def when(moment: str, to: str = "minute") -> Markup:
    """Return a UTC time as a person reads it; a script shows it as that of their place.

    What is no time, as in the list of another server, is shown as it is.

    >>> when("2026-11-23T20:20:46+02:00")
    Markup('<time datetime="2026-11-23T18:20:46Z" data-to="minute">2026-11-23 18:20 UTC</time>')
    >>> when("<soon>")
    Markup('&lt;soon&gt;')
    """
    if not _MOMENT.fullmatch(moment):
        return escape(shown(moment))
    if not moment.endswith("Z"):
        try:
            moment = f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        except (ValueError, OverflowError):
            return escape(moment)
    text = moment.removesuffix("Z")[: _SHOWN[to]].replace("T", " ")
    return Markup('<time datetime="{}" data-to="{}">{} UTC</time>').format(moment, to, text)


def utc(milliseconds: int, to: str = "minute") -> Markup:
    """Return a moment, in milliseconds since 1970.

    >>> utc(1_750_000_000_000)
    Markup('<time datetime="2025-06-15T15:06:40Z" data-to="minute">2025-06-15 15:06 UTC</time>')
    """
    return when(f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}", to)


def command(words: Iterable[object]) -> str:
    """Return a command as it is typed in a shell.

    >>> command(["skillhouse", "trust", Path("/my site")])
    "skillhouse trust '/my site'"
    """
    return shlex.join(str(word) for word in words)


def flat(value: Any) -> str:
    """Return a frontmatter value on one line.

    >>> flat({"author": "mika", "tags": ["a", "b"]})
    'author: mika; tags: ["a", "b"]'
    """
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return "; ".join(f"{one_line(key)}: {flat(part)}" for key, part in value.items())
    return one_line(json.dumps(value, ensure_ascii=False))


def _finalized(value: object) -> object:
    """Escape control and invisible characters of texts."""
    if hasattr(value, "__html__"):
        return value
    if isinstance(value, str | Path):
        return shown(str(value))
    return value
