"""An extension of others costs itself alone, and replaces nothing of ours."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.extension import load_extensions
from skillhouse.extension.load import LoadedExtensions
from skillhouse.extension.own import OWN_EXTENSIONS, OwnExtension, own_module
from skillhouse.floor import MissingExtraError
from tests.extension.environments import ENTRY, GREET, Environment, extension, install


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def call() -> LoadedExtensions:
        return load_extensions([str(tmp_path)])

    yield call
    for name in set(sys.modules) - before:
        if name.endswith("_extension"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ValueError('no\\nway')", "it does not load: ValueError: no way"),
        ("raise SystemExit(3)", "it does not load: SystemExit: 3"),
        ("import a_module_that_is_nowhere", "it does not load: ModuleNotFoundError: "),
        ("def broken(:", "it does not load: SyntaxError: "),
        ("EXTENSION = 3", "expected an `Extension` in `bad_extension:EXTENSION`, got int"),
        ("", "expected an `Extension` in `bad_extension:EXTENSION`, got NoneType"),
        (extension("other"), "it is called `other`; its entry point says `bad`"),
        (extension("bad", "verbs={'a b': None}"), "a name cannot be one: 'a b'"),
        (extension("bad", "tools=3"), "its tables cannot be read: TypeError: "),
    ],
)
def test_one_that_fails_costs_only_itself(tmp_path: Path, load, source: str, said: str) -> None:
    install(tmp_path, "bad", source)
    install(tmp_path, "good", extension("good", "verbs={'greet': VERB}", GREET))

    found = load()

    assert [one.name for one in found.extensions] == ["good"]
    (fault,) = found.faults
    assert (fault.extension, fault.distribution, fault.code) == (
        "bad",
        "bad_extension-1.0",
        "extension-failed",
    )
    assert fault.message.startswith(said)


def test_no_extension_has_the_name_of_one_of_ours_or_of_an_earlier_one(
    tmp_path: Path, load
) -> None:
    install(tmp_path, "signer", extension("signer"))
    for name in ("a", "b"):
        entry = ENTRY.format(name="tides", module=f"{name}_extension")
        install(tmp_path, name, extension("tides"), entry=entry)

    found = load()

    assert [one.name for one in found.extensions] == ["tides"]
    assert sorted(one.message for one in found.faults) == [
        "the name is taken: another distribution has an extension of that name",
        "the name is taken: skillhouse has an extension of that name",
    ]
    assert "b_extension" not in sys.modules


def test_a_name_that_is_taken_is_left_out_and_named(tmp_path: Path, load) -> None:
    section = "section=ConfigSection(name='net', parse=dict)"
    parts = (
        f"verbs={{'list': VERB, 'greet': VERB}}, tools={{'exec': None, 'tide': None}}, {section}"
    )
    install(tmp_path, "a", extension("a", parts, GREET))
    install(tmp_path, "b", extension("b", "verbs={'greet': VERB}", GREET))

    found = load()

    assert {name: one.name for name, (one, _) in found.verbs({"list"}).items()} == {"greet": "a"}
    assert list(found.tools({"exec"})) == ["tide"]
    assert found.sections({"net"}) == {}
    clashes = found.clashes(verbs={"list"}, tools={"exec"}, sections={"net"})
    assert [(one.extension, one.message) for one in clashes] == [
        ("a", "its verb `list` is left out: `skillhouse` has that name"),
        ("a", "its tool `exec` is left out: `skillhouse` has that name"),
        ("a", "its section `net` is left out: `skillhouse` has that name"),
        ("b", "its verb `greet` is left out: `a` has that name"),
    ]


def test_one_of_ours_that_is_missing_is_named_with_what_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        OWN_EXTENSIONS, "chat", OwnExtension(package="skillhouse.nowhere.chat", extra="chat")
    )

    with pytest.raises(MissingExtraError, match=r"optional part `chat` .*\.\[chat\]|chat\]"):
        own_module("chat")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("extension"))


@pytest.fixture
def fresh(environment: Environment) -> Iterator[Environment]:
    """The environment, from which what a test installs goes afterwards."""
    before = set(environment.site.iterdir())
    yield environment
    for path in set(environment.site.iterdir()) - before:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.mark.slow  # It starts processes.
def test_a_verb_of_another_is_run_listed_and_helped(fresh: Environment) -> None:
    install(
        fresh.site, "greeter", extension("greeter", "verbs={'greet': VERB, 'list': VERB}", GREET)
    )

    assert fresh.run("greet").stdout == "hello\n"
    assert "Say hello." in fresh.run("greet", "--help").stdout
    assert "of extensions:\n  greet" in fresh.run("help").stdout
    # The verb of ours stays.
    assert fresh.run("list").stdout != "hello\n"
    doctor = fresh.run("doctor", "--json", "--client", "codex")
    said = [one["message"] for one in json.loads(doctor.stdout)["configuration"]]
    assert said == ["extension `greeter`: its verb `list` is left out: `skillhouse` has that name"]


@pytest.mark.slow  # It starts processes.
def test_one_that_fails_is_named_by_doctor_and_keeps_no_verb_from_running(
    fresh: Environment,
) -> None:
    install(fresh.site, "bad", "raise ValueError('no')")

    doctor = fresh.run("doctor", "--client", "codex")

    assert doctor.returncode == 1
    said = " ".join(doctor.stdout.split())
    assert "extension `bad` of bad_extension-1.0: it does not load: ValueError: no" in said
    assert fresh.run("list").returncode == 0
    assert fresh.run("greet").returncode == 2
    assert fresh.run("help").returncode == 0


@pytest.mark.slow  # It starts processes.
def test_a_verb_that_an_extension_breaks_is_no_traceback(fresh: Environment) -> None:
    body = "def _fail(options, terminal):\n    raise ValueError('no')\n"
    verb = f"{body}VERB = Verb('', lambda parser: None, _fail, summary='fail')\n"
    install(fresh.site, "breaker", extension("breaker", "verbs={'break-it': VERB}", verb))

    found = fresh.run("break-it")

    assert found.returncode == 70
    assert "Traceback" not in found.stderr


MARK = "Path(__file__).with_name('loaded').write_text('yes')"


@pytest.mark.slow  # It starts processes.
@pytest.mark.parametrize("way", ["module", "code", "pythonpath", "relative", "userbase"])
def test_a_project_in_which_we_are_started_brings_no_extension(
    fresh: Environment, way: str
) -> None:
    """The attack: a cloned repository has a distribution's directory beside its files."""
    source = extension("evil", "verbs={'greet': VERB}", f"{GREET}\n{MARK}\n")
    place = fresh.place
    if way == "userbase":
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        place = fresh.place / "base" / "lib" / version / "site-packages"
    install(place, "evil", source)
    variables = {
        "pythonpath": {"PYTHONPATH": str(fresh.place)},
        "relative": {"PYTHONPATH": "."},
        "userbase": {"PYTHONUSERBASE": str(fresh.place / "base")},
    }.get(way, {})
    code = "from skillhouse.frontends.cli import main; raise SystemExit(main(['greet']))"
    try:
        found = fresh.run("greet", variables=variables, code=code if way == "code" else "")
        assert found.returncode == 2, found
        assert "unknown verb `greet`" in found.stderr
        assert not (place / "loaded").exists()
    finally:
        shutil.rmtree(place / "evil_extension-1.0.dist-info")
        (place / "evil_extension.py").unlink()


@pytest.mark.slow  # It starts processes.
@pytest.mark.parametrize("variables", [{}, {"PYTHONPATH": "."}])
def test_a_projects_module_is_not_taken_for_that_of_an_installed_extension(
    fresh: Environment, variables: dict[str, str]
) -> None:
    install(fresh.site, "greeter", extension("greeter", "verbs={'greet': VERB}", GREET))
    fake = fresh.place / "greeter_extension.py"
    fake.write_text(MARK.replace("Path(", "__import__('pathlib').Path("))
    try:
        code = "from skillhouse.frontends.cli import main; raise SystemExit(main(['greet']))"
        found = fresh.run(code=code, variables=variables)
        assert found.stdout == "hello\n"
        assert not (fresh.place / "loaded").exists()
    finally:
        fake.unlink()


@pytest.mark.slow  # It starts processes.
def test_a_link_to_the_current_directory_brings_no_module_of_an_extension(
    fresh: Environment, tmp_path: Path
) -> None:
    """The attack: a script of the project is started by a link to it, so that `sys.path` has the
    current directory by another name."""
    install(fresh.site, "greeter", extension("greeter", "verbs={'greet': VERB}", GREET))
    fake = fresh.place / "greeter_extension.py"
    fake.write_text(MARK.replace("Path(", "__import__('pathlib').Path("))
    link = tmp_path / "link"
    link.symlink_to(fresh.place)
    try:
        code = f"import sys; sys.path[0] = {str(link)!r}; from skillhouse.frontends.cli import main"
        found = fresh.run(code=f"{code}; raise SystemExit(main(['greet']))")
        assert found.stdout == "hello\n"
        found = fresh.run("greet", variables={"PYTHONPATH": str(link)})
        assert found.stdout == "hello\n"
        assert not (fresh.place / "loaded").exists()
    finally:
        fake.unlink()


SECTION = """
from skillhouse.floor import ConfigError

def _parse(table):
    if table.get("sea") == "dry":
        raise ConfigError("expected a sea with water", key="tides.sea")
    if table.get("sea") == "odd":
        raise ValueError("odd")
    return dict(table)

def _show(options, terminal):
    from skillhouse.house import Locations, configured
    terminal.line(str(configured(Locations.here()).sections["tides"]))
    return 0

VERB = Verb("", lambda parser: None, _show, summary="show")
"""


@pytest.mark.slow  # It starts processes.
def test_a_section_of_the_configuration_belongs_to_its_extension(fresh: Environment) -> None:
    file = fresh.home / ".config" / "skillhouse" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text('[tides]\nsea = "north"\n')
    assert "unknown key `tides`" in fresh.run("list").stderr
    parts = "verbs={'tides': VERB}, section=ConfigSection(name='tides', parse=_parse)"
    install(fresh.site, "tides", extension("tides", parts, SECTION))

    assert fresh.run("list").returncode == 0
    assert fresh.run("tides").stdout == "{'sea': 'north'}\n"
    file.write_text('[tides]\nsea = "dry"\n')
    assert "expected a sea with water" in fresh.run("list").stderr
    file.write_text('[tides]\nsea = "odd"\n')
    said = fresh.run("list")
    assert (said.returncode, "cannot read its table `tides`: ValueError" in said.stderr) == (
        2,
        True,
    )
    file.unlink()
