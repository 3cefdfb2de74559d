"""The five tools of design 003 under its profile, through a house."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillhouse.house import Skillhouse, configured
from skillhouse.manage import SkillsManager, register_tools
from skillhouse.permission import Layer
from skillhouse.skill import load_profile
from tests.harness import Need
from tests.house.places import make_places, write_skill
from tests.profiles.houses import house_under, rule
from tests.tools.test_skills import tool

PROCESS_IO = Path("/proc/self/io")
TOOLS = {
    "load_skill": ["skill_name"],
    "search_skills": ["query", "n"],
    "load_skill_asset": ["skill_name", "relative_path"],
    "get_skill_script_path": ["skill_name", "script_name"],
    "list_skill_assets": ["skill_name"],
}


def bytes_read() -> int:
    """Return how many bytes this process has read from files, cached or not."""
    return int(PROCESS_IO.read_text().partition("rchar:")[2].split()[0])


@pytest.fixture
def house(tmp_path: Path) -> Skillhouse:
    """A house whose DOCUMENT_ROOT has two skills, one of them with files."""
    skills = tmp_path / "documents/skills"
    diff = write_skill(skills / "file-diff", "逐行比对两个文件。数据分析", "Compare them.\n")
    for name in ("references/SPEC.md", "scripts/compare.py", "assets/template.md"):
        (diff / name).parent.mkdir()
        (diff / name).write_text(f"{name}\n")
    write_skill(skills / "slides", "Makes slides.", "About forms and forms.\n")
    places = make_places(tmp_path, {"DOCUMENT_ROOT": str(tmp_path / "documents")})
    return Skillhouse(configured(places), profile="openseed")


def data(house: Skillhouse, name: str, **arguments: str) -> dict[str, Any]:
    """Return what a call gives programs."""
    return dict(house.call_sync(name, arguments).data or {})


@pytest.mark.req("S003-75", "S003-76", "S003-77", "S003-78", "S003-79", "S003-82")
def test_the_five_tools_have_the_published_names_and_parameters(house: Skillhouse) -> None:
    with house:
        shown = {found.name: found.schema for found in house.tools() if found.name in TOOLS}
    assert list(shown) == list(TOOLS)
    for name, parameters in TOOLS.items():
        assert list(shown[name]["properties"]) == parameters
        optional = {"n"} & set(parameters)
        assert set(shown[name]["required"]) == set(parameters) - optional
    assert shown["search_skills"]["properties"]["n"]["default"] == 5


@pytest.mark.slow
@pytest.mark.req("S003-13", "S003-84", "S003-86", "S003-28")
def test_an_agent_searches_loads_and_reads_what_the_skill_names(
    tmp_path: Path, house: Skillhouse
) -> None:
    file = tmp_path / "documents/skills/file-diff/SKILL.md"
    with house:
        # Nothing is listed before: not in the prompt and not with the tools.
        shown = house.view().system_prompt() + "".join(t.description for t in house.tools())
        assert "file-diff" not in shown
        found = data(house, "search_skills", query="数据分析")
        assert found["skills"] == [
            {"name": "file-diff", "description": "逐行比对两个文件。数据分析"}
        ]
        loaded = house.call_sync("load_skill", {"skill_name": "File-Diff"})
        assert loaded.content == file.read_text(encoding="utf-8")
        asset = {"skill_name": "file-diff", "relative_path": "references/SPEC.md"}
        assert house.call_sync("load_skill_asset", asset).content == "references/SPEC.md\n"
        listed = data(house, "list_skill_assets", skill_name="file-diff")
        assert listed["paths"] == [
            "assets/template.md",
            "references/SPEC.md",
            "scripts/compare.py",
        ]
        script = {"skill_name": "file-diff", "script_name": "compare.py"}
        path = house.call_sync("get_skill_script_path", script).content
        assert path == str(file.parent / "scripts/compare.py")
        assert house.call_sync("read", {"path": path}).content == "scripts/compare.py\n"


ONLY = "Invalid path: only references/, assets/, scripts/ under skill are allowed."
SCRIPT_NAME = "Invalid script name: use filename only, e.g. compare.py"


@pytest.mark.slow
@pytest.mark.req("S003-3", "S003-58", "S003-59", "S003-60", "S003-72", "S003-74")
def test_assets_are_text_below_three_directories_and_what_is_listed_loads(
    tmp_path: Path, house: Skillhouse
) -> None:
    skill = tmp_path / "documents/skills/file-diff"
    (skill / "references/deep").mkdir()
    for name in ("references/deep/模板.md", "assets/two words.txt", "notes.md"):
        (skill / name).write_text(f"text of {name}\n", encoding="utf-8")
    (skill / "assets/logo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\xff")
    (skill / "docs").mkdir()
    (skill / "docs/x.md").write_text("elsewhere\n")

    def loaded(path: str) -> str:
        return house.call_sync(
            "load_skill_asset", {"skill_name": "file-diff", "relative_path": path}
        ).content

    with house:
        listed = data(house, "list_skill_assets", skill_name="file-diff")["paths"]
        assert listed == [
            "assets/template.md",
            "assets/two words.txt",
            "references/SPEC.md",
            "references/deep/模板.md",
            "scripts/compare.py",
        ]
        assert {path: loaded(path) for path in listed} == {
            path: (skill / path).read_text(encoding="utf-8") for path in listed
        }
        assert loaded("references\\deep\\模板.md") == "text of references/deep/模板.md\n"
        for path in ("references\\..\\SKILL.md", "..\\slides\\SKILL.md", "\\\\host\\share\\x"):
            assert loaded(path) == ONLY
        for path in ("SKILL.md", "notes.md", "docs/x.md"):
            assert loaded(path) == ONLY
        for path in ("references/", "references", "references/deep"):
            assert loaded(path) == f"`{path}` of skill `file-diff` is not a regular file"
        assert loaded("assets/logo.png") == "Cannot read as text: byte 0 is not UTF-8"


@pytest.mark.req("S003-65")
@pytest.mark.parametrize(
    "name", ["../SKILL.md", "..", "deep/x.py", "deep\\x.py", "/bin/sh", "/", "C:x.py", ""]
)
def test_a_script_is_asked_for_by_its_file_name_alone(house: Skillhouse, name: str) -> None:
    with house:
        given = {"skill_name": "file-diff", "script_name": name}
        result = house.call_sync("get_skill_script_path", given)
    assert (result.status, result.content) == ("error", SCRIPT_NAME)


@pytest.mark.req("S003-85")
def test_without_a_skill_that_fits_the_search_says_so(house: Skillhouse) -> None:
    with house:
        result = house.call_sync("search_skills", {"query": "quantum chromodynamics"})
        assert (result.status, result.data) == ("ok", {"skills": []})
        assert result.content == "no skill fits; try other words, or English"


@pytest.mark.slow
@pytest.mark.req("S003-46")
def test_trap_24_a_chinese_request_finds_by_description_and_not_by_body(
    house: Skillhouse,
) -> None:
    """Words between blanks do not part Chinese text, so its search found nothing (003)."""
    with house:
        for query in ("数据分析", "比对文件", "我要分析数据"):
            hits = data(house, "search_skills", query=query)["skills"]
            assert [hit["name"] for hit in hits] == ["file-diff"]
        assert data(house, "search_skills", query="forms") == {"skills": []}


@pytest.mark.slow
@pytest.mark.req("S003-46", "S003-47")
def test_the_search_tool_finds_no_words_of_bodies_and_reads_none(
    tmp_path: Path, need: Need
) -> None:
    need(PROCESS_IO.exists(), "no count of the bytes that a process reads")
    number, size = 16, 900_000
    for at in range(number):
        write_skill(
            tmp_path / f"documents/skills/deck-{at}", "Makes slides.", "zebra " * (size // 6)
        )
    places = make_places(tmp_path, {"DOCUMENT_ROOT": str(tmp_path / "documents")})
    with Skillhouse(configured(places), profile="openseed") as house:
        before = bytes_read()
        assert data(house, "search_skills", query="zebra") == {"skills": []}
        assert len(data(house, "search_skills", query="slides")["skills"]) == 5
        read = bytes_read() - before
    # The head of each file and what search loads of its own; the bodies are 14 MB.
    assert read < number * size / 2


@pytest.mark.slow
@pytest.mark.req("S003-29", "S003-30", "S003-56", "S003-64", "S003-67", "S003-83")
def test_errors_come_back_as_the_published_text(tmp_path: Path, house: Skillhouse) -> None:
    asset = {"skill_name": "file-diff", "relative_path": "references/no.md"}
    unknown = "未找到技能: pdf"
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("load_skill", {"skill_name": "pdf"}, unknown),
        ("load_skill_asset", {"skill_name": "pdf", "relative_path": "references/x"}, unknown),
        ("get_skill_script_path", {"skill_name": "pdf", "script_name": "x.py"}, unknown),
        ("load_skill_asset", asset, "未找到文件: references/no.md"),
        (
            "get_skill_script_path",
            {"skill_name": "file-diff", "script_name": "no.py"},
            "未找到脚本: no.py",
        ),
    ]
    with house:
        for name, arguments, words in calls:
            result = house.call_sync(name, arguments)
            assert (result.status, result.content) == ("error", words)
    places = make_places(tmp_path, {"DOCUMENT_ROOT": str(tmp_path / "missing")})
    with Skillhouse(configured(places), profile="openseed") as empty:
        assert empty.call_sync("load_skill", {"skill_name": "pdf"}).content == unknown


def test_a_denied_skill_is_unknown_to_all_five(tmp_path: Path) -> None:
    directory = write_skill(tmp_path / "skills/secret")
    (directory / "scripts").mkdir()
    (directory / "scripts/x.py").write_text("")
    denied = rule("deny", "secret")
    with house_under(tmp_path, "openseed", denied, roots=[tmp_path / "skills"]) as house:
        for name, arguments in (
            ("load_skill", {}),
            ("load_skill_asset", {"relative_path": "scripts/x.py"}),
            ("get_skill_script_path", {"script_name": "x.py"}),
            ("list_skill_assets", {}),
        ):
            result = house.call_sync(name, {"skill_name": "secret", **arguments})
            assert (result.status, result.content) == ("error", "未找到技能: secret")
        assert house.call_sync("search_skills", {"query": "secret"}).data == {"skills": []}


class ToolManager:
    """A manager of functions like the one the design names."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}

    def register(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.functions[function.__name__] = function
        return function


@pytest.mark.slow
@pytest.mark.req("S003-80", "S003-81", "S003-83")
def test_the_tools_are_registered_by_a_decorator_and_never_raise(
    tmp_path: Path, house: Skillhouse
) -> None:
    manager, tools_list = ToolManager(), ["read_file", "load_skill"]
    with house:
        names = register_tools(house, manager.register, tools_list=tools_list)
        assert list(names) == list(manager.functions) == list(TOOLS)
        assert tools_list == ["read_file", *TOOLS]
        load_skill = manager.functions["load_skill"]
        search = manager.functions["search_skills"]
        assert str(inspect.signature(load_skill)) == "(skill_name: str)"
        assert str(inspect.signature(search)) == "(query: str, n: int = 5)"
        assert load_skill.__doc__ == tool(house, "load_skill").description
        assert load_skill("slides").startswith("---\nname: slides\n")
        assert search("slides", 1) == [{"name": "slides", "description": "Makes slides."}]
        assert search(query="nothing of the kind") == []
        assert manager.functions["list_skill_assets"]("slides") == []
        assert load_skill("pdf") == "未找到技能: pdf"
        assert load_skill() == "missing a required argument: 'skill_name'"
        assert "wrong argument `skill_name`" in load_skill(3)
        # They go through the gate: the log has them.
        assert '"tool":"load_skill"' in house.audit_log.path.read_text().replace(" ", "")


@pytest.mark.slow
@pytest.mark.req("S003-71", "S003-75", "S003-76", "S003-77", "S003-78", "S003-79")
def test_each_tool_answers_as_the_manager_does(
    house: Skillhouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = tmp_path / "documents/skills/file-diff"
    (skill / "references/b/c").mkdir(parents=True)
    for name in ("references/b/c/deep.md", "references/Z.md", "assets/a.txt", "notes.md"):
        (skill / name).write_text(name)
    listed = (
        "assets/a.txt assets/template.md references/SPEC.md references/Z.md "
        "references/b/c/deep.md scripts/compare.py"
    ).split()
    monkeypatch.setenv("DOCUMENT_ROOT", str(tmp_path / "documents"))
    published, tools = SkillsManager(), ToolManager()
    calls: list[tuple[str, str, tuple[Any, ...]]] = [
        ("load_skill", "get_skill_content", ("FILE-diff",)),
        ("load_skill", "get_skill_content", ("pdf",)),
        ("search_skills", "search_skills", ("比对", 3)),
        ("load_skill_asset", "get_skill_asset", ("file-diff", "references/b/c/deep.md")),
        ("load_skill_asset", "get_skill_asset", ("file-diff", "notes.md")),
        ("get_skill_script_path", "get_skill_script_path", ("file-diff", "compare.py")),
        ("get_skill_script_path", "get_skill_script_path", ("file-diff", "../compare.py")),
        ("list_skill_assets", "list_skill_assets", ("file-diff",)),
    ]
    with house:
        register_tools(house, tools.register)
        for tool_name, method, arguments in calls:
            expected = getattr(published, method)(*arguments)
            assert expected
            assert tools.functions[tool_name](*arguments) == expected, (tool_name, arguments)
        result = house.call_sync("list_skill_assets", {"skill_name": "file-diff"})
    assert published.list_skill_assets("file-diff") == listed
    assert result.content == "\n".join(listed)


@pytest.mark.slow
@pytest.mark.req("S003-40", "S003-41", "S003-48")
def test_a_search_for_nothing_finds_nothing(house: Skillhouse) -> None:
    with house:
        for arguments in ({"query": "比对", "n": 0}, {"query": "比对", "n": -3}, {"query": ""}):
            result = house.call_sync("search_skills", arguments)
            assert (result.status, result.data) == ("ok", {"skills": []}), arguments
        found = house.call_sync("search_skills", {"query": "slides", "n": 1_000})
        assert [hit["name"] for hit in (found.data or {})["skills"]] == ["slides"]


def test_a_registered_function_cannot_load_what_is_denied(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills/secret")
    manager = ToolManager()
    denied = rule("deny", "secret")
    with house_under(tmp_path, "openseed", denied, roots=[tmp_path / "skills"]) as house:
        register_tools(house, manager.register)
        assert manager.functions["load_skill"]("secret") == "未找到技能: secret"


def test_the_profile_says_which_directories_assets_lie_in() -> None:
    assert set(load_profile("openseed").asset_directories) == {"references", "assets", "scripts"}


@pytest.mark.req("S003-90")
def test_the_guide_tells_the_root_the_layout_the_tools_and_the_specification() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/skills-manager.md").read_text()
    for expected in (
        "$DOCUMENT_ROOT/skills",
        "SKILL.md",
        "references/",
        "scripts/",
        "assets/",
        *(f"`{name}({', '.join(parameters)})`" for name, parameters in TOOLS.items()),
        "https://agentskills.io/specification",
    ):
        assert expected in guide


COMPARE = """\
import sys
first, second = (open(name).read().splitlines() for name in sys.argv[1:])
print([n for n, pair in enumerate(zip(first, second), 1) if pair[0] != pair[1]])
"""


@pytest.mark.slow
@pytest.mark.req("S003-68", "S003-69", "S003-87")
def test_an_agent_gets_from_the_listing_to_a_script_that_runs(tmp_path: Path, bwrap: None) -> None:
    documents = tmp_path / "my 文档"
    scripts = write_skill(documents / "skills/file-diff") / "scripts"
    scripts.mkdir()
    (scripts / "compare.py").write_text(COMPARE)
    places = make_places(tmp_path, {"DOCUMENT_ROOT": str(documents)})
    for name, text in (("a.txt", "one\ntwo\n"), ("b.txt", "one\nzwei\n")):
        (places.start / name).write_text(text)
    # A pattern with a star never covers what an interpreter runs; the exact line does.
    line = shlex.join(["python3", str(scripts / "compare.py"), "a.txt", "b.txt"])
    allow = Layer(name="user", rules=(rule("allow", line, action="exec"),))
    with Skillhouse(configured(places), profile="openseed", layers=(allow,)) as house:
        (listed,) = data(house, "list_skill_assets", skill_name="file-diff")["paths"]
        script = {"skill_name": "file-diff", "script_name": Path(listed).name}
        path = house.call_sync("get_skill_script_path", script).content
        command = {"command": "python3", "params": [path, "a.txt", "b.txt"]}
        result = house.call_sync("exec", command)
    assert (result.status, result.content) == ("ok", "[2]\n")


@pytest.mark.req("S003-89")
def test_every_item_of_the_design_has_a_test() -> None:
    texts = [file.read_text() for file in Path(__file__).parents[1].rglob("test_*.py")]
    marked = {int(n) for text in texts for n in re.findall(r'"S003-(\d+)"', text)}
    assert marked >= set(range(1, 91))
