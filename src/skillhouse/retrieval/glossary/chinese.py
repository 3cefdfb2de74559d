"""Splits Chinese text into words of a dictionary and says what they mean in English."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from skillhouse.retrieval.glossary.dictionary import Senses

SIGNS_MAX = 9
"""Signs of the longest word, of those in kana."""
RUN_MAX = 200
"""Signs of one run that are split; the rest is searched by pairs of signs alone."""
_LONG = 1.6
"""Long words are preferred: a word counts as its signs to this power (decision record 0301)."""

IDLE = frozenset(
    "一个 怎么 怎样 如何 什么 为什么 哪些 哪个 这个 那个 这些 那些 我们 你们 他们 可以 能够 需要 "
    "帮我 帮忙 给我 请问 一下 一些 进行 使用 以及 或者 并且 还是 没有 不是 就是 时候 然后 之后 "
    "我 你 他 它 的 了 和 与 或 在 是 有 把 被 对 为 用 从 到 里 中 上 下 请 帮 给 个 吗 呢 吧 想 "
    "要 将 并 等 及 让 以 于 其 这 那 不 能 会 可 就 都 也 还 又 很 着 过 时 后 前 当".split()
)
"""Words that every request has and that dictionaries translate into words of content."""


def split(text: str, senses: Callable[[str], Senses]) -> Iterator[tuple[str, Senses]]:
    """Yield the words of a run of CJK signs that have senses, so that they cover most of it."""
    text = text[:RUN_MAX]
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(text) + 1):
        ways = [(best[end - 1][0], 1)]
        for size in range(1, min(SIGNS_MAX, end) + 1):
            word = text[end - size : end]
            if word in IDLE or senses(word):
                gain = float(size**_LONG) if size > 1 else 0.5
                ways.append((best[end - size][0] + gain, size))
        best.append(max(ways))
    words: list[str] = []
    end = len(text)
    while end > 0:
        size = best[end][1]
        words.append(text[end - size : end])
        end -= size
    for word in reversed(words):
        if word not in IDLE and (found := senses(word)):
            yield word, found
