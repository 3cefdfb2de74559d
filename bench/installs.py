"""What an install costs: a package made, 100 locked skills installed, one skill of 500 in Git.

`./x bench installs [--skills N] [--many N] [--directory DIR]` measures wall time in one process;
archives come from a server on loopback, and the repository is one of this machine. The disk is most
of it: each skill is on it before it is in force. DIR says whose disk is measured.

`--npx` measures instead whole commands that install one skill of N from a Git server on loopback:
ours and that of `npx skills add`, in turn (`SKILLHOUSE_NPX_SKILLS=1` installs the latter once).
With `--all` they install all of N; `--sample FILE` gives them the texts of published skills.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median

from _measure import ROOT, markdown_table
from skillhouse.house import Locations, Skillhouse, load_config
from skillhouse.install import Installer
from skillhouse.registry import pack

# The Git server and the other installer are those of the tests.
sys.path.insert(0, str(ROOT))
from tests.interop import npx_skills
from tests.loopback_http import QuietHandler, served
from tests.registry.sources import git, git_server, make_repository

FILES = 20
Times = tuple[float, float]
"""Milliseconds that passed, and those of the processors, with those of git."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure installs.")
    parser.add_argument("--skills", type=int, default=100, help="locked skills")
    parser.add_argument("--many", type=int, default=500, help="skills of one repository")
    parser.add_argument("--directory", help="where everything is written")
    parser.add_argument("--npx", action="store_true", help="compare with `npx skills add`")
    parser.add_argument("--rounds", type=int, default=7, help="of the comparison")
    parser.add_argument("--all", action="store_true", help="compare installs of all")
    parser.add_argument("--sample", type=Path, help="published SKILL.md files, as JSON lines")
    options = parser.parse_args()
    if options.npx:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            compare(Path(directory), options)
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        rows = list(_measured(Path(directory), options.skills, options.many))
    table = [(what, *(f"{ms / count:.1f}" for ms in times)) for what, times, count in rows]
    print(markdown_table(("what", "ms", "CPU ms"), table))


def _measured(base: Path, skills: int, many: int) -> Iterator[tuple[str, Times, int]]:
    (base / "home").mkdir()
    (base / "project/.git").mkdir(parents=True)
    places = Locations(start=base / "project", home=base / "home", environment=os.environ)
    names = [f"skill-{number}" for number in range(skills)]
    directories = [_skill(base / "made" / name) for name in names]
    packages = {}
    took = _timed(lambda: packages.update({d.name: pack(d).archive for d in directories}))
    yield f"pack of {FILES} files", took, skills
    with (
        served_files({f"/{name}.tar.gz": data for name, data in packages.items()}) as address,
        Skillhouse(load_config(places)) as house,
        Installer(house) as installer,
    ):
        yield (
            f"install of {skills} skills",
            _timed(lambda: install_all(installer, [f"{address}/{name}.tar.gz" for name in names])),
            1,
        )
        shutil.rmtree(places.home / ".agents")
        shutil.rmtree(places.home / ".local/state/skillhouse/installs/packages")
        yield f"{skills} locked skills, nothing kept", _timed(lambda: _thaw(installer)), 1
        shutil.rmtree(places.home / ".agents")
        yield f"{skills} locked skills, kept", _timed(lambda: _thaw(installer)), 1
        yield f"verify of {skills} skills", _timed(lambda: _verify(installer)), 1
    for number in range(many):
        _skill(base / f"many/skills/one-{number}", files=2)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "x")):
        options = ("-c", "user.name=a", "-c", "user.email=a@test")
        subprocess.run(["git", *options, *words], cwd=base / "many", check=True)
    url = f"git+{(base / 'many').as_uri()}//skills/one-7"
    with Skillhouse(load_config(places)) as house, Installer(house) as installer:
        took = _timed(lambda: _install_one(installer, url))
    yield f"one skill of {many} in a repository", took, 1


def compare(base: Path, options: argparse.Namespace) -> None:
    """Print what whole commands take that install one of many skills or all, theirs and ours."""
    theirs = npx_skills.program()
    if theirs is None:
        raise SystemExit(npx_skills.MISSING)
    many, rounds = options.many, options.rounds
    for number in range(many):
        _skill(base / f"work/skills/one-{number}", files=5)
    if options.sample is not None:
        _publish(base / "work/skills", many, options.sample)
    make_repository(base / "work")
    git(base, "clone", "--quiet", "--bare", str(base / "work"), str(base / "served/team.git"))
    size = sum(path.stat().st_size for path in (base / "work/skills").rglob("*") if path.is_file())
    times: dict[str, list[Times]] = {"npx skills add": [], "skillhouse install": []}
    with served(git_server(base / "served")) as address:
        url, name = f"{address}/team.git", "*" if options.all else f"one-{many // 2}"
        own_words = ["--all"] if options.all else ["--skill", name]
        for number in range(rounds):
            theirs_home, own_home, project = (
                base / f"{what}-{number}" for what in ("theirs", "own", "project")
            )
            for place in (theirs_home, own_home, project):
                place.mkdir()
            add = partial(
                npx_skills.add, theirs, url, "--skill", name, home=theirs_home, project=project
            )
            times["npx skills add"].append(_timed(add))
            install = partial(_install_command, url, own_words, home=own_home, project=project)
            times["skillhouse install"].append(_timed(install))
    what = f"all of {many}" if options.all else f"one of {many}"
    print(f"{what} skills ({size / 1e6:.1f} MB), median of {rounds} rounds")
    middle = {
        what: (median(passed for passed, _ in found), median(used for _, used in found))
        for what, found in times.items()
    }
    rows = [(what, *(f"{ms / 1_000:.2f}" for ms in found)) for what, found in middle.items()]
    print(markdown_table(("command", "s", "CPU s"), rows))


def _install_command(url: str, words: Sequence[str], *, home: Path, project: Path) -> None:
    command = [sys.executable, "-m", "skillhouse", "install", url, *words]
    subprocess.run(
        [*command, "--yes", "--allow-unsigned", "--accept-obeyed"],
        cwd=project,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        check=True,
        capture_output=True,
    )


def _timed(work: Callable[[], object]) -> Times:
    before, start = os.times(), time.perf_counter()
    work()
    passed, after = time.perf_counter() - start, os.times()
    return passed * 1_000, sum(b - a for a, b in zip(before[:4], after[:4], strict=True)) * 1_000


def _skill(directory: Path, *, files: int = FILES) -> Path:
    directory.mkdir(parents=True)
    text = f"---\nname: {directory.name}\ndescription: Does things.\n---\nBody.\n"
    (directory / "SKILL.md").write_text(text, encoding="utf-8")
    for number in range(files - 1):
        (directory / f"file-{number}.md").write_text(f"{directory.name} {number}\n" * 100)
    return directory


def _publish(skills: Path, many: int, sample: Path) -> None:
    """Give the skills the texts of published ones, with names of their own."""
    with gzip.open(sample) as lines:
        texts = [base64.b64decode(json.loads(line)["skill_md_b64"]) for line in lines]
    fit = [text for text in texts if re.match(rb"---\n(?:.*\n)*?name: *[a-z0-9-]+\n", text)]
    for number in range(many):
        text = re.sub(rb"(?m)^name:.*$", b"name: one-%d" % number, fit[number % len(fit)], count=1)
        (skills / f"one-{number}/SKILL.md").write_bytes(text)


def install_all(installer: Installer, addresses: Iterable[str]) -> None:
    for address in addresses:
        _install_one(installer, address)


def _install_one(installer: Installer, text: str) -> None:
    found = installer.opened(text)
    place = installer.installed.place("user")
    with installer.staged(found, found.candidates[0], place, requested=text) as staged:
        installer.install(staged, agreed=("unsigned",))


def _thaw(installer: Installer) -> None:
    for place, name, entry in list(installer.installed.entries()):
        with installer.locked(name, entry, place) as staged:
            installer.restore(staged, entry)


def _verify(installer: Installer) -> None:
    for place, name, entry in installer.installed.entries():
        if not installer.installed.state(name, entry, place).is_well:
            raise SystemExit(f"`{name}` is not as it was installed")


def served_files(files: Mapping[str, bytes]) -> AbstractContextManager[str]:
    """Serve files by their paths while the block runs, and give the address."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            body = files[self.path]
            self.answer(200, body)

    return served(Handler)


if __name__ == "__main__":
    main()
