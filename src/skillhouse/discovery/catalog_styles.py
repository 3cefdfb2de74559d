"""The layouts of a list of skills: what stands around it, and one skill's lines."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from skillhouse.floor import SkillError
from skillhouse.skill import Profile, Skill, hidden_text, list_resources, load, revealed

DIRECT_CHARS = 1_000
"""Characters of a body that the direct prompt shows (S004-38)."""
CUT_MARK = "..."
"""Stands behind a text that was cut (S004-38)."""
CLUSTER_MAX = 64
"""Characters that a cut steps back over at most, to spare what a reader sees as one."""

_ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;"))
_CONTROL = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff\\ufffe\\uffff"
"""XML 1.0 has no place for these (production [2]), and newlines could imitate the layout."""
_HIDDEN = (
    "\\u061c\\u180e\\u200b\\u200c\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff"
    "\\U000e0000-\\U000e007f"
)
"""What a model reads and a person does not see; it can still stand in a directory's name."""
_UNPRINTABLE = f"[{_CONTROL}{_HIDDEN}]+"
_UNPRINTABLE_IN_BODY = f"(?![\\n\\t])[{_CONTROL}{_HIDDEN}]"
_LAYOUT = re.compile(r"(?im)^(?=[ ]{0,3}#{1,3}[ \t]+(?:Skill:|Available Skills))")
"""Where a line of a body would pass for one of the direct prompt's own headings."""
_JOINER = "\u200d"


class CatalogEntry(NamedTuple):
    """One skill's lines."""

    text: str
    is_cut: bool = False
    """Whether a description or body is not there in full."""


class MakesEntry(Protocol):
    """Makes one skill's lines."""

    def __call__(self, skill: Skill, *, chars: int | None) -> CatalogEntry | None:
        """Return them, or None when the skill's file cannot be used any more.

        Args:
            skill: Which.
            chars: Characters of the description at most, 0 for none at all; None leaves it to the
                profile.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """One layout."""

    head: str
    tail: str
    entry: MakesEntry


def style_of(name: str, profile: Profile) -> Style:
    """Return the layout of that name, one of `STYLES` but `COMPACT`."""
    return _BUILDERS[name](profile)


def shortened(text: str, limit: int, *, mark: str = CUT_MARK) -> str:
    """Return at most `limit` characters and the mark of a cut, or the text when it is no longer.

    Characters are code points. What a reader sees as one, such as a letter with its accents or a
    joined emoji, is not cut apart, unless it is longer than `CLUSTER_MAX`.

    >>> shortened("abcd", 4), shortened("abcde", 4)
    ('abcd', 'abcd...')
    >>> shortened("nai\u0308ve", 3)
    'na...'
    """
    if len(text) <= limit:
        return text
    at = limit
    while at > 0 and limit - at < CLUSTER_MAX and _belongs_together(text, at):
        at -= 1
    return text[: at if at and not _belongs_together(text, at) else limit] + mark


def _belongs_together(text: str, at: int) -> bool:
    """Whether the character before `at` and the one there are seen as one (UAX #29, in part)."""
    before, after = text[at - 1], text[at]
    if after.isascii():
        return False
    if _JOINER in (before, after) or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    if "\u1160" <= after <= "\u11ff":
        return True
    if _is_indicator(after):
        run = 0
        while run < at and run < CLUSTER_MAX and _is_indicator(text[at - 1 - run]):
            run += 1
        return run % 2 == 1
    return False


def _is_indicator(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def one_line(text: str) -> str:
    """Return a text without line breaks and without what a person cannot see."""
    if not text.isprintable():
        # None of these is printable; compiling the pattern takes longer than a whole catalog.
        text = re.sub(_UNPRINTABLE, " ", text)
    return text


def escaped(text: str) -> str:
    """Return a text for one place of an XML document."""
    text = one_line(text)
    # Looking for what is mostly not there is faster than `translate`, which looks at each letter.
    for character, entity in _ENTITIES:
        if character in text:
            text = text.replace(character, entity)
    return text


def _bold(text: str) -> str:
    """Return a name that cannot end its own emphasis."""
    return one_line(text).replace("*", "\\*")


def _describing(profile: Profile) -> Callable[[Skill, int | None], tuple[str, bool]]:
    """Return what gives a skill's description, and whether it was cut."""
    most = profile.catalog.description_chars

    def describe(skill: Skill, chars: int | None) -> tuple[str, bool]:
        text = skill.description
        limit = most if chars is None else chars if most is None else min(chars, most)
        if limit is None or len(text) <= limit:
            return text, False
        return shortened(text, limit), True

    return describe


def _xml(profile: Profile) -> Style:
    describe = _describing(profile)
    attributes = profile.catalog.attributes

    def entry(skill: Skill, *, chars: int | None) -> CatalogEntry:
        """Return the lines exactly as S000-36 lays them out."""
        about, is_cut = describe(skill, chars)
        opening, version = "  <skill>\n", ""
        if attributes:
            opening = f'  <skill id="{escaped(skill.directory.name)}">\n'
            found = skill.frontmatter.version
            version = f"    <version>{escaped(found)}</version>\n" if found else ""
        description = f"    <description>{escaped(about)}</description>\n" if chars != 0 else ""
        return CatalogEntry(
            text=(
                f"{opening}"
                f"    <name>{escaped(skill.name)}</name>\n"
                f"{description}{version}"
                f"    <location>{escaped(skill.file)}</location>\n"
                "  </skill>\n"
            ),
            is_cut=is_cut,
        )

    return Style(head="<available_skills>\n", tail="</available_skills>", entry=entry)


def _opencode(profile: Profile) -> Style:
    """The published sentences and tags, with addresses for locations."""
    describe = _describing(profile)

    def entry(skill: Skill, *, chars: int | None) -> CatalogEntry:
        about, is_cut = describe(skill, chars)
        description = f"    <description>{escaped(about)}</description>\n" if chars != 0 else ""
        return CatalogEntry(
            text=(
                "  <skill>\n"
                f"    <name>{escaped(skill.name)}</name>\n"
                f"{description}"
                f"    <location>{escaped(skill.uri)}</location>\n"
                "  </skill>\n"
            ),
            is_cut=is_cut,
        )

    return Style(
        head=(
            "Skills provide specialized instructions and workflows for specific tasks.\n"
            "Use the skill tool to load a skill when a task matches its description.\n"
            "<available_skills>\n"
        ),
        tail="</available_skills>",
        entry=entry,
    )


def _awareness(profile: Profile) -> Style:
    describe = _describing(profile)
    sources = _sources(profile)

    def entry(skill: Skill, *, chars: int | None) -> CatalogEntry:
        """Return the lines of S004-35."""
        about, is_cut = describe(skill, chars)
        listed, omitted = list_resources(skill.directory)
        files = list(listed[: profile.resources_listed])
        omitted += len(listed) - len(files)
        if omitted:
            files.append(f"and {omitted} more")
        source = sources.get(skill.scope, skill.scope)
        text = f"- **{_bold(skill.name)}** ({one_line(source)})\n"
        if chars != 0:
            text += f"  Description: {one_line(about)}\n"
        text += f"  Path: {one_line(str(skill.directory))}/\n"
        if files:
            text += f"  Files: {', '.join(files)}\n"
        return CatalogEntry(text=text + "\n", is_cut=is_cut)

    return Style(
        head=(
            "## Available Skills\n\n"
            "The following skills are available. Use Bash to read SKILL.md for detailed "
            "instructions.\n\n"
        ),
        tail="",
        entry=entry,
    )


def _direct(profile: Profile) -> Style:
    describe = _describing(profile)

    def entry(skill: Skill, *, chars: int | None) -> CatalogEntry | None:
        """Return the lines of S004-37, the body read now."""
        heading = f"### Skill: {one_line(skill.name)}\n"
        if chars == 0:
            return CatalogEntry(text=heading + "\n", is_cut=True)
        about, is_cut = describe(skill, chars)
        try:
            text = load(skill).body.strip()
        except (SkillError, OSError):
            # One bad file never costs another skill; whoever loads this one is told what is wrong.
            return None
        hidden = hidden_text(text)
        if hidden is not None and hidden.asks:
            # A list needs no question, so what may hide an instruction is loaded by its tool only.
            return None
        body = revealed(text)
        shown = shortened(body, DIRECT_CHARS)
        return CatalogEntry(
            text=f"{heading}**Description:** {one_line(about)}\n\n{_body(shown)}\n\n",
            is_cut=is_cut or shown is not body,
        )

    return Style(head="## Available Skills\n\n", tail="", entry=entry)


def _body(text: str) -> str:
    """Return a body whose lines cannot pass for those of the list around it."""
    if not text.isprintable():
        text = re.sub(_UNPRINTABLE_IN_BODY, " ", text)
    return _LAYOUT.sub(r"\\", text)


def _tool(profile: Profile) -> Style:
    describe = _describing(profile)

    def entry(skill: Skill, *, chars: int | None) -> CatalogEntry:
        """Return the line of S004-39."""
        if chars == 0:
            return CatalogEntry(text=f"- **{_bold(skill.name)}**\n", is_cut=True)
        about, is_cut = describe(skill, chars)
        return CatalogEntry(text=f"- **{_bold(skill.name)}**: {one_line(about)}\n", is_cut=is_cut)

    name = next((rule.name for rule in profile.tools if rule.kind == "skill"), "skill")
    return Style(
        head=(
            "## Available Skills\n\n"
            f"Use the `{name}` tool to load detailed instructions for any skill.\n\n"
        ),
        tail="",
        entry=entry,
    )


def _titled(profile: Profile) -> Style:
    """Our own: each skill begins as `load` shows it in the style of the same name."""
    describe = _describing(profile)

    def entry(skill: Skill, *, chars: int | None) -> CatalogEntry:
        about, is_cut = describe(skill, chars)
        description = f"{one_line(about)}\n" if chars != 0 else ""
        return CatalogEntry(
            text=(
                f"# Skill: {one_line(skill.name)}\n"
                f"{description}"
                f"Location: {one_line(skill.file)}\n\n"
            ),
            is_cut=is_cut,
        )

    return Style(head="", tail="", entry=entry)


def _sources(profile: Profile) -> Mapping[str, str]:
    return {rule.name: rule.source for rule in profile.scopes if rule.source}


_BUILDERS: Mapping[str, Callable[[Profile], Style]] = {
    "xml": _xml,
    "awareness": _awareness,
    "direct": _direct,
    "tool": _tool,
    "opencode": _opencode,
    "titled": _titled,
}
COMPACT = "compact"
"""The style of `compact_list`, which lays out the whole list at once."""
STYLES = (*_BUILDERS, COMPACT)
"""The renderers there are (DESIGN, public contract)."""
