"""The examples of docs/guides/frameworks.md, run as they stand but for the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[3] / "docs/guides/frameworks.md"
LINES_MAX = 15
"""Lines of an example."""

SKILL = ("skill", {"name": "weather"})
WRITE = ("write", {"path": "poem.txt", "content": "Rain.\n"})
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (SKILL, WRITE)
"""What the models of these tests call, one after the other; then they say `LAST`."""
LAST = "It is written."


def example(title: str, place: int = 0) -> str:
    """Return the code under a heading of the guide, the first or a later one."""
    found = re.findall(r"^```python\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)
    assert len(found) > place, f"no example under `{title}`"
    return str(found[place])


def install_line(title: str) -> str:
    """Return the command under a heading of the guide that installs what its example needs."""
    found = re.search(r"^```bash\n(pip install .*)\n```", section(title), re.MULTILINE)
    assert found, f"no install line under `{title}`"
    return found[1]


def section(title: str) -> str:
    """Return what the guide says under a heading."""
    text = GUIDE.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    return found[1] if found else ""


def lines(code: str) -> int:
    """Return how many lines of an example say something."""
    return sum(bool(line.strip()) for line in code.splitlines())


class Typing:
    """Stands for `input`: gives fixed answers, and keeps what was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, prompt: str = "") -> str:
        self.asked.append(prompt)
        return self.answers.pop(0)


def run_example(
    title: str,
    models: Mapping[str, str],
    names: Mapping[str, Any],
    answer: Callable[[str], str] | None = None,
) -> None:
    """Run an example with other models in the place of those of providers.

    Args:
        title: Its heading.
        models: What stands in the code, each once, by what it is to be instead.
        names: What those name.
        answer: Stands for `input`.
    """
    code = example(title)
    assert lines(code) <= LINES_MAX
    for written, instead in models.items():
        assert code.count(written) == 1
        code = code.replace(written, instead)
    place: dict[str, Any] = {"__name__": "__main__", **names}
    if answer is not None:
        place["input"] = answer
    exec(compile(code, f"{GUIDE.name}: {title}", "exec"), place)
