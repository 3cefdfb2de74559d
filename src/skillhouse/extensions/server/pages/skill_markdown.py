"""Renders the Markdown of a skill: its text, but no markup, image or address that acts by itself.

What a browser gets is made by `markdown-it-py` with HTML off and goes through `nh3` (ammonia),
which keeps the tags that are named here and no others: two libraries would have to err alike.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from skillhouse.extensions.server.pages.renderer import files_path, marked
from skillhouse.presentation.text import shown

if TYPE_CHECKING:
    from markdown_it.token import Token

MARKDOWN_MAX = 65_536
"""Characters that are rendered; a longer text is shown as it is written."""
BRACKETS_MAX = 4_000
"""`[` that are rendered: the search for each one's end makes the time grow with their square."""
OPENED_SCHEMES = ("http", "https", "mailto")
"""What a person may open after having seen the whole address."""
HEADING_STEP = 2
"""A skill's first level is below the page's own `h1` and `h2`."""

IMAGE = "image, not loaded:"
"""A text of the interface, translated where it is shown."""
_TAGS = set(
    "p h3 h4 h5 h6 ul ol li blockquote pre code em strong s table thead tbody tr th td hr br "
    "mark a button span".split()
)
_ATTRIBUTES = {
    "a": {"href"},
    "button": {"type", "class", "title", "data-away"},
    "span": {"class"},
    "ol": {"start"},
}
_CLOSINGS = "skillhouse-closings"


def rendered(text: str, *, reference: str, file: str, image: str) -> Markup | None:
    """Return the markup of an untrusted text; None where that would take long.

    Args:
        reference: The skill's, for links to its own files.
        file: The file that the text is from, relative to the skill's directory.
        image: What is shown before the text of an image, which is not loaded.
    """
    if len(text) > MARKDOWN_MAX or text.count("[") > BRACKETS_MAX:
        return None
    env = {"reference": reference, "file": file, "image": image, _CLOSINGS: []}
    made = _markdown().render(text, env)
    # nh3 has checked every tag and attribute of it.
    return Markup(  # noqa: S704
        nh3.clean(
            made,
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            link_rel=None,
            url_schemes=set(),
        )
    )


@cache
def _markdown() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
    made.enable(["table", "strikethrough"])
    # The address is shown as it was written, and what it becomes is shown before it is opened.
    # mypy: the library's way to change these is to assign methods.
    made.normalizeLink = _same  # type: ignore[method-assign, assignment]
    made.normalizeLinkText = _same  # type: ignore[method-assign, assignment]
    rules: dict[str, _Rule] = {
        "text": lambda tokens, at, env: marked(tokens[at].content),
        "code_inline": lambda tokens, at, env: _code(tokens[at].content),
        "code_block": lambda tokens, at, env: _block(tokens[at].content),
        "fence": lambda tokens, at, env: _block(tokens[at].content),
        "heading_open": lambda tokens, at, env: f"<{_heading(tokens[at])}>",
        "heading_close": lambda tokens, at, env: f"</{_heading(tokens[at])}>\n",
        "image": _image,
        "link_open": _link_open,
        "link_close": lambda tokens, at, env: env[_CLOSINGS].pop(),
    }
    for name, rule in rules.items():
        made.add_render_rule(name, _rule(rule))
    return made


_Env = MutableMapping[str, Any]
_Rule = Callable[[Sequence["Token"], int, _Env], str]


def _rule(rule: _Rule) -> Callable[..., str]:
    def render(_: object, tokens: Sequence[Token], at: int, __: object, env: _Env) -> str:
        return rule(tokens, at, env)

    return render


def _same(text: str) -> str:
    return text


def _code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(marked(text))


def _block(text: str) -> Markup:
    return Markup("<pre><code>{}</code></pre>\n").format(marked(text))


def _heading(token: Token) -> str:
    return f"h{min(6, int(token.tag[1:]) + HEADING_STEP)}"


def _image(tokens: Sequence[Token], at: int, env: _Env) -> Markup:
    token = tokens[at]
    source = str(token.attrGet("src") or "")
    return Markup('<span class="image">{} {} <code>{}</code></span>').format(
        env["image"], marked(token.content), marked(source)
    )


def _link_open(tokens: Sequence[Token], at: int, env: _Env) -> Markup:
    target = str(tokens[at].attrGet("href") or "")
    opening, closing = _opened(target, env)
    env[_CLOSINGS].append(closing)
    return opening


def _opened(target: str, env: _Env) -> tuple[Markup, Markup]:
    """Return the tags around a link's text: a file of the skill, an address to confirm, or text."""
    parts = _split(target)
    if parts is not None and parts[0] in OPENED_SCHEMES:
        form = Markup('<button type="button" class="away" title="{0}" data-away="{0}">')
        return form.format(shown(target)), Markup("</button>")
    if parts is not None and not parts[0] and not parts[1] and parts[2]:
        inside = posixpath.normpath(
            posixpath.join(posixpath.dirname(env["file"]), unquote(parts[2]))
        )
        if not inside.startswith(("/", "../")) and inside not in ("..", "."):
            address = files_path(env["reference"], inside)
            return Markup('<a href="{}">').format(address), Markup("</a>")
    return Markup("<span>"), Markup(" <code>{}</code></span>").format(escape(shown(target)))


def _split(target: str) -> tuple[str, str, str] | None:
    """Return the scheme, host and path of an address; None where it cannot be read."""
    if not target.isprintable():
        return None
    try:
        parts = urlsplit(target)
    except ValueError:
        return None
    return parts.scheme, parts.netloc, parts.path
