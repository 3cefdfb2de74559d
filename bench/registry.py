"""What it costs to check the signature of a skill, and to install many that a lock has.

`./x bench registry [--files N] [--rounds N] [--skills N] [--starts N]` signs a skill of N files and
checks it often, with the reading of its files, as an install does, and without. The page cache is
warm. Then `install --frozen` brings the skills of a lock, signed ones too, as a new process that
fetches each archive from a server on loopback, and keeps nothing of an earlier start.

`./x bench registry --server [--versions N]` measures a package server with N versions.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

import installs
from _measure import ROOT, markdown_table
from _registry_server import server_rows
from skillhouse.floor import read_tree
from skillhouse.house import Locations, Skillhouse, load_config
from skillhouse.house.installed_check import InstalledCheck, install_locks
from skillhouse.install import Installer
from skillhouse.registry import (
    AnchorStore,
    PublisherCheck,
    SkillIdentity,
    TrustAnchors,
    issue,
    new_request,
    new_root,
    pack,
    publisher_name,
    sign_tree,
    signed_skill,
    verify_signature,
    write_bundle,
)
from skillhouse.registry.trust import TRUSTED_DIRECTORY

REGISTRY = "skills.example.com"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the check of signatures.")
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--skills", type=int, default=100, help="skills of the lock")
    parser.add_argument("--starts", type=int, default=5, help="times that they are installed")
    parser.add_argument("--server", action="store_true", help="the package server instead")
    parser.add_argument("--versions", type=int, default=100_000, help="that the server has")
    options = parser.parse_args()
    if options.server:
        print(server_rows(options.versions, 10 * options.rounds // 3))
        return
    publisher = Publisher()
    with tempfile.TemporaryDirectory() as place:
        rows = measured(Path(place), publisher, options.files, options.rounds)
    with tempfile.TemporaryDirectory() as place:
        more, starts = installed(Path(place), publisher, options)
    header = ("check of a signed skill", "files", "median, ms", "p99, ms", "CPU, ms")
    print(markdown_table(header, [*rows, *more]), end="\n\n")
    print(markdown_table(("a new process, each archive fetched", "s", "CPU s"), starts))


class Publisher:
    """A root certificate, and a developer below it."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)
        root_key = ec.generate_private_key(ec.SECP384R1())
        self.root = new_root(root_key, REGISTRY, self.now)
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = publisher_name(REGISTRY, "acme")
        request = new_request(self.key, name)
        self.chain = issue(request, name, issuer=[self.root], key=root_key, now=self.now)

    def sign(self, skill: Path) -> bytes:
        identity = SkillIdentity(name=skill.name, repository=REGISTRY)
        bundle = sign_tree(read_tree(skill), identity, key=self.key, chain=self.chain, now=self.now)
        (skill / "skill.sig").write_bytes(write_bundle(bundle))
        return write_bundle(bundle)


def make_skill(skill: Path, files: int) -> Path:
    skill.mkdir(parents=True)
    header = f"---\nname: {skill.name}\ndescription: Reads PDF files.\n---\n"
    (skill / "SKILL.md").write_text(header + "Read it.\n" * 400)
    for number in range(files - 1):
        (skill / f"page-{number:03}.md").write_text(f"{number} words\n" * 400)
    return skill


def measured(place: Path, by: Publisher, files: int, rounds: int) -> list[tuple[str, ...]]:
    skill = make_skill(place / "pdf", files)
    signature, tree = by.sign(skill), read_tree(skill)
    identity = SkillIdentity(name="pdf", repository=REGISTRY)
    AnchorStore(place / TRUSTED_DIRECTORY).add_root(by.root)
    check, anchors = PublisherCheck(place), TrustAnchors(roots=(by.root,))
    cases: dict[str, Callable[[], object]] = {
        "the signature alone, files read before": lambda: verify_signature(
            tree, signature, identity, anchors=anchors, now=by.now
        ),
        "as `verify ./DIR`: files, roots and SKILL.md read too": lambda: signed_skill(skill, check),
    }
    return [_row(text, files, work, rounds) for text, work in cases.items()]


def _row(text: str, files: int, work: Callable[[], object], rounds: int) -> tuple[str, ...]:
    work()
    times = sorted(_timed(work, time.perf_counter) for _ in range(rounds))
    median, high = statistics.median(times), times[len(times) * 99 // 100]
    used = statistics.median(_timed(work, time.thread_time) for _ in range(rounds))
    return (text, str(files), *(f"{seconds * 1e3:.2f}" for seconds in (median, high, used)))


def installed(
    base: Path, by: Publisher, options: argparse.Namespace
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return what loading an installed skill costs, and what installing many of a lock does."""
    checks, starts = [], []
    for kind in ("unsigned", "signed"):
        home = base / kind / "home"
        home.mkdir(parents=True)
        environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
        places = Locations(start=home, home=home, environment=environment)
        state = home / ".local/state/skillhouse"
        AnchorStore(state / TRUSTED_DIRECTORY).add_root(by.root)
        packages = {}
        for number in range(options.skills):
            skill = make_skill(base / kind / f"made/skill-{number}", options.files)
            if kind == "signed":
                by.sign(skill)
            packages[f"/{skill.name}.tar.gz"] = pack(skill).archive
        with installs.served_files(packages) as address:
            with Skillhouse(load_config(places)) as house, Installer(house) as installer:
                installs.install_all(installer, [f"{address}{path}" for path in packages])
                check = InstalledCheck(state, install_locks(house.config))
            text = f"whether an installed skill may be loaded, {kind}"
            skill = home / ".agents/skills/skill-0"
            checks.append(_row(text, options.files, partial(_check, check, skill), options.rounds))
            times = [_frozen(home, environment) for _ in range(options.starts)]
        text = f"`install --frozen` of {options.skills} {kind} skills of {options.files} files"
        starts.append(
            (text, *(f"{statistics.median(one):.2f}" for one in zip(*times, strict=True)))
        )
    return checks, starts


def _check(check: InstalledCheck, skill: Path) -> None:
    if fault := check.fault(skill, "user"):
        raise SystemExit(fault)


def _frozen(home: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Return the seconds that passed, and those of CPU, of installing everything once more."""
    shutil.rmtree(home / ".agents")
    shutil.rmtree(home / ".local/state/skillhouse/installs/packages")
    command = ("-m", "skillhouse", "install", "--frozen", "--yes", "--allow-unsigned", "--json")
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *command],
        env={**environment, "PYTHONPATH": str(ROOT / "src")},
        cwd=home,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    passed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return passed, used


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    before = clock()
    work()
    return clock() - before


if __name__ == "__main__":
    main()
