"""What no file of the package may say; `./x lint` runs these tests too."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import skillhouse
import skillhouse_signer
from tests.person_answers import ANSWERING

pytestmark = pytest.mark.slow

PACKAGE = Path(skillhouse.__file__).parent
SIGNER = Path(skillhouse_signer.__file__).parent
PRODUCTS = re.compile(r"\.(claude|opencode|owliabot|codex|gemini|cursor)/")
OPENED = "with sqlite3." + "connect("
REACHES_TOOLS = {"ExecTool", "WriteTool", "EditTool", "ReadTool", "Gate", "launcher_for"}
"""Names of what could run without the gate: tools, launchers, the signer."""


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_bytes())))


def texts_of(file: Path) -> list[str]:
    """Return the texts in a source file, but those that only describe."""
    described = {
        node.value
        for node in nodes_of(file)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in nodes_of(file)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in described
    ]


@pytest.mark.req("S001-77", "S001-75")
def test_no_code_names_a_products_directory() -> None:
    naming = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if any(PRODUCTS.search(text) for text in texts_of(file))
    }
    # Roots are named in the values of the default profile alone, those of clients in
    # `clients.json`; the other table says which files hold secrets.
    assert naming == {
        "skill/profile.py",
        "floor/secret_names.py",
    }


def test_no_text_of_the_parts_that_answer_a_model_holds_a_command_that_answers() -> None:
    packages = "approval audit extensions net permission remote retrieval sandbox tiers tools"
    cores = packages.replace("extensions", "extensions/cells")
    folders = [*cores.split(), "frontends/mcp", "frontends/adapters"]
    files = [file for folder in folders for file in (PACKAGE / folder).rglob("*.py")]
    # What its verbs print is for a person.
    signer = [file for file in SIGNER.rglob("*.py") if file.name != "key_verbs.py"]
    files = [file for file in files if not file.name.endswith("_verb.py")]
    assert signer
    assert {file.relative_to(PACKAGE).parts[0] for file in files} >= set(packages.split())
    found = [
        (str(file), text)
        for file in [*files, *signer]
        for text in texts_of(file)
        if ANSWERING.search(text)
    ]
    assert found == []


@pytest.mark.req("S000-60")
def test_no_frontend_reaches_a_tool_but_through_the_gate() -> None:
    packages = ("frontends", "extensions/chat", "extensions/registry", "extensions/server")
    files = [file for at in packages for file in (PACKAGE / at).rglob("*.py")]
    assert len(files) > 30
    for file in files:
        names = {node.id for node in nodes_of(file) if isinstance(node, ast.Name)}
        names |= {node.attr for node in nodes_of(file) if isinstance(node, ast.Attribute)}
        assert not names & REACHES_TOOLS, file.name


def test_no_verb_asks_but_through_the_module_of_questions() -> None:
    asking = {"sys.stdin", "sys.__stdin__", "getpass.getpass", "input", "isatty"}
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        used = {
            "isatty" if isinstance(node, ast.Attribute) and node.attr == "isatty" else text
            for node in nodes_of(file)
            if (
                isinstance(node, ast.Attribute | ast.Name) and (text := ast.unparse(node)) in asking
            )
            or (isinstance(node, ast.Attribute) and node.attr == "isatty")
        }
        if used:
            found[file.relative_to(PACKAGE).as_posix()] = used
    assert found == {
        "frontends/cli/question.py": {"isatty", "sys.stdin"},
        # Colours, lines that are written over, and logs for people.
        "frontends/cli/terminal.py": {"isatty"},
        "extensions/chat/screen.py": {"isatty"},
        "presentation/service_log.py": {"isatty"},
        # Text for a skill or a prompt, and the stream of the channel that asks about calls.
        "frontends/cli/manage.py": {"sys.stdin"},
        "extensions/chat/chat_verb.py": {"sys.stdin"},
        "frontends/cli/calls.py": {"sys.stdin"},
        # The prompt of a chat, which begins at a terminal only.
        "extensions/chat/repl.py": {"input"},
        # Keys one by one, once `question.need_terminal` has found a terminal.
        "frontends/cli/tick_rows.py": {"sys.stdin"},
        # A password is typed unseen, at the terminal of the signer's process, or refused.
        "registry/passwords.py": {"getpass.getpass"},
    }


def test_no_import_of_our_own_hides_from_the_import_linter() -> None:
    """It reads import statements: a name in a string would be an edge that it does not see."""
    hidden = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        for node in nodes_of(file)
        if isinstance(node, ast.Call)
        and "import_module" in ast.unparse(node.func)
        and any("skillhouse" in ast.unparse(argument) for argument in node.args)
    }
    assert hidden == set()


def test_no_module_imports_the_face_of_its_own_package() -> None:
    circles = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if file.name != "__init__.py" and file.parent != PACKAGE
        for node in nodes_of(file)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _imported(node)
        if name == ".".join(("skillhouse", *file.relative_to(PACKAGE).parts[:-1]))
    }
    assert circles == set()


def test_the_source_cites_no_document_that_a_clone_has_not() -> None:
    """Code names a page of docs, a decision or a public document."""
    absent = re.compile(
        r"\bDESIGN\b|\b(seeds|ecosystem|feasibility\d*|review\d*)\.md|reference/security"
    )
    found = [
        f"{file.relative_to(PACKAGE)}: {line.strip()}"
        for file in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.toml"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if absent.search(line)
    ]
    assert found == []


def test_no_value_of_the_package_is_a_dataclass() -> None:
    """The decorator compiles six functions for each class that a start loads (decision 0442)."""
    found = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        for node in nodes_of(file)
        if (isinstance(node, ast.Attribute) and ast.unparse(node) == "dataclasses.dataclass")
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "dataclasses"
            and "dataclass" in {alias.name for alias in node.names}
        )
    }
    assert found == set()


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the packages whose faces the statement executes by name."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    package = PACKAGE.joinpath(*(node.module or "").split(".")[1:])
    if all((package / f"{alias.name}.py").exists() for alias in node.names):
        return []  # Modules of the package, not names of its face.
    return [node.module or ""]


def test_every_connection_of_a_test_is_closed() -> None:
    """`with` ends a transaction of `sqlite3` and closes nothing, of which Python 3.13 warns."""
    tests = Path(__file__).parent
    found = [file for file in tests.rglob("*.py") if OPENED in file.read_text(encoding="utf-8")]
    assert [file.relative_to(tests).as_posix() for file in found] == []
