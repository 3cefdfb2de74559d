"""Mutated skills, manifests, locks, configurations and state end no verb, no route and no page.

`MUTATION_SEED=N` makes other mutations than those of every run; a failure says the seed of each.
The first tests try 200 in all, and one real files of others; 5,000 skills, 500 of each other kind
and more files of others are for `./x test nightly`, as each hundred costs a minute or two of CPU.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from skillhouse.frontends.cli.verbs import VERBS
from tests.frontends.mutated_documents import (
    FIXED,
    GROUPS,
    copy_template,
    make_template,
    mutate,
)
from tests.frontends.mutation_runs import SAMPLES, SERVED, Run, calls, is_of_a_skill, offline
from tests.mutations import Mutations, skill_names
from tests.seed_skills import MANIFESTS, SKILLS, SeedSkill

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("MUTATION_SEED", "20261126"))
BATCH = 100
"""Mutated skills of one place."""
CHUNK = 50
"""Mutated documents of one test, which has 240 seconds on a loaded machine."""


@pytest.fixture
def lone(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place without a network."""
    with offline(monkeypatch):
        yield place


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the template of all documents is kept, once it is made."""
    return tmp_path_factory.mktemp("template") / "made"


@pytest.fixture
def template(lone: Path, kept: Path) -> Path:
    """A place with every kind of document, as it is before a mutation."""
    if not kept.exists():
        run = Run(lone, lone / "project/src", lone / "none", is_refused=True)
        make_template(lone, run.command)
        assert run.faults == []
        kept.mkdir()
        for name in ("home", "project"):
            shutil.copytree(lone / name, kept / name, symlinks=True)
    return kept


def fill(
    root: Path, seed: int, count: int, seeds: Sequence[SeedSkill] = SKILLS, only: Sequence[str] = ()
) -> list[Path]:
    """Write mutated skills below a directory."""
    chance = random.Random(seed)
    return [
        Mutations(seed + number).skill(root, chance.choice(seeds), name, only)
        for number, name in enumerate(skill_names(count, chance))
    ]


def drive_skills(place: Path, seed: int, directories: Sequence[Path], share: int) -> list[str]:
    """Run every call over all skills, and each call of one skill over one skill in `share`."""
    root = place / "home/.agents/skills"
    run = Run(place, root, root / "none")
    for number, call in enumerate(calls()):
        before = len(run.faults)
        if is_of_a_skill(call):
            for at, directory in enumerate(directories):
                if (at + number) % share == 0:
                    run.call(call, directory.name, directory)
        else:
            run.call(call)
            if len(run.faults) > before:
                run.faults.append(f"{call}: {culprits(run, call, directories)}")
    run.serve([directory.name for directory in directories[::share]])
    return [f"seed {seed}: {fault}" for fault in run.faults]


def culprits(run: Run, call: Sequence[str], directories: Sequence[Path]) -> list[str]:
    """Halve the skills as long as a call of all of them fails with one half alone."""
    aside = run.base / "aside"
    aside.mkdir()
    left = [directory for directory in directories if directory.exists()]
    tried = Run(run.base, run.root, run.file)
    while len(left) > 1:
        halves = left[: len(left) // 2], left[len(left) // 2 :]
        for half, other in (halves, halves[::-1]):
            for directory in other:
                directory.rename(aside / directory.name)
            before = len(tried.faults)
            tried.call(call)
            for directory in other:
                (aside / directory.name).rename(directory)
            if len(tried.faults) > before:
                left = half
                break
        else:
            break
    aside.rmdir()
    return [directory.name for directory in left[:10]]


def drive_documents(
    template: Path, place: Path, group: str, seeds: Iterable[int], *, fixed: int, share: int
) -> list[str]:
    """Mutate the documents of a group, and run one in `fixed` and one in `share` of the calls."""
    faults: list[str] = []
    for seed in seeds:
        copy_template(template, place)
        os.chdir(place / "project")
        file = mutate(place, group, seed)
        run = Run(place, place / "project/src", file, is_refused=True)
        for number, call in enumerate(FIXED[group]):
            if (number + seed) % fixed == 0:
                run.call(call)
        for number, call in enumerate(calls()):
            if (number + seed) % share == 0:
                run.call(call, "pdf", place / "project/src/pdf")
        if seed % (4 * fixed) == 0:
            run.serve(["pdf"])
        faults += [f"seed {seed} of {group}, {file.name}: {fault}" for fault in run.faults]
    return faults


def test_each_verb_is_called() -> None:
    assert SAMPLES.keys() | SERVED.keys() <= set(VERBS)
    assert {call[0] for call in calls()} == set(VERBS)


def test_mutated_skills_end_nothing(lone: Path) -> None:
    directories = fill(lone / "home/.agents/skills", SEED, 60)
    faults = drive_skills(lone, SEED, directories, 60)
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("group", GROUPS)
def test_mutated_documents_end_nothing(template: Path, lone: Path, group: str) -> None:
    seeds = range(SEED, SEED + 35)
    faults = drive_documents(template, lone, group, seeds, fixed=12, share=150)
    assert not faults, "\n\n".join(faults)


@pytest.mark.nightly
@pytest.mark.heavy
@pytest.mark.parametrize("batch", range(5_000 // BATCH))
def test_five_thousand_mutated_skills_end_nothing(lone: Path, batch: int) -> None:
    seed = SEED + 1_000_000 + batch * BATCH
    directories = fill(lone / "home/.agents/skills", seed, BATCH)
    faults = drive_skills(lone, seed, directories, 25)
    assert not faults, "\n\n".join(faults)


@pytest.mark.nightly
@pytest.mark.heavy
@pytest.mark.parametrize("batch", range(500 // BATCH))
def test_five_hundred_mutated_manifests_end_nothing(lone: Path, batch: int) -> None:
    seed = SEED + 2_000_000 + batch * BATCH
    config = lone / "home/.config/skillhouse/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[skill_code]\nenabled = true\n")
    only = ("package.json", "pyproject.toml")
    directories = fill(lone / "home/.agents/skills", seed, BATCH, MANIFESTS, only)
    faults = drive_skills(lone, seed, directories, 25)
    assert not faults, "\n\n".join(faults)


@pytest.mark.nightly
@pytest.mark.heavy
@pytest.mark.parametrize("chunk", range(500 // CHUNK))
@pytest.mark.parametrize("group", GROUPS)
def test_five_hundred_mutated_documents_end_nothing(
    template: Path, lone: Path, group: str, chunk: int
) -> None:
    first = SEED + 3_000_000 + chunk * CHUNK
    seeds = range(first, first + CHUNK)
    faults = drive_documents(template, lone, group, seeds, fixed=2, share=30)
    assert not faults, "\n\n".join(faults)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 3))]
)
def test_mutated_files_of_others_end_nothing(
    lone: Path, real_skills: Callable[[], Sequence[SeedSkill]], part: int
) -> None:
    seed = SEED + 4_000_000 + part * BATCH
    directories = fill(lone / "home/.agents/skills", seed, BATCH // 4, real_skills())
    faults = drive_skills(lone, seed, directories, 15)
    assert not faults, "\n\n".join(faults)


@pytest.fixture
def real_skills(shared_data: Path) -> Callable[[], Sequence[SeedSkill]]:
    """SKILL.md files that others published, as seeds."""

    def read() -> Sequence[SeedSkill]:
        import base64  # noqa: PLC0415 - one test needs the three.
        import gzip  # noqa: PLC0415
        import json  # noqa: PLC0415

        with gzip.open(shared_data / "skill-files/sample.jsonl.gz") as lines:
            texts = [base64.b64decode(json.loads(line)["skill_md_b64"]) for line in lines]
        return [SeedSkill(files={"SKILL.md": text}) for text in texts]

    return read
