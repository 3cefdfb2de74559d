"""Each page in Chinese: what is English on it is a name, a path, or what somebody else wrote."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.extensions.server.pages.rich import SKILL_TEXTS, TextNodes, crawled, rich_house

import skillhouse
from skillhouse.audit import read_records
from skillhouse.extensions.server.pages.languages import TEXT_MAX, translated
from skillhouse.extensions.server.pages.stop_page import REASON
from skillhouse.house import Skillhouse
from skillhouse.skill import CAUSES
from skillhouse_signer import sign_tool

SOURCE = Path(skillhouse.__file__).parent
CHINESE = re.compile("[\u4e00-\u9fff]")
WORDS = re.compile(r"[A-Za-z]{2,}(?: [a-z]{2,})+")
"""Two English words beside each other."""
QUOTING = frozenset("bdi code pre kbd script style textarea".split())
"""Elements that hold what is no text of the page."""
CLASSES = frozenset({"path", "body", "rendered"})
"""Of elements that hold paths, and the text of a skill."""
NAMES = (
    ("/clients", r"^[A-Z][\w.]*(?: [A-Z][\w.]*)*(?: [\d.]+)?$", "a client's own name"),
    (
        "/clients",
        r"^Copilot in VS Code$|^Devin for Terminal$|^inference\.sh$",
        "a client's own name",
    ),
    ("/calls", r"^exit code \d+ \[stderr\]", "what a command printed"),
    ("", r"^\(\d+\) .* · skillhouse$", "the title of a page begins with a name"),
    ("/", r"^：not for models；$", "the reason that a person wrote beside a rule"),
    ("/approvals", r"^长期批准将允许 (exec|fetch) ", "a rule as a file writes it"),
    ("/policy", r"^(更改|复制|移除) (allow|ask|deny) ", "a rule as a file writes it"),
    ("/policy", r"^(allow|ask|deny) .* 决定的调用$", "a rule as a file writes it"),
)
"""Addresses, what may stand there in English, and why."""


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Skillhouse, TestClient]]:
    with rich_house(tmp_path_factory.mktemp("rich")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(served: tuple[Skillhouse, TestClient]) -> dict[str, str]:
    return crawled(served[1], "zh")


@pytest.fixture(scope="module")
def stopped(served: tuple[Skillhouse, TestClient], pages: dict[str, str]) -> dict[str, str]:
    """Return one page of each kind as it is after a press on the stop button, and calls then."""
    house, client = served
    house.services.enforcement.stop("local", REASON)
    for tool, arguments in (("read", {"path": "a.txt"}), ("exec", {"command": "git push"})):
        assert house.call_sync(tool, arguments).status == "denied"
    kinds = {address.partition("?")[0].rpartition("/")[0]: address for address in pages}
    further = ("/", "/audit", "/policy?action=exec&resource=ls", "/rehearse?q=pdf")
    records = [entry.record for entry in read_records(house.audit_log.path)][-2:]
    addresses = {*kinds.values(), *further, *(f"/calls/{one.id}" for one in records)}
    return {
        address: client.get(address, headers={"accept-language": "zh"}).text
        for address in sorted(addresses)
    }


def english_on(address: str, page: str) -> Iterator[str]:
    for text, above in TextNodes(page).found:
        classes = {one for _, given in above for one in (given.get("class") or "").split()}
        tags = {tag for tag, _ in above}
        is_english = any(given.get("lang") == "en" for _, given in above)
        if tags & QUOTING or classes & CLASSES or is_english or not WORDS.search(text):
            continue
        if any(text in one for one in SKILL_TEXTS):
            continue
        if any(address.startswith(start) and re.search(one, text) for start, one, _ in NAMES):
            continue
        yield text


def test_no_page_says_anything_in_english(pages: dict[str, str]) -> None:
    assert len(pages) > 90
    found = {
        address: texts for address, page in pages.items() if (texts := [*english_on(address, page)])
    }
    assert found == {}


@pytest.mark.slow
def test_no_page_says_anything_in_english_while_everything_is_stopped(
    stopped: dict[str, str],
) -> None:
    assert len(stopped) > 15
    # The banner has its reason in an element for the words of others.
    assert {address for address, page in stopped.items() if REASON in page} == set()
    found = {
        address: texts
        for address, page in stopped.items()
        if (texts := [*english_on(address, page)])
    }
    assert found == {}


def test_each_exception_is_needed(pages: dict[str, str]) -> None:
    texts = [
        (address, text) for address, page in pages.items() for text, _ in TextNodes(page).found
    ]
    for start, one, why in NAMES:
        fits = [text for address, text in texts if address.startswith(start)]
        assert any(re.search(one, text) for text in fits), why


def sentences_of(file: Path) -> Iterator[str]:
    """The sentences that a file gives as why something is asked or wrong, with X for values."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg in (
            "why",
            "title",
            "effect",
            "fix",
            "reason",
        ):
            yield from texts_of(node.value)
        elif isinstance(node, ast.Assign):
            names = {one.id for one in node.targets if isinstance(one, ast.Name)}
            if "why" in names:
                yield from texts_of(node.value)


def texts_of(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = [one.value if isinstance(one, ast.Constant) else "X" for one in node.values]
        return ["".join(map(str, parts))]
    if isinstance(node, ast.IfExp):
        return [*texts_of(node.body), *texts_of(node.orelse)]
    return []


REASONS = (
    *sorted((SOURCE / "tools").glob("*.py")),
    *sorted((SOURCE / "permission").glob("*.py")),
    SOURCE / "house/policy.py",
    SOURCE / "clients/findings.py",
    SOURCE / "clients/export_plan.py",
    SOURCE / "clients/exporter.py",
)


def test_each_reason_of_the_source_has_its_sentence() -> None:
    said = {text for file in REASONS for text in sentences_of(file) if WORDS.search(text)}
    said |= {text for cause in CAUSES.values() for text in cause if text}
    assert len(said) > 120
    assert {text for text in said if not is_chinese(translated("zh", text))} == set()


def test_each_fact_of_a_transaction_has_its_sentence() -> None:
    text = Path(sign_tool.__file__).read_text(encoding="utf-8")
    makers = ("_transaction_facts", "_access_list_text", "_deed")
    found = [
        said
        for maker in ast.parse(text).body
        if isinstance(maker, ast.FunctionDef) and maker.name in makers
        for node in ast.walk(maker)
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for said in texts_of(node)
        if said.count(" ") >= 3 and said.isprintable() and not said.startswith(" ")
    ]
    whole = [one for one in found if not any(one != other and one in other for other in found)]
    assert len(whole) >= 8
    assert {one for one in whole if not CHINESE.search(translated("zh", one))} == set()


LEAVE_OUT = {
    "tools/artifacts.py": ("name_fault", "_write_fault", "_begin", "_add", "_reasons"),
    "extensions/cells/cell_output.py": ("output_parts", "below", "entry", "content"),
    "extensions/cells/service.py": ("output",),
}
"""The functions that say why a file of a call is not kept."""


def test_each_reason_why_a_file_is_not_kept_has_its_sentence() -> None:
    said = set()
    for file, functions in LEAVE_OUT.items():
        for maker in ast.walk(ast.parse((SOURCE / file).read_text(encoding="utf-8"))):
            if isinstance(maker, ast.FunctionDef) and maker.name in functions:
                quoted = ast.get_docstring(maker, clean=False)
                whole = [node for node in ast.walk(maker) if isinstance(node, ast.JoinedStr)]
                inner = {id(part) for one in whole for part in one.values}
                plain = [n for n in ast.walk(maker) if isinstance(n, ast.Constant)]
                nodes = [*whole, *(one for one in plain if id(one) not in inner)]
                said |= {text for n in nodes for text in texts_of(n) if text != quoted}
    reasons = {text for text in said if text.count(" ") >= 3}
    assert len(reasons) >= 20
    assert {one for one in reasons if not CHINESE.search(translated("zh", one))} == set()


def is_chinese(text: str) -> bool:
    """Whether nothing but what is in backticks is English."""
    plain = re.sub(r"`[^`]*`", "", text)
    return bool(CHINESE.search(plain)) and not WORDS.search(plain)


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("no rule matches; commands ask by default", "没有匹配的规则；命令默认询问"),
        ("rule `exec rm *` of user policy", "user 策略的规则 `exec rm *`"),
        ("`a; b` will fail: no network is granted", "`a; b` 将会失败：没有获准使用网络"),
        ("denied: `x; y` is protected; use git", "已拒绝：`x; y` 受保护；请使用 git"),
        ("something that nobody knows", "something that nobody knows"),
        ("", ""),
    ],
)
def test_a_sentence_keeps_its_values(english: str, chinese: str) -> None:
    assert translated("zh", english) == chinese
    assert translated("en", english) == english


def test_a_text_without_end_costs_no_more_than_its_length() -> None:
    hostile = "denied: " + "`{}` {0} will fail: no network is granted (" * 40
    assert "{0}" in translated("zh", hostile[:TEXT_MAX])
    assert translated("zh", "denied: " * 2_000) == "denied: " * 2_000
