"""What the pages claim and a machine can check: figures by name, counts, names and lists."""

from __future__ import annotations

import re
import runpy
import tomllib
from collections.abc import Callable
from pathlib import Path

import conftest
import pytest
from hypothesis import settings

from skillhouse.frontends.cli.verbs import VERBS
from skillhouse.presentation.operations import OPERATIONS
from skillhouse.skill import profile_names

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src/skillhouse"
BENCHMARKS = ROOT / "docs/benchmarks.md"
QUOTING = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs/guides").glob("*.md")),
    *sorted((ROOT / "docs/concepts").glob("*.md")),
    *sorted((ROOT / "docs/reference").glob("*.md")),
]
QUOTED = "## Figures that other pages quote"
COUNTS = dict(
    zip(
        "one two three four five six seven eight nine ten eleven twelve thirteen".split(),
        range(1, 14),
        strict=True,
    )
)
DESIGNS = {"owliabot", "opencode", "owliabot-js", "openseed", "claude-desktop"}
"""The profiles of the published designs."""
ROUGHLY: dict[str, Callable[[float], bool]] = {
    "about twice": lambda figure: 1.75 <= figure <= 2.25,
    "less than twice": lambda figure: figure < 2,
}
"""Words for a figure, and when they are true."""


def text_of(page: str | Path) -> str:
    """Return a page as one line, so that a quote may go over the end of one."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def quoted() -> list[tuple[str, str, str, str]]:
    """Return page, words, figure and the beginning of the line here that has the figure."""
    table = BENCHMARKS.read_text(encoding="utf-8").partition(QUOTED)[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:2] == "| "]
    found = [tuple(cell.strip("`") for cell in row) for row in rows[1:]]
    assert found, QUOTED
    return [(page, words, figure, place) for page, words, figure, place in found]


@pytest.mark.parametrize("row", quoted(), ids=lambda row: row[1])
def test_a_figure_that_a_page_quotes_is_that_of_the_benchmarks(
    row: tuple[str, str, str, str],
) -> None:
    page, words, figure, place = row
    assert words in text_of(page)
    measured = BENCHMARKS.read_text(encoding="utf-8").replace(QUOTED, "\0").partition("\0")
    after = measured[2].partition("\n## ")[2]
    lines = [line for line in (measured[0] + after).splitlines() if place in line]
    # The last number of a page's words is rounded from the figure, or they say roughly what it is.
    assert any(re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d]|\.\d)", line) for line in lines)
    rough = [holds for said, holds in ROUGHLY.items() if said in words]
    if rough:
        assert all(holds(float(figure)) for holds in rough)
    else:
        said = re.findall(r"\d[\d,]*(?:\.\d+)?", words)[-1]
        digits = len(said.partition(".")[2])
        assert round(float(figure) + 1e-9, digits) == float(said)


def test_every_figure_of_a_page_is_in_the_table() -> None:
    """A paragraph that refers to the benchmarks, and any figure of a search's worth."""
    rows = quoted()
    lost = []
    for page in QUOTING:
        for part in re.split(r"\n\n|\n(?=- )", page.read_text(encoding="utf-8")):
            line = " ".join(part.split())
            numbers = re.search(r"\d", re.sub(r"\[[^\]]*\]\([^)]*\)|[A-Z]+@\d+", "", line))
            refers = "benchmarks.md" in line and numbers
            if not refers and not re.search(r"(NDCG|Hit|Recall)@\d+\D{0,40}\d", line):
                continue
            name = page.relative_to(ROOT).as_posix()
            if not any(row[0] == name and row[1] in line for row in rows):
                lost.append(f"{name}: {line[:80]}")
    assert lost == []


def test_a_number_of_things_is_the_number_that_there_is() -> None:
    terms = (SOURCE / "retrieval/glossary/terms.tsv").read_text(encoding="utf-8").splitlines()
    counted = {
        "concepts": sum(not line.startswith("#") for line in terms),
        "operations": len(OPERATIONS),
        "designs": len(DESIGNS & set(profile_names())),
    }
    wrong = []
    for page in QUOTING:
        for number, thing in re.findall(rf"\b([\d,]+|{'|'.join(COUNTS)}) ({'|'.join(counted)})\b",
                                        text_of(page)):  # fmt: skip
            said = COUNTS.get(number) or int(number.replace(",", ""))
            if said != counted[thing] and (number, thing) != ("two", "designs"):
                wrong.append((page.name, number, thing))
    assert wrong == []


def test_the_readme_names_the_extras_that_all_installs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (every,) = extras["optional-dependencies"]["all"]
    bring = text_of("README.md").partition("Extras bring parts: ")[2].partition("all of these")[0]
    named = re.findall(r"`([\w-]+)`", bring)
    assert named[-1] == "all"
    assert set(named[:-1]) == set(every.partition("[")[2].rstrip("]").split(","))
    minimum = re.search(r"It needs Python ([\d.]+) or newer", text_of("README.md"))
    assert minimum
    assert extras["requires-python"].startswith(f">={minimum[1]}")


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_each_command_that_a_page_names_is_a_verb(page: Path) -> None:
    named = re.findall(r"`skillhouse ([a-z][\w-]*)", page.read_text(encoding="utf-8"))
    assert [name for name in named if name not in (*VERBS, "help")] == []


def test_what_is_said_to_be_missing_is_not_there() -> None:
    """The list of SECURITY.md: a word of it that is a package or a verb would be a false one."""
    part = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("**Not yet built")[2]
    items = re.findall(r"^- \*\*(.+?)\.\*\*", part.partition("\n**")[0], re.MULTILINE)
    assert items, "the list of what is not built is not found"
    # The line as it was before is one item too.
    inline = part.partition("\n")[0].partition(":**")[2].strip(" .")
    there = {path.name for path in SOURCE.iterdir() if path.is_dir()} | set(VERBS)
    stems = {re.sub(r"(ing|ed|er|s)$", "", name) for name in there}
    for item in [*items, *filter(None, [inline])]:
        words = {
            re.sub(r"(ing|ed|er|s)$", "", word) for word in re.findall(r"[a-z]+", item.lower())
        }
        assert not words & (stems - {"skill"}), item


def test_contributing_names_the_verbs_of_x_the_packages_and_the_bounds() -> None:
    page = text_of("CONTRIBUTING.md")
    x = runpy.run_path(str(ROOT / "x"), run_name="x")
    assert set(re.findall(r"\| `\./x (\w+)", page)) == set(x["VERBS"])
    picture = page.partition("```text ")[2].partition(" ```")[0]
    settled = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settled["tool"]["importlinter"]["contracts"][0]["layers"]
    assert picture.replace("│", "|").split(" → ") == layers
    house, fast, nightly = (
        settings.get_profile(name).max_examples for name in ("house", "fast", "nightly")
    )
    for sentence in (
        f"the same {house} examples in every run (`fast`: {fast})",
        f"tries {nightly} others",
        f"hangs for {conftest.HANG_SECONDS} seconds",
    ):
        assert sentence in page


def test_the_readme_is_read_in_one_go() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
    # A table's row and a list's item are one line however long they are: words count too.
    assert len(text.split()) < 1_000


def test_the_readme_says_why_then_shows_the_page_then_what_is_found_nowhere_else() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = text.partition("\n\n")[2].partition("\n\n")[0]
    assert "why not" in first
    commands = re.findall(r"^skillhouse .*$", text, re.MULTILINE)
    assert commands[0] == "skillhouse doctor --brief"
    order = [
        text.index(part)
        for part in (
            first,
            "](docs/images/pages/",
            "## Install",
            "\nskillhouse doctor --brief\n",
            "## Five things found nowhere else",
            "\n| command |",
        )
    ]
    assert order == sorted(order)
    five = text.partition("## Five things")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d)\. \*\*", five, re.MULTILINE) == list("12345")


def test_contributing_says_where_the_verbs_are() -> None:
    page = text_of("CONTRIBUTING.md")
    table = re.search(r"`(\w+)` in `(src/[\w/.]+)` names each verb's module", page)
    assert table
    assert f"\n{table[1]} = {{" in (ROOT / table[2]).read_text(encoding="utf-8")
    together = re.search(r"share a module: ((?:`\w+`(?:, | and )?)+) are in `(\w+)\.py`", page)
    assert together
    assert {VERBS[verb][0] for verb in re.findall(r"`(\w+)`", together[1])} == {together[2]}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "README.md"])
def test_each_file_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(
        r"`?((?:src|tests|docs|scripts|bench|requirements|deploy|\.ci)/[\w./*-]*\w)", text_of(page)
    )
    made_up = re.compile("NNNN|NAME")
    missing = [name for name in named if not any(ROOT.glob(name)) and not made_up.search(name)]
    assert missing == []
