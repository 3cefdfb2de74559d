"""`--dry-run` changes nothing: no file, row, socket or mark, on a new machine or one in use."""

from __future__ import annotations

import argparse
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillhouse.frontends.cli.verbs import VERBS, parser_of
from tests.frontends.conftest import Run
from tests.house.places import write_skill
from tests.registry.publisher_skill import LOCKED, REGISTRY

CASES = {
    "install": ("install", "GIVEN", "--dry-run", "--allow-unsigned"),
    "skill install": ("skill", "install", "GIVEN", "--dry-run", "--allow-unsigned"),
    "update": ("update", "--dry-run"),
    "rollback": ("rollback", "given", "--dry-run"),
    "lock": ("lock", "--merge", "--dry-run"),
    "publish": ("publish", "pdf", "--dry-run"),
    "export": ("export", "--all", "--to", "codex", "--dry-run"),
    "bot": ("bot", "--install-service", "--dry-run"),
    "mcp": ("mcp", "install", "codex", "--tools", "all", "--dry-run"),
    "hooks install": ("hooks", "install", "claude-code", "--dry-run"),
    "hooks remove": ("hooks", "remove", "claude-code", "--dry-run"),
    "bundle push": ("bundle", "push", "skills", "SOURCE", "--dry-run", *LOCKED),
    "bundle pull": ("bundle", "pull", "--dry-run"),
    "self": ("self", "remove", "--dry-run"),
}
"""A line for each verb that has a dry run, by its words."""


def dry_verbs() -> Iterator[str]:
    """Yield each verb that has the option, found in the parsers."""

    def walk(parser: argparse.ArgumentParser, words: str) -> Iterator[str]:
        for action in parser._actions:  # noqa: SLF001 - argparse has no public way to list them.
            if "--dry-run" in action.option_strings:
                yield words
            if isinstance(action.choices, dict):
                for name, below in action.choices.items():
                    yield from walk(below, f"{words} {name}")

    for verb in VERBS:
        yield from walk(parser_of(verb)[1], verb)


def test_each_verb_with_a_dry_run_is_tried() -> None:
    assert sorted(dry_verbs()) == sorted(CASES)


def listing(place: Path) -> dict[str, tuple[object, ...]]:
    """Return what is below a directory: kinds, modes, contents, and when they were changed."""
    found: dict[str, tuple[object, ...]] = {}
    for base, directories, files in os.walk(place):
        for name in (*directories, *files):
            path = Path(base, name)
            info = path.lstat()
            content = b""
            if stat.S_ISREG(info.st_mode):
                content = path.read_bytes()
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path).encode()
            digest = hashlib.sha256(content).hexdigest()
            # A directory in which something was made and taken away again has another date.
            when = 0 if stat.S_ISDIR(info.st_mode) else info.st_mtime_ns
            found[str(path.relative_to(place))] = (info.st_mode, when, digest)
    return found


@pytest.fixture
def given(place: Path) -> Path:
    """Skills, a source of bundles and a configuration with it; nothing was ever run."""
    write_skill(place / "given")
    write_skill(place / "work" / "skills" / "notes")
    file = Path.home() / ".config/skillhouse/config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    source = f"file://{place / 'store/team'}"
    file.write_text(f'[skills]\nsource = "{source}"\nsource_publisher = "acme of {REGISTRY}"\n')
    return place


@pytest.mark.usefixtures("publisher")
@pytest.mark.parametrize("is_used", [False, True], ids=["new", "used"])
@pytest.mark.parametrize("verb", CASES)
def test_a_dry_run_changes_nothing(run: Run, given: Path, verb: str, is_used: bool) -> None:
    words = [
        {"GIVEN": str(given / "given"), "SOURCE": f"file://{given / 'store/team'}"}.get(one, one)
        for one in CASES[verb]
    ]
    if is_used:
        write_skill(Path.cwd() / "skills/notes")
        run("bundle", "push", "skills", f"file://{given / 'store/team'}", *LOCKED)
        run("bundle", "pull")
        run("install", str(given / "given"), "--yes", "--allow-unsigned")
        run("list")
    log = Path.home() / ".local/state/skillhouse/audit.jsonl"
    before = listing(given)
    code, out, err = run(*words)
    after = listing(given)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert sorted(changed) == [], (code, out, err, log.read_text() if log.exists() else "")


def tables(url: str) -> dict[str, list[str]]:
    """Return what a database holds."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(url) as connection:
        names = connection.execute(
            # Those of a connection alone are gone with it.
            "SELECT tablename FROM pg_tables WHERE schemaname NOT LIKE 'pg_%' "
            "AND schemaname <> 'information_schema'"
        ).fetchall()
        return {
            name: sorted(map(str, connection.execute(f"SELECT * FROM {name}").fetchall()))
            for (name,) in names
        }


@pytest.mark.slow
@pytest.mark.file_state
@pytest.mark.usefixtures("publisher")
@pytest.mark.parametrize("is_used", [False, True], ids=["new", "used"])
def test_dry_runs_leave_nothing_on_a_server_and_no_mark_of_it(
    given: Path, postgres_server: str, is_used: bool
) -> None:
    from tests.extensions.postgres.state_servers import new_database  # noqa: PLC0415 - an extra.

    url = new_database(postgres_server)
    file = Path.home() / ".config/skillhouse/config.toml"
    file.write_text(f'{file.read_text()}\n[state]\nurl = "{url}"\n')
    write_skill(Path.cwd() / "skills/notes")

    def command(*words: str) -> str:
        argv = [sys.executable, "-m", "skillhouse", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        return done.stdout + done.stderr

    if is_used:
        command("install", str(given / "given"), "--yes", "--allow-unsigned")
        command("approvals", "list")
        assert tables(url)
    before = listing(given), tables(url)
    for verb, case in CASES.items():
        names = {"GIVEN": str(given / "given"), "SOURCE": f"file://{given / 'store/team'}"}
        said = command(*(names.get(one, one) for one in case))
        after = listing(given), tables(url)
        assert "Traceback" not in said
        changed = [
            path
            for path in sorted(before[0].keys() | after[0].keys())
            if before[0].get(path) != after[0].get(path)
        ]
        assert (verb, changed, after[1]) == (verb, [], before[1]), said
