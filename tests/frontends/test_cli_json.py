"""With --json each verb prints one JSON object: a list of one shape, one thing, or an error."""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts.contract_probes import parser_of

import skillhouse
from skillhouse.answers.errors import class_code, error_answer, split_advice
from skillhouse.frontends.cli.verbs import VERBS
from tests.frontends.conftest import Run

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/json.md"

LISTS = {
    "list": "skills",
    "search weather": "hits",
    "search --learned": "choices",
    "files weather": "resources",
    "validate {project}": "diagnostics",
    "doctor --client codex": "problems",
    "doctor --fix": "fixes",
    "profiles list": "profiles",
    "profiles compare": "differing",
    "invoke": "skills",
    "trust --show": "skills",
    "trust --list": "projects",
    "export weather --to codex --dry-run": "exports",
    "chat --list": "conversations",
    "tools list": "tools",
    "artifacts list": "artifacts",
    "artifacts remove --all": "removed",
    "hooks status": "clients",
    "mcp status": "clients",
    "mcp servers list": "servers",
    "reload": "loaded",
    "approvals list": "approvals",
    "approvals grants": "grants",
    "approvals scripts": "scripts",
    "approvals devices": "devices",
    "audit list": "records",
    "policy list": "rules",
    "policy lint": "findings",
    "policy suggest": "suggestions",
    "config path": "files",
    "config check": "files",
    "config repositories": "repositories",
    "remote list": "remotes",
    "signer keys list": "keys",
    "signer keys log": "events",
    "signer keys session list": "sessions",
    "keys list": "keys",
    "keys log": "events",
    "keys session list": "sessions",
    "delete --list": "deleted",
    "tokens list": "tokens",
    "registry token list": "tokens",
    "install {project} --list": "skills",
    "install {project}/good --dry-run": "skills",
    "update": "skills",
    "outdated": "skills",
    "info": "skills",
    "verify": "skills",
    "lock": "locks",
    "self remove --dry-run": "removed",
}
"""Command lines that list, and the key of what they list."""
THINGS = (
    "catalog",
    "show weather",
    "invoke no-such-skill",
    "hint weather",
    "load weather",
    "bot --check",
    "completions bash",
    "rehearse weather",
    "new made --description Makes.",
    "disable weather",
    "enable weather",
    "delete made --yes",
    "delete --undo",
    "profiles show codex",
    'call read --args {{"path":"a.txt"}}',
    "policy explain exec ls",
    "policy allow exec ls --yes",
    "policy ask exec pwd --yes",
    "policy deny exec id --yes",
    "policy init careful --stdout",
    "policy show careful",
    "config show",
    "audit stats",
    "audit verify",
    "sandbox status",
    "hooks install claude-code --dry-run",
    "hooks install claude-code --yes",
    "hooks remove claude-code --yes",
    "stop --status",
    "keys trust",
    "pack good",
    "state show",
    "state backup copy.sqlite3",
    "tokens new made --scope read",
    "tokens revoke made",
    "registry token new --scope read",
    "registry token revoke no-such-token",
    "registry backup out.tar",
    "registry root status",
    "registry root init --key made.pem",
)
"""Those that print one thing."""
REFUSED = (
    "audit accept core-b",
    "state move --to sqlite",
    "bundle push . ftp://example.com/team",
    "bundle pull",
    "bundle show",
    "registry restore no-such-backup",
    "registry root rotate",
    "registry root owners x=y",
    "registry root sign --key no-such.pem",
    "list --nonsense",
    "list --root no-such-directory",
    "list --profile no-such-profile",
    "show no-such-skill",
    "load no-such-skill",
    "files no-such-skill",
    "search",
    "new weather",
    "delete weather --yes",
    "delete no-such-skill --yes",
    "call no-such-tool --args {{}}",
    "call read --args {{",
    "approvals show no-such",
    "approvals approve no-such",
    "approvals deny no-such",
    "approvals revoke no-such",
    "approvals pair phone",
    "approvals unpair no-such",
    "audit show no-such",
    "artifacts show no-such",
    "artifacts save no-such",
    *(
        f"{group} {words}"
        for group in ("keys", "signer keys")
        for words in (
            *("new main", "import main", "limit main", "remove main", "accept"),
            *("session new main", "session rotate main", "session revoke"),
        )
    ),
    "resume",
    "policy allow nonsense ls",
    "profiles show no-such-profile",
    "remote sync",
    "mcp servers refresh",
    "nonsense",
    "worker --core 127.0.0.1",
    "install no-such-name",
    "skill install no-such-name",
    "publish good",
    "registry mirror no-such-name mirror",
    "registry yank good@1.0",
    "registry unyank good@1.0",
    "registry revoke good@1.0",
    "registry channel good@1.0 beta",
    "registry push-revocations no-such-file",
    "rollback no-such-skill",
    "uninstall no-such-skill",
    "pin no-such-skill",
    "pack no-such-directory",
    "sign no-such-directory",
    "keys request no-such-key",
    "keys issue no-such-file",
    "keys certify no-such-file",
    "keys revoke no-such-file",
    "tokens revoke no-such-token",
    "tokens new both --scope call --scope approve",
    "registry token new --scope nonsense",
    "registry trust no-such-file",
)
"""Those that are refused here."""
STREAMS = {("worker",), ("registry", "serve")}
"""Verbs that print more than one line with --json, which docs/reference describes."""


def words_of(line: str, place: Path) -> list[str]:
    return line.format(project=place / "project").split()


@pytest.fixture
def settled(place: Path, run: Run) -> Path:
    """A place with a skill that is broken and a file."""
    broken = place / "project/broken"
    broken.mkdir(parents=True)
    (broken / "SKILL.md").write_text("no frontmatter", encoding="utf-8")
    good = place / "project/good"
    good.mkdir()
    text = "---\nname: good\ndescription: Is good. Use when it is.\n---\nText.\n"
    (good / "SKILL.md").write_text(text, encoding="utf-8")
    (place / "project/a.txt").write_text("hello\n", encoding="utf-8")
    return place


@pytest.mark.parametrize("line", LISTS)
def test_a_list_names_its_key_and_counts_its_items(run: Run, settled: Path, line: str) -> None:
    _, out, _ = run(*words_of(line, settled), "--json")
    value = json.loads(out)
    name = LISTS[line]
    assert list(value)[:3] == ["list", "total", name], out[:500]
    assert value["list"] == name
    assert isinstance(value[name], list)
    assert value["total"] >= len(value[name])


@pytest.mark.slow
def test_a_thing_is_an_object_without_a_list(run: Run, settled: Path) -> None:
    for line in THINGS:
        code, out, err = run(*words_of(line, settled), "--json")
        value = json.loads(out)
        assert isinstance(value, dict)
        assert not {"list", "error"} & value.keys(), (line, out, err)
        assert code in (0, 1), line


@pytest.mark.slow
@pytest.mark.parametrize("line", REFUSED)
def test_an_error_is_one_object_beside_the_line_for_people(
    run: Run, settled: Path, line: str
) -> None:
    code, out, err = run(*words_of(line, settled), "--json")
    value = json.loads(out)
    assert list(value) == ["error"], out
    error = value["error"]
    assert list(error) == ["code", "message", "hint", "mend", "exit_code"]
    assert error["hint"] == error["mend"]
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", error["code"])
    assert error["exit_code"] == code
    assert code in (1, 2, 3)
    assert error["message"]
    whole = error["message"] + (f"; {error['mend']}" if error["mend"] else "")
    assert f"skillhouse: {whole}\n" in err
    # Without --json, stdout is for what was asked for only.
    assert run(*words_of(line, settled))[1] == ""


def leaves(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]  # noqa: SLF001
    if not below:
        yield words, parser
    for name, one in below[0].choices.items() if below else ():
        yield from leaves(one, (*words, name))


def test_every_verb_with_json_is_among_these(place: Path) -> None:
    seen = {tuple(line.split()) for line in (*LISTS, *THINGS, *REFUSED)}
    for verb in VERBS:
        for words, parser in leaves(parser_of(verb), (verb,)):
            takes = any("--json" in action.option_strings for action in parser._actions)  # noqa: SLF001
            if takes and words not in STREAMS:
                assert any(line[: len(words)] == words for line in seen), words


def test_no_verb_writes_a_bare_list() -> None:
    source = Path(skillhouse.__file__).parent / "frontends/cli"
    for path in source.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"terminal\.json\(\s*\[", text), path


def error_names() -> Iterator[str]:
    """Yield the name of each class of errors below SkillhouseError, read from the sources."""
    source = Path(skillhouse.__file__).parent
    bases: dict[str, set[str]] = {}
    for path in source.rglob("*.py"):
        if "builtin" not in path.relative_to(source).parts:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    # Two modules may have a class of one name.
                    names = {base.id for base in node.bases if isinstance(base, ast.Name)}
                    bases.setdefault(node.name, set()).update(names)
    found = {"SkillhouseError"}
    while more := {name for name in bases if bases[name] & found} - found:
        found |= more
    return (name for name in found if not name.startswith("_"))


@pytest.mark.slow
def test_the_codes_of_errors_are_those_of_the_page() -> None:
    _, table = PAGE.read_text(encoding="utf-8").split("The others:")
    listed = set(
        re.findall(r"`([a-z0-9-]+)`", "".join(re.findall(r"^\| (`.+?) \| ", table, re.MULTILINE)))
    )
    codes = {class_code(type(name, (Exception,), {})) for name in error_names()}
    assert listed == codes | {"usage", "unknown-verb", "os-error", "not-done"}


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (None, "", "not-done"),
        (FileNotFoundError(2, "no"), "no", "os-error"),
        (skillhouse.PathError("path-escape", "../x", Path("/a")), "no", "path-escape"),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "x"), "no", "unicode-decode"),
    ],
)
def test_the_code_of_an_error(error: BaseException | None, text: str, code: str) -> None:
    value = error_answer(error, text, exit_code=1).error
    assert (value.code, value.advice.mend) == (code, None)


def test_a_semicolon_in_a_name_parts_no_message() -> None:
    assert split_advice("no skill `a; b`") == ("no skill `a; b`", "")
    assert split_advice("a`; b") == ("a`; b", "")
    assert split_advice("no; yes; well") == ("no", "yes; well")
