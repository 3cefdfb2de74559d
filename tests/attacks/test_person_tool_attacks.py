"""Attacks by the person's tools: on PATH, on what is mounted for it, and on programs by a path."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.approval import Answer, ApprovalRequest
from skillhouse.house import Skillhouse, configured
from skillhouse.permission import Effect, Layer, Rule
from skillhouse.sandbox import SandboxError, SandboxProfile, ToolFinder, Toolset, ToolSettings
from skillhouse.sandbox.run_options import check_argv
from skillhouse.tools import ToolResult
from tests.harness import Need, ran
from tests.house.places import make_places, write_skill
from tests.tools.houses import Person

PLANTED = "#!/bin/sh\necho planted\n"


def program(path: Path, text: str = PLANTED) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Place:
    """A home and a workspace, and the tools that commands have there."""

    def __init__(self, base: Path) -> None:
        self.places = make_places(base)
        self.home, self.root = self.places.home, self.places.start
        self.path: list[str] = []

    def tools(self, *programs: Path, settings: ToolSettings = ToolSettings()) -> Toolset:  # noqa: B008
        environment = {"PATH": ":".join((*self.path, "/usr/bin"))}
        finder = ToolFinder(environment, self.home, self.home / ".cache/tools", settings)
        return finder.places(self.root, [str(each) for each in programs])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_directory_of_path_that_others_write_is_left_out(place: Place) -> None:
    for name, mode in (("open", 0o777), ("group", 0o775), ("sticky", 0o1777)):
        program(place.home / name / "tool")
        (place.home / name).chmod(mode)
        place.path.append(str(place.home / name))
    program(place.home / "above/below/tool")
    (place.home / "above").chmod(0o777)
    (place.home / "link").symlink_to(place.home / "open")
    place.path += [str(place.home / "above/below"), str(place.home / "link")]
    tools = place.tools()
    assert (tools.path, tools.mounts) == (("/usr/bin",), ())
    assert len(tools.notes) == 5
    assert all("other users can write" in note for note in tools.notes)


def test_a_directory_of_path_in_the_workspace_is_left_out(place: Place) -> None:
    program(place.root / "bin/ls")
    (place.home / "bin").symlink_to(place.root / "bin")
    place.path += [str(place.root / "bin"), str(place.home / "bin"), "bin", ".", ""]
    tools = place.tools()
    assert tools.path == ("/usr/bin",)
    assert "it is in the workspace" in " ".join(tools.notes)
    assert place.tools(settings=ToolSettings(path=("bin",))).path[0] == str(place.root / "bin")


def test_what_holds_the_home_the_workspace_or_a_secret_is_left_out(place: Place) -> None:
    (place.home / ".ssh").mkdir()
    program(place.home / "keys/tool")
    (place.home / "keys/deploy.key").write_text("canary")
    place.path += [str(place.home), str(place.home.parent), str(place.home / ".ssh")]
    place.path += [str(place.home / "keys"), "/"]
    tools = place.tools(settings=ToolSettings(mounts=("~/.ssh", "~", "/")))
    assert (tools.path, tools.mounts) == (("/usr/bin",), ())


def test_a_judged_program_is_the_systems_whatever_path_says(place: Place) -> None:
    for name in ("git", "sh", "ls", "mytool"):
        program(place.home / "bin" / name)
    place.path.append(str(place.home / "bin"))
    tools = place.tools()
    assert {*tools.pinned} == {"git", "sh", "ls"}
    assert [tools.which(name) for name in ("git", "mytool")] == [
        shutil.which("git", path="/usr/local/bin:/usr/bin:/bin"),
        str(place.home / "bin/mytool"),
    ]
    assert tools.search_path.startswith("/etc/skillhouse-programs:")


def test_a_program_that_commands_do_not_see_is_named_with_where_it_is(place: Place) -> None:
    hidden = program(place.home / "elsewhere/prog")
    (place.home / "bin").mkdir()
    (place.home / "bin/prog").symlink_to(hidden)
    program(place.home / "other/second")
    (place.home / "bin/second").symlink_to(hidden)
    place.path += [str(place.home / "bin"), str(place.home / "other")]
    profile = SandboxProfile(workspace=place.root, tools=place.tools())
    with pytest.raises(SandboxError, match="which commands do not see") as caught:
        check_argv(("prog",), profile)
    assert (caught.value.code, str(hidden) in str(caught.value)) == ("exec-not-found", True)
    # The next of its name is found, as a shell finds it.
    check_argv(("second",), profile)
    named = ToolSettings(mounts=(str(hidden.parent),))
    check_argv(("prog",), SandboxProfile(workspace=place.root, tools=place.tools(settings=named)))


def test_programs_of_npm_packages_come_with_these_and_nothing_beside(place: Place) -> None:
    packages = place.home / "own/node_modules"
    program(packages / "tool/bin/tool")
    program(place.home / "own/.npmrc", "token")
    (packages / ".bin").mkdir()
    (packages / ".bin/tool").symlink_to("../tool/bin/tool")
    place.path.append(str(packages / ".bin"))
    tools = place.tools()
    assert tools.which("tool") == str(packages / ".bin/tool")
    assert not tools.shows(str(place.home / "own/.npmrc"))
    # What others may write is not shown through it.
    packages.chmod(0o777)
    assert place.tools().which("tool") is None


ROOTS = {
    ".cargo": ("bin/cargo", "credentials.toml", "config.toml", "registry/x"),
    ".nvm/versions/node/v20": ("bin/node", "etc/npmrc"),
    ".pyenv/versions/3.12.1": ("bin/python3", "pip.conf"),
    ".sdkman/candidates/java/21": ("bin/java", "etc/secret"),
}


def test_no_credentials_of_a_toolchain_are_shown(place: Place) -> None:
    for root, names in ROOTS.items():
        for name in names:
            program(place.home / root / name)
        place.path.append(str(place.home / root / "bin"))
    place.path.append(str(program(place.home / ".nvm/.npmrc").parent))
    tools = place.tools()
    assert [each for each in tools.path if "npm" in each] == []
    for root, (first, *others) in ROOTS.items():
        assert tools.shows(str(place.home / root / first))
        for name in others:
            assert not tools.shows(str(place.home / root / name)), name


def test_an_environment_shows_no_more_than_an_interpreter(place: Place) -> None:
    """The link and pyvenv.cfg of an environment are an agent's to write."""
    secrets = [".cargo/credentials.toml", ".aws/credentials", "work/notes.txt", ".nvm/.npmrc"]
    for number, name in enumerate(secrets):
        target = program(place.home / name)
        venv = place.root / ("venv", "env", ".venv", "x")[number]
        (venv / "bin").mkdir(parents=True)
        (venv / "pyvenv.cfg").write_text(f"home = {target.parent}\n")
        (venv / "bin/python").symlink_to(target)
    tools = place.tools(place.root / "x/bin/python")
    assert not any(tools.shows(str(place.home / name)) for name in secrets)


def test_of_an_environment_elsewhere_its_packages_are_shown_and_nothing_beside(
    place: Place,
) -> None:
    """Poetry, pipenv and virtualenvwrapper keep them in places that no table names."""
    venv = place.home / ".local/share/virtualenvs/app-x1"
    for name in ("bin/tool", "lib/python3/site-packages/mod.py", "etc/token", ".env", "src/mine"):
        program(venv / name)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    place.path.append(str(venv / "bin"))
    tools = place.tools()
    assert tools.path == (str(venv / "bin"), "/usr/bin")
    for name in ("bin/tool", "lib/python3/site-packages/mod.py", "pyvenv.cfg"):
        assert tools.shows(str(venv / name)), name
    for name in ("etc/token", ".env", "src/mine"):
        assert not tools.shows(str(venv / name)), name


def test_parts_of_an_environment_that_lead_elsewhere_are_left_out(place: Place) -> None:
    """An environment of another workspace is that of whoever wrote there."""
    for name in (".config/gh/hosts.yml", "priv/notes", ".ssh/id"):
        program(place.home / name)
    for number, target in enumerate((".config", "priv", ".ssh", "nowhere", "open")):
        venv = place.home / f"envs/{number}"
        program(venv / "bin/tool")
        program(venv / "src/mine")
        (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
        (venv / "share").symlink_to(place.home / target)
        (venv / "lib").mkdir()
        if target == "open":
            (venv / "lib").chmod(0o777)
        place.path.append(str(venv / "bin"))
    tools = place.tools()
    for name in (".config/gh/hosts.yml", "priv/notes", ".ssh/id", "envs/0/src/mine"):
        assert not tools.shows(str(place.home / name)), name
    for number in range(5):
        assert tools.shows(str(place.home / f"envs/{number}/bin/tool")), number


def test_a_directory_of_path_that_an_agent_made_a_link_shows_nothing(place: Place) -> None:
    """In its workspace, or in the environment of another one that it wrote in before."""
    secrets = (".aws/credentials", ".config/app/token", "Documents/plan", ".mozilla/cookies")
    for name in secrets:
        program(place.home / name)
    program(place.home / ".cargo/bin/cargo")
    other = place.home / "other/.venv"
    for venv in (place.root / ".venv", other):
        venv.mkdir(parents=True)
        (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (place.root / "node_modules").mkdir()
    (place.root / "tools").symlink_to(place.home / "Documents")
    links = [place.root / ".venv/bin", other / "bin", place.root / "node_modules/.bin"]
    for target in (".aws", ".config", "Documents", ".mozilla"):
        for link in links:
            link.unlink(missing_ok=True)
            link.symlink_to(place.home / target)
        place.path = [str(link) for link in links]
        tools = place.tools(settings=ToolSettings(path=("tools",)))
        assert not any(tools.shows(str(place.home / name)) for name in secrets), target
        assert tools.path == ("/usr/bin",)
    # A person's own links go on, and a row's directories are shown wherever a link is.
    (place.home / "mine").symlink_to(place.home / "own")
    program(place.home / "own/tool")
    links[0].unlink()
    links[0].symlink_to(place.home / ".cargo/bin")
    place.path = [str(place.home / "mine"), str(links[0])]
    assert place.tools().path == (
        str(place.home / "own"),
        str(place.home / ".cargo/bin"),
        "/usr/bin",
    )


def test_a_directory_of_path_that_holds_credentials_by_its_place_is_left_out(place: Place) -> None:
    for name in (".aws/credentials", ".kube/config", ".docker/config.json"):
        place.path.append(str(program(place.home / name).parent))
    assert place.tools().path == ("/usr/bin",)


@pytest.mark.parametrize("is_link", [False, True])
def test_programs_of_everybody_are_no_environment(place: Place, *, is_link: bool) -> None:
    if is_link:
        (place.home / "data").mkdir()
        (place.home / ".local").symlink_to("data")
    for above, name in ((".local", "bin"), ("x", "scripts")):
        for file in (f"{name}/tool", "share/keyrings/login", "lib/mod.py"):
            program(place.home / above / file)
        (place.home / above / "pyvenv.cfg").write_text("home = /usr/bin\n")
        place.path.append(str(place.home / above / name))
    tools = place.tools()
    for above, name in ((".local", "bin"), ("x", "scripts")):
        assert tools.shows(str((place.home / above / name / "tool").resolve()))
        assert not tools.shows(str((place.home / above / "share/keyrings/login").resolve()))


def test_environments_whose_interpreters_lead_to_each_other_end_nothing(place: Place) -> None:
    venvs = [place.home / f".local/share/pipx/venvs/{name}" for name in "ab"]
    for venv, other in zip(venvs, venvs[::-1], strict=True):
        program(venv / "bin/tool")
        program(venv / "bin/python-own")
        (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
        (venv / "bin/python").symlink_to(other / "bin/python-own")
        place.path.append(str(venv / "bin"))
    own = place.home / ".local/share/pipx/venvs/copied"
    program(own / "bin/python")
    (own / "pyvenv.cfg").write_text("home = /usr/bin\n")
    place.path.append(str(own / "bin"))
    (place.root / ".venv/bin").mkdir(parents=True)
    (place.root / ".venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    (place.root / ".venv/bin/python").symlink_to(own / "bin/python")
    tools = place.tools()
    assert [str(venv / "bin") in tools.path for venv in (*venvs, own)] == [True] * 3


@pytest.mark.parametrize("above", ["", "work", "open"])
def test_what_only_says_that_it_is_an_environment_shows_nothing_more(
    place: Place, above: str
) -> None:
    """A home, what holds the workspace, and what others may change are none."""
    venv = place.home / above if above == "open" else place.root.parent
    if not above:
        venv = place.home
    for name in ("bin/tool", "lib/secret", "share/notes"):
        program(venv / name)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    if above == "open":
        venv.chmod(0o777)
    place.path.append(str(venv / "bin"))
    tools = place.tools()
    assert not any(tools.shows(str(venv / name)) for name in ("lib/secret", "share/notes"))


def test_a_version_file_names_nothing_but_a_version(place: Place) -> None:
    program(place.home / ".pyenv/shims/python")
    program(place.home / ".pyenv/versions/3.12.1/bin/python")
    program(place.home / ".ssh/bin/python")
    (place.home / ".pyenv/versions/evil").symlink_to(place.home / ".ssh")
    place.path.append(str(place.home / ".pyenv/shims"))
    (place.root / ".python-version").write_text("../../.ssh\n..\nevil\n3.12\n")
    tools = place.tools()
    assert tools.path == (str(place.home / ".pyenv/versions/3.12.1/bin"), "/usr/bin")


def test_shims_of_a_manager_elsewhere_are_its_versions_and_never_shown(place: Place) -> None:
    """A shim alone starts what is not there: every `python` of such a command was one."""
    root = place.home.parent / "other/.pyenv"
    for name in ("shims/python", "versions/3.12.1/bin/python"):
        program(root / name)
    (root / "version").write_text("3.12.1\n")
    program(place.home.parent / "odd/shims/tool")
    place.path += [str(root / "shims"), str(place.home.parent / "odd/shims")]
    tools = place.tools()
    odd = str(place.home.parent / "odd/shims")
    assert tools.path == (str(root / "versions/3.12.1/bin"), odd, "/usr/bin")
    assert not tools.shows(str(root / "shims/python"))
    assert not tools.shows(str(root / "version"))


def test_more_places_than_are_mounted_are_named(place: Place) -> None:
    for number in range(30):
        place.path.append(str(program(place.home / f"t{number}/tool").parent))
    tools = place.tools()
    assert len(tools.mounts) == 24
    assert len([note for note in tools.notes if "more than 24 places" in note]) == 6


class Desk:
    """A house whose agent names programs by their paths, and what its person is asked."""

    def __init__(self, base: Path, environment: dict[str, str], *rules: Rule) -> None:
        self.person = Person()
        places = make_places(base, environment)
        self.root = places.start
        layer = Layer(name="user", rules=rules)
        self.house = Skillhouse(configured(places), channel=self.person, layers=(layer,))

    def run(self, line: str, *answers: Answer) -> ToolResult:
        self.person.answers[:] = answers
        return self.house.call_sync("exec", {"command": line})


RULES = [
    Rule(effect=Effect.ALLOW, action="exec", pattern=pattern, unbound=True)
    for pattern in ("tool *", "eslint *", "cat *", "git *")
]


@pytest.fixture
def desk(tmp_path: Path, need: Need) -> Iterator[Desk]:
    need(shutil.which("bwrap"), "no bubblewrap")
    environment = {"PATH": f"{tmp_path}/home/bin:/usr/bin"}
    (tmp_path / "home/bin").mkdir(parents=True)
    desk = Desk(tmp_path, environment, *RULES)
    with desk.house:
        yield desk


@pytest.mark.slow
def test_a_program_that_replaces_itself_is_asked_about_again(desk: Desk, tmp_path: Path) -> None:
    tool = program(desk.root / "run.sh", "#!/bin/sh\necho good\n")
    assert desk.run("./run.sh a", Answer.ALWAYS).content == "good\n"
    assert desk.run("./run.sh a").content == "good\n"
    program(tool)
    assert desk.run("./run.sh a").status == "denied"
    # Between the question and the run.
    tool.unlink()
    program(tool, "#!/bin/sh\necho good\n")

    class Swaps(Person):
        async def ask(self, request: ApprovalRequest) -> Answer:
            program(tool, "#!/bin/sh\necho swapped\n")
            return Answer.ONCE

    other = Skillhouse(configured(make_places(tmp_path)), channel=Swaps(), layers=())
    with other:
        result = other.call_sync("exec", {"command": "./run.sh b"})
    assert "swapped" not in result.content or result.status != "ok"


@pytest.mark.slow
def test_a_compiled_program_is_bound_whole_and_runs_as_a_copy(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that packages bring have tens of megabytes, and were asked about each time."""
    large = "#!/bin/sh\necho good\nexit\n" + "#" * 2_000_000
    tool = program(desk.root / "node_modules/linter/bin/tool", large)
    (desk.root / "node_modules/.bin").mkdir()
    (desk.root / "node_modules/.bin/tool").symlink_to("../linter/bin/tool")
    for name in ("node_modules/linter/bin/tool", "node_modules/.bin/tool"):
        assert desk.run(f"{name} a", Answer.ONCE).content.startswith("good\n")
        assert desk.run(f"{name} a").content.startswith("good\n")
        program(tool, f"{large[:-1]}!")
        assert desk.run(f"{name} a").status == "denied"
        program(tool, large)
    monkeypatch.setattr("skillhouse.tools.approved_scripts.PROGRAM_BYTES_MAX", 1_000_000)
    assert desk.run(f"{name} a").status == "denied"


@pytest.mark.slow
def test_a_link_of_path_into_the_workspace_is_a_script_of_it(desk: Desk, tmp_path: Path) -> None:
    program(desk.root / "tool")
    (tmp_path / "home/bin/tool").symlink_to(desk.root / "tool")
    assert desk.run("tool x").status == "denied"
    assert "`tool` was not approved yet" in desk.person.asked[0].reasons[0]
    assert desk.run("tool x", Answer.ONCE).content.startswith("planted\n")
    assert desk.run("tool x").content.startswith("planted\n")
    program(desk.root / "tool", "#!/bin/sh\necho other\n")
    assert desk.run("tool x").status == "denied"


@pytest.mark.slow
def test_programs_of_an_environment_elsewhere_have_its_packages(tmp_path: Path, need: Need) -> None:
    need(shutil.which("bwrap"), "no bubblewrap")
    venv = tmp_path / "home/.cache/envs/app"
    ran(["/usr/bin/python3", "-m", "venv", "--without-pip", str(venv)], check=True)
    [packages] = venv.glob("lib/python3*/site-packages")
    (packages / "tides.py").write_text("HEIGHT = 3\n")
    program(venv / "bin/tide", f"#!{venv}/bin/python\nimport tides\nprint(tides.HEIGHT)\n")
    rules = [
        Rule(effect=Effect.ALLOW, action="exec", pattern=one, unbound=True)
        for one in ("python -c *", "tide *")
    ]
    desk = Desk(tmp_path, {"PATH": f"{venv}/bin:/usr/bin"}, *rules)
    with desk.house:
        assert desk.run("tide").content.startswith("3\n")
        exact = "python -c 'import tides, sys; print(tides.HEIGHT, sys.prefix)'"
        assert desk.run(exact, Answer.ONCE).content.startswith(f"3 {venv}\n")


@pytest.mark.slow
def test_a_link_to_a_program_is_bound_to_where_it_leads(desk: Desk) -> None:
    program(desk.root / "node_modules/eslint/cli", "#!/bin/sh\necho linted\n")
    program(desk.root / "node_modules/evil/cli", "#!/bin/sh\necho linted\n#\n")
    link = desk.root / "node_modules/.bin/eslint"
    link.parent.mkdir()
    link.symlink_to("../eslint/cli")
    line = "node_modules/.bin/eslint ."
    assert desk.run(line, Answer.ONCE).content.startswith("linted\n")
    assert desk.run(line).content.startswith("linted\n")
    link.unlink()
    link.symlink_to("../evil/cli")
    assert desk.run(line).status == "denied"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [".venv/bin/python run.py", "./gradlew build", "/usr/bin/python3 run.py", "{skill}/scripts/x"],
)
def test_a_program_by_its_path_is_asked_about_and_runs(
    desk: Desk, tmp_path: Path, line: str
) -> None:
    """B6: no person could allow one."""
    skill = write_skill(tmp_path / "home/.agents/skills/pdf")
    program(skill / "scripts/x", "#!/bin/sh\necho ran\n")
    program(desk.root / "gradlew", "#!/bin/sh\necho ran\n")
    (desk.root / "run.py").write_text("print('ran')\n")
    (desk.root / ".venv/bin").mkdir(parents=True)
    (desk.root / ".venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    (desk.root / ".venv/bin/python").symlink_to("/usr/bin/python3")
    desk.house.call_sync("skill", {"name": "pdf"})
    result = desk.run(line.format(skill=skill), Answer.ONCE)
    assert (result.status, result.content) == ("ok", "ran\n"), result.content
    assert len(desk.person.asked) == 1


@pytest.mark.slow
def test_a_program_of_the_workspace_is_not_what_it_is_called(desk: Desk) -> None:
    """`./cat` is no `cat`: it is asked about, and what it writes is not known."""
    program(desk.root / "cat", "#!/bin/sh\necho evil > made\n")
    program(desk.root / "git", "#!/bin/sh\nmkdir -p .git/hooks; echo x > .git/hooks/pre-commit\n")
    program(desk.root / "echo")
    for line in ("timeout 5 ./cat a", "./echo a"):
        result = desk.run(line)
        assert (result.status, "planted" in result.content) == ("denied", False), line
    assert len(desk.person.asked) == 2
    assert desk.run("./git init", Answer.ONCE).is_error
    assert not os.path.lexists(desk.root / ".git/hooks/pre-commit")
    assert desk.run("/usr/bin/cat cat").content.startswith("#!/bin/sh")
