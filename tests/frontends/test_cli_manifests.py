"""Manifests of skills' code as `list`, `tools list`, `validate` and `call` show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.conftest import Run
from tests.harness import Need
from tests.house.coded import ROOTS, best_sandbox
from tests.house.places import write_skill
from tests.skill.test_manifest import PUBLISHED, TOOL, package, skill_at


@pytest.fixture
def enabled(place: Path) -> Path:
    """A place whose user turned skills' code on."""
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("[skill_code]\nenabled = true\n")
    return place


def code_of(run: Run, root: Path) -> dict[str, dict[str, Any]]:
    """Return what `list` says of the skills with code, by name."""
    code, out, _ = run("list", "--json", "--root", str(root))
    assert code == 0
    return {found["name"]: found for found in json.loads(out)["code"]}


@pytest.mark.under("owliabot-js")
@pytest.mark.req("S002-24", "S002-25", "S002-28", "S002-29", "S002-30", "S002-35")
def test_the_published_manifest_is_listed_with_its_tool(run: Run, enabled: Path) -> None:
    root = enabled / "skills"
    skill_at(root / "balance", PUBLISHED)
    assert sorted(path.name for path in (root / "balance").iterdir()) == [
        "index.js",
        "package.json",
    ]
    found = code_of(run, root)["crypto-balance"]
    found.pop("directory")
    assert found == {
        "name": "crypto-balance",
        "scope": "explicit",
        "enabled": True,
        "problems": found["problems"],
        "version": "0.1.0",
        "description": "Query token balances across multiple chains",
        "author": "zhixian",
        "license": "MIT",
        "language": "javascript",
        "entry": "index.js",
        "tools": [
            {
                "name": "get_balance",
                "full_name": "crypto-balance:get_balance",
                "level": "read",
                "description": "Get native or token balance for an address",
            }
        ],
        "env": {"ALCHEMY_API_KEY": "not named below [skill_code] env"},
        "hosts": {},
        "dependencies": ["viem@^2.0.0"],
        "lock": None,
    }
    assert "error" not in {problem["severity"] for problem in found["problems"]}
    _, out, _ = run("tools", "list", "--json", "--root", str(root))
    (tool,) = [each for each in json.loads(out)["tools"] if each["skill"]]
    assert tool["parameters"] == {
        "type": "object",
        "properties": {"address": {"type": "string", "description": "Wallet address (0x...)"}},
        "required": ["address"],
    }


@pytest.mark.slow
@pytest.mark.under("owliabot-js")
@pytest.mark.req("S002-26", "S002-29", "S002-33", "S002-34", "S002-36")
def test_a_manifest_that_cannot_be_used_costs_its_own_tools_and_says_why(
    run: Run, enabled: Path
) -> None:
    root = enabled / "skills"
    manifests = {
        "good": package(name="good", own={"tools": [{**TOOL, "timeout": 120_000}]}),
        "main": package(name="main", main="lib/start.js"),
        "level": package(name="level", own={"tools": [{**TOOL, "security": {"level": "admin"}}]}),
        "twice": package(name="twice", own={"tools": [TOOL, TOOL]}),
        "time": package(name="time", own={"tools": [{**TOOL, "timeout": 0}]}),
        "typed": package(name="typed", main="src/index.ts"),
    }
    for name, text in manifests.items():
        entry = json.loads(text).get("main", "index.js")
        skill_at(root / name, text, entry=entry)
    found = code_of(run, root)
    assert {name: each.get("entry") for name, each in found.items()} == {
        **dict.fromkeys(("level", "twice", "time", "typed")),
        "good": "index.js",
        "main": "lib/start.js",
    }
    assert {
        name: [problem["code"] for problem in each["problems"]] for name, each in found.items()
    } == {
        "good": [],
        "main": [],
        "level": ["tool-level"],
        "twice": ["tool-twice"],
        "time": ["tool-timeout"],
        "typed": ["entry-typescript"],
    }
    _, out, _ = run("tools", "list", "--json", "--root", str(root))
    tools = {each["full_name"] for each in json.loads(out)["tools"] if each["skill"]}
    assert tools == {"good:look", "main:look"}
    code, out, err = run("validate", str(root))
    assert code == 1
    for part in ("got 'admin'", "declared twice", "compile it (`npx tsc src/index.ts`)"):
        assert part in out + err


@pytest.mark.slow
@pytest.mark.under("owliabot-js")
@pytest.mark.req("S002-118")
def test_the_dex_swap_example_runs_with_its_own_module(
    run: Run, enabled: Path, need: Need, node: None
) -> None:
    best_sandbox(need)
    root = ROOTS["javascript"]
    found = code_of(run, root)["dex-swap"]
    assert found["problems"] == []
    tools = [(tool["full_name"], tool["level"]) for tool in found["tools"]]
    assert tools == [("dex-swap:quote", "read"), ("dex-swap:swap", "sign")]
    given = {"from": "0x" + "a" * 40, "to": "0x" + "b" * 40, "amount": "9" * 78}
    code, _, err = run("call", "dex-swap__quote", "--root", str(root), "--args", json.dumps(given))
    # lib/uniswap.js checks the number before anything is fetched.
    assert (code, f"no 256-bit number: {'9' * 78}" in err) == (1, True), err


def ordinary_repositories(base: Path) -> dict[str, Path]:
    """Write repositories whose packages say nothing of skills, with the skills that they have."""
    files = {
        "one package": {"package.json": '{"name": "x"}'},
        "monorepo": {
            "package.json": '{"workspaces": ["packages/*"]}',
            "packages/a/package.json": '{"name": "a", "dependencies": {"owliabot": "^1"}}',
            "packages/b/package.json": '{"name": "b", "keywords": ["owliabot"]}',
            "web/package.json": '{"name": "owliabot"}',
            "node_modules/left/package.json": '{"name": "left"}',
            "node_modules/skill/package.json": package(),
        },
        "python": {
            "pyproject.toml": '[project]\nname = "p"\ndependencies = ["skillhouse[mcp]"]\n',
            "libs/l/pyproject.toml": '[tool.uv.sources]\nskillhouse = { path = "." }\n',
        },
        "older python": {"setup.py": "", "requirements.txt": "skillhouse\n"},
        "malformed": {
            "package.json": "{",
            "a/package.json": "[" * 50_000,
            "b/package.json": '{"a": "' + "x" * 10_000_000 + '"}',
            "c/package.json": '\ufeff{"name": "owliabot"}',
            "d/package.json": '{"name": "\\ud800", "name": "owliabot"}',
            "e/pyproject.toml": "[project\nskillhouse",
        },
    }
    for name, texts in files.items():
        for file, text in texts.items():
            (base / name / file).parent.mkdir(parents=True, exist_ok=True)
            (base / name / file).write_text(text, encoding="utf-8")
    return {name: base / name for name in files}


@pytest.mark.slow
@pytest.mark.parametrize("has_skill", [False, True], ids=["no skill", "a skill"])
@pytest.mark.parametrize("code", ["on", "off"])
def test_an_ordinary_repository_has_no_skills_in_its_packages(
    run: Run,
    place: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    has_skill: bool,
) -> None:
    if code == "on":
        request.getfixturevalue("enabled")
    names = ["pdf"] * has_skill
    for name, root in ordinary_repositories(place / "code").items():
        (root / ".git").mkdir()
        if has_skill:
            write_skill(root / "skills/pdf", "Reads PDF files. Use it when a PDF is named.")
        monkeypatch.chdir(root)
        for path in (".", str(root)):
            status, out, err = run("validate", path)
            assert (status, out) == (0, ""), (name, out)
            said = "1 skill: 0 errors, 0 warnings" if has_skill else "no skill is here"
            assert said in err, (name, err)
        status, out, _ = run("validate", "--json")
        expected = {"list": "diagnostics", "total": 0, "diagnostics": []}
        expected |= {"skills": len(names), "tools": []}
        assert (status, json.loads(out)) == (0, expected), name
        status, out, _ = run("list", "--json", "--root", ".")
        answer = json.loads(out)
        listed = [one["name"] for one in answer["skills"] if one["scope"] == "explicit"]
        assert (listed, answer["code"]) == (names, []), name
        status, out, err = run("install", "--list", "--json", str(root))
        installable = [one["name"] for one in json.loads(out)["skills"]] if status == 0 else []
        assert installable == names, (name, out, err)
        _, out, _ = run("trust", "--show", "--json")
        assert json.loads(out)["skills"] == [], name
        _, out, _ = run("doctor")
        assert not {"package.json", "pyproject.toml"} & set(out.split()), name


@pytest.mark.parametrize("where", ["skills", "packages/a/skills", ".agents/skills", "."])
def test_a_skill_of_code_alone_is_judged_wherever_it_is_in_a_repository(
    run: Run, place: Path, where: str
) -> None:
    project = place / "project"
    (project / "package.json").write_text('{"name": "x"}', encoding="utf-8")
    skill_at(project / where / "balance", PUBLISHED)
    skill_at(project / where / "balance/node_modules/b", PUBLISHED)
    skill_at(project / where / "bad", '{"owliabot": {')
    status, out, err = run("validate", ".")
    assert (status, "not JSON" in out) == (1, True)
    assert "2 skills: 1 error" in err
    _, out, _ = run("install", "--list", "--json", str(project))
    assert {Path(one["path"]).name for one in json.loads(out)["skills"]} == {"balance", "bad"}


@pytest.mark.parametrize("file", ["package.json", "pyproject.toml"])
def test_a_directory_of_skills_may_hold_an_ordinary_package(
    run: Run, enabled: Path, file: str
) -> None:
    project = enabled / "project"
    skill_at(project / ".agents/skills/balance", PUBLISHED)
    (project / ".agents/skills/web").mkdir()
    text = '{"name": "web", "dependencies": {"owliabot": "1"}}'
    if file == "pyproject.toml":
        text = "[project]\ndependencies = ['skillhouse']\n"
    (project / ".agents/skills/web" / file).write_text(text, encoding="utf-8")
    _, out, _ = run("trust", "--yes", "--json")
    assert [one["name"] for one in json.loads(out)["code"]] == ["crypto-balance"]
    _, out, _ = run("list", "--json")
    assert [one["name"] for one in json.loads(out)["code"]] == ["crypto-balance"]
    status, out, err = run("validate", ".agents/skills")
    assert (status, "1 skill: 0 errors" in err, "web" in out) == (0, True, False)
    status, out, err = run("validate", ".agents/skills/web")
    assert (status, "no skill is here" in err, file in err) == (0, True, True)


def test_a_directory_that_was_to_be_a_skill_is_still_an_error(run: Run, place: Path) -> None:
    (place / "project/pdf").mkdir()
    status, out, _ = run("validate", "pdf")
    assert (status, "no readable SKILL.md here" in out) == (1, True)
    (place / "project/pdf/skill.md").touch()
    (place / "project/pdf/package.json").write_text("{}", encoding="utf-8")
    status, out, _ = run("validate", "pdf")
    assert (status, "got `skill.md`" in out) == (1, True)
    (place / "project/pdf/skill.md").unlink()
    (place / "project/pdf/package.json").write_text('{"owliabot": {', encoding="utf-8")
    status, out, _ = run("validate", "pdf")
    assert (status, "not JSON" in out) == (1, True)


@pytest.mark.slow
def test_show_and_validate_name_the_hosts_that_are_granted(run: Run, place: Path) -> None:
    directory = place / "project/.agents/skills/rates"
    own = {"tools": [TOOL], "requires": {"hosts": ["a.example.com", "b.example.com"]}}
    skill_at(directory, package(name="rates", own=own))
    file = place / "home/.config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    net = '[skill_code]\nenabled = true\n[net]\nhosts = ["CONNECT *.example.com:443"]\n'
    file.write_text(net.replace("*.", "a."))
    granted = {
        "a.example.com": "granted as CONNECT https://a.example.com",
        "b.example.com": "not granted: not named below [net] hosts",
    }
    code, out, err = run("validate", str(directory), "--json")
    assert (code, json.loads(out)["hosts"]) == (0, granted), err
    text = run("validate", str(directory))
    assert "host a.example.com: granted as CONNECT https://a.example.com" in text[1] + text[2]
    run("trust", "--yes")
    code, out, err = run("show", "rates", "--json")
    assert (code, json.loads(out)["code"]["hosts"]) == (0, granted), out + err
    assert "b.example.com: not granted" in run("show", "rates")[1]
    file.write_text("[net\n")
    code, out, _ = run("validate", str(directory), "--json")
    assert json.loads(out)["hosts"]["a.example.com"].startswith("not known")
