"""The house as docs/concepts draws it: one way for imports, the face, the contract, the files."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import skillhouse
from skillhouse.frontends.cli.verbs import VERBS
from skillhouse.skill import ParsePolicy
from tests.harness import ran

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "skillhouse"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAYERS = [
    re.split(r" *\| *", layer)
    for layer in PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
]
ROOMS = [room for layer in LAYERS for room in layer]
LINT = runpy.run_path(str(ROOT / "scripts" / "lint.py"))
FACE: list[str] = vars(skillhouse)["__all__"]
SHARED_VECTORS = ROOT.parent / "shared" / "vectors"

CONTRACT = {
    "parse": (
        "(data: bytes, *, directory: str, path: Path | None = None, policy: ParsePolicy = DEFAULT)"
        " -> ParseResult"
    ),
    "validate": "(directory: Path, *, strict: bool = True) -> tuple[Diagnostic, ...]",
    "validate_name": "(name: str, *, directory: str) -> tuple[Diagnostic, ...]",
    "discover": (
        "(roots: Sequence[Root | str | Path], *, profile: str | Profile = 'default',"
        " trusted: bool = True, cache: Path | None = None) -> SkillIndex"
    ),
    "load": "(skill: Skill) -> SkillContent",
    "render_catalog": (
        "(index: SkillIndex, *, style: str = 'xml', budget_tokens: int | None = None) -> Catalog"
    ),
    "search": "(index: SkillIndex | SearchIndex, query: str, *, limit: int = 5) -> list[Hit]",
    "confine": "(base: Path, relative: str, *, mode: str = 'any') -> Path",
    "decide": (
        "(layers: Sequence[Layer], permission: Permission, *, default: Effect = Effect.ASK)"
        " -> Decision"
    ),
    "judge_command": (
        "(command: str, *, allow: Sequence[str] = (), deny: Sequence[str] = (),"
        " cwd: Path | None = None, writable: Sequence[Path] = ()) -> CommandVerdict"
    ),
    "wire_name": "(skill: str, tool: str) -> str",
}
"""The signatures of the public contract."""

ADDED = {"discover": {"clock"}, "judge_command": {"environment"}}
"""Parameters beyond the contract: keyword-only and with a default, so that its calls hold."""


def fresh_modules(statement: str) -> set[str]:
    """Return the modules that a new Python has loaded after `statement` and had not before it."""
    code = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "import json; print(json.dumps(sorted(set(sys.modules) - before - {'json'})))"
    )
    done = ran([sys.executable, "-I", "-c", code], check=True)
    return set(json.loads(done.stdout))


def shown_default(value: object) -> str:
    """Return a default as the contract writes it."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    return "DEFAULT" if value == ParsePolicy() else repr(value)


def shown_signature(name: str) -> str:
    """Return a public function's signature as the contract writes it, without what is `ADDED`."""
    signature = inspect.signature(getattr(skillhouse, name))
    parts, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        if parameter.name in ADDED.get(name, ()):
            assert starred
            assert parameter.default is not parameter.empty
            continue
        text = f"{parameter.name}: {parameter.annotation}"
        if parameter.default is not parameter.empty:
            text += f" = {shown_default(parameter.default)}"
        parts.append(text)
    return f"({', '.join(parts)}) -> {signature.return_annotation}"


def typed_face() -> dict[str, str]:
    """Return the room of each public name, as the TYPE_CHECKING block tells type checkers."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("skillhouse."):
            if node.module == "skillhouse.lazy_exports":
                continue
            for alias in node.names:
                assert alias.asname == alias.name  # Only `X as X` is public to a type checker.
                found[alias.name] = str(node.module).removeprefix("skillhouse.")
    return found


@pytest.mark.slow
def test_imports_point_one_way():
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    done = ran(command, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_the_contract_lists_the_rooms_that_exist():
    built = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert set(ROOMS) == built


KITS = ("floor.", "answers.", "presentation.")
"""Packages without a face, of which each module is one."""
OPENED = {
    "frontends.cli": {
        *("hooks", "options", "person", "publish", "publisher_secrets"),
        *("question", "service_unit", "terminal"),
    },
    "frontends.mcp": {"over_http"},
    "frontends.adapters": {"framework_bridge", "pydantic_ai"},
    "house": {"access_tokens", "issuer_tokens"},
    "house.config": {"allowed_sources"},
    "install": {"change_plan", "public_collections", "source_policy"},
    "registry": {"attestations", "certificates", "owners", "releases"},
    "retrieval": {"evidence", "query", "segment_store", "spelling", "tokens", "votes"},
    "sandbox": {
        *("bubblewrap", "code_call", "guard", "interpreters", "landlock_rules", "level_probes"),
        *("process", "profile", "scratch", "seccomp", "status"),
    },
    "tiers": {"tier_values"},
    "tools": {"files", "workspace"},
}
"""Modules that an extension of ours imports past the face of their package, and no others: verbs
are made with the parts of the command line, cells are a second user of the sandbox's parts,
PostgreSQL searches with those of the index, a model's install is judged and shown as a person's,
and two servers check tokens of issuers. What joins the list needs a reason in its commit."""


def test_an_extension_imports_faces_only():
    found: dict[str, set[str]] = {}
    for file in (PACKAGE / "extensions").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom):
                continue
            source = (node.module or "").removeprefix("skillhouse.")
            names = [source, *(f"{source}.{alias.name}" for alias in node.names)]
            for name in names if node.module != source else ():
                path = PACKAGE / f"{name.replace('.', '/')}.py"
                if path.is_file() and not name.startswith(("extensions.", "lazy_exports", *KITS)):
                    package, _, module = name.rpartition(".")
                    found.setdefault(package, set()).add(module)
    assert found == OPENED


HOUSE = (ROOT / "docs/concepts/house.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def drawn_layers(picture: str) -> list[list[str]]:
    """Return the layers of a drawing: an arrow between layers, a bar between siblings."""
    names = "|".join(sorted(ROOMS, key=len, reverse=True))
    rows = re.split(r"→|▼", picture)
    # A name is one word of the row before its explanation, which two blanks or a bar set off.
    heads = [re.match(rf"[\s│]*((?:{names})(?:\s*│\s*(?:{names}))*)(?=\s|$)", row) for row in rows]
    return [re.split(r"\s*│\s*", head[1]) for head in heads if head]


def test_the_pictures_of_packages_agree_with_the_contract_of_imports():
    (house,) = re.findall(r"```\n( extensions .*?)```", HOUSE, re.DOTALL)
    (contributing,) = re.findall(r"```text\n(extensions .*?)```", CONTRIBUTING, re.DOTALL)
    assert drawn_layers(house) == LAYERS
    assert drawn_layers(contributing) == LAYERS


@pytest.mark.parametrize("package", ["extensions", "frontends"])
def test_the_parts_that_are_drawn_exist_and_each_is_drawn(package):
    (row,) = re.findall(rf"^ {package} +(.*)$", HOUSE, re.MULTILINE)
    built = {path.parent.name for path in (PACKAGE / package).glob("*/__init__.py")}
    assert set(row.split(" · ")) == built


CONCEPTS = sorted((ROOT / "docs/concepts").glob("*.md"))


@functools.cache
def named_in_source() -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the files, the classes with their members, and every word of the package."""
    files = {file.relative_to(ROOT).as_posix() for file in PACKAGE.rglob("*") if file.is_file()}
    members, words = set(), set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        words |= set(re.findall(r"\w+", text))
        # By its indentation: reading the syntax of all is seven times as dear.
        for name, body in re.findall(r"^class (\w+)(.*\n(?:[ )].*\n|\n)*)", text, re.MULTILINE):
            inner = re.findall(r"^    (?:(?:async )?def |class )?(\w+)[(:]", body, re.MULTILINE)
            members |= {name, *(f"{name}.{one}" for one in inner)}
    return frozenset(files), frozenset(members), frozenset(words)


def absent(name: str) -> bool:
    """Whether a name in backquotes is one of a file, class, verb or word that is not there."""
    files, members, words = named_in_source()
    if re.fullmatch(r"[\w/]+\.(py|toml)", name) and name != "setup.py":
        is_there = (ROOT / name).exists() or any(file.endswith(f"/{name}") for file in files)
        return not is_there
    if re.fullmatch(r"[A-Z][a-z]+[A-Za-z]*(\.\w+)?", name):
        return name not in members
    if re.match(r"skillhouse [a-z]", name):
        return name.split()[1] not in VERBS
    # The probes of cells are named by their language and what they try.
    probe = re.sub(r"^(python|javascript)_cell_", "", name)
    return bool(re.fullmatch(r"[a-z]+(_[a-z]+)+", name)) and not {name, probe} & words


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda page: page.name)
def test_what_the_concepts_name_exists(page: Path) -> None:
    names = re.findall(
        r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    )
    assert len(names) > 20
    assert [name for name in names if absent(name)] == []


@pytest.mark.parametrize(
    "gone",
    ["house/vault.py", "Gate.judge", "Lens", "skillhouse census", "no_such_word_of_ours", "a.toml"],
)
def test_a_name_that_the_source_does_not_have_is_found(gone: str) -> None:
    assert absent(gone)


def test_the_page_of_limits_has_the_numbers_of_the_source() -> None:
    text = (ROOT / "docs/reference/limits.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*? \| ([\d,]+) \| `([\w.]+)` \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| ") - 1
    for written, constant in rows:
        module, _, name = constant.rpartition(".")
        outer, _, kind = module.rpartition(".")
        if kind[:1].isupper():
            found = getattr(getattr(importlib.import_module(f"skillhouse.{outer}"), kind)(), name)
        else:
            found = getattr(importlib.import_module(f"skillhouse.{module}"), name)
        assert found == int(written.replace(",", "")), constant


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_alone_loads_no_higher_room(room):
    place = next(number for number, layer in enumerate(LAYERS) if room in layer)
    allowed = {room, *(lower for layer in LAYERS[place + 1 :] for lower in layer)}
    loaded = {
        name.split(".")[1]
        for name in fresh_modules(f"import skillhouse.{room}")
        if name.startswith("skillhouse.")
    }
    assert loaded - {"lazy_exports"} <= allowed


def test_the_face_alone_is_cheap():
    loaded = fresh_modules("import skillhouse")
    assert {name for name in loaded if name.startswith("skillhouse")} == {
        "skillhouse",
        "skillhouse.lazy_exports",
    }
    assert not loaded & {"msgspec", "yaml", "sqlite3", "pathlib", "asyncio", "json"}


@pytest.mark.slow
def test_the_parser_of_command_lines_is_loaded_when_a_line_needs_a_shell():
    loaded = fresh_modules("import skillhouse; skillhouse.decide; skillhouse.Skillhouse")
    assert not {name for name in loaded if name.startswith("tree_sitter")}
    plain = fresh_modules("import skillhouse; skillhouse.judge_command('ls | head > x')")
    assert not {name for name in plain if name.startswith("tree_sitter")}
    judged = fresh_modules("import skillhouse; skillhouse.judge_command('ls $(x)')")
    assert "tree_sitter_bash" in judged


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["search", "weather"]])
def test_a_warm_start_that_reads_skills_loads_nothing_that_only_calls_need(
    arguments, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    statement = (
        "import contextlib, io; from skillhouse.frontends.cli import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()): main({arguments!r})"
    )
    fresh_modules(statement)  # It fills the cache.
    loaded = fresh_modules(statement)
    assert not loaded & {"asyncio", "anyio", "email", "jsonschema_rs", "ssl", "yaml"}
    # A list says who else reads a folder, by one table.
    loaded.discard("skillhouse.clients.client_table")
    machinery = ("audit", "clients", "extensions.cells", "net", "sandbox", "signer", "tiers")
    assert not [n for n in loaded if n.startswith(tuple(f"skillhouse.{m}." for m in machinery))]
    assert {n for n in loaded if n.startswith("skillhouse.tools.")} <= {
        "skillhouse.tools.messages",
        "skillhouse.tools.write_gate",
    }


@pytest.mark.slow
def test_a_warm_list_loads_none_of_what_takes_long_and_msgspec_without_its_extra(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    statement = (
        "import contextlib, io; from skillhouse.frontends.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()): main(['list'])"
    )
    fresh_modules(statement)  # It fills the cache.
    loaded = fresh_modules(statement)
    late = {"typing_extensions", "inspect", "shutil", "bz2", "socket", "secrets", "hashlib"}
    assert loaded & {*late, "difflib", "getpass"} == set()
    # Whoever needs it later has it.
    after = fresh_modules(f"{statement}\nimport typing_extensions")
    assert after & late == {"typing_extensions", "inspect"}


def call_statement(tool: str, arguments: dict[str, object]) -> str:
    words = ["call", tool, "--args", json.dumps(arguments)]
    return (
        "import contextlib, io; from skillhouse.frontends.cli import main\n"
        f"with contextlib.redirect_stdout(io.StringIO()): main({words!r})"
    )


@pytest.mark.slow
def test_a_call_loads_its_own_tool_only(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a line\n")
    read = fresh_modules(call_statement("read", {"path": "a.txt"}))
    assert "skillhouse.tools.files" in read
    others = "command skills web memory sign asset_tools remote_skills skill_code".split()
    assert not read & {f"skillhouse.tools.{name}" for name in others}
    machinery = (
        "extensions.cells. house.code_service signer.keystore net. retrieval.index permission.judge"
    ).split()
    assert not [n for n in read if n.startswith(tuple(f"skillhouse.{m}" for m in machinery))]
    listed = fresh_modules(call_statement("list", {}))
    assert not listed & {f"skillhouse.tools.{name}" for name in others}


def test_no_public_name_is_the_name_of_a_room():
    assert not set(FACE) & set(ROOMS)


@pytest.mark.parametrize("name", FACE)
def test_a_public_name_is_what_its_room_exports(name):
    room = importlib.import_module(f"skillhouse.{typed_face()[name]}")
    assert name in room.__all__
    assert getattr(skillhouse, name) is getattr(room, name)


def test_type_checkers_see_the_names_that_programs_get():
    assert sorted(typed_face()) == sorted(FACE)
    assert set(dir(skillhouse)) >= set(FACE)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(skillhouse, "nonsense")


@pytest.mark.parametrize("name", CONTRACT)
def test_a_signature_is_that_of_the_contract(name):
    assert shown_signature(name) == CONTRACT[name]


def test_the_version_is_the_same_everywhere():
    assert skillhouse.__version__ == PROJECT["project"]["version"]


def test_the_vectors_are_the_shared_ones():
    if not SHARED_VECTORS.is_dir():
        pytest.skip("no ../shared/vectors beside this clone")
    shared = {path.name: path.read_bytes() for path in SHARED_VECTORS.iterdir()}
    ours = {path.name: path.read_bytes() for path in (ROOT / "tests" / "vectors").iterdir()}
    assert {name: ours.get(name) for name in shared} == shared


def test_no_source_file_is_too_long():
    findings = {
        str(path.relative_to(ROOT)): LINT["length_finding"](path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: finding for name, finding in findings.items() if finding} == {}


def test_requirement_files_name_no_registry():
    files = sorted((ROOT / "requirements").iterdir())
    assert {path.name for path in files} >= {"uv.txt", "core.txt", "build.txt", "dev.txt"}
    named = {path.name for path in files for host in LINT["HOSTS"] if host in path.read_text()}
    assert named == set()


def test_every_pin_has_a_hash():
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        pins = re.split(r"\n(?=\S)", path.read_text(encoding="utf-8"))
        bare = [pin for pin in pins if not pin.startswith("#") and "--hash=sha256:" not in pin]
        assert (path.name, bare) == (path.name, [])


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_runs_nothing_at_start(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    source = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in held if ".dist-info/" not in name} == source
    assert "skillhouse/py.typed" in held


LAZY = sorted(
    path.parent.relative_to(PACKAGE.parent).as_posix().replace("/", ".")
    for path in PACKAGE.rglob("__init__.py")
    if "lazy_exports(__name__)" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("room", LAZY)
def test_no_file_of_a_lazy_face_has_a_public_name(room):
    # Importing the file would put the module where the face promises the function.
    face = importlib.import_module(room)
    names = set(face.__all__)
    assert names
    assert {path.stem for path in Path(str(face.__file__)).parent.iterdir()} & names == set()


def test_a_face_may_name_one_thing_in_two_lines(tmp_path, monkeypatch):
    face = tmp_path / "long_face"
    face.mkdir()
    (face / "inner.py").write_text("ONE = 1\nTWO = 2\n")
    (face / "__init__.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        "    from long_face.inner import (\n        ONE as ONE,\n    )\n"
        "    from long_face.inner import TWO as TWO\nelse:\n"
        "    from skillhouse.lazy_exports import lazy_exports\n"
        "    __all__, __getattr__ = lazy_exports(__name__)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = importlib.import_module("long_face")
    assert (made.__all__, made.ONE, made.TWO) == (["ONE", "TWO"], 1, 2)


def test_the_map_has_each_package_and_names_what_exists() -> None:
    text = (ROOT / "docs/concepts/map.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", text, re.MULTILINE))
    assert list(rows) == [room for layer in LAYERS for room in layer if room in rows]
    assert set(rows) == set(ROOMS)
    read_first = [
        PACKAGE / room / file
        for room, files in rows.items()
        for file in re.findall("`(.+?)`", files)
    ]
    steps = [PACKAGE / file for file in re.findall(r"^\d\. `(.+?)`", text, re.MULTILINE)]
    tests = [ROOT / file for file in re.findall(r"`(tests/.+?)`", text)]
    assert [str(file) for file in (*read_first, *steps, *tests) if not file.exists()] == []


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("skillhouse.extensions.server", "http_app", "skillhouse.extensions.server"),
        ("skillhouse.runtime", "Installer", "skillhouse.install"),
    ],
)
def test_an_old_name_of_a_package_gives_what_the_new_one_has(old, name, new):
    found = getattr(importlib.import_module(old), name)
    assert found is getattr(importlib.import_module(new), name)
