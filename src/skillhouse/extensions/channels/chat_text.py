"""Texts for chat services: cut into messages, and Markdown in the dialects of the services.

An address is always shown beside its text, since a link can name one place and lead to another.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

from skillhouse.extensions.chat.screen import Stream
from skillhouse.floor.regex import regex

_FENCE = regex(r" {0,3}(`{3,}|~{3,})(.*)$")
_MENTION = re.compile(r"(?<![\w/.])(@\w{2,64})")
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def utf16_length(text: str) -> int:
    """Return the length as Telegram counts it (Bot API, "Text entities").

    >>> utf16_length("a😀")
    3
    """
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def messages_of(text: str, length_max: int) -> list[str]:
    """Cut a Markdown text into messages, between paragraphs, else lines, else words.

    A block of code that is cut ends in its message, and begins again in the next.

    >>> messages_of("one\\n\\ntwo", 7)
    ['one', 'two']
    """
    text = Stream().safe(text).strip("\n")
    made: list[str] = []
    held: list[str] = []
    fence = opening = ""
    for line in _lines(text, length_max // 2):
        match = _FENCE.match(line)
        closing = f"\n{fence}" if fence else ""
        if held and utf16_length("\n".join((*held, line)) + closing) > length_max:
            at = 0 if fence else _paragraph(held)
            if at:
                made.append("\n".join(held[:at]).strip("\n"))
                held = held[at:]
            else:
                made.append("\n".join(held).strip("\n") + closing)
                held = [opening] if fence else []
        held.append(line)
        if match is None:
            continue
        if not fence:
            fence, opening = match[1], line
        elif match[1].startswith(fence) and not match[2].strip():
            fence = ""
    made.append("\n".join(held).strip("\n"))
    return [one for one in made if one.strip()]


def _lines(text: str, length_max: int) -> Iterator[str]:
    """Yield the lines, those that are longer in parts."""
    for line in text.split("\n"):
        while utf16_length(line) > length_max:
            # A character has at most two units.
            part = line[: length_max // 2]
            at = part.rfind(" ") + 1 or len(part)
            yield line[:at].rstrip(" ")
            line = line[at:]
        yield line


def _paragraph(lines: Sequence[str]) -> int:
    """Return where the last paragraph begins that is not the first."""
    return next((at for at in range(len(lines) - 1, 0, -1) if not lines[at - 1].strip()), 0)


class ChatDialect(Struct, frozen=True, kw_only=True):
    """How a service writes what Markdown means; the functions get untrusted texts."""

    marks: Mapping[str, str]
    """What begins and ends bold, italic and struck text and headings, by token."""
    bullet: str
    text: Callable[[str], str]
    code: Callable[[str], str]
    block: Callable[[str, str], str]
    """Gets the code, and the word behind the fence."""
    quote: Callable[[str], str]
    """Gets what is written already."""

    def written(self, text: str) -> str:
        """Return untrusted Markdown as this service takes it."""
        return "".join(self._blocks(_MARKDOWN.parse(text))).strip("\n")

    def _blocks(self, tokens: Iterable[Token]) -> list[str]:
        made: list[str] = []
        lists: list[int] = []
        """The next number of each list that is open; 0 for one without numbers."""
        quoted = 0
        for token in tokens:
            kind = token.type
            if kind == "inline":
                made.append(self._inline(token.children or ()))
            elif kind == "paragraph_close":
                made.append("\n" if token.hidden or lists else "\n\n")
            elif kind in ("bullet_list_open", "ordered_list_open"):
                lists.append(int(token.attrGet("start") or 1) if kind[0] == "o" else 0)
            elif kind in ("bullet_list_close", "ordered_list_close"):
                lists.pop()
                made.append("" if lists else "\n")
            elif kind == "list_item_open":
                made.append("  " * (len(lists) - 1) + self._mark(lists))
            elif kind == "blockquote_open" and token.level == 0:
                quoted = len(made)
            elif kind == "blockquote_close" and token.level == 0:
                made[quoted:] = [self.quote("".join(made[quoted:]))]
            elif kind in ("fence", "code_block"):
                made.append(f"{self.block(token.content, token.info.strip())}\n")
            else:
                made.append(self.marks.get(kind) or _BLOCKS.get(kind, ""))
        return made

    def _mark(self, lists: list[int]) -> str:
        """Return what begins an item of the innermost list, and count it."""
        if not lists[-1]:
            return self.bullet
        lists[-1] += 1
        return f"{lists[-1] - 1}. "

    def _inline(self, tokens: Iterable[Token]) -> str:
        made: list[str] = []
        addresses: list[str] = []
        for token in tokens:
            kind = token.type
            if kind in self.marks:
                made.append(self.marks[kind])
            elif kind == "code_inline":
                made.append(self.code(token.content))
            elif kind == "link_open":
                addresses.append(str(token.attrGet("href") or ""))
            elif kind == "link_close":
                address = self.text(addresses.pop())
                made.append("" if made and made[-1] == address else f" ({address})")
            elif kind == "image":
                address = self.text(str(token.attrGet("src") or ""))
                made.append(f"{self.text(token.content)} ({address})")
            elif kind in ("softbreak", "hardbreak"):
                made.append("\n")
            else:
                made.append(self.text(token.content))
        return "".join(made)


_BLOCKS = {"hr": "———\n\n", "th_close": " | ", "td_close": " | ", "tr_close": "\n"}


def telegram_html(text: str) -> str:
    """Return untrusted Markdown as the HTML that Telegram takes (Bot API, "HTML style").

    >>> telegram_html("**Rain** <b> [here](https://example.org) @all")
    '<b>Rain</b> &lt;b&gt; here (https://example.org) <code>@all</code>'
    """
    return _TELEGRAM.written(text)


def _html_text(text: str) -> str:
    """Escape a text; a name that would call someone is code, which calls no one."""
    return _MENTION.sub(r"<code>\1</code>", html.escape(text, quote=False))


_TELEGRAM = ChatDialect(
    marks={
        "strong_open": "<b>",
        "strong_close": "</b>",
        "em_open": "<i>",
        "em_close": "</i>",
        "s_open": "<s>",
        "s_close": "</s>",
        "heading_open": "<b>",
        "heading_close": "</b>\n\n",
    },
    bullet="• ",
    text=_html_text,
    code=lambda text: f"<code>{html.escape(text, quote=False)}</code>",
    block=lambda text, _: f"<pre>{html.escape(text, quote=False)}</pre>",
    quote=lambda text: f"<blockquote>{text}</blockquote>\n",
)


def discord_markdown(text: str) -> str:
    """Return untrusted Markdown in the dialect of Discord.

    >>> discord_markdown("**Rain** <@1> [here](https://example.org/a_b) snake_case")
    '**Rain** \\\\<\\\\@1> here (https://example.org/a_b) snake\\\\_case'
    """
    return _DISCORD.written(text)


def discord_text(text: str) -> str:
    """Return a text that Discord shows as it is; an address is shown as one that can be opened."""
    made, at = [], 0
    for address in _ADDRESS.finditer(text):
        made += [_escaped(text[at : address.start()]), address[0]]
        at = address.end()
    return "".join([*made, _escaped(text[at:])])


def discord_code(text: str) -> str:
    """Return a text as a block of code, in which Discord reads no Markdown."""
    return _discord_block(text, "")


def _escaped(text: str) -> str:
    return _LINE_MARK.sub(r"\1\3\\\2\4", _SPECIAL.sub(r"\\\g<0>", text))


def _discord_block(text: str, word: str) -> str:
    # Nothing within may end the block.
    inside = text.replace("```", "'''").rstrip("\n")
    return f"```{word if _LANGUAGE.fullmatch(word) else ''}\n{inside}\n```"


def _discord_inline_code(text: str) -> str:
    if "`" not in text:
        return f"`{text}`"
    return discord_text(text) if "``" in text else f"`` {text} ``"


_SPECIAL = regex(r"[\\*_~`|<@\[\]]")
"""What begins emphasis, code, spoilers, mentions, time stamps, emoji and masked links."""
_LINE_MARK = regex(r"^([ \t]*)([-+#>])|^([ \t]*\d+)([.)])", re.MULTILINE)
_ADDRESS = regex(r"https?://[^\s<>()\[\]|`\\*]+")
"""Discord reads no Markdown within an address; one that has more of it is escaped from there."""
_LANGUAGE = regex(r"[A-Za-z0-9+#.-]{1,20}")
_DISCORD = ChatDialect(
    marks={
        "strong_open": "**",
        "strong_close": "**",
        "em_open": "*",
        "em_close": "*",
        "s_open": "~~",
        "s_close": "~~",
        "heading_open": "### ",
        "heading_close": "\n\n",
    },
    bullet="- ",
    text=discord_text,
    code=_discord_inline_code,
    block=_discord_block,
    quote=lambda text: "".join(f"> {line}\n" for line in text.strip("\n").split("\n")) + "\n",
)
