"""The list of skills that a model sees, within a budget of tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from skillhouse.floor import ConfigError, nearest
from skillhouse.skill import Skill, SkillIndex, tokens_of

STYLES = ("xml",)
"""The renderers there are; the others of the contract come with the profiles."""

_OPEN = "<available_skills>"
_CLOSE = "</available_skills>"
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"})
_CONTROL = "\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff\\ufffe\\uffff"
"""XML 1.0 has no place for these (production [2]), and newlines could imitate the layout."""
_HIDDEN = (
    "\\u061c\\u180e\\u200b\\u200c\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f\\ufeff"
    "\\U000e0000-\\U000e007f"
)
"""What a model reads and a person does not see; it can still stand in a directory's name."""
_UNPRINTABLE = f"[{_CONTROL}{_HIDDEN}]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """A rendered list, and what of the index is in it."""

    text: str
    """Empty when there is no skill to list (S000-35)."""
    included: tuple[Skill, ...]
    omitted: tuple[Skill, ...]
    """Skills that the budget left out; search still finds them."""

    @property
    def tokens(self) -> int:
        """Estimated tokens of the text: UTF-8 bytes / 4, rounded up."""
        return tokens_of(self.text)


def render_catalog(
    index: SkillIndex, *, style: str = "xml", budget_tokens: int | None = None
) -> Catalog:
    """Return the catalog of `index` in its order, cut where the next skill breaks the budget.

    Args:
        index: What to list; skills that must not be seen are taken out before.
        style: The renderer.
        budget_tokens: Most tokens the whole text may have; None is no bound.

    Raises:
        ConfigError: no renderer has that name.
    """
    if style not in STYLES:
        suggestion = next(iter(nearest(style, STYLES)), STYLES[0])
        raise ConfigError(f"unknown catalog style `{style}`", key=style, suggestion=suggestion)
    if budget_tokens is not None and budget_tokens < 0:
        raise ConfigError(f"expected a budget of 0 tokens or more, got {budget_tokens}")
    blocks: list[str] = []
    included: list[Skill] = []
    size = len(_OPEN) + 1 + len(_CLOSE)
    for skill in index.skills:
        block = _block(skill)
        size += len(block.encode()) + 1
        if budget_tokens is not None and -(-size // 4) > budget_tokens:
            break
        blocks.append(block)
        included.append(skill)
    text = "\n".join((_OPEN, *blocks, _CLOSE)) if blocks else ""
    return Catalog(
        text=text, included=tuple(included), omitted=tuple(index.skills[len(included) :])
    )


def _block(skill: Skill) -> str:
    """Return one skill's lines, exactly as S000-36 lays them out."""
    return (
        "  <skill>\n"
        f"    <name>{_escaped(skill.name)}</name>\n"
        f"    <description>{_escaped(skill.description)}</description>\n"
        f"    <location>{_escaped(skill.file)}</location>\n"
        "  </skill>"
    )


def _escaped(text: str) -> str:
    if not text.isprintable():
        # None of these is printable; compiling the pattern takes longer than a whole catalog.
        text = re.sub(_UNPRINTABLE, " ", text)
    return text.translate(_ENTITIES)
