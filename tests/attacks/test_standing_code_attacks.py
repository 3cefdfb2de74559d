"""Attacks on standing approvals of code in words and of offline installs: what they are bound to
becomes another thing than the person saw."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skillhouse.approval import Answer, ApprovedScript
from skillhouse.house import Skillhouse
from skillhouse.permission import Effect, Rule
from skillhouse.tools import ToolResult
from tests.tools.houses import Person, house_at

pytestmark = pytest.mark.slow

RULES = [
    Rule(effect=Effect.ALLOW, action="exec", pattern=pattern, scripts=scripts)
    for pattern, scripts in (
        ("node *", False),
        ("npm *", False),
        ("cp *", False),
        ("echo *", False),
        ("cd *", False),
        ("npm run *", True),
        ("python3 *.py *", True),
    )
]
CODE = "python3 -c 'import helper; print(helper.SAID)'"
INSTALL = "npm ci --offline"
GOOD, EVIL = "SAID = 'good'\n", "SAID = 'evil'\n"


Need = Callable[[object, str], None]


class Desk:
    """A workspace, and a person who first says yes for the project and then no."""

    def __init__(self, house: Skillhouse, person: Person, root: Path) -> None:
        self.house, self.person, self.root = house, person, root

    def run(self, line: str) -> ToolResult:
        return self.house.call_sync("exec", {"command": line})

    def asks(self, line: str) -> str:
        """Return why a line is asked about, or "" where it runs."""
        before = len(self.person.asked)
        self.run(line)
        reasons = [reason for one in self.person.asked[before:] for reason in one.reasons]
        return "; ".join(reasons)

    def always(self, line: str) -> ToolResult:
        self.person.answers.append(Answer.PROJECT)
        return self.run(line)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    person = Person()
    with house_at(tmp_path, *RULES, person=person) as house:
        root = tmp_path / "project"
        root.mkdir(parents=True, exist_ok=True)
        (root / "helper.py").write_text(GOOD)
        (root / "evil.py").write_text(EVIL)
        yield Desk(house, person, root)


def test_code_in_words_runs_again_unasked_and_shows_its_rule_and_what_it_loads(desk: Desk) -> None:
    assert desk.always(CODE).content.startswith("good")
    (asked,) = desk.person.asked
    assert asked.always == (f"exec {CODE}",)
    facts = [value for name, value in asked.found if name == "script"]
    assert [fact.partition(" ")[0] for fact in facts] == ["helper.py"]
    assert "not bound" in dict(asked.found)
    assert desk.asks(CODE) == ""


def test_a_module_that_approved_code_loads_is_asked_about_when_it_changes(desk: Desk) -> None:
    desk.always(CODE)
    (desk.root / "helper.py").write_text(EVIL)
    assert "`helper.py`, which the code loads was not approved as it is" in desk.asks(CODE)
    assert "the line writes it" in desk.asks(f"cp evil.py helper.py && {CODE}")
    (desk.root / "helper.py").write_text(GOOD)
    assert desk.asks(CODE) == ""


@pytest.mark.parametrize("name", ["json.py", "helper/__init__.py", "re/__init__.py"])
def test_a_file_that_would_be_loaded_instead_is_asked_about(desk: Desk, name: str) -> None:
    desk.always(CODE)
    (desk.root / name).parent.mkdir(exist_ok=True)
    (desk.root / name).write_text(EVIL)
    assert f"`{name}`, which the code loads" in desk.asks(CODE)


def test_a_module_that_has_the_name_of_the_code_is_bound_too(desk: Desk) -> None:
    """Code has no file: one called `code.py` is a module like any other."""
    line = "python3 -c 'import code; print(code.SAID)'"
    (desk.root / "code.py").write_text(GOOD)
    assert desk.always(line).content.startswith("good")
    (desk.root / "code.py").write_text(EVIL)
    assert "`code.py`, which the code loads" in desk.asks(line)


@pytest.mark.parametrize(
    "line",
    [
        CODE.replace("print", "exec"),
        CODE.replace("-c", "-W error -c"),
        f"cd sub && {CODE}",
        f"PYTHONPATH=sub {CODE}",
        f"{CODE} sub/helper.py",
        f"{CODE} | cat; {CODE} > helper.py; {CODE}",
    ],
)
def test_approved_code_is_no_other_code_and_nowhere_else(desk: Desk, line: str) -> None:
    desk.always(CODE)
    (desk.root / "sub").mkdir()
    (desk.root / "sub/helper.py").write_text(EVIL)
    assert desk.asks(line)


@pytest.mark.usefixtures("node")
def test_what_node_requires_is_bound(desk: Desk) -> None:
    line = "node -e 'console.log(require(\"./lib\"))'"
    (desk.root / "lib.js").write_text("module.exports = 'good';\n")
    assert desk.always(line).content.startswith("good")
    assert desk.asks(line) == ""
    (desk.root / "lib.js").write_text("module.exports = 'evil';\n")
    assert "`lib.js`, which the code loads" in desk.asks(line)


def test_a_rule_that_a_person_wrote_for_code_asks_nothing_more(tmp_path: Path) -> None:
    rule = Rule(effect=Effect.ALLOW, action="exec", pattern=CODE)
    with house_at(tmp_path, rule, person=(person := Person())) as house:
        (tmp_path / "project/helper.py").write_text(GOOD)
        assert house.call_sync("exec", {"command": CODE}).content.startswith("good")
    assert person.asked == []


@pytest.fixture
def package(desk: Desk) -> Desk:
    tasks = {"postinstall": "node after.js", "build": "node build.js"}
    content = {"name": "p", "version": "1.0.0", "scripts": tasks}
    lock = {"name": "p", "version": "1.0.0", "lockfileVersion": 3, "requires": True}
    lock["packages"] = {"": {"name": "p", "version": "1.0.0", "hasInstallScript": True}}
    (desk.root / "package.json").write_text(json.dumps(content))
    (desk.root / "package-lock.json").write_text(json.dumps(lock))
    (desk.root / "after.js").write_text("console.log('installed')\n")
    (desk.root / "build.js").write_text("console.log('built')\n")
    return desk


def test_an_offline_install_runs_again_unasked_without_network(package: Desk, need: Need) -> None:
    need(shutil.which("npm") is not None, "no npm")
    assert package.always(INSTALL).status == "ok"
    (asked,) = package.person.asked
    assert asked.always == (f"exec {INSTALL}",)
    shown = {value.partition(" ")[0] for name, value in asked.found if name == "script"}
    assert shown == {"package-lock.json", "package.json", "after.js"}
    result = package.run(INSTALL)
    assert (result.status, len(package.person.asked)) == ("ok", 1)
    # What the install itself may write is not sealed; what it runs is.
    package.always("npm install --offline")  # It rewrites a lock that a person wrote.
    package.always("npm install --offline")
    before = (package.root / "package-lock.json").read_bytes()
    assert package.run("npm install --offline").status == "ok"
    assert (package.root / "package-lock.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package-lock.json", '{"lockfileVersion": 3, "packages": {}}'),
        ("package.json", '{"scripts": {"postinstall": "node evil.js"}}'),
        ("after.js", "console.log('evil')\n"),
        ("npm-shrinkwrap.json", '{"lockfileVersion": 3, "packages": {}}'),
    ],
)
def test_an_install_is_asked_about_when_what_it_obeys_changes(
    package: Desk, name: str, text: str
) -> None:
    package.always(INSTALL)
    assert package.asks(INSTALL) == ""
    (package.root / name).write_text(text)
    assert f"`{name}`" in package.asks(INSTALL)


def test_an_install_without_a_lock_is_asked_about_each_time(package: Desk) -> None:
    package.always("npm install --offline")
    (package.root / "package-lock.json").unlink()
    for _ in range(2):
        assert "no lock file says what it installs" in package.asks("npm install --offline")


@pytest.mark.parametrize(
    "line",
    [
        f"cp other.json package-lock.json && {INSTALL}",
        f"echo x > after.js && {INSTALL}",
        f"node after.js; {INSTALL}",
    ],
)
def test_the_line_cannot_make_the_lock_of_an_approved_install(package: Desk, line: str) -> None:
    package.always(INSTALL)
    (package.root / "other.json").write_text("{}")
    assert package.asks(line)


def test_an_approved_install_lets_no_task_of_the_package_run(package: Desk) -> None:
    package.always(INSTALL)
    assert "`package.json` was not approved yet" in package.asks("npm run build")


@pytest.mark.parametrize(
    "line", ["npm ci", "npm install --offline x", "npm ci --offline --prefix=sub", "npm rebuild"]
)
def test_an_approved_install_is_no_other_install(package: Desk, line: str) -> None:
    package.always(INSTALL)
    assert package.asks(line)


def test_a_broken_link_in_place_of_the_lock_is_asked_about(package: Desk) -> None:
    package.always(INSTALL)
    lock = package.root / "package-lock.json"
    lock.rename(package.root / "real.json")
    lock.symlink_to("real.json")
    assert "reached through a symbolic link" in package.asks(INSTALL)


def test_bytes_that_were_approved_before_run_again_and_no_others(desk: Desk) -> None:
    line, script = "python3 x.py", desk.root / "x.py"
    for text in ("print('one')\n", "print('two')\n"):
        script.write_text(text)
        desk.person.answers.append(Answer.ONCE)
        assert desk.run(line).status == "ok"
    script.write_text("print('one')\n")
    assert desk.run(line).content == "one\n"
    assert len(desk.person.asked) == 2
    script.write_text("print('evil')\n")
    assert "has changed since it was approved" in desk.asks(line)
    # Whoever revokes the script revokes its earlier bytes.
    kept: tuple[ApprovedScript, ...] = desk.house.approvals.scripts.all()
    assert desk.house.approvals.scripts.revoke(kept[-1].id)
    for text in ("print('one')\n", "print('two')\n"):
        script.write_text(text)
        assert "`x.py` was not approved yet" in desk.asks(line)


def test_only_what_reads_package_json_passes_as_reading_it(package: Desk) -> None:
    """`npm pkg get` was asked about as if it wrote; nothing that writes is taken for it."""
    assert package.asks("npm pkg get name") == ""
    for line in (
        "npm pkg set scripts.build=./evil",
        "npm pkg -C get set scripts.build=./evil",
        "npm pkg --no-such get name",
    ):
        assert package.asks(line), line
    assert "evil" not in (package.root / "package.json").read_text()


def test_a_line_that_changes_what_its_code_loads_runs_as_it_would_and_approves_nothing(
    desk: Desk,
) -> None:
    for text in (f"cp evil.py helper.py && {CODE}", CODE.replace("import helper", _REWRITE)):
        (desk.root / "helper.py").write_text(GOOD)
        desk.person.answers.append(Answer.ONCE)
        assert desk.run(text).content.startswith(("evil", "good")), text
        assert (desk.root / "helper.py").read_text() == EVIL
    kept = {one.digest for one in desk.house.approvals.scripts.all()}
    assert hashlib.sha256(EVIL.encode()).hexdigest() not in kept


_REWRITE = 'import helper, shutil; shutil.copy("evil.py", "helper.py")'
