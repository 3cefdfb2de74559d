"""Matches a text against a pattern with `*` and `?`, in time proportional to their product."""

from __future__ import annotations


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` matches the whole of `text`; case counts.

    `*` is any run of characters, also none and also with `/` or newlines; `?` is exactly one
    character; every other character is itself (vectors/README.md, decisions rule 1). Greedy with
    one place to come back to, so 10,000 stars cost no more than one.

    >>> matches("git *", "git status"), matches("git *", "git")
    (True, False)
    """
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    at_pattern = at_text = 0
    star = -1
    resume = 0
    while at_text < len(text):
        if at_pattern < len(pattern) and pattern[at_pattern] == "*":
            star = at_pattern
            resume = at_text
            at_pattern += 1
        elif at_pattern < len(pattern) and pattern[at_pattern] in ("?", text[at_text]):
            at_pattern += 1
            at_text += 1
        elif star >= 0:
            at_pattern = star + 1
            resume += 1
            at_text = resume
        else:
            return False
    return not pattern[at_pattern:].strip("*")
