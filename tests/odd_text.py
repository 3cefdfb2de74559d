"""Texts that strangers may write: whatever fits into a `str`, with pieces that mean something."""

from __future__ import annotations

from hypothesis import strategies as st

PIECES = (
    *(
        "https://",
        "HTTP://",
        "[",
        "](",
        "]",
        ")",
        "@",
        ":",
        "//",
        "/",
        "\\",
        "%",
        "%zz",
        "%5B",
        "#",
        "?",
    ),
    *(
        "[::1]",
        "[port]",
        ":99999",
        ":0",
        "xn--",
        "..",
        "。",
        "::ffff:1.2.3.4",
        "0x7f.1",
        "a.example",
    ),
    *(
        "```",
        "```sh\n",
        "~~~",
        "`",
        "    ",
        "\t",
        "> ",
        "- ",
        "1. ",
        "$ ",
        "<pre>",
        "<code>",
        "\\\n",
    ),
    *(
        "curl ",
        "rm -rf ",
        "git push ",
        "sudo ",
        "A=1 ",
        "$(",
        "${",
        "<(",
        "<<EOF\n",
        "|",
        "&&",
        ";",
        "'",
        '"',
    ),
    *(
        "read",
        "exec",
        "fetch",
        "---\n",
        "name: ",
        "description: ",
        "allowed-tools: ",
        "- x\n",
        "&a ",
        "*a",
        "!!",
    ),
    *(
        "\n",
        "\r",
        "\x00",
        "\x1b[8m",
        "\x9b",
        "\u2028",
        "\ufeff",
        "\u200b",
        "\u200d",
        "\u202e",
        "\u00ad",
    ),
    *(
        "\ud800",
        "\udfff",
        "\udcff",
        "\U000e0041",
        "\U0001f3f4",
        "\ufe0f",
        "\u0301",
        "\uffff",
        "\U0010ffff",
    ),
)
"""What the readers of a skill look for, and what has upset readers elsewhere."""


def odd_texts() -> st.SearchStrategy[str]:
    """Return texts of any characters, lone surrogates and NUL among them, with such pieces."""
    anything = st.text(st.characters(codec=None, exclude_categories=()), max_size=40)
    parts = st.lists(st.one_of(st.sampled_from(PIECES), anything), max_size=24)
    return parts.map("".join)


LONG_TEXTS = tuple(
    (piece * (1_048_576 // len(piece)))[:1_048_576]
    for piece in (
        "a",
        "[",
        "`",
        "https://",
        "https://a.example ",
        "> ",
        "(",
        "\u200b",
        "$(",
        "- ",
        "\ud800",
    )
)
"""Lines of a mebibyte, each of one piece: what takes time by the square of it does not end."""
